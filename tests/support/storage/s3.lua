-- A server that speaks as S3 does (s3.py), on a free port of the loopback, for specs.

local files = require "tests.support.files"

local s3 = {}

local function number_in(path)
  local file = io.open(path)
  local value = file and file:read "*n"
  if file then file:close() end
  return value
end

--- Starts it over a folder of buckets. `url` is its address, `env` the variables of whoever may ask it.
---@param folder string
function s3.start(folder)
  local self = setmetatable({ work = files.folder() }, { __index = s3 })
  os.execute(("exec python3 tests/support/storage/s3.py '%s' '%s' >'%s/start.log' 2>&1 &"):format(folder, self.work,
    self.work))
  for _ = 1, 500 do
    local port = number_in(self.work .. "/port")
    if port then
      self.url = "http://127.0.0.1:" .. math.floor(port)
      break
    end
    os.execute "sleep 0.02"
  end
  assert(self.url, "s3.py does not start: " .. files.slurp(self.work .. "/start.log"))
  self.env = {
    AWS_ENDPOINT_URL = self.url, AWS_ACCESS_KEY_ID = "AKIDEXAMPLE",
    AWS_SECRET_ACCESS_KEY = "wJalr/XUtn+FEMI=K7MDENG", AWS_REGION = "us-east-1",
    AWS_EC2_METADATA_DISABLED = "true", AWS_CONFIG_FILE = self.work .. "/config",
    AWS_SHARED_CREDENTIALS_FILE = self.work .. "/credentials",
  }
  return self
end

--- What was asked since the last call: its lines.
function s3:log()
  local lines, n = {}, 0
  local file = io.open(self.work .. "/s3.log")
  for line in file and file:lines() or function() end do
    n = n + 1
    if n > (self.seen or 0) then lines[#lines + 1] = line end
  end
  if file then file:close() end
  self.seen = n
  return lines
end

--- The uploads that are open: their lines, "bucket/key id".
function s3:uploads()
  local lines = {}
  for line in io.lines(self.work .. "/open") do lines[#lines + 1] = line end
  return lines
end

function s3:stop()
  os.execute(("kill %d 2>/dev/null"):format(number_in(self.work .. "/s3.pid") or 0))
  files.remove(self.work)
end

return s3

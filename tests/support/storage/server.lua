-- A server of specs (a program of Python in this folder that uses serve.py), on a free port of the loopback.

local files = require "tests.support.files"

local server = {}

local function number_in(path)
  local file = io.open(path)
  local value = file and file:read "*n"
  if file then file:close() end
  return value
end

--- Starts one over a folder. `url` is its address, `host` that without http://, `work` a folder of its own.
---@param name string # "google": google.py
---@param folder string
function server.start(name, folder)
  local self = setmetatable({ work = files.folder() }, { __index = server })
  os.execute(("exec python3 tests/support/storage/%s.py '%s' '%s' >'%s/start.log' 2>&1 &"):format(name, folder,
    self.work, self.work))
  for _ = 1, 1000 do
    local port = number_in(self.work .. "/port")
    if port then
      self.host = ("127.0.0.1:%d"):format(port)
      self.url = "http://" .. self.host
      break
    end
    os.execute "sleep 0.02"
  end
  assert(self.url, name .. ".py does not start: " .. files.slurp(self.work .. "/start.log"))
  return self
end

--- What was asked since the last call: its lines.
---@return string[]
function server:log()
  local lines, n = {}, 0
  local file = io.open(self.work .. "/log")
  for line in file and file:lines() or function() end do
    n = n + 1
    if n > (self.seen or 0) then lines[#lines + 1] = line end
  end
  if file then file:close() end
  self.seen = n
  return lines
end

function server:stop()
  os.execute(("kill %d 2>/dev/null"):format(number_in(self.work .. "/pid") or 0))
  files.remove(self.work)
end

return server

-- A server of specs (a program of Python in this folder or below), on a free port of the loopback.

local files = require "tests.support.files"

---@class tests.server
---@field url string
---@field host string # that without http://
---@field work string # a folder of its own
local server = {}

local function lines_of(path)
  local lines, file = {}, io.open(path)
  for line in file and file:lines() or function() end do lines[#lines + 1] = line end
  if file then file:close() end
  return lines
end

--- Starts one over a folder.
---@param name string # "storage/google": storage/google.py
---@param folder string
---@param options string? # as the program says
---@return tests.server
function server.start(name, folder, options)
  local self = setmetatable({ work = files.folder() }, { __index = server })
  os.execute(("exec python3 tests/support/%s.py '%s' '%s' %s >'%s/start.log' 2>&1 &"):format(name, folder,
    self.work, options or "", self.work))
  for _ = 1, 1000 do
    local port = files.number_in(self.work .. "/port")
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
  local all, lines = lines_of(self.work .. "/log"), {}
  for i = (self.seen or 0) + 1, #all do lines[#lines + 1] = all[i] end
  self.seen = #all
  return lines
end

--- The uploads that are open: their lines, "bucket/key id".
---@return string[]
function server:uploads() return lines_of(self.work .. "/open") end

function server:stop()
  os.execute(("kill %d 2>/dev/null"):format(files.number_in(self.work .. "/pid") or 0))
  files.remove(self.work)
end

return server

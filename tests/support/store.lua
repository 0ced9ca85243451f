-- A server of files that is far away and busy (store.py), on a free port of the loopback, for specs and benchmarks.

local files = require "tests.support.files"

local store = {}

local function number_in(path)
  local file = io.open(path)
  local value = file and file:read "*n"
  if file then file:close() end
  return value
end

--- Starts it over a folder of files, with options ("latency=20 rate=100000000 fail=50"). `url` is its address.
---@param folder string
---@param options string?
function store.start(folder, options)
  local self = setmetatable({ work = files.folder() }, { __index = store })
  os.execute(("exec python3 tests/support/store.py '%s' '%s' %s >'%s/start.log' 2>&1 &"):format(folder,
    self.work, options or "", self.work))
  for _ = 1, 1000 do
    local port = number_in(self.work .. "/port")
    if port then
      self.url = "http://127.0.0.1:" .. math.floor(port)
      break
    end
    os.execute "sleep 0.02"
  end
  assert(self.url, "store.py does not start: " .. files.slurp(self.work .. "/start.log"))
  return self
end

--- What it counted since it was asked before: requests, bytes of bodies, connections, the most requests at once, and
--- how many it let fail.
---@return { requests: integer, bytes: integer, connections: integer, most: integer, failed: integer }
function store:counts()
  local pipe = assert(io.popen(([[python3 -c '
import urllib.request
print(urllib.request.urlopen("%s/-/counts").read().decode())']]):format(self.url)))
  local numbers = {}
  for number in pipe:read("*a"):gmatch "%d+" do numbers[#numbers + 1] = tonumber(number) end
  pipe:close()
  local requests, bytes, connections, most, failed = unpack(numbers)
  return { requests = requests, bytes = bytes, connections = connections - 1, most = most, failed = failed }
end

--- What was asked since the last call: its lines.
function store:log()
  local lines, n = {}, 0
  for line in io.lines(self.work .. "/store.log") do
    n = n + 1
    if n > (self.seen or 0) then lines[#lines + 1] = line end
  end
  self.seen = n
  return lines
end

function store:stop()
  os.execute(("kill %d 2>/dev/null"):format(number_in(self.work .. "/store.pid") or 0))
  files.remove(self.work)
end

return store

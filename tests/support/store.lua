-- A server of files that is far away and busy (store.py), for specs and benchmarks.

local server = require "tests.support.server"

local store = setmetatable({}, { __index = server })

--- Starts it over a folder of files, as server.start does, with options ("latency=20 rate=100000000 fail=50").
---@param folder string
---@param options string?
function store.start(folder, options)
  return setmetatable(server.start("store", folder, options), { __index = store })
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

return store

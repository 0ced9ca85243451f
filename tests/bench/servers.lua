-- Files on a server that is as far away as an object store (tests/support/store.py): a loader over tars of 8 MiB
-- members, with 20 ms a request and 100 MB/s, while a step computes and one request in fifty fails, over that
-- bandwidth, and over a plain curl of the same files in the same run; and how long it takes to open 1,000 files at
-- 90 ms a request, alone and in four processes.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local store = require "tests.support.store"

local MEMBER, MEMBERS, SHARDS, MANY, RATE = 8 * 2 ^ 20, 8, 8, 1000, 100e6

-- Tars of random members by Python, in folder/NUMBER.tar.
local MAKE = [[
import io, os, sys, tarfile
folder, count, members, size = sys.argv[1], *map(int, sys.argv[2:])
for i in range(1, count + 1):
    with tarfile.open(f"{folder}/{i}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for k in range(members):
            about = tarfile.TarInfo(f"{i:06d}{k:03d}.bin")
            about.size = size
            tar.addfile(about, io.BytesIO(os.urandom(size)))
]]

local function make(folder, count, members, size)
  local script = files.write(folder, "make.py", MAKE)
  mpi.shell(("python3 '%s' '%s' %d %d %d"):format(script, folder, count, members, size), 600)
end

local function loads(bench, folder)
  make(folder, SHARDS, MEMBERS, MEMBER)
  local server = store.start(folder, ("latency=20 rate=%.0f fail=50"):format(RATE))
  local list = {}
  for i = 1, SHARDS do list[i] = ("%s/%d.tar"):format(server.url, i) end
  local most = 0
  local function ours()
    local cache = files.folder()
    server:counts()
    local once = "SHARDRT_CACHE='%s' %s --devices 1 tests/bench/servers_once.lua %d %s/%%d.tar %d 4 %d 0.1"
    local text = bench.output(once:format(cache, mpi.program(), SHARDS, server.url, MEMBER, 192 * 2 ^ 20))
    most = math.max(most, server:counts().bytes / (SHARDS * MEMBERS * MEMBER))
    files.remove(cache)
    return tonumber(text:match "([%d.]+) bytes/s")
  end
  local function curl()
    -- Each file by a request of its own, over one connection; curl itself says how long it took.
    local text = bench.output(("curl -s -w '%%{size_download} %%{time_total}\\n' %s"):format(
      table.concat(list, " -o /dev/null ") .. " -o /dev/null"))
    local bytes, seconds = 0, 0
    for size, time in text:gmatch "(%d+) ([%d.]+)" do bytes, seconds = bytes + size, seconds + time end
    return bytes / seconds
  end
  local a, b, ratio = bench.alternate(ours, curl)
  bench.report("loader over tars on a server / its bandwidth", a / RATE, ">= 0.9", ("each byte %.2f times")
    :format(most))
  bench.report("loader over tars on a server / curl", ratio, ">= 0.9", ("%.1f and %.1f MB/s")
    :format(a / 1e6, b / 1e6))
  server:stop()
end

local function opens(bench, folder)
  make(folder, MANY, 1, 4000)
  local server = store.start(folder, "latency=90")
  local recipe = files.write(folder, "open.lua", ([[
    local shardrt = require "shardrt"
    local list, begun = {}, shardrt.clock()
    for i = 1, %d do list[i] = ("%s/%%d.tar"):format(i) end
    assert(#shardrt.source.tar(list) == #list)
    shardrt.say("%%.3f", shardrt.clock() - begun)
  ]]):format(MANY, server.url))
  local caches = {} -- removed at last: ext4 is slow to make files where as many were removed in the last minute
  for _, processes in ipairs { 1, 4 } do
    local times, requests = {}, 0
    for round = 1, bench.rounds do
      local cache = files.folder()
      caches[#caches + 1] = cache
      server:counts()
      local result = mpi.run {
        recipe = recipe, processes = processes > 1 and processes or nil, devices = 1, env = { SHARDRT_CACHE = cache },
      }
      assert(result.status == 0, result.output)
      times[round], requests = tonumber(result.stdout), math.max(requests, server:counts().requests)
    end
    bench.report(("s to open 1,000 tars at 90 ms, %d process%s"):format(processes, processes > 1 and "es" or ""),
      bench.median(times), "<= 2", requests .. " requests")
  end
  for _, cache in ipairs(caches) do files.remove(cache) end
  server:stop()
end

return function(bench)
  for _, part in ipairs { loads, opens } do
    local folder = mpi.folder()
    part(bench, folder)
    mpi.remove(folder)
  end
end

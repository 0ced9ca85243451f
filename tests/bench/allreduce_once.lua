-- A sum over the processes of so many float32, in place: the seconds of the slowest process, the best of several.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local shardrt = require "shardrt"

-- As a program calls it, in a job of its own beside the command's.
local options = ffi.new "shardrt_options"
C.shardrt_options_init(options)
options.devices, options.platform = current.info.devices_per_process, "host"
fail.check(C.shardrt_join(options))
local count, rounds = tonumber(arg[1]), tonumber(arg[2])
local data = ffi.new("float[?]", count)
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local mine, all = ffi.new "double[1]", ffi.new("double[?]", current.info.process_count)
local best = math.huge
for _ = 1, rounds do
  fail.check(C.shardrt_barrier(current.job, "a round"))
  local start = shardrt.clock()
  fail.check(C.shardrt_allreduce(data, count, C.SHARDRT_FLOAT32, mesh.handle, "data"))
  mine[0] = shardrt.clock() - start
  fail.check(C.shardrt_allgather(current.job, "times", mine, 8, all))
  local slowest = 0
  for p = 0, current.info.process_count - 1 do slowest = math.max(slowest, all[p]) end
  best = math.min(best, slowest)
end
shardrt.say("%.9f", best)
fail.check(C.shardrt_leave())

-- Memory that Lua's collector does not see: buffers are freed when their Lua handles are collected, and a handle of a
-- few bytes gives no reason to collect. So whoever makes buffers tells how large they are.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
require("shardrt.base.error").own()

local memory_pressure = {}

-- Bytes of the process's own memory that were made since the last collection: from `some` and from `many` on the next
-- one comes where it takes at most such a share of all time, and at `most` whatever it takes.
local MIB = 2 ^ 20
local some, many, most = 16 * MIB, 64 * MIB, 128 * MIB
local share_of_some, share_of_many = 1 / 32, 1 / 16
local here = 0

-- GPUs make as many bytes in so much less time that collecting as often would take longer than what they compute: there
-- it is a part of all that a GPU has.
local part_of_device = 1 / 16
local there, all_there = 0, nil ---@type number, number?

-- Seconds: when a collection ended last, and how long it took.
local ended, cost = 0, 0

-- KiB of Lua's heap after the last collection; Lua begins one of its own when the heap has twice as many.
local kept = 0

-- collectgarbage() sweeps the heap, marks it and sweeps it again, in case that Lua is within a collection. Where it
-- cannot have begun one, a single cycle finds the same, in half the time.
local function run_cycle()
  if collectgarbage "count" > 1.5 * kept then return collectgarbage() end
  repeat until collectgarbage("step", 2 ^ 20)
end

local function collect(run)
  local began = os.clock() -- of the processor: other work on the machine makes a collection long, and no dearer
  run()
  kept = collectgarbage "count"
  ended, cost = C.shardrt_clock(), os.clock() - began
  here, there = 0, 0
end

-- Whether a collection of the last one's cost would take such a share of the time since then.
local function takes_at_most(share) return (C.shardrt_clock() - ended) * share >= cost end

--- Tells of a new buffer of the process's own memory. A full collection costs in proportion to Lua's own heap: where
--- that is larger than `most`, a collection that must come waits until as many bytes were made, which paid for it.
---@param bytes number
function memory_pressure.made(bytes)
  here = here + bytes
  if here < some then return end
  if here >= math.max(most, kept * 1024) or takes_at_most(here < many and share_of_some or share_of_many) then
    collect(run_cycle)
  end
end

--- Tells of new buffers of devices that have memory of their own.
---@param bytes number
function memory_pressure.made_on_devices(bytes)
  all_there = all_there or tonumber(C.shardrt_device_memory())
  there = there + bytes
  if there >= part_of_device * all_there then collect(run_cycle) end
end

-- What C calls then. An error in a finalizer must not go through C, which goes on without the memory.
local reclaim ---@type ffi.cdata*

local function called(ok, code)
  C.shardrt_device_reclaim(nil)
  if not ok then error(code, 0) end
  return code
end

-- LuaJIT ends the program where C that was called by compiled code calls Lua: so this is never compiled, nor what calls
-- it as far as that goes, and C may call back only while a function of its own is called from here.
local function call_there(call, ...)
  reclaim = reclaim or ffi.cast("void (*)(void)", function() pcall(collect, collectgarbage) end)
  C.shardrt_device_reclaim(reclaim)
  return called(pcall(call, ...))
end
jit.off(call_there)

--- Calls C for what may take memory of devices. Where one has none left, C has a collection give back what nobody
--- holds, there and then, and goes on: nothing is done twice, and other processes that take part only wait. What
--- pointers among the arguments lead to must be held by the caller.
---@param call ffi.cdata* # a function of C's
---@return integer # its code
function memory_pressure.call(call, ...)
  if C.shardrt_device_memory() == 0 then return call(...) end
  return call_there(call, ...)
end

return memory_pressure

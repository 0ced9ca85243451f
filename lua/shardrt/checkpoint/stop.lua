-- The orderly end of a job: a signal asks for it in some process, all agree on it at the same step
-- (runtime/comm/stop_watch.h), every open checkpoint saves there, and the job is over. A checkpoint that is due asks,
-- too.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local owned = require "shardrt.base.owned"
fail.own()

local stop = {}

---@class shardrt.checkpoint.Watch
---@field handle ffi.cdata*? # for as long as a signal is heard
---@field has_saved boolean # where the job ends
---@field takes_steps boolean # so that the end waits for it

local watches = setmetatable({}, { __mode = "k" })
local leader -- of them: the first that took a step, so the first in the recipe's loop; it alone asks
local signal = 0 -- the one that asked, where all processes have agreed
local out, found = ffi.new "shardrt_stop_watch *[1]", ffi.new "int32_t[2]"

--- Begins to hear signals, for one checkpoint.
---@return shardrt.checkpoint.Watch
function stop.watch()
  fail.check(C.shardrt_stop_watch_new(out))
  local handle = owned(out, "shardrt_stop_watch_free")
  local watch = { handle = handle, has_saved = false, takes_steps = false }
  watches[watch] = true
  return watch
end

--- Ends that.
---@param watch shardrt.checkpoint.Watch
function stop.close(watch)
  if watch.handle then C.shardrt_stop_watch_free(ffi.gc(watch.handle, nil)) end
  watch.handle = nil
  watches[watch] = nil
  if leader == watch then leader = nil end
end

--- Whether the job ends here: the same in every process, each of which calls it after every step.
---@param watch shardrt.checkpoint.Watch
---@param caller string
---@param is_due boolean # whether a checkpoint is saved here anyway
---@return boolean
function stop.is_here(watch, caller, is_due)
  if not watch.handle then return false end -- it was closed
  watch.takes_steps = true
  C.shardrt_stop_watch_step(watch.handle)
  if watch.has_saved or signal ~= 0 then return not watch.has_saved end
  leader = leader or watch
  if watch ~= leader then return false end -- so that all save in the same turn of the loop
  fail.check(C.shardrt_stop_watch_ask(watch.handle, current.job, caller, is_due, found, found + 1))
  signal = found[0]
  return signal ~= 0
end

--- Notes that a checkpoint is saved where the job ends. Whether all are that take steps.
---@param watch shardrt.checkpoint.Watch
---@return boolean
function stop.saved(watch)
  watch.has_saved = true
  for other in pairs(watches) do
    if other.takes_steps and not other.has_saved then return false end
  end
  return true
end

--- Ends the job, in every process; returns where it is a program's, which ends by itself.
function stop.finish()
  if current.stop then current.stop() end
end

--- The name of the signal that all processes have agreed to end at; nil: none.
---@return string?
function stop.name()
  if signal ~= 0 then return ffi.string(C.shardrt_stop_name(signal)) end
end

return stop

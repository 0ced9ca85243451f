-- The orderly end of a job: a signal asks for it in some process, all agree on it at the same step, every open
-- checkpoint saves there, and the job is over.
--
-- To agree is a gathering, so processes ask each other about once a second, at steps that follow from how long the
-- slowest one took for the last ones: each knows them without being told. A checkpoint that is due asks, too.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
fail.own()

local stop = {}

local SECONDS = 1 -- from one question to the next, about
local NANOSECONDS = 1e9

---@class shardrt.checkpoint.Watch
---@field steps integer # from one question to the next
---@field since integer # steps since the last one
---@field clock number # seconds, then
---@field listening ffi.cdata*? # for as long as a signal is heard
---@field has_saved boolean # where the job ends
---@field takes_steps boolean # so that the end waits for it

local watches = setmetatable({}, { __mode = "k" })
local leader -- of them: the first that took a step, so the first in the recipe's loop; it alone asks
local signal = 0 -- the one that asked, where all processes have agreed

--- Begins to hear signals, for one checkpoint.
---@return shardrt.checkpoint.Watch
function stop.watch()
  C.shardrt_stop_listen(true)
  local watch = {
    steps = 1, since = 0, clock = C.shardrt_clock(), has_saved = false, takes_steps = false,
    listening = ffi.gc(ffi.new "char[1]", function() C.shardrt_stop_listen(false) end),
  }
  watches[watch] = true
  return watch
end

--- Ends that.
---@param watch shardrt.checkpoint.Watch
function stop.close(watch)
  if watch.listening then
    ffi.gc(watch.listening, nil)
    C.shardrt_stop_listen(false)
  end
  watch.listening = nil
  watches[watch] = nil
  if leader == watch then leader = nil end
end

-- What the processes know together: the signal, if any, and when they ask next.
local function ask(watch, caller)
  local now = C.shardrt_clock()
  local each = (now - watch.clock) / watch.since * NANOSECONDS
  local all = collective.gather_numbers(caller .. ": whether to go on", { C.shardrt_stop_asked(), each })
  local slowest = 1
  for p = 0, current.info.process_count - 1 do
    signal = math.max(signal, tonumber(all[2 * p]))
    slowest = math.max(slowest, tonumber(all[2 * p + 1]))
  end
  -- At most twice as many as the last time: steps may become slower.
  watch.steps = math.max(1, math.min(2 * watch.steps, math.floor(SECONDS * NANOSECONDS / slowest)))
  watch.since, watch.clock = 0, now
end

--- Whether the job ends here: the same in every process, each of which calls it after every step.
---@param watch shardrt.checkpoint.Watch
---@param caller string
---@param is_due boolean # whether a checkpoint is saved here anyway
---@return boolean
function stop.is_here(watch, caller, is_due)
  watch.takes_steps = true
  watch.since = watch.since + 1
  if watch.has_saved or signal ~= 0 then return not watch.has_saved end
  leader = leader or watch
  if watch ~= leader then return false end -- so that all save in the same turn of the loop
  if current.info.process_count == 1 then
    signal = C.shardrt_stop_asked()
  elseif is_due or watch.since >= watch.steps then
    ask(watch, caller)
  end
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

-- The job as a whole: whether it is only planned, what is said once for it, and where its processes meet.

local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local progress = require "shardrt.loader.progress"
local watch = require "shardrt.array.watch"
fail.own()

---@class shardrt.job.words
local words = {}
local job = { words = words }

--- Whether this is `shardrt plan`: arrays have no data and loaders no batches, so there is nothing to look at.
---@return boolean
function words.is_planning() return current.info.planning ~= 0 end

-- Puts the numbers of arrays in their places where the format wants numbers. Whether there are all of them: under
-- `shardrt plan`, there is none; and only process 0 needs those that another's devices have.
local function put_numbers(format, values)
  local at, is_complete = 0, true
  for kind in format:gsub("%%%%", ""):gmatch "%%[^%a]*(%a)" do
    at = at + 1
    local x = values[at]
    if kind:find "[^qs]" and array.is(x) then
      local has_it = current.info.planning == 0 and (current.info.process_index == 0 or #x.addressable_shards > 0)
      if has_it or x.size ~= 1 then values[at] = x:item() else is_complete = false end
    end
  end
  return is_complete
end

--- Prints a line once for the job: in process 0, at once. With more arguments, it is formatted as by string.format.
--- Where that wants a number (%d, %f, …), an array of one number stands for its own; every process must call it then.
--- Under `shardrt plan`, where no array has a number, such a line is left out.
---@param format any
---@param ... any
function words.say(format, ...)
  local text, count = tostring(format), select("#", ...)
  if count > 0 then
    local values = { ... }
    if type(format) == "string" and not put_numbers(format, values) then return end
    local good, formatted = pcall(string.format, format, unpack(values, 1, count))
    if not good then fail("say: %s", (formatted:gsub("^bad argument (#%d+) to '.-'", "argument %1"))) end
    text = formatted
  end
  if current.info.process_index ~= 0 then return end
  progress.make_way(true)
  io.stdout:write(text, "\n")
  io.stdout:flush()
end

--- Waits until every process of the job is here. Every process must call it, with the same name.
---@param name string # for the report of a process that does not come
function words.sync_global_devices(name)
  if type(name) ~= "string" then fail("sync_global_devices: it takes a name, not %s", list.show(name)) end
  C.shardrt_job_at(current.job, fail.where() or "?")
  watch.called(C.shardrt_barrier)
  fail.check(C.shardrt_barrier(current.job, 'sync_global_devices "' .. name .. '"'))
end

return job

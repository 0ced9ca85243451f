-- shardrt.explain: what a function computes, operation by operation, how each result lies, what moved for it, and how
-- long it took.

local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local dispatch = require "shardrt.ops.dispatch"
local fail = require "shardrt.base.error"
local job = require "shardrt.program.job"
local list = require "shardrt.base.list"
local reshard = require "shardrt.array.reshard"
local shape = require "shardrt.layout.shape"
local tape = require "shardrt.ops.tape"
fail.own()

---@class shardrt.explain.words
local words = {}
local explain = { words = words }

local function lies(x)
  if not x.committed then return "not placed" end
  return x.sharding.device and tostring(x.sharding) or tostring(x.sharding.spec)
end

-- Bytes that all processes together receive.
local function moved(x, to, shift)
  if not x.committed then return 0 end
  local plan, bytes = reshard.plan_of("explain", x, to, shift), 0
  for process = 0, current.info.process_count - 1 do bytes = bytes + plan:bytes_received(process) end
  return bytes
end

local UNITS = { "B", "KiB", "MiB", "GiB", "TiB" }

local function bytes_text(bytes)
  local unit = 1
  while bytes >= 10240 and unit < #UNITS do bytes, unit = bytes / 1024, unit + 1 end
  return ("%.0f %s"):format(bytes, UNITS[unit])
end

--- Runs f(...) and prints a line for each operation in it, once for the job: the word, the result and how it lies, how
--- the operands do, the bytes that went from process to process for it, and the time in process 0. Returns what f
--- returns.
---@param f function
---@param ... any
---@return any ...
function words.explain(f, ...)
  local caller = "explain"
  if type(f) ~= "function" then fail("%s: it takes a function, not %s", caller, list.show(f)) end
  if dispatch.observer then fail("%s: within another explain", caller) end
  local bytes, all, since, began = 0, 0, C.shardrt_clock(), C.shardrt_clock()
  job.words.say("%-28s %-34s %-12s %10s  from", "operation", "result", "moved", "time")
  dispatch.mover = function(x, to, shift) bytes = bytes + moved(x, to, shift) end
  dispatch.observer = function(word, out, inputs)
    local now, from = C.shardrt_clock(), {}
    for i, x in ipairs(inputs) do from[i] = lies(x) end
    local made = ("%s %s %s"):format(out.dtype, shape.text(out.shape), lies(out))
    job.words.say("%-28s %-34s %-12s %7.2f ms  %s", word, made, bytes_text(bytes), (now - since) * 1000,
      table.concat(from, ", "))
    all, bytes, since = all + bytes, 0, C.shardrt_clock()
  end
  local results, count = list.pack(pcall(tape.within, f, ...))
  dispatch.observer, dispatch.mover = nil, nil
  if not results[1] then error(results[2], 0) end
  if bytes > 0 then
    job.words.say("%-28s %-34s %-12s %7.2f ms", "results completed", "", bytes_text(bytes),
      (C.shardrt_clock() - since) * 1000)
  end
  job.words.say("in all: %s moved, %.2f ms", bytes_text(all + bytes), (C.shardrt_clock() - began) * 1000)
  return unpack(results, 2, count)
end

return explain

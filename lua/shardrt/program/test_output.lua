-- What `shardrt test` prints in a job of several processes, as a handler of busted: process 0 the running dots and the
-- count; every process its own failures, each headed by the process, one process after the other.

local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
fail.own()

local DOTS = { success = "+", failure = "-", error = "*", pending = "." }

local function write_out(text)
  io.stdout:write(text)
  io.stdout:flush()
end

local function text_of(message)
  if type(message) == "string" then return message end
  return message == nil and "Nil error" or require("pl.pretty").write(message)
end

-- One failure, error or pending test, with the process that has it.
local function failure_text(kind, process, caller, is_verbose)
  local trace = caller.element.trace
  local lines = { ("process %d: %s"):format(process, kind) }
  if trace and trace.short_src then
    lines[1] = ("%s -> %s @ %s"):format(lines[1], trace.short_src, trace.currentline)
  end
  lines[#lines + 1] = caller.name
  lines[#lines + 1] = text_of(caller.message)
  if is_verbose and caller.trace and caller.trace.traceback then lines[#lines + 1] = caller.trace.traceback end
  return "\n" .. table.concat(lines, "\n") .. "\n"
end

local function count_text(handler)
  return ("%d success%s / %d failure%s / %d error%s / %d pending : %.6f seconds"):format(
    handler.successesCount, handler.successesCount == 1 and "" or "es",
    handler.failuresCount, handler.failuresCount == 1 and "" or "s",
    handler.errorsCount, handler.errorsCount == 1 and "" or "s", handler.pendingsCount, handler.getDuration())
end

-- What one process has to say at the end. Process 0 tells the count, and so does one that has failures.
local function report(handler, process, options)
  local parts = {}
  local has_failed = handler.failuresCount + handler.errorsCount > 0
  if process == 0 then
    parts[1] = "\n" .. count_text(handler) .. "\n"
    for _, pending in ipairs(handler.pendings) do
      parts[#parts + 1] = ("\nPending -> %s\n"):format(pending.name)
    end
  elseif has_failed then
    parts[1] = ("\nprocess %d: %s\n"):format(process, count_text(handler))
  end
  for _, failure in ipairs(handler.failures) do
    parts[#parts + 1] = failure_text("Failure", process, failure, options.verbose)
  end
  for _, problem in ipairs(handler.errors) do
    parts[#parts + 1] = failure_text("Error", process, problem, options.verbose)
  end
  return table.concat(parts)
end

return function(options)
  local busted = require "busted"
  local handler = require "busted.outputHandlers.base"()
  local job = current.info

  local function dot(status)
    if job.process_index == 0 and not options.deferPrint then write_out(DOTS[status] or "*") end
    return nil, true
  end
  busted.subscribe({ "test", "end" }, function(_, _, status) return dot(status) end,
    { predicate = handler.cancelOnPending })
  for _, place in ipairs { "file", "describe" } do
    busted.subscribe({ "error", place }, function() return dot "error" end)
    busted.subscribe({ "failure", place }, function() return dot "error" end)
  end
  busted.subscribe({ "suite", "end" }, function()
    -- In turn, and nobody leaves before all have spoken: a process with failures ends the job. One that does not come
    -- here is told of when this process leaves the job; then each speaks at once.
    local is_together = true
    for process = 0, job.process_count - 1 do
      if process == job.process_index then write_out(report(handler, process, options)) end
      is_together = is_together and C.shardrt_barrier(current.job, "the end of the specs") >= 0
    end
    return nil, true
  end)
  return handler
end

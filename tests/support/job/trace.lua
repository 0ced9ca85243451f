-- Reads what --trace wrote, and holds it to the rules of the trace-event format
-- (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).

local cjson = require "cjson"
local files = require "tests.support.files"

local trace = {}

local function is_whole(value) return type(value) == "number" and value == math.floor(value) end

-- Whole nanoseconds of a time in microseconds.
local function nanoseconds(time) return math.floor(time * 1000 + 0.5) end

local function check_event(event)
  local told = cjson.encode(event)
  assert(type(event.name) == "string" and is_whole(event.pid) and is_whole(event.tid), told)
  assert(event.args == nil or type(event.args) == "table", told)
  if event.ph == "M" then
    local key = event.name:match "_name$" and "name" or "sort_index"
    assert(type(event.args[key]) == (key == "name" and "string" or "number"), told)
    return
  end
  assert(type(event.ts) == "number" and event.ts >= 0, told)
  if event.ph == "X" then
    assert(type(event.dur) == "number" and event.dur >= 0 and type(event.cat) == "string", told)
  elseif event.ph == "C" then
    for _, value in pairs(event.args) do assert(type(value) == "number", told) end
  else
    assert(event.ph == "i" and (event.s == "g" or event.s == "p" or event.s == "t"), told)
  end
end

-- Spans of a thread come in the order of their starts and lie within each other or apart. Each gets its `parent`.
local function check_nesting(spans)
  local stack = {}
  for i, span in ipairs(spans) do
    assert(i == 1 or spans[i - 1].start <= span.start, "spans are not in order")
    while #stack > 0 and stack[#stack].stop <= span.start and stack[#stack].stop < span.stop do
      stack[#stack] = nil
    end
    span.parent = stack[#stack]
    assert(not span.parent or span.stop <= span.parent.stop, span.name .. " is half outside " ..
      (span.parent and span.parent.name or ""))
    stack[#stack + 1] = span
  end
end

--- The trace in a file, checked: {other = otherData, events =, spans = of all threads, processes = {[pid] = name},
--- threads = {[pid] = {[tid] = name}}}. A span is an event "X" with start and stop in whole nanoseconds.
function trace.read(path)
  local content = cjson.decode(files.slurp(path))
  local read = { other = content.otherData, events = content.traceEvents, spans = {}, processes = {}, threads = {} }
  local by_thread = {}
  for _, event in ipairs(read.events) do
    check_event(event)
    if event.ph == "X" then
      event.start = nanoseconds(event.ts)
      event.stop = event.start + nanoseconds(event.dur)
      local thread = event.pid .. "." .. event.tid
      by_thread[thread] = by_thread[thread] or {}
      table.insert(by_thread[thread], event)
      read.spans[#read.spans + 1] = event
    elseif event.name == "process_name" then
      assert(not read.processes[event.pid], "a process has two names")
      read.processes[event.pid] = event.args.name
      read.threads[event.pid] = {}
    elseif event.name == "thread_name" then
      assert(not read.threads[event.pid][event.tid], "a thread has two names")
      read.threads[event.pid][event.tid] = event.args.name
    end
  end
  for _, spans in pairs(by_thread) do
    assert(read.threads[spans[1].pid][spans[1].tid], "a thread has no name")
    check_nesting(spans)
  end
  return read
end

--- The spans of one name, of one process or of all.
function trace.named(read, name, pid)
  local found = {}
  for _, span in ipairs(read.spans) do
    if span.name == name and (pid == nil or span.pid == pid) then found[#found + 1] = span end
  end
  return found
end

--- What they took together, in seconds.
function trace.seconds(spans)
  local sum = 0
  for _, span in ipairs(spans) do sum = sum + span.stop - span.start end
  return sum / 1e9
end

--- The sum of one argument.
function trace.sum(spans, argument)
  local sum = 0
  for _, span in ipairs(spans) do sum = sum + span.args[argument] end
  return sum
end

return trace

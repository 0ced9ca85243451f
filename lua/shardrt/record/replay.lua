-- What was recorded (recording.lua), run again of other arrays: a function of Lua that calls C.
--
-- Several processes have a program where all of them have one. A run is one step of theirs, which they compare as they
-- do others: which program it is, and which arrays it is given.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local buffers = require "shardrt.array.buffers"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local handles = require "shardrt.record.handles"
local numbering = require "shardrt.array.numbering"
local owned = require "shardrt.base.owned"
local sorted_pairs = require "shardrt.base.sorted_pairs"
fail.own()

local replay = {}

local PART = 100 -- calls of each of the functions that a program is made of: LuaJIT compiles one of so many

local out = ffi.new "shardrt_array *[1]" -- empty but within functions below

---@class shardrt.replay
---@field forms shardrt.array.form[] # the inputs'
---@field run (fun(): integer)? # C's code; nil: it cannot be run, and what follows is not there
---@field places ffi.cdata* # shardrt_array *[]
---@field count integer # of these
---@field held table<integer, ffi.cdata*> # by their places, arrays that are constants
---@field outputs {place: integer, form: shardrt.array.form, is_gradient: boolean}[]
---@field number integer? # where it is one of several processes: the same in all
---@field name string? # there, for messages: "jit: the program of recipe.lua:5"

-- What is used last by which call, and by no output.
local function last_uses(calls, inputs, outputs, held)
  local last, kept = {}, {}
  for _, output in ipairs(outputs) do kept[output.place] = true end
  for place in pairs(held) do kept[place] = true end
  for i, call in ipairs(calls) do
    for place in pairs(call.uses) do last[place] = i end
  end
  local frees = {}
  for i = 1, #calls do frees[i] = {} end
  for place, i in pairs(last) do
    if place >= inputs and not kept[place] then table.insert(frees[i], place) end
  end
  return frees
end

local function text_of_part(calls, frees, first, last)
  local lines = { "local C, J, K, S, out = ...", "return function()", "local code" }
  local function add(...) lines[#lines + 1] = (...):format(select(2, ...)) end
  for i = first, last do
    local call = calls[i]
    for k, place in ipairs(call.made) do
      add("code = C.shardrt_array_like(K[%d], out) if code < 0 then return code end S[%d] = out[0]", call.outlines[k],
        place)
    end
    for _, taken in ipairs(call.handles) do
      for k, place in ipairs(taken.places) do add("K[%d][%d] = S[%d]", taken.constant, k - 1, place) end
    end
    if call.where then add("C.shardrt_job_at(J.job, K[%d])", call.where) end
    add("code = C.%s(%s) if code < 0 then return code end", call.name, table.concat(call.arguments, ", "))
    if call.gives then add("S[%d] = out[0]", call.gives) end
    for _, place in ipairs(frees[i]) do add("C.shardrt_array_free(S[%d]) S[%d] = nil", place, place) end
  end
  lines[#lines + 1] = "return 0 end"
  return table.concat(lines, "\n")
end

-- The function that makes all calls, one part after the other.
local function run_of(made, places, frees)
  local parts = {}
  for first = 1, #made.calls, PART do
    local text = text_of_part(made.calls, frees, first, math.min(first + PART - 1, #made.calls))
    parts[#parts + 1] = assert(loadstring(text, "=recording"))(C, current, made.constants, places, out)
  end
  if #parts == 1 then return parts[1] end
  return function()
    for i = 1, #parts do
      local code = parts[i]()
      if code < 0 then return code end
    end
    return 0
  end
end

--- A program of arrays of these forms, which cannot be run until it is complete.
---@param arrays shardrt.Array[]
---@return shardrt.replay
function replay.of(arrays)
  local forms = {}
  for i, x in ipairs(arrays) do forms[i] = array.form(x) end
  return { forms = forms }
end

--- Completes a program by what was written down.
---@param program shardrt.replay
---@param made shardrt.recording.open
---@param outputs {place: integer, form: shardrt.array.form, is_gradient: boolean}[]
function replay.complete(program, made, outputs)
  local places = ffi.new("shardrt_array *[?]", made.count + 1)
  program.places, program.count, program.outputs, program.held = places, made.count, outputs, made.held
  program.run = run_of(made, places, last_uses(made.calls, #program.forms, outputs, made.held))
end

-- Programs of several processes.
local numbered = 0

--- Of several processes: leaves the program in all of them or in none, as one that has none would compute by steps that
--- are others. Every process must call it alike.
---@param program shardrt.replay
---@param caller string
---@param what string # of which function it is, for messages
function replay.agree(program, caller, what)
  numbered = numbered + 1
  C.shardrt_job_at(current.job, fail.where() or "?")
  local call = ("%s: the first call of the function of %s with such arguments"):format(caller, what)
  local all = collective.gather_numbers(call, { program.run and 1 or 0 })
  for process = 0, current.info.process_count - 1 do
    if all[process] == 0 then program.run = nil end
  end
  program.number, program.name = numbered, ("%s: the program of %s"):format(caller, what)
end

--- Whether arrays have the forms that a program is of.
---@param program shardrt.replay
---@param arrays shardrt.Array[]
---@return boolean
function replay.fits(program, arrays)
  local forms = program.forms
  if #forms ~= #arrays then return false end
  for i = 1, #arrays do
    if not array.has_form(arrays[i], forms[i]) then return false end
  end
  return true
end

-- Frees what a run left behind that failed.
local function clear(program)
  local inputs = #program.forms
  for place in sorted_pairs.next, program.held do program.places[place] = nil end
  for place = 0, program.count - 1 do
    if place >= inputs then C.shardrt_array_free(program.places[place]) end
    program.places[place] = nil
  end
end

-- The results of a run, which take over what it made for them. `told`: what a run of several processes is.
local function taken_over(program, arrays, told)
  local places, results, first = program.places, {}, {}
  for i, output in ipairs(program.outputs) do
    local place, x = output.place ---@type integer, shardrt.Array
    if place < #arrays or first[place] then
      x = array.another("a recorded program", first[place] or arrays[place + 1])
    elseif program.held[place] then
      x = array.around(output.form, assert(handles.shared(program.held[place])))
    else
      out[0], places[place] = places[place], nil
      x = array.around(output.form, owned(out, "shardrt_array_free"))
      first[place] = x
      buffers.tell_collector(x)
    end
    if numbering.is_of_all(x) then
      numbering.made_by_all(x)
    elseif told then
      numbering.derived(x, ("%s, result %d"):format(told, i))
    end
    if output.is_gradient then array.mark_gradient(x) end
    results[i] = x
  end
  return results
end

-- What a run of several processes is, which they compare, but for what each has on a device of its own. Behind the
-- first line's end stands what messages do not show. Returns it with all.
local function agree_on_run(program, arrays)
  local words = { ("%s\n%d"):format(program.name, program.number) }
  local own = {}
  for i, x in ipairs(arrays) do
    local is_own = x.committed and not numbering.is_of_all(x)
    words[i + 1] = is_own and "own" or numbering.name(x)
    if is_own then own[#own + 1] = numbering.name(x) end
  end
  local told = table.concat(words, ", ")
  C.shardrt_job_step(current.job, told)
  return told .. table.concat(own, ", ")
end

-- The others have gone on, so f cannot be run here instead.
local function end_run(program, ok, code)
  if ok then collective.pass_on() end
  if ok and code >= 0 then return end
  clear(program)
  if not ok then error(code, 0) end
  fail.check(code, not fail.is_between_processes(code) and program.name or nil)
end

--- What a program computes of other arrays of the same forms.
---@param program shardrt.replay
---@param arrays shardrt.Array[] # made
---@return shardrt.Array[]? # nil: there is nothing to run, or something failed; who runs f learns why. (Of several
---processes, what failed is an error.)
function replay.run(program, arrays)
  if not program.run then return nil end
  local told = program.number and agree_on_run(program, arrays)
  for i = 1, #arrays do program.places[i - 1] = arrays[i].handle end
  for place, handle in sorted_pairs.next, program.held do program.places[place] = handle end
  local ok, results = pcall(program.run) -- Lua may have no memory for it
  if told then end_run(program, ok, results) end
  ok = ok and results >= 0
  if ok then ok, results = pcall(taken_over, program, arrays, told) end
  clear(program)
  if told and not ok then error(results, 0) end
  return ok and results or nil
end

return replay

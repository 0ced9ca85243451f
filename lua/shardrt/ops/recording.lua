-- What is computed again and again of arrays of the same forms, such as a small network's gradients. What Lua asks of C
-- once is written down as a program of C calls, and run from then on without asking Lua which calls these are.
--
-- Only what follows from forms may be recorded. A program reads no array but those that it is given; where the recorded
-- calls read another one, or C did something that is not written down, there is no program.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local buffers = require "shardrt.array.buffers"
local current = require "shardrt.base.current"
local list = require "shardrt.base.list"
local numbering = require "shardrt.array.numbering"
local owned = require "shardrt.base.owned"
local watch = require "shardrt.array.watch"
require("shardrt.base.error").own()

local recording = {}

local MOST = 1000 -- calls of a program: the function that is made of them has only so many constants

local function address(pointer) return tonumber(ffi.cast("intptr_t", pointer)) end

-- The functions that may be recorded: what they do follows from their arguments alone.
local NAMES = {}
for _, name in ipairs {
  "alias", "argsort", "array_fill_from", "concatenate", "cumsum", "elementwise", "elementwise_several", "iota",
  "linspace", "matmul", "pad", "reduce", "reduce_elements", "regroup", "slice", "softmax", "take_add",
  "take_rows", "take_update", "transpose", "windows",
} do
  NAMES[address(C["shardrt_" .. name])] = "shardrt_" .. name
end

---@class shardrt.recording.call
---@field name string # the C function's
---@field arguments string[] # each as Lua text
---@field handles {constant: integer, places: integer[]}[] # where handles stand in lists that it takes
---@field made integer[] # places of what it makes
---@field outlines integer[] # constants: what each of these is made like
---@field uses table<integer, true> # places

---@class shardrt.recording.open
---@field places table<number, integer|false> # by a handle's address: where it stands; false: nobody has computed it
---@field count integer # places
---@field calls shardrt.recording.call[]
---@field constants any[] # what the program's text takes from a list
---@field problem boolean # there is no program

local open ---@type shardrt.recording.open?

-- ---- arrays ----

local function has_data(handle)
  for i = 0, tonumber(C.shardrt_array_shard_count(handle)) - 1 do
    if C.shardrt_array_buffer(handle, i) ~= nil then return true end
  end
  return false
end

local out = ffi.new "shardrt_array *[1]" -- empty but within functions below

-- An array like it without data, which the program makes others from.
local function outline(handle)
  if C.shardrt_array_like(handle, out) < 0 then return nil end
  return owned(out, "shardrt_array_free")
end

local function constant(value)
  open.constants[#open.constants + 1] = value
  return #open.constants
end

-- Where an array of a call stands, or nil: the program could not have it.
local function place_of(handle, call)
  local place = open.places[address(handle)]
  if place == nil or place == false and has_data(handle) then return nil end
  if not place then
    local like = outline(handle)
    if not like then return nil end
    place = open.count
    open.count, open.places[address(handle)] = place + 1, place
    call.made[#call.made + 1] = place
    call.outlines[#call.outlines + 1] = constant(like)
  end
  call.uses[place] = true
  return place
end

-- ---- calls ----

local ELEMENT = { ["struct shardrt_step"] = "shardrt_step", int32_t = "int32_t", int64_t = "int64_t", int = "int32_t" }

-- A copy of numbers that C reads, as the callers use their memory again.
local function copy_of(numbers, element)
  local size = ffi.sizeof(numbers)
  local made = ffi.new(element .. "[?]", size / ffi.sizeof(element))
  ffi.copy(made, numbers, size)
  return made
end

local function of_cdata(value, call)
  local kind = tostring(value):match "^cdata<(.*)>"
  if not kind then return ("K[%d]"):format(constant(value)) end -- a number of 64 bits
  kind = kind:gsub("^const ", "")
  if kind == "struct shardrt_array *" then
    local place = place_of(value, call)
    return place and ("S[%d]"):format(place)
  elseif kind:find("^struct shardrt_array %*%[") then
    local places = {}
    for i = 0, ffi.sizeof(value) / ffi.sizeof "void *" - 1 do
      if value[i] == nil then break end
      local place = place_of(value[i], call)
      if not place then return nil end
      places[i + 1] = place
    end
    local at = constant(ffi.new("shardrt_array *[?]", #places + 1))
    call.handles[#call.handles + 1] = { constant = at, places = places }
    return ("K[%d]"):format(at)
  end
  local element = ELEMENT[kind:match "^(.-) ?%[" or ""]
  return element and ("K[%d]"):format(constant(copy_of(value, element)))
end

local function text_of(value, call)
  if value == nil then return "nil" end
  if type(value) == "cdata" then return of_cdata(value, call) end
  if type(value) == "boolean" then return tostring(value) end
  if list.is_whole(value, -2 ^ 31) and value < 2 ^ 31 and 1 / value ~= -math.huge then return tostring(value) end
  return type(value) == "number" and ("K[%d]"):format(constant(value)) or nil
end

local function note(call, ...)
  if #open.calls >= MOST then return false end
  local made = { name = type(call) == "cdata" and NAMES[address(call)], arguments = {}, handles = {}, made = {},
    outlines = {}, uses = {} }
  if not made.name then return false end
  for i = 1, select("#", ...) do
    local text = text_of(select(i, ...), made)
    if not text then return false end
    made.arguments[i] = text
  end
  open.calls[#open.calls + 1] = made
  return true
end

--- Writes down what C is called with, before that is done; nothing where nobody records.
---@param call ffi.cdata*|function # a function of C's, or one that calls C
---@param ... any # its arguments
function recording.note(call, ...)
  if open and not open.problem then open.problem = not note(call, ...) end
end

watch.called = recording.note

function watch.made(handle)
  if open then open.places[address(handle)] = false end
end

function watch.shared(from, handle)
  if open then open.places[address(handle)] = open.places[address(from)] end
end

function watch.looked() -- what follows may depend on what was seen
  if open then open.problem = true end
end

-- ---- programs ----

---@class shardrt.recording.program
---@field forms shardrt.array.form[] # the inputs'
---@field run (fun(): integer)? # C's code; nil: it cannot be run, and what follows is not there
---@field places ffi.cdata* # shardrt_array *[]
---@field count integer # of these
---@field outputs {place: integer, form: shardrt.array.form, is_gradient: boolean}[]

-- What is used last by which call, and by no output.
local function last_uses(calls, inputs, outputs)
  local last, kept = {}, {}
  for _, output in ipairs(outputs) do kept[output.place] = true end
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

local function text_of_program(calls, frees)
  local lines = { "local C, K, S, out = ...", "return function()", "local code" }
  local function add(...) lines[#lines + 1] = (...):format(select(2, ...)) end
  for i, call in ipairs(calls) do
    for k, place in ipairs(call.made) do
      add("code = C.shardrt_array_like(K[%d], out) if code < 0 then return code end S[%d] = out[0]", call.outlines[k],
        place)
    end
    for _, handles in ipairs(call.handles) do
      for k, place in ipairs(handles.places) do add("K[%d][%d] = S[%d]", handles.constant, k - 1, place) end
    end
    add("code = C.%s(%s) if code < 0 then return code end", call.name, table.concat(call.arguments, ", "))
    for _, place in ipairs(frees[i]) do add("C.shardrt_array_free(S[%d]) S[%d] = nil", place, place) end
  end
  lines[#lines + 1] = "return 0 end"
  return table.concat(lines, "\n")
end

-- Adds to a program what was written down, if that is all.
local function finish(program, made, results)
  local outputs, inputs = {}, #program.forms
  for i, x in ipairs(results) do
    local place = made.places[address(x.handle)]
    if not place or made.problem then return end
    outputs[i] = { place = place, form = array.form(x), is_gradient = array.is_gradient(x) }
  end
  local text = text_of_program(made.calls, last_uses(made.calls, inputs, outputs))
  program.places, program.count, program.outputs = ffi.new("shardrt_array *[?]", made.count + 1), made.count, outputs
  program.run = assert(loadstring(text, "=recording"))(C, made.constants, program.places, out)
end

--- Whether what is computed now may be recorded, as far as this process and its job go.
---@return boolean
function recording.is_possible() return not open and current.info.process_count == 1 and current.info.planning == 0 end

-- What f returns, made: what waits is recorded, too.
local function made_by(f, ...)
  local results = f(...)
  for _, x in ipairs(results) do local _ = x.handle end
  return results
end

--- Runs f, and writes down what it computes of these arrays. (It is no function made for this: code that LuaJIT
--- compiled may keep one that it called, and so arrays that it refers to.)
---@param arrays shardrt.Array[] # made, and each an object of its own
---@param f fun(...: any): shardrt.Array[]
---@param ... any # what f is given
---@return shardrt.Array[] # what f returned
---@return shardrt.recording.program
function recording.of(arrays, f, ...)
  local made = { places = {}, count = #arrays, calls = {}, constants = {}, problem = false }
  local program = { forms = {} }
  for i, x in ipairs(arrays) do
    made.places[address(x.handle)], program.forms[i] = i - 1, array.form(x)
  end
  open = made
  local ok, results = pcall(made_by, f, ...)
  open = nil
  if not ok then error(results, 0) end
  if not pcall(finish, program, made, results) then program.run = nil end -- Lua has no memory for it
  return results, program
end

--- Whether arrays have the forms that a program is of.
---@param program shardrt.recording.program
---@param arrays shardrt.Array[]
---@return boolean
function recording.fits(program, arrays)
  local forms = program.forms
  if #forms ~= #arrays then return false end
  for i = 1, #arrays do
    if not rawequal(forms[i], array.form(arrays[i])) then return false end
  end
  return true
end

-- Frees what a run left behind that failed.
local function clear(program)
  local inputs = #program.forms
  for place = 0, program.count - 1 do
    if place >= inputs then C.shardrt_array_free(program.places[place]) end
    program.places[place] = nil
  end
end

-- The results of a run, which take over what it made for them.
local function taken_over(program, arrays)
  local places, results, first = program.places, {}, {}
  for i, output in ipairs(program.outputs) do
    local place, x = output.place ---@type integer, shardrt.Array
    if place < #arrays or first[place] then
      x = array.another("a recorded program", first[place] or arrays[place + 1])
    else
      out[0], places[place] = places[place], nil
      x = array.around(output.form, owned(out, "shardrt_array_free"))
      first[place] = x
      buffers.tell_collector(x)
    end
    if x.committed and not x.sharding.device then numbering.made_by_all(x) end
    if output.is_gradient then array.mark_gradient(x) end
    results[i] = x
  end
  return results
end

--- What a program computes of other arrays of the same forms.
---@param program shardrt.recording.program
---@param arrays shardrt.Array[] # made
---@return shardrt.Array[]? # nil: there is nothing to run, or something failed; who runs f learns why
function recording.run(program, arrays)
  if not program.run then return nil end
  for i = 1, #arrays do program.places[i - 1] = arrays[i].handle end
  local ok, results = program.run() >= 0, nil
  if ok then ok, results = pcall(taken_over, program, arrays) end
  clear(program)
  return ok and results or nil
end

return recording

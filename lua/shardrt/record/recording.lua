-- What is computed again and again of arrays of the same forms, such as a small network's gradients. What Lua asks of C
-- once is written down as a program of C calls, and run from then on (replay.lua) without asking Lua which these are.
--
-- Only what follows from forms may be recorded. A program reads no array but those that it is given; where the recorded
-- calls read another one, or C did something that is not written down, there is no program. A function that does
-- nothing else, as a recipe says (autodiff/jit.lua), may make arrays of the host's numbers, too: these are constants.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local current = require "shardrt.base.current"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local handles = require "shardrt.record.handles"
local list = require "shardrt.base.list"
local numbering = require "shardrt.array.numbering"
local replay = require "shardrt.record.replay"
local shape = require "shardrt.layout.shape"
local watch = require "shardrt.array.watch"
fail.own()

local recording = {}

local MOST = 10000 -- calls of a program

local address, have_data, outline = handles.address, handles.have_data, handles.outline

-- The functions that may be recorded: what they do follows from their arguments alone.
local NAMES = {}
for _, name in ipairs {
  "alias", "argsort", "array_fill_from", "assemble", "concatenate", "cumsum", "elementwise", "elementwise_several",
  "iota", "linspace", "matmul", "pad", "reduce", "reduce_elements", "regroup", "slice", "softmax", "take",
  "take_add", "take_rows", "take_update", "transpose", "windows",
} do
  NAMES[address(C["shardrt_" .. name])] = "shardrt_" .. name
end

-- Those that lay an array out anew, between processes: each makes the array.
local MOVES = {}
for _, name in ipairs { "reshard", "reshard_operand" } do
  MOVES[address(C["shardrt_" .. name])] = "shardrt_" .. name
end

---@class shardrt.recording.call
---@field name string # the C function's
---@field arguments string[] # each as Lua text
---@field where integer? # a constant: the line of the recipe, where processes meet in the call
---@field gives integer? # the place of an array that C itself makes
---@field handles {constant: integer, places: integer[]}[] # where handles stand in lists that it takes
---@field made integer[] # places of what it makes
---@field outlines integer[] # constants: what each of these is made like
---@field uses table<integer, true> # places

---@class shardrt.recording.open
---@field places table<number, integer|false|"constant"> # by a handle's address: where it stands; false: nobody has
---computed it; "constant": it has the same numbers each time
---@field count integer # places
---@field calls shardrt.recording.call[]
---@field constants any[] # what the program's text takes from a list
---@field held table<integer, ffi.cdata*> # by their places, arrays that are constants
---@field problem boolean # there is no program
---@field caller string? # who allows nothing that the program would not do; nil: then there is no program
---@field refused string? # what it did nevertheless: its error, which the function may have caught

local open ---@type shardrt.recording.open?

-- ---- arrays ----

local function constant(value)
  open.constants[#open.constants + 1] = value
  return #open.constants
end

-- Gives an array that is a constant a place; nil: there is no memory for it.
local function hold(handle)
  local place, same = open.count, handles.shared(handle)
  if not same then return nil end
  open.count, open.places[address(handle)], open.held[place] = place + 1, place, same
  return place
end

-- An error of what is done, and of the whole, should the function go on.
local function refuse(...)
  local _, problem = pcall(fail, ...)
  open.refused = open.refused or problem
  error(problem, 0)
end

-- An array that the function was not given would be the same one whenever the program runs.
local function refuse_other(handle)
  local kind = dtype.coded(C.shardrt_array_dtype(handle)).name
  local sizes = shape.from_c(tonumber(C.shardrt_array_ndim(handle)), C.shardrt_array_shape(handle))
  refuse("%s: the function computes with an array that it is not given, %s %s, and its program would always take this "
    .. "one; give it as an argument", open.caller, kind, shape.text(sizes))
end

-- Gives an array that a call makes a place; nil: there is no memory for it.
local function make_place(handle, call)
  local like = outline(handle)
  if not like then return nil end
  local place = open.count
  open.count, open.places[address(handle)] = place + 1, place
  call.made[#call.made + 1] = place
  call.outlines[#call.outlines + 1] = constant(like)
  call.uses[place] = true
  return place
end

-- Where an array of a call stands, or nil: the program could not have it.
local function place_of(handle, call)
  local place = open.places[address(handle)]
  if place == nil and open.caller and have_data(handle) then refuse_other(handle) end
  if place == nil or place == false and have_data(handle) then return nil end
  if place == "constant" then place = hold(handle) end
  if place == nil then return nil end
  if not place then return make_place(handle, call) end
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
  if kind == "struct shardrt_job *" then return "J.job" end -- the one that the process is in then
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

local function new_call(name)
  return { name = name, arguments = {}, handles = {}, made = {}, outlines = {}, uses = {} }
end

local function note(call, ...)
  if #open.calls >= MOST then return false end
  local made = new_call(type(call) == "cdata" and NAMES[address(call)])
  if not made.name then return false end
  for i = 1, select("#", ...) do
    local text = text_of(select(i, ...), made)
    if not text then return false end
    made.arguments[i] = text
  end
  if made.arguments[1] == "J.job" then made.where = constant(fail.where() or "?") end
  open.calls[#open.calls + 1] = made
  return true
end

--- Writes down what C is called with, before that is done; nothing where nobody records.
---@param call ffi.cdata*|function # a function of C's, or one that calls C
---@param ... any # its arguments
function recording.note(call, ...)
  if open and (not open.problem or open.caller) then open.problem = not note(call, ...) or open.problem end
end

watch.called = recording.note

local function is_alone() return current.info.process_count == 1 end

-- A move between devices, which was done; the program has it done by a call for what is all in one process. That is
-- tried here: it is not for other devices than x has.
local function note_regroup(from, handle)
  local trial = outline(handle)
  if not trial or C.shardrt_regroup(from, trial) < 0 then return false end
  local call = new_call "shardrt_regroup"
  local place = place_of(from, call)
  local to = place and make_place(handle, call)
  if not to then return false end
  call.arguments = { ("S[%d]"):format(place), ("S[%d]"):format(to) }
  open.calls[#open.calls + 1] = call
  return true
end

-- The same between processes: the program moves as was done, but leaves the array its memory, which others may share,
-- until its last use.
local function note_move(from, handle, move, to, options)
  local call = new_call(move and MOVES[address(move)])
  -- What nobody computed has no data any more, if it was given up.
  local place = call.name and open.places[address(from)] ~= false and place_of(from, call)
  if not place then return false end
  call.gives, call.where = open.count, constant(fail.where() or "?")
  open.count, open.places[address(handle)], call.uses[call.gives] = call.gives + 1, call.gives, true
  local given = ffi.new("shardrt_reshard_options", options)
  given.donate = 0
  call.arguments = {
    "J.job", ("S[%d]"):format(place), ("K[%d]"):format(constant(to)), ("K[%d]"):format(constant(given)), "out",
  }
  open.calls[#open.calls + 1] = call
  return true
end

function watch.moved(from, handle, move, to, options)
  if not open or open.problem and not open.caller then return end
  local note_it = is_alone() and note_regroup or note_move
  open.problem = #open.calls >= MOST or not note_it(from, handle, move, to, options) or open.problem
end

function watch.made(handle)
  if open then open.places[address(handle)] = false end
end

function watch.shared(from, handle)
  if open then open.places[address(handle)] = open.places[address(from)] end
end

function watch.constant(handle)
  if open and open.caller and not open.places[address(handle)] then open.places[address(handle)] = "constant" end
end

function watch.records() return open ~= nil and open.caller ~= nil end

function watch.shows() -- the text of an array: its numbers, too
  if open then open.problem = open.problem or not open.caller end
  return not open or not open.caller
end

function watch.looked() -- what follows may depend on what was seen
  if open and open.caller then
    refuse("%s: the function looks at an array's elements, which its program would not; return what is to be seen or "
      .. "said afterwards, and choose among elements by np.where", open.caller)
  end
  if open then open.problem = true end
end

-- ---- what is recorded ----

-- Adds to a program what was written down, if that is all.
local function finish(program, made, results)
  local outputs = {}
  for i, x in ipairs(results) do
    local place = made.places[address(x.handle)]
    if place == "constant" then place = hold(x.handle) end
    if not place or made.problem then return end
    outputs[i] = { place = place, form = array.form(x), is_gradient = array.is_gradient(x) }
  end
  replay.complete(program, made, outputs)
end

-- Whether all processes compute with arrays: they all call what has one that they made together.
local function is_of_all(arrays)
  for i = 1, #arrays do
    if numbering.is_of_all(arrays[i]) then return true end
  end
  return false
end

--- Whether what is computed now of arrays may be recorded, as far as this process and its job go. Of several processes
--- all of them record then, and come to `of_all` with the same function.
---@param together shardrt.Array[]? # what it is computed of, where several processes may; left out: they may not
---@return boolean
function recording.is_possible(together)
  if open or current.info.planning ~= 0 then return false end
  -- Memory of GPUs may run out, which one process can mend only where each call is made for itself.
  return is_alone() or together ~= nil and C.shardrt_device_memory() == 0 and is_of_all(together)
end

-- What f returns, made: what waits is recorded, too.
local function made_by(f, ...)
  local results = f(...)
  for _, x in ipairs(results) do local _ = x.handle end
  return results
end

-- The results of f, all made, and refused where f got one of them elsewhere.
local function recorded(f, ...)
  local results = made_by(f, ...)
  for _, x in ipairs(open.caller and results or {}) do
    array.check(open.caller, x)
    if open.places[address(x.handle)] == nil then refuse_other(x.handle) end
  end
  return results
end

local function record(caller, what, arrays, f, ...)
  local made = { places = {}, count = #arrays, calls = {}, constants = {}, held = {}, problem = false, caller = caller }
  local program = replay.of(arrays)
  for i, x in ipairs(arrays) do made.places[address(x.handle)] = i - 1 end
  open = made
  local ok, results = pcall(recorded, f, ...)
  if made.refused then ok, results = false, made.refused end
  if ok and not pcall(finish, program, made, results) then program.run = nil end -- Lua has no memory for it
  open = nil
  if not ok then error(results, 0) end
  if not is_alone() then replay.agree(program, caller, what) end
  return results, program
end

--- Runs f, and writes down what it computes of these arrays. (It is no function made for this: code that LuaJIT
--- compiled may keep one that it called, and so arrays that it refers to.)
---@param arrays shardrt.Array[] # made, and each an object of its own
---@param f fun(...: any): shardrt.Array[]
---@param ... any # what f is given
---@return shardrt.Array[] # what f returned
---@return shardrt.replay
function recording.of(arrays, f, ...) return record(nil, nil, arrays, f, ...) end

--- The same of an f that is to do nothing else: an error where it computes with other arrays, or looks at elements.
---@param caller string
---@param what string # which function it is, for messages: where it stands
---@param arrays shardrt.Array[] # made, and each an object of its own
---@param f fun(...: any): shardrt.Array[]
---@param ... any # what f is given
---@return shardrt.Array[] # what f returned
---@return shardrt.replay
function recording.of_all(caller, what, arrays, f, ...) return record(caller, what, arrays, f, ...) end

--- Whether something is being recorded.
---@return boolean
function recording.is_open() return open ~= nil end

return recording

-- Functions of arrays that are run once, and whose C calls are run from then on (record/recording.lua).
--
-- A program goes on with what the function saw when it was recorded. So it is an error if the function looks at
-- elements, computes with arrays that it is not given, or changes an upvalue of its own, or one has changed. What the
-- functions that it calls refer to, and what is in tables, nobody watches.

local array = require "shardrt.array.array"
local class = require "shardrt.base.class"
local dispatch = require "shardrt.ops.dispatch"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local ndarray = require "shardrt.array.ndarray"
local precision = require "shardrt.ops.precision"
local recording = require "shardrt.record.recording"
local replay = require "shardrt.record.replay"
local shape = require "shardrt.layout.shape"
local tape = require "shardrt.ops.tape"
local tree = require "shardrt.array.tree"
local value_tree = require "shardrt.autodiff.value_tree"
fail.own()

---@class shardrt.jit.words
local words = {}
local jit = { words = words }

local CALLER = "jit"

-- Programs of a function that are kept, and of how many more calls one may be recorded: recording takes some time, and
-- of arguments that are others each time it never pays. After how many recordings that were no programs, and none that
-- was, f is no more recorded.
local PROGRAMS, OFTEN, VAIN = 16, 64, 4

---@class shardrt.jit.function
---@field f function
---@field donated integer[] # arguments whose arrays are given up; the first one is 1
---@field known shardrt.jit.known[] # the last one stands first
---@field recorded integer # ever
---@field vain integer # of these, those that are no programs; a program makes it negative for good
---@field calls integer # ever, that might be recorded
---@field upvalues {name: string, value: any}[]? # of f, before it was recorded first

---@class shardrt.jit.known
---@field count integer # arguments
---@field arguments shardrt.value_tree[]
---@field ends integer[] # by arguments, how many arrays they have with those before
---@field marks boolean[] # by arrays, whether it is a gradient
---@field metatables table<table, true> # of the arguments' tables
---@field precision string
---@field program shardrt.replay? # nil: none was tried
---@field results shardrt.value_tree[]
---@field result_count integer

-- Whether arrays have the forms of a program's, and are gradients where those are; host arrays become arrays.
local function fit(arrays, known)
  for i = 1, #arrays do
    if ndarray.is(arrays[i]) then arrays[i] = dispatch.array(CALLER, arrays[i]) end
    if array.is_gone(arrays[i]) then return false end
    if array.is_gradient(arrays[i]) ~= known.marks[i] then return false end
  end
  return replay.fits(known.program, arrays)
end

-- ---- what a function refers to ----

local function upvalues_of(f)
  local made, i = {}, 1
  while true do
    local name, value = debug.getupvalue(f, i)
    if not name then return made end
    made[i], i = { name = name, value = value }, i + 1
  end
end

local function where_is(f)
  local of = debug.getinfo(f, "S")
  return ("%s:%d"):format(of.short_src, of.linedefined)
end

-- An upvalue that is not what it was, and what it is now; nil: all are.
local function changed(f, upvalues)
  for i = 1, #upvalues do
    local _, value = debug.getupvalue(f, i)
    local was = upvalues[i].value
    if not rawequal(value, was) and (value == value or was == was) then return upvalues[i], value end
  end
end

-- ---- calls ----

-- Where a tree has the first array that was deleted: "params.w", and the array.
local function gone(value, path, depth)
  if array.is(value) then
    if array.is_gone(value) then return path, value end
  elseif type(value) == "table" and not class.is(value) then
    tree.check_depth(CALLER, depth)
    for key, entry in pairs(value) do
      local at, x = gone(entry, tree.branch(path, type(key) == "number" and key or tostring(key)), depth + 1)
      if at then return at, x end
    end
  end
end

local function check_arrays(arguments, count)
  for i = 1, count do
    local at, x = gone(arguments[i], ("argument %d"):format(i - 1), 1)
    if at then
      fail("%s: %s, %s %s, was deleted; an array that a call was given to donate (donate_argnums counts from 0) is "
        .. "gone then, and its results take its place", CALLER, at, x.dtype, shape.text(x.shape))
    end
  end
end

-- The program of arguments like these, and their arrays.
local function known_of(self, arguments, count)
  for _, known in ipairs(self.known) do
    local arrays, fits = {}, known.count == count and known.precision == precision.of(CALLER)
    for i = 1, count do fits = fits and value_tree.fits(arguments[i], known.arguments[i], arrays) end
    if fits and fit(arrays, known) then return known, arrays end
  end
end

-- What is to be known of arguments of which nothing is, and their arrays.
local function new_of(arguments, count)
  local made, arrays = { count = count, arguments = {}, ends = { [0] = 0 }, marks = {}, metatables = {} }, {}
  made.precision = precision.of(CALLER)
  check_arrays(arguments, count)
  for i = 1, count do
    made.arguments[i] = value_tree.of_argument(arguments[i], arrays, made.metatables, 1)
    made.ends[i] = #arrays
  end
  for i, x in ipairs(arrays) do made.marks[i] = array.is_gradient(x) end
  return made, arrays
end

-- The arrays as objects of their own, which only this call has: f may be given one twice, or compare them.
local function others(arrays)
  local made = {}
  for i, x in ipairs(arrays) do
    made[i] = dispatch.another(CALLER, x)
    if array.is_gradient(x) then array.mark_gradient(made[i]) end
  end
  return made
end

-- What f writes into tables that it is given would be lost.
local function check_tables(known, arguments, arrays)
  local now, same = {}, true
  for i = 1, known.count do same = same and value_tree.fits(arguments[i], known.arguments[i], now) end
  for i = 1, #arrays do same = same and rawequal(now[i], arrays[i]) end
  if not same then
    fail("%s: the function changes a table that it is given, which its program would not; return a table with what "
      .. "is new", CALLER)
  end
end

-- Runs f for arrays in the places of its arguments': the arrays of what it returns, complete, the trees that these are
-- in, and how many.
local function run(self, known, arrays)
  local arguments = value_tree.values_of(known.arguments, known.count, arrays)
  local results, count = list.pack(tape.within(self.f, unpack(arguments, 1, known.count)))
  check_tables(known, arguments, arrays)
  local made, trees = {}, {}
  for i = 1, count do trees[i] = value_tree.of_result(results[i], made, known.metatables, 1) end
  return made, trees, count
end

-- What f returned: each array is an object of its own, as those of a program.
local function results_of(made, trees, count)
  local given = {}
  for i, x in ipairs(made) do
    if given[x] then made[i] = dispatch.another(CALLER, x) end
    given[x] = true
  end
  return value_tree.values_of(trees, count, made), count
end

-- Runs f, and notes where the arrays stand in what it returns.
local function run_noting(self, known, arrays)
  local made
  made, known.results, known.result_count = run(self, known, arrays)
  return made
end

local function run_recorded(self, known, arrays)
  local before, copies = upvalues_of(self.f), others(arrays)
  local made, program = recording.of_all(CALLER, where_is(self.f), copies, run_noting, self, known, copies)
  local one = changed(self.f, before)
  if one then
    fail("%s: the function of %s changes %s, a local variable outside it, which its program would not; return the new "
      .. "value", CALLER, where_is(self.f), one.name)
  end
  if #self.known >= PROGRAMS then self.known = {} end
  self.upvalues, self.recorded = self.upvalues or before, self.recorded + 1
  self.vain = program.run and -1 / 0 or self.vain + 1
  known.program = program
  table.insert(self.known, 1, known)
  if self.vain >= VAIN then self.known = {} end
  return results_of(made, known.results, known.result_count)
end

local function run_program(self, known, arrays)
  local made = replay.run(known.program, arrays)
  if not made then return results_of(run(self, known, others(arrays))) end
  return value_tree.values_of(known.results, known.result_count, made), known.result_count
end

local function give_up(self, known, arrays)
  for _, i in ipairs(self.donated) do
    for k = known.ends[i - 1] + 1, known.ends[i] do
      if not array.is_gone(arrays[k]) then arrays[k]:delete() end
    end
  end
end

local function call(self, ...)
  if tape.is_within() or dispatch.observer or dispatch.mover or recording.is_open() then
    return tape.within(self.f, ...)
  end
  local one, value = changed(self.f, self.upvalues or {})
  if one then
    local was, now = list.show(one.value), list.show(value)
    if was == now then now = "another one" end
    fail("%s: the function of %s refers to %s, which was %s when a program was made of it, and is %s now; give it as "
      .. "an argument, and a number that changes often as an array, as np.asarray(n)", CALLER, where_is(self.f),
      one.name, was, now)
  end
  local arguments, count = list.pack(...)
  for _, i in ipairs(self.donated) do
    if i > count then
      fail("%s: donate_argnums has %d, and the function is called with %d arguments; it counts them from 0", CALLER,
        i - 1, count)
    end
  end
  local known, arrays = known_of(self, arguments, count)
  local results, result_count
  if not known then known, arrays = new_of(arguments, count) end
  local is_possible = recording.is_possible(arrays) -- of several processes: in all of them, so that they count alike
  if is_possible then self.calls = self.calls + 1 end
  if is_possible and known.program then
    results, result_count = run_program(self, known, arrays)
  elseif is_possible and self.vain < VAIN and self.recorded <= PROGRAMS + self.calls / OFTEN then
    results, result_count = run_recorded(self, known, arrays)
  else
    results, result_count = results_of(run(self, known, others(arrays)))
  end
  give_up(self, known, arrays)
  return unpack(results, 1, result_count)
end

---@class shardrt.JitOptions
---@field donate_argnums integer|integer[]|nil # the arguments, from 0 on, whose arrays are deleted when f has been run

-- Which arguments are given up, the first one as 1.
local function donated(given)
  if given == nil then return {} end
  local made = {}
  for i, number in ipairs(type(given) == "table" and given or { given }) do
    if not list.is_whole(number, 0) then
      fail("%s: donate_argnums has %s; it is the number of an argument, from 0 on, or a list of such", CALLER,
        list.show(number))
    end
    made[i] = number + 1
  end
  return made
end

local OPTIONS, ALIASES = { donate_argnums = true }, { donate = "donate_argnums", donate_argnames = "donate_argnums" }
local NEEDLESS = {
  static_argnums = "what is no array among the arguments is static, and each value has a program of its own",
  in_shardings = "arguments lie as they are", out_shardings = "with_sharding_constraint(x, s) lays out a result",
}
NEEDLESS.static_argnames = NEEDLESS.static_argnums

--- A function that gives what f gives, and takes Lua less time: f is run once for arguments of one kind, and its C
--- calls are run from then on. Arguments may be nested tables. Their arrays and host arrays are of one kind where
--- shapes, dtypes and shardings are the same. All else is where it is equal: a number that changes at each step is
--- given as an array, as np.asarray(0.1).
---
--- So f does nothing but compute with what it is given. It is an error where f looks at elements, computes with other
--- arrays, or changes its upvalues, and where these have changed. Within a function that is run as one (grad, another
--- jit, explain) f itself is run. It is run each time, too, where it makes random numbers or meets other processes; in
--- one process where it moves arrays to other devices; and in several where none of its arrays is placed over a mesh,
--- or the devices are GPUs.
---@generic F: function
---@param f F
---@param options shardrt.JitOptions?
---@return F
function words.jit(f, options)
  if type(f) ~= "function" then
    fail("%s: it takes a function of arrays, not %s, as in jit(f, { donate_argnums = 0 })", CALLER, list.show(f))
  end
  if options ~= nil and (type(options) ~= "table" or class.is(options)) then
    fail("%s: the options are a table, as in {donate_argnums = {0}}, not %s", CALLER, list.show(options))
  end
  if options == nil then options = {} end -- which NULL is, too
  for name, why in pairs(NEEDLESS) do
    if options[name] ~= nil then fail("%s: %s is not needed: %s", CALLER, name, why) end
  end
  fail.keywords(CALLER, options, OPTIONS, ALIASES)
  local self = { f = f, donated = donated(options.donate_argnums), known = {}, recorded = 0, vain = 0, calls = 0 }
  return function(...) return call(self, ...) end
end

return jit

-- Gradients of what was computed before in the same way. A small network's step takes Lua longer than the processor:
-- where a tape tells of the same steps as an earlier one, the program that was recorded then (record/) runs.

local array = require "shardrt.array.array"
local dispatch = require "shardrt.ops.dispatch"
local list = require "shardrt.base.list"
local precision = require "shardrt.ops.precision"
local recording = require "shardrt.record.recording"
local replay = require "shardrt.record.replay"
local sorted_pairs = require "shardrt.base.sorted_pairs"
local tape = require "shardrt.ops.tape"
require("shardrt.base.error").own()

local remembered = {}

-- Steps of a tape, and elements of a step's result: of more it hardly matters how C is called, memory is given back
-- step by step, and elementwise words wait (ops/delay.lua). Programs that are kept, and how often more of them must be
-- run than are recorded.
local STEPS, MOST, PROGRAMS, OFTEN = 256, 16383, 64, 16

---@class shardrt.remembered.step
---@field vjp function
---@field detail any
---@field given any
---@field inputs integer[] # where arrays stand
---@field out integer

---@class shardrt.remembered.gradient
---@field leaves integer
---@field value integer # where it stands
---@field steps shardrt.remembered.step[]
---@field precision string
---@field program shardrt.replay

local kept = {} ---@type table<shardrt.array.form, shardrt.remembered.gradient[]> # by the value's
local count, recorded, runs = 0, 0, 0 -- of `kept`, and ever

-- What steps had that ended. A function that is made for one step never comes again, and nothing that it is part of.
local seen = setmetatable({}, { __mode = "k" })

-- What a gradient is given beside arrays: equal where it is the same, or a table of the same numbers and texts.
local function is_same(a, b)
  if rawequal(a, b) then return true end
  if type(a) ~= "table" or type(b) ~= "table" or not list.is_plain(a) or not list.is_plain(b) then return a == b end
  for key, value in sorted_pairs.next, a do
    if type(value) == "table" or b[key] ~= value then return false end
  end
  for key in sorted_pairs.next, b do
    if a[key] == nil then return false end
  end
  return true
end

local function has_come(value)
  if type(value) ~= "table" and type(value) ~= "function" or seen[value] then return true end
  seen[value] = true
  return false
end

-- Whether all that steps have came before.
local function may_come_again(entries)
  local may = true
  for k = 1, #entries do
    may = has_come(entries[k].vjp) and may
    may = has_come(entries[k].detail) and may
  end
  return may
end

-- Adds an array that is not there; whether it has its data.
local function add(arrays, place, x)
  if place[x] then return true end
  arrays[#arrays + 1], place[x] = x, #arrays + 1
  return array.is_made(x)
end

-- The arrays of a tape in the order in which it names them, and where each stands; nil: one waits, was deleted, or is
-- large, or they are many. (No function is made here: compiled code would keep it, and so the arrays.)
local function arrays_of(made, leaves, ones)
  local arrays, place = {}, {}
  if #made.entries > STEPS then return nil end
  for i = 1, #leaves do
    if not add(arrays, place, leaves[i]) then return nil end
  end
  if not add(arrays, place, ones) then return nil end
  for k = 1, #made.entries do
    local entry = made.entries[k]
    for i = 1, #entry.inputs do
      if not add(arrays, place, entry.inputs[i]) then return nil end
    end
    if not add(arrays, place, entry.out) or array.form(entry.out).size > MOST then return nil end
  end
  return arrays, place
end

local function is_step(step, entry, place)
  if not rawequal(step.vjp, entry.vjp) or not rawequal(step.detail, entry.detail)
    or #step.inputs ~= #entry.inputs or step.out ~= place[entry.out] or not is_same(step.given, entry.given) then
    return false
  end
  for i = 1, #step.inputs do
    if step.inputs[i] ~= place[entry.inputs[i]] then return false end
  end
  return true
end

local function is_gradient(known, made, value, leaves, arrays, place)
  if known.leaves ~= #leaves or known.value ~= place[value] or #known.steps ~= #made.entries
    or known.precision ~= precision.of() or not replay.fits(known.program, arrays) then
    return false
  end
  for k = 1, #known.steps do
    if not is_step(known.steps[k], made.entries[k], place) then return false end
  end
  return true
end

local function remember(form, made, value, leaves, place, program)
  local steps = {}
  for k, entry in ipairs(made.entries) do
    local inputs = {}
    for i, x in ipairs(entry.inputs) do inputs[i] = place[x] end
    steps[k] = { vjp = entry.vjp, detail = entry.detail, given = entry.given, inputs = inputs, out = place[entry.out] }
  end
  if count >= PROGRAMS then kept, count = {}, 0 end
  kept[form], count = kept[form] or {}, count + 1
  table.insert(kept[form], 1, {
    leaves = #leaves, value = place[value], steps = steps, precision = precision.of(), program = program,
  })
end

--- The gradients of leaves, by a program that is remembered or by `backward`, which is recorded then.
---@param made table # the tape, which has ended
---@param value shardrt.Array # its last result
---@param leaves shardrt.Array[]
---@param ones shardrt.Array # what backward begins with
---@param backward fun(caller: string, made: table, value: shardrt.Array, leaves: shardrt.Array[], ones: shardrt.Array):
---shardrt.Array[] # for each leaf its gradient, computed from what the tape names and `ones`
---@param caller string
---@return shardrt.Array[]
function remembered.gradients(made, value, leaves, ones, backward, caller)
  if tape.is_open() or dispatch.observer or dispatch.mover or not recording.is_possible() then
    return backward(caller, made, value, leaves, ones)
  end
  local arrays, place = arrays_of(made, leaves, ones)
  if not arrays or not place[value] then return backward(caller, made, value, leaves, ones) end
  local form = array.form(value)
  for _, known in ipairs(kept[form] or {}) do
    if is_gradient(known, made, value, leaves, arrays, place) then
      runs = runs + 1
      return replay.run(known.program, arrays) or backward(caller, made, value, leaves, ones)
    end
  end
  if not may_come_again(made.entries) or recorded > PROGRAMS + runs / OFTEN then
    return backward(caller, made, value, leaves, ones)
  end
  recorded = recorded + 1
  local entries = made.entries
  made.entries = list.copy(entries) -- which backward empties
  local found, program = recording.of(arrays, backward, caller, made, value, leaves, ones)
  made.entries = entries
  remember(form, made, value, leaves, place, program)
  return found
end

return remembered

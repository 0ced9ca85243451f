-- Plans of words. Of small arrays, to plan a word takes longer than what it computes: what it came to for operands of
-- some forms is remembered with one of these forms, and done again for others of the same ones.

local array = require "shardrt.array.array"
local current = require "shardrt.base.current"
require("shardrt.base.error").own()

local plans = {}

-- Plans of a form, and of all forms of a sharding, which are many where shapes change; operands of a form that came
-- once, as numbers do that change from step to step: only what comes again is kept.
local MOST, ALL, ONCE = 64, 2048, 64

-- What stands for an operand: the form of an array that has its data, or a number; nil: neither, or no key of a table.
local function key_of(value)
  if type(value) == "number" then return value == value and (value ~= 0 or 1 / value > 0) and value or nil end
  return array.is(value) and array.is_made(value) and array.form(value) or nil
end

-- The form with which the plan is kept, and under which keys; nil: there may be none.
local function place_of(word, a, b)
  local of_a = key_of(a)
  if type(of_a) == "table" then
    if b == nil then return of_a, word, true end
    local of_b = key_of(b)
    return of_b and of_a or nil, word, of_b
  end
  local of_b = of_a and key_of(b)
  return type(of_b) == "table" and of_b or nil, of_a, word -- no word is called as a number
end

local function found(tables, first, second)
  local below = tables and tables[first]
  return below and below[second]
end

local function put(tables, first, second, value)
  tables[first] = tables[first] or {}
  tables[first][second] = value
end

-- Whether these came before; they have, from now on.
local function has_come(form, first, second)
  if found(form.once, first, second) then return true end
  if not form.once or form.once_count >= ONCE then form.once, form.once_count = {}, 0 end
  put(form.once, first, second, true)
  form.once_count = form.once_count + 1
  return false
end

--- The plan of a word of one or two operands.
---@param word string
---@param a any # the operands, of which the second may be left out
---@param b any
---@return any # nil: there may be none of these; false: there is none yet
function plans.of(word, a, b)
  local form, first, second = place_of(word, a, b)
  if not form or current.info.planning ~= 0 then return nil end
  return form.generation == form.among.generation and found(form.plans, first, second) or false
end

--- Remembers one of operands that came before, where `of` said false. A form lives as long as its mesh: what the plan
--- holds, and the other operand, must be of that one. They are where all operands lie as they are needed.
---@param word string
---@param plan table
---@param a any
---@param b any
function plans.keep(word, plan, a, b)
  local form, first, second = place_of(word, a, b)
  if not form or not has_come(form, first, second) then return end
  local all = form.among
  if all.plan_count >= ALL then all.generation, all.plan_count = all.generation + 1, 0 end -- all are made anew
  if form.generation ~= all.generation then form.plans, form.plan_count, form.generation = {}, 0, all.generation end
  if form.plan_count >= MOST then
    all.plan_count = all.plan_count - form.plan_count
    form.plans, form.plan_count = {}, 0
  end
  put(form.plans, first, second, plan)
  form.plan_count, all.plan_count = form.plan_count + 1, all.plan_count + 1
end

return plans

-- Learning rates that depend on the step, with optax's names and arguments. A schedule is a function of the number of
-- updates that came before; an optimiser takes it as its learning_rate.

local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
fail.own()

---@alias shardrt.Schedule fun(step: integer): number

---@class shardrt.ConstantOptions
---@field value number

---@class shardrt.LinearOptions
---@field init_value number
---@field end_value number
---@field transition_steps integer
---@field transition_begin integer? # 0

---@class shardrt.CosineOptions
---@field init_value number
---@field decay_steps integer
---@field alpha number? # 0: what of init_value is left at the end
---@field exponent number? # 1

---@class shardrt.WarmupCosineOptions
---@field init_value number
---@field peak_value number
---@field warmup_steps integer
---@field decay_steps integer # with those of the warm-up
---@field end_value number? # 0
---@field exponent number? # 1

---@class shardrt.JoinOptions
---@field schedules shardrt.Schedule[]
---@field boundaries integer[] # the steps at which the next schedule begins, counting from 0 again

---@class shardrt.schedule.words
local words = {}
local schedule = { words = words }

-- Options by name in a table, or in optax's order: {name, default} each, a default of nil must be given.
local function options_of(caller, names, ...)
  local first, made, known = ..., {}, {}
  for _, each in ipairs(names) do known[each[1]] = true end
  local by_name = select("#", ...) == 1 and type(first) == "table" and not class.is(first) and not list.length(first)
  if by_name then fail.keywords(caller, first, known) end
  if select("#", ...) > #names then fail("%s: it takes %d arguments at most", caller, #names) end
  for i, each in ipairs(names) do
    local value
    if by_name then value = first[each[1]] else value = (select(i, ...)) end
    if value == nil then value = each[2] end
    if value == nil then fail("%s: %s is missing", caller, each[1]) end
    made[each[1]] = value
  end
  return made
end

local function check_numbers(caller, o, wholes)
  for name, value in pairs(o) do
    if type(value) ~= "number" or value ~= value then
      fail("%s: %s = %s; it is a number", caller, name, list.show(value))
    end
  end
  for _, name in ipairs(wholes) do
    if o[name] % 1 ~= 0 then fail("%s: %s = %s; it counts steps", caller, name, list.show(o[name])) end
  end
  return o
end

--- The same at every step.
---@param options shardrt.ConstantOptions|number # or the arguments one after the other, in optax's order
---@param ... any
---@return shardrt.Schedule
function words.constant(options, ...)
  local caller = "schedule.constant"
  local o = check_numbers(caller, options_of(caller, { { "value" } }, options, ...), {})
  return function() return o.value end
end

--- From init_value to end_value in a straight line, within transition_steps from transition_begin on.
---@param options shardrt.LinearOptions|number
---@param ... any
---@return shardrt.Schedule
function words.linear(options, ...)
  local caller = "schedule.linear"
  local o = check_numbers(caller, options_of(caller, {
    { "init_value" }, { "end_value" }, { "transition_steps" }, { "transition_begin", 0 },
  }, options, ...), { "transition_steps", "transition_begin" })
  return function(step)
    if o.transition_steps <= 0 then return o.init_value end
    local count = math.max(0, math.min(step - math.max(0, o.transition_begin), o.transition_steps))
    return (o.init_value - o.end_value) * (1 - count / o.transition_steps) + o.end_value
  end
end

--- From init_value to alpha times it within decay_steps, as half a cosine.
---@param options shardrt.CosineOptions|number
---@param ... any
---@return shardrt.Schedule
function words.cosine(options, ...)
  local caller = "schedule.cosine"
  local o = check_numbers(caller, options_of(caller, {
    { "init_value" }, { "decay_steps" }, { "alpha", 0 }, { "exponent", 1 },
  }, options, ...), { "decay_steps" })
  if o.decay_steps <= 0 then fail("%s: decay_steps = %s; they are more than 0", caller, list.show(o.decay_steps)) end
  return function(step)
    local decay = 0.5 * (1 + math.cos(math.pi * math.min(step, o.decay_steps) / o.decay_steps))
    return o.init_value * ((1 - o.alpha) * decay ^ o.exponent + o.alpha)
  end
end

--- From init_value in a straight line to peak_value within warmup_steps, then as half a cosine to end_value at
--- decay_steps.
---@param options shardrt.WarmupCosineOptions|number
---@param ... any
---@return shardrt.Schedule
function words.warmup_cosine(options, ...)
  local caller = "schedule.warmup_cosine"
  local o = check_numbers(caller, options_of(caller, {
    { "init_value" }, { "peak_value" }, { "warmup_steps" }, { "decay_steps" }, { "end_value", 0 }, { "exponent", 1 },
  }, options, ...), { "warmup_steps", "decay_steps" })
  if o.decay_steps <= o.warmup_steps then
    fail("%s: decay_steps = %d and warmup_steps = %d; the first counts those of the warm-up, too", caller,
      o.decay_steps, o.warmup_steps)
  end
  local alpha = o.peak_value == 0 and 0 or o.end_value / o.peak_value
  return words.join({
    words.linear(o.init_value, o.peak_value, o.warmup_steps),
    words.cosine(o.peak_value, o.decay_steps - o.warmup_steps, alpha, o.exponent),
  }, { o.warmup_steps })
end

--- One schedule after the other: each begins at its boundary, and counts from 0 there.
---@param options shardrt.JoinOptions|shardrt.Schedule[]
---@param ... any
---@return shardrt.Schedule
function words.join(options, ...)
  local caller = "schedule.join"
  local o = options_of(caller, { { "schedules" }, { "boundaries" } }, options, ...)
  for name, value in pairs(o) do
    if not list.length(value) then fail("%s: %s = %s; it is a list", caller, name, list.show(value)) end
  end
  local schedules, boundaries = list.copy(o.schedules), list.copy(o.boundaries)
  if #schedules ~= #boundaries + 1 then
    fail("%s: %d schedules and %d boundaries; there is one between any two", caller, #schedules, #boundaries)
  end
  for i, each in ipairs(schedules) do
    if type(each) ~= "function" then fail("%s: schedule %d is %s; it is a function", caller, i, list.show(each)) end
  end
  for i, boundary in ipairs(boundaries) do
    if not list.is_whole(boundary, i > 1 and boundaries[i - 1] or 0) then
      fail("%s: the boundaries are %s; they are steps, in ascending order", caller, list.show(boundaries))
    end
  end
  return function(step)
    local i = 1
    while i <= #boundaries and step >= boundaries[i] do i = i + 1 end
    return schedules[i](i > 1 and step - boundaries[i - 1] or step)
  end
end

return schedule

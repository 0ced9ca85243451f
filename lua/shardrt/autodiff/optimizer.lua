-- Optimisers: from parameters, their gradients and a state to new ones. All are trees alike, and each new array has the
-- sharding of its parameter.

local array = require "shardrt.array.array"
local class = require "shardrt.base.class"
local common_mesh = require "shardrt.ops.common_mesh"
local creation = require "shardrt.ops.creation"
local dispatch = require "shardrt.ops.dispatch"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local flat_tree = require "shardrt.autodiff.flat_tree"
local list = require "shardrt.base.list"
local ndarray = require "shardrt.array.ndarray"
local promote = require "shardrt.ops.promote"
local recording = require "shardrt.record.recording"
local reduce = require "shardrt.ops.reduce"
local replay = require "shardrt.record.replay"
local shape = require "shardrt.layout.shape"
local tape = require "shardrt.ops.tape"
local tree = require "shardrt.array.tree"
fail.own()

---@alias shardrt.LearningRate number|shardrt.Schedule

---@class shardrt.SgdOptions
---@field learning_rate shardrt.LearningRate

---@class shardrt.MomentumOptions
---@field learning_rate shardrt.LearningRate
---@field momentum number? # 0.9

---@class shardrt.AdamOptions
---@field learning_rate shardrt.LearningRate? # 0.001
---@field beta1 number? # 0.9
---@field beta2 number? # 0.999
---@field epsilon number? # 1e-8

---@class shardrt.AdamwOptions: shardrt.AdamOptions
---@field weight_decay number? # 1e-4

---@class shardrt.optimizer.words
---@field sgd fun(options: shardrt.SgdOptions): shardrt.Optimizer # params - learning_rate * gradient
---@field momentum fun(options: shardrt.MomentumOptions): shardrt.Optimizer # the same with a velocity: momentum *
---velocity + gradient
---@field adam fun(options: shardrt.AdamOptions): shardrt.Optimizer # Adam
---@field adamw fun(options: shardrt.AdamwOptions): shardrt.Optimizer # Adam with decay of the parameters by themselves
local words = {}
local optimizer = { words = words }

---@class shardrt.Optimizer # with the options that it was made with
---@field name string # "optimizer.adam"
---@field learning_rate shardrt.LearningRate
---@field momentum number?
---@field beta1 number?
---@field beta2 number?
---@field epsilon number?
---@field weight_decay number?
local methods = {}
local fields = { name = true }
for _, option in ipairs { "learning_rate", "momentum", "beta1", "beta2", "epsilon", "weight_decay" } do
  fields[option] = function(inside) return inside.options[option] end
end
local Optimizer = class.define("an optimizer", "optimizer", fields, methods)

local f, input = expression.f, expression.input

-- One array from others of one layout, in one pass; the first says which dtype.
local function one_pass(caller, root, ...)
  local arrays = { ... }
  return elementwise.run(caller, arrays, root, arrays[1].dtype)
end

-- A parameter's gradient, and what is kept for it, have its shape, and are brought to where it lies.
local function laid_out_like(caller, x, parameter)
  if not shape.equal(array.sizes(x), array.sizes(parameter)) then
    fail("%s: a parameter of shape %s, and its gradient or state of %s", caller, shape.text(parameter.shape),
      shape.text(x.shape))
  end
  if not parameter.committed or rawequal(array.form(x), array.form(parameter)) then return x end
  local both = { parameter, x }
  local at = common_mesh.of(caller, both)
  local known = common_mesh.known(at, "laid out like", both)
  if known.lies then return x end
  local there = dispatch.to_layout(caller, x, at, common_mesh.dim_axes(at, parameter))
  known.lies = rawequal(there, x)
  return there
end

-- The entries of trees that are alike, leaf by leaf: f(leaf, leaf, …) gives as many results as `count`.
local function map_at(caller, depth, count, apply, first, ...)
  local others, n, made = { ... }, select("#", ...), {}
  if not tree.is(caller, first) then
    local x = dispatch.array(caller, first, "a parameter")
    for i = 1, n do others[i] = laid_out_like(caller, dispatch.array(caller, others[i], "a gradient or state"), x) end
    return apply(x, unpack(others, 1, n))
  end
  tree.check_depth(caller, depth)
  for i = 1, count do made[i] = {} end
  for i = 1, n do
    local is_tree = type(others[i]) == "table" and not array.is(others[i])
    for _, key in ipairs(is_tree and tree.keys(caller, others[i]) or {}) do
      if rawget(first, key) == nil then
        fail('%s: tree %d has "%s", which the parameters have not', caller, i + 1, tostring(key))
      end
    end
  end
  for _, key in ipairs(tree.keys(caller, first)) do
    local below = {}
    for i = 1, n do
      local other = others[i]
      if type(other) ~= "table" or rawget(other, key) == nil then
        fail('%s: the parameters have "%s", which tree %d has not', caller, tostring(key), i + 1)
      end
      below[i] = other[key]
    end
    local results = { map_at(caller, depth + 1, count, apply, first[key], unpack(below)) }
    for i = 1, count do made[i][key] = results[i] end
  end
  return unpack(made, 1, count)
end

local function map(caller, count, apply, ...) return map_at(caller, 1, count, apply, ...) end

-- How many updates came before: a state's `step` as a Lua number. This process made most of them, and knows.
local counts = setmetatable({}, { __mode = "k" })

local function first_step()
  local step = creation.words.zeros({}, "float32")
  counts[step] = 0
  return step
end

local function count_of(caller, step)
  local count = counts[step]
  if not count and dispatch.is_planning() then return 0 end
  if not count and recording.is_open() then
    fail("%s: learning_rate is a function of how many steps there were, which shardrt.jit would not call again; jit "
      .. "what gives the gradients, and call update outside of it", caller)
  end
  return count or step:item() -- of a checkpoint
end

local function next_step(caller, step)
  local x = dispatch.array(caller, step, "the state's step")
  local made = one_pass(caller, input(1) + 1, x)
  if counts[step] then counts[made] = counts[step] + 1 end
  return made
end

-- The learning rate of a step; where it is a function, of the number of updates before.
local function rate_of(caller, o, state)
  if type(o.learning_rate) == "number" then return o.learning_rate end
  local count = count_of(caller, state.step)
  local rate = o.learning_rate(count)
  if type(rate) ~= "number" then
    fail("%s: learning_rate(%d) gave %s; it gives a number", caller, count, list.show(rate))
  end
  return rate
end

---@class shardrt.optimizer.rule
---@field keeps string[] # what its state has; where the learning rate is a function also `step`
---@field init fun(what: string, params: any): table
---@field update fun(what: string, o: table, rate: number, params: any, grads: any, state: table): any, table

local function zeros(caller, params)
  return (map(caller, 1, function(x) return creation.words.zeros_like(x) end, params))
end

local rules = {}

-- By the learning rate, so that programs are made once for it.
local descended = expression.remembered(function(parameter, gradient, rate) return parameter - gradient * rate end)

rules.sgd = {
  keeps = {},
  init = function() return {} end,
  update = function(caller, _, rate, params, grads)
    local moved = descended { input(1), input(2), expression.constant(rate) }
    return (map(caller, 1, function(p, g) return one_pass(caller, moved, p, g) end, params, grads)), {}
  end,
}

-- The velocity is momentum times the last one, plus the gradient (as in PyTorch and optax.sgd).
rules.momentum = {
  keeps = { "velocity" },
  init = function(caller, params) return { velocity = zeros(caller, params) } end,
  update = function(caller, o, rate, params, grads, state)
    local moved = input(3) * o.momentum + input(2)
    local velocity, made = map(caller, 2, function(p, g, v)
      return elementwise.run_several(caller, { p, g, v }, { moved, input(1) - moved * rate }, { v.dtype, p.dtype })
    end, params, grads, state.velocity)
    return made, { velocity = velocity }
  end,
}

-- Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1. `step` counts the updates. With
-- `weight_decay`: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, as optax.adamw has it.
rules.adam = {
  keeps = { "step", "mean", "square" },
  init = function(caller, params)
    return { step = first_step(), mean = zeros(caller, params), square = zeros(caller, params) }
  end,
  update = function(caller, o, rate, params, grads, state)
    local step = next_step(caller, state.step)
    local m = input(3) * o.beta1 + input(2) * (1 - o.beta1)
    local v = input(4) * o.beta2 + f.SQUARE(input(2)) * (1 - o.beta2)
    -- 1 / (1 - beta^step), without what is lost where beta is near 1: of single numbers, so each is computed once
    local function unbiased(beta) return -1 / f.EXPM1(input(5) * math.log(beta)) end
    local moved = input(1) - m * (unbiased(o.beta1) * rate) / (f.SQRT(v * unbiased(o.beta2)) + o.epsilon)
    if o.weight_decay then moved = moved - input(1) * (rate * o.weight_decay) end
    local mean, square, made = map(caller, 3, function(p, g, old_m, old_v)
      return elementwise.run_several(caller, { p, g, old_m, old_v, step }, { m, v, moved },
        { old_m.dtype, old_v.dtype, p.dtype })
    end, params, grads, state.mean, state.square)
    return made, { step = step, mean = mean, square = square }
  end,
}
rules.adamw = rules.adam

--- The state before the first step: a tree of arrays that lie as their parameters.
---@param params any # an array or a tree of arrays
---@return table
function methods:init(params)
  local inside = class.inside(self)
  local state = inside.rule.init(self.name, params)
  if type(inside.options.learning_rate) == "function" and not state.step then state.step = first_step() end
  return state
end

local ORDER = "update takes (params, gradients, state), in this order (optax: gradients, state, params), and returns "
  .. "the new parameters and state; optimizer:init(params) gives the first state"

-- Whether a tree has leaves, and all of them came out of `grad` as they are.
local function is_of_gradients(caller, value, depth)
  if array.is(value) then return array.is_gradient(value) end
  if not tree.is(caller, value) then return false end
  tree.check_depth(caller, depth)
  local keys = tree.keys(caller, value)
  for _, key in ipairs(keys) do
    if not is_of_gradients(caller, value[key], depth + 1) then return false end
  end
  return #keys > 0
end

-- Arguments in another order compute something, where what is alike was swapped.
local function check_order(caller, keeps, params, grads, state)
  if type(state) ~= "table" or class.is(state) then
    fail("%s: the state is %s; %s", caller, list.show(state), ORDER)
  end
  for _, key in ipairs(keeps) do
    if rawget(state, key) == nil then fail('%s: the state has no "%s"; %s', caller, key, ORDER) end
  end
  if #keeps == 0 and tree.is(caller, state) then
    fail("%s: the state holds arrays, and that of sgd has none; %s", caller, ORDER)
  end
  if is_of_gradients(caller, params, 1) and not is_of_gradients(caller, grads, 1) then
    fail("%s: the parameters are what `grad` gave, and the gradients are not; %s. (Parameters that are meant to be "
      .. "gradients are given as x + 0.)", caller, ORDER)
  end
end

-- Elements of a parameter; of larger ones an update takes so long that it does not matter how C is called. Programs of
-- an optimizer: one for each shape of its parameters.
local MOST, PROGRAMS = 65536, 8

-- The leaves from one place to another, as a tree that is a list.
local function part(list_of, first, count)
  local made = {}
  for i = 1, count do made[i] = list_of[first + i] end
  return made
end

-- The update of parameters, gradients and what is kept for them, all in one list; the same list of what comes of them.
local function update_list(inside, rate, arrays, count)
  local lists, at = {}, 2 * count
  for _, key in ipairs(inside.keeps) do
    lists[key] = key == "step" and arrays[at + 1] or part(arrays, at, count)
    at = at + (key == "step" and 1 or count)
  end
  local made, kept = inside.rule.update(inside.name, inside.options, rate, part(arrays, 0, count),
    part(arrays, count, count), lists)
  for _, key in ipairs(inside.keeps) do
    for _, x in ipairs(key == "step" and { kept[key] } or kept[key]) do made[#made + 1] = x end
  end
  return made
end

-- The update of a list: by the program of an earlier one, or recorded.
local function run_list(inside, rate, arrays, count)
  for _, program in ipairs(inside.programs) do
    if replay.fits(program, arrays) then
      return replay.run(program, arrays) or update_list(inside, rate, arrays, count)
    end
  end
  local seen, is_twice = {}, false
  for _, x in ipairs(arrays) do is_twice, seen[x] = is_twice or seen[x], true end
  if is_twice or #inside.programs >= PROGRAMS then return update_list(inside, rate, arrays, count) end
  local made, program = recording.of(arrays, update_list, inside, rate, arrays, count)
  table.insert(inside.programs, program)
  return made
end

-- An update of small parameters, which takes Lua longer than the processor, by a recorded program (record/replay.lua);
-- nil: it is the optimizer's first, the trees are not alike, or something else is not as it mostly is.
local function updated_again(inside, params, grads, state)
  local rate, arrays = inside.options.learning_rate, {}
  inside.updates = inside.updates + 1
  if inside.updates == 1 or type(rate) ~= "number" then return nil end
  if tape.is_open() or dispatch.observer or dispatch.mover or not recording.is_possible() then return nil end
  if not flat_tree.add(arrays, params, MOST) then return nil end
  local count = #arrays
  if not flat_tree.add(arrays, grads, MOST, params) then return nil end
  for _, key in ipairs(inside.keeps) do
    if key == "step" and not array.is(state.step)
      or not flat_tree.add(arrays, state[key], MOST, key ~= "step" and params or nil) then
      return nil
    end
  end
  local made, kept, at = run_list(inside, rate, arrays, count), {}, count
  for _, key in ipairs(inside.keeps) do
    kept[key], at = flat_tree.of(key == "step" and state.step or params, made, at)
  end
  return (flat_tree.of(params, made, 0)), kept
end

--- One step. Arguments that surely stand in another order are refused.
---@param params any
---@param grads any # alike
---@param state table # what init or the last update gave
---@return any params
---@return table state
function methods:update(params, grads, state)
  local inside = class.inside(self)
  check_order(inside.name, inside.keeps, params, grads, state)
  local rate = rate_of(inside.name, inside.options, state)
  local made, kept = updated_again(inside, params, grads, state)
  if not made then made, kept = inside.rule.update(inside.name, inside.options, rate, params, grads, state) end
  if state.step and not kept.step then kept.step = next_step(inside.name, state.step) end
  return made, kept
end

local function is_leaf(x) return array.is(x) or ndarray.is(x) end

--- The tree, such that the root of the sum of all its squares is at most `max`: gradients that are larger become
--- smaller, all by the same factor.
---@generic T
---@param t T # an array, or nested tables of arrays
---@param max number
---@return T
function words.clip_by_global_norm(t, max)
  local caller = "optimizer.clip_by_global_norm"
  if type(max) ~= "number" or max ~= max then
    fail("%s: the largest norm is %s; it is a number, and stands behind the tree", caller, list.show(max))
  end
  if not is_leaf(t) and not tree.is(caller, t) then
    fail("%s: %s is no array and no tree of arrays", caller, type(t) == "table" and "the table" or list.show(t))
  end
  local sum
  tree.map(caller, t, function(leaf, path)
    local x = dispatch.array(caller, leaf, path == "" and "the tree" or path:gsub("^%.", ""))
    local square = reduce.sum_of_squares(caller, x, shape.axes(caller, nil, x.ndim))
    sum = sum and sum + square or square
    return leaf
  end)
  local norm = elementwise.words.sqrt(sum)
  return tree.map(caller, t, function(leaf)
    local x = dispatch.array(caller, leaf)
    local own = promote.to_float(x.dtype)
    local scaled = f.SELECT(f.LT(input(2), max), input(1), input(1) / input(2) * max)
    return elementwise.run(caller, { x, norm }, scaled, own, promote.computed(own))
  end)
end

-- As other libraries call them.
local ALIASES = { lr = "learning_rate", b1 = "beta1", b2 = "beta2", eps = "epsilon" }

-- A word that makes an optimiser from options: name → default (false: it must be given) and what it may be.
local function define_optimizer(name, defaults)
  local caller, known = "optimizer." .. name, {}
  for option in pairs(defaults) do known[option] = true end
  words[name] = function(options)
    if type(options) ~= "table" then fail("%s: it takes a table, as in {learning_rate = 0.1}", caller) end
    fail.keywords(caller, options, known, ALIASES)
    local made = {}
    for option, default in pairs(defaults) do
      local value = options[option]
      if value == nil then value = default end
      if value == false then fail("%s: %s is missing", caller, option) end
      local is_schedule = option == "learning_rate" and type(value) == "function"
      if not is_schedule and (type(value) ~= "number" or value ~= value) then
        fail("%s: %s = %s; it is a number%s", caller, option, list.show(value),
          option == "learning_rate" and ", or a function of the step that gives one" or "")
      end
      if option:find "beta" and (value <= 0 or value >= 1) then
        fail("%s: %s = %s; it lies between 0 and 1", caller, option, list.show(value))
      end
      made[option] = value
    end
    local keeps = list.copy(rules[name].keeps)
    if type(made.learning_rate) == "function" and keeps[1] ~= "step" then table.insert(keeps, 1, "step") end
    return class.new(Optimizer, {
      rule = rules[name], options = made, name = caller, keeps = keeps, programs = {}, updates = 0,
    })
  end
end

define_optimizer("sgd", { learning_rate = false })
define_optimizer("momentum", { learning_rate = false, momentum = 0.9 })
define_optimizer("adam", { learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8 })
define_optimizer("adamw", { learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 1e-4 })

return optimizer

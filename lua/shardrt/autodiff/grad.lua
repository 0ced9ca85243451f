-- Gradients: what was computed is written down (ops/tape.lua), and gone through backwards.

local array = require "shardrt.array.array"
local constraint = require "shardrt.ops.constraint"
local creation = require "shardrt.ops.creation"
local dispatch = require "shardrt.ops.dispatch"
local elementwise = require "shardrt.ops.elementwise"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local promote = require "shardrt.ops.promote"
local remembered = require "shardrt.autodiff.remembered"
local shape = require "shardrt.layout.shape"
local tape = require "shardrt.ops.tape"
local tree = require "shardrt.array.tree"
local watch = require "shardrt.array.watch"
fail.own()

---@class shardrt.grad.words
local words = {}
local grad = { words = words }

local function accumulated(a, b) return a and elementwise.words.add(a, b) or b end

-- Ones that lie as a function's value does: one array for all of its form, of which nobody gets hold.
local function ones_like(value)
  local form = array.form(value)
  form.ones = form.ones or creation.of_form("the gradient", form, 1)
  watch.constant(form.ones.handle)
  return form.ones
end

-- Code that LuaJIT compiled may keep a function that it called, and so what that refers to. Hence what functions made
-- below refer to is taken from them at the end: else old gradients and parameters would stay in memory.

-- The gradients of `leaves`, by leaf, from that of the tape's last result.
local function backward(caller, made, out, leaves, ones)
  local grads = { [out] = ones }
  local function wants(x) return made.tracked[x] == true end
  for i = #made.entries, 1, -1 do
    local entry = made.entries[i]
    made.entries[i], made.tracked[entry.out] = nil, nil -- what is done with is given back
    local dy = grads[entry.out]
    if dy then
      if not rawequal(entry.out, out) then grads[entry.out] = nil end
      if not entry.vjp then
        fail("%s: %s (at %s) has no gradient; shardrt.stop_gradient(x) keeps one from being asked for", caller,
          entry.what, entry.where or "?")
      end
      local given = entry.vjp(dy, wants, entry)
      for k, x in ipairs(entry.inputs) do
        if given[k] and wants(x) then grads[x] = accumulated(grads[x], given[k]) end
      end
    end
  end
  local found = {}
  for i, leaf in ipairs(leaves) do found[i] = grads[leaf] end
  made = nil -- of `wants`
  return found
end

-- The gradient of what only becomes an object of its own.
local function same(dy) return { dy } end

-- The gradients of `leaves`, by leaf: each lies as its leaf, and is an object of its own.
local function gradients_of(caller, made, value, leaves, ones)
  local found, given = backward(caller, made, value, leaves, ones), { [ones] = true }
  for i, leaf in ipairs(leaves) do
    local g = found[i] or creation.words.zeros_like(leaf)
    if found[i] and leaf.committed and g.sharding ~= leaf.sharding then
      g = constraint.array("the gradient", g, leaf.sharding) -- noted, for gradients of gradients
    end
    if given[g] then g = dispatch.another(caller, g, same) end -- who deletes one keeps others
    given[g] = true
    array.mark_gradient(g)
    found[i] = g
  end
  return found
end

-- A parameter in messages.
local function name_of(path) return path == "" and "the parameters" or "parameter " .. path:gsub("^%.", "") end

-- The parameters as arrays that nobody else has, in order, and the tree of them.
local function leaves_of(caller, params)
  local leaves = {}
  local copy = tree.map(caller, params, function(value, path)
    local x = array.is(value) and value or dispatch.array(caller, value, name_of(path))
    if not promote.is_float(x.dtype) then
      fail("%s: %s is %s; a gradient is of floats", caller, name_of(path), x.dtype)
    end
    local leaf = dispatch.another(caller, x, same)
    leaves[#leaves + 1] = leaf
    return leaf
  end)
  local all = leaves
  leaves = nil
  return all, copy
end

local function check_value(caller, value)
  if not array.is(value) then
    fail("%s: the function returned %s; it is to return an array of one number, such as a mean", caller,
      type(value) == "table" and "a table" or list.show(value))
  end
  array.check(caller, value)
  if value.size ~= 1 then
    fail("%s: the function returned an array of shape %s; a gradient is of one number: np.mean or np.sum makes one",
      caller, shape.text(value.shape))
  end
  if not promote.is_float(value.dtype) then
    fail("%s: the function returned %s; a gradient is of floats", caller, value.dtype)
  end
end

-- f(params, …) and its gradients, as one: returns the value, the gradients, and what else f returned.
local function value_and_gradients(caller, f, params, ...)
  local leaves, copy = leaves_of(caller, params)
  local made = tape.begin(leaves)
  local results, count = list.pack(pcall(f, copy, ...))
  tape.finish(made)
  if not results[1] then error(results[2], 0) end
  local value = results[2]
  check_value(caller, value)
  local ones = ones_like(value)
  local found, i = remembered.gradients(made, value, leaves, ones, gradients_of, caller), 0
  local grads = tree.map(caller, copy, function()
    i = i + 1
    return found[i]
  end)
  found = nil
  return value, grads, unpack(results, 3, count)
end

local function check_function(caller, f, ...)
  if select("#", ...) > 0 then
    fail("%s: it takes a function alone: gradients are of its first argument, which may be a tree of arrays, and what "
      .. "it returns behind the value comes behind the gradients", caller)
  end
  if type(f) ~= "function" then
    fail("%s: it takes a function of parameters that returns one number, not %s", caller, list.show(f))
  end
end

--- A function that gives f's value and its gradients. f's first argument is an array or a tree of arrays (nested
--- tables), and the gradients are a tree like it, each with its parameter's shape and dtype, and its sharding where it
--- is placed. f returns an array of one number; what it returns beyond that comes after the gradients. Gradients of
--- gradients are taken in the same way. What f takes out of an array as a host array or a number is a constant from
--- there on.
---@param f fun(params: any, ...: any): shardrt.Array, ...
---@return fun(params: any, ...: any): shardrt.Array, any, ...
function words.value_and_grad(f, ...)
  check_function("value_and_grad", f, ...)
  return function(params, ...) return tape.within(value_and_gradients, "value_and_grad", f, params, ...) end
end

--- A function that gives the gradients alone.
---@param f fun(params: any, ...: any): shardrt.Array
---@return fun(params: any, ...: any): any
function words.grad(f, ...)
  check_function("grad", f, ...)
  return function(params, ...) return (select(2, tape.within(value_and_gradients, "grad", f, params, ...))) end
end

--- The same array, through which no gradient is taken.
---@param x shardrt.Operand
---@return shardrt.Array
function words.stop_gradient(x)
  return dispatch.stop_gradient(dispatch.array("stop_gradient", x))
end

return grad

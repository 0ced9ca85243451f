-- Operations that treat each element by itself.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local buffers = require "shardrt.array.buffers"
local common_mesh = require "shardrt.ops.common_mesh"
local delay = require "shardrt.ops.delay"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local lazy = require "shardrt.base.lazy"
local list = require "shardrt.base.list"
local plans = require "shardrt.array.plans"
local promote = require "shardrt.ops.promote"
local propagate = require "shardrt.ops.propagate"
local shape = require "shardrt.layout.shape"
local reduce = lazy.module "shardrt.ops.reduce" -- the gradient of what was broadcast is a sum
fail.own()

local f = expression.f

---@alias shardrt.Unary fun(x: shardrt.Operand): shardrt.Array
---@alias shardrt.Binary fun(a: shardrt.Operand, b: shardrt.Operand): shardrt.Array

-- What loops below define stands here for editors.
---@class shardrt.elementwise.words
---@field add shardrt.Binary # a + b
---@field subtract shardrt.Binary # a - b
---@field multiply shardrt.Binary # a * b
---@field divide shardrt.Binary # a / b, in floats
---@field power shardrt.Binary # a ^ b
---@field floor_divide shardrt.Binary # a / b, rounded down
---@field remainder shardrt.Binary # a % b: what floor_divide leaves, with the sign of b
---@field maximum shardrt.Binary # the larger; NaN where either is
---@field minimum shardrt.Binary # the smaller; NaN where either is
---@field arctan2 shardrt.Binary # the angle of the point (b, a)
---@field equal shardrt.Binary # bool
---@field not_equal shardrt.Binary # bool
---@field less shardrt.Binary # bool
---@field less_equal shardrt.Binary # bool
---@field greater shardrt.Binary # bool
---@field greater_equal shardrt.Binary # bool
---@field logical_and shardrt.Binary # bool; what is not 0 is true
---@field logical_or shardrt.Binary # bool
---@field negative shardrt.Unary # -x
---@field abs shardrt.Unary # without its sign
---@field sign shardrt.Unary # -1, 0 or 1
---@field square shardrt.Unary # x * x
---@field copy shardrt.Unary # the same elements in memory of their own
---@field sqrt shardrt.Unary # the square root
---@field rsqrt shardrt.Unary # 1 / sqrt(x)
---@field reciprocal shardrt.Unary # 1 / x
---@field exp shardrt.Unary # e ^ x
---@field expm1 shardrt.Unary # e ^ x - 1
---@field log shardrt.Unary # the natural logarithm
---@field log1p shardrt.Unary # log(1 + x)
---@field sin shardrt.Unary # of an angle in radians
---@field cos shardrt.Unary # of an angle in radians
---@field tan shardrt.Unary # of an angle in radians
---@field tanh shardrt.Unary # the hyperbolic tangent
---@field sigmoid shardrt.Unary # 1 / (1 + e ^ -x)
---@field erf shardrt.Unary # the error function
---@field floor shardrt.Unary # rounded down
---@field ceil shardrt.Unary # rounded up
---@field round shardrt.Unary # to the nearest whole number, ties to even
---@field logical_not shardrt.Unary # bool: where x is 0
---@field isnan shardrt.Unary # bool
---@field isfinite shardrt.Unary # bool
local words = {}
local elementwise = { words = words }

-- ---- shapes ----

--- The shape that all broadcast to.
---@param caller string
---@param shapes integer[][]
---@return integer[]
function elementwise.broadcast(caller, shapes)
  local ndim = 0
  for _, sizes in ipairs(shapes) do ndim = math.max(ndim, #sizes) end
  local made = {}
  for d = 1, ndim do
    made[d] = 1
    for _, sizes in ipairs(shapes) do
      local size = sizes[d - ndim + #sizes] or 1
      if size ~= 1 and made[d] ~= 1 and size ~= made[d] then
        local texts = {}
        for i, each in ipairs(shapes) do texts[i] = shape.text(each) end
        fail("%s: shapes %s do not go together: counted from the right, sizes must be equal or 1", caller,
          table.concat(texts, " and "))
      end
      if size ~= 1 then made[d] = size end
    end
  end
  return made
end

local function padded(values, ndim, fill)
  local made = {}
  for d = 1, ndim do made[d] = values[d - ndim + #values] or fill end
  return made
end

---@class shardrt.elementwise.layout # of operands of known forms
---@field sizes integer[] # the result's
---@field dim_axes shardrt.DimAxes # the result's
---@field own shardrt.DimAxes[] # the operands'
---@field lie boolean? # whether all operands lie so
---@field forms table<string, shardrt.array.form> # the result's, by its dtype

local function worked_out(caller, at, arrays, sizes)
  local operands, shapes = {}, { sizes }
  for _, x in ipairs(arrays) do shapes[#shapes + 1] = x.shape end
  local full = elementwise.broadcast(caller, shapes)
  local ndim = #full
  for i, x in ipairs(arrays) do
    local dim_axes = common_mesh.dim_axes(at, x)
    local own = padded(x.shape, ndim, 1)
    dim_axes = dim_axes and propagate.of_operand(padded(dim_axes, ndim, {}), own, full) or dim_axes
    operands[i] = { dim_axes = dim_axes, sizes = own, bytes = dtype.named(caller, x.dtype).size }
  end
  local made, owns = propagate.elementwise(full, operands, at.axis_size), {}
  for i, x in ipairs(arrays) do
    local own = propagate.of_operand(made, operands[i].sizes, full)
    owns[i] = {}
    for d = 1, x.ndim do owns[i][d] = own[d + ndim - x.ndim] end
  end
  return { sizes = full, dim_axes = made, own = owns, forms = {} }
end

-- How these operands and their result lie.
local function layout_of(caller, at, arrays, sizes)
  local known = common_mesh.known(at, sizes and "elementwise as " .. table.concat(sizes, " ") or "elementwise", arrays)
  known.layout = known.layout or worked_out(caller, at, arrays, sizes)
  return known.layout ---@type shardrt.elementwise.layout
end

local NONE = {}

-- The operands so, and of these those that were made for it.
local function laid_out(caller, at, arrays, layout)
  if layout.lie then return arrays, NONE end
  local brought, moved = {}, {}
  for i, x in ipairs(arrays) do
    brought[i] = dispatch.operand(caller, x, at, layout.own[i])
    if not rawequal(brought[i], x) then moved[#moved + 1] = brought[i] end
  end
  layout.lie = #moved == 0
  return brought, moved
end

local function new_result(caller, at, layout, name)
  local form = layout.forms[name]
  if form then return dispatch.result_of(caller, at, form) end
  local out = dispatch.result(caller, at, layout.dim_axes, name, layout.sizes)
  layout.forms[name] = array.form(out)
  return out
end

-- Sums what was broadcast, so that a gradient has the shape of what it is the gradient of.
local function unbroadcast(caller, g, x)
  local from, to = array.sizes(g), array.sizes(x)
  if shape.equal(from, to) then return g end
  local axes, ndim = {}, #from
  for d = 1, ndim do
    local size = to[d - ndim + #to]
    if size == nil or size == 1 and from[d] ~= 1 then axes[#axes + 1] = d - 1 end
  end
  return reduce.sum_to(caller, g, axes, to)
end
elementwise.unbroadcast = unbroadcast

-- ---- one pass ----

local Arrays, Registers = ffi.typeof "shardrt_array *[?]", ffi.typeof "int32_t[?]"

-- Of what `dispatch.done` was told of an expression.
local function gradient(dy, wants, entry)
  local caller, root, arrays, out = entry.what, entry.detail, entry.inputs, entry.out ---@cast root shardrt.Node
  local n, grads = #arrays, {}
  for i, x in ipairs(arrays) do
    local node = promote.is_float(x.dtype) and wants(x) and expression.derivative(root, i, n)
    if node then
      local inputs = list.copy(arrays)
      inputs[n + 1], inputs[n + 2] = out, dy
      -- What is summed then is rounded once, after that.
      local name = shape.equal(array.sizes(out), array.sizes(x)) and x.dtype or promote.computed(x.dtype)
      local is_dy = node.op == "INPUT" and node.i == n + 2 and name == dy.dtype
      local g = is_dy and dy or elementwise.run("the gradient of " .. caller, inputs, node, name)
      grads[i] = words.astype(unbroadcast(caller, g, x), x.dtype)
    end
  end
  return grads
end

-- Only operands that the expression names are read (and decide where it is computed).
local function used(root, arrays)
  local order, trimmed = expression.used(root)
  if rawequal(trimmed, root) and #order == #arrays then return root, arrays end
  local made = {}
  for k, i in ipairs(order) do made[k] = arrays[i] end
  return trimmed, made
end

local function promoted(arrays)
  local dtypes = {}
  for i, x in ipairs(arrays) do dtypes[i] = x.dtype end
  return promote.result(dtypes, NONE)
end

--- Computes an expression of arrays in one pass, at once or with what reads the result (ops/delay.lua).
---@param caller string
---@param arrays shardrt.Array[] # a list that nobody changes
---@param root shardrt.Node
---@param out_dtype string
---@param in_dtype string? # in which it is computed; left out: what the arrays' promote to
---@param sizes integer[]? # of the result; left out: what the arrays broadcast to
---@param reader string? # who reads it next, as of delay.run
---@return shardrt.Array
function elementwise.run(caller, arrays, root, out_dtype, in_dtype, sizes, reader)
  root, arrays = used(root, arrays)
  local at = common_mesh.of(caller, arrays)
  local layout = layout_of(caller, at, arrays, sizes)
  local brought, moved = laid_out(caller, at, arrays, layout)
  local out = new_result(caller, at, layout, out_dtype)
  if not dispatch.is_planning() then
    local computed = promote.computed(in_dtype or promoted(arrays))
    delay.run(caller, out, root, brought, moved, computed, out_dtype, layout.sizes, reader)
  end
  return dispatch.done(caller, out, arrays, gradient, root)
end

--- The same for a reduction, which computes it in its own pass.
---@param caller string
---@param arrays shardrt.Array[]
---@param root shardrt.Node
---@param name string # the dtype of the result, and the one in which it is computed, or of which that is
---@param is_kept boolean? # someone else reads it, too
---@return shardrt.Array
function elementwise.to_reduce(caller, arrays, root, name, is_kept)
  return elementwise.run(caller, arrays, root, name, name, nil, is_kept and "reduction" or "reduction alone")
end

--- Computes several expressions of the same arrays in one pass. Each may be a part of those behind it, and is rounded
--- to its dtype only as a result.
---@param caller string
---@param arrays shardrt.Array[] # which the expressions take all of
---@param roots shardrt.Node[] # no operands alone
---@param out_dtypes string[]
---@return shardrt.Array ...
function elementwise.run_several(caller, arrays, roots, out_dtypes)
  local outs, n = {}, #roots
  local at = common_mesh.of(caller, arrays)
  local layout = layout_of(caller, at, arrays)
  local brought = laid_out(caller, at, arrays, layout)
  for k = 1, n do outs[k] = new_result(caller, at, layout, out_dtypes[k]) end
  if not dispatch.is_planning() then
    local computed = promote.computed(promoted(arrays))
    local made = { expression.program(roots[1], #brought, unpack(roots, 2)) }
    local handles, results, out_handles = Arrays(#brought + 1), Registers(n), Arrays(n)
    for i, x in ipairs(brought) do handles[i - 1] = x.handle end
    for k, out in ipairs(outs) do results[k - 1], out_handles[k - 1] = made[k + 2], out.handle end
    dispatch.compute(caller, outs[1], C.shardrt_elementwise_several, made[1], made[2],
      dtype.named(caller, computed).code, #brought, handles, n, results, out_handles)
    for k = 2, n do buffers.tell_collector(outs[k]) end
  end
  for k, root in ipairs(roots) do
    dispatch.done(caller, outs[k], arrays, gradient, root)
  end
  return unpack(outs)
end

-- What a Lua number would become is the number.
local function check_range(caller, number, name)
  local kind = dtype.named(caller, name)
  if type(number) == "number" and not kind.write(kind.cell(), 0, number) then
    fail("%s: the number %s beside an array of %s, which holds %s; np.astype gives the array another dtype", caller,
      list.show(number), name, kind.range)
  end
end

--- The number that an array of a dtype of floats holds for a Lua number: those of 16 bits are computed in 32, which
--- have others between. What is beyond the dtype's range is infinite.
---@param caller string
---@param value number|boolean
---@param name string
---@return number
function elementwise.rounded(caller, value, name)
  local kind = dtype.named(caller, name)
  local cell = kind.cell()
  kind.write(cell, 0, value == true and 1 or value == false and 0 or value)
  return kind.read(cell, 0)
end

-- Operands as numbers of the dtype that they have in common, where one that is computed in holds more of them. A whole
-- power says how often something is multiplied: x ^ 257 is odd, also in bfloat16, which has no 257.
local function round_operands(caller, values, nodes, arrays, common)
  local is_short = promote.is_float(common) and promote.computed(common) ~= common
  for i, node in ipairs(nodes) do
    local is_count = caller == "np.power" and i == 2 and type(values[i]) == "number" and values[i] % 1 == 0
    if is_short and node.op == "CONSTANT" and not is_count then
      nodes[i] = expression.constant(elementwise.rounded(caller, values[i], common))
    end
  end
  for k, x in ipairs(arrays) do
    if promote.is_rounded(x.dtype, common) then arrays[k] = words.astype(x, common) end
  end
end

local INPUTS = { expression.input(1), expression.input(2), expression.input(3) }

-- The operands that a word was given: those that are arrays, and a node for each; what they promote to, and what they
-- are compared in.
local function operands_of(caller, values, n)
  local arrays, numbers, nodes, dtypes = {}, {}, {}, {}
  for i = 1, n do
    local value = values[i]
    if dispatch.is_number(value) and type(value) ~= "cdata" then
      numbers[#numbers + 1], nodes[i] = value, expression.constant(value)
    else
      local x = array.is(value) and value or dispatch.array(caller, value, n > 1 and ("operand %d"):format(i) or nil)
      arrays[#arrays + 1] = x
      nodes[i], dtypes[#arrays] = INPUTS[#arrays], x.dtype
    end
  end
  if #arrays == 0 then -- numbers alone
    arrays[1] = dispatch.array(caller, values[1])
    nodes[1], dtypes[1] = INPUTS[1], arrays[1].dtype
    table.remove(numbers, 1)
  end
  local common = promote.result(dtypes, numbers)
  if not promote.is_float(common) and common ~= "bool" then
    for _, number in ipairs(numbers) do check_range(caller, number, common) end
  end
  round_operands(caller, values, nodes, arrays, common)
  return arrays, nodes, common, promote.compared(dtypes, common)
end

-- ---- again ----

---@class shardrt.elementwise.plan
---@field at shardrt.common_mesh
---@field form shardrt.array.form # the result's
---@field root shardrt.Node
---@field steps ffi.cdata* # its program
---@field nsteps integer
---@field computed integer # the dtype of the steps

local handles = Arrays(3)

-- Remembers what a word of small arrays came to that lie as they are needed.
local function remember(caller, a, b, n, arrays, root, out, computed)
  local form, k = array.is_made(out) and array.form(out), 0
  if not form or form.size >= delay.LEAST or #arrays > n then return end
  for i = 1, n do
    local value = i == 1 and a or b
    if type(value) ~= "number" then
      k = k + 1
      if not rawequal(arrays[k], value) then return end
    end
  end
  local order, used_root = expression.used(root)
  local at = common_mesh.of(caller, arrays)
  if not layout_of(caller, at, arrays).lie or not rawequal(used_root, root) or #order ~= #arrays then return end
  local steps, nsteps = expression.program(root, #arrays)
  plans.keep(caller, { at = at, form = form, root = root, steps = steps, nsteps = nsteps,
    computed = dtype.named(caller, promote.computed(computed)).code }, a, b)
end

local function again(caller, plan, a, b)
  local out = dispatch.result_of(caller, plan.at, plan.form)
  local arrays = type(a) == "number" and { b } or type(b) == "table" and { a, b } or { a }
  local n = #arrays
  handles[0], handles[1] = arrays[1].handle, n == 2 and arrays[2].handle or nil
  dispatch.compute(caller, out, C.shardrt_elementwise, plan.steps, plan.nsteps, plan.computed, n, handles, out.handle)
  return dispatch.done(caller, out, arrays, gradient, plan.root)
end

-- ---- the words ----

-- A word of n operands. `as`: what it is computed in and gives: "same" as the operands; "number": the same, but of
-- bools it is refused; "whole": the same, but of bools int32; "float"; "bool". `check` may refuse values.
local function define(name, n, as, build, check)
  local caller, root_of = "np." .. name, expression.remembered(build)
  words[name] = function(...)
    local given = select("#", ...)
    if given ~= n then fail("%s: it takes %d operand%s, and got %d", caller, n, n == 1 and "" or "s", given) end
    local a, b = ...
    local plan = plans.of(caller, a, b)
    if plan then return again(caller, plan, a, b) end
    local arrays, nodes, common, compared = operands_of(caller, { ... }, n)
    if check then check(caller, common, ...) end
    if common == "bool" and as == "number" then
      fail("%s: of bool; np.astype(x, \"int32\") makes numbers of it", caller)
    end
    if as == "float" then common = promote.to_float(common) end
    if as == "whole" and common == "bool" then common = "int32" end
    local root, of_out = root_of(nodes), common
    if as == "bool" then of_out, common = "bool", compared end
    local out = elementwise.run(caller, arrays, root, of_out, common)
    if plan == false and not dispatch.is_planning() then remember(caller, a, b, n, arrays, root, out, common) end
    return out
  end
end

-- Few whole numbers have a whole one to a negative power. Of arrays of powers those that have none are 0.
local function check_power(caller, common, _, power)
  if type(power) == "number" and power < 0 and not promote.is_float(common) then
    fail("%s: whole numbers to the power %s; np.astype(x, \"float32\") has such powers", caller, list.show(power))
  end
end

for name, op in pairs { add = "ADD", multiply = "MUL", maximum = "MAXIMUM", minimum = "MINIMUM" } do
  define(name, 2, "same", f[op])
end
define("subtract", 2, "number", f.SUB)
define("floor_divide", 2, "whole", f.FLOOR_DIVIDE)
define("remainder", 2, "whole", f.REMAINDER)
define("power", 2, "whole", expression.power, check_power)
define("divide", 2, "float", f.DIV)
define("arctan2", 2, "float", f.ATAN2)
for name, op in pairs {
  equal = "EQ", not_equal = "NE", less = "LT", less_equal = "LE", greater = "GT", greater_equal = "GE",
  logical_and = "LOGICAL_AND", logical_or = "LOGICAL_OR",
} do
  define(name, 2, "bool", f[op])
end
define("logical_not", 1, "bool", f.LOGICAL_NOT)
for name, op in pairs { negative = "NEG", sign = "SIGN" } do define(name, 1, "number", f[op]) end
for name, op in pairs { abs = "ABS", copy = "COPY" } do define(name, 1, "same", f[op]) end
define("square", 1, "whole", f.SQUARE)
for name, op in pairs {
  sqrt = "SQRT", rsqrt = "RSQRT", exp = "EXP", expm1 = "EXPM1", log = "LOG", log1p = "LOG1P", sin = "SIN", cos = "COS",
  tan = "TAN", tanh = "TANH", sigmoid = "LOGISTIC", erf = "ERF", reciprocal = "RECIPROCAL",
} do
  define(name, 1, "float", f[op])
end

-- What is of floats only. Whole numbers are whole already, and always finite.
local function define_of_floats(name, op, otherwise)
  local caller = "np." .. name
  words[name] = function(...)
    if select("#", ...) ~= 1 then fail("%s: it takes 1 operand, and got %d", caller, select("#", ...)) end
    local x = dispatch.array(caller, (...))
    local as = otherwise and "bool" or x.dtype
    local node = promote.is_float(x.dtype) and f[op](expression.input(1))
      or otherwise and f[otherwise](expression.input(1), expression.input(1)) or f.COPY(expression.input(1))
    return elementwise.run(caller, { x }, node, as, x.dtype)
  end
end
for name, op in pairs { floor = "FLOOR", ceil = "CEIL", round = "ROUND" } do define_of_floats(name, op) end
define_of_floats("isnan", "ISNAN", "NE")
define_of_floats("isfinite", "ISFINITE", "EQ")

array.ops.operators = {
  add = words.add, sub = words.subtract, mul = words.multiply, div = words.divide, pow = words.power,
  mod = words.remainder, unm = function(x) return words.negative(x) end, -- Lua gives it x twice
}

local selected = expression.remembered(f.SELECT)

--- Where the condition is not 0 the first, elsewhere the second; all three broadcast.
---@param condition shardrt.Operand
---@param a shardrt.Operand
---@param b shardrt.Operand
---@return shardrt.Array
function words.where(condition, a, b)
  local caller = "np.where"
  if a == nil or b == nil then
    fail("%s: it takes three: np.where(condition, x, y) is x where the condition is true, and y elsewhere", caller)
  end
  local arrays, nodes, common = operands_of(caller, { a, b }, 2)
  local asked = dispatch.array(caller, condition, "the condition")
  -- The condition is asked in its own dtype, before anything is converted: 0.5 is true among whole numbers, too.
  if asked.dtype ~= "bool" then asked = words.not_equal(asked, 0) end
  arrays[#arrays + 1] = asked
  return elementwise.run(caller, arrays, selected { INPUTS[#arrays], nodes[1], nodes[2] }, common, common)
end

local clipped = expression.remembered(function(x, low, high) return f.MINIMUM(f.MAXIMUM(x, low), high) end)

--- Within [low, high]; either may be nil.
---@param x shardrt.Operand
---@param low shardrt.Operand?
---@param high shardrt.Operand?
---@return shardrt.Array
function words.clip(x, low, high)
  if array.is(x) and promote.is_float(x.dtype) and type(low) == "number" and type(high) == "number" then
    local caller, name = "np.clip", x.dtype -- in one pass
    local least, most = elementwise.rounded(caller, low, name), elementwise.rounded(caller, high, name)
    local root = clipped { INPUTS[1], expression.constant(least), expression.constant(most) }
    return elementwise.run(caller, { x }, root, name, name)
  end
  if low ~= nil then x = words.maximum(x, low) end
  if high ~= nil then x = words.minimum(x, high) end
  return dispatch.array("np.clip", x)
end

--- The same elements as another dtype: whole numbers keep their lowest bits, floats go to the nearest (towards zero
--- where they become whole numbers).
---@param x shardrt.Operand
---@param name string
---@return shardrt.Array
function words.astype(x, name)
  local caller = "np.astype"
  local to = dtype.named(caller, name).name
  x = dispatch.array(caller, x)
  if x.dtype == to then return x end
  return elementwise.run(caller, { x }, INPUTS[1], to, x.dtype)
end

--- The array with its elements repeated such that it has the shape.
---@param x shardrt.Operand
---@param to integer[]
---@return shardrt.Array
function words.broadcast_to(x, to)
  local caller = "np.broadcast_to"
  x = dispatch.array(caller, x)
  local sizes = shape.check(caller, to)
  local full = elementwise.broadcast(caller, { x.shape, sizes })
  if not shape.equal(full, sizes) then
    fail("%s: an array of shape %s does not broadcast to %s", caller, shape.text(x.shape), shape.text(sizes))
  end
  return elementwise.run(caller, { x }, INPUTS[1], x.dtype, x.dtype, sizes)
end

return elementwise

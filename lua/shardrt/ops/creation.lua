-- Arrays that nobody placed: every process makes the whole of them, and they go where they are needed.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local common_mesh = require "shardrt.ops.common_mesh"
local constraint = require "shardrt.ops.constraint"
local device_put = require "shardrt.array.device_put"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local ndarray = require "shardrt.array.ndarray"
local numbering = require "shardrt.array.numbering"
local promote = require "shardrt.ops.promote"
local shape = require "shardrt.layout.shape"
local sharding = require "shardrt.layout.sharding"
local unplaced = require "shardrt.array.unplaced"
fail.own()

-- What `like` defines stands here for editors: of the shape and sharding of x, and its dtype if none is named.
---@class shardrt.creation.words
---@field zeros_like fun(x: shardrt.Operand, dtype: string?): shardrt.Array
---@field ones_like fun(x: shardrt.Operand, dtype: string?): shardrt.Array
---@field full_like fun(x: shardrt.Operand, value: number|boolean, dtype: string?): shardrt.Array
local words = {}
local creation = { words = words }

-- Placed where the recipe asks for it.
local function placed(caller, x, to)
  return to ~= nil and constraint.array(caller, x, sharding.of(caller, to)) or x
end

local function check_dtype(caller, name)
  if name ~= nil and type(name) ~= "string" then
    fail("%s: the dtype is %s; it is a name, and a sharding stands behind it%s", caller, list.show(name),
      type(name) == "number" and "; sizes that go together are a list: {2, 3}" or "")
  end
end

local function check_number(caller, value, kind)
  if not kind.write(kind.cell(), 0, value) then
    fail("%s: %s does not fit %s, which holds %s", caller, list.show(value), kind.name, kind.range)
  end
end

local function check_fill(caller, value, kind)
  if not dispatch.is_number(value) then
    fail("%s: the value is %s; it is a number or a boolean", caller, list.show(value))
  end
  check_number(caller, value == true and 1 or value == false and 0 or value, kind)
end

local no_operands = ffi.new "shardrt_array *[1]"

local constant = expression.remembered(function(node) return node end)

-- The value everywhere in a new array, by a program that is this constant.
local function fill(caller, x, value, kind)
  local computed = promote.computed(kind.name)
  if promote.is_float(kind.name) then value = elementwise.rounded(caller, value, kind.name) end
  local steps, count = expression.program(constant { expression.constant(value) }, 0)
  dispatch.compute(caller, x, C.shardrt_elementwise, steps, count, dtype.named(caller, computed).code, 0, no_operands,
    x.handle)
  return x
end

--- For other words: a new array of a form that has the value everywhere. It is no step of the job: each process may
--- make it when it first needs it, as it is the same array in all.
---@param caller string
---@param form shardrt.array.form
---@param value number
---@return shardrt.Array
function creation.of_form(caller, form, value)
  local x = fill(caller, array.of_form(caller, form), value, dtype.named(caller, form.dtype))
  numbering.derived(x, ("%.17g everywhere in %s %s"):format(value, form.dtype, shape.text(form.shape)))
  return x
end

local function constant_array(caller, sizes, value, kind)
  if type(value) ~= "cdata" then return fill(caller, unplaced.new(caller, kind, sizes), value, kind) end
  -- whose 64 bits a constant has not
  return unplaced.of_host(caller, ndarray.words.full(sizes, value, kind.name))
end

-- What processes compare: the element, which may be the same of numbers that differ.
local function element_text(caller, value, kind)
  value = elementwise.rounded(caller, value, kind.name)
  return type(value) == "number" and ("%.17g"):format(value) or tostring(value)
end

local function filled(caller, sizes, value, name, to)
  check_dtype(caller, name)
  local kind = dtype.named(caller, name)
  check_fill(caller, value, kind)
  local x = constant_array(caller, shape.check(caller, sizes), value, kind)
  local function detail() return element_text(caller, value, kind) end
  return placed(caller, dispatch.done(caller, x, {}, nil, detail), to)
end

--- Zeros.
---@param sizes integer|integer[]
---@param name string? # dtype; float32
---@param to (shardrt.Sharding|shardrt.Device|integer)? # nil: not placed
---@return shardrt.Array
function words.zeros(sizes, name, to) return filled("np.zeros", sizes, 0, name or "float32", to) end

--- Ones.
---@param sizes integer|integer[]
---@param name string? # dtype; float32
---@param to (shardrt.Sharding|shardrt.Device|integer)? # nil: not placed
---@return shardrt.Array
function words.ones(sizes, name, to) return filled("np.ones", sizes, 1, name or "float32", to) end

--- The same value everywhere.
---@param sizes integer|integer[]
---@param value number|boolean|ffi.cdata*
---@param name string? # dtype; float32 for a number
---@param to (shardrt.Sharding|shardrt.Device|integer)? # nil: not placed
---@return shardrt.Array
function words.full(sizes, value, name, to)
  return filled("np.full", sizes, value, name or dtype.of_value(value) or "float32", to)
end

-- Of the shape, dtype and sharding of another array; placed where that one is.
local function define_like(word, value)
  local caller = "np." .. word
  words[word] = function(x, first, second)
    x = dispatch.array(caller, x)
    local filling, name = value, first
    if value == nil then filling, name = first, second end
    local kind = dtype.named(caller, name or x.dtype)
    check_fill(caller, filling, kind)
    if type(filling) == "cdata" then -- x is only there for its shape and place: 0 * x would be NaN where x is
      local node = expression.f.SELECT(expression.constant(1), expression.input(2), expression.input(1))
      local arrays = { x, dispatch.array(caller, filling, "the value") }
      return elementwise.run(caller, arrays, node, kind.name, kind.name)
    end
    local at, dim_axes = common_mesh.of_one(caller, x)
    local out = fill(caller, dispatch.result(caller, at, dim_axes, kind.name, x.shape), filling, kind)
    return dispatch.done(caller, out, { x }, function() return {} end, function()
      return element_text(caller, filling, kind)
    end)
  end
end
define_like("zeros_like", 0)
define_like("ones_like", 1)
define_like("full_like", nil)

--- 0, 1, …, n - 1; or from start to before stop, by step.
---@param start number # or n, where nothing else is given
---@param stop (number|string)? # or the dtype
---@param step (number|string)?
---@param name string? # dtype; int32, or float32 where a number is not whole
---@return shardrt.Array
function words.arange(start, stop, step, name)
  local caller = "np.arange"
  if type(stop) == "string" then stop, name = nil, stop end
  if type(step) == "string" then step, name = nil, step end
  if stop == nil then start, stop = 0, start end
  step = step == nil and 1 or step
  local given = { start, stop, step }
  for i = 1, 3 do
    if type(given[i]) ~= "number" or given[i] ~= given[i] then
      fail("%s: %s is no number", caller, list.show(given[i]))
    end
  end
  if step == 0 then fail("%s: a step of 0", caller) end
  local whole = start % 1 == 0 and stop % 1 == 0 and step % 1 == 0
  local count = math.max(0, math.ceil((stop - start) / step))
  local kind = dtype.named(caller, name or (whole and "int32" or "float32"))
  if not promote.is_float(kind.name) and count > 0 then
    check_number(caller, start, kind)
    if step % 1 ~= 0 then fail("%s: a step of %s in %s, of whole numbers", caller, list.show(step), kind.name) end
    check_number(caller, start + (count - 1) * step, kind)
  end
  local out = unplaced.new(caller, kind, shape.check(caller, { count }))
  dispatch.compute(caller, out, C.shardrt_iota, start, step, 0, out.handle)
  return dispatch.done(caller, out, {}, nil, ("%.17g by %.17g"):format(start, step))
end

local float = ffi.typeof "float[1]"
local function float32(number) return float(number)[0] end

-- The whole numbers of linspace. What comes just below one depends on each rounding, so all are those of XLA on most
-- processors: one product in float32, the other added to it before it is rounded.
local function floored(caller, counted, start, stop, steps, closed, kind)
  local f, i = expression.f, expression.input(1)
  local part = float32(1 / math.max(steps, 1))
  local rest = elementwise.run(caller, { counted }, (1 - i * part) * start, "float32", "float32")
  local sum = i * float32(part * float32(stop)) + expression.input(2)
  local value = elementwise.run(caller, { counted, rest }, sum, "float32", "float64")
  local last = closed and f.EQ(expression.input(2), steps)
  local node = f.FLOOR(last and f.SELECT(last, stop, i) or i)
  return elementwise.run(caller, { value, last and counted or nil }, node, kind.name, "float32")
end

--- `num` numbers from start to stop, each as far from the next.
---@param start number
---@param stop number
---@param num integer? # 50
---@param endpoint boolean? # true: stop is the last; false: what would come after the last
---@param name string? # dtype; float32. Whole numbers are rounded down
---@return shardrt.Array
function words.linspace(start, stop, num, endpoint, name)
  local caller = "np.linspace"
  for i = 1, 2 do
    local value = select(i, start, stop)
    if type(value) ~= "number" then fail("%s: %s is no number", caller, list.show(value)) end
  end
  num = num == nil and 50 or num
  if not list.is_whole(num, 0) then
    fail("%s: num = %s; it says how many numbers there are, a whole number from 0 on", caller, list.show(num))
  end
  if endpoint ~= nil and type(endpoint) ~= "boolean" then
    fail("%s: endpoint = %s; it is true or false", caller, list.show(endpoint))
  end
  local kind = dtype.named(caller, name or "float32")
  if kind.name == "bool" then fail("%s: of bool; it makes numbers", caller) end
  local steps = endpoint == false and num or num - 1
  if promote.is_float(kind.name) and dispatch.is_on_host() then
    local out = unplaced.new(caller, kind, shape.check(caller, { num }))
    dispatch.compute(caller, out, C.shardrt_linspace, start, stop, math.max(steps, 1), out.handle)
    return dispatch.done(caller, out, {}, nil, ("%.17g to %.17g by %d"):format(start, stop, steps))
  end
  local counted = unplaced.new(caller, dtype.named(caller, "float64"), shape.check(caller, { num }))
  dispatch.compute(caller, counted, C.shardrt_iota, 0, 1, 0, counted.handle)
  dispatch.done(caller, counted, {}, nil, "counted")
  local f, i = expression.f, expression.input(1)
  local part = i / math.max(steps, 1)
  local value = (1 - part) * start + part * stop
  if endpoint ~= false and num > 1 then value = f.SELECT(f.EQ(i, num - 1), stop, value) end
  if promote.is_float(kind.name) then return elementwise.run(caller, { counted }, value, kind.name, "float64") end
  if kind.size == 8 then return elementwise.run(caller, { counted }, f.FLOOR(value), kind.name, "float64") end
  return floored(caller, counted, start, stop, steps, endpoint ~= false and num > 1, kind)
end

--- The value as an array: an array stays as it is, all else becomes one as np.array makes it.
---@param value shardrt.Value
---@param name string? # dtype
---@return shardrt.Array
function words.asarray(value, name)
  if array.is(value) then
    array.check("np.asarray", value)
    return name and elementwise.words.astype(value, name) or value
  end
  return creation.array("np.asarray", value, name)
end

--- An array of a value that is given whole and the same in every process: a host array, a number, a nested list.
---@param value shardrt.Value
---@param name string? # dtype
---@return shardrt.Array
function words.array(value, name)
  if array.is(value) then
    return name and elementwise.words.astype(value, name) or elementwise.words.copy(value)
  end
  return creation.array("np.array", value, name)
end

--- The same of what is no array yet, for words.
---@param caller string
---@param value shardrt.Value
---@param name string? # dtype
---@return shardrt.Array
function creation.array(caller, value, name)
  local host = device_put.to_host(caller, value, not ndarray.is(value) and name or nil)
  local x = unplaced.of_host(caller, host)
  dispatch.done(caller, x, {}, nil, numbering.name(x))
  return name and x.dtype ~= name and elementwise.words.astype(x, name) or x
end

return creation

-- What networks are trained to make small, as optax has it.

local along_axis = require "shardrt.ops.along_axis"
local common_mesh = require "shardrt.ops.common_mesh"
local creation = require "shardrt.ops.creation"
local dispatch = require "shardrt.ops.dispatch"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local promote = require "shardrt.ops.promote"
local reduce = require "shardrt.ops.reduce"
local reshape = require "shardrt.ops.reshape"
local shape = require "shardrt.layout.shape"
fail.own()

---@class shardrt.loss.words
local words = {}
local loss = { words = words }

local f, i = expression.f, expression.input

-- Made once, and for each number of classes, so that programs are, too: a label as the index of a class, which of one
-- outside is the nearest; the logit at the label; what is less than it, of a label inside.
local AT_LABEL, of_classes = f.SELECT(f.EQ(i(1), i(2)), i(3), 0), {}

local function roots_of(n)
  if not of_classes[n] then
    local inside = f.LOGICAL_AND(f.GE(i(2), -n), f.LT(i(2), n))
    of_classes[n] = {
      index = f.MAXIMUM(f.MINIMUM(f.SELECT(f.LT(i(1), 0), i(1) + n, i(1)), n - 1), 0),
      out = f.SELECT(inside, i(3) - i(1) + i(4), 0 / 0),
    }
  end
  return of_classes[n]
end

-- In what numbers of classes are compared with what is of this dtype.
local function computed_in(name, classes)
  return promote.computed(name) == "float32" and classes > 2 ^ 24 and "float64" or name
end

-- With a dimension of classes: the values where it is at the index, else 0. `reader`: who reads that (ops/delay.lua).
local function at_label(caller, classes, along, index, values, reader)
  local numbers, name = {}, values.dtype
  for d = 1, index.ndim do numbers[d] = d == along + 1 and classes or 1 end
  local number = reshape.words.reshape(creation.words.arange(classes), numbers)
  return elementwise.run(caller, { number, index, values }, AT_LABEL, name, computed_in(name, classes), nil, reader)
end

-- The gradient of picked logits. It waits for what it is added to, as zeros with numbers at places could not.
local function of_picked(dy, _, entry)
  local logits, index = entry.inputs[1], entry.inputs[2]
  return { at_label("the gradient of a cross entropy", logits.shape[logits.ndim], logits.ndim - 1, index, dy) }
end

-- The logits at the labels: taken from their rows or, where other devices have other classes, summed.
local function picked(caller, logits, labelled, along, roots)
  local at, dim_axes = common_mesh.of_one(caller, logits)
  local classes = logits.shape[along + 1]
  local index = elementwise.run(caller, { labelled }, roots.index, "int32", "int64")
  if classes > 0 and along == logits.ndim - 1 and not common_mesh.is_cut(at, dim_axes, { along + 1 }) then
    return along_axis.rows(caller, logits, index, of_picked)
  end
  return reduce.words.sum(at_label(caller, classes, along, index, logits, "reduction alone"), along, true)
end

--- The cross entropy between softmax(logits) and classes: for each label -log_softmax(logits) at it. A negative label
--- counts from the end; that of a label outside the classes is NaN, as in JAX.
---@param logits shardrt.Operand # {…, classes}
---@param labels shardrt.Operand # {…}, whole numbers from 0 on
---@param axis integer? # -1: where the classes are
---@return shardrt.Array # {…}
function words.softmax_cross_entropy_with_integer_labels(logits, labels, axis)
  local caller = "np.softmax_cross_entropy_with_integer_labels"
  logits, labels = dispatch.array(caller, logits, "the logits"), dispatch.array(caller, labels, "the labels")
  if not promote.is_float(logits.dtype) then
    fail("%s: the logits are %s; they are floats, and stand before the labels", caller, logits.dtype)
  end
  if promote.is_float(labels.dtype) or labels.dtype == "bool" then
    fail('%s: the labels are %s; they are whole numbers, as np.astype(labels, "int32") makes', caller, labels.dtype)
  end
  if logits.ndim == 0 then fail("%s: the logits are a single number; they have a dimension of classes", caller) end
  local along = shape.axis(caller, axis == nil and -1 or axis, logits.ndim)
  local classes, sizes, kept = logits.shape[along + 1], logits.shape, logits.shape
  table.remove(sizes, along + 1)
  if not shape.equal(labels.shape, sizes) then
    fail("%s: logits of shape %s and labels of %s; labels have the logits' dimensions without that of classes", caller,
      shape.text(logits.shape), shape.text(labels.shape))
  end
  kept[along + 1] = 1
  local roots = roots_of(math.min(classes, 2 ^ 31 - 1))
  local largest, log = reduce.log_sum(caller, logits, { along })
  local labelled = reshape.words.reshape(labels, kept)
  local at_it = picked(caller, logits, labelled, along, roots)
  local out = elementwise.run(caller, { at_it, labelled, largest, log }, roots.out, logits.dtype,
    computed_in(logits.dtype, classes))
  return reshape.words.reshape(out, sizes)
end

return loss

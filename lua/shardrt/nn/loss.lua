-- What networks are trained to make small, as optax has it.

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

-- Made once, and for each number of classes, so that programs are, too: a label that counts from the end; the logit at
-- the label; what is less than it, of a label inside.
local AT_LABEL, of_classes = f.SELECT(f.EQ(i(1), i(2)), i(3), 0), {}

local function roots_of(n)
  if not of_classes[n] then
    local inside = f.LOGICAL_AND(f.GE(i(2), -n), f.LT(i(2), n))
    of_classes[n] = {
      class = f.SELECT(f.LT(i(1), 0), i(1) + n, i(1)), out = f.SELECT(inside, i(3) - i(1) + i(4), 0 / 0),
    }
  end
  return of_classes[n]
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
  local numbers = {}
  for d = 1, logits.ndim do numbers[d] = d == along + 1 and classes or 1 end
  local roots = roots_of(math.min(classes, 2 ^ 31 - 1))
  local computed = promote.computed(logits.dtype) == "float32" and classes > 2 ^ 24 and "float64" or logits.dtype
  local largest, log = reduce.log_sum(caller, logits, { along })
  local number = reshape.words.reshape(creation.words.arange(classes), numbers)
  local labelled = reshape.words.reshape(labels, kept)
  local class = elementwise.run(caller, { labelled }, roots.class, promote.computed(computed), computed)
  local at_label = elementwise.run(caller, { number, class, logits }, AT_LABEL, logits.dtype, computed, nil,
    "reduction alone")
  local picked = reduce.words.sum(at_label, along, true)
  local out = elementwise.run(caller, { picked, labelled, largest, log }, roots.out, logits.dtype, computed)
  return reshape.words.reshape(out, sizes)
end

return loss

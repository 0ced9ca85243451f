-- What elementwise words put off. Within a function that is run as one (tape.within) a result is computed when it is
-- looked at. An elementwise word that reads it computes it in its own pass, and it never comes to memory.
--
-- Only arithmetic waits. Errors of shapes and dtypes, and what moves between devices, come where the word stands. All
-- steps of a pass are in one dtype, and each rounds as it does alone: so results are the same to the bit.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local buffers = require "shardrt.array.buffers"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local expression = require "shardrt.ops.expression"
local shape = require "shardrt.layout.shape"
local tape = require "shardrt.ops.tape"
require("shardrt.base.error").own()

local delay = {}

-- Of what a result takes, in steps such as a sum: what may be computed again rather than kept in memory, which costs
-- more; how many results wait for each other at most; steps of one pass; elements of a result that waits, as fewer stay
-- in the processor's cache.
local LIGHT, DEEPEST, MOST, LEAST = 12, 8, 48, 16384
delay.LEAST = LEAST

-- What a step takes, where that is not 1. What tests a condition gives 1 or 0 in any dtype, as a bool does.
local WEIGHT = { CONSTANT = 0, INPUT = 0, DIV = 3, SQRT = 3, RSQRT = 3, RECIPROCAL = 3 }
for _, op in ipairs {
  "POW", "ATAN2", "FLOOR_DIVIDE", "REMAINDER", "EXP", "EXPM1", "LOG", "LOG1P", "SIN", "COS", "TAN", "TANH", "LOGISTIC",
  "ERF",
} do
  WEIGHT[op] = 16
end
local IS_TEST = {}
for _, op in ipairs {
  "EQ", "NE", "LT", "LE", "GT", "GE", "LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT", "ISNAN", "ISFINITE",
} do
  IS_TEST[op] = true
end

---@class shardrt.delay.late: shardrt.array.late
---@field caller string
---@field root shardrt.Node
---@field operands shardrt.Array[]
---@field own shardrt.Array[] # those that nobody else has
---@field computed string # the dtype of its steps
---@field shape integer[]
---@field fits boolean # its value has that dtype, so that others' steps may take it as it is
---@field weight integer # with what it computes of others
---@field steps integer
---@field depth integer
---@field is_taped boolean # its gradient may read it once more
---@field is_single boolean # who reduces it is the only other one who reads it
---@field is_spent boolean? # nobody reads it any more
---@field uses integer # results that wait for it

-- What the steps of an expression take, and how many there are.
local function weigh(root)
  local weight, steps, seen = 0, 0, {}
  local function visit(node)
    if seen[node] then return end
    seen[node] = true
    weight, steps = weight + (WEIGHT[node.op] or 1), steps + 1
    for k = 1, 3 do
      if node[k] then visit(node[k]) end
    end
  end
  visit(root)
  return weight, steps
end

-- Whether what waits may be computed within a pass of another one that reads it.
local function may_join(inner, late)
  return inner.fits and inner.computed == late.computed and shape.equal(inner.shape, late.shape)
end

-- Whether that is better than keeping it: it is light, or nobody else will read it.
local function joins(inner, late)
  return may_join(inner, late) and (inner.weight <= LIGHT or not inner.is_taped and inner.uses <= 1)
end

-- The expression with what waits in it, and its operands.
local function whole(late)
  local operands, found, steps = {}, {}, late.steps
  local function expand(one)
    local copies = {}
    local function visit(node)
      local copy = copies[node]
      if copy then return copy end
      copy = node
      if node.op == "INPUT" then
        local x = one.operands[node.i]
        if not found[x] then
          local inner = array.late(x)
          if inner and joins(inner, late) and steps + inner.steps <= MOST then
            steps = steps + inner.steps
            found[x] = expand(inner)
          else
            operands[#operands + 1] = x
            found[x] = expression.input(#operands)
          end
        end
        copy = found[x]
      elseif node[1] then
        copy = expression.f[node.op](visit(node[1]), node[2] and visit(node[2]), node[3] and visit(node[3]))
      end
      copies[node] = copy
      return copy
    end
    return visit(one.root)
  end
  return expand(late), operands
end

local Arrays = ffi.typeof "shardrt_array *[?]"

-- Where C finds operands, by how many they are.
local rooms = setmetatable({}, { __index = function(self, n)
  self[n] = Arrays(n + 1)
  return self[n]
end })

local function waits(operands)
  for _, x in ipairs(operands) do
    if array.late(x) then return true end
  end
  return false
end

-- The expression of a result that waits, with what waits in it, and operands that wait no more. To compute one of these
-- may compute what was to be in this pass, and drop what that read: so the expression is made anew then.
local function ready(late)
  local root, operands = late.root, late.operands
  while waits(operands) do
    root, operands = whole(late)
    if not waits(operands) then break end
    for i = 1, #operands do local _ = operands[i].handle end
    operands = late.operands
    root = late.root
  end
  return root, operands
end

-- The program, how many steps it has, and the operands for C.
local function prepared(root, operands)
  local n = #operands
  for i = 1, n do local _ = operands[i].handle end -- what waits is computed first, and has the same room
  local steps, count = expression.program(root, n)
  local handles = rooms[n]
  for i = 1, n do handles[i - 1] = operands[i].handle end
  return steps, count, handles
end

local function compute_now(caller, out, root, operands, own, computed)
  local to = out.handle
  local steps, count, handles = prepared(root, operands)
  dispatch.compute(caller, out, C.shardrt_elementwise, steps, count, dtype.named(caller, computed).code, #operands,
    handles, to)
  for i = 1, #own do array.drop(own[i]) end
end

local function compute(out, late)
  local root, operands = ready(late)
  compute_now(late.caller, out, root, operands, late.own, late.computed)
end

--- Reduces what waits, as C.shardrt_reduce does, in the pass that computes it. It comes to memory, too, if that is
--- better than computing it again for who reads it later.
---@param caller string
---@param op integer
---@param x shardrt.Array
---@param count integer
---@param axes ffi.cdata*
---@param out shardrt.Array
---@return boolean # whether it was done: it waited
function delay.reduce(caller, op, x, count, axes, out)
  local late = array.late(x) ---@cast late shardrt.delay.late?
  if not late or op == C.SHARDRT_ARGMAX or op == C.SHARDRT_ARGMIN or not dispatch.is_on_host() then return false end
  local is_last = late.is_single and not late.is_taped
  local stores = late.weight > LIGHT and not is_last
  local root, operands = ready(late)
  local steps, nsteps, handles = prepared(root, operands)
  dispatch.compute(caller, out, C.shardrt_reduce_elements, op, steps, nsteps, dtype.named(caller, late.computed).code,
    #operands, handles, late.handle, stores and 1 or 0, count, axes, out.handle)
  if stores then
    array.was_made(x)
    buffers.tell_collector(x)
  end
  if stores or is_last then
    for i = 1, #late.own do array.drop(late.own[i]) end
  end
  late.is_spent = is_last
  return true
end

--- Drops what was reduced, where nobody will read it.
---@param x shardrt.Array
function delay.drop(x)
  local late = array.late(x) ---@cast late shardrt.delay.late?
  if late and late.is_spent then array.drop(x) end
end

--- Computes a result that was just made, now or when it is looked at.
---@param caller string
---@param out shardrt.Array
---@param root shardrt.Node
---@param operands shardrt.Array[] # laid out for it
---@param own shardrt.Array[] # those of them that nobody else has: they are dropped
---@param computed string # the dtype in which it is computed
---@param name string # the result's dtype
---@param sizes integer[] # the result's
---@param reader string? # "reduction": one reads it next, so that it waits; "reduction alone": and nobody else will
function delay.run(caller, out, root, operands, own, computed, name, sizes, reader)
  local may_wait = tape.is_within() or reader and dispatch.is_on_host()
  if not may_wait or dispatch.observer or shape.elements(sizes) < LEAST then
    compute_now(caller, out, root, operands, own, computed)
    return
  end
  local late = { compute = compute, caller = caller, root = root, operands = operands, own = own, computed = computed }
  late.shape, late.fits, late.is_taped = sizes, name == computed or name == "bool" and IS_TEST[root.op] or false,
    tape.is_open()
  late.weight, late.steps = weigh(root)
  late.uses, late.depth, late.is_single = 0, 1, reader == "reduction alone"
  for _, x in ipairs(operands) do
    local inner = array.late(x) ---@cast inner shardrt.delay.late?
    if inner then
      inner.uses = inner.uses + 1
      if may_join(inner, late) and (inner.weight <= LIGHT or not inner.is_taped) then
        late.weight = late.weight + inner.weight
      end
      late.depth = math.max(late.depth, inner.depth + 1)
    end
  end
  array.put_off(out, late, name, sizes)
  if late.depth >= DEEPEST then local _ = out.handle end
end

return delay

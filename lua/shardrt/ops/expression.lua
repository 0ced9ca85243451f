-- Expressions over elements: what shardrt_elementwise runs in one pass, written as arithmetic, and their derivatives.
--
-- A node is {op, a, b, c} of other nodes, {op = "INPUT", i} (the i-th operand, from 1) or {op = "CONSTANT", value}.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
require("shardrt.base.error").own()

local expression = {}

---@class shardrt.Node
---@field op string
---@field [1] shardrt.Node?
---@field [2] shardrt.Node?
---@field [3] shardrt.Node?
---@field i integer?
---@field value number?
---@field known table? # what was worked out of it: it never changes
---@operator add(shardrt.Node|number): shardrt.Node
---@operator sub(shardrt.Node|number): shardrt.Node
---@operator mul(shardrt.Node|number): shardrt.Node
---@operator div(shardrt.Node|number): shardrt.Node
---@operator pow(shardrt.Node|number): shardrt.Node
---@operator unm: shardrt.Node
local Node = {}

local function constant(value) return setmetatable({ op = "CONSTANT", value = value }, Node) end

local function node_of(value)
  if getmetatable(value) == Node then return value end
  return constant(value == true and 1 or value == false and 0 or tonumber(value))
end

-- What was worked out of a node, for who asks for it again.
---@param node shardrt.Node
---@return table
local function known(node)
  node.known = node.known or {}
  return node.known
end

-- f.SIN(x), f.SELECT(c, a, b), …: a node of any operation.
local f = setmetatable({}, {
  __index = function(self, op)
    local function make(a, b, c)
      return setmetatable({ op = op, node_of(a), b ~= nil and node_of(b) or nil, c ~= nil and node_of(c) or nil }, Node)
    end
    self[op] = make
    return make
  end,
})
expression.f = f

function Node.__add(a, b) return f.ADD(a, b) end
function Node.__sub(a, b) return f.SUB(a, b) end
function Node.__mul(a, b) return f.MUL(a, b) end
function Node.__div(a, b) return f.DIV(a, b) end
function Node.__pow(a, b) return expression.power(a, b) end
function Node.__unm(a) return f.NEG(a) end

--- a to the power b; where b is 1, 2 or 3, which most powers are, as a product.
---@param a shardrt.Node|number
---@param b shardrt.Node|number
---@return shardrt.Node
function expression.power(a, b)
  local whole = node_of(b).value
  if whole == 1 then return node_of(a) end
  if whole == 2 then return f.SQUARE(a) end
  if whole == 3 then return f.CUBE(a) end
  return f.POW(a, b)
end

--- The i-th operand.
---@param i integer
---@return shardrt.Node
function expression.input(i) return setmetatable({ op = "INPUT", i = i }, Node) end

expression.constant = node_of

-- ---- derivatives ----

local TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)

-- Where two operands are equal, each gets half, as in JAX.
local function larger(dy, a, b)
  return dy * f.SELECT(f.GT(a, b), 1, f.SELECT(f.EQ(a, b), 0.5, 0))
end

-- For each operation: the parts of dy that its operands get, from dy, the result y and the operands. An operation that
-- is not here is a step function: it passes nothing on.
local derivative = {
  ADD = function(dy) return dy, dy end,
  SUB = function(dy) return dy, -dy end,
  MUL = function(dy, _, a, b) return dy * b, dy * a end,
  DIV = function(dy, y, _, b) return dy / b, -(dy * y / b) end,
  POW = function(dy, y, a, b)
    -- 0^b has no logarithm to pass on, and a^0 no slope (of a number 0 in JAX, too; of an array of 0, it has NaN at 0).
    local lower = expression.power(a, b.value and b.value - 1 or b - 1)
    local da = f.SELECT(f.EQ(b, 0), 0, dy * b * lower)
    return da, dy * y * f.LOG(f.SELECT(f.EQ(a, 0), 1, a))
  end,
  MAXIMUM = function(dy, _, a, b) return larger(dy, a, b), larger(dy, b, a) end,
  MINIMUM = function(dy, _, a, b) return larger(dy, b, a), larger(dy, a, b) end,
  ATAN2 = function(dy, _, a, b)
    local square = a * a + b * b
    return dy * (b / square), -(dy * (a / square)) -- 0 where the square is beyond all numbers
  end,
  REMAINDER = function(dy, _, a, b) return dy, -(dy * f.FLOOR_DIVIDE(a, b)) end,
  SELECT = function(dy, _, c) return nil, f.SELECT(c, dy, 0), f.SELECT(c, 0, dy) end,
  NEG = function(dy) return -dy end,
  ABS = function(dy, _, a) return f.SELECT(f.GE(a, 0), dy, -dy) end, -- 1 at 0, as in JAX
  SQRT = function(dy, y) return dy * 0.5 / y end,
  RSQRT = function(dy, y, a) return dy * -0.5 * y / a end,
  EXP = function(dy, y) return dy * y end,
  EXPM1 = function(dy, y) return dy * (y + 1) end,
  LOG = function(dy, _, a) return dy / a end,
  LOG1P = function(dy, _, a) return dy / (a + 1) end,
  SIN = function(dy, _, a) return dy * f.COS(a) end,
  COS = function(dy, _, a) return -(dy * f.SIN(a)) end,
  TAN = function(dy, y) return dy * (y * y + 1) end,
  TANH = function(dy, y) return dy * (1 - y * y) end,
  LOGISTIC = function(dy, y) return dy * y * (1 - y) end,
  ERF = function(dy, _, a) return dy * TWO_OVER_ROOT_PI * f.EXP(-(a * a)) end,
  SQUARE = function(dy, _, a) return dy * 2 * a end,
  CUBE = function(dy, _, a) return dy * 3 * f.SQUARE(a) end,
  RECIPROCAL = function(dy, y) return -(dy * y * y) end,
  COPY = function(dy) return dy end,
}

-- The nodes below roots, each once, operands before what is made of them.
local function ordered(...)
  local order, seen = {}, {}
  local function visit(node)
    if seen[node] then return end
    seen[node] = true
    for k = 1, 3 do
      if node[k] then visit(node[k]) end
    end
    order[#order + 1] = node
  end
  for i = 1, select("#", ...) do visit((select(i, ...))) end
  return order
end

local function derived(root, i, y, dy)
  local order, depends, given = ordered(root), {}, { [root] = dy }
  for _, node in ipairs(order) do
    depends[node] = node.op == "INPUT" and node.i == i
    for k = 1, 3 do depends[node] = depends[node] or node[k] and depends[node[k]] end
  end
  local found
  for k = #order, 1, -1 do
    local node = order[k]
    local d, rule = given[node], derivative[node.op]
    if d and node.op == "INPUT" and node.i == i then
      found = found and found + d or d
    elseif d and rule and depends[node] then
      local parts = { rule(d, node == root and y or node, node[1], node[2], node[3]) }
      for part = 1, 3 do
        local operand = node[part]
        if operand and depends[operand] and parts[part] then
          given[operand] = given[operand] and given[operand] + parts[part] or parts[part]
        end
      end
    end
  end
  return found
end

--- What the i-th operand gets of dy: an expression of the n operands, of the root's value, which is operand n + 1, and
--- of dy, which is operand n + 2.
---@param root shardrt.Node
---@param i integer
---@param n integer
---@return shardrt.Node? # nil: nothing
function expression.derivative(root, i, n)
  local of, key = known(root), ("slope %d of %d"):format(i, n)
  if of[key] == nil then of[key] = derived(root, i, expression.input(n + 1), expression.input(n + 2)) or false end
  return of[key] or nil
end

-- The operands that an expression names, in the order in which it does, and it with these numbered in this order.
local function trimmed(root)
  local order, index, seen = {}, {}, {}
  local function visit(node)
    if seen[node] then return seen[node] end
    local copy = node
    if node.op == "INPUT" then
      if not index[node.i] then
        order[#order + 1] = node.i
        index[node.i] = #order == node.i and node or expression.input(#order)
      end
      copy = index[node.i]
    elseif node[1] then
      copy = f[node.op](visit(node[1]), node[2] and visit(node[2]), node[3] and visit(node[3]))
    end
    seen[node] = copy
    return copy
  end
  local copy = visit(root)
  for k, i in ipairs(order) do
    if k ~= i then return order, copy end
  end
  return order, root
end

--- Which of its operands an expression names, in an order of its own, and the expression of these alone.
---@param root shardrt.Node
---@return integer[] # from 1; never changed
---@return shardrt.Node
function expression.used(root)
  local of = known(root)
  if not of.used then of.used, of.trimmed = trimmed(root) end
  return of.used, of.trimmed
end

local MOST, NAMES = 64, { "a", "b", "c" } -- expressions that a word keeps; how operands are called among its keys

--- A function of nodes, of which each is an operand or a constant, that gives the same expression for the same ones.
---@param build fun(...: shardrt.Node): shardrt.Node
---@return fun(nodes: shardrt.Node[]): shardrt.Node
function expression.remembered(build)
  local made, count = {}, 0
  return function(nodes)
    local place, last = made, #nodes
    for k = 1, last do
      local node = nodes[k]
      local key = node.i and NAMES[node.i] or node.value
      if key ~= key or key == 0 and 1 / key < 0 then return build(unpack(nodes)) end -- no keys, or another's
      if not place[key] then
        if count >= MOST then
          made, count = {}, 0
          return build(unpack(nodes))
        end
        place[key], count = k == last and build(unpack(nodes)) or {}, count + 1
      end
      place = place[key]
    end
    return place
  end
end

--- The expression in words, which are equal for equal ones.
---@param root shardrt.Node
---@return string
function expression.text(root)
  local words, index = {}, {}
  for i, node in ipairs(ordered(root)) do
    index[node], words[i] = i, node.op
    local detail = node.i or node.value
    if detail then words[i] = ("%s %.17g"):format(node.op, detail) end
    for k = 1, 3 do
      if node[k] then words[i] = words[i] .. " " .. index[node[k]] end
    end
  end
  return table.concat(words, "; ")
end

-- ---- programs ----

local Steps = ffi.typeof "shardrt_step[?]"

local function compiled(root, n, ...)
  if root.op == "INPUT" then root = f.COPY(root) end
  local order, register = ordered(root, ...), {}
  local steps, count = Steps(#order), 0
  for _, node in ipairs(order) do
    if node.op == "INPUT" then
      register[node] = node.i - 1
    else
      local step = steps[count]
      step.op = C["SHARDRT_OP_" .. node.op]
      step.a, step.b, step.c = 0, 0, 0
      if node[1] then step.a = register[node[1]] end
      if node[2] then step.b = register[node[2]] end
      if node[3] then step.c = register[node[3]] end
      step.value = node.value or 0
      register[node], count = n + count, count + 1
    end
  end
  local registers = {}
  for i, node in ipairs { root, ... } do registers[i] = register[node] end
  return steps, count, unpack(registers)
end

--- The program of an expression of n operands, which is never changed, and how many steps it has. Of several
--- expressions, which may be parts of those behind them, also the register that each is in.
---@param root shardrt.Node
---@param n integer
---@param ... shardrt.Node
---@return ffi.cdata*
---@return integer
---@return integer ...
function expression.program(root, n, ...)
  if select("#", ...) > 0 then return compiled(root, n, ...) end
  local of = known(root)
  if of.operands ~= n then
    of.steps, of.count = compiled(root, n)
    of.operands = n
  end
  return of.steps, of.count
end

return expression

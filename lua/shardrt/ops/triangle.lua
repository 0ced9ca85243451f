-- Words for what lies on, below or above a diagonal.

local creation = require "shardrt.ops.creation"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local promote = require "shardrt.ops.promote"
local reshape = require "shardrt.ops.reshape"
local shape = require "shardrt.layout.shape"
fail.own()

---@class shardrt.triangle.words
local words = {}
local triangle = { words = words }

local f = expression.f

local EXACT = 2 ^ 24 -- float32 holds every whole number up to it

local function check_diagonal(caller, k)
  if k == nil then return 0 end
  if not list.is_whole(k, -2 ^ 31) or k > 2 ^ 31 then
    fail("%s: k = %s; the diagonal is a whole number: 0, above it 1, below it -1", caller, list.show(k))
  end
  return k
end

-- The numbers of rows, {n, 1}, and of columns, {m}; as float32 where they are compared in that, without conversion.
local function numbers(n, m, compared)
  local name = compared == "float32" and "float32" or "int32"
  return reshape.words.reshape(creation.words.arange(n, name), { n, 1 }), creation.words.arange(m, name)
end

--- Ones on a diagonal of a matrix, zeros elsewhere.
---@param n integer # rows
---@param m integer? # columns; left out: as many
---@param k integer? # 0: the main diagonal; 1: the one above it
---@param name string? # dtype; float32
---@return shardrt.Array
function words.eye(n, m, k, name)
  local caller = "np.eye"
  if n == nil then fail("%s: n is nil; it is the number of rows", caller) end
  m = m == nil and n or m
  local sizes = shape.check(caller, { n, m })
  local diagonal, to = check_diagonal(caller, k), dtype.named(caller, name or "float32").name
  local compared = sizes[1] + sizes[2] + math.abs(diagonal) <= EXACT and "float32" or "int64"
  local rows, columns = numbers(sizes[1], sizes[2], compared)
  local node = f.EQ(expression.input(1) + diagonal, expression.input(2))
  return elementwise.run(caller, { rows, columns }, node, to, compared)
end

-- What of the last two dimensions' matrices `keeps` keeps; 0 elsewhere.
local function define(name, keeps)
  local caller = "np." .. name
  words[name] = function(x, k)
    x = dispatch.array(caller, x)
    local diagonal = check_diagonal(caller, k)
    local sizes = x.shape
    if #sizes < 2 then
      fail("%s: an array of shape %s; it is of matrices, of two dimensions at least", caller, shape.text(sizes))
    end
    local n, m = sizes[#sizes - 1], sizes[#sizes]
    local computed = promote.computed(x.dtype)
    local wide = computed == "float32" and n + m > EXACT and "float64" or x.dtype
    local rows, columns = numbers(n, m, promote.computed(wide))
    local row, column = expression.input(2), expression.input(3)
    -- Numbers are added where none becomes negative, which unsigned ones are not.
    if diagonal > 0 then row = row + math.min(diagonal, m) end
    if diagonal < 0 then column = column + math.min(-diagonal, n) end
    return elementwise.run(caller, { x, rows, columns }, f.SELECT(keeps(row, column), expression.input(1), 0), x.dtype,
      wide)
  end
end

-- What the loop defines stands here for editors.
---@class shardrt.triangle.words
---@field tril fun(x: shardrt.Operand, k: integer?): shardrt.Array # zeros above the k-th diagonal
---@field triu fun(x: shardrt.Operand, k: integer?): shardrt.Array # zeros below the k-th diagonal
define("tril", function(row, column) return f.GE(row, column) end)
define("triu", function(row, column) return f.GE(column, row) end)

return triangle

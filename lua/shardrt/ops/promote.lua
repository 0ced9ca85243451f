-- Which dtype comes out where operands have different ones: JAX's rules. Where no operand has 64 bits they are those of
-- JAX without x64, which has none; else those with it.
-- https://docs.jax.dev/en/latest/type_promotion.html

local ffi = require "ffi"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
fail.own()

local promote = {}

local KIND = {
  bool = "bool", float16 = "float", bfloat16 = "float", float32 = "float", float64 = "float",
  int8 = "int", int16 = "int", int32 = "int", int64 = "int",
  uint8 = "uint", uint16 = "uint", uint32 = "uint", uint64 = "uint",
}
local RANK = { bool = 0, uint = 1, int = 1, float = 2 }

-- What elements are while something is computed of them.
local COMPUTED = {
  bool = "int32", int8 = "int32", int16 = "int32", int32 = "int32", uint8 = "uint32", uint16 = "uint32",
  uint32 = "uint32", int64 = "int64", uint64 = "uint64", float16 = "float32", bfloat16 = "float32",
  float32 = "float32", float64 = "float64",
}

--- "bool", "int", "uint" or "float".
---@param name string
---@return string
function promote.kind(name) return KIND[name] end

---@param name string
---@return boolean
function promote.is_float(name) return KIND[name] == "float" end

--- The dtype in which a dtype is computed.
---@param name string
---@return string
function promote.computed(name) return COMPUTED[name] end

local function size(name) return dtype.named("promote", name).size end

local function two(a, b)
  if a == b then return a end
  local x, y = KIND[a], KIND[b]
  if RANK[x] > RANK[y] then return two(b, a) end
  if RANK[x] < RANK[y] then return b end -- bool and anything, whole numbers and floats
  if x == "float" then return size(a) == size(b) and "float32" or size(a) > size(b) and a or b end
  if x == y then return size(a) > size(b) and a or b end
  if x == "int" then a, b = b, a end -- a is unsigned, b signed
  if size(a) < size(b) then return b end
  return size(a) == 8 and "float64" or "int" .. math.min(size(a) * 16, 32)
end

-- What a Lua value asks for: the least, so that it leaves the dtype of an array as it is where that can hold its kind.
local function weak(value)
  if type(value) == "boolean" then return "bool" end
  if type(value) ~= "number" then return ffi.istype("uint64_t", value) and "uint" or "int" end
  return value % 1 == 0 and "int" or "float"
end

--- The dtype of what is computed from arrays of these dtypes and these Lua values (numbers, booleans, 64-bit cdata). A
--- Lua number has no dtype of its own: with an array of floats it becomes one of these; a whole one with an array of
--- whole numbers one of those.
---@param dtypes string[]
---@param values any[]
---@return string
function promote.result(dtypes, values)
  local found
  for _, name in ipairs(dtypes) do found = found and two(found, name) or name end
  for _, value in ipairs(values) do
    local kind = weak(value)
    if not found then
      found = kind == "bool" and "bool" or "float32"
    elseif kind == "float" and KIND[found] ~= "float" then
      found = "float32"
    elseif kind ~= "bool" and found == "bool" then
      found = kind == "float" and "float32" or "int32"
    end
  end
  return found
end

--- The dtype in which operands that promote to `common` are compared: one that has all their numbers, where there is.
---@param dtypes string[]
---@param common string
---@return string
function promote.compared(dtypes, common)
  for _, name in ipairs(dtypes) do
    if name == "uint32" and common == "int32" then return "int64" end
  end
  return common
end

--- Whether a dtype's numbers are rounded where they become another, in which less precise ones are computed than held.
---@param from string
---@param to string
---@return boolean
function promote.is_rounded(from, to)
  return KIND[to] == "float" and size(to) == 2 and KIND[from] ~= "float" and size(from) > 1
end

--- The dtype of floats that stands for a dtype: itself, or float32.
---@param name string
---@return string
function promote.to_float(name) return KIND[name] == "float" and name or "float32" end

--- The dtype in which sums of a dtype are handed out: whole numbers of 32 bits at least.
---@param name string
---@return string
function promote.summed(name)
  local kind = KIND[name]
  if kind == "float" or size(name) >= 4 then return name end
  return kind == "uint" and "uint32" or "int32"
end

return promote

-- What a field must be, as in { ">=", 3, "<", 9 }: a transform to one bool, which C compares by. Statistics in files
-- may answer it.

local ffi = require "ffi"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local transform = require "shardrt.data.transform"
fail.own()

local condition = {}

-- runtime/memory/condition.h: relations, and what is compared with; runtime/transform/kind/condition.c has booleans.
local RELATION = { ["<"] = 0, ["<="] = 1, ["=="] = 2, ["="] = 2, ["~="] = 3, ["!="] = 3, [">="] = 4, [">"] = 5 }
local SHOWN = { "<", "<=", "==", "~=", ">=", ">" }
local KIND = { number = 0, int64 = 1, uint64 = 2, text = 3, boolean = 4 }
local MOST = 8
local OPERAND = { number = ffi.typeof "double[1]", int64 = ffi.typeof "int64_t[1]", uint64 = ffi.typeof "uint64_t[1]" }

---@alias shardrt.Predicate function|shardrt.Condition|shardrt.Transform[] # what source:filter takes of a field
---@alias shardrt.Condition any[] # relations and what they are to: { ">=", 3 }, { ">=", 3, "<", 9 }, { "==", "cat" }

--- Whether a value is meant as a condition.
---@param given any
---@return boolean
function condition.is(given) return type(given) == "table" and type(rawget(given, 1)) == "string" end

-- What kind of value it is, its 8 bytes, and the text that stands behind them.
local function operand(caller, value)
  local kind = type(value)
  if kind == "string" then return "text", ffi.string(ffi.new("uint64_t[1]", #value), 8), value end
  if kind == "boolean" then return "boolean", ffi.string(ffi.new("uint64_t[1]", value and 1 or 0), 8), "" end
  if ffi.istype("int64_t", value) then kind = "int64" end
  if ffi.istype("uint64_t", value) then kind = "uint64" end
  if not OPERAND[kind] then
    fail("%s: it compares with a number, a text, true or false, not %s", caller, list.show(value))
  end
  return kind, ffi.string(OPERAND[kind](value), 8), ""
end

--- The transform to a bool that a condition is.
---@param caller string # for messages: the word and the field
---@param given shardrt.Condition
---@return shardrt.Transform
function condition.transform(caller, given)
  local numbers, operands, texts, shown = {}, {}, {}, {}
  local length = list.length(given)
  if not length or length % 2 > 0 or length > 2 * MOST then
    fail('%s: a condition is a relation and a value, as in {">=", 3}, or up to %d such pairs, all of which must hold',
      caller, MOST)
  end
  for i = 1, length, 2 do
    local relation = RELATION[given[i]]
    if not relation then fail("%s: no relation %s; there are %s", caller, list.show(given[i]), table.concat(SHOWN, " "))
    end
    local kind, bytes, text = operand(caller, given[i + 1])
    numbers[#numbers + 1], numbers[#numbers + 2] = relation, KIND[kind]
    operands[#operands + 1], texts[#texts + 1] = bytes, text
    shown[#shown + 1] = SHOWN[relation + 1] .. " " .. list.show(given[i + 1])
  end
  return transform.new("condition", "condition{" .. table.concat(shown, ", ") .. "}", numbers,
    table.concat(operands) .. table.concat(texts))
end

return condition

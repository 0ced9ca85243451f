-- Element types: how a Lua value becomes an element in memory and back, exactly or not at all.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local fail = require "shardrt.base.error"
fail.own()

local int64, uint64 = ffi.typeof "int64_t", ffi.typeof "uint64_t"
local floor, abs, huge = math.floor, math.abs, math.huge
local band = require("bit").band

---@class shardrt.dtype
---@field name string
---@field code integer # SHARDRT_FLOAT32, …
---@field size integer # bytes of one element
---@field element string # the C type of one
---@field pointer ffi.ctype* # what .data of a host array is
---@field constant ffi.ctype* # what it is where others have the memory, too
---@field cell ffi.ctype* # memory of one; ffi.typeof("$[1]", t), once compiled, gives the type of another t
---@field range string # what fits, for messages
---@field write fun(data: ffi.cdata*, i: integer, value: any): boolean # false: the value does not fit
---@field read fun(data: ffi.cdata*, i: integer): any

local dtype = {}

---@type table<string, shardrt.dtype>
local by_name = {}
---@type table<integer, shardrt.dtype>
local by_code = {}

local function plain_read(data, i) return data[i] end

-- A NaN whose other bits are set would be taken for what LuaJIT keeps in such bits: nil, or the address of a table. So
-- a float is looked at as whole numbers first.
local words = ffi.typeof "const uint32_t *"

local function float32_read(data, i)
  if band(ffi.cast(words, data)[i], 0x7fffffff) > 0x7f800000 then return 0 / 0 end
  return data[i]
end

local function float64_read(data, i)
  local pair = ffi.cast(words, data)
  local high = band(pair[2 * i + 1], 0x7fffffff)
  if high > 0x7ff00000 or high == 0x7ff00000 and pair[2 * i] ~= 0 then return 0 / 0 end
  return data[i]
end

-- Every whole number from lowest to highest; both are exact as doubles.
local function small_integer(lowest, highest)
  return function(data, i, value)
    if type(value) == "number" then
      if not (value >= lowest and value <= highest and value == floor(value)) then return false end
    elseif ffi.istype(int64, value) then
      if value < lowest or value > highest then return false end
    elseif not ffi.istype(uint64, value) or value > uint64(highest) then
      return false
    end
    data[i] = value
    return true
  end
end

local function write_int64(data, i, value)
  if type(value) == "number" then
    if not (value >= -2 ^ 63 and value < 2 ^ 63 and value == floor(value)) then return false end
  elseif ffi.istype(uint64, value) then
    if value > 0x7fffffffffffffffULL then return false end
  elseif not ffi.istype(int64, value) then
    return false
  end
  data[i] = value
  return true
end

local function write_uint64(data, i, value)
  if type(value) == "number" then
    if not (value >= 0 and value < 2 ^ 64 and value == floor(value)) then return false end
  elseif ffi.istype(int64, value) then
    if value < 0 then return false end
  elseif not ffi.istype(uint64, value) then
    return false
  end
  data[i] = value
  return true
end

-- A float takes any number, rounded; what would become infinite does not fit.
local function float(store, read)
  return function(data, i, value)
    if ffi.istype(int64, value) or ffi.istype(uint64, value) then value = tonumber(value) end
    if type(value) ~= "number" then return false end
    store(data, i, value)
    return abs(read(data, i)) ~= huge or abs(value) == huge
  end
end

local function write_bool(data, i, value)
  if value == 0 or value == 1 then value = value == 1 end
  if type(value) ~= "boolean" then return false end
  data[i] = value
  return true
end

local function plain_store(data, i, value) data[i] = value end
local function float16_store(data, i, value) data[i] = C.shardrt_float16_from_double(value) end
local function float16_read(data, i)
  if band(data[i], 0x7fff) > 0x7c00 then return 0 / 0 end
  return C.shardrt_float16_to_double(data[i])
end
local function bfloat16_store(data, i, value) data[i] = C.shardrt_bfloat16_from_double(value) end
local function bfloat16_read(data, i)
  if band(data[i], 0x7fff) > 0x7f80 then return 0 / 0 end
  return C.shardrt_bfloat16_to_double(data[i])
end

local function define(name, ctype, range, write, read)
  local code = C.shardrt_dtype_from_name(name)
  local entry = {
    name = name,
    code = code,
    size = tonumber(C.shardrt_dtype_size(code)),
    element = ctype,
    pointer = ffi.typeof(ctype .. " *"),
    constant = ffi.typeof("const " .. ctype .. " *"),
    cell = ffi.typeof(ctype .. "[1]"),
    range = range,
    write = write,
    read = read or plain_read,
  }
  by_name[name], by_code[code] = entry, entry
end

local function add_integer(name, ctype, lowest, highest)
  define(name, ctype, ("whole numbers from %d to %d"):format(lowest, highest), small_integer(lowest, highest))
end

-- C's bool, so that `if mask.data[i] then` means what it says (a 0 would be true in Lua).
define("bool", "bool", "true and false", write_bool)
add_integer("int8", "int8_t", -128, 127)
add_integer("int16", "int16_t", -32768, 32767)
add_integer("int32", "int32_t", -2147483648, 2147483647)
add_integer("uint8", "uint8_t", 0, 255)
add_integer("uint16", "uint16_t", 0, 65535)
add_integer("uint32", "uint32_t", 0, 4294967295)
define("int64", "int64_t", "whole numbers from -2^63 to 2^63 - 1", write_int64)
define("uint64", "uint64_t", "whole numbers from 0 to 2^64 - 1", write_uint64)
define("float16", "uint16_t", "numbers up to 65504", float(float16_store, float16_read), float16_read)
define("bfloat16", "uint16_t", "numbers up to 3.39e38", float(bfloat16_store, bfloat16_read), bfloat16_read)
define("float32", "float", "numbers up to 3.40e38", float(plain_store, float32_read), float32_read)
define("float64", "double", "numbers", float(plain_store, float64_read), float64_read)

--- The dtype of that name.
---@param caller string # the call, for messages
---@param name string
---@return shardrt.dtype
function dtype.named(caller, name)
  local found = by_name[name]
  if not found then
    fail("%s: there is no dtype %s%s", caller, type(name) == "string" and '"' .. name .. '"' or tostring(name),
      fail.suggestion(name, by_name))
  end
  return found
end

--- The names of all dtypes.
---@return string[]
function dtype.names()
  local names = {}
  for name in pairs(by_name) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- The dtype of a code that C gave.
---@param code integer
---@return shardrt.dtype
function dtype.coded(code) return by_code[tonumber(code)] end

--- The dtype of a value that a recipe gave without one; nil: it is no element of an array.
---@param value any
---@return string?
function dtype.of_value(value)
  if type(value) == "number" then return "float32" end
  if type(value) == "boolean" then return "bool" end
  if ffi.istype(int64, value) then return "int64" end
  if ffi.istype(uint64, value) then return "uint64" end
end

return dtype

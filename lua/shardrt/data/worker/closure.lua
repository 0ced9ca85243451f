-- Carrying a Lua function to another Lua state, with the values outside it that it uses: plain data, other Lua
-- functions, and what Lua's own libraries hold, for which the other state has its own. The bytes that it is packed in
-- are a list of objects (tables, functions, entries of libraries), each referred to by its number, so that what was one
-- object before is one afterwards, and circles are none.

local bit = require "bit"
local ffi = require "ffi"
local bytecode = require "shardrt.data.worker.bytecode"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
fail.own()

local closure = {}

local int64, uint64 = ffi.typeof "int64_t", ffi.typeof "uint64_t"
local word_out = ffi.typeof "uint32_t[1]"
local number_out, int64_out, uint64_out = ffi.typeof "double[1]", ffi.typeof "int64_t[1]", ffi.typeof "uint64_t[1]"

-- ---- what Lua's own libraries hold ----------------------------------------------------------------------------------

local LIBRARIES = { "bit", "coroutine", "debug", "ffi", "io", "jit", "math", "os", "string", "table" }

-- Where a name of a library, such as "math.floor" or "print", leads to; nil: nowhere.
local function standard(name)
  local library, entry = name:match "^(%w+)%.(.*)$"
  if library then return require(library)[entry] end
  if name == "_G" then return _G end
  for _, known in ipairs(LIBRARIES) do
    if known == name then return require(name) end
  end
  return rawget(_G, name)
end

local names = {} ---@type table<any, string> # of what is standard

-- Takes the functions of a library that are LuaJIT's own, not what a recipe put beside them.
local function learn(library, prefix)
  names[library] = prefix == "" and "_G" or prefix:sub(1, -2)
  for name, value in pairs(library) do
    local info = type(value) == "function" and debug.getinfo(value, "S")
    if info and (info.what == "C" or info.source == name) then names[value] = prefix .. name end
  end
end
learn(_G, "")
for _, library in ipairs(LIBRARIES) do learn(require(library), library .. ".") end
-- Those that shardrt has put in their place (base/sorted_pairs.lua), here and there.
names[pairs], names[next] = "pairs", "next"

-- These would make what a sample becomes depend on the worker that it comes to.
local REFUSED = {
  ["math.random"] = "use the function's second argument, as in rng:uniform()",
  ["math.randomseed"] = "the function's second argument draws from the loader's seed",
  ["os.exit"] = "use error()",
}

--- Makes those functions that no carried function may use raise errors, in the state of a worker.
function closure.refuse()
  for name, instead in pairs(REFUSED) do
    local library, entry = name:match "^(%w+)%.(.*)$"
    require(library)[entry] = function() fail("%s is not for transforms: %s", name, instead) end
  end
end

-- ---- packing --------------------------------------------------------------------------------------------------------

---@class shardrt.Origin # how a value is reached
---@field path string? # "the upvalue means"; nil: it stands in a table
---@field place string? # where the function uses that
---@field owner integer? # the number of that table
---@field key any # in it

---@class shardrt.Packing
---@field what string # the call, for messages
---@field objects any[]
---@field numbers table<any, integer> # of the objects
---@field origins shardrt.Origin[] # of the objects
---@field modules table<any, string> # names of what is loaded

local function word(n)
  local out = word_out(n)
  return ffi.string(out, 4)
end

local LONGEST = 60   -- bytes of a value in a message
local MOST_KEYS = 16 -- of tables in one another

local function counted(text) return word(#text) .. text end

-- Raises why a value cannot be carried: the upvalue means["blue"][3] (used in recipe.lua:12) is …
local function refuse(self, origin, problem, prefix)
  local keys, words = {}, {}
  while origin.owner do
    keys[#keys + 1] = ("[%s]"):format(list.show(origin.key))
    origin = self.origins[origin.owner]
  end
  for i = #keys, math.max(1, #keys - MOST_KEYS + 1), -1 do words[#words + 1] = keys[i] end
  fail("%s: %s%s%s%s (%s) is %s; a worker takes numbers, texts, booleans, plain tables of these, Lua functions that "
    .. "use no more than that, and Lua's own libraries", self.what, prefix or "", origin.path, table.concat(words),
    #keys > MOST_KEYS and "..." or "", origin.place, problem)
end

-- A value for a message, which may be a whole array.
local function shortened(value)
  local text = tostring(value)
  return #text > LONGEST and text:sub(1, LONGEST) .. "..." or text
end

-- What a value is that cannot be carried; nil: it can.
local function foreign(self, value)
  local kind, name = type(value), names[value]
  if name then return REFUSED[name] and ("%s: %s"):format(name, REFUSED[name]) end
  if kind == "userdata" or kind == "thread" or kind == "cdata" then
    return ("a %s, %s"):format(kind, shortened(value))
  end
  if self.modules[value] then return ('the module "%s"'):format(self.modules[value]) end
  if kind == "table" and not list.is_plain(value) then return "a table with a metatable, " .. shortened(value) end
  if kind == "function" then
    local info = debug.getinfo(value, "S")
    if info.what == "C" then return "a function written in C" end
    if fail.is_own(info.source) then return "a function of shardrt" end
  end
end

-- The bytes that stand for a value; a new object is put on the list, with where it comes from: `path` and `place`, or
-- the table `owner` and its key.
local function value_bytes(self, value, path, place, owner, key)
  local kind = type(value)
  if value == nil then return "n" end
  if kind == "boolean" then return value and "t" or "f" end
  if kind == "number" then return "d" .. ffi.string(number_out(value), 8) end
  if kind == "string" then return "s" .. counted(value) end
  if ffi.istype(int64, value) then return "i" .. ffi.string(int64_out(value), 8) end
  if ffi.istype(uint64, value) then return "u" .. ffi.string(uint64_out(value), 8) end
  if not self.numbers[value] then
    local origin = { path = path, place = place, owner = owner, key = key }
    local problem = foreign(self, value)
    if problem then refuse(self, origin, problem) end
    local number = #self.objects + 1
    self.objects[number], self.numbers[value], self.origins[number] = value, number, origin
  end
  return "r" .. word(self.numbers[value])
end

-- The bytes from which an object is made, before what it refers to is there.
local function object_bytes(value)
  if names[value] then return "L" .. counted(names[value]) end
  if type(value) == "table" then return "T" end
  return "F" .. counted(string.dump(value))
end

local function table_bytes(self, number)
  local value, keys = self.objects[number], {}
  for key in pairs(value) do
    if type(key) ~= "number" and type(key) ~= "string" and type(key) ~= "boolean" then
      refuse(self, self.origins[number], "a " .. type(key), "a key of ")
    end
    keys[#keys + 1] = key
  end
  table.sort(keys, bytecode.before)
  local parts = { word(#keys) }
  for i, key in ipairs(keys) do
    parts[i + 1] = value_bytes(self, key) .. value_bytes(self, value[key], nil, nil, number, key)
  end
  return table.concat(parts)
end

-- What the functions are, for the identity, is put to `identity`.
local function function_bytes(self, number, identity)
  local f = self.objects[number]
  identity[#identity + 1] = bytecode.identity(assert(loadstring(string.dump(f))))
  local parts, i = {}, 1
  while true do
    local name, value = debug.getupvalue(f, i)
    if not name then break end
    parts[i] = value_bytes(self, value, "the upvalue " .. name, "used in " .. bytecode.upvalue_place(f, i))
    i = i + 1
  end
  return word(#parts) .. table.concat(parts)
end

--- The bytes of a function, and a text that is equal for equal ones in all processes, which the bytes need not be.
---@param caller string # the call, for messages
---@param f function
---@return string bytes
---@return string identity
function closure.pack(caller, f)
  local self = { what = caller, objects = {}, numbers = {}, origins = {}, modules = {} }
  for name, module in pairs(package.loaded) do self.modules[module] = name end
  local problem = foreign(self, f) or names[f] and "a function of Lua's own"
  if problem then fail("%s: it takes a function written in Lua, not %s", caller, problem) end
  value_bytes(self, f, "the function", "at " .. bytecode.place(f))
  local made, filled, identity = {}, {}, {}
  local i = 1
  while self.objects[i] ~= nil do -- the list grows as it is walked
    local value = self.objects[i]
    made[i] = object_bytes(value)
    filled[i] = names[value] and "" or type(value) == "table" and table_bytes(self, i)
      or function_bytes(self, i, identity)
    identity[#identity + 1] = (names[value] or type(value)) .. filled[i]
    i = i + 1
  end
  return word(#made) .. table.concat(made) .. table.concat(filled), table.concat(identity, "\n")
end

-- ---- unpacking ------------------------------------------------------------------------------------------------------

---@class shardrt.Unpacking
---@field bytes string
---@field at integer # of the next byte, from 1

local function take(self, count)
  local bytes = self.bytes:sub(self.at, self.at + count - 1)
  self.at = self.at + count
  return bytes
end

local function take_word(self)
  local a, b, c, d = self.bytes:byte(self.at, self.at + 3)
  self.at = self.at + 4
  return bit.bor(a, bit.lshift(b, 8), bit.lshift(c, 16), bit.lshift(d, 24))
end

local function take_as(self, ctype)
  local out = ctype()
  ffi.copy(out, take(self, 8), 8)
  return out[0]
end

local function take_value(self, objects)
  local tag = take(self, 1)
  if tag == "n" then return nil end
  if tag == "t" or tag == "f" then return tag == "t" end
  if tag == "d" then return take_as(self, number_out) end
  if tag == "s" then return take(self, take_word(self)) end
  if tag == "i" then return take_as(self, int64_out) end
  if tag == "u" then return take_as(self, uint64_out) end
  return objects[take_word(self)]
end

local function take_object(self)
  local tag = take(self, 1)
  if tag == "T" then return {} end
  local text = take(self, take_word(self))
  if tag == "L" then
    local value = standard(text)
    if value == nil then error(("it uses %s, which is not there in a worker"):format(text), 0) end
    return value
  end
  return assert(loadstring(text, "=stripped bytecode"))
end

--- The function that was packed, in this state, and the tables that came with it.
---@param bytes string
---@return function f
---@return table[] tables
---@return function[] functions # with it
function closure.unpack(bytes)
  local self = { bytes = bytes, at = 1 }
  local objects, tables, functions, kinds = {}, {}, {}, {}
  for i = 1, take_word(self) do
    kinds[i] = bytes:sub(self.at, self.at)
    objects[i] = take_object(self)
  end
  for i, object in ipairs(objects) do
    if kinds[i] == "T" then
      tables[#tables + 1] = object
      for _ = 1, take_word(self) do
        local key = take_value(self, objects)
        object[key] = take_value(self, objects)
      end
    elseif kinds[i] == "F" then
      functions[#functions + 1] = object
      for upvalue = 1, take_word(self) do debug.setupvalue(object, upvalue, take_value(self, objects)) end
    end
  end
  return objects[1], tables, functions
end

return closure

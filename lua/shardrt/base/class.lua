-- Objects that a recipe is given: their fields can be read and not set, and what a field holds within is out of reach,
-- so that no table which a recipe changes decides how much memory is touched.

local fail = require "shardrt.base.error"
local foreign_names = require "shardrt.base.foreign_names"
fail.own()

local class = {}

local INSIDE = {} -- the key of an object's only entry: the table of what it holds

--- Wraps a method such that it refuses to be called on anything but its object.
---@param is fun(value: any): boolean
---@param example string # how the object is called in the message: "x"
---@param name string # of the method
---@param method function
---@return function
function class.method(is, example, name, method)
  return function(self, ...)
    if not is(self) then
      fail("%s: it is a method: call it with a colon, as in %s:%s(…)", name, example, name)
    end
    return method(self, ...)
  end
end

--- Wraps the functions of a table of public words such that they refuse to be called by a colon, and the table such
--- that a word which is not there is an error.
---@generic T: table
---@param name string # "shardrt.ndarray"
---@param words T
---@return T # a new table
function class.words(name, words)
  local made = {}
  for key, word in pairs(words) do
    made[key] = type(word) ~= "function" and word or function(...)
      if ... == made then fail("%s: call it with a dot, as in %s.%s(…)", key, name, key) end
      return word(...)
    end
  end
  return class.strict(name .. " has no word", made, function(key) return foreign_names.of_words(name, key) end)
end

--- A table in which asking for a name that is not there is an error. (Names that begin with "_" are asked for by
--- libraries.)
---@generic T: table
---@param problem string # how the message begins, before the name: "the mesh has no axis"
---@param entries T
---@param hint (fun(key: string): string?)? # what to say of a name; nil: the one that is nearest
---@return T # the same table
function class.strict(problem, entries, hint)
  return setmetatable(entries, {
    __index = function(_, key)
      if type(key) ~= "string" or key:sub(1, 1) == "_" then return nil end
      local told = hint and hint(key)
      fail('%s "%s"%s', problem, key, told and "; " .. told or fail.suggestion(key, entries))
    end,
  })
end

--- A class of objects: the metatable that all of them have. Methods added to `methods` afterwards are wrapped. A name
--- that is neither field nor method is nil, for code that probes, or an error where a field of nearly that name exists,
--- or there is a hint.
---@param what string # "an array", for messages
---@param example string # "x"
---@param fields table<string, true|fun(inside: table, self: table): any> # true: as it stands inside
---@param methods table
---@param aliases table<string, string>? # names that mean a field, although they look different
---@param hint (fun(key: any): string?)? # what to write in place of a name that other libraries have
---@return metatable
function class.define(what, example, fields, methods, aliases, hint)
  local made, known = {}, {}
  local function is(value) return getmetatable(value) == made end
  for name in pairs(fields) do known[name] = true end
  setmetatable(methods, {
    __newindex = function(_, name, method)
      known[name] = true
      rawset(methods, name, class.method(is, example, name, method))
    end,
  })
  function made.__index(self, key)
    local method = methods[key]
    if method then return method end
    local inside, field = self[INSIDE], fields[key]
    if field == true then return inside[key] end
    if field then return field(inside, self) end
    return fail.no_field(what, key, known, aliases, hint and hint(key))
  end
  function made.__newindex(_, key)
    fail('%s never changes: "%s" cannot be set', what, tostring(key))
  end
  return made
end

--- A new object of a class.
---@param of metatable # the class
---@param inside table # what it holds
---@return table
function class.new(of, inside) return setmetatable({ [INSIDE] = inside }, of) end

--- What an object holds.
---@param self table
---@return table
function class.inside(self) return rawget(self, INSIDE) end

--- Whether a value is an object of any class.
---@param value any
---@return boolean
function class.is(value) return type(value) == "table" and rawget(value, INSIDE) ~= nil end

--- Whether whoever asks an object for a name may do so of any object: shardrt's own code, which tells by that what it
--- was given, and libraries, whose names begin with "_". For the function that is the object's __index.
---@param key any
---@return boolean
function class.may_probe(key)
  return type(key) == "string" and key:sub(1, 1) == "_" or fail.is_own(debug.getinfo(3, "S").source)
end

return class

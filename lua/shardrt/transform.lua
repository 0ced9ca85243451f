-- Transforms: what happens to the samples of a field on their way into a batch.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.C"
local bytecode = require "shardrt.bytecode"
local carry = require "shardrt.carry"
local dtype = require "shardrt.dtype"
local fail = require "shardrt.fail"
local list = require "shardrt.list"
local object = require "shardrt.object"
fail.own()

---@class shardrt.Transform
---@field name string # "crop"

---@class shardrt.transform.words
local words = {}
local transform = { words = words }

local class = object.class("a transform", "t", { name = true }, {})
class.__tostring = function(self) return "transform." .. object.inside(self).text end

local transform_out = ffi.typeof "shardrt_transform *[1]"

--- Whether a value is a transform.
---@param value any
---@return boolean
function transform.is(value) return getmetatable(value) == class end

--- A transform of one of C's kinds.
---@param kind string # as in C
---@param text string # how it reads in messages, with what it was given: equal texts mean equal transforms
---@param numbers number[]
---@param bytes string?
---@return shardrt.Transform
function transform.new(kind, text, numbers, bytes)
  local out = transform_out()
  local values = ffi.new("double[?]", math.max(#numbers, 1), numbers)
  fail.check(C.shardrt_transform_new(kind, #numbers, values, bytes and #bytes or 0, bytes, out))
  return object.new(class, { name = kind, text = text, handle = ffi.gc(out[0], C.shardrt_transform_free) })
end

--- The C handle of a transform, which the object owns.
---@param t shardrt.Transform
---@return ffi.cdata*
function transform.handle(t) return object.inside(t).handle end

-- A list of whole numbers, one for each dimension.
local function sizes_of(what, value)
  if type(value) ~= "table" or object.is(value) then
    fail("%s: a list of whole numbers, not %s", what, list.show(value))
  end
  for _, size in ipairs(value) do
    if not list.is_whole(size, 0) then fail("%s: a list of whole numbers, not of %s", what, list.show(size)) end
  end
  return value
end

--- A box of every sample: `size` elements in each dimension, from `start` on (0 in each where it is left out).
---@param o {size: integer[], start: integer[]?}
---@return shardrt.Transform
function words.crop(o)
  if type(o) ~= "table" or object.is(o) then fail("transform.crop: it takes {size = …}, not %s", list.show(o)) end
  fail.keywords("transform.crop", o, { size = true, start = true })
  local size, numbers = sizes_of("transform.crop, size", o.size), {}
  local start = o.start and sizes_of("transform.crop, start", o.start) or {}
  for i = 1, #size do numbers[i], numbers[#size + i] = start[i] or 0, size[i] end
  local text = ("crop{size = {%s}, start = {%s}}"):format(table.concat(size, ", "),
    table.concat(numbers, ", ", 1, #size))
  return transform.new("crop", text, numbers)
end

-- ---- in Lua --------------------------------------------------------------------------------------------------------

-- runtime/transform/lua.c: what becomes of a function's result, and "as the input's".
local MODE = { transform = 0, predicate = 1 }
local AS_INPUT = -1

-- A module's text, so that processes which find different ones under its name hear of it.
local function module_text(name)
  local path = package.searchpath(name, package.path)
  local file = path and io.open(path, "rb")
  if not file then return "" end
  local text = file:read "*a"
  file:close()
  return text or ""
end

-- The bytes of a function, or of the name of a module that returns one, and how it reads in messages.
local function lua_bytes(what, f)
  local text, identity, kind, rest
  if type(f) == "string" and f ~= "" and not f:find("\0", 1, true) then
    text, identity, kind, rest = list.quote(f), f .. "\n" .. module_text(f), "M", f
  elseif type(f) == "function" then
    rest, identity = carry.pack(what, f)
    text, kind = "function at " .. bytecode.place(f), "F"
  else
    fail("%s: it takes a function, or the name of a module that returns one, not %s", what, list.show(f))
  end
  local hash = bit.tohex(C.shardrt_fingerprint(identity, #identity))
  return ("%s%s\0%s\0%s"):format(hash, package.path, package.cpath, kind) .. rest, text .. ", " .. hash
end

--- A function of the recipe's own, run on the threads that read: for each sample it reads `sample.data` and writes
--- `sample.out`, which are pointers to elements counted from 0 (shardrt.Sample in worker.lua has the rest); an output of
--- one element may be returned instead. What it uses from outside itself is copied to every thread: plain data and
--- Lua functions; it must leave it as it is. Or the name of a module that returns such a function.
---@param f string|fun(sample: shardrt.Sample, rng: shardrt.Random): number|boolean|nil
---@param o {shape: integer[]?, dtype: string?}? # of the output; what is left out is the input's
---@return shardrt.Transform
function words.lua(f, o)
  local what = "transform.lua"
  if o == nil then o = {} end
  if type(o) ~= "table" or object.is(o) then fail("%s: its options are a table, not %s", what, list.show(o)) end
  fail.keywords(what, o, { shape = true, dtype = true })
  local numbers = { MODE.transform, AS_INPUT, AS_INPUT }
  if o.dtype ~= nil then numbers[2] = dtype.named(what, o.dtype).code end
  if o.shape ~= nil then
    local sizes = sizes_of(what .. ", shape", o.shape)
    numbers[3] = #sizes
    for i, size in ipairs(sizes) do numbers[3 + i] = size end
  end
  local bytes, text = lua_bytes(what, f)
  return transform.new("lua", ("lua(%s)"):format(text), numbers, bytes)
end

--- A transform to one bool, by a function that is given what stands in a field of no dimensions as a value of Lua (of
--- other fields a shardrt.Sample), and whose outcome is what Lua takes for true: for words that choose among samples.
---@param what string # the word, for messages
---@param f string|fun(value: any, rng: shardrt.Random): any
---@return shardrt.Transform
function transform.predicate(what, f)
  local bytes, text = lua_bytes(what, f)
  return transform.new("lua", ("lua(%s)"):format(text), { MODE.predicate, C.SHARDRT_BOOL, 0 }, bytes)
end

return transform

-- Transforms: what happens to the samples of a field on their way into a batch.

local ffi = require "ffi"
local C = require "shardrt.C"
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

return transform

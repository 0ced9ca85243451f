-- Transforms: what happens to the samples of a field on their way into a batch.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local lazy = require "shardrt.base.lazy"
local list = require "shardrt.base.list"
local owned = require "shardrt.base.owned"
local shape = require "shardrt.layout.shape"
local bytecode = lazy.module "shardrt.data.worker.bytecode"
local closure = lazy.module "shardrt.data.worker.closure"
fail.own()

---@class shardrt.Transform
---@field name string # "crop"

local transform = {}

local Transform = class.define("a transform", "t", { name = true }, {})
Transform.__tostring = function(self) return "transform." .. class.inside(self).text end

local transform_out = ffi.typeof "shardrt_transform *[1]"

--- Whether a value is a transform.
---@param value any
---@return boolean
function transform.is(value) return getmetatable(value) == Transform end

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
  local handle = owned(out, "shardrt_transform_free")
  return class.new(Transform, { name = kind, text = text, handle = handle })
end

--- The C handle of a transform, which the object owns.
---@param t shardrt.Transform
---@return ffi.cdata*
function transform.handle(t) return class.inside(t).handle end

---@class shardrt.transform.words
local words = require "shardrt.data.transform_words"(transform.new)
transform.words = words

-- ---- in Lua --------------------------------------------------------------------------------------------------------

-- runtime/transform/kind/lua.c: what becomes of a function's result, and "as the input's".
local MODE = { transform = 0, predicate = 1, ragged = 2 }
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
local function lua_bytes(caller, f)
  local text, identity, kind, rest
  if type(f) == "string" and f ~= "" and not f:find("\0", 1, true) then
    text, identity, kind, rest = list.quote(f), f .. "\n" .. module_text(f), "M", f
  elseif type(f) == "function" then
    rest, identity = closure.pack(caller, f)
    text, kind = "function at " .. bytecode.place(f), "F"
  else
    fail("%s: it takes a function, or the name of a module that returns one, not %s", caller, list.show(f))
  end
  local hash = bit.tohex(C.shardrt_fingerprint(identity, #identity))
  return ("%s%s\0%s\0%s"):format(hash, package.path, package.cpath, kind) .. rest, text .. ", " .. hash
end

-- The most elements of an output of the shape {-1}; nil for any other shape.
local function check_bound(caller, o)
  local open = false
  for i = 1, type(o.shape) == "table" and list.length(o.shape) or 0 do open = open or o.shape[i] == -1 end
  if not open and o.bound == nil then return nil end
  if not open then fail("%s: bound = %s goes with shape = {-1}", caller, list.show(o.bound)) end
  if #o.shape ~= 1 then
    fail("%s: shape = %s; an output whose length differs has one dimension, shape = {-1}", caller, list.show(o.shape))
  end
  if not list.is_whole(o.bound, 0) or o.bound >= 2 ^ 31 then
    fail("%s: shape = {-1} needs bound = n, the most elements that a sample comes to, up to 2^31 - 1, not %s", caller,
      list.show(o.bound))
  end
  return o.bound
end

--- A function of the recipe's own, run on the threads that read: for each sample it reads `sample.data` and writes
--- `sample.out`, which are pointers to elements counted from 0 (shardrt.Sample has the rest); an output of
--- one element may be returned instead. What it uses from outside itself is copied to every thread: plain data and
--- Lua functions; it must leave it as it is. Or the name of a module that returns such a function.
---
--- With the shape {-1} samples differ in length: the function returns how many elements it wrote, `bound` at most.
---@param f string|fun(sample: shardrt.Sample, rng: shardrt.Random): number|boolean|nil
---@param o {shape: integer[]?, bound: integer?, dtype: string?, writes_all: boolean?}? # shape and dtype of the output:
---the input's where they are left out; and whether the function writes every element of it, so that it is not set to 0
---before
---@return shardrt.Transform
function words.lua(f, o)
  local caller = "transform.lua"
  if o == nil then o = {} end
  if type(o) ~= "table" or class.is(o) then fail("%s: its options are a table, not %s", caller, list.show(o)) end
  fail.keywords(caller, o, { shape = true, bound = true, dtype = true, writes_all = true })
  if o.writes_all ~= nil and type(o.writes_all) ~= "boolean" then
    fail("%s: writes_all = %s; it is true or false", caller, list.show(o.writes_all))
  end
  local numbers = { MODE.transform, o.writes_all and 1 or 0, AS_INPUT, AS_INPUT }
  if o.dtype ~= nil then numbers[3] = dtype.named(caller, o.dtype).code end
  local bound = check_bound(caller, o)
  if bound then
    numbers[1], numbers[4], numbers[5] = MODE.ragged, 1, bound
  elseif o.shape ~= nil then
    local sizes = shape.check(caller .. ", shape", o.shape)
    numbers[4] = #sizes
    for i, size in ipairs(sizes) do numbers[4 + i] = size end
  end
  local bytes, text = lua_bytes(caller, f)
  return transform.new("lua", ("lua(%s)"):format(text), numbers, bytes)
end

--- A transform to one bool, by a function that is given what stands in a field of no dimensions as a value of Lua (of
--- other fields a shardrt.Sample), and whose outcome is what Lua takes for true: for words that choose among samples.
---@param caller string # the word, for messages
---@param f string|fun(value: any, rng: shardrt.Random): any
---@return shardrt.Transform
function transform.predicate(caller, f)
  local bytes, text = lua_bytes(caller, f)
  return transform.new("lua", ("lua(%s)"):format(text), { MODE.predicate, 1, C.SHARDRT_BOOL, 0 }, bytes)
end

--- Decodes an image: the bytes of a JPEG, PNG or WebP file become uint8 {height, width, channels}. It comes first in a
--- list; of the image no more is decoded than those behind it need, and a JPEG smaller (by 2, 4 or 8) where a bilinear
--- resize or random_resized_crop right behind it makes a fourth of it or less. The pixels are Pillow's: transparency is
--- left out, of 16 bits the first 8 stay, EXIF's orientation is not applied, and of a moving WebP the first frame is
--- taken. `channels` is 3 (red, green, blue) or 1 (grey, as convert("L")). Images of more than 2^28 pixels are refused.
---@param o {channels: integer?}?
---@return shardrt.Transform
function words.decode_image(o)
  o = o or {}
  if type(o) ~= "table" or class.is(o) then
    fail("transform.decode_image: it takes {channels = …} or nothing, not %s", list.show(o))
  end
  fail.keywords("transform.decode_image", o, { channels = true })
  local channels = o.channels == nil and 3 or o.channels
  if channels ~= 3 and channels ~= 1 then
    fail("transform.decode_image: channels = %s; it is 3 (red, green, blue) or 1 (grey)", list.show(channels))
  end
  return transform.new("decode_image", ("decode_image{channels = %d}"):format(channels), { channels })
end

-- All of a file.
local function read_file(caller, path)
  local file, problem = io.open(path, "rb")
  local bytes = file and file:read "*a"
  if file then file:close() end
  if not bytes then fail("%s: it cannot be read: %s", caller, tostring(problem or path)) end
  return bytes
end

-- The special tokens of a file of tiktoken's, as runtime/transform/kind/tokenize.c takes them.
local function special_bytes(caller, given)
  if given == nil then return "" end
  if type(given) ~= "table" or class.is(given) then
    fail('%s: special_tokens = %s; it is a table, as {["<|endoftext|>"] = 50256}', caller, list.show(given))
  end
  local parts = {}
  for text, id in pairs(given) do
    if type(text) ~= "string" or text == "" or text:find("\0", 1, true) or not list.is_whole(id, 0) or id >= 2 ^ 31 then
      fail("%s, special_tokens: a text and its number, not %s = %s", caller, list.show(text), list.show(id))
    end
    parts[#parts + 1] = ("%s\0%.0f\0"):format(text, id)
  end
  return table.concat(parts)
end

--- A text, as bytes, becomes the tokens of a vocabulary: int32, of a length of its own in each sample. `file` is a
--- tokenizer.json of Hugging Face's with byte-level BPE (GPT-2's, Llama 3's, Qwen's and their like), or a file of
--- tiktoken's, which needs `pattern` (its name, as "cl100k_base", or the expression) and may have `special_tokens`.
--- Special tokens that stand in the text are found, none are added. Bytes that are no UTF-8 are an error of the sample.
---@param o {file: string, pattern: string?, special_tokens: table<string, integer>?}
---@return shardrt.Transform
function words.tokenize(o)
  local caller = "transform.tokenize"
  if type(o) ~= "table" or class.is(o) then
    fail('%s: it takes {file = "tokenizer.json"}, not %s', caller, list.show(o))
  end
  fail.keywords(caller, o, { file = true, pattern = true, special_tokens = true })
  for _, name in ipairs { "file", "pattern" } do
    local value = o[name]
    if (value ~= nil or name == "file") and (type(value) ~= "string" or value == "" or value:find("\0", 1, true)) then
      fail("%s: %s = %s; it is %s", caller, name, list.show(value),
        name == "file" and "the path of a tokenizer.json or a file of tiktoken's" or "a name or an expression")
    end
  end
  if o.special_tokens ~= nil and o.pattern == nil then
    fail("%s: special_tokens go with a file of tiktoken's and its pattern; a tokenizer.json has its own", caller)
  end
  local special = special_bytes(caller, o.special_tokens)
  local given = (o.pattern or "") .. "\0" .. special .. "\0"
  local file = read_file(caller, o.file)
  local hash = bit.tohex(C.shardrt_fingerprint(given .. file, #given + #file))
  return transform.new("tokenize", ("tokenize{file = %s}, %s"):format(list.quote(o.file), hash), {},
    o.file .. "\0" .. given .. file)
end

return transform

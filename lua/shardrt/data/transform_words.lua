-- The words of the transforms that C has (runtime/transform/kind/): what they take, checked and put into numbers.

local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
fail.own()

-- The options of a word, checked for their names; text and options make the text of a transform.
local function options(name, o, known, example)
  local caller = "transform." .. name
  if type(o) ~= "table" or class.is(o) or getmetatable(o) then
    fail("%s: it takes a table of options, as in %s, not %s", caller, example, list.show(o))
  end
  if o[1] ~= nil then fail("%s: it takes its options by name, as in %s", caller, example) end
  fail.keywords(caller, o, known)
  return caller
end

-- A value such that different ones are different texts.
local function written(value)
  if type(value) == "number" then return ("%.17g"):format(value) end
  if type(value) ~= "table" then return list.show(value) end
  local parts = {}
  for i, entry in ipairs(value) do parts[i] = written(entry) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- How a transform reads: crop{size = {2, 2}}.
local function text_of(name, o)
  local names, parts = {}, {}
  for key in pairs(o) do names[#names + 1] = key end
  table.sort(names)
  for i, key in ipairs(names) do parts[i] = key .. " = " .. written(o[key]) end
  return ("%s{%s}"):format(name, table.concat(parts, ", "))
end

local function check_whole(caller, name, value, lowest)
  if not list.is_whole(value, lowest) then
    fail("%s, %s: a whole number from %d on, not %s", caller, name, lowest, list.show(value))
  end
  return value
end

local function check_number(caller, name, value)
  if type(value) ~= "number" or value ~= value or math.abs(value) == math.huge then
    fail("%s, %s: a finite number, not %s", caller, name, list.show(value))
  end
  return value
end

-- A list of values that `check` lets pass; a single one where that is `enough` for a list of any length.
local function list_of(caller, name, value, check, lowest, enough)
  if enough and type(value) == "number" then return { check(caller, name, value, lowest) } end
  local length = list.length(value)
  if class.is(value) or not length then
    fail("%s, %s: %sa list of numbers, not %s", caller, name, enough and "a number or " or "", list.show(value))
  end
  if length == 0 and enough then fail("%s, %s: a number or a list of numbers; this list is empty", caller, name) end
  for i = 1, length do check(caller, name, value[i], lowest) end
  return value
end

-- Lists of sizes, one for each dimension or for some of them.
local function sizes_of(caller, name, value, lowest)
  local sizes = list_of(caller, name, value, check_whole, lowest or 0)
  if #sizes > C.SHARDRT_MAX_NDIM then
    fail("%s, %s: %d sizes; an array has at most %d dimensions", caller, name, #sizes, C.SHARDRT_MAX_NDIM)
  end
  return sizes
end

-- An axis, counted from 0.
local function axis_of(caller, name, value, default)
  if value == nil then return default end
  check_whole(caller, name, value, 0)
  if value >= C.SHARDRT_MAX_NDIM then
    fail("%s, %s: axes count from 0 to %d; %d is none", caller, name, C.SHARDRT_MAX_NDIM - 1, value)
  end
  return value
end

local function append(numbers, values)
  for _, value in ipairs(values) do numbers[#numbers + 1] = value end
  return numbers
end

-- A list's values, or its only one `count` times.
local function repeated(values, count)
  if #values == count then return values end
  local all = {}
  for i = 1, count do all[i] = values[1] end
  return all
end

-- Two lists of one length, of which one may have a single number for all places.
local function paired(caller, a_name, a, b_name, b)
  local count = math.max(#a, #b)
  if math.min(#a, #b) ~= count and math.min(#a, #b) ~= 1 then
    fail("%s: %d numbers in %s, and %d in %s", caller, #a, a_name, #b, b_name)
  end
  return repeated(a, count), repeated(b, count)
end

local new -- transform.new, which this file is given

local function made(name, o, numbers) return new(name, text_of(name, o), numbers) end

---@class shardrt.transform.words
local words = {}

--- Each element as another dtype. Between whole numbers the lowest bits stay (300 as uint8 is 44); floats are rounded
--- towards zero to whole numbers, what lies beyond the ends becomes the nearest end, and NaN 0; as bool, whether it is
--- not 0.
---@param o string|{dtype: string}
---@return shardrt.Transform
function words.cast(o)
  if type(o) == "string" then o = { dtype = o } end
  local caller = options("cast", o, { dtype = true }, 'cast "float32"')
  return made("cast", o, { dtype.named(caller, o.dtype).code })
end

--- Each element times `factor` (1), plus `offset` (0): one number each for all, or a list of one for each place of the
--- axis (the last one). Worked out in float32 where all numbers of the sample's dtype and of `dtype` ("float32") are
--- float32's, too, else in float64; then converted as by cast.
---@param o {factor: number|number[]|nil, offset: number|number[]|nil, axis: integer?, dtype: string?}
---@return shardrt.Transform
function words.scale(o)
  local caller = options("scale", o, { factor = true, offset = true, axis = true, dtype = true }, "scale{factor = 2}")
  local factors = list_of(caller, "factor", o.factor == nil and 1 or o.factor, check_number, nil, true)
  local offsets = list_of(caller, "offset", o.offset == nil and 0 or o.offset, check_number, nil, true)
  factors, offsets = paired(caller, "factor", factors, "offset", offsets)
  local code = dtype.named(caller, o.dtype == nil and "float32" or o.dtype).code
  local numbers = { code, axis_of(caller, "axis", o.axis, -1), 1, #factors }
  return made("scale", o, append(append(numbers, factors), offsets))
end

--- (x / max - mean) / std, as float32 or another dtype: `mean` and `std` are one number each for all, or a list of one
--- for each place of the axis (the last one). `max` is the number that becomes 1: if it is left out, the largest of an
--- unsigned dtype (255 for uint8), and 1 for others, so that means and deviations are those of values from 0 to 1, as
--- in torchvision.
---@param o {mean: number|number[], std: number|number[], max: number?, axis: integer?, dtype: string?}
---@return shardrt.Transform
function words.normalize(o)
  local known = { mean = true, std = true, max = true, axis = true, dtype = true }
  local caller = options("normalize", o, known, "normalize{mean = 0.5, std = 0.5}")
  local means = list_of(caller, "mean", o.mean, check_number, nil, true)
  local deviations = list_of(caller, "std", o.std, check_number, nil, true)
  for _, value in ipairs(deviations) do
    if value <= 0 then fail("%s, std: numbers above 0, not %s", caller, list.show(value)) end
  end
  means, deviations = paired(caller, "mean", means, "std", deviations)
  local max = o.max == nil and 0 or check_number(caller, "max", o.max)
  if o.max ~= nil and max <= 0 then fail("%s, max: a number above 0, not %s", caller, list.show(max)) end
  local code = dtype.named(caller, o.dtype == nil and "float32" or o.dtype).code
  local numbers = { code, axis_of(caller, "axis", o.axis, -1), max, #means }
  return made("normalize", o, append(append(numbers, means), deviations))
end

--- A row of `classes` elements for each whole number: 1 at its place, else 0. A number that is no class is an error.
---@param o {classes: integer, dtype: string?}
---@return shardrt.Transform
function words.one_hot(o)
  local caller = options("one_hot", o, { classes = true, dtype = true }, "one_hot{classes = 10}")
  check_whole(caller, "classes", o.classes, 1)
  return made("one_hot", o, { o.classes, dtype.named(caller, o.dtype == nil and "float32" or o.dtype).code })
end

local WHERE = { after = 0, before = 1, both = 2 }

--- Samples of any sizes brought to one, with `value` (0) `where` there is nothing: "after" (the default), "before", or
--- on "both" sides, one element more after. `size` is that of every dimension.
---@param o {size: integer[], value: number?, where: "after"|"before"|"both"|nil}
---@return shardrt.Transform
function words.pad(o)
  local caller = options("pad", o, { size = true, value = true, where = true }, "pad{size = {512}}")
  local sizes = sizes_of(caller, "size", o.size)
  local where = o.where == nil and "after" or o.where
  if not WHERE[where] then fail("%s, where: one of %s, not %s", caller, list.words(WHERE), list.show(where)) end
  return made("pad", o, append({ WHERE[where], check_number(caller, "value", o.value == nil and 0 or o.value) }, sizes))
end

--- A box of every sample: `size` elements in each dimension from `axis` (0) on, from `start` on (0). Dimensions for
--- which there is no size stay whole. Nothing else is read.
---@param o {size: integer[], start: integer[]?, axis: integer?}
---@return shardrt.Transform
function words.crop(o)
  local caller = options("crop", o, { size = true, start = true, axis = true }, "crop{size = {224, 224}}")
  local sizes, starts = sizes_of(caller, "size", o.size), {}
  local given = o.start == nil and {} or sizes_of(caller, "start", o.start)
  if #given > #sizes then fail("%s: %d starts, and %d sizes", caller, #given, #sizes) end
  for i = 1, #sizes do starts[i] = given[i] or 0 end
  return made("crop", o, append(append({ axis_of(caller, "axis", o.axis, 0) }, starts), sizes))
end

--- The middle of every sample: `size` elements in each dimension from `axis` (0) on.
---@param o {size: integer[], axis: integer?}
---@return shardrt.Transform
function words.center_crop(o)
  local caller = options("center_crop", o, { size = true, axis = true }, "center_crop{size = {224, 224}}")
  return made("center_crop", o, append({ axis_of(caller, "axis", o.axis, 0) }, sizes_of(caller, "size", o.size)))
end

--- A box at a random place, each as likely as any other: `size` elements in each dimension from `axis` (0) on, of
--- samples that have `padding` (0; one number for all, or one for each) more elements at both ends, which are `value`
--- (0).
---@param o {size: integer[], padding: integer|integer[]|nil, value: number?, axis: integer?}
---@return shardrt.Transform
function words.random_crop(o)
  local known = { size = true, padding = true, value = true, axis = true }
  local caller = options("random_crop", o, known, "random_crop{size = {32, 32}, padding = 4}")
  local sizes = sizes_of(caller, "size", o.size)
  local paddings = list_of(caller, "padding", o.padding == nil and 0 or o.padding, check_whole, 0, true)
  if #paddings > 1 and #paddings ~= #sizes then fail("%s: %d sizes, and %d paddings", caller, #sizes, #paddings) end
  paddings = repeated(paddings, #sizes)
  local value = check_number(caller, "value", o.value == nil and 0 or o.value)
  return made("random_crop", o, append(append({ axis_of(caller, "axis", o.axis, 0), value }, paddings), sizes))
end

local FILTERS = { bilinear = 0, nearest = 1 }

-- What both words for images of another size begin with: axis, filter, height, width.
local function size_numbers(caller, o, height, width)
  local filter = o.filter == nil and "bilinear" or o.filter
  if not FILTERS[filter] then fail("%s, filter: one of %s, not %s", caller, list.words(FILTERS), list.show(filter)) end
  return { axis_of(caller, "axis", o.axis, 0), FILTERS[filter], height, width }
end

--- Images brought to another size; the height is that of `axis` (0), the width that of the axis behind it. With the
--- filter "bilinear" (the default) every element is a mean of all that it stands for, as in Pillow and in torchvision
--- with antialias: uint8 comes out as from Pillow to the bit. "nearest" takes the element in the middle.
---@param o {height: integer, width: integer, filter: "bilinear"|"nearest"|nil, axis: integer?}
---@return shardrt.Transform
function words.resize(o)
  local known = { height = true, width = true, filter = true, axis = true }
  local caller = options("resize", o, known, "resize{height = 224, width = 224}")
  local height, width = check_whole(caller, "height", o.height, 1), check_whole(caller, "width", o.width, 1)
  return made("resize", o, size_numbers(caller, o, height, width))
end

-- Two numbers, the smaller one first.
local function range_of(caller, name, value, default)
  local range = value == nil and default or list_of(caller, name, value, check_number)
  if #range ~= 2 then fail("%s, %s: two numbers, the least and the most, not %s", caller, name, list.show(value)) end
  return range
end

--- A random box of every image brought to one size, {height, width}: its area is evenly from `scale` ({0.08, 1}) of the
--- image's, the logarithm of its width by its height evenly from those of `ratio` ({3/4, 4/3}); what does not fit is
--- drawn again, up to ten times, and then the middle is taken. As torchvision does it, but for the random numbers.
---@param o {size: integer[], scale: number[]?, ratio: number[]?, filter: "bilinear"|"nearest"|nil, axis: integer?}
---@return shardrt.Transform
function words.random_resized_crop(o)
  local known = { size = true, scale = true, ratio = true, filter = true, axis = true }
  local caller = options("random_resized_crop", o, known, "random_resized_crop{size = {224, 224}}")
  local size = sizes_of(caller, "size", o.size, 1)
  if #size ~= 2 then fail("%s, size: a height and a width, not %s", caller, list.show(o.size)) end
  local scale = range_of(caller, "scale", o.scale, { 0.08, 1 })
  local ratio = range_of(caller, "ratio", o.ratio, { 3 / 4, 4 / 3 })
  local numbers = size_numbers(caller, o, size[1], size[2])
  return made("random_resized_crop", o, append(append(numbers, scale), ratio))
end

--- Samples turned around along an axis (1: images left to right), each with the probability `p` (0.5).
---@param o {p: number?, axis: integer?}?
---@return shardrt.Transform
function words.random_flip(o)
  if o == nil then o = {} end
  local caller = options("random_flip", o, { p = true, axis = true }, "random_flip{p = 0.5}")
  local p = check_number(caller, "p", o.p == nil and 0.5 or o.p)
  return made("random_flip", o, { p, axis_of(caller, "axis", o.axis, 1) })
end

--- The axes in another order: for each of the output the one of the input, as in numpy. {2, 0, 1} makes HWC into CHW.
---@param o integer[]|{axes: integer[]}
---@return shardrt.Transform
function words.transpose(o)
  if type(o) == "table" and not class.is(o) and (list.length(o) or 0) > 0 then o = { axes = o } end
  local caller = options("transpose", o, { axes = true }, "transpose{axes = {2, 0, 1}}")
  return made("transpose", o, list.copy(sizes_of(caller, "axes", o.axes)))
end

-- The numbers of what bytes are said to be: a dtype and a shape, in which -1 is a size that differs.
local function elements(name, o)
  local example = ('%s{dtype = "float32", shape = {3, 4}}'):format(name)
  local caller = options(name, o, { dtype = true, shape = true }, example)
  local shape = list_of(caller, "shape", o.shape, check_whole, -1)
  if #shape > C.SHARDRT_MAX_NDIM then
    fail("%s, shape: %d sizes; an array has at most %d dimensions", caller, #shape, C.SHARDRT_MAX_NDIM)
  end
  return made(name, o, append({ dtype.named(caller, o.dtype).code }, shape))
end

--- Bytes taken for elements of a dtype, little-endian, in C order; one size of the shape may be -1, for what the others
--- leave. It comes first in a list, as all decoders do.
---@param o {dtype: string, shape: integer[]}
---@return shardrt.Transform
function words.decode_raw(o) return elements("decode_raw", o) end

--- The bytes of a .npy file become its array, which must be of this dtype and shape; a size of -1 differs from sample
--- to sample. The header is checked in each; big-endian arrays and those in Fortran's order come out as others do.
---@param o {dtype: string, shape: integer[]}
---@return shardrt.Transform
function words.decode_npy(o) return elements("decode_npy", o) end

--- Decodes a sound: the bytes of a WAV, FLAC, Ogg or MP3 file become {frames, channels}, what Python's soundfile gives:
--- float32 (the default), which whole numbers come out as in [-1, 1), or int16. It comes first in a list; of the frames
--- no more is decoded than those behind it need, of Ogg, MP3 and ADPCM those before them, too. A file with another
--- number of `channels`, or of frames in a second (`rate`), is an error, where these are given; no sound is resampled
--- or mixed. Of files that hold floats, int16 is the float rounded, not scaled: decode these as float32. Sounds of more
--- than 2^30 numbers are refused.
---@param o {dtype: "float32"|"int16"|nil, channels: integer?, rate: integer?}?
---@return shardrt.Transform
function words.decode_audio(o)
  if o == nil then o = {} end
  local known = { dtype = true, channels = true, rate = true }
  local caller = options("decode_audio", o, known, "decode_audio{rate = 16000}")
  local code = dtype.named(caller, o.dtype == nil and "float32" or o.dtype).code
  local channels = o.channels == nil and -1 or check_whole(caller, "channels", o.channels, 1)
  local rate = o.rate == nil and -1 or check_whole(caller, "rate", o.rate, 1)
  return made("decode_audio", o, { code, channels, rate })
end

--- Bytes that must be a text in UTF-8, as bytes: with `size`, that many of each sample, so that texts can stand in a
--- batch. A shorter one is filled up with the byte `value` (0) behind its end, a longer one is cut off behind its last
--- character that fits.
---@param o {size: integer?, value: integer?}?
---@return shardrt.Transform
function words.decode_text(o)
  if o == nil then o = {} end
  local caller = options("decode_text", o, { size = true, value = true }, "decode_text{size = 80}")
  local value = check_whole(caller, "value", o.value == nil and 0 or o.value, 0)
  if value > 255 then fail("%s, value: a byte, from 0 to 255, not %s", caller, list.show(value)) end
  return made("decode_text", o, { o.size == nil and -1 or check_whole(caller, "size", o.size, 0), value })
end

local function name_of(caller, key, value, default)
  if value == nil then return default end
  if type(value) ~= "string" or value == "" or value:find("\0", 1, true) then
    fail("%s, %s: the name of a field, not %s", caller, key, list.show(value))
  end
  return value
end

--- The fields of a language model, for the loader's `transform` or source:map: of every sample of the field `from`
--- ("tokens"), `inputs` are all but the last `shift` (1) tokens, `targets` all but the first. With `size`, that many of
--- each: of the sample's first size + shift tokens. The field itself is left out. The words `inputs` and `targets` say
--- how the two are called, `dtype` what they are cast to.
---@param o {from: string?, inputs: string?, targets: string?, size: integer?, shift: integer?, dtype: string?}
---@return table<string, shardrt.Transform[]|false>
function words.window(o)
  local known = { from = true, inputs = true, targets = true, size = true, shift = true, dtype = true }
  local caller = options("window", o, known, 'window{from = "tokens"}')
  local from, shift = name_of(caller, "from", o.from, "tokens"), check_whole(caller, "shift", o.shift or 1, 1)
  local fields = { [from] = false }
  local function part(name, index)
    local chain = { from = from }
    if o.size ~= nil then chain[1] = words.crop { size = { check_whole(caller, "size", o.size, 1) + shift } } end
    chain[#chain + 1] = made("window", { part = index, shift = shift }, { index, shift })
    if o.dtype ~= nil then chain[#chain + 1] = words.cast { dtype = dtype.named(caller, o.dtype).name } end
    fields[name] = chain
  end
  local inputs = name_of(caller, "inputs", o.inputs, "inputs")
  local targets = name_of(caller, "targets", o.targets, "targets")
  if inputs == targets then fail("%s: inputs and targets are two fields, both called %s", caller, list.show(inputs)) end
  part(inputs, 0)
  part(targets, 1)
  return fields
end

--- The words.
---@param new_transform fun(kind: string, text: string, numbers: number[]): shardrt.Transform
---@return shardrt.transform.words
return function(new_transform)
  new = new_transform
  return words
end

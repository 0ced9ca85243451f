-- shardrt.random: JAX's default random numbers, made where they are wanted, the same in every sharding.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local buffers = require "shardrt.array.buffers"
local class = require "shardrt.base.class"
local current = require "shardrt.base.current"
local device = require "shardrt.layout.device"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local lazy = require "shardrt.base.lazy"
local list = require "shardrt.base.list"
local memory_pressure = require "shardrt.base.memory_pressure"
local numbering = require "shardrt.array.numbering"
local plan = require "shardrt.layout.plan"
local shape = require "shardrt.layout.shape"
local sharding = require "shardrt.layout.sharding"
local unplaced = require "shardrt.array.unplaced"
fail.own()

-- What `choice` and `categorical` compute with.
local elementwise, reduce = lazy.module "shardrt.ops.elementwise", lazy.module "shardrt.ops.reduce"
local along_axis, take = lazy.module "shardrt.ops.along_axis", lazy.module "shardrt.ops.take"
local reshape, slice = lazy.module "shardrt.ops.reshape", lazy.module "shardrt.ops.slice"

---@class shardrt.random
local random = {}

---@class shardrt.random.Key # decides random numbers; equal where its words and its layout are
---@field partitionable boolean # whether a number depends on its place alone, not on the array's size
local Key = class.define("a key", "key", { partitionable = true }, {})

local c_key, c_keys = ffi.typeof "shardrt_key", ffi.typeof "shardrt_key[?]"
local int64, uint64 = ffi.typeof "int64_t", ffi.typeof "uint64_t"

local function wrap(c) return class.new(Key, { c = c, partitionable = c.partitionable ~= 0 }) end

local function words_of(key)
  local c = class.inside(key).c
  return c.words[0], c.words[1]
end

function Key:__tostring()
  local high, low = words_of(self)
  return ("key(%.0f, %.0f%s)"):format(high, low, self.partitionable and "" or ", partitionable = false")
end

function Key.__eq(a, b)
  local high, low = words_of(a)
  local other_high, other_low = words_of(b)
  return high == other_high and low == other_low and a.partitionable == b.partitionable
end

-- The shardrt_key of a key that a recipe gave.
local function c_of(caller, value)
  if getmetatable(value) ~= Key then
    local is_list = type(value) == "table" and not class.is(value) and getmetatable(rawget(value, 1)) == Key
    local of_split = "random.split(key) returns a list of keys: keys[1], keys[2], …, or unpack(keys)"
    if is_list then fail("%s: a list of keys, %s, is no key; %s", caller, list.show(value), of_split) end
    fail("%s: %s is no key; random.key(42) makes one%s", caller, list.show(value),
      value == nil and ", and " .. of_split or "")
  end
  return class.inside(value).c
end

-- A whole number as int64_t, or nil.
local function to_int64(value)
  if ffi.istype(int64, value) then return value end
  if ffi.istype(uint64, value) and value <= 0x7fffffffffffffffULL then return ffi.cast(int64, value) end
  if list.is_whole(value, -2 ^ 53) then return int64(value) end
end

-- The table of options that a word was given, or the sharding alone.
local function options_of(caller, given, known)
  if given == nil then return {} end
  if sharding.is(given) or device.is(given) then given = { sharding = given } end
  if type(given) ~= "table" or class.is(given) then
    fail("%s: the options are a table, as in {%s = …}, not %s", caller, next(known), list.show(given))
  end
  fail.keywords(caller, given, known)
  return given
end

-- An array of that dtype, which a function of C's gives its numbers: `call` is that and what it takes before the array.
-- Every process must call it with the same key.
local function make(caller, key, kind_name, sizes, to, call)
  local kind, detail = dtype.named(caller, kind_name), ("%s %s of %s"):format(caller, shape.text(sizes), tostring(key))
  local x = to and array.new(caller, sharding.of(caller, to), kind, sizes) or unplaced.new(caller, kind, sizes)
  local together = numbering.is_of_all(x)
  if together then C.shardrt_job_step(current.job, detail) end
  if current.info.planning ~= 0 then
    plan.note_array(caller, x)
  else
    call[#call + 1] = x.handle
    fail.check(memory_pressure.call(unpack(call)), caller)
    buffers.tell_collector(x)
  end
  if dispatch.observer then dispatch.observer(caller, x, {}) end
  if together then return numbering.made_by_all(x) end
  numbering.derived(x, detail)
  return x
end

---@alias shardrt.random.To shardrt.Sharding|shardrt.Device|{sharding: shardrt.Sharding|shardrt.Device?}

local TO = { sharding = true }

--- The key of a seed. Without `partitionable` it is true, as in JAX now; false gives the numbers of older JAX, whose
--- every one depends on the size of the whole array.
---@param seed integer # of which the lowest 32 bits count
---@param options {partitionable: boolean?}?
---@return shardrt.random.Key
function random.key(seed, options)
  local caller = "random.key"
  local value = ffi.istype(uint64, seed) and seed or to_int64(seed)
  local given = options_of(caller, options, { partitionable = true })
  if not value then fail("%s: the seed is a whole number, not %s", caller, list.show(seed)) end
  local partitionable = given.partitionable
  if partitionable ~= nil and type(partitionable) ~= "boolean" then
    fail("%s: partitionable = %s; it is true or false", caller, list.show(partitionable))
  end
  return wrap(c_key({ 0, tonumber(ffi.cast("uint32_t", value)) }, partitionable == false and 0 or 1))
end

--- The two words of a key.
---@param key shardrt.random.Key
---@return integer[] # {high, low}
function random.key_data(key)
  c_of("random.key_data", key)
  return { words_of(key) }
end

--- New keys from one, which should not be used for anything else then.
---@param key shardrt.random.Key
---@param n integer? # 2
---@return shardrt.random.Key[]
function random.split(key, n)
  local caller = "random.split"
  local c = c_of(caller, key)
  if n == nil then n = 2 end
  if not list.is_whole(n, 1) or n > C.SHARDRT_MAX_KEYS then
    fail("%s: %s keys; it makes a list of from 1 to %d", caller, list.show(n), C.SHARDRT_MAX_KEYS)
  end
  local made, keys = c_keys(n), {}
  fail.check(C.shardrt_key_split(c, n, made), caller)
  for i = 1, n do keys[i] = wrap(c_key(made[i - 1])) end
  return list.counted(keys)
end

--- A key's n-th other one: of a step, a layer, a process.
---@param key shardrt.random.Key
---@param n integer # from 0 to 2^32 - 1
---@return shardrt.random.Key
function random.fold_in(key, n)
  local caller = "random.fold_in"
  local c, value = c_of(caller, key), to_int64(n)
  if not value or value < 0 or value > 0xffffffffLL then
    fail("%s: the number is whole, from 0 to 4294967295, not %s", caller, list.show(n))
  end
  local folded = c_key()
  C.shardrt_key_fold_in(c, tonumber(value), folded)
  return wrap(folded)
end

local BITS = { uint8 = true, uint16 = true, uint32 = true }

--- Random bits.
---@param key shardrt.random.Key
---@param shape_given integer|integer[]
---@param options {dtype: string?, sharding: shardrt.Sharding|shardrt.Device?}? # dtype: uint32, uint16 or uint8
---@return shardrt.Array
function random.bits(key, shape_given, options)
  local caller = "random.bits"
  local c, sizes = c_of(caller, key), shape.check(caller, shape_given)
  local given = options_of(caller, options, { dtype = true, sharding = true })
  local kind = given.dtype == nil and "uint32" or given.dtype
  if not BITS[kind] then fail("%s: dtype = %s; it is one of %s", caller, list.show(kind), list.words(BITS)) end
  return make(caller, key, kind, sizes, given.sharding, { C.shardrt_key_bits, c })
end

local function check_number(caller, name, value, default)
  if value == nil then return default end
  if type(value) ~= "number" then fail("%s: %s = %s; it is a number", caller, name, list.show(value)) end
  return value
end

--- float32, evenly from minval to below maxval.
---@param key shardrt.random.Key
---@param shape_given integer|integer[]
---@param options {minval: number?, maxval: number?, sharding: shardrt.Sharding|shardrt.Device?}? # from 0 to 1
---@return shardrt.Array
function random.uniform(key, shape_given, options)
  local caller = "random.uniform"
  local c, sizes = c_of(caller, key), shape.check(caller, shape_given)
  local given = options_of(caller, options, { minval = true, maxval = true, sharding = true })
  local low, high = check_number(caller, "minval", given.minval, 0), check_number(caller, "maxval", given.maxval, 1)
  if low >= high or low ~= low or high ~= high then
    fail("%s: minval = %s and maxval = %s; maxval must be the larger one", caller, list.show(low), list.show(high))
  end
  return make(caller, key, "float32", sizes, given.sharding, { C.shardrt_key_uniform, c, low, high })
end

--- float32 of the normal distribution: mean 0, deviation 1.
---@param key shardrt.random.Key
---@param shape_given integer|integer[]
---@param to shardrt.random.To?
---@return shardrt.Array
function random.normal(key, shape_given, to)
  local caller = "random.normal"
  local c, sizes = c_of(caller, key), shape.check(caller, shape_given)
  return make(caller, key, "float32", sizes, options_of(caller, to, TO).sharding, { C.shardrt_key_normal, c })
end

--- bool, true with a probability.
---@param key shardrt.random.Key
---@param p number # the probability
---@param shape_given integer|integer[]
---@param to shardrt.random.To?
---@return shardrt.Array
function random.bernoulli(key, p, shape_given, to)
  local caller = "random.bernoulli"
  local c, sizes = c_of(caller, key), shape.check(caller, shape_given)
  if type(p) ~= "number" or not (p >= 0 and p <= 1) then
    fail("%s: the probability is a number from 0 to 1, not %s", caller, list.show(p))
  end
  return make(caller, key, "bool", sizes, options_of(caller, to, TO).sharding, { C.shardrt_key_bernoulli, c, p })
end

--- int32, from minval to below maxval; where maxval is not the larger one, minval, as in JAX.
---@param key shardrt.random.Key
---@param shape_given integer|integer[]
---@param minval integer # from -2^31 on
---@param maxval integer # up to 2^31
---@param to shardrt.random.To?
---@return shardrt.Array
function random.randint(key, shape_given, minval, maxval, to)
  local caller = "random.randint"
  local c, sizes = c_of(caller, key), shape.check(caller, shape_given)
  local low, high = to_int64(minval), to_int64(maxval)
  if not low or not high then
    fail("%s: minval and maxval are whole numbers, not %s and %s", caller, list.show(minval), list.show(maxval))
  elseif low < -2LL ^ 31 or low >= 2LL ^ 31 or high < -2LL ^ 31 or high > 2LL ^ 31 then
    fail("%s: whole numbers from %s to below %s; the first is in [-2^31, 2^31), the second in [-2^31, 2^31]", caller,
      list.show(minval), list.show(maxval))
  end
  return make(caller, key, "int32", sizes, options_of(caller, to, TO).sharding, { C.shardrt_key_randint, c, low, high })
end

--- int32: the numbers from 0 to n - 1 in random order.
---@param key shardrt.random.Key
---@param n integer
---@return shardrt.Array
function random.permutation(key, n)
  local caller = "random.permutation"
  local c = c_of(caller, key)
  if not list.is_whole(n, 0) or n >= 2 ^ 31 then
    fail("%s: of how many numbers is a whole number from 0 to 2147483647, not %s", caller, list.show(n))
  end
  return make(caller, key, "int32", { n }, nil, { C.shardrt_key_permutation, c })
end

-- What `choice` draws from: an array, or the numbers 0 … n - 1; and how many there are along the axis.
local function population(caller, a, axis)
  if type(a) == "number" then
    if not list.is_whole(a, 0) or a >= 2 ^ 31 then
      fail("%s: of %s; it is of an array, or of the numbers from 0 to before n", caller, list.show(a))
    end
    return nil, a, 0
  end
  local x = dispatch.array(caller, a, "what is drawn from")
  if x.ndim == 0 then fail("%s: of an array of one number; a Lua number n stands for 0 to n - 1", caller) end
  local along = shape.axis(caller, axis == nil and 0 or axis, x.ndim)
  return x, x.shape[along + 1], along
end

-- -log(-log(u)), whose largest one among logits is of a class by its probability.
local function gumbel(key, sizes, to)
  local u = random.uniform(key, sizes, { minval = 2 ^ -126, maxval = 1, sharding = to })
  return elementwise.words.negative(elementwise.words.log(elementwise.words.negative(elementwise.words.log(u))))
end

-- The indices drawn by probabilities {n}.
local function by_probability(caller, key, p, n, count, sizes, replace)
  local weights = dispatch.array(caller, p, "p")
  if weights.ndim ~= 1 or weights.shape[1] ~= n then
    fail("%s: p of shape %s; there is one probability for each of %d", caller, shape.text(weights.shape), n)
  end
  weights = elementwise.words.astype(weights, "float32")
  if not replace then
    local _, indices = along_axis.words.top_k(gumbel(key, { n }) + elementwise.words.log(weights), count)
    return indices
  end
  local so_far = along_axis.words.cumsum(weights, 0)
  local drawn = reshape.words.reshape(random.uniform(key, sizes), { count, 1 })
  local at = take.words.take(so_far, n - 1) * (1 - drawn)
  return elementwise.words.astype(reduce.words.sum(elementwise.words.less(so_far, at), 1), "int32")
end

---@class shardrt.random.ChoiceOptions
---@field replace boolean? # true: one may be drawn several times
---@field p shardrt.Operand? # {n}: how probable each is; left out: all alike
---@field axis integer? # 0: along which it is drawn

--- Elements of an array, or of the numbers 0 … n - 1, at random.
---@param key shardrt.random.Key
---@param a shardrt.Operand|integer
---@param shape_given (integer|integer[])? # {}: one
---@param options shardrt.random.ChoiceOptions?
---@return shardrt.Array # of the shape; of an array, in place of the axis
function random.choice(key, a, shape_given, options)
  local caller = "random.choice"
  c_of(caller, key)
  local sizes = shape.check(caller, shape_given == nil and {} or shape_given)
  local o = options_of(caller, options, { replace = true, p = true, axis = true })
  if o.replace ~= nil and type(o.replace) ~= "boolean" then
    fail("%s: replace = %s; it is true or false", caller, list.show(o.replace))
  end
  local x, n, along = population(caller, a, o.axis)
  local replace, count = o.replace ~= false, shape.elements(sizes)
  if n == 0 and count > 0 then fail("%s: of nothing", caller) end
  if not replace and count > n then
    fail("%s: %d of %d without replacing them; there are fewer", caller, count, n)
  end
  local index
  if o.p ~= nil and n > 0 then
    index = by_probability(caller, key, o.p, n, count, sizes, replace)
  elseif replace then
    index = random.randint(key, sizes, 0, n)
  else
    index = slice.words.slice(random.permutation(key, n), { { 0, count } })
  end
  index = reshape.words.reshape(index, sizes)
  return x and take.words.take(x, index, along) or index
end

---@class shardrt.random.CategoricalOptions
---@field axis integer? # -1: where the classes are
---@field shape integer[]? # of the result: it ends with that of the logits without the axis

--- int32: a class for each row of logits, which are the logarithms of how probable they are.
---@param key shardrt.random.Key
---@param logits shardrt.Operand # {…, classes}
---@param options shardrt.random.CategoricalOptions?
---@return shardrt.Array # {…}
function random.categorical(key, logits, options)
  local caller = "random.categorical"
  c_of(caller, key)
  local o = options_of(caller, options, { axis = true, shape = true })
  local x = elementwise.words.astype(dispatch.array(caller, logits, "the logits"), "float32")
  if x.ndim == 0 then fail("%s: the logits are a single number; they have a dimension of classes", caller) end
  local along = shape.axis(caller, o.axis == nil and -1 or o.axis, x.ndim)
  local batch, classes = x.shape, x.shape[along + 1]
  table.remove(batch, along + 1)
  local sizes = o.shape == nil and batch or shape.check(caller, o.shape)
  local more = #sizes - #batch
  local drawn, is_end = list.copy(sizes), more >= 0
  for d, size in ipairs(batch) do is_end = is_end and sizes[more + d] == size end
  if not is_end then
    fail("%s: shape = %s; it ends with %s, that of the logits without their classes", caller, shape.text(sizes),
      shape.text(batch))
  end
  if classes == 0 then fail("%s: no classes: the logits have shape %s", caller, shape.text(x.shape)) end
  table.insert(drawn, more + along + 1, classes)
  local to = more == 0 and x.committed and x.sharding or nil
  return reduce.words.argmax(gumbel(key, drawn, to) + x, more + along)
end

return random

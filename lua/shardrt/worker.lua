-- What the Lua state of a worker thread runs: the function of one transform, for one chunk of samples after another.
-- (runtime/transform/lua.c makes the state; the recipe's own state never loads this file.)

local ffi = require "ffi"
local C = require "shardrt.C"
local bytecode = require "shardrt.bytecode"
local carry = require "shardrt.carry"
local dtype = require "shardrt.dtype"
local fail = require "shardrt.fail"
fail.own()

local worker = {}

local WATCHED = 64 -- entries of tables that are looked at after each sample

-- ---- what a function is given ---------------------------------------------------------------------------------------

---@class shardrt.Random # the second argument of a transform: numbers that depend on the loader's seed, the epoch, the
---sample's number and the transform's place in its list, and on nothing else
local Random = {}

local function check_left(random)
  if random.used >= C.SHARDRT_RANDOM_LIMIT - 1 then fail "rng: a sample has no more than 2^24 random numbers" end
end

--- Evenly in [0, 1).
---@return number
function Random:uniform()
  check_left(self)
  return C.shardrt_random_uniform(self)
end

--- A whole number, evenly in [0, count).
---@param count integer # from 1 to 2^32
---@return integer
function Random:below(count)
  check_left(self)
  if not (count >= 1 and count <= 2 ^ 32 and count % 1 == 0) then
    fail("rng:below: a whole number from 1 to 2^32, not %s", tostring(count))
  end
  return C.shardrt_random_below(self, count)
end

--- Of the normal distribution, with mean 0 and deviation 1.
---@return number
function Random:normal()
  check_left(self)
  return C.shardrt_random_normal(self)
end

---@class shardrt.Sample # the first argument of a transform
---@field data ffi.cdata* # pointer to the elements of the input, which are not to be written
---@field size integer # how many they are
---@field shape integer[] # of the input
---@field out ffi.cdata* # pointer to the elements of the output, all 0 at first
---@field out_size integer # how many they are
---@field index integer # the sample's number in the files
---@field epoch integer

local samples_pointer = ffi.typeof "shardrt_samples *"
local random_type = ffi.metatype("shardrt_random", { __index = Random })

-- The structure that a function sees: the beginning of shardrt_sample, with pointers to elements of these dtypes.
local function sample_type(from, to, shape)
  local made = ffi.typeof(("struct { const %s *data; %s *out; double size, out_size, index, epoch; }")
    :format(from.element, to.element))
  return ffi.metatype(made, {
    __index = function(_, key)
      if key == "shape" then return shape end
      fail('a sample has no "%s"; it has data, size, shape, out, out_size, index and epoch', tostring(key))
    end,
  })
end

-- ---- what a function must leave as it is ----------------------------------------------------------------------------

local LEFT_BEHIND = "what a sample becomes may depend on nothing that other samples leave behind"

-- A function that is called after each sample, and raises an error where an entry of one of the tables is not what it
-- was. Of many entries only some are looked at each time, in turn; new ones are refused at once.
local function watch(tables)
  local where, keys, values, count = {}, {}, {}, 0
  local function expect(t, key, value)
    count = count + 1
    where[count], keys[count], values[count] = t, key, value
  end
  local frozen = {
    __newindex = function(_, key)
      fail("it sets the entry %s of a table outside it; %s", tostring(key), LEFT_BEHIND)
    end,
    __metatable = false,
  }
  for _, t in ipairs(tables) do
    for key, value in pairs(t) do
      if value == value then expect(t, key, value) end
    end
    expect(t, #t + 1, nil) -- what table.insert would add
    setmetatable(t, frozen)
  end
  if count == 0 then return nil end
  local at, step = 0, math.min(count, WATCHED)
  return function()
    for _ = 1, step do
      at = at < count and at + 1 or 1
      if rawget(where[at], keys[at]) ~= values[at] then
        error(("it changed the entry %s of a table outside it; %s"):format(tostring(keys[at]), LEFT_BEHIND), 0)
      end
    end
  end
end

-- ---- chunks ---------------------------------------------------------------------------------------------------------

-- What was returned, stored where the output is one element.
local function store(sample, to, result)
  if sample.out_size ~= 1 then
    error(("it returned a %s; it writes the %d elements of its output to sample.out, and returns nothing")
      :format(type(result), sample.out_size), 0)
  end
  if not to.write(sample.out, 0, result) then
    error(("it returned %s, which is no %s: these are %s"):format(tostring(result), to.name, to.range), 0)
  end
end

-- A number where one is exactly that, so that it can be the key of a table; else as C has it.
local function plain(value)
  if type(value) ~= "cdata" then return value end
  local number = tonumber(value)
  return number > -2 ^ 53 and number < 2 ^ 53 and number or value
end

-- A function that transforms the chunk in `call`, of values of these dtypes with ndim dimensions.
local function transform_loop(call, f, check, from, to, ndim)
  local shape = {}
  local sample, random = sample_type(from, to, shape)(), random_type()
  local element = to.size
  return function()
    for i = 0, tonumber(call.count) - 1 do
      call.at = i
      local given = call.samples + i
      ffi.copy(sample, given, ffi.sizeof(sample))
      ffi.copy(random, given.random, ffi.sizeof(random))
      for d = 1, ndim do shape[d] = tonumber(given.shape[d - 1]) end
      ffi.fill(sample.out, sample.out_size * element)
      local result = f(sample, random)
      if result ~= nil then store(sample, to, result) end
      if check then check() end
    end
  end
end

-- The same for a predicate: what is no array comes as a value of Lua, and the outcome is what Lua takes for true.
local function predicate_loop(call, f, check, from, to, ndim)
  local shape = {}
  local sample, random = sample_type(from, to, shape)(), random_type()
  return function()
    for i = 0, tonumber(call.count) - 1 do
      call.at = i
      local given = call.samples + i
      ffi.copy(sample, given, ffi.sizeof(sample))
      ffi.copy(random, given.random, ffi.sizeof(random))
      for d = 1, ndim do shape[d] = tonumber(given.shape[d - 1]) end
      local result
      if ndim == 0 then
        result = f(plain(from.read(sample.data, 0)), random)
      else
        result = f(sample, random)
      end
      sample.out[0] = result and true or false
      if check then check() end
    end
  end
end

-- ---- errors ---------------------------------------------------------------------------------------------------------

-- The message of an error, with the calls of the user's that led to where it happened.
local function describe(problem)
  local words = { type(problem) == "string" and problem or ("an error that is a %s, not a text"):format(type(problem)) }
  local calls, level = {}, 2
  while debug.getinfo(level, "S") do
    local info = debug.getinfo(level, "Sl")
    if info.what ~= "C" and info.currentline >= 0 and not fail.is_own(info.source) then
      calls[#calls + 1] = bytecode.line(info.source, info.currentline)
    end
    level = level + 1
  end
  for i = 2, #calls do words[#words + 1] = "called at " .. calls[i] end
  return table.concat(words, "\n  ")
end

-- ---- opening --------------------------------------------------------------------------------------------------------

local function load_module(name)
  local found, f = pcall(require, name)
  if not found then error(f, 0) end
  if type(f) ~= "function" then
    error(('the module "%s" returned a %s; it returns the function'):format(name, type(f)), 0)
  end
  return f, {}, { f }
end

-- shardrt itself belongs to the recipe's state: its words make calls of the whole job.
local function hide_shardrt()
  for name in pairs(package.loaded) do
    if name:find "^shardrt" then package.loaded[name] = nil end
  end
  table.insert(package.loaders, 1, function(name)
    if name == "shardrt" or name:find "^shardrt%." then
      fail('a transform cannot use the module "%s": it runs in a worker, which is no recipe', name)
    end
  end)
end

--- Makes this state ready.
---@param bytes string # package.path, \0, package.cpath, \0, and M and a module's name, or F and carry.pack's bytes
---@param is_predicate boolean
---@param address lightuserdata # of a shardrt_samples, where each chunk is found
---@return function run # transforms the chunk
---@return function describe # for lua_pcall
function worker.open(bytes, is_predicate, address)
  local path, cpath, kind, rest = bytes:match "^([^%z]*)%z([^%z]*)%z(.)(.*)$"
  package.path, package.cpath = path, cpath
  hide_shardrt()
  carry.refuse()
  local unpack_it = kind == "M" and load_module or carry.unpack
  local f, tables, functions = unpack_it(rest)
  for _, one in ipairs(functions) do
    local problem = bytecode.problem(one, _G)
    if problem then error(problem, 0) end
  end
  local check = watch(tables)
  local call, make, loops = ffi.cast(samples_pointer, address), is_predicate and predicate_loop or transform_loop, {}
  local function run()
    local key = (call.dtype * 256 + call.out_dtype) * 256 + call.ndim
    local loop = loops[key]
    if not loop then
      loop = make(call, f, check, dtype.coded(call.dtype), dtype.coded(call.out_dtype), call.ndim)
      loops[key] = loop
    end
    loop()
  end
  return run, describe
end

return worker

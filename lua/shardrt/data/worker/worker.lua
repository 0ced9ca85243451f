-- What the Lua state of a worker thread runs: the function of one transform, for one chunk of samples after another.
-- (runtime/transform/kind/lua.c makes the state; the recipe's own state never loads this file.)

require("shardrt.base.sorted_pairs").install() -- before any other loop

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local bytecode = require "shardrt.data.worker.bytecode"
local closure = require "shardrt.data.worker.closure"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
fail.own()

local worker = {}

local WATCHED = 64    -- entries of tables that are looked at after each sample
local MOST_CALLS = 16 -- that the message of an error tells of
local MODE = { predicate = 1, ragged = 2 } -- runtime/transform/kind/lua.c

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
---@field out ffi.cdata* # pointer to the elements of the output, all 0 at first unless `writes_all` was given
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

local DIFFERS = "called twice for one sample, it made two different things of it: it depends on more than the sample"
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

-- ---- an output whose length the function says -----------------------------------------------------------------------

local GUARD, GUARD_BYTE = C.SHARDRT_SAMPLE_GUARD, 0xa5
local GUARD_TEXT = string.char(GUARD_BYTE):rep(GUARD)

-- Fills the guards at both ends of the room, which has so many bytes.
local function set_guards(room, bytes)
  ffi.fill(room - GUARD, GUARD, GUARD_BYTE)
  ffi.fill(room + bytes, GUARD, GUARD_BYTE)
end

-- Whether a function wrote to one of them. LuaJIT finds the text that it has already, in a tenth of a microsecond.
local function broken(room, bytes)
  return ffi.string(room + bytes, GUARD) ~= GUARD_TEXT or ffi.string(room - GUARD, GUARD) ~= GUARD_TEXT
end

-- Calls `apply` once more, line by line and not compiled: the line of the user's that wrote to a guard, or nil.
local function breaking_line(apply, room, bytes)
  local last, found
  jit.off()
  jit.flush()
  debug.sethook(function(_, number)
    if not found and last and broken(room, bytes) then found = last end
    local source = debug.getinfo(2, "S").source
    if not fail.is_own(source) then last = bytecode.line(source, number) end
  end, "l")
  pcall(apply)
  debug.sethook()
  jit.on()
  return found or broken(room, bytes) and last or nil
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

---@class shardrt.Work # what a state was opened for
---@field call ffi.cdata* # the shardrt_samples of the chunk
---@field f function
---@field check (fun())? # of the tables that came with it
---@field mode integer # MODE
---@field writes_all boolean # every element of the output
---@field guarded ffi.cdata*|false # the room whose guards are as they were set, where it had
---@field guarded_bytes number # so many bytes

-- What calls the function for the sample at hand, and puts what it returns to the output, or returns how many elements
-- were written.
local function caller(work, sample, random, from, to, ndim)
  local f = work.f
  if work.mode == MODE.ragged then
    return function()
      local made = f(sample, random)
      if type(made) ~= "number" or made % 1 ~= 0 or made < 0 or made > sample.out_size then
        error(("it returned %s; it returns how many elements it wrote to sample.out, 0 to bound = %.0f")
          :format(tostring(made), sample.out_size), 0)
      end
      return made
    end
  elseif work.mode == MODE.predicate and ndim == 0 then
    return function() sample.out[0] = f(plain(from.read(sample.data, 0)), random) and true or false end
  elseif work.mode == MODE.predicate then
    return function() sample.out[0] = f(sample, random) and true or false end
  end
  return function()
    local result = f(sample, random)
    if result ~= nil then store(sample, to, result) end
  end
end

-- A function that transforms the chunk at hand, of values of these dtypes with ndim dimensions. Of every chunk whose
-- number is a power of 2, the first sample is tried twice beforehand: it must become the same both times.
local function chunk_loop(work, from, to, ndim)
  local call, check, clears = work.call, work.check, not work.writes_all
  local shape, element = {}, to.size
  local sample, random = sample_type(from, to, shape)(), random_type()
  local apply = caller(work, sample, random, from, to, ndim)
  local chunk, next_tried = 0, 1
  local ragged = work.mode == MODE.ragged
  local room, room_bytes

  local function take(given)
    ffi.copy(sample, given, ffi.sizeof(sample))
    if ragged then sample.out = call.room end
    ffi.copy(random, given.random, ffi.sizeof(random))
    for d = 1, ndim do shape[d] = tonumber(given.shape[d - 1]) end
  end

  local function outcome(before)
    take(call.samples)
    ffi.fill(sample.out, sample.out_size * element, before)
    local made = apply() or sample.out_size
    if check then check() end
    return ffi.string(sample.out, made * element)
  end

  -- A sample of the chunk wrote to a guard: says which one, and where.
  local function refuse_outside()
    local place = ""
    for i = 0, tonumber(call.count) - 1 do
      call.at = i
      take(call.samples + i)
      set_guards(room, room_bytes)
      local line = breaking_line(apply, room, room_bytes)
      if line then
        place = line .. ": "
        break
      end
    end
    error(("%sit wrote outside of sample.out, which has the %.0f elements of bound, counted from 0")
      :format(place, sample.out_size), 0)
  end

  return function()
    call.at = 0
    chunk = chunk + 1
    if ragged then
      room, room_bytes = ffi.cast("char *", call.room), call.samples[0].out_size * element
      if work.guarded ~= room or work.guarded_bytes ~= room_bytes then set_guards(room, room_bytes) end
      work.guarded = false
    end
    if chunk == next_tried then
      next_tried = 2 * next_tried
      if outcome(0) ~= outcome(clears and 0 or 0xff) then
        error(clears and DIFFERS or DIFFERS .. ", or it does not write all of its output, as it says", 0)
      end
    end
    for i = 0, tonumber(call.count) - 1 do
      call.at = i
      take(call.samples + i)
      if clears then ffi.fill(sample.out, sample.out_size * element) end
      local made = apply()
      if made then
        ffi.copy(call.samples[i].out, room, made * element)
        call.samples[i].made = made
      end
      if check then check() end
    end
    if ragged then
      if broken(room, room_bytes) then refuse_outside() end
      work.guarded, work.guarded_bytes = room, room_bytes
    end
  end
end

-- ---- errors ---------------------------------------------------------------------------------------------------------

-- The message of an error, with the calls of the user's that led to where it happened, as far as they are few.
local function describe_error(problem)
  local words = { type(problem) == "string" and problem or ("an error that is a %s, not a text"):format(type(problem)) }
  local innermost = true
  for level = 2, MOST_CALLS do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.what ~= "C" and info.currentline >= 0 and not fail.is_own(info.source) then
      if not innermost then words[#words + 1] = "called at " .. bytecode.line(info.source, info.currentline) end
      innermost = false
    end
  end
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
---@param bytes string # package.path, \0, package.cpath, \0, and M and a module's name, or F and closure.pack's bytes
---@param mode integer
---@param writes_all boolean
---@param address lightuserdata # of a shardrt_samples, where each chunk is found
---@return function run # transforms the chunk
---@return function describe_error # for lua_pcall
function worker.open(bytes, mode, writes_all, address)
  local path, cpath, kind, rest = bytes:match "^([^%z]*)%z([^%z]*)%z(.)(.*)$"
  package.path, package.cpath = path, cpath
  hide_shardrt()
  closure.refuse()
  local unpack_it = kind == "M" and load_module or closure.unpack
  local f, tables, functions = unpack_it(rest)
  for _, one in ipairs(functions) do
    local problem = bytecode.problem(one, _G)
    if problem then error(problem, 0) end
  end
  local call, loops = ffi.cast(samples_pointer, address), {}
  local work = { call = call, f = f, check = watch(tables), mode = mode, writes_all = writes_all, guarded = false,
    guarded_bytes = 0 }
  local function run()
    local key = (call.dtype * 256 + call.out_dtype) * 256 + call.ndim
    local loop = loops[key]
    if not loop then
      loop = chunk_loop(work, dtype.coded(call.dtype), dtype.coded(call.out_dtype), call.ndim)
      loops[key] = loop
    end
    loop()
  end
  require("jit.opt").start "hotloop=56" -- its default; what ran until here counts for no loop of the function
  return run, describe_error
end

return worker

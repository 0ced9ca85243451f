-- long: 15 s
-- Transforms that a recipe writes in Lua: what they are given, what comes with them to the workers and what may not,
-- and that their outcome depends on the sample and on nothing else.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local ndarray, lua = shardrt.ndarray, shardrt.transform.lua

local seed = require "tests.support.seed"
math.randomseed(seed)

-- A host array of random whole numbers below `below`.
local function random_host(sizes, dtype, below)
  local host = ndarray.zeros(sizes, dtype)
  for i = 0, host.size - 1 do host.data[i] = math.random(0, below - 1) end
  return host
end

-- What a function makes of a field: a host array of all samples.
local function made(source, field, f, o)
  return source:map({ [field] = { lua(f, o) } }):read(0, #source)[field]
end

local function message_of(f, ...)
  local ok, message = pcall(f, ...)
  assert.is_false(ok)
  return message
end

-- A source of one field, x: uint8 {10, 4}, element i is i.
local function forty() return shardrt.source.array { x = ndarray.arange(40, "uint8"):reshape { 10, 4 } } end

local contains = require("tests.support.expect").contains

describe("a transform in Lua", function()
  it("sees samples and writes rows as plain Lua would, in all dtypes", function()
    local dtypes = { "int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64" }
    for case = 1, 40 do
      local what = ("seed %d, case %d"):format(seed, case)
      local count, sizes, elements = math.random(1, 200), {}, 1
      for d = 1, math.random(0, 3) do
        sizes[d] = math.random(1, 6)
        elements = elements * sizes[d]
      end
      local from, to = dtypes[math.random(#dtypes)], dtypes[math.random(#dtypes)]
      local host = random_host({ count, unpack(sizes) }, from, 30)
      local a, b, keeps = math.random(0, 3), math.random(0, 2), math.random() < 0.5
      local options = { dtype = to, writes_all = math.random() < 0.5 and not keeps or nil }
      local out = made(shardrt.source.array { x = host }, "x", function(sample)
        for i = 0, sample.size - 1 do
          if not keeps or i % 2 == 0 then sample.out[i] = a * sample.data[i] + b end
        end
      end, options)
      assert.equal(to, out.dtype, what)
      assert.same(host.shape, out.shape, what)
      for i = 0, host.size - 1 do
        local expected = keeps and i % elements % 2 == 1 and 0 or a * host.data[i] + b
        assert.equal(expected, out.data[i], what)
      end
    end
  end)

  it("knows the sample's sizes and number, the epoch, and its shape", function()
    local source = shardrt.source.array { x = ndarray.zeros({ 9, 2, 3 }, "int32") }
    local out = made(source:shard(2, 1), "x", function(sample)
      local o = sample.out
      o[0], o[1], o[2], o[3] = sample.size, sample.out_size, sample.index, sample.epoch
      o[4], o[5], o[6] = #sample.shape, sample.shape[1], sample.shape[2]
    end, { shape = { 7 } })
    for i = 0, 3 do assert.same({ 6, 7, 2 * i + 1, 0, 2, 2, 3 }, out:to_table()[i + 1]) end
  end)

  it("may return an output of one element, in every dtype", function()
    local source = shardrt.source.array { x = ndarray.arange(6, "float64") }
    for dtype, expected in pairs {
      bool = { true, false, true }, uint8 = { 0, 1, 2 }, float32 = { 0, 1, 2 }, float16 = { 0, 1, 2 },
      bfloat16 = { 0, 1, 2 }, int64 = { 0LL, 1LL, 2LL }, uint64 = { 0ULL, 1ULL, 2ULL },
    } do
      local out = made(source, "x", function(sample)
        local i = sample.data[0]
        if i > 2 then return end -- stays 0
        if dtype == "bool" then return i ~= 1 end
        return i
      end, { dtype = dtype })
      assert.same(expected, { unpack(out:to_table(), 1, 3) }, dtype)
      assert.equal(dtype == "bool" and "false" or "0", tostring(out:to_table()[6]):match "^[%d%l]+", dtype)
    end
  end)

  it("takes samples whose shapes differ", function()
    local values = {}
    for i = 1, 20 do values[i] = random_host({ math.random(0, 5), 2 }, "int32", 100) end
    local source = shardrt.source.ragged { x = values }
    local sums = made(source, "x", function(sample)
      local sum = 1000 * sample.shape[1]
      for i = 0, sample.size - 1 do sum = sum + sample.data[i] end
      return sum
    end, { shape = {} })
    local doubled = made(source, "x", function(sample)
      for i = 0, sample.out_size - 1 do sample.out[i] = 2 * sample.data[i] end
    end)
    for i, value in ipairs(values) do
      local sum = 1000 * value.shape[1]
      assert.same(value.shape, doubled[i].shape)
      for k = 0, value.size - 1 do
        sum = sum + value.data[k]
        assert.equal(2 * value.data[k], doubled[i].data[k])
      end
      assert.equal(sum, sums.data[i - 1], "seed " .. seed)
    end
  end)

  it("may write as many elements as it takes, which others then get", function()
    local values, words = {}, {}
    for i = 1, 60 do
      values[i] = random_host({ math.random(0, 9) }, "int32", 5)
      words[i] = {} -- each number so many times
      for k = 0, values[i].size - 1 do
        for _ = 1, values[i].data[k] do words[i][#words[i] + 1] = values[i].data[k] end
      end
    end
    local function repeated(sample)
      local n = 0
      for i = 0, sample.size - 1 do
        for _ = 1, tonumber(sample.data[i]) do
          sample.out[n] = sample.data[i]
          n = n + 1
        end
      end
      return n
    end
    for _, writes_all in ipairs { true, false } do
      local source = shardrt.source.ragged { x = values }:map {
        x = { lua(repeated, { shape = { -1 }, bound = 36, dtype = "int16", writes_all = writes_all }) },
        cut = { from = "x", lua(repeated, { shape = { -1 }, bound = 36 }), shardrt.transform.pad { size = { 36 } },
          shardrt.transform.crop { size = { 3 } } },
        twice = { from = "x", lua(repeated, { shape = { -1 }, bound = 36 }),
          lua(function(sample) return sample.size end, { shape = {} }) },
      }
      assert.same({ dtype = "int16", shape = { -1 } }, source.fields.x)
      assert.same({ dtype = "int32", shape = { 3 } }, source.fields.cut)
      local read = source:read(0, 60)
      for i, expected in ipairs(words) do
        assert.same(expected, read.x[i]:to_table(), "seed " .. seed)
        assert.same({ expected[1] or 0, expected[2] or 0, expected[3] or 0 }, read.cut:rows(i - 1, 1):to_table()[1])
        assert.equal(#expected, read.twice.data[i - 1])
      end
      local some = source:filter { x = function(sample) return sample.size > 4 end }
      local rows, elements = some:pack { length = 40, field = "x" }, 0
      for _, expected in ipairs(words) do elements = elements + (#expected > 4 and #expected or 0) end
      assert.is_true(math.abs(rows.fill * #rows * 40 - elements) < 1e-6)
      local mixed = shardrt.mix { { rows, 1 }, { rows, 1 } }
      assert.same({ 8, 40 }, shardrt.loader { source = mixed, batch_size = 8 }().x.shape)
    end
    local source = forty()
    local function returns(what)
      return message_of(made, source, "x", function() return what end, { shape = { -1 }, bound = 3 })
    end
    contains(returns(4), "it returned 4", "0 to bound = 3")
    contains(returns(-1), "it returned -1")
    contains(returns(nil), "it returned nil")
    contains(returns(0.5), "it returned 0.5")
    contains(message_of(lua, print, { shape = { -1 } }), "bound = n", "not nil")
    contains(message_of(lua, print, { shape = { 2 }, bound = 3 }), "goes with shape = {-1}")
    contains(message_of(lua, print, { shape = { -1, 2 }, bound = 3 }), "one dimension")
    contains(message_of(made, source, "x", function(sample, rng)
      sample.out[0] = rng:below(100)
      return 1 + sample.out[0] % 2 * 0 + (sample.out[1] ~= 0 and 1 or 0)
    end, { shape = { -1 }, bound = 3, writes_all = true }), "it does not write all of its output")
  end)

  it("finds a function that writes past its bound, and nothing else is overwritten", function()
    local source = forty()
    local first = debug.getinfo(1, "l").currentline + 3
    local function writes(offset, from)
      return function(sample)
        for i = 0, 2 do sample.out[i] = sample.index end
        if sample.index == from then
          sample.out[offset] = 7
        end
        return 3
      end
    end
    -- The element behind the bound, those at the ends of a page on both sides, and one in front.
    for offset, element in pairs { [3] = "uint8", [3 + 1023] = "int32", [-512] = "float64", [-1] = "int32" } do
      for _, writes_all in ipairs { true, false } do
        for _, from in ipairs { 0, 4, 9 } do
          contains(message_of(made, source, "x", writes(offset, from),
            { shape = { -1 }, bound = 3, dtype = element, writes_all = writes_all }),
            'field "x"', ("sample %d"):format(from), ("transform_lua_spec.lua:%d: it wrote outside"):format(first + 2),
            "has the 3 elements of bound")
        end
      end
    end
    local function one_too_many(sample) for i = 0, 3 do sample.out[i] = 1 end return 3 end
    contains(message_of(made, source, "x", one_too_many, { shape = { -1 }, bound = 3 }), "sample 0",
      (":%d: it wrote outside"):format(debug.getinfo(one_too_many, "S").linedefined))
    -- The readers of what failed go on with what is right.
    local right = source:map { x = { lua(writes(2, 5), { shape = { -1 }, bound = 3 }) } }:read(0, 10).x
    assert.same({ 4, 4, 4 }, right[5]:to_table())
    assert.same({ 5, 5, 7 }, right[6]:to_table())
  end)

  it("is given every NaN as the plain one: LuaJIT would take the bits of others for nil or an address", function()
    local bits = { -- the highest 32 of them; the last is a number's
      float32 = { 0xffffffff, 0xffc00001, 0xffdabcde, 0xff800001, 0x7fffffff, 0xffc00000, 0x40000000 },
      float64 = { 0xffffffff, 0xfff90000, 0xfffdabcd, 0xfffb8000, 0x7fffffff, 0xfff80000, 0x40000000 },
    }
    for name, highs in pairs(bits) do
      local words, host = name == "float32" and 1 or 2, ndarray.zeros({ #highs, 100 }, name)
      local raw = ffi.cast("uint32_t *", host.data)
      for i = 0, host.size - 1 do raw[(i + 1) * words - 1] = highs[math.floor(i / 100) + 1] end
      local before = ffi.string(host.data, host.size * 4 * words)
      local source = shardrt.source.array { x = host }
      local function count_nans(sample)
        local count = 0
        for i = 0, sample.size - 1 do
          local value = sample.data[i]
          if type(value) ~= "number" then error("a " .. type(value)) end
          if value ~= value then count = count + 1 end
        end
        return count
      end
      local told = made(source, "x", count_nans, { dtype = "int32", shape = {} })
      assert.same({ 100, 100, 100, 100, 100, 100, 0 }, told:to_table(), name)
      local function is_number(sample) return sample.data[0] == sample.data[0] + 0 end
      assert.equal(1, #source:filter { x = is_number }, name)
      assert.equal(before, ffi.string(host.data, #before), name)
    end
  end)

  it("may stand in many chains, with inputs of different dtypes, behind and before others", function()
    local twice = lua(function(sample)
      for i = 0, sample.size - 1 do sample.out[i] = 2 * sample.data[i] end
    end)
    local source = shardrt.source.array {
      x = ndarray.arange(12, "uint8"):reshape { 3, 4 }, y = ndarray.arange(6, "float32"):reshape { 3, 2 },
    }
    local read = source:map({
      x = { twice, twice, shardrt.transform.crop { size = { 2 }, start = { 1 } }, twice }, y = { twice },
    }):read(0, 3)
    assert.same({ { 8, 16 }, { 40, 48 }, { 72, 80 } }, read.x:to_table())
    assert.same({ { 0, 2 }, { 4, 6 }, { 8, 10 } }, read.y:to_table())
  end)
end)

describe("what a transform uses from outside", function()
  it("comes with it: plain data, one object staying one, circles, functions, Lua's own libraries", function()
    local number, text, yes, nothing, big, huge = 0.1, "a\0b", true, nil, -3LL, 0xffffffffffffffffULL
    local shared = { 1, 2, [0.5] = "half", [true] = false, deep = { { {} } } }
    local circle = { shared = shared }
    circle.itself = circle
    local floor, library, foreign = math.floor, bit, require "ffi"
    local function factorial(n) return n < 2 and 1 or n * factorial(n - 1) end
    local function is_even(n) return n == 0 or circle.is_odd(n - 1) end
    circle.is_odd = function(n) return n ~= 0 and is_even(n - 1) end
    local out = made(forty(), "x", function()
      local right = number == 0.1 and text == "a\0b" and yes == true and nothing == nil and big == -3LL
        and huge == 0xffffffffffffffffULL and circle.itself == circle and circle.shared == shared and #shared == 2
        and shared[0.5] == "half" and shared[true] == false and type(shared.deep[1][1]) == "table"
        and floor(2.5) == 2 and library.band(6, 3) == 2 and foreign.sizeof "int32_t" == 4 and factorial(5) == 120
        and is_even(10) and not is_even(7) and math.floor == floor and string.rep("x", 2) == "xx"
      return right and 1 or 0
    end, { shape = {} })
    for i = 0, 9 do assert.equal(1, out.data[i]) end
  end)

  it("is as large as it likes, and nested as deep", function()
    local long, chain = {}, {}
    for i = 1, 30000 do long[i] = i % 7 end
    local last = chain
    for _ = 1, 30000 do
      last.next = {}
      last = last.next
    end
    local out = made(forty(), "x", function(sample)
      return chain.next.next and long[30000 - sample.index] or 0
    end, { shape = {} })
    for i = 0, 9 do assert.equal((30000 - i) % 7, out.data[i]) end
  end)

  it("is refused where it is not that, by name and line, when the transform is made", function()
    local array, host = forty(), ndarray.zeros({ 2 }, "int8")
    local pointer, thread = ffi.new "int[4]", coroutine.create(print)
    local with_meta, key, file = setmetatable({}, { __index = math }), { [{}] = 1 }, io.stdout
    local inside, random, cut = { list = { 1, { host } } }, math.random, shardrt.transform.crop
    local c_function = require("cjson").encode
    local module = require "cjson"
    local function helper() return host end
    local cases = {
      { "the upvalue array (", "a cdata, source of 10 samples", function() return array end },
      { "the upvalue host (", "a table with a metatable, int8 {2}", function() return host end },
      { "the upvalue pointer (", "a cdata", function() return pointer end },
      { "the upvalue thread (", "a thread", function() return thread end },
      { "the upvalue with_meta (", "a table with a metatable", function() return with_meta.floor end },
      { "a key of the upvalue key (", "a table", function() return key end },
      { "the upvalue file (", "a userdata", function() return file end },
      { 'the upvalue inside["list"][2][1] (', "int8 {2}", function() return inside end },
      { "the upvalue random (", "math.random: use the function's second argument", function() return random() end },
      { "the upvalue cut (", "a function of shardrt", function() return cut end },
      { "the upvalue shardrt (", 'the module "shardrt"', function() return shardrt end },
      { "the upvalue module (", 'the module "cjson"', function() return module end },
      { "the upvalue c_function (", "a function written in C", function() return c_function end },
      { "the upvalue host (", "int8 {2}", function() return helper() end, 136 },
      { "the upvalue thread (", "a thread", function() return function() return thread end end },
    }
    for _, case in ipairs(cases) do
      local line = debug.getinfo(case[3], "S").linedefined
      local message = message_of(lua, case[3])
      assert.truthy(message:find "^[^\n:]*transform_lua_spec%.lua:%d+: transform%.lua: ", message)
      contains(message, case[1])
      contains(message, case[2])
      local used = tonumber(message:match "%(used in [^\n:]*transform_lua_spec%.lua:(%d+)%)")
      if case[4] then assert.not_equal(line, used) else assert.equal(line, used) end
    end
  end)

  it("is not assigned to, and no global is but Lua's own, which are only read", function()
    local count, assigned = 0, {}
    local function helper() count = count + 1 end
    local cases = {
      { 'it assigns to "count"', function() count = count + 1 end },
      { 'it assigns to "assigned"', function() assigned = nil end },
      { 'it assigns to "count"', function() return function() count = "text" end end },
      { 'it assigns to "count"', function() helper() end },
      { 'it writes the global "result"', assert(loadstring "return function() result = 1 end")() },
      { 'it reads the global "reslut"', assert(loadstring "return function() return reslut end")() },
      { "it assigns to", assert(loadstring(string.dump(function() count = 1 end, true))) },
    }
    for _, case in ipairs(cases) do contains(message_of(lua, case[2]), case[1]) end
    assert.truthy(assigned)
    lua(function() -- what is local to it is its own, also in functions inside it
      local sum = 0
      local function add(n) sum = sum + n end
      add(1)
    end)
  end)

  it("stays as it is, or that is an error", function()
    local t, long = { n = 0, list = { 1, 2 } }, {}
    for i = 1, 1000 do long[i] = i end
    local cases = {
      { "it changed the entry n of a table outside it", function() t.n = t.n + 1 end },
      { "it changed the entry n of a table outside it", function() t.n = nil end },
      { "it sets the entry new of a table outside it", function() t.new = 1 end },
      { "it changed the entry 2 of a table outside it", function(sample) t.list[2] = sample.index end },
      { "it changed the entry 3 of a table outside it", function() table.insert(t.list, 3) end },
      { "it changed the entry 1 of a table outside it", function() table.remove(t.list) t.list[1] = nil end },
      { "it changed the entry 777 of a table outside it", function() long[777] = long[1] end },
    }
    local source = shardrt.source.array { x = ndarray.arange(40, "float64") }
    for _, case in ipairs(cases) do contains(message_of(made, source, "x", case[2]), case[1]) end
    assert.same({ n = 0, list = { 1, 2 } }, t)
  end)
end)

describe("an error in a transform", function()
  it("names sample, field and line, with the calls that led there, and ends the loader's batch", function()
    local function inner(sample) error("bad " .. sample.index) end
    local bad = lua(function(sample)
      if sample.index == 7 then inner(sample) end
    end)
    local line = debug.getinfo(inner, "S").linedefined
    local mapped = forty():map { x = { bad } }
    for _, read in ipairs {
      function() mapped:read(0, 10) end,
      function()
        local loader = shardrt.loader { source = mapped, batch_size = 2, epochs = 1, num_workers = 2,
          sharding = shardrt.SingleDeviceSharding(0) }
        for _ in loader do end -- luacheck: ignore 542
      end,
    } do
      local message = message_of(read)
      contains(message, 'sample 7, field "x": transform.lua: ')
      assert.equal(1, select(2, message:gsub('field "x"', "")), message) -- said once
      assert.truthy(message:find(("transform_lua_spec%%.lua:%d: bad 7\n  called at [^\n]*_spec%%.lua:%d"):format(line,
        line + 2)), message)
    end
    assert.same({ 7, 4 }, mapped:read(0, 7).x.shape) -- the samples before it are there
  end)

  it("is one for whatever is wrong", function()
    local cases = {
      { "attempt to index local 'nothing'", function() local nothing = nil; return nothing.x end },
      { "an error that is a table, not a text", function() error {} end },
      { "attempt to write to constant location", function(sample) sample.data[0] = 1 end },
      { 'a sample has no "dta"; it has data, size', function(sample) return sample.dta end },
      { "it returned a number; it writes the 4 elements", function() return 1 end },
      { "it returned 300, which is no uint8: these are whole numbers from 0 to 255", function() return 300 end, {} },
      { "it returned 0.5, which is no uint8", function() return 0.5 end, {} },
      { "it returned table: ", function() return {} end, {} },
      { "math.random is not for transforms", function() return math.random(3) end, {} },
      { "os.exit is not for transforms", function() os.exit(3) end, {} },
      { "rng:below: a whole number from 1 to 2^32, not 0", function(_, rng) return rng:below(0) end, {} },
      { "rng:below: a whole number from 1 to 2^32, not 1.5", function(_, rng) return rng:below(1.5) end, {} },
      { 'cannot use the module "shardrt"', function() require "shardrt" end },
      { 'cannot use the module "shardrt.base.ffi"', function() require "shardrt.base.ffi" end },
      { "stack overflow", function() local function f() return 1 + f() end return f() end },
      { "it does not write all of its output, as it says", function(sample) sample.out[0] = 1 end, nil, true },
    }
    for _, case in ipairs(cases) do
      local message = message_of(made, forty(), "x", case[2], { shape = case[3], writes_all = case[4] })
      contains(message, 'sample 0, field "x": transform.lua: ')
      contains(message, case[1])
    end
  end)

  it("in what it is given is one at once", function()
    for message, arguments in pairs {
      ["it takes a function, or the name of a module that returns one, not 3"] = { 3 },
      ["it takes a function, or the name of a module that returns one, not nil"] = {},
      ["it takes a function written in Lua, not a function of Lua's own"] = { print },
      ["its options are a table, not 3"] = { print, 3 },
      ['unknown keyword "shpe" (did you mean "shape"?)'] = { print, { shpe = {} } },
      ["whole numbers from 0 on; dimension 0 is -2"] = { print, { shape = { -2 } } },
      ['there is no dtype "float"'] = { print, { dtype = "float" } },
      ["writes_all = 1; it is true or false"] = { print, { writes_all = 1 } },
    } do
      contains(message_of(lua, unpack(arguments)), message)
    end
  end)
end)

describe("a module", function()
  local folder, path
  setup(function()
    folder, path = files.folder(), package.path
    package.path = folder .. "/?.lua;" .. path
    files.write(folder, "inverts.lua", [[
      local full = require "full"
      calls = 0 -- a module may set globals
      return function(sample)
        for i = 0, sample.size - 1 do sample.out[i] = full - sample.data[i] end
      end]])
    files.write(folder, "full.lua", "return 255")
    files.write(folder, "wrong.lua", "return 3")
    files.write(folder, "broken.lua", "local x = nil\nreturn x.y")
    files.write(folder, "counts.lua", "local n = 0\nreturn function()\n  n = n + 1\nend")
    files.write(folder, "hides.lua", "local n = {0}\nreturn function() n[1] = n[1] + 1 return n[1] % 256 end")
  end)
  teardown(function()
    package.path = path
    files.remove(folder)
  end)

  it("that returns the function is loaded in the workers, from the recipe's path", function()
    local out = made(forty(), "x", "inverts")
    for i = 0, 39 do assert.equal(255 - i, out.data[i]) end
    assert.is_nil(package.loaded.inverts)
  end)

  it("that does not is an error when the transform is made", function()
    contains(message_of(lua, "no.such.module"), "transform.lua: module 'no.such.module' not found")
    contains(message_of(lua, "wrong"), 'the module "wrong" returned a number; it returns the function')
    contains(message_of(lua, "broken"), "broken.lua:2: attempt to index local 'x' (a nil value)")
    contains(message_of(lua, "counts"), 'counts.lua:3: it assigns to "n", a variable outside it')
    contains(message_of(lua, "shardrt"), 'a transform cannot use the module "shardrt"')
  end)

  it("that keeps state which shows in the outcome is found", function()
    contains(message_of(made, forty(), "x", "hides", { shape = {} }), "called twice for one sample")
  end)
end)

-- ---- random numbers ------------------------------------------------------------------------------------------------

-- Philox4x32-10 as its authors write it down, keyed as transform/draw.h says: the i-th 32 bits.
local function oracle(s, epoch, number, place, i)
  local key = { s % 2 ^ 32, math.floor(s / 2 ^ 32) }
  local x = { number % 2 ^ 32, math.floor(number / 2 ^ 32), epoch, place * 2 ^ 24 + math.floor(i / 4) }
  local function product(a, b) -- high and low half
    local p = ffi.cast("uint64_t", a) * ffi.cast("uint64_t", b)
    return tonumber(p / 2 ^ 32), tonumber(p % 2 ^ 32)
  end
  local function xor(a, b) return bit.bxor(a, b) % 2 ^ 32 end
  for _ = 1, 10 do
    local high0, low0 = product(0xD2511F53, x[1])
    local high1, low1 = product(0xCD9E8D57, x[3])
    x = { xor(xor(high1, x[2]), key[1]), low1, xor(xor(high0, x[4]), key[2]), low0 }
    key = { (key[1] + 0x9E3779B9) % 2 ^ 32, (key[2] + 0xBB67AE85) % 2 ^ 32 }
  end
  return x[i % 4 + 1]
end

describe("the random numbers of a transform", function()
  it("are those of Philox, by seed, epoch, number and place, for any number of workers", function()
    local COUNT, EPOCHS, KEY = 12, 2, 2 ^ 40 + 5
    local draws = lua(function(sample, rng)
      local o = sample.out
      o[0], o[1], o[2], o[3] = rng:uniform(), rng:below(1000), rng:below(2 ^ 32), rng:normal()
      o[4], o[5], o[6] = rng:below(1), rng:uniform(), sample.epoch * 1000 + sample.index
    end, { shape = { 7 }, dtype = "float64" })
    local nothing = shardrt.transform.crop { size = {} }
    local source = shardrt.source.array { x = ndarray.arange(COUNT, "int32"), y = ndarray.arange(COUNT, "int32") }
    for workers = 1, 3 do
      local loader = shardrt.loader {
        source = source, batch_size = 4, epochs = EPOCHS, seed = KEY, shuffle = true, num_workers = workers,
        transform = { x = { draws }, y = { nothing, draws } },
        sharding = shardrt.SingleDeviceSharding(0),
      }
      local rows = 0
      for batch in loader do
        for place, name in ipairs { "x", "y" } do
          for _, row in ipairs(shardrt.device_get(batch[name]):to_table()) do
            local epoch, number = math.floor(row[7] / 1000), row[7] % 1000
            local function bits(i) return oracle(KEY, epoch, number, place - 1, i) end
            local function uniform(i) return math.floor(bits(i) / 256) / 2 ^ 24 end
            assert.equal(uniform(0), row[1])
            assert.equal(math.floor(bits(1) * 1000 / 2 ^ 32), row[2])
            assert.equal(bits(2), row[3])
            local normal = math.sqrt(-2 * math.log(1 - uniform(3))) * math.cos(2 * math.pi * uniform(4))
            assert.is_true(math.abs(normal - row[4]) < 1e-12)
            assert.equal(0, row[5])
            assert.equal(uniform(6), row[6])
            rows = rows + 1
          end
        end
      end
      assert.equal(2 * COUNT * EPOCHS, rows)
    end
  end)

  it("are spread as they should be", function()
    local COUNT = 20000
    local source = shardrt.source.array { x = ndarray.zeros({ COUNT }, "int8") }
    local out = made(source, "x", function(sample, rng)
      sample.out[0], sample.out[1], sample.out[2] = rng:uniform(), rng:normal(), rng:below(10)
    end, { shape = { 3 }, dtype = "float64" })
    local sum, squares, tails, counts = { 0, 0 }, { 0, 0 }, 0, {}
    for i = 0, COUNT - 1 do
      for k = 1, 2 do
        local value = out.data[3 * i + k - 1]
        sum[k], squares[k] = sum[k] + value, squares[k] + value * value
      end
      if math.abs(out.data[3 * i + 1]) > 1.959964 then tails = tails + 1 end
      counts[out.data[3 * i + 2]] = (counts[out.data[3 * i + 2]] or 0) + 1
    end
    -- Six standard deviations of each estimate; the numbers are the same in every run.
    assert.is_true(math.abs(sum[1] / COUNT - 0.5) < 6 * math.sqrt(1 / 12 / COUNT))
    assert.is_true(math.abs(squares[1] / COUNT - 1 / 3) < 6 * math.sqrt(4 / 45 / COUNT))
    assert.is_true(math.abs(sum[2] / COUNT) < 6 / math.sqrt(COUNT))
    assert.is_true(math.abs(squares[2] / COUNT - 1) < 6 * math.sqrt(2 / COUNT))
    assert.is_true(math.abs(tails / COUNT - 0.05) < 6 * math.sqrt(0.05 * 0.95 / COUNT))
    for k = 0, 9 do assert.is_true(math.abs(counts[k] - COUNT / 10) < 6 * math.sqrt(COUNT * 0.09)) end
  end)

  it("come to an end, which is an error", function()
    local one = shardrt.source.array { x = ndarray.zeros({ 1 }, "int8") }
    contains(message_of(made, one, "x", function(_, rng)
      for _ = 1, 2 ^ 24 do rng:uniform() end
    end), "a sample has no more than 2^24 random numbers")
  end)
end)

-- ---- workers, processes, memory ------------------------------------------------------------------------------------

-- The stream of a loader, with a table and a function from outside and with random numbers, as one hash.
local RECIPE = [[
local bit, ffi = require "bit", require "ffi"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"
local P, n = shardrt.P, shardrt.device_count()
local names = { alpha = 1, beta = 2, gamma = 3, delta = 4, epsilon = 5, zeta = 6, eta = 7 }
local function name(i) return ({ "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta" })[i % 7 + 1] end
local f = shardrt.transform.lua(function(sample, rng)
  local gain = 1 + rng:below(5)
  local extra = { a = 1, b = 2, c = 3, d = 4, e = 5 } -- its order in memory is not the same in all processes
  for i = 0, sample.size - 1 do sample.out[i] = gain * sample.data[i] + names[name(i)] + extra.d + rng:normal() end
end, { dtype = "float32" })
local source = shardrt.source.array { x = shardrt.ndarray.arange(40 * 8 * 8, "int32"):reshape { 40, 8, 8 } }
local mesh = shardrt.make_mesh({ n }, { "d" })
local hashes = {}
for _, spec in ipairs { P "d", P(nil, "d"), P(nil, nil, "d"), P() } do
  for workers = 1, 3, 2 do
    local words = {}
    for batch in shardrt.loader {
      source = source, batch_size = 8, shuffle = true, seed = 3, epochs = 2, num_workers = workers,
      transform = { x = { f } }, sharding = shardrt.NamedSharding(mesh, spec),
    } do
      local value = shardrt.process_allgather(batch.x)
      words[#words + 1] = ffi.string(value.data, value.bytes)
    end
    local text = table.concat(words)
    hashes[bit.tohex(C.shardrt_fingerprint(text, #text))] = true
  end
end
local all = {}
for hash in pairs(hashes) do all[#all + 1] = hash end
shardrt.say("%s", table.concat(all, " "))
]]

describe("the outcome of a transform", function()
  it("is the same for any number of workers, processes and devices, however batches are cut", function()
    local first
    for _, job in ipairs { { nil, 1 }, { 1, 8 }, { 4, 2 }, { 2, 1 } } do
      local result = mpi.run { source = RECIPE, processes = job[1], devices = job[2] }
      assert.equal(0, result.status, result.output)
      assert.truthy(result.stdout:match "^%x+\n$", result.output)
      first = first or result.stdout
      assert.equal(first, result.stdout)
    end
  end)

  it("is not compared, but the function is: another one in one process is refused", function()
    local result = mpi.run {
      processes = 2,
      source = [[
        local shardrt = require "shardrt"
        local k = shardrt.process_index()
        local f = shardrt.transform.lua(function(sample) return k end, { shape = {} })
        shardrt.loader {
          source = shardrt.source.array { x = shardrt.ndarray.arange(8, "int8") }, batch_size = 2,
          transform = { x = { f } },
        }]],
    }
    assert.not_equal(0, result.status)
    contains(result.stderr, "the source's transforms")
  end)
end)

describe("pairs in a transform", function()
  local names = { "alpha", "beta", "gamma", "delta", "eps", "zeta", "eta", "theta" }
  local set, sorted = {}, { unpack(names) }
  for i, name in ipairs(names) do set[name] = i end
  table.sort(sorted)
  local expected = 0
  for _, name in ipairs(sorted) do expected = expected * 8 + set[name] - 1 end

  it("goes through names in one order in every worker", function()
    local all = pairs -- also as a variable outside the function
    for _ = 1, 4 do -- in each state of LuaJIT names come in another order
      local loader = shardrt.loader {
        source = shardrt.source.array { x = ndarray.zeros { 64 } }, batch_size = 64, epochs = 1, num_workers = 4,
        transform = { x = { lua(function()
          local once, again = 0, 0
          for _, i in pairs(set) do once = once * 8 + i - 1 end
          for _, i in all(set) do again = again * 8 + i - 1 end
          return once + again
        end, { dtype = "float64" }) } },
      }
      for batch in loader do
        for _, both in ipairs(shardrt.device_get(batch.x):to_table()) do assert.equal(2 * expected, both) end
      end
    end
  end)

  it("makes no other function of one that ran before", function()
    local function fresh()
      return assert(loadstring([[
        local sum = 0
        for _, v in pairs { 1, 2 } do sum = sum + v end
        for _, v in next, { 3 } do sum = sum + v end
        return sum]], "=f"))
    end
    local ran = fresh()
    for _ = 1, 200 do assert.equal(6, ran()) end
    assert.equal(tostring(lua(fresh())), tostring(lua(ran)))
    assert.are_not.equal(tostring(lua(fresh())), tostring(lua(assert(loadstring("return 6", "=f")))))
  end)
end)

describe("the loop over samples", function()
  it("stays compiled: nothing is given up, and after the first samples next to nothing more is compiled", function()
    local folder, path = files.folder(), package.path
    package.path = folder .. "/?.lua;" .. path
    -- Each state that transforms (the worker's, and that of the recipe's thread, which helps) has a log of its own:
    -- what was compiled or given up, after how many samples; and at last how many there were.
    files.write(folder, "traced.lua", ([[
      local reasons, count, path = require("jit.vmdef").traceerr, require("ffi").new "double[1]", os.tmpname()
      local log = assert(io.open("%s/" .. path:match "[^/]*$", "w"))
      os.remove(path)
      require("jit").attach(function(what, _, _, _, reason)
        log:write(("%%.0f %%s\n"):format(count[0], what == "abort" and reasons[reason] or what))
        log:flush()
      end, "trace")
      return function(sample, rng)
        count[0] = count[0] + 1
        local gain = 1 + rng:uniform()
        for i = 0, sample.size - 1 do sample.out[i] = gain * (255 - sample.data[i]) / 255 end
      end]]):format(folder .. "/logs"))
    for _, size in ipairs { 1, 5, 3072 } do
      os.execute("mkdir " .. folder .. "/logs")
      local loader = shardrt.loader {
        source = shardrt.source.array { x = ndarray.zeros({ 512, size }, "uint8") }, batch_size = 64, num_workers = 1,
        transform = { x = { lua("traced", { dtype = "float32" }) } },
      }
      for _ = 1, 400 do loader() end -- 25,600 samples
      local traces = 0
      for _, name in ipairs(files.list(folder .. "/logs")) do
        local late = 0
        local log = files.slurp(folder .. "/logs/" .. name)
        for count, what in log:gmatch "(%d+) ([^\n]+)" do
          -- "leaving loop": tried again, from elsewhere; 0: while it is loaded
          assert.truthy(what == "start" or what == "stop" or what == "leaving loop in root trace" or count == "0", log)
          late = late + (tonumber(count) >= 6400 and what == "start" and 1 or 0)
          traces = traces + (what == "stop" and 1 or 0)
        end
        assert.is_true(late <= 2, log) -- a way that is seldom taken may become hot late: once
      end
      assert.is_true(traces >= 3)
      files.remove(folder .. "/logs")
    end
    package.path = path
    files.remove(folder)
  end)

  it("leaves memory as it is, also where the function makes garbage", function()
    local result = mpi.run {
      source = [[
        local shardrt = require "shardrt"
        local function resident()
          for line in io.lines "/proc/self/status" do
            local kilobytes = line:match "^VmRSS:%s*(%d+)"
            if kilobytes then return tonumber(kilobytes) end
          end
        end
        local loader = shardrt.loader {
          source = shardrt.source.array { x = shardrt.ndarray.zeros({ 512, 16 }, "uint8") }, batch_size = 128,
          num_workers = 2, prefetch = 2,
          transform = { x = { shardrt.transform.lua(function(sample)
            local t = {}
            for i = 0, sample.size - 1 do t[i] = tostring(sample.index + i) end
            for i = 0, sample.size - 1 do sample.out[i] = #t[i] end
          end) } },
        }
        for _ = 1, 300 do loader() end
        local before = resident()
        for _ = 1, 1500 do loader() end
        print(before, resident())]],
    }
    assert.equal(0, result.status, result.output)
    local before, after = result.stdout:match "(%d+)%s+(%d+)"
    -- Of 192,000 samples with 16 tables' entries and texts each: more than 100 MB of garbage.
    assert.is_true(tonumber(after) < 1.05 * tonumber(before) + 4096, result.stdout)
  end)

  it("is ended by an error where a worker's Lua state runs out of memory", function()
    if os.getenv "SHARDRT_SANITIZER" then return pending "sanitizers need more address space than a limit leaves" end
    local folder = files.folder()
    local recipe = files.write(folder, "recipe.lua", [[
      local shardrt = require "shardrt"
      local eats = shardrt.transform.lua(function()
        local t = {}
        while true do t[#t + 1] = ("x"):rep(2 ^ 22) .. #t end
      end)
      shardrt.source.array({ x = shardrt.ndarray.arange(4, "uint8") }):map({ x = { eats } }):read(0, 4)]])
    -- (GPUs have addresses of their own in a process.)
    local result = mpi.shell(("ulimit -v 1200000; %s --platform host %s"):format(mpi.program(), recipe))
    files.remove(folder)
    assert.not_equal(0, result.status)
    contains(result.stderr, 'recipe.lua:6: sample 0, field "x": transform.lua: a worker\'s Lua state is out of memory')
  end)

  it("gives every allocation back, whichever of them fails", function()
    local source = forty()
    local n = 0
    while true do
      n = n + 1
      C.shardrt_alloc_fail_at(n)
      local ok, message = pcall(function()
        return made(source, "x", function(sample) sample.out[0] = sample.data[3] end):to_table()
      end)
      C.shardrt_alloc_fail_at(0)
      if ok then
        assert.same({ 3, 0, 0, 0 }, message[1])
        break
      end
      contains(message, "out of memory")
    end
    assert.is_true(n > 10)
  end)
end)

describe("a predicate", function()
  it("is given what a field of no dimensions holds, and its outcome is what Lua takes for true", function()
    local predicate = require("shardrt.data.transform").predicate
    local keep = { [3] = true, [5] = 0 }
    local source = shardrt.source.array {
      x = ndarray.arange(8, "int64"), h = ndarray.arange(8, "float16"), y = ndarray.arange(16, "int8"):reshape { 8, 2 },
    }
    local read = source:map({
      x = { predicate("filter", function(x) return keep[x] end) },
      h = { predicate("filter", function(h) return h < 2.5 end) },
      y = { predicate("filter", function(y) return y.data[1] > 10 end) },
    }):read(0, 8)
    assert.same({ false, false, false, true, false, true, false, false }, read.x:to_table())
    assert.same({ true, true, true, false, false, false, false, false }, read.h:to_table())
    assert.same({ false, false, false, false, false, true, true, true }, read.y:to_table())
  end)
end)

describe("a function over batches", function()
  local function batches(f)
    local got = {}
    for batch in shardrt.loader { source = forty(), batch_size = 2, epochs = 1, batch_transform = f,
      sharding = shardrt.SingleDeviceSharding(0) } do
      got[#got + 1] = batch
    end
    return got
  end

  it("is called for each on its way to the recipe", function()
    local steps = 0
    local got = batches(function(batch)
      steps = steps + 1
      return { x = batch.x, first = shardrt.device_put(shardrt.device_get(batch.x):rows(0, 1), 0) }
    end)
    assert.equal(5, steps)
    assert.equal(5, #got)
    assert.same({ { 32, 33, 34, 35 } }, shardrt.device_get(got[5].first):to_table())
  end)

  it("is told of by step where it fails, or returns no batch", function()
    local count = 0
    local message = message_of(batches, function(batch)
      count = count + 1
      if count == 4 then error "no more" end
      return batch
    end)
    contains(message, "loader: batch_transform, in step 3 (from 0 on): ")
    assert.truthy(message:find "transform_lua_spec%.lua:%d+: no more$", message)
    for part, f in pairs {
      ["it returned nil; it returns the batch, a table of arrays"] = function() end,
      ["it returned an array; it returns the batch"] = function(batch) return batch.x end,
      ['a batch in which "x" is 3; it holds arrays'] = function() return { x = 3 } end,
      ["a batch in which 1 is Array(uint8"] = function(batch) return { batch.x } end,
      ["an error that is a table"] = function() error {} end,
    } do
      contains(message_of(batches, f), part)
    end
    contains(message_of(batches, 3), "batch_transform = 3; it is a function from one batch to another")
  end)
end)

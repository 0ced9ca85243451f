-- Filters by conditions, { ">=", 3 }: of any source they come to what a function comes to. Of Parquet files, statistics
-- spare reading: by files that pyarrow and Polars wrote (tests/files/parquet/make_statistics.py).

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"

local ROWS, FOLDER = 240, "tests/files/parquet/"
local SEED = require "tests.support.seed"
local RELATIONS = { "<", "<=", "==", "~=", ">=", ">" }
local HOLDS = {
  ["<"] = function(a, b) return a < b end, ["<="] = function(a, b) return a <= b end,
  ["=="] = function(a, b) return a == b end, ["~="] = function(a, b) return a ~= b end,
  [">="] = function(a, b) return a >= b end, [">"] = function(a, b) return a > b end,
}

-- What a field holds in each sample: numbers, booleans, or texts.
local function values_of(source, name)
  local field, values = source.fields[name], {}
  for i = 0, #source - 1 do
    local got = source:read(i, 1)[name]
    local value = got.dtype and got or got[1]
    if #field.shape > 0 then
      values[i + 1] = ffi.string(value.data, value.bytes)
    elseif field.dtype == "bool" then
      values[i + 1] = value.data[0] ~= 0 and value.data[0] ~= false
    elseif field.dtype == "float16" then
      values[i + 1] = C.shardrt_float16_to_double(ffi.cast("uint16_t *", value.data)[0])
    else
      values[i + 1] = value.data[0]
    end
  end
  return values
end

-- A condition of one to three parts, about one of the values; of whole numbers also halves beside them.
local function random_condition(values, dtype)
  local condition = {}
  for _ = 1, math.random(1, 3) do
    local value = values[math.random(#values)]
    local relation = RELATIONS[math.random(#RELATIONS)]
    if type(value) == "boolean" then
      relation = math.random() < 0.5 and "==" or "~="
    elseif type(value) == "string" then
      local cut = math.random(0, #value)
      value = math.random() < 0.5 and value or value:sub(1, cut) .. (math.random() < 0.5 and "\255" or "")
    elseif type(value) == "cdata" then
      value = value + math.random(-1, 1)
    elseif math.random() < 0.3 then
      value = value + math.random(-3, 3) / (dtype:find "float" and 8 or 1)
    end
    condition[#condition + 1], condition[#condition + 2] = relation, value
  end
  return condition
end

-- By comparing as Lua does; numbers of C are of one dtype.
local function holds(condition, value)
  for k = 1, #condition, 2 do
    if not HOLDS[condition[k]](value, condition[k + 1]) then return false end
  end
  return true
end

-- The same as a function of the recipe's own, as a filter takes it.
local function as_function(condition, dtype, ndim)
  local is_text, ctype = ndim > 0, dtype .. "_t"
  return function(value)
    local v = value
    if is_text then v = require("ffi").string(value.data, value.size) end
    if type(condition[2]) == "cdata" then v = require("ffi").new(ctype, value) end
    for k = 1, #condition, 2 do
      local relation, other = condition[k], condition[k + 1]
      local ok
      if relation == "<" then ok = v < other
      elseif relation == "<=" then ok = v <= other
      elseif relation == "==" then ok = v == other
      elseif relation == "~=" then ok = v ~= other
      elseif relation == ">=" then ok = v >= other
      else ok = v > other end
      if not ok then return false end
    end
    return true
  end
end

local function numbers_of(source)
  if #source == 0 then return {} end
  local got, numbers = source:read(0, #source).number, {}
  for i = 0, #source - 1 do numbers[i + 1] = tonumber(got.data[i]) end
  return numbers
end

local function show(condition)
  local words = {}
  for k, word in ipairs(condition) do words[k] = tostring(word) end
  return "{ " .. table.concat(words, ", ") .. " }"
end

-- That the condition lets through of `source`, which has a field "number" more, those whose values it holds for.
local function check(source, name, condition, values)
  local right, numbers = {}, source:read(0, #source).number.data
  for i, value in ipairs(values) do
    if holds(condition, value) then right[#right + 1] = tonumber(numbers[i - 1]) end
  end
  local filtered = source:filter { [name] = condition }
  assert.same(right, numbers_of(filtered), ("%s = %s, seed %d"):format(name, show(condition), SEED))
  return filtered, right
end

describe("a condition", function()
  it("holds for what it says, of every dtype", function()
    math.randomseed(SEED)
    local inf, nan = math.huge, 0 / 0
    local given = {
      int8 = { -128, -1, 0, 5, 127 }, int16 = { -32768, 0, 7, 32767 }, int32 = { -2 ^ 31, -1, 0, 2 ^ 31 - 1 },
      int64 = { -2 ^ 53, -1, 0, 3, 2 ^ 53 }, uint8 = { 0, 1, 255 }, uint16 = { 0, 9, 65535 },
      uint32 = { 0, 2 ^ 31, 2 ^ 32 - 1 }, uint64 = { 0, 1, 2 ^ 53 }, float16 = { -2, -0.0, 0, 0.5, nan, inf },
      bfloat16 = { -2, 0, 0.5, nan }, float32 = { -inf, -0.0, 0, 0.25, nan, 1e10 },
      float64 = { -inf, -1e300, -0.0, 0, nan, inf },
    }
    for dtype, values in pairs(given) do
      local source = shardrt.source.array { x = shardrt.ndarray.from_table(values, dtype) }:enumerate "number"
      for _ = 1, 12 do check(source, "x", random_condition(values, dtype), values) end
      for _, relation in ipairs(RELATIONS) do check(source, "x", { relation, nan }, values) end
    end
  end)

  it("compares whole numbers beyond 2^53, and with halves, exactly", function()
    local big = 2LL ^ 53
    local int64 = shardrt.source.array { x = shardrt.ndarray.from_table({ big, big + 1, big + 2, -big - 1 }, "int64") }
    local uint64 = shardrt.source.array { x = shardrt.ndarray.from_table({ 2 ^ 63, 5, 2 ^ 53 }, "uint64") }
    local function count(source, condition) return #source:filter { x = condition } end
    assert.equal(2, count(int64, { ">", 2 ^ 53 }))
    assert.equal(1, count(int64, { "==", big + 1 }))
    assert.equal(1, count(int64, { ">", big + 1 }))
    assert.equal(1, count(int64, { "<", -2 ^ 53 }))
    assert.equal(4, count(int64, { "<", 2 ^ 63, ">", -2 ^ 64 }))
    assert.equal(3, count(uint64, { ">=", -1LL }))
    assert.equal(1, count(uint64, { ">", 2 ^ 53 + 2, "=", 2ULL ^ 63 }))
    assert.equal(0, count(uint64, { "<", -0.5 }))
    assert.equal(3, count(uint64, { "!=", 5.5 }))
    assert.equal(1, count(uint64, { "<", 5.5 }))
    assert.equal(0, count(uint64, { "<=", 4.5 }))
  end)

  it("compares texts byte by byte, and bools", function()
    local texts = shardrt.source.array { x = { { 97, 98 }, { 97, 255 }, { 0, 0 } } }
      :map { x = { shardrt.transform.cast "uint8" } }
    local function count(condition) return #texts:filter { x = condition } end
    assert.equal(1, count { "==", "ab" })
    assert.equal(2, count { ">", "a" })
    assert.equal(1, count { ">", "ab\0" })
    assert.equal(1, count { "<", "\0\0\0", ">=", "\0\0" })
    local flags = shardrt.source.array { flag = shardrt.ndarray.from_table({ true, false, true }, "bool") }
    assert.equal(2, #flags:filter { flag = { "==", true } })
    assert.equal(1, #flags:filter { flag = { "~=", true } })
  end)

  it("is refused where it makes no sense", function()
    local source = shardrt.source.array { x = { 1, 2 }, pair = { { 1.5, 2 }, { 3, 4 } } }
    local function refused(fields, ...)
      local words, ok, message = { ... }, pcall(source.filter, source, fields)
      assert.is_false(ok)
      expect.contains(tostring(message), unpack(words))
    end
    refused({ x = { ">=" } }, 'field "x"', '{">=", 3}')
    refused({ x = { "=>", 3 } }, 'no relation "=>"', "< <= == ~= >= >")
    refused({ x = { ">=", {} } }, "a number, a text, true or false")
    refused({ x = { ">=", "3" } }, 'field "x"', "compares with texts", "compared with numbers")
    refused({ x = { ">=", 3, "<", "z" } }, "with numbers and with texts")
    refused({ x = { "==", true } }, "true or false")
    refused({ pair = { ">=", 3 } }, 'field "pair"', "one number, or a text")
    refused({ y = { ">=", 3 } }, '"y"')
    refused({ x = false }, '{">=", 3}', "function")
  end)
end)

describe("a condition on Parquet files", function()
  local folder
  before_each(function() folder = files.folder() end)
  after_each(function() files.remove(folder) end)

  local function copy(name)
    assert(os.execute(("cp %s%s.parquet %s/"):format(FOLDER, name, folder)) == 0)
    return ("%s/%s.parquet"):format(folder, name)
  end
  local function open(paths, fields, more)
    local options = { fields = fields, cache = folder .. "/cache" }
    for key, value in pairs(more or {}) do options[key] = value end
    return shardrt.source.parquet(paths, options)
  end
  local COLUMNS = { "n", "i8", "u16", "u32", "i64", "u64", "down", "f16", "f32", "nan", "f64", "bool", "text", "high",
    "fixed", "price", "day", "maybe", "maybe_text" }
  local FIELDS = { "n", "i8", "u16", "u32", "i64", "u64", "down", "f16", "f32", "nan", "f64", "bool", "text", "high",
    "fixed", "price", "day", maybe = { "int32", null = 100 }, maybe_text = { null = "k" } }

  for _, name in ipairs { "pages", "groups", "unsorted" } do
    it("lets the same rows through as a function, at random: " .. name, function()
      math.randomseed(SEED)
      local path, pruned = copy(name), 0
      for _, column in ipairs(COLUMNS) do
        local source = open(path, FIELDS[column] and { [column] = FIELDS[column] } or { column }):enumerate "number"
        local values, field = values_of(source, column), source.fields[column]
        for trial = 1, 10 do
          local condition = random_condition(values, field.dtype)
          local filtered, right = check(source, column, condition, values)
          assert.is_true(filtered.pruned + #filtered <= ROWS)
          pruned = pruned + filtered.pruned
          if trial == 1 then
            local slow = source:filter { [column] = as_function(condition, field.dtype, #field.shape) }
            assert.same(right, numbers_of(slow), column .. show(condition))
            assert.equal(0, slow.pruned)
          end
        end
      end
      assert.is_true(pruned > 1000, "statistics ruled out " .. pruned) -- of all trials
    end)
  end

  it("knows from statistics which rows it need not look at", function()
    local function pruned(source, fields) return source:filter(fields).pruned end
    local pages, groups = open(copy "pages", FIELDS), open(copy "groups", FIELDS)
    local unsorted = open(copy "unsorted", FIELDS)
    for column, condition in pairs { n = { ">=", 200 }, u16 = { ">=", 200 * 270 }, u64 = { ">=", 2ULL ^ 63 + 100 },
      i64 = { ">", 2LL ^ 53 + 66 }, down = { "<=", 40 ^ 3 - 1e6 }, text = { ">=", "u" }, price = { ">=", 16 },
      day = { ">=", 600 }, f16 = { ">=", 50 }, fixed = { ">=", "\25" } } do
      assert.equal(200, pruned(pages, { [column] = condition }), column)
      assert.equal(160, pruned(groups, { [column] = condition }), column)
    end
    assert.equal(60, pruned(unsorted, { n = { ">=", 60 } }))
    assert.equal(180, pruned(unsorted, { n = { "<", 60 } }))
    assert.equal(ROWS, pruned(pages, { n = { "<", 0 } }))
    assert.equal(ROWS - 10, pruned(pages, { n = { "==", 77 } }))
    assert.equal(ROWS - 20, pruned(pages, { n = { ">=", 65, "<", 80 } }))
    assert.equal(ROWS - 10, pruned(pages, { n = { ">=", 60 }, text = { "<", "h" } })) -- each rules out its own
    assert.equal(0, pruned(pages, { n = { "~=", 3 } }))
    assert.equal(120, pruned(groups, { bool = { "==", true } }) + 120) -- each row group has both
    assert.equal(120, pruned(pages, { bool = { "==", true } }))
    -- NaN: none counts but for ~=, and no bounds tell of it.
    assert.equal(0, pruned(pages, { f32 = { "~=", -20 } }))
    assert.equal(0, pruned(pages, { nan = { "~=", 0 } }))
    -- A null counts as its value does; without one it is an error, unless such rows are left out.
    assert.equal(0, pruned(open(copy "pages", { "n" }), { n = { "<", 500 } }))
    assert.is_true(pruned(open(copy "pages", { maybe = { null = 0 } }), { maybe = { ">=", 200 } }) > 100)
    assert.equal(0, pruned(open(copy "pages", { maybe = { null = 1000 } }), { maybe = { ">=", 500 } }))
    local ok, message = pcall(pruned, open(copy "pages", { "maybe" }), { maybe = { ">=", 500 } })
    assert.is_false(ok)
    expect.contains(message, 'column "maybe", row 0', "it is null")
    local left = open(copy "pages", { "maybe" }, { nulls = "skip" })
    assert.equal(#left, pruned(left, { maybe = { ">=", 500 } }))
    -- Bytes that are read as other elements have another order; lists have none.
    assert.equal(0, pruned(open(copy "pages", { high = { "uint8", { -1 } } }), { high = { ">=", "" } }))
  end)

  it("reads nothing of pages that statistics rule out", function()
    local path = copy "pages"
    local data = files.slurp(path)
    local function at(first) -- the page of `n` that begins with this row
      local rows = ffi.new("int32_t[4]", first, first + 1, first + 2, first + 3)
      return assert(data:find(ffi.string(rows, 16), 1, true))
    end
    -- All of the first two row groups, and the third one's pages of `n` up to row 190.
    local third, last = at(160), at(200)
    local damaged = data:sub(1, 4) .. ("\170"):rep(third - 400 - 5) .. data:sub(third - 400, third - 1)
      .. ("\170"):rep(last - 70 - third) .. data:sub(last - 70)
    assert.equal(#data, #damaged)
    files.write(folder, "pages.parquet", damaged)
    local source = open(path, { "n", "text" })
    local filtered = source:filter { n = { ">=", 200 }, text = function(text) return text.data[0] > 0 end }
    assert.equal(40, #filtered)
    for i = 0, 39 do assert.equal(200 + i, tonumber(filtered:read(i, 1).n.data[0])) end
    local ok, message = pcall(source.filter, source, { n = function(n) return n >= 200 end })
    assert.is_false(ok)
    expect.contains(message, path, 'column "n"')
    assert.is_false((pcall(source.filter, source, { n = { ">=", 199 } }))) -- a page of row 190 to 199 is needed
  end)

  it("is the same of several files, shards, filters, and in several processes", function()
    local paths = { copy "pages", copy "groups", copy "unsorted" }
    local source = open(paths, { "n", "down", "text" }):enumerate "number"
    local values = values_of(source, "n")
    assert.equal(200 + 160 + 60, (check(source, "n", { ">=", 200 }, values)).pruned)
    local sharded = source:shard(3, 1)
    local some = values_of(sharded, "n")
    assert.is_true((check(sharded, "n", { ">=", 200 }, some)).pruned >= 130)
    local twice = source:filter { down = { "<", 0 } }
    assert.is_true((check(twice, "n", { ">=", 200 }, values_of(twice, "n"))).pruned > 50)
    local mapped = source:map { text = false }
    assert.is_true(mapped:filter { n = { ">=", 200 } }.pruned == 420)
    assert.equal(0, mapped:map { n = { shardrt.transform.cast "float32" } }:filter { n = { ">=", 200 } }.pruned)
    local result = mpi.run { processes = 2, devices = 1, source = ([[
      local shardrt = require "shardrt"
      local source = shardrt.source.parquet({ %q, %q }, { fields = { "n", "text" }, cache = %q })
      local count, sum, loader = 0, 0, shardrt.loader { source = source, batch_size = 2, epochs = 1,
        shuffle = "blocks", seed = 3, transform = { text = false },
        filter = { n = { ">=", 200, "<", 230 }, text = { "<", "v9" } } }
      for batch in loader do
        for _, shard in ipairs(batch.n.addressable_shards) do
          for i = 0, shard.data.shape[1] - 1 do count, sum = count + 1, sum + shard.data.data[i] end
        end
      end
      print(("process %%d: %%d %%d %%d"):format(shardrt.process_index(), count, sum, #source))]])
      :format(paths[1], paths[2], folder .. "/cache") }
    assert.equal(0, result.status, result.output)
    local count, sum = 0, 0
    for n, s in result.stdout:gmatch "process %d: (%d+) (%d+)" do count, sum = count + n, sum + s end
    assert.equal(40, count) -- texts "u200" to "v219"
    assert.equal(2 * (200 + 219) * 10, sum)
    local plan = mpi.shell(("%s plan %s"):format(mpi.program(), files.write(folder, "plan.lua", ([[
      local shardrt = require "shardrt"
      local source = shardrt.source.parquet(%q, { fields = { "n" }, cache = %q }):filter { n = { ">=", 200 } }
      shardrt.loader { source = source, batch_size = 8, epochs = 1 }]]):format(paths[1], folder .. "/cache"))))
    assert.equal(0, plan.status, plan.output)
    expect.contains(plan.output, "statistics in the files rule out 200 samples")
  end)

  it("finds damage in statistics, and works or fails wherever memory runs out", function()
    local path = copy "pages"
    local source = open(path, { "n", "text" })
    no_memory.each(function() source:filter { n = { ">=", 200 }, text = { ">", "a" } } end)
    math.randomseed(SEED)
    local data = files.slurp(path)
    for round = 1, 25 do -- in the indexes and the footer, which are the last third
      local at = math.random(math.floor(#data * 0.6), #data)
      local flipped = data:sub(1, at - 1) .. string.char((data:byte(at) + math.random(255)) % 256) .. data:sub(at + 1)
      local bad = files.write(folder, ("flip-%d.parquet"):format(round), flipped)
      local ok, message = pcall(function()
        return #open(bad, { "n", "text" }):filter { n = { ">=", 200 }, text = { ">", "a" } }
      end)
      assert.is_true(ok or message:find(bad, 1, true) ~= nil or message:find("have no field", 1, true) ~= nil, message)
    end
  end)
end)

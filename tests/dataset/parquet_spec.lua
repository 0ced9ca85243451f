-- Parquet files that pyarrow, DuckDB and Polars wrote (tests/files/parquet/make.py): every column by all codecs and
-- encodings, in order and at random; nulls; many processes; what is refused, cut, and out of memory.

local bit = require "bit"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"
local tables = require "tests.support.dataset.tables"

local SEED = require "tests.support.seed"
local FOLDER, ROWS, host_bytes, read_one = "tests/files/parquet/", tables.ROWS, tables.host_bytes, tables.read_one
local refuses, text = tables.refuses, tables.text

-- What the script writes beside the columns that Arrow has, too.
local columns = { few = { "int64", tables.scalar("int64_t", function(i) return math.floor(i / 9) % 3 * 1000 end) } }
for name, column in pairs(tables.columns) do columns[name] = column end
local SIMPLE = { "i32", "i64", "f32", "f64", "bool", "text", "class", "maybe", "maybe_text", "list", "price",
  "image.bytes", "image.width" }

describe("Parquet files", function()
  local folder, o
  before_each(function()
    folder = files.folder()
    o = { cache = folder .. "/cache" }
  end)
  after_each(function() files.remove(folder) end)

  -- A file in the folder, where indexes are written.
  local function copy(name)
    assert(os.execute(("cp %s%s.parquet %s/"):format(FOLDER, name, folder)) == 0)
    return ("%s/%s.parquet"):format(folder, name)
  end
  local function open(path, fields, more)
    local options = { fields = fields, cache = o.cache }
    for key, value in pairs(more or {}) do options[key] = value end
    return shardrt.source.parquet(path, options)
  end

  local function check_columns(path, names) tables.check(open, path, columns, names) end

  for _, name in ipairs { "plain", "dictionary", "fallback", "delta", "split", "lz4" } do
    it("have every row of every column, in order and at random: " .. name, function()
      local names = {}
      for column in pairs(columns) do names[#names + 1] = column end
      check_columns(copy(name), names)
      -- Where pages are, dictionary and delta say themselves; of the others the side-car does.
      local found = table.concat(files.list(folder), " "):find("parquet.shardrt-index", 1, true) ~= nil
      if name ~= "dictionary" and name ~= "delta" then assert.is_true(found) end
    end)
  end

  it("of DuckDB and Polars have every row of every column", function()
    check_columns(copy "duckdb", SIMPLE)
    check_columns(copy "polars", SIMPLE)
  end)

  it("have old timestamps as nanoseconds since 1970", function()
    local source = open(copy "int96", { "time" })
    for i = 0, ROWS - 1, 7 do
      assert.equal(host_bytes("int64_t", { (10LL ^ 12 + i) * 1000 }), read_one(source, "time", i))
    end
  end)

  it("read columns as another dtype that holds them, and refuse what it does not", function()
    local path = copy "delta"
    local source = open(path, { i8 = "int64", u16 = "uint32", f16 = "float32", f32 = "float64", few = "int16",
      triple = { "float32", { 3 } }, fixed = { "uint16", { 2 } }, day = "uint8" })
    for i = 0, ROWS - 1, 11 do
      local row = source:read(i, 1)
      assert.equal(i - 60, tonumber(row.i8.data[0]))
      assert.equal(i * 500, tonumber(row.u16.data[0]))
      assert.equal(i / 4, row.f16.data[0])
      assert.equal(i / 8, row.f32.data[0])
      assert.equal(columns.few[2](i), host_bytes("int64_t", { tonumber(row.few.data[0]) }))
      assert.same({ 1, 3 }, row.triple.shape)
      assert.equal(i / 8, row.triple.data[2])
      assert.equal(2 + i % 7 * 256, tonumber(row.fixed.data[1]))
      assert.equal(i, tonumber(row.day.data[0]))
    end
    refuses(function() open(path, { i8 = "uint8" }):read(0, 1) end, '"i8"', "holds -60, which is no uint8",
      "page at byte")
    refuses(function() open(path, { u16 = "int8" }):read(0, ROWS) end, "which is no int8")
    refuses(function() open(path, { f64 = "float32" }) end, '"f64" is float64, not float32', "transform.cast")
    refuses(function() open(path, { class = "int32" }) end, '"class" is text')
    refuses(function() open(path, { list = { "int32", { 2 } } }):read(0, 1) end, "row 0", "0 elements")
    refuses(function() open(path, { triple = { "float32", { 3, 1 } } }) end, '"triple" has the shape {-1}')
    refuses(function() open(path, { "image" }) end, "image.bytes")
    refuses(function() open(path, { "clas" }) end, "class")
  end)

  it("give nulls a value where one is told, also in lists", function()
    for _, name in ipairs { "delta", "fallback" } do tables.check_nulls(open, copy(name)) end
    local path = copy "delta"
    assert.is_true(open(path, { bool = { "bool", null = false } }):read(0, 1).bool.data[0]) -- which is a value, too
    assert.equal(ROWS, #open(path, { maybe_text = { null = "" }, bool = { null = false } }, { nulls = "skip" }))
    refuses(function() open(path, { maybe = { null = false } }) end, '"maybe": null = false is no int32')
    refuses(function() open(path, { maybe = { "int32", null = 1.5 } }) end, '"maybe": null = 1.5 is no int32')
    refuses(function() open(path, { maybe = { "int32", null = {} } }) end, "fields.maybe: null is a number")
    refuses(function() open(path, { "maybe" }, { nulls = "skp" }) end, 'nulls = "skp"', '"skip"')
    refuses(function() shardrt.source.csv("x", { fields = { a = { "int32", null = 1 } } }) end, "source.parquet")
  end)

  it("leave out rows with nulls, alike in every process", function()
    local path = copy "delta"
    local left = tables.left()
    local source = open(path, { "maybe", "maybe_list", "day", maybe_text = { null = "" } }, { nulls = "skip" })
    assert.equal(#left, #source)
    for k, i in ipairs(left) do assert.equal(i, source:read(k - 1, 1).day.data[0]) end
    local result = mpi.run { processes = 2, devices = 2, source = ([[
      local shardrt = require "shardrt"
      local source = shardrt.source.parquet(%q, { fields = { "maybe", "day" }, nulls = "skip", cache = %q })
      local loader = shardrt.loader { source = source, batch_size = 8, shuffle = true, seed = 5, epochs = 1 }
      local sum, count = 0, 0
      for batch in loader do
        for _, shard in ipairs(batch.day.addressable_shards) do
          for i = 0, shard.data.shape[1] - 1 do sum, count = sum + shard.data.data[i], count + 1 end
        end
      end
      print(("process %%d: %%d %%d"):format(shardrt.process_index(), count, sum))]]):format(path, o.cache) }
    assert.equal(0, result.status, result.output)
    local count, sum = 0, 0
    for n, s in result.stdout:gmatch "process %d: (%d+) (%d+)" do count, sum = count + n, sum + s end
    local right = 0
    for i = 0, ROWS - 1 do right = right + (i % 5 > 0 and i or 0) end
    assert.equal(96, count)
    assert.equal(right, sum)
  end)

  it("are one source where they are several", function()
    local paths = { copy "plain", copy "delta", copy "lz4" }
    local source = open(paths, { "i64", "text" })
    assert.equal(3 * ROWS, #source)
    for _, i in ipairs { 0, ROWS - 1, ROWS, 2 * ROWS + 3, 3 * ROWS - 1 } do
      assert.equal(text(i % ROWS), read_one(source, "text", i))
      assert.equal(columns.i64[2](i % ROWS), read_one(source, "i64", i))
    end
  end)

  it("refuse by name what they do not read", function()
    local path = copy "refused"
    refuses(function() open(path, { "nested" }) end, '"nested" is a list of lists')
    refuses(function() open(path, { "words" }) end, '"words" is a list of texts')
    refuses(function() open(path) end, "`fields` can name the others")
    assert.equal(2, tonumber(open(path, { "x" }):read(1, 1).x.data[0]))
    refuses(function() open(path, { "wide" }):read(0, 3) end, '"wide"', "more digits than a float64")
    local whole = files.slurp(path)
    local function refused(data, ...)
      local words = { ... }
      refuses(function() open(files.write(folder, "bad.parquet", data), { "x" }):read(0, 3) end, "bad.parquet",
        unpack(words))
    end
    refused(whole:sub(1, -5) .. "PARE", "encrypted")
    refused(whole:sub(1, -2), "cut off")
    refused("PAR1" .. whole:sub(1, -2), "PAR1")
    refused("x" .. whole:sub(2), "does not begin with PAR1")
    refused(("\0"):rep(5), "5 bytes")
    refused(whole:sub(1, -9) .. "\255\255\255\127PAR1", "footer of 2147483647 bytes")
  end)

  it("that are cut or have flipped bits are read, or refused by their name, and nothing else", function()
    math.randomseed(SEED)
    for round = 1, 60 do
      local name = ({ "plain", "dictionary", "delta" })[round % 3 + 1]
      local data = files.slurp(FOLDER .. name .. ".parquet")
      for _ = 1, math.random(1, 3) do
        local at = math.random(1, #data)
        data = data:sub(1, at - 1) .. string.char(bit.bxor(data:byte(at), 2 ^ math.random(0, 7))) .. data:sub(at + 1)
      end
      if round % 7 == 0 then data = data:sub(1, math.random(1, #data)) end
      local path = files.write(folder, ("flip-%d.parquet"):format(round), data)
      local ok, message = pcall(function()
        local source = open(path, { "i32", "text", "list", "f32" })
        source:read(0, #source)
      end)
      local named = ok or message:find(path, 1, true) or message:find("the files have no field", 1, true)
      assert.is_true(named ~= nil, message)
      os.remove(path)
      os.remove(path .. ".shardrt-index")
    end
  end)

  it("find a damaged page by its own checksum, and name it", function()
    local path = copy "plain"
    local data = files.slurp(path)
    local at = assert(data:find("row 33 ", 1, true))
    files.write(folder, "plain.parquet", data:sub(1, at - 1) .. "RoW" .. data:sub(at + 3))
    local source = open(path, { "text" })
    assert.equal(text(0), read_one(source, "text", 0))
    refuses(function() source:read(33, 1) end, path, 'column "text", page at byte', "CRC-32")
    assert.equal("RoW", read_one(open(path, { "text" }, { verify = false }), "text", 33):sub(1, 3))
    local skipping = open(path, { "text" }, { on_bad_record = "skip" })
    assert.is_true(#skipping < ROWS and #skipping >= ROWS - 50)
  end)

  it("are refused or read when memory runs out anywhere", function()
    local path = copy "dictionary"
    open(path, { "i32" }):read(0, 1) -- its index is there
    no_memory.each(function()
      local source = open(path, { "i32", "text", "list", maybe = { "int32", null = 1 } })
      source:read(40, 2)
    end)
  end)
end)

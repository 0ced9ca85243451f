-- Arrow files and streams that pyarrow wrote, and folders that datasets did (tests/files/arrow/make.py): every column
-- by all codecs, in order and at random; dictionaries; nulls; what is refused, cut, and out of memory.

local bit = require "bit"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"
local tables = require "tests.support.dataset.tables"

local SEED = require "tests.support.seed"
local FOLDER, ROWS, read_one = "tests/files/arrow/", tables.ROWS, tables.read_one
local refuses, text = tables.refuses, tables.text

-- What the script writes beside the columns that Parquet has, too.
local columns = { large = { "uint8", text }, view = { "uint8", text }, list_view = { "int32", tables.list } }
for name, column in pairs(tables.columns) do columns[name] = column end
local FEW = { "i8", "bool", "text", "view", "class", "maybe", "maybe_text", "list", "triple", "price", "image.width" }

describe("Arrow files", function()
  local folder, o
  before_each(function()
    folder = files.folder()
    o = { cache = folder .. "/cache" }
  end)
  after_each(function() files.remove(folder) end)

  -- A file in the folder, where checksums are written.
  local function copy(name)
    assert(os.execute(("cp -r %s%s %s/"):format(FOLDER, name, folder)) == 0)
    return ("%s/%s"):format(folder, name)
  end
  local function open(path, fields, more)
    local options = { fields = fields, cache = o.cache }
    for key, value in pairs(more or {}) do options[key] = value end
    return shardrt.source.arrow(path, options)
  end

  local function check_columns(path, names) tables.check(open, path, columns, names) end

  it("have every row of every column", function()
    local all = {}
    for name in pairs(columns) do all[#all + 1] = name end
    check_columns(copy "plain.arrow", all)
    check_columns(copy "lz4.arrow", all)
    check_columns(copy "zstd.arrows", all)
  end)

  it("have them with metadata of version 4, and with dictionaries that grow or are replaced", function()
    check_columns(copy "old.arrows", FEW)
    check_columns(copy "delta.arrow", { "class", "i64" })
    check_columns(copy "delta.arrows", { "class", "maybe_list" })
  end)

  it("read columns as another dtype that holds them, and refuse what it does not", function()
    local path = copy "plain.arrow"
    local source = open(path, { i8 = "int64", u16 = "uint32", f16 = "float32", f32 = "float64", i64 = "uint64",
      triple = { "float32", { 3 } }, fixed = { "uint16", { 2 } }, day = "uint8", u32 = "int64" })
    for i = 1, ROWS - 1, 11 do
      local row = source:read(i, 1)
      assert.equal(i - 60, tonumber(row.i8.data[0]))
      assert.equal(i * 500, tonumber(row.u16.data[0]))
      assert.equal(i * 35000000, tonumber(row.u32.data[0]))
      assert.equal(i / 4, row.f16.data[0])
      assert.equal(i / 8, row.f32.data[0])
      assert.equal(i * 2 ^ 33 - 5, tonumber(row.i64.data[0]))
      assert.same({ 1, 3 }, row.triple.shape)
      assert.equal(2 + i % 7 * 256, tonumber(row.fixed.data[1]))
      assert.equal(i, tonumber(row.day.data[0]))
    end
    refuses(function() source:read(0, 1) end, path, '"i64"', "holds -5, which is no uint64")
    refuses(function() open(path, { i8 = "uint8" }):read(0, 1) end, path, '"i8"', "holds -60, which is no uint8",
      "message at byte")
    refuses(function() open(path, { u16 = "int8" }):read(0, ROWS) end, "which is no int8")
    refuses(function() open(path, { f64 = "float32" }) end, '"f64" is float64, not float32', "transform.cast")
    refuses(function() open(path, { class = "int32" }) end, '"class" is text')
    refuses(function() open(path, { list = { "int32", { 2 } } }):read(0, 1) end, "row 0", "0 elements")
    refuses(function() open(path, { triple = { "float32", { 2 } } }) end, '"triple" has the shape {3}')
    assert.same({ 1, 3, 1 }, open(path, { triple = { "float32", { 3, 1 } } }):read(0, 1).triple.shape)
    refuses(function() open(path, { "image" }) end, "image.bytes")
    refuses(function() open(path, { "clas" }) end, "class")
  end)

  it("give nulls a value where one is told, also in lists", function()
    for _, name in ipairs { "plain.arrow", "zstd.arrows" } do tables.check_nulls(open, copy(name)) end
    local path = copy "small/plain.arrow":gsub("small/", "")
    local left = open(path, { "x", ["s.v"] = { "int32", null = 5 } }, { nulls = "skip" })
    assert.equal(2, #left)
    assert.equal(3, tonumber(left:read(1, 1).x.data[0]))
    assert.equal(5, open(path, { ["s.v"] = { "int32", null = 5 } }):read(1, 1)["s.v"].data[0]) -- of a null structure
    refuses(function() open(path, { "s.v" }):read(0, 3) end, path, 'column "s.v", row 1')
    refuses(function() open(path, { "x" }, { nulls = "skp" }) end, 'nulls = "skp"', '"skip"')
  end)

  it("leave out rows with nulls, and are the blocks of an order where they are compressed", function()
    local path, plain = copy "zstd.arrows", copy "plain.arrow"
    local left = tables.left()
    for _, from in ipairs { path, plain } do
      local source = open(from, { "maybe", "maybe_list", "day", maybe_text = { null = "" } }, { nulls = "skip" })
      assert.equal(#left, #source)
      for k, i in ipairs(left) do assert.equal(i, source:read(k - 1, 1).day.data[0]) end
    end
    local result = mpi.run { processes = 2, devices = 2, source = ([[
      local shardrt = require "shardrt"
      local source = shardrt.source.arrow(%q, { fields = { "i64", "day" }, cache = %q })
      local loader = shardrt.loader {
        source = source, batch_size = 8, shuffle = "blocks", window = 2, seed = 5, epochs = 1,
      }
      local sum, count = 0, 0
      for batch in loader do
        for _, shard in ipairs(batch.day.addressable_shards) do
          for i = 0, shard.data.shape[1] - 1 do sum, count = sum + shard.data.data[i], count + 1 end
        end
      end
      local stats = loader:stats()
      print(("process %%d: %%d %%d of %%d, %%d"):format(shardrt.process_index(), count, sum, stats.blocks,
        stats.blocks_decoded))]]):format(path, o.cache) }
    assert.equal(0, result.status, result.output)
    local count, sum, decoded = 0, 0, 0
    for n, s, all, own in result.stdout:gmatch "process %d: (%d+) (%d+) of (%d+), (%d+)" do
      count, sum, decoded = count + n, sum + s, decoded + own
      assert.equal("3", all)
    end
    assert.equal(ROWS, count)
    assert.equal(ROWS * (ROWS - 1) / 2, sum)
    assert.is_true(decoded >= 3 and decoded <= 6, tostring(decoded)) -- at a border, both processes decode one
  end)

  it("are one source where they are several, and where datasets saved them", function()
    local source = open({ copy "plain.arrow", copy "zstd.arrows", copy "lz4.arrow" }, { "i64", "text" })
    assert.equal(3 * ROWS, #source)
    for _, i in ipairs { 0, ROWS - 1, ROWS, 2 * ROWS + 3, 3 * ROWS - 1 } do
      assert.equal(text(i % ROWS), read_one(source, "text", i))
      assert.equal(columns.i64[2](i % ROWS), read_one(source, "i64", i))
    end
    local saved = copy "saved"
    local train, test = open(saved .. "/train"), open(saved .. "/test/", { "x", "text" })
    assert.equal(50, #train)
    assert.same({ 2 }, train.fields.embedding.shape)
    for i = 0, 49 do
      assert.equal(i * 3, tonumber(train:read(i, 1).x.data[0]))
      assert.equal(text(i), read_one(train, "text", i))
      assert.equal(i + 0.5, train:read(i, 1).embedding.data[1])
    end
    assert.equal(10, #test)
    for i = 0, 9 do assert.equal(text(9 - i), read_one(test, "text", i)) end
    refuses(function() open(saved) end, saved, "DatasetDict of 2 splits", '"train", "test"', "/train")
    refuses(function() open(folder) end, folder, "state.json", "*.arrow")
    files.write(saved .. "/test", "state.json", '{"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}')
    refuses(function() open(saved .. "/test") end, "flatten_indices")
    files.write(saved .. "/test", "state.json", '{"_data_files": [{"filename": "../train/data-00000-of-00002.arrow"}]}')
    refuses(function() open(saved .. "/test") end, "state.json", "no name of a file in its folder")
  end)

  it("refuse by name what they do not read", function()
    local path = copy "refused.arrow"
    refuses(function() open(path, { "nested" }) end, path, '"nested" is a list of lists')
    refuses(function() open(path, { "words" }) end, '"words" is a list of texts')
    refuses(function() open(path, { "runs.values" }) end, "run-end encoded", "`fields` can name the others")
    refuses(function() open(path, { "union.0" }) end, "of unions")
    refuses(function() open(path) end, "`fields` can name the others")
    assert.equal(2, tonumber(open(path, { "x" }):read(1, 1).x.data[0]))
    assert.equal(6, tonumber(open(path, { "y" }):read(2, 1).y.data[0])) -- which lies behind all of those
    refuses(function() open(path, { "wide" }):read(0, 3) end, '"wide"', "more digits than a float64")
    local whole, stream = files.slurp(path), files.slurp(FOLDER .. "small/plain.arrows")
    local function refused(data, ...)
      local words = { ... }
      refuses(function() open(files.write(folder, "bad.arrow", data), { "x" }):read(0, 3) end, "bad.arrow",
        unpack(words))
    end
    refused(whole:sub(1, -2), "cut off")
    refused("ARROW1\0\0", "cut off")
    refused(whole:sub(1, -11) .. "\255\255\255\127ARROW1", "cut off")
    refused("x" .. whole:sub(2), "no Arrow file")
    refused("", "0 bytes")
    refused("FEA1" .. whole, "Feather file of version 1", "pyarrow.feather")
    refused("PAR1\21\4" .. whole, "a Parquet file", "source.parquet")
    refused(stream:sub(1, -9), "without a stream's end")
    refused(stream:sub(1, -30), "cut off")
    refused(stream .. stream, "several streams")
  end)

  it("that are cut or have flipped bits are read, or refused by their name, and nothing else", function()
    math.randomseed(SEED)
    for round = 1, 60 do
      local name = ({ "plain.arrow", "zstd.arrows", "delta.arrow" })[round % 3 + 1]
      local data = files.slurp(FOLDER .. name)
      for _ = 1, math.random(1, 3) do
        local at = math.random(1, 2) == 1 and math.random(1, #data) or math.random(1, 4000)
        data = data:sub(1, at - 1) .. string.char(bit.bxor(data:byte(at), 2 ^ math.random(0, 7))) .. data:sub(at + 1)
      end
      if round % 7 == 0 then data = data:sub(1, math.random(1, #data)) end
      local path = files.write(folder, ("flip-%d.arrow"):format(round), data)
      local ok, message = pcall(function()
        local source = open(path, { "i32", "text", "list", "f32", "class", "view" })
        source:read(0, #source)
      end)
      local named = ok or message:find(path, 1, true) or message:find("the files have no field", 1, true)
      assert.is_true(named ~= nil, message)
      os.remove(path)
    end
  end)

  it("are refused or read when memory runs out anywhere", function()
    local path = copy "delta.arrow"
    no_memory.each(function()
      local source = open(path, { "i32", "class", "list", "view", maybe = { "int32", null = 1 } })
      source:read(10, 8)
    end)

  end)
end)

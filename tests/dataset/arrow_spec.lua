-- Arrow files and streams that pyarrow wrote, and folders that datasets did (tests/files/arrow/make.py): every column
-- by all codecs, in order and at random; dictionaries; nulls; what is refused, cut, and out of memory.

local bit = require "bit"
local ffi = require "ffi"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"

local ROWS, FOLDER = 120, "tests/files/arrow/"
local SEED = require "tests.support.seed"

local function host_bytes(ctype, values)
  local array = ffi.new(ctype .. "[?]", math.max(#values, 1), values)
  return ffi.string(array, #values * ffi.sizeof(ctype))
end

-- That f raises a message with all of these words.
local function refuses(f, ...)
  local ok, message = pcall(f)
  assert(not ok, "was not refused: " .. table.concat({ ... }, ", "))
  expect.contains(tostring(message), ...)
end

local function text(i) return ("row %d %s"):format(i, ("é"):rep(i % 11)) end
local function class(i) return ({ "cat", "dog", "", "żółw" })[math.floor(i / 7) % 4 + 1] end

-- What the script writes: of each column its dtype, and row i as bytes; nil where it is null.
local function scalar(ctype, of) return function(i) return host_bytes(ctype, { of(i) }) end end
local function list(i)
  local values = {}
  for k = 0, i % 4 - 1 do values[k + 1] = i + k end
  return host_bytes("int32_t", values)
end
local columns = {
  i8 = { "int8", scalar("int8_t", function(i) return i - 60 end) },
  u16 = { "uint16", scalar("uint16_t", function(i) return i * 500 end) },
  i32 = { "int32", scalar("int32_t", function(i) return i * 7919 % 1000 - 500 end) },
  u32 = { "uint32", scalar("uint32_t", function(i) return i * 35000000 end) },
  i64 = { "int64", scalar("int64_t", function(i) return i * 2LL ^ 33 - 5 end) },
  f16 = { "float16", function(i)
    return ffi.string(shardrt.ndarray.from_table({ i / 4 }, "float16").data, 2)
  end },
  f32 = { "float32", scalar("float", function(i) return i / 8 end) },
  f64 = { "float64", scalar("double", function(i) return i / 64 end) },
  bool = { "bool", scalar("uint8_t", function(i) return i % 3 == 0 and 1 or 0 end) },
  text = { "uint8", text }, large = { "uint8", text }, view = { "uint8", text }, class = { "uint8", class },
  fixed = { "uint8", function(i) return string.char(i, 1, 2, i % 7) end },
  time = { "int64", scalar("int64_t", function(i) return 10LL ^ 12 + i end) },
  day = { "int32", scalar("int32_t", function(i) return i end) },
  price = { "float64", scalar("double", function(i) return (i * 125 - 1000) / 1000 end) },
  maybe = { "int32", function(i) return i % 5 > 0 and host_bytes("int32_t", { i }) or nil end },
  maybe_text = { "uint8", function(i) return i % 7 > 0 and text(i) or nil end },
  ["image.bytes"] = { "uint8", text },
  ["image.width"] = { "int32", scalar("int32_t", function(i) return i end) },
  list = { "int32", list }, list_view = { "int32", list },
  maybe_list = { "int16", function(i)
    if i % 6 == 0 or (i % 10 == 1 and i % 3 > 0) then return nil end
    local values = {}
    for k = 1, i % 3 do values[k] = i end
    return host_bytes("int16_t", values)
  end },
  triple = { "float32", function(i) return host_bytes("float", { i / 2, i / 4, i / 8 }) end },
}
local FEW = { "i8", "bool", "text", "view", "class", "maybe", "maybe_text", "list", "triple", "price", "image.width" }

-- A sample of one field, as bytes.
local function read_one(source, name, i)
  local got = source:read(i, 1)[name]
  local value = got.dtype and got or got[1]
  return ffi.string(value.data, value.bytes)
end

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

  local function check_columns(path, names)
    math.randomseed(SEED)
    for _, name in ipairs(names) do
      local dtype, of = unpack(columns[name])
      local source = open(path, { name })
      local rows, complete = {}, true
      assert.equal(ROWS, #source)
      assert.equal(dtype, source.fields[name].dtype, name)
      for k = 0, ROWS + 39 do
        local i = k < ROWS and k or math.random(0, ROWS - 1)
        local right = of(i)
        rows[i + 1], complete = right or "", complete and right ~= nil
        if right then
          assert.equal(right, read_one(source, name, i), ("%s, row %d of %s"):format(name, i, path))
        else
          refuses(function() source:read(i, 1) end, path, ('column "%s", row %d'):format(name, i), "null = ")
        end
      end
      if complete and source.fields[name].shape[1] ~= -1 then -- all at once, over all record batches
        local all = source:read(0, ROWS)[name]
        assert.equal(table.concat(rows), ffi.string(all.data, all.bytes), name .. " of " .. path)
      end
    end
  end

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
    for _, name in ipairs { "plain.arrow", "zstd.arrows" } do
      local source = open(copy(name), { maybe = { "int64", null = -7 }, maybe_text = { null = "none" },
        maybe_list = { "int16", null = 9 } })
      for i = 0, ROWS - 1 do
        local row = source:read(i, 1)
        local values = {}
        for k = 1, i % 6 == 0 and 0 or i % 3 do values[k] = i % 10 == 1 and 9 or i end
        assert.equal(i % 5 == 0 and -7 or i, tonumber(row.maybe.data[0]))
        assert.equal(i % 7 == 0 and "none" or text(i), ffi.string(row.maybe_text[1].data, row.maybe_text[1].bytes))
        assert.equal(host_bytes("int16_t", values), ffi.string(row.maybe_list[1].data, row.maybe_list[1].bytes))
      end
    end
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
    local left = {}
    for i = 0, ROWS - 1 do
      if columns.maybe[2](i) and columns.maybe_list[2](i) then left[#left + 1] = i end
    end
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

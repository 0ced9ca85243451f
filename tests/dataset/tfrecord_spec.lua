-- TFRecord files: as tensorflow and the package tfrecord write them (tests/files/records, made by records.py),
-- malformed, damaged and cut.

local ffi = require "ffi"
local files = require "tests.support.files"
local shardrt = require "shardrt"

pcall(ffi.cdef, "uint32_t crc32c(uint32_t before, const void *data, size_t bytes);")

local COUNT, FOLDER = 12, "tests/files/records/"
local folder
before_each(function() folder = files.folder() end)
after_each(function() files.remove(folder) end)

local function copy(name) return files.write(folder, name, files.slurp(FOLDER .. name)) end

local function little(n, bytes)
  local text = {}
  for i = 1, bytes do
    text[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(text)
end

local function masked(text)
  local crc = ffi.C.crc32c(0, text, #text)
  local rotated = bit.ror(bit.tobit(tonumber(crc)), 15)
  return little((bit.tobit(rotated + 0xa282ead8) % 2 ^ 32), 4)
end

local function record(data, length)
  local head = little(length or #data, 8)
  return head .. masked(head) .. data .. masked(data)
end

-- Protocol buffers by hand.
local function varint(n)
  local text = ""
  while n >= 128 do
    text, n = text .. string.char(128 + n % 128), math.floor(n / 128)
  end
  return text .. string.char(n)
end
local function field(number, text) return varint(number * 8 + 2) .. varint(#text) .. text end
local function feature(name, kind, list) return field(1, field(1, name) .. field(2, field(kind, list))) end
local function example(...) return field(1, table.concat { ... }) end
local BYTES, FLOATS, INTS = 1, 2, 3

local function open(text, o)
  return shardrt.source.tfrecord(files.write(folder, "made.tfrecord", text), o)
end

local function refused(text, pattern, o)
  local ok, message = pcall(function()
    local source = open(text, o)
    source:read(0, #source)
  end)
  assert.is_false(ok, pattern)
  assert.truthy(message:find(pattern), message .. "\nis not: " .. pattern)
end

describe("source.tfrecord", function()
  for _, name in ipairs { "tensorflow.tfrecord", "package.tfrecord" } do
    it("reads " .. name, function()
      local source = shardrt.source.tfrecord(copy(name))
      assert.equal(COUNT, #source)
      assert.same({ "image", "label", "large", "raw", "weights" }, source.names)
      assert.same({ dtype = "int64", shape = {} }, source.fields.label)
      assert.same({ dtype = "int64", shape = { 2 } }, source.fields.large)
      assert.same({ dtype = "float32", shape = { 3 } }, source.fields.weights)
      assert.same({ dtype = "uint8", shape = { -1 } }, source.fields.raw)
      local all = source:read(0, COUNT)
      for i = 0, COUNT - 1 do
        assert.equal(i - 3, tonumber(all.label.data[i]))
        assert.equal(i * 2 ^ 40, tonumber(all.large.data[2 * i]))
        assert.equal(-i, tonumber(all.large.data[2 * i + 1]))
        assert.equal(i + 0.5, all.weights.data[3 * i])
        assert.equal(-0.25, all.weights.data[3 * i + 1])
        assert.equal(tonumber(ffi.new("float", 1e30)), all.weights.data[3 * i + 2])
        local raw = {}
        for k = 0, i - 1 do raw[k + 1] = string.char((i * 7 + k) % 256) end
        assert.equal(table.concat(raw), ffi.string(all.raw[i + 1].data, all.raw[i + 1].bytes))
      end
    end)

    it("reads the fields of " .. name .. " that are asked for, in their shapes", function()
      local source = shardrt.source.tfrecord(copy(name), {
        fields = { image = { "uint8", { 2, 3 } }, label = "int64", raw = "bytes", large = { "int64", { -1 } } },
      })
      assert.same({ dtype = "uint8", shape = { 2, 3 } }, source.fields.image)
      local all = source:read(0, COUNT)
      for k = 0, COUNT * 6 - 1 do assert.equal(k, all.image.data[k]) end
      assert.same({ 2 }, all.large[12].shape)
      local as16 = shardrt.source.tfrecord(folder .. "/" .. name, { fields = { image = { "int16", { 3 } } } })
      assert.equal(0x0b0a, as16:read(1, 1).image.data[2])
    end)
  end

  it("reads many files as one", function()
    local text = files.slurp(FOLDER .. "tensorflow.tfrecord")
    for i = 0, 2 do files.write(folder, ("t-%05d-of-00003"):format(i), i == 1 and "" or text) end
    for _, given in ipairs { folder .. "/t-00000-of-00003", folder .. "/t-*", { folder .. "/t-*" } } do
      local source = shardrt.source.tfrecord(given)
      assert.equal(2 * COUNT, #source)
      assert.equal(8, tonumber(source:read(2 * COUNT - 1, 1).label.data[0]))
      assert.equal(8, tonumber(source:read(COUNT - 1, 1).label.data[0]))
    end
  end)

  it("reads lists that are not packed, mixed, empty or given twice", function()
    local source = open(record(example(
      feature("ints", INTS, "\8\1\8\2" .. field(1, "\3\4") .. "\8\255\255\255\255\255\255\255\255\255\1"),
      feature("floats", FLOATS, "\13\0\0\128\63" .. field(1, "\0\0\0\64\0\0\64\64")),
      feature("bytes", BYTES, field(1, "one")), feature("none", BYTES, ""))))
    local all = source:read(0, 1)
    assert.same({ 5 }, source.fields.ints.shape)
    assert.equal(-1, tonumber(all.ints.data[4]))
    assert.equal(3, all.floats.data[2])
    assert.equal("one", ffi.string(all.bytes[1].data, all.bytes[1].bytes))
    assert.same({ 0 }, all.none[1].shape)
    local twice = open(record(example(feature("x", INTS, "\8\1"))) .. record(example(feature("x", INTS, "\8\1"),
      feature("x", INTS, "\8\2"))))
    assert.equal(2, tonumber(twice:read(1, 1).x.data[0])) -- as protocol buffers have it
  end)

  it("refuses a list of several byte strings, wherever it stands, rather than give one of them", function()
    local one, two = feature("x", BYTES, field(1, "one")), feature("x", BYTES, field(1, "one") .. field(1, "two"))
    local three = feature("x", BYTES, field(1, "") .. field(1, "b") .. field(1, ""))
    local told = "record 1 at byte %d+: the feature \"x\" is a list of %d byte strings, of which a field takes one"
    refused(record(example(one)) .. record(example(two)), (told:gsub("%%d byte", "2 byte")))
    refused(record(example(one)) .. record(example(three)), (told:gsub("%%d byte", "3 byte")))
    refused(record(example(two)), "record 0 at byte 12: the feature \"x\" is a list of 2 byte strings")
    for _, fields in ipairs { { "x" }, { x = "bytes" }, { x = { "uint8", { 6 } } }, { x = { "uint8", { 3 } } } } do
      refused(record(example(two)), "is a list of 2 byte strings", { fields = fields })
      refused(record(example(one)) .. record(example(two)), "x", { fields = fields })
    end
    -- The others can be named, and with on_bad_record the rest of the records read.
    local y = feature("y", INTS, "\8\5")
    assert.equal(5, tonumber(open(record(example(two, y)), { fields = { "y" } }):read(0, 1).y.data[0]))
  end)

  it("takes a feature of another kind than the first record's for what it is not in no record", function()
    local ints = feature("x", INTS, "\8\1")
    local floats, bytes = feature("x", FLOATS, "\13\0\0\128\63"), feature("x", BYTES, field(1, ("8"):rep(8)))
    local four = feature("x", BYTES, field(1, "\0\0\128\63"))
    local way = { fields = { x = { "int64", { -1 } } } }
    refused(record(example(ints)) .. record(example(bytes)), "record 1 .* holds bytes here, and int64 in the first")
    refused(record(example(floats)) .. record(example(four)), "record 1 .* holds bytes here, and float32 in the first")
    refused(record(example(ints)) .. record(example(bytes)), "record 1 .* holds bytes here, and int64 in", way)
    refused(record(example(bytes)) .. record(example(ints)), "record 1 .* holds int64 here, and bytes in", way)
    refused(record(example(bytes)) .. record(example(ints)), "record 1 .* holds int64 here, and bytes in the first")
    local bools = open(record(example(feature("x", BYTES, field(1, "\1\0\2")))), { fields = { x = { "bool", { 3 } } } })
    assert.same({ { true, false, true } }, bools:read(0, 1).x:to_table())
    assert.equal("\1\0\1", ffi.string(bools:read(0, 1).x.data, 3)) -- any byte but 0 is true, stored as 1
  end)

  it("refuses what protocol buffers would merge, and examples of sequences", function()
    local x = feature("x", INTS, "\8\1")
    local halves = field(1, field(1, "x") .. field(2, field(INTS, "\8\1")) .. field(2, field(INTS, "\8\2")))
    refused(record(field(1, x) .. field(1, feature("y", INTS, "\8\1"))), "parts that are to be merged")
    refused(record(field(1, halves)), "parts that are to be merged")
    refused(record(field(1, field(1, field(1, "x") .. field(2, field(INTS, "\8\1") .. field(INTS, "\8\2"))))),
      "parts that are to be merged")
    local sequence = field(1, x) .. field(2, field(1, field(1, "frames") .. field(2, "")))
    refused(record(sequence), "is a tf.train.SequenceExample, whose lists of features")
    assert.equal(1, tonumber(open(record(sequence), { fields = { "x" } }):read(0, 1).x.data[0]))
    refused(record(field(1, x) .. "\2\1"), "an entry has a number that no field has")
  end)

  it("refuses what does not fit, naming file, record and offset", function()
    local one = record(example(feature("x", INTS, "\8\1")))
    local where = "made%.tfrecord: record 1 at byte " .. #one + 12 .. ": "
    refused(one .. record(example(feature("y", INTS, "\8\1"))), where .. "it has no feature \"x\"")
    refused(one .. record(example(feature("x", FLOATS, "\13\0\0\128\63"))), where .. "the feature \"x\" holds float32")
    refused(one .. record(example(feature("x", INTS, "\8\1\8\2"))), where .. "\"x\" holds 2 elements of int64")
    refused(one .. record(example(feature("x", INTS, "\8"))), where .. "an entry of the example is cut off")
    refused(one .. record("\255"), where .. "a number in the example is cut off")
    refused(one .. record("\11"), where .. "is no tf%.train%.Example: an entry has the wire type 3")
    refused(record(""), "record 0 at byte 12: an example without features")
    refused("", "holds no record")
    refused(record(example(feature("x", INTS, "\8\1"), feature("x", INTS, "\8\1"))), "it has the feature \"x\" twice")
    refused(record(example(feature("", INTS, "\8\1"))), "the name of a feature has 0 bytes")
    refused(one, "it has no feature \"y\"", { fields = { y = "int64" } })
    refused(one, "int32 is asked for, and the feature holds int64", { fields = { x = "int32" } })
    refused(record(example(feature("x", BYTES, field(1, "abc")))), "3 bytes, which are no whole number of int16",
      { fields = { x = "int16" } })
    refused(record(example(feature("x", BYTES, field(1, "abc")))), "leaves dimensions 0 and 1 open",
      { fields = { x = { "uint8", { -1, -1 } } } })
    refused(one, "do not fit in 64 bits", { fields = { x = { "int64", { 2 ^ 40, 2 ^ 40 } } } })
    refused(one, "do not fit in 64 bits", { fields = { x = { "int64", { -1, 2 ^ 40, 2 ^ 40 } } } })
    refused(one, "not the shape of the others", { fields = { x = { "int64", { -1, 2 ^ 40, 2 ^ 40, 0 } } } })
  end)

  it("refuses compressed files and other formats with advice, and takes a length that looks like one", function()
    for path, pattern in pairs {
      ["zstd/shard.00000.mds.zstd"] = "record 0 at byte 0: is no TFRecord file, or its length is damaged",
      ["bz2/shard.00000.mds.bz2"] = "made%.tfrecord: is compressed by bzip2, and no TFRecord file: `bunzip2` it",
    } do
      refused(files.slurp("tests/files/mds/" .. path), pattern)
    end
    refused(files.slurp(FOLDER .. "ustar.tar"), "is a tar archive, and no TFRecord file: source%.tar reads its samples")
    local data = example(feature("x", BYTES, field(1, ("z"):rep(35592))))
    assert.equal(0x8b1f, #data)
    assert.equal(1, #open(record(data)))
  end)

  it("finds every flipped bit and every cut, naming file, record and offset", function()
    local text = files.slurp(FOLDER .. "tensorflow.tfrecord"):sub(1, 420)
    local starts, at = {}, 1
    while at <= #text do
      starts[#starts + 1] = at
      at = at + 16 + text:byte(at) + 256 * text:byte(at + 1)
    end
    text = text:sub(1, starts[#starts] - 1)
    assert.is_true(#starts >= 3)
    for byte = 1, #text do
      local flipped = bit.bxor(text:byte(byte), 2 ^ (byte % 8))
      refused(text:sub(1, byte - 1) .. string.char(flipped) .. text:sub(byte + 1),
        "the file " .. folder:gsub("%-", "%%-") .. "/made%.tfrecord: record %d at byte %d+: .*CRC")
    end
    local whole = {}
    for _, start in ipairs(starts) do whole[start - 1] = true end
    for length = 1, #text - 1 do
      if not whole[length] then refused(text:sub(1, length), "record %d at byte %d+: is cut off") end
    end
  end)

  it("gives everything back where memory runs out", function()
    local path = copy "tensorflow.tfrecord"
    shardrt.source.tfrecord(path)
    assert.is_true(files.opens_or_lacks_memory("tfrecord", path) > 10)
  end)
end)

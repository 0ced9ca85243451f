-- ArrayRecord files as their own writer makes them (tests/files/write_array_record.py): read back record by record;
-- damaged, cut and lying ones; many files and processes; running out of memory.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"

ffi.cdef [[
int truncate(const char *path, long length);
uint64_t HighwayHash64(const uint64_t *key, const char *bytes, uint64_t size);
]]
local highway = ffi.load "libhighwayhash.so.0" -- for files whose hashes are right and which lie all the same
local key = ffi.new("uint64_t[4]", 0x2f696c6567656952ULL, 0x0a7364726f636572ULL, 0x2f696c6567656952ULL,
  0x0a7364726f636572ULL)

local BLOCK = 65536
local data = "tests/files/array_record/"
local written = {
  "uncompressed-1", "uncompressed-4", "brotli-1", "brotli-4", "zstd-1", "zstd-4", "snappy-1", "snappy-4", "default",
}

-- The bytes of a record, as the script makes them.
local function record(number, size)
  local bytes = {}
  for k = 0, size - 1 do
    bytes[k + 1] = string.char((number * 31 + k * 7 + math.floor(k * k / 11) % 5) % 256)
  end
  return table.concat(bytes)
end

local function small(i) return record(i, 5 + 13 * i) end

local function bytes_of(host) return ffi.string(host.data, host.bytes) end

local function hash(text)
  local n, bytes = highway.HighwayHash64(key, text, #text), {}
  for i = 1, 8 do
    bytes[i] = string.char(tonumber(n % 256))
    n = n / 256
  end
  return table.concat(bytes)
end

local function little(n, count)
  local bytes = {}
  for i = 1, count do
    bytes[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(bytes)
end

local function number(text, at, count)
  local n = 0
  for i = count, 1, -1 do n = n * 256 + text:byte(at + i) end
  return n
end

describe("ArrayRecord files", function()
  local folder
  before_each(function() folder = files.folder() end)
  after_each(function() files.remove(folder) end)

  local function unpacked(name)
    local path = folder .. "/" .. name .. ".array_record"
    assert(os.execute(("gzip -dc %s%s.array_record.gz >%s"):format(data, name, path)) == 0)
    return path
  end

  local function open(path, o) return shardrt.source.array_record(path, o) end

  local function read_all(path, o)
    local source, records = open(path, o), {}
    for i, host in ipairs(source:read(0, #source).record) do records[i] = bytes_of(host) end
    return records
  end

  local function smalls(count)
    local records = {}
    for i = 1, count do records[i] = small(i - 1) end
    return records
  end

  for _, name in ipairs(written) do
    it("are read back as they were written: " .. name, function()
      local path = unpacked(name)
      assert.same({ record = { dtype = "uint8", shape = { -1 } } }, open(path).fields)
      assert.same(smalls(10), read_all(path))
      assert.same(smalls(10), read_all(path, { verify = false }))
      local source = open(path)
      for _, i in ipairs { 9, 0, 5, 5, 2, 8, 1, 7, 3, 6, 4, 9 } do
        assert.equal(small(i), bytes_of(source:read(i, 1).record[1]))
      end
      assert.same({ name .. ".array_record" }, files.list(folder)) -- their footer is all the index that is needed
    end)
  end

  it("may hold records of no bytes, none at all, and ones that go over blocks", function()
    assert.same({ "", "a", "", "", "bc", "", "" }, read_all(unpacked "empty-records"))
    assert.equal(0, #open(unpacked "none"))
    assert.same(smalls(3), read_all(unpacked "padded"))
    for _, name in ipairs { "blocks-1", "blocks-4" } do
      local source = open(unpacked(name))
      assert.equal(6, #source)
      for _, i in ipairs { 3, 0, 5, 1, 4, 2 } do
        assert.is_true(record(i, 40000 + i) == bytes_of(source:read(i, 1).record[1]), name .. ", record " .. i)
      end
    end
  end)

  it("are one dataset when there are several", function()
    local paths, expected = {}, {}
    for i, name in ipairs { "none", "brotli-4", "none", "uncompressed-1", "zstd-4", "none" } do
      paths[i] = unpacked(name)
      os.rename(paths[i], ("%s/train-%05d-of-00006"):format(folder, i - 1))
      for k = 0, name == "none" and -1 or 9 do expected[#expected + 1] = small(k) end
    end
    assert.same(expected, read_all(folder .. "/train-00000-of-00006"))
    assert.same(expected, read_all(folder .. "/train-*"))
    local source = open(folder .. "/train-*")
    for _ = 1, 200 do
      local i = math.random(0, 29)
      assert.equal(expected[i + 1], bytes_of(source:read(i, 1).record[1]))
    end
  end)

  it("give records as raw elements where a dtype and a shape are asked for", function()
    local path = unpacked "padded" -- records of 5, 18 and 31 bytes
    local message = files.message(function() open(path, { fields = { record = { "uint16", { -1 } } } }):read(0, 3) end)
    assert.truthy(message:find('record 0 in the chunk at byte 64: "record" has 5 bytes, which are no whole number of '
      .. "uint16", 1, true), message)
    local host = open(path, { fields = { record = { "uint16", { 3, 3 } } } }):shard(3, 1):read(0, 1).record
    assert.same({ 1, 3, 3 }, host.shape)
    assert.equal(small(1), bytes_of(host))
  end)

  it("give features of tf.train.Example where fields asks for them", function()
    local path = unpacked "examples"
    assert.same({ record = { dtype = "uint8", shape = { -1 } } }, open(path).fields)
    local source = open(path, { fields = { image = { "uint8", { 4, 3 } }, label = "int64", weights = "float32" } })
    assert.same({ image = { dtype = "uint8", shape = { 4, 3 } }, label = { dtype = "int64", shape = {} },
      weights = { dtype = "float32", shape = { 3 } } }, source.fields)
    local values = source:read(0, 5)
    for i = 0, 4 do
      assert.equal(record(i, 12), bytes_of(values.image):sub(i * 12 + 1, i * 12 + 12))
      assert.equal(i - 2, tonumber(ffi.cast("int64_t *", values.label.data)[i]))
      local weights = ffi.cast("float *", values.weights.data) + 3 * i
      assert.same({ i / 4, -i, 1e9 }, { weights[0], weights[1], weights[2] })
    end
    local message = files.message(open, path, { fields = { picture = "bytes" } })
    assert.truthy(message:find('it has no feature "picture"', 1, true), message)
    message = files.message(open, unpacked "zstd-4", { fields = { image = "bytes" } })
    assert.truthy(message:find("zstd-4.array_record: record 0 in the chunk at byte 64", 1, true), message)
    message = files.message(open, unpacked "none", { fields = { image = "bytes" } })
    assert.truthy(message:find("holds no record", 1, true), message)
  end)

  it("are refused with advice where they are transposed", function()
    local source = open(unpacked "transposed")
    local message = files.message(source.read, source, 0, 1)
    assert.truthy(message:find "record 0 in the chunk at byte 64: is transposed", message)
    assert.truthy(message:find('"transpose:false"', 1, true), message)
  end)

  -- Damage ------------------------------------------------------------------------------------------------------------

  local function flip(path, at, bit)
    local file = assert(io.open(path, "r+b"))
    file:seek("set", at)
    local byte = file:read(1):byte()
    file:seek("set", at)
    local set = math.floor(byte / 2 ^ bit) % 2 == 1
    file:write(string.char(byte + (set and -1 or 1) * 2 ^ bit))
    file:close()
  end

  -- Where there are bytes at all, and some of the zeros.
  local function interesting(text)
    local places = {}
    for at = 0, #text - 1 do
      if text:byte(at + 1) ~= 0 or at % 4999 == 0 then places[#places + 1] = at end
    end
    return places
  end

  it("are refused where a bit is another one, naming file, record and offset, or give what was written", function()
    for _, name in ipairs { "uncompressed-1", "uncompressed-4", "brotli-4", "zstd-1", "snappy-4" } do
      local path, found, named = unpacked(name), 0, 0
      local text, expected = files.slurp(path), smalls(10)
      local padding = text:find("\112" .. ("\0"):rep(15), 1, true) - 25 -- the header of the chunk that fills the block
      local places = interesting(text)
      for _, at in ipairs(places) do
        local bit = math.random(0, 7)
        flip(path, at, bit)
        local ok, records = pcall(read_all, path)
        if not ok then
          found = found + 1
          assert.truthy(records:find(name .. ".array_record: ", 1, true), records)
          if records:find ": record %d+ in the chunk at byte %d+: the chunk at byte %d+" then named = named + 1 end
        else
          assert.same(expected, records)
          assert.is_true(at >= padding and at < BLOCK or at >= BLOCK + 24 + 40 + 44, -- behind the postscript's data
            ("%s: byte %d, bit %d was not found"):format(name, at, bit))
        end
        flip(path, at, bit)
      end
      assert.is_true(found > 0.8 * #places, ("%s: %d of %d"):format(name, found, #places))
      assert.is_true(named > 100)
      assert.same(expected, read_all(path))
    end
  end)

  it("are refused where they were cut off, at every length", function()
    local path = unpacked "zstd-4"
    local text = files.slurp(path)
    local at = #text - 1
    while at >= 0 do
      assert(ffi.C.truncate(path, at) == 0)
      local message = files.message(open, path)
      assert.truthy(message:find("zstd-4.array_record: ", 1, true), message)
      local dull = at % BLOCK > 2000 and at % BLOCK < BLOCK - 60
      at = at - (dull and 37 or 1)
    end
  end)

  -- Writes a file's chunk anew: edit gets {header = 40 bytes, data = …}; hashes are then made right.
  local function edit(path, at, change)
    local text = files.slurp(path)
    local size = number(text, at + 8, 8)
    local chunk = { header = text:sub(at + 1, at + 40), data = text:sub(at + 41, at + 40 + size) }
    change(chunk)
    assert(#chunk.data == size)
    local rest = chunk.header:sub(9, 16) .. hash(chunk.data) .. chunk.header:sub(25)
    files.write(folder, path:match "[^/]*$",
      text:sub(1, at) .. hash(rest) .. rest .. chunk.data .. text:sub(at + 41 + size))
  end

  local function patch(text, at, bytes) return text:sub(1, at) .. bytes .. text:sub(at + 1 + #bytes) end

  it("that lie with right hashes are refused", function()
    local function refused(name, at, change, what)
      local path = unpacked(name)
      edit(path, at, change)
      local message = files.message(read_all, path)
      assert.truthy(message:find(name .. ".array_record: ", 1, true), message)
      assert.truthy(message:find(what, 1, true), message)
    end
    local function header(offset, bytes)
      return function(chunk) chunk.header = patch(chunk.header, offset, bytes) end
    end
    for _, name in ipairs { "zstd-4", "brotli-4", "snappy-4" } do
      refused(name, 64, header(32, little(2 ^ 40, 8)), "decompresses no chunk to more than 1073741824 bytes")
      refused(name, 64, header(25, little(2 ^ 50, 7)), "decompresses no chunk to more than 1073741824 bytes")
      refused(name, 64, header(32, little(97, 8)), "97 bytes") -- they are 5 + 18 + 31 + 44
      refused(name, 64, header(32, little(99, 8)), "99 bytes")
    end
    refused("uncompressed-4", 64, header(25, little(5, 7)), "the footer tells of another number")
    refused("uncompressed-4", 64, header(24, "x"), "holds no records")
    refused("uncompressed-4", 64, function(c) c.data = patch(c.data, 0, "q") end, "compressed in a way")
    refused("uncompressed-4", 64, function(c) c.data = patch(c.data, 1, "\127") end, "longer than the chunk")
    refused("uncompressed-4", 64, function(c) c.data = patch(c.data, 2, "\255") end, "sizes")
  end)

  it("of random bytes with right hashes never crash", function()
    local seed = require "tests.support.seed"
    math.randomseed(seed)
    local refused = 0
    for round = 1, 400 do
      local name = written[math.random(#written)]
      local path = unpacked(name)
      edit(path, 64, function(chunk)
        local at = math.random(0, #chunk.data - 1)
        chunk.data = patch(chunk.data, at, string.char(math.random(0, 255)))
        if math.random(4) == 1 then
          chunk.header = patch(chunk.header, math.random(25, 39), string.char(math.random(0, 255)))
        end
      end)
      local ok, message = pcall(read_all, path)
      if not ok then
        refused = refused + 1
        assert.truthy(message:find(name .. ".array_record: record ", 1, true),
          ("seed %d, round %d: %s"):format(seed, round, message))
      end
    end
    assert.is_true(refused > 50, "seed " .. seed)
  end)

  it("name what they are not", function()
    local path = files.write(folder, "text.array_record", ("no records here\n"):rep(2 ^ 13))
    assert.truthy(files.message(open, path):find "is no ArrayRecord file")
    path = files.write(folder, "nothing.array_record", "")
    assert.truthy(files.message(open, path):find "nothing.array_record: is empty")
    assert.truthy(files.message(open, folder .. "/nowhere"):find "No such file")
  end)

  -- Everything else ---------------------------------------------------------------------------------------------------

  it("give back all memory when an allocation fails, whichever it is", function()
    local path = unpacked "examples"
    local field = ffi.new("shardrt_field[1]")
    field[0].name, field[0].dtype, field[0].ndim = "image", -1, -1
    local failures = no_memory.each(function()
      local out, sizes, buffer = ffi.new "shardrt_source *[1]", ffi.new "int64_t[8]", ffi.new "shardrt_buffer *[1]"
      local code = C.shardrt_source_files("array_record", 1, ffi.new("const char *[1]", { path }), 1, field, nil, out)
      if code == 0 then code = C.shardrt_source_value(out[0], 0, 3, sizes, buffer) end
      if buffer[0] ~= nil then C.shardrt_buffer_free(buffer[0]) end
      if out[0] ~= nil then C.shardrt_source_free(out[0]) end
      return code
    end)
    assert.is_true(failures > 10, failures)
  end)

  it("come to four processes through a loader as they were written", function()
    for i, name in ipairs { "blocks-4", "blocks-1" } do
      os.rename(unpacked(name), ("%s/%d.array_record"):format(folder, i))
    end
    local result = mpi.run { processes = 4, devices = 2, source = ([[
      local shardrt = require "shardrt"
      local T = shardrt.transform
      local source = shardrt.source.array_record("%s/*.array_record"):enumerate "number"
      local loader = shardrt.loader { source = source, batch_size = 8, shuffle = true, epochs = 3,
        transform = { record = { T.crop { size = { 40000 }, start = { 0 } } } } }
      local seen = 0
      for batch in loader do
        for s, shard in ipairs(batch.record.addressable_shards) do
          local number = batch.number.addressable_shards[s].data.data[0]
          local i, bytes = tonumber(number) %% 6, shard.data.data
          for k = 0, 39999, 13 do
            assert(bytes[k] == (i * 31 + k * 7 + math.floor(k * k / 11) %% 5) %% 256)
          end
          seen = seen + 1
        end
      end
      assert(seen > 0)
    ]]):format(folder) }
    assert.equal(0, result.status, result.output)
  end)
end)

-- .npz files as numpy and Python's zipfile write them (tests/files/npz, made by npz.py), with 64-bit directories, made
-- by hand, lying, damaged and cut.

local ffi = require "ffi"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"
local ndarray = shardrt.ndarray

ffi.cdef "unsigned long crc32(unsigned long, const char *, unsigned);"

local FOLDER = "tests/files/npz/"
local folder, cache
before_each(function()
  folder = files.folder()
  cache = folder .. "/cache"
end)
after_each(function() files.remove(folder) end)

local DTYPES = {
  "bool", "float16", "float32", "float64", "int16", "int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8",
}

local function copy(name) return files.write(folder, name, files.slurp(FOLDER .. name)) end
local function open(path, o)
  o = o or {}
  o.cache = cache
  return shardrt.source.npz(path, o)
end

local function bytes_of(host) return ffi.string(host.data, host.bytes) end

local function little(n, bytes)
  local text = {}
  for i = 1, bytes do
    text[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(text)
end

-- An archive of stored members by hand: each has name and data, and may lie with size, packed, offset, crc, method,
-- flags. `long`: all numbers in 64 bits.
local function archive(members, long, o)
  local all, directory = {}, {}
  local at = 0
  for i, m in ipairs(members) do
    local crc = m.crc or tonumber(ffi.C.crc32(0, m.data, #m.data))
    local size, packed, offset = m.size or #m.data, m.packed or #m.data, m.offset or at
    local extra = long and "\1\0\24\0" .. little(size, 8) .. little(packed, 8) .. little(offset, 8) or ""
    local few = ("\255"):rep(4)
    local common = little(m.flags or 0, 2) .. little(m.method or 0, 2) .. ("\0"):rep(4) .. little(crc, 4)
      .. (long and few .. few or little(packed, 4) .. little(size, 4)) .. little(#m.name, 2)
    local text = "PK\3\4\45\0" .. common .. little(long and 20 or 0, 2) .. m.name
      .. (long and "\1\0\16\0" .. little(size, 8) .. little(packed, 8) or "") .. m.data
    directory[i] = "PK\1\2\45\3\45\0" .. common .. little(#extra, 2) .. ("\0"):rep(10)
      .. (long and few or little(offset, 4)) .. m.name .. extra
    all[i], at = text, at + #text
  end
  o = o or {}
  local listed, count = table.concat(directory), o.count or #members
  local ends = ""
  if long then
    ends = "PK\6\6" .. little(44, 8) .. "\45\0\45\0" .. ("\0"):rep(8) .. little(count, 8) .. little(count, 8)
      .. little(#listed, 8) .. little(o.offset or at, 8) .. "PK\6\7" .. ("\0"):rep(4)
      .. little(o.where or at + #listed, 8) .. "\1\0\0\0"
  end
  local last = "PK\5\6\0\0\0\0" .. (long and ("\255"):rep(12) or little(count, 2) .. little(count, 2)
    .. little(#listed, 4) .. little(o.offset or at, 4)) .. "\0\0"
  return table.concat(all) .. listed .. ends .. last
end

local function npy(values)
  local path = folder .. "/one.npy"
  ndarray.from_table(values, "int32"):save(path)
  return files.slurp(path)
end

local function refused(text, o, ...)
  os.remove(folder .. "/made.npz.shardrt-index")
  local message = files.message(function()
    local source = open(files.write(folder, "made.npz", text), o)
    source:read(0, #source)
  end)
  expect.contains(message, "made.npz", ...)
end

describe("source.npz", function()
  for _, name in ipairs { "stored.npz", "deflated.npz" } do
    it("reads what numpy writes: " .. name, function()
      local path = copy(name)
      for _, verify in ipairs { true, false } do
        local source = open(path, { verify = verify })
        assert.equal(5, #source)
        assert.same(DTYPES, source.names)
        local all = source:read(0, 5)
        for _, dtype in ipairs(DTYPES) do
          assert.same({ dtype = dtype, shape = { 2, 3 } }, source.fields[dtype])
          assert.same({ 5, 2, 3 }, all[dtype].shape)
          local expected = ndarray.arange(30, dtype == "bool" and "int8" or dtype)
          if dtype == "bool" then
            expected = ndarray.full({ 30 }, 1, "int8")
            expected.data[0] = 0
          end
          assert.equal(bytes_of(expected), bytes_of(all[dtype]), dtype)
          assert.equal(bytes_of(expected):sub(-expected.bytes / 5), bytes_of(source:read(4, 1)[dtype]))
        end
      end
      local P, mesh = shardrt.P, shardrt.make_mesh({ 3 }, { "x" })
      for batch in shardrt.loader {
        source = open(path, { fields = { int16 = "int16" } }), batch_size = 5, epochs = 1,
        sharding = shardrt.NamedSharding(mesh, P(nil, nil, "x")),
      } do
        for column, shard in ipairs(batch.int16.addressable_shards) do
          for i = 0, 9 do assert.equal(3 * i + column - 1, shard.data.data[i]) end
        end
      end
    end)
  end

  it("reads members of both kinds, with others between them and a comment, and several files", function()
    local source = open { copy "mixed.npz", files.write(folder, "again.npz", files.slurp(FOLDER .. "mixed.npz")) }
    assert.equal(8, #source)
    assert.same({ "a", "b", "folder/c" }, source.names)
    local all = source:read(2, 6)
    assert.same({ { 4, 5 }, { 6, 7 }, { 0, 1 }, { 2, 3 }, { 4, 5 }, { 6, 7 } }, all.a:to_table())
    assert.same({ 0.5, 0.75, 0, 0.25, 0.5, 0.75 }, all.b:to_table())
    assert.same({ 2, 3, 0, 1, 2, 3 }, all["folder/c"]:to_table())
  end)

  it("reads arrays in Fortran's order and big-endian ones, beside others, as numpy writes them", function()
    local fields = {
      fortran = { "int32", { 2, 3 } }, big = "int64", plain = "float32", both = "float64", flags = "bool",
    }
    for _, name in ipairs { "turned.npz", "turned-deflated.npz" } do
      local path = copy(name)
      for _, o in ipairs { {}, { verify = true }, { verify = false } } do -- the second time from the cache
        o.fields = fields
        local source = open(path, o)
        local all, sample = source:read(0, 4), source:read(3, 1)
        assert.same({ 4, 2, 3 }, all.fortran.shape)
        for i = 0, 23 do assert.equal(i, all.fortran.data[i]) end
        for i = 0, 19 do assert.equal(i / 4, all.both.data[i]) end
        for i = 0, 7 do
          assert.equal(i, all.plain.data[i])
          assert.equal(i % 3 == 0, all.flags.data[i])
        end
        assert.same({ 0, 1, 2, 3 }, { tonumber(all.big.data[0]), tonumber(all.big.data[1]), tonumber(all.big.data[2]),
          tonumber(all.big.data[3]) })
        assert.equal(18, sample.fortran.data[0])
        assert.equal(4.75, sample.both.data[4])
      end
      local batch = shardrt.loader {
        source = open(path, { fields = fields }), batch_size = 4, epochs = 1,
        sharding = shardrt.NamedSharding(shardrt.make_mesh({ 2 }, { "x" }), shardrt.P("x")),
      }()
      for p, shard in ipairs(batch.both.addressable_shards) do
        for i = 0, 9 do assert.equal((10 * (p - 1) + i) / 4, shard.data.data[i]) end
      end
      assert.truthy(files.message(open, path, { fields = { scalar = "int32" } }):find("is a single number", 1, true))
    end
    local text = files.slurp(FOLDER .. "turned.npz")
    local at = assert(text:find("fortran_order': True", 1, true)) + 120
    refused(text:sub(1, at) .. string.char(255 - text:byte(at + 1)) .. text:sub(at + 2), { fields = fields }, "CRC-32")
  end)

  it("reads directories of 64 bits", function()
    local members = { { name = "y.npy", data = npy { 1, 2, 3 } }, { name = "x.npy", data = npy { 4, 5, 6 } } }
    local text = archive(members, true)
    local all = open(files.write(folder, "long.npz", text)):read(0, 3)
    assert.same({ { 4, 5, 6 }, { 1, 2, 3 } }, { all.x:to_table(), all.y:to_table() })
  end)

  it("says what it cannot take, and takes the fields that are asked for", function()
    local path = copy "odd.npz"
    for fields, part in pairs {
      [{ objects = "int8" }] = "Python objects, which only Python can read",
      [{ scalar = "int32" }] = "is a single number",
      [{ nothing = "int8" }] = 'it has no array "nothing"; of its 5 the first',
      [{ x = "int64", longer = "int64" }] = 'arrays of different length: "longer" has 9 samples, "x" has',
      [{ x = "int8" }] = '"x" is int64, not int8; transform.cast converts',
      [{ x = { "int64", { 2 } } }] = 'the samples of "x" do not have the shape',
    } do
      local message = files.message(open, path, { fields = fields })
      assert.truthy(message:find(part, 1, true), message)
    end
    assert.equal(4, #open(path, { fields = { x = "int64" } }))
    assert.equal(0, #open(path, { fields = { empty = { "float32", { 3 } } } }))
    assert.truthy(files.message(open, path):find("`fields` can name those wanted", 1, true))
    local message = files.message(open, copy "bzip2.npz")
    assert.truthy(message:find('bzip2.npz: its member "a.npy" at byte 0 is packed in another way', 1, true), message)
    assert.truthy(files.message(shardrt.source.npy, { x = path }):find("source.npz reads .npz files", 1, true))
  end)

  it("refuses lengths and offsets that lie", function()
    local x = { name = "x.npy", data = npy { 1, 2, 3 } }
    local function with(o)
      local m = { name = x.name, data = x.data }
      for key, value in pairs(o) do m[key] = value end
      return { m }
    end
    for _, long in ipairs { false, true } do
      assert.equal(3, #open(files.write(folder, "right.npz", archive({ x }, long))))
      refused(archive(with { offset = 2 ^ 31 }, long), nil, "does not lie before the directory")
      refused(archive(with { offset = 1 }, long), nil, "has a header that is not as in the directory")
      refused(archive(with { size = 2 ^ 31, packed = 2 ^ 31 }, long), nil, "reaches into the directory")
      refused(archive(with { size = 7 }, long), nil, "is stored, and tells of two lengths")
      refused(archive(with { size = 100, packed = 100 }, long), nil, "x.npy: is cut off")
      refused(archive(with { crc = 1 }, long), nil, "its CRC-32 is ", ", not 00000001")
      refused(archive(with { method = 8, size = 2 ^ 31 }, long), nil, "tells of more bytes than deflate can make")
      refused(archive(with { flags = 1 }, long), nil, "is encrypted")
      refused(archive({ x }, long, { count = 2 }), nil, "directory")
      refused(archive({ x, x }, long, { count = 1 }), nil, "more than its 1 members need")
      refused(archive({ x, x }, long), nil, 'two members are called "x.npy"')
      refused(archive({ x }, long, { offset = 2 ^ 31 }), nil, "its directory tells of 1 members")
      refused(archive({ x }, long, { offset = 3 }), nil, "its directory is damaged")
    end
    refused(archive({ x }, true, { where = 2 ^ 40 }), nil, "its zip64 directory would end at byte 1099511627776")
    refused(archive({ x }, true, { where = 0 }), nil, "the end of its zip64 directory is not at byte 0")
    refused(archive({}), nil, "it has no arrays")
    refused("", nil, "has no zip directory at its end")
    refused(("PK"):rep(40), nil, "has no zip directory at its end")
  end)

  it("refuses an archive that was cut, at every length", function()
    for _, name in ipairs { "mixed.npz", "deflated.npz" } do
      local text = files.slurp(FOLDER .. name)
      for length = 0, #text - 1, name == "mixed.npz" and 1 or 37 do refused(text:sub(1, length)) end
    end
  end)

  it("finds single bits that are flipped in what it reads: when the archive is opened, and later", function()
    local text = files.slurp(FOLDER .. "mixed.npz")
    local expected = open(files.write(folder, "whole.npz", text)):read(0, 4)
    local function same(all)
      for name, host in pairs(expected) do assert.equal(bytes_of(host), bytes_of(all[name]), name) end
    end
    local late = folder .. "/late.npz"
    files.write(folder, "late.npz", text)
    local source = open(late)
    local file = assert(io.open(late, "r+b"))
    local found = 0
    for at = 1, #text do
      local other = text:sub(1, at - 1) .. string.char(bit.bxor(text:byte(at), 2 ^ (at % 8))) .. text:sub(at + 1)
      os.remove(folder .. "/early.npz.shardrt-index")
      local ok, all = pcall(function()
        local early = open(files.write(folder, "early.npz", other))
        assert.equal(3, #early.names) -- a name that no longer ends with .npy is no array
        return early:read(0, 4)
      end)
      local names = 0
      if ok then for name in pairs(all) do names = names + (expected[name] and 1 or 0) end end
      if ok and names == 3 then same(all) end -- in what says nothing: times, a comment, another member
      file:seek("set", at - 1)
      file:write(other:sub(at, at))
      file:flush()
      local kept, later = pcall(source.read, source, 0, 4)
      if kept then same(later) else
        found = found + 1
        assert.truthy(later:find("late.npz: record %d+ at byte %d+ %(%d+ bytes%) is damaged"), later)
      end
      file:seek("set", at - 1)
      file:write(text:sub(at, at))
      file:flush()
    end
    file:close()
    assert.equal(32 + 4, found) -- of a and folder/c; b is in the cache
  end)

  it("leaves nothing behind where memory ends", function()
    local path = copy "mixed.npz"
    open(path)
    for _, again in ipairs { true, false } do
      local failures = no_memory.each(function()
        if not again then
          os.remove(path .. ".shardrt-index")
          files.remove(cache)
        end
        open(path):read(0, 4)
      end, { spares = not again and { "removing old unpacked files" } or nil })
      assert.is_true(failures > 5, failures)
    end
  end)

  it("is not unpacked for a header that says it is large", function()
    local path = folder .. "/bomb.npz"
    local script = files.write(folder, "bomb.py", [[
import struct, sys, zipfile
dict = b"{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }"
header = dict + b" " * ((64 << 20) - len(dict) - 1) + b"\n"
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as out:
    out.writestr("x.npy", b"\x93NUMPY\2\0" + struct.pack("<I", len(header)) + header + b"1234")
]])
    assert(os.execute(("python3 '%s' '%s'"):format(script, path)) == 0)
    local message = files.message(open, path)
    assert.truthy(message:find("x.npy: is cut off within its header, which is 67108876 bytes", 1, true), message)
  end)
end)

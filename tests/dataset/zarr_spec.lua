-- Zarr arrays, v2 and v3, as zarr-python writes them (tests/files/arrays.py): whole, by the box, damaged.

local bit = require "bit"
local boxes = require "tests.support.boxes"
local files = require "tests.support.files"
local source = require "shardrt.data.source"

local SHAPE = { 6, 5 } -- of a sample; there are 11
local types = {
  bool = 1, int8 = 1, int16 = 2, int32 = 4, int64 = 8, uint8 = 1, uint16 = 2, uint32 = 4, uint64 = 8, float16 = 2,
  float32 = 4, float64 = 8,
}
-- By dtype, the arrays that hold its values, beyond v2-… and v3-… of each.
local written = {
  float32 = {
    "v2-zlib", "v2-gzip", "v2-zstd", "v2-blosc-lz4", "v2-blosc-zstd", "v2-blosc-zlib", "v2-blosc-blosclz",
    "v2-blosc-lz4hc", "v3-plain", "v3-zstd", "v3-blosc", "v3-crc", "v3-zstd-crc", "v3-shard-plain-start",
    "v3-shard-plain-end", "v3-shard-zstd-start", "v3-shard-zstd-end",
  },
  int32 = { "v2-big", "v3-big", "v3-v2keys" },
  uint64 = { "v3-large-chunk" },
}
local holes = {
  ["v2-holes"] = "int16", ["v3-holes"] = "float32", ["v3-nan"] = "float16", ["v3-big-holes"] = "int32",
  ["v3-shard-holes"] = "float32",
}

describe("a Zarr array", function()
  local folder
  setup(function() folder = boxes.unpack() end)
  teardown(function() files.remove(folder) end)

  local function path_of(name) return folder .. "/zarr/" .. name end
  local function open(name) return source.zarr { x = path_of(name) } end
  local function values(dtype)
    local s = source.npy { x = folder .. "/" .. dtype .. ".npy" }
    return boxes.bytes_of(s:read(0, #s).x)
  end

  local function each(check)
    for dtype in pairs(types) do
      check("v2-" .. dtype, dtype)
      check("v3-" .. dtype, dtype)
      for _, name in ipairs(written[dtype] or {}) do check(name, dtype) end
    end
  end

  -- A copy of an array, to be damaged.
  local function copy(name)
    local there = files.folder()
    assert(os.execute(("cp -r '%s' '%s/a'"):format(path_of(name), there)) == 0)
    return there .. "/a", there
  end

  it("has the values that zarr-python wrote, in every dtype, version and encoding", function()
    each(function(name, dtype)
      local s = open(name)
      assert.equal(11, #s, name)
      assert.same({ dtype = dtype, shape = SHAPE }, s.fields.x, name)
      assert.is_true(boxes.bytes_of(s:read(0, 11).x) == values(dtype), name)
    end)
  end)

  it("gives the fill value where a chunk is missing", function()
    for name, dtype in pairs(holes) do
      local whole = source.npy { x = path_of(name) .. "/whole.npy" }
      local expected = boxes.bytes_of(whole:read(0, 11).x)
      assert.is_true(boxes.bytes_of(open(name):read(0, 11).x) == expected, name)
      boxes.check_random(open(name), expected, SHAPE, types[dtype], 20)
    end
  end)

  it("is read by the box, also where that cuts chunks", function()
    each(function(name, dtype) boxes.check_random(open(name), values(dtype), SHAPE, types[dtype], 30) end)
  end)

  it("is read by many threads, cut over devices, as a .npy file is", function()
    for _, name in ipairs { "v3-plain", "v3-shard-zstd-end" } do
      boxes.check_loader(folder, ("shardrt.source.zarr { x = %q }"):format(path_of(name)),
        ("shardrt.source.npy { x = %q }"):format(folder .. "/float32.npy"))
    end
  end)

  it("is a field beside others of the same length", function()
    local s = source.zarr { image = path_of "v2-uint8", label = path_of "v3-zstd" }
    assert.same({ "image", "label" }, s.names)
    local path, there = copy "v2-uint8"
    local text = files.slurp(path .. "/.zarray"):gsub("11", "10")
    files.write(path, ".zarray", text)
    local message = files.message(function() source.zarr { image = path, label = path_of "v3-zstd" } end)
    assert.truthy(message:find("fields of different length", 1, true), message)
    files.remove(there)
  end)

  it("says what is wrong with its metadata, and reads nothing of it", function()
    local path, there = copy "v3-zstd"
    local text = files.slurp(path .. "/zarr.json")
    local function refused(from, to, word)
      local changed, n = text:gsub(from, to)
      assert.truthy(n > 0, from)
      files.write(path, "zarr.json", changed)
      local message = files.message(function() source.zarr { x = path } end)
      assert.truthy(message:find(word, 1, true), message)
      assert.truthy(message:find(path, 1, true), message)
    end
    refused('"float32"', '"complex64"', 'its data type is "complex64"')
    refused('"regular"', '"rectilinear"', "chunk grid")
    refused('"array"', '"group"', "this is a group")
    refused('"zarr_format": 3', '"zarr_format": 4', "zarr_format is 4")
    refused('"attributes"', '"novelty"', '"novelty"')
    refused('"node_type"', '"shape": [9], "node_type"', '"shape" stands twice')
    refused('"zarr_format"', '"codecs": [], "zarr_format"', '"codecs" stands twice')
    refused('"data_type"', '"attributes"', "does not say its data type")
    refused('"zstd"', '"zfp"', '"zfp"')
    refused('"fill_value": 0.0', '"fill_value": "zero"', "fill_value zero")
    refused("11,", "-11,", "whole number")
    refused("11,", "99999999999999999999,", "64 bits")
    refused("11,", "9223372036854775807,", "does not fit in 64 bits")
    refused("%f[%d]3%f[%D]%s*%]", "2147483647]", "which is the limit")
    refused("%f[%d]3%f[%D]%s*%]", "0]", "the size 0")
    refused('"fill_value": 0.0', '"fill_value": null', "its fill_value is null; in Zarr v3 it is a float32")
    refused('"fill_value"', '"attributes"', 'it does not have "fill_value"')
    refused('"node_type"', '"_node_type"', '"_node_type"')
    refused('"chunk_shape"', '"chunk_shepe"', 'has "chunk_shepe" in the configuration of "regular"')
    refused('"configuration"', '"confiouration"', 'has "confiouration" beside the name "')
    for length = 0, #text - 1, 3 do
      files.write(path, "zarr.json", text:sub(1, length))
      assert.is_false(pcall(source.zarr, { x = path }), length)
    end
    files.remove(there)
  end)

  it("says what of its metadata is damaged where a reader could do without, in v2, too", function()
    local path, there = copy "v2-gzip"
    local text = files.slurp(path .. "/.zarray")
    local function refused(from, to, word)
      local changed, n = text:gsub(from, to)
      assert.truthy(n > 0, from)
      files.write(path, ".zarray", changed)
      local message = files.message(function() source.zarr { x = path } end)
      assert.truthy(message:find(word, 1, true) and message:find(path, 1, true), message)
    end
    for _, name in ipairs { "filters", "order", "compressor", "fill_value" } do
      refused('"' .. name .. '"', '"_' .. name .. '"', ('it does not have "%s"'):format(name))
    end
    refused('"dimension_separator"', '"dimension_separctor"', 'has "dimension_separctor"')
    files.write(path, ".zarray", (text:gsub('"order"', '"_nczarr_array": {}, "order"')))
    assert.equal(11, #source.zarr { x = path })
    files.remove(there)
  end)

  it("has a fill value that its dtype can hold", function()
    local there = files.folder()
    local function fill_of(dtype, fill)
      files.write(there, ".zarray", ([[{"zarr_format": 2, "shape": [3], "chunks": [2], "dtype": "%s", "order": "C",
        "compressor": null, "filters": null, "fill_value": %s}]]):format(dtype, fill))
      return source.zarr { x = there }:read(0, 3).x
    end
    for _, case in ipairs { { "|i1", -128, 127 }, { "|u1", 0, 255 }, { "<i2", -2 ^ 15, 2 ^ 15 - 1 },
      { ">u2", 0, 2 ^ 16 - 1 }, { "<i4", -2 ^ 31, 2 ^ 31 - 1 }, { "<u4", 0, 2 ^ 32 - 1 } } do
      local dtype, lowest, highest = unpack(case)
      for fill = lowest, highest, highest - lowest do
        assert.same({ fill, fill, fill }, fill_of(dtype, ("%.0f"):format(fill)):to_table())
      end
      for _, fill in ipairs { lowest - 1, highest + 1 } do
        local message = files.message(fill_of, dtype, ("%.0f"):format(fill))
        assert.truthy(message:find(("its fill_value %.0f is no "):format(fill), 1, true), message)
      end
    end
    for dtype, fills in pairs {
      ["<i8"] = { "9223372036854775808", "-9223372036854775809" }, ["<u8"] = { "18446744073709551616", "-1" },
    } do
      for _, fill in ipairs(fills) do
        assert.truthy(files.message(fill_of, dtype, fill):find("its fill_value " .. fill, 1, true))
      end
    end
    files.remove(there)
  end)

  -- Everything is one clear error that names the file, or data of the right length.
  local function try(path, file)
    local ok, got = pcall(function()
      local s = source.zarr { x = path }
      return boxes.bytes_of(s:read(0, #s).x)
    end)
    if not ok then
      assert.truthy(tostring(got):find(file, 1, true), got)
      assert.is_nil(tostring(got):find("\n", 1, true), got)
      return nil, got
    end
    return got
  end

  local damaged = { -- a chunk's file, and whether each flipped bit is found
    ["v2-float32"] = { "0.0.0", false }, ["v2-zlib"] = { "0.0.0", true }, ["v2-gzip"] = { "0/0/0" },
    ["v2-zstd"] = { "0.0.0" }, ["v2-blosc-lz4"] = { "0.0.0" }, ["v2-blosc-blosclz"] = { "0.0.0" },
    ["v3-zstd"] = { "c/0/0/0" }, ["v3-crc"] = { "c/0/0/0", true }, ["v3-zstd-crc"] = { "c/0/0/0", true },
    ["v3-shard-zstd-end"] = { "c/0/0/0" }, ["v3-shard-plain-start"] = { "c/0/0/0" },
  }

  it("that is cut off is refused, at every length of a chunk's file", function()
    for name, case in pairs(damaged) do
      local path, there = copy(name)
      local text = files.slurp(path .. "/" .. case[1])
      for length = 0, #text - 1, #text > 300 and 7 or 1 do
        files.write(path, case[1], text:sub(1, length))
        assert.is_nil((try(path, path .. "/" .. case[1])), name .. " " .. length)
      end
      if not name:find "start" then -- nothing says where the last chunk of such a shard ends
        files.write(path, case[1], text .. "more")
        assert.is_nil((try(path, path .. "/" .. case[1])), name)
      end
      files.remove(there)
    end
  end)

  it("with any bit flipped is refused where there is a checksum, and never read beyond", function()
    for name, case in pairs(damaged) do
      local path, there = copy(name)
      local text = files.slurp(path .. "/" .. case[1])
      local good = try(path, "")
      for at = 1, #text, #text > 300 and 5 or 1 do
        local flipped = string.char(bit.bxor(text:byte(at), 2 ^ (at % 8)))
        files.write(path, case[1], text:sub(1, at - 1) .. flipped .. text:sub(at + 1))
        local got, message = try(path, path .. "/" .. case[1])
        assert.is_true(got == nil or #got == #good, name)
        if case[2] then assert.truthy(got == nil or got == good, name .. " " .. at .. tostring(message)) end
      end
      files.remove(there)
    end
  end)

  it("never decodes to more than a chunk has", function()
    local path, there = copy "v2-zlib"
    for name, compressor in pairs { ["v2-zlib"] = "zlib", ["v2-zstd"] = "zstd", ["v2-blosc-lz4"] = "blosc" } do
      assert(os.execute(("rm -r '%s' && cp -r '%s' '%s'"):format(path, path_of(name), path)) == 0)
      local text = files.slurp(path .. "/.zarray"):gsub("%f[%d]4,(%s*)4,(%s*)3", "4,%12,%23")
      files.write(path, ".zarray", text)
      local got, message = try(path, path)
      assert.is_nil(got, compressor)
      assert.truthy(message:find("decodes to more than 96 bytes", 1, true), message)
    end
    files.remove(there)
  end)

  it("says so when memory runs out, for every allocation", function()
    for _, name in ipairs { "v3-plain", "v2-zlib", "v3-zstd", "v2-blosc-lz4", "v3-shard-zstd-end" } do
      assert.truthy(boxes.check_memory(function() return open(name) end) > 8, name)
    end
  end)


  it("that shardrt does not read is refused, saying what it is", function()
    for name, word in pairs {
      ["v2-f"] = 'order is "F"', ["v2-lz4"] = '"lz4"', ["v2-delta"] = "has filters",
    } do
      local message = files.message(open, name)
      assert.truthy(message:find(word, 1, true), message)
      assert.truthy(message:find(path_of(name), 1, true), message)
    end
    local message = files.message(function() source.zarr { x = folder } end)
    assert.truthy(message:find("neither zarr.json nor .zarray", 1, true), message)
  end)
end)

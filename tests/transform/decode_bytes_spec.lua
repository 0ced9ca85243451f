-- Bytes that are elements, .npy files, texts: whole and by the box, of archives' members, damaged and cut.

local ffi = require "ffi"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"
local ndarray, T = shardrt.ndarray, shardrt.transform

local function bytes_source(text)
  local host = ndarray.empty({ 1, #text }, "uint8")
  ffi.copy(host.data, text, #text)
  return shardrt.source.array { x = host }
end

local function decode(text, ...)
  local x = bytes_source(text):map { x = { ... } }:read(0, 1).x
  return ndarray.is(x) and x:reshape { unpack(x.shape, 2) } or x[1]
end

local function text_of(host) return ffi.string(host.data, host.bytes) end

local function refused(text, step, ...)
  local message = files.message(decode, text, step)
  expect.contains(message, "x", ...)
end

local DTYPES = {
  bool = 1, int8 = 1, int16 = 2, int32 = 4, int64 = 8, uint8 = 1, uint16 = 2, uint32 = 4, uint64 = 8, float16 = 2,
  float32 = 4, float64 = 8,
}

describe("decode_npy", function()
  it("gives what numpy wrote, of every dtype and version", function()
    for name in pairs(DTYPES) do
      local text = files.slurp("tests/files/" .. name .. ".npy")
      local expected = ndarray.load("tests/files/" .. name .. ".npy")
      for _, shape in ipairs { { 2, 3 }, { -1, 3 }, { -1, -1 } } do
        local got = decode(text, T.decode_npy { dtype = name, shape = shape })
        assert.same(expected.shape, got.shape)
        assert.equal(name, got.dtype)
        assert.equal(text_of(expected), text_of(got), name)
      end
    end
    for i, shape in ipairs { {}, { 5 }, { 0, 4 }, { 1, 2, 3, 4 } } do
      local path = ("tests/files/shape%d.npy"):format(i - 1)
      local got = decode(files.slurp(path), T.decode_npy { dtype = "int32", shape = shape })
      assert.equal(text_of(ndarray.load(path)), text_of(got))
    end
    for _, version in ipairs { 2, 3 } do
      local text = files.slurp(("tests/files/version%d.npy"):format(version))
      assert.equal(5, tonumber(decode(text, T.decode_npy { dtype = "int64", shape = { 6 } }).data[5]))
    end
  end)

  it("refuses another dtype, shape, or file", function()
    local text = files.slurp "tests/files/int16.npy"
    refused(text, T.decode_npy { dtype = "int32", shape = { 2, 3 } },
      'sample 0, field "x": transform.decode_npy: an array of int16, not of int32')
    refused(text, T.decode_npy { dtype = "int16", shape = { 6 } }, "an array of 2 dimensions, not of 1")
    refused(text, T.decode_npy { dtype = "int16", shape = { 2, 4 } },
      "an array of size 3 in dimension 1, not of 4; -1 lets sizes differ")
    refused("no numpy", T.decode_npy { dtype = "int16", shape = {} }, "its bytes: is no .npy file")
  end)

  it("gives arrays in Fortran's order and big-endian ones as they are in C's, whole and by the box", function()
    local big = decode(files.slurp "tests/files/big.npy", T.decode_npy { dtype = "int32", shape = { 6 } })
    for i = 0, 5 do assert.equal(i, big.data[i]) end
    for _, shape in ipairs { { 5, 3, 4, 2 }, { 7, 1, 3 }, { 1, 4, 3 }, { 6 }, { 40, 70 }, { 0, 3 } } do
      local text, open = files.turned_npy(shape), {}
      for d = 1, #shape do open[d] = -1 end
      local step = T.decode_npy { dtype = "int32", shape = open }
      local whole, wrong = decode(text, step), 0
      assert.same(shape, whole.shape)
      for i = 0, whole.size - 1 do wrong = wrong + (whole.data[i] == i and 0 or 1) end
      if #shape > 1 and shape[1] > 1 then
        local columns = whole.size / shape[1]
        local box = decode(text, step, T.crop { start = { 1, shape[2] - 1 }, size = { shape[1] - 1, 1 } })
        local inner = columns / shape[2]
        for i = 0, box.size - 1 do
          local right = (math.floor(i / inner) + 1) * columns + (shape[2] - 1) * inner + i % inner
          wrong = wrong + (box.data[i] == right and 0 or 1)
        end
      end
      assert.equal(0, wrong)
    end
  end)

  it("survives cuts at every length and flipped bits", function()
    local text = files.slurp "tests/files/float32.npy"
    local step = T.decode_npy { dtype = "float32", shape = { -1, -1 } }
    for length = 1, #text - 1 do refused(text:sub(1, length), step, "decode_npy") end
    for at = 1, #text do
      for power = 0, 7 do
        local other = string.char(bit.bxor(text:byte(at), 2 ^ power))
        pcall(decode, text:sub(1, at - 1) .. other .. text:sub(at + 1), step)
      end
    end
  end)
end)

describe("decode_raw", function()
  it("takes bytes for elements, whole and by the box", function()
    for name, size in pairs(DTYPES) do
      local text = name == "bool" and ("\0\1"):rep(12) or files.bytes(24 * size)
      for _, shape in ipairs { { 4, 3, 2 }, { -1, 3, 2 }, { 4, -1, 2 }, { -1 }, { 24 } } do
        local step = T.decode_raw { dtype = name, shape = shape }
        assert.equal(text, text_of(decode(text, step)), name)
        if #shape == 3 then
          local part = decode(text, step, T.crop { start = { 1, 0, 1 }, size = { 2, 3, 1 } })
          local expected = {}
          for i = 1, 2 do
            for k = 0, 2 do
              local at = ((i * 3 + k) * 2 + 1) * size
              expected[#expected + 1] = text:sub(at + 1, at + size)
            end
          end
          assert.equal(table.concat(expected), text_of(part))
        end
      end
    end
    assert.same({ 0, 3 }, decode("", T.decode_raw { dtype = "int8", shape = { -1, 3 } }).shape)
    assert.same({ 0, 0 }, decode("", T.decode_raw { dtype = "int8", shape = { -1, 0 } }).shape)
    assert.same({}, decode("\1\2", T.decode_raw { dtype = "int16", shape = {} }).shape)
  end)

  it("refuses what does not fit", function()
    refused("12345", T.decode_raw { dtype = "int16", shape = { 2 } }, "5 bytes; its dtype and shape ask for 4")
    refused("12345", T.decode_raw { dtype = "int16", shape = { -1 } }, "5 bytes", "ask for a multiple of 2")
    refused("1", T.decode_raw { dtype = "int16", shape = { -1, 0 } }, "ask for a multiple of 0")
    for shape, part in pairs {
      [{ -1, -1 }] = "2 sizes are open; one can be told", [{ 2 ^ 40, 2 ^ 40 }] = "more bytes than 64 bits can count",
      [{ -2 }] = "a whole number from -1 on",
    } do
      assert.truthy(files.message(T.decode_raw, { dtype = "int8", shape = shape }):find(part, 1, true))
    end
    local numbers = shardrt.source.array { x = ndarray.zeros({ 2, 3 }, "int16") }
    local message = files.message(numbers.map, numbers, { x = { T.decode_raw { dtype = "int8", shape = { -1 } } } })
    assert.truthy(message:find("it takes bytes, uint8 of one dimension, not int16 of 1", 1, true), message)
    local source = bytes_source "ab"
    message = files.message(source.map, source, { x = { T.cast "uint8", T.decode_text {} } })
    assert.truthy(message:find("a decoder comes first", 1, true), message)
  end)
end)

describe("decode_text", function()
  it("cuts off between characters, fills up, checks all of it", function()
    local text = "aé€😀z" -- of 1, 2, 3, 4 and 1 bytes
    local ends = { [0] = 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11, 11 }
    for size = 0, 13 do
      local expected = text:sub(1, ends[size]) .. (" "):rep(size - ends[size])
      local step = T.decode_text { size = size, value = 32 }
      assert.equal(expected, text_of(decode(text, step)), size)
      for start = 0, size - 1 do
        local part = decode(text, step, T.crop { start = { start }, size = { 1 } })
        assert.equal(expected:sub(start + 1, start + 1), text_of(part))
      end
    end
    assert.equal(text, text_of(decode(text, T.decode_text())))
    assert.equal("\0\0", text_of(decode("", T.decode_text { size = 2 })))
    for broken, at in pairs {
      ["ab\255"] = 2, ["é\195"] = 2, ["\192\128"] = 0, ["a\237\160\128"] = 1, ["\244\144\128\128"] = 0, ["a\128"] = 1,
    } do
      refused(broken, T.decode_text { size = 1 },
        ("no text in UTF-8: byte %d of its %d is "):format(at, #broken), "decode_raw takes any bytes")
    end
    assert.truthy(files.message(T.decode_text, { value = 256 }):find("a byte, from 0 to 255", 1, true))
  end)
end)

describe("members of an archive", function()
  it("come into a batch as text, as arrays, as elements", function()
    local folder = files.folder()
    local path = files.write(folder, "w.tar", files.slurp "tests/files/records/webdataset.tar")
    local source = shardrt.source.tar(path, { fields = { txt = "bytes", npy = "bytes", bin = "bytes", cls = "int64" } })
    local mesh = shardrt.make_mesh({ 2 }, { "x" })
    local P, s = shardrt.P, function(p) return shardrt.NamedSharding(mesh, p) end
    local count = 0
    for batch in shardrt.loader {
      source = source, batch_size = 4, epochs = 1,
      sharding = { txt = s(P(nil, "x")), npy = s(P(nil, nil, nil)), bin = s(P "x"), cls = s(P()) },
      transform = {
        txt = { T.decode_text { size = 10, value = 46 } },
        npy = { T.decode_npy { dtype = "float32", shape = { 2, 3 } } },
        bin = { T.decode_raw { dtype = "uint8", shape = { -1 } }, T.pad { size = { 12 } } },
      },
    } do
      local txt, npy = shardrt.device_get(batch.txt), shardrt.device_get(batch.npy)
      local bin = shardrt.device_get(batch.bin)
      for i = 0, 3 do
        local text = "number " .. count
        assert.equal(text .. ("."):rep(10 - #text), ffi.string(txt.data + 10 * i, 10))
        for k = 0, 5 do assert.equal(count + k, npy.data[6 * i + k]) end
        for k = 0, 11 do assert.equal(k < count and (count * 7 + k) % 256 or 0, bin.data[12 * i + k]) end
        count = count + 1
      end
    end
    assert.equal(12, count)
    files.remove(folder)
  end)

  it("are given back where memory ends", function()
    local text = files.slurp "tests/files/int16.npy"
    local steps = {
      T.decode_npy { dtype = "int16", shape = { 2, -1 } }, T.decode_raw { dtype = "int16", shape = { -1 } },
    }
    for _, step in ipairs(steps) do
      assert.is_true(no_memory.each(function() decode(text, step) end) > 0)
    end
  end)
end)

-- Malformed files: cut at every length, every header byte flipped, headers that lie. Each is one clear error that names
-- the file, or right data; never a crash, never part of the data.

local ffi = require "ffi"
local files = require "tests.support.files"
local ndarray = require("shardrt").ndarray
local source = require "shardrt.data.source"

describe("a bad file", function()
  local folder, cache
  before_each(function()
    folder = files.folder()
    cache = folder .. "/cache"
  end)
  after_each(function() files.remove(folder) end)

  local function bytes_of(host) return ffi.string(host.data, host.bytes) end

  -- One line that says where the recipe is and which file it is about.
  local function assert_clear(message, path)
    assert.truthy(message:find(path, 1, true), message)
    assert.truthy(message:match "^tests/dataset/bad_files_spec.lua:%d+: ", message)
    assert.is_nil(message:find("\n", 1, true), message)
  end

  -- Opens a file of samples {x}; gives all bytes of all samples, or nil and the message.
  local function open(format, path)
    local ok, s = pcall(function() return source[format]({ x = path }, { cache = cache }) end)
    if not ok then
      assert_clear(s, path)
      return nil, s
    end
    return bytes_of(s:read(0, #s).x), s
  end

  local function load(path)
    local ok, host = pcall(function() return ndarray.load(path) end)
    if not ok then
      assert_clear(host, path)
      return nil, host
    end
    return bytes_of(host), host
  end

  local function refused(format, text, word)
    local path = files.write(folder, "bad", text)
    local data, message = open(format, path)
    assert.is_nil(data)
    assert.truthy(message:find(word, 1, true), message)
    if format == "npy" then
      data, message = load(path)
      assert.is_nil(data)
      assert.truthy(message:find(word, 1, true), message)
    end
  end

  local npy_payload, idx_payload = files.bytes(24), files.bytes(24)
  local npy_files = {}
  for major = 1, 3 do
    npy_files[major] = files.npy { dict = files.dict("<i4", { 2, 3 }), payload = npy_payload, major = major }
  end
  local idx_file = files.idx(8, { 4, 3, 2 }, idx_payload)

  it("that is cut at any length is refused", function()
    for _, text in ipairs(npy_files) do
      for length = 0, #text - 1 do
        local path = files.write(folder, "cut.npy", text:sub(1, length))
        assert.is_nil(open("npy", path), length)
        assert.is_nil(load(path), length)
      end
    end
    for length = 0, #idx_file - 1 do
      assert.is_nil(open("idx", files.write(folder, "cut.idx", idx_file:sub(1, length))), length)
    end
    local zipped = files.slurp(files.gzip(files.write(folder, "whole.idx", idx_file)))
    for length = 0, #zipped - 1 do
      assert.is_nil(open("idx", files.write(folder, "cut.gz", zipped:sub(1, length))), length)
    end
    assert.same({}, files.list(cache))
  end)

  it("that has anything behind its end is refused", function()
    for _, more in ipairs { "\0", "x", ("\0"):rep(512) } do
      refused("npy", npy_files[1] .. more, "something stands behind the data")
      refused("idx", idx_file .. more, "something stands behind the data")
      local zipped = files.slurp(files.gzip(files.write(folder, "whole.idx", idx_file)))
      refused("idx", zipped .. more, "behind the end of the gzip data")
      local longer = files.slurp(files.gzip(files.write(folder, "longer.idx", idx_file .. more)))
      refused("idx", longer, "more than the 40 bytes")
    end
    local shorter = files.slurp(files.gzip(files.write(folder, "shorter.idx", idx_file:sub(1, -2))))
    refused("idx", shorter, "holds 39 bytes, but its header tells of 40")
  end)

  it("with any byte of its header flipped is refused, or gives all the bytes that are there", function()
    local masks = { 1, 2, 4, 8, 16, 32, 64, 128, 255 }
    local function flipped(text, at, mask)
      return text:sub(1, at - 1) .. string.char(bit.bxor(text:byte(at), mask)) .. text:sub(at + 1)
    end
    local opened = 0
    for _, text in ipairs(npy_files) do
      for at = 1, #text - #npy_payload do
        for _, mask in ipairs(masks) do
          local path = files.write(folder, "flip.npy", flipped(text, at, mask))
          local one, two = load(path), open("npy", path)
          if one then
            local now = flipped(text, at, mask)
            local size = now:match "'>%a(%d+)'" -- "<" flipped to ">": the elements' bytes the other way around
            local right = size and npy_payload:gsub(("."):rep(size), string.reverse) or npy_payload
            opened = opened + 1
            assert.equal(right, one)
            assert.is_true(two == nil or two == right)
          end
        end
      end
    end
    assert.is_true(opened > 0) -- '<i4' becomes '<u4', a space a tab, …
    for at = 1, #idx_file - #idx_payload do
      for _, mask in ipairs(masks) do
        local data = open("idx", files.write(folder, "flip.idx", flipped(idx_file, at, mask)))
        assert.is_true(data == nil or data == idx_payload)
      end
    end
  end)

  it("with any byte flipped of what was gzipped is refused, or gives the right data", function()
    local zipped = files.slurp(files.gzip(files.write(folder, "whole.idx", idx_file)))
    for at = 1, #zipped do
      for _, mask in ipairs { 1, 16, 128, 255 } do
        local text = zipped:sub(1, at - 1) .. string.char(bit.bxor(zipped:byte(at), mask)) .. zipped:sub(at + 1)
        local data = open("idx", files.write(folder, "flip.gz", text))
        assert.is_true(data == nil or data == idx_payload) -- gzip's own header has bytes that say nothing
      end
    end
  end)

  it("of random bytes is refused", function()
    local seed = require "tests.support.seed"
    math.randomseed(seed)
    for _ = 1, 500 do
      local bytes = {}
      for i = 1, math.random(0, 200) do bytes[i] = string.char(math.random(0, 255)) end
      local text = table.concat(bytes)
      local heads = { "", "\147NUMPY\1\0", "\147NUMPY\1\0\40\0{'descr': '", "\0\0\8\3", "\31\139\8\0" }
      local path = files.write(folder, "random", heads[math.random(#heads)] .. text)
      local told = "with seed " .. seed
      assert.is_nil((open("npy", path)), told)
      assert.is_nil((open("idx", path)), told)
      assert.is_nil((load(path)), told)
    end
  end)

  it("whose header lies is refused with the reason", function()
    local function npy(dict, payload, major, minor)
      return files.npy { dict = dict, payload = payload or npy_payload, major = major, minor = minor }
    end
    local function shape(text) return ("{'descr': '<i4', 'fortran_order': False, 'shape': %s, }"):format(text) end
    for _, case in ipairs {
      { "", "is empty" },
      { "hello, this is no array", "is no .npy file" },
      { "PK\3\4 and so on", "archive" },
      { npy(files.dict("<i4", { 2, 3 }), nil, 4), "version 4.0" },
      { npy(files.dict("<i4", { 2, 3 }), nil, 1, 1), "version 1.1" },
      { npy(files.dict("<i4", { 2, 4 })), "it is cut off" },
      { npy(files.dict("<i4", { 2, 2 })), "something stands behind the data" },
      { npy(files.dict("<i8", { 2, 3 })), "it is cut off" },
      { npy(shape "(4611686018427387904, 4)"), "more than 64 bits hold" },
      { npy(shape "(4294967296, 4294967296)"), "more than 64 bits hold" },
      { npy(shape "(9223372036854775807,)"), "more than 64 bits hold" },
      { npy(shape "(9223372036854775808,)"), "does not fit in 64 bits" },
      { npy(shape "(18446744073709551617, 6)"), "does not fit in 64 bits" },
      { npy(shape "(99999999999999999999999999999999999999,)"), "does not fit in 64 bits" },
      { npy(shape "(2, -3)"), "negative" },
      { npy(shape "(6)"), "tuple" },
      { npy(shape "6"), "tuple" },
      { npy(shape "[2, 3]"), "tuple" },
      { npy(shape "(2 3)"), "comma" },
      { npy(shape "(2, 3"), "'shape'" },
      { npy(shape "(2.0, 3)"), "comma" },
      { npy(shape "(,)"), "tuple" },
      { npy(shape "(1,1,1,1,1,1,1,2,3)"), "more than 8 dimensions" },
      { npy(files.dict("<i4", { 2, 3 }, "1")), "True or False" },
      { npy(files.dict(">V2", { 2, 3 })), "its dtype is '>V2'" },
      { npy(files.dict("|O", { 3 })), "Python objects" },
      { npy(files.dict("<U2", { 3 })), "text" },
      { npy(files.dict("|S8", { 3 })), "text" },
      { npy(files.dict("<c8", { 3 })), "complex" },
      { npy(files.dict("<M8[ns]", { 3 })), "times" },
      { npy(files.dict("<f16", { 3 })), "its dtype is '<f16'" },
      { npy(files.dict("|V8", { 3 })), "its dtype is '|V8'" },
      { npy(files.dict("", { 3 })), "its dtype is ''" },
      { npy "{'descr': [('a', '<i4'), ('b', '<f4')], 'fortran_order': False, 'shape': (3,), }", "structured" },
      { npy "{'descr': '<i4', 'fortran_order': False, }", "each once" },
      { npy "{'descr': '<i4', 'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }", "each once" },
      { npy "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), 'more': 1, }", "each once" },
      { npy "{'descr': '<i4' 'fortran_order': False, 'shape': (2, 3), }", "comma" },
      { npy "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), } and more", "nothing but spaces" },
      { npy "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), ", "each once" },
      { npy "", "each once" },
      { npy "import os", "each once" },
    } do
      refused("npy", case[1], case[2])
    end
    for _, case in ipairs {
      { "", "is empty" },
      { "\0\0\8", "cut off within its header" },
      { "\1\0\8\1\0\0\0\1x", "is no IDX file" },
      { "\147NUMPY", "is no IDX file" },
      { files.idx(0x0A, { 1 }, "x"), "type 0x0a" },
      { files.idx(8, {}, "x"), "0 dimensions" },
      { files.idx(8, { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, "x"), "9 dimensions" },
      { "\0\0\8\255" .. ("\0"):rep(2000), "255 dimensions" },
      { files.idx(8, { 2, 3 }, "abcde"), "it is cut off" },
      { files.idx(8, { 2, 3 }, "abcdefg"), "something stands behind the data" },
      { files.idx(14, { 2 ^ 32 - 1, 2 ^ 32 - 1, 2 ^ 32 - 1 }, "x"), "more than 64 bits hold" },
      { files.idx(14, { 2 ^ 31, 2 ^ 31 }, "x"), "more than 64 bits hold" },
      { files.idx(8, { 0, 2 ^ 32 - 1, 2 ^ 32 - 1, 2 ^ 32 - 1 }, ""), "does not fit in 64 bits" },
      { files.idx(8, { 2 ^ 32 - 1 }, "x"), "it is cut off" },
    } do
      refused("idx", case[1], case[2])
      -- The same, gzipped.
      local path = files.gzip(files.write(folder, "lie.idx", case[1]))
      assert.is_nil(open("idx", path))
    end
  end)

  it("of more samples than Lua counts is refused, of as many it is not", function()
    local function of(samples)
      local dict = ("{'descr': '<i4', 'fortran_order': False, 'shape': (%s, 0), }"):format(samples)
      return files.write(folder, "counted.npy", files.npy { dict = dict })
    end
    assert.equal(2 ^ 53, #source.npy { x = of "9007199254740992" })
    local path = of "9007199254740993"
    local ok, message = pcall(source.npy, { x = path })
    assert.is_false(ok)
    assert.truthy(message:find(path .. ": 9007199254740993 samples, more than the 2^53", 1, true), message)
  end)

  it("that is huge and mostly hole is told by its sizes, not read", function()
    -- A header that tells the truth about 1 TB of nothing.
    local head = files.npy { dict = files.dict("|u1", { 1000000, 1000000 }) }
    local path = files.write(folder, "hole.npy", head)
    if os.execute(("truncate -s %d %s 2>/dev/null"):format(#head + 1000000 * 1000000, path)) ~= 0 then
      pending "this file system holds no file of 1 TB"
      return
    end
    local s = source.npy { x = path }
    assert.equal(1000000, #s)
    assert.equal(("\0"):rep(1000000), bytes_of(s:read(999999, 1).x))
  end)
end)

-- Arrays of .safetensors files as fields: what the reference implementation wrote (tests/files/arrays.py), by the box,
-- in several files, with every flipped bit found by the index beside the file.

local bit = require "bit"
local ffi = require "ffi"
local boxes = require "tests.support.boxes"
local files = require "tests.support.files"
local ndarray = require("shardrt").ndarray
local shardrt = require "shardrt"
local source = require "shardrt.data.source"

local SHAPE = { 6, 5 } -- of a sample; there are 11
local types = {
  bool = 1, int8 = 1, int16 = 2, int32 = 4, int64 = 8, uint8 = 1, uint16 = 2, uint32 = 4, uint64 = 8, float16 = 2,
  float32 = 4, float64 = 8,
}

describe("a source of a safetensors file", function()
  local folder, path
  setup(function()
    folder = boxes.unpack()
    path = folder .. "/data.safetensors"
  end)
  teardown(function() files.remove(folder) end)

  local function open(dtype, o)
    o = o or {}
    o.fields = { [dtype] = dtype }
    return source.safetensors(o.path or path, { fields = o.fields, verify = o.verify })
  end
  local function values(dtype)
    local s = source.npy { x = folder .. "/" .. dtype .. ".npy" }
    return boxes.bytes_of(s:read(0, #s).x)
  end

  -- A file of rows of these bytes, made by shardrt's own writer.
  local function rows(name, count, bytes)
    local host = ndarray.empty({ count, bytes }, "uint8")
    ffi.copy(host.data, files.bytes(count * bytes), count * bytes)
    shardrt.save(folder .. "/" .. name, { x = host })
    return folder .. "/" .. name, boxes.bytes_of(host)
  end

  -- Changes a byte as a disk would: the file is as long and as old as it was.
  local function damage(at, of, flip)
    assert(os.execute(("touch -r '%s' '%s/time'"):format(of, folder)) == 0)
    local file = assert(io.open(of, "r+b"))
    file:seek("set", at)
    local byte = file:read(1):byte()
    file:seek("set", at)
    file:write(string.char(bit.bxor(byte, flip)))
    file:close()
    assert(os.execute(("touch -r '%s/time' '%s'"):format(folder, of)) == 0)
  end

  it("has the values that the reference implementation wrote, whole and by the box", function()
    for dtype, size in pairs(types) do
      for _, verify in ipairs { true, false } do
        local s = open(dtype, { verify = verify })
        assert.equal(11, #s)
        assert.same({ dtype = dtype, shape = SHAPE }, s.fields[dtype])
        assert.is_true(boxes.bytes_of(s:read(0, 11)[dtype]) == values(dtype), dtype)
        boxes.check_random(s, values(dtype), SHAPE, size, 30)
      end
    end
  end)

  it("has all arrays of one length, or those asked for", function()
    local message = files.message(source.safetensors, path)
    assert.truthy(message:find('"step" has 3', 1, true), message)
    assert.same({ "float32", "int64" }, source.safetensors(path, {
      fields = { float32 = "float32", int64 = { "int64", SHAPE } },
    }).names)
    local made = rows("all.safetensors", 5, 7)
    assert.same({ dtype = "uint8", shape = { 7 } }, source.safetensors(made).fields.x)
    for _, case in ipairs {
      { { nowhere = "int8" }, 'no array "nowhere"' }, { { float32 = "int8" }, '"float32" is float32, not int8' },
      { { float32 = { "float32", { 6, 6 } } }, "do not have the shape" },
    } do
      message = files.message(source.safetensors, path, { fields = case[1] })
      assert.truthy(message:find(case[2], 1, true), message)
    end
  end)

  it("may be several files", function()
    local one, text = rows("part-0.safetensors", 5, 7)
    local two, more = rows("part-1.safetensors", 3, 7)
    local s = source.safetensors { one, two }
    assert.equal(8, #s)
    assert.equal(text .. more, boxes.bytes_of(s:read(0, 8).x))
    assert.equal(8, #source.safetensors(folder .. "/part-*.safetensors"))
  end)

  it("is read by the box where rows are small, middling and large beside the blocks that are checked", function()
    math.randomseed(require "tests.support.seed")
    for _, case in ipairs { { 3000, 3 }, { 40, 3072 }, { 12, 4096 }, { 5, 65536 }, { 3, 200001 } } do
      local made, text = rows("rows.safetensors", case[1], case[2])
      local s = source.safetensors(made)
      for _ = 1, 40 do
        local a, b = math.random(0, case[2]), math.random(0, case[2])
        local first, stop, samples, expected = math.min(a, b), math.max(a, b), {}, {}
        for i = 1, 5 do
          samples[i] = math.random(0, case[1] - 1)
          local at = samples[i] * case[2]
          expected[i] = text:sub(at + first + 1, at + stop)
        end
        local code, got = boxes.gather(s, 0, samples, { { first, stop } }, 1)
        assert.equal(0, code)
        assert.is_true(got == table.concat(expected))
      end
    end
  end)

  it("finds every flipped bit of its data, naming the file, the array and the place", function()
    local made, text = rows("flipped.safetensors", 9, 5000)
    local header = #files.slurp(made) - #text
    source.safetensors(made)
    for at = 0, #text - 1, 199 do
      damage(header + at, made, 2 ^ (at % 8))
      local message = files.message(function() source.safetensors(made):read(0, 9) end)
      assert.truthy(message:find('"x": the file ' .. made .. ": record", 1, true), message)
      assert.truthy(message:find("CRC-32C", 1, true), message)
      local row = math.floor(at / 5000) -- the others are read
      local s = source.safetensors(made)
      assert.is_true(boxes.bytes_of(s:read(0, row).x) == text:sub(1, row * 5000))
      assert.is_true(boxes.bytes_of(s:read(row + 1, 8 - row).x) == text:sub((row + 1) * 5000 + 1))
      local unverified = source.safetensors(made, { verify = false }):read(0, 9).x
      assert.is_true(boxes.bytes_of(unverified) ~= text)
      damage(header + at, made, 2 ^ (at % 8))
    end
    assert.is_true(boxes.bytes_of(source.safetensors(made):read(0, 9).x) == text)
  end)

  it("finds every flipped bit of its header", function()
    local made, text = rows("header.safetensors", 4, 16)
    local header = #files.slurp(made) - #text
    source.safetensors(made)
    for at = 0, header - 1 do
      damage(at, made, 2 ^ (at % 8))
      local message = files.message(source.safetensors, made)
      assert.truthy(message:find(made, 1, true), message)
      damage(at, made, 2 ^ (at % 8))
    end
    assert.equal(4, #source.safetensors(made))
  end)

  it("that is cut off is refused, at every length", function()
    local text = files.slurp(path)
    for length = 0, #text - 1, 61 do
      local cut = files.write(folder, "cut.safetensors", text:sub(1, length))
      local message = files.message(source.safetensors, cut, { fields = { int8 = "int8" } })
      assert.truthy(message:find(cut, 1, true), message)
    end
  end)

  it("is read by many threads, cut over devices, as a .npy file is", function()
    local one = ("shardrt.source.safetensors(%q, { fields = { float32 = 'float32' } })"):format(path)
    boxes.check_loader(folder, one .. ":map { x = { from = 'float32' }, float32 = false }",
      ("shardrt.source.npy { x = %q }"):format(folder .. "/float32.npy"))
  end)

  it("says so when memory runs out, for every allocation", function()
    local made = rows("memory.safetensors", 5, 700)
    assert.truthy(boxes.check_memory(function()
      os.remove(made .. ".shardrt-index")
      return source.safetensors(made)
    end) > 8)
    assert.truthy(boxes.check_memory(function() return source.safetensors { made, made } end) > 12)
  end)
end)

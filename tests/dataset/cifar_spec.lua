-- CIFAR-10 and CIFAR-100, the binary versions (tests/files/cifar, made by cifar.py): whole, cut among devices, damaged,
-- cut, and what is no such file.

local ffi = require "ffi"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"

local FOLDER = "tests/files/cifar/"
local folder
before_each(function()
  folder = files.folder()
  for _, name in ipairs { "data_batch_1.bin", "data_batch_2.bin", "train.bin" } do
    files.write(folder, name, files.slurp(FOLDER .. name))
  end
end)
after_each(function() files.remove(folder) end)

local function picture(i)
  local bytes = {}
  for k = 0, 3071 do bytes[k + 1] = string.char((31 * i + 7 * k + math.floor(k / 1024)) % 256) end
  return table.concat(bytes)
end

local function refused(text, o, ...)
  os.remove(folder .. "/made.bin.shardrt-index")
  local message = files.message(shardrt.source.cifar, files.write(folder, "made.bin", text), o)
  expect.contains(message, "made.bin", ...)
end

describe("source.cifar", function()
  it("reads CIFAR-10, several files as one", function()
    local source = shardrt.source.cifar(folder .. "/data_batch_*.bin")
    assert.equal(4, #source)
    assert.same({ "image", "label" }, source.names)
    assert.same({ dtype = "uint8", shape = { 3, 32, 32 } }, source.fields.image)
    assert.same({ dtype = "uint8", shape = {} }, source.fields.label)
    local all = source:read(0, 4)
    for i = 0, 3 do
      assert.equal(picture(i), ffi.string(all.image.data + 3072 * i, 3072))
      assert.equal(3 + i, all.label.data[i])
    end
  end)

  it("reads CIFAR-100, and the fields that are asked for", function()
    local source = shardrt.source.cifar(folder .. "/train.bin")
    assert.same({ "coarse_label", "fine_label", "image" }, source.names)
    local all = source:read(0, 2)
    assert.same({ 3, 4 }, all.coarse_label:to_table())
    assert.same({ 95, 96 }, all.fine_label:to_table())
    assert.equal(picture(0) .. picture(1), ffi.string(all.image.data, 6144))
    source = shardrt.source.cifar(folder .. "/train.bin", { fields = { fine_label = "uint8" }, verify = false })
    assert.same({ "fine_label" }, source.names)
    assert.same({ 96 }, source:read(1, 1).fine_label:to_table())
  end)

  it("gives each device its rows of pixels", function()
    local P, mesh = shardrt.P, shardrt.make_mesh({ 4 }, { "y" })
    local count = 0
    for batch in shardrt.loader {
      source = shardrt.source.cifar { folder .. "/data_batch_1.bin", folder .. "/data_batch_2.bin" },
      batch_size = 2, epochs = 1,
      sharding = {
        image = shardrt.NamedSharding(mesh, P(nil, nil, "y", nil)), label = shardrt.NamedSharding(mesh, P()),
      },
    } do
      for _, shard in ipairs(batch.image.addressable_shards) do
        local rows = shard.index[3]
        for i = 0, 1 do
          for c = 0, 2 do
            local first = c * 1024 + rows[1] * 32
            assert.equal(picture(2 * count + i):sub(first + 1, first + 256),
              ffi.string(shard.data.data + (i * 3 + c) * 256, 256))
          end
        end
      end
      count = count + 1
    end
    assert.equal(2, count)
  end)

  it("refuses what is no such file, with advice", function()
    refused("", nil, "is empty")
    refused("\31\139" .. ("x"):rep(50), nil, "is gzipped: `tar xzf` it, and name the .bin files that come out")
    refused("\128\4\149" .. ("x"):rep(50), nil, "is a pickle, as the version for Python has them",
      "cifar-10-binary.tar.gz")
    refused(("\10"):rep(3073), nil, "record 0 at byte 0: a label is 10, which CIFAR-10 does not have")
    refused(("\4"):rep(3073) .. ("\20"):rep(3073), nil, "record 1 at byte 3073: a label is 20")
    refused(("\4\100"):rep(1537), nil, "record 0 at byte 0: a label is 100, which CIFAR-100 does not have")
    local ten = files.slurp(FOLDER .. "data_batch_1.bin")
    refused(ten, { fields = { fine_label = "uint8" } }, 'CIFAR-10 has no "fine_label"; it has "image" and "label"')
    for fields, part in pairs {
      [{ label = "int64" }] = "int64 is asked for, and it is uint8; transform.cast converts",
      [{ image = { "uint8", { 32, 32, 3 } } }] = "an image {3, 32, 32}",
      [{ a = "uint8", b = "uint8", c = "uint8", d = "uint8" }] = "has no 4 fields",
    } do
      local message = files.message(shardrt.source.cifar, folder .. "/data_batch_1.bin", { fields = fields })
      assert.truthy(message:find(part, 1, true), message)
    end
    local message = files.message(shardrt.source.cifar, { folder .. "/data_batch_1.bin", folder .. "/train.bin" })
    assert.truthy(message:find("is of CIFAR-10 and the file", 1, true), message)
  end)

  it("tells the two apart also where the length fits both", function()
    local ten = ("\7" .. picture(0)):rep(3074)
    local path = files.write(folder, "both.bin", ten)
    assert.equal(3074, #shardrt.source.cifar(path))
    assert.same({ "image", "label" }, shardrt.source.cifar(path).names)
    path = files.write(folder, "both100.bin", ("\7\77" .. picture(1)):rep(3073))
    assert.same({ "coarse_label", "fine_label", "image" }, shardrt.source.cifar(path).names)
  end)

  it("refuses files that are cut, at every length", function()
    local text = files.slurp(FOLDER .. "data_batch_1.bin")
    for length = 1, #text - 1, 5 do
      if length ~= 3073 then
        refused(text:sub(1, length), nil, length .. " bytes, which are no whole number of records")
      end
    end
    refused(text:sub(1, #text - 1), nil, "it is cut off, or another file")
  end)

  it("finds single bits that are flipped", function()
    local path = folder .. "/data_batch_2.bin"
    local text, source = files.slurp(path), shardrt.source.cifar(path)
    local file = assert(io.open(path, "r+b"))
    for at = 1, #text, 61 do
      file:seek("set", at - 1)
      file:write(string.char(bit.bxor(text:byte(at), 2 ^ (at % 8))))
      file:flush()
      local record = at <= 3073 and 0 or 1
      local message = files.message(source.read, source, record, 1)
      local place = ("data_batch_2.bin: record %d at byte %d (3073 bytes) is damaged"):format(record, record * 3073)
      assert.truthy(message:find(place, 1, true), message)
      source:read(1 - record, 1)
      file:seek("set", at - 1)
      file:write(text:sub(at, at))
      file:flush()
    end
    file:close()
  end)

  it("leaves out records whose labels there are not, where these are to be skipped", function()
    local text = files.slurp(folder .. "/data_batch_1.bin")
    local path = files.write(folder, "bad.bin", text .. "\99" .. text:sub(2))
    assert.truthy(files.message(shardrt.source.cifar, path):find("record 2 at byte 6146: a label is 99", 1, true))
    local source = shardrt.source.cifar(path, { on_bad_record = "skip" })
    assert.equal(3, #source)
    assert.same({ 3, 4, 4 }, source:read(0, 3).label:to_table())
    assert.equal(2, source.bad_records[1].record)
  end)

  it("leaves nothing behind where memory ends", function()
    local path = folder .. "/train.bin"
    shardrt.source.cifar(path)
    assert.is_true(no_memory.each(function() shardrt.source.cifar(path):read(0, 2) end) > 5)
  end)
end)

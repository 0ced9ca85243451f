-- Datasets of HDF5 files, as h5py writes them (tests/files/arrays.py): whole, by the box, damaged.

local bit = require "bit"
local boxes = require "tests.support.boxes"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local source = require "shardrt.data.source"

local SHAPE = { 6, 5 } -- of a sample; there are 11
local types = {
  bool = 1, int8 = 1, int16 = 2, int32 = 4, int64 = 8, uint8 = 1, uint16 = 2, uint32 = 4, uint64 = 8, float16 = 2,
  float32 = 4, float64 = 8,
}
local datasets = { -- and the dtypes whose values they hold
  ["data.h5:/chunked"] = "float32", ["data.h5:/gzip"] = "float32", ["data.h5:shuffle"] = "float32",
  ["data.h5:/fletcher"] = "float32", ["data.h5:/fletcher-plain"] = "float32", ["data.h5:/fletcher-odd"] = "uint8",
  ["data.h5:/big-gzip"] = "int32", ["data.h5:/grown"] = "float32", ["data.h5:/compact"] = "float32",
}
for _, file in ipairs { "v110.h5", "user.h5" } do -- the formats of HDF5 1.10; a user block before the file
  for _, name in ipairs { "plain", "chunked", "gzip", "single", "grown" } do
    datasets[file .. ":/" .. name] = "float32"
  end
end
for dtype, size in pairs(types) do
  datasets["data.h5:/group/" .. dtype] = dtype
  if size > 1 then datasets["data.h5:/group/" .. dtype .. "-big"] = dtype end
end

describe("an HDF5 dataset", function()
  local folder
  setup(function() folder = boxes.unpack() end)
  teardown(function() files.remove(folder) end)

  local function open(name) return source.hdf5 { x = folder .. "/" .. name } end
  local function npy(name)
    local s = source.npy { x = folder .. "/" .. name .. ".npy" }
    return boxes.bytes_of(s:read(0, #s).x)
  end

  it("has the values that h5py wrote, in every dtype, byte order, layout and encoding", function()
    for name, dtype in pairs(datasets) do
      local s = open(name)
      assert.equal(11, #s, name)
      assert.same({ dtype = dtype, shape = SHAPE }, s.fields.x, name)
      assert.is_true(boxes.bytes_of(s:read(0, 11).x) == npy(dtype), name)
    end
  end)

  it("has the same values behind a user block of any size, as MATLAB's files have one", function()
    local text = files.slurp(folder .. "/v110.h5")
    local header = "MATLAB 7.3 MAT-file, Platform: GLNXA64 HDF5 schema 1.00 ."
    for _, size in ipairs { 512, 1024, 8192 } do
      files.write(folder, ("block%d.h5"):format(size), header .. (" "):rep(size - #header) .. text)
      for _, name in ipairs { "plain", "chunked", "gzip", "single", "grown" } do
        assert.is_true(boxes.bytes_of(open(("block%d.h5:/%s"):format(size, name)):read(0, 11).x) == npy "float32")
      end
    end
  end)

  it("gives the fill value where nothing was written", function()
    assert.is_true(boxes.bytes_of(open("data.h5:/holes"):read(0, 11).x) == npy "h5-holes")
    boxes.check_random(open "data.h5:/holes", npy "h5-holes", SHAPE, 2, 30)
    assert.equal(("\2\1\0\0"):rep(11 * 30), boxes.bytes_of(open("data.h5:/unwritten"):read(0, 11).x))
  end)

  it("is read by the box, also where that cuts chunks", function()
    for name, dtype in pairs(datasets) do boxes.check_random(open(name), npy(dtype), SHAPE, types[dtype], 20) end
  end)

  it("is read by many threads, cut over devices, as a .npy file is", function()
    for _, name in ipairs { "data.h5:/group/float32", "data.h5:/shuffle" } do
      boxes.check_loader(folder, ("shardrt.source.hdf5 { x = %q }"):format(folder .. "/" .. name),
        ("shardrt.source.npy { x = %q }"):format(folder .. "/float32.npy"))
    end
  end)

  it("that shardrt does not read is refused, saying what it is, and nothing is printed", function()
    for name, word in pairs {
      ["data.h5:/lzf"] = '"lzf"', ["data.h5:/text"] = "are texts", ["data.h5:/compound"] = "are compounds",
      ["data.h5:/scalar"] = "is a single number", ["data.h5:/nowhere"] = "doesn't exist",
      ["data.h5:/group"] = "cannot be opened", ["data.h5"] = "named behind its file", ["no.h5:/x"] = "No such file",
      ["float32.npy:/x"] = "no HDF5 file",
    } do
      local message = files.message(open, name)
      assert.truthy(message:find(word, 1, true), message)
      assert.truthy(message:find(name, 1, true) or message:find(name:match "^[^:]*", 1, true), message)
    end
    local path = files.write(folder, "open.lua", "print(pcall(require('shardrt.data.source').hdf5, { x = arg[1] }))")
    local result = mpi.shell(("%s %s %s/float32.npy:/x 2>&1 >/dev/null"):format(mpi.program(), path, folder))
    assert.equal("", result.stdout)
  end)

  it("does not keep others from the file, and reads it while it is locked", function()
    local path = files.write(folder, "locked.lua",
      "local s = require('shardrt.data.source').hdf5{x=arg[1]..':/gzip'} "
        .. "os.execute('flock -n -x '..arg[1]..' echo free')")
    local result = mpi.shell(("flock -x %s/data.h5 %s %s %s/data.h5"):format(folder, mpi.program(), path, folder))
    assert.equal(0, result.status, result.output)
    result = mpi.shell(("%s %s %s/data.h5"):format(mpi.program(), path, folder))
    assert.truthy(result.output:find("free", 1, true), result.output)
  end)

  -- In a process of its own, as it is the library that reads what is damaged: tries a damaged copy for each number of a
  -- list, and prints what became of it.
  local TRY = [[
    local bit, ffi = require "bit", require "ffi"
    local files, source = require "tests.support.files", require "shardrt.data.source"
    local folder, name, how = arg[1], arg[2], arg[3]
    local text = files.slurp(folder .. "/v110.h5")
    local good = source.hdf5 { x = folder .. "/v110.h5:/" .. name }:read(0, 11).x
    ffi.cdef "int64_t H5Fget_obj_count(int64_t file, unsigned types);"
    local counts = { right = 0, refused = 0, other = 0 }
    for at = 0, #text - 1, tonumber(arg[4]) do
      local changed = text:sub(1, at)
      if how == "flip" then
        changed = changed .. string.char(bit.bxor(text:byte(at + 1), 2 ^ (at % 8))) .. text:sub(at + 2)
      end
      local path = files.write(folder, "damaged.h5", changed)
      local ok, got = pcall(function()
        local s = source.hdf5 { x = path .. ":/" .. name }
        if #s > 1000 or s.names[1] == nil or #s.fields.x.shape ~= 2 then return end
        return s:read(0, #s).x
      end)
      if not ok and not tostring(got):find("damaged.h5", 1, true) then error(got) end
      local key = not ok and "refused" or got and got.bytes == good.bytes
        and ffi.string(got.data, got.bytes) == ffi.string(good.data, good.bytes) and "right" or "other"
      counts[key] = counts[key] + 1
    end
    good = nil
    collectgarbage()
    collectgarbage()
    assert(ffi.C.H5Fget_obj_count(0x1f, 0x1f) == 0) -- of everything that can be open, in all files
    print(("right %d refused %d other %d"):format(counts.right, counts.refused, counts.other))
  ]]
  local function damage(name, how, step)
    local path = files.write(folder, "damage.lua", TRY)
    local result = mpi.shell(("%s %s %s %s %s %d"):format(mpi.program(), path, folder, name, how, step))
    assert.equal(0, result.status, result.output)
    local right, refused, other = result.output:match "right (%d+) refused (%d+) other (%d+)"
    assert.truthy(right, result.output)
    return tonumber(right), tonumber(refused), tonumber(other)
  end

  it("of a file that is cut off is refused, at every length", function()
    for _, name in ipairs { "plain", "gzip" } do
      local right, refused, other = damage(name, "cut", 29)
      assert.same({ 0, 0 }, { right, other })
      assert.truthy(refused > 50)
    end
  end)

  it("of a file with any bit flipped never crashes", function()
    for _, name in ipairs { "plain", "gzip", "grown" } do
      local right, refused = damage(name, "flip", 31)
      assert.truthy(right > 10 and refused > 5)
    end
  end)

  it("with a Fletcher-32 finds every flipped bit of its chunks", function()
    local text = files.slurp(folder .. "/data.h5")
    -- A chunk's plain elements, as they stand in the file.
    local s = source.npy { x = folder .. "/float32.npy" }
    local _, samples = nil, {}
    for i = 0, 3 do
      local sample = boxes.bytes_of(s:read(i, 1).x)
      for row = 0, 3 do samples[#samples + 1] = sample:sub(row * 20 + 1, row * 20 + 12) end
    end
    local chunk, found, from = table.concat(samples), 0, 1
    while true do
      from, _ = text:find(chunk, from, true)
      if not from then break end
      for at = from, from + #chunk - 1, 7 do
        local changed = text:sub(1, at - 1) .. string.char(bit.bxor(text:byte(at), 2 ^ (at % 8))) .. text:sub(at + 1)
        files.write(folder, "flipped.h5", changed)
        local ok, message = pcall(function() return open("flipped.h5:/fletcher-plain"):read(0, 11) end)
        if not ok then
          assert.truthy(message:find("flipped.h5:/fletcher-plain: the chunk of 196 bytes at byte", 1, true), message)
          assert.truthy(message:find("Fletcher-32", 1, true), message)
          found = found + 1
        end
      end
      from = from + #chunk
    end
    assert.equal(math.ceil(#chunk / 7), found) -- once of the datasets that have such a chunk
  end)

  it("says so when memory runs out, for every allocation", function()
    for _, name in ipairs { "data.h5:/group/float32", "data.h5:/fletcher", "data.h5:/compact" } do
      assert.truthy(boxes.check_memory(function() return open(name) end) > 6, name)
    end
  end)
end)

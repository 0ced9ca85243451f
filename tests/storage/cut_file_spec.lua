-- long: 20 s
-- A file that is cut short while a recipe reads it by memory map: the system's SIGBUS becomes a message.

local boxes = require "tests.support.boxes"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

-- Writes a file that is worth reading, and cuts it after the second step; `arg[1]` is a folder.
local CUT = [[
local shardrt = require "shardrt"
local path = arg[1] .. "/images.npy"
if shardrt.process_index() == 0 then shardrt.ndarray.zeros({ 20000, 512 }, "uint8"):save(path) end
local job = require("shardrt.base.current").job
require("shardrt.base.error").check(require("shardrt.base.ffi").shardrt_barrier(job, "written"))
local loader = shardrt.loader { source = shardrt.source.npy { image = path }, batch_size = 64, prefetch = 1 }
local step = 0
for batch in loader do
  step = step + 1
  if step == 2 and shardrt.process_index() == 0 then
    require("ffi").cdef "int truncate(const char *, long)"
    assert(require("ffi").C.truncate(path, 4096) == 0)
  end
end
print "not noticed"
]]

local function lines_about(text, name)
  local list = {}
  for line in text:gmatch "[^\n]+" do
    if line:find(name, 1, true) then list[#list + 1] = line end
  end
  return list
end

describe("a file that is cut short while it is read", function()
  local folder
  before_each(function() folder = mpi.folder() end)
  after_each(function() mpi.remove(folder) end)

  local function is_told(processes, pattern)
    local result = mpi.run { source = CUT, args = { folder }, processes = processes, devices = 2 }
    assert.is_true(result.status ~= 0 and result.status ~= 124, result.status .. result.output)
    assert.falsy(result.stdout:find("not noticed", 1, true))
    local lines = lines_about(result.stderr, "images.npy")
    assert.equal(1, #lines, result.output)
    assert.equal(("shardrt: %sthe file %s/images.npy was cut short, or can no longer be read, while it was in use")
      :format(pattern, folder), (lines[1]:gsub("process [0-3] of 4", "process N of 4")))
    return result
  end

  it("is named, by a process alone", function()
    local result = is_told(nil, "")
    assert.equal(1, result.status)
    assert.equal(1, select(2, result.stderr:gsub("\n", "")), result.stderr)
  end)

  it("is named once by several processes that read it, and ends them all", function()
    is_told(4, "process N of 4: ")
  end)

  -- The workers have no batch beyond row 1,019, and who reads ahead looks for the next one's rows.
  it("is named also where who reads ahead finds it first", function()
    local result = mpi.run { source = [[
      local shardrt = require "shardrt"
      local ffi = require "ffi"
      ffi.cdef "int truncate(const char *, long); int usleep(unsigned);"
      local offsets, data = arg[1] .. "/offsets.npy", arg[1] .. "/data.npy"
      shardrt.ndarray.arange(40001, "int64"):save(offsets)
      shardrt.ndarray.zeros({ 40000 }, "uint8"):save(data)
      local source = shardrt.source.ragged { x = { data = data, offsets = offsets } }
      local loader = shardrt.loader {
        source = source:map { x = { shardrt.transform.pad { size = { 1 } } } }, batch_size = 60, prefetch = 1,
      }
      local step = 0
      for _ in loader do
        step = step + 1
        if step == 15 then assert(ffi.C.truncate(offsets, 8192) == 0) end
        if step >= 15 then ffi.C.usleep(300000) end
      end]], args = { folder } }
    assert.equal(1, result.status, result.output)
    assert.truthy(result.stderr:match "^shardrt: the file [^\n]*/offsets.npy was cut short[^\n]*\n$", result.output)
  end)

  it("is named also where it is the cached contents of a gzipped one", function()
    local result = mpi.run { source = [[
      local shardrt = require "shardrt"
      local C, ffi = require "shardrt.base.ffi", require "ffi"
      ffi.cdef "int truncate(const char *, long)"
      os.execute(("cd %s && { printf '\\0\\0\\10\\1\\0\\17\\102\\100'; head -c 1000000 /dev/zero; } | gzip -n > z.gz")
        :format(arg[1]))
      local s = shardrt.source.idx({ x = arg[1] .. "/z.gz" }, { cache = arg[1] .. "/cache" })
      assert(#s == 1000000)
      local pipe = io.popen(("ls %s/cache/*"):format(arg[1]))
      assert(ffi.C.truncate(pipe:read "*l", 100) == 0)
      s:read(0, 1000000)
      print "not noticed"]], args = { folder } }
    assert.equal(1, result.status, result.output)
    assert.truthy(result.stderr:match "^shardrt: the file [^\n]*/cache/z%.gz%-%x+%-%x+ was cut short[^\n]*\n$",
      result.output)
  end)
end)

-- Copies of what the formats' own software wrote, opened, read, cut to nothing and read again.
describe("a file of any format that is cut short between two reads", function()
  local folder
  before_each(function() folder = boxes.unpack() end)
  after_each(function() mpi.remove(folder) end)

  local function gunzip(from, name)
    assert.equal(0, os.execute(("gzip -dc tests/files/%s > %s/%s"):format(from, folder, name)))
    return name
  end
  local function copy(from)
    assert.equal(0, os.execute(("cp tests/files/%s %s"):format(from, folder)))
    return from:match "[^/]*$"
  end
  local function write(name, text)
    files.write(folder, name, text)
    return name
  end

  for format, make in pairs {
    array_record = function() return gunzip("array_record/uncompressed-1.array_record.gz", "a.array_record") end,
    arrow = function() return copy "arrow/plain.arrow", "%q, { fields = { 'i32' } }" end,
    cifar = function() return copy "cifar/train.bin" end,
    csv = function() return write("a.csv", "x,y\n1,2\n3,4\n") end,
    hdf5 = function() return "data.h5", "{ x = %q .. ':/chunked' }" end,
    idx = function() return write("a.idx", "\0\0\8\1\0\0\0\4abcd"), "{ x = %q }" end,
    jsonl = function() return write("a.jsonl", '{"x":1}\n{"x":2}\n') end,
    megatron = function()
      copy "megatron/0.idx"
      return copy "megatron/0.bin", "(%q):match '(.*)%%.bin', { view = 'gpt', window = 9 }"
    end,
    mds = function()
      copy "mds/scalars/index.json"
      return copy "mds/scalars/shard.00000.mds", "(%q):match '(.*)/'"
    end,
    npy = function() return copy "int32.npy", "{ x = %q }" end,
    npz = function() return copy "npz/stored.npz" end,
    parquet = function() return copy "parquet/plain.parquet", "%q, { fields = { 'i32' } }" end,
    safetensors = function() return "data.safetensors", "%q, { fields = { float32 = 'float32' } }" end,
    tar = function() return copy "records/ustar.tar" end,
    tfrecord = function() return copy "records/tensorflow.tfrecord" end,
    tokens = function() return write("a.bin", ("\0\1"):rep(100)), "%q, { window = 4 }" end,
    zarr = function() return "zarr/v2-float32/0.0.0", "{ x = (%q):match '(.*)/' }" end,
  } do
    it("is named: " .. format, function()
      local name, given = make()
      local path = folder .. "/" .. name
      local result = mpi.run { source = ([[
        local shardrt = require "shardrt"
        local ffi = require "ffi"
        ffi.cdef "int truncate(const char *, long)"
        local source = shardrt.source.%s(%s)
        source:read(0, #source)
        assert(ffi.C.truncate(%q, 0) == 0)
        source:read(0, #source)
        print "not noticed"]]):format(format, (given or "%q"):format(path), path) }
      assert.equal(1, result.status, result.output)
      assert.equal(1, #lines_about(result.stderr, path), result.output)
      assert.falsy(result.output:find("not noticed", 1, true), result.output)
    end)
  end
end)

describe("a SIGBUS of another kind", function()
  for what, body in pairs {
    ["that somebody sends"] = [[ffi.cdef "int raise(int)" ffi.C.raise(7)]],
    ["from memory that is no source's"] = [[
      ffi.cdef "void *mmap(void *, size_t, int, int, int, long); int open(const char *, int);"
      local path = os.tmpname()
      local file = io.open(path, "w")
      file:write "x"
      file:close()
      local fd = ffi.C.open(path, 0)
      os.remove(path)
      local data = ffi.cast("volatile const uint8_t *", ffi.C.mmap(nil, 65536, 1, 1, fd, 0))
      print(data[40000])]],
  } do
    it(what .. " ends the process as it would without us", function()
      local sanitized = os.getenv "SHARDRT_SANITIZER"
      for _, processes in ipairs { 0, 2 } do
        local result = mpi.run {
          source = [[local ffi = require "ffi"
            local keep = require("shardrt").source.array { x = { 1, 2 } }
            ]] .. body .. "\nprint('still here', keep)",
          processes = processes > 0 and processes or nil,
        }
        assert.is_true(result.status ~= 0 and result.status ~= 124, result.output)
        if processes == 0 and not sanitized then assert.equal(128 + 7, result.status, result.output) end
        assert.falsy(result.output:find("still here", 1, true))
        assert.falsy(result.output:find("cut short", 1, true))
      end
    end)
  end
end)

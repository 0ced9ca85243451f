-- .npy files: numpy's format read and written, as host arrays, as sources, and by the box into sharded arrays.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local arrays = require "tests.support.arrays"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"
local ndarray = shardrt.ndarray
local source = require "shardrt.data.source"

local descrs = {
  bool = "|b1", int8 = "|i1", int16 = "<i2", int32 = "<i4", int64 = "<i8", uint8 = "|u1", uint16 = "<u2",
  uint32 = "<u4", uint64 = "<u8", float16 = "<f2", bfloat16 = "<V2", float32 = "<f4", float64 = "<f8",
}

local DATA = "tests/files/" -- what numpy wrote; its README says how

describe(".npy files", function()
  local folder
  setup(function() folder = files.folder() end)
  teardown(function() files.remove(folder) end)

  local function bytes_of(host) return ffi.string(host.data, host.bytes) end

  -- A recipe that saves an array to `arg[1]`.
  local SAVE = 'require("shardrt").ndarray.arange(3, "int32"):save(arg[1])'

  it("are written whole also where there is no /proc", function()
    if os.getenv "SHARDRT_SANITIZER" then pending "a sanitizer wants /proc" return end
    local without = "unshare -m sh -c 'mount -t tmpfs none /proc && %s'"
    if mpi.shell(without:format "true").status ~= 0 then pending "this user may not hide /proc" return end
    local recipe, path = files.write(folder, "save.lua", SAVE), folder .. "/without/a.npy"
    os.execute("mkdir " .. folder .. "/without")
    for _ = 1, 2 do -- the second one in place of the first
      local result = mpi.shell(without:format(("%s %s %s"):format(mpi.program(), recipe, path)))
      assert.equal(0, result.status, result.output)
      assert.same({ 0, 1, 2 }, ndarray.load(path):to_table())
      assert.same({ "a.npy" }, files.list(folder .. "/without"))
    end
  end)

  it("are brought to the disk with their names", function()
    if os.getenv "SHARDRT_SANITIZER" then pending "a sanitizer wants to be the first library" return end
    -- A library that tells what is synced, and what was renamed before it.
    local source_path = files.write(folder, "told.c", [[
      #include <dlfcn.h>
      #include <stdio.h>
      #include <sys/stat.h>
      int fsync(int fd) {
        struct stat status;
        fstat(fd, &status);
        fprintf(stderr, "sync a %s\n", S_ISDIR(status.st_mode) ? "folder" : "file");
        return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
      }
      int rename(const char *from, const char *to) {
        fputs("rename\n", stderr);
        return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
      }]])
    local library = folder .. "/told.so"
    assert.equal(0, os.execute(("gcc -D_GNU_SOURCE -shared -fPIC -o %s %s -ldl"):format(library, source_path)))
    local recipe = files.write(folder, "save.lua", SAVE)
    local result = mpi.shell(("LD_PRELOAD=%s %s %s %s/synced.npy"):format(library, mpi.program(), recipe, folder))
    assert.equal("sync a file\nrename\nsync a folder\n", result.output)
    assert.same({ 0, 1, 2 }, ndarray.load(folder .. "/synced.npy"):to_table())
  end)

  it("are read in every version, dtype and number of dimensions", function()
    for name, descr in pairs(descrs) do
      local size = tonumber(C.shardrt_dtype_size(C.shardrt_dtype_from_name(name)))
      for _, shape in ipairs { {}, { 5 }, { 2, 3 }, { 0, 4 }, { 3, 0 }, { 1, 2, 1, 2, 1, 2, 1, 2 } } do
        local elements = 1
        for _, n in ipairs(shape) do elements = elements * n end
        local payload = name == "bool" and ("\0\1"):rep(elements):sub(1, elements) or files.bytes(elements * size)
        for major = 1, 3 do
          local path = files.write(folder, "a.npy",
            files.npy { dict = files.dict(descr, shape), payload = payload, major = major })
          local host = ndarray.load(path)
          assert.equal(name, host.dtype)
          assert.same(shape, host.shape)
          assert.equal(payload, bytes_of(host))
        end
      end
    end
  end)

  it("are read however Python would write the dict", function()
    local payload = files.bytes(24)
    for _, dict in ipairs {
      "{'shape': (2, 3), 'fortran_order': False, 'descr': '<i4'}",
      '{"descr":"<i4","fortran_order":False,"shape":(2,3)}',
      "  {\t'descr' : '<i4' ,\n'fortran_order':\r False,'shape': ( 2L , 3L , ) , }      ",
    } do
      local host = ndarray.load(files.write(folder, "a.npy", files.npy { dict = dict, payload = payload }))
      assert.same({ 2, 3 }, host.shape)
      assert.equal(payload, bytes_of(host))
    end
    -- One byte has no order.
    local text = files.npy { dict = files.dict("<u1", { 3 }), payload = "abc" }
    local host = ndarray.load(files.write(folder, "a.npy", text))
    assert.equal("uint8", host.dtype)
  end)

  it("are written so that they are read back the same, aligned to 64 bytes", function()
    for name in pairs(descrs) do
      for _, shape in ipairs { {}, { 7 }, { 3, 4 }, { 0 }, { 2, 1, 2, 1, 2, 1, 2, 1 } } do
        local host = ndarray.full(shape, 1, name)
        local path = folder .. "/b.npy"
        host:save(path)
        local text = files.slurp(path)
        assert.equal(0, (#text - host.bytes) % 64)
        assert.equal("\147NUMPY\1\0", text:sub(1, 8))
        assert.equal("\n", text:sub(#text - host.bytes, #text - host.bytes))
        local again = ndarray.load(path)
        assert.equal(name, again.dtype)
        assert.same(shape, again.shape)
        assert.equal(bytes_of(host), bytes_of(again))
      end
    end
  end)

  it("are written with the largest header", function()
    local sizes = ffi.new("int64_t[8]", 9223372036854775807LL)
    sizes[7] = 0 -- no element, so any sizes go
    local path = folder .. "/big.npy"
    assert.equal(0, C.shardrt_npy_save(path, C.SHARDRT_FLOAT64, 8, sizes, nil))
    local dtype, ndim, read = ffi.new "int32_t[1]", ffi.new "int32_t[1]", ffi.new "int64_t[8]"
    assert.equal(0, C.shardrt_npy_header(path, dtype, ndim, read, nil))
    assert.equal(8, ndim[0])
    for d = 0, 7 do assert.is_true(read[d] == sizes[d]) end
  end)

  it("are written whole or not at all", function()
    local path = folder .. "/c.npy"
    ndarray.full({ 3 }, 7, "int32"):save(path)
    local old = files.slurp(path)
    local recipe = files.write(folder, "save.lua",
      "require('shardrt').ndarray.zeros({1000000}, 'uint8'):save(arg[1])")
    -- A limit on the size of files stands for a disk that is full.
    local result = require("tests.support.mpi").shell(
      ("trap '' XFSZ; ulimit -f 100; %s %s %s"):format(require("tests.support.mpi").program(), recipe, path), 30)
    assert.not_equal(0, result.status)
    assert.truthy(result.output:find(path, 1, true), result.output)
    assert.truthy(result.output:find("save.lua:1", 1, true), result.output)
    assert.equal(old, files.slurp(path))
    for _, name in ipairs(files.list(folder)) do assert.is_nil(name:match "%.tmp$") end
  end)

  it("cannot be written where there is no folder", function()
    local path = folder .. "/none/d.npy"
    local message = files.message(function() ndarray.zeros({ 1 }):save(path) end)
    assert.truthy(message:find(path, 1, true), message)
    local over = files.message(function() ndarray.zeros({ 1 }):save(folder) end)
    assert.truthy(over:find(folder, 1, true), over)
    for _, name in ipairs(files.list(folder)) do assert.is_nil(name:match "%.tmp$") end
  end)

  it("give sources", function()
    local image = files.write(folder, "image.npy",
      files.npy { dict = files.dict("<i2", { 4, 2, 3 }), payload = files.bytes(48) })
    local label = files.write(folder, "label.npy", files.npy { dict = files.dict("|u1", { 4 }), payload = "abcd" })
    local s = source.npy { label = label, image = image }
    assert.equal(4, #s)
    assert.same({ "image", "label" }, s.names)
    assert.same({ dtype = "int16", shape = { 2, 3 } }, s.fields.image)
    assert.same({ dtype = "uint8", shape = {} }, s.fields.label)
    local read = s:read(1, 2)
    assert.equal(files.bytes(48):sub(13, 36), bytes_of(read.image))
    assert.same({ 98, 99 }, read.label:to_table())
    assert.same({ 2, 2, 3 }, read.image.shape)
  end)

  it("fill sharded arrays, each distinct box read once", function()
    local payload = files.bytes(8 * 6 * 4)
    local path = files.write(folder, "w.npy", files.npy { dict = files.dict("<i4", { 8, 6 }), payload = payload })
    local whole = ndarray.load(path)
    local names = ffi.new("const char *[2]", { "a", "b" })
    local mesh, sharding = ffi.new "shardrt_mesh *[1]", ffi.new "shardrt_sharding *[1]"
    assert.equal(0, C.shardrt_mesh_new(2, ffi.new("int64_t[2]", 4, 2), names, 0, nil, 8, mesh))
    local cases = { -- axes of dimension 0 and 1; processes of 8 / n devices; bytes that process 0 reads
      { { 1, 1 }, { "a", "b" }, 8, 192 }, { { 1, 0 }, { "a" }, 8, 192 }, { { 0, 1 }, { "b" }, 2, 192 },
      { { 0, 1 }, { "b" }, 1, 96 }, { { 0, 0 }, {}, 8, 192 }, { { 2, 0 }, { "a", "b" }, 2, 48 },
    }
    for _, case in ipairs(cases) do
      local counts, axes = ffi.new("int32_t[2]", case[1]), ffi.new("const char *[2]", case[2])
      assert.equal(0, C.shardrt_sharding_new(mesh[0], 2, counts, axes, sharding))
      local array, read = ffi.new "shardrt_array *[1]", ffi.new "int64_t[1]"
      assert.equal(0, C.shardrt_array_new(sharding[0], C.SHARDRT_INT32, 2, ffi.new("int64_t[2]", 8, 6), 0, case[3],
        array))
      assert.equal(0, C.shardrt_npy_fill(path, array[0], read))
      assert.equal(case[4], tonumber(read[0]))
      for i = 0, tonumber(C.shardrt_array_shard_count(array[0])) - 1 do
        local box = C.shardrt_array_shard(array[0], i).box
        local data = ffi.cast("int32_t *", arrays.data(array[0], i))
        local at = 0
        for row = tonumber(box.start[0]), tonumber(box.stop[0]) - 1 do
          for column = tonumber(box.start[1]), tonumber(box.stop[1]) - 1 do
            assert.equal(whole.data[row * 6 + column], data[at])
            at = at + 1
          end
        end
      end
      C.shardrt_array_free(array[0])
      -- An array of another shape is refused.
      assert.equal(0, C.shardrt_array_new(sharding[0], C.SHARDRT_INT32, 2, ffi.new("int64_t[2]", 8, 8), 0, case[3],
        array))
      assert.equal(C.SHARDRT_EINVAL, C.shardrt_npy_fill(path, array[0], read))
      C.shardrt_array_free(array[0])
      C.shardrt_sharding_free(sharding[0])
    end
    C.shardrt_mesh_free(mesh[0])
  end)

  local function numbers(host)
    local flat = host:reshape { host.size }:to_table()
    for k, value in ipairs(flat) do flat[k] = value == true and 1 or value == false and 0 or tonumber(value) end
    return flat
  end

  it("are read as numpy writes them", function()
    for name in pairs(descrs) do
      if name ~= "bfloat16" then -- numpy has none of its own
        local host = ndarray.load(DATA .. name .. ".npy")
        assert.equal(name, host.dtype)
        assert.same({ 2, 3 }, host.shape)
        assert.same(name == "bool" and { 0, 1, 1, 1, 1, 1 } or { 0, 1, 2, 3, 4, 5 }, numbers(host))
      end
    end
    for i, shape in ipairs { {}, { 5 }, { 0, 4 }, { 1, 2, 3, 4 } } do
      local host = ndarray.load(("%sshape%d.npy"):format(DATA, i - 1))
      assert.same(shape, host.shape)
      for k, value in ipairs(numbers(host)) do assert.equal(k - 1, value) end
    end
    for _, name in ipairs { "version2", "version3" } do
      assert.same({ 0, 1, 2, 3, 4, 5 }, numbers(ndarray.load(DATA .. name .. ".npy")))
    end
  end)

  it("are written as numpy writes them, byte for byte but for the header's padding", function()
    local function parts(path) -- magic and version, the dict without spaces behind it, the payload
      local text = files.slurp(path)
      local length = text:byte(9) + 256 * text:byte(10)
      return { text:sub(1, 8), (text:sub(11, 10 + length):gsub("%s+$", "")), text:sub(11 + length) }
    end
    local names = { "shape0", "shape1", "shape2", "shape3" }
    for name in pairs(descrs) do names[#names + 1] = name ~= "bfloat16" and name or nil end
    assert.equal(16, #names)
    for _, name in ipairs(names) do
      ndarray.load(DATA .. name .. ".npy"):save(folder .. "/ours.npy")
      assert.same(parts(DATA .. name .. ".npy"), parts(folder .. "/ours.npy"))
    end
  end)

  it("in forms that shardrt does not read are refused by name, as numpy writes them", function()
    for name, word in pairs {
      object = "Python objects", structured = "structured",
      text = "text", bytes = "text", complex = "complex", times = "times", archive = "npz",
    } do
      local path = DATA .. name .. ".npy"
      local message = files.message(ndarray.load, path)
      assert.truthy(message:match(word), message)
      assert.truthy(message:find(path, 1, true), message)
    end
  end)

  it("are sources in Fortran order and big-endian, too, as numpy writes them", function()
    local o = { cache = folder .. "/cache" }
    local function read(path)
      local s = source.npy({ x = path }, o)
      return s:read(0, #s).x:to_table(), s
    end
    assert.same({ { 0, 1, 2 }, { 3, 4, 5 } }, (read(DATA .. "fortran.npy")))
    assert.same({ 0, 1, 2, 3, 4, 5 }, (read(DATA .. "big.npy")))
    for number, shape in ipairs { { 5, 3, 4, 2 }, { 7, 1, 3 }, { 1, 4, 3 }, { 6 }, { 3000, 700 }, { 0, 3 } } do
      local count = 1
      for _, size in ipairs(shape) do count = count * size end
      local path = files.write(folder, ("order%d.npy"):format(number), files.turned_npy(shape))
      for _ = 1, 2 do -- the second time from the cache
        local s = source.npy({ x = path }, o)
        local host, wrong = s:read(0, #s).x, 0
        assert.same(shape, host.shape)
        for i = 0, count - 1 do wrong = wrong + (host.data[i] == i and 0 or 1) end
        assert.equal(0, wrong)
      end
      local host, wrong = ndarray.load(path), 0
      assert.same(shape, host.shape)
      for i = 0, count - 1 do wrong = wrong + (host.data[i] == i and 0 or 1) end
      assert.equal(0, wrong)
    end
    assert.equal(5, #files.list(folder .. "/cache")) -- of those whose orders differ, and numpy's
    local tail = files.slurp(folder .. "/order1.npy"):sub(1, -2)
    assert.truthy(files.message(source.npy, { x = files.write(folder, "cut.npy", tail) }, o):find("cut off", 1, true))
  end)

  it("are loaded in any order, each device its part", function()
    for _, name in ipairs { "fortran", "big" } do
      local host = ndarray.load(DATA .. name .. ".npy")
      for i = 0, 5 do assert.equal(i, tonumber(host.data[i]), name) end
    end
    local path, P = files.write(folder, "turned.npy", files.turned_npy { 8, 4, 12 }), shardrt.P
    local mesh = shardrt.make_mesh({ 2, 4 }, { "a", "b" })
    for _, spec in ipairs { P(), P("a", "b"), P("a", nil, "b"), P(nil, "b"), P(nil, nil, "a"), P { "b", "a" } } do
      local x = shardrt.load_npy(path, shardrt.NamedSharding(mesh, spec))
      for _, shard in ipairs(x.addressable_shards) do
        local n, wrong, index = 0, 0, shard.index
        for i = index[1][1], index[1][2] - 1 do
          for j = index[2][1], index[2][2] - 1 do
            for k = index[3][1], index[3][2] - 1 do
              wrong, n = wrong + (shard.data.data[n] == 48 * i + 12 * j + k and 0 or 1), n + 1
            end
          end
        end
        assert.equal(0, wrong)
        assert.equal(shard.data.size, n)
      end
    end
  end)

  it("are ragged fields in any order, too", function()
    local data = files.write(folder, "flat.npy", files.npy {
      dict = files.dict(">i4", { 6 }), payload = "\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\1\0\5",
    })
    local ends = {}
    for i, offset in ipairs { 0, 2, 2, 6 } do ends[i] = ("\0"):rep(7) .. string.char(offset) end
    local offsets = files.write(folder, "offsets.npy", files.npy {
      dict = files.dict(">i8", { 4 }), payload = table.concat(ends),
    })
    local x = source.ragged { t = { data = data, offsets = offsets } }:read(0, 3).t
    assert.same({ { 0, 1 }, {}, { 2, 3, 4, 65541 } }, { x[1]:to_table(), x[2]:to_table(), x[3]:to_table() })
  end)

  it("leave nothing behind when an allocation fails", function()
    local path = files.write(folder, "e.npy", files.npy { dict = files.dict("<i4", { 3 }), payload = files.bytes(12) })
    local dtype, ndim, read = ffi.new "int32_t[1]", ffi.new "int32_t[1]", ffi.new "int64_t[8]"
    local calls = {
      function()
        local out = ffi.new "shardrt_buffer *[1]"
        local code = C.shardrt_npy_load(path, dtype, ndim, read, out)
        if code == 0 then C.shardrt_buffer_free(out[0]) end
        return code
      end,
      function() return C.shardrt_npy_header(path, dtype, ndim, read, nil) end,
      function()
        return C.shardrt_npy_save(folder .. "/f.npy", C.SHARDRT_INT8, 1, ffi.new("int64_t[1]", 3), ffi.new "char[3]")
      end,
    }
    for _, call in ipairs(calls) do
      assert.is_true(no_memory.each(call) > 0)
    end
    for _, name in ipairs(files.list(folder)) do assert.is_nil(name:match "%.tmp$") end
  end)
end)

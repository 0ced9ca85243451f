-- long: 15 s
-- IDX files, the MNIST family's format: every type, gzip, and the cache of what was gzipped.

local ffi = require "ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local source = require "shardrt.data.source"

local types = { -- dtype, and bytes of an element
  [0x08] = { "uint8", 1 }, [0x09] = { "int8", 1 }, [0x0B] = { "int16", 2 }, [0x0C] = { "int32", 4 },
  [0x0D] = { "float32", 4 }, [0x0E] = { "float64", 8 },
}

local fashion = "/usr/share/datasets/fashion-mnist"
local has_fashion = io.open(fashion .. "/train-images-idx3-ubyte.gz", "rb")

describe("IDX files", function()
  local folder, cache
  before_each(function()
    folder = files.folder()
    cache = folder .. "/cache"
  end)
  after_each(function() files.remove(folder) end)

  local function bytes_of(host) return ffi.string(host.data, host.bytes) end

  -- Big-endian elements as this machine has them.
  local function swapped(text, size)
    return (text:gsub(("."):rep(size), string.reverse))
  end

  local function plain(name, count)
    return files.write(folder, name, files.idx(8, { count, 7 }, files.bytes(count * 7)))
  end

  -- What is in a folder of the cache, but for what a killed process leaves where files cannot be made without a name,
  -- and for the checksums that lie beside a file: who opens it right when it was made notes none, who comes later does.
  local function whole_files(where)
    local list = {}
    for _, name in ipairs(files.list(where or cache)) do
      if not (name:match "%.tmp$" or name:match "%.shardrt%-index$") then list[#list + 1] = name end
    end
    return list
  end

  it("are read in every type, big-endian", function()
    for type, known in pairs(types) do
      local payload = files.bytes(4 * 3 * 2 * known[2])
      local path = files.write(folder, "a.idx", files.idx(type, { 4, 3, 2 }, payload))
      local s = source.idx { x = path }
      assert.equal(4, #s)
      assert.same({ dtype = known[1], shape = { 3, 2 } }, s.fields.x)
      local sample = #payload / 4
      for first = 0, 3 do
        for count = 0, 4 - first do
          local part = payload:sub(first * sample + 1, (first + count) * sample)
          assert.equal(swapped(part, known[2]), bytes_of(s:read(first, count).x))
        end
      end
    end
  end)

  it("hold the numbers that their bytes say", function()
    local function read(type, payload) return source.idx {
      x = files.write(folder, "n.idx", files.idx(type, { 1 }, payload)),
    }:read(0, 1).x:to_table()[1] end
    assert.equal(-2, read(0x09, "\254"))
    assert.equal(258, read(0x0B, "\1\2"))
    assert.equal(-1, read(0x0C, "\255\255\255\255"))
    assert.equal(1.5, read(0x0D, "\63\192\0\0"))
    assert.equal(-2.25, read(0x0E, "\192\2\0\0\0\0\0\0"))
  end)

  it("read the same gzipped, decompressed once into the cache", function()
    for type, known in pairs(types) do
      local payload = files.bytes(500 * 30 * known[2])
      local path = files.write(folder, "t" .. type, files.idx(type, { 500, 30 }, payload))
      local zipped = files.gzip(path)
      assert.equal(bytes_of(source.idx { x = path }:read(0, 500).x),
        bytes_of(source.idx({ x = zipped }, { cache = cache }):read(0, 500).x))
    end
    assert.equal(6, #whole_files())
    -- A second opening takes what is there: the cache is not written again.
    local stat = ("stat -c '%%n %%i %%Y' %s/*-????????????????"):format(cache)
    local before = mpi.shell(stat).stdout
    source.idx({ x = folder .. "/t8.gz" }, { cache = cache })
    assert.equal(6, select(2, before:gsub("\n", "")))
    assert.equal(before, mpi.shell(stat).stdout)
  end)

  it("follow a gzipped file that changes", function()
    local path = plain("a.idx", 3)
    local zipped = files.gzip(path)
    local old = bytes_of(source.idx({ x = zipped }, { cache = cache }):read(0, 3).x)
    files.write(folder, "a.idx", files.idx(8, { 3, 7 }, ("z"):rep(21)))
    files.gzip(path)
    local new = bytes_of(source.idx({ x = zipped }, { cache = cache }):read(0, 3).x)
    assert.equal(("z"):rep(21), new)
    assert.not_equal(old, new)
  end)

  it("replace what is wrong in the cache", function()
    local zipped = files.gzip(plain("a.idx", 30))
    local good = bytes_of(source.idx({ x = zipped }, { cache = cache }):read(0, 30).x)
    local name = whole_files()[1]
    for _, wrong in ipairs { "", "short", files.idx(8, { 31, 7 }, ("z"):rep(30 * 7)) } do
      files.write(cache, name, wrong)
      assert.equal(good, bytes_of(source.idx({ x = zipped }, { cache = cache }):read(0, 30).x))
      assert.same({ name }, whole_files())
    end
  end)

  it("may be gzipped in several members", function()
    local text = files.idx(8, { 10 }, "0123456789")
    local path = folder .. "/m.gz"
    files.write(folder, "m1", text:sub(1, 11))
    files.write(folder, "m2", text:sub(12))
    os.execute(("cd %s && gzip -n m1 m2 && cat m1.gz m2.gz > m.gz"):format(folder))
    assert.equal("0123456789", bytes_of(source.idx({ x = path }, { cache = cache }):read(0, 10).x))
  end)

  it("find the cache where $SHARDRT_CACHE, $XDG_CACHE_HOME or the home folder says", function()
    local zipped = files.gzip(plain("a.idx", 3))
    local recipe = files.write(folder, "open.lua", "require('shardrt.data.source').idx{x = arg[1]}")
    for _, case in ipairs {
      { "SHARDRT_CACHE=" .. folder .. "/one XDG_CACHE_HOME=" .. folder .. "/no", "one" },
      { "SHARDRT_CACHE= XDG_CACHE_HOME=" .. folder .. "/two", "two/shardrt" },
      { "XDG_CACHE_HOME= HOME=" .. folder, ".cache/shardrt" },
    } do
      local result = mpi.shell(("env -u SHARDRT_CACHE %s %s %s %s"):format(case[1], mpi.program(), recipe, zipped))
      assert.equal(0, result.status, result.output)
      assert.equal(1, #whole_files(folder .. "/" .. case[2]))
    end
    assert.same({}, files.list(folder .. "/no"))
  end)

  it("need a cache that can be written", function()
    local zipped = files.gzip(plain("a.idx", 3))
    files.write(folder, "file", "")
    for _, wrong in ipairs { folder .. "/file", folder .. "/file/below", "/proc/none" } do
      local message = files.message(function() source.idx({ x = zipped }, { cache = wrong }) end)
      assert.truthy(message:find(wrong, 1, true), message)
      assert.truthy(message:find("idx_spec.lua", 1, true), message)
    end
    -- Not plain files: these need none.
    assert.equal(3, #source.idx({ x = folder .. "/a.idx" }, { cache = "/proc/none" }))
  end)

  it("say so when the disk is full, and leave nothing", function()
    local zipped = files.gzip(plain("a.idx", 50000))
    local recipe = files.write(folder, "open.lua", "require('shardrt.data.source').idx({x = arg[1]}, {cache = arg[2]})")
    local result = mpi.shell(("trap '' XFSZ; ulimit -f 100; %s %s %s %s"):format(mpi.program(), recipe, zipped, cache))
    assert.not_equal(0, result.status)
    assert.truthy(result.output:find("open.lua:1", 1, true), result.output)
    assert.truthy(result.output:find(cache, 1, true), result.output)
    assert.same({}, files.list(cache))
  end)

  it("are opened by many processes at once", function()
    local zipped = files.gzip(plain("a.idx", 200000))
    local recipe = files.write(folder, "open.lua", [[
      local s = require("shardrt.data.source").idx({x = arg[1]}, {cache = arg[2]})
      local x, sum = s:read(0, #s).x, 0
      for i = 0, x.size - 1 do sum = sum + x.data[i] end
      print(sum)]])
    local one = ("%s %s %s %s"):format(mpi.program(), recipe, zipped, cache)
    local result = mpi.shell(("for i in 1 2 3 4 5 6; do %s & done; wait"):format(one))
    assert.equal("", result.stderr)
    local _, lines = result.stdout:gsub("\n", "")
    assert.equal(6, lines)
    local sum, bytes = 0, files.bytes(1400000)
    for i = 1, #bytes do sum = sum + bytes:byte(i) end
    for line in result.stdout:gmatch "[^\n]+" do assert.equal(sum, tonumber(line)) end
    assert.equal(1, #whole_files())
  end)

  -- A command that opens a gzipped file of many zeros, long enough to be seen at work, and prints its length, its last
  -- number, and the inodes of the cache's files that it has mapped.
  local function opener(size)
    local head = files.write(folder, "head", files.idx(8, { size }, ""))
    local zipped = folder .. "/z.gz"
    os.execute(("{ cat %s; head -c %d /dev/zero; } | gzip -1n > %s"):format(head, size, zipped))
    local recipe = files.write(folder, "open.lua", [[
      local s = require("shardrt.data.source").idx({x = arg[1]}, {cache = arg[2]})
      local list = {}
      for line in io.lines "/proc/self/maps" do
        local inode, path = line:match "(%d+) +(/.*)$"
        local of_cache = path and path:sub(1, #arg[2]) == arg[2] and not path:match "%.shardrt%-index$"
        if of_cache then list[#list + 1] = inode end
      end
      io.write(("%d\t%d\t%s\n"):format(#s, s:read(#s - 1, 1).x.data[0], table.concat(list, " ")))]])
    return ("%s %s %s %s"):format(mpi.program(), recipe, zipped, cache)
  end

  -- That each of `count` processes printed the same: the file is right and one file is mapped by all.
  local function all_map_one(result, count, size)
    local line = result.stdout:match "[^\n]*\n"
    assert.truthy(line and line:match(("^%d\t0\t%%d+\n$"):format(size)), result.output)
    assert.equal(line:rep(count), result.stdout)
    assert.equal("", result.stderr)
    assert.equal(1, #whole_files())
  end

  it("are decompressed by one of many processes that start together; all map its file", function()
    local size = 48 * 1024 * 1024
    local one = opener(size)
    all_map_one(mpi.shell(("for i in 1 2 3 4 5 6; do %s & done; wait"):format(one)), 6, size)
  end)

  -- Starts two processes while another one, which never decompresses anything, holds the lock of the file that
  -- they decompress; that one is killed after the shell command `before`.
  local function behind_another(one, before)
    local holder = files.write(folder, "hold.lua", [[
      local ffi = require "ffi"
      ffi.cdef "int open(const char *, int); int flock(int, int); unsigned sleep(unsigned);"
      assert(ffi.C.flock(ffi.C.open(arg[1], 0), 2) == 0)
      assert(io.open(arg[1] .. ".held", "w")):close()
      while true do ffi.C.sleep(1000) end]])
    local file = folder .. "/z.gz"
    local result = mpi.shell(([[%s %s %s & holder=$!
      until [ -e %s.held ]; do kill -0 $holder || break; sleep 0.01; done
      %s & second=$!
      %s & third=$!
      %s
      kill -KILL $holder; wait $holder
      wait $second; wait $third]]):format(mpi.program(), holder, file, file, one, one, before))
    result.stderr = result.stderr:gsub("[^\n]*Killed[^\n]*\n", "") -- the shell's word on it
    return result
  end

  it("are decompressed once also where a process is killed that they waited for", function()
    local size = 12 * 1024 * 1024
    all_map_one(behind_another(opener(size), "sleep 0.3"), 2, size)
  end)

  it("do not wait forever for a process that is stopped", function()
    local size = 12 * 1024 * 1024
    local result = behind_another(opener(size), "wait $second; wait $third")
    assert.equal(2, select(2, result.stdout:gsub(("%d\t0\t%%d+\n"):format(size), "")), result.output)
    assert.equal("", result.stderr)
    assert.equal(1, #whole_files())
  end)

  it("come to no harm when a process is killed while it decompresses", function()
    local size = 64 * 1024 * 1024
    local one = opener(size)
    -- Killed as soon as it holds a file of the cache open, three times.
    local killed = mpi.shell(([[for i in 1 2 3; do
      %s & pid=$!
      until ls -l /proc/$pid/fd 2>/dev/null | grep -q '%s/'; do kill -0 $pid || break; done
      kill -9 $pid && echo killed
      wait $pid
    done]]):format(one, cache))
    assert.truthy(killed.stdout:find("killed", 1, true), killed.output)
    local result = mpi.shell(one)
    all_map_one(result, 1, size)
  end)

  it("stop at the size that the header tells", function()
    -- 50 MB of zeros in 50 kB behind a header that tells of 10 bytes.
    local head = files.write(folder, "head", files.idx(8, { 10 }, ""))
    local zipped = folder .. "/bomb.gz"
    os.execute(("{ cat %s; head -c 50000000 /dev/zero; } | gzip -1n > %s"):format(head, zipped))
    local message = files.message(source.idx, { x = zipped }, { cache = cache })
    assert.truthy(message:find("more than the 18 bytes", 1, true), message)
    assert.truthy(message:find(zipped, 1, true), message)
    assert.same({}, files.list(cache))
  end)

  it("read Fashion-MNIST as Debian packs it", function()
    if not has_fashion then pending "Debian's package dataset-fashion-mnist is absent" return end
    local s = source.idx({
      image = fashion .. "/t10k-images-idx3-ubyte.gz", label = fashion .. "/t10k-labels-idx1-ubyte.gz",
    }, { cache = cache })
    assert.equal(10000, #s)
    assert.same({ 28, 28 }, s.fields.image.shape)
    assert.same({}, s.fields.label.shape)
    for field, file in pairs { image = "t10k-images-idx3", label = "t10k-labels-idx1" } do
      os.execute(("zcat %s/%s-ubyte.gz > %s/plain"):format(fashion, file, folder))
      local text = files.slurp(folder .. "/plain")
      assert.equal(text:sub(-10000 * (field == "image" and 784 or 1)), bytes_of(s:read(0, 10000)[field]))
    end
  end)
end)

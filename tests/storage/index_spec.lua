-- The index that is kept beside a file of records: made once, made anew when it does not fit, and what its checksums
-- find.

local ffi = require "ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"

local DATA = "tests/files/records/webdataset.tar"
local folder, path, index
before_each(function()
  folder = files.folder()
  path = files.write(folder, "data.tar", files.slurp(DATA))
  index = path .. ".shardrt-index"
end)
after_each(function() files.remove(folder) end)

local function open(o) return shardrt.source.tar(path, o) end

local function inode(name)
  local pipe = assert(io.popen("stat -c %i " .. name))
  local text = pipe:read "*l"
  pipe:close()
  return text
end

local function check(source)
  local all = source:read(0, #source)
  assert.equal(12, #source)
  for i = 0, 11 do assert.equal(i - 3, tonumber(all.cls.data[i])) end
end

-- Flips one bit of a file in place, which leaves its time as it was where `keep`.
local function flip(name, at, keep)
  if keep then assert(os.execute(("touch -r %s %s/time"):format(name, folder)) == 0) end
  local file = assert(io.open(name, "r+b"))
  file:seek("set", at)
  local byte = file:read(1):byte()
  file:seek("set", at)
  file:write(string.char(bit.bxor(byte, 1)))
  file:close()
  if keep then assert(os.execute(("touch -r %s/time %s"):format(folder, name)) == 0) end
end

describe("the index beside a file", function()
  it("is made once, and used from then on", function()
    check(open())
    assert.same({ "data.tar", "data.tar.shardrt-index" }, files.list(folder))
    local first = inode(index)
    check(open())
    assert.equal(first, inode(index))
  end)

  it("is made once by many processes that start together", function()
    local result = mpi.run {
      processes = 6, devices = 1, source = ([[
        local shardrt = require "shardrt"
        for round = 1, 20 do
          local path = "%s/copy" .. round .. ".tar"
          if shardrt.process_index() == 0 then
            assert(os.execute("cp %s " .. path .. ".new && mv " .. path .. ".new " .. path) == 0)
          end
          shardrt.sync_global_devices "written"
          local source = shardrt.source.tar(path)
          assert(#source == 12 and tonumber(source:read(11, 1).cls.data[0]) == 8)
        end
        shardrt.say "all read"
      ]]):format(folder, path), limit = 100,
    }
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find "all read")
    assert.equal(41, #files.list(folder)) -- nothing is left over
  end)

  it("is made while a checkpoint keeps the folder, and a checkpoint opened while it is made", function()
    local work = files.write(folder, "both.lua", ([[
      local shardrt = require "shardrt"
      local ffi, C = require "ffi", require "shardrt.base.ffi"
      ffi.cdef "int open(const char *, int); int flock(int, int);"
      local checkpoint = shardrt.checkpoint { dir = "%s" }
      assert(#shardrt.source.tar "%s" == 12)
      print "made"
      checkpoint:close()
      assert(ffi.C.flock(ffi.C.open("%s", 0), 2) == 0) -- as one that makes an index holds it
      shardrt.checkpoint({ dir = "%s" }):close()
      print "opened"]]):format(folder, path, path, folder))
    -- A long file, whose end says nothing: the patience with who makes its index is 100 s.
    assert(os.execute("truncate -s 1G " .. path) == 0)
    local result = mpi.shell(("timeout 60 %s %s"):format(mpi.program(), work))
    assert.equal("made\nopened\n", result.stdout, result.output)
    assert.equal(0, result.status, result.output)
  end)

  it("is made anew where its file is newer", function()
    check(open())
    local first = files.slurp(index)
    os.execute("touch -d '2001-01-01' " .. path)
    check(open())
    assert.not_equal(first, files.slurp(index))
    files.write(folder, "data.tar", files.slurp "tests/files/records/ustar.tar")
    assert.equal(3, #open())
  end)

  it("is made anew where it was made of another kind of file", function()
    check(open())
    os.remove(path)
    os.execute(("cp -p tests/files/records/tensorflow.tfrecord %s"):format(path))
    assert.equal(12, #shardrt.source.tfrecord(path))
  end)

  it("is made anew where it is damaged or cut", function()
    check(open())
    local good = files.slurp(index)
    for at = 0, #good - 1, 37 do
      flip(index, at)
      check(open())
      assert.equal(good, files.slurp(index), "byte " .. at)
    end
    for length = 0, #good - 1, 61 do
      files.write(folder, "data.tar.shardrt-index", good:sub(1, length))
      check(open())
      assert.equal(good, files.slurp(index), "cut to " .. length)
    end
    files.write(folder, "data.tar.shardrt-index", "something else that somebody put there")
    check(open())
  end)

  it("finds a flipped bit in the data, by file, record and offset, unless verify is false", function()
    local source = open { fields = { bin = "bytes" } }
    source:read(0, 12)
    local text = files.slurp(path)
    local wanted = {}
    for k = 0, 10 do wanted[k + 1] = string.char((11 * 7 + k) % 256) end
    local at = assert(text:find(table.concat(wanted), 1, true)) - 1
    flip(path, at + 3, true)
    local message = files.message(source.read, source, 0, 12)
    assert.truthy(message:find(("data.tar: record 11 at byte %d (11 bytes) is damaged: its CRC-32C is "):format(at), 1,
      true), message)
    source:read(0, 11)
    message = files.message(function() return open():read(11, 1) end)
    assert.truthy(message:find("record 11 at byte " .. at, 1, true), message)
    local unverified = open { verify = false, fields = { bin = "bytes" } }:read(11, 1).bin[1]
    assert.equal(bit.bxor(wanted[4]:byte(), 1), tonumber(ffi.cast("uint8_t *", unverified.data)[3]))
  end)

  it("lies in the cache folder where it cannot lie beside the file", function()
    local recipe = files.write(folder, "recipe.lua", ([[
      local shardrt = require "shardrt"
      local source = shardrt.source.tar("%s/read-only/data.tar", { cache = "%s/cache" })
      assert(#source == 12 and tonumber(source:read(4, 1).cls.data[0]) == 1)
    ]]):format(folder, folder))
    os.execute(("mkdir %s/read-only %s/cache && mv %s %s/read-only/ && chmod 755 %s && chmod 777 %s/cache && "
      .. "chmod 555 %s/read-only"):format(folder, folder, path, folder, folder, folder, folder))
    local program = mpi.program()
    if mpi.shell("id -u").stdout == "0\n" then -- root writes everywhere: as another user
      os.execute(("cp %s %s/shardrt && chmod 755 %s/shardrt"):format(program, folder, folder))
      program = ("setpriv --reuid 65534 --regid 65534 --clear-groups %s/shardrt"):format(folder)
    end
    for _ = 1, 2 do
      local result = mpi.shell(("HOME=/nonexistent %s %s"):format(program, recipe), 60)
      assert.equal(0, result.status, result.output)
    end
    assert.same({ "data.tar" }, files.list(folder .. "/read-only"))
    local kept = files.list(folder .. "/cache")
    assert.equal(1, #kept)
    assert.truthy(kept[1]:find "^data%.tar%-%x+%.shardrt%-index$", kept[1])
    os.execute("chmod 755 " .. folder .. "/read-only")
  end)
end)

describe("the formats that shardrt index knows", function()
  local C = require "shardrt.base.ffi"

  -- The words of a list, "a, b or c", without what stands in brackets.
  local function set_of(text)
    local set = {}
    for word in text:gsub("%b()", ""):gsub("%f[%w]or%f[%W]", ""):gmatch "[%w_]+" do set[word] = true end
    return set
  end

  it("are those of sources, in its help, its manual and its messages", function()
    local known = { plain = true, tokens = true, megatron = true } -- which are no formats that are opened by name
    local i = 0
    while C.shardrt_source_format(i) ~= nil do
      known[ffi.string(C.shardrt_source_format(i))] = true
      i = i + 1
    end
    assert.is_true(i >= 14)
    known.folder = nil -- of images, which nothing checks
    local function printed(words) return mpi.shell(("%s index %s"):format(mpi.program(), words)).output end
    assert.same(known, set_of(printed "--help":match "%-%-format NAME.- do not: (.-)\n +%-%-"))
    assert.same(known, set_of(printed "--format none x":match "there are (.-) %(shardrt"))
    assert.same(known, set_of(files.slurp "runtime/shardrt.1":match '\n%.BI \\%-\\%-format.- not tell: (.-)%.\n'))
  end)
end)

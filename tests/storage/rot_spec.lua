-- long: 15 s
-- Bits that flip in files after their index was made, with the files' times as they were: under `verify = true` none of
-- them is read without an error, in any format. What is noted on the way, and joined by jobs and processes; the command
-- `shardrt index`.
--
-- SHARDRT_ROT_FLIPS says how many bits are flipped in each case (40), SHARDRT_TEST_SEED which; with SHARDRT_ROT_TABLE a
-- line is printed for each.

local bit = require "bit"
local ffi = require "ffi"
local boxes = require "tests.support.boxes"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local source = shardrt.source

ffi.cdef [[
typedef struct rot_time { long seconds, nanoseconds; } rot_time;
int utimensat(int folder, const char *path, const rot_time *times, int flags);
]]

local FLIPS = tonumber(os.getenv "SHARDRT_ROT_FLIPS" or 40)
local SEED = require "tests.support.seed"
local TABLE = os.getenv "SHARDRT_ROT_TABLE"

-- Files are as old as this: of what was written a moment ago nothing is noted on the way.
local times = ffi.new("rot_time[2]", { { 1500000000, 5 }, { 1500000000, 5 } })
local function age(path) assert(ffi.C.utimensat(-100, path, times, 0) == 0, path) end

local function age_all(folder)
  local pipe = assert(io.popen(("find '%s' -type f"):format(folder)))
  for path in pipe:lines() do age(path) end
  pipe:close()
end

local function flip(path, at, which)
  local file = assert(io.open(path, "r+b"))
  file:seek("set", at)
  local byte = file:read(1):byte()
  file:seek("set", at)
  file:write(string.char(bit.bxor(byte, bit.lshift(1, which))))
  file:close()
  age(path)
end

-- All that a source gives, as one text.
local function all_of(s)
  local words = { tostring(s) }
  local values = s:read(0, #s)
  for _, name in ipairs(s.names) do
    local value = values[name]
    if type(value) == "table" and not value.dtype then
      for _, one in ipairs(value) do
        words[#words + 1] = table.concat(one.shape, "x") .. ":" .. ffi.string(one.data, one.bytes)
      end
    else
      words[#words + 1] = boxes.bytes_of(value)
    end
  end
  return table.concat(words, "\0")
end

local function index(words)
  local result = mpi.shell(("%s index %s"):format(mpi.program(), words), 100)
  return result.status, result.output
end

-- Data files in a folder, and their bytes.
local function data_files(folder)
  local list, total = {}, 0
  local pipe = assert(io.popen(("find '%s' -type f ! -name '*.shardrt-index' | sort"):format(folder)))
  for path in pipe:lines() do
    local text = files.slurp(path)
    if #text > 0 then list[#list + 1] = { path = path, bytes = #text, text = text } end
    total = total + #text
  end
  pipe:close()
  return list, total
end

-- ---- the formats ----------------------------------------------------------------------------------------------------

local function little(n) return string.char(n % 256, math.floor(n / 256) % 256, math.floor(n / 65536) % 256, 0) end

local function float_npy(folder, name, rows)
  return files.write(folder, name, files.npy {
    dict = files.dict("<f4", { rows, 20 }), payload = files.bytes(rows * 80):gsub("[\127\255]", "a"),
  })
end

-- An .npy file of int64.
local function numbers_npy(folder, name, list)
  local values = ffi.new("int64_t[?]", #list, list)
  return files.write(folder, name,
    files.npy { dict = files.dict("<i8", { #list }), payload = ffi.string(values, #list * 8) })
end

local function copy(folder, from) assert(os.execute(("cp -r %s '%s/'"):format(from, folder)) == 0) end

local function arrays(folder, members)
  assert(os.execute(("tar -xzf tests/files/arrays.tar.gz -C '%s' %s"):format(folder, members)) == 0)
end

local function zarr(name)
  return function(folder)
    arrays(folder, "zarr/" .. name)
    return function(o) return source.zarr({ x = folder .. "/zarr/" .. name }, o) end
  end
end

-- Of tests/files/parquet and tests/files/arrow.
local TABLE_FIELDS = { i32 = "int32", class = "bytes", list = { "int32", { -1 } }, maybe = { "int32", null = 7 } }

local function hdf5(file, ...)
  local names = { ... }
  return function(folder)
    arrays(folder, file)
    local fields = {}
    for i, name in ipairs(names) do fields["x" .. i] = folder .. "/" .. file .. ":/" .. name end
    return function(o) return source.hdf5(fields, o) end
  end
end

-- A format whose files hold all fields.
local function records(format, from, fields)
  return function(folder)
    copy(folder, from)
    local path = folder .. "/" .. from:match "[^/]+$"
    if path:find "%.gz$" then
      assert(os.execute("gunzip " .. path) == 0)
      path = path:sub(1, -4)
    end
    return function(o)
      o.fields = fields
      return source[format](path, o)
    end, ("--format %s '%s'"):format(format, path)
  end
end

-- Each makes files in a folder; returns what opens them, and the words for `shardrt index` (all that is in the folder).
local formats = {
  { "npy", function(folder)
    local path = float_npy(folder, "x.npy", 300)
    return function(o) return source.npy({ x = path }, o) end
  end },
  { "tokens", function(folder)
    local path = files.write(folder, "x.bin", files.bytes(30000))
    return function(o)
      o.window = 100
      o.dtype = "uint16"
      return source.tokens(path, o)
    end
  end },
  { "tokens of llm.c", function(folder)
    local header = little(20240520) .. "\1\0\0\0" .. little(6000)
    header = little(20240520):sub(1, 3) .. string.char(math.floor(20240520 / 2 ^ 24)) .. header:sub(5)
    local path = files.write(folder, "x.bin", header .. ("\0"):rep(1024 - 12) .. files.bytes(12000))
    return function(o)
      o.window = 100
      return source.tokens(path, o)
    end
  end },
  { "megatron", function(folder)
    copy(folder, "tests/files/megatron/1.bin")
    copy(folder, "tests/files/megatron/1.idx")
    return function(o)
      o.view, o.window = "gpt", 9
      return source.megatron(folder .. "/1", o)
    end
  end },
  { "ragged", function(folder)
    local data, offsets = float_npy(folder, "data.npy", 100), {}
    for i = 0, 50 do offsets[i + 1] = 2 * i end
    local starts = numbers_npy(folder, "offsets.npy", offsets)
    return function(o) return source.ragged({ x = { data = data, offsets = starts } }, o) end
  end },
  { "idx", function(folder)
    local path = files.write(folder, "x-idx3-ubyte", files.idx(0x0B, { 50, 10, 10 }, files.bytes(10000)))
    return function(o) return source.idx({ x = path }, o) end
  end },
  { "cifar", records("cifar", "tests/files/cifar/data_batch_1.bin") },
  { "hdf5 contiguous", hdf5("data.h5", "group/float32", "group/int16-big", "group/uint8", "compact") },
  { "hdf5 chunked", hdf5("v110.h5", "plain", "chunked", "grown", "single") },
  { "hdf5 gzip", hdf5("data.h5", "gzip", "shuffle", "big-gzip", "chunked") },
  { "hdf5 user block", hdf5("user.h5", "plain", "chunked", "gzip") },
  { "zarr v2 raw", zarr "v2-float32" },
  { "zarr v2 big-endian", zarr "v2-big" },
  { "zarr v2 holes", zarr "v2-holes" },
  { "zarr v2 zlib", zarr "v2-zlib" },
  { "zarr v2 zstd", zarr "v2-zstd" },
  { "zarr v2 blosc", zarr "v2-blosc-lz4" },
  { "zarr v3 raw", zarr "v3-plain" },
  { "zarr v3 zstd", zarr "v3-zstd" },
  { "zarr v3 blosc", zarr "v3-blosc" },
  { "zarr v3 crc32c", zarr "v3-crc" },
  { "zarr v3 sharded", zarr "v3-shard-plain-end" },
  { "zarr v3 sharded zstd", zarr "v3-shard-zstd-start" },
  { "npz", records("npz", "tests/files/npz/stored.npz") },
  { "npz deflated", records("npz", "tests/files/npz/deflated.npz") },
  { "safetensors", function(folder)
    arrays(folder, "data.safetensors")
    local path = folder .. "/data.safetensors"
    return function(o)
      o.fields = { float32 = "float32", int16 = "int16", uint8 = "uint8" }
      return source.safetensors(path, o)
    end
  end },
  { "tar", records("tar", "tests/files/records/webdataset.tar") },
  { "csv", function(folder)
    local lines = { "id,x,name\n" }
    for i = 1, 400 do lines[i + 1] = ("%d,%d.5,word%d\n"):format(i, i * 7 % 1000, i) end
    local path = files.write(folder, "x.csv", table.concat(lines))
    return function(o) return source.csv(path, o) end
  end },
  { "jsonl", records("jsonl", "tests/files/lines/python.jsonl", { id = "int64", x = "float64", text = "bytes" }) },
  { "mds", records("mds", "tests/files/mds/raw", {
    number = "int64", text = "bytes", bytes = "bytes", json = "bytes", digits = "bytes", fixed = "int16",
    typed = { "float32", { -1 } }, free = { "uint8", { 2, -1 } },
  }) },
  { "tfrecord", records("tfrecord", "tests/files/records/tensorflow.tfrecord") },
  { "parquet", records("parquet", "tests/files/parquet/plain.parquet", TABLE_FIELDS) },
  { "parquet with an offset index", records("parquet", "tests/files/parquet/delta.parquet", TABLE_FIELDS) },
  { "arrow", records("arrow", "tests/files/arrow/plain.arrow", TABLE_FIELDS) },
  { "arrow of zstd", records("arrow", "tests/files/arrow/zstd.arrows", TABLE_FIELDS) },
  { "array_record", records("array_record", "tests/files/array_record/examples.array_record.gz") },
}

-- A file and a place in it; padding, which is zeros, is seldom chosen.
local function choose(list, total)
  local at, i
  for _ = 1, 30 do
    at, i = math.random(0, total - 1), 1
    while at >= list[i].bytes do at, i = at - list[i].bytes, i + 1 end
    if list[i].text:byte(at + 1) ~= 0 then break end
  end
  return at, i
end

local function check_flips(open, folder)
  local right = all_of(open { verify = true })
  local list, total = data_files(folder)
  local found, harmless = 0, 0
  for n = 1, FLIPS do
    local at, i = choose(list, total)
    local which = math.random(0, 7)
    flip(list[i].path, at, which)
    local ok, got = pcall(function() return all_of(open { verify = true }) end)
    collectgarbage()
    flip(list[i].path, at, which)
    if not ok then
      found = found + 1
    else
      harmless = harmless + 1
      assert(got == right, ("flip %d, bit %d of byte %d of %s, was read without a word; seed %d"):format(n,
        which, at, list[i].path, SEED))
    end
  end
  assert(all_of(open { verify = true }) == right, "what was flipped back is right again")
  return found, harmless
end

describe("a bit that flips after the index was made", function()
  local folder
  before_each(function() folder = files.folder() end)
  after_each(function() files.remove(folder) end)

  for number, format in ipairs(formats) do
    it("is never read without a word: " .. format[1], function()
      math.randomseed(SEED + number)
      local open, words = format[2](folder)
      age_all(folder)
      local status, output = index(words or folder)
      assert.equal(0, status, output)
      local found, harmless = check_flips(open, folder)
      assert.is_true(found > 0 or FLIPS < 20)
      if TABLE then print(("%-24s found %3d, harmless %3d, silent 0"):format(format[1], found, harmless)) end
    end)
  end
end)

describe("a footer of Parquet", function()
  it("that a flipped bit makes one without an offset index is not taken for one", function()
    local folder = files.folder()
    copy(folder, "tests/files/parquet/delta.parquet")
    local path = folder .. "/delta.parquet"
    local function open() return source.parquet(path, { fields = { "class" } }) end
    age(path)
    local before = all_of(open()) -- notes blocks
    collectgarbage()
    flip(path, 14024, 6) -- of a chunk's offset_index_offset: the number of the field
    local ok, message = pcall(open)
    flip(path, 14024, 6)
    assert.is_false(ok)
    assert.truthy(message:find("bytes 12288 to 16133: damaged: its CRC-32C is", 1, true), message)
    assert.equal(before, all_of(open()))
    files.remove(folder)
  end)
end)

-- ---- when blocks are looked at, and what is noted of them -----------------------------------------------------------

local ROW = 1024 -- bytes; four rows are a block, but for the header

local function rows_npy(folder, rows)
  local path = files.write(folder, "x.npy", files.npy {
    dict = files.dict("|u1", { rows, ROW }), payload = files.bytes(rows * ROW),
  })
  age(path)
  return path
end

local function npy(path, verify) return source.npy({ x = path }, { verify = verify }) end

local function row(s, i) return boxes.bytes_of(s:read(i, 1).x) end

-- Where a row's bytes begin.
local function place(path, rows, i) return #files.slurp(path) - (rows - i) * ROW end

local function recipe(folder, text, ...)
  return files.write(folder, "recipe.lua", text:format(...))
end

-- As another process does, which ends well: with what it noted kept.
local function read_elsewhere(folder, path, first, count, verify)
  local result = mpi.run { recipe = recipe(folder, [[
    local source = require "shardrt".source.npy({ x = "%s" }, { verify = %s })
    source:read(%d, %d)
  ]], path, verify or '"once"', first, count) }
  return result
end

describe("blocks of a file", function()
  local folder, path
  before_each(function()
    folder = files.folder()
    path = rows_npy(folder, 64)
  end)
  after_each(function()
    collectgarbage()
    files.remove(folder)
  end)

  it("are looked at on every read, on the first one, or never", function()
    assert.equal(0, (index(path)))
    local sources = { [true] = npy(path, true), once = npy(path, "once"), [false] = npy(path, false), none = npy(path) }
    for _, s in pairs(sources) do row(s, 8) end
    flip(path, place(path, 64, 8), 3)
    flip(path, place(path, 64, 40) + 5, 0)
    assert.truthy(files.message(row, sources[true], 8):find "damaged: its CRC%-32C is %x+, and was %x+ when its index")
    for _, name in ipairs { "once", "none" } do
      row(sources[name], 8) -- was found to be right
      for _ = 1, 2 do
        local message = files.message(row, sources[name], 40)
        local block = math.floor((place(path, 64, 40) + 5) / 4096) * 4096
        assert.truthy(message:find(("x.npy: bytes %d to %d: damaged"):format(block, block + 4095), 1, true), message)
        assert.truthy(message:find("shardrt index --force", 1, true), message)
      end
    end
    row(sources[false], 8)
    row(sources[false], 40)
    assert.truthy(files.message(row, npy(path), 8):find "damaged")
  end)

  it("are looked at to the last one, and no more when each was", function()
    assert.equal(0, (index(path)))
    local once, always = npy(path, "once"), npy(path, true)
    local last = place(path, 64, 63) + ROW - 1
    -- Whose end lies in the last block.
    local first_of_last = math.floor((last - last % 4096 - place(path, 64, 0)) / ROW)
    once:read(0, first_of_last)
    always:read(0, 64)
    flip(path, last, 1)
    for _, s in ipairs { once, always } do assert.truthy(files.message(row, s, 63):find "damaged") end
    flip(path, last, 1)
    local good = boxes.bytes_of(once:read(0, 64).x)
    flip(path, last, 1)
    assert.not_equal(good, boxes.bytes_of(once:read(0, 64).x))
    assert.truthy(files.message(row, always, 63):find "damaged")
  end)

  it("are looked at in a header, which is read when a source is opened", function()
    assert.equal(0, (index(path)))
    local at = assert(files.slurp(path):find("|u1", 1, true))
    flip(path, at, 2) -- |q1
    assert.truthy(files.message(npy, path, true):find "damaged: its CRC%-32C")
    flip(path, at, 2)
    local digit = assert(files.slurp(path):find("64", 1, true)) - 1
    flip(path, digit, 0) -- 74 rows
    assert.truthy(files.message(npy, path, "once"):find "damaged: its CRC%-32C")
  end)

  it("are noted as they are read, by one process after the other", function()
    assert.equal(0, read_elsewhere(folder, path, 8, 8).status)
    assert.truthy(io.open(path .. ".shardrt-index"))
    assert.equal(0, read_elsewhere(folder, path, 40, 8).status)
    flip(path, place(path, 64, 10), 1)
    flip(path, place(path, 64, 44), 1)
    flip(path, place(path, 64, 24), 1)
    local s = npy(path, true)
    assert.truthy(files.message(row, s, 10):find "damaged")
    assert.truthy(files.message(row, s, 44):find "damaged")
    row(s, 24) -- which nobody had read
  end)

  it("are noted by all processes of a job", function()
    local result = mpi.run { processes = 4, recipe = recipe(folder, [[
      local shardrt = require "shardrt"
      local source = shardrt.source.npy { x = "%s" }
      source:read(shardrt.process_index() * 16, 16)
    ]], path) }
    assert.equal(0, result.status, result.output)
    for i = 4, 63 do -- those before share a block with the header
      flip(path, place(path, 64, i), 6)
      assert.truthy(files.message(row, npy(path, true), i):find "damaged")
      flip(path, place(path, 64, i), 6)
    end
  end)

  it("are not noted of a file that was written a moment ago, which may change and keep its time", function()
    os.execute("touch -d tomorrow " .. path) -- written no earlier than now, however long this takes
    local s = npy(path, true)
    s:read(0, 64)
    s = nil -- luacheck: ignore
    collectgarbage()
    assert.same({ "x.npy" }, files.list(folder))
  end)

  it("are not noted of a Zarr chunk that was written a moment ago into an old array", function()
    local open = zarr "v2-float32"(folder)
    age_all(folder)
    local list = data_files(folder .. "/zarr")
    local name
    for _, one in ipairs(list) do name = one.path:find "/%d[%d.]*$" and one.path or name end
    for _, when in ipairs { "tomorrow", "2015-05-05" } do
      os.execute(("find %s -name '[0-9]*' -type f | xargs touch -d %s"):format(folder .. "/zarr/v2-float32", when))
      local s = open { verify = true }
      s:read(0, #s)
      s = nil -- luacheck: ignore
      collectgarbage()
      local found = io.open(folder .. "/zarr/v2-float32.shardrt-index")
      assert.equal(when ~= "tomorrow", found ~= nil, when)
      if found then found:close() end
    end
    assert.truthy(name)
    flip(name, 3, 1)
    os.execute(("touch -d 2015-05-05 %s"):format(name))
    local s = open { verify = true }
    assert.truthy(files.message(function() s:read(0, #s) end):find "damaged")
  end)

  it("are noted anew where the file is another one", function()
    assert.equal(0, (index(path)))
    flip(path, place(path, 64, 3), 1)
    os.execute("touch -d 2015-05-05 " .. path)
    npy(path, true):read(0, 64)
    collectgarbage()
    flip(path, place(path, 64, 3), 1) -- as it was at first, and as old
    npy(path, true):read(0, 64)
  end)

  it("are not put in the place of those of a newer file", function()
    local s = npy(path)
    s:read(0, 64)
    flip(path, place(path, 64, 3), 1)
    os.execute("touch -d 2015-05-05 " .. path)
    assert.equal(0, (index(path)))
    s = nil -- luacheck: ignore
    collectgarbage()
    assert.equal(0, (index("--check " .. path)))
  end)

  it("are looked at whenever offsets are used", function()
    local numbers = {}
    for i = 0, 600 do numbers[i + 1] = math.min(i, 64) end
    local offsets = numbers_npy(folder, "offsets.npy", numbers)
    age_all(folder)
    local s = source.ragged({ x = { data = path, offsets = offsets } },
      { verify = true })
    s:read(550, 1)
    local bytes = #files.slurp(offsets)
    flip(offsets, bytes - 8 * (601 - 551), 0) -- the end of this sample
    assert.truthy(files.message(function() s:read(550, 1) end):find "offsets.npy: bytes %d+ to %d+: .*damaged")
  end)

  it("that two processes read differently are an error of the later one, and of every reader", function()
    local result = mpi.run { recipe = recipe(folder, [[
      local files = require "tests.support.files"
      local source = require "shardrt".source.npy { x = "%s" }
      source:read(0, 64) -- all is noted, and saved at the end
      local reader = io.popen("%s index %s 2>&1") -- meanwhile another one reads something else
      print(reader:read "*a")
    ]], path, mpi.program(), path), env = {} }
    assert.equal(0, result.status, result.output)
    os.remove(path .. ".shardrt-index")
    result = mpi.run { recipe = recipe(folder, [[
      local source = require "shardrt".source.npy { x = "%s" }
      source:read(0, 64)
      os.execute "cp -p %s %s.good && printf X | dd of=%s bs=1 seek=9000 conv=notrunc 2>/dev/null"
      os.execute "touch -r %s.good %s && %s index %s"
    ]], path, path, path, path, path, path, mpi.program(), path) }
    assert.not_equal(0, result.status)
    assert.truthy(result.output:find("another process or job read other bytes than this one", 1, true), result.output)
    local message = files.message(function() npy(path, true):read(0, 64) end)
    assert.truthy(message:find("two processes or jobs read different bytes there", 1, true), message)
    os.execute(("mv %s.good %s"):format(path, path))
    message = files.message(function() npy(path, true):read(0, 64) end)
    assert.truthy(message:find("two processes or jobs read different bytes there", 1, true), message)
    assert.equal(0, (index("--force " .. path)))
    npy(path, true):read(0, 64)
  end)

  it("that are damaged are left out as bad records", function()
    assert.equal(0, (index(path)))
    flip(path, place(path, 64, 20) + 9, 1)
    local before, block = place(path, 64, 0), math.floor((place(path, 64, 20) + 9) / 4096)
    local bad = {}
    for i = 0, 63 do
      if before + i * ROW < (block + 1) * 4096 and before + (i + 1) * ROW > block * 4096 then bad[#bad + 1] = i end
    end
    local function numbers(list)
      local found = {}
      for i, one in ipairs(list) do
        found[i] = one.record
        assert.truthy(one.reason:find "x%.npy: bytes %d+ to %d+: damaged", one.reason)
      end
      return found
    end
    local s = source.npy({ x = path }, { on_bad_record = "skip" })
    assert.equal(64 - #bad, #s)
    assert.same(bad, numbers(s.bad_records))
    local loader = shardrt.loader { source = npy(path), batch_size = 8, on_bad_record = "skip" }
    assert.same(bad, numbers(loader.source.bad_records))
  end)

  -- Moves the file into a folder that cannot be written. Returns how to start shardrt so that this is so: root writes
  -- everywhere, so as another user.
  local function protect()
    assert.equal(0, os.execute(("mkdir %s/read-only %s/cache && mv %s %s/read-only/ && chmod 755 %s && chmod 777 "
      .. "%s/cache && chmod 555 %s/read-only"):format(folder, folder, path, folder, folder, folder, folder)))
    path = folder .. "/read-only/x.npy"
    if mpi.shell("id -u").stdout ~= "0\n" then return mpi.program() end
    os.execute(("cp %s %s/shardrt && chmod 755 %s/shardrt"):format(mpi.program(), folder, folder))
    return ("setpriv --reuid 65534 --regid 65534 --clear-groups %s/shardrt"):format(folder)
  end

  it("are noted in the cache folder that was named, whatever became of the text that named it", function()
    local program = protect()
    local result = mpi.shell(("HOME=/nonexistent %s %s"):format(program, recipe(folder, [[
      local source = require "shardrt".source
      local function open() return source.npy({ x = "%s" }, { cache = ("%s/%%s%%s"):format("ca", "che") }) end
      local opened, kept = open(), {}
      for round = 1, 4 do
        collectgarbage() -- nothing refers to the text any more, and others of its length take its place
        for i = 1, 20000 do kept[i] = ("%s/%%05d"):format(i + 20000 * round) end
      end
      opened:read(0, 64)
      opened = nil
      collectgarbage()
    ]], path, folder, folder)))
    assert.equal(0, result.status, result.output)
    assert.equal(1, #files.list(folder .. "/cache"))
    os.execute(("chmod 755 %s/read-only"):format(folder))
  end)

  it("keep what is known of them in the cache folder where it cannot lie beside the file", function()
    local words = ("HOME=/nonexistent %s index --cache %s/cache "):format(protect(), folder)
    local result = mpi.shell(words .. path)
    assert.equal(0, result.status, result.output)
    assert.equal(1, #files.list(folder .. "/cache"))
    assert.same({ "x.npy" }, files.list(folder .. "/read-only"))
    flip(path, place(path, 64, 30), 2)
    result = mpi.shell(words .. "--check " .. path)
    assert.equal(1, result.status)
    assert.truthy(result.output:find "x%.npy: bytes %d+ to %d+: damaged", result.output)
    os.execute(("chmod 755 %s/read-only"):format(folder))
  end)

  it("can be read where nothing can be noted anywhere", function()
    local result = mpi.run { recipe = recipe(folder, [[
      local source = require "shardrt".source.npy({ x = "%s" }, { cache = "/proc/nothing" })
      assert(source:read(0, 64).x.shape[1] == 64)
    ]], path) }
    assert.equal(0, result.status, result.output)
  end)

  it("say so when memory runs out, for every allocation", function()
    assert.equal(0, (index(path)))
    boxes.check_memory(function() return npy(path, true) end)
    boxes.check_memory(function()
      return source.tokens(path, { window = 100, dtype = "uint16", header = false, verify = "once" })
    end)
  end)

  it("are not taken for damaged where the index itself is: what it says no more is noted anew", function()
    assert.equal(0, (index(path)))
    local name = path .. ".shardrt-index"
    local good = files.slurp(name)
    local places = {}
    for at = 0, #good - 1, 97 do places[#places + 1] = at end
    for at = 4096, 4096 + 80, 3 do places[#places + 1] = at end -- the checksums themselves
    for _, at in ipairs(places) do
      local bad = good:sub(1, at) .. string.char(bit.bxor(good:byte(at + 1), 4)) .. good:sub(at + 2)
      files.write(folder, "x.npy.shardrt-index", bad)
      npy(path, true):read(0, 64)
    end
    for length = 0, #good - 1, 331 do
      files.write(folder, "x.npy.shardrt-index", good:sub(1, length))
      npy(path, "once"):read(0, 64)
      collectgarbage()
    end
    files.write(folder, "x.npy.shardrt-index", "something else that somebody put there")
    npy(path, true):read(0, 64)
    collectgarbage()
    flip(path, place(path, 64, 50), 1)
    assert.truthy(files.message(function() npy(path, true):read(0, 64) end):find "damaged")
  end)

  it("have three words for when they are looked at", function()
    local message = files.message(npy, path, "always")
    assert.truthy(message:find('verify = "always"; it is true, "once" or false', 1, true), message)
  end)
end)

describe("what was unpacked into the cache", function()
  local folder
  before_each(function() folder = files.folder() end)
  after_each(function()
    collectgarbage()
    files.remove(folder)
  end)

  local function check(open)
    local right = all_of(open()) -- which unpacks it
    collectgarbage()
    local list = data_files(folder .. "/cache")
    assert.equal(1, #list)
    age(list[1].path)
    assert.equal(right, all_of(open())) -- notes
    collectgarbage()
    flip(list[1].path, list[1].bytes - 200, 3)
    local message = files.message(function() return all_of(open()) end)
    assert.truthy(message:find("unpacked as " .. list[1].path, 1, true), message)
    assert.truthy(message:find "bytes %d+ to %d+: damaged", message)
    os.remove(list[1].path)
    assert.equal(right, all_of(open()))
  end

  it("is looked at as other files are: IDX", function()
    local path = files.gzip(files.write(folder, "x-idx3-ubyte", files.idx(0x0B, { 50, 10, 10 }, files.bytes(10000))))
    check(function() return source.idx({ x = path }, { cache = folder .. "/cache", verify = true }) end)
  end)

  it("is looked at as other files are: npz", function()
    copy(folder, "tests/files/npz/deflated.npz")
    check(function() return source.npz(folder .. "/deflated.npz", { cache = folder .. "/cache", verify = true }) end)
  end)
end)

describe("the header of a csv", function()
  it("is looked at, as a damaged one gives columns other names", function()
    local folder = files.folder()
    local path = files.write(folder, "x.csv", "id,x\n1,2.5\n3,4.5\n")
    age_all(folder)
    assert.equal(0, (index(path)))
    flip(path, 1, 2)
    local message = files.message(source.csv, path)
    assert.truthy(message:find("the first line (4 bytes) is damaged: its CRC-32C is ", 1, true), message)
    assert.truthy(source.csv(path, { verify = false }).fields["i`"])
    flip(path, 1, 2)
    assert.truthy(source.csv(path).fields.id)
    files.remove(folder)
  end)
end)

describe("a chunk of a Zarr array", function()
  it("that was there when its checksum was noted may not be missing", function()
    local folder = files.folder()
    local open, words = zarr "v2-big"(folder)
    local right = all_of(open { verify = true })
    age_all(folder)
    assert.equal(0, (index(words or folder)))
    local list = data_files(folder)
    local lost
    for _, file in ipairs(list) do
      if file.path:find "/[%d.]+$" then lost = file.path end
    end
    os.remove(lost)
    for _, verify in ipairs { true, "once" } do
      local message = files.message(function() return all_of(open { verify = verify }) end)
      assert.truthy(message:find("this file of the array is gone", 1, true), message)
    end
    local status, output = index("--check " .. (words or folder))
    assert.equal(1, status, output)
    assert.truthy(output:find("is gone", 1, true), output)
    assert.not_equal(right, all_of(open { verify = false }))
    assert.equal(0, (index("--force " .. (words or folder))))
    all_of(open { verify = true }) -- the fill value, as somebody wanted
    assert.equal(0, (index("--check " .. (words or folder))))
    files.remove(folder)
  end)
end)

describe("records under verify = \"once\"", function()
  it("are looked at when they are read first", function()
    local folder = files.folder()
    local path = files.write(folder, "data.tar", files.slurp "tests/files/records/webdataset.tar")
    age(path)
    local once, always = source.tar(path, { verify = "once" }), source.tar(path, { verify = true })
    local all = all_of(once)
    assert.equal(all, all_of(always))
    local at = assert(files.slurp(path):find(ffi.string(once:read(11, 1).bin[1].data, 11), 1, true)) - 1
    flip(path, at, 1)
    assert.not_equal(all, all_of(once))
    assert.truthy(files.message(all_of, always):find "record 11")
    assert.truthy(files.message(all_of, source.tar(path, { verify = "once" })):find "record 11")
    files.remove(folder)
  end)
end)

-- ---- shardrt index --------------------------------------------------------------------------------------------------

describe("shardrt index", function()
  local folder
  before_each(function() folder = files.folder() end)
  after_each(function() files.remove(folder) end)

  it("goes through files, folders and arrays, and finds what is damaged, in one process or several", function()
    local path = rows_npy(folder, 5000)
    copy(folder, "tests/files/records/webdataset.tar")
    arrays(folder, "zarr/v2-zlib zarr/v3-shard-plain-end data.h5")
    age_all(folder)
    local status, output = index("--check " .. folder)
    assert.equal(1, status, output)
    assert.truthy(output:find("has no index", 1, true), output)
    assert.truthy(output:find "x%.npy: %d+ parts without a checksum\n", output)
    assert.truthy(output:find "data%.h5: %d+ parts without a checksum\n", output)
    local result = mpi.shell(("%s run -n 3 index %s"):format(mpi.program(), folder))
    assert.equal(0, result.status, result.output)
    assert.truthy(result.output:find "^5 files, %S+ read\n$", result.output)
    status, output = index("--check " .. folder)
    assert.equal(0, status, output)
    flip(path, 1000000, 0)
    flip(path, 1000000 + 4096, 0)
    flip(folder .. "/data.h5", 5000, 0)
    flip(folder .. "/zarr/v2-zlib/0.0.0", 9, 0)
    for _, words in ipairs { "", "run -n 3 " } do
      result = mpi.shell(("%s %sindex --check %s"):format(mpi.program(), words, folder))
      assert.equal(1, result.status, result.output)
      local block = math.floor(1000000 / 4096) * 4096
      assert.truthy(result.output:find(("x.npy: bytes %d to %d: first damaged"):format(block, block + 8191), 1, true),
        result.output)
      assert.truthy(result.output:find("data.h5: bytes 4096 to 8191: damaged", 1, true), result.output)
      assert.truthy(result.output:find "v2%-zlib/0%.0%.0: bytes 0 to %d+: damaged", result.output)
      assert.truthy(result.output:find("3 damaged ranges", 1, true), result.output)
    end
  end)

  it("lets those read an index who may read its file", function()
    local path = rows_npy(folder, 64)
    for _, mode in ipairs { "644", "640", "600" } do
      assert.equal(0, os.execute(("chmod %s %s; umask 077; %s index --force %s > %s/out"):format(mode, path,
        mpi.program(), path, folder)))
      assert.equal(mode .. "\n", mpi.shell(("stat -c %%a %s.shardrt-index"):format(path)).stdout)
    end
  end)

  it("tells once, in a job of several, what it cannot go through", function()
    local broken = files.write(folder, "broken.npz", "PK\3\4 and nothing else")
    local path = rows_npy(folder, 64)
    local result = mpi.shell(("%s run -n 3 index %s %s"):format(mpi.program(), broken, path), 60)
    assert.equal(1, result.status)
    local _, count = result.stdout:gsub("broken%.npz", "")
    assert.equal(1, count, result.output)
    local none = folder .. "/none.npy"
    result = mpi.shell(("%s run -n 3 index --check %s %s"):format(mpi.program(), none, path), 60)
    _, count = result.stdout:gsub("none%.npy", "")
    assert.equal(1, count, result.output)
    assert.truthy(result.stdout:find ", 1 that could not be gone through", result.output)
  end)

  it("leaves what it knows, and forgets it where it is told to", function()
    local path = rows_npy(folder, 100)
    assert.equal(0, (index(path)))
    local _, output = index(path)
    assert.equal("1 file, 0B read\n", output)
    flip(path, 9999, 1)
    assert.equal(0, (index(path)))
    assert.equal(1, (index("--check " .. path)))
    assert.equal(0, (index("--force " .. path)))
    assert.equal(0, (index("--check " .. path)))
  end)

  it("goes on where it was killed", function()
    local path = folder .. "/x.bin"
    assert(os.execute(("truncate -s 4G %s"):format(path)) == 0)
    age(path)
    local result = mpi.shell(([[
      %s index %s & pid=$!
      while kill -0 $pid 2>/dev/null && [ ! -e %s.shardrt-index ]; do sleep 0.01; done
      kill -9 $pid && echo killed; wait $pid]]):format(mpi.program(), path, path), 200)
    assert.truthy(result.output:find "killed", result.output)
    local status, output = index(path)
    assert.equal(0, status, output)
    local gigabytes = tonumber(output:match "^1 file, (%d+%.?%d*)GB read\n$")
    assert.is_true(gigabytes ~= nil and gigabytes < 4, output) -- of 4.29
    status, output = index(path)
    assert.equal("1 file, 0B read\n", output)
    assert.equal(0, status)
  end)

  it("says what is wrong with its command line, and with files that it cannot go through", function()
    local function fails(words, status, text)
      local got, output = index(words)
      assert.equal(status, got, output)
      assert.truthy(output:find(text, 1, true), output)
    end
    local path = files.write(folder, "what", "nobody knows")
    fails("", 2, "no files given")
    fails("--nothing", 2, "unknown option --nothing")
    fails("--check --force x", 2, "nothing to compare with")
    fails("--format tart x", 2, "--format tart; there are")
    fails(path, 1, "--format says so")
    fails("--format plain " .. path, 0, "1 file, 12B read")
    fails(folder .. "/no.npy", 1, "No such file")
    fails(folder .. "/*.npy", 1, "no file fits the pattern")
    files.write(folder, "bad.tar", "no archive at all")
    fails(folder .. "/bad.tar", 1, "bad.tar")
  end)
end)

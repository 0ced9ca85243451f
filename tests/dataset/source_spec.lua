-- Sources: what a gather gives, against plain Lua; shards and numbers; fingerprints; every way out of an error.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local boxes = require "tests.support.boxes"
local files = require "tests.support.files"
local no_memory = require "tests.support.no_memory"
local ndarray = require("shardrt").ndarray
local source = require "shardrt.data.source"

ffi.cdef [[
size_t source_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner);
int32_t source_file_count(const shardrt_source *source);
const char *source_file_name(const shardrt_source *source, int32_t file);
uint64_t source_file_fingerprint(const shardrt_source *source, int32_t file);
]]

local function product(sizes)
  local n = 1
  for _, size in ipairs(sizes) do n = n * size end
  return n
end

local cut, c_box, gather, bytes_of = boxes.cut, boxes.c_box, boxes.gather, boxes.bytes_of

describe("a source", function()
  local folder
  setup(function() folder = files.folder() end)
  teardown(function() files.remove(folder) end)

  it("gathers what plain Lua cuts out, for random shapes, boxes and samples", function()
    local seed = require "tests.support.seed"
    math.randomseed(seed)
    local random = math.random
    local kinds = { { "|u1", 1 }, { "<i2", 2 }, { "<f4", 4 }, { "<f8", 8 } }
    local idx = { [1] = 8, [2] = 0x0B, [4] = 0x0C, [8] = 0x0E }
    for case = 1, 400 do
      local kind = kinds[random(#kinds)]
      local size = kind[2]
      local shape = {}
      for d = 1, random(0, 5) do shape[d] = random(9) == 1 and 1 or random(4) end
      local count = random(0, 9)
      local sample_bytes = product(shape) * size
      local payload = files.bytes(count * sample_bytes)
      local all = { count, unpack(shape) }
      local s
      local big_endian = random(2) == 1
      if big_endian then
        s = source.idx { x = files.write(folder, "x", files.idx(idx[size], all, payload)) }
        payload = payload:gsub(("."):rep(size), string.reverse)
      else
        local text = files.npy { dict = files.dict(kind[1], all), payload = payload }
        s = source.npy { x = files.write(folder, "x", text) }
      end
      local box = {}
      for d, n in ipairs(shape) do
        local a, b = random(0, n), random(0, n)
        box[d] = random(3) == 1 and { 0, n } or { math.min(a, b), math.max(a, b) }
      end
      local samples, expected = {}, {}
      for i = 1, count > 0 and random(0, 12) or 0 do
        samples[i] = (i > 1 and random(2) == 1 and samples[i - 1] + 1 < count) and samples[i - 1] + 1
          or random(0, count - 1)
        local at = samples[i] * sample_bytes
        expected[i] = cut(payload:sub(at + 1, at + sample_bytes), shape, box, size)
      end
      local code, got = gather(s, 0, samples, box, size)
      local say = ("seed %d, case %d"):format(seed, case)
      assert.equal(0, code, say)
      assert.is_true(table.concat(expected) == got, say)
      assert.equal(#cut(("x"):rep(sample_bytes), shape, box, size), tonumber(C.source_bytes(s, 0, c_box(box))), say)
    end
  end)

  it("reads any range of samples, also more than it takes at once", function()
    local host = ndarray.arange(3 * 2000):reshape { 2000, 3 }
    local s = source.array { x = host }
    for _, range in ipairs { { 0, 2000 }, { 0, 0 }, { 2000, 0 }, { 511, 2 }, { 512, 1 }, { 100, 1500 }, { 1999, 1 } } do
      local read = s:read(range[1], range[2]).x
      assert.same({ range[2], 3 }, read.shape)
      assert.equal(bytes_of(host:rows(range[1], range[2])), bytes_of(read))
    end
    for _, wrong in ipairs { { -1, 1 }, { 0, 2001 }, { 2000, 1 }, { 0, -1 }, { 0.5, 1 }, { 0, 0 / 0 }, { 1e300, 1 } } do
      local message = files.message(function() s:read(wrong[1], wrong[2]) end)
      assert.truthy(message:match "source:read", message)
    end
    assert.truthy(files.message(function() s:read() end):match "first sample")
  end)

  it("refuses what is outside of it", function()
    local s = source.array { x = ndarray.arange(12):reshape { 3, 4 } }
    local good = { { 0, 4 } }
    assert.equal(C.SHARDRT_EINVAL, (gather(s, 1, { 0 }, good, 4)))
    assert.equal(C.SHARDRT_EINVAL, (gather(s, -1, { 0 }, good, 4)))
    assert.equal(C.SHARDRT_EINVAL, (gather(s, 0, { 3 }, good, 4)))
    assert.equal(C.SHARDRT_EINVAL, (gather(s, 0, { 0, -1 }, good, 4)))
    assert.equal(C.SHARDRT_EINVAL, (gather(s, 0, { 0 }, { { 0, 5 } }, 4)))
    assert.equal(C.SHARDRT_EINVAL, (gather(s, 0, { 0 }, {}, 4)))
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_source_read(s, 0, 2, 9223372036854775807LL, nil))
    assert.is_nil(C.shardrt_source_field(s, 1) ~= nil or nil)
  end)

  it("is cut into shards that together are all of it", function()
    for count = 0, 13 do
      local s = source.array { x = ndarray.arange(count) }
      for shards = 1, 6 do
        local seen = {}
        for index = 0, shards - 1 do
          local shard = s:shard(shards, index)
          local list = shard:read(0, #shard).x:to_table()
          for i, value in ipairs(list) do
            assert.equal((i - 1) * shards + index, value)
            seen[value] = (seen[value] or 0) + 1
          end
        end
        for i = 0, count - 1 do assert.equal(1, seen[i]) end
        assert.is_nil(seen[count])
      end
    end
    -- More shards than any number of samples, twice over.
    local s = source.array { x = ndarray.arange(5) }
    local far = s:shard(2 ^ 53, 3):shard(2 ^ 53, 0):enumerate "id"
    assert.equal(1, #far)
    assert.equal(3, tonumber(far:read(0, 1).id.data[0]))
    assert.equal(0, #s:shard(2 ^ 53, 2 ^ 53 - 1))
  end)

  it("numbers samples as they stand in the files, however shards and numbers are stacked", function()
    local seed = require "tests.support.seed"
    math.randomseed(seed)
    for _ = 1, 200 do
      local s, numbers, names = source.array { x = ndarray.arange(40) }, {}, 0
      for i = 0, 39 do numbers[i + 1] = i end
      for _ = 1, math.random(5) do
        if math.random(3) == 1 then
          names = names + 1
          s = s:enumerate("id" .. names)
        else
          local shards = math.random(4)
          local index = math.random(shards) - 1
          local kept = {}
          for i = index, #numbers - 1, shards do kept[#kept + 1] = numbers[i + 1] end
          s, numbers = s:shard(shards, index), kept
        end
      end
      local read = s:read(0, #s)
      assert.same(numbers, read.x:to_table(), "seed " .. seed)
      for name = 1, names do
        local ids = read["id" .. name]
        assert.equal("int64", ids.dtype)
        for i, number in ipairs(numbers) do assert.equal(number, tonumber(ids.data[i - 1]), "seed " .. seed) end
        -- What is computed is not read.
        assert.equal(0, tonumber(C.source_bytes(s, name, c_box {})))
      end
    end
  end)

  it("gathers through views in any order", function()
    local s = source.array { x = ndarray.arange(3000):reshape { 1000, 3 } }:shard(3, 1):enumerate "id":shard(2, 1)
    local samples, expected = {}, {}
    for i = 1, 1000 do
      samples[i] = (i * 37) % #s
      expected[i] = (samples[i] * 2 + 1) * 3 + 1
    end
    local _, ids = gather(s, 1, samples, {}, 8)
    local _, middle = gather(s, 0, samples, { { 1, 2 } }, 4)
    for i, number in ipairs(expected) do
      assert.equal(number, tonumber(ffi.cast("const int64_t *", ids)[i - 1]))
      assert.equal(number * 3 + 1, ffi.cast("const int32_t *", middle)[i - 1])
    end
  end)

  it("lives as long as what was made from it", function()
    local view = source.array { x = ndarray.arange(1000) }:shard(2, 1):enumerate "id"
    collectgarbage()
    collectgarbage()
    assert.equal(999, view:read(499, 1).x:to_table()[1])
  end)

  it("is what a recipe sees: a length, fields in a fixed order, a text", function()
    local s = source.array { b = { 1, 2 }, a = { { 1 }, { 2 } }, c = ndarray.zeros({ 2, 2, 2 }, "bool") }
    assert.equal(2, #s)
    assert.same({ "a", "b", "c" }, s.names)
    assert.same({
      a = { dtype = "float32", shape = { 1 } }, b = { dtype = "float32", shape = {} },
      c = { dtype = "bool", shape = { 2, 2 } },
    }, s.fields)
    assert.equal("source of 2 samples of a: float32 {1}, b: float32 {}, c: bool {2, 2}", tostring(s))
    local message = files.message(function() return s.take end)
    assert.truthy(message:find('a source has no "take"; it has "bad_records", "classes",', 1, true), message)
    assert.is_nil(s._name) -- as libraries ask
    assert.is_true(source.is(s))
    assert.is_false(source.is {})
    assert.is_false(source.is(nil))
    -- A view of a larger block gives its own elements only.
    local part = source.array { x = ndarray.arange(10):rows(4, 3) }
    assert.same({ 4, 5, 6 }, part:read(0, 3).x:to_table())
  end)

  it("says what is wrong with how it was asked for", function()
    local path = files.write(folder, "a.npy", files.npy { dict = files.dict("<i4", { 3 }), payload = ("x"):rep(12) })
    local longer = files.write(folder, "b.npy", files.npy { dict = files.dict("|u1", { 4 }), payload = "xxxx" })
    local scalar = files.write(folder, "c.npy", files.npy { dict = files.dict("<i4", {}), payload = ("x"):rep(4) })
    local s = source.npy { x = path }
    for _, case in ipairs {
      { function() source.npy { x = path, y = longer } end, '"x" has 3 samples', path, '"y" has 4', longer },
      { function() source.npy { x = scalar } end, scalar, "first dimension" },
      { function() source.npy {} end, "no field" },
      { function() source.npy() end, "not nil" },
      { function() source.npy(path) end, "not \"" },
      { function() source.npy { path } end, "every field has a name" },
      { function() source.npy { x = 3 } end, 'field "x": it takes the path of a .npy file, not 3' },
      { function() source.npy { x = path .. "\0" } end, "\\000" },
      { function() source.npy { [""] = path } end, "is empty" },
      { function() source.npy { x = folder .. "/none.npy" } end, folder .. "/none.npy", "No such file" },
      { function() source.npy { x = folder } end, folder, "is a folder" },
      { function() source.idx({ x = path }, { cahce = "/tmp" }) end, 'did you mean "cache"' },
      { function() source.idx({ x = path }, { cache = 3 }) end, "path of a folder, not 3" },
      { function() source.idx({ x = path }, "cache") end, "options are a table" },
      { function() source.array { x = 3 } end, "not 3" },
      { function() source.array { x = {}, y = { 1 } } end, "different length" },
      { function() source.array { x = ndarray.zeros {} } end, "first dimension" },
      { function() s:shard(0, 0) end, "0 shards" },
      { function() s:shard(2, 2) end, "shard 2 of 2; they count from 0 to 1" },
      { function() s:shard(2, -1) end, "shard -1" },
      { function() s:shard(2) end, "whole number" },
      { function() s:shard(1.5, 0) end, "whole number" },
      { function() s:enumerate() end, "name" },
      { function() s:enumerate "" end, "empty" },
      { function() s:enumerate "x" end, 'has a field "x" already' },
      { function() s.count = 3 end, "never changes" },
    } do
      local message = files.message(case[1])
      for i = 2, #case do assert.truthy(message:find(case[i], 1, true), message) end
      assert.truthy(message:match "^tests/dataset/source_spec.lua:%d+: ", message)
    end
    local out = ffi.new "shardrt_source *[1]"
    local names, paths = ffi.new("const char *[2]", { "x", "x" }), ffi.new("const char *[2]", { path, path })
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_source_open("npy", 2, names, paths, nil, out))
    assert.truthy(ffi.string(C.shardrt_error_message()):find('"x" is given twice', 1, true))
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_source_open("nyp", 1, names, paths, nil, out))
    assert.truthy(ffi.string(C.shardrt_error_message()):find('"nyp"', 1, true))
    -- A pipe does not make it wait.
    os.execute("mkfifo " .. folder .. "/pipe")
    assert.truthy(files.message(source.npy, { x = folder .. "/pipe" }):match "no regular file")
  end)

  it("has a fingerprint of what it gives", function()
    local function npy(name, descr, shape, payload)
      return files.write(folder, name, files.npy { dict = files.dict(descr, shape), payload = payload })
    end
    local payload = files.bytes(200000)
    local function fingerprint(s) return tostring(C.shardrt_source_fingerprint(s)) end
    local a = npy("a.npy", "|u1", { 1000, 200 }, payload)
    local base = source.npy { x = a }
    local first = fingerprint(base)
    assert.equal(first, fingerprint(source.npy { x = npy("copy.npy", "|u1", { 1000, 200 }, payload) }))
    local changed = payload:sub(1, 5000) .. "\1" .. payload:sub(5002)
    local zero = ndarray.zeros({ 100000 }, "uint8")
    local one = ndarray.zeros({ 100000 }, "uint8")
    one.data[99999] = 1
    local all = {
      first,
      fingerprint(source.npy { y = a }),
      fingerprint(source.npy { x = npy("b.npy", "|i1", { 1000, 200 }, payload) }),
      fingerprint(source.npy { x = npy("c.npy", "|u1", { 1000, 100, 2 }, payload) }),
      fingerprint(source.npy { x = npy("d.npy", "|u1", { 1000, 200 }, changed) }),
      fingerprint(source.npy { x = npy("e.npy", "|u1", { 1001, 200 }, payload .. ("x"):rep(200)) }),
      fingerprint(base:shard(2, 0)), fingerprint(base:shard(2, 1)), fingerprint(base:shard(3, 0)),
      fingerprint(base:enumerate "id"), fingerprint(base:enumerate "no"), fingerprint(base:shard(2, 0):enumerate "id"),
      fingerprint(source.array { x = zero }), fingerprint(source.array { x = one }),
    }
    local seen = {}
    for i, text in ipairs(all) do
      assert.is_nil(seen[text], "equal fingerprints: " .. i)
      seen[text] = true
    end
    assert.equal(fingerprint(base:shard(2, 1)), fingerprint(source.npy { x = a }:shard(2, 1)))
    -- An array's is taken once, not each time that it is asked for.
    local made = source.array { x = zero }
    local once = fingerprint(made)
    zero.data[5] = 7
    assert.equal(once, fingerprint(made))
    assert.not_equal(once, fingerprint(source.array { x = zero }))
    local both = source.npy { x = a, y = folder .. "/d.npy" }:shard(2, 1)
    assert.equal(2, C.source_file_count(both))
    assert.equal("the file " .. a, ffi.string(C.source_file_name(both, 0)))
    assert.is_true(C.source_file_fingerprint(both, 0) ~= C.source_file_fingerprint(both, 1))
    assert.equal('the array "x"', ffi.string(C.source_file_name(source.array { x = zero }, 0)))
  end)

  it("knows its shapes and has no data in a plan", function()
    local job = ffi.cast("shardrt_job_info *", current.info)
    local path = files.write(folder, "p.idx", files.idx(8, { 1000, 4 }, files.bytes(4000)))
    local zipped = files.gzip(path)
    local cache = folder .. "/no-cache"
    job.planning = 1
    local ok, problem = pcall(function()
      local s = source.idx({ x = zipped }, { cache = cache })
      assert.equal(1000, #s)
      local view = s:shard(10, 3):enumerate "id"
      local read = view:read(5, 7)
      assert.same({ 7, 4 }, read.x.shape)
      assert.equal("uint8", read.x.dtype)
      assert.same({ 7 }, read.id.shape)
      for _, use in ipairs {
        function() return read.x.data end, function() return read.x:to_table() end,
        function() read.x:save(folder .. "/q.npy") end,
      } do
        assert.truthy(files.message(use):match "without data")
      end
      -- It can be a source again.
      assert.equal(7, #source.array(read))
      local dst = ffi.new "uint8_t[4]"
      assert.equal(C.SHARDRT_EDATA, C.shardrt_source_read(s, 0, 0, 1, dst))
      assert.truthy(ffi.string(C.shardrt_error_message()):find(zipped, 1, true))
    end)
    job.planning = 0
    assert.is_true(ok, problem)
    assert.same({}, files.list(cache))
  end)

  it("leaves nothing behind when an allocation fails", function()
    local npy = files.write(folder, "a.npy", files.npy { dict = files.dict("<i4", { 3 }), payload = ("x"):rep(12) })
    local plain = files.write(folder, "a.idx", files.idx(8, { 3 }, "xyz"))
    local zipped = files.gzip(plain)
    local cache = folder .. "/cache"
    local host = ndarray.arange(3)
    local good = source.array { x = host }
    local names = ffi.new("const char *[2]", { "x", "y" })
    local function open(format, path, out)
      local options = ffi.new("shardrt_source_options", { cache = cache })
      return C.shardrt_source_open(format, 2, names, ffi.new("const char *[2]", { path, path }), options, out)
    end
    for name, call in pairs {
      npy = function(out) return open("npy", npy, out) end,
      idx = function(out) return open("idx", plain, out) end,
      gzip = function(out)
        os.execute("rm -rf " .. cache)
        return open("idx", zipped, out)
      end,
      array = function(out)
        return C.shardrt_source_array(1, names, ffi.new("int32_t[1]", C.SHARDRT_INT32), ffi.new("int32_t[1]", 1),
          ffi.new("int64_t[1]", 3), ffi.new("shardrt_buffer *[1]", { host.buffer }), out)
      end,
      shard = function(out) return C.shardrt_source_shard(good, 2, 1, out) end,
      enumerate = function(out) return C.shardrt_source_enumerate(good, "id", out) end,
    } do
      local failures = no_memory.each(function()
        local out = ffi.new "shardrt_source *[1]"
        local code = call(out)
        if code == 0 then
          C.shardrt_source_free(out[0])
        else
          assert.is_true(out[0] == nil)
          for _, file in ipairs(files.list(cache)) do assert.is_nil(file:match "%.tmp$") end
        end
        return code
      end, { spares = name == "gzip" and { "removing old unpacked files" } or nil })
      assert.is_true(failures > 0, name)
    end
    C.shardrt_source_free(nil)
  end)
end)

-- long: 20 s
-- Ragged fields, token files, and the views that choose samples: what they give, against plain Lua; what they refuse.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local shardrt = require "shardrt"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local ndarray, source = shardrt.ndarray, shardrt.source

local seed = require "tests.support.seed"
math.randomseed(seed)
local random = math.random

local function numbers(host)
  local list = {}
  for i = 0, host.size - 1 do list[i + 1] = tonumber(host.data[i]) end
  return list
end

local function int32s(list)
  local host = ndarray.empty({ #list }, "int32")
  for i, value in ipairs(list) do host.data[i - 1] = value end
  return host
end

local function ids(first, count)
  local list = {}
  for i = 1, count do list[i] = first + i - 1 end
  return source.array { id = int32s(list) }
end

local function all(s, name) return numbers(s:read(0, #s)[name or "id"]) end

local function refused(f, ...)
  local message = files.message(f)
  expect.contains(message, ...)
  assert.truthy(message:match "^tests/dataset/views_spec.lua:%d+: ", message)
end

-- Lists of numbers of random lengths.
local function sequences(count, longest)
  local list, value = {}, 0
  for i = 1, count do
    list[i] = {}
    for k = 1, random(0, longest) do
      value = value + 1
      list[i][k] = value
    end
  end
  return list
end

local function ragged(list, field)
  local hosts = {}
  for i, values in ipairs(list) do hosts[i] = int32s(values) end
  return source.ragged { [field or "tokens"] = hosts }
end

describe("a ragged field", function()
  local folder
  setup(function() folder = files.folder() end)
  teardown(function() files.remove(folder) end)

  it("gives what was put in, from lists, arrays and files, beside fields of one shape", function()
    for _ = 1, 20 do
      local list = sequences(random(1, 20), 6)
      local flat, offsets, labels = {}, { 0 }, {}
      for i, values in ipairs(list) do
        for _, value in ipairs(values) do flat[#flat + 1] = value end
        offsets[i + 1], labels[i] = #flat, i * 3
      end
      local data, ends = int32s(flat), ndarray.empty({ #offsets }, "int64")
      for i, offset in ipairs(offsets) do ends.data[i - 1] = offset end
      data:save(folder .. "/data.npy")
      ends:save(folder .. "/offsets.npy")
      local labelled = int32s(labels)
      labelled:save(folder .. "/label.npy")
      for _, s in ipairs {
        source.ragged { x = { data = data, offsets = ends }, label = labelled },
        source.ragged { x = { data = folder .. "/data.npy", offsets = folder .. "/offsets.npy" },
          label = folder .. "/label.npy" },
      } do
        assert.equal(#list, #s)
        assert.same({ -1 }, s.fields.x.shape)
        local read = s:read(0, #s)
        assert.same(labels, numbers(read.label))
        for i, values in ipairs(list) do assert.same(values, numbers(read.x[i])) end
        for i, host in ipairs(s:shard(2, 1):enumerate("id"):read(0, math.floor(#list / 2)).x) do
          assert.same(list[2 * i], numbers(host))
        end
      end
      local read = ragged(list):read(0, #list)
      for i, values in ipairs(list) do assert.same(values, numbers(read.tokens[i])) end
    end
  end)

  it("may have more dimensions", function()
    local one, two = ndarray.arange(6, "int32"):reshape { 2, 3 }, ndarray.arange(3, "int32"):reshape { 1, 3 }
    local s = source.ragged { x = { one, two } }
    assert.same({ -1, 3 }, s.fields.x.shape)
    local read = s:read(0, 2).x
    assert.same({ { 0, 1, 2 }, { 3, 4, 5 } }, read[1]:to_table())
    assert.same({ { 0, 1, 2 } }, read[2]:to_table())
  end)

  -- What a transform is given is aligned all the same: `make asan` tells.
  it("may lie at any byte of its file", function()
    local dict = "{'descr': '<i4', 'fortran_order': False, 'shape': (6,), }"
    for pad = 1, 4 do
      local header = dict .. (" "):rep(pad) .. "\n"
      local path, values = folder .. "/unpadded.npy", ndarray.arange(6, "int32")
      local file = assert(io.open(path, "wb"))
      file:write("\147NUMPY\1\0", string.char(#header, 0), header, ffi.string(values.data, values.bytes))
      file:close()
      local ends = ndarray.from_table({ 0, 2, 6 }, "int64")
      local s = source.ragged { x = { data = path, offsets = ends } }
      local made = s:map { x = { shardrt.transform.cast { dtype = "float32" } } }:read(0, 2).x
      assert.same({ 0, 1 }, made[1]:to_table())
      assert.same({ 2, 3, 4, 5 }, made[2]:to_table())
    end
  end)

  it("is refused where its offsets do not ascend, leave the data, or are of another dtype", function()
    local data = ndarray.arange(5, "int32")
    local function offsets(list, dtype)
      local host = ndarray.empty({ #list }, dtype or "int64")
      for i, value in ipairs(list) do host.data[i - 1] = value end
      return host
    end
    local function open(o) return function() source.ragged { x = { data = data, offsets = o } } end end
    assert.equal(2, #source.ragged { x = { data = data, offsets = offsets { 1, 1, 5 } } })
    refused(open(offsets { 0, 3, 2 }), 'field "x"', "offset 2 is 2, after 3")
    refused(open(offsets { 0, 6 }), "offset 1 is 6", "at most 5")
    refused(open(offsets { -1, 3 }), "offset 0 is -1")
    refused(open(offsets {}), "one more than there are samples")
    refused(open(offsets({ 0, 3 }, "int32")), "int32", "offsets are int64")
    refused(open(nil), "not nil")
    refused(function() source.ragged { x = { data = data, ofsets = data } } end, 'did you mean "offsets"')
    refused(function() source.ragged { x = {} } end, "empty list")
    refused(function() source.ragged { x = { data, ndarray.arange(3, "int64") } } end, "number 2", "int64")
    refused(function() source.ragged { x = { data }, y = { data, data } } end, '"x" has 1', '"y"', "2")
    refused(function() shardrt.loader { source = ragged { { 1 }, { 2, 3 } }, batch_size = 1 } end, "tokens",
      "source:pack")
  end)
end)

describe("a file of tokens", function()
  local folder
  setup(function() folder = files.folder() end)
  teardown(function() files.remove(folder) end)

  local function tokens(dtype, values, header)
    local host = ndarray.empty({ #values }, dtype)
    for i, value in ipairs(values) do host.data[i - 1] = value end
    local words = ffi.new "int32_t[256]"
    for i, word in ipairs(header or {}) do words[i - 1] = word end
    return (header and ffi.string(words, 1024) or "") .. ffi.string(host.data, host.bytes)
  end

  it("is cut into windows, bare or with a header, one or many", function()
    for case = 1, 40 do
      local dtype, values = case % 2 == 0 and "uint16" or "uint32", {}
      for i = 1, random(0, 60) do values[i] = random(0, 65535) end
      local header = case % 3 == 0 and (dtype == "uint16" and { 20240520, 1, #values } or { 20240801, 7, #values })
      local path = files.write(folder, "t.bin", tokens(dtype, values, header or nil))
      local window, stride = random(1, 9), random(1, 9)
      local o = { window = window, stride = stride, dtype = not header and dtype or nil }
      local s, expected = source.tokens(path, o), {}
      for first = 0, #values - window, stride do
        local sample = {}
        for i = 1, window do sample[i] = values[first + i] end
        expected[#expected + 1] = sample
      end
      assert.equal(#expected, #s)
      assert.same({ dtype = dtype, shape = { window } }, s.fields.tokens)
      if #s > 0 then assert.same(expected, s:read(0, #s).tokens:to_table()) end
      -- Files follow one another, and no window spans two.
      local twice = source.tokens({ path, path }, o)
      assert.equal(2 * #expected, #twice)
      if #s > 0 then assert.same(expected, twice:read(#s, #s).tokens:to_table()) end
    end
    local path = files.write(folder, "w.bin", "abcdef")
    assert.equal(2, #source.tokens(path, { window = 1, stride = 2, dtype = "uint16" }))
    assert.equal(1, #source.tokens(path, { window = 2, dtype = "uint16" })) -- the stride is as the window
  end)

  it("is refused where its header lies or its size is odd", function()
    local function open(text, o)
      local path = files.write(folder, "bad.bin", text)
      return function() source.tokens(path, o or { window = 2 }) end
    end
    refused(open(tokens("uint16", { 1, 2, 3 }, { 20240520, 1, 4 })), "bad.bin", "counts 4 tokens", "6 bytes")
    refused(open(tokens("uint16", { 1, 2, 3 }, { 20240520, 2, 3 })), "version 2")
    refused(open(tokens("uint16", { 1, 2, 3 }, { 20240520, 1, -3 })), "counts -3")
    refused(open(tokens("uint16", { 1, 2, 3 }, { 20240520, 1, 3 }), { window = 2, dtype = "uint32" }), "are uint16")
    refused(open("abc", { window = 2, dtype = "uint16" }), "3 bytes")
    refused(open("abcdef", { window = 2, dtype = "uint32" }), "6 bytes")
    refused(open("abcd", { window = 2, dtype = "float32" }), "tokens of dtype float32", "whole numbers")
    refused(open("abcd", {}), "window = nil")
    refused(open("abcd", { window = 1, stride = 0 }), "stride = 0")
    refused(open("abcd", { window = 1, dtype = "uint16", header = 1 }), "header = 1")
    refused(function() source.tokens(folder .. "/none.bin", { window = 1 }) end, "none.bin", "No such file")
  end)

  it("is of any dtype of whole numbers, which a bare file must be given", function()
    for _, dtype in ipairs { "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64" } do
      local values = dtype:find "^u" and { 0, 1, 127, 3 } or { 0, -1, 127, -100 }
      local path = files.write(folder, "d.bin", tokens(dtype, values))
      local got = source.tokens(path, { window = 4, dtype = dtype }):read(0, 1).tokens
      assert.equal(dtype, got.dtype)
      assert.same(values, numbers(got))
    end
    local function open(text)
      local path = files.write(folder, "b.bin", text)
      return function() source.tokens(path, { window = 1 }) end
    end
    refused(open(("\1"):rep(8)), "b.bin", "`dtype`", "8 bytes are 4 of uint16, 2 of uint32, 2 of int32, 1 of int64")
    refused(open(("\1"):rep(6)), "6 bytes are 3 of uint16, 6 of uint8")
    refused(open(("\1"):rep(3)), "3 bytes are 3 of uint8")
    refused(open "", "0 bytes")
  end)

  it("is refused where its first bytes are those of another format, unless it has no header", function()
    local zeros = ("\0"):rep(600)
    local arrow = "\255\255\255\255\24\0\0\0\16\0\0\0" .. zeros
    local others = {
      [".npy file"] = files.slurp "tests/files/int32.npy", ["zip archive"] = files.slurp "tests/files/archive.npy",
      ["compressed by xz"] = "\2537zXZ\0" .. zeros, ["compressed by bzip2"] = "BZh91AY&SY" .. zeros,
      ["Parquet"] = "PAR1\21\4" .. zeros, ["an Arrow file"] = "ARROW1\0\0" .. arrow, ["an Arrow stream"] = arrow,
      ["Megatron's index"] = "MMIDIDX\0\0\1\0" .. zeros, ["HDF5"] = "\137HDF\r\n\26\n" .. zeros,
      ["safetensors"] = '\16\0\0\0\0\0\0\0{"x":{"dtype":"I32"' .. zeros,
      ["a tar archive"] = files.slurp "tests/files/records/ustar.tar",
      ["a TFRecord file"] = files.slurp "tests/files/records/tensorflow.tfrecord",
      ["a pickle"] = "\128\4\149\16\0\0\0\0\0\0\0" .. zeros,
      ["it is text"] = ('{"text": "Wörter, und mehr davon."}\n'):rep(9),
    }
    for what, text in pairs(others) do
      text = text .. (what == "it is text" and " " or "\0"):rep(-#text % 8)
      local path = files.write(folder, "other.bin", text)
      for _, dtype in ipairs { "uint16", "int64" } do
        refused(function() source.tokens(path, { window = 1, dtype = dtype }) end, path, what, "`header = false`")
      end
      if what ~= "it is text" then -- which may be tokens of one byte
        refused(function() source.tokens(path, { window = 1 }) end, path, what)
        refused(function() source.tokens(path, { window = 1, dtype = "uint8" }) end, path, what)
      end
      local bare = source.tokens(path, { window = 4, dtype = "uint16", header = false })
      assert.equal(files.slurp(path):sub(1, 8), ffi.string(bare:read(0, 1).tokens.data, 8))
      refused(function() source.tokens(path, { window = 1, header = false }) end, "`dtype`")
    end
    local path = files.write(folder, "t.bin", tokens("uint16", { 1, 2, 3 }, { 20240520, 1, 3 }))
    assert.equal(3, #source.tokens(path, { window = 1 }))
    assert.equal(515, #source.tokens(path, { window = 1, dtype = "uint16", header = false }))
  end)

  it("of random tokens is hardly ever taken for another format", function()
    for _ = 1, 200 do
      local values = {}
      for i = 1, 400 do values[i] = random(0, 65535) end
      assert.equal(400, #source.tokens(files.write(folder, "r.bin", tokens("uint16", values)),
        { window = 1, dtype = "uint16" }))
    end
  end)

  it("that is cut is refused, at every length, and its header wherever a bit of it that counts is flipped", function()
    local whole = tokens("uint16", { 1, 2, 3, 500 }, { 20240520, 1, 4 })
    local path = folder .. "/damaged.bin"
    local function read(text)
      files.write(folder, "damaged.bin", text)
      local s = source.tokens(path, { window = 2 })
      return s:read(0, #s)
    end
    assert.equal(500, tonumber(read(whole).tokens.data[3]))
    for length = 0, #whole - 1 do
      refused(function() read(whole:sub(1, length)) end, path)
    end
    for i = 0, 11 do
      for b = 0, 7 do
        local at = string.char(bit.bxor(whole:byte(i + 1), 2 ^ b))
        local text = whole:sub(1, i) .. at .. whole:sub(i + 2)
        refused(function() read(text) end, path)
      end
    end
  end)
end)

describe("a concatenation", function()
  it("is its parts, one after the other, with numbers and labels", function()
    for _ = 1, 60 do
      local parts, expected, labels, base, numbers_expected = {}, {}, {}, 0, {}
      for p = 1, random(1, 6) do
        local count = random(0, 7)
        parts[p] = ids(p * 100, count)
        local step = random(1, 3)
        if random(2) == 1 then parts[p] = parts[p]:shard(step, 0) else step = 1 end
        local kept = all(parts[p])
        for i, id in ipairs(kept) do
          expected[#expected + 1], labels[#labels + 1] = id, p - 1
          numbers_expected[#numbers_expected + 1] = base + (i - 1) * step
        end
        base = base + (#kept > 0 and (#kept - 1) * step + 1 or 0)
      end
      parts.part = "from"
      local s = shardrt.concat(parts):enumerate "number"
      assert.equal(#expected, #s)
      assert.same(expected, all(s))
      assert.same(labels, all(s, "from"))
      assert.same(numbers_expected, all(s, "number"))
      local shard, kept = s:shard(3, 1), {}
      for i = 2, #expected, 3 do kept[#kept + 1] = expected[i] end
      assert.same(kept, all(shard))
    end
  end)

  it("takes fields by their names, whatever their order", function()
    local a = source.array { x = int32s { 1 } }:enumerate "y"
    local b = source.array { y = ndarray.full({ 1 }, 7, "int64"), x = int32s { 2 } }:map { x = {}, y = {} }
    local s = shardrt.concat { a, b }
    assert.same({ { 1, 2 }, { 0, 7 } }, { all(s, "x"), all(s, "y") })
  end)

  it("refuses parts that do not go together", function()
    local a = ids(0, 3)
    refused(function() shardrt.concat {} end, "there is none")
    refused(function() shardrt.concat { a, 3 } end, "number 2", "not a source")
    refused(function() shardrt.concat { a, source.array { x = int32s { 1 } } } end, 'source 2 has no field "id"')
    refused(function() shardrt.concat { a, a:enumerate "n" } end, "source 1 has 1 fields, source 2 has 2")
    refused(function() shardrt.concat { a, source.array { id = ndarray.arange(3, "int64") } } end, "int32", "int64")
    refused(function() shardrt.concat { a, source.array { id = ndarray.zeros({ 3, 1 }, "int32") } } end, "shape")
    refused(function() shardrt.concat { a, part = "id" } end, '"id" already')
    refused(function() shardrt.concat { a, prt = "x" } end, 'did you mean "part"')
    refused(function() shardrt.concat { shardrt.mix { { a, 1 } }, a } end, "source 1 is a mix")
  end)
end)

-- ---- mix -----------------------------------------------------------------------------------------------------------

-- The samples that a loader gives, in order, through all its epochs.
local function delivered(s, o)
  local list = {}
  for batch in shardrt.loader {
    source = s, batch_size = o.batch_size or 4, shuffle = o.shuffle, seed = o.seed, epochs = o.epochs,
    remainder = "pad", sharding = shardrt.SingleDeviceSharding(0), num_workers = random(1, 3),
  } do
    local mask = shardrt.device_get(batch.mask)
    local values = {}
    for name in pairs(s.fields) do values[name] = shardrt.device_get(batch[name]) end
    for row = 0, mask.size - 1 do
      if mask.data[row] then
        local sample = {}
        for name, host in pairs(values) do sample[name] = tonumber(host.data[row]) end
        list[#list + 1] = sample
      end
    end
  end
  return list
end

local function gcd(a, b) return b == 0 and a or gcd(b, a % b) end

describe("a mix", function()
  it("has exactly each part's share in every period, and to within one from the start", function()
    for case = 1, 40 do
      local weights, sum, divisor = {}, 0, 0
      for p = 1, random(1, 5) do
        weights[p] = random(1, case % 2 == 0 and 5 or 40)
        sum, divisor = sum + weights[p], gcd(weights[p], divisor)
      end
      local period, parts = sum / divisor, { part = "part" }
      for p, weight in ipairs(weights) do parts[p] = { ids(p * 1000, random(1, 30)), weight / (case % 3 + 1) } end
      local length = 3 * period + random(0, period)
      parts.samples = length
      local s = shardrt.mix(parts)
      assert.equal(length, #s)
      local list = delivered(s, { epochs = 2, shuffle = true, seed = case })
      assert.equal(2 * length, #list)
      local counts = {}
      for p in ipairs(weights) do counts[p] = { [0] = 0 } end
      for i, sample in ipairs(list) do
        for p in ipairs(weights) do counts[p][i] = counts[p][i - 1] + (sample.part == p - 1 and 1 or 0) end
      end
      local say = ("seed %d, case %d"):format(seed, case)
      for p, weight in ipairs(weights) do
        for i = 0, #list do
          if i >= period then assert.equal(weight / divisor, counts[p][i] - counts[p][i - period], say) end
          assert.is_true(math.abs(counts[p][i] - i * weight / sum) < 1, say)
        end
      end
    end
  end)

  it("with weights that change go on where each source was", function()
    for case = 1, 12 do
      local sizes, parts, n = { random(5, 60), random(5, 60), random(5, 60) }, {}, 3
      for p = 1, n do parts[p] = { ids(1000 * p, sizes[p]), random(1, 5) } end
      local o, stages, from = { unpack(parts) }, {}, 0
      for s = 1, random(1, 4) do
        from = from + random(1, 40)
        stages[s] = { from = from, random(0, 4), random(0, 4), random(1, 4) }
        o[n + s] = stages[s]
      end
      o.samples = random(1, 50)
      local total, seen = from + 60, {}
      local function stream()
        return shardrt.loader { source = shardrt.mix(o), batch_size = 1, shuffle = true, seed = case,
          sharding = shardrt.SingleDeviceSharding(0) }
      end
      local loader, given = stream(), {}
      for k = 1, total do given[k] = shardrt.device_get(loader().id):to_table()[1] end
      -- In the first n of a stage, and so in all of it, each source has its share to within one.
      local counts, stage_first, weights = { 0, 0, 0 }, 0, { parts[1][2], parts[2][2], parts[3][2] }
      local next_stage = 1
      for k = 0, total - 1 do
        if stages[next_stage] and stages[next_stage].from == k then
          counts, stage_first, weights, next_stage = { 0, 0, 0 }, k, stages[next_stage], next_stage + 1
        end
        local p = math.floor(given[k + 1] / 1000)
        counts[p] = counts[p] + 1
        local sum = weights[1] + weights[2] + weights[3]
        for q = 1, n do
          local share = (k + 1 - stage_first) * weights[q] / sum
          assert.is_true(math.abs(counts[q] - share) < 1, ("case %d, sample %d"):format(case, k))
        end
        -- No sample comes again before all others of its source, whatever the stages are.
        seen[p] = seen[p] or {}
        local own = seen[p]
        own.count = (own.count or 0) + 1
        local times = math.floor((own.count - 1) / sizes[p])
        assert.equal(times, own[given[k + 1]] or 0, ("case %d, sample %d"):format(case, k))
        own[given[k + 1]] = times + 1
      end
      -- A state goes on exactly, in the middle of a stage.
      local at = random(1, total - 2)
      local other, again = stream(), stream()
      for _ = 1, at do other() end
      again:restore(other:state())
      for k = at + 1, math.min(total, at + 5) do
        assert.equal(given[k], shardrt.device_get(again().id):to_table()[1])
      end
    end
    -- Left out, an epoch ends before the first source begins anew, in whatever stage that is.
    assert.equal(4 + 20, #shardrt.mix { { ids(0, 22), 1 }, { ids(100, 90), 1 }, { from = 4, 1, 0 } })
    assert.equal(20, #shardrt.mix { { ids(0, 10), 1 }, { ids(100, 90), 1 }, { from = 40, 1, 0 } })
    local a, b = { ids(0, 3), 1 }, { ids(0, 3), 1 }
    refused(function() shardrt.mix { a, b, { from = 5, 1 } } end, "the weight of source 2 is nil")
    refused(function() shardrt.mix { a, { from = 5, 1, 1 }, b } end, "number 3 of its list")
    refused(function() shardrt.mix { a, b, { from = 0, 1, 1 } } end, "from = 0")
    refused(function() shardrt.mix { a, b, { from = 5, 0, 0 } } end, "all weights are 0")
    refused(function() shardrt.mix { a, b, { from = 5, 1, -1 } } end, "source 2 is -1")
    refused(function() shardrt.mix { a, b, { from = 5, 1, 1 }, { from = 5, 1, 2 } } end, "stages ascend")
    refused(function() shardrt.mix { a, b, { from = 5, 1, 1, 1 } } end, "a weight for each of the 2 sources")
    refused(function() shardrt.mix { a, { ids(0, 3), 0 } } end, "the weight of source 2 is 0; it is a number above 0")
  end)

  it("with a thousand short stages needs little memory, and gives what long ones begin with", function()
    local function resident()
      return tonumber(assert(io.open "/proc/self/statm"):read "*a":match "^%d+ (%d+)") * 4096
    end
    local a, b, length = ids(0, 5000), ids(10000, 5000), 12
    local function weight(s) return math.pi + s / 777 end -- no short pattern has such shares
    local o = { { a, weight(0) }, { b, 1 }, part = "part", samples = 12012 }
    for s = 1, 1000 do o[2 + s] = { from = length * s, weight(s), 1 } end
    local function loader(mixed)
      return shardrt.loader { source = mixed, batch_size = length, sharding = shardrt.SingleDeviceSharding(0) }
    end
    loader(shardrt.mix { o[1], o[2], o[3], part = "part" })() -- what any mix takes
    collectgarbage()
    local before = resident()
    local mixed = shardrt.mix(o)
    local more = resident() - before
    assert.is_true(more < 4 * 2 ^ 20, ("%.1f MB more"):format(more / 1e6))
    local batches = loader(mixed)
    for s = 0, 1000 do
      local parts = shardrt.device_get(batches().part):to_table()
      if s % 100 == 0 then
        local long = loader(shardrt.mix { { a, weight(s) }, { b, 1 }, part = "part" })
        assert.same(shardrt.device_get(long().part):to_table(), parts)
      end
    end
  end)

  it("gives every sample of a part once in each of the part's own epochs, each in its own order", function()
    for case = 1, 20 do
      local sizes = { random(1, 9), random(1, 30), random(5, 20) }
      local function part(p) return { ids(p * 1000, sizes[p]), random(1, 7) } end
      -- In one constructor: LuaJIT's compiled loops have lost entries that were stored one by one.
      local parts = { part(1), part(2), part(3), part = "part" }
      local s, say = shardrt.mix(parts), ("seed %d, case %d"):format(seed, case)
      local list = delivered(s, { epochs = 7, shuffle = true, seed = 5, batch_size = random(1, 9) })
      assert.equal(7 * #s, #list)
      local orders = {}
      for p, size in ipairs(sizes) do
        local own = {}
        for _, sample in ipairs(list) do
          if sample.part == p - 1 then own[#own + 1] = sample.id end
        end
        for first = 1, #own - size + 1, size do
          local seen, order = {}, {}
          for i = first, first + size - 1 do
            assert.is_nil(seen[own[i]], say)
            seen[own[i]], order[#order + 1] = true, own[i]
          end
          orders[#orders + 1] = table.concat(order, " ")
        end
      end
      if sizes[2] > 8 and sizes[3] > 8 then
        local seen, same = {}, 0
        for _, order in ipairs(orders) do
          same = same + (seen[order] and #order > 40 and 1 or 0)
          seen[order] = true
        end
        assert.equal(0, same, say)
      end
    end
  end)

  it("ends an epoch when the first part is used up", function()
    for _ = 1, 40 do
      local sizes, parts = { random(1, 40), random(1, 40) }, { part = "part" }
      for p, size in ipairs(sizes) do parts[p] = { ids(p * 1000, size), random(1, 9) } end
      local s = shardrt.mix(parts)
      local function given(length)
        parts.samples = length
        local counts = { 0, 0 }
        for _, part in ipairs(all(shardrt.mix(parts), "part")) do counts[part + 1] = counts[part + 1] + 1 end
        return counts
      end
      local counts, more = given(#s), given(#s + 1)
      assert.is_true(counts[1] <= sizes[1] and counts[2] <= sizes[2])
      assert.is_true(more[1] > sizes[1] or more[2] > sizes[2])
    end
  end)

  it("without shuffle takes each part in its own order, as read does", function()
    local s = shardrt.mix { { ids(0, 5), 2 }, { ids(100, 50), 1 }, samples = 20 }
    local list, small, large = all(s), {}, {}
    for _, id in ipairs(list) do table.insert(id < 100 and small or large, id) end
    for i, id in ipairs(small) do assert.equal((i - 1) % 5, id) end
    for i, id in ipairs(large) do assert.equal(99 + i, id) end
    local loaded = {}
    for i, sample in ipairs(delivered(s, { epochs = 1 })) do loaded[i] = sample.id end
    assert.same(list, loaded)
    assert.same({ list[8], list[9] }, numbers(s:read(7, 2).id))
  end)

  it("may be mixed again, each with its own turns", function()
    local inner = shardrt.mix { { ids(0, 7), 1 }, { ids(100, 9), 2 } }
    local s = shardrt.mix { { inner, 3 }, { ids(200, 11), 1 }, samples = 240 }
    local counts, per = { 0, 0, 0 }, {}
    for _, sample in ipairs(delivered(s, { epochs = 1, shuffle = true })) do
      local part = math.floor(sample.id / 100) + 1
      counts[part] = counts[part] + 1
      per[sample.id] = (per[sample.id] or 0) + 1
    end
    assert.same({ 60, 120, 60 }, counts)
    for id, times in pairs(per) do
      local size = ({ 7, 9, 11 })[math.floor(id / 100) + 1]
      local share = counts[math.floor(id / 100) + 1] / size
      assert.is_true(times == math.floor(share) or times == math.ceil(share))
    end
  end)

  it("rounds shares that no period has exactly", function()
    local s = shardrt.mix { { ids(0, 10), math.pi }, { ids(0, 10), 1 }, { ids(0, 10), 1e-9 } }
    local weights = {}
    for p = 0, 2 do weights[p + 1] = tonumber(C.shardrt_source_mix_weight(s, p)) end
    assert.equal(65536, weights[1] + weights[2] + weights[3])
    assert.equal(1, weights[3])
    assert.is_true(math.abs(weights[1] - 65536 * math.pi / (math.pi + 1)) < 2)
    s = shardrt.mix { { ids(0, 10), 0.7 }, { ids(0, 10), 0.2 }, { ids(0, 10), 0.1 } }
    assert.equal(7, tonumber(C.shardrt_source_mix_weight(s, 0)))
    assert.equal(0, tonumber(C.shardrt_source_mix_weight(s, 3)))
  end)

  it("lets random transforms see each part's own epoch, and no two samples with one number", function()
    local s = shardrt.mix { { ids(0, 3), 1 }, { ids(100, 40), 1 }, samples = 12 }:enumerate("number"):map {
      epoch = { from = "id", shardrt.transform.lua(function(sample) return sample.epoch end) },
      index = { from = "id", shardrt.transform.lua(function(sample) return sample.index end) },
    }
    local list = delivered(s, { epochs = 2, shuffle = true, batch_size = 5 })
    local seen = { small = 0, large = 0 }
    for _, sample in ipairs(list) do
      local part, size = sample.id < 100 and "small" or "large", sample.id < 100 and 3 or 40
      assert.equal(math.floor(seen[part] / size), sample.epoch)
      assert.equal(sample.number, sample.index)
      assert.equal(sample.id < 100 and sample.id or sample.id - 97, sample.number)
      seen[part] = seen[part] + 1
    end
    assert.same({ small = 12, large = 12 }, seen)
  end)

  it("refuses what has no meaning, and says what to do", function()
    local a = ids(0, 3)
    local s = shardrt.mix { { a, 1 }, { a, 2 } }
    for _, f in ipairs {
      function() s:shard(2, 0) end, function() s:filter { id = {} } end,
      function() shardrt.mix { { ragged { { 1 } }, 1 } }:pack { length = 2 } end,
    } do
      refused(f, "do this to the sources that it mixes")
    end
    refused(function() shardrt.mix { { a, 0 } } end, "weight of source 1 is 0")
    refused(function() shardrt.mix { { a, 1 }, { a, -1 } } end, "weight of source 2 is -1")
    refused(function() shardrt.mix { { a, 0 / 0 } } end, "weight")
    refused(function() shardrt.mix { { a, math.huge } } end, "weight")
    refused(function() shardrt.mix { { a } } end, "weight of source 1 is nil")
    refused(function() shardrt.mix { a } end, "{source, weight}")
    refused(function() shardrt.mix { { a, 1 }, { ids(0, 0), 1 } } end, "source 2 has no samples")
    refused(function() shardrt.mix { { a, 1 }, samples = 0 } end, "samples = 0")
    refused(function() shardrt.mix { { a, 1 }, { source.array { x = int32s { 1 } }, 1 } } end, 'no field "id"')
  end)
end)

-- ---- filter --------------------------------------------------------------------------------------------------------

describe("a filter", function()
  local function with_marks(count, share)
    local marks, expected, list = ndarray.empty({ count }, "bool"), {}, {}
    for i = 0, count - 1 do
      marks.data[i], list[i + 1] = random() < share, i
      if marks.data[i] then expected[#expected + 1] = i end
    end
    return source.array { id = int32s(list), mark = marks }, expected
  end

  it("lets through what plain Lua does, for any count and share", function()
    for _, count in ipairs { 0, 1, 63, 64, 65, 511, 512, 513, 1024, 3000, 70001 } do
      for _, share in ipairs { 0, 0.01, 0.5, 1 } do
        local s, expected = with_marks(count, share)
        local kept = s:filter { mark = {} }
        assert.equal(#expected, #kept)
        assert.same(expected, all(kept))
        assert.same(expected, all(kept:enumerate "n", "n"))
      end
    end
  end)

  it("asks functions of fields, all of which must agree", function()
    local list, least, expected = {}, { limit = 20 }, {}
    for i = 1, 300 do list[i] = random(0, 99) end
    local s = source.array { id = int32s(list), x = ndarray.arange(600, "float32"):reshape { 300, 2 } }
    local kept = s:filter {
      id = function(id) return id % 3 == 0 and id >= least.limit end,
      x = function(sample) return sample.data[1] % 4 == 3 end,
    }
    for i, id in ipairs(list) do
      if id % 3 == 0 and id >= 20 and i % 2 == 0 then expected[#expected + 1] = id end
    end
    assert.same(expected, all(kept))
    local twice = kept:filter { id = function(id) return id < 60 end }
    for _, id in ipairs(all(twice)) do assert.is_true(id < 60 and id % 3 == 0) end
    local loaded, o = {}, { id = function(id) return id >= 50 end }
    for batch in shardrt.loader { source = s, filter = o, batch_size = 4, epochs = 1, remainder = "pad",
      sharding = shardrt.SingleDeviceSharding(0) } do
      local mask = shardrt.device_get(batch.mask)
      for row, id in ipairs(numbers(shardrt.device_get(batch.id))) do
        if mask.data[row - 1] then loaded[#loaded + 1] = id end
      end
    end
    expected = {}
    for _, id in ipairs(list) do
      if id >= 50 then expected[#expected + 1] = id end
    end
    assert.same(expected, loaded)
  end)

  it("reads the named fields only", function()
    local folder = files.folder()
    ndarray.arange(10, "int32"):save(folder .. "/a.npy")

    local s = source.array { keep = ndarray.full({ 10 }, true, "bool"), other = ndarray.arange(10, "int32") }
      :map { other = { shardrt.transform.lua(function() error "was read" end) } }
    assert.equal(10, #s:filter { keep = {} })
    files.remove(folder)
  end)

  it("costs a plan nothing, however many samples there are", function()
    local dir = files.folder()
    local head = files.npy { dict = files.dict("|u1", { 1e12 }) }
    local path = files.write(dir, "x.npy", head)
    assert(os.execute(("truncate -s %d '%s'"):format(1e12 + #head, path)) == 0)
    local result = mpi.run { options = { "plan", "--processes", "2" }, source = ([[
      local shardrt = require "shardrt"
      local kept = shardrt.source.npy({ x = "%s" }):filter { x = function(x) return x > 3 end }
      shardrt.say(tostring(#kept == 1e12))]]):format(path) }
    files.remove(dir)
    assert.truthy(result.stdout:find("true", 1, true), result.output)
  end)

  it("says what is wrong, with the sample", function()
    local s = ids(0, 100)
    refused(function() s:filter {} end, "at least one field")
    refused(function() s:filter { id = {} } end, '"id"', "int32", "one bool")
    refused(function() s:filter { ID = {} } end, "source:filter", 'did you mean "id"')
    refused(function() s:filter { id = false } end, "not false")
    refused(function() s:filter { id = 3 } end, "not 3")
    refused(function() s:filter { id = ">3" } end, 'a function, a condition as {">=", 3} or a list', 'not ">3"')
    refused(function() s:filter(3) end, "not 3")
    refused(function() s:filter { id = function(id) return id < 50 or id.x end } end, "sample 50")
  end)

  it("is the same in all processes, whose shares differ in nothing but the time they take", function()
    local result = mpi.run { processes = 3, devices = 2, source = [[
      local shardrt = require "shardrt"
      local s = shardrt.source.array { id = shardrt.ndarray.arange(1000, "int32") }
      local kept = s:filter { id = function(id) return id % 7 == 3 end }
      assert(#kept == 143)
      local list = kept:read(0, 143).id
      for i = 0, 142 do assert(list.data[i] == 7 * i + 3) end
      assert(#s:filter { id = function() return false end } == 0)
      shardrt.say "alike"
      local mine = shardrt.process_index()
      local ok, message = pcall(function() return s:filter { id = function(id) return id % 2 == mine end } end)
      assert(not ok and message:find("different from process 0: processes 1, 2", 1, true), message)
      ok, message = pcall(function() return s:filter { id = function(id) return id < 999 or id.x end } end)
      assert(not ok and message:find("process 2: ", 1, true) and message:find("sample 999", 1, true), message)
      ok, message = pcall(function()
        return s:shard(3, mine):filter { id = function() return true end }
      end)
      assert(not ok and message:find("different from process 0", 1, true), message)
      shardrt.say "refused alike"
    ]] }
    assert.equal(0, result.status, result.output)
    assert.equal("alike\nrefused alike\n", result.stdout)
  end)

  it("may take longer than the job waits", function()
    local result = mpi.run { processes = 2, options = { "--timeout", "1" }, source = [[
      local shardrt = require "shardrt"
      local s = shardrt.source.array { id = shardrt.ndarray.arange(4096, "int32") }
      local kept = s:filter { id = function(id)
        local x = 0
        for i = 1, id >= 2048 and id % 512 == 0 and 2e8 or 0 do x = (x * 69069 + i) % 1048576 end
        return x >= 0
      end }
      shardrt.say(tostring(#kept))
    ]] }
    assert.equal(0, result.status, result.output)
    assert.equal("4096\n", result.stdout)
  end)
end)

-- ---- pack ----------------------------------------------------------------------------------------------------------

-- Whether rows hold these pieces (lists of numbers), each once, whole and in one row, and what else must hold.
local function check_rows(rows, pieces, length)
  local read, waiting, elements = rows:read(0, #rows), {}, 0
  for _, piece in ipairs(pieces) do
    local key = table.concat(piece, " ")
    waiting[key] = (waiting[key] or 0) + 1
    elements = elements + #piece
  end
  for row = 0, #rows - 1 do
    local tokens, segments, positions = read.tokens, read.segment_ids, read.positions
    local at, segment = row * length, 0
    local stop = at + length
    while at < stop and segments.data[at] ~= 0 do
      segment = segment + 1
      local piece = {}
      while at < stop and segments.data[at] == segment do
        assert.equal(#piece, positions.data[at])
        piece[#piece + 1] = tokens.data[at]
        at = at + 1
      end
      local key = table.concat(piece, " ")
      assert.is_true((waiting[key] or 0) > 0, key)
      waiting[key] = waiting[key] - 1
    end
    assert.is_true(segment > 0) -- no row is empty
    for i = at, stop - 1 do
      assert.same({ 0, 0, 0 }, { tokens.data[i], segments.data[i], positions.data[i] })
    end
  end
  for key, times in pairs(waiting) do assert.equal(0, times, key) end
  if #rows > 0 then assert.is_true(math.abs(rows.fill - elements / (#rows * length)) < 1e-12) end
end

local function list_without_empty(list)
  local kept = {}
  for _, values in ipairs(list) do
    if #values > 0 then kept[#kept + 1] = values end
  end
  return kept
end

describe("packed rows", function()
  local folder
  setup(function() folder = files.folder() end)
  teardown(function() files.remove(folder) end)
  it("hold every sequence once, whole, with its segment and positions", function()
    for case = 1, 60 do
      local length = random(1, 20)
      local list, pieces = sequences(random(0, 60) + 1, length), {}
      for _, values in ipairs(list) do
        if #values > 0 then pieces[#pieces + 1] = values end
      end
      local rows = ragged(list):pack { length = length, window = random(1, 70), seed = case % 2 == 0 and case or nil }
      assert.same({ length }, rows.fields.tokens.shape)
      check_rows(rows, pieces, length)
    end
  end)

  it("cut or split what is longer, when asked to", function()
    for _ = 1, 30 do
      local length, list = random(1, 8), sequences(random(1, 40), 30)
      local cut, split = {}, {}
      for _, values in ipairs(list) do
        if #values > 0 then cut[#cut + 1] = { unpack(values, 1, length) } end
        for first = 1, #values, length do
          split[#split + 1] = { unpack(values, first, math.min(#values, first + length - 1)) }
        end
      end
      check_rows(ragged(list):pack { length = length, longer = "truncate" }, cut, length)
      check_rows(ragged(list):pack { length = length, longer = "split", window = random(1, 50) }, split, length)
    end
    refused(function() ragged({ { 1 }, { 1, 2, 3 } }):pack { length = 2 } end, "sample 1 has 3 elements", '"truncate"')
  end)

  it("are few: at most 11/9 of the best and one, in one window", function()
    for _ = 1, 20 do
      local length, list = 100, {}
      for i = 1, 300 do
        list[i] = {}
        for k = 1, random(1, 100) do list[i][k] = k end
      end
      local elements = 0
      for _, values in ipairs(list) do elements = elements + #values end
      -- What no packing can do with: the elements, and the sequences of which no two fit in a row.
      local least, halves = math.ceil(elements / length), 0
      for _, values in ipairs(list) do halves = halves + (#values > length / 2 and 1 or 0) end
      assert.is_true(#ragged(list):pack { length = length } <= 11 / 9 * math.max(least, halves) + 1)
    end
  end)

  it("are the same whoever asks, and others with another seed", function()
    local list = sequences(200, 9)
    local function bytes(o)
      local rows = ragged(list):pack(o)
      local read = rows:read(0, #rows).tokens
      return ffi.string(read.data, read.bytes)
    end
    assert.equal(bytes { length = 16, seed = 3 }, bytes { length = 16, seed = 3 })
    assert.not_equal(bytes { length = 16, seed = 3 }, bytes { length = 16, seed = 4 })
    -- In a row, sequences stand in the order in which they were taken, and so do the rows by their first ones.
    local before = 0
    local read = ragged(list):pack { length = 16 }:read(0, 5).tokens
    for row = 0, 4 do
      assert.is_true(read.data[row * 16] > before)
      before = read.data[row * 16]
    end
  end)

  it("have elements of more dimensions", function()
    local one, two = ndarray.arange(6, "int32"):reshape { 2, 3 }, ndarray.arange(3, "int32"):reshape { 1, 3 }
    local rows = source.ragged { x = { one, two } }:pack { length = 4 }
    assert.same({ 4, 3 }, rows.fields.x.shape)
    assert.same({ { { 0, 1, 2 }, { 3, 4, 5 }, { 0, 1, 2 }, { 0, 0, 0 } } }, rows:read(0, 1).x:to_table())
    assert.same({ 0.75, nil }, { rows.fill, rows:shard(1, 0).fill })
  end)

  it("can be cut among devices along the row", function()
    local list = sequences(50, 12)
    local rows = ragged(list):pack { length = 16 }
    local mesh = shardrt.make_mesh({ 2, 4 }, { "data", "sequence" })
    local expected = rows:read(0, #rows)
    local batch = shardrt.loader { source = rows, batch_size = #rows - #rows % 2, epochs = 1,
      sharding = shardrt.NamedSharding(mesh, shardrt.P("data", "sequence")) }()
    for name, host in pairs(expected) do
      assert.same(host:rows(0, #rows - #rows % 2):to_table(), shardrt.device_get(batch[name]):to_table())
    end
  end)

  it("hold all fields of one length, and for each element what its document has", function()
    local list, scores = sequences(60, 9), {}
    local tokens, labels, score = {}, {}, ndarray.empty({ #list, 2 }, "float32")
    for i, values in ipairs(list) do
      local negative = {}
      for k, value in ipairs(values) do negative[k] = -value end
      tokens[i], labels[i], scores[i] = int32s(values), int32s(negative), random(1, 1000)
      score.data[2 * i - 2], score.data[2 * i - 1] = scores[i], i
    end
    local path = folder .. "/score.npy"
    score:save(path)
    local s = source.ragged { tokens = tokens, labels = labels, score = path, id = int32s(scores) }
    for _, o in ipairs { {}, { longer = "split", length = 4 }, { longer = "truncate", length = 4 } } do
      local rows = s:pack { length = o.length or 20, longer = o.longer, keep = { "score" }, seed = 3 }
      assert.same({ "labels", "tokens", "score", "segment_ids", "positions" }, rows.names)
      assert.same({ "id" }, rows.dropped.fields)
      local cut = 0
      for _, values in ipairs(list) do cut = cut + (o.longer == "truncate" and math.max(#values - 4, 0) or 0) end
      assert.equal(cut, rows.dropped.elements)
      local read, length, wrong = rows:read(0, #rows), o.length or 20, 0
      assert.same({ #rows, length, 2 }, read.score.shape)
      local owner = {}
      for i, values in ipairs(list) do
        for _, value in ipairs(values) do owner[value] = i end
      end
      for i = 0, #rows * length - 1 do
        local token = read.tokens.data[i]
        local document = owner[token]
        local right = read.labels.data[i] == -token
          and read.score.data[2 * i] == (document and scores[document] or 0)
          and read.score.data[2 * i + 1] == (document or 0) and (token == 0) == (read.segment_ids.data[i] == 0)
        wrong = wrong + (right and 0 or 1)
      end
      assert.equal(0, wrong)
    end
    check_rows(s:pack { length = 20, field = "tokens" }, list_without_empty(list), 20)
    assert.same({ "id", "labels", "score" }, s:pack { length = 20, field = "tokens" }.dropped.fields)
    assert.is_nil(s.dropped)
  end)

  it("in zigzag give each part a piece from the front and its counterpart from the back", function()
    local list = sequences(50, 12)
    local plain = ragged(list):pack { length = 24 }
    local zigzag = ragged(list):pack { length = 24, layout = "zigzag", parts = 3 }
    local expected, got = plain:read(0, #plain), zigzag:read(0, #plain)
    for name in pairs(expected) do
      local wrong = 0
      for row = 0, #plain - 1 do
        for at = 0, 23 do
          local piece = math.floor(at / 4)
          local from = (piece % 2 == 0 and piece / 2 or 5 - (piece - 1) / 2) * 4 + at % 4
          if got[name].data[row * 24 + at] ~= expected[name].data[row * 24 + from] then wrong = wrong + 1 end
        end
      end
      assert.equal(0, wrong, name)
    end
    local mesh = shardrt.make_mesh({ 2, 3 }, { "data", "sequence" })
    local batch = shardrt.loader { source = zigzag, batch_size = 4, epochs = 1,
      sharding = shardrt.NamedSharding(mesh, shardrt.P("data", "sequence")) }()
    for name, host in pairs(got) do
      assert.same(host:rows(0, 4):to_table(), shardrt.device_get(batch[name]):to_table())
    end
  end)

  it("that are cut among devices are read once", function()
    local list = sequences(60, 12)
    local rows = ragged(list):pack { length = 64 }
    local function bytes(sharding)
      local loader = shardrt.loader { source = rows, batch_size = 2, epochs = 1, sharding = sharding }
      for _ in loader do end -- luacheck: ignore 542
      return loader:stats().bytes_read
    end
    local whole = bytes(shardrt.NamedSharding(shardrt.make_mesh({ 1 }, { "data" }), shardrt.P "data"))
    local mesh = shardrt.make_mesh({ 1, 8 }, { "data", "sequence" })
    assert.equal(whole, bytes(shardrt.NamedSharding(mesh, shardrt.P("data", "sequence"))))
  end)

  it("are refused where there is nothing to pack, or the field is not clear", function()
    local s = ragged { { 1, 2 } }
    refused(function() ids(0, 3):pack { length = 3 } end, "no field differs in length")
    refused(function() ids(0, 3):pack { length = 3, field = "id" } end, '"id"', "cannot be packed")
    refused(function() s:pack { length = 3, field = "tokns" } end, 'did you mean "tokens"')
    refused(function() s:pack {} end, "length = nil")
    refused(function() s:pack { length = 0 } end, "length = 0")
    refused(function() s:pack { length = 2 ^ 40 } end, "16777216")
    refused(function() s:pack { length = 2, longer = "spilt" } end, 'did you mean "split"')
    refused(function() s:pack { length = 2, window = 0 } end, "window = 0")
    refused(function() ragged({ { 1 } }, "positions"):pack { length = 2 } end, '"positions"', "rename")
    local two = source.ragged { a = { int32s { 1 } }, b = { int32s { 1, 2 } } }
    refused(function() two:pack { length = 2 } end, 'sample 0: "a" has 1 elements and "b" 2')
    refused(function() two:pack { length = 2, field = { "a", "a" } } end, '"a" stands twice')
    refused(function() two:pack { length = 2, field = "a", keep = "b" } end, '"b" cannot be kept')
    refused(function() s:pack { length = 6, layout = "zigzag", parts = 2 } end, "a multiple of 4")
    refused(function() s:pack { length = 4, layout = "zigzag" } end, "parts = nil")
    refused(function() s:pack { length = 4, parts = 2 } end, "layout = nil")
  end)
end)

describe("a state", function()
  it("of other weights, another filter or other rows is refused, and says so", function()
    local function loader(s)
      return shardrt.loader { source = s, batch_size = 1, sharding = shardrt.SingleDeviceSharding(0) }
    end
    local a, b = ids(0, 10), ids(100, 10)
    local even = shardrt.mix { { a, 1 }, { b, 1 }, samples = 8 }
    local marks = source.array { mark = ndarray.from_table({ true, false, true }, "bool"), x = int32s { 1, 2, 3 } }
    local others = source.array { mark = ndarray.from_table({ true, true, false }, "bool"), x = int32s { 1, 2, 3 } }
    local list = sequences(40, 5)
    for _, case in ipairs {
      { even, shardrt.mix { { a, 1 }, { b, 3 }, samples = 8 }, "the mix's weights" },
      { even, shardrt.mix { { a, 1 }, { b, 1 }, samples = 4 }, "the length of its epochs" },
      { even, shardrt.mix { { a, 1 }, { a, 1 }, samples = 8 }, "files" },
      { marks:filter { mark = {} }, marks:filter { x = function(x) return x < 3 end }, "what the filter lets through" },
      { marks:filter { mark = {} }, others:filter { x = function(x) return x ~= 2 end }, "files" },
      { ragged(list):pack { length = 5 }, ragged(list):pack { length = 5, seed = 1 }, "how rows are packed" },
      { a:shard(2, 0), a:shard(2, 1), "the shard" },
    } do
      local state = loader(case[1]):state()
      loader(case[1]):restore(state)
      refused(function() loader(case[2]):restore(state) end, "fingerprint of the data", "what differs is", case[3])
    end
  end)

  it("of an epoch that 64 bits do not count is refused", function()
    local made = shardrt.loader {
      source = shardrt.mix { { ids(0, 5000), 1 } }, batch_size = 1, sharding = shardrt.SingleDeviceSharding(0),
    }
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_loader_seek(made.handle, 2 ^ 53, 0))
    assert.truthy(ffi.string(C.shardrt_error_message()):find("64 bits", 1, true))
    assert.equal(0, C.shardrt_loader_seek(made.handle, 2 ^ 50, 4999))
    assert.is_true(shardrt.device_get(made().id).data[0] < 5000)
  end)
end)

describe("what views choose", function()
  it("stays what it is: a checkpoint continues with a later version's", function()
    local s = shardrt.mix { { ids(0, 1000), 5 }, { ids(1000, 100), 3 }, { ids(2000, 7), 2 }, samples = 20 }
    assert.same({ 0, 1000, 1, 2000, 2, 1001, 3, 2001, 1002, 4, 5, 1003, 6, 2002, 7, 1004, 8, 2003, 1005, 9 }, all(s))
    local given = {}
    for i, sample in ipairs(delivered(s, { epochs = 2, shuffle = true, seed = 42 })) do given[i] = sample.id end
    assert.same({ 601, 1001, 847, 2004, 764, 1095, 414, 2003, 1016, 271 }, { unpack(given, 1, 10) })
    assert.same({ 52, 1053, 501, 2000, 571, 1084, 703, 2006, 1054, 71 }, { unpack(given, 21, 30) })
    local list = {}
    for i = 1, 12 do list[i] = ndarray.full({ i * 5 % 7 + 1 }, i, "int32") end
    assert.same({
      { 5, 5, 5, 5, 5, 12, 12, 12, 12, 12 }, { 6, 6, 6, 11, 11, 11, 11, 11, 11, 11 }, { 2, 2, 2, 2, 8, 8, 8, 8, 8, 8 },
      { 9, 9, 9, 9, 1, 1, 1, 1, 1, 1 }, { 4, 4, 4, 4, 4, 4, 4, 10, 10, 7 }, { 3, 3, 0, 0, 0, 0, 0, 0, 0, 0 },
    }, source.ragged { tokens = list }:pack { length = 10, seed = 1 }:read(0, 6).tokens:to_table())
  end)
end)

describe("views under shardrt plan", function()
  it("count the most there can be, and say so", function()
    local result = mpi.run { options = { "plan", "--processes", "4", "--devices", "2" }, source = [[
      local shardrt = require "shardrt"
      local s = shardrt.source.array { id = shardrt.ndarray.arange(64, "int32") }
      local one = shardrt.ndarray.arange(5, "int32")
      local kept = s:filter { id = function() return false end }
      shardrt.loader { source = kept, batch_size = 16, epochs = 1 }
      shardrt.loader { source = shardrt.mix { { kept, 1 } }, batch_size = 16, epochs = 1 }
      shardrt.loader { source = shardrt.source.ragged { x = { one, one, one, one, one, one, one, one } }
        :pack { length = 10 }, batch_size = 8, epochs = 1 }
      shardrt.loader { source = s, batch_size = 16, epochs = 1 }
    ]] }
    assert.equal(0, result.status, result.output)
    local _, notes = result.stdout:gsub("shows when data is read: here it is the most there can be\n", "")
    assert.equal(3, notes)
    assert.truthy(result.stdout:find "loader of 64 samples", result.stdout)
    assert.truthy(result.stdout:find "loader of 8 samples", result.stdout)
  end)
end)

describe("making a view", function()
  it("gives everything back wherever an allocation fails", function()
    local a, marks = ids(0, 200), source.array { mark = ndarray.full({ 200 }, true, "bool") }
    local text = ragged(sequences(50, 6))
    local flat, offsets = source.array { x = int32s { 1, 2, 3 } }, source.array { x = ndarray.arange(4, "int64") }
    local folder = files.folder()
    local path = files.write(folder, "t.bin", "abcdefgh")
    assert.equal(0, os.execute(("touch -d 2001-01-01 '%s'"):format(path))) -- of a new file no checksums are kept
    local pair, names = ffi.new("shardrt_source *[2]", a, a), ffi.new("const char *[1]", { "x" })
    local o = ffi.new("shardrt_pack_options", { length = 8, window = 20, shuffle = 1 })
    local t = ffi.new("shardrt_token_options", { window = 2, stride = 1, dtype = C.SHARDRT_UINT16 })
    local weights, froms = ffi.new("double[4]", 1, 2, 3, 0), ffi.new("int64_t[2]", 0, 10)
    local first = ffi.new("int32_t[1]", 0)
    for name, call in pairs {
      concat = function(out) return C.shardrt_source_concat(2, pair, "part", out) end,
      mix = function(out) return C.shardrt_source_mix(2, pair, 2, froms, weights, 0, "part", out) end,
      filter = function(out) return C.shardrt_source_filter(current.job, a, marks, out) end,
      pack = function(out) return C.shardrt_source_pack(current.job, text, 1, first, 0, first, o, out) end,
      tokens = function(out) return C.shardrt_source_tokens(path, t, out) end,
      ragged = function(out)
        return C.shardrt_source_ragged(1, names, ffi.new("shardrt_source *[1]", flat),
          ffi.new("shardrt_source *[1]", offsets), out)
      end,
    } do
      local failures = no_memory.each(function()
        local out = ffi.new "shardrt_source *[1]"
        local code = call(out)
        if code == 0 then C.shardrt_source_free(out[0]) else assert.is_true(out[0] == nil) end
        return code
      end, { spares = name == "tokens" and { "keeping checksums" } or nil })
      assert.is_true(failures > 1, name .. failures)
    end
    files.remove(folder)
  end)
end)

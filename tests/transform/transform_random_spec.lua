-- Random transforms: evenly random, and the same whatever reads them: any topology, workers, pipeline, after a restart.

local ffi = require "ffi"
local bit = require "bit"
local C = require "shardrt.base.ffi"
local cjson = require "cjson"
local mpi = require "tests.support.mpi"
local oracle = require "tests.support.transform.transforms"
local read = require "tests.support.transform.read"
local shardrt = require "shardrt"

local T = shardrt.transform

-- How far counts are from even, in standard deviations of chi-square.
local function unevenness(counts, cells, total)
  local expected, chi = total / cells, 0
  for i = 1, cells do chi = chi + ((counts[i] or 0) - expected) ^ 2 / expected end
  return (chi - (cells - 1)) / math.sqrt(2 * (cells - 1))
end

describe("random transforms are evenly random:", function()
  local COUNT = 20000
  local samples = {}
  for i = 1, COUNT do samples[i] = i - 1 end
  local function values(chain, height, width, seed)
    local numbers = shardrt.ndarray.arange(height * width, "int32"):reshape { height, width }
    local host = shardrt.ndarray.empty({ COUNT, height, width }, "int32")
    for i = 0, COUNT - 1 do ffi.copy(host.data + i * height * width, numbers.data, numbers.bytes) end
    local source = shardrt.source.array { x = host }:map { x = chain }
    local code, texts = read.bytes(source, "x", samples, nil, seed, 0)
    assert.equal(0, code)
    return texts, source.fields.x.dtype
  end

  it("every place of random_crop", function()
    for seed = 1, 3 do
      local counts = {}
      for _, text in ipairs(values({ T.random_crop { size = { 2, 3 } } }, 6, 7, seed)) do
        local first = read.numbers(text, "int32")[1]
        local row, column = math.floor(first / 7), first % 7
        assert.is_true(row <= 4 and column <= 4)
        counts[row * 5 + column + 1] = (counts[row * 5 + column + 1] or 0) + 1
      end
      assert.is_true(math.abs(unevenness(counts, 25, COUNT)) < 5)
    end
  end)

  it("every place of random_crop with padding", function()
    local counts, seen = {}, 0
    for _, text in ipairs(values({ T.random_crop { size = { 4, 4 }, padding = 2, value = -1 } }, 4, 4, 8)) do
      counts[text] = (counts[text] or 0) + 1
    end
    local list = {}
    for _, count in pairs(counts) do
      seen = seen + 1
      list[seen] = count
    end
    assert.equal(25, seen)
    assert.is_true(math.abs(unevenness(list, 25, COUNT)) < 5)
  end)

  it("random_flip as often as it is said", function()
    for _, p in ipairs { 0, 0.1, 0.5, 1 } do
      local flipped = 0
      for _, text in ipairs(values({ T.random_flip { p = p } }, 1, 2, 4)) do
        flipped = flipped + read.numbers(text, "int32")[1]
      end
      assert.is_true(math.abs(flipped - p * COUNT) <= 5 * math.sqrt(COUNT * p * (1 - p)), p)
    end
  end)

  it("places in one chain are independent of each other", function()
    local counts = {}
    for _, text in ipairs(values({ T.random_flip { axis = 0 }, T.random_flip { axis = 1 } }, 2, 2, 5)) do
      local first = read.numbers(text, "int32")[1] + 1
      counts[first] = (counts[first] or 0) + 1
    end
    assert.is_true(math.abs(unevenness(counts, 4, COUNT)) < 5)
  end)

  it("places in a map of a map are those of one chain, whatever views lie between", function()
    local host = shardrt.ndarray.empty({ 200, 4, 4 }, "int32")
    for i = 0, 200 * 16 - 1 do host.data[i] = i % 16 end
    local flip, crop = T.random_flip { axis = 0 }, T.random_crop { size = { 2, 3 } }
    local source, samples_of = shardrt.source.array { x = host }, {}
    for i = 1, 100 do samples_of[i] = i - 1 end
    local function drawn(made)
      local code, texts = read.bytes(made, "x", samples_of, nil, 5, 2)
      assert.equal(0, code)
      return texts
    end
    local one = drawn(source:map { x = { flip, crop, flip } })
    local flipped = source:map { x = { flip } }
    assert.same(one, drawn(flipped:map { x = { crop } }:map { x = { flip } }))
    assert.same(one, drawn(flipped:enumerate "n":map { x = { crop, flip } }))
    assert.same(one, drawn(shardrt.concat { flipped, flipped }:map { x = { crop, flip } }))
    assert.same(one, drawn(shardrt.mix { { flipped, 1 }, { flipped, 1 } }:map { x = { crop, flip } }))
  end)

  it("nor do those behind a filter follow what it drew", function()
    local host = shardrt.ndarray.empty({ 400, 2 }, "int32")
    for i = 0, 799 do host.data[i] = i % 2 end
    local source = shardrt.source.array { x = host }:filter {
      x = function(_, rng) return rng:uniform() < 0.5 end,
    }
    local sum, flipped = 0, source:map { x = { T.random_flip { axis = 0 } } }
    for _, row in ipairs(flipped:read(0, #source).x:to_table()) do sum = sum + row[1] end
    assert.is_true(math.abs(sum - #source / 2) < 5 * math.sqrt(#source) / 2, sum .. " of " .. #source)
  end)

  -- An image that is enlarged shows by its corners which box of it was taken.
  it("the areas and ratios of random_resized_crop", function()
    local height, width, areas, ratios = 60, 80, {}, {}
    local crop = T.random_resized_crop { size = { 61, 81 }, filter = "nearest", scale = { 0.2, 0.6 } }
    local texts = values({ crop }, height, width, 6)
    for i = 1, COUNT, 10 do
      local numbers = ffi.cast("const int32_t *", texts[i])
      local first, last = numbers[0], numbers[61 * 81 - 1]
      local top, left, bottom, right = math.floor(first / width), first % width, math.floor(last / width), last % width
      local region = oracle.resized_region(height, width, { scale = { 0.2, 0.6 } }, oracle.draw(6, 0, i - 1, 0))
      assert.same(region, { top, left, bottom - top + 1, right - left + 1 })
      local area, ratio = region[3] * region[4] / height / width, region[4] / region[3]
      assert.is_true(area > 0.18 and area < 0.62 and ratio > 0.72 and ratio < 1.38)
      local a = math.floor((area - 0.2) / 0.4 * 8) + 1
      local r = math.floor(math.log(ratio * 4 / 3) / math.log(16 / 9) * 8) + 1
      areas[a], ratios[r] = (areas[a] or 0) + 1, (ratios[r] or 0) + 1
    end
    for i = 2, 7 do -- the ends are rounded to whole pixels, into their neighbours
      assert.is_true(math.abs(areas[i] - COUNT / 80) < 6 * math.sqrt(COUNT / 80), "area " .. i)
      assert.is_true(math.abs(ratios[i] - COUNT / 80) < 6 * math.sqrt(COUNT / 80), "ratio " .. i)
    end
  end)

  it("and a box that does not fit is drawn again, and at last the middle", function()
    local counts = {}
    for _, text in ipairs(values({ T.random_resized_crop { size = { 1, 9 }, ratio = { 1, 1 }, scale = { 1, 1 },
      filter = "nearest" } }, 3, 9, 7)) do
      counts[text] = (counts[text] or 0) + 1
    end
    local text = next(counts)
    assert.equal(COUNT, counts[text]) -- no square of the whole area fits: always the middle one
    assert.same({ 12, 12, 12, 13, 13, 13, 14, 14, 14 }, read.numbers(text, "int32"))
  end)
end)

-- ---- by the loader --------------------------------------------------------------------------------------------------

-- Every process gathers every global batch and hashes it; all processes must come to the same hash.
local RECIPE = [[
local ffi, bit = require "ffi", require "bit"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local shardrt = require "shardrt"
local P, T = shardrt.P, shardrt.transform

local COUNT, BATCH = 40, 16
local image = shardrt.ndarray.empty({ COUNT, 12, 8, 4 }, "uint8")
for i = 0, image.size - 1 do image.data[i] = (i * 7 + math.floor(i / 384) * 31) % 256 end
local source = shardrt.source.array {
  image = image,
  label = shardrt.ndarray.arange(COUNT, "int64"),
  tokens = shardrt.ndarray.arange(COUNT * 9, "uint16"):reshape { COUNT, 9 },
}
local transform = T.window { dtype = "int32" }
transform.image = {
  T.random_resized_crop { size = { 16, 8 } }, T.random_flip(), T.random_crop { size = { 8, 8 }, padding = 1 },
  T.normalize { mean = { 0.1, 0.2, 0.3, 0.4 }, std = 0.5 },
}
transform.planes = { from = "image", T.transpose { axes = { 2, 0, 1 } }, T.resize { height = 8, width = 16, axis = 1 } }
transform.label = { T.cast "int32", T.one_hot { classes = COUNT } }
local names = { "image", "planes", "label", "inputs", "targets" }

local function stream(o)
  local words = {}
  for batch in shardrt.loader(o) do
    for _, name in ipairs(names) do
      local value = shardrt.process_allgather(batch[name])
      words[#words + 1] = ffi.string(value.data, value.bytes)
    end
  end
  local text = table.concat(words)
  local hash = C.shardrt_fingerprint(text, #text)
  require("shardrt.base.error").check(C.shardrt_check_same(current.job, "the stream", hash))
  return bit.tohex(hash)
end

local n = shardrt.device_count()
local two = n == 8 and { 4, 2 } or { 1, 1 }
local flat, square = shardrt.make_mesh({ n }, { "d" }), shardrt.make_mesh(two, { "d", "m" })
local function all(mesh, image, planes, label, tokens)
  local function s(spec) return shardrt.NamedSharding(mesh, spec) end
  return { image = s(image), planes = s(planes), label = s(label), inputs = s(tokens), targets = s(tokens) }
end
local shardings = {
  rows = all(flat, P "d", P "d", P "d", P "d"),
  heights = all(flat, P(nil, "d"), P(nil, nil, "d"), P(nil, "d"), P(nil, "d")),
  channels = all(square, P("d", nil, nil, "m"), P("d", "m"), P(nil, "m"), P("m", "d")),
  whole = all(flat, P(), P(), P(), P()),
}
local workers = 0
for _, name in ipairs { "rows", "heights", "channels", "whole" } do
  for _, pipeline in ipairs { "per_process", "global", "per_device", "reshard", "auto" } do
    workers = workers % 4 + 1
    local hash = stream {
      source = source, batch_size = BATCH, sharding = shardings[name], shuffle = true, seed = 7, epochs = 2,
      pipeline = pipeline, num_workers = workers, prefetch = 1 + workers % 3, transform = transform,
    }
    if shardrt.process_index() == 0 then print(("%s/%s %s"):format(name, pipeline, hash)) end
  end
end
]]

describe("a stream of augmented batches", function()
  local first
  for _, job in ipairs { { 1, 1 }, { 1, 8 }, { 2, 4 } } do
    it(("is the same with %d x %d, whatever the layout, workers and pipeline"):format(job[1], job[2]), function()
      local result = mpi.run { source = RECIPE, processes = job[1], devices = job[2], limit = 240 }
      assert.equal(0, result.status, result.output)
      local streams = 0
      for variant, hash in result.stdout:gmatch "(%S+) (%x+)\n" do
        first = first or hash
        assert.equal(first, hash, variant)
        streams = streams + 1
      end
      assert.equal(4 * 5, streams)
    end)
  end

  local COUNT = 24
  local images = shardrt.ndarray.empty({ COUNT, 8, 8, 3 }, "uint8")
  for i = 0, images.size - 1 do images.data[i] = i % 251 end
  local source = shardrt.source.array { image = images }
  local function loader(o)
    local options = {
      source = source, batch_size = 4, shuffle = true, seed = 3, epochs = 3, sharding = shardrt.SingleDeviceSharding(0),
      transform = { image = { T.random_crop { size = { 8, 8 }, padding = 3 }, T.random_flip(),
        T.random_resized_crop { size = { 5, 5 } } } },
    }
    for key, value in pairs(o or {}) do options[key] = value end
    return shardrt.loader(options)
  end
  local function next_batch(from)
    local batch = from()
    if not batch then return nil end
    local host = shardrt.device_get(batch.image)
    return ffi.string(host.data, host.bytes)
  end
  local function rest(from)
    local texts = {}
    for text in function() return next_batch(from) end do texts[#texts + 1] = text end
    return texts
  end

  it("is what plain Lua says of each sample, epoch by epoch", function()
    local chain = { T.random_crop { size = { 8, 8 }, padding = 3 }, T.random_flip() }
    local texts = rest(loader { transform = { image = chain } })
    assert.equal(18, #texts)
    for step, text in ipairs(texts) do
      local epoch = math.floor((step - 1) / 6)
      local numbers = read.numbers(text, "uint8")
      for row = 0, 3 do
        local sample = tonumber(C.shardrt_order_index(3, epoch, COUNT, (step - 1) % 6 * 4 + row))
        local v = { dtype = "uint8", shape = { 8, 8, 3 } }
        for i = 1, 192 do v[i] = (sample * 192 + i - 1) % 251 end
        local want = oracle.chain(v, { { "random_crop", { size = { 8, 8 }, padding = 3 } }, { "random_flip", {} } }, 3,
          epoch, sample)
        for i = 1, 192 do assert(want[i] == numbers[row * 192 + i], ("step %d, row %d"):format(step, row)) end
      end
    end
  end)

  it("goes on after any step as if nothing had been", function()
    local texts = rest(loader())
    for step = 0, 18 do
      local before = loader { num_workers = 1 + step % 3 }
      for _ = 1, step do before() end
      local after = loader { num_workers = 1 + (step + 1) % 3, prefetch = 1 + step % 2 }
      after:restore(cjson.decode(cjson.encode(before:state())))
      local left = rest(after)
      assert.equal(18 - step, #left)
      for i, text in ipairs(left) do assert.is_true(texts[step + i] == text, step .. " " .. i) end
    end
  end)

  it("is another one also in epochs of more than 32 bits", function()
    local seen = {}
    for _, epoch in ipairs { 0, 1, 2 ^ 32, 2 ^ 32 + 1, 2 ^ 33, 2 ^ 52 } do
      local random = ffi.new("shardrt_random", { seed = 3, epoch = epoch, number = 5, place = 1 })
      local bits = C.shardrt_random_bits(random)
      assert.is_nil(seen[bits], "epoch " .. epoch)
      seen[bits] = epoch
    end
  end)

  it("is another one in every epoch, for every seed, and for every sample", function()
    local seen, count = {}, 0
    local same = shardrt.ndarray.arange(192, "uint8"):reshape { 8, 8, 3 }
    local host = shardrt.ndarray.empty({ COUNT, 8, 8, 3 }, "uint8")
    for i = 0, COUNT - 1 do ffi.copy(host.data + i * 192, same.data, 192) end
    for _, seed in ipairs { 1, 2 } do
      for batch in loader { source = shardrt.source.array { image = host }, batch_size = 1, seed = seed } do
        local image = shardrt.device_get(batch.image)
        local hash = bit.tohex(C.shardrt_fingerprint(image.data, image.bytes))
        count = count + 1
        seen[hash] = (seen[hash] or 0) + 1
      end
    end
    local different = 0
    for _ in pairs(seen) do different = different + 1 end
    assert.equal(2 * 3 * COUNT, count)
    assert.is_true(different > 0.9 * count, different .. " of " .. count)
  end)
end)

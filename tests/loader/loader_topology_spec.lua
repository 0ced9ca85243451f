-- long: 80 s
-- The topology never changes the data: the stream of global batches, byte for byte, in jobs of different sizes.

local bit = require "bit"
local C = require "shardrt.base.ffi"
local mpi = require "tests.support.mpi"

-- Every process looks at all that its devices hold of every global batch: each element says which sample it is of, and
-- where in it. What a case is called says what the stream depends on; the variants of a case must not change it.
local RECIPE = [[
local bit = require "bit"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"
local P = shardrt.P

local COUNT, BATCH = 53, 16
local source = shardrt.source.array {
  x = shardrt.ndarray.arange(COUNT * 4 * 8, "int32"):reshape { COUNT, 4, 8 },
  y = shardrt.ndarray.arange(COUNT, "int64"),
}

-- The samples of the rows of a step, from 0 on; -1: none.
local function samples_of(o, step)
  local steps = o.remainder == "drop" and math.floor(COUNT / BATCH) or math.ceil(COUNT / BATCH)
  local epoch, samples = math.floor(step / steps), {}
  for row = 0, BATCH - 1 do
    local at = step % steps * BATCH + row
    local sample = o.shuffle and at < COUNT and tonumber(C.shardrt_order_index(o.seed, epoch, COUNT, at)) or at
    samples[row] = at < COUNT and sample or -1
  end
  return samples, steps
end

-- What an element of a field is, in the row of a sample.
local values = {
  x = function(sample, i, j) return sample >= 0 and sample * 32 + i * 8 + j or 0 end,
  y = function(sample) return sample >= 0 and sample or 0 end,
  mask = function(sample) return sample >= 0 and 1 or 0 end,
}

local WHOLE = { 0, 1 } -- of a dimension that a field does not have
local function check(shard, name, samples)
  local rows, value, wrong, at = shard.index[1], values[name], 0, 0
  local own, second, third = shard.data.data, shard.index[2] or WHOLE, shard.index[3] or WHOLE
  for row = rows[1], rows[2] - 1 do
    for i = second[1], second[2] - 1 do
      for j = third[1], third[2] - 1 do
        local found = own[at]
        if type(found) == "boolean" then found = found and 1 or 0 end
        if tonumber(found) ~= value(samples[row], i, j) then wrong = wrong + 1 end
        at = at + 1
      end
    end
  end
  assert(wrong == 0 and at > 0 and at == shard.data.size, ("%d elements of %s are wrong on %s"):format(wrong, name,
    tostring(shard.device)))
end

local function stream(o)
  local numbers, step = {}, 0
  for batch in shardrt.loader(o) do
    local samples = samples_of(o, step)
    for _, name in ipairs { "x", "y", "mask" } do
      if name ~= "mask" or o.remainder == "pad" then
        local shards = batch[name].addressable_shards
        assert(#shards == shardrt.local_device_count() and batch[name].shape[1] == BATCH)
        for _, shard in ipairs(shards) do check(shard, name, samples) end
      end
    end
    for row = 0, BATCH - 1 do numbers[#numbers + 1] = samples[row] end
    step = step + 1
  end
  local _, steps = samples_of(o, 0)
  assert(step == 2 * steps, ("%d steps"):format(step))
  local text = table.concat(numbers, " ")
  return bit.tohex(C.shardrt_fingerprint(text, #text))
end

local n = shardrt.device_count()
local permuted = {}
for i = 0, n - 1 do permuted[i + 1] = (i * 3 + 1) % n end
local two = n == 8 and { 4, 2 } or { 1, 1 }
local flat, square = shardrt.make_mesh({ n }, { "d" }), shardrt.make_mesh(two, { "d", "m" })
local turned, mixed = shardrt.make_mesh({ two[2], two[1] }, { "d", "m" }), shardrt.Mesh(two, { "d", "m" }, permuted)
local function pair(mesh, x, y) return { x = shardrt.NamedSharding(mesh, x), y = shardrt.NamedSharding(mesh, y) } end
local shardings = {
  rows = pair(flat, P "d", P "d"), columns = pair(flat, P(nil, nil, "d"), P()), whole = pair(flat, P(), P "d"),
  square = pair(square, P("d", "m"), P "d"), turned = pair(turned, P("d", nil, "m"), P { "d", "m" }),
  mixed = pair(mixed, P("d", "m"), P "d"), mixed_columns = pair(mixed, P("m", "d"), P "m"),
}

local workers = 0
for _, shuffle in ipairs { true, false } do
  for _, remainder in ipairs { "drop", "pad" } do
    for _, name in ipairs { "rows", "columns", "whole", "square", "turned", "mixed", "mixed_columns" } do
      for _, pipeline in ipairs { "per_process", "global", "per_device", "reshard", "reshard*", "auto" } do
        workers = workers % 4 + 1
        local hash = stream {
          source = source, batch_size = BATCH, sharding = shardings[name], shuffle = shuffle, seed = 7, epochs = 2,
          remainder = remainder, pipeline = pipeline:match "%l[%l_]*", num_workers = workers,
          prefetch = 1 + workers % 3, load_sharding = pipeline == "reshard*" and pair(mixed, P(nil, "m"), P()) or nil,
        }
        if shardrt.process_index() == 0 then
          print(("%s/%s %s/%s %s"):format(tostring(shuffle), remainder, name, pipeline, hash))
        end
      end
    end
  end
end
]]
-- The samples that a stream is made of, as the recipe prints them; -1: none.
local function expected(shuffle, remainder)
  local numbers = {}
  for epoch = 0, 1 do
    for first = 0, remainder == "pad" and 52 or 37, 16 do
      for at = first, first + 15 do
        numbers[#numbers + 1] = at >= 53 and -1 or shuffle and tonumber(C.shardrt_order_index(7, epoch, 53, at)) or at
      end
    end
  end
  local text = table.concat(numbers, " ")
  return bit.tohex(C.shardrt_fingerprint(text, #text))
end

describe("the stream of global batches", function()
  local hashes = {}
  for _, shuffle in ipairs { true, false } do
    for _, remainder in ipairs { "drop", "pad" } do
      hashes[tostring(shuffle) .. "/" .. remainder] = expected(shuffle, remainder)
    end
  end

  for _, job in ipairs { { 1, 1 }, { 1, 8 }, { 2, 4 }, { 4, 2 }, { 8, 1 } } do
    it(("is the same with %d x %d"):format(job[1], job[2]), function()
      local result = mpi.run { source = RECIPE, processes = job[1], devices = job[2], limit = 240 }
      assert.equal(0, result.status, result.output)
      local streams = 0
      for case, variant, hash in result.stdout:gmatch "(%S+) (%S+) (%x+)\n" do
        assert.equal(hashes[case], hash, case .. " " .. variant)
        streams = streams + 1
      end
      assert.equal(2 * 2 * 7 * 6, streams)
    end)
  end

  it("differs between the cases", function()
    local seen = {}
    for case, hash in pairs(hashes) do
      assert.is_nil(seen[hash], case)
      seen[hash] = case
    end
  end)
end)

-- Loads steps of a stream in one job, from the state that arg[1] gives, and prints their hash and the state after them.
local PART = [[
local ffi, bit, cjson = require "ffi", require "bit", require "cjson"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"
local loader = shardrt.loader {
  source = shardrt.source.array { y = shardrt.ndarray.arange(53, "int64") }, batch_size = tonumber(arg[3]),
  shuffle = true, seed = 7, epochs = 2, remainder = "pad",
}
if arg[1] ~= "" then loader:restore(cjson.decode(arg[1])) end
for _ = 1, tonumber(arg[2]) do
  local batch = loader()
  local y, mask = shardrt.process_allgather(batch.y).data, shardrt.process_allgather(batch.mask).data
  for row = 0, loader.batch_size - 1 do
    if mask[row] and shardrt.process_index() == 0 then print(tonumber(y[row])) end
  end
end
if shardrt.process_index() == 0 then print("state " .. cjson.encode(loader:state())) end
]]

describe("a stream that is interrupted", function()
  it("goes on in jobs of other sizes, with other batches, and gives every sample once", function()
    local state, samples = "", {}
    for _, job in ipairs { { 4, 2, 2, 8 }, { 1, 8, 1, 16 }, { 2, 4, 2, 8 }, { 1, 1, 3, 13 }, { 8, 1, 2, 16 } } do
      local result = mpi.run { source = PART, processes = job[1], devices = job[2], args = { state, job[3], job[4] } }
      assert.equal(0, result.status, result.output)
      state = result.stdout:match "state (%b{})"
      for line in result.stdout:gmatch "[^\n]+" do samples[#samples + 1] = tonumber(line) end
    end
    assert.equal(2 * 53, #samples)
    for i, sample in ipairs(samples) do
      assert.equal(tonumber(C.shardrt_order_index(7, math.floor((i - 1) / 53), 53, (i - 1) % 53)), sample)
    end
  end)
end)

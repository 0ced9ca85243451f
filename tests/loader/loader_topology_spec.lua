-- long: 80 s
-- The topology never changes the data: the stream of global batches, byte for byte, in jobs of different sizes.

local ffi = require "ffi"
local bit = require "bit"
local C = require "shardrt.base.ffi"
local mpi = require "tests.support.mpi"

-- Every process gathers every global batch and hashes the stream; all processes must come to the same hash. What a case
-- is called says what the stream depends on; the variants of a case must not change it.
local RECIPE = [[
local ffi, bit = require "ffi", require "bit"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local shardrt = require "shardrt"
local P = shardrt.P

local COUNT, BATCH = 53, 16
local source = shardrt.source.array {
  x = shardrt.ndarray.arange(COUNT * 4 * 8, "int32"):reshape { COUNT, 4, 8 },
  y = shardrt.ndarray.arange(COUNT, "int64"),
}

local function stream(o)
  local words = {}
  for batch in shardrt.loader(o) do
    for _, name in ipairs { "x", "y", "mask" } do
      if rawget(batch, name) then
        local value = shardrt.process_allgather(batch[name])
        words[#words + 1] = ffi.string(value.data, value.bytes)
      end
    end
  end
  local text = table.concat(words)
  local hash = C.shardrt_fingerprint(text, #text)
  require("shardrt.base.error").check(C.shardrt_check_same(current.job, "the stream", hash))
  return bit.tohex(hash)
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
-- What the stream is: COUNT samples, x and y as the recipe makes them.
local function expected(shuffle, remainder)
  local words = {}
  for epoch = 0, 1 do
    for first = 0, 52, 16 do
      local x, y, mask = ffi.new "int32_t[16 * 32]", ffi.new "int64_t[16]", ffi.new "uint8_t[16]"
      for i = 0, math.min(15, 52 - first) do
        local sample = shuffle and tonumber(C.shardrt_order_index(7, epoch, 53, first + i)) or first + i
        for j = 0, 31 do x[i * 32 + j] = sample * 32 + j end
        y[i], mask[i] = sample, 1
      end
      if first + 16 <= 53 or remainder == "pad" then
        words[#words + 1] = ffi.string(x, ffi.sizeof(x)) .. ffi.string(y, ffi.sizeof(y))
        if remainder == "pad" then words[#words + 1] = ffi.string(mask, 16) end
      end
    end
  end
  local text = table.concat(words)
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

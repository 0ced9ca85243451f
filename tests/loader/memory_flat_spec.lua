-- alone: it measures the memory of jobs over many steps, which take long beside others.
-- The memory of a process that loads batch after batch, of a recipe that does nothing about it.
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"
local mpi = require "tests.support.mpi"

-- Batches are large enough that any which were kept would show: a few are 5 % of the process. What they may take is
-- also held against what stats() says, for a process that has grown too large before step 1,000 stays so.
local RECIPE = [[
local shardrt = require "shardrt"
local function size() -- of the process, in KiB
  local file = assert(io.open "/proc/self/status")
  local text = file:read "*a"
  file:close()
  return tonumber(text:match "VmRSS:%s+(%d+)")
end
local source = shardrt.source.array {
  x = shardrt.ndarray.zeros({ 8192, 1024 }, "uint8"), y = shardrt.ndarray.zeros({ 8192 }, "int32"),
}:enumerate "id"
source:read(0, 8192)
collectgarbage()
local start = size()
local loader = shardrt.loader { source = source, batch_size = 512, shuffle = true, pipeline = arg[1], remainder = "pad",
  load_sharding = arg[1] == "reshard" and shardrt.SingleDeviceSharding(shardrt.devices()[1]) or nil }
local steps, before, most, sum = 0, nil, 0, 0
for batch in loader do
  steps = steps + 1
  for _, shard in ipairs(batch.x.addressable_shards) do sum = sum + shard.data.data[0] end
  if steps == 1000 then before = size() end
  if steps > 1000 and steps % 500 == 0 then most = math.max(most, size()) end
  if steps == tonumber(arg[2]) then break end
end
local stats = loader:stats()
print(("%d steps, at most %.3f of the size, %d buffers, grown by %d KiB of %d"):format(steps, most / before,
  stats.buffers, most - start, stats.budget_bytes / 1024))
]]
local BESIDE = 32 * 1024 -- KiB: what threads, messages between processes and Lua take

describe("the memory of a process", function()
  local function run(pipeline, steps, processes)
    if os.getenv "SHARDRT_SANITIZER" then pending "a sanitizer keeps what was freed" return end
    if os.getenv "SHARDRT_TEST_PLATFORM" == "standin" then pending "the stand-in's GPUs are of this memory" return end
    local result = mpi.run {
      processes = processes, devices = 2, source = RECIPE, args = { pipeline, steps }, limit = 120,
    }
    assert.equal(0, result.status, result.output)
    local seen = 0
    for got, part, buffers, grown, budget in result.stdout:gmatch(
      "(%d+) steps, at most ([%d.]+) of the size, (%d+) buffers, grown by (%d+) KiB of (%d+)") do
      assert.equal(steps, tonumber(got))
      assert.is_true(tonumber(part) <= 1.05, result.output)
      assert.is_true(tonumber(buffers) > 0 and tonumber(grown) <= tonumber(budget) + BESIDE, result.output)
      seen = seen + 1
    end
    assert.equal(processes, seen, result.output)
  end

  it("is after 20,000 steps within 5% of what it was after 1,000", function() run("per_process", 20000, 1) end)
  it("stays as well where batches are moved between processes", function() run("reshard", 2500, 2) end)
  it("stays as well where the way of the batches is chosen", function() run("auto", 2500, 2) end)
end)

describe("a loader's workers", function()
  local ndarray, T = shardrt.ndarray, shardrt.transform
  local texts = {}
  for i = 1, 1024 do texts[i] = ndarray.arange(i % 7, "int32") end
  local function add(sample) sample.out[0] = sample.data[0] + 1 end
  local sources = {
    ["rows, cut and numbered"] = shardrt.source.array { x = ndarray.zeros({ 1024, 8, 8 }, "uint8") }:enumerate "id",
    ["transformed images"] = shardrt.source.array { x = ndarray.zeros({ 1024, 8, 8, 3 }, "uint8") }:map {
      x = { T.random_crop { size = { 8, 8 }, padding = 1 }, T.random_flip(), T.normalize { mean = 0.5, std = 0.2 } },
      small = { from = "x", T.random_resized_crop { size = { 5, 5 } }, T.transpose { axes = { 2, 0, 1 } } },
    },
    ["samples that Lua makes"] = shardrt.source.array { x = ndarray.zeros({ 1024 }, "int32") }
      :map { x = { T.lua(add) } },
    ["packed rows, mixed"] = shardrt.mix {
      { shardrt.source.ragged { x = texts }:pack { length = 6 }, 1 },
      { shardrt.source.ragged { x = texts }:pack { length = 6, seed = 1 }, 3 }, samples = 4096,
    },
  }
  for name, source in pairs(sources) do
    it("allocate nothing for a sample: " .. name, function()
      local STEPS = 200
      local function allocations(batch_size)
        local loader = shardrt.loader {
          source = source, batch_size = batch_size, shuffle = true, num_workers = 2, prefetch = 2,
        }
        for _ = 1, STEPS do loader() end
        C.shardrt_alloc_fail_at(0)
        for _ = 1, STEPS do loader() end
        return tonumber(C.shardrt_alloc_fail_at(0))
      end
      local few, many = allocations(256), allocations(1024) -- samples in each step (of 16 tasks are taken together)
      assert.is_true(few > 0 and many < few + STEPS, ("%d, then %d"):format(few, many))
    end)
  end
end)

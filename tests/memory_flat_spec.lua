-- The memory of a process that loads batch after batch, of a recipe that does nothing about it.
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

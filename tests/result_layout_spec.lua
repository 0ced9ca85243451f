-- How results of words that join, cut and multiply lie: as in JAX (tests/data/layouts.txt), unless operands contradict
-- each other or a slice goes backwards; and that nothing travels for it but what a process does not hold.

local mpi = require "tests.support.mpi"

local LOOKED = [[
concatenate: 200 lines, 39 of them with operands that contradict each other
stack: 100 lines, 20 of them with operands that contradict each other
split: 200 lines, 0 of them with operands that contradict each other
slice: 120 lines, 0 of them with operands that contradict each other
dot: 240 lines, 33 of them with operands that contradict each other
matmul: 240 lines, 24 of them with operands that contradict each other
]]

local TOPOLOGIES = { { 1, 8 }, { 2, 4 }, { 4, 2 }, { 8, 1 } }

local seed = tonumber(os.getenv "SHARDRT_TEST_SEED") or os.time()
print("seed", seed)

describe("a result", function()
  for _, topology in ipairs(TOPOLOGIES) do
    it(("lies as in JAX, with the same values, on %d x %d"):format(topology[1], topology[2]), function()
      local result = mpi.run {
        recipe = "tests/support/result_layouts.lua", processes = topology[1], devices = topology[2], limit = 240,
      }
      assert.equal(0, result.status, result.output)
      assert.equal(LOOKED, result.stdout)
    end)
  end

  for _, topology in ipairs(TOPOLOGIES) do
    it(("takes only what a process does not hold, on %d x %d"):format(topology[1], topology[2]), function()
      local result = mpi.run {
        recipe = "tests/support/result_bytes.lua", processes = topology[1], devices = topology[2], limit = 240,
        args = { seed, 150 },
      }
      assert.equal(0, result.status, result.output)
      assert.equal("looked at 150\n", result.stdout)
    end)
  end
end)

-- shardrt.numpy against what JAX answers: layouts where both of its modes agree, values everywhere, and which operands
-- go together.

local mpi = require "tests.support.mpi"

describe("shardrt.numpy, as JAX", function()
  for _, topology in ipairs { { 1, 8 }, { 2, 4 }, { 4, 2 }, { 8, 1 } } do
    it(("gives the layouts and values on %d x %d"):format(topology[1], topology[2]), function()
      local result = mpi.run {
        recipe = "tests/support/numpy_golden.lua", processes = topology[1], devices = topology[2], limit = 240,
      }
      assert.equal(0, result.status, result.output)
      assert.equal("looked at 425 cases, of which 297 have one layout in JAX\n", result.stdout)
    end)
  end
end)

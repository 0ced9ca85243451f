-- long: 30 s
-- shardrt.numpy against what JAX answers: layouts where both of its modes agree, values everywhere, and which operands
-- go together.

local golden = require "tests.support.golden"
local mpi = require "tests.support.mpi"

-- What the recipe must say of the files: of placement.json it leaves out meshes of explicit axes, and words of JAX that
-- shardrt has not.
local function expected()
  local cases, agreed = 0, 0
  for _, file in ipairs { "elementwise.json", "dot.json", "placement.json" } do
    for _, case in ipairs(golden.cases(file)) do
      cases, agreed = cases + 1, agreed + (case.agree and 1 or 0)
    end
  end
  local left_out = golden.own and 8 or 0
  return ("looked at %d cases, of which %d have one layout in JAX; left out %d\n"):format(cases - left_out, agreed,
    left_out)
end

describe("shardrt.numpy, as JAX", function()
  for _, topology in ipairs { { 1, 8 }, { 2, 4 }, { 4, 2 }, { 8, 1 } } do
    it(("gives the layouts and values on %d x %d"):format(topology[1], topology[2]), function()
      local result = mpi.run {
        recipe = "tests/support/ops/numpy_golden.lua", processes = topology[1], devices = topology[2], limit = 240,
      }
      assert.equal(0, result.status, result.output)
      assert.equal(expected(), result.stdout)
    end)
  end
end)

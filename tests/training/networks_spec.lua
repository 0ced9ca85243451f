-- long: 15 s
-- The recipes conv_net and transformer against JAX's losses (tests/golden/networks.py), on 1 x 8, 2 x 4 and 4 x 2.

local cjson = require "cjson"
local mpi = require "tests.support.mpi"
local slurp = require("tests.support.files").slurp

describe("the network of the recipe", function()
  local golden = cjson.decode(slurp "tests/golden/networks.json")
  for name, topologies in pairs { conv_net = { { 1, 8 }, { 4, 2 } }, transformer = { { 1, 8 }, { 2, 4 } } } do
    for _, topology in ipairs(topologies) do
      it(("%s has JAX's losses on %d x %d"):format(name, topology[1], topology[2]), function()
        local result = mpi.run {
          recipe = "recipes/" .. name .. ".lua", processes = topology[1], devices = topology[2], limit = 120,
        }
        assert.equal(0, result.status, result.output)
        local count = 0
        for steps, loss in result.stdout:gmatch "after +(%d+) steps the loss is ([%d.]+)\n" do
          local right = golden[name][steps]
          assert.is_true(math.abs(loss - right) < 1e-4 * right, ("%s: %s, not %s"):format(steps, loss, right))
          count = count + 1
        end
        assert.equal(5, count)
      end)
    end
  end
end)

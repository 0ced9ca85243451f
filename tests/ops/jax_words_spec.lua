-- Words that follow jax.numpy, jax.nn, jax.lax and optax: against JAX's answers (tests/golden/words.py), values and
-- gradients, on arrays that lie at random over meshes of 8, 2 x 4 and 4 x 2 devices, in one process and in several.

local jax_words = require "tests.support.ops.jax_words"
local mpi = require "tests.support.mpi"
local seed = require "tests.support.seed"

describe("words of JAX's", function()
  it("give its answers and gradients, wherever arrays lie", function()
    local looked, wrong = jax_words.run(seed)
    assert.equal("", table.concat(wrong, "\n", 1, math.min(#wrong, 20)), #wrong .. " of " .. looked)
    assert.is_true(looked > 100)
  end)

  for _, topology in ipairs { { 2, 4 }, { 4, 2 } } do
    it(("do so on %d x %d, too"):format(topology[1], topology[2]), function()
      local result = mpi.run {
        processes = topology[1], devices = topology[2], args = { seed }, limit = 240,
        source = [[
          package.path = "./?.lua;" .. package.path
          local shardrt = require "shardrt"
          local looked, wrong = require("tests.support.ops.jax_words").run(tonumber(arg[1]), 3)
          for _, text in ipairs(wrong) do print(text) end
          shardrt.say("looked at %s", looked > 30 and "many" or looked)
        ]],
      }
      assert.equal(0, result.status, result.output)
      assert.equal("looked at many\n", result.stdout)
    end)
  end
end)

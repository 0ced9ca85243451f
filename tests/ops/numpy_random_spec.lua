-- long: 15 s
-- Every word of shardrt.numpy, called at random on arrays that lie anyhow, against a plain evaluation of one device in
-- Lua: shapes, dtypes (a table of JAX's), values on every device, and whether the result is placed.

local cases = require "tests.support.ops.numpy_cases"
local jax_words = require "tests.support.ops.jax_words"
local mpi = require "tests.support.mpi"
local np = require "shardrt.numpy"

local seed = require "tests.support.seed"

local function count_of(set)
  local n = 0
  for _ in pairs(set) do n = n + 1 end
  return n
end

local EACH = 12 -- calls of each word

describe("shardrt.numpy's words, at random,", function()
  it("are all there", function()
    local by_jax = jax_words.names() -- which are compared with JAX's answers
    for name, word in pairs(np) do
      assert.truthy(type(word) == "string" or cases.words[name] or by_jax[name], name .. " is not tried")
    end
  end)

  it("give what one device gives", function()
    local looked, wrong = cases.run(seed, EACH)
    assert.equal("", table.concat(wrong, "\n"))
    assert.equal(EACH * count_of(cases.words), looked)
  end)

  for _, topology in ipairs { { 2, 4 }, { 4, 2 } } do
    it(("do so on %d x %d, too"):format(topology[1], topology[2]), function()
      local result = mpi.run {
        processes = topology[1], devices = topology[2], args = { seed, EACH }, limit = 240,
        source = [[
          package.path = "./?.lua;" .. package.path
          local shardrt = require "shardrt"
          local looked, wrong = require("tests.support.ops.numpy_cases").run(tonumber(arg[1]), tonumber(arg[2]))
          for _, text in ipairs(wrong) do print(text) end
          shardrt.say("looked at %d", looked)
        ]],
      }
      assert.equal(0, result.status, result.output)
      assert.equal(("looked at %d\n"):format(EACH * count_of(cases.words)), result.stdout)
    end)
  end

  it("are found where they are wrong", function()
    local right = np.floor
    rawset(np, "floor", function(x) return right(x) + 1 end)
    local _, wrong = cases.run(seed, EACH, "floor")
    rawset(np, "floor", right)
    assert.is_true(#wrong > 0)
  end)
end)

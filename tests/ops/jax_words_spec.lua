-- long: 20 s
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

  it("move nothing between processes but sums over what is cut", function()
    local result = mpi.run { processes = 4, devices = 2, limit = 120, source = [[
      local shardrt = require "shardrt"
      local np, P = require "shardrt.numpy", shardrt.P
      local mesh = shardrt.make_mesh({ 2, 4 }, { "data", "model" })
      local function ones(shape, ...) return np.ones(shape, "float32", shardrt.NamedSharding(mesh, P(...))) end
      local heads, images = ones({ 4, 8, 8, 4 }, "data", nil, "model", nil), ones({ 8, 8, 8, 4 }, "data")
      local channels = ones({ 8, 8, 8, 4 }, "data", nil, nil, "model")
      local x, w = ones({ 4, 8, 16 }, "data"), ones({ 16, 8, 4 }, nil, "model", nil)
      local index = np.zeros({ 8, 2 }, "int32")
      for _, f in ipairs {
        function() return np.attention(heads, heads, heads, { is_causal = true }) end,
        function() return np.einsum("btd,dnh->btnh", x, w) end,
        function() return np.conv(images, ones({ 3, 3, 4, 8 }, nil, nil, nil, "model")) end,
        function() return np.max_pool(channels, { 2, 2 }, { strides = 2 }) end,
        function() return np.sort(ones({ 8, 16 }, { "data", "model" }, nil)) end,
        function() return np.take_along_axis(ones({ 8, 16 }, "model"), index) end,
        function() return np.einsum("btnh,nhd->btd", heads, ones({ 8, 4, 16 }, "model")) end,
        function() return np.conv(channels, ones({ 3, 3, 4, 8 }, nil, nil, "model")) end,
      } do
        shardrt.say("%s", tostring(shardrt.explain(f).sharding.spec))
      end
    ]] }
    assert.equal(0, result.status, result.output)
    local moved, lies = {}, {}
    for text in result.stdout:gmatch "in all: ([^\n]-) moved" do moved[#moved + 1] = text end
    for text in result.stdout:gmatch "\n(P%b())" do lies[#lies + 1] = text end
    assert.same({ "0 B", "0 B", "0 B", "0 B", "0 B", "0 B", "4096 B", "32 KiB" }, moved)
    assert.same({
      'P("data", nil, "model", nil)', 'P("data", nil, "model", nil)', 'P("data", nil, nil, "model")',
      'P("data", nil, nil, "model")', 'P({"data", "model"}, nil)', 'P("model", nil)', 'P("data", nil, nil)',
      'P("data", nil, nil, nil)',
    }, lies)
  end)
end)

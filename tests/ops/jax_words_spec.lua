-- long: 20 s
-- Words that follow jax.numpy, jax.nn, jax.lax and optax: against JAX's answers (tests/golden/words.py), values and
-- gradients, on arrays that lie at random over meshes of 8, 2 x 4 and 4 x 2 devices, in one process and in several.

local jax_words = require "tests.support.ops.jax_words"
local mpi = require "tests.support.mpi"
local np = require "shardrt.numpy"
local seed = require "tests.support.seed"
local shardrt = require "shardrt"
local random = shardrt.random

describe("words of JAX's", function()
  it("give its answers and gradients, wherever arrays lie", function()
    local looked, wrong = jax_words.run(seed)
    assert.equal("", table.concat(wrong, "\n", 1, math.min(#wrong, 20)), #wrong .. " of " .. looked)
    assert.is_true(looked > 100)
  end)

  it("have the largest few of long rows, equal ones in their order, as sorting has them", function()
    local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
    local to = shardrt.NamedSharding(mesh, shardrt.P("data", "model"))
    for _, name in ipairs { "float32", "bfloat16", "int8", "int64" } do
      local x = np.astype(random.randint(random.key(seed), { 4, 96 }, -9, 9, to), name)
      local values = np.astype(x, "float32"):to_table()
      for k = 0, 30 do
        local largest, indices = np.top_k(x, k)
        local wanted, of = {}, {}
        for i, row in ipairs(values) do
          local order = {}
          for j = 1, #row do order[j] = j end
          table.sort(order, function(a, b) return row[a] > row[b] or row[a] == row[b] and a < b end)
          wanted[i], of[i] = {}, {}
          for j = 1, k do wanted[i][j], of[i][j] = order[j] - 1, row[order[j]] end
        end
        assert.same(wanted, indices:to_table(), ("%s, the first %d"):format(name, k))
        assert.same(of, np.astype(largest, "float32"):to_table())
      end
    end
  end)

  it("gelu is small to the last digits far below 0, and what it is at the ends", function()
    local values = { -12, -8, -5, -1, 0, 1, 5, 1e30, -1e30, math.huge }
    local got = np.gelu(np.array(values)):to_table()
    for i, x in ipairs(values) do
      local inside = math.sqrt(8 / math.pi) * (x + 0.044715 * x * x * x)
      local wanted = x * (1 / (1 + math.exp(-inside)))
      local close = got[i] == wanted or math.abs(got[i] - wanted) <= 2e-5 * math.abs(wanted) + 2 ^ -149
      assert.is_true(close, ("%g: %.9g"):format(x, got[i]))
    end
    local none = np.gelu(np.array { -math.huge, 0 / 0 }):to_table()
    assert.is_true(none[1] ~= none[1] and none[2] ~= none[2])
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

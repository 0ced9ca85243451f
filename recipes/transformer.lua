-- A transformer of two layers, trained on sequences that count up: batches are cut over "data", heads and inner layers
-- over "model", so between the two halves of a layer nothing moves.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/transformer.lua
--
-- The losses are JAX's, on any number of processes and devices, but for rounding.

local shardrt = require "shardrt"
local np, random = require "shardrt.numpy", shardrt.random
local P, say = shardrt.P, shardrt.say

local BATCH, PLACES, WORDS, WIDTH, HEADS, EACH, INNER = 16, 16, 64, 32, 4, 8, 128

local devices = shardrt.device_count()
local model = devices % 2 == 0 and 2 or 1
local mesh = shardrt.make_mesh({ devices / model, model }, { "data", "model" })
local function by(...) return shardrt.NamedSharding(mesh, P(...)) end
local rows = BATCH % (devices / model) == 0 and by "data" or by() -- cut where so many parts are equal

local keys = random.split(random.key(0), 4)
local first = random.randint(keys[1], { BATCH, 1 }, 0, WORDS, rows)
local tokens = (first + random.randint(keys[2], { BATCH, 1 }, 1, 4, rows) * np.arange(PLACES + 1)) % WORDS
local batch = { inputs = np.slice(tokens, { {}, { 0, -1 } }), targets = np.slice(tokens, { {}, { 1, PLACES + 1 } }) }

local params = {
  words = random.normal(keys[3], { WORDS, WIDTH }, by()) * 0.1,
  places = random.normal(keys[4], { PLACES, WIDTH }, by()) * 0.1,
  layers = {},
}
for i = 1, 2 do
  local k = random.split(random.fold_in(random.key(1), i - 1), 6)
  local heads = by(nil, "model", nil)
  params.layers[i] = {
    q = random.normal(k[1], { WIDTH, HEADS, EACH }, heads) * 0.1,
    k = random.normal(k[2], { WIDTH, HEADS, EACH }, heads) * 0.1,
    v = random.normal(k[3], { WIDTH, HEADS, EACH }, heads) * 0.1,
    out = random.normal(k[4], { HEADS, EACH, WIDTH }, by("model", nil, nil)) * 0.1,
    up = random.normal(k[5], { WIDTH, INNER }, by(nil, "model")) * 0.1,
    down = random.normal(k[6], { INNER, WIDTH }, by("model", nil)) * 0.05,
    scale1 = shardrt.device_put(np.ones(WIDTH), by()),
    scale2 = shardrt.device_put(np.ones(WIDTH), by()),
  }
end

local function loss_of(p, inputs, targets)
  local x = np.take(p.words, inputs) + p.places
  for _, w in ipairs(p.layers) do
    local y = np.layer_norm(x, { scale = w.scale1 })
    local function project(name) return np.einsum("btd,dnh->btnh", y, w[name]) end
    local seen = np.attention(project "q", project "k", project "v", { is_causal = true })
    x = x + np.einsum("btnh,nhd->btd", seen, w.out)
    x = x + np.dot(np.gelu(np.dot(np.layer_norm(x, { scale = w.scale2 }), w.up)), w.down)
  end
  local logits = np.einsum("btd,wd->btw", np.layer_norm(x), p.words)
  return np.mean(np.softmax_cross_entropy_with_integer_labels(logits, targets))
end

local step, optimizer = shardrt.value_and_grad(loss_of), shardrt.optimizer
local adamw = optimizer.adamw {
  learning_rate = shardrt.schedule.warmup_cosine {
    init_value = 0, peak_value = 0.01, warmup_steps = 5, decay_steps = 30,
  },
}
local state = adamw:init(params)
for taken = 0, 20 do
  local loss, gradients = step(params, batch.inputs, batch.targets)
  if taken % 5 == 0 then say("after %2d steps the loss is %.5f", taken, loss) end
  params, state = adamw:update(params, optimizer.clip_by_global_norm(gradients, 1), state)
end
local numbers = shardrt.tree.reduce(function(sum, x) return sum + x.size end, params, 0)
say("%d numbers in %d arrays; the heads lie by %s", numbers, #shardrt.tree.leaves(params),
  tostring(params.layers[1].q.sharding.spec))

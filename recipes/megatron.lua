-- Megatron-LM's datasets under model parallelism: GPTDataset's windows of a blend, token for token and in its order.
-- All devices of a model-parallel group have the same windows, which a process reads once. A stream that stops in the
-- middle goes on where it was, in a job of any size. Validation reads another part of the same split.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/megatron.lua

local shardrt = require "shardrt"
local np, P, T, say = require "shardrt.numpy", shardrt.P, shardrt.transform, shardrt.say

local n = shardrt.device_count()
local model = n % 4 == 0 and 4 or n % 2 == 0 and 2 or 1 -- tensor-model-parallel-size
local mesh = shardrt.make_mesh({ n / model, model }, { "data", "model" })
local folder = arg[0]:match "^(.*)/" or "."

-- --data-path 30 web 70 code --split 80,15,5 --seq-length 16 --seed 1234, with this number of samples.
local function windows(part, samples)
  return shardrt.source.megatron({ 30, folder .. "/data/web", 70, folder .. "/data/code" }, {
    view = "gpt", window = 16 + 1, seed = 1234, split = "80,15,5", part = part, samples = samples,
  })
end
local train, valid = windows("train", 160), windows("valid", 20)

-- Without `shuffle`: the order is Megatron's.
local function loader(source)
  return shardrt.loader {
    source = source, transform = T.window { dtype = "int32" }, batch_size = 4 * n / model, epochs = 1,
    remainder = "pad", sharding = shardrt.NamedSharding(mesh, P "data"), -- rows over "data", replicas over "model"
  }
end

-- How many windows a stream has left, and the sum of the tokens that are to be predicted.
local function count(stream)
  local rows, sum = 0, np.zeros({}, "int32")
  for step in stream do
    rows = rows + np.sum(step.mask)
    sum = sum + np.sum(np.where(np.expand_dims(step.mask, 1), step.targets, 0))
  end
  return rows, sum
end

local batch = loader(train)()
for _, shard in ipairs(batch and batch.inputs.addressable_shards or {}) do -- `shardrt plan` gives no batch
  local rows = shard.index[1]
  io.write(("%s, replica_id %d: windows %d to %d\n"):format(tostring(shard.device), shard.replica_id, unpack(rows)))
end

say("train: %d windows, whose tokens come to %d", count(loader(train)))
say("valid: %d windows, whose tokens come to %d", count(loader(valid)))

local first, second = loader(train), loader(train)
for _ = 1, 3 do first() end
second:restore(first:state())
say("train, after three batches: %d windows, whose tokens come to %d", count(second))

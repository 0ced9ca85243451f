-- Three sources in given proportions, exact in every ten samples, and a stream that goes on from a state with
-- other batches. A source that is used up begins anew, in another order, while the others go on.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/mix.lua

local shardrt = require "shardrt"
local np, ndarray, say = require "shardrt.numpy", shardrt.ndarray, shardrt.say

local names = { "web", "code", "books" }
local mix = shardrt.mix {
  { shardrt.source.array { id = ndarray.arange(5000, "int32") }, 0.6 },
  { shardrt.source.array { id = ndarray.arange(700, "int32") }, 0.3 },
  { shardrt.source.array { id = ndarray.arange(90, "int32") }, 0.1 },
  part = "corpus", -- a field that says which of them a sample is from: 0, 1 or 2
  samples = 2000,  -- of an epoch; left out, it would end when the books have all been given
}

local function loader(batch_size)
  return shardrt.loader {
    source = mix, batch_size = batch_size, shuffle = true, seed = 7, epochs = 1, remainder = "pad",
  }
end

-- How many samples of each corpus a stream has left.
local function count(stream)
  local counts = { np.zeros({}, "int32"), np.zeros({}, "int32"), np.zeros({}, "int32") }
  for batch in stream do
    for i in ipairs(names) do
      counts[i] = counts[i] + np.sum(np.logical_and(batch.mask, np.equal(batch.corpus, i - 1)))
    end
  end
  for i, name in ipairs(names) do say("  %4d of %s", counts[i], name) end
end

local batch_size = 10 * shardrt.device_count()
local first, second = loader(batch_size), loader(2 * batch_size)
for _ = 1, 3 do first() end
second:restore(first:state()) -- in a job of any other size, too

say "an epoch:"
count(loader(batch_size))
say "what is left of one after 3 steps, with batches of twice the size:"
count(second)

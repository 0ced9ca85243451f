-- What a language model is trained on, in one recipe: texts in Parquet files, as FineWeb has them, become tokens on
-- the threads that read, tokens become packed rows with segment ids, and two corpora are mixed with weights that change
-- on the way. A stream that stops in the middle goes on from its state, in a job of any size.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/fineweb_like.lua

local shardrt = require "shardrt"
local np, P, T, say = require "shardrt.numpy", shardrt.P, shardrt.transform, shardrt.say

local n = shardrt.device_count()
local mesh = shardrt.make_mesh(n % 2 == 0 and { n / 2, 2 } or { n, 1 }, { "data", "sequence" })
local folder = (arg[0]:match "^(.*)/" or ".") .. "/data"

-- ---- texts: two of the columns, good documents alone; then tokens, in rows of 256 ----

local function rows_of(path)
  local texts = shardrt.source.parquet(path, { fields = { "text", "language_score" } })
  return texts
    :filter { language_score = function(score) return score > 0.2 end }
    :map { text = false, tokens = { from = "text", T.tokenize { file = folder .. "/tokenizer.json" } } }
    :pack { length = 256, longer = "split", keep = "language_score", seed = 1 }
end

local web, code = rows_of(folder .. "/web.parquet"), rows_of(folder .. "/code.parquet")

-- ---- a mix: three of four rows are web's, and from row 120 on one of four ----

local mixed = shardrt.mix { { web, 0.75 }, { code, 0.25 }, { from = 120, 0.25, 0.75 }, part = "corpus", samples = 240 }

local function loader()
  return shardrt.loader {
    source = mixed, batch_size = 4 * n, shuffle = true, seed = 7, epochs = 1, remainder = "pad",
    sharding = {
      tokens = shardrt.NamedSharding(mesh, P("data", "sequence")),
      segment_ids = shardrt.NamedSharding(mesh, P("data", "sequence")),
      positions = shardrt.NamedSharding(mesh, P("data", "sequence")),
      language_score = shardrt.NamedSharding(mesh, P("data", "sequence")),
      corpus = shardrt.NamedSharding(mesh, P "data"),
    },
  }
end

-- Rows of each corpus and tokens that a stream has left.
local function count(stream)
  local rows, codes, tokens = 0, np.zeros({}, "int32"), np.zeros({}, "int32")
  for batch in stream do
    rows = rows + np.sum(batch.mask)
    codes = codes + np.sum(np.logical_and(batch.mask, np.equal(batch.corpus, 1)))
    tokens = tokens + np.sum(np.greater(batch.segment_ids, 0))
  end
  say("  %d rows, %d of code, %d tokens", rows, codes, tokens)
end

local first, second = loader(), loader()
for _ = 1, 2 do first() end
second:restore(first:state())

say "an epoch:"
count(loader())
say "what is left of it after two batches:"
count(second)

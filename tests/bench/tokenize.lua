-- Texts to tokens beside Hugging Face's tokenizers and tiktoken: the same tokens, of vocabularies with each known
-- expression and of random texts, and how fast a core makes them.

local mpi = require "tests.support.mpi"
local seed = tonumber(os.getenv "SHARDRT_TEST_SEED") or os.time() -- of the random texts

local NAMES = { "gpt2", "prefix", "digits", "llama3", "qwen2", "marks", "o200k", "tekken", "r50k_base", "cl100k_base",
  "o200k_base" }

return function(bench)
  local folder, peer = mpi.folder(), bench.build .. "/peers/bin/python -B tests/bench/peers/tokenize_peer.py "
  local lines = os.getenv "SHARDRT_BENCH_LINES" or "50000"
  bench.output(("%s make %s %d %s"):format(peer, folder, seed, lines), 3000)
  for _, name in ipairs(NAMES) do
    local function ours()
      local once = "%s --devices 1 tests/bench/tokenize_once.lua %s %s"
      local text = bench.output(once:format(mpi.program(), folder, name))
      local rate, wrong, all = text:match "([%d.]+) MB/s, (%d+) of (%d+) texts differ"
      assert(wrong == "0", ("%s, seed %d: %s of %s texts have other tokens"):format(name, seed, wrong, all))
      return tonumber(rate)
    end
    local function theirs() return tonumber((bench.output(("%s time %s %s"):format(peer, folder, name)))) end
    local a, b, ratio = bench.alternate(ours, theirs)
    bench.report(("tokens of %s / the package's"):format(name), ratio, ">= 1.0", ("%.1f and %.1f MB/s"):format(a, b))
  end
  mpi.remove(folder)
end

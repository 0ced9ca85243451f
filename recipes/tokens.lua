-- Text for a language model: windows over a file of tokens as inputs and targets, cut along the batch and the
-- sequence; and whole lines packed into rows, with segment ids and positions. The tokens are the letters of this file.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/tokens.lua

local ffi = require "ffi"
local shardrt = require "shardrt"
local np, P, ndarray, say = require "shardrt.numpy", shardrt.P, shardrt.ndarray, shardrt.say

local n = shardrt.device_count()
local mesh = shardrt.make_mesh(n % 2 == 0 and { n / 2, 2 } or { n, 1 }, { "data", "sequence" })
local both = shardrt.NamedSharding(mesh, P("data", "sequence"))

local function tokens_of(text, dtype)
  local host = ndarray.empty({ #text }, dtype)
  for i = 1, #text do host.data[i - 1] = text:byte(i) end
  return host
end

local recipe = assert(io.open(arg[0], "rb"))
local text = recipe:read "*a"
recipe:close()

-- ---- windows: a flat file of uint16, as tokenizers write it (each process has its own copy here) ----

local path = ("%s/tokens-%d.bin"):format(shardrt.temporary_folder(), shardrt.process_index())
local file, host = assert(io.open(path, "wb")), tokens_of(text, "uint16")
file:write(ffi.string(host.data, host.bytes))
file:close()

local SIZE = 32
local windows = shardrt.source.tokens(path, { window = SIZE + 1, stride = SIZE, dtype = "uint16" })
local targets = np.zeros({}, "int32")
for batch in shardrt.loader {
  source = windows, transform = shardrt.transform.window { dtype = "int32" }, batch_size = n,
  shuffle = true, seed = 1, epochs = 1, remainder = "pad", sharding = { inputs = both, targets = both },
} do
  targets = targets + np.sum(batch.mask) * batch.targets.shape[2] -- targets[i] is the letter that follows inputs[i]
end
say("%d windows of %d letters: %d letters were a target", #windows, SIZE, targets)

-- ---- packing: sequences of different length in rows of 128 ----

local lines = {}
for line in text:gmatch "[^\n]+" do lines[#lines + 1] = tokens_of(line, "int32") end
local packed = shardrt.source.ragged { tokens = lines }:pack { length = 128, seed = 1 }
local letters = np.zeros({}, "int32")
for batch in shardrt.loader {
  source = packed, batch_size = n, shuffle = true, epochs = 1, remainder = "pad", sharding = both,
} do
  letters = letters + np.sum(np.greater(batch.segment_ids, 0)) -- 0: nothing is there; batch.positions count from 0
end
say("%d letters of %d lines in %d rows of 128, each line whole: %.0f %% of the rows is text", letters:item(), #lines,
  #packed, 100 * letters:item() / #packed / 128)

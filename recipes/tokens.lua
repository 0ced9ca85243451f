-- Text for a language model: windows over a file of tokens as inputs and targets, cut along the batch and the
-- sequence; and whole lines packed into rows, with segment ids and positions. The tokens are the letters of this file.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/tokens.lua

local ffi = require "ffi"
local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say

local n = shardrt.device_count()
local mesh = shardrt.make_mesh(n % 2 == 0 and { n / 2, 2 } or { n, 1 }, { "data", "sequence" })
local both, rows_only = shardrt.NamedSharding(mesh, P("data", "sequence")), shardrt.NamedSharding(mesh, P "data")

local function tokens_of(text, dtype)
  local host = ndarray.empty({ #text }, dtype)
  for i = 1, #text do host.data[i - 1] = text:byte(i) end
  return host
end

local recipe = assert(io.open(arg[0], "rb"))
local text = recipe:read "*a"
recipe:close()

-- ---- windows: a flat file of uint16, as tokenizers write it (each process has its own copy here) ----

local path = os.tmpname()
local file, host = assert(io.open(path, "wb")), tokens_of(text, "uint16")
file:write(ffi.string(host.data, host.bytes))
file:close()

local SIZE = 32
local windows = shardrt.source.tokens(path, { window = SIZE + 1, stride = SIZE, dtype = "uint16" }):enumerate "number"
os.remove(path) -- it is open: nothing is left behind
local loader = shardrt.loader {
  source = windows, transform = shardrt.transform.window { dtype = "int32" }, batch_size = n,
  shuffle = true, seed = 1, epochs = 1, remainder = "pad",
  sharding = { inputs = both, targets = both, number = rows_only },
}
local found = 0
for batch in loader do
  local inputs, targets = shardrt.process_allgather(batch.inputs).data, shardrt.process_allgather(batch.targets).data
  local number, mask = shardrt.process_allgather(batch.number).data, shardrt.process_allgather(batch.mask).data
  for row = 0, n - 1 do
    for i = 0, mask[row] and SIZE - 1 or -1 do
      local at = tonumber(number[row]) * SIZE + i + 1 -- in the text
      assert(inputs[row * SIZE + i] == text:byte(at) and targets[row * SIZE + i] == text:byte(at + 1))
      found = found + 1
    end
  end
end
if not shardrt.is_planning() then
  assert(found == #windows * SIZE and #text - 1 - found < SIZE)
  say("%d windows: every letter but the first and those of no whole window was a target, once", #windows)
end

-- ---- packing: sequences of different length in rows of 128 ----

local lines, letters = {}, 0
for line in text:gmatch "[^\n]+" do
  lines[#lines + 1], letters = tokens_of(line, "int32"), letters + #line
end
local packed = shardrt.source.ragged { tokens = lines }:pack { length = 128, seed = 1 }
local sequences = 0
for batch in shardrt.loader {
  source = packed, batch_size = n, shuffle = true, epochs = 1, remainder = "pad", sharding = both,
} do
  local tokens = shardrt.process_allgather(batch.tokens).data
  local segments = shardrt.process_allgather(batch.segment_ids).data
  local positions = shardrt.process_allgather(batch.positions).data
  for i = 0, n * 128 - 1 do
    if segments[i] > 0 then
      letters = letters - 1
      if positions[i] == 0 then sequences = sequences + 1 end
    else
      assert(tokens[i] == 0)
    end
  end
end
if not shardrt.is_planning() then
  assert(letters == 0 and sequences == #lines)
  say("%d lines in %d rows of 128 letters, each line whole: %.0f %% of the rows is text", #lines, #packed,
    100 * packed.fill)
end

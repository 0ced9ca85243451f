-- parquet_epoch.lua FILE ORDER: epochs of the column "x" of a Parquet file through a loader, in order ("false") or
-- shuffled by blocks ("blocks"), texts as rows of 1400 bytes. Prints rows for a second of the processor.

local shardrt = require "shardrt"
local T = shardrt.transform

local path, order, BATCH, EPOCHS = arg[1], arg[2] == "blocks" and "blocks" or false, 1024, 3
local mesh = shardrt.make_mesh({ 1 }, { "data" })

-- How many rows an epoch has. Each has a source of its own, of which no page is there.
local function epoch(seed)
  collectgarbage() -- the one before is gone, and its pages with it
  local source, rows = shardrt.source.parquet(path, { fields = { "x" } }), 0
  local rows_of_texts = { x = { T.decode_raw { dtype = "uint8", shape = { -1 } }, T.pad { size = { 1400 } } } }
  local loader = shardrt.loader {
    source = source, batch_size = BATCH, shuffle = order, seed = seed, epochs = 1,
    sharding = shardrt.NamedSharding(mesh, shardrt.P "data"),
    transform = source.fields.x.shape[1] and rows_of_texts or nil,
  }
  for batch in loader do rows = rows + batch.x.shape[1] end
  return rows
end

epoch(0)
local start, rows = os.clock(), 0
for seed = 1, EPOCHS do rows = rows + epoch(seed) end
print(("%.0f rows/s"):format(rows / (os.clock() - start)))

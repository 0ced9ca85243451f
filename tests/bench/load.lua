-- load.lua FILE BATCH SEED SECONDS: loads shuffled batches of a .npy file, an epoch to warm up, then whole epochs for
-- about SECONDS; prints bytes/s, and how many workers and batch buffers there were.

local shardrt = require "shardrt"

local source = shardrt.source.npy { record = arg[1] }
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local loader = shardrt.loader {
  source = source, batch_size = tonumber(arg[2]), seed = tonumber(arg[3]), shuffle = true,
  sharding = shardrt.NamedSharding(mesh, shardrt.P "data"),
}
local steps = math.floor(#source / tonumber(arg[2]))

local step, start, bytes = 0, nil, 0
for batch in loader do
  if start then bytes = bytes + batch.record.size end
  step = step + 1
  if step % steps == 0 then
    local t = shardrt.clock()
    start = start or t
    if t - start >= tonumber(arg[4]) then
      local stats = loader:stats()
      print(("%d bytes/s, %d workers, %d buffers"):format(bytes / (t - start), stats.num_workers, stats.buffers))
      break
    end
  end
end

-- load.lua FILE BATCH SEED SECONDS REPLICAS: loads shuffled batches of a .npy file, an epoch to warm up, then whole
-- epochs for about SECONDS; each row goes to so many devices. Prints bytes/s of the global batches, how many workers
-- and batch buffers there were, and the bytes of a batch on each device.

local shardrt = require "shardrt"

local source = shardrt.source.npy { record = arg[1] }
local replicas = tonumber(arg[5])
local mesh = shardrt.make_mesh({ shardrt.device_count() / replicas, replicas }, { "data", "replica" })
local loader = shardrt.loader {
  source = source, batch_size = tonumber(arg[2]), seed = tonumber(arg[3]), shuffle = true,
  sharding = shardrt.NamedSharding(mesh, shardrt.P "data"),
}
local steps = math.floor(#source / tonumber(arg[2]))

local step, start, bytes, each = 0, nil, 0, nil
for batch in loader do
  if start then bytes = bytes + batch.record.size end
  each = each or batch.record.addressable_shards[1].data.bytes
  step = step + 1
  if step % steps == 0 then
    local t = shardrt.clock()
    start = start or t
    if t - start >= tonumber(arg[4]) then
      local stats = loader:stats()
      print(("%d bytes/s, %d workers, %d buffers, %d bytes on each device"):format(bytes / (t - start),
        stats.num_workers, stats.buffers, each))
      break
    end
  end
end

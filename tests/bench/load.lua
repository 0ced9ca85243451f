-- load.lua FILE BATCH SEED SECONDS REPLICAS WHAT [VERIFY]: loads shuffled batches of a .npy file, an epoch to warm up,
-- then whole epochs for about SECONDS; each row goes to so many devices. WHAT is done with it is as in gather.c; "lua"
-- does in Lua what is "invert" there. Prints bytes/s taken from the file, how many threads and batch buffers there
-- were, and the bytes of a batch on each device.

local shardrt = require "shardrt"
local T = shardrt.transform

local scale = 1 / 255
local transforms = {
  normalize = { record = { T.normalize { mean = { 0.1, 0.18, 0.28 }, std = { 0.2, 0.3, 0.4 } } } },
  lua = { record = { T.lua(function(sample) -- as in recipes/lua_transform.lua
    for i = 0, sample.size - 1 do
      sample.out[i] = (255 - sample.data[i]) * scale
    end
  end, { dtype = "float32", writes_all = true }) } },
  window = T.window { from = "record", dtype = "int32" },
}

local verify = { ["true"] = true, ["false"] = false, once = "once" } -- nothing: as it is by itself
local source = shardrt.source.npy({ record = arg[1] }, arg[7] and { verify = verify[arg[7]] })
local replicas = tonumber(arg[5])
local mesh = shardrt.make_mesh({ shardrt.device_count() / replicas, replicas }, { "data", "replica" })
local batch_size = tonumber(arg[2])
local loader = shardrt.loader {
  source = source, batch_size = batch_size, seed = tonumber(arg[3]), shuffle = true,
  transform = transforms[arg[6]], -- nil for "copy"
  sharding = shardrt.NamedSharding(mesh, shardrt.P "data"),
}
local steps = math.floor(#source / batch_size)

local step, start, bytes, each = 0, nil, 0, nil
local batch_bytes = batch_size * source:read(0, 1).record.bytes
for batch in loader do
  if start then bytes = bytes + batch_bytes end
  each = each or (batch.record or batch.inputs).addressable_shards[1].data.bytes
  step = step + 1
  if step % steps == 0 then
    local t = shardrt.clock()
    start = start or t
    if t - start >= tonumber(arg[4]) then
      local stats = loader:stats()
      print(("%d bytes/s, %d threads, %d buffers, %d bytes on each device"):format(bytes / (t - start),
        stats.num_workers + 1, stats.buffers, each)) -- the recipe's own thread helps while it waits
      break
    end
  end
end

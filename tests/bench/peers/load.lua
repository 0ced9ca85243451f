-- load.lua WORKLOAD FOLDER THREADS SECONDS: shardrt beside its peers (run.py): shuffled batches over all devices. Of
-- the first epoch, every row's number (its first and its last four bytes) is looked at: each must come once. Then whole
-- epochs for about SECONDS; prints samples/s, and how many batch buffers there were.

local ffi = require "ffi"
local shardrt = require "shardrt"

local folder = arg[2]
local BATCH = 256
local FILES = { small = "3072.npy", large = "150528.npy" }

local source = shardrt.source.npy { record = ("%s/%s"):format(folder, FILES[arg[1]]) }
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local loader = shardrt.loader {
  source = source, batch_size = BATCH, shuffle = true, seed = 42, num_workers = tonumber(arg[3]),
  sharding = shardrt.NamedSharding(mesh, shardrt.P "data"),
}
local steps = #source / BATCH

local seen = ffi.new("uint8_t[?]", #source)
local function look(batch)
  for _, shard in ipairs(batch.record.addressable_shards) do
    local rows, words = shard.data.shape[1], shard.data.shape[2] / 4
    local numbers = ffi.cast("uint32_t *", shard.data.data)
    for row = 0, rows - 1 do
      local id = numbers[row * words]
      assert(numbers[(row + 1) * words - 1] == id and seen[id] == 0, "each row once")
      seen[id] = 1
    end
  end
end

local step, start = 0, nil
for batch in loader do
  if step < steps then look(batch) end
  step = step + 1
  if step % steps == 0 then
    local now = shardrt.clock()
    start = start or { now = now, step = step }
    if now - start.now >= tonumber(arg[4]) then
      print(("%.0f %d"):format((step - start.step) * BATCH / (now - start.now), loader:stats().buffers))
      break
    end
  end
end

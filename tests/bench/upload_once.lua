-- For the benchmark: upload_once.lua BATCH STEPS WORK loads shuffled batches of BATCH rows of 16 KiB on one GPU, and
-- multiplies each WORK times by a matrix, so that the device has something to do. After some steps to warm up it
-- prints, of STEPS steps, the bytes per second at which batches were copied to the device, by its clock, the share of
-- that time in which the device went on working, and the bytes per second at which all steps went.

local shardrt = require "shardrt"
local np, random = require "shardrt.numpy", shardrt.random

local WIDTH, WARM = 4096, 20
local batch_size, steps, work = tonumber(arg[1]), tonumber(arg[2]), tonumber(arg[3])
local device = shardrt.SingleDeviceSharding(shardrt.devices()[1])
local host = shardrt.ndarray.full({ 4 * batch_size, WIDTH }, 0.5, "float32")
local weights = random.normal(random.key(0), { WIDTH, WIDTH }, device)
local loader = shardrt.loader {
  source = shardrt.source.array { x = host }, batch_size = batch_size, shuffle = true, sharding = device,
}

local function figures()
  local stats = loader:stats()
  return {
    bytes = stats.bytes_uploaded, took = stats.stages.upload, waited = stats.stages.upload_wait,
    clock = shardrt.clock(),
  }
end

local before
for step = 1, WARM + steps do
  local batch = loader()
  local y = batch.x
  for _ = 1, work do y = np.dot(y, weights) end
  if step == WARM or step == WARM + steps then
    y:block_until_ready()
    batch.x:block_until_ready()
    if not before then before = figures() end
  end
end
local after = figures()
local bytes, took = after.bytes - before.bytes, after.took - before.took
print(("%.0f %.4f %.0f"):format(bytes / took, 1 - (after.waited - before.waited) / took,
  bytes / (after.clock - before.clock)))

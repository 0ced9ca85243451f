-- formats.lua WORKLOAD FOLDER THREADS SECONDS: shardrt beside the peers of formats (formats.py), shuffled batches on
-- one device. In the first epoch every record's number (its first and its last word) is looked at: each must come once.
-- Then whole epochs for about SECONDS; prints samples/s and the processor's seconds for each sample.

local ffi = require "ffi"
local shardrt = require "shardrt"
local T = shardrt.transform

local workload, folder = arg[1], ("%s/formats/%s"):format(arg[2], arg[1])
local record = { record = { "uint8", { 3072 } } }
local open = {
  tfrecord = function() return shardrt.source.tfrecord(folder .. "/*.tfrecord", { fields = record }) end,
  array_record = function() return shardrt.source.array_record(folder .. "/*.array_record", { fields = record }) end,
  tar = function() return shardrt.source.tar(folder .. "/*.tar", { fields = { bin = record.record } }) end,
  mds = function() return shardrt.source.mds(folder, { fields = record }) end,
  jpeg = function() return shardrt.source.folder(folder) end,
}
local source = open[workload]()
local batch_size = workload == "jpeg" and 32 or 256
local loader = shardrt.loader {
  source = source, batch_size = batch_size, shuffle = true, seed = 42,
  num_workers = tonumber(arg[3]) - 1, -- and the recipe's own thread
  transform = workload == "jpeg" and { image = { T.decode_image(), T.random_resized_crop { size = { 224, 224 } } } }
    or nil,
}
local steps = math.floor(#source / batch_size)

local seen = ffi.new("uint8_t[?]", #source)
local function look(batch)
  local rows = (batch.record or batch.bin).addressable_shards[1].data
  local words, width = ffi.cast("uint32_t *", rows.data), 3072 / 4
  for row = 0, batch_size - 1 do
    local id = words[row * width]
    assert(words[(row + 1) * width - 1] == id and seen[id] == 0, "each record once")
    seen[id] = 1
  end
end

local step, start = 0, nil
for batch in loader do
  if step < steps and workload ~= "jpeg" then look(batch) end
  step = step + 1
  if step % steps == 0 then
    local now = shardrt.clock()
    start = start or { now = now, step = step, cpu = os.clock() }
    if now - start.now >= tonumber(arg[4]) then
      local samples = (step - start.step) * batch_size
      print(("%.0f %.9f"):format(samples / (now - start.now), (os.clock() - start.cpu) / samples))
      break
    end
  end
end

-- formats.lua WORKLOAD FOLDER THREADS SECONDS: shardrt beside the peers of formats (formats.py), batches on one
-- device, shuffled or in order. In the first epoch every record's number (its first and its last word) is looked at:
-- each must come once.
-- Then whole epochs for about SECONDS; prints samples/s and the processor's seconds for each sample.

local ffi = require "ffi"
local shardrt = require "shardrt"
local T = shardrt.transform

local workload, in_order = arg[1]:gsub("_in_order$", "")
local folder = ("%s/formats/%s"):format(arg[2], workload)
in_order = in_order == 1
local is_windows = workload == "megatron" and not in_order
local record = { record = { "uint8", { 3072 } } }
local open = {
  tfrecord = function() return shardrt.source.tfrecord(folder .. "/*.tfrecord", { fields = record }) end,
  array_record = function() return shardrt.source.array_record(folder .. "/*.array_record", { fields = record }) end,
  tar = function() return shardrt.source.tar(folder .. "/*.tar", { fields = { bin = record.record } }) end,
  mds = function() return shardrt.source.mds(folder, { fields = record }) end,
  arrow = function() return shardrt.source.arrow(folder) end,
  megatron = function()
    return shardrt.source.megatron(folder .. "/x", in_order and { view = "documents" }
      or { view = "gpt", window = 1025, seed = 1234 })
  end,
  jpeg = function() return shardrt.source.folder(folder) end,
}
local transforms = {
  jpeg = { image = { T.decode_image(), T.random_resized_crop { size = { 224, 224 } } } },
  megatron = in_order and { tokens = { T.pad { size = { 1024 } } } } or T.window { from = "tokens", dtype = "int64" },
}
local source = open[workload]()
local batch_size = workload == "jpeg" and 32 or is_windows and 64 or 256
local loader = shardrt.loader {
  source = source, batch_size = batch_size, shuffle = workload ~= "megatron" and not in_order, seed = 42,
  num_workers = tonumber(arg[3]) - 1, -- and the recipe's own thread
  transform = transforms[workload],
}
local steps = math.floor(#source / batch_size)

local seen, first = ffi.new("uint8_t[?]", is_windows and 2 ^ 24 or #source), 0
local function see(id)
  assert(seen[id] == 0, "each record once")
  seen[id] = 1
end

-- By workload, a look at a batch.
local look = {}
function look.records(batch)
  local rows = batch[source.names[1]].addressable_shards[1].data
  local words, width = ffi.cast("uint32_t *", rows.data), 3072 / 4
  for row = 0, batch_size - 1 do
    local id = words[row * width]
    assert(words[(row + 1) * width - 1] == id and (not in_order or id == first + row), "whole, and in order")
    see(id)
  end
  first = first + batch_size
end
function look.jpeg() end
-- Tokens are their own numbers.
function look.megatron(batch)
  local all, width = batch[is_windows and "inputs" or "tokens"].addressable_shards[1].data.data, 1024
  local targets = is_windows and batch.targets.addressable_shards[1].data.data
  for row = 0, batch_size - 1 do
    local tokens = all + row * width
    for i = 0, width - 1 do
      if is_windows then
        see(tonumber(tokens[i]))
        assert(i == width - 1 or tokens[i + 1] == targets[row * width + i], "the tokens that follow")
      elseif i == 0 or tokens[i] ~= 0 then
        assert(tokens[i] == first, "the documents' tokens")
        first = first + 1
      end
    end
  end
end
local look_at = look[workload] or look.records

local step, start = 0, nil
for batch in loader do
  if step < steps then look_at(batch) end
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

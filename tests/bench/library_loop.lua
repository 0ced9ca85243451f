-- library_loop.lua FOLDER WHAT SECONDS: the recipe's own loop over library_data.lua, as library_loop.c and
-- library_loop.py have it in C and Python. WHAT is done with each shard of a batch:
--   take   it is had as an array: here a pointer to its first element
--   copy   and its bytes are copied into memory of the program's own
-- In the first epoch each row must come once, as it was written: an image begins with its row's number, and its label
-- is that modulo 251. After one epoch more to warm up, whole epochs for about SECONDS; prints records/s.

local ffi = require "ffi"
local shardrt = require "shardrt"

local copies, seconds = arg[2] == "copy", tonumber(arg[3])
local loader = dofile "tests/bench/library_data.lua" ---@type shardrt.Loader
local steps, batch_size, count = loader.steps_per_epoch, loader.batch_size, #loader.source

local seen = ffi.new("uint8_t[?]", count)
local function check(batch)
  local labels = batch.label.addressable_shards
  for s, shard in ipairs(batch.image.addressable_shards) do
    local rows, bytes = shard.data.shape[1], shard.data.shape[2]
    local images, label = ffi.cast("const uint8_t *", shard.data.data), labels[s].data.data
    for row = 0, rows - 1 do
      local number = ffi.cast("const uint32_t *", images + row * bytes)[0]
      assert(number < count and seen[number] == 0 and label[row] == number % 251, "each row once")
      seen[number] = 1
    end
  end
end

local own = { image = ffi.new("uint8_t[?]", batch_size * 3072), label = ffi.new("uint8_t[?]", batch_size) }
local NAMES = { "image", "label" }
local function use(batch)
  for _, name in ipairs(NAMES) do
    local to = own[name]
    for _, shard in ipairs(batch[name].addressable_shards) do
      local data, bytes = shard.data.data, shard.data.bytes
      assert(data ~= nil)
      if copies then
        ffi.copy(to, data, bytes)
        to = to + bytes
      end
    end
  end
end

local step, start = 0, nil
for batch in loader do
  (step < steps and check or use)(batch)
  step = step + 1
  if step % steps == 0 and step > steps then
    local now = shardrt.clock()
    start = start or now
    if now - start >= seconds then
      print(("%.0f"):format((step - 2 * steps) * batch_size / (now - start)))
      break
    end
  end
end

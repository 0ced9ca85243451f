-- load.lua WORKLOAD FOLDER THREADS SECONDS: shardrt beside its peers (run.py): shuffled batches over all devices. Of
-- the first epoch, every row's number (its first and its last word) is looked at: each must come once. Then whole
-- epochs for about SECONDS; prints samples/s, and how many batch buffers there were.

local ffi = require "ffi"
local shardrt = require "shardrt"

local WORKLOADS = {
  small = { file = "3072.npy", batch = 256 },
  large = { file = "150528.npy", batch = 256 },
  tokens = { file = "tokens.npy", batch = 64, transform = shardrt.transform.window { from = "row", dtype = "int32" } },
}
local work = WORKLOADS[arg[1]]

local source = shardrt.source.npy { row = arg[2] .. "/" .. work.file }
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local loader = shardrt.loader {
  source = source, batch_size = work.batch, shuffle = true, seed = 42,
  num_workers = tonumber(arg[3]) - 1, -- and the recipe's own thread
  transform = work.transform,
  sharding = shardrt.NamedSharding(mesh, shardrt.P "data"),
}
local steps = #source / work.batch

local seen = ffi.new("uint8_t[?]", #source)
local function look(batch)
  local heads = (batch.row or batch.inputs).addressable_shards
  local tails = (batch.row or batch.targets).addressable_shards
  for i, head in ipairs(heads) do
    local rows, words = head.data.shape[1], head.data.bytes / head.data.shape[1] / 4
    local first, last = ffi.cast("uint32_t *", head.data.data), ffi.cast("uint32_t *", tails[i].data.data)
    for row = 0, rows - 1 do
      local id = first[row * words]
      assert(last[(row + 1) * words - 1] == id and seen[id] == 0, "each row once")
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
      print(("%.0f %d"):format((step - start.step) * work.batch / (now - start.now), loader:stats().buffers))
      break
    end
  end
end

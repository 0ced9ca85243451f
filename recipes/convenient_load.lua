-- A convenient load: each process reads some of the columns, whatever its devices need, and the batches are then
-- moved over the links to the layout that is wanted. Every byte is read once in the whole job, also where many
-- processes need it.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/convenient_load.lua

local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say

local n = shardrt.device_count()
local mesh = shardrt.make_mesh({ n }, { "all" })
local columns = shardrt.NamedSharding(mesh, P(nil, "all")) -- of the samples, over all devices
local rows, whole = shardrt.NamedSharding(mesh, P "all"), shardrt.NamedSharding(mesh, P())

local width, count, batch_size = 32 * n, 40 * n, 8 * n
local source = shardrt.source.array { x = ndarray.arange(count * width, "int32"):reshape { count, width } }
local bytes = count * width * 4

-- A number from each process, as a list, and their sum.
local function gathered(number)
  local list, sum = shardrt.process_allgather(ndarray.from_table(number, "float64")):to_table(), 0
  for _, one in ipairs(list) do sum = sum + one end
  return list, sum
end

-- Row r of step k is sample batch_size k + r, which begins with that number times the width.
local function check(shard, step)
  local row, column = shard.index[1][1], shard.index[2][1]
  assert(shard.data.data[0] == ((step * batch_size) + row) * width + column)
end

for _, wanted in ipairs { rows, whole } do
  local loader = shardrt.loader {
    source = source, batch_size = batch_size, epochs = 1, sharding = wanted,
    pipeline = "reshard", load_sharding = columns,
  }
  local step = 0
  for batch in loader do
    for _, shard in ipairs(batch.x.addressable_shards) do check(shard, step) end
    step = step + 1
  end
  if not shardrt.is_planning() then
    local stats = loader:stats()
    local read, total = gathered(stats.bytes_read)
    local received = gathered(stats.bytes_moved)
    say("read as %s, wanted as %s", tostring(columns.spec), tostring(wanted.spec))
    for process, own in ipairs(read) do
      say("  process %d read %.0f bytes and received %.0f", process - 1, own, received[process])
    end
    say("  the data has %.0f bytes; read were %.0f", bytes, total)
    assert(total == bytes)
  end
end

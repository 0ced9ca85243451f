-- A convenient load: each process reads some of the columns, whatever its devices need, and the batches are then
-- moved over the links to the layout that is wanted. Every byte is read once in the whole job, also where many
-- processes need it.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/convenient_load.lua

local shardrt = require "shardrt"
local P, say = shardrt.P, shardrt.say

local n = shardrt.device_count()
local mesh = shardrt.make_mesh({ n }, { "all" })
local columns = shardrt.NamedSharding(mesh, P(nil, "all")) -- of the samples, over all devices
local rows, whole = shardrt.NamedSharding(mesh, P "all"), shardrt.NamedSharding(mesh, P())

local width, count = 32 * n, 40 * n
local source = shardrt.source.array { x = shardrt.ndarray.arange(count * width, "int32"):reshape { count, width } }
local function loader_to(wanted)
  return shardrt.loader {
    source = source, batch_size = 8 * n, epochs = 1, sharding = wanted, pipeline = "reshard", load_sharding = columns,
  }
end

local wanted = { rows, whole }
local loaders = { loader_to(rows), loader_to(whole) }

say("the data has %d bytes", count * width * 4)
for i, loader in ipairs(loaders) do
  for _ in loader do end
  local stats = loader:stats()
  local bytes_of = shardrt.process_allgather({ stats.bytes_read, stats.bytes_moved }):to_table()
  say("read as %s, wanted as %s", tostring(columns.spec), tostring(wanted[i].spec))
  for process, bytes in ipairs(bytes_of) do
    say("  process %d read %.0f bytes and received %.0f", process - 1, bytes[1], bytes[2])
  end
end

-- A transformer's weights from a .safetensors file, laid out for tensor parallelism: of every matrix each process
-- reads the block that its own devices hold, by memory map, and no other byte.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/weights.lua

local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "model" })
local wide, narrow, layers = shardrt.device_count() * 64, 128, 3

-- What the model has, by the last parts of its arrays' names: a shape, and which dimension is cut. What makes the wide
-- inner activations is cut by its rows, what takes them by its columns, so that a layer needs one sum over devices.
local parts = {
  ["attention.q.weight"] = { { wide, narrow }, P("model", nil) },
  ["attention.o.weight"] = { { narrow, wide }, P(nil, "model") },
  ["mlp.up.weight"] = { { wide, narrow }, P("model", nil) },
  ["mlp.down.weight"] = { { narrow, wide }, P(nil, "model") },
  ["norm.weight"] = { { narrow }, P() }, -- on every device
}
local shapes, shardings, names = {}, {}, {}
for layer = 0, layers - 1 do
  for part, known in pairs(parts) do
    local name = ("layers.%d.%s"):format(layer, part)
    shapes[name], shardings[name] = known[1], shardrt.NamedSharding(mesh, known[2])
    names[#names + 1] = name
  end
end
table.sort(names)

-- A number from each process, as a list.
local function each(number) return shardrt.process_allgather(ndarray.from_table(number, "float64")):to_table() end

-- A file such as other programs write, with weights that tell their place; named after the time that process 0 has.
local planning = shardrt.is_planning()
local path = ("%s/shardrt-model-%.0f.safetensors"):format(os.getenv "TMPDIR" or "/tmp",
  planning and 0 or each(shardrt.clock() * 1e9)[1])
local function value(row, column) return (row * 31 + column * 17) % 1000 / 8 end
local arrays = {}
for _, name in ipairs(names) do
  local host = ndarray.zeros(shapes[name], "float32")
  local columns = shapes[name][2] or 1
  for i = 0, host.size - 1 do host.data[i] = value(math.floor(i / columns), i % columns) end
  arrays[name] = host
end
shardrt.save(path, arrays)
if planning then return end -- nothing was written

local weights, bytes = shardrt.load(path, shardings)
for process, n in ipairs(each(bytes)) do say("process %d read %.0f bytes", process - 1, n) end

-- Every weight is where its place says.
for _, name in ipairs(names) do
  for _, shard in ipairs(weights[name].addressable_shards) do
    local rows, columns, at = shard.index[1], shard.index[2] or { 0, 1 }, 0
    for row = rows[1], rows[2] - 1 do
      for column = columns[1], columns[2] - 1 do
        assert(shard.data.data[at] == value(row, column))
        at = at + 1
      end
    end
  end
end
say("%d arrays: every weight is where it belongs", #names)

shardrt.sync_global_devices "all have read"
if shardrt.process_index() == 0 then os.remove(path) end

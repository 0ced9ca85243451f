-- A transformer's weights from a .safetensors file, laid out for tensor parallelism: of every matrix each process
-- reads the block that its own devices hold, by memory map, and no other byte.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/weights.lua

local shardrt = require "shardrt"
local random, P, say = shardrt.random, shardrt.P, shardrt.say

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

local function report(verb, own)
  for process, bytes in ipairs(shardrt.process_allgather(own):to_table()) do
    say("process %d %s %.0f bytes", process - 1, verb, bytes)
  end
end

-- A file such as other programs write: here process 0 does, as all have the same numbers.
local path, arrays = shardrt.temporary_folder() .. "/model.safetensors", {}
for i, name in ipairs(names) do arrays[name] = random.normal(random.key(i), shapes[name]) end
report("wrote", shardrt.save(path, arrays))

local weights, bytes = shardrt.load(path, shardings)
report("read", bytes)
say("%d arrays; %s: %s", #names, names[1], tostring(weights[names[1]]))

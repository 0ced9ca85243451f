-- Model weights in one file: saved from one layout and loaded into another, each process writing and reading the
-- parts that its own devices hold. With a path the file stays, so that a job of another size can go on from it.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/save_and_load.lua weights.safetensors
--   mpirun -n 2 build/shardrt --devices 4 recipes/save_and_load.lua weights.safetensors

local shardrt = require "shardrt"
local random, P, say = shardrt.random, shardrt.P, shardrt.say

local devices = shardrt.device_count()
local model = devices % 2 == 0 and 2 or 1
local mesh = shardrt.make_mesh({ devices / model, model }, { "data", "model" })
local function over(...) return shardrt.NamedSharding(mesh, P(...)) end

local function report(verb, own)
  for process, bytes in ipairs(shardrt.process_allgather(own):to_table()) do
    say("process %d %s %.0f bytes", process - 1, verb, bytes)
  end
end

local path = arg[1] or shardrt.temporary_folder() .. "/weights.safetensors"
local file = io.open(path, "rb")
if file then
  file:close()
  say("found %s", path)
else
  local many, few = devices * math.ceil(960 / devices), 256 -- rows that most numbers of devices divide
  report("saved", shardrt.save(path, {
    ["layer.0.weight"] = random.normal(random.key(0), { many, few }, over(nil, "model")), -- copies over "data"
    ["layer.1.weight"] = random.normal(random.key(1), { few, many }, over("model", "data")),
    step = shardrt.ndarray.from_table(100, "int64"), -- a host array: the same in every process
  }))
end

local weights, bytes = shardrt.load(path, {
  ["layer.0.weight"] = over { "model", "data" }, ["layer.1.weight"] = over(),
})
report("loaded", bytes)
for name, x in pairs(weights) do say("%s: %s", name, tostring(x)) end
say("step %d", shardrt.load(path).step.data[0])

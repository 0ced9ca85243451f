-- Model weights in one file: saved from one layout and loaded into another, each process writing and reading the
-- parts that its own devices hold. With a path the file stays, so that a job of another size can go on from it.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/save_and_load.lua weights.safetensors
--   mpirun -n 2 build/shardrt --devices 4 recipes/save_and_load.lua weights.safetensors

local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say
local planning = shardrt.is_planning()

local devices = shardrt.device_count()
local model = devices % 2 == 0 and 2 or 1
local mesh = shardrt.make_mesh({ devices / model, model }, { "data", "model" })
local function over(...) return shardrt.NamedSharding(mesh, P(...)) end

-- A number from each process, as a list; and all of them told.
local function each(number) return shardrt.process_allgather(ndarray.from_table(number, "float64")):to_table() end
local function report(verb, bytes)
  local words, total = {}, 0
  for process, n in ipairs(each(bytes)) do
    words[process], total = ("process %d %.0f"):format(process - 1, n), total + n
  end
  say("%s %.0f bytes: %s", verb, total, table.concat(words, ", "))
  return total
end

-- Every weight is worked out from its place, so that any job can tell whether it is right.
local function weight(row, column) return (row * 31 + column * 17) % 1000 / 8 end
local function make(shape, sharding)
  return shardrt.make_array_from_callback(shape, sharding, function(index)
    local rows, columns, at = index[1], index[2], 0
    local part = ndarray.empty({ rows[2] - rows[1], columns[2] - columns[1] }, "float32")
    for row = rows[1], rows[2] - 1 do
      for column = columns[1], columns[2] - 1 do
        part.data[at] = weight(row, column)
        at = at + 1
      end
    end
    return part
  end, "float32")
end
local function check(x)
  for _, shard in ipairs(x.addressable_shards) do
    local rows, columns, at = shard.index[1], shard.index[2], 0
    for row = rows[1], rows[2] - 1 do
      for column = columns[1], columns[2] - 1 do
        assert(shard.data.data[at] == weight(row, column))
        at = at + 1
      end
    end
  end
end

-- Without a path: a file that is named after the time that process 0 has, so that it is this job's own.
local path = arg[1] or ("%s/shardrt-weights-%.0f.safetensors"):format(os.getenv "TMPDIR" or "/tmp",
  planning and 0 or each(shardrt.clock() * 1e9)[1])

-- Has another job left it? Process 0 looks for all.
local file = io.open(path, "rb")
local found = file ~= nil
if not planning then found = each(file and 1 or 0)[1] == 1 end
if file then file:close() end

if found then
  say("found %s", path)
else
  local many, few = devices * math.ceil(960 / devices), 256 -- rows that most numbers of devices divide
  local bytes = shardrt.save(path, {
    ["layer.0.weight"] = make({ many, few }, over(nil, "model")), -- columns over "model", copies over "data"
    ["layer.1.weight"] = make({ few, many }, over("model", "data")),
    step = ndarray.from_table(100, "int64"),                      -- a host array: the same in every process
  })
  if planning then return end -- nothing was written
  assert(report("saved", bytes) < 2 * many * few * 4 + 1000) -- each weight once, whatever its copies, and a header
end

local weights, bytes = shardrt.load(path, {
  ["layer.0.weight"] = over { "model", "data" },
  ["layer.1.weight"] = over(),
})
if planning then return end -- no data to look at
report("loaded", bytes)
for _, name in ipairs { "layer.0.weight", "layer.1.weight" } do
  local x = weights[name]
  check(x)
  say("%s: %s {%d, %d} on %s", name, x.dtype, x.shape[1], x.shape[2], tostring(x.sharding.spec))
end
say("step %d: every weight is where it belongs", tonumber(shardrt.load(path).step.data[0]))

shardrt.sync_global_devices "all have read"
if not arg[1] and shardrt.process_index() == 0 then os.remove(path) end

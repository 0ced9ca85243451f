-- Model weights in one file (D6): saved from one layout and loaded into another, each process writing and reading the
-- parts that its own devices hold. With a path the file stays, so that a job of another size can go on from it.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/save_and_load.lua weights.safetensors
--   mpirun -n 2 build/shardrt --devices 4 recipes/save_and_load.lua weights.safetensors

local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray

local function say(...)
  if shardrt.process_index() == 0 then io.write(string.format(...), "\n") io.stdout:flush() end
end
-- A number from each process, as a list.
local function gathered(number)
  return shardrt.process_allgather(ndarray.from_table(number, "float64")):to_table()
end
local function report(verb, bytes)
  local words, total = {}, 0
  for process, n in ipairs(gathered(bytes)) do
    words[process], total = ("process %d %.0f"):format(process - 1, n), total + n
  end
  say("%s %.0f bytes: %s", verb, total, table.concat(words, ", "))
  return total
end

-- Without a path: a file of this job's own, which does not stay.
local job = gathered(io.open("/proc/self/stat"):read "*n")[1] -- process 0's id makes the name
local path = arg[1] or ("%s/shardrt-weights-%d.safetensors"):format(os.getenv "TMPDIR" or "/tmp", job)

-- Is there a file, of another job? Process 0 looks for all.
local file = io.open(path, "rb")
local found = gathered(file and 1 or 0)[1] == 1
if file then file:close() end

local n = shardrt.device_count()
local columns = n % 2 == 0 and 2 or 1
local mesh = shardrt.make_mesh({ n / columns, columns }, { "data", "model" })
local function over(...) return shardrt.NamedSharding(mesh, P(...)) end

-- Every weight is worked out from its place, so that any job can tell whether it is right.
local rows, inner = 1024, 768
local function weight(row, column) return (row * 31 + column * 17) % 1000 / 8 end
local function make(shape, sharding)
  return shardrt.make_array_from_callback(shape, sharding, function(index)
    local r0, r1, c0, c1 = index[1][1], index[1][2], index[2][1], index[2][2]
    local part, at = ndarray.empty({ r1 - r0, c1 - c0 }, "float32"), 0
    for row = r0, r1 - 1 do
      for column = c0, c1 - 1 do
        part.data[at] = weight(row, column)
        at = at + 1
      end
    end
    return part
  end)
end
local function check(x)
  for _, shard in ipairs(x.addressable_shards) do
    local r, c, at = shard.index[1], shard.index[2], 0
    for row = r[1], r[2] - 1 do
      for column = c[1], c[2] - 1 do
        assert(shard.data.data[at] == weight(row, column))
        at = at + 1
      end
    end
  end
end

if found then
  say("found %s", path)
else
  local written = shardrt.save(path, {
    ["layer.0.weight"] = make({ rows, inner }, over(nil, "model")), -- columns over "model", copies over "data"
    ["layer.1.weight"] = make({ inner, rows }, over("model", "data")),
    step = ndarray.from_table(100, "int64"),                        -- a host array: the same in every process
  })
  local total = report("saved", written)
  assert(total < (2 * rows * inner * 4 + 8) * 1.01) -- each weight once, whatever its copies, and a header
end

local weights, read = shardrt.load(path, {
  ["layer.0.weight"] = over({ "model", "data" }),
  ["layer.1.weight"] = over(),
})
report("loaded", read)
for i = 0, 1 do
  local name = ("layer.%d.weight"):format(i)
  local x = weights[name]
  check(x)
  say("%s: %s {%d, %d} on %s", name, x.dtype, x.shape[1], x.shape[2], tostring(x.sharding.spec))
end
say("step %d: every weight is where it belongs", tonumber(shardrt.load(path).step.data[0]))

gathered(0) -- all have read it
if not arg[1] and shardrt.process_index() == 0 then os.remove(path) end

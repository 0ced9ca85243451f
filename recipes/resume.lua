-- A job that stops in mid-epoch and goes on from its checkpoint, here on half of the devices and with twice the
-- batch size: every sample comes once, in the order of an undisturbed run, and the weights go on from where they were.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/resume.lua

local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say
local planning = shardrt.is_planning()

local all = shardrt.device_count()
local half = math.max(1, math.floor(all / 2))
local BATCH = 4 * all * half -- rows that both numbers of devices divide
local source = shardrt.source.array { id = ndarray.arange(40 * BATCH, "int32") }

-- A folder of this job's own, named after the time that process 0 has.
local clock = planning and 0
  or shardrt.process_allgather(ndarray.from_table(shardrt.clock(), "float64")):to_table()[1]
local folder = ("%s/shardrt-resume-%.0f"):format(os.getenv "TMPDIR" or "/tmp", clock * 1e9)

local function train(weight) -- the next weights: each one more
  local host = shardrt.process_allgather(weight)
  for i = 0, host.size - 1 do host.data[i] = host.data[i] + 1 end
  return shardrt.device_put(host, weight.sharding)
end

-- Trains until the epoch or a step is over, from wherever the last call came to.
local function job(devices, batch_size, last_step)
  local rows = shardrt.NamedSharding(shardrt.make_mesh({ devices }, { "data" }), P "data")
  local loader = shardrt.loader {
    source = source, batch_size = batch_size, sharding = rows, shuffle = true, seed = 7, epochs = 1,
  }
  local model = { weight = shardrt.device_put(ndarray.zeros({ BATCH }, "float32"), rows) }
  local given = { ids = {} }
  local checkpoint = shardrt.checkpoint {
    dir = folder, every = 5, keep = 2, loader = loader, arrays = model, metadata = given,
  }
  if checkpoint.restored then
    say("went on from step %d, on %d of %d devices, with batches of %d", checkpoint.restored, devices, all, batch_size)
  end
  for batch in loader do
    for _, id in ipairs(shardrt.process_allgather(batch.id):to_table()) do given.ids[#given.ids + 1] = id end
    model.weight = train(model.weight)
    checkpoint:step()
    if checkpoint.steps == last_step then break end
  end
  checkpoint:close()
  return given.ids, model, checkpoint.steps
end

local lost = #job(all, BATCH, 12)
if planning then
  job(half, 2 * BATCH)
  return
end
say("stopped after step 12: %d samples", lost)

local ids, model, steps = job(half, 2 * BATCH)
assert(steps == 10 + 15, "10 steps are in the checkpoint, and half as many as are left of 40 then")
assert(shardrt.process_allgather(model.weight).data[BATCH - 1] == steps)

local at = 0
for batch in shardrt.loader { source = source, batch_size = BATCH, shuffle = true, seed = 7, epochs = 1 } do
  for _, id in ipairs(shardrt.process_allgather(batch.id):to_table()) do
    at = at + 1
    assert(ids[at] == id)
  end
end
assert(at == #ids and at == 40 * BATCH)
say("%d samples, each once, in the order of an undisturbed run; %d steps are in the weights", at, steps)

if shardrt.process_index() == 0 then os.execute(("rm -r '%s'"):format(folder)) end

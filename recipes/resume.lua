-- A job that stops in mid-epoch and goes on from its checkpoint, here on half of the devices and with twice the
-- batch size: every sample comes once, in the order of an undisturbed run, and the weights go on from where they were.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/resume.lua

local shardrt = require "shardrt"
local np, P, say = require "shardrt.numpy", shardrt.P, shardrt.say

local all = shardrt.device_count()
local half = math.max(1, math.floor(all / 2))
local BATCH = 4 * all * half -- rows that both numbers of devices divide
local source = shardrt.source.array { id = shardrt.ndarray.arange(40 * BATCH, "int32") }
local folder = shardrt.temporary_folder() -- as long as this job runs; yours would stay

-- Trains until the epoch or a step is over, from wherever the last call came to.
local function job(devices, batch_size, last_step)
  local rows = shardrt.NamedSharding(shardrt.make_mesh({ devices }, { "data" }), P "data")
  local loader = shardrt.loader {
    source = source, batch_size = batch_size, sharding = rows, shuffle = true, seed = 7, epochs = 1,
  }
  local model = { weight = np.zeros({ BATCH }, "float32", rows) }
  local checkpoint = shardrt.checkpoint { dir = folder, every = 5, keep = 2, loader = loader, arrays = model }
  if checkpoint.restored then
    say("went on from step %d, on %d of %d devices, with batches of %d", checkpoint.restored, devices, all, batch_size)
  end
  for _ in loader do
    model.weight = model.weight + 1 -- a step of training
    checkpoint:step()
    if checkpoint.steps == last_step then
      say("stopped after step %d", last_step)
      break
    end
  end
  checkpoint:close()
  return model.weight, checkpoint.steps
end

job(all, BATCH, 12)
local weight, steps = job(half, 2 * BATCH)
local everywhere = shardrt.NamedSharding(shardrt.make_mesh({ all }, { "data" }), P())
say("%d steps, and as many are in the weights: their mean is %.0f", steps,
  shardrt.device_put(np.mean(weight), everywhere))

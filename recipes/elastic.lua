-- A job that loses a process in mid-epoch and goes on with fewer. `shardrt run` starts it again; two lines here
-- see to it that nothing is lost: shardrt.checkpoint{…}, which restores the last checkpoint, and checkpoint:step().
--
--   build/shardrt run -n 4 --devices 2 --restarts 3 --min 2 recipes/elastic.lua 12 [folder]
--
-- After 12 steps the last process kills itself; without the number, nobody does.

local shardrt = require "shardrt"
local ndarray, say = shardrt.ndarray, shardrt.say

local lose_at, folder = tonumber(arg[1]), arg[2]
folder = folder or ("%s/shardrt-elastic-%s"):format(os.getenv "TMPDIR" or "/tmp", os.getenv "USER" or "")

-- 96 rows divide over 1, 2, 3, 4, 6, 8, 12, … devices: a batch must divide over however many are left.
local source = shardrt.source.array { id = ndarray.arange(40 * 96, "int32") }
local loader = shardrt.loader { source = source, batch_size = 96, shuffle = true, seed = 7, epochs = 1 }

local given = { samples = 0 } -- which each checkpoint keeps
local checkpoint = shardrt.checkpoint { dir = folder, every = 5, keep = 2, loader = loader, metadata = given }
say("%d processes, from step %d on", shardrt.process_count(), checkpoint.steps)

for batch in loader do
  given.samples = given.samples + batch.id.shape[1]
  checkpoint:step()
  local is_last = shardrt.process_index() == shardrt.process_count() - 1
  if checkpoint.steps == lose_at and not checkpoint.restored and is_last then os.execute "kill -9 $PPID" end
end
say("%d samples in %d steps", given.samples, checkpoint.steps)

-- Done: its checkpoints go.
if checkpoint.steps > 0 and shardrt.process_index() == 0 then os.execute(("rm -r '%s'"):format(folder)) end

-- The library in a program of Python beside PyTorch's DataLoader and Grain, on the same files in one process: records/s
-- in batches of 256 images of 3,072 bytes with labels, shuffled, taken and then also copied, as in library.lua. All run
-- in the Python under build/peers, whose PyTorch is PyPI's. Each has as many threads or workers as there are cores; and
-- the others also fewer, as that may be faster.

local library = require "tests.support.library"
local mpi = require "tests.support.mpi"
local records = require "tests.bench.records"

local SECONDS, AIM = 1, { torch = ">= 1.5", grain = ">= 4" }

-- The pairs: {title=, the two commands, aim=}. Who cannot be imported is left out, and said.
local function pairs_of(bench)
  local python, cores = bench.build .. "/peers/bin/python -B", tonumber(bench.output "nproc")
  local function has(module)
    local is_there = mpi.shell(("%s -c 'import %s'"):format(python, module)).status == 0
    if not is_there then print(("without %s: pip did not bring it to %s/peers"):format(module, bench.build)) end
    return is_there
  end
  local all = {}
  local function add(kind, theirs, title, workers)
    all[#all + 1] = {
      title = ("shardrt, %s / %s"):format(kind, title:format(workers)),
      ours = ("env PYTHONPATH=python SHARDRT_LIBRARY=%s/libshardrt.so.0 %s tests/bench/library_loop.py %s 1 %s"):format(
        library.folder(), python, kind, "tests/bench/library_data.lua"),
      aim = AIM[theirs],
      theirs = ("%s tests/bench/others_loop.py %s %d"):format(python, theirs, workers),
    }
  end
  if has "torch" then
    add("torch", "torch", "DataLoader, %d workers", 0)
    add("torch", "torch", "DataLoader, %d workers", cores)
  end
  if has "grain" then
    add("numpy", "grain", "Grain, %d thread", 1)
    add("numpy", "grain", "Grain, %d threads", cores)
  end
  return all
end

return function(bench)
  local all = pairs_of(bench)
  if #all == 0 then return end
  local data = records.make_labelled { bytes = 3072, rows = 65536 }
  for _, what in ipairs { "take", "copy" } do
    local function rate(command)
      local text = bench.output(("%s %s %s %g"):format(command, data.folder, what, SECONDS))
      return assert(tonumber(text), text)
    end
    for _, pair in ipairs(all) do
      local a, b, ratio =
        bench.alternate(function() return rate(pair.ours) end, function() return rate(pair.theirs) end)
      bench.report(("%s, %s"):format(pair.title, what == "take" and "taken" or "copied"), ratio, pair.aim,
        ("%.0f and %.0f records/s"):format(a, b))
    end
  end
  records.remove(data)
end

-- One recipe's batches taken by programs of C and Python, over what its own loop takes: records/s, in batches of 256
-- images of 3,072 bytes with labels, shuffled. Shards are taken as arrays (pointers in C and Lua, numpy's and torch's
-- arrays in Python), and then also copied into the program's own memory. Each program looks at every row of an epoch.

local library = require "tests.support.library"
local mpi = require "tests.support.mpi"
local records = require "tests.bench.records"

local SECONDS = 1
local CASES = {
  { devices = 1, what = "take" }, { devices = 1, what = "copy" },
  { devices = 8, what = "take" }, { devices = 8, what = "copy" },
}

-- The programs, the recipe's own loop first; {title, command of a number of devices, aim}.
local function programs(folder)
  local loop = library.build(folder, "tests/bench/library_loop.c", "-O2")
  local all = {
    { "Lua", function(n) return ("%s --devices %d tests/bench/library_loop.lua"):format(mpi.program(), n) end },
    { "C", function(n) return ("%s %d tests/bench/library_data.lua"):format(loop, n) end, 0.95 },
  }
  for _, kind in ipairs { "numpy", "torch" } do
    local python = library.python()
    if mpi.shell(python .. " -c 'import " .. kind .. "'").status == 0 then
      all[#all + 1] = { "Python, " .. kind, function(n)
        return ("%s tests/bench/library_loop.py %s %d tests/bench/library_data.lua"):format(python, kind, n)
      end, 0.9 }
    else
      print(("without Python, %s: /usr/bin/python3 has none (python3-%s)"):format(kind, kind))
    end
  end
  return all
end

local function compare(bench, all, folder, case)
  local rates, ratios = {}, {}
  for p in ipairs(all) do rates[p], ratios[p] = {}, {} end
  for round = 1, bench.rounds do
    for p, program in ipairs(all) do
      local text = bench.output(("%s %s %s %g"):format(program[2](case.devices), folder, case.what, SECONDS))
      rates[p][round] = assert(tonumber(text), text)
      ratios[p][round] = rates[p][round] / rates[1][round]
    end
  end
  local own = bench.median(rates[1])
  for p = 2, #all do
    bench.report(("%s / the recipe's own loop, %d device%s, %s"):format(all[p][1], case.devices,
      case.devices == 1 and "" or "s", case.what == "take" and "taken" or "copied"), bench.median(ratios[p]),
      case.devices == 1 and (">= %g"):format(all[p][3]) or "", ("%.0f and %.0f records/s"):format(
      bench.median(rates[p]), own))
  end
end

return function(bench)
  local data = records.make_labelled { bytes = 3072, rows = 65536 }
  local all = programs(data.folder)
  for _, case in ipairs(CASES) do compare(bench, all, data.folder, case) end
  records.remove(data)
end

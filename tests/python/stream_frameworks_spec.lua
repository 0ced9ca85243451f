-- long: 40 s
-- PyTorch and JAX are given the batches that the recipe's own loop is, byte for byte, on every topology: over MPI, and
-- over their own transports.

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"
local streams = require "tests.support.streams"

-- "moved" sends data between processes, which MPI does.
local LOADERS = { mpi = streams.NAMES, callbacks = {} }
for _, name in ipairs(streams.NAMES) do
  if name ~= "moved" then table.insert(LOADERS.callbacks, name) end
end

describe("a recipe's batches", function()
  local folder = mpi.folder()
  local written = folder .. "/written" -- by all processes, whole lines: those that mpirun collects may be torn
  local recipe, looping
  local stops = {}
  setup(function()
    recipe = files.write(folder, "recipe.lua", streams.RECIPE)
    looping = files.write(folder, "looping.lua", streams.LOOP)
  end)
  teardown(function()
    for _, stop in ipairs(stops) do stop() end
    mpi.remove(folder)
  end)

  local function lines_of(run, words, processes)
    os.remove(written)
    expect.well(run(("sh -c '%s >>%s'"):format(table.concat(words, " "), written), processes))
    local lines = {}
    for line in files.slurp(written):gmatch "[^\n]+" do lines[#lines + 1] = line end
    table.sort(lines)
    return lines
  end

  for _, framework in ipairs { "torch", "jax" } do
    local python, missing = library[framework]()
    for how, loaders in pairs(LOADERS) do
      local name = ("are the same in %s over %s"):format(framework, how)
      if not python then
        pending(name .. ": " .. missing)
      else
        local copies
        if how == "callbacks" and framework == "torch" then -- what is imported is imported once
          copies, stops[#stops + 1] = library.forks(python, folder, "torch torch.distributed")
        end
        it(name, function()
          for _, topology in ipairs(streams.TOPOLOGIES) do
            local devices, processes, names = topology.devices, topology.processes, table.concat(loaders, " ")
            local wanted = lines_of(library.run, { mpi.program(), "--devices", devices, looping, names }, processes)
            assert.is_true(#wanted > 500)
            -- JAX's own processes find each other at a port, also where mpirun starts them.
            local run, started = library.run, ("env MASTER_PORT=%s %s"):format(library.port(), python)
            if how == "callbacks" then run, started, processes = library.launch, copies or python, processes or 1 end
            local script = ("tests/python/stream_%s.py"):format(framework)
            assert.same(wanted, lines_of(run, { started, script, devices, recipe, how, names }, processes))
          end
        end)
      end
    end
  end
end)

-- Programs that are asked to end: all their processes are told before the same batch, and go on from there. These are
-- examples/c/give_way.c, and the same in Python.

local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

local PYTHON = library.python()

-- The last process asks itself, as Slurm would ask all; where arg[1] says so, and as late as arg[2] says.
local RECIPE = [[
local shardrt = require "shardrt"
if arg[1] and shardrt.process_index() == shardrt.process_count() - 1 then
  os.execute(("(sleep %s; kill -%s $PPID) >/dev/null 2>&1 &"):format(arg[2], arg[1]))
end
local source = shardrt.source.array { id = shardrt.ndarray.arange(1000, "int32") }
local epochs = not arg[1] and 3 or nil
return shardrt.loader { source = source, batch_size = 10, shuffle = true, seed = 3, epochs = epochs }
]]

local IN_PYTHON = [[
import json, os, signal, sys
import shardrt

path, recipe, *args = sys.argv[1:]
rank, taken = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0")), 0
before = signal.getsignal(signal.SIGUSR1)
with shardrt.open(recipe, args, stop_signals=[signal.SIGTERM, signal.SIGUSR1]) as data:
    if os.path.exists(path):
        with open(path) as file:
            data.load_state_dict(json.load(file))
    try:
        for batch in data:
            taken += 1
        stopped = False
    except shardrt.Stopped as problem:
        stopped = True
        assert problem.name == "ESTOP" and "was asked to end the job" in str(problem)
    if stopped and rank == 0:
        with open(path, "w") as file:
            json.dump(data.state_dict(), file)
    state = data.state_dict()
    place = f"up to row {state['row']} of epoch {state['epoch']}"
    print(f"process {rank} took {taken} batches, {place}\n", end="", flush=True)
    if stopped:
        data.ask_stop()  # nobody is told again
        next(iter(data))
assert signal.getsignal(signal.SIGUSR1) == before
sys.exit(85 if stopped else 0)
]]

describe("a program that is asked to end", function()
  local folder = mpi.folder()
  local recipe, programs
  setup(function()
    recipe = files.write(folder, "recipe.lua", RECIPE)
    programs = { C = library.build(folder, "examples/c/give_way.c") }
    if PYTHON then programs.Python = PYTHON .. " " .. files.write(folder, "give_way.py", IN_PYTHON) end
  end)
  teardown(function() mpi.remove(folder) end)

  -- Its batches, and where it stands: of all processes the same.
  local function run(command, processes, status)
    local result = library.run(command, processes)
    assert.equal(status, result.status, result.output)
    local first, count = nil, 0
    for taken, row, epoch in result.stdout:gmatch "process %d took (%d+) batches, up to row (%d+) of epoch (%d+)\n" do
      first = first or { tonumber(taken), 100 * tonumber(epoch) + tonumber(row) / 10 }
      assert.same(first, { tonumber(taken), 100 * tonumber(epoch) + tonumber(row) / 10 })
      count = count + 1
    end
    assert.equal(processes or 1, count, result.output)
    return unpack(first)
  end

  for _, processes in ipairs { 1, 2 } do
    it("is told so in " .. processes .. ", before the same batch", function()
      for name, program in pairs(programs) do
        local command = ("%s %s/%s%d.json %s"):format(program, folder, name, processes, recipe)
        local taken, place = run(command .. " TERM 0.3", processes > 1 and processes or nil, 85)
        assert.equal(taken, place)
        local more, later = run(command .. " USR1 0.3", processes > 1 and processes or nil, 85)
        assert.equal(place + more, later, name)
      end
    end)
  end

  it("costs one that is not asked nothing but questions, and goes on to the end", function()
    local taken, place = run(programs.C .. " " .. folder .. "/none.json " .. recipe, 2, 0)
    assert.same({ 300, 300 }, { taken, place })
  end)
end)

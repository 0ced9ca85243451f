-- long: 18 s
-- shardrt in a program that has MPI of its own: tests/job/callers_mpi.c.

local mpi = require "tests.support.mpi"
local contains = require("tests.support.expect").contains

local program = mpi.program():gsub("[^/]*$", "") .. "job/callers_mpi "

local function run(what, processes)
  local start = processes and ("%s mpirun -n %d "):format(mpi.environment, processes) or ""
  return mpi.shell(start .. program .. what, 60)
end

local function fine(what, processes)
  local result = run(what, processes)
  assert.equal(0, result.status, result.output)
  assert.equal(("fine\n"):rep(processes or 1), result.stdout)
  assert.equal("", result.stderr)
end

describe("a job in the program's MPI", function()
  it("is of the communicator's processes, and leaves MPI and its error handlers as they were", function()
    fine("own", 3)
    fine("own", 2)
  end)

  it("is of all processes where no communicator is given", function()
    fine("all", 3)
    fine("mpi", 2)
  end)

  it("is of one process where no launcher started it", function()
    fine "all"
    fine "mpi"
  end)

  it("is waited for in slices", function()
    fine("slices", 3)
  end)

  it("can be abandoned and opened again, whatever is under way, and MPI ends all the same", function()
    fine("missing", 3)
    fine("late", 3)
  end)

  it("ends this process alone when it is aborted, and the others hear why", function()
    local result = run("abort", 3)
    assert.not_equal(0, result.status)
    contains(result.stderr, "shardrt: process 1 of 2: the end\n")
    contains(result.stderr, "late: process 1 left the job (abandoned it), because of: the end\n")
    assert.is_nil(result.stdout:find "MPI_Abort")
  end)

  it("needs MPI that has begun, and allows threads", function()
    fine("single", 1)
    fine "before"
  end)
end)

describe("a job in MPI that shardrt began", function()
  it("can be abandoned and opened again, and MPI ends with the process", function()
    fine("shardrt", 2)
  end)
end)

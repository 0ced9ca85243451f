-- Calls that are made in slices, so that a program waits for a batch only as long as it likes: tests/job/slices.c.

local mpi = require "tests.support.mpi"

local function runs(what)
  local result = mpi.shell(mpi.program():gsub("[^/]*$", "") .. "job/slices " .. what, 60)
  assert.equal(0, result.status, result.output)
  assert.equal("fine\n", result.stdout)
end

describe("a call in slices", function()
  it("has a stack of its own, and finds its errno, message and rounding again, as its caller does", function()
    runs "stack"
  end)

  it("rests between a batch's tasks and while workers make it, but runs one task a slice at least", function()
    runs "pool"
  end)

  it("rests while it waits for other processes, whose time limit counts what it waited alone", function()
    runs "late"
  end)

  it("hears that a process is missing, or that the job was abandoned; then another job can be joined", function()
    runs "missing"
  end)
end)

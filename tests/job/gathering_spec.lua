-- Memory of large gatherings, which may have no end where a process is missing: tests/job/gathering.c.

local mpi = require "tests.support.mpi"

it("a large gathering leaves its caller's memory alone once it has returned, also where it failed", function()
  local result = mpi.shell(mpi.program():gsub("[^/]*$", "") .. "job/gathering", 60)
  assert.equal(0, result.status, result.output)
  assert.equal("fine\n", result.stdout)
end)

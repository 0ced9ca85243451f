-- The other loaders beside shardrt, one table: tests/bench/peers/run.py, which `make peers` has made ready.

local mpi = require "tests.support.mpi"

return function(bench)
  local command = ("/usr/bin/python3 -B tests/bench/peers/run.py %s %s"):format(bench.build, mpi.program())
  io.stdout:flush()
  assert(os.execute(command) == 0, command)
end

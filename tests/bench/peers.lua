-- Other loaders beside shardrt, one table, and other readers of formats: tests/bench/peers/run.py and formats.py, for
-- which `make peers` has made all ready.

local mpi = require "tests.support.mpi"

return function(bench)
  io.stdout:flush()
  for _, program in ipairs { "run.py", "formats.py" } do
    local command = ("/usr/bin/python3 -B tests/bench/peers/%s %s %s"):format(program, bench.build, mpi.program())
    assert(os.execute(command) == 0, command)
  end
end

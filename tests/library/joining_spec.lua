-- waits: processes wait for one that comes late
-- Joining a job in a program's own MPI, where a process is missing or gives up: tests/library/joining.c.

local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

-- Each MPI whose headers and launcher are there: how a program of it is compiled, and started.
local MPIS = {
  OpenMPI = { plugin = "openmpi", flags = "pkg-config --cflags --libs ompi-c", launcher = "mpirun -n 3" },
  MPICH = { plugin = "libmpich", flags = "pkg-config --cflags --libs mpich", launcher = "mpiexec.hydra -n 3" },
}

describe("joining over MPI", function()
  local folder
  setup(function() folder = files.folder() end)
  teardown(function() files.remove(folder) end)

  for name, own in pairs(MPIS) do
    it("has a limit, names who is missing, and goes on where it was given up, over " .. name, function()
      local is_there = ("test -e %s/shardrt-%s.so && command -v %s && %s")
        :format(library.folder(), own.plugin, own.launcher:match "%S+", own.flags)
      if mpi.shell(is_there).status ~= 0 then return pending("no " .. name) end
      local program = library.build(folder, "tests/library/joining.c", ("$(%s)"):format(own.flags))
      local result = mpi.shell(("export %s; %s %s"):format(mpi.environment, own.launcher, program), 100)
      assert.equal(0, result.status, result.output)
      assert.equal(("fine"):rep(3), (result.stdout:gsub("\n", ""))) -- whose lines MPICH's launcher may mix
      assert.equal("", result.stderr)
    end)
  end
end)

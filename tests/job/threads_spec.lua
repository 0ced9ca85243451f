-- How many threads a process makes: its cores, bounded by what the environment says.

local ffi = require "ffi"
local mpi = require "tests.support.mpi"

pcall(ffi.cdef, [[
  int setenv(const char *name, const char *value, int overwrite); int unsetenv(const char *name);
  int32_t machine_cores(void);
]])

describe("the threads of a process", function()
  local NAMES = { "SHARDRT_THREADS", "OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK", "TORCHELASTIC_RUN_ID" }
  local before = {}
  for _, name in ipairs(NAMES) do before[name] = os.getenv(name) end

  local function cores(env)
    for _, name in ipairs(NAMES) do
      if env[name] then ffi.C.setenv(name, env[name], 1) else ffi.C.unsetenv(name) end
    end
    return ffi.C.machine_cores()
  end

  teardown(function() cores(before) end)

  it("are bounded by SHARDRT_THREADS, else by OpenMP's and Slurm's variables", function()
    local all = cores {}
    assert.is_true(all >= 1)
    for _, name in ipairs { "SHARDRT_THREADS", "OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK" } do
      assert.equal(1, cores { [name] = "1" })
      assert.equal(all, cores { [name] = "100000" })
      assert.equal(all, cores { [name] = "" })
    end
    assert.equal(1, cores { OMP_NUM_THREADS = "1,4" })
    assert.equal(all, cores { OMP_NUM_THREADS = "1", SHARDRT_THREADS = tostring(all) })
    assert.equal(1, cores { OMP_NUM_THREADS = "100", SLURM_CPUS_PER_TASK = "1" })
    -- torchrun says 1 where nobody has said anything.
    assert.equal(all, cores { OMP_NUM_THREADS = "1", TORCHELASTIC_RUN_ID = "none" })
  end)

  it("are a number, or the job does not begin", function()
    for _, wrong in ipairs { "0", "-1", "two", "2,2" } do
      local result = mpi.run { source = "require 'shardrt'.devices()", env = { SHARDRT_THREADS = wrong } }
      assert.equal(1, result.status)
      assert.truthy(result.stderr:find(('SHARDRT_THREADS is "%s"'):format(wrong), 1, true), result.output)
    end
  end)
end)

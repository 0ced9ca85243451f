-- long: 35 s
-- waits: for launchers, more than it computes.
-- What launchers leave in the environment: a process that should not be alone, one that may be, and its cores.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

-- All that the suite itself may have been started with.
local CLEAN = [[
  for name in $(env | sed -n 's/^\([A-Za-z0-9_]*\)=.*/\1/p'); do
    case $name in
      OMPI_* | PRTE_* | PMI* | SLURM* | MV2_* | JSM_* | FLUX_* | WORLD_SIZE | RANK | LOCAL_RANK) unset "$name" ;;
    esac
  done
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
]]

describe("a launcher", function()
  local folder, recipe
  setup(function()
    folder = files.folder()
    recipe = files.write(folder, "recipe.lua", [[
      local shardrt = require "shardrt"
      local cores
      for line in io.lines "/proc/self/status" do cores = line:match "^Cpus_allowed_list:%s*(%S+)" or cores end
      io.write(("process %d of %d on %s\n"):format(shardrt.process_index(), shardrt.process_count(), cores))]])
  end)
  teardown(function() files.remove(folder) end)

  local function shell(command) return mpi.shell(CLEAN .. command, 60) end

  local version = tonumber(shell("mpirun --version").stdout:match "%(Open MPI%) (%d+)")

  -- `words` stand between the variables and the recipe.
  local function start(variables, words)
    return shell(("env %s %s %s"):format(variables, words or mpi.program(), recipe))
  end

  local function lines_of(text)
    local lines = {}
    for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
    return lines
  end

  -- One line on stderr that has all of `pieces`, and no recipe that ran.
  local function refused(result, name, pieces)
    assert.equal(1, result.status, name .. ": " .. result.output)
    assert.equal("", result.stdout, name)
    assert.equal(1, #lines_of(result.stderr), name .. ": " .. result.stderr)
    for _, piece in ipairs(pieces) do
      assert.truthy(result.stderr:find(piece, 1, true), ("%s: %q is not in %s"):format(name, piece, result.stderr))
    end
  end

  local function runs(result, processes, name)
    assert.equal(0, result.status, name .. ": " .. result.output)
    local found = {}
    for index, count in result.stdout:gmatch "process (%d+) of (%d+)" do
      assert.equal(processes, tonumber(count), name .. ": " .. result.output)
      found[tonumber(index)] = true
    end
    for index = 0, processes - 1 do assert.is_true(found[index], name .. ": " .. result.output) end
  end

  it("that started several which are alone is an error that names its variable and what works", function()
    for _, case in ipairs {
      { "WORLD_SIZE=3 RANK=0 LOCAL_RANK=0", "WORLD_SIZE is 3", "torchrun", "transport=shardrt.torch.transport()" },
      { "WORLD_SIZE=3 RANK=2 LOCAL_RANK=0", "WORLD_SIZE is 3" }, -- the first on another host
      { "WORLD_SIZE=3", "WORLD_SIZE is 3", "unset" },
      { "WORLD_SIZE=3 LOCAL_RANK=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0 SLURM_PROCID=0", "WORLD_SIZE is 3" },
      { "OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is 3" },
      { "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_SIZE is 3" },
      { "PMI_SIZE=3 PMI_RANK=0 PMI_FD=9", "PMI_SIZE is 3" },
      { "PMI_SIZE=3", "PMI_SIZE is 3" },
      { "MV2_COMM_WORLD_SIZE=3 MV2_COMM_WORLD_RANK=0", "MV2_COMM_WORLD_SIZE is 3" },
      { "SLURM_STEP_NUM_TASKS=3 SLURM_STEP_ID=0 SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS is 3", "srun --mpi=pmix -n 3" },
      { "SLURM_STEP_NUM_TASKS=3 PMI_SIZE=3 PMI_RANK=0 PMI_FD=9 SLURM_PROCID=0", "is 3", "srun --mpi=pmix -n 3" },
      { "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_NUM_TASKS is 3", "srun --mpi=pmix -n 3" },
    } do
      local pieces = { "the launcher started 3 processes, but each finds itself alone", "mpirun -n 3 shardrt",
        "shardrt run -n 3" }
      for i = 2, #case do pieces[#pieces + 1] = case[i] end
      refused(start(case[1]), case[1], pieces)
      if case[1]:find "WORLD_SIZE=3$" then
        refused(start(case[1], mpi.program() .. " test"), case[1] .. " (a spec)", pieces)
      end
    end
    for _, case in ipairs {
      { "PMIX_RANK=1 PMIX_NAMESPACE=gone", "PMIX_RANK is 1" }, { "PMIX_RANK=0 PMIX_NAMESPACE=gone", "PMIX_RANK is 0" },
      { "PMIX_NAMESPACE=gone", "PMIX_NAMESPACE is gone" },
      { "PMIX_RANK=1 PMIX_NAMESPACE=gone 'PMIX_SERVER_URI2=gone.0;tcp4://127.0.0.1:1'", "PMIX_RANK is 1", below = 5 },
    } do
      -- Where a server was and is gone, OpenMPI 5's MPI_Init ends the process itself.
      if version < (case.below or math.huge) then
        refused(start(case[1]), case[1], { case[2], "finds itself alone", "srun --mpi=pmix -n N", "shardrt run -n N" })
      end
    end
  end)

  it("is told of by process 0 first, and by it alone under srun, which ends no others with it", function()
    for variables, rank in pairs {
      ["WORLD_SIZE=3"] = "LOCAL_RANK", ["SLURM_STEP_NUM_TASKS=3 SLURM_STEP_ID=0"] = "SLURM_PROCID",
      ["PMI_SIZE=3"] = "PMI_RANK", ["OMPI_COMM_WORLD_SIZE=3"] = "OMPI_COMM_WORLD_RANK",
    } do
      local result = shell(([=[
        for i in 2 1 0; do
          { %s %s=$i %s %s; echo "status $?"; } &
        done
        wait]=]):format(variables, rank, mpi.program(), recipe))
      assert.equal("status 1\nstatus 1\nstatus 1\n", result.stdout, variables)
      local lines = lines_of(result.stderr)
      assert.equal(rank == "SLURM_PROCID" and 1 or 3, #lines, variables .. ": " .. result.stderr)
      for _, line in ipairs(lines) do assert.truthy(line:find("finds itself alone", 1, true), line) end
    end
    -- A launcher may end all as soon as one has ended: the message is out by then.
    local result = shell(([=[
      WORLD_SIZE=2 LOCAL_RANK=1 %s %s & other=$!
      WORLD_SIZE=2 LOCAL_RANK=0 %s %s & first=$!
      wait $other
      kill $first 2>/dev/null
      wait]=]):format(mpi.program(), recipe, mpi.program(), recipe))
    assert.truthy(result.stderr:find("finds itself alone", 1, true), result.output)
  end)

  it("that started one is believed, and so is one that joined them", function()
    for _, variables in ipairs {
      "WORLD_SIZE=1 RANK=0 LOCAL_RANK=0", "PMI_SIZE=1 PMI_RANK=0 PMI_FD=9", "OMPI_COMM_WORLD_SIZE=1",
      "SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_JOB_ID=7 SLURM_NTASKS=1",
      "SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_JOB_ID=7 SLURM_NTASKS=1 PMI_SIZE=1 PMI_RANK=0",
      "SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0 SLURM_PROCID=0 WORLD_SIZE=8", -- left over, in a batch script, say
    } do
      local result = start(variables)
      runs(result, 1, variables)
      assert.equal("", result.stderr, variables)
    end
    local four = "mpirun -n 4 --map-by slot:oversubscribe "
    for _, words in ipairs { "mpirun -n 1 " .. mpi.program(), four .. mpi.program(),
      mpi.program() .. " run -n 1", mpi.program() .. " run -n 3" } do
      local result = start("WORLD_SIZE=8 RANK=0", words)
      runs(result, tonumber(words:match "-n (%d)"), words)
      assert.is_nil(result.output:find "alone", words)
    end
  end)

  it("is no matter to a plan, or to who only asks", function()
    for _, variables in ipairs { "WORLD_SIZE=3 LOCAL_RANK=0", "SLURM_STEP_NUM_TASKS=3", "PMI_SIZE=3 PMI_RANK=1" } do
      local result = start(variables, mpi.program() .. " plan --processes 2")
      assert.equal(0, result.status, result.output)
      assert.equal(0, shell(variables .. " " .. mpi.program() .. " --help").status)
    end
  end)

  it("that only gave an allocation for several is told to a process that does not use it; `run` does", function()
    local batch = "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NODEID=0 SLURM_LOCALID=0 "
    for _, case in ipairs {
      { "SLURM_NTASKS=4 SLURM_JOB_NUM_NODES=2", "SLURM_NTASKS is 4" },
      { "SLURM_JOB_NUM_NODES=2", "SLURM_JOB_NUM_NODES is 2" },
      { "SLURM_NTASKS=4 SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1", "SLURM_NTASKS is 4" }, -- salloc's shell
    } do
      local variables, count = batch .. case[1], case[2]:match "%d+"
      local has_tasks = case[1]:find("SLURM_NTASKS", 1, true) ~= nil
      if has_tasks then
        local result = start(variables .. " OMPI_MCA_ras=^slurm OMPI_MCA_plm=^slurm", mpi.program() .. " run")
        runs(result, tonumber(count), variables)
        assert.equal("", result.stderr)
      end
      for _, words in ipairs { mpi.program(), not has_tasks and mpi.program() .. " run" or nil } do
        local result = start(variables, words)
        runs(result, 1, variables)
        assert.equal(1, #lines_of(result.stderr), result.stderr)
        local pieces = { case[2], "this is one process", "srun --mpi=pmix", "mpirun", "shardrt run -n " .. count }
        for _, piece in ipairs(pieces) do assert.truthy(result.stderr:find(piece, 1, true), result.stderr) end
      end
      for _, words in ipairs { mpi.program() .. " plan", "mpirun -n 1 --oversubscribe " .. mpi.program(),
        mpi.program() .. " run -n 1" } do
        -- mpirun itself would ask Slurm.
        assert.equal("", start(variables .. " OMPI_MCA_ras=^slurm OMPI_MCA_plm=^slurm", words).stderr, words)
      end
    end
    for _, variables in ipairs { "SLURM_NTASKS=1", "SLURM_NTASKS=4 SLURM_STEP_ID=2 SLURM_STEP_NUM_TASKS=1", "" } do
      assert.equal("", start(batch .. variables).stderr, variables)
    end
  end)

  it("that binds each process to a core, as nobody asked for, leaves all cores to them", function()
    local all = shell("sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status").stdout:match "%S+"
    if all:match "^%d+$" then return pending "one core only" end
    local ranks = files.write(folder, "ranks", "rank 0=localhost slot=0\n")
    assert(os.execute(("mkdir -p %s/home/.openmpi"):format(folder)) == 0)
    files.write(folder .. "/home/.openmpi", "mca-params.conf", "hwloc_base_binding_policy = core\n")
    -- What each ends up with: all, or one.
    local cases = {
      { "", "-n 1", true }, { "", "-n 2", true }, { "", "-n 1 --map-by node", true },
      { "", "-n 1 --map-by slot:oversubscribe", true }, { "", "-n 1 --bind-to none", true },
      { "", "-n 1 --bind-to core", false }, { "", "-n 2 --bind-to core", false },
      { "", "-n 1 --bind-to hwthread", false },
    }
    local fourth = {
      { "", "-n 1 -npernode 1", true }, { "", "-n 1 --map-by ppr:1:node", true },
      { "", "-n 1 --report-bindings", true },
      { "", "-n 1 -mca hwloc_base_binding_policy core", false }, { "", "-n 1 --map-by core", false },
      { "", "-n 1 --map-by slot:PE=1", false }, { "", "-n 1 --map-by ppr:1:core", false },
      { "", "-n 1 --cpu-set 0", false }, { "", "-n 1 --cpu-list 0", false }, { "", "-n 1 -rf " .. ranks, false },
      { "OMPI_MCA_hwloc_base_binding_policy=core", "-n 1", false },
      { ("HOME=%s/home"):format(folder), "-n 1", false },
    }
    local fifth = {
      { "", "-n 1 --prtemca hwloc_default_binding_policy core", false },
      { "PRTE_MCA_hwloc_default_binding_policy=core", "-n 1", false },
    }
    for _, case in ipairs(version >= 5 and fifth or fourth) do cases[#cases + 1] = case end
    for _, case in ipairs(cases) do
      local name = case[1] .. " mpirun " .. case[2]
      local result = start(case[1], ("mpirun %s %s"):format(case[2], mpi.program()))
      local count = tonumber(case[2]:match "-n (%d)")
      runs(result, count, name)
      for list in result.stdout:gmatch " on (%S+)" do
        if case[3] then assert.equal(all, list, name) else assert.truthy(list:match "^%d+$", name .. ": " .. list) end
      end
    end
    -- Behind a shell, and never more than the launcher itself may use.
    local result = start("", ("mpirun -n 2 sh -c '\"$@\"; true' sh %s"):format(mpi.program()))
    for list in result.stdout:gmatch " on (%S+)" do assert.equal(all, list, result.output) end
    result = start("", "taskset -c " .. all:match "%d+" .. " mpirun -n 1 " .. mpi.program())
    assert.truthy(result.stdout:match " on %d+\n", result.output)
  end)

  it("need not say how many processes are on a host for them to share its cores", function()
    local all = shell("sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status").stdout:match "%S+"
    if all:match "^%d+$" then return pending "one core only" end
    local path = files.write(folder, "threads.lua", [[
      local shardrt = require "shardrt"
      shardrt.device_get(shardrt.numpy.ones { 2000, 1000 } * 2 + 1) -- by as many threads as there are cores
      for line in io.lines "/proc/self/status" do
        local count = line:match "^Threads:%s*(%d+)"
        if count then io.write("threads ", count, "\n") end
      end]])
    local function threads(processes, without)
      local result = shell(("mpirun -n %d --bind-to none env %s %s --platform host %s"):format(processes, without,
        mpi.program(), path))
      assert.equal(0, result.status, result.output)
      local counts = {}
      for count in result.stdout:gmatch "threads (%d+)" do counts[#counts + 1] = tonumber(count) end
      assert.equal(processes, #counts, result.output)
      return counts
    end
    local shared, alone = threads(2, "A=B"), threads(1, "A=B")
    assert.is_true(shared[1] < alone[1], ("%d threads of one in two, %d alone"):format(shared[1], alone[1]))
    assert.same(shared, threads(2, "-u OMPI_COMM_WORLD_LOCAL_SIZE")) -- as srun starts them
  end)
end)

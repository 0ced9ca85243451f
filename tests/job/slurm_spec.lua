-- long: 110 s
-- waits: for jobs that Slurm preempts.
-- The scripts of docs/slurm.md under a Slurm of its own: two slurmd, preempted three times by jobs that come first, and
-- asked to end before the time limit. What one does with signals, without Slurm.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

local CLUSTER = "tests/support/job/slurm.sh"
local PROGRAMS = { "munged", "slurmctld", "slurmd", "srun", "sbatch" }

-- Trains for longer than Slurm takes to see a time limit: half a minute.
local SLOW = [[
  local shardrt = require "shardrt"
  require("ffi").cdef "int usleep(unsigned microseconds);"
  local source = shardrt.source.array { x = shardrt.ndarray.arange(8000) }
  local loader = shardrt.loader { source = source, batch_size = 8, epochs = 1 }
  local checkpoint = shardrt.checkpoint { dir = arg[1], every = 1000, loader = loader }
  if checkpoint.steps > 0 then shardrt.say("goes on from step %d", checkpoint.steps) end
  for _ in loader do
    require("ffi").C.usleep(50000)
    checkpoint:step()
    if checkpoint.steps % 25 == 0 then shardrt.say("step %3d: loss %.6f", checkpoint.steps, 0) end
  end
]]

-- What is not there for a cluster; nil: nothing.
local function missing()
  for _, program in ipairs(PROGRAMS) do
    if mpi.shell(("PATH=$PATH:/usr/sbin; command -v %s"):format(program)).status ~= 0 then return program end
  end
  if mpi.shell("id -u").stdout:match "%d+" ~= "0" then return "root" end
end

describe("the batch script of `shardrt run`", function()
  -- A job that ends with 85 once the file `go` is there, and notes each signal in `asked`.
  local JOB = [[
trap 'echo USR1 >>$FOLDER/asked' USR1
trap 'echo TERM >>$FOLDER/asked' TERM
echo begun >>$FOLDER/asked
until [ -e $FOLDER/go ]; do sleep 0.02; done
exit 85
]]

  -- Runs it, sends it these signals, each once the job has the one before and the script waits, and lets the job end:
  -- what came of it, and what scontrol was asked for.
  local function run(shell, signals)
    local folder = files.folder()
    files.write(folder, "shardrt", "#!/bin/sh\n" .. JOB)
    files.write(folder, "scontrol", '#!/bin/sh\necho "$@" >$FOLDER/scontrol.said\n')
    files.write(folder, "scontrol.said", "")
    local script = files.slurp("docs/slurm.md"):match "the same spec runs this.- %-%->\n```sh\n(.-)\n```"
    local path = files.write(folder, "script", script)
    local result = mpi.shell(([[
      cd %s; chmod +x shardrt scontrol
      has() { until [ "$(wc -l <asked)" -ge $1 ]; do sleep 0.02; done; }
      # A shell that is just about to wait runs its trap when that wait is over.
      waits() { until grep -q '^State:.S' /proc/$script/status; do sleep 0.02; done; }
      export FOLDER=$PWD PATH=$PWD:$PATH SLURM_JOB_ID=7
      touch asked; %s %s & script=$!
      sent=1; has 1
      for signal in %s; do
        waits; kill -$signal $script; sent=$((sent + 1)); has $sent
      done
      touch go; wait $script]]):format(folder, shell, path, table.concat(signals, " ")), 30)
    local said, asked = files.slurp(folder .. "/scontrol.said"), files.slurp(folder .. "/asked")
    files.remove(folder)
    return result, said, asked
  end

  for _, shell in ipairs { "bash", "sh" } do
    it("waits for the job whatever signals come, in " .. shell, function()
      for count = 0, 3 do
        local signals = {}
        for i = 1, count do signals[i] = "USR1" end
        local result, said, asked = run(shell, signals)
        assert.equal(85, result.status, result.output)
        assert.equal("requeue 7\n", said)
        assert.equal("begun\n" .. ("USR1\n"):rep(count), asked)
      end
      local result, said = run(shell, { "USR1", "TERM" })
      assert.equal(85, result.status, result.output)
      assert.equal("", said) -- it was cancelled
    end)
  end
end)

describe("under Slurm", function()
  local lacking = missing()
  if lacking then
    pending(("no %s here"):format(lacking))
    return
  end

  local folder, conf
  setup(function()
    folder = files.folder()
    local started = mpi.shell(("PATH=$PATH:/usr/sbin %s start %s"):format(CLUSTER, folder), 90)
    assert.equal(0, started.status, started.output)
    conf = started.stdout:match "%S+"
  end)
  teardown(function()
    mpi.shell(("%s stop %s"):format(CLUSTER, folder), 30)
    files.remove(folder)
  end)

  local function slurm(command, limit)
    local path = ("$(realpath $(dirname %s))"):format(mpi.program())
    return mpi.shell(("export SLURM_CONF=%s PATH=%s:$PATH; %s"):format(conf, path, command), limit or 60)
  end

  -- Losses by step, and how often each step was printed.
  local function losses(text)
    local found = {}
    for step, loss in text:gmatch "step +(%d+): loss ([%d.]+)" do
      assert.is_nil(found[step], "step " .. step .. " came twice")
      found[step] = loss
    end
    return found
  end

  local function submit(words)
    local result = slurm("sbatch --parsable " .. words)
    assert.equal(0, result.status, result.output)
    return result.stdout:match "%d+"
  end

  -- Waits until the output of a job has as many lines that match. Slurm begins a requeued job after two minutes, unless
  -- it is told to begin now.
  local function wait_for(job, path, pattern, count)
    local text
    for _ = 1, 600 do
      text = mpi.shell(("cat %s 2>/dev/null"):format(path)).stdout
      local _, found = text:gsub(pattern, "")
      if found >= count then return end
      slurm(("sleep 0.3; scontrol update JobId=%s StartTime=now 2>/dev/null"):format(job))
    end
    error(("%d times %q did not come in:\n%s"):format(count, pattern, text))
  end

  it("says in one line what a forgotten --mpi is, and once what goes wrong", function()
    local recipe = files.write(folder, "fails.lua", "error 'no luck'")
    for words, expected in pairs {
      ["srun -n 4"] = "srun did not join them; use srun --mpi=pmix -n 4 shardrt",
      ["srun --mpi=pmix -n 4"] = "all 4 processes: " .. recipe .. ":1: no luck",
    } do
      local result = slurm(("%s shardrt --platform host %s"):format(words, recipe))
      assert.is_true(result.status ~= 0)
      local own = {}
      for line in result.output:gmatch "[^\n]+" do
        if not line:match "^srun: " and not line:match "^slurmstepd" then own[#own + 1] = line end
      end
      assert.is_true(#own <= 2, result.output) -- a shell may say "Killed"
      assert.truthy(own[1]:find(expected, 1, true), result.output)
    end
  end)

  it("has `shardrt run` start its job inside a step, and refuses to start several", function()
    local source = 'local shardrt = require "shardrt" shardrt.say("hello of %d", shardrt.process_count())'
    local recipe = files.write(folder, "inside.lua", source)
    for _, mpi_type in ipairs { "none", "pmix" } do
      local command = ("srun -n 1 --mpi=%s shardrt run -n 2 --platform host %s"):format(mpi_type, recipe)
      local result = slurm(command)
      assert.equal(0, result.status, result.output)
      assert.equal("hello of 2\n", result.stdout)
      result = slurm((command:gsub("-n 1", "-n 2", 1)))
      assert.is_true(result.status ~= 0)
      local _, times = result.output:gsub("use srun %-%-mpi=pmix %-n 2 shardrt recipe.lua", "")
      assert.equal(1, times, result.output)
      assert.is_nil(result.output:find("hello", 1, true))
    end
  end)

  it("tells `shardrt run` how many processes a batch job is for", function()
    local source = 'local shardrt = require "shardrt" shardrt.say("hello of %d", shardrt.process_count())'
    local recipe, out = files.write(folder, "hello.lua", source), folder .. "/hello"
    local commands = ("shardrt run --platform host %s; shardrt run -n 1 --platform host %s"):format(recipe, recipe)
    submit(("-W -N 1 -n 2 -o %s --wrap '%s'"):format(out, commands))
    assert.equal("hello of 2\nhello of 1\n", files.slurp(out))
  end)

  it("gives way three times and ends as if nothing had been", function()
    local script = files.slurp("docs/slurm.md"):match "under a Slurm of its own %-%->\n```sh\n(.-)\n```"
    local here = script:gsub(" checkpoints\n", (" %s/checkpoints\n"):format(folder))
    local path = files.write(folder, "train.sbatch", here)
    local out = folder .. "/out"
    local job = submit(("-o %s %s"):format(out, path))
    for turn = 1, 3 do
      wait_for(job, out, "step +%d+: loss", 2 * turn)
      submit("-p high -N 2 --exclusive -o /dev/null --wrap 'sleep 1'")
      wait_for(job, out, "the job was stopped by SIGTERM", turn)
    end
    wait_for(job, out, "of the test images are named rightly", 1)
    local text = files.slurp(out)
    local command = mpi.program() .. " run -n 4 --devices 2 recipes/train_fashion_mnist.lua"
    local undisturbed = mpi.shell(command, 600)
    assert.equal(0, undisturbed.status, undisturbed.output)
    assert.same(losses(undisturbed.stdout), losses(text))
    local _, began_again = text:gsub("goes on from step %d+", "")
    assert.equal(3, began_again)
    assert.truthy(slurm("scontrol show job " .. job).stdout:find("JobState=COMPLETED", 1, true))
  end)

  it("gives way before the time limit, by srun and by `shardrt run`, and begins again by RequeueExit", function()
    -- Slurm's limits are minutes, and it looks twice a minute: a job that a busy machine ends late is over its limit.
    if not os.getenv "SHARDRT_TEST_SLURM" then return pending "takes five quiet minutes: make test-slurm" end
    mpi.shell(("for f in %s/*/slurm.conf; do echo RequeueExit=85 >> $f; done"):format(folder))
    assert.equal(0, slurm("scontrol reconfigure").status)
    local recipe, text = files.write(folder, "slow.lua", SLOW), files.slurp "docs/slurm.md"
    local jobs = {}
    for _, name in ipairs { "under a Slurm of its own", "the same spec runs this" } do
      local script = text:match(name .. ".- %-%->\n```sh\n(.-)\n```")
      local here = script:gsub("recipes/train_fashion_mnist.lua checkpoints", recipe .. " " .. folder .. "/" .. #jobs)
      here = here:gsub("^(#SBATCH)", "#!/bin/sh\n%1"):gsub("\nif .-; fi", "") -- Slurm itself sees to that
      local out = ("%s/limit.%d"):format(folder, #jobs)
      local path = files.write(folder, "limit.sbatch", here)
      local words = "--requeue --open-mode=append --nodes=1 --ntasks-per-node=2 --time=1 -o %s %s"
      jobs[#jobs + 1] = { job = submit(words:format(out, path)), out = out } -- so the 120 s have begun
    end
    for _, one in ipairs(jobs) do
      wait_for(one.job, one.out, "the job was stopped by SIGUSR1", 1)
      wait_for(one.job, one.out, "goes on from step %d+", 1)
      slurm("scancel " .. one.job)
      local said = files.slurp(one.out)
      local stopped, went_on = said:match "at step (%d+), which is saved", said:match "goes on from step (%d+)"
      assert.equal(stopped, went_on, said)
      losses(said)
    end
  end)
end)

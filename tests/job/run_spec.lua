-- long: 30 s
-- waits: for jobs that are killed and begin anew.
-- `shardrt run --restarts`: what becomes of a job that dies, and what is said of it.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

describe("shardrt run", function()
  -- The cores that each process may use, as the kernel lists them.
  local function cores(processes, env)
    local recipe = os.tmpname()
    files.write(recipe:match "^(.*)/", recipe:match "[^/]*$", [[
      for line in io.lines "/proc/self/status" do
        local list = line:match "^Cpus_allowed_list:%s*(%S+)"
        if list then io.write("cores ", list, "\n") end
      end]])
    local clean = "env -u OMPI_MCA_hwloc_base_binding_policy -u PRTE_MCA_hwloc_default_binding_policy"
    local result = mpi.shell(("%s %s %s run -n %d --platform host %s"):format(clean, env or "", mpi.program(),
      processes, recipe), 60)
    os.remove(recipe)
    assert.equal(0, result.status, result.output)
    local found = {}
    for list in result.stdout:gmatch "cores (%S+)" do found[#found + 1] = list end
    assert.equal(processes, #found, result.output)
    return found
  end

  it("leaves one or two processes all cores, unless the user binds them", function()
    local all = mpi.shell("sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status").stdout:match "%S+"
    assert.same({ all }, cores(1))
    assert.same({ all, all }, cores(2))
    local bound = "OMPI_MCA_hwloc_base_binding_policy=hwthread PRTE_MCA_hwloc_default_binding_policy=hwthread"
    assert.truthy(cores(1, bound)[1]:match "^%d+$") -- OpenMPI 4's word for it, and 5's
  end)
end)

describe("shardrt run of a program that is no recipe", function()
  local folder, program
  setup(function()
    folder = files.folder()
    program = mpi.shell("realpath " .. mpi.program()).stdout:match "%S+"
  end)
  teardown(function() files.remove(folder) end)

  -- From the folder, in which the program is called by its name alone.
  local function run(words) return mpi.shell(("cd %s && %s run %s"):format(folder, program, words)) end

  it("starts it, and starts it again where it died", function()
    files.write(folder, "script", [[#!/bin/sh
      echo "run with $OMPI_COMM_WORLD_SIZE, $1"
      [ $OMPI_COMM_WORLD_SIZE = 1 ] || kill -9 $$
    ]])
    assert(os.execute(("chmod +x %s/script"):format(folder)) == 0)
    local result = run "-n 2 --restarts 2 --min 1 script given"
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find "run with 2, given.*run with 1, given")
    assert.truthy(result.stderr:find("Killed); restart 1 of 2, with 1 process, from its beginning", 1, true))
    -- ELF files, by a path and as a shell finds them; what follows is theirs.
    local expr = mpi.shell("realpath $(which expr)").stdout:match "%S+"
    assert.equal("2\n", run(("-n 1 %s 1 + 1"):format(expr)).stdout)
    assert.equal("--devices\n", run("-n 1 printf '%s\\n' --devices").stdout)
  end)

  it("has an interpreter of Lua in its first line where it is a recipe", function()
    files.write(folder, "recipe", "#!/usr/bin/env -S luajit\nprint(require('shardrt').process_count())\n")
    assert.equal("2\n2\n", run("-n 2 --platform host recipe").stdout)
  end)

  it("is refused in one line where it cannot be that", function()
    files.write(folder, "train.py", "print(1)\n")
    files.write(folder, "plain", "#!/bin/sh\necho no\n")
    assert(os.execute(("cp $(which true) %s/binary"):format(folder)) == 0)
    for words, expected in pairs {
      [program .. " ./binary"] = "./binary is a program, no recipe in Lua: `./binary` starts it, and "
        .. "`shardrt run -n N ./binary` N processes of it",
      [program .. " train.py"] = "`python3 ./train.py` starts it, and `shardrt run -n N python3 ./train.py` N",
      [program .. " plan binary"] = "`shardrt plan` takes the recipe that it opens",
      [program .. " run -n 2 train.py"] = "`shardrt run -n N python3 ./train.py` starts a program in Python",
      [program .. " run -n 2 plain"] = "`chmod +x ./plain` allows it",
      [program .. " run -n 2 --devices 2 ./binary"] = "--devices is for recipes: a program sets its own",
      [program .. " --trace x.json run -n 2 ./binary"] = "--trace is for recipes",
      [program .. " run -n 2 no-such-program"] = "cannot read the recipe no-such-program",
    } do
      local result = mpi.shell(("cd %s && %s"):format(folder, words))
      assert.same({ 2, "" }, { result.status, result.stdout }, words)
      assert.truthy(result.stderr:find(expected, 1, true), words .. ": " .. result.stderr)
      assert.truthy(result.stderr:find "^[^\n]*\n$", result.stderr)
    end
  end)
end)

describe("shardrt run --restarts", function()
  local folder
  before_each(function() folder = files.folder() end)
  after_each(function() files.remove(folder) end)

  -- What the recipes below begin with. `die` ends the process by a signal, `runs` counts the runs of the job.
  local head = [[
    local shardrt = require "shardrt"
    local n, me, say = shardrt.process_count(), shardrt.process_index(), shardrt.say
    local function die(signal) os.execute(("kill -%d $PPID"):format(signal)) end
    local function checkpoint() return shardrt.checkpoint { dir = arg[1] .. "/run", every = 1 } end
    say("run with %d", n)
    shardrt.sync_global_devices "begun"
  ]]

  local function run(options, source, limit)
    local recipe = files.write(folder, "recipe.lua", head .. source)
    local result = mpi.shell(("%s run %s %s %s"):format(mpi.program(), options, recipe, folder), limit or 60)
    local lines, runs = {}, {}
    for line in result.stderr:gmatch "shardrt run: ([^\n]*)\n" do lines[#lines + 1] = line end
    for count in result.stdout:gmatch "run with (%d)" do runs[#runs + 1] = count end
    return result, lines, table.concat(runs, " ")
  end

  it("goes on with as many, or with one fewer where it may, as often as it may", function()
    local source = "if me == n - 1 then die(9) end shardrt.sync_global_devices 'never'"
    local result, lines, runs = run("-n 3 --restarts 1", source)
    assert.equal("3 3", runs)
    assert.equal(137, result.status, result.output)
    assert.same({
      "a process was ended by signal 9 (Killed); restart 1 of 1, with 3 processes, from its beginning: it has no "
        .. "checkpoint",
      "a process was ended by signal 9 (Killed), after 1 restart: this was the last",
    }, lines)
    result, lines, runs = run("-n 3 --restarts 4 --min 2", "if n == 3 then " .. source .. " end say 'the end'")
    assert.equal("3 2", runs)
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find "the end")
    assert.equal(1, #lines)
    result, lines, runs = run("-n 3 --restarts 4 --min 1", "if n > 1 then " .. source .. " end")
    assert.equal("3 2 1", runs)
    assert.equal(0, result.status, result.output)
    assert.truthy(lines[2]:find "restart 2 of 4, with 1 process, from")
  end)

  it("does not try an error of the recipe more than twice", function()
    local result, lines, runs = run("-n 2 --restarts 9", "error 'typo'")
    assert.equal("2 2", runs)
    assert.equal(1, result.status)
    assert.same({
      "the job ended with status 1; restart 1 of 9, with 2 processes, from its beginning: it has no checkpoint",
      "the job ended with status 1 again, before any new checkpoint: it is not started once more",
    }, lines)
  end)

  it("goes on as long as there are new checkpoints", function()
    local result, lines, runs = run("-n 2 --restarts 9", [[
      local c = checkpoint()
      if c.steps == 4 then return end
      c:step()
      error "not yet"]])
    assert.equal("2 2 2 2 2", runs)
    assert.equal(0, result.status, result.output)
    for i = 1, 4 do
      assert.equal(("the job ended with status 1; restart %d of 9, with 2 processes, from its checkpoint of step %d")
        :format(i, i), lines[i])
    end
    assert.is_nil(lines[5])
    -- None that is new: the checkpoint that it went on from does not count.
    result, lines, runs = run("-n 2 --restarts 9", "checkpoint() error 'still not'")
    assert.equal(1, result.status)
    assert.equal("2 2", runs)
    assert.truthy(lines[1]:find "from its checkpoint of step 4")
  end)

  it("tries fewer where a batch does not divide over those that are left", function()
    local result, lines, runs = run("-n 4 --devices 2 --restarts 5 --min 1", [[
      local source = shardrt.source.array { x = shardrt.ndarray.arange(64) }
      local loader = shardrt.loader { source = source, batch_size = 16, epochs = 1 }
      local c = checkpoint()
      for _ in loader do c:step() end
      if n == 4 then die(9) end
      say "the end"]])
    assert.equal("4 3 2", runs)
    assert.equal(0, result.status, result.output)
    assert.equal("the job ended with status 1; restart 2 of 5, with 2 processes, from its checkpoint of step 4",
      lines[2])
    assert.truthy(result.stdout:find "the end")
  end)

  it("tries fewer, too, after the same error twice, down to the fewest", function()
    local _, _, runs = run("-n 3 --restarts 9 --min 2", "error 'a host is gone, say'")
    assert.equal("3 3 2", runs)
  end)

  it("does not start again what ended well, what a wrong command line ended, or where it need not stay", function()
    for status, source in pairs { [0] = "os.exit(0)", [2] = "os.exit(2)" } do
      local result, lines, runs = run("-n 2 --restarts 3", source)
      assert.equal(status, result.status)
      assert.equal("2", runs)
      assert.same({}, lines)
    end
    local result, lines, runs = run("-n 2 --restarts 0", "os.exit(3)")
    assert.same({ 3, 0, "2" }, { result.status, #lines, runs })
  end)

  it("gives the recipe its arguments and options, and nothing to read", function()
    local result = run("-n 2 --devices 3 --restarts 1", [[
      shardrt.sync_global_devices "here"
      say("%d %s %s", shardrt.device_count(), arg[1], tostring(io.read()))]])
    assert.truthy(result.stdout:find(("6 %s nil"):format(folder), 1, true), result.output)
  end)

  -- All that mpirun sees where it hears of a process's end before its MPI_Finalize: open-mpi/ompi#7833.
  it("believes a process that ended with 0, where mpirun missed its MPI_Finalize", function()
    local source = [[
      require("ffi").cdef "void _exit(int status);"
      shardrt.sync_global_devices "all is done"
      if not arg[2] or me == 1 then require("ffi").C._exit(0) end
      shardrt.sync_global_devices "the end"]]
    local recipe = files.write(folder, "recipe.lua", head .. source)
    local function plain(value)
      return mpi.shell(("env %s OMPI_MCA_orte_allowed_exit_without_sync=%d PRTE_MCA_prte_allowed_exit_without_sync=%d "
        .. "mpirun -n 2 %s %s %s"):format(mpi.environment, value, value, mpi.program(), recipe, folder), 60)
    end
    assert.equal(1, plain(0).status) -- as mpirun has it
    assert.equal(0, plain(1).status)
    local result, lines, runs = run("-n 2 --restarts 2", source)
    assert.same({ 0, "2", 0 }, { result.status, runs, #lines }, result.output)
    assert.equal("", result.stderr)
    -- One that is missed by others is named by them.
    result = mpi.shell(("%s run -n 2 --timeout 2 %s %s early"):format(mpi.program(), recipe, folder), 60)
    assert.equal(1, result.status, result.output)
    assert.truthy(result.stderr:find("process 1", 1, true), result.output)
  end)

  -- With a mpirun of our own, which ends as it is told, and notes how many processes it is to start.
  it("knows a process that was killed from a host that was lost and from a mpirun that was killed", function()
    local function ends(how)
      local script = ("#!/bin/sh\necho run with $2\n%s\n"):format(how)
      assert.equal(0, mpi.shell(("chmod 755 %s"):format(files.write(folder, "mpirun", script))).status)
      local recipe = files.write(folder, "recipe.lua", "")
      local words = ("PATH=%s:$PATH %s run -n 3 --restarts 2 --min 1 %s"):format(folder, mpi.program(), recipe)
      local result = mpi.shell(words)
      local runs = {}
      for count in result.stdout:gmatch "run with (%d)" do runs[#runs + 1] = count end
      return result.status, table.concat(runs, " "), result.stderr:match "shardrt run: ([^;\n]*)"
    end
    local function told(...) return { ... } end
    assert.same({ 137, "3 2 1", "a process was ended by signal 9 (Killed)" }, told(ends "exit 137"))
    assert.same({ 192, "3 2 1", "a process was ended by signal 64 (Real-time signal 30)" }, told(ends "exit 192"))
    -- What fails twice in the same way goes on with fewer.
    assert.same({ 193, "3 3 2", "the job ended with status 193" }, told(ends "exit 193"))
    assert.same({ 205, "3 3 2", "the job ended with status 205" }, told(ends "exit 205"))
    assert.same({ 137, "3 3 2", "mpirun was ended by signal 9 (Killed)" }, told(ends "kill -9 $$"))
    assert.same({ 85, "3" }, told(ends "exit 85"))
  end)

  -- Sends a signal to the launcher when the job runs; returns its status, and which processes are there a while later.
  local function stop(signal)
    local recipe = files.write(folder, "recipe.lua", head .. [[
      local file = io.open(arg[1] .. "/" .. me, "w")
      file:close()
      while true do end]])
    os.remove(folder .. "/0")
    os.remove(folder .. "/1")
    local result = mpi.shell(([=[
      %s run -n 2 --restarts 5 %s %s & launcher=$!
      while [ ! -e %s/0 ] || [ ! -e %s/1 ]; do sleep 0.02; done
      kill -%s $launcher
      wait $launcher
      echo "status $?"
      for i in $(seq 100); do # they may take a while
        grep -lxz %s /proc/[0-9]*/cmdline > %s/left 2>/dev/null
        [ -s %s/left ] || break
        sleep 0.1
      done
      for each in $(cat %s/left); do echo "$each is left"; done]=]):format(mpi.program(), recipe,
      folder, folder, folder, signal, recipe, folder, folder, folder), 60)
    assert.is_nil(result.stdout:find "is left", result.output)
    return tonumber(result.stdout:match "status (%d+)"), result
  end

  it("passes signals on, and leaves nothing behind", function()
    for _, signal in ipairs { "INT", "TERM", "HUP" } do
      -- ThreadSanitizer runs a handler only in calls that it knows, and the recipe's loop makes none.
      if signal == "TERM" and os.getenv "SHARDRT_SANITIZER" == "tsan" then signal = "HUP" end
      local status, result = stop(signal)
      if signal == "TERM" then
        assert.equal(143, status, result.output)
      else
        assert.is_true(status ~= 0 and status < 128, result.output)
      end
      assert.is_nil(result.stderr:find("shardrt run:", 1, true), result.output)
    end
    assert.equal(137, (stop "KILL"))
  end)

  it("is refused where it makes no sense", function()
    for words, expected in pairs {
      ["run -n 2 --restarts -1 x.lua"] = 'not "-1"', ["run -n 2 --restarts 1 --min 3 x.lua"] = "--min is beyond",
      ["run -n 2 --min 1 x.lua"] = "--min belongs to `shardrt run --restarts`",
      ["--restarts 1 x.lua"] = "--restarts belongs to `shardrt run`", ["run -n 2 --restarts 1 --min 0 x"] = 'not "0"',
      ["plan --restarts 1 x.lua"] = "--restarts belongs to `shardrt run`",
      ["run -n 2 --restarts 1 test x_spec.lua"] = "--restarts is for recipes",
      ["run -n 2 --restarts 1 no-such.lua"] = "cannot read the recipe",
    } do
      local result = mpi.shell(mpi.program() .. " " .. words)
      assert.equal(2, result.status, words)
      assert.truthy(result.stderr:find(expected, 1, true), words .. ": " .. result.stderr)
    end
    local result = mpi.shell(("PATH=/nonexistent %s run -n 2 --restarts 1 tests/run.lua"):format(mpi.program()))
    assert.equal(2, result.status)
    assert.truthy(result.stderr:find("cannot start mpirun: No such file or directory", 1, true), result.output)
  end)
end)

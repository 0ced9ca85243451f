-- long: 50 s
-- waits: for jobs that are asked to end.
-- The orderly end: a signal asks, all processes save at one step, and the status is 85.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

describe("a signal that asks a job to end", function()
  local folder
  before_each(function() folder = files.folder() end)
  after_each(function() files.remove(folder) end)

  -- Samples go to the file `given`, a line for each step; the job tells that it has begun. A step takes a while, but
  -- where the job is told to be quick.
  local HEAD = [[
    local shardrt = require "shardrt"
    local ffi = require "ffi"
    ffi.cdef "int usleep(unsigned microseconds);"
    local folder, say = arg[1], shardrt.say
    local source = shardrt.source.array { id = shardrt.ndarray.arange(1600, "int32") }
    local loader = shardrt.loader { source = source, batch_size = 8, shuffle = true, seed = 7, epochs = 1 }
    local function checkpoint(every)
      return shardrt.checkpoint { dir = folder .. "/run", every = every, loader = loader }
    end
    local function train(batch)
      local ids = shardrt.process_allgather(batch.id):to_table()
      if shardrt.process_index() == 0 then
        local file = io.open(folder .. "/given", "a")
        file:write(table.concat(ids, " "), "\n")
        file:close()
      end
      if not arg[2] then ffi.C.usleep(20000) end
    end
  ]]
  local PLAIN = HEAD .. [[
    local saved = checkpoint(1000)
    for batch in loader do train(batch) saved:step() end
    say "the end"]]

  -- Runs a job, and `act` in the shell, with $job its process, once it has taken 30 steps.
  local function run(command, source, act)
    local recipe = files.write(folder, "recipe.lua", source)
    os.remove(folder .. "/given")
    return mpi.shell(("%s %s %s %s & job=$!; "
      .. "until [ $(wc -l < %s/given || echo 0) -ge 30 ] || ! kill -0 $job; do sleep 0.05; done "
      .. "2>/dev/null; %s; wait $job"):format(
      "env " .. mpi.environment, command, recipe, folder, folder, act), 60)
  end

  local function steps()
    local lines = {}
    for line in io.lines(folder .. "/given") do lines[#lines + 1] = line end
    return lines
  end

  -- The steps of a job that nobody disturbs; it is the same for all.
  local expected
  local function undisturbed_steps(recipe)
    if expected then return expected end
    local undisturbed = files.folder()
    assert.equal(0, mpi.shell(("%s %s %s quick"):format(mpi.program(), recipe, undisturbed), 60).status)
    expected = {}
    for line in io.lines(undisturbed .. "/given") do expected[#expected + 1] = line end
    files.remove(undisturbed)
    return expected
  end

  local program = mpi.program()
  local JOBS = {
    ["alone"] = program, ["four processes"] = program .. " run -n 4",
    ["four processes that may begin again"] = program .. " run -n 4 --restarts 3",
  }
  for name, command in pairs(JOBS) do
    it("is heard by " .. name .. ", which save at one step and go on from there", function()
      local all = {}
      repeat
        local act = #all < 100 and "kill -TERM $job" or ":"
        local result = run(command, PLAIN, act)
        for _, line in ipairs(steps()) do all[#all + 1] = line end
        if act ~= ":" then
          assert.equal(85, result.status, result.output)
          local line = "the job was stopped by SIG%u+%d? at step " .. #all .. ", which is saved in "
          local _, told = result.stderr:gsub(line, "")
          assert.equal(1, told, result.output)
          assert.is_nil(result.stderr:find("restart", 1, true), result.output)
          assert.is_nil(result.stderr:find("non-zero", 1, true), result.output)
        end
      until #all >= 200
      assert.same(undisturbed_steps(folder .. "/recipe.lua"), all)
      assert.equal(200, #all)
    end)
  end

  it("may come to one process only, and be one that the user names", function()
    local last = "$(pgrep -f '^[^ ]*shardrt .*%s/recipe.lua' | tail -n 1)"
    local result = run(program .. " run -n 2 --signal USR2", PLAIN, ("kill -USR2 " .. last):format(folder))
    assert.equal(85, result.status, result.output)
    assert.truthy(result.stderr:find("stopped by SIGUSR2 at step " .. #steps(), 1, true), result.output)
    result = mpi.shell(program .. " --signal KILL recipe.lua")
    assert.equal(2, result.status)
    assert.truthy(result.stderr:find('--signal wants the name of a signal that can be caught, as USR2, not "KILL"', 1,
      true), result.stderr)
  end)

  it("may come to all processes at once, mpirun among them, which would leave them a second", function()
    local source = HEAD .. [[
      local saved = checkpoint(1000)
      for batch in loader do
        train(batch)
        if saved.steps >= 30 then ffi.C.usleep(1500000) end
        saved:step()
      end]]
    local all = ("$(pgrep -f '^[^ ]*(shardrt|mpirun|prterun) .*%s/recipe.lua')"):format(folder)
    local result = run(program .. " run -n 2", source, "kill -TERM " .. all)
    assert.equal(85, result.status, result.output)
    assert.truthy(result.stderr:find("at step " .. #steps() .. ", which is saved", 1, true), result.output)
  end)

  it("ends at once, with a line, what has no checkpoint", function()
    for command, status in pairs { [program] = 143, [program .. " run -n 2"] = 143 } do
      local result = run(command, HEAD .. "for batch in loader do train(batch) end", "kill -TERM $job")
      assert.equal(status, result.status, result.output)
      local _, lines = result.stderr:gsub("ended the job; no shardrt.checkpoint is open, so nothing was saved\n", "")
      assert.equal(1, lines, result.output)
    end
  end)

  it("ends at once where it is the second SIGTERM", function()
    local source = HEAD .. [[
      local saved = checkpoint(1000)
      for batch in loader do train(batch) os.execute "trap '' TERM; sleep 0.03" end]] -- never asks
    local result = run(program, source, "kill -TERM $job; sleep 0.3; kill -TERM $job; sleep 2.5; kill -TERM $job")
    assert.equal(143, result.status, result.output)
    assert.truthy(result.stderr:find("SIGTERM came a second time and ended the job, before its checkpoint was saved", 1,
      true), result.output)
    assert.is_true(#steps() > 40) -- the one that came at once with the first was not a second
  end)

  it("is left to a recipe that asks for it", function()
    local source = HEAD .. [[
      local saved = checkpoint()
      assert(not saved:stopping())
      for batch in loader do
        train(batch)
        assert(saved:step() == saved:stopping())
        if saved:stopping() then break end
      end
      say("ends by itself after %d", saved.steps)]]
    local result = run(program .. " run -n 2", source, "kill -USR1 $job")
    assert.equal(85, result.status, result.output)
    assert.truthy(result.stdout:find("ends by itself after " .. #steps(), 1, true), result.output)
  end)

  it("waits until every checkpoint that takes steps has saved", function()
    local source = HEAD .. [[
      local saved = { checkpoint(1000), shardrt.checkpoint { dir = folder .. "/other", metadata = {} } }
      shardrt.checkpoint { dir = folder .. "/unused", metadata = {} }
      for batch in loader do
        train(batch)
        saved[1]:step()
        saved[2]:step()
      end]]
    local result = run(program .. " run -n 2", source, "kill -TERM $job")
    assert.equal(85, result.status, result.output)
    for _, name in ipairs { "run", "other" } do
      assert.same({ ("step-%010d"):format(#steps()) }, files.list(folder .. "/" .. name))
    end
    assert.same({}, files.list(folder .. "/unused"))
  end)

  it("is heard where only save() saves", function()
    local source = HEAD .. [[
      local saved = checkpoint()
      for batch in loader do train(batch) saved:save() end
      say "the end"]]
    local result = run(program .. " run -n 2", source, "kill -TERM $job")
    assert.equal(85, result.status, result.output)
    assert.is_nil(result.stdout:find "the end")
  end)

  it("is not what mpirun does to the others of a process that failed", function()
    local source = HEAD .. [[
      for batch in loader do
        train(batch)
        if shardrt.process_index() == 1 then os.execute "kill -KILL $PPID" end
      end]]
    local result = run(program .. " run -n 2", source, ":")
    assert.equal(137, result.status, result.output)
    assert.is_nil(result.stderr:find("nothing was saved", 1, true), result.output)
  end)
end)

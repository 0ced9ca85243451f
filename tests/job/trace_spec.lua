-- --trace: a file that Perfetto opens, whole or not at all, in which every moment of stats() is found again.

local cjson = require "cjson"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local trace = require "tests.support.job.trace"

local folder
before_each(function() folder = files.folder() end)
after_each(function() files.remove(folder) end)

local head = [[
  local shardrt = require "shardrt"
  local P, T = shardrt.P, shardrt.transform
]]

-- Two epochs of 100 samples by 12; every process prints its stats.
local loop = head .. [[
  local x = shardrt.ndarray.zeros({ 100, 4, 6 }, "uint8")
  local y = shardrt.ndarray.arange(100, "int64")
  local mesh = shardrt.make_mesh({ shardrt.device_count() / 2, 2 }, { "data", "model" })
  local s = shardrt.NamedSharding(mesh, P "data")
  local loader = shardrt.loader {
    source = shardrt.source.array { image = x, label = y }, batch_size = 12, sharding = s, shuffle = true, epochs = 2,
    remainder = "pad", pipeline = arg[1],
    transform = arg[2] and { image = { T.crop { size = { 2, 2 } }, T.cast "float32" } } or nil,
  }
  for batch in loader do assert(batch.image.shape[1] == 12) end
  local stats = loader:stats()
  io.write(("stats %d %s\n"):format(shardrt.process_index(), require("cjson").encode(stats)))
]]

-- Many events.
local many = head .. [[
  local loader = shardrt.loader {
    source = shardrt.source.array { x = shardrt.ndarray.zeros({ 12000 }, "int8") }, batch_size = 1, epochs = 1,
    sharding = shardrt.SingleDeviceSharding(0),
  }
  for _ in loader do end]]

local function stats_of(output)
  local all = {}
  for process, text in output:gmatch "stats (%d+) (%b{})" do all[tonumber(process)] = cjson.decode(text) end
  return all
end

local function near(expected, actual, what)
  assert(math.abs(expected - actual) < 1e-6, ("%s: %.9f, not %.9f"):format(what, actual, expected))
end

-- Of one process.
local function check_stages(read, pid, stats)
  local function took(name) return trace.seconds(trace.named(read, name, pid)) end
  local by_main = 0 -- where batches moved, their replicas' fingerprints are taken by the main thread
  for _, span in ipairs(trace.named(read, "check", pid)) do
    local in_task = span.parent and span.parent.name == "task"
    if read.threads[pid][span.tid] == "main" and not in_task then by_main = by_main + (span.stop - span.start) / 1e9 end
  end
  local stages = stats.stages
  for _, name in ipairs { "decode", "transform", "scatter", "wait", "move" } do near(stages[name], took(name), name) end
  near(stages.check, took "check" - by_main, "check")
  near(stages.read + stages.decode + stages.transform + stages.scatter + stages.check, took "task", "tasks")
  assert.equal(stats.bytes_read, trace.sum(trace.named(read, "read", pid), "bytes"))
  assert.equal(stats.bytes_moved, trace.sum(trace.named(read, "move", pid), "bytes"))
  assert.is_true(stages.wait + stages.move <= stats.seconds)
end

local function check_steps(read, pid, stats)
  local steps = trace.named(read, "next batch", pid)
  assert.equal(stats.steps + 1, #steps) -- the last one finds that there are no more
  for i, step in ipairs(steps) do
    assert.same({ loader = 1, step = i - 1, rows = i > 18 and 0 or i % 9 == 0 and 4 or 12 }, step.args)
    assert.is_nil(step.parent)
  end
  for _, name in ipairs { "wait", "move" } do
    for _, span in ipairs(trace.named(read, name, pid)) do assert.equal("next batch", span.parent.name) end
  end
  for _, span in ipairs(trace.named(read, "task", pid)) do
    assert.is_true(span.args.field == "image" or span.args.field == "label" or span.args.field == nil) -- nil: of both
    local thread = read.threads[pid][span.tid] -- who waits helps
    assert.is_true(thread:match "^worker %d+$" ~= nil or thread == "main" and span.parent.name == "wait", thread)
    assert.is_true(span.args.step < stats.steps)
  end
  for _, name in ipairs { "read", "scatter" } do
    for _, span in ipairs(trace.named(read, name, pid)) do assert.equal("task", span.parent.name) end
  end
  for _, name in ipairs { "transform", "decode" } do
    for _, span in ipairs(trace.named(read, name, pid)) do assert.equal("read", span.parent.name) end
  end
end

-- The recipe's time and that of its loader fill the main thread's.
local function check_whole(read, pid)
  local last
  for _, span in ipairs(read.spans) do
    if span.pid == pid and (span.name == "recipe" or span.name == "next batch") then
      assert.is_true(not last or (last.stop <= span.start and last.name ~= span.name))
      last = span
    end
  end
  assert.equal("recipe", last.name)
end

-- Nobody leaves a meet before everybody has come: so it is on a common clock.
local function check_meets(read, processes)
  local meets = {}
  for pid = 0, processes - 1 do meets[pid] = trace.named(read, "meet", pid) end
  assert.is_true(#meets[0] > 2)
  for pid = 1, processes - 1 do
    assert.equal(#meets[0], #meets[pid])
    for i, meet in ipairs(meets[pid]) do
      assert.is_true(meet.start <= meets[0][i].stop and meets[0][i].start <= meet.stop, "meet " .. i)
    end
  end
end

describe("--trace", function()
  for _, pipeline in ipairs { "per_process", "global", "per_device", "reshard" } do
    it("has all that stats() counts, of every process, with pipeline " .. pipeline, function()
      local path = folder .. "/trace.json"
      local result = mpi.run { source = loop, processes = 3, devices = 2, options = { "--trace", path },
        args = { pipeline, "transform" } }
      assert.equal(0, result.status, result.output)
      assert.same({ "trace.json" }, files.list(folder))
      local read, stats = trace.read(path), stats_of(result.stdout)
      assert.equal("in order", read.other.ended)
      assert.equal(3, read.other.processes)
      local host = io.popen("hostname"):read "*l"
      for pid = 0, 2 do
        assert.equal(("process %d on %s"):format(pid, host), read.processes[pid])
        assert.equal("main", read.threads[pid][1])
        check_stages(read, pid, stats[pid])
        check_steps(read, pid, stats[pid])
        check_whole(read, pid)
      end
      check_meets(read, 3)
      assert.equal(pipeline == "global", #trace.named(read, "scatter") > 0)
      assert.equal(pipeline == "reshard", #trace.named(read, "move") > 0)
      assert.is_true(#trace.named(read, "transform") > 0)
      -- Where devices have memory of their own, they take the fingerprints of what was uploaded there.
      local here = shardrt.devices()[1].platform == "host"
      assert.equal(here or pipeline == "reshard", #trace.named(read, "check") > 0)
      assert.equal(not here, #trace.named(read, "upload") > 0)
    end)
  end

  it("counts the batches that are ready", function()
    local path = folder .. "/trace.json"
    local result = mpi.run { source = loop, devices = 2, options = { "--trace", path } }
    assert.equal(0, result.status, result.output)
    local ready = {}
    for _, event in ipairs(trace.read(path).events) do
      if event.ph == "C" then
        assert.equal("batches ready", event.name)
        ready[#ready + 1] = event.args["loader 1"]
      end
    end
    assert.equal(19, #ready)
    assert.equal(0, ready[1])
    assert.equal(0, ready[19])
    for i = 2, 18 do assert.is_true(ready[i] >= 0 and ready[i] <= 19 - i) end
  end)

  it("tells loaders apart, in turns and one within the other", function()
    local path = folder .. "/trace.json"
    local result = mpi.run { options = { "--trace", path }, source = head .. [[
      local function new(name)
        return shardrt.loader {
          source = shardrt.source.array { [name] = shardrt.ndarray.zeros({ 40 }, "int8") }, batch_size = 4, epochs = 1,
        }
      end
      local a, b = new 'a "field"', new "b\n\255"
      for _ in a do b() end
      for _ in new "c" do end]] }
    assert.equal(0, result.status, result.output)
    local read = trace.read(path)
    check_whole(read, 0)
    local steps, names = { 0, 0, 0 }, {}
    for _, span in ipairs(trace.named(read, "next batch")) do
      steps[span.args.loader] = steps[span.args.loader] + 1
    end
    assert.same({ 11, 10, 11 }, steps)
    for _, span in ipairs(trace.named(read, "task")) do names[span.args.loader] = span.args.field end
    assert.same({ 'a "field"', "b\n?", "c" }, names)
  end)

  it("shows what a recipe moves by itself", function()
    local path = folder .. "/trace.json"
    local result = mpi.run { processes = 2, options = { "--trace", path }, source = head .. [[
      local mesh = shardrt.make_mesh({ 2 }, { "x" })
      local x = shardrt.device_put(shardrt.ndarray.zeros({ 8, 8 }, "float32"), shardrt.NamedSharding(mesh, P "x"))
      shardrt.reshard(x, shardrt.NamedSharding(mesh, P(nil, "x")))]] }
    assert.equal(0, result.status, result.output)
    local read = trace.read(path)
    for pid = 0, 1 do
      local moves = trace.named(read, "move", pid)
      assert.equal(1, #moves)
      assert.equal("recipe", moves[1].parent.name)
      assert.equal(4 * 4 * 4, moves[1].args.bytes)
    end
  end)

  it("keeps the last events of a thread, and says how many it dropped", function()
    local path = folder .. "/trace.json"
    local result = mpi.run { options = { "--trace", path }, source = many }
    assert.equal(0, result.status, result.output)
    local read, dropped, kept = trace.read(path), {}, {}
    for _, event in ipairs(read.events) do
      if event.name == "earlier events were dropped" then dropped[event.tid] = event.args.dropped end
      if event.ph == "X" or event.ph == "C" then kept[event.tid] = (kept[event.tid] or 0) + 1 end
    end
    assert.equal(32767, kept[1])
    -- A recipe's, a wait, a step and a counter each, and a task and what it reads, if the waiting recipe has helped;
    -- the last step has no wait, and then there is the recipe's end.
    assert.is_true(dropped[1] >= 12000 * 4 + 4 - 32767, dropped[1]) -- and a few meets
    assert.is_true(dropped[1] <= 12000 * 6 + 20 - 32767, dropped[1])
    assert.equal(12000, trace.named(read, "next batch")[#trace.named(read, "next batch")].args.step)
    for tid, count in pairs(kept) do assert.is_true(dropped[tid] == nil or count == 32767) end
  end)

  it("is written by os.exit, too", function()
    local path = folder .. "/trace.json"
    for status, ended in pairs { [0] = "in order", [3] = "by an error" } do
      local result = mpi.run { options = { "--trace", path }, source = ("os.exit(%d)"):format(status) }
      assert.equal(status, result.status)
      assert.equal(ended, trace.read(path).other.ended)
      os.remove(path)
    end
  end)
end)

describe("--trace of a job that fails", function()
  local failing = loop:gsub("for batch in loader do", "for batch in loader do\n"
    .. "if loader:stats().steps == 5 and (not arg[3] or shardrt.process_index() == tonumber(arg[3])) then "
    .. "error 'this is wrong' end")

  it("is written by a process that is alone", function()
    local path = folder .. "/trace.json"
    local result = mpi.run { source = failing, devices = 2, options = { "--trace", path }, args = { "per_process" } }
    assert.equal(1, result.status)
    assert.truthy(result.stderr:find("this is wrong", 1, true))
    local read = trace.read(path)
    assert.equal("by an error", read.other.ended)
    assert.equal(5, #trace.named(read, "next batch"))
    assert.same({ "trace.json" }, files.list(folder))
  end)

  it("is written by the process that fails, under its number", function()
    local path = folder .. "/trace.d/trace.json"
    os.execute("mkdir " .. folder .. "/trace.d")
    local result = mpi.run { source = failing, processes = 3, devices = 2, options = { "--trace", path },
      args = { "per_process", "transform", "2" } }
    assert.equal(1, result.status, result.output)
    assert.truthy(result.stderr:find("process 2 of 3: ", 1, true), result.stderr)
    local read = trace.read(folder .. "/trace.d/trace.2.json")
    assert.equal("by an error", read.other.ended)
    assert.equal(5, #trace.named(read, "next batch", 2))
    assert.is_nil(read.processes[0])
    for _, name in ipairs(files.list(folder .. "/trace.d")) do
      assert.equal("trace.2.json", name) -- the others were waiting for nobody, or for this one, and are ended
    end
  end)

  it("is written by as many as have the time for it, where all fail; each of them whole", function()
    local result = mpi.run { source = failing, processes = 3, devices = 2, args = { "per_process" },
      options = { "--trace", folder .. "/trace" } }
    assert.equal(1, result.status, result.output)
    assert.equal(1, select(2, result.stderr:gsub("this is wrong", "")), result.stderr)
    local names = files.list(folder)
    assert.is_true(#names >= 1)
    for _, name in ipairs(names) do
      local process = tonumber(name:match "^trace%.(%d)$")
      assert.equal(5, #trace.named(trace.read(folder .. "/" .. name), "next batch", process))
    end
  end)

  it("by a signal leaves nothing", function()
    local result = mpi.run { options = { "--trace", folder .. "/trace.json" }, source = head .. [[
      local ffi = require "ffi"
      ffi.cdef "int kill(int, int); int getpid(void);"
      ffi.C.kill(ffi.C.getpid(), 9)]] }
    assert.equal(128 + 9, result.status)
    assert.same({}, files.list(folder))
  end)
end)

describe("--trace to a place that cannot be written", function()
  local source = "print 'it runs'"

  it("is refused before the recipe runs, once for the job", function()
    os.execute("mkdir " .. folder .. "/there")
    for path, problem in pairs {
      [folder .. "/nowhere/trace.json"] = "No such file or directory", [folder .. "/there"] = "it is a folder",
      ["/proc/trace.json"] = "",
    } do
      for _, processes in ipairs { false, 3 } do
        local result = mpi.run { source = source, processes = processes or nil, options = { "--trace", path } }
        assert.equal(2, result.status, result.output)
        assert.equal("", result.stdout)
        assert.equal(1, select(2, result.stderr:gsub("cannot be written", "")), result.stderr)
        assert.truthy(result.stderr:find(path .. ": cannot be written: " .. problem, 1, true), result.stderr)
      end
    end
  end)

  it("is refused on a wrong command line, and for a plan", function()
    local recipe = files.write(folder, "recipe.lua", source)
    for words, problem in pairs {
      ["--trace"] = "--trace wants a value", ["--trace '' " .. recipe] = "--trace wants the path of a file",
      ["plan --trace x " .. recipe] = "--trace is for jobs that run",
    } do
      local result = mpi.shell(mpi.program() .. " " .. words)
      assert.equal(2, result.status, result.output)
      assert.truthy(result.stderr:find(problem, 1, true), result.stderr)
    end
  end)

  it("is an error of the whole job where the disk is full at its end; the old file stays", function()
    local path = files.write(folder, "trace.json", "old")
    local recipe = files.write(folder, "recipe.lua", many)
    local limited = files.write(folder, "limited.sh", [[
      trap "" XFSZ
      if [ ${OMPI_COMM_WORLD_RANK:-0} = 0 ]; then ulimit -f 200; fi
      exec "$@"]])
    for _, start in ipairs { "", "mpirun -n 2" } do
      local result = mpi.shell(("export %s; %s sh %s %s --trace %s %s"):format(mpi.environment, start, limited,
        mpi.program(), path, recipe))
      assert.equal(1, result.status, result.output)
      assert.equal(1, select(2, result.stderr:gsub("cannot be written: File too large", "")), result.stderr)
      assert.equal("old", files.slurp(path))
      assert.same({ "limited.sh", "recipe.lua", "trace.json" }, files.list(folder))
    end
  end)

  it("lets `shardrt run` hand it on", function()
    local recipe = files.write(folder, "recipe.lua", loop)
    local path = folder .. "/trace.json"
    local result = mpi.shell(("%s run -n 2 --devices 2 --trace %s %s per_process"):format(mpi.program(), path, recipe))
    assert.equal(0, result.status, result.output)
    assert.equal(2, trace.read(path).other.processes)
  end)
end)

describe("shardrt_trace_start", function()
  it("gives back what it took where memory ends, and begins when there is some", function()
    local path = folder .. "/trace.json"
    local result = mpi.run { args = { path }, source = head .. [[
      local C = require "shardrt.base.ffi"
      local current = require "shardrt.base.current"
      local out = require("ffi").new "shardrt_trace *[1]"
      local n, code = 0
      repeat
        n = n + 1
        C.shardrt_alloc_fail_at(n)
        code = C.shardrt_trace_start(current.job, arg[1], out)
      until code == 0 or n > 100
      C.shardrt_alloc_fail_at(0)
      assert(C.shardrt_trace_start(current.job, arg[1], out) == C.SHARDRT_EINVAL)
      assert(C.shardrt_trace_finish(out[0]) == 0 and C.shardrt_trace_finish(nil) == 0)
      print(n)]] }
    assert.equal(0, result.status, result.output)
    assert.is_true(tonumber(result.stdout) > 5 and tonumber(result.stdout) < 100)
    assert.equal("in order", trace.read(path).other.ended)
  end)
end)

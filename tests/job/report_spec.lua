-- --report, `shardrt report` and --metrics, of the command and of programs: what they say is what loader:stats() says,
-- and what reads them can.

local cjson = require "cjson"
local files = require "tests.support.files"
local library = require "tests.support.library"
local metrics = require "shardrt.program.metrics"
local mpi = require "tests.support.mpi"
local prometheus = require "tests.support.job.prometheus"
local report_page = require "shardrt.program.report_page"
local shardrt = require "shardrt"
local watch = require "shardrt.loader.watch"

local folder
before_each(function() folder = files.folder() end)
after_each(function() files.remove(folder) end)

-- What an independent parser finds in a page.
local function read_page(path)
  local result = mpi.shell(("python3 tests/support/job/page.py %s"):format(path), 60)
  assert.equal(0, result.status, result.output)
  local page = cjson.decode(result.stdout)
  assert.equal(0, page.scripts)
  assert.same({}, page.links) -- nothing is fetched
  return page
end

local function read_metrics(path) return prometheus.read(files.slurp(path)) end

-- By one that others wrote.
local function check_by_prometheus(path)
  local parser = "import sys; from prometheus_client.parser import text_string_to_metric_families as f; "
    .. "print(sum(len(m.samples) for m in f(open(sys.argv[1]).read())))"
  local result = mpi.shell(('/usr/bin/python3 -c %q %s'):format(parser, path), 30)
  assert.equal(0, result.status, result.output)
  assert.equal(#read_metrics(path), tonumber(result.stdout))
end

local head = [[
  local shardrt = require "shardrt"
  local nd = shardrt.ndarray
  local function tell(name, loader)
    io.write(("stats %s %d %s\n"):format(name, shardrt.process_index(), require("cjson").encode(loader:stats())))
  end
]]

-- Names that must be escaped, a record that cannot be read, a filter, a rest that is dropped, a loader for each epoch,
-- one that moves its batches, one that tries ways in turn, and one that is never asked.
local job = head .. [[
  local source = shardrt.source.jsonl(arg[1] .. "/a<b>&'.jsonl", {
    fields = { ["x<y>&"] = { "float32", { 2 } }, n = "int64" }, on_bad_record = "skip",
  })
  local loader = shardrt.loader { source = source, batch_size = 12, epochs = 2, shuffle = true,
    filter = { n = function(n) return n % 10 ~= 3 end } }
  for _ in loader do end
  tell("files", loader)
  local function pass(epoch)
    return shardrt.loader { source = shardrt.source.array { x = nd.arange(96, "float32") }, batch_size = 8, epochs = 1,
      shuffle = true, seed = epoch, pipeline = "reshard",
      sharding = shardrt.NamedSharding(shardrt.make_mesh({ 4 }, { "d" }), shardrt.P()) }
  end
  for epoch = 1, 3 do
    local one = pass(epoch)
    for _ in one do end
    tell("pass", one)
  end
  local auto = shardrt.loader { source = shardrt.source.array { x = nd.zeros({ 1024, 4 }, "float32") }, batch_size = 8,
    epochs = 1, pipeline = "auto", sharding = shardrt.NamedSharding(shardrt.make_mesh({ 4 }, { "d" }), shardrt.P()) }
  for _ in auto do end
  tell("auto", auto)
  shardrt.loader { source = shardrt.source.array { x = nd.zeros({ 16 }, "int8") }, batch_size = 8 }
]]

-- By name of the loader and process; where there are several, all.
local function stats_of(output)
  local all = {}
  for name, process, text in output:gmatch "stats (%a+) (%d+) (%b{})" do
    local key = name .. process
    all[key] = all[key] or {}
    table.insert(all[key], cjson.decode(text))
  end
  return all
end

local function sum(list, name, stage)
  local all = 0
  for _, stats in ipairs(list) do all = all + (stage and stats.stages[stage] or stats[name]) end
  return all
end

local function near(expected, actual, what)
  assert(math.abs(expected - actual) < 1e-5, ("%s: %.9f, not %.9f"):format(what, actual, expected))
end

local function write_records(count)
  local lines = {}
  for i = 0, count - 1 do lines[i + 1] = ('{"x<y>&": [%d, 1], "n": %d}'):format(i, i) end
  lines[8] = '{"x<y>&": [7, 1], "n": "<seven>"}'
  files.write(folder, "a<b>&'.jsonl", table.concat(lines, "\n") .. "\n")
end

local function check_rows(loader, told, name)
  assert.equal(2, #loader.rows)
  for i, row in ipairs(loader.rows) do
    local stats = told[name .. i - 1]
    assert.equal(tostring(i - 1), row.process)
    assert.equal(sum(stats, "bytes_read"), tonumber(row.read))
    assert.equal(sum(stats, "bytes_moved"), tonumber(row.received))
    assert.equal(sum(stats, "bytes_uploaded"), tonumber(row.uploaded))
    assert.equal(sum(stats, "samples"), tonumber(row.samples))
    assert.equal(sum(stats, "steps"), tonumber(row.steps))
    near(sum(stats, "seconds"), tonumber(row.seconds), "seconds")
    near(sum(stats, nil, "wait"), tonumber(row.waiting), "waiting")
  end
end

local function check_metrics(process, told, where)
  local path = ("%s/job.%d.prom"):format(folder, process)
  local samples, types = read_metrics(path)
  check_by_prometheus(path)
  assert.equal("counter", types.shardrt_samples_total)
  for name, line in pairs(where) do
    local stats, labels = told[name .. process], { loader = line, process = tostring(process), job_id = "77" }
    for metric, field in pairs { samples = "samples", steps = "steps", read_bytes = "bytes_read",
      received_bytes = "bytes_moved", uploaded_bytes = "bytes_uploaded" } do
      assert.equal(sum(stats, field), prometheus.value(samples, ("shardrt_%s_total"):format(metric), labels))
    end
    near(sum(stats, "seconds"), prometheus.value(samples, "shardrt_loader_seconds_total", labels), "seconds")
    for stage in pairs(stats[1].stages) do
      labels.stage = stage
      near(sum(stats, nil, stage), prometheus.value(samples, "shardrt_stage_seconds_total", labels), stage)
    end
    labels.stage = nil
    assert.equal(stats[#stats].steps, prometheus.value(samples, "shardrt_last_step", labels))
  end
  assert.equal(1, prometheus.value(samples, "shardrt_unreadable_samples", { loader = where.files }))
  assert.equal(1, prometheus.value(samples, "shardrt_state", { state = "ended" }))
  assert.equal(0, prometheus.value(samples, "shardrt_state", { state = "running" }))
  assert.equal(0, prometheus.value(samples, "shardrt_errors_total"))
  assert.equal(2, prometheus.value(samples, "shardrt_processes"))
  local last = prometheus.value(samples, "shardrt_last_step_timestamp_seconds")
  local first = prometheus.value(samples, "shardrt_start_time_seconds")
  assert.is_true(first <= last + 1 and last < first + 600)
end

describe("a job's report and metrics", function()
  it("say what stats() says, of every process, and what was skipped", function()
    write_records(100)
    local recipe = files.write(folder, "a&b.lua", job)
    local result = mpi.run { recipe = recipe, args = { folder }, processes = 2, devices = 2,
      env = { SLURM_JOB_ID = "77" }, options = { "--platform", "host", "--report", folder .. "/r.html", "--metrics",
        folder .. "/job.prom", "--trace", folder .. "/t.json" } }
    assert.equal(0, result.status, result.output)
    local told, page = stats_of(result.stdout), read_page(folder .. "/r.html")
    assert.equal(recipe, page.title)
    assert.truthy(page.job:find("2 processes with 2 devices each (host)", 1, true), page.job)
    assert.truthy(page.job:find("ended in order", 1, true), page.job)
    assert.equal(4, #page.loaders)
    local read, pass, auto, idle = unpack(page.loaders)
    check_rows(read, told, "files")
    check_rows(pass, told, "pass")
    check_rows(auto, told, "auto")
    assert.is_true(tonumber(pass.rows[1].received) > 0)
    assert.truthy(pass.text:find("and 2 more that the line made", 1, true))
    assert.truthy(idle.text:find("gave no batch", 1, true))
    assert.truthy(read.text:find("x<y>&: float32 {12, 2}, NamedSharding", 1, true), read.text)
    assert.same({ 2, 1, 1 }, { read.pictures, pass.pictures, idle.pictures })
    -- 100 records: 1 is bad, 10 are not let through, 89 make 7 batches of 12.
    assert.same({ "The filter let 10 samples not through.",
      '5 rows of each epoch do not fill a batch, and are in none: remainder = "drop".', "1 samples cannot be read:" },
      { read.items[1], read.items[2], read.items[3] })
    assert.truthy(read.items[4]:find("sample 7: ", 1, true) and read.items[4]:find("a<b>&'.jsonl", 1, true))
    assert.truthy(pass.text:find "Nothing%.%s*$")
    for process = 0, 1 do check_metrics(process, told, { files = read.where, pass = pass.where, auto = auto.where }) end
    -- The trace has the same numbers; what makes one loader each there is not put together.
    result = mpi.shell(("%s report -o %s/t.html %s/t.json"):format(mpi.program(), folder, folder))
    assert.equal(0, result.status, result.output)
    local traced = read_page(folder .. "/t.html")
    assert.truthy(traced.job:find("2 processes with 2 devices each; ", 1, true), traced.job)
    assert.is_true(#traced.loaders > 4)
    for i, row in ipairs(traced.loaders[1].rows) do
      for _, name in ipairs { "process", "host", "read", "received", "samples", "steps" } do
        assert.equal(read.rows[i][name], row[name], name)
      end
      near(tonumber(read.rows[i].waiting), tonumber(row.waiting), "waiting")
    end
    assert.same({ "a&b.lua", "a<b>&'.jsonl", "a<b>&'.jsonl.shardrt-index", "job.0.prom", "job.1.prom", "r.html",
      "t.html", "t.json" }, files.list(folder))
  end)

  it("tell of a job that fails what the process that failed knows", function()
    local source = head .. [[
      local loader = shardrt.loader { source = shardrt.source.array { x = nd.zeros({ 64 }, "int8") }, batch_size = 8 }
      for i = 1, 3 do loader() end
      if shardrt.process_index() == 1 then error "no <b>luck</b> & \1\255" end
      shardrt.sync_global_devices "here"]]
    local result = mpi.run { source = source, processes = 2, options = { "--platform", "host", "--report",
      folder .. "/r.html", "--metrics", folder .. "/m.prom" } }
    assert.equal(1, result.status, result.output)
    assert.truthy(result.stderr:find("process 1 of 2: ", 1, true), result.stderr)
    local page = read_page(folder .. "/r.html")
    assert.truthy(page.message:find("no <b>luck</b> & ??", 1, true), page.message)
    assert.truthy(page.job:find("ended by an error", 1, true))
    assert.truthy(page.text:find("This is what process 1 knew", 1, true))
    assert.same({ 1, "1", "24" }, { #page.loaders[1].rows, page.loaders[1].rows[1].process,
      page.loaders[1].rows[1].samples })
    local samples = read_metrics(folder .. "/m.1.prom")
    assert.equal(1, prometheus.value(samples, "shardrt_state", { state = "failed" }))
    assert.equal(1, prometheus.value(samples, "shardrt_errors_total"))
    assert.equal(3, prometheus.value(samples, "shardrt_last_step"))
  end)

  it("are there where a recipe makes no loader, or ends by os.exit", function()
    for source, ended in pairs {
      ["os.exit()"] = "in order", ["os.exit(true)"] = "in order", ["local a = 1"] = "in order",
      ["os.exit(7)"] = "by an error",
    } do
      local result = mpi.run { source = source, options = { "--report", folder .. "/r.html", "--metrics",
        folder .. "/m.prom" } }
      assert.equal(source == "os.exit(7)" and 7 or 0, result.status, result.output)
      local page = read_page(folder .. "/r.html")
      assert.truthy(page.text:find("No loader was made", 1, true))
      assert.truthy(page.job:find(ended, 1, true), page.job)
      local state = ended == "in order" and "ended" or "failed"
      assert.equal(1, prometheus.value(read_metrics(folder .. "/m.prom"), "shardrt_state", { state = state }))
      os.remove(folder .. "/r.html")
    end
  end)

  it("are refused before the recipe runs where they cannot be written, and where nothing runs", function()
    local function refused(words, message)
      local recipe = files.write(folder, "r.lua", "print 'ran'")
      local result = mpi.shell(("%s %s %s"):format(mpi.program(), words, recipe))
      assert.truthy(result.stderr:find(message, 1, true), result.output)
      assert.is_nil(result.stdout:find("ran", 1, true))
      assert.is_true(result.status == 1 or result.status == 2)
    end
    refused("--report " .. folder, folder .. ": cannot be written: it is a folder")
    refused(("--metrics %s/no/m.prom"):format(folder), "no/m.prom: cannot be written: No such file")
    refused("--report ''", "--report wants the path of a file")
    refused("plan --report r.html", "--report and --metrics are for jobs that run")
    refused("--metrics m.prom test", "--report and --metrics are for recipes")
    refused("run report", "a report of a trace needs no other process")
    refused("report -x", "unknown option -x")
    refused(("report -o %s/x.html"):format(folder), "is no trace as `shardrt --trace` writes it")
    assert.same({ "r.lua" }, files.list(folder))
  end)
end)

-- A loader whose batches C gives by itself, one that Lua has a part in, and one that tries ways and then is C's.
local FOR_PROGRAMS = [[
  local shardrt = require "shardrt"
  local nd, P = shardrt.ndarray, shardrt.P
  local source = shardrt.source.array { x = nd.arange(1000, "float32") }
  local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "d" })
  local function loader(o)
    o.source, o.batch_size, o.shuffle = source, 16, true
    return shardrt.loader(o)
  end
  return {
    direct = loader { epochs = 2 },
    lua = loader { batch_transform = function(batch) return { x = batch.x } end },
    moved = loader { epochs = 1, pipeline = "auto", sharding = shardrt.NamedSharding(mesh, P()) },
  }
]]

-- As tests/library/watched.c.
local IN_PYTHON = [[
import itertools, json, os, sys
import shardrt

recipe, *files, fails = sys.argv[1:]
process = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
words = dict(zip(["report", "metrics"], files))
with shardrt.open(recipe, devices=2, platform="host", **words) as data:
    os.chdir("/") # the paths are those of before
    for name, most in [("direct", None), ("lua", 3), ("moved", None)]:
        rows = [batch["x"].shape[0] for batch in itertools.islice(data[name], most)]
        said = f"took {name} {process} {len(rows)} {sum(rows)}\n"
        said += f"stats {name} {process} {json.dumps(data[name].stats())}\n"
        print(said, end="", flush=True)
        if fails == str(process):
            raise ValueError("no <b>luck</b>")
]]

describe("the report and metrics of a program", function()
  local python = library.python()
  local program, script, recipe
  setup(function()
    local kept = mpi.folder()
    program = library.build(kept, "tests/library/watched.c")
    script = python and ("%s %s"):format(python, files.write(kept, "watched.py", IN_PYTHON))
    recipe = files.write(kept, "data.lua", FOR_PROGRAMS)
  end)
  teardown(function() mpi.remove(program:match "^(.*)/") end)

  -- Rows of a page, and a file of metrics, against what each process took and was told by stats().
  local function check(result, processes)
    assert.equal(0, result.status, result.output)
    local told, page = stats_of(result.stdout), read_page(folder .. "/r.html")
    assert.same({ recipe, 3 }, { page.title, #page.loaders })
    assert.truthy(page.job:find("ended in order", 1, true))
    for i, name in ipairs { "direct", "lua", "moved" } do
      local loader = page.loaders[i]
      assert.equal(processes, #loader.rows)
      for process = 0, processes - 1 do
        local taken, rows = result.stdout:match(("took %s %d (%%d+) (%%d+)"):format(name, process))
        local row, stats = loader.rows[process + 1], told[name .. process][1]
        assert.same({ tostring(process), taken, rows }, { row.process, row.steps, row.samples })
        assert.same({ stats.bytes_read, stats.bytes_moved }, { tonumber(row.read), tonumber(row.received) })
        local path = processes == 1 and "/m.prom" or ("/m.%d.prom"):format(process)
        local samples, labels = read_metrics(folder .. path), { recipe = recipe, loader = loader.where }
        for metric, value in pairs { steps_total = taken, samples_total = rows, last_step = taken,
          read_bytes_total = stats.bytes_read, received_bytes_total = stats.bytes_moved } do
          assert.equal(tonumber(value), prometheus.value(samples, "shardrt_" .. metric, labels), metric)
        end
        assert.equal(1, prometheus.value(samples, "shardrt_state", { state = "ended" }))
        check_by_prometheus(folder .. path)
      end
    end
    assert.is_true(page.loaders[1].points[1] > 10)
    assert.same({ 1, 124, 3 }, { page.loaders[1].pictures, tonumber(page.loaders[1].rows[1].steps),
      tonumber(page.loaders[2].rows[1].steps) })
    files.remove(folder)
    folder = files.folder()
  end

  it("in C say what it took: options of the program, and of `shardrt run`", function()
    check(library.run(("%s %s %s/r.html %s/m.prom"):format(program, recipe, folder, folder)), 1)
    check(library.run(("%s run -n 2 --report %s/r.html --metrics %s/m.prom %s %s"):format(mpi.program(), folder, folder,
      program, recipe)), 2)
  end)

  it("in Python say what it took: words of shardrt.open, variables", function()
    if not python then
      pending "no shared library is built with sanitizers"
      return
    end
    check(library.run(("%s %s %s/r.html %s/m.prom ''"):format(script, recipe, folder, folder)), 1)
    check(library.run(("-x SHARDRT_REPORT=%s/r.html -x SHARDRT_METRICS=%s/m.prom %s %s ''"):format(folder, folder,
      script, recipe), 2), 2)
  end)

  it("tell of one that fails what the process that failed knows", function()
    if not python then
      pending "no shared library is built with sanitizers"
      return
    end
    local result = library.run(("-x SHARDRT_REPORT=%s/r.html -x SHARDRT_METRICS=%s/m.prom %s %s 1"):format(folder,
      folder, script, recipe), 2)
    assert.is_true(result.status ~= 0)
    local page, samples = read_page(folder .. "/r.html"), read_metrics(folder .. "/m.1.prom")
    assert.truthy(page.job:find("ended by an error", 1, true))
    assert.truthy(page.message:find("no <b>luck</b>", 1, true), page.message)
    assert.equal("124", page.loaders[1].rows[1].steps)
    assert.same({ 1, 1 }, { prometheus.value(samples, "shardrt_state", { state = "failed" }),
      prometheus.value(samples, "shardrt_errors_total") })
  end)

  it("are refused before a recipe is opened where they cannot be written, in all processes", function()
    local result = library.run(("-x SHARDRT_REPORT=%s/no/r.html %s %s"):format(folder, program, recipe), 2)
    assert.truthy(result.stderr:find("no/r.html: cannot be written: No such file", 1, true), result.output)
    assert.is_nil(result.stdout:find("took", 1, true))
    assert.same({}, files.list(folder))
  end)
end)

-- What many processes would tell.
local function model(processes, steps)
  local loader = { where = "many.lua:1", text = "loader", loaders = 1, processes = {},
    points = { time = {}, steps = {}, samples = {}, wait = {} } }
  for i = 1, steps do
    loader.points.time[i], loader.points.steps[i] = i * 0.1, i
    loader.points.samples[i], loader.points.wait[i] = i * 32, i * 0.05
  end
  for p = 0, processes - 1 do
    loader.processes[p + 1] = { process = p, host = "node" .. p, totals = {
      bytes_read = 1000 + p, bytes_moved = p, bytes_uploaded = 0, samples = 32 * steps, steps = steps,
      seconds = steps / 10,
      wait_seconds = (p * 37 % processes) / 100, move_seconds = 0.1, read_seconds = 1 + p, decode_seconds = 0.5,
      transform_seconds = 0, scatter_seconds = 0.25, check_seconds = 0,
    } }
  end
  return { title = "many", seconds = steps / 10, version = "1", ended = "in order", process_count = processes,
    devices = 1, loaders = { loader } }
end

describe("a page", function()
  it("stays small, however many processes and steps there are", function()
    for _, case in ipairs { { 64, 100, 64 }, { 5000, 100000, 64 } } do
      local text = report_page.write(model(case[1], case[2]))
      assert.is_true(#text < 120000, #text)
      local page = read_page(files.write(folder, "many.html", text))
      local loader = page.loaders[1]
      assert.equal(case[3], #loader.rows)
      assert.is_true(loader.points[1] <= 160)
      assert.equal(case[1] > case[3], page.text:find("those that waited most", 1, true) ~= nil)
      -- The one that waited most has a row.
      local most = 0
      for _, row in ipairs(loader.rows) do most = math.max(most, tonumber(row.waiting)) end
      near((case[1] - 1) / 100, most, "the longest wait")
    end
  end)

  it("is shown by a browser", function()
    local found = mpi.shell "command -v chromium || command -v chromium-browser || command -v google-chrome"
    if found.status ~= 0 then
      pending "no chromium here: `make test-report` installs it"
      return
    end
    local path = files.write(folder, "many.html", report_page.write(model(64, 100)))
    local result = mpi.shell(("HOME=%s %s --headless --no-sandbox --disable-gpu --dump-dom --user-data-dir=%s/profile "
      .. "file://%s"):format(folder, found.stdout:match "%S+", folder, path), 120)
    assert.equal(0, result.status, result.output)
    local _, rows = result.stdout:gsub('<tr data%-process="%d+">', "")
    local _, bars = result.stdout:gsub("<rect ", "")
    assert.same({ 64, read_page(path).loaders[1].bars }, { rows, bars })
    assert.truthy(result.stdout:find("<polyline", 1, true))
    assert.is_nil(result.stdout:find("parsererror", 1, true))
  end)
end)

-- In this process: it watches from here on.
describe("what is watched", function()
  local source = shardrt.source.array { x = shardrt.ndarray.arange(3000, "int32") }

  local function loop()
    local loader = shardrt.loader { source = source, batch_size = 1, epochs = 1,
      sharding = shardrt.SingleDeviceSharding(0) }
    for _ in loader do end
    return loader:stats()
  end

  it("is nothing before it begins", function()
    loop()
    assert.same({}, watch.lines)
  end)

  it("keeps at most 512 points of any number of steps, and counts all", function()
    local ticks = 0
    watch.start(function() ticks = ticks + 1 end)
    local stats = loop()
    watch.finish()
    assert.equal(1, #watch.lines)
    local line = watch.lines[1]
    local points = line.points
    assert.equal(3001, ticks)
    assert.is_true(#points.steps > 200 and #points.steps <= 512)
    for _, list in pairs(points) do assert.equal(#points.steps, #list) end
    for i = 2, #points.steps do
      assert.is_true(points.steps[i] > points.steps[i - 1] and points.time[i] >= points.time[i - 1])
      assert.equal(points.steps[i], points.samples[i])
    end
    assert.same({ 3000, 3000, stats.bytes_read }, { points.steps[#points.steps], line.totals.samples,
      line.totals.bytes_read })
    -- A line's next loader goes on where the first ended; other loaders of the line count by themselves.
    loop()
    watch.finish()
    assert.same({ 1, 2, 6000, 3000 }, { #watch.lines, line.loaders, line.totals.steps, line.step })
  end)

  it("is written as often as it is asked for, under a name that appears whole", function()
    local path = folder .. "/m.prom"
    metrics.start(path, "a\"b\\c\nd.lua", 0)
    local samples = read_metrics(path)
    assert.equal(1, prometheus.value(samples, "shardrt_state", { state = "running", recipe = "a\"b\\c\nd.lua" }))
    watch.start(metrics.step)
    local before = prometheus.value(samples, "shardrt_steps_total")
    local loader = shardrt.loader { source = source, batch_size = 1500, sharding = shardrt.SingleDeviceSharding(0) }
    for i = 1, 3 do
      loader()
      samples = read_metrics(path)
      local here = watch.lines[#watch.lines].where
      assert.equal(i, prometheus.value(samples, "shardrt_last_step", { loader = here }))
      assert.equal(1500 * i, prometheus.value(samples, "shardrt_samples_total", { loader = here }))
    end
    assert.equal(before, prometheus.value(samples, "shardrt_steps_total", { loader = watch.lines[1].where }))
    metrics.finish "ended"
    loader()
    assert.equal(3, prometheus.value(read_metrics(path), "shardrt_last_step", { loader = watch.lines[2].where }))
    assert.same({ "m.prom" }, files.list(folder))
    check_by_prometheus(path)
  end)
end)

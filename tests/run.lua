-- Runs every spec given, each in a process of its own with a time limit, several at once, and counts what really ran.
-- The last line is `N passed, N failed`, with `, N skipped` where some were; all failures stand before it once more. A
-- spec that dies or says nothing counts as one failure.
--
-- A spec with lines that begin `-- processes: 4 x 2` runs inside jobs: once for each such line, in 4 processes with 2
-- devices each. What else stands in the line are options of shardrt. A case passes where it does in all processes.
--
-- The longest specs start first: by their last times, kept beside the program, else by a line of the spec that begins
-- `-- long: SECONDS`. A spec with a line that begins `-- alone:` measures the machine, and runs after all others. Specs
-- with a line that begins `-- waits:` need little of a core: a few of them at a time run beside those that compute.
--
-- SHARDRT_TEST_JOBS says how many run at once (two for each core, as specs wait much of their time; on GPUs one, and
-- under sanitizers one for each core),
-- SHARDRT_TEST_LIMIT how many seconds each may take, SHARDRT_TEST_SEED where random cases begin (the time).
-- SHARDRT_TEST_PLATFORM says on what devices: host (the default), cuda (the GPUs of this machine; without one, every
-- spec is skipped), or standin (the plug-in for GPUs on what tests/standin puts in the place of CUDA).

local ffi = require "ffi"
local clock = require("shardrt").clock
local mpi = require "tests.support.mpi"

ffi.cdef [[
typedef struct run_usage { long seconds, microseconds, system_seconds, system_microseconds, others[64]; } run_usage;
int posix_spawnp(int *pid, const char *file, const void *actions, const void *attributes, const char *const *words,
                 char *const *environment);
int wait4(int pid, int *status, int options, run_usage *usage);
int open(const char *path, int flags, ...);
int flock(int file, int operation);
extern char **environ;
]]

local SHOWN_LINES = 24 -- of a failure's message, where it is told once more
local WAITING = 3 -- specs at once of those that wait
local PATIENCE = 60 -- seconds that processes of a job wait for one of them

local function setting(name, default)
  local text = os.getenv(name) or ""
  return text == "" and default or tonumber(text) or error(("%s is %q, which is no number"):format(name, text), 0)
end

local function output_of(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

local limit, seed = setting("SHARDRT_TEST_LIMIT", 900), setting("SHARDRT_TEST_SEED", os.time())
local program = os.getenv "SHARDRT" or "build/shardrt"
local platform = os.getenv "SHARDRT_TEST_PLATFORM" or ""
if platform == "" then platform = "host" end
local each_core = os.getenv "SHARDRT_SANITIZER" and 1 or 2
local jobs = setting("SHARDRT_TEST_JOBS", platform == "cuda" and 1 or each_core * tonumber(output_of "nproc"))
if jobs < 1 then error("SHARDRT_TEST_JOBS is below 1", 0) end

local build = program:match "^(.*/)" or ""
local libraries = build .. "standin"
local plugin = libraries .. "/shardrt-cuda.so"
local environments = {
  host = "SHARDRT_PLATFORM=host",
  cuda = "SHARDRT_PLATFORM=cuda",
  standin = ("SHARDRT_PLATFORM=cuda SHARDRT_CUDA_PLUGIN=%s SHARDRT_CUDA_LIBRARIES=%s"):format(plugin, libraries),
}
local environment = environments[platform]
-- A sanitizer opens libraries by itself, and so not those that lie beside whoever asks for them. The plug-in is not
-- among them: a process that is to be on the host would find it.
if os.getenv "SHARDRT_SANITIZER" then
  local linked = build .. "standin-libraries"
  assert(os.execute(("mkdir -p %s && ln -sf %s/lib*.so* %s/"):format(linked, libraries, linked)) == 0)
  environment = environment and environment .. " LD_LIBRARY_PATH=" .. linked
end
if not environment then
  io.stderr:write(("SHARDRT_TEST_PLATFORM is %s; it may be host, cuda or standin\n"):format(platform))
  os.exit(1)
end

-- Whether there is a job on that platform; else what shardrt says of it.
local function try_platform()
  local recipe = os.tmpname()
  local file = assert(io.open(recipe, "w"))
  file:write "local _ = require 'shardrt'.devices()"
  file:close()
  local said = output_of(("%s timeout -k 10 60 %s %s 2>&1"):format(environment, program, recipe))
  os.remove(recipe)
  return said
end

if platform ~= "host" then
  local said = try_platform()
  if said ~= "" then
    io.write(("skipped: %d specs, as there is no platform %s here:\n%s"):format(#arg, platform, said))
    print(("0 passed, 0 failed, %d skipped"):format(#arg))
    os.exit(platform == "cuda" and 0 or 1) -- the stand-in is always there
  end
end

---- in what order

---@class test_spec
---@field path string
---@field name string the path and, of a job, its topology
---@field job {processes: string, devices: string, options: string}|false false: in one process
---@field topology string|false of the job
---@field place "alone"|"together"|"waiting"
---@field list? table of run_all, which it is started from
---@field seconds number how long it takes, as far as that is known

local times_path = build .. "test-times." .. platform

local function read_times()
  local times, file = {}, io.open(times_path)
  if not file then return times end
  for line in file:lines() do
    local seconds, name = line:match "^([%d.]+) (.+)$"
    if name then times[name] = tonumber(seconds) end
  end
  file:close()
  return times
end

local function write_times(times)
  local names, file = {}, io.open(times_path, "w")
  if not file then return end -- only the order is lost
  for name in pairs(times) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do file:write(("%.1f %s\n"):format(times[name], name)) end
  file:close()
end

-- What a spec says of its topologies; one that says nothing runs once, in one process.
local function jobs_of(path, text)
  local found = {}
  for line in text:gmatch "\n%-%- processes:([^\n]*)" do
    local processes, devices, options = line:match "^ (%d+) x (%d+)(.*)$"
    if not processes then error(("%s: processes:%s is not like processes: 4 x 2"):format(path, line), 0) end
    found[#found + 1] = { processes = processes, devices = devices, options = options }
  end
  return #found > 0 and found or { false }
end

---@return table<string, test_spec[]> by their place, the longest first
local function sort_specs(paths, times)
  local places = { alone = {}, together = {}, waiting = {} }
  for _, path in ipairs(paths) do
    local text = "\n" .. mpi.slurp(path)
    for _, job in ipairs(jobs_of(path, text)) do
      local topology = job and ("%s x %s%s"):format(job.processes, job.devices, job.options)
      local name = job and path .. " " .. topology or path
      local spec = { path = path, name = name, job = job, topology = topology }
      spec.place = text:find "\n%-%- alone:" and "alone" or text:find "\n%-%- waits:" and jobs > 1 and "waiting"
        or "together"
      spec.seconds = times[name] or tonumber(text:match "\n%-%- long: (%d+)") or 0
      table.insert(places[spec.place], spec)
    end
  end
  for _, specs in pairs(places) do
    table.sort(specs, function(a, b)
      if a.seconds ~= b.seconds then return a.seconds > b.seconds end
      return a.name < b.name
    end)
  end
  return places
end

---- a spec

-- How one spec is run by hand, as it was run here.
local function command_of(spec)
  return ("%sSHARDRT_TEST_SEED=%d make %s SPECS=%s"):format(platform ~= "host" and "SHARDRT_TEST_PLATFORM=" .. platform
    .. " " or "", seed, os.getenv "SHARDRT_SANITIZER" or "specs", spec.path)
end

-- Its processes end with this one: the kernel tells `timeout`, and that tells them. Where several run at once, each has
-- its own folder for temporary files: OpenMPI's jobs, which end at any time, would remove one from under another.
local function start(spec)
  spec.folder = output_of("mktemp -d /tmp/shardrt-test-XXXXXX"):match "%S+"
  local temporary = jobs > 1 and "TMPDIR=" .. spec.folder or ""
  local words = ("%s --devices 8"):format(program)
  if spec.job then
    words = ("env %s mpirun -n %s %s --timeout %d --devices %s%s"):format(mpi.environment, spec.job.processes, program,
      PATIENCE, spec.job.devices, spec.job.options)
  end
  local command = ("%s SHARDRT_TEST_SEED=%d SHARDRT_STANDIN=%s SHARDRT=%s OMPI_MCA_mpi_yield_when_idle=1 %s "
    .. "exec setpriv --pdeathsig TERM timeout -k 10 %d %s test -o tests/support/output.lua %s >%s/log 2>&1 </dev/null")
    :format(temporary, seed, plugin, program, environment, limit, words, spec.path, spec.folder)
  local pid, arguments = ffi.new "int[1]", ffi.new("const char *[4]", { "sh", "-c", command })
  assert(ffi.C.posix_spawnp(pid, "sh", nil, nil, arguments, ffi.C.environ) == 0, "sh does not start")
  spec.began = clock()
  return pid[0]
end

local totals = { passed = 0, failed = 0, skipped = 0, cpu = 0 }
local failures = {} -- what is told once more: texts

local function first_lines(text)
  local kept, count = {}, 0
  for line in (text:gsub("%s+$", "") .. "\n"):gmatch "(.-)\n" do
    count = count + 1
    if count <= SHOWN_LINES then kept[count] = line end
  end
  if count > SHOWN_LINES then kept[#kept + 1] = ("… and %d lines more, above"):format(count - SHOWN_LINES) end
  return table.concat(kept, "\n")
end

local function last_lines(text)
  local lines = {}
  for line in (text:gsub("%s+$", "") .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = line end
  return table.concat(lines, "\n", math.max(1, #lines - SHOWN_LINES + 1))
end

local function fail(spec, text)
  local where = spec.job and (" (it was in %s)"):format(spec.topology) or ""
  failures[#failures + 1] = ("%s\n  again: %s%s"):format(text, command_of(spec), where)
end

-- busted's descriptions of what failed stand behind its line of numbers.
local function failed_cases(spec, text)
  local begun
  local told = {} -- without the process: many can say the same
  local function finish()
    local description = begun and table.concat(begun, "\n")
    local what = description and description:gsub("^process %d+: ", "")
    if description and not told[what] then
      told[what] = true
      fail(spec, first_lines(description))
    end
    begun = nil
  end
  for line in (text .. "\n"):gmatch "(.-)\n" do
    local headline = line:gsub("^process %d+: ", "")
    if headline:find "^Failure %-> " or headline:find "^Error %-> " or headline:find "^Pending %-> "
      or headline:find "^%d+ success" or line:find "^fails: " or line:find "^the same random cases again: " then
      finish()
      if headline:find "^[FE]" then begun = {} end
    end
    if begun then begun[#begun + 1] = line end
  end
  finish()
end

local function number(text, word) return tonumber(text:match("(%d+) " .. word)) end

-- How many cases failed in other processes of a job only: process 0 counts its own.
local function failed_elsewhere(text)
  local seen, count = {}, 0
  for name in text:gmatch "\nfails: process 0: ([^\n]*)" do seen[name] = true end
  for name in text:gmatch "\nfails: process %d+: ([^\n]*)" do
    if not seen[name] then
      seen[name], count = true, count + 1
    end
  end
  return count
end

---@param cpu number the seconds of the cores' time that it and its processes took
local function finish(spec, status, cpu)
  local text = mpi.slurp(spec.folder .. "/log"):gsub("\r", "")
  os.execute(("rm -rf '%s'"):format(spec.folder))
  local line, after = ("\n" .. text):match "\n(%d+ success[^\n]*pending[^\n]*)(.*)"
  line = line or ""
  local good, bad = number(line, "success"), (number(line, "failure") or 0) + (number(line, "error") or 0)
  local pending, elsewhere = number(line, "pending") or 0, spec.job and failed_elsewhere(text) or 0
  if good then good, bad = good - elsewhere, bad + elsewhere end
  if good and (status == 0) == (bad == 0) then
    totals.passed, totals.failed = totals.passed + good, totals.failed + bad
    totals.skipped = totals.skipped + pending
    local before = #failures
    if bad > 0 then failed_cases(spec, spec.job and text or after) end
    if bad > 0 and #failures == before then fail(spec, spec.name .. "\n" .. last_lines(text)) end
  else
    totals.failed = totals.failed + 1
    line = (status == 124 or status == 137) and ("ran past its limit of %d s"):format(limit)
      or ("ended without a result (status %d)"):format(status)
    fail(spec, ("%s %s; the last it said:\n%s"):format(spec.name, line, last_lines(text)))
  end
  print(("%-42s %s (%.1f s CPU)"):format(spec.name, line, cpu))
  if status ~= 0 or pending > 0 then print(text) end
  io.stdout:flush()
end

-- Runs all, of each list as many at once as may be; notes how long each took.
---@param lists {specs: test_spec[], at_once: integer}[]
local function run_all(lists, times)
  local running = {}
  local status, usage = ffi.new "int[1]", ffi.new "run_usage"
  for _, list in ipairs(lists) do list.running, list.started = 0, 0 end
  while true do
    for _, list in ipairs(lists) do
      while list.running < list.at_once and list.started < #list.specs do
        list.running, list.started = list.running + 1, list.started + 1
        local spec = list.specs[list.started]
        running[start(spec)], spec.list = spec, list
      end
    end
    if not next(running) then break end
    local pid = ffi.C.wait4(-1, status, 0, usage)
    local spec = running[pid]
    if spec then
      running[pid], spec.list.running = nil, spec.list.running - 1
      times[spec.name] = clock() - spec.began
      local cpu = tonumber(usage.seconds + usage.system_seconds)
        + tonumber(usage.microseconds + usage.system_microseconds) / 1e6
      totals.cpu = totals.cpu + cpu
      local code, signal = bit.rshift(bit.band(status[0], 0xff00), 8), bit.band(status[0], 0x7f)
      finish(spec, signal ~= 0 and 128 + signal or code, cpu)
    end
  end
end

-- Files of checksums that sources leave beside those that they read. Specs that read the tree's own leave some there;
-- the next run is to begin without. Several suites may run in one tree, as `make test` beside `make asan`: each holds a
-- lock together with the others, and the last to end removes the files. The kernel gives the lock back.
local READ_CLOEXEC, SHARED, ALONE_NOW = 0x80000, 1, 2 + 4 -- O_RDONLY | O_CLOEXEC, LOCK_SH, LOCK_EX | LOCK_NB
local lock = ffi.C.open("tests", READ_CLOEXEC)
assert(lock >= 0 and ffi.C.flock(lock, SHARED) == 0, "the folder tests cannot be locked")

local function remove_side_cars()
  if ffi.C.flock(lock, ALONE_NOW) ~= 0 then return end -- another suite runs
  local list = output_of "find examples recipes tests -name '*.shardrt-index'"
  for path in list:gmatch "[^\n]+" do os.remove(path) end
end

local times, began = read_times(), clock()
local places = sort_specs(arg, times)
run_all({
  { specs = places.together, at_once = jobs }, { specs = places.waiting, at_once = math.min(WAITING, jobs) },
}, times)
run_all({ { specs = places.alone, at_once = 1 } }, times)
write_times(times)
remove_side_cars()

print(("%d spec%s, %d at once and %d alone, in %.0f s: %.0f s of the cores' time"):format(#arg, #arg == 1 and "" or "s",
  jobs, #places.alone, clock() - began, totals.cpu))
for i, text in ipairs(failures) do print(("\n%d of %d that failed: %s"):format(i, #failures, text)) end
if #failures > 0 then print "" end
print(("%d passed, %d failed%s"):format(totals.passed, totals.failed,
  totals.skipped > 0 and (", %d skipped"):format(totals.skipped) or ""))
os.exit(totals.failed == 0 and totals.passed > 0 and 0 or 1)

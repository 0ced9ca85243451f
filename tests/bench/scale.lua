-- What grows with the number of processes: messages and bytes that a process sends, the most of any, for one of each of
-- tests/bench/scale_once.lua's cases. (a) Counted in jobs on this machine by OpenMPI's monitoring, which sees what its
-- collectives are made of, too; the last one over 4 hosts made on this machine, where that is allowed. (b) Worked out
-- from the routes of the arrays and the meetings on the way, also for jobs that nobody runs, of 64 processes on each
-- host. Where both are there, they must be the same: else this fails. SHARDRT_SCALE="4 8 64 4x4" says which jobs run.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local fail = require "shardrt.base.error"
local files_of = require "tests.support.files"
local hosts_of = require "tests.support.hosts"
local mpi = require "tests.support.mpi"

local NEAR, TOKEN, FOLDED = 32, 64, 32 -- as comm/collective.h has them: processes, bytes, bytes
local FOLD = 60 -- numbers, as platform/comm.h has it
local FILES, MEGA, TRIES = 1000, 2 ^ 20, 3

-- ---- worked out --------------------------------------------------------------------------------------------------

-- A job: its processes; of each, the first one on its host; and those whose messages are looked at.
local function job_of(processes, here)
  local job = { processes = processes, here = here, hosts = ffi.new("int32_t[?]", processes), asked = {} }
  for p = 0, processes - 1 do job.hosts[p] = p - p % here end
  for p = 0, processes > 64 and 1 or processes - 1 do job.asked[#job.asked + 1] = p end
  return job
end

-- Over all devices; no entries: on the first one.
local function sharding(processes, entries)
  local mesh, out, counts, names = ffi.new "shardrt_mesh *[1]", ffi.new "shardrt_sharding *[1]", {}, {}
  if not entries then
    fail.check(C.shardrt_sharding_single(0, out))
    return ffi.gc(out[0], C.shardrt_sharding_free)
  end
  fail.check(C.shardrt_mesh_new(1, ffi.new("int64_t[1]", processes), ffi.new("const char *[1]", { "x" }), 0, nil,
    processes, mesh))
  for d, is_cut in ipairs(entries) do
    counts[d] = is_cut and 1 or 0
    names[#names + 1] = is_cut and "x" or nil
  end
  fail.check(C.shardrt_sharding_new(mesh[0], #counts, ffi.new("int32_t[?]", #counts + 1, counts),
    ffi.new("const char *[?]", #names + 1, names), out))
  C.shardrt_mesh_free(mesh[0])
  return ffi.gc(out[0], C.shardrt_sharding_free)
end

local function add(sum, job, messages, bytes)
  for _, p in ipairs(job.asked) do
    sum[p] = sum[p] or { messages = 0, bytes = 0 }
    sum[p].messages, sum[p].bytes = sum[p].messages + messages, sum[p].bytes + messages * bytes
  end
end

-- Adds what processes send as an array of float32 changes its layout: a message for each move.
local function route(sum, job, shape, from, to)
  from, to = sharding(job.processes, from), sharding(job.processes, to)
  local out, count, shift = ffi.new "shardrt_route *[1]", ffi.new "int64_t[1]", ffi.new "shardrt_shift"
  shift.ndim = #shape
  for d, size in ipairs(shape) do shift.old_shape[d - 1], shift.new_shape[d - 1] = size, size end
  add(sum, job, 0, 0)
  for _, p in ipairs(job.asked) do
    fail.check(C.shardrt_route_over_hosts(from, to, shift, p, 1, job.hosts, out))
    local moves = C.shardrt_route_moves(out[0], C.SHARDRT_SENDS, count)
    for i = 0, tonumber(count[0]) - 1 do
      local box, elements = moves[i].box, 1
      for d = 0, #shape - 1 do elements = elements * tonumber(box.stop[d] - box.start[d]) end
      assert(elements * 4 <= MEGA or #shape == 1 and elements * 4 <= 16 * MEGA, "larger ones go in pieces")
      sum[p].messages, sum[p].bytes = sum[p].messages + 1, sum[p].bytes + 4 * elements
    end
    C.shardrt_route_free(out[0])
  end
end

-- A gathering: its messages go from each to each.
local function gather(sum, job, bytes, processes)
  add(sum, job, (processes or job.processes) - 1, bytes)
end

-- OpenMPI's all-reduce: up a tree and down again, of which the root sends most.
local function reduce(sum, job, bytes)
  add(sum, job, math.ceil(math.log(job.processes) / math.log(2) - 1e-9), bytes)
end

-- Of few processes a gathering.
local function meet(sum, job, count)
  for _ = 1, count do
    if job.processes <= NEAR then
      gather(sum, job, TOKEN)
    else
      reduce(sum, job, FOLDED)
    end
  end
end

local function stages_of(processes)
  local stages = {}
  while processes > 1 do
    local size = math.min(processes, 16)
    while size > 1 and processes % size ~= 0 do size = size - 1 end
    if size == 1 then size = processes end
    stages[#stages + 1], processes = size, processes / size
  end
  return stages
end

-- As ops/dispatch.lua completes a sum over many processes: in stages. Those whose processes are on several hosts have
-- parts that are too small to be relayed.
local function add_in_stages(sum, job, elements)
  local stages, cut, little = stages_of(job.processes), {}, elements * 4 <= 65536
  for i = #stages, 1, -1 do
    local size = stages[i]
    if not little and elements % size == 0 then
      elements = elements / size
      table.insert(cut, 1, { size = size, elements = elements })
    end
    meet(sum, job, 1)
    gather(sum, job, 4 * elements, size)
  end
  for _, one in ipairs(cut) do
    meet(sum, job, 1)
    gather(sum, job, 4 * one.elements, one.size)
  end
end

-- And over few: what is little, and what processes do not divide, in one exchange; else each adds up a part.
local function add_up(sum, job, elements)
  local processes = job.processes
  if processes > NEAR then return add_in_stages(sum, job, elements) end
  meet(sum, job, 1)
  if elements * 4 <= 65536 or elements % processes ~= 0 then
    route(sum, job, { processes, elements }, { true }, { false })
    return
  end
  route(sum, job, { processes, elements }, { true }, { false, true })
  meet(sum, job, 1)
  route(sum, job, { elements }, { true }, { false })
end

-- Numbers of which the and is taken, in rounds.
local function fold(sum, job, count)
  while count > 0 do
    local bytes = 8 * math.min(count, FOLD)
    if job.processes <= NEAR then
      gather(sum, job, bytes)
    else
      reduce(sum, job, bytes)
    end
    count = count - FOLD
  end
end

local CASES = {
  { name = "step", what = "a loader's step", times = 20, work_out = function() end },
  { name = "meeting", what = "a meeting", times = 20, work_out = function(sum, job) meet(sum, job, 1) end },
  { name = "sum_1k", what = "np.sum of 1 KB", times = 4, work_out = function(sum, job)
    add_up(sum, job, 256)
  end },
  { name = "sum_4m", what = "np.sum of 4 MB", times = 2, work_out = function(sum, job)
    add_up(sum, job, MEGA)
  end },
  { name = "gradient", what = "a gradient step", times = 2, work_out = function(sum, job)
    for _, elements in ipairs { 256 * 256, 256, 256 * 10, 10, 1 } do -- parameters, and the loss
      add_up(sum, job, elements)
    end
  end },
  { name = "reshard", what = "a reshard of 4 MB each", times = 2, work_out = function(sum, job)
    meet(sum, job, 1)
    route(sum, job, { job.processes, MEGA }, { true }, { false, true })
  end },
  { name = "broadcast", what = "4 MB of one for all", times = 2, work_out = function(sum, job)
    meet(sum, job, 1)
    route(sum, job, { MEGA }, nil, { false })
  end },
  { name = "open", what = "opening 1,000 files", times = 2, shares_files = true, work_out = function(sum, job)
    meet(sum, job, 10)
    fold(sum, job, 1)
    if job.processes <= NEAR then
      gather(sum, job, 40 * math.ceil(FILES / job.processes))
    else
      fold(sum, job, 5 * FILES)
    end
  end },
  { name = "save", what = "saving a checkpoint", times = 4, work_out = function(sum, job)
    meet(sum, job, 14)
    -- Of few they come along: whether to end, its name, what each writes, the file's size, the hash of its one piece.
    for _, bytes in ipairs(job.processes > NEAR and { 16, 16, 32, 16, 8 } or {}) do gather(sum, job, bytes) end
  end },
}

local function worked_out(case, job)
  local sum, most = {}, { messages = 0, bytes = 0 }
  case.work_out(sum, job)
  for _, one in pairs(sum) do
    for key, value in pairs(one) do most[key] = math.max(most[key], value) end
  end
  return most
end

-- ---- counted -----------------------------------------------------------------------------------------------------

-- Notes of 120 bytes, in which processes that crowd the cores say that they wait, are no part of it. Nothing else is of
-- 64 to 127 bytes, unless processes are few.
local COUNT = [[awk -F'[\t ]' -v notes=%d '/^[EI]\t/ {
  m += $6; b += $4; split($9, n, ",")
  m -= notes * n[8]; b -= notes * 120 * n[8]
} END { print m + 0, b + 0 }' %s/x.%d.prof]]

local once = files_of.slurp "tests/bench/scale_once.lua"

-- What each process of a job sends: {messages =, bytes =}.
local function sent(bench, case, times, job, files)
  local folder = mpi.folder()
  local options = ("--mca pml_monitoring_enable 2 --mca pml_monitoring_enable_output 3 --mca pml_monitoring_filename "
    .. "%s/x"):format(folder)
  if job.processes > job.here then
    local result = hosts_of.run {
      hosts = job.processes / job.here, processes = job.here, devices = 1, source = once, mpirun = options,
      args = { case.name, times, files }, limit = 600,
    }
    assert(result.status == 0, result.output)
  else
    bench.output(("%s mpirun -n %d %s %s tests/bench/scale_once.lua %s %d %s"):format(mpi.environment, job.processes,
      options, mpi.program(), case.name, times, files), 600)
  end
  local list = {}
  for p = 0, job.processes - 1 do
    local messages, bytes = bench.output(COUNT:format(job.processes > NEAR and 1 or 0, folder, p)):match "^(%S+) (%S+)"
    list[p] = { messages = tonumber(messages), bytes = tonumber(bytes) }
  end
  mpi.remove(folder)
  return list
end

local function counted(bench, case, job, files)
  local before, after = sent(bench, case, 1, job, files), sent(bench, case, 1 + case.times, job, files)
  local most = { messages = 0, bytes = 0 }
  for p = 0, job.processes - 1 do
    for key, value in pairs(most) do most[key] = math.max(value, (after[p][key] - before[p][key]) / case.times) end
  end
  return most
end

-- ---- the table ---------------------------------------------------------------------------------------------------

local function amount(bytes)
  for _, unit in ipairs { { 2 ^ 30, "GB" }, { 2 ^ 20, "MB" }, { 2 ^ 10, "KB" } } do
    if bytes >= unit[1] then return ("%.3g %s"):format(bytes / unit[1], unit[2]) end
  end
  return ("%.0f B"):format(bytes)
end

local function show(case, job, sum, how)
  print(("%-22s %7d processes, %4d on a host: %8.0f messages, %10s  %s"):format(case.what, job.processes, job.here,
    sum.messages, amount(sum.bytes), how))
  io.stdout:flush()
end

-- Whether what is counted is what is worked out. Where processes are few, notes that they wait are counted, too, when
-- the machine is busy: that is tried again.
local function check(bench, case, job, files)
  local expected, found = worked_out(case, job), nil
  for _ = 1, TRIES do
    found = counted(bench, case, job, files)
    if found.messages == expected.messages and found.bytes == expected.bytes then
      show(case, job, found, "counted, as worked out")
      return true
    end
  end
  show(case, job, found, ("! counted; worked out: %.0f messages, %.0f bytes, not %.1f"):format(expected.messages,
    expected.bytes, found.bytes))
  return false
end

-- "64", or "4x4": hosts, and processes on each.
local function jobs_of(text)
  local list, missing = {}, hosts_of.missing()
  for word in text:gmatch "%S+" do
    local hosts, here = word:match "^(%d+)x(%d+)$"
    if hosts and missing then
      print(("no %s hosts of %s processes: %s"):format(hosts, here, missing))
    else
      here = tonumber(here or word)
      list[#list + 1] = job_of((tonumber(hosts) or 1) * here, here)
    end
  end
  return list
end

return function(bench)
  if bench.output("ompi_info 2>/dev/null | grep -c 'pml: monitoring' || true") == "0\n" then
    print "no OpenMPI with its monitoring is here: nothing is counted"
    return
  end
  local files = mpi.folder()
  for i = 1, FILES do
    local file = assert(io.open(("%s/%04d.jsonl"):format(files, i), "wb"))
    file:write '{"x": 1}\n'
    file:close()
  end
  local jobs, wrong = jobs_of(os.getenv "SHARDRT_SCALE" or "4 8 64 4x4"), {}
  for _, case in ipairs(CASES) do
    for _, job in ipairs(jobs) do
      if (job.here == job.processes or not case.shares_files) and not check(bench, case, job, files) then
        wrong[#wrong + 1] = ("%s, %d processes"):format(case.what, job.processes)
      end
    end
    for _, processes in ipairs { 1024, 8192, 131072 } do
      local job = job_of(processes, 64)
      show(case, job, worked_out(case, job), "worked out")
    end
  end
  mpi.remove(files)
  assert(#wrong == 0, "what is counted is not what is worked out: " .. table.concat(wrong, "; "))
end

-- What grows with the number of processes: messages and bytes that a process sends, the most of any, for one of each of
-- tests/bench/scale_once.lua's cases. (a) Counted in jobs on this machine by OpenMPI's monitoring, which sees what its
-- collectives are made of, too. (b) Worked out for jobs that nobody runs, from the routes of the arrays and the
-- meetings on the way. Where both are there, they must be the same. SHARDRT_SCALE="4 8 64" says which jobs run.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local fail = require "shardrt.base.error"
local mpi = require "tests.support.mpi"

local NEAR, TOKEN, FOLDED = 32, 64, 32 -- as comm/collective.h has them: processes, bytes, bytes
local FOLD = 60 -- numbers, as platform/comm.h has it
local FILES, MEGA = 1000, 2 ^ 20

-- ---- worked out --------------------------------------------------------------------------------------------------

local function sharding(processes, entries)
  local mesh, out, counts, names = ffi.new "shardrt_mesh *[1]", ffi.new "shardrt_sharding *[1]", {}, {}
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

-- Adds what process 1 sends as an array of float32 changes its layout: a message to each process that it sends to.
local function route(sum, processes, shape, from, to)
  local out, count = ffi.new "shardrt_route *[1]", ffi.new "int64_t[1]"
  fail.check(C.shardrt_route_new(sharding(processes, from), sharding(processes, to), #shape,
    ffi.new("int64_t[?]", #shape, shape), 1, 1, out))
  local moves = C.shardrt_route_moves(out[0], C.SHARDRT_SENDS, count)
  for i = 0, tonumber(count[0]) - 1 do
    local box, elements = moves[i].box, 1
    for d = 0, #shape - 1 do elements = elements * tonumber(box.stop[d] - box.start[d]) end
    assert(elements * 4 <= MEGA, "larger ones go in pieces")
    sum.messages, sum.bytes = sum.messages + 1, sum.bytes + 4 * elements
  end
  C.shardrt_route_free(out[0])
end

-- A gathering: its messages go from each to each.
local function gather(sum, processes, bytes)
  sum.messages, sum.bytes = sum.messages + processes - 1, sum.bytes + (processes - 1) * bytes
end

-- OpenMPI's all-reduce: up a tree and down again, of which the root sends most.
local function reduce(sum, processes, bytes)
  local sends = math.ceil(math.log(processes) / math.log(2) - 1e-9)
  sum.messages, sum.bytes = sum.messages + sends, sum.bytes + sends * bytes
end

-- Of few processes a gathering.
local function meet(sum, processes, count)
  for _ = 1, count do
    if processes <= NEAR then
      gather(sum, processes, TOKEN)
    else
      reduce(sum, processes, FOLDED)
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

-- As ops/dispatch.lua completes a sum over many processes: in stages.
local function add_in_stages(sum, processes, elements)
  local stages, cut, little = stages_of(processes), {}, elements * 4 <= 65536
  for i = #stages, 1, -1 do
    local size = stages[i]
    if not little and elements % size == 0 then
      elements = elements / size
      table.insert(cut, 1, { size = size, elements = elements })
    end
    meet(sum, processes, 1)
    gather(sum, size, 4 * elements)
  end
  for _, one in ipairs(cut) do
    meet(sum, processes, 1)
    gather(sum, one.size, 4 * one.elements)
  end
end

-- And over few: what is little, and what processes do not divide, in one exchange; else each adds up a part.
local function add_up(sum, processes, elements)
  if processes > NEAR then return add_in_stages(sum, processes, elements) end
  meet(sum, processes, 1)
  if elements * 4 <= 65536 or elements % processes ~= 0 then
    route(sum, processes, { processes, elements }, { true }, { false })
    return
  end
  route(sum, processes, { processes, elements }, { true }, { false, true })
  meet(sum, processes, 1)
  route(sum, processes, { elements }, { true }, { false })
end

-- Numbers of which the and is taken, in rounds.
local function fold(sum, processes, count)
  while count > 0 do
    local bytes = 8 * math.min(count, FOLD)
    if processes <= NEAR then
      gather(sum, processes, bytes)
    else
      reduce(sum, processes, bytes)
    end
    count = count - FOLD
  end
end

local CASES = {
  { name = "step", what = "a loader's step", times = 20, work_out = function() end },
  { name = "meeting", what = "a meeting", times = 20, work_out = function(sum, processes) meet(sum, processes, 1) end },
  { name = "sum_1k", what = "np.sum of 1 KB", times = 4, work_out = function(sum, processes)
    add_up(sum, processes, 256)
  end },
  { name = "sum_4m", what = "np.sum of 4 MB", times = 2, work_out = function(sum, processes)
    add_up(sum, processes, MEGA)
  end },
  { name = "gradient", what = "a gradient step", times = 2, work_out = function(sum, processes)
    for _, elements in ipairs { 256 * 256, 256, 256 * 10, 10, 1 } do -- parameters, and the loss
      add_up(sum, processes, elements)
    end
  end },
  { name = "reshard", what = "a reshard of 4 MB each", times = 2, work_out = function(sum, processes)
    meet(sum, processes, 1)
    route(sum, processes, { processes, MEGA }, { true }, { false, true })
  end },
  { name = "open", what = "opening 1,000 files", times = 2, work_out = function(sum, processes)
    meet(sum, processes, 5)
    fold(sum, processes, FILES)
  end },
  { name = "save", what = "saving a checkpoint", times = 4, work_out = function(sum, processes)
    meet(sum, processes, 14)
    -- Of few they come along: whether to end, its name, what each writes, the file's size, the hash of its one piece.
    for _, bytes in ipairs(processes > NEAR and { 16, 16, 32, 16, 8 } or {}) do gather(sum, processes, bytes) end
  end },
}

local function worked_out(case, processes)
  local sum = { messages = 0, bytes = 0 }
  case.work_out(sum, processes)
  return sum
end

-- ---- counted -----------------------------------------------------------------------------------------------------

-- Notes of 120 bytes, in which processes that crowd the cores say that they wait, are no part of it. Nothing else is of
-- 64 to 127 bytes, unless processes are few.
local COUNT = [[awk -F'[\t ]' -v notes=%d '/^[EI]\t/ {
  m += $6; b += $4; split($9, n, ",")
  m -= notes * n[8]; b -= notes * 120 * n[8]
} END { print m + 0, b + 0 }' %s/x.%d.prof]]

-- What each process of a job sends: {messages =, bytes =}.
local function sent(bench, case, times, processes, files)
  local folder = mpi.folder()
  bench.output(("%s mpirun -n %d --mca pml_monitoring_enable 2 --mca pml_monitoring_enable_output 3 "
    .. "--mca pml_monitoring_filename %s/x %s tests/bench/scale_once.lua %s %d %s"):format(mpi.environment, processes,
    folder, mpi.program(), case.name, times, files), 600)
  local list = {}
  for p = 0, processes - 1 do
    local messages, bytes = bench.output(COUNT:format(processes > NEAR and 1 or 0, folder, p)):match "^(%S+) (%S+)"
    list[p] = { messages = tonumber(messages), bytes = tonumber(bytes) }
  end
  mpi.remove(folder)
  return list
end

local function counted(bench, case, processes, files)
  local before, after = sent(bench, case, 1, processes, files), sent(bench, case, 1 + case.times, processes, files)
  local most = { messages = 0, bytes = 0 }
  for p = 0, processes - 1 do
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

local function show(case, processes, sum, how)
  print(("%-24s %7d processes: %8.0f messages, %10s  %s"):format(case.what, processes, sum.messages, amount(sum.bytes),
    how))
  io.stdout:flush()
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
  for _, case in ipairs(CASES) do
    for processes in (os.getenv "SHARDRT_SCALE" or "4 8 64"):gmatch "%d+" do
      processes = tonumber(processes)
      local found, expected = counted(bench, case, processes, files), worked_out(case, processes)
      local same = found.messages == expected.messages and found.bytes == expected.bytes
      show(case, processes, found, same and "counted, as worked out"
        or ("counted; worked out: %.0f messages, %.0f bytes, not %.1f"):format(expected.messages, expected.bytes,
          found.bytes))
    end
    for _, processes in ipairs { 1024, 8192, 131072 } do
      show(case, processes, worked_out(case, processes), "worked out")
    end
  end
  mpi.remove(files)
end

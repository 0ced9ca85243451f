-- `shardrt report`: the page of what a trace holds. A trace is read line by line, as --trace writes it: each event has
-- a line of its own.

local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local ffi = require "ffi"
local fail = require "shardrt.base.error"
local report_page = require "shardrt.program.report_page"
fail.own()

local report_trace = {}

local HELP = [[
usage: shardrt report [-o PAGE] TRACE...

Writes one page about a job, of what `shardrt --trace TRACE` recorded of it: samples a second and the share of waiting
over the steps, where the time of each process goes, and how many bytes each took. A job that failed leaves a trace of
each process: give them all. `shardrt --report PAGE recipe.lua` knows more: layouts, and what was skipped.

  -o PAGE                the page; report.html by default
  --help                 print and end
]]

local MOST_POINTS = 4096 -- of a loader, at a time

-- What is counted for an event of a name: seconds, and its amount.
local SECONDS = {
  wait = "wait_seconds", move = "move_seconds", read = "read_seconds", decode = "decode_seconds",
  transform = "transform_seconds", scatter = "scatter_seconds", check = "check_seconds", upload = "upload_seconds",
}
local AMOUNTS = { read = { "bytes_read", "bytes" }, move = { "bytes_moved", "bytes" },
  upload = { "bytes_uploaded", "bytes" } }

local EVENT = '^{"name":"([^"]+)","ph":"X","pid":(%d+),"tid":%d+,"cat":"%a+","ts":(%-?[%d.]+),"dur":([%d.]+),'
  .. '"args":{(.*)}},?$'
local NAMED = '^{"name":"process_name","ph":"M","pid":(%d+),.*"args":{"name":"process %d+ on (.*)"}},?$'

local function new_totals()
  local totals = { bytes_read = 0, bytes_moved = 0, bytes_uploaded = 0, samples = 0, steps = 0, seconds = 0 }
  for _, name in pairs(SECONDS) do totals[name] = 0 end
  return totals
end

-- What a loader did in a process, so far.
local function part_of(read, number, pid)
  local loader = read.loaders[number]
  if not loader then
    loader = { by_pid = {}, numbers = number }
    read.loaders[number] = loader
  end
  local part = loader.by_pid[pid]
  if not part then
    part = { totals = new_totals(), steps = {} }
    loader.by_pid[pid] = part
  end
  return part
end

local function add_step(part, start, stop, rows)
  part.first = math.min(part.first or start, start)
  part.last = math.max(part.last or stop, stop)
  part.totals.samples = part.totals.samples + rows
  if rows == 0 then return end -- the end was found
  part.totals.steps = part.totals.steps + 1
  if part.totals.steps % (part.every or 1) ~= 0 then return end
  part.steps[#part.steps + 1] = { time = stop, steps = part.totals.steps, samples = part.totals.samples,
    wait = part.totals.wait_seconds }
  if #part.steps < MOST_POINTS then return end
  for i = 1, MOST_POINTS do part.steps[i] = part.steps[2 * i] end
  part.every = 2 * (part.every or 1)
end

local function add_event(read, name, pid, start, duration, arguments)
  local number = tonumber(arguments:match '"loader":(%d+)')
  if not number then return end
  local part = part_of(read, number, pid)
  local totals, seconds = part.totals, duration / 1e6
  if SECONDS[name] then totals[SECONDS[name]] = totals[SECONDS[name]] + seconds end
  local amount = AMOUNTS[name]
  if amount then
    totals[amount[1]] = totals[amount[1]] + (tonumber(arguments:match('"' .. amount[2] .. '":(%d+)')) or 0)
  elseif name == "next batch" then
    -- Its waiting, which lies in it, comes behind it in the file.
    if part.open then add_step(part, unpack(part.open)) end
    local from = start / 1e6
    part.open = { from, from + seconds, tonumber(arguments:match '"rows":(%d+)') or 0 }
  end
end

-- "ended", processes and devices, of the head.
local function read_head(read, line)
  local processes, devices, ended = line:match '"processes":(%d+),"devices per process":(%d+),"ended":"([^"]*)"'
  if not processes then return end
  read.process_count, read.devices = tonumber(processes), tonumber(devices)
  if not read.ended or ended ~= "in order" then read.ended = ended end
end

local function read_file(read, path)
  local file, problem = io.open(path, "rb")
  if not file then fail("shardrt report: %s cannot be read: %s", path, (problem:gsub("^.-: ", ""))) end
  local first, count = file:read "*l" or "", 0
  if not first:find('{"displayTimeUnit"', 1, true) then
    file:close()
    fail("shardrt report: %s is no trace as `shardrt --trace` writes it", path)
  end
  for line in file:lines() do
    local name, pid, start, duration, arguments = line:match(EVENT)
    if name then
      add_event(read, name, tonumber(pid), tonumber(start), tonumber(duration), arguments)
    elseif line:find('"otherData"', 1, true) then
      read_head(read, line)
    else
      local of, host = line:match(NAMED)
      if of then read.hosts[tonumber(of)] = host:gsub("\\(.)", "%1") end
      count = count + (tonumber(line:match '"dropped":(%d+)') or 0)
    end
  end
  file:close()
  read.dropped = read.dropped + count
end

local function loader_of(read, number)
  local loader, processes, pids = read.loaders[number], {}, {}
  for pid in pairs(loader.by_pid) do pids[#pids + 1] = pid end
  table.sort(pids)
  local points = { time = {}, steps = {}, samples = {}, wait = {} }
  for i, pid in ipairs(pids) do
    local part = loader.by_pid[pid]
    if part.open then add_step(part, unpack(part.open)) end
    part.totals.seconds = part.first and part.last - part.first or 0
    if i == 1 then
      for k, step in ipairs(part.steps) do
        points.time[k], points.steps[k], points.samples[k], points.wait[k] = step.time, step.steps, step.samples,
          step.wait
      end
    end
    processes[i] = { process = pid, host = read.hosts[pid] or "", totals = part.totals }
    read.seconds = math.max(read.seconds, part.last or 0)
  end
  return { where = ("loader %d"):format(number), text = "by the trace", loaders = 1, points = points,
    processes = processes }
end

local function parse(words)
  local o, i = { paths = {}, page = "report.html" }, 1
  while i <= #words do
    local word = words[i]
    if word == "--help" or word == "-h" then
      o.help = true
    elseif word == "-o" then
      i = i + 1
      o.page = words[i] or ""
    elseif word:sub(1, 1) == "-" then
      fail("shardrt report: unknown option %s (shardrt report --help lists them)", word)
    else
      o.paths[#o.paths + 1] = word
    end
    i = i + 1
  end
  if o.page == "" then fail "shardrt report: -o wants the path of a file" end
  if #o.paths == 0 and not o.help then fail "shardrt report: no trace is given (shardrt report --help)" end
  return o
end

--- `shardrt report` with the words behind it, in process 0.
---@param words string[]
function report_trace.run(words)
  local o = parse(words)
  if not collective.is_first() then return end
  if o.help then
    io.stdout:write(HELP)
    return
  end
  local read = { loaders = {}, hosts = {}, dropped = 0, seconds = 0, process_count = 1, devices = 1 }
  for _, path in ipairs(o.paths) do read_file(read, path) end
  local numbers, loaders = {}, {}
  for number in pairs(read.loaders) do numbers[#numbers + 1] = number end
  table.sort(numbers)
  for i, number in ipairs(numbers) do loaders[i] = loader_of(read, number) end
  local page = report_page.write {
    title = table.concat(o.paths, ", "), seconds = read.seconds, version = ffi.string(C.shardrt_version()),
    ended = read.ended or "?", process_count = read.process_count, devices = read.devices, loaders = loaders,
    note = read.dropped > 0 and ("The trace forgot %d earlier events: these numbers are of what is left.")
      :format(read.dropped) or nil,
  }
  fail.check(C.shardrt_file_save(o.page, page, #page), "shardrt report")
end

return report_trace

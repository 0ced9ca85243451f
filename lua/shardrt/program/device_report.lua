-- `shardrt devices`: what each process of the job has to compute with, the libraries that it finds for that, and what
-- is missing. Process 0 prints it for all.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
fail.own()

local device_report = {}

local HELP = [[
usage: shardrt [options] devices
       shardrt run -n N [options] devices

Shows, process by process, which devices a job has: cores, memory and NUMA nodes of the host, and of each GPU its
number, name, PCI bus, compute capability and memory. A second table has the links to all GPUs of the job that a
process sees: same (they are one GPU), nvlink, peer (peer access by PCIe) or host (through the memory of the host). Then
come the libraries that were found, where they lie, and what is missing, with what would do.

Options are those of recipes: --platform and --devices make the devices that a recipe would have.
]]

local GIB = 2 ^ 30

-- ---- texts ----------------------------------------------------------------------------------------------------------

-- Rows of cells, in columns that are as wide as they must be, each line behind two blanks.
local function add_table(lines, rows)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, #cell) end
  end
  for _, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do cells[i] = cell .. (" "):rep(i < #row and widths[i] - #cell or 0) end
    lines[#lines + 1] = "  " .. table.concat(cells, "  ")
  end
end

local function gib(bytes) return ("%.1f GiB"):format(tonumber(bytes) / GIB) end

-- What a pattern captures in a file of the system's; nil: there is no such file, or line.
local function look(path, pattern)
  local file = io.open(path, "rb")
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return text:match(pattern)
end

-- "0", "0 and 1", "0 to 3", "0, 2 and 3": of ascending numbers.
local function ranges(numbers)
  local words, i = {}, 1
  while i <= #numbers do
    local stop = i
    while numbers[stop + 1] == numbers[stop] + 1 do stop = stop + 1 end
    if stop - i >= 2 then
      words[#words + 1] = ("%d to %d"):format(numbers[i], numbers[stop])
    else
      for k = i, stop do words[#words + 1] = tostring(numbers[k]) end
    end
    i = stop + 1
  end
  local last = table.remove(words)
  return #words > 0 and table.concat(words, ", ") .. " and " .. last or last
end

-- ---- devices --------------------------------------------------------------------------------------------------------

local function own_ids()
  local ids, each = {}, current.info.devices_per_process
  for d = 1, each do ids[d] = current.info.process_index * each + d - 1 end
  return ids
end

local function host_line()
  local machine = ffi.new "shardrt_machine"
  C.shardrt_machine_get(machine)
  local cores = look("/proc/self/status", "Cpus_allowed_list:%s*([%d,-]+)")
  local nodes = look("/sys/devices/system/node/online", "^[%d,-]+")
  local word = nodes and nodes:find "%D" and "nodes" or "node"
  return ("  host: %s, %d %s%s, %s of %s of memory%s"):format(look("/proc/cpuinfo", "model name%s*:%s*([^\n]+)")
    or "processor", machine.cores, machine.cores == 1 and "core" or "cores", cores and (" (%s)"):format(cores) or "",
    gib(machine.memory), gib(machine.all_memory), nodes and (", NUMA %s %s"):format(word, nodes) or "")
end

-- The links from this process's GPUs to those of the job that it sees. Every process must call it.
local function add_links(lines, gpus)
  local uuids, each = {}, current.info.devices_per_process
  for d = 1, each do
    local words = ffi.new "int64_t[2]"
    if gpus[d] then ffi.copy(words, gpus[d].uuid, 16) end
    uuids[2 * d - 1], uuids[2 * d] = words[0], words[1]
  end
  local all, count = collective.gather_numbers("shardrt devices: GPUs", uuids), current.info.process_count * each
  local links = ffi.new("int32_t[?]", count * count)
  local code = C.shardrt_gpu_links(count, ffi.cast("const uint8_t *", all), links)
  if code < 0 then
    lines[#lines + 1] = "  links: " .. fail.message(code)
    return
  end
  local function name(from, to) return ffi.string(C.shardrt_gpu_link_name(links[from * count + to])) end
  local ids, rows, seen = own_ids(), { { "link" } }, {}
  local known -- a device whose GPU answered
  for d, id in ipairs(ids) do known = known or gpus[d] and id end
  for other = 0, known and count - 1 or -1 do
    if name(known, other) ~= "" then
      seen[#seen + 1] = other
      table.insert(rows[1], tostring(other))
    end
  end
  for d, id in ipairs(ids) do
    local row = { tostring(id) }
    for i, other in ipairs(seen) do row[i + 1] = gpus[d] and name(id, other) or "?" end
    rows[#rows + 1] = row
  end
  if #seen > 1 then add_table(lines, rows) end
end

local function add_gpus(lines)
  local gpus, ids = {}, own_ids()
  local rows = { { "device", "GPU", "name", "PCI bus", "capability", "memory", "free" } }
  local problems = {}
  for d, id in ipairs(ids) do
    local gpu = ffi.new "shardrt_gpu"
    local code = C.shardrt_gpu_get(d - 1, gpu)
    if code == 0 then
      gpus[d] = gpu
      rows[#rows + 1] = { tostring(id), tostring(gpu.number), ffi.string(gpu.name), ffi.string(gpu.bus),
        ("%d.%d"):format(gpu.major, gpu.minor), gib(gpu.memory), gib(gpu.available) }
    else
      problems[#problems + 1] = ("  device %d: %s"):format(id, fail.message(code))
    end
  end
  add_table(lines, rows)
  for _, problem in ipairs(problems) do lines[#lines + 1] = problem end
  add_links(lines, gpus)
end

-- What this process has.
local function devices_text()
  local info, ids = current.info, own_ids()
  local platform = ffi.string(info.platform)
  local lines = {
    ("process %d on %s: device%s %s, of platform %s"):format(info.process_index, collective.host_name(),
      #ids == 1 and "" or "s", ranges(ids), platform), host_line(),
  }
  if platform ~= "host" then add_gpus(lines) end
  return table.concat(lines, "\n")
end

-- ---- libraries ------------------------------------------------------------------------------------------------------

-- The MPI that this process uses: its plug-in and its library, by the files that are mapped.
local function add_mpi(rows)
  local file, found = io.open("/proc/self/maps", "rb"), {}
  if not file then return end
  for line in file:lines() do
    local path = line:match "%s(/.*)$"
    local name = path and path:match "[^/]*$" or ""
    local what = name:find "^libmpi[%w]*%.so" and "MPI"
      or name:find "^shardrt%-[%w]+%.so$" and name ~= "shardrt-cuda.so" and "MPI plug-in"
    if what and not found[path] then
      found[path] = true
      rows[#rows + 1] = { what, "-", path }
    end
  end
  file:close()
end

-- The libraries that this process finds, and what is missing.
local function libraries_text()
  local rows, missing, index = { { "library", "version", "file" } }, {}, 0
  local library = ffi.new "shardrt_gpu_library"
  while C.shardrt_gpu_library_get(index, library) do
    local name, version, path = ffi.string(library.name), ffi.string(library.version), ffi.string(library.path)
    local problem = ffi.string(library.problem)
    if path ~= "" then rows[#rows + 1] = { name, version ~= "" and version or "-", path } end
    if problem ~= "" then missing[#missing + 1] = ("  missing: %s: %s"):format(name, problem) end
    index = index + 1
  end
  local driver = look("/proc/driver/nvidia/version", "%s(%d+%.[%d.]+)%s")
  if driver then rows[#rows + 1] = { "NVIDIA driver", driver, "/proc/driver/nvidia/version" } end
  add_mpi(rows)
  local lines = {}
  if #rows > 1 then add_table(lines, rows) end
  for _, line in ipairs(missing) do lines[#lines + 1] = line end
  return table.concat(lines, "\n")
end

-- ---- the command ----------------------------------------------------------------------------------------------------

-- What processes told alike is printed once.
local function print_libraries(told)
  local texts, who = {}, {}
  for p, text in ipairs(told) do
    if not who[text] then texts[#texts + 1], who[text] = text, {} end
    table.insert(who[text], p - 1)
  end
  for _, text in ipairs(texts) do
    local all = who[text]
    io.stdout:write(("libraries of process%s %s\n"):format(#all == 1 and "" or "es", ranges(all)), text, "\n")
  end
end

--- Runs the command. Every process must call it.
---@param words string[] # behind `devices`
function device_report.run(words)
  for _, word in ipairs(words) do
    if word == "--help" or word == "-h" then
      if collective.is_first() then io.stdout:write(HELP) end
      return
    end
  end
  if #words > 0 then
    if collective.is_first() then
      io.stderr:write(("shardrt devices: it takes no %s; options stand before `devices`\n"):format(words[1]))
    end
    os.exit(2)
  end
  local devices = collective.gather_texts("shardrt devices: devices", devices_text())
  local libraries = collective.gather_texts("shardrt devices: libraries", libraries_text())
  if not collective.is_first() then return end
  io.stdout:write(table.concat(devices, "\n"), "\n")
  print_libraries(libraries)
  io.stdout:flush()
end

return device_report

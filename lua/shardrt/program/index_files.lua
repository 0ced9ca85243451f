-- `shardrt index`: notes the checksums of data files in an index beside each, or compares the files with these.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local file_patterns = require "shardrt.data.file_patterns"
local list = require "shardrt.base.list"
local progress = require "shardrt.loader.progress"
local terminal = require "shardrt.base.terminal"
fail.own()

local index_files = {}

local HELP = [[
usage: shardrt [options] index [--check] [--force] FILES...
       shardrt run -n N [options] index [--check] [--force] FILES...

Writes checksums into FILE.shardrt-index or, where that cannot be written, into the cache folder. Sources then find what
changed since. Each is a CRC-32C: of every 4 KiB block of .npy, tokens, Megatron, IDX, HDF5 and Arrow files, of every
chunk of Zarr arrays, and of every record of tar, tfrecord, csv, jsonl, mds, npz, safetensors and CIFAR files. Of
Parquet files it is of every page, or of every block where the file tells itself where pages are. ArrayRecord files have
checksums of their own, which --check compares.

Earlier checksums stay, so a command that was killed continues where it was. All cores help; under mpirun or
`shardrt run -n N` all processes do.

FILES are paths, patterns in quotes, and folders. Of a folder, all data files are taken.

  --check            compare the files with their checksums, and print a line for each range that is damaged
  --force            forget earlier checksums: the files are known to be good
  --format NAME      say what the files are, where their names and first bytes do not: plain (any file without
                     records), npy, tokens, megatron, idx, hdf5, arrow, zarr, tar, tfrecord, array_record, csv,
                     jsonl, mds, npz, safetensors, cifar, parquet
  --delimiter C, --no-header   read csv files as their sources do
  --cache FOLDER     use this cache folder

Exit status: 0 where all has checksums, or is as it was; 1 where something is damaged, cannot be read, or (--check) has
no checksum; 2 where the command line is wrong.
]]

local PIECE = 256 * 1024 * 1024 -- bytes that a process goes through at a time
local NAMED = 20 -- files without checksums that are told of one by one

-- What a file is by the end of its name.
local ENDINGS = {
  { "%.npy$", "plain" }, { "%.h5$", "plain" }, { "%.hdf5$", "plain" }, { "%.hdf$", "plain" }, { "%.bin$", "plain" },
  { "%-ubyte$", "plain" }, { "%.idx$", "plain" }, { "%.tar$", "tar" }, { "%.tfrecords?$", "tfrecord" },
  { "%.tfrecords?%-%d+%-of%-%d+$", "tfrecord" }, { "%.csv$", "csv" }, { "%.jsonl$", "jsonl" }, { "%.ndjson$", "jsonl" },
  { "%.safetensors$", "safetensors" }, { "%.npz$", "npz" }, { "%.array_records?$", "array_record" },
  { "%.arrayrecords?$", "array_record" }, { "%.parquet$", "parquet" }, { "%.arrow$", "arrow" },
  { "%.feather$", "arrow" },
}
local PLAIN = { plain = true, npy = true, tokens = true, megatron = true, idx = true, hdf5 = true, arrow = true }
local COMPRESSED = { tar = true, tfrecord = true, csv = true, jsonl = true } -- they may be
local RECORDS = {
  tar = true, tfrecord = true, csv = true, jsonl = true, mds = true, npz = true, safetensors = true, cifar = true,
  array_record = true, parquet = true,
}

-- ---- the command line -----------------------------------------------------------------------------------------------

local function wrong(format, ...)
  if collective.is_first() then
    io.stderr:write("shardrt index: ", format:format(...), " (shardrt index --help lists the options)\n")
  end
  os.exit(2)
end

local VALUED = { ["--format"] = "format", ["--delimiter"] = "delimiter", ["--cache"] = "cache" }
local FLAGS = { ["--check"] = "check", ["--force"] = "force", ["--no-header"] = "no_header" }

local function parse(words)
  local o, i, only_files = { given = {} }, 1, false
  while i <= #words do
    local word = words[i]
    local name, value = word:match "^(%-%-%w+)=(.*)$"
    if only_files or word:sub(1, 1) ~= "-" then
      o.given[#o.given + 1] = word
    elseif word == "--" then
      only_files = true
    elseif word == "--help" or word == "-h" then
      o.help = true
    elseif FLAGS[word] then
      o[FLAGS[word]] = true
    elseif VALUED[name or word] then
      if not name then i, value = i + 1, words[i + 1] end
      if not value then wrong("%s wants a value", word) end
      o[VALUED[name or word]] = value
    else
      wrong("unknown option %s", word)
    end
    i = i + 1
  end
  if o.help then return o end
  if #o.given == 0 then wrong "no files given" end
  if o.check and o.force then wrong "--check and --force together: there would be nothing to compare with" end
  if o.format and not PLAIN[o.format] and not RECORDS[o.format] and o.format ~= "zarr" then
    local known = { zarr = true }
    for _, names in ipairs { PLAIN, RECORDS } do
      for name in pairs(names) do known[name] = true end
    end
    wrong("--format %s; there are %s", o.format, list.words(known))
  end
  if o.delimiter and #o.delimiter ~= 1 then wrong("--delimiter %s; it is one character", o.delimiter) end
  return o
end

-- ---- which files, and what they are ---------------------------------------------------------------------------------

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

local function head(path, count)
  local file = io.open(path, "rb")
  local text = file and file:read(count) or ""
  if file then file:close() end
  return text or ""
end

-- What a file is; nil: that cannot be told.
local function kind_of(path)
  for _, ending in ipairs(ENDINGS) do
    local name = path:lower()
    if COMPRESSED[ending[2]] then name = name:gsub("%.zst$", ""):gsub("%.gz$", "") end
    if name:find(ending[1]) then return ending[2] end
  end
  local text = head(path, 262)
  if text:find "^\147NUMPY" or text:find "^\137HDF\r\n\26\n" then return "plain" end
  if text:find "^PK\3\4" then return "npz" end
  if text:find "^PAR1" then return "parquet" end
  if text:find "^ARROW1" then return "arrow" end
  if text:sub(258, 262) == "ustar" then return "tar" end
end

local function is_array(folder)
  if exists(folder .. "/.zarray") then return true end
  local text = head(folder .. "/zarr.json", 2 ^ 20)
  return text:find '"node_type"%s*:%s*"array"' ~= nil
end

local function add_file(o, out, path, kind) out[#out + 1] = { path = path, kind = o.format or kind } end

-- All that is in a folder, and in those within.
local function add_folder(o, out, folder)
  if is_array(folder) then return add_file(o, out, folder, "zarr") end
  if exists(folder .. "/index.json") and head(folder .. "/index.json", 4096):find '"shards"' then
    return add_file(o, out, folder, "mds")
  end
  for _, path in ipairs(file_patterns.inside(folder, "*")) do
    if file_patterns.is_folder(path) then
      add_folder(o, out, path)
    elseif path:sub(-#file_patterns.INDEX) ~= file_patterns.INDEX then
      local kind = kind_of(path)
      if kind then add_file(o, out, path, kind) end
    end
  end
end

local function find_files(o)
  local out = {}
  for _, given in ipairs(o.given) do
    for _, path in ipairs(file_patterns.expand("shardrt index", given)) do
      if file_patterns.is_folder(path) then
        local before = #out
        path = path:gsub("(.)/+$", "%1")
        if o.format == "mds" or o.format == "zarr" then add_file(o, out, path) else add_folder(o, out, path) end
        if #out == before then fail("shardrt index: the folder %s has no data files that are known by name", path) end
      else
        local kind = o.format or exists(path) and kind_of(path)
        if path:sub(-#file_patterns.INDEX) == file_patterns.INDEX then goto skipped end -- a shell's * finds them, too
        if exists(path) and not kind then
          fail('shardrt index: %s: what it is cannot be told by its name or first bytes; --format says so', path)
        end
        add_file(o, out, path, kind or "plain") -- which says why it cannot be opened
      end
      ::skipped::
    end
  end
  return out
end

-- ---- progress -------------------------------------------------------------------------------------------------------

---@class shardrt.index_files.Progress # the line that says how far the command is
---@field on boolean # whether this process draws
---@field is_terminal boolean
---@field total number # bytes of all files
---@field done number # of these, what was gone through, by whichever process
---@field looked number # bytes that this process read
---@field start number # by the clock
---@field due number # when the line is drawn again, in seconds since the start
---@field shown boolean? # whether it stands there now
local Progress = {}
Progress.__index = Progress

local function show_progress(asked, total)
  local is_terminal = terminal.is_stderr()
  local on = collective.is_first() and (asked or asked == nil and is_terminal)
  return setmetatable({
    on = on, is_terminal = is_terminal, total = total, done = 0, looked = 0, start = C.shardrt_clock(), due = 0.5,
  }, Progress)
end

local function bytes(number) return progress.short(number) .. "B" end

--- Draws the line, where it is time to.
---@param path string # the file that is gone through now
function Progress:draw(path)
  local spent = C.shardrt_clock() - self.start
  if not self.on or spent < self.due then return end
  self.due = spent + (self.is_terminal and 0.1 or 10)
  local processes = current.info.process_count
  local share = self.total > 0 and math.min(1, self.done / self.total) or 1
  local text = progress.fit({
    ("%d %%"):format(math.floor(100 * share)), ("%s of %s"):format(bytes(self.done), bytes(self.total)),
    bytes(self.looked * processes / spent) .. "/s",
    share > 0 and progress.time(spent / share - spent) .. " left" or "", path,
  }, terminal.width() - 1)
  io.stderr:write(self.is_terminal and "\r\27[K" or "", text, self.is_terminal and "" or "\n")
  self.shown = self.is_terminal
end

--- Takes the line away, before something else is printed.
function Progress:clear()
  if self.shown then io.stderr:write "\r\27[K" end
  self.shown = false
end

-- ---- the work -------------------------------------------------------------------------------------------------------

local audit_out, found = ffi.typeof "shardrt_audit *[1]", ffi.typeof "shardrt_audit_found"

local function c_options(o)
  return ffi.new("shardrt_source_options", {
    cache = o.cache, delimiter = o.delimiter and o.delimiter:byte() or 0, no_header = o.no_header and 1 or 0,
  })
end

local function tell(work, format, ...)
  work.progress:clear()
  io.stdout:write(format:format(...), "\n")
  io.stdout:flush()
end

-- What is damaged, those that follow one another in one line.
local function tell_bad(work, entry, audit)
  local bad, offset, size = {}, ffi.new "int64_t[1]", ffi.new "int64_t[1]"
  while true do
    local text = C.shardrt_audit_bad(audit, #bad, offset, size)
    if text == nil then break end
    bad[#bad + 1] = { at = tonumber(offset[0]), bytes = tonumber(size[0]), text = ffi.string(text) }
  end
  table.sort(bad, function(a, b) return a.at < b.at or a.at == b.at and a.text < b.text end)
  local i = 1
  while i <= #bad do
    local first, stop, n = bad[i], bad[i].at + bad[i].bytes, 1
    while first.at >= 0 and bad[i + n] and bad[i + n].at == stop do
      stop, n = stop + bad[i + n].bytes, n + 1
    end
    if first.at < 0 then
      tell(work, "%s", first.text)
    else
      tell(work, "%s: bytes %.0f to %.0f: %s%s", entry.path, first.at, stop - 1, n > 1 and "first " or "", first.text)
    end
    work.damaged = work.damaged + 1
    i = i + n
  end
end

-- Told at the end: what fails in one process mostly fails in all.
local function failed(entry, code)
  local message = fail.message(code)
  entry.failure = entry.failure or (message:find(entry.path, 1, true) and "" or entry.path .. ": ") .. message
end

-- Tells of each file that could not be gone through, by the first process that could not. Returns how many these are.
local function tell_failures(work, all)
  local job = current.info
  local mine, count = {}, 0
  for i, entry in ipairs(all) do mine[i] = entry.failure and 1 or 0 end
  local flags = collective.gather_numbers("shardrt index: failures", mine)
  for i, entry in ipairs(all) do
    local first = 0
    while first < job.process_count and flags[first * #all + i - 1] == 0 do first = first + 1 end
    if first == job.process_index then tell(work, "%s", entry.failure) end
    if first < job.process_count then count = count + 1 end
  end
  return count
end

-- Names the first files that have parts without a checksum. Returns how many such parts there are.
local function tell_unknown(work, all)
  local mine, total, files = {}, 0, 0
  for i, entry in ipairs(all) do mine[i] = entry.unknown or 0 end
  local numbers = collective.gather_numbers("shardrt index: without a checksum", mine)
  for i, entry in ipairs(all) do
    local parts = 0
    for p = 0, current.info.process_count - 1 do parts = parts + tonumber(numbers[p * #all + i - 1]) end
    total, files = total + parts, files + (parts > 0 and 1 or 0)
    if parts > 0 and files <= NAMED and collective.is_first() then
      tell(work, "%s: %.0f part%s without a checksum", entry.path, parts, parts == 1 and "" or "s")
    end
  end
  if files > NAMED and collective.is_first() then tell(work, "and %d files more", files - NAMED) end
  return total
end

-- Of this process's share of a file's parts.
local function go_through(work, entry, audit, o)
  local job = current.info
  local parts, each = tonumber(C.shardrt_audit_parts(audit)), tonumber(C.shardrt_audit_part_bytes(audit))
  local piece = each > 0 and math.ceil(PIECE / each) or 256
  for first = 0, parts - 1, piece do
    work.piece = work.piece + 1
    local count, now = math.min(piece, parts - first), found()
    if work.piece % job.process_count == job.process_index then
      local code = C.shardrt_audit_run(audit, first, count, o.check and 1 or 0, now)
      if code < 0 then return failed(entry, code) end
      entry.unknown = (entry.unknown or 0) + tonumber(now.unknown)
      work.progress.looked = work.progress.looked + tonumber(now.bytes)
    end
    work.progress.done = work.progress.done + (parts > 0 and entry.bytes * count / parts or 0)
    work.progress:draw(entry.path)
  end
  local code = o.check and 0 or C.shardrt_audit_save(audit)
  if code < 0 then failed(entry, code) end
end

-- One file; those of records are indexed by one process each, as a whole.
local function do_file(work, entry, number, o)
  local job = current.info
  local kind = PLAIN[entry.kind] and "plain" or entry.kind
  if RECORDS[kind] and not o.check then
    work.progress.done = work.progress.done + entry.bytes
    if number % job.process_count ~= job.process_index then return end
  end
  local out = audit_out()
  local code = C.shardrt_audit_open(kind, entry.path, c_options(o), o.check and 1 or 0, out)
  if code < 0 then return failed(entry, code) end
  go_through(work, entry, out[0], o)
  tell_bad(work, entry, out[0])
  C.shardrt_audit_free(out[0])
  work.progress:draw(entry.path)
end

-- The shards of a folder of MDS, each of which has an index.
local function shards_of(folder)
  local paths, named = {}, head(folder .. "/index.json", 2 ^ 30)
  for _, pattern in ipairs { "*", "*/*" } do -- a merged index names shards in folders there
    for _, path in ipairs(file_patterns.inside(folder, pattern)) do
      local is_named = pattern == "*" or named:find(('"%s"'):format(path:sub(#folder + 2)), 1, true)
      if is_named and exists(path .. file_patterns.INDEX) then paths[#paths + 1] = path end
    end
  end
  return paths
end

-- By process 0, before any other begins.
local function forget(all, o)
  for _, entry in ipairs(all) do
    local paths = { entry.path }
    if entry.kind == "mds" then paths = shards_of(entry.path) end
    for _, path in ipairs(paths) do
      local code = C.shardrt_audit_remove(path, o.cache)
      if code < 0 then failed(entry, code) end
    end
  end
end

local function sum_of(numbers, processes, each, i)
  local all = 0
  for p = 0, processes - 1 do all = all + tonumber(numbers[p * each + i]) end
  return all
end

-- A folder of MDS is compared shard by shard.
local function expand_shards(all)
  local out = {}
  for _, entry in ipairs(all) do
    local shards = entry.kind == "mds" and shards_of(entry.path) or {}
    for _, path in ipairs(shards) do out[#out + 1] = { path = path, kind = "mds" } end
    if #shards == 0 then out[#out + 1] = entry end -- which says why not
  end
  return out
end

local function go_through_all(o, shows_progress)
  local all, total = find_files(o), 0
  if o.check then all = expand_shards(all) end
  for _, entry in ipairs(all) do
    entry.bytes = file_patterns.size(entry.path)
    total = total + entry.bytes
  end
  local work = { piece = -1, damaged = 0, progress = show_progress(shows_progress, total) }
  if o.force and collective.is_first() then forget(all, o) end
  if o.force then fail.check(C.shardrt_barrier(current.job, "shardrt index --force")) end
  for number, entry in ipairs(all) do do_file(work, entry, number - 1, o) end
  work.progress:clear()
  local processes = current.info.process_count
  local failures, unknown = tell_failures(work, all), o.check and tell_unknown(work, all) or 0
  local numbers = collective.gather_numbers("shardrt index", { work.damaged, work.progress.looked })
  local damaged = sum_of(numbers, processes, 2, 0)
  if collective.is_first() then
    io.stdout:write(("%d file%s, %s %s%s%s%s\n"):format(#all, #all == 1 and "" or "s",
      bytes(sum_of(numbers, processes, 2, 1)), o.check and "compared" or "read",
      damaged > 0 and (", %d damaged range%s"):format(damaged, damaged == 1 and "" or "s") or "",
      failures > 0 and (", %d that could not be gone through"):format(failures) or "",
      unknown > 0 and (", %.0f part%s without a checksum: `shardrt index` notes them"):format(unknown,
        unknown == 1 and "" or "s") or ""))
    io.stdout:flush()
  end
  return damaged + failures + unknown == 0
end

--- `shardrt index` with the words behind it; returns nil, or ends the program with another status than 0.
---@param words string[]
---@param shows_progress boolean? # nil: on a terminal
function index_files.run(words, shows_progress)
  local o = parse(words)
  if o.help then
    if collective.is_first() then io.stdout:write(HELP) end
    return
  end
  if not go_through_all(o, shows_progress) then
    fail.check(C.shardrt_barrier(current.job, "shardrt index")) -- so that all that is told is told
    os.exit(1)
  end
end

return index_files

-- Named arrays in one .safetensors file: saved from any layout, loaded into any other, by any number of processes.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local buffers = require "shardrt.array.buffers"
local class = require "shardrt.base.class"
local consistency = require "shardrt.array.consistency"
local current = require "shardrt.base.current"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local memory_pressure = require "shardrt.base.memory_pressure"
local ndarray = require "shardrt.array.ndarray"
local numbering = require "shardrt.array.numbering"
local owned = require "shardrt.base.owned"
local path_of = require "shardrt.base.path"
local plan = require "shardrt.layout.plan"
local shape = require "shardrt.layout.shape"
local sharding = require "shardrt.layout.sharding"
local tree = require "shardrt.array.tree"
local unplaced = require "shardrt.array.unplaced"
local watch = require "shardrt.array.watch"
local weight_index = require "shardrt.array.weight_index"
fail.own()

---@class shardrt.safetensors.words
local words = {}
local safetensors = { words = words }

local Numbers = ffi.typeof "uint64_t[?]"

local function check_path(caller, path)
  if type(path) ~= "string" or path == "" or path:find("\0", 1, true) then
    fail("%s: it takes the path of a .safetensors file, not %s", caller, list.show(path))
  end
  return path_of.check(caller, path, ".safetensors")
end

-- Names that promise files of another format.
local OTHERS = {
  npy = true, npz = true, pt = true, pth = true, pkl = true, h5 = true, hdf5 = true, zarr = true, onnx = true,
}

local function refuse_other(caller, path)
  local ending = path:lower():match "%.(%w+)$"
  if not OTHERS[ending] then return end
  fail("%s: it writes .safetensors files, and that is the name of another format's; %s would do%s", caller,
    list.quote(path:sub(1, -#ending - 1) .. "safetensors"),
    ending == "npy" and ", and shardrt.process_allgather(x):save(path) writes one array as .npy" or "")
end

local function check_table(caller, given, values)
  if type(given) ~= "table" or class.is(given) then
    fail("%s: it takes a table of %s by their names, not %s", caller, values, tostring(given))
  end
end

-- The names in a table that a recipe gave, ascending.
local function sorted_names(caller, given, values)
  check_table(caller, given, values)
  local names = {}
  for name in pairs(given) do
    if type(name) ~= "string" or name:find("\0", 1, true) then
      fail("%s: an array's name is a text without zero bytes, not %s", caller, list.show(name))
    end
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

-- What C is told of one thing to save. The name must be kept as long as this is.
local function set_entry(caller, entry, name, value)
  entry.name = name
  if array.is(value) then
    entry.array = array.live(caller, value)
    watch.looked()
  elseif ndarray.is(value) then
    entry.data, entry.dtype, entry.ndim = value.data, dtype.named(caller, value.dtype).code, value.ndim
    for d, size in ipairs(value.shape) do entry.shape[d - 1] = size end
  end
end

-- What is written of a value: an array that nobody placed is whole in every process, and written as a host array.
local function value_of(caller, value)
  if ndarray.is(value) then return value end
  array.live(caller, value)
  if value.committed then return value end
  if current.info.planning ~= 0 then return { dtype = value.dtype, shape = value.shape } end
  return unplaced.value(value)
end

-- What words.save says; `sums`: of an object in a bucket, a shardrt_buffer *[1] for its checksums.
local function save(path, arrays, sums)
  local caller = "save"
  path = check_path(caller, path)
  caller = caller .. " " .. path
  path_of.refuse_unwritable(caller, path)
  refuse_other(caller, path)
  check_table(caller, arrays, "arrays")
  local names, values = {}, {}
  for name, leaf in pairs(tree.leaves(caller, arrays, "global arrays, host arrays, and tables of these")) do
    names[#names + 1], values[name] = name, value_of(caller, leaf.value)
  end
  table.sort(names)
  if current.info.planning ~= 0 then
    plan.note_save(caller, names, values)
    return 0
  end
  local entries, written = ffi.new("shardrt_saved[?]", math.max(1, #names)), ffi.new "int64_t[1]"
  for i, name in ipairs(names) do set_entry(caller, entries[i - 1], name, values[name]) end
  C.shardrt_job_at(current.job, fail.where())
  fail.check(memory_pressure.call(C.shardrt_safetensors_save, current.job, path, #names, entries, written, sums))
  return tonumber(written[0])
end

--- Writes arrays to one .safetensors file, which other programs read too; those in tables within the table by names
--- like "layers.1.weight", as in a checkpoint, under which `load` gives them back. Each process writes the parts that
--- its own devices hold, each element once in the job; host arrays, and arrays that nobody placed, must be the same in
--- every process, and are written by process 0. The file appears under its name whole or not at all, also where the job
--- is killed or the disk is full. Every process must call it alike, and see the same file system. The path may be an
--- address in a bucket ("s3://bucket/w.safetensors", gs://, az://): large objects go up in parts, and an upload that
--- fails is ended.
---@param path string
---@param arrays table<string|integer, shardrt.Array|shardrt.ndarray|table>
---@return integer # bytes that this process wrote
function words.save(path, arrays) return save(path, arrays) end

--- The same at an address in a bucket, with the checksum of each 8 MiB of it, as shardrt_file_fingerprint has it.
---@param path string
---@param arrays table<string, shardrt.Array|shardrt.ndarray>
---@return ffi.cdata* # a shardrt_buffer of uint64_t
function safetensors.save_with_checksums(path, arrays)
  local sums = ffi.new "shardrt_buffer *[1]"
  save(path, arrays, sums)
  return owned(sums, "shardrt_buffer_free")
end

---@class shardrt.safetensors.entry
---@field name string
---@field i integer # where it stands in the file's list
---@field kind shardrt.dtype
---@field shape integer[]

-- The first process whose number differs from process 0's; nil: all are alike. Every process must call it.
local function first_other(caller, number)
  local job = current.info
  if job.process_count == 1 or job.planning ~= 0 then return end
  local mine, all = Numbers(1, number), Numbers(job.process_count)
  fail.check(C.shardrt_allgather(current.job, caller, mine, ffi.sizeof(mine), all))
  for process = 1, job.process_count - 1 do
    if all[process] ~= all[0] then return process end
  end
end

-- Opens the file in every process, the same one in all: its entries by name.
local function open_file(caller, path)
  local out = ffi.new "shardrt_safetensors *[1]"
  local code, entries = C.shardrt_safetensors_open(path, out), {}
  local file = owned(out, "shardrt_safetensors_free") -- also where it is open here, and not in another process
  path_of.check_code(caller, path, C.shardrt_check_outcome(current.job, caller, code))
  local other = first_other(caller .. ": the file", C.shardrt_safetensors_fingerprint(file))
  if other then
    fail("%s: process %d sees another file of that name than process 0; it must be the same in all", caller, other)
  end
  for i = 0, tonumber(C.shardrt_safetensors_count(file)) - 1 do
    local tensor = C.shardrt_safetensors_tensor(file, i)
    local name = ffi.string(tensor.name)
    entries[name] = {
      name = name, i = i, file = file, kind = dtype.coded(tensor.dtype),
      shape = shape.from_c(tensor.ndim, tensor.shape),
    }
  end
  return entries
end

-- The same of all files that an index names: of each, the arrays that it is said to have.
local function open_indexed(caller, path)
  local paths, places = weight_index.read(caller, path)
  local entries = {}
  for _, one in ipairs(paths) do
    for name, entry in pairs(open_file(caller .. ": " .. one, one)) do
      if places[name] == one then entries[name] = entry end
    end
  end
  for name, one in pairs(places) do
    if not entries[name] then
      fail("%s: %s has no array %s, which the index says it has", caller, one, list.quote(name))
    end
  end
  return entries
end

-- The one sharding that was given for all arrays, which must fit each.
local function for_all(caller, entry, over)
  local sizes = ffi.new("int64_t[?]", #entry.shape + 1, entry.shape)
  local code = C.shardrt_sharding_shard_shape(over.handle, #entry.shape, sizes, sizes)
  if code < 0 then
    fail("%s, %s: %s; one sharding is for all arrays, and a table of shardings by name, as in {[%s] = …}, gives each "
      .. "its own (false: a host array)", caller, list.quote(entry.name), fail.message(code), list.quote(entry.name))
  end
  return over
end

-- What is to be loaded: the entries in the order of their names, and the sharding of each (nil: host arrays).
local function choose(caller, entries, wanted)
  local all = type(wanted) == "nil" or sharding.is(wanted) -- not `== nil`, which a NULL pointer equals
  local names = all and sorted_names(caller, entries, "arrays") or sorted_names(caller, wanted, "shardings")
  local chosen, shardings = {}, {}
  for i, name in ipairs(names) do
    chosen[i] = entries[name]
    if not chosen[i] then
      fail("%s: the file has no array %s%s; it has %s", caller, list.quote(name), fail.suggestion(name, entries),
        list.show(sorted_names(caller, entries, "arrays")))
    end
    if all then
      shardings[i] = wanted and for_all(caller, chosen[i], wanted)
    elseif wanted[name] ~= false then
      shardings[i] = sharding.check(caller .. ", " .. list.quote(name), wanted[name])
    end
  end
  return chosen, shardings
end

-- An error in every process unless all of them want the same.
local function agree_on_request(caller, chosen, shardings)
  local parts = {}
  for i, entry in ipairs(chosen) do
    local over = shardings[i]
    parts[i] = list.quote(entry.name) .. (over and tostring(C.shardrt_sharding_fingerprint(over.handle)) or "")
  end
  local text = table.concat(parts, ",")
  local other = first_other(caller .. ": arrays and shardings", C.shardrt_fingerprint(text, #text))
  if other then
    fail("%s: process %d asks for other arrays or shardings than process 0; every process must ask for the same",
      caller, other)
  end
end

local function load_host(entry)
  if current.info.planning ~= 0 then return ndarray.wrap(nil, entry.kind.name, entry.shape), 0 end
  local out = ffi.new "shardrt_buffer *[1]"
  fail.check(C.shardrt_safetensors_load(entry.file, entry.i, out))
  local bytes = tonumber(C.shardrt_buffer_bytes(out[0]))
  local host = ndarray.wrap(owned(out, "shardrt_buffer_free"), entry.kind.name, entry.shape)
  memory_pressure.made(bytes)
  return host, bytes
end

local function load_sharded(caller, entry, over)
  local job, named = current.info, caller .. ", " .. list.quote(entry.name)
  local x = array.new(named, over, entry.kind, entry.shape)
  if job.planning ~= 0 then
    plan.note_array(named, x)
    return x, 0
  end
  local read = ffi.new "int64_t[1]"
  fail.check(memory_pressure.call(C.shardrt_safetensors_fill, entry.file, entry.i, x.handle, read))
  buffers.tell_collector(x)
  return numbering.made_by_all(x), tonumber(read[0])
end

--- Reads arrays from a .safetensors file, or from all that a model.safetensors.index.json names. Each process reads, by
--- memory map, the parts that its own devices hold, each once, and nothing else of the data. With a table of shardings:
--- those arrays (false: as a host array); with one sharding: all arrays, laid out by it; without: all arrays, as host
--- arrays. Every process must call it alike; that they see the same file, and hold equal replicas, is checked.
---@param path string
---@param shardings table<string, shardrt.Sharding|false>|shardrt.Sharding|nil
---@return table<string, shardrt.Array|shardrt.ndarray>
---@return integer # bytes of data that this process read
function words.load(path, shardings)
  local caller = "load"
  path = check_path(caller, path)
  caller = caller .. " " .. path
  C.shardrt_job_at(current.job, fail.where())
  local entries = (weight_index.is(path) and open_indexed or open_file)(caller, path)
  local chosen, over = choose(caller, entries, shardings)
  agree_on_request(caller, chosen, over)
  local made, total = {}, 0
  for i, entry in ipairs(chosen) do
    local value, bytes
    if over[i] then
      value, bytes = load_sharded(caller, entry, over[i])
    else
      value, bytes = load_host(entry)
    end
    made[entry.name], total = value, total + bytes
  end
  for i, entry in ipairs(chosen) do
    if over[i] and current.info.planning == 0 then
      consistency.on_replicas(("%s, %s"):format(caller, list.quote(entry.name)), made[entry.name])
    end
  end
  return made, total
end

return safetensors

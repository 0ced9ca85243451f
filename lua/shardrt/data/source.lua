-- Sources: random access to samples in files and host arrays.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local bad_records = require "shardrt.data.bad_records"
local class = require "shardrt.base.class"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local field_map = require "shardrt.data.field_map"
local file_patterns = require "shardrt.data.file_patterns"
local http_headers = require "shardrt.data.http_headers"
local in_place = require "shardrt.data.in_place"
local list = require "shardrt.base.list"
local ndarray = require "shardrt.array.ndarray"
local nulls = require "shardrt.data.nulls"
local owned = require "shardrt.base.owned"
local path_of = require "shardrt.base.path"
local shape = require "shardrt.layout.shape"
fail.own()

---@class shardrt.source.FilesOptions # of formats whose files hold all fields
---@field fields table<string|integer, string|table>? # those wanted, each with dtype, {dtype, shape} or "bytes", or a
---name alone: as the file has it; nil: all that the format finds. A size of -1 differs from sample to sample. Of
---parquet, arrow and jsonl also with what takes the place of a null: {"int32", null = -7}, {null = ""}
---@field verify boolean|"once"|nil # whether a record's checksum is looked at whenever it is read (true), or when a
---source reads it for the first time; true
---@field on_bad_record "error"|"skip"|nil # what becomes of records that are damaged; "skip": they are left out, in all
---processes alike, as by source:readable, and damage no longer fails the opening of a file; "error"
---@field delimiter string? # of csv: the character between cells; ","
---@field nulls "error"|"skip"|nil # of parquet, arrow and jsonl: what becomes of rows with a null in a field that gives
---nulls no value; "skip": they are left out, in all processes alike; "error": they cannot be read
---@field header boolean? # of csv: whether the first line names the columns, which are "0", "1", … otherwise; true
---@field cache string? # a folder for indexes and the like, where they cannot lie beside the file
---@field cache_bytes integer? # of files read over HTTP, at most so much is kept there; $SHARDRT_CACHE_BYTES, or 10 GiB
---@field headers table<string, string>? # of files read over HTTP: what requests say, too: {Authorization = "Bearer …"}

---@class shardrt.source.CacheOptions # a path may be an address, such as https:// or s3://, wherever a source takes one
---@field cache string? # a folder for indexes and the like, and for parts of files on servers
---@field cache_bytes integer? # of files on servers, at most so much is kept there; $SHARDRT_CACHE_BYTES, or 10 GiB
---@field headers table<string, string>? # of files read over HTTP: what requests say, too: {Authorization = "Bearer …"}
---@field verify boolean|"once"|nil # whether blocks, of Zarr chunks, are compared with their checksums in the index
---beside the file whenever they are read (true), or when a source reads them for the first time; "once"
---@field on_bad_record "error"|"skip"|nil # what becomes of samples that are damaged: as in FilesOptions; "error"

---@class shardrt.source.words
---@field npy fun(files: table<string, string>, o: shardrt.source.CacheOptions?): shardrt.source # from .npy files
---@field zarr fun(folders: table<string, string>, o: shardrt.source.CacheOptions?): shardrt.source # v2 and v3
---@field hdf5 fun(datasets: table<string, string>, o: shardrt.source.CacheOptions?): shardrt.source # "a.h5:/x"
---@field tfrecord fun(files: string|string[], o: shardrt.source.FilesOptions?): shardrt.source
---@field array_record fun(files: string|string[], o: shardrt.source.FilesOptions?): shardrt.source # Grain's, TFDS's
---@field mds fun(folder: string, o: shardrt.source.FilesOptions?): shardrt.source # of MosaicML Streaming's shards
---@field safetensors fun(files: string|string[], o: shardrt.source.FilesOptions?): shardrt.source # their arrays
---@field npz fun(files: string|string[], o: shardrt.source.FilesOptions?): shardrt.source # numpy.savez's arrays
---@field tar fun(files: string|string[], o: shardrt.source.FilesOptions?): shardrt.source # as WebDataset has them
---@field folder fun(folder: string, o: shardrt.source.FilesOptions?): shardrt.source # of classes of images
---@field parquet fun(files: string|string[], o: shardrt.source.FilesOptions?): shardrt.source # columns of tables
---@field arrow fun(files: string|string[], o: shardrt.source.FilesOptions?): shardrt.source # IPC files and streams
---@field csv fun(files: string|string[], o: shardrt.source.FilesOptions?): shardrt.source # tables in text
---@field jsonl fun(files: string|string[], o: shardrt.source.FilesOptions?): shardrt.source # lines of JSON objects
---@field cifar fun(files: string|string[], o: shardrt.source.FilesOptions?): shardrt.source # CIFAR-10 and -100, binary
---@field idx fun(files: table<string, string>, o: shardrt.source.CacheOptions?): shardrt.source # MNIST's, also gzipped
local source = {}

---@class shardrt.source.field
---@field dtype string
---@field shape integer[] # of one sample; -1: differs from sample to sample

---@class shardrt.source: ffi.cdata*
---@field fields table<string, shardrt.source.field>
---@field classes string[]? # of a folder of classes: the name of label 0, of label 1, …
---@field names string[] # of the fields: those of the files sorted, then those added
---@field bad_records shardrt.BadRecord[] # that were left out, the first thousand of each source that it is made of
local Source = {} -- the methods; the object itself is the C handle, so that # works

local handle = ffi.typeof "shardrt_source *"
local handle_out = ffi.typeof "shardrt_source *[1]"
local texts = ffi.typeof "const char *[?]"
local int32s, int64s = ffi.typeof "int32_t[?]", ffi.typeof "int64_t[?]"

-- What a recipe sees as fields of the handle: tables of its own each time, as C knows them.
local function read_fields(self)
  local names, fields = {}, {}
  for i = 0, C.shardrt_source_field_count(self) - 1 do
    local field = C.shardrt_source_field(self, i)
    local name = ffi.string(field.name)
    names[i + 1] = name
    fields[name] = { dtype = dtype.coded(field.dtype).name, shape = shape.from_c(field.ndim, field.shape) }
  end
  return { names = names, fields = fields }
end

-- The source that a C function wrote to an out-parameter, with its count given to Lua's collector.
local function own_source(out)
  return owned(out, "shardrt_source_free")
end

local function planning() return current.info.planning == 1 end

--- The names of the fields that a recipe gave, in the order in which every process takes them.
local function sorted_names(caller, given)
  if type(given) ~= "table" or class.is(given) then
    fail("%s: it takes a table of fields with their names, such as {image = …}, not %s", caller,
      ndarray.is(given) and "a host array" or list.show(given))
  end
  local names = {}
  for name in pairs(given) do
    if type(name) ~= "string" or name:find("\0", 1, true) then
      fail("%s: every field has a name, as in {image = …}; %s is none", caller, list.show(name))
    end
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

-- The message of a failure to open files: with the field whose file it names.
local function which_file(names, given, code)
  local message = fail.message(code)
  for _, name in ipairs(names) do
    if message:find(given[name], 1, true) then
      return (', field "%s": %s%s'):format(name, message, path_of.note(code, given[name]))
    end
  end
  return ": " .. message
end

-- A source of files of which each holds a field.
local function open_fields(format, given, options)
  local caller = "source." .. format
  local names = sorted_names(caller, given)
  options = options or {}
  if type(options) ~= "table" or class.is(options) then
    fail("%s: its options are a table, not %s", caller, list.show(options))
  end
  fail.keywords(caller .. ", options", options,
    { cache = true, cache_bytes = true, headers = true, verify = true, on_bad_record = true })
  local cache, cache_bytes = file_patterns.cache(caller, options)
  http_headers.use(caller, options.headers, given)
  local skips = bad_records.skips(caller, options.on_bad_record)
  local c_names, c_paths, paths = texts(#names), texts(#names), {}
  for i, name in ipairs(names) do
    paths[i] = path_of.check(('%s, field "%s"'):format(caller, name), given[name], "." .. format)
    c_names[i - 1], c_paths[i - 1] = name, paths[i]
  end
  file_patterns.share_revisions(caller, paths)
  local c_options = ffi.new("shardrt_source_options",
    { cache = cache, cache_bytes = cache_bytes, headers_only = planning() and 1 or 0,
      verify = bad_records.verify(caller, options.verify) })
  local out = handle_out()
  local code = C.shardrt_source_open(format, #names, c_names, c_paths, c_options, out)
  if code < 0 then
    local told = which_file(names, given, code)
    fail("%s%s%s", caller, told, format == "zarr" and file_patterns.zarr_note(names, given, fail.message(code)) or "")
  end
  local made = own_source(out)
  return skips and bad_records.leave_out(caller, made, made) or made
end

-- What stands for a field that is a name alone: it is as the files have it.
local AS_FOUND = {}

-- A field that is asked of files which hold all fields: AS_FOUND, its dtype, or {dtype, shape}; "bytes" is what the
-- file has as uint8 of any length.
local function asked_field(caller, name, given, out)
  local wanted, sizes = given, nil
  if given == AS_FOUND or nulls.alone(given) then
    out.name, out.dtype, out.ndim = name, -1, -1
    return
  end
  if type(given) == "table" and not class.is(given) then wanted, sizes = given[1], given[2] end
  if wanted == "bytes" then
    wanted, sizes = "uint8", sizes or { -1 }
  end
  if type(wanted) ~= "string" then
    fail('%s, fields.%s: a dtype, {dtype, shape} or "bytes", not %s', caller, name, list.show(given))
  end
  out.name, out.dtype, out.ndim = name, dtype.named(("%s, fields.%s"):format(caller, name), wanted).code, -1
  if sizes == nil then return end
  if type(sizes) ~= "table" or not list.length(sizes) or #sizes > C.SHARDRT_MAX_NDIM then
    fail("%s, fields.%s: its shape is a list of up to %d sizes, not %s", caller, name, C.SHARDRT_MAX_NDIM,
      list.show(sizes))
  end
  out.ndim = #sizes
  for i, size in ipairs(sizes) do
    if not list.is_whole(size, -1) then
      fail("%s, fields.%s: a size is a whole number, or -1 where it differs, not %s", caller, name, list.show(size))
    end
    out.shape[i - 1] = size
  end
end

-- The options of formats whose files hold all fields, beyond `fields`, as C's struct has them. `together`: all
-- processes are here, to open many files together.
local function files_options(caller, o, skips, c_nulls, tells, together)
  local cache, cache_bytes = file_patterns.cache(caller, o)
  if o.delimiter ~= nil and (type(o.delimiter) ~= "string" or not o.delimiter:find '^[^"%z\r\n]$') then
    fail("%s: delimiter = %s; it is one character, and no quote", caller, list.show(o.delimiter))
  end
  if o.header ~= nil and type(o.header) ~= "boolean" then
    fail("%s: header = %s; it is true or false", caller, list.show(o.header))
  end
  return ffi.new("shardrt_source_options", {
    cache = cache, cache_bytes = cache_bytes, headers_only = planning() and 1 or 0,
    verify = bad_records.verify(caller, o.verify), skips_damage = skips and 1 or 0,
    delimiter = o.delimiter and o.delimiter:byte() or 0, no_header = o.header == false and 1 or 0,
    nulls = c_nulls, tells_nulls = tells and 1 or 0, leaves_nulls_out = o.nulls == "skip" and 1 or 0,
    job = together and current.job or nil,
  })
end

-- A source of files of which each holds all fields, with those asked for, or (none) those found: or nil, and C's code.
-- `tells`: each field says whether it has no null.
local function try_paths(caller, format, paths, fields, o, skips, tells, together)
  local names = fields == nil and {} or sorted_names(caller .. ", fields", fields)
  local c_fields, c_paths = ffi.new("shardrt_field[?]", math.max(#names, 1)), texts(#paths)
  for i, name in ipairs(names) do asked_field(caller, name, fields[name], c_fields[i - 1]) end
  for i, one in ipairs(paths) do c_paths[i - 1] = one end
  local out = handle_out()
  local c_nulls, kept = nulls.of_fields(caller, format, names, fields)
  local c_options = files_options(caller, o, skips, c_nulls, tells, together)
  local code = C.shardrt_source_files(format, #paths, c_paths, #names, c_fields, c_options, out)
  if code < 0 then return nil, code end
  return own_source(out), kept
end

-- That a name alone is none of the files' fields, which are looked for.
local function no_field(caller, name, known)
  fail('%s, fields: the files have no field %s%s; without being told more, they have %s (a field with its dtype is '
    .. 'written x = "float32")', caller, list.show(name), fail.suggestion(name, known), list.words(known))
end

-- `fields` of a recipe by name, where it has names alone: AS_FOUND is what the files have. What is no name is left.
local function named_fields(caller, given)
  if type(given) ~= "table" or class.is(given) or given[1] == nil then return given end
  local made, odd = {}, nil
  for key, value in pairs(given) do
    local name = type(key) == "number" and value or key
    if type(name) ~= "string" then
      odd = { name }
    elseif made[name] ~= nil then
      fail("%s, fields: %s stands twice", caller, list.show(name))
    else
      made[name] = type(key) == "number" and AS_FOUND or value
    end
  end
  return made, odd
end

-- After a failure of a file that could be read: that a name alone is none of the files' fields, if that can be told.
local function check_names(caller, format, paths, fields, o, skips)
  local found
  for name, given in pairs(fields or {}) do
    if given == AS_FOUND and not name:find(";", 1, true) then
      found = found or try_paths(caller, format, paths, nil, o, skips)
      if not found then return end
      local known = found.fields
      if known[name] == nil then no_field(caller, name, known) end
    end
  end
end

local function open_paths(caller, format, paths, o, skips)
  local fields, odd = named_fields(caller, o.fields)
  if odd then
    local found = try_paths(caller, format, paths, nil, o, skips)
    no_field(caller, odd[1], found and found.fields or {})
  end
  C.shardrt_job_at(current.job, fail.where() or "?")
  local made, code = try_paths(caller, format, paths, fields, o, skips, false, true)
  if made then return made end
  if fail.is_between_processes(code) then fail.check(code) end
  local message = fail.message(code)
  if code ~= C.SHARDRT_EIO then check_names(caller, format, paths, fields, o, skips) end
  fail("%s: %s%s", caller, message, path_of.note(code, paths[1]))
end

-- A source of files of which each holds all fields.
local function open_files(format, given, o)
  local caller = "source." .. format
  o = o or {}
  if type(o) ~= "table" or class.is(o) then fail("%s: its options are a table, not %s", caller, list.show(o)) end
  if format == "folder" and o.on_bad_record ~= nil then
    fail('%s: a folder is opened without reading its images; on_bad_record is for the loader, which decodes them',
      caller)
  end
  fail.keywords(caller .. ", options", o, {
    cache = true, cache_bytes = true, headers = true, verify = true, fields = true,
    on_bad_record = format ~= "folder" or nil, delimiter = format == "csv" or nil, header = format == "csv" or nil,
    nulls = format == "parquet" or format == "arrow" or format == "jsonl" or nil,
  })
  local paths = file_patterns.expand(caller, given)
  http_headers.use(caller, o.headers, paths)
  local skips = bad_records.skips(caller, o.on_bad_record)
  local made = open_paths(caller, format, paths, o, skips)
  in_place.tell(caller, made)
  if nulls.skips(caller, o.nulls) then
    made = nulls.leave_out(caller, made, o.fields, function(names)
      local told, code = try_paths(caller, format, paths, named_fields(caller, names), o, skips, true, true)
      return told or fail("%s: %s", caller, fail.message(code))
    end)
  end
  return skips and bad_records.leave_out(caller, made, made) or made
end

-- A word for every format that C knows: a new format needs no line here.
do
  local i = 0
  while C.shardrt_source_format(i) ~= nil do
    local format = ffi.string(C.shardrt_source_format(i))
    local how = C.shardrt_source_format_has_files(format) and open_files or open_fields
    source[format] = function(given, options) return how(format, given, options) end
    i = i + 1
  end
end

-- A field's value as a host array whose buffer holds its elements and nothing else.
local function packed_host(name, value)
  if type(value) ~= "table" or class.is(value) and not ndarray.is(value) then
    fail('source.array: the field "%s" is a host array or a nested table, not %s', name, list.show(value))
  end
  if not ndarray.is(value) then return ndarray.words.from_table(value) end
  return value:packed()
end

--- From host arrays or nested tables; their first dimension counts the samples.
---@param arrays table<string, shardrt.ndarray|table>
---@return shardrt.source
function source.array(arrays)
  local names = sorted_names("source.array", arrays)
  local hosts = {} -- keeps their buffers until C has its counts of them
  for i, name in ipairs(names) do hosts[i] = packed_host(name, arrays[name]) end
  local buffers = ffi.new("shardrt_buffer *[?]", #names)
  local c_names, dtypes, ndims = texts(#names), int32s(#names), int32s(#names)
  local shapes = int64s(#names * C.SHARDRT_MAX_NDIM)
  local at = 0
  for i, name in ipairs(names) do
    local host = hosts[i]
    c_names[i - 1], dtypes[i - 1], ndims[i - 1] = name, dtype.named("source.array", host.dtype).code, host.ndim
    buffers[i - 1] = ndarray.has_data(host) and host.buffer or nil
    for _, size in ipairs(host.shape) do
      shapes[at] = size
      at = at + 1
    end
  end
  local out = handle_out()
  fail.check(C.shardrt_source_array(#names, c_names, dtypes, ndims, shapes, buffers, out), "source.array")
  return own_source(out)
end

--- Whether a value is a source.
---@param value any
---@return boolean
function source.is(value) return ffi.istype(handle, value) end

local function check_whole(caller, name, value)
  if not list.is_whole(value, -2 ^ 53) then fail("%s: %s is a whole number, not %s", caller, name, list.show(value)) end
end

local function is_ragged(sizes)
  for _, size in ipairs(sizes) do
    if size < 0 then return true end
  end
  return false
end

-- The samples of a field whose shape is not the same in all: a list of host arrays.
local function read_ragged(self, index, field, first, count)
  local values, sizes, out = {}, int64s(C.SHARDRT_MAX_NDIM), ffi.new "shardrt_buffer *[1]"
  for i = 1, count do
    fail.check(C.shardrt_source_value(self, index, first + i - 1, sizes, out))
    values[i] = ndarray.wrap(owned(out, "shardrt_buffer_free"), field.dtype, shape.from_c(#field.shape, sizes))
  end
  return values
end

--- The samples first … first + count - 1, read now: {field = host array}; a field whose shape differs from sample to
--- sample (a size of -1) comes as a list of host arrays. Under `shardrt plan` they have no data.
---@param first integer
---@param count integer
---@return table<string, shardrt.ndarray|shardrt.ndarray[]>
function Source:read(first, count)
  check_whole("source:read", "the first sample", first)
  check_whole("source:read", "the number of samples", count)
  if first < 0 or count < 0 or first + count > #self then
    fail("source:read: %.0f samples from sample %.0f on; the source has %.0f samples, 0 to %.0f", count, first, #self,
      #self - 1)
  end
  local plan = planning()
  local values, known = {}, read_fields(self)
  for i, name in ipairs(known.names) do
    local field = known.fields[name]
    local sizes = { count, unpack(field.shape) }
    if plan then
      values[name] = ndarray.wrap(nil, field.dtype, sizes)
    elseif is_ragged(field.shape) then
      values[name] = read_ragged(self, i - 1, field, first, count)
    else
      local host = ndarray.words.empty(sizes, field.dtype)
      fail.check(C.shardrt_source_read(self, i - 1, first, count, host.data))
      values[name] = host
    end
  end
  return values
end

--- The samples i with i % num_shards == index, as a source.
---@param num_shards integer
---@param index integer
---@return shardrt.source
function Source:shard(num_shards, index)
  check_whole("source:shard", "the number of shards", num_shards)
  check_whole("source:shard", "the index", index)
  local out = handle_out()
  fail.check(C.shardrt_source_shard(self, num_shards, index, out))
  return own_source(out)
end

--- The same source with one more field: int64, the sample's number in the files (also after a shard).
---@param name string
---@return shardrt.source
function Source:enumerate(name)
  if type(name) ~= "string" or name:find("\0", 1, true) then
    fail("source:enumerate: it takes the field's name, not %s", list.show(name))
  end
  local out = handle_out()
  fail.check(C.shardrt_source_enumerate(self, name, out))
  return own_source(out)
end

--- The same samples with other fields: each name's list of transforms is what its field goes through, or that of
--- another name where `from` says so; false leaves a field out. Fields that are not named stay as they are. Random
--- transforms depend on the loader's seed, the epoch and the sample's number, and on nothing else.
---@param fields table<string, shardrt.Transform[]|false>
---@return shardrt.source
function Source:map(fields) return field_map(self, "source:map", fields) end

source.megatron = require "shardrt.data.megatron"
require "shardrt.data.views" (source, Source, sorted_names, read_fields)

-- The names of a folder's classes, or nil.
local function read_classes(self)
  local classes, i = {}, 0
  while C.shardrt_source_class(self, i) ~= nil do
    i = i + 1
    classes[i] = ffi.string(C.shardrt_source_class(self, i - 1))
  end
  return i > 0 and classes or nil
end

-- What packed rows leave out, or nil.
local function read_dropped(self)
  if C.shardrt_source_fill(self) < 0 then return nil end
  local names = {}
  while C.shardrt_source_dropped_field(self, #names) ~= nil do
    names[#names + 1] = ffi.string(C.shardrt_source_dropped_field(self, #names))
  end
  return { fields = names, elements = tonumber(C.shardrt_source_dropped_elements(self)) }
end

local KNOWN = {
  fields = true, names = true, bad_records = true, fill = true, dropped = true, classes = true, pruned = true,
}
for name, method in pairs(Source) do
  KNOWN[name], Source[name] = true, class.method(source.is, "source", name, method)
end

ffi.metatype("shardrt_source", {
  __index = function(self, key)
    if Source[key] then return Source[key] end
    if key == "fields" or key == "names" then return read_fields(self)[key] end
    if key == "bad_records" then return bad_records.records(self) end
    if key == "classes" then return read_classes(self) end
    if key == "dropped" then return read_dropped(self) end
    if key == "pruned" then return tonumber(C.shardrt_source_pruned(self)) end
    if key == "fill" then
      local fill = C.shardrt_source_fill(self)
      return fill >= 0 and fill or nil
    end
    if type(key) == "string" and key:sub(1, 1) == "_" then return nil end -- as libraries ask
    fail('a source has no %s%s; it has %s', list.show(key), fail.suggestion(key, KNOWN), list.words(KNOWN))
  end,
  __newindex = function(_, key) fail('a source never changes: "%s" cannot be set', tostring(key)) end,
  __len = function(self) return tonumber(C.shardrt_source_count(self)) end,
  __tostring = function(self)
    local words, known = {}, read_fields(self)
    for i, name in ipairs(known.names) do
      local field = known.fields[name]
      words[i] = ("%s: %s %s"):format(name, field.dtype, shape.text(field.shape))
    end
    local filled = self.fill and (", %.1f %% filled"):format(100 * self.fill) or ""
    local guessed = C.shardrt_source_is_guessed(self) and "at most " or ""
    return ("source of %s%.0f samples of %s%s"):format(guessed, #self, table.concat(words, ", "), filled)
  end,
})

return source

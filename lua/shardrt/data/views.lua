-- Sources made of parts, and the views that choose among a source's samples.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local bad_records = require "shardrt.data.bad_records"
local class = require "shardrt.base.class"
local collective = require "shardrt.base.collective"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local condition = require "shardrt.data.condition"
local field_map = require "shardrt.data.field_map"
local file_patterns = require "shardrt.data.file_patterns"
local http_headers = require "shardrt.data.http_headers"
local in_place = require "shardrt.data.in_place"
local list = require "shardrt.base.list"
local ndarray = require "shardrt.array.ndarray"
local owned = require "shardrt.base.owned"
local path_of = require "shardrt.base.path"
local transform = require "shardrt.data.transform"
fail.own()

---@alias shardrt.source.Rows string|shardrt.ndarray # a .npy file, or a host array
---@alias shardrt.source.Ragged {data: shardrt.source.Rows, offsets: shardrt.source.Rows}

---@class shardrt.source.words
---@field ragged fun(fields: table<string, shardrt.source.Ragged|shardrt.source.Rows|table[]>,
---o: shardrt.source.CacheOptions?): shardrt.source
---@field tokens fun(files: string|string[], o: shardrt.source.TokensOptions): shardrt.source

---@class shardrt.source.TokensOptions
---@field window integer # tokens of a sample
---@field stride integer? # from one sample's first token to the next one's; the window
---@field dtype string? # "uint16", "uint32", "int32", …; needed where no header of llm.c's says it
---@field header boolean? # false: the files are tokens from the first byte on, also where that looks like a header
---@field cache string? # a folder for parts of files on servers
---@field cache_bytes integer? # at most so much of them is kept there; $SHARDRT_CACHE_BYTES, or 10 GiB
---@field headers table<string, string>? # of files read over HTTP: what requests say, too: {Authorization = "Bearer …"}
---@field verify boolean|"once"|nil # as in CacheOptions
---@field on_bad_record "error"|"skip"|nil # as in FilesOptions

---@class shardrt.PackOptions
---@field length integer # of a row
---@field field string|string[]|nil # of the sequences, of one length in each sample; nil: all that differ in length
---@field keep string|string[]|nil # other fields, which a row then has for each of its elements
---@field layout "zigzag"|nil # rows in pieces, so that each of `parts` parts of a row has an early and a late one
---@field parts integer? # of a row in zigzag: the devices that a sequence is cut among
---@field longer "error"|"truncate"|"split"|nil # what becomes of a sequence that is longer than a row; "error"
---@field window integer? # so many sequences are put in rows together; 65,536
---@field seed integer? # sequences are taken in an order that is drawn from it; nil: in the source's

---@class shardrt.source
---@field fill number? # of packed rows: the share of their elements that are of sequences, 0 to 1
---@field dropped {fields: string[], elements: integer}? # of packed rows: fields that they leave out, and how many
---elements were cut off sequences longer than a row
---@field filter fun(self: shardrt.source, fields: table<string, shardrt.Predicate>): shardrt.source
---@field pruned integer # samples that filters never looked at, as statistics in the files rule them out
---@field readable fun(self: shardrt.source): shardrt.source
---@field pack fun(self: shardrt.source, o: shardrt.PackOptions): shardrt.source

local handle_out = ffi.typeof "shardrt_source *[1]"
local handles = ffi.typeof "shardrt_source *[?]"
local WINDOW = 65536
local LONGER = { error = "SHARDRT_LONGER_ERROR", truncate = "SHARDRT_LONGER_TRUNCATE", split = "SHARDRT_LONGER_SPLIT" }

-- Here in the recipe something is made by all processes together.
local function together() C.shardrt_job_at(current.job, fail.where() or "?") end

local function own_source(out) return owned(out, "shardrt_source_free") end

local function plain_table(caller, takes, value)
  if type(value) ~= "table" or class.is(value) then fail("%s: it takes %s, not %s", caller, takes, list.show(value)) end
end

local function check_whole(caller, name, value, lowest)
  if not list.is_whole(value, lowest) then
    fail("%s: %s = %s; it is a whole number from %d on", caller, name, list.show(value), lowest)
  end
  return value
end

-- ---- ragged --------------------------------------------------------------------------------------------------------

-- Host arrays one after the other as one, and where each begins and ends.
local function join_rows(caller, given)
  local hosts, rows = {}, 0
  for i, value in ipairs(given) do
    if not ndarray.is(value) and (type(value) ~= "table" or class.is(value)) then
      fail("%s: number %d of its list is %s; it takes host arrays and nested tables", caller, i, list.show(value))
    end
    local host = ndarray.is(value) and value or ndarray.words.from_table(value)
    local first = hosts[1] or host
    local same = host.ndim == first.ndim and host.ndim > 0 and host.dtype == first.dtype
    for d = 2, host.ndim do same = same and host.shape[d] == first.shape[d] end
    if not same then
      fail("%s: number %d of its list is %s and number 1 is %s; they may differ in their first dimension only",
        caller, i, tostring(host), tostring(first))
    end
    hosts[i], rows = host, rows + host.shape[1]
  end
  if #hosts == 0 then fail("%s: an empty list has no dtype and no shape", caller) end
  local sizes = hosts[1].shape
  sizes[1] = rows
  local data, offsets = ndarray.words.empty(sizes, hosts[1].dtype), ndarray.words.empty({ #hosts + 1 }, "int64")
  local bytes, row = ffi.cast("char *", data.data), 0
  for i, host in ipairs(hosts) do
    offsets.data[i - 1] = row
    ffi.copy(bytes, host.data, host.bytes)
    bytes, row = bytes + host.bytes, row + host.shape[1]
  end
  offsets.data[#hosts] = row
  return data, offsets
end

-- A source of one field, of a file or a host array.
local function rows_of(words, caller, name, value, options)
  if ndarray.is(value) then return words.array { [name] = value } end
  if type(value) ~= "string" then
    fail("%s: it takes the path of a .npy file or a host array, not %s", caller, list.show(value))
  end
  return words.npy({ [name] = value }, options)
end

-- One field's rows, and the source of their offsets, or nil.
local function ragged_field(words, name, value, options)
  local caller = ('source.ragged, field "%s"'):format(name)
  if type(value) ~= "table" or ndarray.is(value) then return rows_of(words, caller, name, value, options) end
  if class.is(value) then
    fail("%s: it takes {data = …, offsets = …}, a list of host arrays, a file or a host array, not %s", caller,
      list.show(value))
  end
  if value.data == nil and value.offsets == nil then
    local data, offsets = join_rows(caller, value)
    return words.array { [name] = data }, words.array { [name] = offsets }
  end
  fail.keywords(caller, value, { data = true, offsets = true })
  return rows_of(words, caller .. ", data", name, value.data, options),
    rows_of(words, caller .. ", offsets", name, value.offsets, options)
end

-- ---- packing -------------------------------------------------------------------------------------------------------

-- The names of fields that an option has: one, or a list.
local function list_names(caller, key, given, known)
  if type(given) == "string" then given = { given } end
  if type(given) ~= "table" or class.is(given) or not list.length(given) then
    fail("%s: %s = %s; it is a field's name, or a list of names", caller, key, list.show(given))
  end
  for _, name in ipairs(given) do
    if not known.fields[name] then
      fail("%s: the source has no field %s%s", caller, list.show(name), fail.suggestion(name, known.fields))
    end
  end
  return given
end

-- The fields that are packed: those asked for, or all whose samples differ in their first dimension alone.
local function packed_names(caller, given, known)
  if given ~= nil then return list_names(caller, "field", given, known) end
  local names = {}
  for _, name in ipairs(known.names) do
    local sizes = known.fields[name].shape
    local packs = sizes[1] == -1
    for d = 2, #sizes do packs = packs and sizes[d] >= 0 end
    if packs then names[#names + 1] = name end
  end
  if #names == 0 then fail("%s: no field differs in length from sample to sample", caller) end
  return names
end

local function numbers_of(names, known)
  local numbers = ffi.new("int32_t[?]", math.max(#names, 1))
  for i, name in ipairs(names) do numbers[i - 1] = known.names[name] end
  return numbers
end

-- How many parts rows in zigzag are for; 0: they are as they are.
local function zigzag_parts(caller, o)
  if o.layout == nil and o.parts == nil then return 0 end
  if o.layout ~= "zigzag" then
    fail('%s: layout = %s; it is "zigzag", with parts = the devices that a sequence is cut among', caller,
      list.show(o.layout))
  end
  return check_whole(caller, "parts", o.parts, 1)
end

-- What a recipe may not have meant to lose.
local function tell_dropped(caller, dropped, o)
  local words = {}
  if not dropped then return end -- planning
  if #dropped.fields > 0 and o.field == nil then
    words[1] = ("the fields %s, which keep = {…} would keep"):format(table.concat(dropped.fields, ", "))
  end
  if dropped.elements > 0 then
    words[#words + 1] = ("%.0f elements of sequences that are longer than a row"):format(dropped.elements)
  end
  local all = table.concat(words, "; ")
  if #words > 0 then collective.notice("%s: %s leaves out %s", fail.where() or "?", caller, all) end
end

-- ---- what is added to the words and methods of source.lua ----------------------------------------------------------

--- Adds to the public words and to the methods of a source.
---@param words table
---@param methods table
---@param sorted_names fun(what: string, given: any): string[]
---@param fields_of fun(source: shardrt.source): {names: string[], fields: table<string, shardrt.source.field>}
return function(words, methods, sorted_names, fields_of)
  --- Fields whose samples differ in length: {data = …, offsets = …}, .npy files or host arrays, of which sample i is
  --- rows offsets[i] to offsets[i + 1]; the offsets are int64 and one more than the samples. Or a list of host arrays,
  --- one for each sample. A field that is a file or a host array has samples of one shape, as in source.npy.
  ---@param fields table<string, shardrt.source.Ragged|shardrt.source.Rows|table[]>
  ---@param o shardrt.source.CacheOptions? # of the files
  ---@return shardrt.source
  function words.ragged(fields, o)
    local names = sorted_names("source.ragged", fields)
    o = o or {}
    plain_table("source.ragged", "options, as in {verify = true}", o)
    fail.keywords("source.ragged, options", o,
      { cache = true, cache_bytes = true, headers = true, verify = true, on_bad_record = true })
    local skips = bad_records.skips("source.ragged", o.on_bad_record)
    local of_files = { cache = o.cache, cache_bytes = o.cache_bytes, headers = o.headers, verify = o.verify }
    local n = #names
    local c_names, data, offsets = ffi.new("const char *[?]", n), handles(n), handles(n)
    local keep = {}
    for i, name in ipairs(names) do
      local rows, ranges = ragged_field(words, name, fields[name], of_files)
      keep[#keep + 1], keep[#keep + 2] = rows, ranges
      c_names[i - 1], data[i - 1], offsets[i - 1] = name, rows, ranges
    end
    local out = handle_out()
    fail.check(C.shardrt_source_ragged(n, c_names, data, offsets, out))
    assert(#keep >= n) -- C has its own counts now
    local made = own_source(out)
    return skips and bad_records.leave_out("source.ragged", made, made) or made
  end

  --- Flat files of token numbers, bare or with the header of llm.c's .bin: one field, `tokens`, of which sample i is
  --- the `window` tokens from token i * stride of its file on. Left out, the stride is as the window, and the dtype as
  --- the header says; of bare files it must be told. Windows do not go from one file into the next. A file that begins
  --- as one of another format is refused, unless `header` is false. Files as for source.tfrecord.
  ---@param given string|string[]
  ---@param o shardrt.source.TokensOptions
  ---@return shardrt.source
  function words.tokens(given, o)
    local caller = "source.tokens"
    local paths = file_patterns.expand(caller, given)
    plain_table(caller, "options, as in {window = 1025}", o)
    fail.keywords(caller .. ", options", o,
      { window = true, stride = true, dtype = true, header = true, cache = true, cache_bytes = true, headers = true,
        verify = true, on_bad_record = true })
    http_headers.use(caller, o.headers, paths)
    if o.header ~= nil and type(o.header) ~= "boolean" then
      fail("%s: header = %s; it is true or false", caller, list.show(o.header))
    end
    local skips = bad_records.skips(caller, o.on_bad_record)
    local c, cache, cache_bytes = ffi.new "shardrt_token_options", file_patterns.cache(caller, o)
    c.files.cache, c.files.cache_bytes = cache, cache_bytes -- `cache` keeps the text
    c.files.headers_only = current.info.planning
    c.files.verify = bad_records.verify(caller, o.verify)
    c.window = check_whole(caller, "window", o.window, 1)
    c.stride = o.stride == nil and o.window or check_whole(caller, "stride", o.stride, 1)
    c.dtype = o.dtype == nil and -1 or dtype.named(caller, o.dtype).code
    c.files.no_header = o.header == false and 1 or 0
    local parts, out = {}, handle_out()
    for i, one in ipairs(paths) do
      local code = C.shardrt_source_tokens(one, c, out)
      if code < 0 then fail("%s: %s%s", caller, fail.message(code), path_of.note(code, one)) end
      parts[i] = own_source(out)
    end
    if #parts > 1 then fail.check(C.shardrt_source_concat(#parts, handles(#parts, parts), nil, out), caller) end
    local made = #parts > 1 and own_source(out) or parts[1]
    in_place.tell(caller, made)
    return skips and bad_records.leave_out(caller, made, made) or made
  end

  --- The samples that count: those for which every field that is named here says so. A field's predicate is a condition
  --- on a number or a text, as {">=", 3} or {">=", 3, "<", 9}; a function that is given what the field holds, as
  --- transform.lua gives it, and returns whether the sample counts; or a list of transforms that comes to one bool. It
  --- is worked out once, here, by all processes together, each reading the named fields of its share of the samples,
  --- except those that a Parquet file's statistics rule out. Conditions are looked at first, and the other fields only
  --- of samples that meet them. Every process must call it; under `shardrt plan` every sample counts.
  ---@param fields table<string, shardrt.Predicate>
  ---@return shardrt.source
  function methods:filter(fields)
    plain_table("source:filter", "a table of fields with predicates, as in {label = function(label) … end}", fields)
    local known, verdict = fields_of(self), {}
    if next(fields) == nil then fail "source:filter: it takes at least one field with its predicate" end
    for _, name in ipairs(known.names) do verdict[name] = false end
    for name, given in pairs(fields) do
      if type(given) == "function" then given = { transform.predicate("source:filter", given) } end
      if condition.is(given) then given = { condition.transform("source:filter, field " .. list.show(name), given) } end
      if type(given) ~= "table" or class.is(given) then
        fail('source:filter, field %s: a function, a condition as {">=", 3} or a list of transforms, not %s',
          list.show(name), list.show(given))
      end
      verdict[name] = given
    end
    local said, out = field_map(self, "source:filter", verdict), handle_out()
    together()
    fail.check(C.shardrt_source_filter(current.job, self, said, out), "source:filter")
    return own_source(out)
  end

  --- The samples that can be read: those of which no field is damaged, as checksums and parsing tell, or fails in a
  --- decoder of a map. It is worked out once, here, by all processes together, which read all of their shares; one line
  --- on stderr tells what is left out, and `bad_records` lists it. What fails but not with the data (a disk that cannot
  --- be read, the recipe's own transforms) is an error, as is what is damaged later. Every process must call it; under
  --- `shardrt plan` every sample counts.
  ---@return shardrt.source
  function methods:readable() return bad_records.leave_out("source:readable", self, self) end

  --- Sequences of different length in rows of one length: the samples of the new source are the rows, with the
  --- sequences' fields, zeros behind the last one, `segment_ids` (1, 2, … for the row's sequences, 0 behind them) and
  --- `positions` (0, 1, … in each). All fields that differ in length are packed, as tokens and their labels, and are of
  --- one length in each sample. Fields in `keep` have, for each element of a row, what its sample has. `dropped` tells
  --- what is left out, and so does a line. Every sequence stands in one row, whole. Which row is worked out once, here,
  --- from the lengths alone, by all processes together. Every process must call it; in a plan there are as many rows as
  --- samples.
  ---@param o shardrt.PackOptions
  ---@return shardrt.source
  function methods:pack(o)
    local caller = "source:pack"
    plain_table(caller, "keywords, as in {length = 2048}", o)
    fail.keywords(caller, o, { field = true, keep = true, length = true, longer = true, window = true, seed = true,
      layout = true, parts = true })
    local known = fields_of(self)
    for i, name in ipairs(known.names) do known.names[name] = i - 1 end
    local packed, kept = packed_names(caller, o.field, known), {}
    if o.keep ~= nil then kept = list_names(caller, "keep", o.keep, known) end
    local longer = o.longer == nil and "error" or o.longer
    if not LONGER[longer] then
      fail("%s: longer = %s%s; there are %s", caller, list.show(longer), fail.suggestion(longer, LONGER),
        list.words(LONGER))
    end
    local c, out = ffi.new "shardrt_pack_options", handle_out()
    c.length = check_whole(caller, "length", o.length, 1)
    c.window = o.window == nil and WINDOW or check_whole(caller, "window", o.window, 1)
    c.longer, c.shuffle = C[LONGER[longer]], o.seed ~= nil and 1 or 0
    c.seed = ffi.cast("int64_t", o.seed ~= nil and check_whole(caller, "seed", o.seed, -2 ^ 53) or 0)
    c.zigzag = zigzag_parts(caller, o)
    together()
    fail.check(C.shardrt_source_pack(current.job, self, #packed, numbers_of(packed, known), #kept,
      numbers_of(kept, known), c, out), caller)
    local made = own_source(out)
    tell_dropped(caller, made.dropped, o)
    return made
  end
end

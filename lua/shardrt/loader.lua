-- The loader: global batches of a source, each device's part of them brought to that device.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.C"
local array = require "shardrt.array"
local device = require "shardrt.device"
local fail = require "shardrt.fail"
local list = require "shardrt.list"
local mesh = require "shardrt.mesh"
local plan = require "shardrt.plan"
local sharding = require "shardrt.sharding"
local source = require "shardrt.source"
local spec = require "shardrt.spec"
fail.own()

---@class shardrt.LoaderOptions
---@field source shardrt.source
---@field batch_size integer # rows of the global batch
---@field sharding shardrt.Sharding|table<string, shardrt.Sharding>|nil # of all fields, or of each; nil: rows over all
---devices
---@field shuffle boolean? # false
---@field seed integer? # of the order; 0
---@field epochs integer? # nil: without end
---@field remainder "drop"|"pad"|"error"|nil # what becomes of an epoch's last rows that fill no batch; "drop"
---@field pipeline "per_process"|"global"|"per_device"|nil # who reads what; "per_process"
---@field num_workers integer? # threads that read; chosen from the machine
---@field prefetch integer? # batches made ahead; 2

---@class shardrt.LoaderStats
---@field bytes_read integer # taken from the storage by this process, for the batches handed out
---@field bytes_moved integer # sent to other processes or devices
---@field samples integer # rows of the global batches handed out, without padding
---@field steps integer # batches handed out
---@field steps_checked integer # of these, the ones whose replicas were compared; 0 where no field has replicas
---@field bytes_fingerprinted integer # by this process, to compare them
---@field seconds number # from the call for the first batch to the last call's end
---@field stages {read: number, wait: number} # seconds: reading, of all workers together; waiting for a batch
---@field num_workers integer
---@field prefetch integer
---@field buffers integer # batches that may exist at once, made ahead or let go and not yet collected
---@field batch_bytes integer # of this process's shards of one batch

---@class shardrt.LoaderState # plain numbers, texts and booleans
---@field version integer
---@field source string # the source's fingerprint
---@field count integer
---@field shuffle boolean
---@field seed integer
---@field epoch integer # of the next batch
---@field row integer # where in the epoch's order it begins

---@class shardrt.Loader
---@field source shardrt.source
---@field batch_size integer
---@field sharding table<string, shardrt.Sharding> # of each field, and of the mask
---@field shuffle boolean
---@field seed integer
---@field epochs integer? # nil: without end
---@field remainder string
---@field pipeline string
---@field steps_per_epoch integer
---@overload fun(): table<string, shardrt.Array>|nil
local Loader = {}
Loader.__index = Loader

local loader = { words = {} }

local KEYWORDS = {
  source = true, batch_size = true, sharding = true, shuffle = true, seed = true, epochs = true, remainder = true,
  pipeline = true, load_sharding = true, transform = true, num_workers = true, prefetch = true,
}
local REMAINDERS = { drop = C.SHARDRT_DROP, pad = C.SHARDRT_PAD, error = C.SHARDRT_ERROR }
local PIPELINES = {
  per_process = C.SHARDRT_PER_PROCESS, global = C.SHARDRT_GLOBAL, per_device = C.SHARDRT_PER_DEVICE,
}
local STATE_VERSION = 1

local function words_of(set)
  local words = {}
  for word in pairs(set) do words[#words + 1] = list.quote(word) end
  table.sort(words)
  return table.concat(words, ", ")
end

local function choice(name, value, set)
  if type(value) == "string" and set[value] then return value end
  fail("loader: %s = %s%s; there are %s", name, list.show(value), fail.suggestion(value, set), words_of(set))
end

local function whole(name, value, lowest)
  if list.is_whole(value, lowest) then return value end
  fail("loader: %s = %s; it is a whole number%s", name, list.show(value),
    lowest > -2 ^ 53 and (" from %d on"):format(lowest) or "")
end

-- The words of design.md that this version does not have: said plainly, rather than ignored.
local function refuse_missing(o)
  for _, name in ipairs { "transform", "load_sharding" } do
    if o[name] ~= nil then
      fail("loader: %s is not there yet; a loader gives batches as the source has them, laid out by `sharding`", name)
    end
  end
  if o.pipeline == "reshard" or o.pipeline == "auto" then
    fail('loader: pipeline = "%s" is not there yet; there are %s', o.pipeline, words_of(PIPELINES))
  end
end

-- The options as the loader keeps them, each checked.
local function check_options(o)
  if type(o) ~= "table" then fail("loader: it takes keywords, as in loader{source = …}, not a %s", type(o)) end
  fail.keywords("loader", o, KEYWORDS)
  refuse_missing(o)
  if not source.is(o.source) then
    fail("loader: source = %s; it is what shardrt.source.npy, .idx or .array makes", list.show(o.source))
  end
  if o.source.fields.mask then
    fail('loader: the source has a field "mask", a name that is kept for the mask of padded batches; rename it')
  end
  if o.shuffle ~= nil and type(o.shuffle) ~= "boolean" then
    fail("loader: shuffle = %s; it is true or false", list.show(o.shuffle))
  end
  return {
    source = o.source,
    batch_size = whole("batch_size", o.batch_size, 1),
    shuffle = o.shuffle or false,
    seed = o.seed == nil and 0 or whole("seed", o.seed, -2 ^ 53),
    epochs = o.epochs ~= nil and whole("epochs", o.epochs, 0) or nil,
    remainder = choice("remainder", o.remainder == nil and "drop" or o.remainder, REMAINDERS),
    pipeline = choice("pipeline", o.pipeline == nil and "per_process" or o.pipeline, PIPELINES),
    num_workers = o.num_workers ~= nil and whole("num_workers", o.num_workers, 1) or nil,
    prefetch = o.prefetch == nil and 2 or whole("prefetch", o.prefetch, 1),
  }
end

local function over_all_devices(by)
  return sharding.words.NamedSharding(mesh.words.make_mesh({ device.words.device_count() }, { "data" }), by)
end

-- A sharding for every field, by name.
local function field_shardings(given, names)
  local P = spec.words.P
  if given == nil then given = over_all_devices(P "data") end
  local each = {}
  if sharding.is(given) then
    for _, name in ipairs(names) do each[name] = given end
    return each
  end
  if type(given) ~= "table" or getmetatable(given) then
    fail("loader: sharding = %s; it is a sharding, or a table with one for each field", list.show(given))
  end
  local known = {}
  for _, name in ipairs(names) do known[name] = true end
  for name in pairs(given) do
    if not known[name] then
      fail("loader: sharding names a field %s%s; the source has %s", list.show(name), fail.suggestion(name, known),
        words_of(known))
    end
  end
  for _, name in ipairs(names) do
    if not sharding.is(given[name]) then
      fail('loader: sharding.%s = %s; every field needs a sharding, such as NamedSharding(mesh, P("data"))', name,
        list.show(given[name]))
    end
    each[name] = given[name]
  end
  return each
end

-- How a field's rows are cut, as a sharding of one dimension.
local function rows_of(field)
  if field.device then return field end
  local axes = spec.entries(field.spec)[1]
  return sharding.words.NamedSharding(field.mesh, axes and #axes > 0 and spec.words.P(axes) or spec.words.P())
end

-- The mask is cut as the fields' rows are; where they differ, it is whole on every device.
local function mask_sharding(each, names)
  local first = rows_of(each[names[1]])
  local alike, one_mesh = true, true
  for _, name in ipairs(names) do
    alike = alike and rows_of(each[name]) == first
    one_mesh = one_mesh and first.mesh ~= nil and each[name].mesh == first.mesh
  end
  if alike then return first end
  if one_mesh then return sharding.words.NamedSharding(first.mesh, spec.words.P()) end
  return over_all_devices(spec.words.P())
end

-- Every process makes the same loader of the same data, or hears which one differs.
local function agree(self, names)
  local words = {
    self.batch_size, self.shuffle, self.seed, self.epochs or "without end", self.remainder, self.pipeline,
  }
  for i, word in ipairs(words) do words[i] = tostring(word) end
  for _, name in ipairs(names) do
    words[#words + 1] = name
    words[#words + 1] = bit.tohex(C.shardrt_sharding_fingerprint(self.sharding[name].handle))
  end
  local text = table.concat(words, "\n")
  C.shardrt_job_at(fail.where() or "?")
  fail.check(C.shardrt_check_source(self.source))
  fail.check(C.shardrt_check_same("the loader's options", C.shardrt_fingerprint(text, #text)))
end

local function open(self, names)
  local job = C.shardrt_job_get()
  local handles = ffi.new("shardrt_sharding *[?]", #names + 1)
  for i, name in ipairs(names) do handles[i - 1] = self.sharding[name].handle end
  if self.sharding.mask then handles[#names] = self.sharding.mask.handle end
  local options = ffi.new("shardrt_loader_options", {
    source = self.source, shardings = handles, batch_size = self.batch_size, seed = ffi.cast("int64_t", self.seed),
    epochs = self.epochs or -1, shuffle = self.shuffle and 1 or 0, remainder = REMAINDERS[self.remainder],
    pipeline = PIPELINES[self.pipeline], num_workers = math.min(self.num_workers or 0, 2 ^ 31 - 1),
    prefetch = math.min(self.prefetch, 2 ^ 31 - 1), process = job.process_index,
    devices_per_process = job.devices_per_process,
  })
  local out = ffi.new "shardrt_loader *[1]"
  local code = C.shardrt_loader_new(options, out)
  if code < 0 then fail("loader: %s", ffi.string(C.shardrt_error_message())) end
  return ffi.gc(out[0], C.shardrt_loader_free)
end

-- For the plan: the arrays of a batch, and what reading a row of them costs.
local function parts_of(self, names)
  local parts = {}
  for i, name in ipairs(names) do
    local field = self.source.fields[name]
    parts[i] = {
      name = name, dtype = field.dtype, shape = { self.batch_size, unpack(field.shape) },
      sharding = self.sharding[name],
      sample_bytes = function(box) return tonumber(C.shardrt_source_bytes(self.source, i - 1, box)) end,
    }
  end
  if self.sharding.mask then
    parts[#parts + 1] = { name = "mask", dtype = "bool", shape = { self.batch_size }, sharding = self.sharding.mask }
  end
  return parts
end

local function stats_of(self)
  local stats = ffi.new "shardrt_loader_stats"
  C.shardrt_loader_stats_get(self.handle, stats)
  return stats
end

--- A loader, which a `for` asks for one global batch after another: `for batch in loader do … batch.image … end`. A
--- second `for` goes on from the next batch; after the last epoch it ends at once. Every process makes it alike.
---@param o shardrt.LoaderOptions
---@return shardrt.Loader
function loader.words.loader(o)
  local self = check_options(o)
  local names = self.source.names
  if #names == 0 then fail "loader: the source has no fields" end
  self.sharding = field_shardings(o.sharding, names)
  if self.remainder == "pad" then self.sharding.mask = mask_sharding(self.sharding, names) end
  local planning = C.shardrt_job_get().planning ~= 0
  if not planning then agree(self, names) end
  self.handle = open(self, names)
  self.steps_per_epoch = tonumber(C.shardrt_loader_steps_per_epoch(self.handle))
  self.batch_names = { unpack(names) }
  self.batch_names[#names + 1] = self.sharding.mask and "mask" or nil
  self.arrays = ffi.new("shardrt_array *[?]", #self.batch_names)
  self.batch_bytes = tonumber(stats_of(self).batch_bytes)
  self.collect_above = self.batch_bytes + C.SHARDRT_LOADER_SLACK
  setmetatable(self, Loader)
  if planning then plan.loader(self, parts_of(self, names)) end
  return self
end

-- A batch that the recipe let go keeps its memory until Lua collects it, and Lua sees only small tables. So a full
-- collection comes when the batches handed out take more than what was really held after the last one (or one batch,
-- which the `for` holds while it asks for the next), and beyond that the slack, or as much as Lua's own heap: a
-- collection costs in proportion to that heap, so it is paid for by as many bytes of batches.
local function make_room(self)
  if C.shardrt_loader_outstanding(self.handle) <= self.collect_above then return end
  collectgarbage()
  local held = math.max(self.batch_bytes, tonumber(C.shardrt_loader_outstanding(self.handle)))
  self.collect_above = held + math.max(C.SHARDRT_LOADER_SLACK, collectgarbage "count" * 1024)
end

-- The next batch, or nil after the last.
function Loader:__call()
  if C.shardrt_job_get().planning ~= 0 then return nil end
  make_room(self)
  C.shardrt_job_at(fail.where() or "?")
  if fail.check(C.shardrt_loader_next(self.handle, self.arrays)) == 0 then return nil end
  local batch = {}
  for i, name in ipairs(self.batch_names) do
    batch[name] = array.made_by_all(array.wrap(self.arrays[i - 1], self.sharding[name]))
  end
  return batch
end

--- Where the next batch stands, as a plain table that fits into JSON; the same in every process, and of use in a job of
--- any other size.
---@return shardrt.LoaderState
function Loader:state()
  local at = ffi.new "int64_t[2]"
  C.shardrt_loader_tell(self.handle, at, at + 1)
  return {
    version = STATE_VERSION, source = bit.tohex(C.shardrt_source_fingerprint(self.source)), count = #self.source,
    shuffle = self.shuffle, seed = self.seed, epoch = tonumber(at[0]), row = tonumber(at[1]),
  }
end

local function check_state(state, now)
  if type(state) ~= "table" then fail("loader:restore: it takes what state() gave, not %s", list.show(state)) end
  if state.version ~= STATE_VERSION then
    fail("loader:restore: the state's version is %s; this is version %d", list.show(state.version), STATE_VERSION)
  end
  for _, name in ipairs { "epoch", "row" } do
    if not list.is_whole(state[name], 0) then
      fail("loader:restore: the state's %s is %s, where a whole number is expected: it is damaged", name,
        list.show(state[name]))
    end
  end
  local meaning = { source = "fingerprint of the data", count = "number of samples" }
  for _, name in ipairs { "source", "count", "shuffle", "seed" } do
    if state[name] ~= now[name] then
      fail("loader:restore: the state's %s is %s, this loader's is %s: they do not give the same stream of samples",
        meaning[name] or name, list.show(state[name]), list.show(now[name]))
    end
  end
end

--- Goes to where a state was taken, at no cost: the next batch is the one that would have followed. Every process goes
--- to the same place.
---@param state shardrt.LoaderState
function Loader:restore(state)
  check_state(state, self:state())
  local place = ("%.0f %.0f"):format(state.epoch, state.row)
  C.shardrt_job_at(fail.where() or "?")
  fail.check(C.shardrt_check_same("the state that loader:restore goes to", C.shardrt_fingerprint(place, #place)))
  if C.shardrt_loader_seek(self.handle, state.epoch, state.row) < 0 then
    fail("loader:restore: %s", ffi.string(C.shardrt_error_message()))
  end
end

--- What it did so far, in this process.
---@return shardrt.LoaderStats
function Loader:stats()
  local c = stats_of(self)
  return {
    bytes_read = tonumber(c.bytes_read), bytes_moved = tonumber(c.bytes_moved), samples = tonumber(c.samples),
    steps = tonumber(c.steps), steps_checked = tonumber(c.steps_checked),
    bytes_fingerprinted = tonumber(c.bytes_fingerprinted), seconds = c.seconds,
    stages = { read = c.read_seconds, wait = c.wait_seconds }, num_workers = c.num_workers, prefetch = c.prefetch,
    buffers = self.batch_bytes == 0 and 0 or math.floor(tonumber(c.budget_bytes) / self.batch_bytes),
    batch_bytes = self.batch_bytes,
  }
end

function Loader:__tostring()
  local epochs = self.epochs and ("%.0f epoch%s"):format(self.epochs, self.epochs == 1 and "" or "s") or "without end"
  local order = self.shuffle and ("shuffled with seed %.0f"):format(self.seed) or "in the source's order"
  return ('loader of %.0f samples in batches of %.0f, %s, %s; %.0f step%s an epoch, remainder "%s", pipeline "%s"')
    :format(#self.source, self.batch_size, order, epochs, self.steps_per_epoch, self.steps_per_epoch == 1 and "" or "s",
      self.remainder, self.pipeline)
end

return loader

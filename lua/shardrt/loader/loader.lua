-- The loader: global batches of a source, each device's part of them brought to that device.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local bad_records = require "shardrt.data.bad_records"
local current = require "shardrt.base.current"
local class = require "shardrt.base.class"
local collective = require "shardrt.base.collective"
local fail = require "shardrt.base.error"
local field_map = require "shardrt.data.field_map"
local field_shardings = require "shardrt.loader.field_shardings"
local lazy = require "shardrt.base.lazy"
local list = require "shardrt.base.list"
local memory_pressure = require "shardrt.base.memory_pressure"
local pipeline = require "shardrt.loader.pipeline"
local plan = require "shardrt.layout.plan"
local progress = require "shardrt.loader.progress"
local reshard = require "shardrt.array.reshard"
local source = require "shardrt.data.source"
local spec = require "shardrt.layout.spec"
local state = require "shardrt.loader.state"
local auto = lazy.module "shardrt.loader.auto"
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
---@field pipeline "per_process"|"global"|"per_device"|"reshard"|"auto"|nil # who reads what; "per_process"
---@field load_sharding shardrt.Sharding|table<string, shardrt.Sharding>|nil # for "reshard": the layout in which the
---data is read, each part by the process that has its replica 0, before it moves to `sharding`; nil: rows over all
---devices. For "auto": one more layout to consider
---@field bandwidth shardrt.Bandwidth? # for "auto"; nil: measured in the first steps
---@field filter table<string, function|shardrt.Transform[]>? # which samples count, as source:filter takes it
---@field transform table<string, shardrt.Transform[]|false>? # what fields go through, as source:map takes it
---@field on_bad_record "error"|"skip"|nil # what becomes of samples that cannot be read, or be decoded by `transform`:
---they end the job, or are left out, in all processes alike, before the first batch; "error"
---@field batch_transform (fun(batch: table<string, shardrt.Array>): table<string, shardrt.Array>)? # called for every
---batch on its way to the recipe, by all processes alike; what it returns is the batch. State it keeps is its own
---@field num_workers integer? # threads that read; nil: chosen from the machine, and from how the first steps go
---@field prefetch integer? # batches made ahead; nil: chosen in the same way
---@field read_size integer? # bytes that a thread reads at once, where they are more than a row; nil: by the machine

---@class shardrt.LoaderStages # seconds: the first five of all workers together, `wait` and `move` of the recipe
---@field read number # from the storage or the page cache
---@field decode number
---@field transform number
---@field scatter number # copying rows that were read whole ("global") to where they belong
---@field check number # taking fingerprints of replicas, to compare them
---@field wait number # for a batch: of `seconds`, what the recipe waited for data
---@field move number # of batches between processes and shards, from when all processes had come to it
---@field upload number # copying to devices with memory of their own, by their clocks: of each batch, the longest
---@field upload_wait number # of that, when a device stood still for it: 1 - upload_wait / upload of copying was hidden

---@class shardrt.LoaderStats
---@field bytes_read integer # taken from the storage by this process, for the batches handed out
---@field bytes_ahead integer # read before workers needed them, because they were not in the page cache
---@field ahead string? # how: "io_uring" or "threads"; nil: nothing was missing yet; "none": neither can be had; "off"
---@field bytes_moved integer # received from other processes
---@field bytes_uploaded integer # to devices with memory of their own (GPUs), in batches that have arrived there
---@field samples integer # rows of the global batches handed out, without padding
---@field bad_records integer # samples of the source that were left out, because they cannot be read
---@field steps integer # batches handed out
---@field steps_checked integer # of these, the ones whose replicas were compared; 0 where no field has replicas
---@field bytes_fingerprinted integer # by this process, to compare them
---@field seconds number # from the call for the first batch to the last call's end
---@field stages shardrt.LoaderStages
---@field num_workers integer # that make batches now
---@field prefetch integer # batches made ahead now
---@field read_size integer # bytes that a worker reads at once, if they are more than a row
---@field why string # these three are so
---@field budget_bytes integer # that batches may take here, made ahead or let go and not yet collected
---@field slack_bytes integer # of these, what batches that were let go may take before they are collected
---@field buffers integer # how many batches these are
---@field batch_bytes integer # of this process's shards of one batch
---@field pinned_bytes integer # of the host's memory from which batches are uploaded, at most, but for a quarter that
---rounding adds to a block; 0 where devices are the host's

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

---@class shardrt.loader.words
local words = {}
local loader = { words = words }

local KEYWORDS = {
  source = true, batch_size = true, sharding = true, shuffle = true, seed = true, epochs = true, remainder = true,
  pipeline = true, load_sharding = true, bandwidth = true, filter = true, transform = true, batch_transform = true,
  on_bad_record = true, num_workers = true, prefetch = true, read_size = true,
}
local REMAINDERS = { drop = true, pad = true, error = true }
local PIPELINES = { per_process = true, global = true, per_device = true, reshard = true, auto = true }
local STAGES = { "read", "decode", "transform", "scatter", "check", "wait", "move", "upload", "upload_wait" }
local ONE_CYCLE = 2 ^ 20 -- KiB: more than any heap has to mark and sweep

-- Whether whoever asks an object for a name may do so of any object: shardrt's own code, which tells by that what it
-- was given, and libraries, whose names begin with "_".
local function may_probe(key)
  return type(key) == "string" and key:sub(1, 1) == "_" or fail.is_own(debug.getinfo(3, "S").source)
end

-- Of all batches: a name that is no field's is an error. `mask` is reserved, and nil where batches are not filled up,
-- so that code for any loader may ask; pairs gives the names that there are.
local Batch = {
  __index = function(batch, key)
    if key == "mask" or may_probe(key) then return nil end
    local fields = list.words(batch)
    fail("the batch has no %s%s; its fields are %s", list.show(key), fail.suggestion(key, batch), fields)
  end,
  __metatable = false, -- a plain table to whoever asks
}

-- What a recipe sees of a loader. `handle` is C's, as arrays have theirs.
local FIELDS = {
  source = true, batch_size = true, sharding = true, shuffle = true, seed = true, epochs = true, remainder = true,
  pipeline = true, steps_per_epoch = true, handle = true,
}

-- Within, in this module and those that it calls, a loader is a table, in which what is not there is nil. A recipe is
-- given a userdata with that table as its environment: no assignment reaches it, and Lua's `ipairs`, `pairs` and `#`,
-- which would find nothing in a table, refuse it.
Loader.__index = Loader

local function choice(name, value, set)
  if type(value) == "string" and set[value] then return value end
  fail("loader: %s = %s%s; there are %s", name, list.show(value), fail.suggestion(value, set), list.words(set))
end

local function whole(name, value, lowest)
  if list.is_whole(value, lowest) then return value end
  fail("loader: %s = %s; it is a whole number%s", name, list.show(value),
    lowest > -2 ^ 53 and (" from %d on"):format(lowest) or "")
end

-- What belongs to one pipeline only, or is a word that this version does not have: said plainly, rather
-- than ignored.
local function refuse_useless(o)
  if o.load_sharding ~= nil and o.pipeline ~= "reshard" and o.pipeline ~= "auto" then
    fail 'loader: load_sharding is for pipeline = "reshard" or "auto"; others read the data where `sharding` puts it'
  end
  if o.bandwidth ~= nil and o.pipeline ~= "auto" then
    fail 'loader: bandwidth is for pipeline = "auto", which chooses by it'
  end
end

-- The options as the loader keeps them, each checked.
local function check_options(o)
  if type(o) ~= "table" then fail("loader: it takes keywords, as in loader{source = …}, not %s", list.show(o)) end
  fail.keywords("loader", o, KEYWORDS)
  if not source.is(o.source) then
    fail("loader: source = %s; it is what shardrt.source.npy, .idx or .array makes", list.show(o.source))
  end
  local given = bad_records.skips("loader", o.on_bad_record) and bad_records.of_loader(o) or o.source
  if o.filter ~= nil then given = given:filter(o.filter) end
  if o.transform ~= nil then given = field_map(given, "loader: transform", o.transform) end
  if given.fields.mask then
    fail('loader: the source has a field "mask", a name that is kept for the mask of padded batches; rename it')
  end
  if o.shuffle ~= nil and type(o.shuffle) ~= "boolean" then
    fail("loader: shuffle = %s; it is true or false", list.show(o.shuffle))
  end
  if o.batch_transform ~= nil and type(o.batch_transform) ~= "function" then
    fail("loader: batch_transform = %s; it is a function from one batch to another", list.show(o.batch_transform))
  end
  local asked = choice("pipeline", o.pipeline == nil and "per_process" or o.pipeline, PIPELINES)
  refuse_useless(o)
  return {
    source = given,
    batch_size = whole("batch_size", o.batch_size, 1),
    shuffle = o.shuffle or false,
    seed = o.seed == nil and 0 or whole("seed", o.seed, -2 ^ 53),
    epochs = o.epochs ~= nil and whole("epochs", o.epochs, 0) or nil,
    remainder = choice("remainder", o.remainder == nil and "drop" or o.remainder, REMAINDERS),
    pipeline = asked,
    bandwidth = o.bandwidth ~= nil and auto.check_bandwidth(o.bandwidth) or nil,
    batch_transform = o.batch_transform,
    num_workers = o.num_workers ~= nil and whole("num_workers", o.num_workers, 1) or nil,
    prefetch = o.prefetch ~= nil and whole("prefetch", o.prefetch, 1) or nil,
    read_size = o.read_size ~= nil and whole("read_size", o.read_size, 1) or nil,
  }
end

-- Every process makes the same loader of the same data, or hears which one differs.
local function agree(self, names, load)
  local options = {
    { "batch_size", self.batch_size }, { "shuffle", self.shuffle }, { "seed", self.seed },
    { "epochs", self.epochs or "without end" }, { "remainder", self.remainder }, { "pipeline", self.pipeline },
    { "bandwidth", self.bandwidth and auto.bandwidth_text(self.bandwidth) or "" },
    { "batch_transform", self.batch_transform and "a function" or "" },
  }
  local texts = {}
  for i, option in ipairs(options) do texts[i] = tostring(option[2]) end
  for _, name in ipairs(names) do
    texts[#texts + 1] = name
    texts[#texts + 1] = bit.tohex(C.shardrt_sharding_fingerprint(self.sharding[name].handle))
    if load then texts[#texts + 1] = bit.tohex(C.shardrt_sharding_fingerprint(load[name].handle)) end
  end
  local text = table.concat(texts, "\n")
  C.shardrt_job_at(current.job, fail.where() or "?")
  fail.check(C.shardrt_check_source(current.job, self.source))
  local code = C.shardrt_check_same(current.job, "the loader's options", C.shardrt_fingerprint(text, #text))
  if code == C.SHARDRT_EMISMATCH then -- in every process: now which option it is
    for i, option in ipairs(options) do
      local subject = ("the loader's options (%s)"):format(option[1])
      fail.check(C.shardrt_check_same(current.job, subject, C.shardrt_fingerprint(texts[i], #texts[i])))
    end
    code = C.shardrt_check_same(current.job, "the loader's options (sharding)", C.shardrt_fingerprint(text, #text))
  end
  fail.check(code)
end

local function stats_of(self)
  local stats = ffi.new "shardrt_loader_stats"
  C.shardrt_loader_stats_get(self.handle, stats)
  return stats
end

-- From now on the batches go another way; which samples they are does not change.
local function go(self, new_way, first_step)
  local measuring = self.auto and self.auto:is_measuring()
  self.handle = pipeline.open(self, new_way, first_step, measuring and 1 or self.prefetch or 0)
  self.way = new_way
  local stats = stats_of(self)
  self.batch_bytes, self.slack = tonumber(stats.batch_bytes), tonumber(stats.slack_bytes)
  self.held = self.batch_bytes
  self.collect_above = self.held + self.slack
end

-- How the fields are laid out as they are read, where the recipe says so.
local function load_layouts(o, names)
  if o.load_sharding == nil then return nil end
  local load = field_shardings.each("load_sharding", o.load_sharding, names)
  for name, given in pairs(load) do load[name] = pipeline.without_replicas(given) end
  return load
end

-- The way of the first step.
local function first_way(self, names, load)
  if self.pipeline == "auto" then
    local first
    self.auto, first = auto.new(self, self.bandwidth, load)
    return first
  end
  if self.pipeline ~= "reshard" then return pipeline.direct(self.pipeline) end
  if load then return pipeline.moved("load_sharding", load) end
  local rows, all = pipeline.rows(self.batch_size), {}
  for _, name in ipairs(names) do all[name] = rows end
  return pipeline.moved("rows", all)
end

-- For the plan: the arrays of a batch, and what reading a row of them costs.
local function parts_of(self, names)
  local parts = {}
  for i, name in ipairs(names) do
    local field, load = self.source.fields[name], self.way.load and self.way.load[name]
    local sizes = { self.batch_size, unpack(field.shape) }
    parts[i] = {
      name = name, dtype = field.dtype, shape = sizes,
      sharding = self.sharding[name], load = load,
      moves = load and reshard.words.reshard_plan(sizes, field.dtype, load, self.sharding[name]),
      sample_bytes = function(box) return tonumber(C.shardrt_source_bytes(self.source, i - 1, box)) end,
    }
  end
  if self.sharding.mask then
    parts[#parts + 1] = { name = "mask", dtype = "bool", shape = { self.batch_size }, sharding = self.sharding.mask }
  end
  return parts
end

-- For the plan: what else there is to say.
local function plan_note(self)
  local guessed = C.shardrt_source_is_guessed(self.source) and
    "what a filter lets through, what is damaged and how rows are packed shows when data is read: here it is the most "
    .. "there can be"
  return self.auto and self.auto:text() or guessed or nil
end

-- That a loader never gives a batch is said: an error where it is to go on for ever, else a line on stderr, since a
-- recipe may be right for sources of any size. Where some samples are too few, and there are to be batches without end
-- or only whole ones, C says what would do.
local function tell_of_no_batch(self, o)
  local count = #self.source
  self.never_gives = self.epochs == 0 or count < (self.remainder == "drop" and self.batch_size or 1)
  if self.epochs == 0 or not self.never_gives then return end
  if count > 0 and self.epochs == nil then return end
  local hashes = ffi.new("uint64_t[?]", C.SHARDRT_DATA_KINDS)
  C.shardrt_source_data(self.source, hashes)
  local problem = "the source has no samples"
  if count > 0 then
    problem = ("the source has %.0f samples, not one batch of %.0f"):format(count, self.batch_size)
      .. '; a smaller batch_size or remainder = "pad" would do'
  elseif o.filter ~= nil then
    problem = ("its filter lets none of the source's %.0f samples through"):format(#o.source)
  elseif hashes[C.SHARDRT_DATA_FILTER] ~= 0 then
    problem = "the source has no samples: its filter lets none through"
  end
  if self.epochs == nil then fail("loader: %s", problem) end
  collective.notice("%s: this loader gives no batch: %s", fail.where() or "?", problem)
end

local hand_out

--- A loader, which a `for` asks for one global batch after another: `for batch in loader do … batch.image … end`. A
--- second `for` goes on from the next batch; after the last epoch it ends at once, and says so on stderr. Every process
--- makes it alike. One whose epochs have no batch says so on stderr; without end, that is an error. Asking a batch for
--- a name that is no field's is an error, too.
---@param o shardrt.LoaderOptions
---@return shardrt.Loader
function words.loader(o)
  local self = check_options(o)
  local names = self.source.names
  if #names == 0 then fail "loader: the source has no fields" end
  local by = o.sharding
  if by == nil then by = field_shardings.over_all_devices(spec.words.P "data") end
  self.sharding = field_shardings.each("sharding", by, names)
  if self.remainder == "pad" then self.sharding.mask = field_shardings.mask(self.sharding, names) end
  local planning, load = current.info.planning ~= 0, load_layouts(o, names)
  if not planning then agree(self, names, load) end
  tell_of_no_batch(self, o)
  self.before = {} -- what was done by ways that were left
  self.told = {} -- lines of the recipe that were told that no batch is left
  go(self, first_way(self, names, load), 0)
  self.steps_per_epoch = tonumber(C.shardrt_loader_steps_per_epoch(self.handle))
  self.batch_names = { unpack(names) }
  self.batch_names[#names + 1] = self.sharding.mask and "mask" or nil
  self.arrays = ffi.new("shardrt_array *[?]", #self.batch_names)
  setmetatable(self, Loader)
  if planning then plan.loader(self, parts_of(self, names), plan_note(self)) end
  return hand_out(self)
end

-- A batch that the recipe let go keeps its memory until Lua collects it, and Lua sees only small tables. So a full
-- collection comes when the batches handed out take more than what was really held after the last one (or one batch,
-- which the `for` holds while it asks for the next), and beyond that the slack, or as much as Lua's own heap: a
-- collection costs in proportion to that heap, so it is paid for by as many bytes of batches. A step without end goes
-- through one cycle, a full collection through one and a half; where a cycle was under way it is the rest of that,
-- which may leave what was let go meanwhile.
local function make_room(self)
  if C.shardrt_loader_outstanding(self.handle) <= self.collect_above then return end
  collectgarbage("step", ONE_CYCLE)
  if C.shardrt_loader_outstanding(self.handle) > self.held then collectgarbage() end
  self.held = math.max(self.batch_bytes, tonumber(C.shardrt_loader_outstanding(self.handle)))
  self.collect_above = self.held + math.max(self.slack, collectgarbage "count" * 1024)
end

-- With "auto": goes another way from here where it is time to.
local function change_way(self)
  local stats = self:stats()
  local new_way = self.auto:next_way(stats)
  if new_way and new_way ~= self.way then
    local old, at = self.handle, ffi.new "int64_t[2]"
    C.shardrt_loader_tell(old, at, at + 1)
    self.before = stats
    go(self, new_way, stats.steps)
    fail.check(C.shardrt_loader_seek(self.handle, at[0], at[1]))
    C.shardrt_loader_free(ffi.gc(old, nil)) -- what it read ahead is dropped
  end
end

-- What the recipe's own function makes of a batch.
local function transform_batch(self, batch)
  local function refuse(format, ...)
    fail("loader: batch_transform, in step %d (from 0 on): " .. format, self:stats().steps - 1, ...)
  end
  local ok, made = pcall(self.batch_transform, batch)
  if not ok then refuse("%s", type(made) == "string" and made or "an error that is a " .. type(made)) end
  if type(made) ~= "table" or class.is(made) or array.is(made) then
    refuse("it returned %s; it returns the batch, a table of arrays", array.is(made) and "an array" or list.show(made))
  end
  for name, value in pairs(made) do
    if type(name) ~= "string" or not array.is(value) then
      refuse("it returned a batch in which %s is %s; it holds arrays with their names", list.show(name),
        list.show(value))
    end
  end
  return getmetatable(made) == nil and setmetatable(made, Batch) or made
end

-- Says that a pass over a loader found it used up: for each line of the recipe once. What ends after some batches is
-- how every loop ends.
local function tell_of_end(self)
  local where, count = fail.where() or "?", self.epochs
  if self.gave or self.never_gives or self.told[where] then return end
  self.told[where] = true
  collective.notice("%s: this loader has no batches left: its %s behind it. epochs = %.0f would give one pass more "
    .. "(nil: without end), as would a new loader; loader:restore(state) goes back to where loader:state() was asked",
    where, count == 1 and "one epoch is" or ("%.0f epochs are"):format(count), count + 1)
end

-- The next batch, or nil after the last.
local function next_batch(self)
  if current.info.planning ~= 0 then return nil end
  C.shardrt_job_at(current.job, fail.where() or "?")
  if self.auto and self.auto:is_measuring() then
    change_way(self)
    collectgarbage() -- so that memory is soon used again, as it will be
  else
    make_room(self)
  end
  if fail.check(memory_pressure.call(C.shardrt_loader_next, self.handle, self.arrays)) == 0 then
    tell_of_end(self)
    self.gave = false
    progress.ended(self)
    return nil
  end
  self.gave = true
  collective.pass_on()
  progress.step(self)
  local batch = {}
  for i, name in ipairs(self.batch_names) do
    batch[name] = array.made_by_all(array.wrap(self.arrays[i - 1], self.sharding[name]))
  end
  setmetatable(batch, Batch)
  return self.batch_transform and transform_batch(self, batch) or batch
end

--- Where the next batch stands, as a plain table that fits into JSON; the same in every process, and of use in a job of
--- any other size.
---@return shardrt.LoaderState
function Loader:state()
  local at = ffi.new "int64_t[2]"
  C.shardrt_loader_tell(self.handle, at, at + 1)
  return state.of(self, tonumber(at[0]), tonumber(at[1]))
end

--- Goes to where a state was taken, at no cost: the next batch is the one that would have followed. Every process goes
--- to the same place.
---@param given shardrt.LoaderState
function Loader:restore(given)
  state.check(given, self:state())
  local place = ("%.0f %.0f"):format(given.epoch, given.row)
  C.shardrt_job_at(current.job, fail.where() or "?")
  local subject = "the state that loader:restore goes to"
  fail.check(C.shardrt_check_same(current.job, subject, C.shardrt_fingerprint(place, #place)))
  local code = C.shardrt_loader_seek(self.handle, given.epoch, given.row)
  if code < 0 then fail("loader:restore: %s", fail.message(code)) end
end

--- What it did so far, in this process.
---@return shardrt.LoaderStats
function Loader:stats()
  local c, before = stats_of(self), self.before
  local function total(name) return tonumber(c[name]) + (before[name] or 0) end
  local stages = {}
  for _, name in ipairs(STAGES) do
    stages[name] = c[name .. "_seconds"] + (before.stages and before.stages[name] or 0)
  end
  return {
    bytes_read = total "bytes_read", bytes_moved = total "bytes_moved",
    bytes_uploaded = total "bytes_uploaded", samples = total "samples",
    steps = total "steps", steps_checked = total "steps_checked", bytes_fingerprinted = total "bytes_fingerprinted",
    bad_records = tonumber(C.shardrt_source_bad_count(self.source)),
    bytes_ahead = total "bytes_ahead", ahead = c.ahead ~= nil and ffi.string(c.ahead) or nil,
    seconds = total "seconds", num_workers = c.num_workers, prefetch = c.prefetch,
    read_size = tonumber(c.read_size), why = ffi.string(c.why), budget_bytes = tonumber(c.budget_bytes),
    slack_bytes = self.slack,
    stages = stages,
    buffers = self.batch_bytes == 0 and 0 or math.floor(tonumber(c.budget_bytes) / self.batch_bytes),
    batch_bytes = self.batch_bytes, pinned_bytes = tonumber(c.pinned_bytes),
  }
end

--- With pipeline = "auto": what is known of every way that the batches could go, and which was chosen; else nil.
---@return shardrt.Prediction[]?
function Loader:predictions() return self.auto and self.auto:predictions() end

function Loader:__tostring()
  local epochs = self.epochs and ("%.0f epoch%s"):format(self.epochs, self.epochs == 1 and "" or "s") or "without end"
  local order = self.shuffle and ("shuffled with seed %.0f"):format(self.seed) or "in the source's order"
  return ('loader of %.0f samples in batches of %.0f, %s, %s; %.0f step%s an epoch, remainder "%s", pipeline "%s"')
    :format(#self.source, self.batch_size, order, epochs, self.steps_per_epoch, self.steps_per_epoch == 1 and "" or "s",
      self.remainder, self.pipeline)
end

-- ---- what a recipe is given ----

local prototype = newproxy(true)
local Public = getmetatable(prototype)
Public.__metatable = false

-- How other libraries ask for batches and for their number.
local TAKES_TURNS = "`for batch in loader do` takes its batches in turn, loader() the next"
local COUNTS = "loader.steps_per_epoch is how many batches an epoch has, #loader.source how many samples there are"
local ELSEWHERE = {
  next = TAKES_TURNS, next_batch = TAKES_TURNS, iter = TAKES_TURNS, batches = TAKES_TURNS,
  len = COUNTS, size = COUNTS, length = COUNTS,
  reset = "loader:restore(state) goes back to where loader:state() was asked",
  state_dict = "loader:state() is where it stands", load_state_dict = "loader:restore(state) goes there",
}

--- Whether a value is a loader.
---@param value any
---@return boolean
function loader.is(value) return type(value) == "userdata" and debug.getmetatable(value) == Public end

--- For the library: C's loader, whatever way its batches go now.
---@param made shardrt.Loader
---@return ffi.cdata*
function loader.handle(made) return debug.getfenv(made).handle end

--- For the library: C's loader where it gives the batches by itself, from now on, and the names of their fields; nil
--- where Lua has a part in each.
---@param made shardrt.Loader
---@return ffi.cdata*?
---@return string[]?
function loader.direct(made)
  local self = debug.getfenv(made)
  if self.batch_transform or self.auto and self.auto:is_measuring() then return nil end
  return self.handle, self.batch_names
end

local function copy(fields)
  local made = {}
  for name, value in pairs(fields) do made[name] = value end
  return made
end

local METHODS, KNOWN = {}, {}
for name in pairs(FIELDS) do KNOWN[name] = true end
for _, name in ipairs { "state", "restore", "stats", "predictions" } do
  local method = Loader[name]
  KNOWN[name] = true
  local function call(made, ...) return method(debug.getfenv(made), ...) end
  METHODS[name] = class.method(loader.is, "loader", name, call)
end
KNOWN.handle = nil

function Public.__index(made, key)
  if METHODS[key] then return METHODS[key] end
  local self = debug.getfenv(made)
  if key == "sharding" then return copy(self.sharding) end
  if FIELDS[key] then return self[key] end
  if may_probe(key) then return nil end
  if type(key) ~= "string" then fail("a loader has no %s; %s; %s", list.show(key), TAKES_TURNS, COUNTS) end
  local meant = key == "steps" and ' (did you mean "steps_per_epoch"?)' or fail.suggestion(key, KNOWN)
  fail("a loader has no %s%s; %s", list.show(key), ELSEWHERE[key] and "" or meant,
    ELSEWHERE[key] or KEYWORDS[key] and "loader:stats() tells what became of options" or "it has " .. list.words(KNOWN))
end

function Public.__newindex(_, key) fail('a loader never changes: "%s" cannot be set', tostring(key)) end
function Public.__len() fail("a loader has no length; %s", COUNTS) end
function Public.__call(made) return next_batch(debug.getfenv(made)) end
function Public.__tostring(made) return tostring(debug.getfenv(made)) end

function hand_out(self) return debug.setfenv(newproxy(prototype), self) end

return loader

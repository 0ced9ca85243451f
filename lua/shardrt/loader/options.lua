-- What a recipe gives a loader: each option checked, and all of them the same in every process.

local bit = require "bit"
local C = require "shardrt.base.ffi"
local bad_records = require "shardrt.data.bad_records"
local bandwidth = require "shardrt.loader.bandwidth"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local field_map = require "shardrt.data.field_map"
local list = require "shardrt.base.list"
local order_cost = require "shardrt.loader.order_cost"
local source = require "shardrt.data.source"
fail.own()

local options = {}

---@class shardrt.LoaderOptions
---@field source shardrt.source
---@field batch_size integer # rows of the global batch
---@field sharding shardrt.Sharding|table<string, shardrt.Sharding>|nil # of all fields, or of each; nil: rows over all
---devices
---@field shuffle boolean|"blocks"|nil # true: all samples in random order; "blocks": of a source that is stored in
---blocks, as compressed chunks or parts of files on servers, the blocks in random order, and the rows of some that
---follow one another mixed, so that each block is decoded or downloaded about once an epoch; false
---@field window integer? # of shuffle = "blocks": so many blocks are mixed; 32
---@field lanes integer? # of shuffle = "blocks": the batch size for which the order is laid out; nil: batch_size. The
---order depends on it: loaders with other batches have the same order if it is said
---@field seed integer? # of the order; 0
---@field epochs integer? # nil: without end
---@field remainder "drop"|"pad"|"error"|nil # what becomes of an epoch's last rows that fill no batch; "drop"
---@field pipeline "per_process"|"global"|"per_device"|"reshard"|"auto"|nil # who reads what; "per_process"
---@field load_sharding shardrt.Sharding|table<string, shardrt.Sharding>|nil # for "reshard": the layout in which the
---data is read, each part by the process that has its replica 0, before it moves to `sharding`; nil: rows over all
---devices. For "auto": one more layout to consider
---@field bandwidth shardrt.Bandwidth? # for "auto"; nil: measured in the first steps
---@field filter table<string, shardrt.Predicate>? # which samples count, as source:filter takes it
---@field transform table<string, shardrt.Transform[]|false>? # what fields go through, as source:map takes it
---@field on_bad_record "error"|"skip"|nil # what becomes of samples that cannot be read, or be decoded by `transform`:
---they end the job, or are left out, in all processes alike, before the first batch; "error"
---@field batch_transform (fun(batch: table<string, shardrt.Array>): table<string, shardrt.Array>)? # called for every
---batch on its way to the recipe, by all processes alike; what it returns is the batch. State it keeps is its own
---@field num_workers integer? # threads that read; nil: chosen from the machine, and from how the first steps go
---@field prefetch integer? # batches made ahead; nil: chosen in the same way
---@field read_size integer? # bytes that a thread reads at once, where they are more than a row; nil: by the machine

--- What the options are called.
---@type table<string, true>
options.KEYWORDS = {
  source = true, batch_size = true, sharding = true, shuffle = true, window = true, lanes = true, seed = true,
  epochs = true, remainder = true, pipeline = true, load_sharding = true, bandwidth = true, filter = true,
  transform = true, batch_transform = true, on_bad_record = true, num_workers = true, prefetch = true,
  read_size = true,
}
local REMAINDERS = { drop = true, pad = true, error = true }
local PIPELINES = { per_process = true, global = true, per_device = true, reshard = true, auto = true }

local function choice(name, value, set)
  if type(value) == "string" and set[value] then return value end
  fail("loader: %s = %s%s; there are %s", name, list.show(value), fail.suggestion(value, set), list.words(set))
end

local function whole_number(name, value, lowest)
  if list.is_whole(value, lowest) then return value end
  fail("loader: %s = %s; it is a whole number%s", name, list.show(value),
    lowest > -2 ^ 53 and (" from %d on"):format(lowest) or "")
end

-- What belongs to one pipeline only, or is a word that this version does not have: said plainly, rather
-- than ignored.
local function refuse_useless(o)
  if o.lanes ~= nil and o.shuffle ~= "blocks" then
    fail 'loader: lanes is for shuffle = "blocks": the batch size for which the order is laid out'
  end
  if o.load_sharding ~= nil and o.pipeline ~= "reshard" and o.pipeline ~= "auto" then
    fail 'loader: load_sharding is for pipeline = "reshard" or "auto"; others read the data where `sharding` puts it'
  end
  if o.bandwidth ~= nil and o.pipeline ~= "auto" then
    fail 'loader: bandwidth is for pipeline = "auto", which chooses by it'
  end
  if o.window ~= nil and o.shuffle ~= "blocks" then
    fail 'loader: window is for shuffle = "blocks": how many of the blocks in which the source is stored are mixed'
  end
end

--- The options as the loader keeps them, each checked.
---@param o shardrt.LoaderOptions
---@return shardrt.loader.Inside # of its fields, those that the recipe gives
function options.check(o)
  if type(o) ~= "table" then fail("loader: it takes keywords, as in loader{source = …}, not %s", list.show(o)) end
  fail.keywords("loader", o, options.KEYWORDS)
  if not source.is(o.source) then
    fail("loader: source = %s; it is what shardrt.source.npy, .idx or .array makes", list.show(o.source))
  end
  local given = bad_records.skips("loader", o.on_bad_record) and bad_records.of_loader(o) or o.source
  if o.filter ~= nil then given = given:filter(o.filter) end
  if o.transform ~= nil then given = field_map(given, "loader: transform", o.transform) end
  if given.fields.mask then
    fail('loader: the source has a field "mask", a name that is kept for the mask of padded batches; rename it')
  end
  if o.shuffle ~= nil and type(o.shuffle) ~= "boolean" and o.shuffle ~= "blocks" then
    fail('loader: shuffle = %s; it is true, false or "blocks"', list.show(o.shuffle))
  end
  if o.batch_transform ~= nil and type(o.batch_transform) ~= "function" then
    fail("loader: batch_transform = %s; it is a function from one batch to another", list.show(o.batch_transform))
  end
  local asked = choice("pipeline", o.pipeline == nil and "per_process" or o.pipeline, PIPELINES)
  refuse_useless(o)
  return {
    source = given,
    batch_size = whole_number("batch_size", o.batch_size, 1),
    shuffle = o.shuffle or false,
    window = o.shuffle == "blocks" and whole_number("window", o.window or order_cost.WINDOW, 1) or nil,
    lanes = o.shuffle == "blocks" and whole_number("lanes", o.lanes or o.batch_size, 1) or nil,
    seed = o.seed == nil and 0 or whole_number("seed", o.seed, -2 ^ 53),
    epochs = o.epochs ~= nil and whole_number("epochs", o.epochs, 0) or nil,
    remainder = choice("remainder", o.remainder == nil and "drop" or o.remainder, REMAINDERS),
    pipeline = asked,
    bandwidth = bandwidth.check(o.bandwidth),
    batch_transform = o.batch_transform,
    num_workers = o.num_workers ~= nil and whole_number("num_workers", o.num_workers, 1) or nil,
    prefetch = o.prefetch ~= nil and whole_number("prefetch", o.prefetch, 1) or nil,
    read_size = o.read_size ~= nil and whole_number("read_size", o.read_size, 1) or nil,
  }
end

--- Every process makes the same loader of the same data, or hears which one differs.
---@param self shardrt.loader.Inside # what `check` gave, and the fields' shardings
---@param names string[] # of the fields
---@param load table<string, shardrt.Sharding>? # how the fields are laid out as they are read
function options.agree(self, names, load)
  local told = {
    { "batch_size", self.batch_size }, { "shuffle", self.shuffle }, { "seed", self.seed },
    { "window", self.window or "" }, { "lanes", self.lanes or "" },
    { "epochs", self.epochs or "without end" }, { "remainder", self.remainder }, { "pipeline", self.pipeline },
    { "bandwidth", self.bandwidth and bandwidth.text(self.bandwidth) or "" },
    { "batch_transform", self.batch_transform and "a function" or "" },
  }
  local texts = {}
  for i, option in ipairs(told) do texts[i] = tostring(option[2]) end
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
    for i, option in ipairs(told) do
      local subject = ("the loader's options (%s)"):format(option[1])
      fail.check(C.shardrt_check_same(current.job, subject, C.shardrt_fingerprint(texts[i], #texts[i])))
    end
    code = C.shardrt_check_same(current.job, "the loader's options (sharding)", C.shardrt_fingerprint(text, #text))
  end
  fail.check(code)
end

return options

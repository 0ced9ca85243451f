-- The loader: global batches of a source, each device's part of them brought to that device.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local batch = require "shardrt.loader.batch"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local field_shardings = require "shardrt.loader.field_shardings"
local lazy = require "shardrt.base.lazy"
local memory_pressure = require "shardrt.base.memory_pressure"
local numbering = require "shardrt.array.numbering"
local options = require "shardrt.loader.options"
local order_cost = require "shardrt.loader.order_cost"
local pipeline = require "shardrt.loader.pipeline"
local plan = require "shardrt.layout.plan"
local progress = require "shardrt.loader.progress"
local public = require "shardrt.loader.public"
local reshard = require "shardrt.array.reshard"
local spec = require "shardrt.layout.spec"
local state = require "shardrt.loader.state"
local stats = require "shardrt.loader.stats"
local watch = require "shardrt.loader.watch"
local auto = lazy.module "shardrt.loader.auto"
fail.own()

---@class shardrt.loader.Inside: shardrt.Loader # what the files of this folder see of a loader
---@field handle ffi.cdata* # shardrt_loader *
---@field way shardrt.pipeline # that batches go now
---@field lanes integer? # of shuffle = "blocks": rows of a batch as the order has it, which a state may change
---@field auto shardrt.auto? # of pipeline = "auto"
---@field bandwidth shardrt.Bandwidth? # as the recipe gave it; so, too, the next four
---@field batch_transform (fun(batch: table<string, shardrt.Array>): table<string, shardrt.Array>)?
---@field num_workers integer?
---@field prefetch integer?
---@field read_size integer?
---@field batch_names string[] # of the fields, and "mask"
---@field arrays ffi.cdata* # room for the handles of a batch's arrays
---@field batch_bytes number # of this process's shards of one batch
---@field slack number # bytes that batches which were let go may take before they are collected
---@field held number # bytes of the batches that were really held after the last collection
---@field collect_above number # bytes of batches handed out
---@field before shardrt.LoaderStats|{} # what was done by ways that were left
---@field told table<string, true> # lines of the recipe that were told that no batch is left
---@field next_batch fun(self: shardrt.loader.Inside): table<string, shardrt.Array>? # nil: there are no more
---@field gave boolean? # whether this pass gave a batch
---@field never_gives boolean # whether there are no batches in any epoch

---@class shardrt.Loader
---@field source shardrt.source
---@field batch_size integer
---@field sharding table<string, shardrt.Sharding> # of each field, and of the mask
---@field shuffle boolean|"blocks"
---@field window integer? # of shuffle = "blocks"
---@field seed integer
---@field epochs integer? # nil: without end
---@field remainder string
---@field pipeline string
---@field steps_per_epoch integer
---@overload fun(): table<string, shardrt.Array>|nil
local Loader = {}

---@class shardrt.loader.words
local words = {}
local loader = { words = words, is = public.is }

local ONE_CYCLE = 2 ^ 20 -- KiB: more than any heap has to mark and sweep

Loader.__index = Loader -- public.lua says what a recipe is given of it

-- From now on the batches go another way; which samples they are does not change.
local function open_way(self, new_way, first_step)
  local measuring = self.auto and self.auto:is_measuring()
  self.handle = pipeline.open(self, new_way, first_step, measuring and 1 or self.prefetch or 0)
  self.way = new_way
  local counted = stats.of_way(self)
  self.batch_bytes, self.slack = tonumber(counted.batch_bytes), tonumber(counted.slack_bytes)
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
      is_computed = C.shardrt_source_is_computed(self.source, i - 1),
    }
  end
  if self.sharding.mask then
    parts[#parts + 1] = { name = "mask", dtype = "bool", shape = { self.batch_size }, sharding = self.sharding.mask }
  end
  return parts
end

-- For the plan: what else there is to say.
local function plan_note(self)
  local pruned = tonumber(C.shardrt_source_pruned(self.source))
  local by_statistics = pruned > 0 and ("; statistics in the files rule out %.0f samples, unread"):format(pruned) or ""
  local guessed = C.shardrt_source_is_guessed(self.source) and
    "what a filter lets through, what is damaged and how rows are packed shows when data is read: here it is the most "
    .. "there can be" .. by_statistics
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
  local before = self:stats()
  local new_way = self.auto:next_way(before)
  if new_way and new_way ~= self.way then
    local old, at = self.handle, ffi.new "int64_t[2]"
    C.shardrt_loader_tell(old, at, at + 1)
    self.before = before
    watch.turn(self)
    open_way(self, new_way, before.steps)
    fail.check(C.shardrt_loader_seek(self.handle, at[0], at[1]))
    C.shardrt_loader_free(ffi.gc(old, nil)) -- what it read ahead is dropped
  end
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

-- What C wrote to self.arrays, by field.
local function wrap_arrays(self)
  local made = {}
  for i, name in ipairs(self.batch_names) do
    made[name] = numbering.made_by_all(array.wrap(self.arrays, self.sharding[name], i - 1))
  end
  return batch.wrap(made)
end

-- Where this process is, for the others' reports. A program's call after the recipe has ended has said that by itself.
local function note_place()
  local where = fail.where()
  if fail.chunk or where ~= fail.recipe then C.shardrt_job_at(current.job, where or "?") end
end

-- The next batch, or nil after the last.
local function next_batch(self)
  if current.info.planning ~= 0 then return nil end
  note_place()
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
    watch.step(self)
    return nil
  end
  self.gave = true
  collective.pass_on()
  progress.step(self)
  watch.step(self)
  local done, made = pcall(wrap_arrays, self)
  if not done then
    for i = 0, #self.batch_names - 1 do C.shardrt_array_free(self.arrays[i]) end -- NULL where it has been taken over
    error(made, 0)
  end
  return self.batch_transform and batch.transform(self, made) or made
end

--- A loader, which a `for` asks for one global batch after another: `for batch in loader do … batch.image … end`. A
--- second `for` goes on from the next batch; after the last epoch it ends at once, and says so on stderr. Every process
--- makes it alike. One whose epochs have no batch says so on stderr; without end, that is an error. Asking a batch for
--- a name that is no field's is an error, too.
---@param o shardrt.LoaderOptions
---@return shardrt.Loader
function words.loader(o)
  local self = options.check(o)
  local names = self.source.names
  if #names == 0 then fail "loader: the source has no fields" end
  local by = o.sharding
  if by == nil then by = field_shardings.over_all_devices(spec.words.P "data") end
  self.sharding = field_shardings.each("sharding", by, names)
  if self.remainder == "pad" then self.sharding.mask = field_shardings.mask(self.sharding, names) end
  local planning, load = current.info.planning ~= 0, load_layouts(o, names)
  if not planning then options.agree(self, names, load) end
  tell_of_no_batch(self, o)
  self.before, self.told, self.next_batch = {}, {}, next_batch
  open_way(self, first_way(self, names, load), 0)
  self.steps_per_epoch = tonumber(C.shardrt_loader_steps_per_epoch(self.handle))
  self.batch_names = { unpack(names) }
  self.batch_names[#names + 1] = self.sharding.mask and "mask" or nil
  self.arrays = ffi.new("shardrt_array *[?]", #self.batch_names)
  setmetatable(self, Loader)
  if planning then
    plan.note_loader(self, parts_of(self, names), plan_note(self), order_cost.lines(self))
  else
    order_cost.tell(self)
  end
  watch.made(self, o)
  return public.wrap(self)
end

--- Where the next batch stands, as a plain table that fits into JSON; the same in every process, and of use in a job of
--- any other size.
---@return shardrt.LoaderState
function Loader:state()
  local at = ffi.new "int64_t[2]"
  C.shardrt_loader_tell(self.handle, at, at + 1)
  return state.of(self, tonumber(at[0]), tonumber(at[1]))
end

-- Goes to the place that a state tells of.
local function seek(self, given)
  if self.lanes then
    self.lanes = given.lanes
    fail.check(C.shardrt_loader_set_lanes(self.handle, self.lanes))
  end
  local code = C.shardrt_loader_seek(self.handle, given.epoch, given.row)
  if code < 0 then return fail.message(code) end
end

--- Brings loaders to where states were taken: all of them or, where one cannot go there, none.
---@param loaders shardrt.loader.Inside[]
---@param states any[] # one for each
function loader.restore(loaders, states)
  local places, before = {}, {}
  for i, self in ipairs(loaders) do
    local given, now = states[i], Loader.state(self)
    state.check(given, now)
    places[i], before[i] = ("%.0f %.0f %.0f"):format(given.epoch, given.row, given.lanes or 0), now
  end
  local place = table.concat(places, ", ")
  note_place()
  local subject = "the state that loader:restore goes to"
  fail.check(C.shardrt_check_same(current.job, subject, C.shardrt_fingerprint(place, #place)))
  for i, self in ipairs(loaders) do
    local problem = seek(self, states[i])
    if problem then
      for k = 1, i do seek(loaders[k], before[k]) end
      fail("loader:restore: %s", problem)
    end
  end
end

--- Goes to where a state was taken, at no cost: the next batch is the one that would have followed. Every process goes
--- to the same place.
---@param given shardrt.LoaderState
function Loader:restore(given) loader.restore({ self }, { given }) end

--- What it did so far, in this process.
---@return shardrt.LoaderStats
function Loader:stats() return stats.of(self) end

--- With pipeline = "auto": what is known of every way that the batches could go, and which was chosen; else nil.
---@return shardrt.Prediction[]?
function Loader:predictions() return self.auto and self.auto:predictions() end

function Loader:__tostring()
  local epochs = self.epochs and ("%.0f epoch%s"):format(self.epochs, self.epochs == 1 and "" or "s") or "without end"
  local order = self.shuffle and ("shuffled with seed %.0f"):format(self.seed) or "in the source's order"
  if self.window then order = ("shuffled by blocks, %.0f at a time, with seed %.0f"):format(self.window, self.seed) end
  return ('loader of %.0f samples in batches of %.0f, %s, %s; %.0f step%s an epoch, remainder "%s", pipeline "%s"')
    :format(#self.source, self.batch_size, order, epochs, self.steps_per_epoch, self.steps_per_epoch == 1 and "" or "s",
      self.remainder, self.pipeline)
end

return loader

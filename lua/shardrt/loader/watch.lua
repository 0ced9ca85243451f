-- What the loaders of a recipe did, for --report and --metrics. Loaders that one line of it makes alike, as one for
-- each epoch, count as one. Where neither is asked for, a step costs one test of a flag.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local bad_records = require "shardrt.data.bad_records"
local fail = require "shardrt.base.error"
fail.own()

---@class shardrt.watch.field
---@field name string
---@field dtype string
---@field shape integer[] # of the global batch
---@field sharding shardrt.Sharding

---@class shardrt.watch.bad
---@field count integer
---@field records shardrt.BadRecord[] # the first ones

---@class shardrt.watch.points
---@field time number[] # seconds since the start; with the next three: up to then
---@field steps number[]
---@field samples number[]
---@field wait number[]

---@class shardrt.watch.line
---@field where string # the recipe's line that made loaders; others that it made: "recipe.lua:12, 2"
---@field text string # what the first of them is
---@field loaders integer # that it made
---@field totals table<string, number> # of all of them
---@field num_workers integer # of the one that gave a batch last; so, too, the next two
---@field prefetch integer
---@field step integer # batches that it gave
---@field fields shardrt.watch.field[] # these are of the line's last loader
---@field samples integer # of its source, which it goes through
---@field left_out integer # by its filter
---@field dropped integer # rows of an epoch that do not fill a batch, and are in none
---@field bad shardrt.watch.bad # that cannot be read
---@field points shardrt.watch.points # at most MOST_POINTS, at equal distances but for the last

local watch = {}

local COUNTED = {
  "bytes_read", "bytes_ahead", "bytes_moved", "bytes_uploaded", "samples", "steps", "steps_checked", "seconds",
  "wait_seconds", "move_seconds", "read_seconds", "decode_seconds", "transform_seconds", "scatter_seconds",
  "check_seconds", "upload_seconds", "upload_wait_seconds",
}
local STEPS -- which of these counts batches
for i, name in ipairs(COUNTED) do STEPS = name == "steps" and i or STEPS end
local MOST_POINTS, MOST_REASONS = 512, 50

local is_on = false
local began = 0
local on_step -- called after each batch
local by_key = {} ---@type table<string, shardrt.watch.line>
local alike = {} ---@type table<string, integer> # of a line of the recipe: how many kinds of loaders it made
local marks = setmetatable({}, { __mode = "k" }) -- of each loader: what was counted of it so far
local counted -- shardrt_loader_stats

---@type shardrt.watch.line[] # in the order in which they were first made
watch.lines = {}
---@type number? # when a loader was last asked for a batch, by shardrt_clock
watch.stepped = nil

--- Begins, before the recipe.
---@param tick fun()? # called after each batch
function watch.start(tick)
  is_on, began, on_step = true, C.shardrt_clock(), tick
  counted = ffi.new "shardrt_loader_stats"
end

--- Seconds since then.
---@return number
function watch.seconds() return C.shardrt_clock() - began end

-- Every second point goes.
local function thin_out(points)
  for _, list in pairs(points) do
    for i = 1, #list do list[i] = list[2 * i] end
  end
end

local function add_point(line)
  local points, totals = line.points, line.totals
  if points.steps[#points.steps] == totals.steps then return end
  local n = #points.time + 1
  points.time[n], points.steps[n] = watch.seconds(), totals.steps
  points.samples[n], points.wait[n] = totals.samples, totals.wait_seconds
  if n < MOST_POINTS then return end
  thin_out(points)
  line.every = 2 * line.every
end

-- Adds what a loader did since the last time.
local function add(loader, mark)
  local line, totals, last = mark.line, mark.line.totals, mark.last
  C.shardrt_loader_stats_get(loader.handle, counted)
  for i, name in ipairs(COUNTED) do
    local now = tonumber(counted[name])
    totals[name], last[i] = totals[name] + now - last[i], now
  end
  line.num_workers, line.prefetch, line.step = counted.num_workers, counted.prefetch, last.before + last[STEPS]
end

local function new_last(before)
  local last = { before = before }
  for i in ipairs(COUNTED) do last[i] = 0 end
  return last
end

local function describe(line, loader, o)
  local names = loader.source.names
  line.fields = {}
  for i, name in ipairs(names) do
    local field = loader.source.fields[name]
    line.fields[i] = { name = name, dtype = field.dtype, shape = { loader.batch_size, unpack(field.shape) },
      sharding = loader.sharding[name] }
  end
  local bad, given = C.shardrt_source_bad_count(loader.source), o.source
  line.samples = #loader.source
  line.left_out = o.filter ~= nil and #given - tonumber(bad - C.shardrt_source_bad_count(given)) - line.samples or 0
  line.dropped = loader.remainder == "drop" and line.samples % loader.batch_size or 0
  local records = bad > 0 and bad_records.records(loader.source) or {}
  for i = MOST_REASONS + 1, #records do records[i] = nil end
  line.bad = { count = tonumber(bad), records = records }
end

--- The recipe made a loader.
---@param loader shardrt.loader.Inside
---@param o shardrt.LoaderOptions # as it was asked for
function watch.made(loader, o)
  if not is_on then return end
  local where = fail.where() or "?"
  local key = ("%s %.0f %.0f %s"):format(where, #loader.source, loader.batch_size,
    table.concat(loader.source.names, " "))
  local line = by_key[key]
  if not line then
    alike[where] = (alike[where] or 0) + 1
    if alike[where] > 1 then where = ("%s, %d"):format(where, alike[where]) end
    line = { where = where, text = tostring(loader), loaders = 0, totals = {}, every = 1, num_workers = 0, prefetch = 0,
      step = 0, points = { time = {}, steps = {}, samples = {}, wait = {} } }
    for _, name in ipairs(COUNTED) do line.totals[name] = 0 end
    by_key[key] = line
    watch.lines[#watch.lines + 1] = line
  end
  line.loaders = line.loaders + 1
  describe(line, loader, o)
  marks[loader] = { line = line, last = new_last(0) }
end

--- A loader's batches go another way from here: what counts them begins anew.
---@param loader shardrt.loader.Inside
function watch.turn(loader)
  local mark = marks[loader]
  if not mark then return end
  add(loader, mark)
  mark.last = new_last(mark.last.before + mark.last[STEPS])
end

--- A loader handed out a batch, or has no more.
---@param loader shardrt.loader.Inside
function watch.step(loader)
  local mark = is_on and marks[loader]
  if not mark then return end
  add(loader, mark)
  if mark.line.totals.steps % mark.line.every == 0 then add_point(mark.line) end
  watch.stepped = C.shardrt_clock()
  if on_step then on_step() end
end

--- Counts what loaders did since their last batch.
function watch.finish()
  for loader, mark in pairs(marks) do add(loader, mark) end
  for _, line in ipairs(watch.lines) do add_point(line) end
end

return watch

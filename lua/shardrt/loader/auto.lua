-- pipeline = "auto": the way of the batches that is predicted to take least time, from the plans of all ways and from
-- bandwidths, which a recipe gives or the first steps measure.
--
-- The model: a step takes as long as the process for which it takes longest,
--   the bytes that it reads / read bandwidth + the bytes that it receives (or sends, if more) / link bandwidth.
-- The read bandwidth is what one process gets while all of them read: its share where processes share a storage, all
-- where each has its own. It is a number for each way, since short runs, whole samples and copies
-- read at different speeds. Copies inside a process, and reading that overlaps moving, are left out: they change little
-- of what is to be decided. Every process computes with the same numbers, so all come to the same choice.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local pipeline = require "shardrt.loader.pipeline"
fail.own()

local auto = {}

---@class shardrt.Prediction # what auto knows about one way
---@field name string # "per_process", "per_device", "global", "rows", "shares" or "load_sharding"
---@field pipeline string # as the loader's option
---@field load_sharding table<string, shardrt.Sharding>? # the same
---@field bytes_read number # in a step, by the process that reads most
---@field bytes_moved number # in a step, received or sent by the process for which it is most
---@field seconds number? # of a step; nil where it is not known
---@field chosen boolean

---@class shardrt.auto
---@field where string # the recipe's line
---@field tried table[] # candidates that were measured
---@field candidates table[] # {way=, read={by process}, moved={by process}, most_read=, most_moved=, seconds=}
---@field bandwidth shardrt.Bandwidth? # nil: not known yet
---@field trials table[]? # of candidates that are being measured; nil: decided, or a plan
---@field chosen table? # one of the candidates
local Auto = {}
Auto.__index = Auto

local WARM_STEPS = 3  -- of each way that is measured: they find fresh memory, which is slow
local TRIAL_STEPS = 2 -- after these are measured
local HOPELESS = 8    -- a way that reads so many times the bytes of one that moves no more is not tried
local PLANNED = 256   -- a plan knows the costs of all of so many processes; of larger jobs it takes some of them, the
-- fewer the more others each may have to do with, and at least the first and the last

-- ---- candidates ----

local function same_layouts(a, b, names)
  for _, name in ipairs(names) do
    if a[name] ~= b[name] then return false end
  end
  return true
end

-- All ways that differ. Where two are predicted to take as long, the first is chosen: the simplest come first.
local function ways_of(loader, load_sharding)
  local names = loader.source.names
  local ways = { pipeline.direct "per_process", pipeline.direct "per_device", pipeline.direct "global" }
  local function add(name, load)
    if same_layouts(load, loader.sharding, names) then return end
    for _, other in ipairs(ways) do
      if other.load and same_layouts(other.load, load, names) then return end
    end
    ways[#ways + 1] = pipeline.moved(name, load)
  end
  local rows, shares, by_rows = {}, {}, pipeline.rows(loader.batch_size)
  for _, name in ipairs(names) do
    rows[name] = by_rows
    local sizes = { loader.batch_size, unpack(loader.source.fields[name].shape) }
    shares[name] = pipeline.shares(loader.sharding[name], sizes)
  end
  if load_sharding then add("load_sharding", load_sharding) end
  add("rows", rows)
  add("shares", shares)
  return ways
end

local Numbers = ffi.typeof "double[?]"

-- A list of numbers from every process.
local function gather(caller, numbers)
  local count, processes = #numbers, current.info.process_count
  local all, lists = Numbers(count * processes), {}
  fail.check(C.shardrt_allgather(current.job, caller, Numbers(count, numbers), 8 * count, all))
  for process = 0, processes - 1 do
    lists[process + 1] = {}
    for i = 0, count - 1 do lists[process + 1][i + 1] = all[process * count + i] end
  end
  return lists
end

local function costs_in(loader, ways, process)
  local numbers = {}
  for i, one in ipairs(ways) do numbers[2 * i - 1], numbers[2 * i] = pipeline.cost(loader, one, process) end
  return numbers
end

-- What every way costs in each process: told by that process, or under a plan, where there is nobody to ask, computed
-- for it.
local function costs_of(loader, ways)
  local job = current.info
  if job.planning == 0 then
    return gather("the costs of the loader's ways", costs_in(loader, ways, job.process_index))
  end
  local lists, count = {}, job.process_count
  local known = math.min(count, math.max(2, math.floor(PLANNED * PLANNED / count)))
  for i = 0, known - 1 do
    lists[i + 1] = costs_in(loader, ways, math.floor(i * (count - 1) / math.max(1, known - 1)))
  end
  return lists
end

local function candidates_of(loader, ways)
  local lists, candidates = costs_of(loader, ways), {}
  for i, one in ipairs(ways) do
    local read, moved = {}, {}
    for process, numbers in ipairs(lists) do read[process], moved[process] = numbers[2 * i - 1], numbers[2 * i] end
    local candidate = { way = one, read = read, moved = moved, most_read = 0, most_moved = 0 }
    for process = 1, #lists do
      candidate.most_read = math.max(candidate.most_read, read[process])
      candidate.most_moved = math.max(candidate.most_moved, moved[process])
    end
    candidates[i] = candidate
  end
  return candidates
end

-- ---- the choice ----

local function read_bandwidth(bandwidth, candidate)
  return type(bandwidth.read) == "number" and bandwidth.read or bandwidth.read[candidate.way.name]
end

-- Sets the seconds that a step takes with each candidate whose read bandwidth is known, and chooses.
local function decide(self)
  for _, candidate in ipairs(self.candidates) do
    local read = read_bandwidth(self.bandwidth, candidate)
    if read then
      candidate.seconds = 0
      for process = 1, #candidate.read do
        candidate.seconds = math.max(candidate.seconds,
          candidate.read[process] / read + candidate.moved[process] / self.bandwidth.link)
      end
      if not self.chosen or candidate.seconds < self.chosen.seconds then self.chosen = candidate end
    end
  end
  if not self.chosen then fail "loader: bandwidth.read has no number for any way that there is" end
end

-- "reading at 1200 MB/s, links at 800 MB/s", as far as these are known.
local function rates_text(read, link)
  local words = {}
  for _, rate in ipairs { { "reading", read }, { "links", link } } do
    if rate[2] < math.huge then words[#words + 1] = ("%s at %.4g MB/s"):format(rate[1], rate[2] / 1e6) end
  end
  return #words > 0 and " (" .. table.concat(words, ", ") .. ")" or ""
end

local function cost_text(candidate)
  local seconds = candidate.seconds and (", %.4g ms"):format(candidate.seconds * 1e3) or ""
  return ("%s: %.0f bytes read, %.0f moved%s"):format(pipeline.text(candidate.way), candidate.most_read,
    candidate.most_moved, seconds)
end

--- What was chosen, and why, in one line; or that it is not yet.
---@return string
function Auto:text()
  local words = {}
  for _, candidate in ipairs(self.candidates) do
    if candidate ~= self.chosen and (candidate.seconds or not self.chosen) then
      words[#words + 1] = cost_text(candidate)
    end
  end
  if self.chosen and not self.bandwidth then
    return ('pipeline "auto" chose %s: no way reads or moves less'):format(cost_text(self.chosen))
  end
  local others = #words > 0 and "; " .. table.concat(words, "; ") or ""
  if not self.chosen then return 'pipeline "auto" measures the first steps, then chooses' .. others end
  return ('pipeline "auto" chose %s in a step%s%s'):format(cost_text(self.chosen),
    rates_text(read_bandwidth(self.bandwidth, self.chosen), self.bandwidth.link), others)
end

local function say(self)
  if current.info.process_index == 0 then
    io.stderr:write("shardrt: ", self.where, ": ", self:text(), "\n")
  end
end

--- What is predicted for every way there is.
---@return shardrt.Prediction[]
function Auto:predictions()
  local made = {}
  for i, candidate in ipairs(self.candidates) do
    made[i] = {
      name = candidate.way.name, pipeline = pipeline.option(candidate.way), load_sharding = candidate.way.load,
      bytes_read = candidate.most_read, bytes_moved = candidate.most_moved, seconds = candidate.seconds,
      chosen = candidate == self.chosen,
    }
  end
  return made
end

-- ---- measuring ----

local function same_costs(a, b)
  for process = 1, #a.read do
    if a.read[process] ~= b.read[process] or a.moved[process] ~= b.moved[process] then return false end
  end
  return true
end

local function is_hopeless(candidate, candidates)
  for _, other in ipairs(candidates) do
    local reads_much = candidate.most_read > HOPELESS * other.most_read
    if reads_much and candidate.most_moved >= other.most_moved then return true end
  end
  return false
end

-- The candidates to be measured: not those that cost what an earlier one does, everywhere, nor the hopeless.
local function trials_of(candidates)
  local trials = {}
  for _, candidate in ipairs(candidates) do
    local wanted = not is_hopeless(candidate, candidates)
    for _, other in ipairs(trials) do wanted = wanted and not same_costs(other, candidate) end
    if wanted then trials[#trials + 1] = candidate end
  end
  return trials
end

-- The bandwidths, from what every process measured of every trial: all bytes over all seconds. A way that was not tried
-- has that of the one which costs the same; a hopeless one that of the first.
local function bandwidth_of(trials, candidates)
  local mine = {}
  for i, trial in ipairs(trials) do mine[2 * i - 1], mine[2 * i] = trial.read_seconds, trial.move_seconds end
  local lists = gather("what the loader's first steps measured", mine)
  local read, moved, moving = {}, 0, 0
  for i, trial in ipairs(trials) do
    local bytes, seconds = 0, 0
    for process, numbers in ipairs(lists) do
      bytes, seconds = bytes + trial.read[process], seconds + numbers[2 * i - 1]
      moved, moving = moved + trial.moved[process], moving + numbers[2 * i]
    end
    read[trial.way.name] = bytes > 0 and seconds > 0 and bytes / seconds or math.huge
  end
  for _, candidate in ipairs(candidates) do
    local like = trials[1]
    for _, trial in ipairs(trials) do like = same_costs(trial, candidate) and trial or like end
    read[candidate.way.name] = read[candidate.way.name] or read[like.way.name]
  end
  return { read = read, link = moved > 0 and moving > 0 and moved / moving or math.huge }
end

-- The seconds of a step that its handle spent since `before`.
local function measure(trial, now)
  local before = trial.before
  local steps = now.steps - before.steps
  local threads = now.num_workers + 1 -- the recipe's own helps
  trial.read_seconds = (now.stages.read - before.stages.read) / threads / steps
  trial.move_seconds = (now.stages.move - before.stages.move) / steps
end

--- Whether bandwidths are still being measured.
---@return boolean
function Auto:is_measuring() return self.trials ~= nil end

--- To be called before each step while it measures, by all processes alike: the way that it goes, where this changes
--- now.
---@param stats shardrt.LoaderStats # of what the loader did so far
---@return shardrt.pipeline?
function Auto:next_way(stats)
  local trial = self.trials[1]
  local steps = stats.steps - (trial.first or stats.steps)
  trial.first = trial.first or stats.steps
  if steps == WARM_STEPS then trial.before = stats end
  if steps < WARM_STEPS + TRIAL_STEPS then return nil end
  measure(trial, stats)
  table.remove(self.trials, 1)
  self.tried[#self.tried + 1] = trial
  local next_trial = self.trials[1]
  if next_trial then
    next_trial.first = stats.steps
    return next_trial.way
  end
  self.trials = nil
  self.bandwidth = bandwidth_of(self.tried, self.candidates)
  decide(self)
  say(self)
  return self.chosen.way
end

--- Prepares the choice for a loader, or makes it, where the bandwidths are known. Every process must call it.
---@param loader shardrt.loader.Inside
---@param bandwidth shardrt.Bandwidth?
---@param load_sharding table<string, shardrt.Sharding>? # one more layout to read in
---@return shardrt.auto
---@return shardrt.pipeline # the way of the first step
function auto.new(loader, bandwidth, load_sharding)
  local self = setmetatable({ where = fail.where() or "?", bandwidth = bandwidth, tried = {} }, Auto)
  self.candidates = candidates_of(loader, ways_of(loader, load_sharding))
  if bandwidth then
    decide(self)
    if current.info.planning == 0 then say(self) end
    return self, self.chosen.way
  end
  local planning, trials = current.info.planning ~= 0, trials_of(self.candidates)
  if #trials == 1 then
    self.chosen = trials[1]
    if not planning then say(self) end
  elseif not planning then
    self.trials = trials
  end
  return self, trials[1].way
end

return auto

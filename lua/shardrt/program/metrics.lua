-- --metrics: a file of numbers for Prometheus, in its text format
-- (https://prometheus.io/docs/instrumenting/exposition_formats), which node exporter's textfile collector reads. Each
-- process keeps one of its own, as it changes while the loop runs.

local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local report_page = require "shardrt.program.report_page"
local watch = require "shardrt.loader.watch"
local ffi = require "ffi"
fail.own()

local metrics = {}

local SECONDS = 10 -- from one writing to the next, at least

local STAGES = { "read", "decode", "transform", "scatter", "check", "wait", "move", "upload", "upload_wait" }
local STATES = { "running", "ended", "stopped", "failed" }

-- Name, type, help, of a loader; what its value is.
local FAMILIES = {
  { "shardrt_samples_total", "counter", "Rows of global batches handed out, without padding.",
    function(line) return line.totals.samples end },
  { "shardrt_steps_total", "counter", "Batches handed out.", function(line) return line.totals.steps end },
  { "shardrt_read_bytes_total", "counter", "Bytes that this process took from its storage, for batches handed out.",
    function(line) return line.totals.bytes_read end },
  { "shardrt_received_bytes_total", "counter", "Bytes of batches received from other processes.",
    function(line) return line.totals.bytes_moved end },
  { "shardrt_uploaded_bytes_total", "counter", "Bytes copied to devices with memory of their own.",
    function(line) return line.totals.bytes_uploaded end },
  { "shardrt_loader_seconds_total", "counter", "Seconds from the call for the first batch to the last call's end.",
    function(line) return line.totals.seconds end },
  { "shardrt_stage_seconds_total", "counter",
    "Seconds in each stage: wait and move of the recipe's thread, the others of all workers together." },
  { "shardrt_last_step", "gauge", "Number of the last batch of this run, from 1 on; 0 before the first.",
    function(line) return line.step end },
  { "shardrt_unreadable_samples", "gauge", "Samples that were left out because they cannot be read.",
    function(line) return line.bad.count end },
  { "shardrt_workers", "gauge", "Workers that make batches now.", function(line) return line.num_workers end },
  { "shardrt_prefetch_batches", "gauge", "Batches that are made ahead now.", function(line) return line.prefetch end },
}

local path -- nil: none are asked for here, or the last were written
local recipe -- that all is of; nil: each line has one of its own
local period, due, began, state, errors = SECONDS, 0, 0, "running", 0

---@class shardrt.metrics.line # what is told of a watch.line
---@field recipe string?
---@field where string
---@field totals table<string, number>
---@field step integer
---@field num_workers integer
---@field prefetch integer
---@field bad shardrt.watch.bad

---@type fun(): shardrt.metrics.line[], number? # and when a loader was last asked, by shardrt_clock
local function own_lines() return watch.lines, watch.stepped end
local lines_of = own_lines

-- A label's value.
local function quoted(text)
  return '"' .. report_page.clean(text):gsub('[\\"\n]', { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }) .. '"'
end

-- Labels that all have; "job" would be Prometheus's own word for what it asks.
local function common_labels()
  local labels = { ('process="%d"'):format(current.info.process_index) }
  if recipe then table.insert(labels, 1, "recipe=" .. quoted(recipe)) end
  local id = os.getenv "SLURM_JOB_ID" or os.getenv "PBS_JOBID" or os.getenv "LSB_JOBID"
  if id and id ~= "" then labels[#labels + 1] = "job_id=" .. quoted(id) end
  return table.concat(labels, ",")
end

local function number(value) return (value % 1 == 0 and "%.0f" or "%.9g"):format(value) end

local function text_now()
  local lines, common = {}, common_labels()
  local watched, stepped = lines_of()
  local function family(name, kind, help)
    lines[#lines + 1] = ("# HELP %s %s"):format(name, help)
    lines[#lines + 1] = ("# TYPE %s %s"):format(name, kind)
  end
  local function sample(name, labels, value)
    lines[#lines + 1] = ("%s{%s%s} %s"):format(name, common, labels, number(value))
  end
  family("shardrt_info", "gauge", "Always 1; says what runs.")
  sample("shardrt_info", (',version=%s,platform=%s'):format(quoted(ffi.string(C.shardrt_version())),
    quoted(ffi.string(current.info.platform))), 1)
  family("shardrt_processes", "gauge", "Processes of the job.")
  sample("shardrt_processes", "", current.info.process_count)
  family("shardrt_start_time_seconds", "gauge", "When the job began, in seconds since 1970.")
  sample("shardrt_start_time_seconds", "", began)
  family("shardrt_state", "gauge", "1 for what became of the job, as far as this process knows.")
  for _, name in ipairs(STATES) do sample("shardrt_state", (',state="%s"'):format(name), name == state and 1 or 0) end
  family("shardrt_errors_total", "counter", "Errors that ended the job.")
  sample("shardrt_errors_total", "", errors)
  if stepped then
    family("shardrt_last_step_timestamp_seconds", "gauge",
      "When the last batch was handed out, in seconds since 1970.")
    sample("shardrt_last_step_timestamp_seconds", "", math.floor(os.time() - (C.shardrt_clock() - stepped)))
  end
  for _, one in ipairs(#watched > 0 and FAMILIES or {}) do
    family(one[1], one[2], one[3])
    for _, line in ipairs(watched) do
      local loader = (recipe and "" or ",recipe=" .. quoted(line.recipe)) .. ",loader=" .. quoted(line.where)
      if one[4] then
        sample(one[1], loader, one[4](line))
      else
        for _, stage in ipairs(STAGES) do
          sample(one[1], ('%s,stage="%s"'):format(loader, stage), line.totals[stage .. "_seconds"])
        end
      end
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

--- Writes the file now, where one is asked for. A disk that is full for now does not end a job: the file stays as it
--- was.
---@return integer # a code
function metrics.write()
  if not path then return 0 end
  local text = text_now()
  return C.shardrt_file_put(path, text, #text)
end

-- "metrics.2.prom" of "metrics.prom", in a job of several processes.
local function path_of(wanted)
  if current.info.process_count == 1 then return wanted end
  local folder, name = wanted:match "^(.*/)([^/]*)$"
  folder, name = folder or "", name or wanted
  local stem, ending = name:match "^(.+)(%.[^.]*)$"
  return ("%s%s.%d%s"):format(folder, stem or name, current.info.process_index, ending or "")
end

--- Before the recipe. Every process must call it; a path that cannot be written is an error in all.
---@param wanted string? # nil: this process keeps no file
---@param recipe_path string? # nil: each line has its own
---@param seconds number? # from one writing to the next, at least
---@param told (fun(): shardrt.metrics.line[], number?)? # what there is to write; nil: what is watched here
function metrics.start(wanted, recipe_path, seconds, told)
  path, recipe, period, began = wanted and path_of(wanted), recipe_path, seconds or SECONDS, os.time()
  state, errors, lines_of = "running", 0, told or own_lines
  local code = path and C.shardrt_file_check(path) or 0
  if code == 0 then code = metrics.write() end
  fail.check(C.shardrt_check_outcome(current.job, "the start of the metrics", code))
  due = C.shardrt_clock() + period
end

--- After each batch that is watched here.
function metrics.step()
  if not path or watch.stepped < due then return end
  due = watch.stepped + period
  metrics.write()
end

--- At the job's end.
---@param ended "ended"|"stopped"|"failed"
function metrics.finish(ended)
  if not path then return end
  watch.finish()
  state, errors = ended, ended == "failed" and 1 or 0
  metrics.write()
  path = nil
end

return metrics

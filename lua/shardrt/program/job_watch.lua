-- What all recipes of a program do, for the report and the metrics of its job. Each recipe has a Lua state of its own,
-- and tells this one, which lives as long as the job (runtime/library/job_watch.c).

require("shardrt.base.sorted_pairs").install() -- before any other loop

local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local guarded = require "shardrt.program.guarded"
local json = require "shardrt.base.json"
local metrics = require "shardrt.program.metrics"
local report = require "shardrt.program.report"
local report_page = require "shardrt.program.report_page"
fail.own()

local job_watch = {}

local recipes = {} ---@type {recipe: string, lines: shardrt.report.line[], stepped: number?}[] # in the order of opening
local left_out = 0 -- recipes beyond those that are watched

-- Of all recipes. One that was opened several times, and so has a line twice, has the number of the opening there.
local function all_lines()
  local all, known, stepped = {}, {}, nil
  for number, told in ipairs(recipes) do
    for _, line in ipairs(told.lines) do
      if known[line.where] then line.where = ("%s, opened as recipe %d"):format(line.where, number) end
      known[line.where], line.recipe = true, told.recipe
      all[#all + 1] = line
    end
    if told.stepped then stepped = math.max(stepped or 0, told.stepped) end
  end
  return all, stepped
end

--- The job, before all else.
---@param handle userdata
function job_watch.job(handle) current.set(handle) end

--- A report is asked for. All processes call it.
---@param path string? # process 0 has it
function job_watch.report(path) report.start(path) end

--- Metrics are asked for, in some process. All call it.
---@param path string? # nil: this one keeps none
function job_watch.metrics(path) metrics.start(path, nil, nil, all_lines) end

--- A recipe is opened.
---@param path string
function job_watch.open(path) recipes[#recipes + 1] = { recipe = report_page.clean(path), lines = {} } end

--- One more is, which is not watched.
function job_watch.leave_out() left_out = left_out + 1 end

--- A recipe tells what it did so far: what library.watched returned there.
---@param number integer # of the recipe, from 1 on
---@param text string
function job_watch.keep(number, text)
  local told = assert(json.decode(text))
  recipes[number].lines, recipes[number].stepped = told.lines, told.stepped
end

--- The file of metrics is due.
function job_watch.write() metrics.write() end

-- Of a recipe that could not tell its last, nothing is on the page.
local function page_lines()
  local lines = {}
  for _, line in ipairs((all_lines())) do lines[#lines + 1] = line.text and line or nil end
  return lines
end

local function page(ended, message)
  local titles, known = {}, {}
  for _, told in ipairs(recipes) do
    if not known[told.recipe] then titles[#titles + 1] = told.recipe end
    known[told.recipe] = true
  end
  local note = left_out > 0 and ("%d recipes that were opened later are not on this page."):format(left_out) or nil
  return { title = #titles > 0 and table.concat(titles, ", ") or "no recipe", ended = ended, message = message,
    note = note }
end

--- At the job's end, when all recipes have told their last. All processes call it.
---@param is_stopped integer # 1: an orderly end was asked for
function job_watch.finish(is_stopped)
  local state, ended = "ended", "in order"
  if is_stopped == 1 then state, ended = "stopped", "after it was asked to" end
  report.finish(page(ended), page_lines())
  metrics.finish(state)
end

--- The process leaves the job by an error.
---@param message string
function job_watch.fail(message)
  metrics.finish "failed"
  report.fail(page(nil, message), page_lines())
end

return guarded(job_watch)

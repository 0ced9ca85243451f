-- What the program does once it has joined the job: runs a recipe, a plan or the specs of a user.

require("shardrt.base.sorted_pairs").install() -- before any other loop

local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local job = require "shardrt.program.job"
local metrics = require "shardrt.program.metrics"
local plan = require "shardrt.layout.plan"
local progress = require "shardrt.loader.progress"
local public = require "shardrt.loader.public"
local recipe = require "shardrt.program.recipe"
local report = require "shardrt.program.report"
local stop = require "shardrt.checkpoint.stop"
local terminal = require "shardrt.base.terminal"
local watch = require "shardrt.loader.watch"
fail.own()

local program = {}

-- What the command line asks for (runtime/main.c).
---@class shardrt.program.Invocation
---@field job userdata
---@field recipe string? # nil for test, index, report and devices
---@field only_process integer? # of a plan; nil: all
---@field shows_progress boolean? # nil: on a terminal
---@field stop_job function? # ends the job in every process, with the status that says it was stopped
---@field report string? # the path of --report
---@field metrics string? # of --metrics

-- Whether what a recipe returned is for another program: loaders, which nothing here takes batches of.
local function is_for_programs(returned)
  if public.is(returned) then return true end
  if type(returned) ~= "table" or next(returned) == nil then return false end
  for _, one in pairs(returned) do
    if not public.is(one) then return false end
  end
  return true
end

-- What --report and --metrics ask for, before the recipe.
local function start_watching(asked)
  if not asked.report and not asked.metrics then return end
  watch.start(asked.metrics and metrics.step)
  if asked.report then report.start(asked.report) end
  if asked.metrics then metrics.start(asked.metrics, asked.recipe) end
end

-- Nothing where neither is asked for, or all was told.
local function tell_of_failure(asked, message)
  if asked.metrics then metrics.finish "failed" end
  if asked.report then
    pcall(function() report.fail({ title = asked.recipe, message = message }, report.lines(true)) end)
  end
end

local function tell_of_end(asked, state, ended)
  if asked.report then report.finish({ title = asked.recipe, ended = ended }, report.lines(true)) end
  if asked.metrics then metrics.finish(state) end
end

-- A recipe may end so, too.
local function tell_of_exit(asked)
  local exit = os.exit
  function os.exit(status, ...) -- luacheck: ignore 122
    if status == nil or status == true or status == 0 then
      tell_of_end(asked, "ended", "in order")
    else
      tell_of_failure(asked, ("os.exit ended the job with status %s"):format(tostring(status)))
    end
    return exit(status, ...)
  end
end

--- Runs a recipe; returns nil, or the message of the error that ended it.
---@param asked shardrt.program.Invocation
---@return string?
function program.run(asked)
  local path, stop_job = asked.recipe, asked.stop_job
  current.set(asked.job)
  progress.start(asked.shows_progress)
  local started, problem = pcall(start_watching, asked)
  if not started then return problem end
  if asked.report or asked.metrics then tell_of_exit(asked) end
  local function clear(is_well)
    progress.finish()
    return recipe.clear(is_well)
  end
  if stop_job then
    function current.stop()
      local removed, why = clear(true)
      if not removed then error(why, 0) end
      tell_of_end(asked, "stopped", "by a signal, after its checkpoint was saved")
      stop_job()
    end
  end
  local ok, returned = recipe.run(path)
  local removed, why = clear(ok)
  if ok and removed then
    local state, ended = "ended", "in order"
    if stop.name() then state, ended = "stopped", "by a signal" end
    removed, why = pcall(tell_of_end, asked, state, ended)
  end
  if not ok or not removed then
    tell_of_failure(asked, ok and why or returned)
    return ok and why or returned
  end
  if stop.name() and stop_job then stop_job() end -- the recipe had asked whether to stop, and ended by itself
  if is_for_programs(returned) and current.info.planning == 0 then
    collective.notice("%s only returns loaders: a program of C, C++ or Python takes their batches (docs/c.md); "
      .. "`shardrt plan %s` shows what they read", path, path)
  end
end

--- Runs a recipe for its plan and prints it, of one process or of all; where the recipe failed, as far as it came, and
--- where it asked for what only a job that runs can tell, so far, too: that is no failure.
---@param asked shardrt.program.Invocation
---@return string?
function program.plan(asked)
  local message = program.run { job = asked.job, recipe = asked.recipe, shows_progress = false }
  require "shardrt.program.plan_report"(asked.only_process)
  if message ~= plan.ended then return message end
  if message then io.stderr:write("shardrt: ", message, "\n") end
end

-- The help of `shardrt test`: what is ours, and busted's own.
local function test_help()
  local cli = require "busted.modules.cli" { standalone = false, output = "plainTerminal" }
  cli:set_name "shardrt [options] test"
  local _, help = cli:parse { "--help" }
  return "Options of shardrt (shardrt --help) stand before `test`. Those below are busted's and stand after it.\n\n"
    .. tostring(help):gsub("^.-error: ", ""):gsub("; re%-run with %-%-help for usage%.%s*$", "")
end

--- Runs busted with `arg` as its command line; ends by os.exit.
---@param asked shardrt.program.Invocation
---@return string? # what went wrong
function program.test(asked)
  current.set(asked.job)
  local found, runner = pcall(require, "busted.runner")
  if not found then return "shardrt test needs busted: Debian's package lua-busted holds it" end
  for _, word in ipairs(arg) do
    if word == "--help" or word == "-h" then return job.words.say(test_help()) end
  end
  arg[0] = "shardrt test"
  local output = current.info.process_count > 1 and "shardrt.program.test_output"
    or terminal.is_stdout() and "utfTerminal" or "plainTerminal"
  -- From a chunk that is no file: then busted ends by os.exit, also where specs failed.
  local start = assert(loadstring("local runner, output = ... runner { standalone = false, output = output }",
    "=shardrt test"))
  start(runner, output)
end

--- Notes checksums of files, or compares the files with them: `arg` is its command line.
---@param asked shardrt.program.Invocation
---@return string?
function program.index(asked)
  current.set(asked.job)
  local ok, problem = pcall(require("shardrt.program.index_files").run, arg, asked.shows_progress)
  if not ok then return tostring(problem) end
end

--- Makes a page of a trace: `arg` is its command line.
---@param asked shardrt.program.Invocation
---@return string?
function program.report(asked)
  current.set(asked.job)
  local ok, problem = pcall(require("shardrt.program.report_trace").run, arg)
  if not ok then return tostring(problem) end
end

--- Shows what devices the job has: `arg` is its command line.
---@param asked shardrt.program.Invocation
---@return string?
function program.devices(asked)
  current.set(asked.job)
  local ok, problem = pcall(require("shardrt.program.device_report").run, arg)
  if not ok then return tostring(problem) end
end

return program

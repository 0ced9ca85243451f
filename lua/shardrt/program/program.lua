-- What the program does once it has joined the job: runs a recipe, a plan or the specs of a user.

require("shardrt.base.sorted_pairs").install() -- before any other loop

local comparison = require "shardrt.base.comparison"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local job = require "shardrt.program.job"
local plan = require "shardrt.layout.plan"
local progress = require "shardrt.loader.progress"
local temporary_folder = require "shardrt.program.temporary_folder"
local terminal = require "shardrt.base.terminal"
fail.own()

local program = {}

-- What LuaJIT says of `source[1]` before any metamethod could: a source is a pointer to what Lua does not see.
local INDEXED = "size of C type is unknown or too large"
local AS_LIST = "a source is no list of samples: source:read(0, 1) reads the first one, #source counts them"

-- The folder of a file, for the module path.
local function folder(path)
  return path:match "^(.*)/[^/]*$" or "."
end

--- Runs a recipe; returns nil, or the message of the error that ended it.
---@param handle userdata # of the job
---@param path string
---@param _ integer?
---@param shows_progress boolean? # nil: on a terminal
---@return string?
function program.run(handle, path, _, shows_progress)
  current.set(handle)
  package.path = folder(path) .. "/?.lua;" .. folder(path) .. "/?/init.lua;" .. package.path
  fail.recipe = path
  local recipe, message = loadfile(path)
  if not recipe then return message end
  local function describe(problem)
    if type(problem) == "string" then
      return comparison.explained((problem:gsub(INDEXED .. "$", AS_LIST)))
    end
    local meta = getmetatable(problem)
    if meta and meta.__tostring then return tostring(problem) end
    return ("%s: an error that is a %s, not a text"):format(fail.where() or path, type(problem))
  end
  progress.start(shows_progress)
  local ok, problem = xpcall(recipe, describe, unpack(arg))
  progress.finish()
  local removed, why = pcall(temporary_folder.remove, ok)
  if not ok then return problem end
  if not removed then return why end
end

--- Runs a recipe for its plan and prints it, of one process or of all; where the recipe failed, as far as it came, and
--- where it asked for what only a job that runs can tell, so far, too: that is no failure.
---@param handle userdata
---@param path string
---@param only_process integer? # nil: all
---@return string?
function program.plan(handle, path, only_process)
  local message = program.run(handle, path, nil, false)
  require "shardrt.program.plan_report"(only_process)
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
---@param handle userdata
---@return string? # what went wrong
function program.test(handle)
  current.set(handle)
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
---@param handle userdata
---@param _ string?
---@param _ integer?
---@param shows_progress boolean? # nil: on a terminal
---@return string?
function program.index(handle, _, _, shows_progress)
  current.set(handle)
  local ok, problem = pcall(require("shardrt.program.index_files").run, arg, shows_progress)
  if not ok then return tostring(problem) end
end

return program

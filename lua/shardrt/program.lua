-- What the program does once it has joined the job: runs a recipe, a plan or the specs of a user.

local fail = require "shardrt.fail"
fail.own()

local program = {}

-- The folder of a file, for the module path.
local function folder(path)
  return path:match "^(.*)/[^/]*$" or "."
end

--- Runs a recipe; returns nil, or the message of the error that ended it.
---@param path string
---@return string?
function program.run(path)
  package.path = folder(path) .. "/?.lua;" .. folder(path) .. "/?/init.lua;" .. package.path
  local recipe, message = loadfile(path)
  if not recipe then return message end
  local function describe(problem)
    if type(problem) == "string" then return problem end
    local meta = getmetatable(problem)
    if meta and meta.__tostring then return tostring(problem) end
    return ("%s: an error that is a %s, not a text"):format(fail.where() or path, type(problem))
  end
  local ok, problem = xpcall(recipe, describe, unpack(arg))
  if not ok then return problem end
end

--- Runs a recipe for its plan and prints it, of one process or of all; where the recipe failed, as far as it came.
---@param path string
---@param only_process integer? # nil: all
---@return string?
function program.plan(path, only_process)
  local message = program.run(path)
  require("shardrt.plan").report(only_process)
  return message
end

--- Runs busted with `arg` as its command line; ends by os.exit.
function program.test()
  local found, runner = pcall(require, "busted.runner")
  if not found then return "shardrt test needs busted: Debian's package lua-busted holds it" end
  arg[0] = "shardrt test"
  -- From a chunk that is no file: then busted ends by os.exit, also where specs failed.
  local start = assert(loadstring("local runner = ... runner { standalone = false }", "=shardrt test"))
  start(runner)
end

return program

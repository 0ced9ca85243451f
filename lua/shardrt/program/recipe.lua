-- A recipe as a file that is run, once in a Lua state.

local fail = require "shardrt.base.error"
local lua_message = require "shardrt.base.lua_message"
local temporary_folder = require "shardrt.program.temporary_folder"
fail.own()

local recipe = {}

-- The folder of a file, for the module path.
local function folder(path)
  return path:match "^(.*)/[^/]*$" or "."
end

-- What files are that are given for recipes by mistake, by how they begin.
local NO_RECIPES = {
  { "^\127ELF", "is a program or a library (ELF), not a recipe, which a program may open" },
  { "^\27L", "is Lua that was compiled (bytecode)" },
  { "%z", "is a binary file" },
  { "^$", "is empty" },
}

local HEAD = 1024 -- bytes that say so
local RECIPE = "a recipe is a file with the text of a program in Lua"

-- Reads the file, which may be a pipe, once. Returns a function, or nil and a message.
local function load_file(path)
  local file, problem = io.open(path, "rb")
  local text
  if file then
    text, problem = file:read "*a"
    file:close()
  end
  if not text then
    problem = ("cannot read %s%s"):format(file and path .. ": " or "", problem)
    if problem:find "Is a directory$" then problem = ("%s; %s"):format(problem, RECIPE) end
    fail.note_unreadable(problem) -- not about what stands in it
    return nil, problem
  end
  for _, kind in ipairs(NO_RECIPES) do
    if text:sub(1, HEAD):find(kind[1]) then return nil, ("%s %s; %s"):format(path, kind[2], RECIPE) end
  end
  return loadstring(text, "@" .. path)
end

--- Runs it with `arg` as its arguments, in the job that the state has.
---@param path string
---@return boolean
---@return any # what it returned, or the message of the error that ended it
function recipe.run(path)
  package.path = folder(path) .. "/?.lua;" .. folder(path) .. "/?/init.lua;" .. package.path
  fail.recipe = path
  local chunk, message = load_file(path)
  if not chunk then return false, message end
  local function describe(problem)
    if type(problem) == "string" then return lua_message.explained(problem) end
    local meta = getmetatable(problem)
    if meta and meta.__tostring then return tostring(problem) end
    return ("%s: an error that is a %s, not a text"):format(fail.where() or path, type(problem))
  end
  fail.chunk = chunk
  local function ended(...)
    fail.chunk = nil
    return ...
  end
  return ended(xpcall(chunk, describe, unpack(arg)))
end

--- Clears away what it left for as long as it runs.
---@param is_well boolean # whether it ended without an error: else nobody waits for others
---@return boolean
---@return string? # the message, where that failed
function recipe.clear(is_well) return pcall(temporary_folder.remove, is_well) end

return recipe

-- What the library calls for a program that takes batches from a recipe by itself (runtime/library/recipe.c). Every
-- function returns a code, below 0 with a message, and a result. Loaders count from 1; 0 is all of them.

require("shardrt.base.sorted_pairs").install() -- before any other loop

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local guarded = require "shardrt.program.guarded"
local json = require "shardrt.base.json"
local list = require "shardrt.base.list"
local loader = require "shardrt.loader.loader"
local loader_state = require "shardrt.loader.state"
local progress = require "shardrt.loader.progress"
local public = require "shardrt.loader.public"
local recipe = require "shardrt.program.recipe"
local report = require "shardrt.program.report"
local temporary_folder = require "shardrt.program.temporary_folder"
local watch = require "shardrt.loader.watch"
fail.own()

local library = {}

local names, loaders = {}, {} ---@type string[], shardrt.Loader[]
local batch ---@type shardrt.Array[] # of the last step that Lua took

-- Checks what the recipe returned, and keeps it.
local function keep(path, returned)
  if public.is(returned) then
    names, loaders = { "" }, { returned }
    return
  end
  local wanted = path .. ": a program that opens a recipe takes what it returns, a loader or a table of loaders by name"
  if type(returned) ~= "table" then fail("%s; it returned %s", wanted, list.show(returned)) end
  for name, one in pairs(returned) do
    if type(name) ~= "string" or name == "" or name:find("%z") or not public.is(one) then
      fail("%s; in its table %s is %s", wanted, list.show(name), public.is(one) and "a loader" or list.show(one))
    end
    names[#names + 1] = name
  end
  table.sort(names)
  for i, name in ipairs(names) do loaders[i] = returned[name] end
  if #names == 0 then fail("%s; its table is empty", wanted) end
end

--- Runs the recipe.
---@param is_watched integer # 1: what its loaders do is counted for a report or metrics
---@param handle userdata # of the job
---@param path string
---@return string[] # the loaders' names; "" is the name of one that was returned alone
function library.open(is_watched, handle, path)
  rawset(os, "exit", function()
    fail "os.exit: the program that opened the recipe is not the recipe's to end; error(…) ends the recipe"
  end)
  current.set(handle)
  progress.start(false)
  if is_watched == 1 then watch.start() end
  local ok, returned = recipe.run(path)
  if not ok then error(returned, 0) end
  keep(path, returned)
  return names
end

--- Ends it: all but what lua_close does.
---@return string? # a folder that this process removes once the job was left
function library.close() return temporary_folder.give_up() end

---@param i integer
---@return integer
function library.steps_per_epoch(i) return loaders[i].steps_per_epoch end

--- Gives C the loader, and says whether its batches need no Lua.
---@param i integer
---@param out userdata # shardrt_loader **
---@return string[]|false? # the names of its fields; false: Lua always has a part in them; nil: that may change
function library.direct(i, out)
  local handle, fields, stays = public.direct(loaders[i])
  ffi.cast("shardrt_loader **", out)[0] = handle
  if not stays then return nil end
  return fields or false
end

--- Takes a step in Lua.
---@param i integer
---@return string[]? # the names of the batch's fields; nil after the last one
function library.next(i)
  local made, fields = loaders[i](), {}
  if not made then return nil end
  batch = {}
  for name in pairs(made) do
    if name:find("%z") then fail("batch_transform: the field %s has a zero byte in its name", list.show(name)) end
    if name ~= "mask" then fields[#fields + 1] = name end
  end
  fields[#fields + 1] = rawget(made, "mask") and "mask" or nil -- the last, as C has it
  for k, name in ipairs(fields) do batch[k] = made[name] end
  return fields
end

--- Writes the arrays of that batch, which C shares before the next call.
---@param out userdata # shardrt_array **
function library.arrays(out)
  local arrays = ffi.cast("shardrt_array **", out)
  for k, one in ipairs(batch) do
    array.check("batch_transform", one)
    arrays[k - 1] = one.handle
  end
end

-- Of one loader, or of all by their names.
local function of(i, what)
  if i > 0 then return what(loaders[i], i) end
  local made = {}
  for k, name in ipairs(names) do made[name] = what(loaders[k], k) end
  return made
end

local function encoded(value, name)
  local text, problem = json.encode(value, name)
  if not text then fail("%s", problem) end
  return text
end

---@param i integer
---@param before userdata? # const int64_t [3]: which loader's state is that of an earlier place, with its epoch and row
---@return string # JSON
function library.state(i, before)
  local at = before and ffi.cast("const int64_t *", before)
  local earlier = at and loaders[tonumber(at[0])]
  return encoded(of(i, function(one)
    if one ~= earlier then return one:state() end
    return loader_state.of(public.inside(one), tonumber(at[1]), tonumber(at[2]))
  end), "the state")
end

---@param i integer
---@param text string # JSON
function library.restore(i, text)
  local state, problem = json.decode(text)
  if state == nil then fail("shardrt_restore: the state is no JSON: %s", problem) end
  if i > 0 then return loaders[i]:restore(state) end
  if type(state) ~= "table" then fail("shardrt_restore: the state is %s, not an object", list.show(state)) end
  local known = {}
  for _, name in ipairs(names) do known[name] = true end
  for name in pairs(state) do
    if not known[name] then
      fail("shardrt_restore: the state has a loader %s, which the recipe did not return", list.show(name))
    end
  end
  local all, states = {}, {}
  for k, name in ipairs(names) do
    if state[name] == nil then fail('shardrt_restore: the state has nothing of the loader "%s"', name) end
    all[k], states[k] = public.inside(loaders[k]), state[name]
  end
  loader.restore(all, states)
end

---@param i integer
---@param held userdata # const int64_t *: bytes that the program holds of what Lua gave, for each loader
---@return string # JSON
function library.stats(i, held)
  local bytes = ffi.cast("const int64_t *", held)
  local function stats_of(one, k)
    local stats = one:stats()
    local is_given = public.inside(one).batch_transform
    stats.held_bytes = is_given and tonumber(bytes[k - 1]) or tonumber(C.shardrt_loader_outstanding(one.handle))
    return stats
  end
  return encoded(of(i, stats_of), "the stats")
end

--- Counts a step that the program took without Lua.
---@param i integer
function library.step(i) watch.step(public.inside(loaders[i])) end

--- What is counted so far.
---@param for_page integer # 1: all that a page shows; 0: what metrics need
---@return string # JSON
function library.watched(for_page)
  return encoded({ lines = report.lines(for_page == 1), stepped = watch.stepped }, "what is watched")
end

return guarded(library, "next")

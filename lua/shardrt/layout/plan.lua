-- What a recipe makes under `shardrt plan`, as it is noted: program/plan_report.lua prints it.
--
-- A plan is a list of entries, one for each array or loader that the recipe made. An entry has parts: named arrays with
-- dtype, shape and sharding, of which a loader reads one anew in every step.

local fail = require "shardrt.base.error"
local shape = require "shardrt.layout.shape"
fail.own()

local plan = {}

---@type string? # the message of the last call that asked for what only a job that runs can tell
plan.ended = nil

--- Ends a plan where the recipe asks for what only a job that runs has: data of an array, a number of each process.
--- It raises an error, as such a call has no answer; where nobody catches it, the plan is complete and succeeds.
---@param call string # "item"
function plan.finish(call)
  local _, message = pcall(fail, "%s: there are no values in a plan, and it ends here", call)
  plan.ended = message
  error(message, 0)
end

---@class shardrt.plan.part
---@field name string? # of a loader's field
---@field dtype string
---@field shape integer[]
---@field sharding shardrt.Sharding? # nil: a host array that is saved
---@field load shardrt.Sharding? # of a loader's field: how it is read, where that is not how it is handed out
---@field moves shardrt.ReshardPlan? # and how it gets from there to its place
---@field sample_bytes (fun(box: ffi.cdata*): number)? # of a loader's field: what one row of a box costs to read; 0: it
---shows when the row is read
---@field is_computed boolean? # of a loader's field: nothing of it is read

---@class shardrt.plan.entry
---@field where string # the recipe's line
---@field what string # the call, and what there is to say about it
---@field parts shardrt.plan.part[]
---@field loader shardrt.Loader? # nil: arrays
---@field note string? # what else there is to say
---@field orders string[]? # of a loader: what the orders of an epoch would cost
---@field moves shardrt.ReshardPlan? # how the array came from another one
---@field saved boolean? # whether the arrays are written to a file
---@field times integer # how often this line made the same

---@type shardrt.plan.entry[] # in the order in which they were first made
plan.entries = {}
local entries = plan.entries
local by_key = {} ---@type table<string, shardrt.plan.entry>

--- "x: float32 {4, 2}, NamedSharding(…)".
---@param part shardrt.plan.part
---@return string
function plan.describe(part)
  local name = part.name and part.name .. ": " or ""
  return ("%s%s %s, %s"):format(name, part.dtype, shape.text(part.shape),
    part.sharding and tostring(part.sharding) or "a host array")
end

-- A line of the recipe that makes the same thing again (in a loop, say) is one entry.
local function add_entry(entry)
  local words = { entry.where, entry.what, entry.note }
  for _, part in ipairs(entry.parts) do
    words[#words + 1] = plan.describe(part)
    words[#words + 1] = part.load and tostring(part.load)
  end
  local key = table.concat(words, "\n")
  if by_key[key] then
    by_key[key].times = by_key[key].times + 1
    return
  end
  entry.times = 1
  entries[#entries + 1], by_key[key] = entry, entry
end

--- Notes an array that a recipe made.
---@param call string # "device_put"
---@param x shardrt.Array
function plan.note_array(call, x)
  add_entry {
    where = fail.where() or "?", what = call,
    parts = { { dtype = x.dtype, shape = x.shape, sharding = x.sharding } },
  }
end

--- Notes an array that a recipe laid out anew.
---@param call string
---@param x shardrt.Array
---@param moves shardrt.ReshardPlan
function plan.note_reshard(call, x, moves)
  add_entry {
    where = fail.where() or "?", what = ("%s from %s"):format(call, tostring(moves.from)), moves = moves,
    parts = { { dtype = x.dtype, shape = x.shape, sharding = x.sharding } },
  }
end

--- Notes arrays that a recipe saves.
---@param call string # "save w.safetensors"
---@param names string[]
---@param arrays table<string, shardrt.Array|shardrt.ndarray>
function plan.note_save(call, names, arrays)
  local parts = {}
  for i, name in ipairs(names) do
    local x = arrays[name]
    parts[i] = { name = name, dtype = x.dtype, shape = x.shape, sharding = x.sharding }
  end
  add_entry { where = fail.where() or "?", what = call, parts = parts, saved = true }
end

--- Notes a loader that a recipe made.
---@param made shardrt.Loader
---@param parts shardrt.plan.part[]
---@param note string? # what else there is to say
---@param orders string[] # what the orders of an epoch would cost, in lines
function plan.note_loader(made, parts, note, orders)
  add_entry {
    where = fail.where() or "?", what = tostring(made), parts = parts, loader = made, note = note, orders = orders,
  }
end

return plan

-- A loader as a recipe holds it. Within, in the files of this folder, a loader is a table, in which what is not there
-- is nil. A recipe is given a userdata with that table as its environment: no assignment reaches it, and Lua's
-- `ipairs`, `pairs` and `#`, which would find nothing in a table, refuse it.

local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local options = require "shardrt.loader.options"
fail.own()

local public = {}

-- What a recipe sees of a loader. `handle` is C's, as arrays have theirs.
local FIELDS = {
  source = true, batch_size = true, sharding = true, shuffle = true, window = true, seed = true, epochs = true,
  remainder = true, pipeline = true, steps_per_epoch = true, handle = true,
}

local prototype = newproxy(true)
local Public = getmetatable(prototype)
Public.__metatable = false

-- How other libraries ask for batches and for their number.
local TAKES_TURNS = "`for batch in loader do` takes its batches in turn, loader() the next"
local COUNTS = "loader.steps_per_epoch is how many batches an epoch has, #loader.source how many samples there are"
local ELSEWHERE = {
  next = TAKES_TURNS, next_batch = TAKES_TURNS, iter = TAKES_TURNS, batches = TAKES_TURNS,
  len = COUNTS, size = COUNTS, length = COUNTS,
  reset = "loader:restore(state) goes back to where loader:state() was asked",
  state_dict = "loader:state() is where it stands", load_state_dict = "loader:restore(state) goes there",
}

--- Whether a value is a loader.
---@param value any
---@return boolean
function public.is(value) return type(value) == "userdata" and debug.getmetatable(value) == Public end

--- What a recipe does not see of a loader.
---@param made shardrt.Loader
---@return shardrt.loader.Inside
function public.inside(made) return debug.getfenv(made) end

--- For the library: C's loader as it is now, and the names of its fields where it gives the batches by itself.
---@param made shardrt.Loader
---@return ffi.cdata*
---@return string[]? # nil where Lua has a part in each
---@return boolean # whether all that stays so
function public.direct(made)
  local self = public.inside(made)
  if self.auto and self.auto:is_measuring() then return self.handle, nil, false end
  return self.handle, not self.batch_transform and self.batch_names or nil, true
end

local function copy(fields)
  local made = {}
  for name, value in pairs(fields) do made[name] = value end
  return made
end

local METHODS, KNOWN = {}, {}
for name in pairs(FIELDS) do KNOWN[name] = true end
for _, name in ipairs { "state", "restore", "stats", "predictions" } do
  KNOWN[name] = true
  local function call(made, ...)
    local self = debug.getfenv(made)
    return self[name](self, ...)
  end
  METHODS[name] = class.method(public.is, "loader", name, call)
end
KNOWN.handle = nil

function Public.__index(made, key)
  if METHODS[key] then return METHODS[key] end
  local self = debug.getfenv(made)
  if key == "sharding" then return copy(self.sharding) end
  if FIELDS[key] then return self[key] end
  if class.may_probe(key) then return nil end
  if type(key) ~= "string" then fail("a loader has no %s; %s; %s", list.show(key), TAKES_TURNS, COUNTS) end
  local meant = key == "steps" and ' (did you mean "steps_per_epoch"?)' or fail.suggestion(key, KNOWN)
  local told = ELSEWHERE[key] or options.KEYWORDS[key] and "loader:stats() tells what became of options"
  fail("a loader has no %s%s; %s", list.show(key), ELSEWHERE[key] and "" or meant,
    told or "it has " .. list.words(KNOWN))
end

function Public.__newindex(_, key) fail('a loader never changes: "%s" cannot be set', tostring(key)) end
function Public.__len() fail("a loader has no length; %s", COUNTS) end
function Public.__call(made) return debug.getfenv(made):next_batch() end
function Public.__tostring(made) return tostring(debug.getfenv(made)) end

--- What a recipe is given for a loader.
---@param self shardrt.loader.Inside
---@return shardrt.Loader
function public.wrap(self) return debug.setfenv(newproxy(prototype), self) end

return public

-- pairs in one order. LuaJIT goes through the names in a table in an order that differs from process to process, from
-- one of its states to another and from run to run; and a recipe that walks a table of arrays does things that all
-- processes must do alike, a transform the same in every worker. So `pairs` goes through names in ascending order,
-- after all that is no name. (Only keys that are tables or functions still come in an order of their own, by where they
-- lie in memory.)
--
-- And no loop is given LuaJIT's own `next`: it compiles such loops by themselves, and then they leave out entries or
-- take them twice (https://github.com/LuaJIT/LuaJIT/issues/827, which Debian 12's LuaJIT has; later ones had others,
-- such as 1510). Loops over any other function are compiled like all loops.

require("shardrt.base.error").own()

local sorted_pairs = {}

local type, rawget, next_of = type, rawget, next
local FEW = 16 -- names that are sorted here, so that loops over small tables are compiled

--- LuaJIT's next, for loops.
---@param t table
---@param key any
---@return any key
---@return any value
function sorted_pairs.next(t, key) return next_of(t, key) end

-- What goes through a table: a list of its names, how many they are, and where it is. It is no closure, which LuaJIT
-- cannot compile.
---@class shardrt.sorted_pairs.Walk
---@field count integer
---@field at integer
---@field others boolean # whether it is still at what is no name
local Walk = {}

function Walk:__call(t, last)
  if self.others then
    local key, value = next_of(t, last)
    while type(key) == "string" do key, value = next_of(t, key) end
    if key ~= nil then return key, value end
    self.others = false
  end
  while self.at < self.count do
    self.at = self.at + 1
    local value = rawget(t, self[self.at])
    if value ~= nil then return self[self.at], value end
  end
end

local function sort(names, count)
  if count > FEW then return table.sort(names) end
  for i = 2, count do
    local name, j = names[i], i
    while j > 1 and name < names[j - 1] do
      names[j] = names[j - 1]
      j = j - 1
    end
    names[j] = name
  end
end

--- As Lua's own pairs; entries that are removed on the way are left out.
---@generic K, V
---@param t table<K, V>
---@return fun(t: table<K, V>, last: K?): K?, V?
---@return table<K, V>
---@return nil
function sorted_pairs.pairs(t)
  if type(t) ~= "table" then error(("bad argument #1 to 'pairs' (table expected, got %s)"):format(type(t)), 2) end
  local names, count = nil, 0
  local key = next_of(t)
  while key ~= nil do
    if type(key) == "string" then
      names = names or {}
      count = count + 1
      names[count] = key
    end
    key = next_of(t, key)
  end
  if count < 2 then return sorted_pairs.next, t end
  sort(names, count)
  names.count, names.at, names.others = count, 0, true
  return setmetatable(names, Walk), t
end

--- Puts them in the place of LuaJIT's own, for all that is loaded from then on. And LuaJIT sinks no allocations any
--- more: an array of variable length (`ffi.new("int64_t[?]", 1)`) that compiled code sinks is made where that code is
--- left, with a length of 2^32 - 1: so without room for its elements (snap_unsink in lj_snap.c; not mended in 2026).
--- And it keeps more machine code than its limits allow, at which it throws all away: a training loop has more, and
--- would compile itself again every few steps.
function sorted_pairs.install()
  pairs, next = sorted_pairs.pairs, sorted_pairs.next -- luacheck: ignore 121
  jit.opt.start("-sink", "maxtrace=8000", "maxmcode=16384")
end

return sorted_pairs

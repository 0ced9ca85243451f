-- pairs in one order. LuaJIT goes through the names in a table in an order that differs from process to process and
-- from run to run, and a recipe that walks a table of arrays does things that all processes must do alike. So a
-- recipe's `pairs` goes through names in ascending order, after all that is no name. (Only keys that are tables or
-- functions still come in an order of their own, by where they lie in memory.)

require("shardrt.fail").own()

local ordered = {}

--- As Lua's own pairs; entries that are removed on the way are left out.
---@generic K, V
---@param t table<K, V>
---@return fun(t: table<K, V>, last: K?): K?, V?
---@return table<K, V>
---@return nil
function ordered.pairs(t)
  if type(t) ~= "table" then return next, t end -- next says what is wrong, as pairs does
  local names, count = nil, 0
  for key in next, t do
    if type(key) == "string" then
      names = names or {}
      count = count + 1
      names[count] = key
    end
  end
  if count < 2 then return next, t end
  table.sort(names)
  local i, others = 0, true
  return function(_, last)
    while others do -- what is no name, in its own order
      local key, value = next(t, last)
      if key == nil then
        others = false
      elseif type(key) ~= "string" then
        return key, value
      end
      last = key
    end
    while i < count do
      i = i + 1
      local value = rawget(t, names[i])
      if value ~= nil then return names[i], value end
    end
  end, t
end

return ordered

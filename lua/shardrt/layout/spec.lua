-- P: which mesh axes cut which dimensions of an array.

local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
fail.own()

---@class shardrt.Spec # `#spec` is its length, spec[1] the entry of dimension 0: nil, a name or a list of names

-- A spec has a length, which may end in nils, and LuaJIT asks for the length of userdata only: it is an empty one, and
-- what it holds stands here. Each entry is a list of names.
local contents = setmetatable({}, { __mode = "k" })
local prototype = newproxy(true)
local Spec = getmetatable(prototype)

---@class shardrt.spec.words
local words = {}
local spec = { words = words }

--- The entries of a spec: a list of lists of names (an empty one for nil).
---@param value shardrt.Spec
---@return string[][]
function spec.entries(value) return contents[value] end

--- Whether a value is a spec.
---@param value any
---@return boolean
function spec.is(value) return type(value) == "userdata" and contents[value] ~= nil end

local function check_name(name, dim)
  local caller = ("P: entry %d (dimension %d)"):format(dim + 1, dim)
  if type(name) ~= "string" then
    fail("%s holds %s; an entry is nil, the name of a mesh axis, or a list of such names", caller, list.show(name))
  end
  if name == "" then fail("%s is an empty name; nil stands for a dimension that is not cut", caller) end
  if name:find("\0", 1, true) then fail("%s: a name cannot hold a zero byte", caller) end
  return name
end

local function entry_of(value, dim)
  if value == nil then return {} end
  if type(value) ~= "table" then return { check_name(value, dim) } end
  if not list.length(value) then
    fail("P: entry %d (dimension %d) is a table that is no list of axis names", dim + 1, dim)
  end
  local names = {}
  for i, name in ipairs(value) do names[i] = check_name(name, dim) end
  return names
end

--- A partition spec: for each dimension of an array nil (not cut), the name of a mesh axis, or a list of names, of
--- which the first varies slowest. Dimensions beyond its end are not cut.
---@param ... nil|string|string[]
---@return shardrt.Spec
function words.P(...)
  local entries = {}
  for i = 1, select("#", ...) do entries[i] = entry_of((select(i, ...)), i - 1) end
  local made = newproxy(prototype)
  contents[made] = entries
  return made
end

function Spec:__len() return #contents[self] end

function Spec:__index(key)
  local names = contents[self][key]
  if names == nil or #names == 0 then return nil end
  return #names == 1 and names[1] or list.copy(names)
end

function Spec:__tostring()
  local parts = {}
  for i, names in ipairs(contents[self]) do
    local quoted = {}
    for j, name in ipairs(names) do quoted[j] = list.quote(name) end
    local all = table.concat(quoted, ", ")
    parts[i] = #names == 0 and "nil" or #names == 1 and all or "{" .. all .. "}"
  end
  return "P(" .. table.concat(parts, ", ") .. ")"
end

-- The same entries, and as many of them: what may be cut by P("a") may have one dimension, by P("a", nil) not.
function Spec.__eq(a, b) return tostring(a) == tostring(b) end

return spec

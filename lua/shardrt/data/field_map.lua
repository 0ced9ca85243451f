-- Sources whose fields go through transforms: source:map, and the words that are told as something else.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local owned = require "shardrt.base.owned"
local transform = require "shardrt.data.transform"
fail.own()

-- One field of source:map (or another word that goes this way), as C takes it: its chain, and which of the source's
-- fields it begins with.
local function mapped_field(word, known, name, given)
  if type(name) ~= "string" or name == "" or name:find("\0", 1, true) then
    fail("%s: it takes fields with their names, as in {image = {…}}; %s is none", word, list.show(name))
  end
  local caller = ('%s, field "%s"'):format(word, name)
  if type(given) ~= "table" or class.is(given) then
    fail("%s: a list of transforms, or false for a field that is left out, not %s", caller, list.show(given))
  end
  local from, chain = given.from == nil and name or given.from, {}
  for key, step in pairs(given) do
    if key ~= "from" and not (list.is_whole(key, 1) and key <= #given) then
      fail("%s: a list of transforms, and perhaps `from`; it has %s", caller, list.show(key))
    end
    if key ~= "from" and not transform.is(step) then
      fail("%s: number %d of its list is %s; it is made by a word of shardrt.transform", caller, key, list.show(step))
    end
  end
  for i, step in ipairs(given) do chain[i] = step end
  if not known.fields[from] then
    fail("%s: the source has no field %s%s", caller, list.show(from), fail.suggestion(from, known.fields))
  end
  return { name = name, from = from, chain = chain }
end

--- What source:map makes, for a word that its messages begin with.
---@param self shardrt.source
---@param word string
---@param fields table<string, shardrt.Transform[]|false>
---@return shardrt.source
return function(self, word, fields)
  if type(fields) ~= "table" or class.is(fields) then
    fail("%s: it takes a table of fields, as in {image = {…}}, not %s", word, list.show(fields))
  end
  local known, made, added = { names = self.names, fields = self.fields }, {}, {}
  for i, name in ipairs(known.names) do
    known.names[name] = i - 1
    if fields[name] == nil then
      made[#made + 1] = { name = name, from = name, chain = {} }
    elseif fields[name] then
      made[#made + 1] = mapped_field(word, known, name, fields[name])
    end
  end
  for name, given in pairs(fields) do
    if given == false and not known.fields[name] then
      fail("%s: the source has no field %s%s, which could be left out; it has %s", word, list.show(name),
        fail.suggestion(name, known.fields), list.words(known.fields))
    end
    if not known.fields[name] then added[#added + 1] = mapped_field(word, known, name, given) end
  end
  table.sort(added, function(a, b) return a.name < b.name end)
  for _, field in ipairs(added) do made[#made + 1] = field end
  if #made == 0 then fail("%s: no field is left", word) end
  local c_fields, keep = ffi.new("shardrt_mapped[?]", #made), {}
  for i, field in ipairs(made) do
    local handles = ffi.new("shardrt_transform *[?]", math.max(#field.chain, 1))
    for k, step in ipairs(field.chain) do handles[k - 1] = transform.handle(step) end
    keep[i] = handles
    local c = c_fields[i - 1]
    c.name, c.field, c.count, c.transforms = field.name, known.names[field.from], #field.chain, handles
  end
  local out = ffi.new "shardrt_source *[1]"
  fail.check(C.shardrt_source_map(self, #made, c_fields, out), word)
  assert(#keep == #made) -- what C was shown lived until here
  return owned(out, "shardrt_source_free")
end

-- Several sources as one: one after the other, or mixed.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local owned = require "shardrt.base.owned"
local source = require "shardrt.data.source"
fail.own()

---@class shardrt.mix.words
local words = {}
local mix = { words = words }

local handle_out = ffi.typeof "shardrt_source *[1]"

-- The list part of a table of keywords; everything else in it must be a keyword.
local function split(caller, takes, given, known)
  if type(given) ~= "table" or class.is(given) then
    fail("%s: it takes a list of %s, not %s", caller, takes, list.show(given))
  end
  local parts, keywords = {}, {}
  for key, value in pairs(given) do
    if list.is_whole(key, 1) and key <= #given then parts[key] = value else keywords[key] = value end
  end
  fail.keywords(caller, keywords, known)
  if #given == 0 then fail("%s: it takes a list of %s; there is none", caller, takes) end
  for i = 1, #given do
    if parts[i] == nil then fail("%s: number %d of its list is nil", caller, i) end
  end
  return parts
end

local function check_source(caller, i, value)
  if not source.is(value) then fail("%s: number %d of its list is %s, not a source", caller, i, list.show(value)) end
  return value
end

-- The name of the field that tells which part a sample is of, or nil.
local function check_part(caller, name)
  if name ~= nil and (type(name) ~= "string" or name:find("\0", 1, true)) then
    fail("%s: part = %s; it is the name of a field that tells where a sample is from", caller, list.show(name))
  end
  return name
end

local function own_source(out) return owned(out, "shardrt_source_free") end

--- Sources with equal fields as one, one after the other. `part` names a field more, int32: which of the sources a
--- sample is from, counted from 0.
---@param o {[integer]: shardrt.source, part: string?}
---@return shardrt.source
function words.concat(o)
  local parts = split("concat", "sources", o, { part = true })
  local handles = ffi.new("shardrt_source *[?]", #parts)
  for i, part in ipairs(parts) do handles[i - 1] = check_source("concat", i, part) end
  local out = handle_out()
  fail.check(C.shardrt_source_concat(#parts, handles, check_part("concat", o.part), out))
  return own_source(out)
end

-- A source with its weight.
local function check_weighted(i, part)
  if type(part) ~= "table" or class.is(part) then
    fail("mix: number %d of its list is %s; it takes {source, weight}", i, list.show(part))
  end
  for key in pairs(part) do
    if key ~= 1 and key ~= 2 then
      fail("mix: number %d of its list has %s; it is {source, weight}, in that order and without names", i,
        list.show(key))
    end
  end
  if type(part[2]) ~= "number" then
    fail("mix: the weight of source %d is %s; it is a number above 0", i, list.show(part[2]))
  end
end

-- The weights of all sources from a sample of the mix on, as {from = 1000, 0.2, 0.8}.
local function check_stage(i, stage, count)
  for key in pairs(stage) do
    if key ~= "from" and not (list.is_whole(key, 1) and key <= count) then
      fail("mix: number %d of its list has %s; it is {from = n, …} with a weight for each of the %d sources", i,
        list.show(key), count)
    end
  end
  if not list.is_whole(stage.from, 1) then
    fail("mix: number %d of its list: from = %s; it is a sample of the mix, from 1 on", i, list.show(stage.from))
  end
  for p = 1, count do
    if type(stage[p]) ~= "number" then
      fail("mix: from %.0f on, the weight of source %d is %s; it is a number, 0 where the source rests", stage.from, p,
        list.show(stage[p]))
    end
  end
end

-- The list of a mix: its sources with their weights, and then the stages in which they have others.
local function split_stages(parts)
  local weighted, stages = {}, {}
  for i, part in ipairs(parts) do
    if type(part) == "table" and not class.is(part) and part.from ~= nil then
      stages[#stages + 1] = part
    elseif #stages > 0 then
      fail("mix: number %d of its list is a source behind {from = …}; sources come first", i)
    else
      weighted[i] = part
    end
  end
  for i, part in ipairs(weighted) do check_weighted(i, part) end
  for i, stage in ipairs(stages) do check_stage(#weighted + i, stage, #weighted) end
  return weighted, stages
end

--- Sources with equal fields in given proportions: {source, weight} for each. Of every N samples that follow one
--- another, where N is the least number in which each source can have exactly its share, it has exactly that; of the
--- first n, its share to within one. Each source goes through its own samples again and again, each time shuffled anew
--- where the loader shuffles. An epoch has `samples` samples; left out: as many as there are before the first source
--- begins anew. `part` as for concat. What is to be filtered, packed or cut into shards are the sources, not the mix.
---
--- Weights may change: behind the sources, {from = n, 0.2, 0.8} has their weights from sample n of the mix on, counted
--- through all its epochs. Each source goes on where it was; one with the weight 0 rests.
---@param o {[integer]: {[1]: shardrt.source, [2]: number}|{from: integer, [integer]: number}, samples: integer?,
---part: string?}
---@return shardrt.source
function words.mix(o)
  local parts, stages = split_stages(split("mix", "{source, weight}", o, { samples = true, part = true }))
  if #parts == 0 then fail "mix: it takes a list of {source, weight}; there is none" end
  local handles, n = ffi.new("shardrt_source *[?]", #parts), #parts
  local froms, weights = ffi.new("int64_t[?]", #stages + 1), ffi.new("double[?]", (#stages + 1) * n)
  for i, part in ipairs(parts) do handles[i - 1], weights[i - 1] = check_source("mix", i, part[1]), part[2] end
  for s, stage in ipairs(stages) do
    froms[s] = stage.from
    for p = 1, n do weights[s * n + p - 1] = stage[p] end
  end
  local samples = 0 -- chosen by C
  if o.samples ~= nil then
    samples = o.samples
    if not list.is_whole(samples, 1) then
      fail("mix: samples = %s; it is a whole number from 1 on", list.show(samples))
    end
  end
  local out = handle_out()
  fail.check(C.shardrt_source_mix(n, handles, #stages + 1, froms, weights, samples, check_part("mix", o.part), out))
  return own_source(out)
end

return mix

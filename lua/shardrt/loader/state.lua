-- Where a loader stands, as a table of plain values.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
fail.own()

---@class shardrt.LoaderState # plain numbers, texts and booleans
---@field version integer
---@field source string # the source's fingerprint, and those of what it is made of
---@field count integer
---@field shuffle boolean|"blocks"
---@field window integer? # these three of shuffle = "blocks": the order depends on them
---@field lanes integer? # rows of a batch, of the loader that began; one that goes on may have other batches
---@field blocks integer? # that the source is stored in
---@field seed integer
---@field epoch integer # of the next batch
---@field row integer # where in the epoch's order it begins
---@field checksum string # of all the others

local state = {}

-- Of states: a later version has another order. (Before version 3 rows stood elsewhere in an order over blocks.)
local function version_of(shuffle) return shuffle == "blocks" and 3 or 1 end

-- What shardrt_source_data tells apart, as states have it and as messages say it.
local DATA = {
  { "files", "the files' lengths or first blocks" }, { "shards", "the shard" },
  { "filter", "what the filter lets through" },
  { "damaged", "which samples are left out because they are damaged" }, { "rows", "how rows are packed" },
  { "mix", "the mix's weights or the length of its epochs" },
}

-- "0123456789abcdef: files 0123456789abcdef, mix 0123456789abcdef": the data, and what it is made of.
local function data_text(source)
  local hashes, words = ffi.new("uint64_t[?]", C.SHARDRT_DATA_KINDS), {}
  C.shardrt_source_data(source, hashes)
  for i, kind in ipairs(DATA) do
    if hashes[i - 1] ~= 0 then words[#words + 1] = kind[1] .. " " .. bit.tohex(hashes[i - 1]) end
  end
  return ("%s: %s"):format(bit.tohex(C.shardrt_source_fingerprint(source)), table.concat(words, ", "))
end

-- In what two such texts differ.
local function data_difference(given, now)
  if type(given) ~= "string" then return "" end
  for _, kind in ipairs(DATA) do
    local pattern = kind[1] .. " (%x+)"
    if given:match(pattern) ~= now:match(pattern) then return "; what differs is " .. kind[2] end
  end
  return ""
end

-- Of a state that is complete: the checksum of its other fields.
local function checksum(given)
  local order = tostring(given.shuffle)
  if given.shuffle == "blocks" then
    order = ("blocks %s %s %s"):format(tostring(given.window), tostring(given.lanes), tostring(given.blocks))
  end
  local text = ("%.0f %s %.0f %s %.0f %.0f %.0f"):format(given.version, given.source, given.count, order, given.seed,
    given.epoch, given.row)
  return bit.tohex(C.shardrt_fingerprint(text, #text))
end

--- The state of a loader whose next batch begins at `row` of `epoch`.
---@param loader shardrt.Loader
---@param epoch integer
---@param row integer
---@return shardrt.LoaderState
function state.of(loader, epoch, row)
  local made = {
    version = version_of(loader.shuffle), source = data_text(loader.source), count = #loader.source,
    shuffle = loader.shuffle, seed = loader.seed, epoch = epoch, row = row,
  }
  if loader.window then
    made.window, made.lanes = loader.window, loader.lanes
    made.blocks = tonumber(C.shardrt_source_blocks(loader.source))
  end
  made.checksum = checksum(made)
  return made
end

--- Raises what is wrong with a state that loader:restore was given.
---@param given any
---@param now shardrt.LoaderState # of the loader that is to go on from it
function state.check(given, now)
  if type(given) ~= "table" then fail("loader:restore: it takes what state() gave, not %s", list.show(given)) end
  if given.version ~= version_of(given.shuffle) then
    fail("loader:restore: the state's version is %s; this is version %d", list.show(given.version),
      version_of(given.shuffle == nil and now.shuffle or given.shuffle))
  end
  for _, name in ipairs { "epoch", "row", given.shuffle == now.shuffle and now.lanes and "lanes" or nil } do
    if not list.is_whole(given[name], name == "lanes" and 1 or 0) then
      fail("loader:restore: the state's %s is %s, where a whole number is expected: it is damaged", name,
        list.show(given[name]))
    end
  end
  local meaning = { source = "fingerprint of the data", count = "number of samples", blocks = "number of blocks" }
  for _, name in ipairs { "source", "count", "shuffle", "seed", "window", "blocks" } do
    if given[name] ~= now[name] then
      fail("loader:restore: the state's %s is %s, this loader's is %s: they do not give the same stream of samples%s",
        meaning[name] or name, list.show(given[name]), list.show(now[name]),
        name == "source" and data_difference(given[name], now[name]) or "")
    end
  end
  for name in pairs(given) do
    if now[name] == nil then
      fail("loader:restore: the state has %s, which no state has: it is damaged", list.show(name))
    end
  end
  if given.checksum ~= checksum(given) then
    fail("loader:restore: the state's checksum is %s, that of its other fields %s: it is damaged",
      list.show(given.checksum), list.show(checksum(given)))
  end
end

return state

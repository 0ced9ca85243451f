-- The bandwidths that a recipe may give a loader whose pipeline is "auto".

local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
fail.own()

local bandwidth = {}

---@class shardrt.Bandwidth # bytes a second
---@field read number|table<string, number> # of one process while all read; or a number for each way by its name
---@field link number # of one process, in one direction

local NAMES = {
  per_process = true, per_device = true, global = true, rows = true, shares = true, load_sharding = true,
}

local function is_bandwidth(value) return type(value) == "number" and value > 0 end

local function check_reads(read)
  if is_bandwidth(read) then return end
  if type(read) ~= "table" or not next(read) then
    fail("loader: bandwidth.read = %s; it is bytes a second, or a table with this for each way, by its name",
      list.show(read))
  end
  fail.keywords("loader: bandwidth.read", read, NAMES)
  for name, value in pairs(read) do
    if not is_bandwidth(value) then
      fail("loader: bandwidth.read.%s = %s; it is bytes a second", name, list.show(value))
    end
  end
end

--- What a recipe gave.
---@param given any
---@return shardrt.Bandwidth?
function bandwidth.check(given)
  if given == nil then return nil end
  if type(given) ~= "table" then
    fail("loader: bandwidth = %s; it is {read = …, link = …}, in bytes a second", list.show(given))
  end
  fail.keywords("loader: bandwidth", given, { read = true, link = true })
  check_reads(given.read)
  if not is_bandwidth(given.link) then
    fail("loader: bandwidth.link = %s; it is bytes a second, what a process sends to others or receives from them",
      list.show(given.link))
  end
  return { read = given.read, link = given.link }
end

--- The same text for the same bandwidths.
---@param given shardrt.Bandwidth?
---@return string
function bandwidth.text(given)
  if not given then return "measured" end
  local words = { ("%.17g"):format(given.link) }
  if type(given.read) == "number" then
    words[2] = ("%.17g"):format(given.read)
  else
    for name, value in pairs(given.read) do words[#words + 1] = ("%s %.17g"):format(name, value) end
    table.sort(words)
  end
  return table.concat(words, " ")
end

return bandwidth

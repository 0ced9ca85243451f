-- Records that cannot be read: an error, or left out by all processes alike.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local condition = require "shardrt.data.condition"
local field_map = require "shardrt.data.field_map"
local list = require "shardrt.base.list"
local owned = require "shardrt.base.owned"
fail.own()

---@class shardrt.BadRecord
---@field record integer # the sample's number in the files, as source:enumerate has it
---@field reason string # begins with the file, and the record and its offset in it

local bad_records = {}

local CHOICES = { error = true, skip = true }
local TOLD = 3 -- of what is left out, in the line that says so

--- Whether an option on_bad_record says that damaged records are to be left out.
---@param caller string
---@param value any
---@return boolean
function bad_records.skips(caller, value)
  if value == nil then return false end
  if type(value) == "string" and CHOICES[value] then return value == "skip" end
  fail("%s: on_bad_record = %s%s; there are %s", caller, list.show(value), fail.suggestion(value, CHOICES),
    list.words(CHOICES))
end

--- An option `verify` as C has it.
---@param caller string
---@param value any
---@return integer
function bad_records.verify(caller, value)
  if value == nil then return C.SHARDRT_VERIFY_DEFAULT end
  if value == false then return C.SHARDRT_VERIFY_NEVER end
  if value == "once" then return C.SHARDRT_VERIFY_ONCE end
  if value == true then return C.SHARDRT_VERIFY_ALWAYS end
  fail('%s: verify = %s; it is true, "once" or false', caller, list.show(value))
end

--- Why samples were left out: of the first thousand.
---@param source shardrt.source
---@return shardrt.BadRecord[]
function bad_records.records(source)
  local found, number, i = {}, ffi.new "int64_t[1]", 0
  while true do
    local reason = C.shardrt_source_bad(source, i, number)
    if reason == nil then return found end
    i = i + 1
    found[i] = { record = tonumber(number[0]), reason = ffi.string(reason) }
  end
end

-- The first reasons, and all that say that more than a record is lost.
local function told(records)
  local words = {}
  for i, record in ipairs(records) do
    if i <= TOLD or record.reason:find "is lost$" then words[#words + 1] = record.reason end
  end
  return words
end

--- The samples of a source for which those of `looked`, which is made of it, can be read and decoded: what
--- C.shardrt_source_readable makes, which process 0 tells of on stderr.
---@param caller string
---@param source shardrt.source
---@param looked shardrt.source
---@return shardrt.source
function bad_records.leave_out(caller, source, looked)
  local out, before = ffi.new "shardrt_source *[1]", C.shardrt_source_bad_count(source)
  C.shardrt_job_at(current.job, fail.where() or "?")
  fail.check(C.shardrt_source_readable(current.job, source, looked, out), caller)
  local made = owned(out, "shardrt_source_free")
  local count = tonumber(C.shardrt_source_bad_count(made) - before)
  if count > 0 then
    local words = told(bad_records.records(made))
    collective.notice("%s: left out %.0f of %.0f samples, which cannot be read: %s%s", fail.where() or "?", count,
      #source, table.concat(words, "; "), count > #words and ("; and %.0f more"):format(count - #words) or "")
  end
  return made
end

local function is_table(value) return type(value) == "table" and not class.is(value) end

--- The source of a loader's options without the samples that cannot be read: in what the batches take of them, or what
--- the filter looks at.
---@param o shardrt.LoaderOptions
---@return shardrt.source
function bad_records.of_loader(o)
  local fields = {}
  for name, given in pairs(is_table(o.transform) and o.transform or {}) do fields[name] = given end
  for name, given in pairs(is_table(o.filter) and o.filter or {}) do
    if type(name) == "string" and o.source.fields[name] then
      local steps = is_table(given) and not condition.is(given) and given or {}
      fields[name .. ", for the filter"] = { from = name, unpack(steps) }
    end
  end
  return bad_records.leave_out("loader", o.source, next(fields) and field_map(o.source, "loader", fields) or o.source)
end

return bad_records

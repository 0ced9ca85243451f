-- What becomes of nulls in the columns of tables: a value takes their place, or rows that have one are left out.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local owned = require "shardrt.base.owned"
fail.own()

local nulls = {}

local CHOICES = { error = true, skip = true }
local texts = ffi.typeof "const char *[?]"

--- Whether rows with nulls are to be left out, by a source's option `nulls`.
---@param caller string
---@param value any
---@return boolean
function nulls.skips(caller, value)
  if value == nil or value == "error" then return false end
  if value == "skip" then return true end
  fail("%s: nulls = %s%s; there are %s", caller, list.show(value), fail.suggestion(value, CHOICES), list.words(CHOICES))
end

local function given_null(given)
  if type(given) == "table" and not class.is(given) then return given.null end
end

--- Whether a field says nothing but what its nulls become.
---@param given any
---@return boolean
function nulls.alone(given) return given_null(given) ~= nil and given[1] == nil and given[2] == nil end

-- A value as C reads it.
local function text_of(caller, name, value)
  local kind = type(value)
  if kind == "number" then return ("%.17g"):format(value) end
  if kind == "boolean" then return tostring(value) end
  if kind == "string" and not value:find("\0", 1, true) then return value end
  local whole = kind == "cdata" and tostring(value):match "^(%-?%d+)U?LL$"
  return whole or fail("%s, fields.%s: null is a number, a text or a boolean, not %s", caller, name, list.show(value))
end

--- What takes the place of nulls in each of these fields, for C; nil: in none. The second result is to live as long.
---@param caller string
---@param format string
---@param names string[]
---@param fields table<string, any>?
---@return ffi.cdata*?
---@return string[]
function nulls.of_fields(caller, format, names, fields)
  local values, some = texts(math.max(#names, 1)), {}
  for i, name in ipairs(names) do
    local given = given_null(fields and fields[name])
    if given ~= nil then
      if format ~= "parquet" and format ~= "arrow" and format ~= "jsonl" then
        fail("%s, fields.%s: null is of source.parquet, arrow and jsonl, whose values may be null", caller, name)
      end
      some[#some + 1] = text_of(caller, name, given)
      values[i - 1] = some[#some]
    end
  end
  return #some > 0 and values or nil, some
end

--- The rows of a source that have no null where one has no value; `tell` opens it so that fields say that.
---@param caller string
---@param made shardrt.source
---@param fields table<string, any>? # as they are asked for
---@param tell fun(names: string[]): shardrt.source
---@return shardrt.source
function nulls.leave_out(caller, made, fields, tell)
  local asked, out = {}, ffi.new "shardrt_source *[1]"
  for _, name in ipairs(made.names) do
    if given_null(fields and fields[name]) == nil then asked[#asked + 1] = name end
  end
  if #asked == 0 then return made end
  C.shardrt_job_at(current.job, fail.where() or "?")
  fail.check(C.shardrt_source_filter(current.job, made, tell(asked), out), caller)
  return owned(out, "shardrt_source_free")
end

return nulls

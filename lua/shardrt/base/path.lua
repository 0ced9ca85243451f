-- Paths of files that a recipe gives.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
fail.own()

ffi.cdef "char *getcwd(char *path, size_t capacity);"

local path = {}

-- How addresses of files on servers begin: what runtime/storage/local/url.c knows.
local SCHEMES = { "http", "https", "s3", "gs", "az", "abfs", "abfss", "hf" }

-- A link's signature ("?…&sig=…") that stands behind an object's name, where all is a part of the name and is shown.
local function refuse_signature(caller, value)
  local plain, rest = value:match "^([^?]*)%?(.*)$"
  if plain and path.is_listed(value) and ("&" .. rest):lower():find "[&-]sig[%a]*=" then
    fail("%s: %s: a signature stands behind it, as if it were a part of the name; a SAS token stands in "
      .. "AZURE_STORAGE_SAS_TOKEN, and a signed link begins with https://", caller, list.show(plain))
  end
end

--- An error for addresses that nothing here reads.
---@param caller string # the call
---@param value string
function path.refuse_scheme(caller, value)
  refuse_signature(caller, value)
  local scheme = value:match "^(%a[%w+-]*)://"
  if scheme and not path.is_url(value) then
    fail("%s: %s begins with %s://; what can be read are paths of files, and addresses: "
      .. "%s://", caller, list.show(value), scheme, table.concat(SCHEMES, "://, "))
  end
end

-- The path that an address of a file on this machine means (RFC 8089): "file:///a/b%20c" is "/a/b c".
local function local_path(caller, value)
  local rest = value:match "^[fF][iI][lL][eE]://(.*)$"
  if not rest then return value end
  local name = rest:match "^/.*" or rest:match "^localhost(/.*)"
  if not name then fail("%s: %s: three slashes begin the path of a file on this machine", caller, list.show(value)) end
  if name:find("%00", 1, true) then fail("%s: %s: no path has a byte 0", caller, list.show(value)) end
  return (name:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

--- A path that a recipe gave, checked; of "file:///a" the path "/a".
---@param caller string # the call
---@param value any
---@param kind string # what file it is: ".npy"
---@return string
function path.check(caller, value, kind)
  if type(value) ~= "string" or value == "" or value:find("\0", 1, true) then
    fail("%s: it takes the path of a %s file, not %s", caller, kind, list.show(value))
  end
  value = local_path(caller, value)
  path.refuse_scheme(caller, value)
  return value
end

--- Whether a path is the address of a file on a server.
---@param value string
---@return boolean
function path.is_url(value)
  local scheme = value:match "^(%a%w*)://"
  for _, known in ipairs(SCHEMES) do
    if scheme and scheme:lower() == known then return true end
  end
  return false
end

--- Whether the server of an address can be asked which files it has.
---@param value string
---@return boolean
function path.is_listed(value) return path.is_url(value) and not value:lower():find "^https?://" end

-- Those of buckets: what runtime/storage/upload/multipart.h writes to.
local BUCKETS = { s3 = true, gs = true, az = true, abfs = true, abfss = true }

--- Whether files can be written where an address leads, in a bucket.
---@param value string
---@return boolean
function path.is_bucket(value) return BUCKETS[(value:match "^(%a%w*)://" or ""):lower()] == true end

--- An error for addresses of servers that nothing is written to.
---@param caller string # the call
---@param value string
function path.refuse_unwritable(caller, value)
  if path.is_url(value) and not path.is_bucket(value) then
    fail("%s: arrays are written to files of this machine and to buckets (s3://, gs://, az://), not to other "
      .. "servers", caller)
  end
end

--- What there is to say of a path in an error about its file: where a relative one begins; else "".
---@param code integer
---@param value string
---@return string
function path.note(code, value)
  if code ~= C.SHARDRT_EIO or value:sub(1, 1) == "/" or path.is_url(value) then return "" end
  local folder = ffi.new "char[4096]"
  if ffi.C.getcwd(folder, 4096) == nil then return "" end
  return (" (the path is taken from the working folder, %s)"):format(ffi.string(folder))
end

--- Passes on what a C function returned that was given one path, or raises its message.
---@param caller string # the call
---@param value string
---@param code integer
---@return integer
function path.check_code(caller, value, code)
  if code < 0 and fail.is_between_processes(code) then fail.check(code) end
  if code < 0 then fail("%s: %s%s", caller, fail.message(code), path.note(code, value)) end
  return code
end

return path

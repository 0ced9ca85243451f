-- The headers that a recipe gives for files on HTTP servers: {Authorization = "Bearer …"}.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
fail.own()

local http_headers = {}

-- What headers that are given with an address are for: "https://host/a" of "https://host/a/", of "https://host/a?b" and
-- of "https://host/a:/b", a dataset in a file. nil: it is no address of HTTP.
local function place_of(address)
  if not address:find "^[hH][tT][tT][pP][sS]?://[^/?#]" then return nil end
  local plain = address:match "^[^?#]*"
  return ((plain:match "^(%a+://[^/]+/.-):/" or plain):gsub("/+$", ""))
end

--- Has requests for files send headers from now on: for these addresses, and for what lies below those of folders. Of
--- the same address the last ones count. Other paths are passed over.
---@param caller string # the call
---@param headers table<string, string>? # nil: nothing changes
---@param paths table<any, any> # its values that are texts
function http_headers.use(caller, headers, paths)
  if headers == nil then return end
  if type(headers) ~= "table" then
    fail('%s: headers is a table, as in {Authorization = "Bearer …"}, not %s', caller, type(headers))
  end
  local lines, seen = {}, {}
  for name, value in pairs(headers) do
    if type(name) ~= "string" or type(value) ~= "string" or value:find("\0", 1, true) then
      fail("%s: headers has names and texts; that of %s is a %s", caller, list.show(name), type(value))
    end
    lines[#lines + 1] = ("%s: %s"):format(name, value)
  end
  local texts = ffi.new("const char *[?]", #lines, lines)
  for _, one in pairs(paths) do
    local place = type(one) == "string" and place_of(one)
    if place and not seen[place] then
      seen[place] = true
      local code = C.shardrt_http_headers(place, #lines, texts)
      if code < 0 then fail("%s, headers: %s", caller, fail.message(code)) end
    end
  end
  assert(#lines >= 0) -- C has its own copies now
end

return http_headers

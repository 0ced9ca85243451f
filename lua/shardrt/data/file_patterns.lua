-- Sets of files that a recipe names: one, a list, a pattern, or the first of "name-00000-of-00128".

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local owned = require "shardrt.base.owned"
local path = require "shardrt.base.path"
fail.own()

ffi.cdef [[
typedef struct shardrt_glob { size_t count; char **paths; size_t offset; char room[256]; } shardrt_glob;
int glob(const char *pattern, int flags, void *on_error, shardrt_glob *out);
void globfree(shardrt_glob *out);
int access(const char *path, int mode);
]]

local file_patterns = {}

local INDEX = ".shardrt-index" -- what lies beside data files, and is none
file_patterns.INDEX = INDEX

-- The files that a pattern means, in the order of their names' bytes.
local function expand_pattern(caller, pattern)
  local found, paths = ffi.new "shardrt_glob", {}
  local code = ffi.C.glob(pattern, 0, nil, found)
  for i = 0, tonumber(found.count) - 1 do
    local name = ffi.string(found.paths[i])
    if name:sub(-#INDEX) ~= INDEX then paths[#paths + 1] = name end
  end
  ffi.C.globfree(found)
  if code ~= 0 and #paths == 0 or #paths == 0 then fail('%s: no file fits the pattern "%s"', caller, pattern) end
  table.sort(paths)
  return paths
end

-- All of "name-00000-of-00128", or nil where the path is no first of several.
local function expand_shards(value)
  local head, first, count, tail = value:match "^(.*%-)(0+)%-of%-(%d+)(.*)$"
  if not head or #first ~= #count or #count > 9 then return nil end
  local paths = {}
  for i = 0, tonumber(count) - 1 do
    paths[i + 1] = ("%s%0" .. #count .. "d-of-%s%s"):format(head, i, count, tail)
  end
  return paths
end

-- What stands for what in a pattern of addresses.
local MEANS = { ["*"] = "[^/]*", ["?"] = "[^/]" }

-- The objects of a bucket that a pattern means, in the order of their addresses' bytes: listed once in the job.
local function list_objects(caller, pattern)
  local out, paths = ffi.new "shardrt_listing *[1]", {}
  local prefix, rest = pattern:match "^([^*?]*)(.*)$"
  if not prefix:find "^[^/]*//[^/]+/" then
    fail('%s: "%s": a pattern begins behind the bucket\'s name and a slash', caller, pattern)
  end
  C.shardrt_job_at(current.job, fail.where() or "?")
  local deep = rest:find("/", 1, true) and 1 or 0
  path.check_code(caller, pattern, C.shardrt_listing_share(current.job, prefix, deep, out))
  local listing = owned(out, "shardrt_listing_free")
  local fits = "^" .. pattern:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("[*?]", MEANS) .. "$"
  for i = 0, tonumber(C.shardrt_listing_count(listing)) - 1 do
    local address = ffi.string(C.shardrt_listing_address(listing, i))
    if address:find(fits) and address:sub(-#INDEX) ~= INDEX and address:sub(-1) ~= "/" then
      paths[#paths + 1] = address
    end
  end
  if #paths == 0 then fail('%s: no object fits the pattern "%s"', caller, pattern) end
  table.sort(paths)
  return paths
end

local MOST = 10000000 -- names that braces may mean

local function refuse_many(caller, value)
  fail('%s: "%s" means more than %d names', caller, value, MOST)
end

-- What bash makes of "{0..9}", "{00..12}" and "{a,b}": all texts that a pattern with braces means, in its order.
local function braces(caller, value)
  local head, inner, tail = value:match "^(.-){([^{}]*)}(.*)$"
  if head and head:find("{", 1, true) and tail:find("}", 1, true) then
    fail('%s: "%s" has braces within braces; a list of patterns does that', caller, value)
  end
  local first, last = (inner or ""):match "^(%d+)%.%.(%d+)$"
  local words, out = {}, {}
  if first then
    local width = (first:find "^0%d" or last:find "^0%d") and math.max(#first, #last) or 1
    local low, high = tonumber(first), tonumber(last)
    if math.abs(high - low) >= MOST or width > 32 then refuse_many(caller, value) end
    for n = low, high, low <= high and 1 or -1 do words[#words + 1] = ("%0" .. width .. "d"):format(n) end
  elseif inner and inner:find(",", 1, true) then
    for word in (inner .. ","):gmatch "([^,]*)," do words[#words + 1] = word end
  elseif inner then
    words[1] = "{" .. inner .. "}" -- no list: it stands for itself
  else
    return { value }
  end
  for _, rest in ipairs(braces(caller, tail)) do out[#out + 1] = rest end
  if #words * #out > MOST then refuse_many(caller, value) end
  local all = {}
  for _, word in ipairs(words) do
    for _, rest in ipairs(out) do all[#all + 1] = head .. word .. rest end
  end
  return all
end

local function exists(value)
  local file = not path.is_url(value) and io.open(value, "rb")
  if file then file:close() end
  return file and true or false
end

local function expand_one(caller, value)
  if path.is_url(value) then
    local is_pattern = value:find("*", 1, true) or path.is_listed(value) and value:find("?", 1, true)
    if is_pattern and path.is_listed(value) then return list_objects(caller, value) end
    if is_pattern then
      fail('%s: "%s" is a pattern, and what files a server has cannot be asked of it; braces as in '
        .. '"shard-{000..127}.tar" would do, a list of addresses, or the first of name-00000-of-00128', caller, value)
    end
  elseif value:find "[%*%?%[]" then
    return expand_pattern(caller, value)
  end
  return expand_shards(value) or { value }
end

-- What a recipe gave, checked, with braces taken apart; the second value: those that are called so, and no patterns.
local function take_apart(caller, given)
  local words, plain = {}, {}
  for _, value in ipairs(given) do
    value = path.check(caller, value, "data")
    local is_plain = value:find "[{%*%?%[]" and exists(value)
    for _, one in ipairs(is_plain and { value } or braces(caller, value)) do
      words[#words + 1] = one
      plain[#words] = is_plain
    end
  end
  return words, plain
end

--- Which commits the revisions of Hugging Face's addresses are, asked once in the job: other paths are passed over.
---@param caller string # the call
---@param paths string[] # in the same order in every process
function file_patterns.share_revisions(caller, paths)
  local n, texts = 0, ffi.new("const char *[?]", math.max(#paths, 1))
  for _, one in ipairs(paths) do
    if one:find "^[hH][fF]://" then
      texts[n] = one
      n = n + 1
    end
  end
  if n == 0 then return end
  C.shardrt_job_at(current.job, fail.where() or "?")
  path.check_code(caller, ffi.string(texts[0]), C.shardrt_revisions_share(current.job, n, texts))
end

--- Whether a path is a folder.
---@param name string
---@return boolean
function file_patterns.is_folder(name) return ffi.C.access(name .. "/.", 0) == 0 end

--- The bytes of a file; 0 where that cannot be told, as of a folder.
---@param name string
---@return integer
function file_patterns.size(name)
  local file = not file_patterns.is_folder(name) and io.open(name, "rb")
  local bytes = file and file:seek "end" or 0
  if file then file:close() end
  return bytes
end

-- The files that a pattern finds within a folder, whatever the folder is called.
local function inside(folder, pattern)
  local escaped, paths = folder:gsub("[%*%?%[%]\\]", "\\%0") .. "/" .. pattern, {}
  local found = ffi.new "shardrt_glob"
  ffi.C.glob(escaped, 0, nil, found)
  for i = 0, tonumber(found.count) - 1 do paths[i + 1] = ffi.string(found.paths[i]) end
  ffi.C.globfree(found)
  return paths
end

--- The same: paths.
---@param folder string
---@param pattern string # "*": all whose names do not begin with a point
---@return string[]
file_patterns.inside = inside

--- Where one of the folders that were given as Zarr arrays is a group: which arrays it has, to add to the message.
---@param names string[] # of the fields
---@param given table<string, string>
---@param message string # which names the folder
---@return string
function file_patterns.zarr_note(names, given, message)
  for _, name in ipairs(names) do
    local folder, arrays = (given[name]:gsub("/+$", "")), {}
    if message:find(folder, 1, true) and not path.is_url(folder) then
      for _, one in ipairs(inside(folder, "*/.zarray")) do arrays[#arrays + 1] = one:sub(1, -#"/.zarray" - 1) end
      for _, one in ipairs(inside(folder, "*/zarr.json")) do
        local file = io.open(one, "rb")
        local text = file and file:read "*a" or ""
        if file then file:close() end
        if text:find '"node_type"%s*:%s*"array"' then arrays[#arrays + 1] = one:sub(1, -#"/zarr.json" - 1) end
      end
    end
    if #arrays > 0 then
      table.sort(arrays)
      return ("; its arrays are %s"):format(list.show(arrays))
    end
  end
  return ""
end

--- The paths that a recipe means: of a path, a pattern ("train-*.tar"), braces ("train-{00..31}.tar"), the first of
--- "name-00000-of-00128", which means all of them, or a list of these.
---@param caller string # the call
---@param given string|string[]
---@return string[]
function file_patterns.expand(caller, given)
  local values, paths = type(given) == "table" and given or { path.check(caller, given, "data") }, {}
  if type(given) == "table" and (not list.length(given) or #given == 0) then
    fail("%s: it takes a path, a pattern or a list of these, not %s", caller, list.show(given))
  end
  local words, plain = take_apart(caller, values)
  file_patterns.share_revisions(caller, words)
  for i, word in ipairs(words) do
    for _, one in ipairs(plain[i] and { word } or expand_one(caller, word)) do paths[#paths + 1] = one end
  end
  return paths
end

--- The options of all sources of files that are about the cache: its folder, and the bytes of files on servers that are
--- kept there (0: the default).
---@param caller string # the call
---@param o {cache: string?, cache_bytes: integer?}
---@return string?
---@return integer
function file_patterns.cache(caller, o)
  local folder, bytes = o.cache, o.cache_bytes
  if folder ~= nil and (type(folder) ~= "string" or folder:find("\0", 1, true)) then
    fail("%s: cache is the path of a folder, not %s", caller, list.show(folder))
  end
  if bytes ~= nil and not list.is_whole(bytes, 1) then
    fail("%s: cache_bytes is a number of bytes, not %s", caller, list.show(bytes))
  end
  return folder, bytes ~= nil and bytes or 0 -- a NULL pointer is nil, too
end

return file_patterns

-- The index of a model that a hub keeps in several .safetensors files: model.safetensors.index.json.

local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local collective = require "shardrt.base.collective"
local ffi = require "ffi"
local fail = require "shardrt.base.error"
local json = require "shardrt.base.json"
local list = require "shardrt.base.list"
local owned = require "shardrt.base.owned"
local path_of = require "shardrt.base.path"
fail.own()

local weight_index = {}

local Hashes = ffi.typeof "uint64_t[?]"

--- Whether a path is that of such an index.
---@param path string
---@return boolean
function weight_index.is(path) return path:find "%.safetensors%.index%.json$" ~= nil end

local function slurp(path)
  if path_of.is_url(path) then
    local out = ffi.new "shardrt_buffer *[1]"
    fail.check(C.shardrt_check_outcome(current.job, path, C.shardrt_object_read(path, out)))
    local buffer = owned(out, "shardrt_buffer_free")
    return ffi.string(C.shardrt_buffer_data(buffer), C.shardrt_buffer_bytes(buffer))
  end
  local file = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

--- The files that the index at a path names, and in which of them each array is. Every process must call it alike.
---@param caller string
---@param path string
---@return string[] # their paths, ascending
---@return table<string, string> # an array's name -> a path
function weight_index.read(caller, path)
  local text = slurp(path)
  local all = collective.gather(caller .. ": the index", Hashes,
    Hashes(1, text and C.shardrt_fingerprint(text, #text) or 0), 1)
  for process = 1, current.info.process_count - 1 do
    if all[process] ~= all[0] then
      fail("%s: process %d does not see the index that process 0 sees; it must be the same in all", caller, process)
    end
  end
  if not text then fail("%s: cannot be read", caller) end
  local content, problem = json.decode(text)
  local map = type(content) == "table" and content.weight_map
  if problem or type(map) ~= "table" or next(map) == nil then
    fail("%s: is no index of .safetensors files, an object with a \"weight_map\"%s", caller,
      problem and ": " .. problem or "")
  end
  local folder, paths, known, places = path:match "^(.*/)" or "", {}, {}, {}
  for name, file in pairs(map) do
    if type(name) ~= "string" or type(file) ~= "string" or file == "" or file:find "[/\\%z]" then
      fail("%s: its weight_map says that %s is in %s, which is no file beside it", caller, list.show(name),
        list.show(file))
    end
    places[name] = folder .. file
    if not known[file] then paths[#paths + 1] = folder .. file end
    known[file] = true
  end
  table.sort(paths)
  return paths, places
end

return weight_index

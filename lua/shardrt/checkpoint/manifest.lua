-- checkpoint.json, which says what a checkpoint holds, and by which it is known to be whole: one object in one line.
-- Its second entry is a checksum of the third, which has checksums of the file with the arrays.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local json = require "shardrt.base.json"
local list = require "shardrt.base.list"
local owned = require "shardrt.base.owned"
local path_of = require "shardrt.base.path"
fail.own()

local manifest = { ARRAYS = "arrays.safetensors", MANIFEST = "checkpoint.json" }

local VERSION = 1
local PIECE = 8 * 2 ^ 20 -- bytes that have a checksum
local MANIFEST, ARRAYS = manifest.MANIFEST, manifest.ARRAYS
local HEAD = '{"shardrt_checkpoint":%d,"xxh3":"%s","content":'

local Hashes = ffi.typeof "uint64_t[?]"

-- How files are read where they lie: on a disk, in a bucket. size: in process 0; 0 where there is none; and an error's
-- code, or 0; slurp: a text, or nil and why there is none; fingerprint: as shardrt_file_fingerprint. A server that does
-- not answer, or refuses, says nothing of a checkpoint: that is an error, not damage.
local on_disk, in_bucket = { fingerprint = C.shardrt_file_fingerprint }, { fingerprint = C.shardrt_object_fingerprint }

local function readers_of(path) return path_of.is_bucket(path) and in_bucket or on_disk end

function on_disk.size(path)
  local file = io.open(path, "rb")
  local bytes = file and file:seek "end" or 0
  if file then file:close() end
  return bytes, 0
end

function on_disk.slurp(path)
  local file, problem = io.open(path, "rb")
  if not file then return nil, problem end
  local text = file:read "*a"
  file:close()
  return text, path .. ": cannot be read"
end

function in_bucket.size(path)
  local out = ffi.new "int64_t[1]"
  local code = C.shardrt_object_bytes(path, out)
  return tonumber(out[0]), code
end

function in_bucket.slurp(path, caller)
  local out = ffi.new "shardrt_buffer *[1]"
  local code = C.shardrt_object_read(path, out)
  local buffer = code >= 0 and owned(out, "shardrt_buffer_free") -- also where another process cannot read it
  fail.check(C.shardrt_check_outcome(current.job, caller, code))
  return ffi.string(C.shardrt_buffer_data(buffer), C.shardrt_buffer_bytes(buffer))
end

-- How long process 0 finds a file; 0: there is none. Every process must call it.
local function size_of(caller, path)
  local bytes, code = 0, 0
  if collective.is_first() then bytes, code = readers_of(path).size(path) end
  local told, problem = collective.from_first(caller .. ": the size of the file", bytes, code)
  if problem < 0 then fail.check(C.shardrt_check_outcome(current.job, caller, code)) end
  return tonumber(told)
end

-- The checksums of a file's pieces, each taken by one process; or nil and the reason why it cannot be read.
local function checksums(caller, path, bytes)
  local job = current.info
  local count, me, n = math.ceil(bytes / PIECE), job.process_index, job.process_count
  local share, code = math.ceil(count / n), 0
  local mine = Hashes(math.max(1, share))
  for i = 0, share - 1 do
    local from = (me + i * n) * PIECE
    if from < bytes and code >= 0 then
      code = readers_of(path).fingerprint(path, from, math.min(PIECE, bytes - from), mine + i)
    end
  end
  code = C.shardrt_check_outcome(current.job, caller, code)
  if code == C.SHARDRT_EFORMAT or code == C.SHARDRT_EIO and not path_of.is_bucket(path) then
    return nil, fail.message(code)
  end
  fail.check(code)
  local all, pieces = collective.gather(caller, Hashes, mine, share), {}
  for i = 0, count - 1 do pieces[i + 1] = bit.tohex(all[i % n * share + math.floor(i / n)]) end
  return pieces
end

--- A checkpoint's content as a text, the same for the same content.
---@param caller string
---@param content table
---@return string
function manifest.encode(caller, content)
  local text, problem = json.encode(content, "the checkpoint")
  if not text then fail("%s: %s", caller, problem) end
  return text
end

--- What is known of the file with the arrays, for the content. Every process must call it alike.
---@param caller string
---@param path string # of the checkpoint
---@return table
function manifest.describe_arrays(caller, path)
  path = ("%s/%s"):format(path, ARRAYS)
  local bytes = size_of(caller, path)
  local pieces, problem = checksums(caller, path, bytes)
  if not pieces then fail("%s: what was written cannot be read back: %s", caller, problem) end
  return { bytes = bytes, piece = PIECE, pieces = pieces }
end

--- The same of an object whose checksums are known from its upload.
---@param caller string
---@param path string # of the checkpoint
---@param sums ffi.cdata* # a shardrt_buffer
---@return table
function manifest.describe_object(caller, path, sums)
  local all, pieces = ffi.cast("const uint64_t *", C.shardrt_buffer_data(sums)), {}
  for i = 1, tonumber(C.shardrt_buffer_bytes(sums)) / 8 do pieces[i] = bit.tohex(all[i - 1]) end
  path = ("%s/%s"):format(path, ARRAYS)
  local bytes = size_of(caller, path)
  if math.ceil(bytes / PIECE) ~= #pieces then fail("%s: %s is not as long as it was written", caller, path) end
  return { bytes = bytes, piece = PIECE, pieces = pieces }
end

--- The text of a checkpoint.json.
---@param content_text string
---@return string
function manifest.text(content_text)
  local sum = bit.tohex(C.shardrt_fingerprint(content_text, #content_text))
  return HEAD:format(VERSION, sum) .. content_text .. "}\n"
end

-- Whether that is what a checkpoint holds; of loaders' states, the loaders tell.
local function is_content(content)
  local is_one = type(content) == "table" and list.is_whole(content.step, 0) and type(content.loaders) == "table"
    and type(content.arrays) == "table" and type(content.metadata) == "table"
  if not is_one then return false end
  for _, entry in pairs(content.arrays) do
    if type(entry) ~= "table" or type(entry.dtype) ~= "string" or not list.length(entry.shape) then return false end
  end
  local file = content.file
  if file == nil then return next(content.arrays) == nil end
  return type(file) == "table" and list.is_whole(file.bytes, 1) and file.piece == PIECE
    and list.length(file.pieces) == math.ceil(file.bytes / PIECE)
end

-- What a checkpoint.json holds (of another version: nothing but that), and its text; or nil and what is wrong with it.
local function read(caller, path)
  local text, problem = readers_of(path).slurp(path, caller)
  if not text then return nil, problem end
  local version, sum = text:match('^{"shardrt_checkpoint":(%d+),"xxh3":"(%x+)","content":')
  if not version then return nil, path .. ": it does not begin as a checkpoint does" end
  if tonumber(version) ~= VERSION then return { version = tonumber(version) }, text end
  local content_text = text:sub(#HEAD:format(VERSION, sum) + 1, -3)
  if text:sub(-2) ~= "}\n" or bit.tohex(C.shardrt_fingerprint(content_text, #content_text)) ~= sum then
    return nil, path .. ": it is cut off or damaged: its checksum is of another text"
  end
  local content, malformed = json.decode(content_text)
  if not is_content(content) then
    return nil, ("%s: %s"):format(path, malformed or "it is not what a checkpoint holds")
  end
  return content, text
end

--- A checkpoint's content, the same in every process, with all its files found whole; or nil and what is wrong with it.
--- Every process must call it alike.
---@param caller string
---@param path string # of the checkpoint
---@return table?
---@return string?
function manifest.read(caller, path)
  local content, text = read(caller, ("%s/%s"):format(path, MANIFEST))
  local mine = content and C.shardrt_fingerprint(text, #text) or 0
  local all = collective.gather(caller .. ": " .. MANIFEST, Hashes, Hashes(1, mine), 1)
  if all[0] == 0 then return nil, not content and text or "process 0 cannot read it" end
  for process = 1, current.info.process_count - 1 do
    if all[process] ~= all[0] then
      fail("%s: process %d does not see the %s/%s that process 0 sees; all must see the same file system", caller,
        process, path, MANIFEST)
    end
  end
  if content.version then
    fail("%s: %s was written by another version of shardrt: its version is %.0f, this one's %d", caller, path,
      content.version, VERSION)
  end
  if not content.file then return content end
  path = ("%s/%s"):format(path, ARRAYS)
  local bytes = size_of(caller, path)
  if bytes ~= content.file.bytes then
    return nil, ("%s: it has %.0f bytes; %.0f were saved"):format(path, bytes, content.file.bytes)
  end
  local pieces, problem = checksums(caller, path, bytes)
  if not pieces then return nil, problem end
  for i, piece in ipairs(pieces) do
    if piece ~= content.file.pieces[i] then
      return nil, ("%s: its bytes from %.0f on are not those that were saved"):format(path, (i - 1) * PIECE)
    end
  end
  return content
end

return manifest

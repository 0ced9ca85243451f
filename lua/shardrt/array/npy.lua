-- One array out of a .npy file (weights, a large image), each process reading the parts that its own devices hold.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local buffers = require "shardrt.array.buffers"
local consistency = require "shardrt.array.consistency"
local current = require "shardrt.base.current"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local memory_pressure = require "shardrt.base.memory_pressure"
local numbering = require "shardrt.array.numbering"
local path_of = require "shardrt.base.path"
local plan = require "shardrt.layout.plan"
local shape = require "shardrt.layout.shape"
local sharding_of = require "shardrt.layout.sharding"
fail.own()

---@class shardrt.npy.words
local words = {}
local npy = { words = words }

-- What the file's header says, and a fingerprint that is equal in processes that see the same file.
local function header(caller, path)
  local code, ndim = ffi.new "int32_t[1]", ffi.new "int32_t[1]"
  local sizes, fingerprint = ffi.new("int64_t[?]", C.SHARDRT_MAX_NDIM), ffi.new "uint64_t[1]"
  path_of.check_code(caller, path, C.shardrt_npy_header(path, code, ndim, sizes, fingerprint))
  return dtype.coded(code[0]), shape.from_c(ndim[0], sizes), fingerprint[0]
end

--- The array in a .npy file as a global array. Each process reads, by memory map, the parts that its own devices hold,
--- each once, and no other byte of the data. Every process must call it; that they see the same file, and hold equal
--- replicas, is checked.
---@param path string
---@param sharding shardrt.Sharding
---@return shardrt.Array
---@return integer # bytes that this process read
function words.load_npy(path, sharding)
  local caller, job = "load_npy", current.info
  path = path_of.check(caller, path, ".npy")
  sharding_of.check(caller, sharding)
  local kind, sizes, fingerprint = header(caller, path)
  local x = array.new(caller, sharding, kind, sizes)
  if job.planning ~= 0 then
    plan.note_array(("%s %s"):format(caller, path), x)
    return x, 0
  end
  consistency.on_array(caller, kind, sizes, sharding)
  C.shardrt_job_at(current.job, fail.where())
  fail.check(C.shardrt_check_same(current.job, "the file " .. path, fingerprint))
  local read = ffi.new "int64_t[1]"
  fail.check(memory_pressure.call(C.shardrt_npy_fill, path, x.handle, read))
  buffers.tell_collector(x)
  if job.check ~= C.SHARDRT_CHECK_OFF then consistency.on_replicas("load_npy " .. path, x) end
  return numbering.made_by_all(x), tonumber(read[0])
end

return npy

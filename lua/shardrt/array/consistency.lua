-- Making an array is something that every process does: here they compare what each of them is asking for.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local memory_pressure = require "shardrt.base.memory_pressure"
local shape = require "shardrt.layout.shape"
fail.own()

local consistency = {}

local TEXT = 512 -- bytes of a sharding's text that are shown

local Request = ffi.typeof "struct { int64_t shape[8]; uint64_t sharding; int32_t dtype; int32_t ndim; }"
local Requests = ffi.typeof("$[?]", Request)
local Codes = ffi.typeof "int32_t[?]"

-- Whether there is nobody to ask: under `shardrt plan` the other processes do not exist.
local function alone(job) return job.process_count == 1 or job.planning ~= 0 end

local function request_text(request)
  return dtype.coded(request.dtype).name .. " " .. shape.text(shape.from_c(request.ndim, request.shape))
end

-- Every process knows that `other` gave another sharding than process 0: they tell each other which, for the message.
local function differ_in_sharding(caller, sharding, other)
  local job = current.info
  local mine, all = ffi.new("char[?]", TEXT), ffi.new("char[?]", job.process_count * TEXT)
  ffi.copy(mine, tostring(sharding):sub(1, TEXT - 1))
  fail.check(C.shardrt_allgather(current.job, caller .. ": the shardings, which differ", mine, TEXT, all))
  fail("%s: process 0 gives the sharding %s and process %d %s; every process must give the same one", caller,
    ffi.string(all), other, ffi.string(all + other * TEXT))
end

--- An error in every process unless all of them ask for an array of the same dtype, shape and sharding; also
--- with `--check off`, which is about what arrays hold.
---@param caller string # the call
---@param kind shardrt.dtype
---@param sizes integer[]
---@param sharding shardrt.Sharding
function consistency.on_array(caller, kind, sizes, sharding)
  local job = current.info
  if alone(job) then return end
  local mine, all = Request(), Requests(job.process_count)
  mine.dtype, mine.ndim, mine.sharding = kind.code, #sizes, C.shardrt_sharding_fingerprint(sharding.handle)
  for d, size in ipairs(sizes) do mine.shape[d - 1] = size end
  C.shardrt_job_at(current.job, fail.where())
  fail.check(C.shardrt_allgather(current.job, caller .. ": dtype, shape and sharding", mine, ffi.sizeof(Request), all))
  for process = 1, job.process_count - 1 do
    local first, other = request_text(all[0]), request_text(all[process])
    if first ~= other then
      fail("%s: process 0 makes %s and process %d %s; every process must ask for the same global array", caller, first,
        process, other)
    end
  end
  for process = 1, job.process_count - 1 do
    if all[0].sharding ~= all[process].sharding then differ_in_sharding(caller, sharding, process) end
  end
end

--- The dtype that the processes which hold data have, also for those that hold none. Every process must call it.
---@param caller string # the call
---@param kind shardrt.dtype? # nil: nothing is held here
---@return shardrt.dtype? # nil: nothing is held anywhere
function consistency.on_dtype(caller, kind)
  local job = current.info
  if alone(job) then return kind end
  local mine, all = Codes(1, kind and kind.code or -1), Codes(job.process_count)
  C.shardrt_job_at(current.job, fail.where())
  fail.check(C.shardrt_allgather(current.job, caller .. ": dtype", mine, ffi.sizeof(mine), all))
  local first
  for process = 0, job.process_count - 1 do
    if all[process] >= 0 then
      first = first or process
      if all[process] ~= all[first] then
        fail("%s: process %d has data of dtype %s and process %d of dtype %s; one array has one dtype", caller, first,
          dtype.coded(all[first]).name, process, dtype.coded(all[process]).name)
      end
    end
  end
  return first and dtype.coded(all[first])
end

--- An error in every process where devices that hold the same part of an array hold other data; every process must call
--- it.
---@param name string # the array, for messages
---@param x shardrt.Array
function consistency.on_replicas(name, x)
  fail.check(memory_pressure.call(C.shardrt_check_array, current.job, name, x.handle))
end

return consistency

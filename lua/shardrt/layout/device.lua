-- The devices of a job, as a recipe sees them: small tables, made when they are first asked for.

local ffi = require "ffi"
local current = require "shardrt.base.current"
local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
fail.own()

---@class shardrt.Device
---@field id integer # counts through the job from 0
---@field process_index integer # the process that owns it
---@field platform string # "host" or "cuda"
local Device = class.define("a device", "device", { id = true, process_index = true, platform = true }, {})
function Device:__tostring()
  return ("device %d (%s, process %d)"):format(self.id, self.platform, self.process_index)
end

---@class shardrt.device.words
local words = {}
local device = { words = words }

--- The job that this process belongs to (a const shardrt_job_info *). All of the layout's words ask here.
---@return ffi.cdata*
function device.job() return current.info end

local known = {} -- by id: the same device is the same object

--- The device of an id, which must be one of the job's.
---@param id integer
---@return shardrt.Device
function device.get(id)
  local found = known[id]
  if not found then
    local process_index = math.floor(id / device.job().devices_per_process)
    found = class.new(Device, { id = id, process_index = process_index, platform = ffi.string(device.job().platform) })
    known[id] = found
  end
  return found
end

--- Whether a value is a device.
---@param value any
---@return boolean
function device.is(value) return getmetatable(value) == Device end

--- The id of a device that a recipe gave, or that it gave itself; nil: it is neither.
---@param value any
---@return integer?
function device.id_of(value)
  local id = device.is(value) and value.id or value
  return list.is_whole(id, 0) and id < 2 ^ 31 and id or nil
end

local function range(first, count)
  local devices = {}
  for i = 1, count do devices[i] = device.get(first + i - 1) end
  return list.counted(devices)
end

--- Which process of the job this is.
---@return integer
function words.process_index() return device.job().process_index end

--- How many processes the job has.
---@return integer
function words.process_count() return device.job().process_count end

--- How many devices the whole job has.
---@return integer
function words.device_count()
  local job = device.job()
  return job.process_count * job.devices_per_process
end

--- How many devices this process has.
---@return integer
function words.local_device_count() return device.job().devices_per_process end

--- All devices of the job, in order of their ids.
---@return shardrt.Device[]
function words.devices() return range(0, words.device_count()) end

--- The devices of one process.
---@param process_index integer? # this process
---@return shardrt.Device[]
function words.local_devices(process_index)
  local job = device.job()
  if process_index == nil then process_index = job.process_index end
  if not list.is_whole(process_index, 0) or process_index >= job.process_count then
    fail("local_devices: process %s: the job has %d process%s, counted from 0", list.show(process_index),
      job.process_count, job.process_count == 1 and "" or "es")
  end
  return range(process_index * job.devices_per_process, job.devices_per_process)
end

return device

-- device_put and its way back: whole values to devices, and from devices.

local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local buffers = require "shardrt.array.buffers"
local class = require "shardrt.base.class"
local consistency = require "shardrt.array.consistency"
local current = require "shardrt.base.current"
local device = require "shardrt.layout.device"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local memory_pressure = require "shardrt.base.memory_pressure"
local ndarray = require "shardrt.array.ndarray"
local numbering = require "shardrt.array.numbering"
local plan = require "shardrt.layout.plan"
local shape = require "shardrt.layout.shape"
local sharding = require "shardrt.layout.sharding"
local shards = require "shardrt.array.shards"
local tree = require "shardrt.array.tree"
local unplaced = require "shardrt.array.unplaced"
local watch = require "shardrt.array.watch"
fail.own()

---@class shardrt.device_put.words
local words = {}
local device_put = { words = words }

---@alias shardrt.Value shardrt.ndarray|shardrt.Array|number|boolean|ffi.cdata*|table

--- A host array of a value that is given whole: itself, or made from numbers.
---@param caller string
---@param value shardrt.Value
---@param dtype_name string?
---@return shardrt.ndarray
function device_put.to_host(caller, value, dtype_name)
  if ndarray.is(value) then return value end
  if (type(value) ~= "table" or class.is(value)) and not dtype.of_value(value) then
    fail("%s: %s is no value for an array; it takes a host array, a number, or a nested list of numbers", caller,
      list.show(value))
  end
  return ndarray.nested(caller, value, dtype_name)
end

-- An error in every process unless all of them gave the same value. Where it put different values on devices that are
-- replicas, these are named, else the processes alone.
local function check_same(caller, host, x)
  C.shardrt_job_at(current.job, fail.where())
  local subject = ("the host value of %s, %s %s"):format(caller, host.dtype, shape.text(host.shape))
  local code = C.shardrt_check_same(current.job, subject, C.shardrt_fingerprint(host.data, host.bytes))
  if code >= 0 then return end
  local message = fail.message(code)
  if code == C.SHARDRT_EMISMATCH then -- then it is so in every process
    buffers.fill_global(caller, x, host)
    code = memory_pressure.call(C.shardrt_check_array, current.job, caller, x.handle)
    if code < 0 then message = message .. "; so " .. fail.message(code) end
  end
  fail("%s", message)
end

-- One host array. What goes to a single device concerns its owner only: no other process is asked, so that each can
-- put different values on its own devices (and join them by make_array_from_single_device_arrays).
local function put_host(caller, host, to)
  local job = current.info
  local kind = dtype.named(caller, host.dtype)
  if not to.device then consistency.on_array(caller, kind, host.shape, to) end
  local x = array.new(caller, to, kind, host.shape)
  if job.planning ~= 0 then
    plan.note_array(caller, x)
    return x
  end
  if not to.device and job.check ~= C.SHARDRT_CHECK_OFF then check_same(caller, host, x) end
  buffers.fill_global(caller, x, host)
  if not to.device then return numbering.made_by_all(x) end
  C.shardrt_array_number_by_value(x.handle, host.data)
  return x
end

local function put_leaf(caller, value, to)
  to = sharding.of(caller, to)
  if not array.is(value) then return put_host(caller, device_put.to_host(caller, value), to) end
  array.check(caller, value)
  -- Nobody compares the value where there is one process, or a program goes by which array it is.
  local is_seen = current.info.process_count > 1 and current.info.planning == 0 and not watch.records()
  if value.committed or not is_seen then return array.ops.constrain(caller, value, to) end
  return array.ops.placed(caller, value, put_host(caller, unplaced.value(value), to))
end

-- Leaf by leaf. `to` is one sharding or device for all below, or a tree with the same keys.
local function put_tree(caller, value, to, path, depth)
  if not tree.is(caller, value) then
    return put_leaf(path == "" and caller or caller .. " of " .. path:gsub("^%.", ""), value, to)
  end
  tree.check_depth(caller, depth)
  local one = sharding.is(to) or device.is(to) or type(to) == "number"
  if not one and (type(to) ~= "table" or class.is(to)) then sharding.of(caller, to) end
  if not one then
    for _, key in ipairs(tree.keys(caller, to)) do
      if rawget(value, key) == nil then
        fail("%s: the tree of shardings has %s, which the tree of values has not", caller, tree.branch(path, key))
      end
    end
  end
  local made = {}
  for _, key in ipairs(tree.keys(caller, value)) do
    local below = tree.branch(path, key)
    if not one and rawget(to, key) == nil then
      fail("%s: the tree of values has %s, for which the tree of shardings has none", caller, below)
    end
    made[key] = put_tree(caller, value[key], one and to or to[key], below, depth + 1)
  end
  return made
end

--- Puts a value on devices. A host value (a host array, a number, a nested list of numbers) is the whole value and must
--- be the same in every process, which is checked; but what goes to a single device concerns only the process that
--- owns it. A global array is laid out anew. A table that holds arrays, or has names as keys, is a tree: it is put leaf
--- by leaf, with one sharding or a tree of them.
---@param value shardrt.Value
---@param to shardrt.Sharding|shardrt.Device|integer|table # a device may be given by its id
---@return shardrt.Array|table
function words.device_put(value, to)
  return put_tree("device_put", value, to, "", 1)
end

--- The value of an array, as a host array. The whole of it must be in this process (see process_allgather). Also of a
--- tree of arrays, leaf by leaf.
---@param x shardrt.Array|shardrt.ndarray|table
---@return shardrt.ndarray|table
function words.device_get(x)
  return tree.map("device_get", x, function(leaf)
    return array.is(leaf) and array.gather("device_get", leaf) or device_put.to_host("device_get", leaf)
  end)
end

-- The global value of an array in every process; every process must call it.
local function allgather(caller, x)
  local handle = array.live(caller, x)
  if not x.committed then return array.gather(caller, x) end
  if current.info.planning ~= 0 then shards.no_data(caller) end
  C.shardrt_job_at(current.job, fail.where())
  local host = ndarray.for_all(caller, x.shape, x.dtype)
  watch.looked()
  local code = memory_pressure.call(C.shardrt_process_allgather, current.job, handle, host.data)
  if code == C.SHARDRT_ETIMEOUT or code == C.SHARDRT_ECOMM then C.shardrt_buffer_retain(host.buffer) end -- MPI has it
  fail.check(code)
  return host
end

-- Every process's host array, stacked.
local function stack_of_processes(host)
  local caller, job = "process_allgather", current.info
  if job.planning ~= 0 then plan.finish(caller) end
  local call = ("%s of %s %s"):format(caller, host.dtype, shape.text(host.shape))
  C.shardrt_job_at(current.job, fail.where())
  watch.called(C.shardrt_allgather_buffers)
  local stacked = ndarray.for_all(caller, { job.process_count, unpack(host.shape) }, host.dtype)
  fail.check(C.shardrt_allgather_buffers(current.job, call, host.buffer, host.data, host.bytes, stacked.buffer,
    stacked.data))
  return stacked
end

--- In every process: the global value of a global array; of a host value, which may differ from process to process
--- but not in dtype and shape, all of them stacked, as {process_count, …}. Lua's numbers, also in nested lists, stay
--- what they are: float64. Also of a tree of these, leaf by leaf. Under `shardrt plan` host values end the plan: those
--- of other processes are not known.
---@param x shardrt.Value
---@return shardrt.ndarray|table
function words.process_allgather(x)
  return tree.map("process_allgather", x, function(leaf)
    if array.is(leaf) then return allgather("process_allgather", leaf) end
    local host = device_put.to_host("process_allgather", leaf)
    if not ndarray.is(leaf) and host.dtype == "float32" then
      host = device_put.to_host("process_allgather", leaf, "float64") -- which Lua's numbers are
    end
    return stack_of_processes(host)
  end)
end

return device_put

-- The three words that make a global array from what each process has: its own part, a function, its devices' arrays.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local class = require "shardrt.base.class"
local consistency = require "shardrt.array.consistency"
local current = require "shardrt.base.current"
local device = require "shardrt.layout.device"
local device_put = require "shardrt.array.device_put"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local ndarray = require "shardrt.array.ndarray"
local plan = require "shardrt.layout.plan"
local shape = require "shardrt.layout.shape"
local sharding = require "shardrt.layout.sharding"
fail.own()

---@class shardrt.make_array.words
local words = {}
local make_array = { words = words }

-- The last thing that each of the three does: compares what must be equal, or tells the plan.
local function finish(caller, x)
  local job = current.info
  if job.planning ~= 0 then
    plan.array(caller, x)
  elseif job.check ~= C.SHARDRT_CHECK_OFF then
    C.shardrt_job_at(current.job, fail.where())
    array.check_replicas(caller, x)
  end
  return array.made_by_all(x)
end

-- The global shape of which every process has a part of `local_shape`: as many times its size as there are distinct
-- sets of ranges among the processes.
local function infer_shape(caller, s, local_shape)
  local job, ndim = current.info, #local_shape
  if #s:addressable_devices() == 0 then
    fail("%s: this process owns no device of the sharding, so its data does not tell the global shape; give it, as the "
      .. "third argument, in every process", caller)
  end
  -- How often a dimension is cut decides, not how large it is: one element for each part will do.
  local parts = {}
  for d = 1, ndim do parts[d] = tonumber(C.shardrt_sharding_cuts(s.handle, d - 1)) end
  local c_parts, out, sizes = shape.to_c(parts), ffi.new "int64_t[2]", {}
  for d = 1, ndim do
    fail.check(C.shardrt_sharding_process_shards(s.handle, ndim, c_parts, d - 1, job.process_index,
      job.devices_per_process, out, out + 1), caller)
    sizes[d] = local_shape[d] * tonumber(out[0])
  end
  return sizes
end

--- A global array from each process's own part. In each dimension the part holds the distinct ranges that the process's
--- devices hold, ascending and packed, or the whole dimension. The global shape, where it is left out, is the part's
--- with each size times the number of distinct sets of ranges among the processes.
---@param s shardrt.Sharding
---@param value shardrt.Value # host array, number or nested list; where no device is owned: for its rank and dtype
---@param global_shape integer[]?
---@return shardrt.Array
function words.make_array_from_process_local_data(s, value, global_shape)
  local caller = "make_array_from_process_local_data"
  sharding.check(caller, s)
  local host = device_put.to_host(caller, value)
  local kind = dtype.named(caller, host.dtype)
  local sizes = global_shape and shape.check(caller, global_shape) or infer_shape(caller, s, host.shape)
  if #sizes ~= host.ndim then
    fail("%s: the data has %d dimensions, %s, and the global shape %d, %s", caller, host.ndim, shape.text(host.shape),
      #sizes, shape.text(sizes))
  end
  local origin = global_shape and "" or (", its shape following from %s here"):format(shape.text(host.shape))
  local x = array.new(caller .. origin, s, kind, sizes)
  consistency.on_array(caller, kind, sizes, s)
  if current.info.planning == 0 then array.fill_local(caller, x, host) end
  return finish(caller, x)
end

-- What a function gave for one box, as a host array of the right shape.
local function call_back(caller, callback, box, dtype_name)
  local index, extent = shape.index_of(box), shape.extent_of(box)
  local host = device_put.to_host(caller, callback(index), dtype_name)
  if not shape.equal(host.shape, extent) then
    local words_of_index = {}
    for d, range in ipairs(index) do words_of_index[d] = ("{%.0f, %.0f}"):format(range[1], range[2]) end
    fail("%s: for the index {%s}, of shape %s, the function returned an array of shape %s", caller,
      table.concat(words_of_index, ", "), shape.text(extent), shape.text(host.shape))
  end
  return host
end

local function check_dtype(caller, name, kind)
  if name ~= kind.name then
    fail("%s: the function returned an array of dtype %s where %s is wanted", caller, name, kind.name)
  end
end

-- A plan needs a dtype and nothing else; with none given, one box tells it: the first in the mesh, for a planned job
-- is no process in particular.
local function plan_callback(caller, s, sizes, callback, kind)
  if not kind then
    local job, shard = current.info, ffi.new "shardrt_shard[1]"
    fail.check(C.shardrt_sharding_shard(s.handle, #sizes, shape.to_c(sizes), 0, job.devices_per_process, shard), caller)
    kind = dtype.named(caller, call_back(caller, callback, shard[0].box).dtype)
  end
  return finish(caller, array.new(caller, s, kind, sizes))
end

--- A global array from a function that is called once for each distinct part that this process's devices hold, with
--- its index {{start, stop}, …}, and returns that part: a host array, a number or a nested list. It may return the same
--- host array each time, filled anew. All parts must have one dtype, in all processes.
---@param global_shape integer[]
---@param s shardrt.Sharding
---@param callback fun(index: shardrt.Index): shardrt.Value
---@param dtype_name string? # left out: as the parts have it
---@return shardrt.Array
function words.make_array_from_callback(global_shape, s, callback, dtype_name)
  local caller = "make_array_from_callback"
  sharding.check(caller, s)
  local sizes = shape.check(caller, global_shape)
  if type(callback) ~= "function" then
    fail("%s: it takes a function that returns the part of an index, not %s", caller, list.show(callback))
  end
  local kind = dtype_name and dtype.named(caller, dtype_name)
  if current.info.planning ~= 0 then return plan_callback(caller, s, sizes, callback, kind) end

  local outline = array.new(caller, s, kind or dtype.named(caller, "bool"), sizes) -- for its boxes
  local buffers, next_block = {}, 0
  for i = 0, tonumber(C.shardrt_array_shard_count(outline.handle)) - 1 do
    local shard = C.shardrt_array_shard(outline.handle, i)
    if shard.block == next_block then -- blocks are numbered by first appearance
      local host = call_back(caller, callback, shard.box, kind and kind.name)
      kind = kind or dtype.named(caller, host.dtype)
      check_dtype(caller, host.dtype, kind)
      local copy = ndarray.empty(host.shape, host.dtype)
      ffi.copy(copy.data, host.data, host.bytes)
      buffers[next_block] = copy.buffer
      next_block = next_block + 1
    end
  end
  if not dtype_name then kind = consistency.on_dtype(caller, kind) end
  consistency.on_array(caller, kind, sizes, s)
  local x = array.new(caller, s, kind, sizes)
  for block = 0, next_block - 1 do array.set_block(caller, x, block, buffers[block]) end
  return finish(caller, x)
end

-- The arrays of a list by the id of the device that each is on.
local function by_device(caller, arrays)
  local job, found = current.info, {}
  if not list.length(arrays) or class.is(arrays) then
    fail("%s: it takes a list of arrays on single devices, not %s", caller, list.show(arrays))
  end
  for i, x in ipairs(arrays) do
    if not array.is(x) then
      fail("%s: entry %d of the list is %s; device_put to a device makes what is wanted", caller, i, list.show(x))
    end
    array.live(caller, x)
    local over = C.shardrt_sharding_mesh(x.sharding.handle)
    if C.shardrt_mesh_size(over) ~= 1 then
      fail("%s: entry %d of the list is on %d devices, not on a single one", caller, i,
        tonumber(C.shardrt_mesh_size(over)))
    end
    local on = device.get(C.shardrt_mesh_device(over, 0))
    if on.process_index ~= job.process_index then
      fail("%s: entry %d of the list is on %s; each process gives the arrays of its own devices only", caller, i,
        tostring(on))
    elseif found[on.id] then
      fail("%s: two entries of the list are on device %d; each device gives one", caller, on.id)
    end
    found[on.id] = x
  end
  return found
end

-- Devices that share a box had their own buffers; now known to be equal, they share the first one's, where they have no
-- memory of their own.
local function share_replicas(caller, x)
  if ffi.string(current.info.platform) ~= "host" then return end
  local first = {}
  for i = 0, tonumber(C.shardrt_array_shard_count(x.handle)) - 1 do
    local block = C.shardrt_array_shard(x.handle, i).block
    local buffer = C.shardrt_array_buffer(x.handle, i)
    if first[block] == nil then
      first[block] = buffer
    else
      fail.check(C.shardrt_array_set_buffer(x.handle, i, first[block]), caller)
    end
  end
end

-- Checks the entries of the list against the shards of `outline`; returns them in the shards' order, and their dtype.
local function match_shards(caller, outline, arrays)
  local found, ordered, kind = by_device(caller, arrays), {}, nil
  for i = 0, tonumber(C.shardrt_array_shard_count(outline.handle)) - 1 do
    local shard = C.shardrt_array_shard(outline.handle, i)
    local x, extent = found[shard.device], shape.extent_of(shard.box)
    if not x then
      fail("%s: no entry of the list is on device %d, which this process owns and the sharding has", caller,
        shard.device)
    elseif not shape.equal(x.shape, extent) then
      fail("%s: the array on device %d has shape %s; the sharding cuts %s into shards of %s", caller, shard.device,
        shape.text(x.shape), shape.text(outline.shape), shape.text(extent))
    end
    kind = kind or dtype.named(caller, x.dtype)
    if x.dtype ~= kind.name then
      fail("%s: the array on device %d has dtype %s, the one on device %d %s", caller, shard.device, x.dtype,
        ordered[1].sharding:addressable_devices()[1].id, kind.name)
    end
    ordered[i + 1], found[shard.device] = x, nil
  end
  local id = next(found)
  if id then fail("%s: an entry of the list is on device %d, which the sharding does not have", caller, id) end
  return ordered, kind
end

--- A global array from arrays on single devices (what device_put to a device makes): each of this process's devices in
--- the sharding gives one, in any order.
---@param global_shape integer[]
---@param s shardrt.Sharding
---@param arrays shardrt.Array[]
---@param dtype_name string? # left out: as the arrays have it, which a plan of a process without any cannot know
---@return shardrt.Array
function words.make_array_from_single_device_arrays(global_shape, s, arrays, dtype_name)
  local caller = "make_array_from_single_device_arrays"
  sharding.check(caller, s)
  local sizes = shape.check(caller, global_shape)
  local wanted = dtype_name and dtype.named(caller, dtype_name)
  local ordered, kind = match_shards(caller, array.new(caller, s, dtype.named(caller, "bool"), sizes), arrays)
  if wanted and kind and kind ~= wanted then
    fail("%s: the arrays have dtype %s where %s is wanted", caller, kind.name, wanted.name)
  end
  kind = wanted or consistency.on_dtype(caller, kind)
  if not kind then
    fail("%s: this process owns no device of the sharding, so a plan cannot know the dtype; give it, as the fourth "
      .. "argument", caller)
  end
  consistency.on_array(caller, kind, sizes, s)
  local x = array.new(caller, s, kind, sizes)
  local job = current.info
  if job.planning ~= 0 then return finish(caller, x) end
  for i, part in ipairs(ordered) do
    array.set_buffer(caller, x, i - 1, C.shardrt_array_buffer(part.handle, 0))
  end
  finish(caller, x)
  if job.check ~= C.SHARDRT_CHECK_OFF then share_replicas(caller, x) end
  return x
end

return make_array

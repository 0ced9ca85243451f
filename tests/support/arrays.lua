-- Arrays made through the C interface, for specs and for the recipes that they start (which need the tree's root on
-- their module path).

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local mesh = require("shardrt.layout.mesh").words
local sharding = require("shardrt.layout.sharding").words

local arrays = { P = require("shardrt.layout.spec").words.P }

--- How recipes begin that call C with such arrays: Lua text.
arrays.head = [[
package.path = "./?.lua;" .. package.path
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local arrays = require "tests.support.arrays"
local P = arrays.P
local job = current.info
]]

--- A named sharding: axis sizes, axis names, spec, device ids (nil: in order).
function arrays.sharding(sizes, names, spec, ids)
  return sharding.NamedSharding(ids and mesh.Mesh(sizes, names, ids) or mesh.make_mesh(sizes, names), spec)
end

--- An array without data.
function arrays.new(over, dtype, shape)
  local job = current.info
  local out = ffi.new "shardrt_array *[1]"
  fail.check(C.shardrt_array_new(over.handle, C["SHARDRT_" .. dtype:upper()], #shape,
    ffi.new("int64_t[?]", math.max(1, #shape), shape), job.process_index, job.devices_per_process, out))
  return ffi.gc(out[0], C.shardrt_array_free)
end

--- The same with the data of one host value (a pointer), one buffer for each distinct box.
function arrays.global(over, dtype, shape, value)
  local array = arrays.new(over, dtype, shape)
  fail.check(C.shardrt_array_fill_global(array, value))
  return array
end

--- What shard i (from 0) holds, on the host, for as long as the array lives.
function arrays.data(array, i)
  local out = ffi.new "void *[1]"
  fail.check(C.shardrt_buffer_host(C.shardrt_array_buffer(array, i), out))
  return out[0]
end

--- A copy in which every device has memory of its own, and one byte of one device's (an id; nil: none) is another.
function arrays.apart(array, over, dtype, shape, device)
  local copy = arrays.new(over, dtype, shape)
  local bytes = C.shardrt_array_shard_bytes(array)
  for i = 0, tonumber(C.shardrt_array_shard_count(array)) - 1 do
    local out = ffi.new "shardrt_buffer *[1]"
    fail.check(C.shardrt_buffer_new(bytes, out))
    local buffer = ffi.gc(out[0], C.shardrt_buffer_free)
    local data = ffi.cast("uint8_t *", C.shardrt_buffer_data(buffer))
    ffi.copy(data, arrays.data(array, i), bytes)
    if C.shardrt_array_shard(array, i).device == device then
      local last = tonumber(bytes) - 1
      data[last] = (data[last] + 1) % 256
    end
    fail.check(C.shardrt_array_set_buffer(copy, i, buffer))
  end
  return copy
end

return arrays

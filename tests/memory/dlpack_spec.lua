-- Shards as DLPack's tensors: what the standard says of every field, how long they live, and what streams wait for.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local arrays = require "tests.support.arrays"
local expect = require "tests.support.expect"
local mpi = require "tests.support.mpi"
local platform = require "tests.support.platform"

-- As it stands in the standard's dlpack.h.
local STANDARD = [[
typedef struct { uint32_t major; uint32_t minor; } DLPackVersion;
typedef enum { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;
typedef struct { DLDeviceType device_type; int32_t device_id; } DLDevice;
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U, kDLBfloat = 4U, kDLBool = 6U } DLDataTypeCode;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
  void *data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t *shape; int64_t *strides; uint64_t byte_offset;
} DLTensor;
struct DLManagedTensor {
  DLTensor dl_tensor; void *manager_ctx; void (*deleter)(struct DLManagedTensor *self);
};
struct DLManagedTensorVersioned {
  DLPackVersion version; void *manager_ctx; void (*deleter)(struct DLManagedTensorVersioned *self); uint64_t flags;
  DLTensor dl_tensor;
};
]]
ffi.cdef(STANDARD)

local P = arrays.P
local host_only = platform.host_only(it, pending, "the addresses are the host's")

local function message() return ffi.string(C.shardrt_error_message()) end

local function check(code) assert(code >= 0, message()) end

local function lend(array, i, stream)
  local out = ffi.new "struct DLManagedTensorVersioned *[1]"
  local code = C.shardrt_array_dlpack(array, i, stream, out)
  return code >= 0 and out[0] or nil, code
end

local function list(numbers, count)
  local values = {}
  for i = 1, count do values[i] = tonumber(numbers[i - 1]) end
  return values
end

-- As DLPack means it: the element at an index is where the strides say.
local function values(tensor, kind)
  local data, found = ffi.cast(kind .. " *", ffi.cast("char *", tensor.data) + tensor.byte_offset), {}
  local function walk(d, at)
    if d == tensor.ndim then
      found[#found + 1] = tonumber(data[at])
      return
    end
    for i = 0, tonumber(tensor.shape[d]) - 1 do walk(d + 1, at + i * tensor.strides[d]) end
  end
  walk(0, 0)
  return found
end

describe("a shard as DLPack's tensor", function()
  local whole = ffi.new("int32_t[24]", {})
  for i = 0, 23 do whole[i] = 100 + i end
  local one = arrays.sharding({ 1 }, { "d" }, P())

  host_only("is the shard's own memory, compact and read-only", function()
    local x = arrays.global(one, "int32", { 2, 3, 4 }, whole)
    local managed = assert(lend(x, 0))
    local tensor = managed.dl_tensor
    assert.same({ 1, 0 }, { managed.version.major, managed.version.minor })
    assert.equal(1, tonumber(managed.flags)) -- DLPACK_FLAG_BITMASK_READ_ONLY
    assert.truthy(tensor.data == C.shardrt_buffer_data(C.shardrt_array_buffer(x, 0)))
    assert.truthy(tensor.data == C.shardrt_array_host_data(x, 0))
    assert.falsy(C.shardrt_array_layout(x) == C.shardrt_array_layout(arrays.global(one, "int32", { 2, 3, 4 }, whole)))
    assert.same({ 1, 0, 3, 0 }, { tonumber(tensor.device.device_type), tensor.device.device_id, tensor.ndim,
      tonumber(tensor.byte_offset) })
    assert.same({ 2, 3, 4 }, list(tensor.shape, 3))
    assert.same({ 12, 4, 1 }, list(tensor.strides, 3))
    assert.same(list(whole, 24), values(tensor, "int32_t"))
    managed.deleter(managed)
  end)

  host_only("has the form from before 1.0 for who asks for it", function()
    local x, out = arrays.global(one, "int32", { 6, 4 }, whole), ffi.new "struct DLManagedTensor *[1]"
    check(C.shardrt_array_dlpack_legacy(x, 0, nil, out))
    assert.same({ 4, 1 }, list(out[0].dl_tensor.strides, 2))
    assert.same(list(whole, 24), values(out[0].dl_tensor, "int32_t"))
    assert.truthy(out[0].dl_tensor.data == C.shardrt_buffer_data(C.shardrt_array_buffer(x, 0)))
    out[0].deleter(out[0])
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_array_dlpack_legacy(x, 1, nil, out))
  end)

  host_only("is what its device holds of an array that is cut", function()
    local cut = arrays.sharding({ 2, 2 }, { "a", "b" }, P(nil, "b", "a"))
    local x = arrays.global(cut, "int32", { 2, 6, 2 }, whole)
    for i = 0, tonumber(C.shardrt_array_shard_count(x)) - 1 do
      local managed, box = assert(lend(x, i)), C.shardrt_array_shard(x, i).box
      local wanted = {}
      for a = 0, 1 do
        for b = tonumber(box.start[1]), tonumber(box.stop[1]) - 1 do
          for c = tonumber(box.start[2]), tonumber(box.stop[2]) - 1 do
            wanted[#wanted + 1] = whole[a * 12 + b * 2 + c]
          end
        end
      end
      assert.equal(6, #wanted)
      assert.same({ 2, 3, 1 }, list(managed.dl_tensor.shape, 3))
      assert.same(wanted, values(managed.dl_tensor, "int32_t"))
      managed.deleter(managed)
    end
  end)

  it("has a word for every dtype", function()
    local words = {
      bool = { 6, 8 }, int8 = { 0, 8 }, int16 = { 0, 16 }, int32 = { 0, 32 }, int64 = { 0, 64 }, uint8 = { 1, 8 },
      uint16 = { 1, 16 }, uint32 = { 1, 32 }, uint64 = { 1, 64 }, float16 = { 2, 16 }, bfloat16 = { 4, 16 },
      float32 = { 2, 32 }, float64 = { 2, 64 },
    }
    local zeros, count = ffi.new "int64_t[2]", 0
    for name, word in pairs(words) do
      local managed = assert(lend(arrays.global(one, name, { 2 }, zeros), 0))
      local dtype = managed.dl_tensor.dtype
      assert.same({ word[1], word[2], 1 }, { dtype.code, dtype.bits, dtype.lanes }, name)
      managed.deleter(managed)
      count = count + 1
    end
    assert.equal(C.SHARDRT_DTYPE_COUNT, count)
  end)

  it("may have no dimension, or no element, and then no address", function()
    local scalar = assert(lend(arrays.global(one, "int32", {}, whole), 0))
    assert.equal(0, scalar.dl_tensor.ndim)
    assert.truthy(scalar.dl_tensor.data ~= nil and scalar.dl_tensor.strides ~= nil)
    scalar.deleter(scalar)
    local empty = assert(lend(arrays.global(one, "int32", { 3, 0 }, whole), 0))
    assert.same({ 3, 0 }, list(empty.dl_tensor.shape, 2))
    assert.truthy(empty.dl_tensor.data == nil)
    empty.deleter(empty)
  end)

  host_only("outlives the array, and gives its buffer back once", function()
    local calls, out = 0, ffi.new "shardrt_buffer *[1]"
    local release = ffi.cast("void (*)(void *, void *, size_t)", function() calls = calls + 1 end)
    check(C.shardrt_buffer_wrap(whole, 96, release, nil, out))
    local x = arrays.new(one, "int32", { 24 })
    check(C.shardrt_array_set_buffer(x, 0, out[0]))
    C.shardrt_buffer_free(out[0])
    local first, second = assert(lend(x, 0)), assert(lend(x, 0))
    C.shardrt_array_free(ffi.gc(x, nil))
    first.deleter(first)
    assert.equal(0, calls)
    assert.truthy(second.dl_tensor.data == ffi.cast("void *", whole))
    second.deleter(second)
    assert.equal(1, calls)
    release:free()
  end)

  it("is refused where there is none", function()
    local x = arrays.global(one, "int32", { 24 }, whole)
    for _, i in ipairs { -1, 1, 2 ^ 40 } do
      local managed, code = lend(x, i)
      assert.is_nil(managed)
      assert.equal(C.SHARDRT_EINVAL, code)
      expect.contains(message(), "this process has 1 of the array, counted from 0")
    end
    local _, code = lend(arrays.new(one, "int32", { 24 }), 0)
    assert.equal(C.SHARDRT_EDATA, code)
    C.shardrt_alloc_fail_at(1)
    _, code = lend(x, 0)
    C.shardrt_alloc_fail_at(0)
    assert.equal(C.SHARDRT_ENOMEM, code)
  end)

  host_only("has no stream in the host's memory", function()
    local x = arrays.global(one, "int32", { 24 }, whole)
    local _, code = lend(x, 0, ffi.cast("void *", 1))
    assert.equal(C.SHARDRT_EINVAL, code)
    expect.contains(message(), "NULL would do, which is None in Python")
    local managed = assert(lend(x, 0, ffi.cast("void *", -1)))
    managed.deleter(managed)
  end)
end)

-- On the stand-in, where nothing runs before somebody waits for it, and a stream of the recipe's own is the consumer's.
local head = 'package.path = "./?.lua;" .. package.path\nlocal ffi = require "ffi"\nffi.cdef [=[' .. STANDARD .. [[
  int cudaStreamCreateWithFlags(void **stream, unsigned flags);
  int cudaStreamSynchronize(void *stream);
  int cudaSetDevice(int gpu);
  int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);
  int cudaHostAlloc(void **out, size_t bytes, unsigned flags);
  void _exit(int status);
  ]=]
  local shardrt, C = require "shardrt", require "shardrt.base.ffi"
  local cuda = ffi.load((os.getenv "SHARDRT_CUDA_PLUGIN":gsub("[^/]*$", "", 1)) .. "libstandin.so")
  local function well(code) assert(code == 0, code .. ": " .. ffi.string(C.shardrt_error_message())) end
  local function lend(x, i, stream)
    local out = ffi.new "struct DLManagedTensorVersioned *[1]"
    well(C.shardrt_array_dlpack(x.handle, i, stream, out))
    return out[0]
  end
  local function put(value, device)
    return shardrt.device_put(shardrt.ndarray.full({ 25000 }, value, "int32"), shardrt.devices()[device])
  end
  local pinned = ffi.new "void *[1]"
  well(cuda.cudaSetDevice(0))
  well(cuda.cudaHostAlloc(pinned, 100000, 0))
  local got = ffi.cast("int32_t *", pinned[0])
  local function streams()
    local made = ffi.new "void *[1]"
    well(cuda.cudaStreamCreateWithFlags(made, 1))
    return { made[0], ffi.cast("void *", 1), ffi.cast("void *", nil) }
  end
  -- Puts a copy of the tensor to the host on the consumer's stream.
  local function read(tensor, stream)
    local on = stream == nil and ffi.cast("void *", 1) or stream
    well(cuda.cudaMemcpyAsync(pinned[0], tensor.dl_tensor.data, 100000, 2, on))
    return on
  end
  local function is(value)
    for i = 0, 24999 do assert(got[i] == value, i .. ": " .. got[i] .. ", not " .. value) end
  end
]]

local function on_gpus(source)
  local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"
  return expect.well(mpi.run { source = head .. source, devices = 2, limit = 120, options = { "--platform", "cuda" },
    env = { SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = 2, STANDIN_MEMORY = 2 ^ 22,
      STANDIN_SEED = require "tests.support.seed" % 1000 } })
end

describe("a GPU's shard as DLPack's tensor", function()
  it("lies on that GPU", function()
    on_gpus [[
      for device = 1, 2 do
        local x = put(device, device)
        local tensor = lend(x, 0)
        assert(tensor.dl_tensor.device.device_type == 2 and tensor.dl_tensor.device.device_id == device - 1)
        assert(tensor.dl_tensor.data == C.shardrt_buffer_data(C.shardrt_array_buffer(x.handle, 0)))
        assert(C.shardrt_array_host_data(x.handle, 0) == nil)
        assert(tonumber(tensor.flags) == 1)
        tensor.deleter(tensor)
      end
    ]]
  end)

  it("is there when the consumer's stream comes to it", function()
    on_gpus [[
      for turn, stream in ipairs(streams()) do
        local x = put(turn, 1)
        local tensor = lend(x, 0, stream)
        well(cuda.cudaStreamSynchronize(read(tensor, stream)))
        is(turn)
        tensor.deleter(tensor)
      end
    ]]
  end)

  it("stays until the consumer's stream is done with it", function()
    on_gpus [[
      local own = streams()
      local kept = {}
      for turn, stream in ipairs(own) do
        local x = put(turn, 1)
        local tensor = lend(x, 0, stream)
        local on = read(tensor, stream)
        C.shardrt_array_free(ffi.gc(x.handle, nil))
        kept[turn] = x -- whose handle is gone
        local address = tensor.dl_tensor.data
        tensor.deleter(tensor)
        local is_used_again = false
        for other = 1, 30 do -- more than there is memory for
          local y = put(100 + other, 1)
          well(C.shardrt_array_wait(y.handle))
          is_used_again = is_used_again or C.shardrt_buffer_data(C.shardrt_array_buffer(y.handle, 0)) == address
          kept[#kept + 1] = other < 20 and y or nil
        end
        assert(is_used_again)
        well(cuda.cudaStreamSynchronize(on))
        is(turn)
        kept = {}
        collectgarbage()
      end
    ]]
  end)

  it("without order is the consumer's to wait for", function()
    on_gpus [[
      local x, own = put(7, 1), streams()[1]
      well(C.shardrt_array_wait(x.handle))
      local tensor = lend(x, 0, ffi.cast("void *", -1))
      well(cuda.cudaStreamSynchronize(read(tensor, own)))
      is(7)
      tensor.deleter(tensor)
    ]]
  end)

  it("outlives the job, and with the last one the GPU's memory is given back", function()
    local result = on_gpus [[
      local current = require "shardrt.base.current"
      well(cuda.cudaSetDevice(1))
      local x, own = put(9, 2), streams()[1]
      local first, second = lend(x, 0, own), lend(x, 0, own)
      C.shardrt_array_free(ffi.gc(x.handle, nil))
      ffi.C.shardrt_job_abandon(current.job)
      first.deleter(first)
      assert(C.shardrt_device_memory() > 0)
      well(cuda.cudaSetDevice(1))
      well(cuda.cudaStreamSynchronize(read(second, own)))
      is(9)
      second.deleter(second)
      assert(C.shardrt_device_memory() == 0)
      io.stdout:write "well"
      io.stdout:flush()
      ffi.C._exit(0) -- as the program has no job to leave
    ]]
    assert.equal("well", result.output)
  end)
end)

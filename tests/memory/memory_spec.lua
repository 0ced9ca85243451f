-- The memory room through its C functions: copies of boxes, arrays as any process of any job sees them, the pool.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"

ffi.cdef [[
struct buffer_pool;
int buffer_pool_new(size_t keep_bytes, struct buffer_pool **out);
void buffer_pool_free(struct buffer_pool *pool);
int buffer_pool_take(struct buffer_pool *pool, size_t bytes, shardrt_buffer **out);
size_t buffer_pool_outstanding(const struct buffer_pool *pool);
]]

local seed = require "tests.support.seed"
local no_memory = require "tests.support.no_memory"
math.randomseed(seed)
local random = math.random

-- Memory of the devices' own: no replicas that share a buffer, and no devices but those of the job.
local on_host = require("shardrt").devices()[1].platform == "host"

local function message() return ffi.string(C.shardrt_error_message()) end

local function check(code) assert(code >= 0, message()) end

local function numbers(list) return ffi.new("int64_t[?]", #list + 1, list) end

local function product(list)
  local p = 1
  for _, n in ipairs(list) do p = p * n end
  return p
end

-- Calls f with every position of a box of that extent (from 0), the last dimension fastest.
local function each(extent, f)
  local at = {}
  local function walk(d)
    if d > #extent then return f(at) end
    for i = 0, extent[d] - 1 do
      at[d] = i
      walk(d + 1)
    end
  end
  walk(1)
end

-- The row-major number of a position, plus an offset in each dimension.
local function flat(shape, start, at)
  local index = 0
  for d = 1, #shape do index = index * shape[d] + start[d] + at[d] end
  return index
end

describe("a dtype", function()
  it("has a name and a size, both ways", function()
    local sizes = { bool = 1, int8 = 1, int16 = 2, int32 = 4, int64 = 8, uint8 = 1, uint16 = 2, uint32 = 4, uint64 = 8,
      float16 = 2, bfloat16 = 2, float32 = 4, float64 = 8 }
    local count = 0
    for name, size in pairs(sizes) do
      local code = C.shardrt_dtype_from_name(name)
      assert.equal(name, ffi.string(C.shardrt_dtype_name(code)))
      assert.equal(size, tonumber(C.shardrt_dtype_size(code)))
      count = count + 1
    end
    assert.equal(C.SHARDRT_DTYPE_COUNT, count)
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_dtype_from_name("float"))
    assert.truthy(message():find("bfloat16"))
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_dtype_from_name(nil))
    assert.truthy(C.shardrt_dtype_name(13) == nil and C.shardrt_dtype_name(-1) == nil)
    assert.equal(0, tonumber(C.shardrt_dtype_size(13)))
  end)
end)

describe("a buffer", function()
  it("is aligned, of its size, and zeros where asked for", function()
    for _, bytes in ipairs { 0, 1, 63, 64, 65, 1e5, 1e6 } do
      for _, make in ipairs { C.shardrt_buffer_new, C.shardrt_buffer_zeros } do
        local out = ffi.new "shardrt_buffer *[1]"
        check(make(bytes, out))
        local data = ffi.cast("uint8_t *", C.shardrt_buffer_data(out[0]))
        assert.equal(0, tonumber(ffi.cast("uintptr_t", data) % 64))
        assert.equal(bytes, tonumber(C.shardrt_buffer_bytes(out[0])))
        if make == C.shardrt_buffer_zeros then
          for i = 0, bytes - 1 do assert(data[i] == 0) end
        end
        ffi.fill(data, bytes, 0xff)
        C.shardrt_buffer_free(C.shardrt_buffer_retain(out[0]))
        assert.equal(bytes, tonumber(C.shardrt_buffer_bytes(out[0])))
        C.shardrt_buffer_free(out[0])
      end
    end
    C.shardrt_buffer_free(nil)
  end)

  it("around the caller's memory is that memory, and gives it back once, with the last count", function()
    local data, out = ffi.new "int32_t[4]", ffi.new "shardrt_buffer *[1]"
    local context, calls = ffi.new "int[1]", {}
    local release = ffi.cast("void (*)(void *, void *, size_t)", function(...) calls[#calls + 1] = { ... } end)
    C.shardrt_alloc_fail_at(1)
    assert.equal(C.SHARDRT_ENOMEM, C.shardrt_buffer_wrap(data, 16, release, context, out))
    C.shardrt_alloc_fail_at(0)
    assert.truthy(out[0] == nil)
    check(C.shardrt_buffer_wrap(data, 16, release, context, out))
    local buffer, seen = out[0], ffi.new "void *[1]"
    assert.truthy(C.shardrt_buffer_data(buffer) == ffi.cast("void *", data))
    check(C.shardrt_buffer_host(buffer, seen))
    assert.truthy(seen[0] == ffi.cast("void *", data))
    assert.equal(16, tonumber(C.shardrt_buffer_bytes(buffer)))
    assert.equal(-1, C.shardrt_buffer_device(buffer))
    C.shardrt_buffer_free(C.shardrt_buffer_retain(buffer))
    assert.equal(0, #calls)
    C.shardrt_buffer_free(buffer)
    assert.equal(1, #calls)
    assert.truthy(calls[1][1] == ffi.cast("void *", context) and calls[1][2] == ffi.cast("void *", data))
    assert.equal(16, tonumber(calls[1][3]))
    release:free()
    check(C.shardrt_buffer_wrap(data, 16, nil, nil, out))
    C.shardrt_buffer_free(out[0])
  end)

  it("of an absurd size is an error", function()
    local out = ffi.new "shardrt_buffer *[1]"
    for _, bytes in ipairs { 0xffffffffffffffffULL, 0x7fffffffffffffffULL } do
      assert.equal(C.SHARDRT_ENOMEM, C.shardrt_buffer_new(bytes, out))
      assert.equal(C.SHARDRT_ENOMEM, C.shardrt_buffer_zeros(bytes, out))
      assert.truthy(out[0] == nil)
    end
  end)
end)

describe("a copy of a box", function()
  it("agrees with one element at a time, for random boxes", function()
    for _ = 1, 400 do
      local ndim, element = random(0, 5), ({ 1, 2, 3, 4, 8, 16 })[random(6)]
      local extent, from_shape, to_shape, from, to = {}, {}, {}, {}, {}
      for d = 1, ndim do
        extent[d] = random(random(0, 3) == 0 and 0 or 1, 5)
        from_shape[d], to_shape[d] = extent[d], extent[d]
        if random(2) == 1 then from_shape[d] = extent[d] + random(0, 3) end
        if random(2) == 1 then to_shape[d] = extent[d] + random(0, 3) end
        from[d], to[d] = random(0, from_shape[d] - extent[d]), random(0, to_shape[d] - extent[d])
      end
      local source_bytes, target_bytes = product(from_shape) * element, product(to_shape) * element
      local source, target = ffi.new("uint8_t[?]", source_bytes + 1), ffi.new("uint8_t[?]", target_bytes + 1)
      local expected = ffi.new("uint8_t[?]", target_bytes + 1)
      for i = 0, source_bytes - 1 do source[i] = random(0, 255) end
      for i = 0, target_bytes do
        target[i] = 170
        expected[i] = 170
      end
      each(extent, function(at)
        ffi.copy(expected + flat(to_shape, to, at) * element, source + flat(from_shape, from, at) * element, element)
      end)
      check(C.shardrt_box_copy(ndim, element, numbers(extent), target, numbers(to_shape), numbers(to), source,
        numbers(from_shape), numbers(from)))
      assert(ffi.string(expected, target_bytes + 1) == ffi.string(target, target_bytes + 1))
    end
  end)

  it("that leaves an array is refused", function()
    local data = ffi.new "uint8_t[64]"
    local function copy(extent, to_shape, to, from_shape, from)
      return C.shardrt_box_copy(2, 1, numbers(extent), data, numbers(to_shape), numbers(to), data + 32,
        numbers(from_shape), numbers(from))
    end
    assert.equal(0, copy({ 2, 2 }, { 4, 4 }, { 2, 2 }, { 2, 2 }, { 0, 0 }))
    for _, wrong in ipairs {
      { { 3, 2 }, { 4, 4 }, { 2, 2 }, { 4, 4 }, { 0, 0 } }, { { 2, 2 }, { 4, 4 }, { 2, 2 }, { 2, 1 }, { 0, 0 } },
      { { 2, -1 }, { 4, 4 }, { 0, 0 }, { 4, 4 }, { 0, 0 } }, { { 2, 2 }, { 4, 4 }, { 0, -1 }, { 4, 4 }, { 0, 0 } },
      { { 1, 1 }, { 4, 4 }, { 0, 0 }, { 4, 4 }, { 0, 2 ^ 62 } },
    } do
      assert.equal(C.SHARDRT_EINVAL, copy(unpack(wrong)))
      assert.truthy(message():find "leaves the")
    end
    assert.equal(C.SHARDRT_EOVERFLOW, copy({ 1, 1 }, { 2 ^ 40, 2 ^ 40 }, { 0, 0 }, { 4, 4 }, { 0, 0 }))
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_box_copy(9, 1, nil, nil, nil, nil, nil, nil, nil))
  end)
end)

-- A random mesh, sharding and shape for a job of processes * devices; all handles are collected.
local function random_layout(processes, devices)
  local axes, sizes, names, size = random(1, 3), {}, {}, 1
  local total = processes * devices
  for a = 1, axes do
    local choices = {}
    for n = 1, total do
      if size * n <= total then choices[#choices + 1] = n end
    end
    sizes[a], names[a] = choices[random(math.min(#choices, 4))], "axis" .. a
    size = size * sizes[a]
  end
  local ids = {}
  for i = 1, total do ids[i] = i - 1 end
  for i = total, 2, -1 do
    local j = random(i)
    ids[i], ids[j] = ids[j], ids[i]
  end
  local mesh, sharding = ffi.new "shardrt_mesh *[1]", ffi.new "shardrt_sharding *[1]"
  check(C.shardrt_mesh_new(axes, numbers(sizes), ffi.new("const char *[?]", axes, names), size,
    ffi.new("int32_t[?]", total, ids), total, mesh))
  local ndim = random(1, 3)
  local counts, used, cuts, place = {}, {}, {}, {}
  for a = 1, axes do place[a] = random(0, ndim) end
  for d = 1, ndim do
    counts[d], cuts[d] = 0, 1
    for a = 1, axes do
      if place[a] == d then
        counts[d], cuts[d] = counts[d] + 1, cuts[d] * sizes[a]
        used[#used + 1] = names[a]
      end
    end
  end
  check(C.shardrt_sharding_new(mesh[0], ndim, ffi.new("int32_t[?]", ndim, counts),
    ffi.new("const char *[?]", #used + 1, used), sharding))
  C.shardrt_mesh_free(mesh[0])
  local shape = {}
  for d = 1, ndim do shape[d] = cuts[d] * random(random(8) == 1 and 0 or 1, 3) end
  return ffi.gc(sharding[0], C.shardrt_sharding_free), shape
end

local function new_array(sharding, shape, process, devices)
  local out = ffi.new "shardrt_array *[1]"
  local code = C.shardrt_array_new(sharding, C.SHARDRT_INT32, #shape, numbers(shape), process, devices, out)
  return code, code == 0 and ffi.gc(out[0], C.shardrt_array_free)
end

-- Whether every shard holds what a global arange has there, and replicas share a buffer.
local function holds_arange(array, shape)
  local buffers = {}
  for i = 0, tonumber(C.shardrt_array_shard_count(array)) - 1 do
    local shard, buffer = C.shardrt_array_shard(array, i), C.shardrt_array_buffer(array, i)
    local host = ffi.new "void *[1]"
    check(C.shardrt_buffer_host(buffer, host))
    local data = ffi.cast("int32_t *", host[0])
    local start, extent = {}, {}
    for d = 1, #shape do
      start[d] = tonumber(shard.box.start[d - 1])
      extent[d] = tonumber(shard.box.stop[d - 1]) - start[d]
    end
    assert(tonumber(C.shardrt_buffer_bytes(buffer)) == product(extent) * 4)
    local k = 0
    each(extent, function(at)
      assert(data[k] == flat(shape, start, at))
      k = k + 1
    end)
    assert(buffers[shard.block] == nil or (buffers[shard.block] == buffer) == on_host)
    buffers[shard.block] = buffer
  end
end

local function arange(count)
  local data = ffi.new("int32_t[?]", count + 1)
  for i = 0, count - 1 do data[i] = i end
  return data
end

-- What a process gives of a global arange: in each dimension all of it, or its devices' ranges, packed, ascending.
local function local_part(array, shape, whole)
  local ranges, sizes = {}, {}
  for d = 1, #shape do
    local starts, seen = {}, {}
    for i = 0, tonumber(C.shardrt_array_shard_count(array)) - 1 do
      local box = C.shardrt_array_shard(array, i).box
      local start = tonumber(box.start[d - 1])
      if not seen[start] then
        seen[start] = true
        starts[#starts + 1] = { start, tonumber(box.stop[d - 1]) }
      end
    end
    table.sort(starts, function(a, b) return a[1] < b[1] end)
    if whole[d] then starts = { { 0, shape[d] } } end
    ranges[d] = {}
    for _, range in ipairs(starts) do
      for i = range[1], range[2] - 1 do table.insert(ranges[d], i) end
    end
    sizes[d] = #ranges[d]
  end
  local data, k = ffi.new("int32_t[?]", product(sizes) + 1), 0
  each(sizes, function(at)
    local index = 0
    for d = 1, #shape do index = index * shape[d] + ranges[d][at[d] + 1] end
    data[k] = index
    k = k + 1
  end)
  return sizes, data
end

describe("an array", function()
  it("is filled from the whole value, and from a process's part, as any process of any job", function()
    for _ = 1, 150 do
      local processes, devices = random(1, 5), random(1, 6)
      local sharding, shape = random_layout(processes, devices)
      local value = arange(product(shape))
      for process = 0, processes - 1 do
        local code, array = new_array(sharding, shape, process, devices)
        check(code)
        check(C.shardrt_array_fill_global(array, value))
        holds_arange(array, shape)
        local whole = {}
        for d = 1, #shape do whole[d] = random(3) == 1 end
        local again = select(2, new_array(sharding, shape, process, devices))
        local sizes, part = local_part(array, shape, whole)
        if C.shardrt_array_shard_count(array) == 0 then sizes = shape end
        check(C.shardrt_array_fill_local(again, numbers(sizes), part))
        holds_arange(again, shape)
      end
    end
  end)

  it("gives its whole value back where one process has all of it", function()
    for _ = 1, 50 do
      local sharding, shape = random_layout(1, 8)
      local array = select(2, new_array(sharding, shape, 0, 8))
      local count = product(shape)
      local value, back = arange(count), ffi.new("int32_t[?]", count + 1)
      assert.equal(C.SHARDRT_EDATA, C.shardrt_array_gather(array, back))
      check(C.shardrt_array_fill_global(array, value))
      check(C.shardrt_array_gather(array, back))
      assert(ffi.string(value, count * 4) == ffi.string(back, count * 4))
    end
  end)

  it("refuses a part of another size, naming the dimension and the sizes that would do", function()
    local mesh, sharding = ffi.new "shardrt_mesh *[1]", ffi.new "shardrt_sharding *[1]"
    check(C.shardrt_mesh_new(1, numbers { 8 }, ffi.new("const char *[1]", { "x" }), 0, nil, 8, mesh))
    check(C.shardrt_sharding_new(mesh[0], 2, ffi.new("int32_t[2]", { 0, 1 }), ffi.new("const char *[1]", { "x" }),
      sharding))
    C.shardrt_mesh_free(mesh[0])
    ffi.gc(sharding[0], C.shardrt_sharding_free)
    local array = select(2, new_array(sharding[0], { 3, 32 }, 1, 2))
    local data = arange(96)
    for _, wrong in ipairs { 0, 4, 16, 31, 64 } do
      assert.equal(C.SHARDRT_EINVAL, C.shardrt_array_fill_local(array, numbers { 3, wrong }, data))
      assert.truthy(message():find("dimension 1 of the process-local data has size " .. wrong .. ",", 1, true))
      assert.truthy(message():find("it must be 8 (these, packed) or 32 (the whole dimension)", 1, true), message())
      assert.truthy(C.shardrt_array_buffer(array, 0) == nil)
    end
    check(C.shardrt_array_fill_local(array, numbers { 3, 8 }, data))
    local back = ffi.new "int32_t[96]"
    assert.equal(C.SHARDRT_EDATA, C.shardrt_array_gather(array, back))
    assert.truthy(message():find("this process's devices hold 96 of the array's 384 bytes", 1, true), message())

    local buffer = ffi.new "shardrt_buffer *[1]"
    check(C.shardrt_buffer_new(47, buffer))
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_array_set_buffer(array, 0, buffer[0]))
    assert.truthy(message():find("device 2's shard has 48 bytes, not 47", 1, true), message())
    C.shardrt_buffer_free(buffer[0])

    assert.equal(C.SHARDRT_EINVAL, (new_array(sharding[0], { 3, 31 }, 0, 2)))
    assert.equal(C.SHARDRT_EINVAL, (new_array(sharding[0], { 3, -8 }, 0, 2)))
    assert.equal(C.SHARDRT_EOVERFLOW, (new_array(sharding[0], { 2 ^ 40, 2 ^ 40 }, 0, 2)))
    local out = ffi.new "shardrt_array *[1]"
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_array_new(sharding[0], 13, 1, numbers { 8 }, 0, 2, out))
    assert.equal(C.SHARDRT_EINVAL,
      C.shardrt_array_new(sharding[0], 1, 9, numbers { 8, 1, 1, 1, 1, 1, 1, 1, 1 }, 0, 2, out))
    C.shardrt_array_free(nil)
  end)

  it("frees what it took wherever an allocation fails", function()
    local sharding, shape = random_layout(1, on_host and 24 or 8) -- 24 are not found at the first attempt
    local value = arange(product(shape))
    local function make()
      local code, array = new_array(sharding, shape, 0, 24)
      if code < 0 then return code end
      code = C.shardrt_array_fill_global(array, value)
      if code < 0 then return code end
      return C.shardrt_array_fill_local(array, numbers(shape), value)
    end
    assert.truthy(no_memory.each(make) >= 6)
  end)
end)

describe("the pool", function()
  local function new_pool(keep)
    local out = ffi.new "struct buffer_pool *[1]"
    check(C.buffer_pool_new(keep, out))
    return out[0]
  end

  local function take(pool, bytes)
    local out = ffi.new "shardrt_buffer *[1]"
    check(C.buffer_pool_take(pool, bytes, out))
    assert.equal(bytes, tonumber(C.shardrt_buffer_bytes(out[0])))
    return out[0], tonumber(ffi.cast("uintptr_t", C.shardrt_buffer_data(out[0])))
  end

  it("uses memory of the same size again, and counts what is out", function()
    local pool = new_pool(3000)
    local a, at_a = take(pool, 1000)
    local b, at_b = take(pool, 2000)
    assert.equal(3000, tonumber(C.buffer_pool_outstanding(pool)))
    C.shardrt_buffer_free(C.shardrt_buffer_retain(a))
    C.shardrt_buffer_free(a)
    C.shardrt_buffer_free(b)
    assert.equal(0, tonumber(C.buffer_pool_outstanding(pool)))
    local again_b, again_at_b = take(pool, 2000)
    local again_a, again_at_a = take(pool, 1000)
    assert.same({ at_a, at_b }, { again_at_a, again_at_b })
    C.shardrt_buffer_free(again_a)
    C.shardrt_buffer_free(again_b)
    C.buffer_pool_free(pool)
    C.buffer_pool_free(nil)
  end)

  it("lives until its last buffer comes back", function()
    local pool = new_pool(1e6)
    local a, at = take(pool, 4096)
    local zero = take(pool, 0)
    ffi.fill(ffi.cast("void *", at), 4096, 7)
    C.buffer_pool_free(pool)
    assert.equal(7, ffi.cast("uint8_t *", at)[4095])
    C.shardrt_buffer_free(zero)
    C.shardrt_buffer_free(a)
  end)

  it("frees what it took wherever an allocation fails", function()
    local function run()
      local out, buffer = ffi.new "struct buffer_pool *[1]", ffi.new "shardrt_buffer *[1]"
      local code = C.buffer_pool_new(1e6, out)
      if code < 0 then return code end
      for _ = 1, 2 do
        code = C.buffer_pool_take(out[0], 100, buffer)
        if code < 0 then
          assert.equal(0, tonumber(C.buffer_pool_outstanding(out[0])))
          break
        end
        C.shardrt_buffer_free(buffer[0])
      end
      C.buffer_pool_free(out[0])
      return code
    end
    assert.truthy(no_memory.each(run) >= 5)
  end)
end)

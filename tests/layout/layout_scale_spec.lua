-- What a layout costs, in allocations and bytes and never in seconds: a mesh of 2^20 devices as much as one of 8. And
-- every way out when an allocation fails.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local layout = require "tests.support.layout"
local no_memory = require "tests.support.no_memory"

ffi.cdef [[
struct layout_mallinfo {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct layout_mallinfo mallinfo2(void);
]]

local LARGE = 2 ^ 20

local function names_of(list) return ffi.new("const char *[?]", #list + 1, list) end

local function new_mesh(sizes, names, ids)
  local out = ffi.new "shardrt_mesh *[1]"
  local code = C.shardrt_mesh_new(#sizes, ffi.new("int64_t[?]", #sizes, sizes), names_of(names), ids and #ids or 0,
    ids and ffi.new("int32_t[?]", #ids, ids), LARGE, out)
  return code, out[0]
end

local function new_sharding(mesh, entries)
  local counts, names = {}, {}
  for d, entry in ipairs(entries) do
    counts[d] = #entry
    for _, name in ipairs(entry) do names[#names + 1] = name end
  end
  local out = ffi.new "shardrt_sharding *[1]"
  local code = C.shardrt_sharding_new(mesh, #counts, ffi.new("int32_t[?]", #counts + 1, counts), names_of(names), out)
  return code, out[0]
end

-- Bytes in use on the heap (0 under a sanitizer, which has a heap of its own).
local function heap()
  local info = C.mallinfo2()
  return tonumber(info.uordblks + info.hblkhd)
end

-- What `call` costs: how many allocations it makes, and how many bytes stay in use while it holds its result.
local function cost(call)
  collectgarbage()
  collectgarbage "stop"
  local before = heap()
  C.shardrt_alloc_fail_at(0)
  call()
  local allocations, bytes = tonumber(C.shardrt_alloc_fail_at(0)), heap() - before
  collectgarbage "restart"
  return allocations, bytes
end

describe("a mesh of 2^20 devices", function()
  local function kept_mesh(sizes) return ffi.gc(select(2, new_mesh(sizes, { "a", "b" })), C.shardrt_mesh_free) end
  local function kept_sharding(mesh, entries)
    return ffi.gc(select(2, new_sharding(mesh, entries)), C.shardrt_sharding_free)
  end
  local small, large = kept_mesh { 4, 2 }, kept_mesh { 1024, 1024 }
  local spec = { { "b" }, { "a" } }
  local small_sharding, large_sharding = kept_sharding(small, spec), kept_sharding(large, spec)

  it("costs as much as one of 8", function()
    local mesh
    local small_count = cost(function() mesh = select(2, new_mesh({ 4, 2 }, { "a", "b" })) end)
    C.shardrt_mesh_free(mesh)
    local large_count, bytes = cost(function() mesh = select(2, new_mesh({ 1024, 1024 }, { "a", "b" })) end)
    C.shardrt_mesh_free(mesh)
    assert.equal(small_count, large_count)
    assert.is_true(bytes < 4096, bytes .. " bytes")
  end)

  it("gives shardings that cost as much", function()
    local sharding
    local small_count = cost(function() sharding = select(2, new_sharding(small, spec)) end)
    C.shardrt_sharding_free(sharding)
    local large_count, bytes = cost(function() sharding = select(2, new_sharding(large, spec)) end)
    C.shardrt_sharding_free(sharding)
    assert.equal(small_count, large_count)
    assert.is_true(bytes < 4096, bytes .. " bytes")
  end)

  it("answers for one process with the allocations of a mesh of 8", function()
    local shape = ffi.new("int64_t[2]", 2 ^ 20, 2 ^ 20)
    local shards, numbers = ffi.new "shardrt_shard[8]", ffi.new "int64_t[2]"
    local function ask(sharding, process)
      return function()
        assert(C.shardrt_sharding_shards(sharding, 2, shape, process, 8, shards, 8, numbers, numbers + 1) == 0)
      end
    end
    local small_count = cost(ask(small_sharding, 0))
    local large_count, bytes = cost(ask(large_sharding, 77777))
    assert.equal(small_count, large_count)
    assert.is_true(bytes < 4096, bytes .. " bytes")
    assert.equal(8, tonumber(numbers[0]))
    assert.equal(8, tonumber(numbers[1]))
    for i = 0, 7 do -- position a * 1024 + b holds rows b and columns a
      local id = 77777 * 8 + i
      assert.equal(id, shards[i].device)
      assert.equal(id % 1024 * 1024, tonumber(shards[i].box.start[0]))
      assert.equal(math.floor(id / 1024) * 1024, tonumber(shards[i].box.start[1]))
    end
  end)

  it("tells the shards of every process along a dimension without memory", function()
    local shape, numbers = ffi.new("int64_t[2]", 2 ^ 20, 2 ^ 20), ffi.new "int64_t[2]"
    for dim, expected in pairs { [0] = { 128, 77777 % 128 }, [1] = { 1024, math.floor(77777 / 128) } } do
      local allocations = cost(function()
        assert(C.shardrt_sharding_process_shards(large_sharding, 2, shape, dim, 77777, 8, numbers, numbers + 1) == 0)
      end)
      assert.equal(0, allocations)
      assert.same(expected, { tonumber(numbers[0]), tonumber(numbers[1]) })
    end
  end)

  it("holds a few numbers for each device where their order is its own, and answers alike", function()
    local ids = {}
    for i = 1, LARGE do ids[i] = (i - 1) * 7 % LARGE end
    local mesh
    local small_count = cost(function() mesh = select(2, new_mesh({ 2, 2 }, { "a", "b" }, { 3, 0, 1, 2 })) end)
    C.shardrt_mesh_free(mesh)
    local count = cost(function() mesh = select(2, new_mesh({ 1024, 1024 }, { "a", "b" }, ids)) end)
    assert.equal(small_count, count)
    local positions = ffi.new "int64_t[8]"
    assert.equal(8, tonumber(C.shardrt_mesh_positions(mesh, 8 * 1000, 8, positions, 8)))
    for i = 0, 7 do
      local id = ids[tonumber(positions[i]) + 1]
      assert.is_true(id >= 8000 and id < 8008)
      assert.is_true(i == 0 or positions[i] > positions[i - 1])
    end
    C.shardrt_mesh_free(mesh)
  end)

  it("makes no tables for devices that nobody asked for", function()
    local words = layout.words(77777, LARGE / 8, 8)
    local mesh = words.make_mesh({ 1024, 1024 }, { "a", "b" })
    local s = words.NamedSharding(mesh, words.P("a", "b"))
    collectgarbage()
    local before = collectgarbage "count"
    local map = s:addressable_devices_indices_map { LARGE, LARGE }
    local count, index = s:process_shards({ LARGE, LARGE }, 0)
    local devices = s:addressable_devices()
    assert.is_true(collectgarbage "count" - before < 64)
    assert.same({ 1024, 607 }, { count, index })
    assert.equal(8, #devices)
    local met = 0
    for id, range in pairs(map) do
      met = met + 1
      assert.equal(77777, math.floor(id / 8))
      assert.same({ 607 * 1024, 608 * 1024 }, range[1])
    end
    assert.equal(8, met)
  end)

  it("in one process is numbered block by block", function()
    local shape, numbers = ffi.new("int64_t[2]", 2 ^ 20, 2 ^ 20), ffi.new "int64_t[2]"
    local sharding = kept_sharding(large, { {}, { "b" } })
    local shards = ffi.new("shardrt_shard[?]", LARGE)
    assert.equal(0, C.shardrt_sharding_shards(sharding, 2, shape, 0, LARGE, shards, LARGE, numbers, numbers + 1))
    assert.same({ LARGE, 1024 }, { tonumber(numbers[0]), tonumber(numbers[1]) })
    for i = 0, LARGE - 1 do
      if shards[i].block ~= i % 1024 or shards[i].replica_id ~= math.floor(i / 1024) then
        assert.equal(i % 1024, shards[i].block)
        assert.equal(math.floor(i / 1024), tonumber(shards[i].replica_id))
      end
    end
  end)
end)

describe("an allocation that fails", function()
  -- What failed is freed as NULL, which does nothing.
  it("ends a mesh, a sharding and a single device's sharding", function()
    assert.is_true(no_memory.each(function()
      local code, mesh = new_mesh({ 2, 2 }, { "a", "b" }, { 3, 0, 1, 2 })
      assert.equal(code ~= 0, mesh == nil)
      C.shardrt_mesh_free(mesh)
      return code
    end) >= 7)
    local _, mesh = new_mesh({ 2, 2 }, { "a", "b" })
    assert.is_true(no_memory.each(function()
      local code, sharding = new_sharding(mesh, { { "a", "b" }, {} })
      assert.equal(code ~= 0, sharding == nil)
      C.shardrt_sharding_free(sharding)
      return code
    end) >= 4)
    C.shardrt_mesh_free(mesh)
    assert.is_true(no_memory.each(function()
      local out = ffi.new "shardrt_sharding *[1]"
      local code = C.shardrt_sharding_single(3, out)
      assert.equal(code ~= 0, out[0] == nil)
      C.shardrt_sharding_free(out[0])
      return code
    end) >= 4)
  end)

  it("ends a question, whose answers stay as they were", function()
    local _, mesh = new_mesh({ 2, 2 }, { "a", "b" }, { 3, 0, 1, 2 })
    local _, sharding = new_sharding(mesh, { { "a" } })
    C.shardrt_mesh_free(mesh) -- the sharding keeps it
    local shape = ffi.new("int64_t[1]", 8)
    local shards, numbers = ffi.new "shardrt_shard[2]", ffi.new "int64_t[2]"
    local function asking(call)
      return function()
        numbers[0], numbers[1] = -1, -1
        local code = call()
        assert.equal(code ~= 0, numbers[0] == -1 and numbers[1] == -1)
        return code
      end
    end
    assert.is_true(no_memory.each(asking(function()
      return C.shardrt_sharding_shards(sharding, 1, shape, 0, 2, shards, 2, numbers, numbers + 1)
    end)) >= 3)
    assert.is_true(no_memory.each(asking(function()
      return C.shardrt_sharding_process_shards(sharding, 1, shape, 0, 0, 4, numbers, numbers + 1)
    end)) >= 1)
    C.shardrt_sharding_free(sharding)
  end)
end)

-- Arrays that are laid out anew from what a process holds of them.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local arrays = require "tests.support.arrays"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local P = arrays.P

local seed = require "tests.support.seed"
math.randomseed(seed)
local random = math.random

local function message() return ffi.string(C.shardrt_error_message()) end

local function refuses(code, text)
  assert.equal(C.SHARDRT_EINVAL, code)
  assert.truthy(message():find(text, 1, true), message())
end

-- A sharding over 8 devices of a shape whose sizes 8 divides.
local function random_sharding(ndim)
  local names, spec = { "a", "b", "c" }, {}
  for _, name in ipairs(names) do
    local d = random(0, ndim)
    if d > 0 then
      spec[d] = spec[d] or {}
      table.insert(spec[d], name)
    end
  end
  return arrays.sharding({ 2, 2, 2 }, names, P(unpack(spec, 1, ndim)))
end

-- Every shard of an array beside the part of the whole that its box is; the whole's element i is i.
local function check(x, shape)
  for i = 0, tonumber(C.shardrt_array_shard_count(x)) - 1 do
    local box = C.shardrt_array_shard(x, i).box
    local data = ffi.cast("int32_t *", arrays.data(x, i))
    local k = 0
    local function level(d, at)
      if d == #shape then
        assert(data[k] == at, ("shard %d, element %d: %d, not %d"):format(i, k, data[k], at))
        k = k + 1
        return
      end
      for j = tonumber(box.start[d]), tonumber(box.stop[d]) - 1 do level(d + 1, at * shape[d + 1] + j) end
    end
    level(0, 0)
  end
end

describe("an array of one process", function()
  it("is laid out in any other way, and shares its memory where no shard becomes another", function()
    for _ = 1, 60 do
      local shape, n = {}, 1
      for d = 1, random(0, 3) do
        shape[d] = 8 * random(0, 2)
        n = n * shape[d]
      end
      local data = ffi.new("int32_t[?]", math.max(n, 1))
      for i = 0, n - 1 do data[i] = i end
      local from, to = random_sharding(#shape), random_sharding(#shape)
      local x = arrays.global(from, "int32", shape, data)
      local out, same = arrays.new(to, "int32", shape), arrays.new(from, "int32", shape)
      assert.equal(0, C.shardrt_regroup(x, out))
      check(out, shape)
      assert.equal(0, C.shardrt_regroup(x, same))
      for i = 0, 7 do assert.equal(C.shardrt_array_buffer(x, i), C.shardrt_array_buffer(same, i)) end
    end
  end)

  it("keeps its dtype, its dimensions and its devices", function()
    local over = arrays.sharding({ 2 }, { "a" }, P "a")
    local x = arrays.global(over, "int32", { 4, 2 }, ffi.new("int32_t[8]"))
    refuses(C.shardrt_regroup(x, arrays.new(over, "float32", { 4, 2 })), "another dtype or shape")
    refuses(C.shardrt_regroup(x, arrays.new(over, "int32", { 8 })), "another dtype or shape")
    refuses(C.shardrt_regroup(x, arrays.new(over, "int32", { 8, 2 })), "another dtype or shape")
    refuses(C.shardrt_regroup(x, arrays.new(over, "int32", { 2, 2 })), "another dtype or shape")
    local elsewhere = arrays.sharding({ 2 }, { "a" }, P "a", { 1, 0 })
    refuses(C.shardrt_regroup(x, arrays.new(elsewhere, "int32", { 4, 2 })), "same devices")
    local function new() return arrays.new(over, "int32", { 4, 2 }) end
    assert.equal(C.SHARDRT_EDATA, C.shardrt_regroup(new(), new()))
  end)

  it("frees what it took, whichever allocation fails", function()
    local x = arrays.global(arrays.sharding({ 4 }, { "a" }, P "a"), "int32", { 8 }, ffi.new("int32_t[8]"))
    local out -- a new one for each attempt
    local function prepare() out = arrays.new(arrays.sharding({ 4 }, { "a" }, P()), "int32", { 8 }) end
    assert.is_true(no_memory.each(function() return C.shardrt_regroup(x, out) end, { prepare = prepare }) > 0)
  end)
end)

describe("an array of several processes", function()
  it("is not laid out from what one of them does not hold", function()
    local result = mpi.run { processes = 2, devices = 2, source = [[
      package.path = "./?.lua;" .. package.path
      local ffi, C, arrays = require "ffi", require "shardrt.base.ffi", require "tests.support.arrays"
      local P = arrays.P
      local x = arrays.global(arrays.sharding({ 4 }, { "a" }, P "a"), "int32", { 8 }, ffi.new("int32_t[8]"))
      local out = arrays.new(arrays.sharding({ 4 }, { "a" }, P()), "int32", { 8 })
      assert(C.SHARDRT_EINVAL == C.shardrt_regroup(x, out))
      assert(ffi.string(C.shardrt_error_message()):find "does not hold all of what device %d is to have")
      local halves = arrays.new(arrays.sharding({ 2, 2 }, { "a", "b" }, P "a"), "int32", { 8 })
      assert(0 == C.shardrt_regroup(x, halves))
      io.write "done;"
    ]] }
    assert.equal(0, result.status, result.output)
    assert.equal("done;done;", (result.stdout:gsub("%s", "")))
  end)
end)

-- processes: 1 x 1
-- processes: 1 x 8
-- Recorded programs: what may be recorded and what may not, and what becomes of failures.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local recording = require "shardrt.record.recording"
local replay = require "shardrt.record.replay"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P, ndarray, random = shardrt.P, shardrt.ndarray, shardrt.random
local on_host = ffi.string(current.info.platform) == "host"

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "a" })
local rows, columns = shardrt.NamedSharding(mesh, P "a"), shardrt.NamedSharding(mesh, P(nil, "a"))

local function array_of(value, to)
  local host = ndarray.zeros({ 8, 8 }, "float32")
  for i = 0, 63 do host.data[i] = value + i end
  return shardrt.device_put(host, to or rows)
end

local function numbers(x)
  local host, all = shardrt.process_allgather(x), {}
  for i = 0, host.size - 1 do all[i + 1] = host.data[i] end
  return all
end

-- The program that is recorded of f, which is one of an array; other arrays give what f gives of them.
local function recorded(f)
  local x = array_of(1)
  local results, program = recording.of({ x }, function() return { f(x) } end)
  assert.same(numbers(f(x)), numbers(results[1]))
  if not program.run then return nil end
  for value = 2, 4 do
    local other = array_of(value)
    assert.is_true(replay.fits(program, { other }))
    assert.same(numbers(f(other)), numbers(replay.run(program, { other })[1]))
  end
  return program
end

describe("recorded are", function()
  for what, f in pairs {
    ["words of elements"] = function(x) return np.sin(x * 2) + x end,
    ["sums, products and layouts"] = function(x) return np.dot(x, np.transpose(x)) - np.sum(x, 0) end,
    ["arrays that are made"] = function(x) return x * np.arange(8) + np.linspace(-1, 1, 8) + np.ones({ 8, 8 }) end,
    ["parts"] = function(x)
      return np.concatenate({ np.slice(x, { {}, { 2, 5 } }), np.pad(x, { { 0, 0 }, { 0, 5 } }) }, 1)
    end,
    ["moves"] = function(x)
      local there = shardrt.reshard(x, columns)
      return shardrt.with_sharding_constraint(there + shardrt.device_put(x * 2, columns), rows)
    end,
    ["parts of what is cut, moved"] = function(x)
      return np.concatenate({ np.slice(x, { { 1, 4 } }), np.slice(x, { { -1, -6, -1 } }) }, 0)
    end,
    ["rows by their numbers"] = function(x) return np.take(x, np.argsort(np.sum(x, 1)), 0) end,
    ["orders"] = function(x) return np.argsort(np.sin(x), 1) end,
    ["sums along an axis"] = function(x) return np.cumsum(np.reshape(x, { 64 }), 0) end,
    ["orders of dimensions"] = function(x) return np.transpose(np.transpose(x) * 2) end,
    ["the array itself"] = function(x) return x end,
    ["many calls, which are more than one function"] = function(x)
      for k = 1, 250 do x = x * (k % 7 == 0 and 2 or -0.5) + k end
      return x
    end,
    ["numbers that texts round"] = function(x) return x * 0.1 + 1 / 3 - 2 ^ 40 end,
  } do
    it(what, function() assert.truthy(recorded(f)) end)
  end
end)

describe("not recorded is what depends on", function()
  local kept = array_of(7)
  for what, f in pairs {
    ["an array that is not among those given"] = function(x) return x + kept end,
    ["random numbers, which something else filled in"] = function(x)
      return x + random.normal(random.key(1), { 8, 8 }, rows)
    end,
    ["numbers of the host's"] = function(x) return x + np.array { 1, 2, 3, 4, 5, 6, 7, 8 } end,
    ["more than ten thousand calls"] = function(x)
      for _ = 1, 10001 do x = x + 1 end
      return x
    end,
    ["what Lua looked at"] = function(x) return x * np.sum(x):item() end,
  } do
    it(what, function() assert.is_nil(recorded(f)) end)
  end

  it("a move to other devices", function()
    local to = shardrt.devices()[shardrt.device_count()]
    local x, last = array_of(1), shardrt.NamedSharding(shardrt.Mesh({ 1 }, { "b" }, { to }), P())
    local _, program = recording.of({ x }, function() return { shardrt.reshard(x, last) } end)
    assert.equal(shardrt.device_count() == 1, program.run ~= nil)
  end)

  it("or a program that never began", function()
    local cannot_be_made = setmetatable({}, { __index = function() error "no" end })
    for _, f in ipairs { function() error "no" end, function() return { cannot_be_made } end } do
      assert.is_false((pcall(recording.of, { kept }, f)))
      assert.is_true(recording.is_possible())
      assert.truthy(recorded(function(x) return x + 1 end))
    end
  end)
end)

describe("a recorded program", function()
  it("fits arrays of its forms alone", function()
    local program = recorded(function(x) return x + 1 end) ---@cast program shardrt.recording.program
    assert.is_false(replay.fits(program, { array_of(1, columns) }) and shardrt.device_count() > 1)
    assert.is_false(replay.fits(program, { np.astype(array_of(1), "int32") }))
    assert.is_false(replay.fits(program, { array_of(1), array_of(1) }))
    assert.is_false(replay.fits(program, {}))
  end)

  it("gives each result an object of its own", function()
    local x = array_of(1)
    local _, program = recording.of({ x }, function()
      local y = x + 1
      return { y, y, x }
    end)
    local y, same, given = unpack(replay.run(program, { array_of(5) }))
    y:delete()
    assert.equal(6, numbers(same)[1])
    assert.equal(5, numbers(given)[1])
  end)

  it("gives nothing, and keeps nothing, where memory is missing at any place", function()
    local x = array_of(1)
    local function f(y)
      local sum = np.sum(y, 0)
      return { np.sin(y) * 2 + np.dot(y, y), sum, y, sum }
    end
    local _, program = recording.of({ x }, function() return f(x) end)
    local right, failures = numbers(f(x)[1]), 0
    collectgarbage()
    collectgarbage()
    local before = tonumber(C.shardrt_result_bytes(nil))
    for n = 1, 400 do
      C.shardrt_alloc_fail_at(n)
      local ok, results = pcall(replay.run, program, { x })
      local has_failed = tonumber(C.shardrt_alloc_fail_at(0)) >= n
      assert.is_true(ok, results)
      if results then assert.same(right, numbers(results[1])) end
      if not results then failures = failures + 1 end
      if not has_failed then break end
      results = nil
      collectgarbage()
      collectgarbage()
      assert.is_nil(results)
      if on_host then assert.equal(before, tonumber(C.shardrt_result_bytes(nil))) end
    end
    assert.is_true(failures > 5, failures)
    assert.same(right, numbers(replay.run(program, { x })[1]))
  end)
end)

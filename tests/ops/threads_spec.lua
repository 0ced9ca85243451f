-- alone: it compares times of the processor.
-- Words whose arithmetic all threads share, by the processor's time that others than the recipe's thread take; and what
-- is filled and counted by pieces, at their borders.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local arrays = require "tests.support.arrays"
local current = require "shardrt.base.current"
local shardrt = require "shardrt"
local np, ndarray, P = require "shardrt.numpy", shardrt.ndarray, shardrt.P

ffi.cdef [[
typedef struct threads_time { long seconds, nanoseconds; } threads_time;
int clock_gettime(int clock, threads_time *now);
]]
local PROCESS, THREAD = 2, 3 -- clocks of the processor's time

local function seconds(clock)
  local now = ffi.new "threads_time"
  assert(ffi.C.clock_gettime(clock, now) == 0)
  return tonumber(now.seconds) + tonumber(now.nanoseconds) / 1e9
end

local pipe = assert(io.popen "nproc")
local cores = pipe:read "*n"
pipe:close()
local is_measured = ffi.string(current.info.platform) == "host" and not os.getenv "SHARDRT_SANITIZER"
local case = is_measured and it or pending
local shared_case = is_measured and cores > 1 and it or pending

-- The largest part of the processor's time of a call that other threads took, of a few calls: on a busy machine they
-- may come late to one.
local function helped(f)
  local most = 0
  for _ = 1, 30 do
    local all, own = seconds(PROCESS), seconds(THREAD)
    f()
    all, own = seconds(PROCESS) - all, seconds(THREAD) - own
    most = math.max(most, (all - own) / all)
    if most > 0.2 then break end
  end
  return most
end

-- The least time of the processor of a few calls.
local function least(f)
  local best = math.huge
  for _ = 1, 20 do
    local began = seconds(THREAD)
    f()
    best = math.min(best, seconds(THREAD) - began)
  end
  return best
end

describe("threads", function()
  shared_case("help with a product of one block, and with arrays of one value", function()
    local x = shardrt.device_put(ndarray.full({ 1024, 1024 }, 0.5, "float32"), 0)
    assert.is_true(helped(function() np.dot(x, x) end) > 0.2)
    local small = shardrt.device_put(ndarray.full({ 256, 256 }, 0.5, "float32"), 0)
    assert.is_true(helped(function() for _ = 1, 20 do np.dot(small, small) end end) > 0.2)
    assert.is_true(helped(function() np.full({ 2 ^ 24 }, 3, "float32") end) > 0.2)
    assert.is_true(helped(function() np.zeros({ 2 ^ 24 }, "float32") end) > 0.2)
  end)

  case("do not help with what the recipe's own thread does", function() -- else the case above would show nothing
    assert.is_true(helped(function() ndarray.full({ 2 ^ 22 }, 3, "float32") end) < 0.2)
  end)
end)

describe("arrays of one value", function()
  it("hold it at each place", function()
    for name, value in pairs { uint8 = 7, bool = true, int16 = -3, float32 = 0.1, float64 = 0.1, int64 = -5LL } do
      local first = ndarray.full({ 1 }, value, name):item()
      for _, count in ipairs { 1, 2, 3, 8191, 8193, 16385, 65535, 65536, 65537, 131073 } do
        for _, host in ipairs {
          ndarray.full({ count }, value, name), shardrt.device_get(np.full({ count }, value, name)),
        } do
          local data, wrong = host.data, 0
          for i = 0, count - 1 do wrong = wrong + (data[i] == host.data[0] and 0 or 1) end
          assert.equal(count, host.size)
          assert.equal(first, host:rows(0, 1):item())
          assert.equal(0, wrong, name)
        end
      end
    end
  end)

  case("are filled by copies", function()
    local bytes = 2 ^ 22
    local from = ndarray.empty({ bytes }, "uint8")
    local copied = least(function() ffi.copy(ndarray.empty({ bytes }, "uint8").data, from.data, bytes) end)
    local filled = least(function() ndarray.full({ bytes }, 7, "uint8") end)
    assert.is_true(filled < 3 * copied, ("%.6f s, a copy %.6f s"):format(filled, copied))
  end)
end)

describe("numbers that count", function()
  local POINTERS = { float64 = "double *", float32 = "float *", int32 = "int32_t *" }

  local function counted(over, name, shape, axis)
    local out = arrays.new(over, name, shape)
    assert.equal(0, C.shardrt_iota(3, 2, axis, out))
    return out
  end

  it("go on from block to block and from piece to piece", function()
    for name in pairs(POINTERS) do
      for _, c in ipairs {
        { shape = { 200001 }, spec = P(), axis = 0 }, { shape = { 4 * 70001 }, spec = P "a", axis = 0 },
        { shape = { 4, 70001 }, spec = P "a", axis = 1 }, { shape = { 4, 70001 }, spec = P "a", axis = 0 },
        { shape = { 2, 4 * 40001 }, spec = P(nil, "a"), axis = 1 },
        { shape = { 4 * 257, 301 }, spec = P "a", axis = 0 },
      } do
        local out = counted(arrays.sharding({ 4 }, { "a" }, c.spec), name, c.shape, c.axis)
        for i = 0, tonumber(C.shardrt_array_shard_count(out)) - 1 do
          local box, wrong = C.shardrt_array_shard(out, i).box, 0
          local data = ffi.cast(POINTERS[name], arrays.data(out, i))
          local rows = tonumber(box.stop[0] - box.start[0])
          local columns = #c.shape > 1 and tonumber(box.stop[1] - box.start[1]) or 1
          for r = 0, rows - 1 do
            for k = 0, columns - 1 do
              local at = c.axis == 0 and tonumber(box.start[0]) + r or tonumber(box.start[1]) + k
              if data[r * columns + k] ~= 3 + 2 * at then wrong = wrong + 1 end
            end
          end
          assert.equal(0, wrong, name)
        end
      end
    end
  end)

  case("along the only axis are counted in vectors", function()
    local over = arrays.sharding({ 1 }, { "a" }, P(), { 0 })
    local out, halves = arrays.new(over, "float64", { 32768 }), arrays.new(over, "float64", { 2, 16384 })
    local straight = least(function() for _ = 1, 50 do C.shardrt_iota(3, 2, 0, out) end end)
    local repeated = least(function() for _ = 1, 50 do C.shardrt_iota(3, 2, 1, halves) end end)
    assert.is_true(straight < 0.7 * repeated, ("%.6f s, by repetition %.6f s"):format(straight, repeated))
  end)
end)

describe("products", function()
  -- Whole numbers, of which float32 holds every sum: each element is k times its row's and its column's.
  it("of all small sizes are right wherever they are cut", function()
    local function ascending(n, period, sizes)
      local host = ndarray.zeros({ n }, "float32")
      for i = 0, n - 1 do host.data[i] = i % period + 1 end
      return np.reshape(shardrt.device_put(host, 0), sizes)
    end
    local lengths = { 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 100, 128, 129, 784 }
    for _, k in ipairs { 64, 784, 2048 } do
      local ones = shardrt.device_put(ndarray.full({ 1, k }, 1, "float32"), 0)
      for _, m in ipairs(lengths) do
        local a = ascending(m, 7, { m, 1 }) * ones
        for _, n in ipairs(lengths) do
          local b = np.reshape(ones, { k, 1 }) * ascending(n, 5, { 1, n })
          local expected = (ascending(m, 7, { m, 1 }) * ascending(n, 5, { 1, n })) * k
          assert.is_true(np.all(np.equal(expected, np.dot(a, b))):item(), ("%d x %d x %d"):format(m, k, n))
        end
      end
    end
  end)
end)

-- The order of an epoch: a permutation for every length, well mixed, another one for every seed and epoch.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"

local begun = require "tests.support.seed" % 100000
math.randomseed(begun)
local random = math.random

ffi.cdef [[
struct feistel_keys { int32_t rounds; bool brief; uint64_t key[24]; };
struct feistel_run { int64_t count; uint64_t tweak; int64_t n; };
int64_t feistel_at(int64_t count, const struct feistel_keys *keys, uint64_t tweak, int64_t position);
void feistel_many(const struct feistel_run *runs, int64_t nruns, const struct feistel_keys *keys, int64_t *positions);
]]

-- Random keys of a permutation.
local function random_keys(rounds, brief)
  local keys = ffi.new("struct feistel_keys", { rounds, brief })
  for r = 0, rounds - 1 do keys.key[r] = random(0, 2 ^ 32 - 1) * 4294967296ULL + random(0, 2 ^ 32 - 1) end
  return keys
end

local function at(seed, epoch, count, position) return tonumber(C.shardrt_order_index(seed, epoch, count, position)) end

-- Whether positions 0 … count - 1 give each of 0 … count - 1 once.
local function is_permutation(seed, epoch, count)
  local seen = ffi.new("uint8_t[?]", count)
  for position = 0, count - 1 do
    local sample = at(seed, epoch, count, position)
    if sample < 0 or sample >= count or seen[sample] ~= 0 then return false end
    seen[sample] = 1
  end
  return true
end

-- How far counts are from even, in standard deviations of chi-square.
local function unevenness(counts, cells, total)
  local expected, chi = total / cells, 0
  for i = 0, cells - 1 do chi = chi + (counts[i] - expected) ^ 2 / expected end
  return (chi - (cells - 1)) / math.sqrt(2 * (cells - 1))
end

describe("the order of an epoch", function()
  it("is a permutation for every small length", function()
    for count = 1, 600 do
      for epoch = 0, 2 do assert.is_true(is_permutation(count * 7919, epoch, count), "length " .. count) end
    end
  end)

  it("is a permutation around every power of two", function()
    for bits = 10, 20 do
      for offset = -1, 1 do
        assert.is_true(is_permutation(42, bits, 2 ^ bits + offset), "length " .. 2 ^ bits + offset)
      end
    end
  end)

  it("is one to one for lengths that no memory holds", function()
    for _, count in ipairs { 2 ^ 33 + 1, 2 ^ 52 - 1, 2 ^ 53 } do
      local seen = {}
      for i = 0, 4999 do
        local sample = at(3, 1, count, math.floor(count / 5000) * i)
        assert.is_true(sample >= 0 and sample < count)
        assert.is_nil(seen[sample])
        seen[sample] = true
      end
    end
  end)

  it("refuses a position that is not there", function()
    for _, wrong in ipairs { { 0, 0 }, { 5, 5 }, { 5, -1 }, { -1, 0 } } do
      assert.equal(C.SHARDRT_EINVAL, at(1, 0, wrong[1], wrong[2]))
    end
    assert.equal(C.SHARDRT_EINVAL, at(1, -1, 5, 0))
    assert.truthy(ffi.string(C.shardrt_error_message()):find("5 samples", 1, true))
  end)

  it("gives all orders of a few samples equally often", function()
    for count = 2, 5 do
      local orders, cells = {}, 1
      for i = 2, count do cells = cells * i end
      local total, distinct = cells * 400, 0
      for seed = 1, total do
        local key = 0
        for position = 0, count - 1 do key = key * count + at(seed, 0, count, position) end
        if not orders[key] then
          orders[key], distinct = 0, distinct + 1
        end
        orders[key] = orders[key] + 1
      end
      assert.equal(cells, distinct)
      local counts, i = {}, 0
      for _, times in pairs(orders) do
        counts[i], i = times, i + 1
      end
      assert.is_true(unevenness(counts, cells, total) < 5, "length " .. count)
    end
  end)

  -- `order(seed)` gives one: what stands at a position of it, as a function.
  local function is_even(lengths, order)
    for _, count in ipairs(lengths) do
      for _, position in ipairs { 0, math.floor(count / 2), count - 2 } do
        local first, distance = ffi.new("double[?]", count), ffi.new("double[?]", count)
        local total = count * 30
        for seed = 1, total do
          local place = order(seed, count)
          local a, b = place(position), place(position + 1)
          first[a] = first[a] + 1
          distance[(b - a) % count] = distance[(b - a) % count] + 1
        end
        local what = ("length %d, position %d"):format(count, position)
        assert.is_true(math.abs(unevenness(first, count, total)) < 5, what)
        assert.equal(0, distance[0])
        assert.is_true(math.abs(unevenness(distance + 1, count - 1, total)) < 5, what)
      end
    end
  end

  it("puts every sample at every place equally often, and neighbours anywhere", function()
    is_even({ 7, 16, 17, 33, 100, 257, 1000, 4097 }, function(seed, count)
      return function(position) return at(seed, seed % 3, count, position) end
    end)
  end)

  -- As many as blocks with so many rows have (block_order.c).
  local function keys_of_rows(count) return random_keys(count >= 1024 and 6 or 8, true) end

  it("does so for rows of blocks, by brief rounds", function()
    is_even({ 7, 16, 33, 100, 255, 256, 1000, 4097 }, function(_, count)
      local keys = keys_of_rows(count)
      return function(position) return tonumber(ffi.C.feistel_at(count, keys, 0, position)) end
    end)
  end)

  it("puts rows that share half of their number apart, too", function()
    for _, of in ipairs { { 1024, 32 }, { 3000, 64 }, { 4096, 64 }, { 9000, 128 }, { 16384, 128 } } do
      local count, apart, bins = of[1], of[2], 16
      local total, pairs_of = 0, ffi.new("double[?]", bins * bins)
      for _ = 1, 2 ^ 18 / count do
        local keys = keys_of_rows(count)
        for i = 0, count - apart - 1 do
          local a, b = ffi.C.feistel_at(count, keys, 0, i), ffi.C.feistel_at(count, keys, 0, i + apart)
          local cell = math.floor(tonumber(a) * bins / count) * bins + math.floor(tonumber(b) * bins / count)
          pairs_of[cell], total = pairs_of[cell] + 1, total + 1
        end
      end
      assert.is_true(unevenness(pairs_of, bins * bins, total) < 5, "length " .. count)
    end
  end)

  it("is another one for every seed, epoch and length", function()
    local function agreement(seed, epoch, other_seed, other_epoch)
      local same = 0
      for position = 0, 9999 do
        if at(seed, epoch, 10000, position) == at(other_seed, other_epoch, 10000, position) then same = same + 1 end
      end
      return same -- of two unrelated orders: 1 on average
    end
    assert.equal(10000, agreement(5, 0, 5, 0))
    for _, other in ipairs { { 1, 1 }, { 2, 0 }, { 0, 1 }, { 2 ^ 32, 0 }, { 2 ^ 53, 0 } } do
      assert.is_true(agreement(1, 0, other[1], other[2]) < 12, other[1] .. ", " .. other[2])
    end
    local same = 0 -- one sample more is another order, not the old one with a sample put in
    for position = 0, 9999 do
      if at(1, 0, 10000, position) == at(1, 0, 10001, position) then same = same + 1 end
    end
    assert.is_true(same < 12)
  end)

  it("is the same of one position and of many at once, on any processor, for runs of several permutations", function()
    local highest = C.shardrt_simd_limit(2)
    finally(function() C.shardrt_simd_limit(2) end)
    for case = 1, 60 do
      local nruns, n = random(1, 40), 0
      local keys, runs = random_keys(2 * random(1, 12), random(2) == 1), ffi.new("struct feistel_run[?]", nruns)
      for i = 0, nruns - 1 do
        local count = math.max(1, 2 ^ random(0, case % 10 == 0 and 53 or 20) + random(-1, 1))
        if random(2) == 1 then count = random(1, count) end
        local most = case % 3 == 0 and 300 or case % 3 == 1 and 40 or 3
        runs[i] = { count, random(0, 2 ^ 53) * 2047ULL, random(0, most) }
        n = n + tonumber(runs[i].n)
      end
      local given, expected, next_place = ffi.new("int64_t[?]", n + 1), ffi.new("int64_t[?]", n + 1), 0
      for i = 0, nruns - 1 do
        for _ = 1, tonumber(runs[i].n) do
          given[next_place] = random(0, tonumber(runs[i].count) - 1)
          expected[next_place] = ffi.C.feistel_at(runs[i].count, keys, runs[i].tweak, given[next_place])
          next_place = next_place + 1
        end
      end
      given[n], expected[n] = -7, -7 -- which is no position
      for level = 0, highest do
        C.shardrt_simd_limit(level)
        local found = ffi.new("int64_t[?]", n + 1)
        ffi.copy(found, given, (n + 1) * 8)
        ffi.C.feistel_many(runs, nruns, keys, found)
        for i = 0, n do
          if found[i] ~= expected[i] then
            error(("seed %d, case %d, level %d: position %d of %d"):format(begun, case, level, i, n))
          end
        end
      end
    end
  end)

  it("stays what it is: a checkpoint continues with a later version's order", function()
    local first = {}
    for position = 0, 7 do first[position + 1] = at(42, 0, 60000, position) end
    assert.same({ 26708, 14155, 30467, 38492, 17629, 2883, 26137, 48409 }, first)
  end)
end)

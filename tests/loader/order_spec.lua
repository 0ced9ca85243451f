-- The order of an epoch: a permutation for every length, well mixed, another one for every seed and epoch.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"

local begun = require "tests.support.seed" % 100000
math.randomseed(begun)
local random = math.random

ffi.cdef [[
struct feistel_keys { bool brief; uint64_t key[24]; };
struct feistel_run { int64_t count; uint64_t tweak; int64_t n; int32_t rounds; };
int64_t feistel_at(const struct feistel_run *run, const struct feistel_keys *keys, int64_t position);
void feistel_many(const struct feistel_run *runs, int64_t nruns, const struct feistel_keys *keys, int64_t *positions);
]]

-- Random keys of so many rounds.
local function random_keys(rounds, brief)
  local keys = ffi.new("struct feistel_keys", { brief })
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

  -- A permutation of rows of a strip of so many, as block_order.c makes it: what stands at a position of it.
  local function rows(count)
    local rounds = count < 64 and 24 or count < 256 and 10 or count < 4096 and 8 or 6
    local keys, run = random_keys(rounds, true), ffi.new("struct feistel_run", { count = count, rounds = rounds })
    return function(position) return tonumber(ffi.C.feistel_at(run, keys, position)) end
  end

  it("does so for rows of blocks, by brief rounds", function()
    is_even({ 7, 16, 33, 100, 255, 256, 1000, 4097 }, function(_, count) return rows(count) end)
  end)

  -- Of two places that are `apart` all pairs of bins must be as often as they are of two different numbers.
  local function pair_unevenness(count, apart)
    local bins = count < 16 and count or count < 256 and 8 or 16
    local total, pairs_of, size = 0, ffi.new("double[?]", bins * bins), ffi.new("double[?]", bins)
    local function bin(x) return math.floor(x * bins / count) end
    for x = 0, count - 1 do size[bin(x)] = size[bin(x)] + 1 end
    for _ = 1, 2 ^ (count < 64 and 16 or 18) / count do
      local place = rows(count)
      for i = 0, count - apart - 1 do
        local cell = bin(place(i)) * bins + bin(place(i + apart))
        pairs_of[cell], total = pairs_of[cell] + 1, total + 1
      end
    end
    local chi, cells = 0, 0
    for x = 0, bins - 1 do
      for y = 0, bins - 1 do
        local expected = total * size[x] * (size[y] - (x == y and 1 or 0)) / (count * (count - 1))
        if expected > 0 then
          chi, cells = chi + (pairs_of[x * bins + y] - expected) ^ 2 / expected, cells + 1
        else
          assert(pairs_of[x * bins + y] == 0)
        end
      end
    end
    return (chi - (cells - 1)) / math.sqrt(2 * (cells - 1))
  end

  it("puts rows that share half of their number apart, too", function()
    for _, of in ipairs {
      { 5, 2 }, { 7, 2 }, { 12, 4 }, { 24, 4 }, { 48, 8 }, { 100, 8 }, { 300, 16 }, { 1024, 32 }, { 3000, 32 },
      { 4096, 64 }, { 9000, 64 }, { 16384, 128 },
    } do
      assert.is_true(pair_unevenness(of[1], of[2]) < 5, "length " .. of[1])
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
      local keys, runs = random_keys(24, random(2) == 1), ffi.new("struct feistel_run[?]", nruns)
      for i = 0, nruns - 1 do
        local count = math.max(1, 2 ^ random(0, case % 10 == 0 and 53 or 20) + random(-1, 1))
        if random(2) == 1 then count = random(1, count) end
        local most = case % 3 == 0 and 300 or case % 3 == 1 and 40 or 3
        runs[i] = { count, random(0, 2 ^ 53) * 2047ULL, random(0, most), 2 * random(1, case % 2 == 0 and 12 or 2) }
        n = n + tonumber(runs[i].n)
      end
      local given, expected, next_place = ffi.new("int64_t[?]", n + 1), ffi.new("int64_t[?]", n + 1), 0
      for i = 0, nruns - 1 do
        for _ = 1, tonumber(runs[i].n) do
          given[next_place] = random(0, tonumber(runs[i].count) - 1)
          expected[next_place] = ffi.C.feistel_at(runs[i], keys, given[next_place])
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

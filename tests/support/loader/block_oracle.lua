-- The order over blocks, written down from its description (runtime/dataset/order/block_order.h) without haste: all
-- positions of a window are listed and sorted.

local bit = require "bit"
local ffi = require "ffi"
local bxor, band, bor, lshift, rshift = bit.bxor, bit.band, bit.bor, bit.lshift, bit.rshift

local oracle = {}

local GOLDEN = 0x9e3779b97f4a7c15ULL

local function u64(x) return ffi.cast("uint64_t", ffi.cast("int64_t", x)) end

local function mix(x)
  x = bxor(x, rshift(x, 30)) * 0xbf58476d1ce4e5b9ULL
  x = bxor(x, rshift(x, 27)) * 0x94d049bb133111ebULL
  return bxor(x, rshift(x, 31))
end

-- n keys from a seed, an epoch and one number more.
local function keys_of(seed, epoch, number, n)
  local state, keys = mix(bxor(mix(u64(seed) + GOLDEN), u64(epoch))), {}
  state = mix(state + GOLDEN * number)
  for i = 1, n do
    state = state + GOLDEN
    keys[i] = mix(state)
  end
  return keys
end

local function whole(a, b) return a * b end

-- A product of the lower 32 bits of both.
local function brief(a, b) return band(a, 0xffffffffULL) * band(b, 0xffffffffULL) end

-- Where `position` goes in a permutation of `count`: with `brief` products, the upper half is added to in a circle.
local function permuted(position, count, keys, rounds, tweak, multiply)
  if count < 2 then return position end
  local bits = 0
  while 2 ^ bits < count do bits = bits + 1 end
  local low_bits = math.floor(bits / 2)
  local low_mask, high_mask = lshift(1ULL, low_bits) - 1, lshift(1ULL, bits - low_bits) - 1
  local high_values = u64(math.ceil(count / 2 ^ low_bits))
  local function half(x, key)
    x = multiply(bxor(x, key), 0xd6e8feb86659fd93ULL)
    return multiply(bxor(x, rshift(x, 32)), bor(key, 1ULL))
  end
  local x = u64(position)
  repeat
    local low, high = band(x, low_mask), rshift(x, low_bits)
    for r = 1, rounds, 2 do
      local by = half(low, bxor(keys[r], tweak))
      high = multiply == whole and bxor(high, band(rshift(by, 32), high_mask))
        or (high + rshift(brief(by, high_values), 32)) % high_values
      low = bxor(low, band(rshift(half(high, bxor(keys[r + 1], tweak)), 32), low_mask))
    end
    x = bor(lshift(high, low_bits), low)
  until x < u64(count)
  return tonumber(x)
end

-- All numbers from 0 to count - 1, as shuffle = true has them.
local function shuffled(seed, epoch, count)
  local rounds, all = count <= 2 ^ 13 and 24 or 6, {}
  local keys = keys_of(seed, epoch, u64(count), rounds)
  for i = 0, count - 1 do all[i + 1] = permuted(i, count, keys, rounds, 0ULL, whole) end
  return all
end

-- The rows of a stream in batches, of which every `batches` have `rows`: {batch, lane} of row x.
local function place(x, rows, batches)
  local batch = math.floor(x * batches / rows)
  while math.floor((batch + 1) * rows / batches) <= x do batch = batch + 1 end
  while math.floor(batch * rows / batches) > x do batch = batch - 1 end
  return batch, x - math.floor(batch * rows / batches)
end

--- The samples of an epoch, in order. `blocks` are {first, count} of each; o.seed, o.epoch, o.window, o.rows and
--- o.batches (how many rows so many batches have), o.base (the number of the epoch's first row among those of all
--- batches).
---@return integer[]
---@return integer[] # of each position, the number of its window
function oracle.order(blocks, o)
  local count, nblocks = 0, #blocks
  for _, block in ipairs(blocks) do count = count + block[2] end
  if nblocks == count then
    local order, windows = shuffled(o.seed, o.epoch, count), {}
    for i = 1, count do windows[i] = 0 end
    return order, windows
  end
  local keys = keys_of(o.seed, o.epoch, bit.bnot(u64(count)), 25)
  local strip_key = table.remove(keys, 1)
  local by_place, samples, window_of = shuffled(o.seed, o.epoch, nblocks), {}, {}
  local nwindows = math.ceil(nblocks / o.window)
  local lanes = math.max(1, math.floor(o.rows / o.batches))
  local at = 0
  for w = 0, nwindows - 1 do
    local from, to = math.floor(w * nblocks / nwindows), math.floor((w + 1) * nblocks / nwindows)
    local n, positions, rows = to - from, {}, 0
    for k = from, to - 1 do rows = rows + blocks[by_place[k + 1] + 1][2] end
    for i = 0, rows - 1 do
      local batch, lane = place(o.base + at + i, o.rows, o.batches)
      positions[i + 1] = { at = at + i, batch = batch, lane = lane }
      window_of[at + i + 1] = w
    end
    table.sort(positions, function(a, b)
      if a.lane ~= b.lane then return a.lane < b.lane end
      return a.batch < b.batch
    end)
    local strips, next_position = math.min(n, lanes), 1
    for strip = 0, strips - 1 do
      local first, last = math.floor(strip * n / strips), math.floor((strip + 1) * n / strips) - 1
      local list = {} -- the samples of the strip's blocks
      for k = from + first, from + last do
        local block = blocks[by_place[k + 1] + 1]
        for i = 0, block[2] - 1 do list[#list + 1] = block[1] + i end
      end
      local tweak = mix(strip_key + GOLDEN * u64(from + first))
      local rounds = #list < 64 and 24 or #list < 256 and 10 or #list < 4096 and 8 or 6
      for i = 0, #list - 1 do
        samples[positions[next_position].at + 1] = list[permuted(i, #list, keys, rounds, tweak, brief) + 1]
        next_position = next_position + 1
      end
    end
    at = at + rows
  end
  return samples, window_of
end

return oracle

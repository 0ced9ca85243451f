-- Random arrays and layouts for specs of resharding, the same in every process that has the same seed; and what their
-- shards must hold, element by element.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"

ffi.cdef "int memcmp(const void *a, const void *b, size_t bytes);"

local PERIOD = 2 * 251 * 251 -- of the bytes of a value

local moves = {}

moves.dtypes = {
  "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
  "float64",
}

local MESHES = {
  { 8 }, { 4, 2 }, { 2, 4 }, { 2, 2, 2 }, { 8, 1 }, { 6 }, { 3, 2 }, { 2, 3 }, { 7 }, { 5 }, { 4 }, { 2, 2 }, { 2 },
  { 1 },
}

local function pick(list) return list[math.random(#list)] end

-- A list in a random order. (Not by table.remove, which LuaJIT 2.1.0-beta3 compiles wrong in such a loop.)
local function shuffle(list)
  for i = #list, 2, -1 do
    local k = math.random(i)
    list[i], list[k] = list[k], list[i]
  end
  return list
end

--- A random layout of `ndim` dimensions over some of the job's devices in a random order: {sharding, cuts = …}.
function moves.layout(ndim, words)
  words = words or shardrt
  local count = words.device_count()
  local sizes, product
  repeat
    sizes, product = pick(MESHES), 1
    for _, size in ipairs(sizes) do product = product * size end
  until product <= count
  local names, axes, ids, all = {}, {}, {}, {}
  for i = 1, count do all[i] = i - 1 end
  for i = 1, #sizes do names[i], axes[i] = ("abc"):sub(i, i), i end
  if math.random() < 0.7 then shuffle(all) end
  for i = 1, product do ids[i] = all[i] end
  shuffle(axes)
  local entries, cuts, used = {}, {}, 0
  for d = 1, ndim do
    local entry, cut = {}, 1
    while used < #axes and math.random() < 0.5 do
      used = used + 1
      entry[#entry + 1], cut = names[axes[used]], cut * sizes[axes[used]]
    end
    entries[d], cuts[d] = #entry > 0 and entry or nil, cut
  end
  local sharding = words.NamedSharding(words.Mesh(sizes, names, ids), words.P(unpack(entries, 1, ndim)))
  return sharding, cuts
end

local function lcm(a, b)
  local x, y = a, b
  while y > 0 do x, y = y, x % y end
  return a * b / x
end

--- Two random layouts and a shape that both divide.
function moves.case(words, largest)
  local ndim = math.random(0, 4)
  while true do
    local from, from_cuts = moves.layout(ndim, words)
    local to, to_cuts = moves.layout(ndim, words)
    local shape, elements = {}, 1
    for d = 1, ndim do
      shape[d] = lcm(from_cuts[d], to_cuts[d]) * (math.random() < 0.05 and 0 or math.random(1, 3))
      elements = elements * shape[d]
    end
    if elements <= largest then return shape, from, to end
  end
end

--- A host array with bytes that tell elements apart.
function moves.value(shape, dtype, seed)
  local h = shardrt.ndarray.zeros(shape, dtype)
  local bytes, most = ffi.cast("uint8_t *", h.data), dtype == "bool" and 2 or 251
  local filled = math.min(h.bytes, PERIOD)
  for i = 0, filled - 1 do bytes[i] = (i * 7 + math.floor(i / 251) * 13 + seed) % most end
  while filled < h.bytes do -- what comes behind is the same again
    local more = math.min(filled, h.bytes - filled)
    ffi.copy(bytes + filled, bytes, more)
    filled = filled + more
  end
  return h
end

--- An error unless every shard of this process holds its part of the value.
function moves.holds(x, value, label)
  local size = tonumber(C.shardrt_dtype_size(C.shardrt_dtype_from_name(x.dtype)))
  local whole = ffi.cast("const uint8_t *", value.data)
  local own = x.sharding:addressable_devices()
  assert(#own == #x.addressable_shards, label)
  for i, shard in ipairs(x.addressable_shards) do
    assert(shard.device == own[i], label)
    local part, at = ffi.cast("const uint8_t *", shard.data.data), 0
    local function compare(number, count) -- as many elements in a row of the last dimension
      local from, bytes = whole + number * size, count * size
      if ffi.C.memcmp(part + at, from, bytes) ~= 0 then
        local b = 0
        while part[at + b] == from[b] do b = b + 1 end
        error(("%s: device %d has a wrong element %d"):format(label, shard.device.id, number + math.floor(b / size)))
      end
      at = at + bytes
    end
    local function go(d, number)
      local first, last = unpack(shard.index[d] or { 0, 1 }) -- of no dimensions: one element
      if d >= #x.shape then return compare(number * (x.shape[d] or 1) + first, last - first) end
      for k = first, last - 1 do go(d + 1, number * x.shape[d] + k) end
    end
    go(1, 0)
  end
end

--- Random reshards, there and back; returns how many.
function moves.random(seed, count, options)
  math.randomseed(seed)
  for case = 1, count do
    local shape, from, to = moves.case(shardrt, 6000)
    local dtype = pick(moves.dtypes)
    local label = ("seed %d, case %d: %s {%s}, %s to %s"):format(seed, case, dtype, table.concat(shape, ", "),
      tostring(from), tostring(to))
    local value = moves.value(shape, dtype, case)
    local x = shardrt.device_put(value, from)
    local y = shardrt.reshard(x, to, options)
    assert(y.sharding == to and y.dtype == dtype and #y.shape == #shape, label)
    moves.holds(y, value, label)
    if not (options and options.donate) then moves.holds(x, value, label .. ", the old one") end
    moves.holds(shardrt.device_put(y, from), value, label .. ", back")
  end
  return count
end

return moves

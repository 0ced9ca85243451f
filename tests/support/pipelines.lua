-- Random pipelines of views and transforms, the same from one seed in every process of any job.

local shardrt = require "shardrt"
local ndarray, transform = shardrt.ndarray, shardrt.transform

local pipelines = {}

-- Park and Miller's generator: whole numbers from a to b.
local function generator(seed)
  local x = seed % 2147483646 + 1
  return function(a, b)
    x = x * 16807 % 2147483647
    return a + math.floor(x / 2147483647 * (b - a + 1))
  end
end

-- Samples `first` … of the field id, with an image or a sequence each.
local function leaf(random, kind, first)
  local count, list = random(4, 30), {}
  local id = ndarray.empty({ count }, "int32")
  for i = 0, count - 1 do id.data[i], list[i + 1] = first + i, first + i end
  if kind == "image" then
    local x = ndarray.empty({ count, 4, 3, 2 }, "uint8")
    for i = 0, x.size - 1 do x.data[i] = (first * 7 + i * 31) % 256 end
    return shardrt.source.array { id = id, x = x }, list
  end
  local texts = {}
  for i = 1, count do
    texts[i] = ndarray.empty({ random(0, 9) }, "int32")
    for k = 0, texts[i].size - 1 do texts[i].data[k] = (first + i) * 10 + k end
  end
  return shardrt.source.ragged { id = id, tokens = texts }, list
end

local views = {}

function views.shard(random, s, list)
  local n = random(1, 3)
  local index, kept = random(0, n - 1), {}
  for i = index + 1, #list, n do kept[#kept + 1] = list[i] end
  return s:shard(n, index), kept
end

function views.filter(random, s, list)
  local n, kept = random(2, 4), {}
  local rest = random(0, n - 1)
  for _, id in ipairs(list) do
    if id % n ~= rest then kept[#kept + 1] = id end
  end
  return s:filter { id = function(id) return id % n ~= rest end }, kept
end

-- A source of at least one sample, and the ids that it gives in its own order; `used` counts the leaves.
local function node(random, kind, depth, used)
  local choice = random(1, depth > 0 and 4 or 1)
  if choice == 1 then
    used[1] = used[1] + 1
    return leaf(random, kind, used[1] * 1000)
  end
  local s, list = node(random, kind, depth - 1, used)
  if choice == 4 then
    local other, more = node(random, kind, depth - 1, used)
    local both = {}
    for _, id in ipairs(list) do both[#both + 1] = id end
    for _, id in ipairs(more) do both[#both + 1] = id end
    return shardrt.concat { s, other }, both
  end
  local made, kept = views[choice == 2 and "shard" or "filter"](random, s, list)
  if #kept == 0 then return s, list end
  return made, kept
end

-- Rows of `length` elements, at least one.
local function packed(random, used, length)
  while true do
    local s = node(random, "text", 2, used)
    local order = random(1, 2) == 1 and random(1, 99) or nil
    local rows = s:pack { length = length, window = random(2, 30), seed = order }
    if #rows > 0 then return rows end
  end
end

local function mixed(random, make)
  local parts = {}
  for p = 1, random(1, 3) do parts[p] = { make(), random(1, 5) } end
  if random(1, 2) == 1 then parts.samples = random(1, 40) end
  if random(1, 4) == 1 then parts = { { shardrt.mix(parts), 2 }, { make(), 1 } } end
  return shardrt.mix(parts)
end

local images = {
  function() return nil end,
  function() return { x = { transform.crop { size = { 2, 2, 2 }, start = { 1, 0, 0 } } } } end,
  function() return { x = { transform.random_crop { size = { 2, 2 } } } } end,
  function()
    return { x = { transform.random_crop { size = { 3, 3 }, padding = 1 }, transform.lua(function(sample, rng)
      local more = rng:below(100)
      for i = 0, sample.size - 1 do sample.out[i] = (sample.data[i] + more) % 256 end
    end) } }
  end,
}

local function noise(sample, rng)
  for i = 0, sample.size - 1 do sample.out[i] = sample.data[i] + rng:below(3) end
end

--- A pipeline: {source=, transform=, shuffle=, window=, seed=, epochs=, ids=(of one epoch, before it is shuffled; nil
--- where the samples are no longer those of leaves, one by one)}.
---@param seed integer
function pipelines.make(seed)
  local random, used, made = generator(seed * 7919 + 1), { 0 }, {}
  local choice, length = seed % 4, random(9, 20)
  if choice == 0 then
    made.source, made.ids = node(random, "image", 3, used)
  elseif choice == 1 then
    made.source = mixed(random, function() return (node(random, "image", 2, used)) end)
  elseif choice == 2 then
    made.source = packed(random, used, length)
  else
    made.source = mixed(random, function() return packed(random, used, length) end)
  end
  if choice < 2 then
    made.transform = images[random(1, #images)]()
  elseif random(1, 2) == 1 then
    made.transform = { tokens = { transform.lua(noise) } }
  end
  local order = random(1, 4)
  made.shuffle = order == 4 and "blocks" or order > 1
  made.window = order == 4 and random(1, 3) or nil
  made.seed, made.epochs = random(0, 1000), random(1, 3)
  return made
end

--- A loader of it: o.batch_size, o.sharding, o.num_workers, o.prefetch, o.pipeline.
function pipelines.loader(made, o)
  return shardrt.loader {
    source = made.source, transform = made.transform, shuffle = made.shuffle, window = made.window,
    lanes = made.window and 8 or nil,
    seed = made.seed, epochs = made.epochs,
    remainder = "pad", batch_size = o.batch_size, sharding = o.sharding, num_workers = o.num_workers,
    prefetch = o.prefetch, pipeline = o.pipeline,
  }
end

--- The real rows of a batch, each as the bytes of all its fields; every process gets them.
function pipelines.rows(batch, get)
  local ffi = require "ffi"
  local hosts, names, rows = {}, {}, {}
  for name in pairs(batch) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do hosts[name] = get(batch[name]) end
  for row = 0, hosts.mask.size - 1 do
    if hosts.mask.data[row] then
      local words = {}
      for i, name in ipairs(names) do
        local bytes = hosts[name].bytes / hosts[name].shape[1]
        words[i] = ffi.string(ffi.cast("char *", hosts[name].data) + row * bytes, bytes)
      end
      rows[#rows + 1] = table.concat(words)
    end
  end
  return rows
end

return pipelines

-- Random meshes, specs and shapes against an oracle in plain Lua that walks every device of the job.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"

ffi.cdef [[
bool box_equal(const shardrt_box *a, const shardrt_box *b);
bool box_is_empty(const shardrt_box *box);
int64_t box_elements(const shardrt_box *box);
bool box_intersect(const shardrt_box *a, const shardrt_box *b, shardrt_box *out);
]]

local seed = require "tests.support.seed"
local random = math.random

local function shuffled(list)
  for i = #list, 2, -1 do
    local j = random(i)
    list[i], list[j] = list[j], list[i]
  end
  return list
end

-- ---- a case --------------------------------------------------------------------------------------------------------

-- {sizes, names, ids, device_count, own (devices of a process), entries (lists of axes from 1), shape}
local function random_case()
  local case = { sizes = {}, names = {}, ids = {}, entries = {}, shape = {}, own = random(8) }
  local size = 1
  for a = 1, random(4) do
    case.sizes[a], case.names[a] = random(4), "axis" .. a
    size = size * case.sizes[a]
  end
  case.size = size
  case.device_count = size + random(0, 9)
  local ids = {}
  for id = 0, case.device_count - 1 do ids[#ids + 1] = id end
  local kind = random(3)
  if kind == 1 then shuffled(ids) end
  local first = kind == 2 and random(0, case.device_count - size) or 0
  for i = 1, size do case.ids[i] = ids[first + i] end
  local ndim = random(0, 4)
  for d = 1, ndim do case.entries[d] = {} end
  local axes = {}
  for a = 1, #case.sizes do axes[a] = a end
  for _, axis in ipairs(shuffled(axes)) do
    local d = random(0, ndim)
    if d > 0 then table.insert(case.entries[d], axis) end
  end
  for d = 1, ndim do
    local cuts = 1
    for _, axis in ipairs(case.entries[d]) do cuts = cuts * case.sizes[axis] end
    case.shape[d] = cuts * random(0, 3)
  end
  return case
end

local function describe_case(case)
  local entries = {}
  for d, entry in ipairs(case.entries) do entries[d] = "{" .. table.concat(entry, ",") .. "}" end
  return ("seed %d: mesh {%s} of {%s}, spec %s, shape {%s}, %d devices in each process"):format(seed,
    table.concat(case.sizes, ","), table.concat(case.ids, ","), table.concat(entries, " "),
    table.concat(case.shape, ","), case.own)
end

-- ---- the oracle ----------------------------------------------------------------------------------------------------

local function coordinates(case, position)
  local at = {}
  for a = #case.sizes, 1, -1 do
    at[a] = position % case.sizes[a]
    position = math.floor(position / case.sizes[a])
  end
  return at
end

local function box_of(case, position)
  local at, box = coordinates(case, position), {}
  for d, entry in ipairs(case.entries) do
    local part, cuts = 0, 1
    for _, axis in ipairs(entry) do
      part, cuts = part * case.sizes[axis] + at[axis], cuts * case.sizes[axis]
    end
    local size = case.shape[d] / cuts
    box[d] = part * size .. ":" .. (part + 1) * size
  end
  return table.concat(box, ",")
end

-- {position, device, process, box, replica_id} of every device, in mesh order.
local function oracle(case)
  local shards, met = {}, {}
  for position = 0, case.size - 1 do
    local box, device = box_of(case, position), case.ids[position + 1]
    met[box] = (met[box] or -1) + 1
    shards[#shards + 1] = { position = position, device = device, process = math.floor(device / case.own), box = box,
      replica_id = met[box] }
  end
  return shards
end

-- "count/index" of a process along dimension d, or nil where the sets are not uniform or it owns nothing.
local function oracle_process_shards(shards, d, process)
  local sets = {}
  for _, shard in ipairs(shards) do
    local range, i = nil, 0
    for text in shard.box:gmatch "[^,]+" do
      i = i + 1
      if i == d then range = tonumber(text:match "^%d+") end
    end
    sets[shard.process] = sets[shard.process] or {}
    sets[shard.process][range] = true
  end
  local texts, distinct, owner, size = {}, {}, {}, nil
  for p, set in pairs(sets) do
    local list = {}
    for start in pairs(set) do list[#list + 1] = start end
    table.sort(list)
    if size and size ~= #list then return nil end
    size = #list
    texts[p] = table.concat(list, ",")
    if not distinct[texts[p]] then
      for _, start in ipairs(list) do
        if owner[start] then return nil end
        owner[start] = true
      end
      distinct[texts[p]] = list[1]
    end
  end
  local count, index = 0, 0
  for _, first in pairs(distinct) do
    count = count + 1
    if texts[process] and first < distinct[texts[process]] then index = index + 1 end -- 0 for who owns nothing
  end
  return count .. "/" .. index
end

-- ---- the runtime ---------------------------------------------------------------------------------------------------

local function new_sharding(case)
  local out = ffi.new "shardrt_mesh *[1]"
  local n = #case.sizes
  assert(C.shardrt_mesh_new(n, ffi.new("int64_t[?]", n, case.sizes), ffi.new("const char *[?]", n, case.names),
    #case.ids, ffi.new("int32_t[?]", #case.ids, case.ids), case.device_count, out) == 0)
  local mesh = out[0]
  local counts, names = {}, {}
  for d, entry in ipairs(case.entries) do
    counts[d] = #entry
    for _, axis in ipairs(entry) do names[#names + 1] = case.names[axis] end
  end
  local sharding = ffi.new "shardrt_sharding *[1]"
  local code = C.shardrt_sharding_new(mesh, #counts, ffi.new("int32_t[?]", #counts + 1, counts),
    ffi.new("const char *[?]", #names + 1, names), sharding)
  C.shardrt_mesh_free(mesh)
  assert(code == 0)
  return ffi.gc(sharding[0], C.shardrt_sharding_free)
end

local function text_of(box)
  local ranges = {}
  for d = 1, box.ndim do ranges[d] = tonumber(box.start[d - 1]) .. ":" .. tonumber(box.stop[d - 1]) end
  return table.concat(ranges, ",")
end

local function check_shard(expected, shard)
  assert.equal(expected.position, tonumber(shard.position))
  assert.equal(expected.device, shard.device)
  assert.equal(expected.process, shard.process)
  assert.equal(expected.box, text_of(shard.box))
  assert.equal(expected.replica_id, tonumber(shard.replica_id))
end

local answered = { uniform = 0, refused = 0 } -- by process_shards, over all cases

local function check_process(case, s, shards, process)
  local ndim, shape = #case.shape, ffi.new("int64_t[?]", #case.shape + 1, case.shape)
  local own = {}
  for _, shard in ipairs(shards) do
    if shard.process == process then own[#own + 1] = shard end
  end
  local capacity = random(0, #own + 1)
  local out, numbers = ffi.new("shardrt_shard[?]", capacity + 1), ffi.new "int64_t[2]"
  out[capacity].position = -7
  assert.equal(0, C.shardrt_sharding_shards(s, ndim, shape, process, case.own, out, capacity, numbers, numbers + 1))
  assert.equal(#own, tonumber(numbers[0]))
  assert.equal(-7, tonumber(out[capacity].position)) -- nothing is written beyond what there is room for
  local blocks, block_count = {}, 0
  for i, shard in ipairs(own) do
    if not blocks[shard.box] then
      blocks[shard.box] = block_count
      block_count = block_count + 1
    end
    if i <= capacity then
      check_shard(shard, out[i - 1])
      assert.equal(blocks[shard.box], out[i - 1].block)
    end
  end
  assert.equal(block_count, tonumber(numbers[1]))

  local positions = ffi.new("int64_t[?]", capacity + 1)
  positions[capacity] = -7
  assert.equal(#own, tonumber(C.shardrt_mesh_positions(C.shardrt_sharding_mesh(s), process * case.own, case.own,
    positions, capacity)))
  for i = 1, math.min(capacity, #own) do assert.equal(own[i].position, tonumber(positions[i - 1])) end
  assert.equal(-7, tonumber(positions[capacity]))

  for d = 1, ndim do
    local expected = oracle_process_shards(shards, d, process)
    numbers[0], numbers[1] = -1, -1
    local code = C.shardrt_sharding_process_shards(s, ndim, shape, d - 1, process, case.own, numbers, numbers + 1)
    local kind = expected and "uniform" or "refused"
    answered[kind] = answered[kind] + 1
    if expected then
      assert.equal(0, code)
      assert.equal(expected, tonumber(numbers[0]) .. "/" .. tonumber(numbers[1]))
    else
      assert.equal(C.SHARDRT_EINVAL, code)
      assert.equal(-1, tonumber(numbers[0]))
    end
  end
end

local function check_case(case)
  local s = new_sharding(case)
  local shards = oracle(case)
  local ndim, shape = #case.shape, ffi.new("int64_t[?]", #case.shape + 1, case.shape)
  local shard, boxes, distinct = ffi.new "shardrt_shard", {}, 0
  for _, expected in ipairs(shards) do
    assert.equal(0, C.shardrt_sharding_shard(s, ndim, shape, expected.position, case.own, shard))
    check_shard(expected, shard)
    if not boxes[expected.box] then boxes[expected.box], distinct = true, distinct + 1 end
  end
  -- The layout itself knows nothing of empty dimensions: only a shape has them.
  local cuts = 1
  for d = 0, ndim - 1 do cuts = cuts * tonumber(C.shardrt_sharding_cuts(s, d)) end
  assert.equal(cuts == 1, C.shardrt_sharding_is_fully_replicated(s))
  assert.is_true(distinct <= cuts)
  for process = 0, math.ceil(case.device_count / case.own) do check_process(case, s, shards, process) end
end

describe("random layouts", function()
  it("agree with a walk over every device", function()
    math.randomseed(seed)
    for _ = 1, 400 do
      local case = random_case()
      local ok, problem = pcall(check_case, case)
      assert.is_true(ok, describe_case(case) .. ": " .. tostring(problem))
    end
    assert.is_true(answered.uniform > 100 and answered.refused > 100)
  end)

  it("are equal, with equal fingerprints, exactly where the lists of real cuts are", function()
    math.randomseed(seed + 1)
    local met, equal_pairs = {}, 0
    for _ = 1, 120 do
      local case = random_case()
      case.sizes, case.names = { 2, 1, 2 }, { "axis1", "axis2", "axis3" }
      case.ids, case.device_count = { 0, 1, 2, 3 }, 4
      case.entries = { {}, {} }
      for axis = 1, 3 do
        local d = random(0, 2)
        if d > 0 then table.insert(case.entries[d], random(#case.entries[d] + 1), axis) end
      end
      local key = {}
      for d, entry in ipairs(case.entries) do
        local real = {}
        for _, axis in ipairs(entry) do
          if case.sizes[axis] > 1 then real[#real + 1] = axis end
        end
        key[d] = table.concat(real, ",")
      end
      met[#met + 1] = { key = table.concat(key, "|"), s = new_sharding(case) }
    end
    for _, a in ipairs(met) do
      for _, b in ipairs(met) do
        local same = a.key == b.key
        assert.equal(same, C.shardrt_sharding_equal(a.s, b.s), a.key .. " and " .. b.key)
        assert.equal(same, C.shardrt_sharding_fingerprint(a.s) == C.shardrt_sharding_fingerprint(b.s))
        if same and a ~= b then equal_pairs = equal_pairs + 1 end
      end
    end
    assert.is_true(equal_pairs > 0)
  end)
end)

describe("boxes", function()
  local function random_box(ndim)
    local box = ffi.new "shardrt_box"
    box.ndim = ndim
    for d = 0, ndim - 1 do
      box.start[d] = random(0, 4)
      box.stop[d] = box.start[d] + random(0, 3)
    end
    return box
  end

  -- The elements of a box as a set of texts.
  local function elements(box)
    local list = { "" }
    for d = 0, box.ndim - 1 do
      local longer = {}
      for _, text in ipairs(list) do
        for i = tonumber(box.start[d]), tonumber(box.stop[d]) - 1 do longer[#longer + 1] = text .. i .. "," end
      end
      list = longer
    end
    local set = {}
    for _, text in ipairs(list) do set[text] = true end
    return set, #list
  end

  it("meet and count as sets of elements do", function()
    math.randomseed(seed + 2)
    for _ = 1, 2000 do
      local ndim = random(0, 3)
      local a, b, out = random_box(ndim), random_box(ndim), ffi.new "shardrt_box"
      local in_a, count_a = elements(a)
      local in_b = elements(b)
      local shared = {}
      for text in pairs(in_a) do
        if in_b[text] then shared[text] = true end
      end
      out.ndim = -1
      local meet = C.box_intersect(a, b, out)
      assert.equal(next(shared) ~= nil, meet, "seed " .. seed)
      if meet then assert.same(shared, (elements(out))) else assert.equal(-1, out.ndim) end
      assert.equal(count_a, tonumber(C.box_elements(a)))
      assert.equal(count_a == 0, C.box_is_empty(a))
      assert.equal(text_of(a) == text_of(b), C.box_equal(a, b))
    end
  end)

  it("count nothing where one range is empty, however large the others are", function()
    local box = ffi.new "shardrt_box"
    box.ndim, box.stop[0], box.stop[1] = 3, 2LL ^ 62, 4
    assert.equal(0, tonumber(C.box_elements(box)))
  end)
end)

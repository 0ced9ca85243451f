-- Moves and sums along mesh axes (runtime/layout/lines.c): what is found is carried out on numbers, and gives what the
-- new layout says; and when it is worth it.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local seed = require "tests.support.seed"

local NONE, GATHER, BROADCAST = C.SHARDRT_LINES_NONE, C.SHARDRT_LINES_GATHER, C.SHARDRT_LINES_BROADCAST
local SUM, SUM_PARTS = C.SHARDRT_LINES_SUM, C.SHARDRT_LINES_SUM_PARTS

local function names_of(list) return ffi.new("const char *[?]", #list + 1, list) end

-- A mesh {sizes=, names=, ids=, handle=} of axes "a", "b", …
local function new_mesh(sizes, ids)
  local names, count, out = {}, 1, ffi.new "shardrt_mesh *[1]"
  for i, size in ipairs(sizes) do names[i], count = ("abcd"):sub(i, i), count * size end
  local c_ids = ids and ffi.new("int32_t[?]", #ids, ids)
  assert(C.shardrt_mesh_new(#sizes, ffi.new("int64_t[?]", #sizes, sizes), names_of(names), count, c_ids, 64, out) == 0)
  return { sizes = sizes, names = names, size = count, handle = ffi.gc(out[0], C.shardrt_mesh_free) }
end

-- Entries are lists of axes.
local function new_sharding(mesh, entries)
  local counts, names, out = {}, {}, ffi.new "shardrt_sharding *[1]"
  for d, entry in ipairs(entries) do
    counts[d] = #entry
    for _, name in ipairs(entry) do names[#names + 1] = name end
  end
  local c_counts = ffi.new("int32_t[?]", #counts + 1, counts)
  assert(C.shardrt_sharding_new(mesh.handle, #counts, c_counts, names_of(names), out) == 0)
  return ffi.gc(out[0], C.shardrt_sharding_free)
end

local function single(device)
  local out = ffi.new "shardrt_sharding *[1]"
  assert(C.shardrt_sharding_single(device, out) == 0)
  return ffi.gc(out[0], C.shardrt_sharding_free)
end

local function sizes_of(list) return ffi.new("int64_t[?]", math.max(#list, 1), list) end

local function find(from, to, sizes, o)
  o = o or {}
  local out = ffi.new "shardrt_lines"
  local hosts = o.hosts and ffi.new("int32_t[?]", #o.hosts, o.hosts)
  assert(C.shardrt_lines_find(from, to, o.sums or false, #sizes, sizes_of(sizes), o.devices or 1, hosts, out) == 0)
  return out
end

-- The elements of a position's block in their order, each as its row-major number in the array.
local function block(sharding, sizes, position)
  local shard = ffi.new "shardrt_shard"
  assert(C.shardrt_sharding_shard(sharding, #sizes, sizes_of(sizes), position, 1, shard) == 0)
  local numbers = { 0 }
  for d = 1, #sizes do
    local next_numbers, start = {}, tonumber(shard.box.start[d - 1])
    for _, number in ipairs(numbers) do
      for i = start, tonumber(shard.box.stop[d - 1]) - 1 do next_numbers[#next_numbers + 1] = number * sizes[d] + i end
    end
    numbers = next_numbers
  end
  return numbers
end

-- The line of a position, as a text, and its place, from 0.
local function stands(mesh, lines, position)
  local line, place = {}, 0
  for a = #mesh.sizes, 1, -1 do
    local along, weight = position % mesh.sizes[a], tonumber(lines.weights[a - 1])
    position = math.floor(position / mesh.sizes[a])
    if weight > 0 then place = place + along * weight else line[#line + 1] = along end
  end
  return table.concat(line, " "), place
end

-- The positions of each line, by their places.
local function all_lines(mesh, lines)
  local made, count = {}, 0
  for position = 0, mesh.size - 1 do
    local line, place = stands(mesh, lines, position)
    if not made[line] then made[line], count = {}, count + 1 end
    assert(made[line][place + 1] == nil)
    made[line][place + 1] = position
  end
  assert.equal(tonumber(lines.count), count)
  for _, line in pairs(made) do assert.equal(tonumber(lines.size), #line) end
  return made
end

local function check_gather(mesh, lines, from, to, sizes)
  for _, line in pairs(all_lines(mesh, lines)) do
    local gathered = {}
    for _, position in ipairs(line) do
      for _, number in ipairs(block(from, sizes, position)) do gathered[#gathered + 1] = number end
    end
    for _, position in ipairs(line) do assert.same(block(to, sizes, position), gathered) end
  end
end

-- What is added up is of one place of the sum, and all of its parts are there.
local function check_sum(mesh, lines, from, to, sizes)
  local rest = { unpack(sizes, 2) }
  local elements = 1
  for _, size in ipairs(rest) do elements = elements * size end
  for _, line in pairs(all_lines(mesh, lines)) do
    local parts, first = {}, nil
    for _, position in ipairs(line) do
      local numbers = block(from, sizes, position)
      local part = math.floor(numbers[1] / elements)
      assert(not parts[part])
      parts[part] = true
      for i, number in ipairs(numbers) do numbers[i] = number - part * elements end
      first = first or numbers
      assert.same(first, numbers)
    end
    assert.equal(sizes[1], #line)
    local each = lines.kind == SUM_PARTS and #first / #line or #first
    for place, position in ipairs(line) do
      local begin = lines.kind == SUM_PARTS and (place - 1) * each or 0
      local run = {}
      for i = 1, each do run[i] = first[begin + i] end
      assert.same(run, block(to, rest, position))
    end
  end
end

local MESHES = { { 2 }, { 4 }, { 2, 2 }, { 2, 3 }, { 4, 2 }, { 2, 1, 2 }, { 2, 2, 2 } }

local function shuffled(count)
  local ids = {}
  for i = 1, count do ids[i] = i - 1 end
  for i = count, 2, -1 do
    local k = math.random(i)
    ids[i], ids[k] = ids[k], ids[i]
  end
  return ids
end

-- Axes dealt to dimensions, and the sizes that they divide.
local function random_entries(mesh, ndim, first)
  local entries = {}
  for d = 1, ndim do entries[d] = {} end
  for i, a in ipairs(shuffled(#mesh.names)) do
    local d = math.random(i == 1 and first or 0, ndim)
    if d > 0 then table.insert(entries[d], mesh.names[a + 1]) end
  end
  return entries
end

-- The same with some axes taken off the ends of dimensions.
local function coarser(entries)
  local made = {}
  for d, entry in ipairs(entries) do made[d] = { unpack(entry, 1, math.random(0, #entry)) } end
  return made
end

describe("lines of a mesh", function()
  it("do what the new layout says, wherever they are found", function()
    math.randomseed(seed)
    local found = { [GATHER] = 0, [SUM] = 0, [SUM_PARTS] = 0, [NONE] = 0 }
    for _ = 1, 1500 do
      local sizes = MESHES[math.random(#MESHES)]
      local count = 1
      for _, size in ipairs(sizes) do count = count * size end
      local mesh = new_mesh(sizes, math.random() < 0.5 and shuffled(count) or nil)
      local ndim, sums = math.random(1, 3), math.random() < 0.6
      local fine = random_entries(mesh, ndim, sums and 1 or 0)
      local other = math.random() < 0.8 and coarser(fine) or random_entries(mesh, ndim, 0)
      local from, to, array = fine, other, {}
      if sums then
        -- The axes of the parts are those that the other layout lacks, or any.
        local used, parts = {}, {}
        for _, entry in ipairs(other) do
          for _, axis in ipairs(entry) do used[axis] = true end
        end
        for _, entry in ipairs(fine) do
          for _, axis in ipairs(entry) do
            if not used[axis] then parts[#parts + 1] = axis end
          end
        end
        from, to = { parts, unpack(other) }, math.random() < 0.5 and fine or other
      end
      for d = 1, #from do array[d] = ({ 1, 12, 24 })[math.random(3)] end
      if sums then
        array[1] = 1
        for _, axis in ipairs(from[1]) do array[1] = array[1] * mesh.sizes[axis:byte() - 96] end
      end
      local a, b = new_sharding(mesh, from), new_sharding(mesh, to)
      local out, shape = ffi.new "shardrt_lines", sizes_of(array)
      if C.shardrt_lines_find(a, b, sums, #array, shape, 1, nil, out) == 0 then -- else a cut does not divide
        found[out.kind] = found[out.kind] + 1
        if out.kind == GATHER then check_gather(mesh, out, a, b, array) end
        if out.kind == SUM or out.kind == SUM_PARTS then check_sum(mesh, out, a, b, array) end
      end
    end
    for _, kind in ipairs { GATHER, SUM, SUM_PARTS, NONE } do assert.is_true(found[kind] > 40, kind) end
  end)

  local mesh = new_mesh { 4, 2 } -- devices 0 to 7
  local function on(...) return new_sharding(mesh, { ... }) end

  it("gather what is cut along the first dimension that has more than one row, and nothing else", function()
    local cut, a = on { "a", "b" }, {}
    local all = find(cut, on {}, { 16, 3 })
    assert.equal(GATHER, all.kind)
    assert.same({ 1, 8, 48 }, { tonumber(all.count), tonumber(all.size), tonumber(all.elements) })
    assert.equal(GATHER, find(cut, on { "a" }, { 16, 3 }).kind)
    assert.equal(NONE, find(cut, on { "b" }, { 16, 3 }).kind) -- what is left lies in other rows
    assert.equal(NONE, find(on(a, { "b" }), on {}, { 16, 4 }).kind) -- columns: no run
    assert.equal(GATHER, find(on(a, { "b" }), on {}, { 1, 4 }).kind)
    assert.equal(NONE, find(cut, on({}, { "a", "b" }), { 16, 8 }).kind) -- to all others, as messages go
    assert.equal(NONE, find(cut, cut, { 16 }).kind)
    assert.equal(NONE, find(cut, on {}, { 0, 3 }).kind)
    assert.equal(NONE, find(cut, new_sharding(new_mesh({ 4, 2 }, { 1, 0, 2, 3, 4, 5, 6, 7 }), {}), { 16 }).kind)
  end)

  it("pass on what one of them has", function()
    local lines = find(single(5), on {}, { 3, 4 })
    assert.same({ BROADCAST, 1, 8 }, { lines.kind, tonumber(lines.count), tonumber(lines.size) })
    assert.equal(5, tonumber(lines.root))
    assert.is_true(lines.is_between)
    assert.equal(NONE, find(single(5), on { "a" }, { 4 }).kind)
    assert.equal(NONE, find(single(9), on {}, { 4 }).kind) -- which is not among them
    -- One that sends to one other has nothing to gain.
    assert.is_false(find(single(5), on {}, { 4 }, { devices = 4 }).saves)
    assert.is_true(find(single(5), on {}, { 4 }, { devices = 2 }).saves)
    assert.is_false(find(single(5), on {}, { 4 }, { devices = 8 }).is_between)
  end)

  it("save bytes where several processes of a host need the same from another one", function()
    local function saves(hosts, devices)
      return find(on { "a", "b" }, on {}, { 16 }, { hosts = hosts, devices = devices }).saves
    end
    assert.is_false(saves(nil))
    assert.is_false(saves({ 0, 0, 0, 0, 0, 0, 0, 0 }))
    assert.is_false(saves({ 0, 1, 2, 3, 4, 5, 6, 7 }))
    assert.is_true(saves({ 0, 0, 0, 0, 4, 4, 4, 4 }))
    assert.is_true(saves({ 0, 1, 0, 1, 0, 1, 0, 1 }))
    assert.is_true(saves({ 0, 1, 2, 3, 4, 5, 6, 6 }))
    assert.is_false(saves({ 0, 1 }, 4))
    -- Lines along "b" have two processes, which one host has or two.
    local function along_b(hosts) return find(on { "a", "b" }, on { "a" }, { 16 }, { hosts = hosts }).saves end
    assert.is_false(along_b({ 0, 0, 0, 0, 4, 4, 4, 4 }))
    assert.is_false(along_b({ 0, 1, 0, 1, 0, 1, 0, 1 }))
  end)

  it("would do the same twice in a process that has replicas in two of them", function()
    local function once(from, to, devices) return find(from, to, { 16 }, { devices = devices }).is_once end
    assert.is_true(once(on { "a" }, on {}, 1))
    assert.is_false(once(on { "a" }, on {}, 2)) -- each process has both devices along "b"
    assert.is_true(once(on { "a", "b" }, on {}, 2))
    assert.is_true(once(on { "b" }, on {}, 2)) -- lines along "b", one for each process
    assert.is_false(once(on { "b" }, on {}, 4))
    local parts = { sums = true, devices = 2 }
    assert.is_false(find(on({ "a" }, {}), on {}, { 4, 6 }, parts).is_once)
    assert.is_true(find(on({ "a" }, { "b" }), on { "b" }, { 4, 6 }, parts).is_once)
  end)

  it("are nothing for a mesh of more axes than there is room for, and say what does not fit", function()
    local sizes = {}
    for i = 1, 17 do sizes[i] = i == 1 and 2 or 1 end
    local names, out = {}, ffi.new "shardrt_mesh *[1]"
    for i = 1, 17 do names[i] = "axis" .. i end
    assert(C.shardrt_mesh_new(17, sizes_of(sizes), names_of(names), 0, nil, 64, out) == 0)
    local many = { handle = ffi.gc(out[0], C.shardrt_mesh_free) }
    assert.equal(NONE, find(new_sharding(many, { { "axis1" } }), new_sharding(many, {}), { 4 }).kind)
    local lines = ffi.new "shardrt_lines"
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_lines_find(on { "a" }, on {}, false, 1, sizes_of { 3 }, 1, nil, lines))
  end)
end)

-- shuffle = "blocks": the order is that of a plain program (tests/support/loader/block_oracle.lua) for random blocks,
-- windows, batches and views, the same in jobs of every size and when it is resumed; each block is decoded about once
-- in the whole job.

local cjson = require "cjson"
local ffi = require "ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local nginx = require "tests.support.nginx"
local oracle = require "tests.support.loader.block_oracle"
local shardrt = require "shardrt"

ffi.cdef "uint64_t hash_number(uint64_t seed, int64_t number);"

local seed = require "tests.support.seed" % 100000
math.randomseed(seed)
local random = math.random

local folder
setup(function() folder = files.folder() end)
teardown(function() files.remove(folder) end)

-- A Zarr array of the numbers first … first + count - 1, int32, `rows` of them a chunk; gzipped, if `compressed`.
local made = 0
local function numbers(first, count, rows, compressed)
  made = made + 1
  local path = ("%s/%d.zarr"):format(folder, made)
  os.execute("mkdir " .. path)
  local filler = compressed and '{"id": "gzip", "level": 1}' or "null"
  files.write(path, ".zarray", ('{"zarr_format": 2, "shape": [%d], "chunks": [%d], "dtype": "<i4", "compressor": %s,'
    .. ' "fill_value": -1, "order": "C", "filters": null}'):format(count, rows, filler))
  local data = ffi.new("int32_t[?]", rows)
  for chunk = 0, math.ceil(count / rows) - 1 do
    for i = 0, rows - 1 do data[i] = first + chunk * rows + i end
    files.write(path, tostring(chunk), ffi.string(data, rows * 4))
  end
  if compressed then os.execute(("cd %s && gzip -1 [0-9]* && for f in *.gz; do mv $f ${f%%.gz}; done"):format(path)) end
  return path
end

local function ids_of(loader)
  local ids, states = {}, {}
  for batch in loader do
    local host, mask = shardrt.device_get(batch.id), shardrt.device_get(batch.mask)
    for i = 0, host.size - 1 do
      if mask.data[i] then ids[#ids + 1] = host.data[i] end
    end
    states[#states + 1] = { at = #ids, state = cjson.encode(loader:state()) }
  end
  return ids, states
end

-- A random source, what it gives in its own order, and its blocks, {first, count} each.
local views = {}

local function blocks_where(blocks, ids, keeps)
  local kept, found = {}, {}
  if #blocks == #ids then -- each stands alone, and does so in the view
    for i, id in ipairs(ids) do
      if keeps(id, i - 1) then
        found[#found + 1] = { #kept, 1 }
        kept[#kept + 1] = id
      end
    end
    return kept, found
  end
  for _, block in ipairs(blocks) do
    local first = #kept
    for i = block[1] + 1, block[1] + block[2] do
      if keeps(ids[i], i - 1) then kept[#kept + 1] = ids[i] end
    end
    found[#found + 1] = { first, #kept - first }
  end
  return kept, found
end

function views.leaf(first)
  local count, rows = random(5, 150), random(2, 12)
  local source = shardrt.source.zarr { id = numbers(first, count, rows) }
  local ids, blocks = {}, {}
  for i = 1, count do ids[i] = first + i - 1 end
  for at = 0, count - 1, rows do blocks[#blocks + 1] = { at, math.min(rows, count - at) } end
  return source, ids, blocks
end

-- A shard of a shard is one of what that is made of, whose blocks count, which are not known here: it is left as it is.
function views.shard(first)
  local source, ids, blocks, name = views.any(first)
  if name == "shard" then return source, ids, blocks end
  local n = random(1, 3)
  local index = random(0, n - 1)
  return source:shard(n, index), blocks_where(blocks, ids, function(_, i) return i % n == index end)
end

function views.filter(first)
  local source, ids, blocks = views.any(first)
  local n = random(2, 5)
  local kept, found = blocks_where(blocks, ids, function(id) return id % n ~= 1 end)
  return source:filter { id = function(id) return id % n ~= 1 end }, kept, found
end

function views.map(first)
  local source, ids, blocks = views.any(first)
  return source:map { id = { shardrt.transform.cast "int32" } }, ids, blocks
end

function views.concat(first)
  local a, ids, blocks = views.any(first)
  local b, more, others = views.any(first + 50000)
  local count = #ids
  for _, id in ipairs(more) do ids[#ids + 1] = id end
  for _, block in ipairs(others) do blocks[#blocks + 1] = { block[1] + count, block[2] } end
  return shardrt.concat { a, b }, ids, blocks
end

local NAMES, depth = { "leaf", "leaf", "shard", "filter", "map", "concat" }, 0
function views.any(first)
  depth = depth + 1
  local name = depth > 3 and "leaf" or NAMES[random(#NAMES)]
  local source, ids, blocks = views[name](first)
  depth = depth - 1
  return source, ids, blocks, name
end

-- Every sample of an epoch once; those of a window are of as many blocks.
local function check_epoch(ids, order, windows, blocks, o, say)
  local seen, block_of, in_window = {}, {}, {}
  for b, block in ipairs(blocks) do
    for i = block[1], block[1] + block[2] - 1 do block_of[i] = b end
  end
  for i, sample in ipairs(order) do
    assert.is_nil(seen[sample], say)
    seen[sample] = true
    local list = in_window[windows[i]] or { n = 0 }
    in_window[windows[i]] = list
    if not list[block_of[sample]] then list.n = list.n + 1 end
    list[block_of[sample]] = true
  end
  assert.equal(#ids, #order, say)
  if #blocks == #order then return end
  for _, list in pairs(in_window) do assert.is_true(list.n <= o.window, say) end
end

describe('shuffle = "blocks"', function()
  it("gives the order that it is described to give, of any source, and goes on from any state", function()
    for case = 1, 15 do
      local source, ids, blocks = views.any(0)
      local o = { seed = random(0, 2 ^ 40), window = random(1, 20), batch_size = 8 * random(1, 6) }
      if case % 3 == 0 then o.sharding, o.batch_size = shardrt.NamedSharding(shardrt.Mesh({ 1 }, { "data" }, { 0 }),
        shardrt.P "data"), random(1, 9) end
      local say = ("seed %d, case %d: %s"):format(seed, case, cjson.encode { blocks = blocks, window = o.window,
        batch_size = o.batch_size, seed = o.seed })
      local function loader(more)
        local options = { source = source, shuffle = "blocks", remainder = "pad", epochs = 2, window = o.window,
          seed = o.seed, batch_size = o.batch_size, sharding = o.sharding, num_workers = random(1, 3) }
        for name, value in pairs(more or {}) do options[name] = value end
        return shardrt.loader(options)
      end
      if #ids > 0 then
        local expected = {}
        for epoch = 0, 1 do
          local order, windows = oracle.order(blocks, { seed = o.seed, epoch = epoch, window = o.window,
            rows = o.batch_size, batches = 1, base = 0 })
          check_epoch(ids, order, windows, blocks, o, say)
          for _, sample in ipairs(order) do expected[#expected + 1] = ids[sample + 1] end
        end
        local first = loader()
        local got, states = ids_of(first)
        assert.same(expected, got, say)
        assert.equal(#blocks == #ids and #ids or #blocks, first:stats().blocks, say)
        local from = states[random(math.max(1, #states - 1))]
        local wide = loader { batch_size = 8 * random(1, 5), lanes = o.batch_size }
        assert.same(expected, (ids_of(wide)), say)
        local other = loader { batch_size = 8 * random(1, 5) }
        other:restore(cjson.decode(from.state))
        local rest = ids_of(other)
        assert.equal(#got - from.at, #rest, say)
        for i, id in ipairs(rest) do assert.equal(got[from.at + i], id, say) end
      end
    end
  end)

  it("is an order of each part of a mix, whose rows it has in every batch", function()
    for case = 1, 6 do
      local parts, ids, blocks, weights, period = {}, {}, {}, {}, 0
      for p = 1, random(2, 3) do
        local source
        repeat source, ids[p], blocks[p] = views.any(p * 2 ^ 24) until #ids[p] > 0
        weights[p] = random(1, 5)
        parts[p], period = { source, weights[p] }, period + weights[p]
      end
      parts.samples = random(100, 300)
      local o = { seed = random(0, 99), window = random(1, 9), batch_size = 8 * random(1, 4) }
      local mixed = shardrt.mix(parts)
      local got = ids_of(shardrt.loader { source = mixed, shuffle = "blocks", remainder = "pad", epochs = 3,
        window = o.window, seed = o.seed, batch_size = o.batch_size })
      local divisor = 0 -- of the weights, by which the mix divides them
      local function gcd(a, b) return b == 0 and a or gcd(b, a % b) end
      for _, weight in ipairs(weights) do divisor = gcd(weight, divisor) end
      local orders, turns, first, empty = {}, {}, 0, {}
      for p in ipairs(parts) do -- an empty block at the end of one is the next one's first
        local kept = {}
        for _, block in ipairs(blocks[p]) do
          if block[1] == #ids[p] then empty[p + 1] = (empty[p + 1] or 0) + 1 else kept[#kept + 1] = block end
        end
        for _ = 1, empty[p] or 0 do table.insert(kept, 1, { 0, 0 }) end
        blocks[p] = kept
      end
      for p in ipairs(parts) do
        local count = #ids[p]
        local rows, batches = o.batch_size * weights[p], period
        local common = gcd(rows, batches)
        orders[p], turns[p] = {}, 0
        for epoch = 0, math.ceil(parts.samples * 3 / count) do
          local order = oracle.order(blocks[p], { seed = ffi.C.hash_number(o.seed, first), epoch = epoch,
            window = o.window, rows = rows / common, batches = batches / common, base = epoch * count })
          for _, sample in ipairs(order) do table.insert(orders[p], ids[p][sample + 1]) end
        end
        first = first + count
      end
      local say = ("seed %d, case %d"):format(seed, case)
      for _, id in ipairs(got) do -- whose turn it is is not asked here
        local p = math.floor(id / 2 ^ 24)
        turns[p] = turns[p] + 1
        assert.equal(orders[p][turns[p]], id, say)
      end
      assert.equal(parts.samples * 3, #got, say)
    end
  end)

  it("takes runs of packed rows, of records in several files, and chunks of ArrayRecords", function()
    local tokens = {} -- 8 MiB
    for i = 1, 2000 do tokens[i] = shardrt.ndarray.full({ random(500, 1500) }, i, "int32") end
    local rows = shardrt.source.ragged { tokens = tokens }:pack { length = 2048, window = 50 }
    local function samples(source, field, o)
      local options = { source = source, shuffle = "blocks", window = 2, batch_size = 8, epochs = 1, remainder = "pad" }
      for name, value in pairs(o or {}) do options[name] = value end
      local loader, seen, n = shardrt.loader(options), {}, 0
      for batch in loader do
        local host, mask = shardrt.device_get(batch[field]), shardrt.device_get(batch.mask)
        local each = host.size / mask.size
        for i = 0, mask.size - 1 do
          if mask.data[i] then
            n = n + 1
            for k = 0, each - 1 do seen[tonumber(host.data[i * each + k])] = true end
          end
        end
      end
      return n, seen, loader:stats()
    end
    local n, seen, stats = samples(rows, "tokens")
    assert.equal(#rows, n)
    for i = 1, 2000 do assert.is_true(seen[i]) end
    assert.is_true(stats.blocks >= 2 and stats.blocks <= 3, stats.blocks)

    local paths, count = {}, 0
    for f, lines in ipairs { 10, 60000, 1, 300 } do
      local text = { "id,text" }
      for _ = 1, lines do
        text[#text + 1] = ("%d,%s"):format(count, ("x"):rep(60))
        count = count + 1
      end
      paths[f] = files.write(folder, ("%d.csv"):format(f), table.concat(text, "\n") .. "\n")
    end
    n, seen, stats = samples(shardrt.source.csv(paths, { fields = { "id" } }), "id", { batch_size = 64 })
    assert.equal(count, n)
    for i = 0, count - 1 do assert.is_true(seen[i]) end
    assert.equal(3 + math.ceil(60000 / math.floor(2 ^ 20 / math.floor(#files.slurp(paths[2]) / 60000))), stats.blocks)

    local path = folder .. "/zstd-4.array_record"
    assert(os.execute("gunzip -c tests/files/array_record/zstd-4.array_record.gz >" .. path) == 0)
    local size = shardrt.transform.lua(function(sample) sample.out[0] = sample.size end,
      { shape = {}, dtype = "int32" })
    n, seen, stats = samples(shardrt.source.array_record(path), "record", { epochs = 30, num_workers = 4,
      transform = { record = { size } } })
    assert.equal(300, n)
    for i = 0, 9 do assert.is_true(seen[5 + 13 * i]) end
    assert.equal(3, stats.blocks)
    assert.equal(3, stats.blocks_decoded) -- all are kept
  end)

  it("refuses what it is not for, and states of another order", function()
    local source = shardrt.source.array { id = shardrt.ndarray.arange(64, "int32") }
    local function refused(o)
      o.source, o.batch_size = source, 8
      return files.message(shardrt.loader, o)
    end
    assert.truthy(refused({ shuffle = "block" }):find('it is true, false or "blocks"', 1, true))
    assert.truthy(refused({ shuffle = true, window = 3 }):find('window is for shuffle = "blocks"', 1, true))
    assert.truthy(refused({ shuffle = "blocks", window = 0 }):find("window = 0", 1, true))
    local function state(o)
      o.source, o.batch_size, o.epochs = source, 8, 1
      return shardrt.loader(o)
    end
    assert.truthy(refused({ shuffle = true, lanes = 3 }):find('lanes is for shuffle = "blocks"', 1, true))
    local given = state({ shuffle = "blocks", window = 3 }):state()
    assert.equal(3, given.window)
    local function differs(o) return files.message(function() state(o):restore(given) end) end
    assert.truthy(differs({ shuffle = "blocks", window = 4 }):find("the state's window is 3, this loader's is 4", 1,
      true))
    assert.truthy(differs({ shuffle = true }):find('the state\'s shuffle is "blocks", this loader\'s is true', 1, true))
    given.lanes = 9
    assert.truthy(differs({ shuffle = "blocks", window = 3 }):find("it is damaged", 1, true))
    given.lanes = nil
    assert.truthy(differs({ shuffle = "blocks", window = 3 }):find("the state's lanes is nil", 1, true))
    given = state({ shuffle = true }):state()
    assert.truthy(differs({ shuffle = "blocks" }):find("the state's shuffle is true, this loader's is", 1, true))
  end)
end)

-- Takes steps from a state on, and prints what it got, what it decoded and where it is.
local PART = [[
local cjson = require "cjson"
local shardrt = require "shardrt"
local task = cjson.decode(arg[1])
local loader = shardrt.loader { source = shardrt.source.zarr { id = task.path, x = task.other }, shuffle = task.shuffle,
  window = task.window, seed = 5, epochs = 1, batch_size = task.batch_size, remainder = "pad" }
if task.state then loader:restore(task.state) end
for step = 1, task.steps do
  local batch = loader()
  if not batch then break end
  local id, mask, x = shardrt.process_allgather(batch.id), shardrt.process_allgather(batch.mask),
    shardrt.process_allgather(batch.x)
  for i = 0, id.size - 1 do
    assert(not mask.data[i] or x.data[i] == id.data[i])
    if mask.data[i] and shardrt.process_index() == 0 then print("id " .. id.data[i]) end
  end
end
-- Process 0 alone prints: lines of several are mixed where one is cut.
local decoded = shardrt.process_allgather(loader:stats().blocks_decoded):to_table()
local blocks = shardrt.process_allgather(loader:stats().blocks):to_table()
if shardrt.process_index() == 0 then
  for p, n in ipairs(decoded) do print(("decoded %d of %d"):format(n, blocks[p])) end
  print("state " .. cjson.encode(loader:state()))
end
]]

describe('shuffle = "blocks" of large blocks', function()
  -- Blocks of 4096 rows and more are mixed by fewer rounds.
  local function loader_and_oracle(count, rows)
    local window, blocks = 4, {}
    for at = 0, count - 1, rows do blocks[#blocks + 1] = { at, math.min(rows, count - at) } end
    return shardrt.loader { source = shardrt.source.zarr { id = numbers(0, count, rows) }, shuffle = "blocks",
      window = window, seed = 42, epochs = 1, batch_size = 32, remainder = "pad" },
      oracle.order(blocks, { seed = 42, epoch = 0, window = window, rows = 32, batches = 1, base = 0 })
  end

  it("is that of the plain program, and stays what it is: checkpoints continue with it", function()
    local first = {
      [300] = { 543, 322, 347, 445, 481, 329, 501, 352 },
      [4096] = { 7496, 4328, 6671, 7386, 7620, 5297, 6455, 4927 },
    }
    for rows, begins in pairs(first) do
      local loader, expected = loader_and_oracle(7 * rows, rows)
      local ids = ids_of(loader)
      assert.same(expected, ids)
      assert.same(begins, { unpack(ids, 1, 8) })
      local old = loader:state()
      for version = 1, 2 do -- of orders that are no more
        old.version = version
        local problem = ("version is %d; this is version 3"):format(version)
        assert.truthy(files.message(loader.restore, loader, old):find(problem, 1, true))
      end
    end
  end)
end)

local BLOCKS, ROWS, WINDOW = 40, 60, 8

describe('shuffle = "blocks" in a job', function()
  local path, other
  setup(function()
    path, other = numbers(0, BLOCKS * ROWS - 7, ROWS, true), numbers(0, BLOCKS * ROWS - 7, ROWS, true)
  end)

  local function run(job, task)
    task.path, task.other = path, other
    if not task.shuffle then task.shuffle, task.window = "blocks", WINDOW end
    local result = mpi.run { source = PART, processes = job[1], devices = job[2], args = { cjson.encode(task) },
      options = task.options }
    assert.equal(0, result.status, result.output)
    local ids, decoded = {}, 0
    for id in result.stdout:gmatch "id (%d+)" do ids[#ids + 1] = tonumber(id) end
    for n, of in result.stdout:gmatch "decoded (%d+) of (%d+)" do
      assert.equal(BLOCKS, tonumber(of))
      decoded = decoded + n
    end
    return ids, decoded, cjson.decode(result.stdout:match "state (%b{})"), result.stderr
  end

  it("is the same in jobs of every size, and decodes each block about once in all of them together", function()
    local blocks = {}
    for at = 0, BLOCKS * ROWS - 8, ROWS do blocks[#blocks + 1] = { at, math.min(ROWS, BLOCKS * ROWS - 7 - at) } end
    local expected = oracle.order(blocks, { seed = 5, epoch = 0, window = WINDOW, rows = 64, batches = 1, base = 0 })
    for _, job in ipairs { { 1, 8 }, { 2, 4 }, { 4, 2 } } do
      local ids, decoded = run(job, { steps = 1e6, batch_size = 64 })
      assert.same(expected, ids)
      assert.is_true(decoded >= BLOCKS)
      -- In a window each border between processes may cut one block.
      assert.is_true(decoded <= BLOCKS + (job[1] - 1) * BLOCKS / WINDOW, decoded .. " were decoded")
    end
    -- From one job to another, with other batches.
    local ids, _, state = run({ 4, 2 }, { steps = 9, batch_size = 64 })
    local rest = run({ 2, 4 }, { steps = 1e6, batch_size = 40, state = state })
    for _, id in ipairs(rest) do ids[#ids + 1] = id end
    assert.same(expected, ids)
  end)

  it("tells what a full shuffle costs instead, once, and the plan tells of all", function()
    local _, decoded, _, said = run({ 2, 4 }, { steps = 1e6, batch_size = 64, shuffle = true })
    assert.equal(2 * BLOCKS, decoded) -- all are kept here, in both
    local told = said:match "shuffle = true over 40 blocks [^\n]*"
    assert.truthy(told and told:find("decodes about 80 of them in all processes together", 1, true), said)
    assert.is_nil(said:match("shuffle = true over .*shuffle = true over"))
    -- One process that keeps all blocks decodes each once, in any order.
    _, decoded, _, said = run({ 1, 8 }, { steps = 1e6, batch_size = 64, shuffle = true })
    assert.equal(BLOCKS, decoded)
    assert.is_nil(said:find("shuffle = true over", 1, true), said)
    local recipe = files.write(folder, "plan.lua", ([[
local shardrt = require "shardrt"
shardrt.loader { source = shardrt.source.zarr { id = %q, x = %q }, shuffle = "blocks", window = %d, batch_size = 64,
  epochs = 1 }]]):format(path, other, WINDOW))
    local plan = mpi.shell(("'%s' plan --processes 2 --devices 4 '%s'"):format(mpi.program(), recipe))
    assert.equal(0, plan.status, plan.output)
    for _, line in ipairs { "the source is stored in 40 blocks", "shuffle = false: 80 blocks decoded",
      'shuffle = "blocks", window = 8: 45 blocks decoded', "shuffle = true, about: 80 blocks decoded" } do
      assert.truthy(plan.stdout:find(line, 1, true), plan.stdout)
    end
  end)
end)

describe('shuffle = "blocks" of a file on a server', function()
  it("downloads less than a full shuffle, though the cache holds a third of the file", function()
    local ROW, COUNT = 16384, 768 -- 12 MiB
    shardrt.ndarray.arange(ROW / 4 * COUNT, "int32"):reshape { COUNT, ROW / 4 }:save(folder .. "/rows.npy")
    local server = nginx.start(folder)
    finally(function() server:stop() end)
    local function downloaded(o)
      o.source = shardrt.source.npy({ x = server.url .. "/rows.npy" }, { cache = files.folder(), cache_bytes = 2 ^ 22 })
      o.batch_size, o.epochs, o.seed, o.num_workers = 32, 1, 3, 2
      local loader = shardrt.loader(o)
      local seen = {}
      for batch in loader do
        local x = shardrt.device_get(batch.x)
        for i = 0, 31 do seen[x.data[i * ROW / 4]] = true end
      end
      for i = 0, COUNT - 1 do assert.is_true(seen[i * ROW / 4]) end
      return loader:stats().bytes_from_network / (ROW * COUNT), loader:stats().blocks
    end
    local once, blocks = downloaded { shuffle = "blocks", window = 2 }
    local often = downloaded { shuffle = true }
    assert.equal(12, blocks)
    -- About once; how often again hangs on time, as the lookahead drops from the small cache what comes first.
    assert.is_true(once > 0.9 and once < often / 4, once .. " times the file, and " .. often)
    assert.is_true(often > 3, often .. " times the file")
  end)
end)

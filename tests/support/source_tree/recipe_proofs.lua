-- What recipes promise, proved while they run: each proof is Lua text for one recipe that watches the words which it
-- calls, and looks at all that went through them once the recipe has ended. recipe_proofs_spec.lua runs them in jobs.

local proofs = {}

-- What all proofs share. A stream is a loader that the recipe made: every batch that it gives is looked at first.
local SHARED = [[
local shardrt = require "shardrt"
local C = require "shardrt.base.ffi"
local np, ndarray, P = require "shardrt.numpy", shardrt.ndarray, shardrt.P
local all = shardrt.process_allgather

-- The elements of a host array, which live as long as it does: here, as the job.
local kept = {}
local function elements(host)
  kept[#kept + 1] = host
  return host.data
end

-- Calls `see` with the results of a word, in a table, and its arguments.
local function watch(word, see)
  local original = shardrt[word]
  shardrt[word] = function(...)
    local results = { original(...) }
    see(results, ...)
    return unpack(results)
  end
end

-- Watches loaders. Samples get their numbers as one more field, unless `prepare` (of a copy of the options) says no.
local streams = {}
local function watch_loaders(see, prepare)
  local make, inner_of = shardrt.loader, {}
  shardrt.loader = function(options)
    local o = {}
    for name, value in pairs(options) do o[name] = value end
    local is_numbered = not prepare or prepare(o) ~= false
    if is_numbered then o.source = o.source:enumerate "number" end
    local inner = make(o)
    local stream = { loader = inner, options = o, steps = 0, ids = {}, has_ended = false }
    streams[#streams + 1] = stream
    local proxy = setmetatable({}, {
      __index = function(_, key)
        local value = inner[key]
        return type(value) ~= "function" and value or function(_, ...) return value(inner, ...) end
      end,
      __call = function()
        local batch = inner()
        if not batch then
          stream.has_ended = true
          return nil
        end
        stream.steps = stream.steps + 1
        if is_numbered then
          local id, mask = elements(all(batch.number)), batch.mask and elements(all(batch.mask))
          for row = 0, inner.batch_size - 1 do
            if not mask or mask[row] then stream.ids[#stream.ids + 1] = tonumber(id[row]) end
          end
        end
        if see then see(batch, stream) end
        return batch
      end,
    })
    inner_of[proxy] = inner
    return proxy
  end
  local keep = shardrt.checkpoint
  shardrt.checkpoint = function(o)
    local with = {}
    for name, value in pairs(o) do with[name] = value end
    with.loader = inner_of[o.loader]
    return keep(with)
  end
end

-- Every sample came once in each epoch.
local function each_once(stream, epochs)
  local count = #stream.options.source
  assert(stream.has_ended and #stream.ids == epochs * count, "samples are missing")
  for epoch = 0, epochs - 1 do
    local seen = {}
    for i = epoch * count + 1, (epoch + 1) * count do
      assert(not seen[stream.ids[i] ], "a sample came twice")
      seen[stream.ids[i] ] = true
    end
  end
end

-- The sum of a number over all processes.
local function total(number)
  local sum = 0
  for _, one in ipairs(all(number):to_table()) do sum = sum + one end
  return sum
end

-- Calls f with the place of every element of a shard and its number in the shard.
local function each_element(shard, f)
  local at = 0
  local columns = shard.index[2] or { 0, 1 }
  for row = shard.index[1][1], shard.index[1][2] - 1 do
    for column = columns[1], columns[2] - 1 do
      f(row, column, at)
      at = at + 1
    end
  end
end

-- What is loaded is what was saved, in every element of every device's part; each loaded name is counted.
local loaded = 0
local function watch_files()
  local saved = {}
  watch("save", function(results, _, arrays)
    local bytes = 0
    for name, x in pairs(arrays) do
      saved[name] = ndarray.is(x) and x or all(x)
      bytes = bytes + saved[name].bytes
    end
    local written = total(results[1])
    assert(written > bytes and written < bytes + 3000, "each weight is written once, with a header")
  end)
  watch("load", function(results, _, to)
    for name, x in pairs(to and results[1] or {}) do
      local whole, width = saved[name], saved[name].shape[2] or 1
      for _, shard in ipairs(x.addressable_shards) do
        each_element(shard, function(row, column, at)
          assert(shard.data.data[at] == whole.data[row * width + column], name)
        end)
      end
      loaded = loaded + 1
    end
  end)
end

local function run_recipe()
  arg[0] = RECIPE
  dofile(RECIPE)
end
]]

proofs.convenient_load = [[
watch_loaders(function(batch, stream) -- row r of step k is sample batch_size k + r
  local width = batch.x.shape[2]
  for _, shard in ipairs(batch.x.addressable_shards) do
    each_element(shard, function(row, column, at)
      assert(shard.data.data[at] == ((stream.steps - 1) * batch.x.shape[1] + row) * width + column)
    end)
  end
end, function() return false end)
run_recipe()
for _, stream in ipairs(streams) do -- every byte is read once
  local x = stream.options.source.fields.x
  assert(stream.steps == 5 and total(stream.loader:stats().bytes_read) == #stream.options.source * x.shape[1] * 4)
end
assert(#streams == 2)
]]

proofs.data_parallel = [[
watch_loaders(nil, function(o) -- the numbers on every device: replicas, which are compared
  local rows = o.sharding
  o.sharding = { image = rows, label = rows, number = shardrt.NamedSharding(rows.mesh, P()) }
end)
run_recipe()
each_once(streams[1], 1)
for i, id in ipairs(streams[1].ids) do assert(id == tonumber(C.shardrt_order_index(42, 0, 60000, i - 1))) end
assert(streams[1].loader:stats().steps_checked > 0 or shardrt.device_count() == 1)
]]

proofs.disagreeing_shardings = [[
run_recipe()
local n = 4 * shardrt.device_count()
local rows = shardrt.NamedSharding(shardrt.make_mesh({ shardrt.device_count() }, { "x" }), P "x")
local x = shardrt.device_put(ndarray.arange(n, "float32"), rows)
for _, y in ipairs { np.zeros { n }, np.arange(n), ndarray.arange(n, "float32"), 1 } do
  local sum, mus = x + y, y + x
  assert(sum.committed and sum.sharding == rows and mus.sharding == rows)
end
local like = np.ones_like(x)
assert(like.committed and like.sharding == rows and not (np.zeros { 4 } + np.arange(4)).committed)
assert(np.sum(x + np.arange(n)):item() == n * (n - 1))
if shardrt.device_count() > 1 then
  assert(not pcall(function() return x + shardrt.device_put(ndarray.arange(n, "float32"), 0) end))
end
]]

-- With a third argument, process 0 notes there what each step was given: a line "step: id id …".
proofs.elastic = [[
arg[2] = arg[2] or shardrt.temporary_folder() .. "/saved"
local log, checkpoint = arg[3] and shardrt.process_index() == 0 and assert(io.open(arg[3], "a")), nil
watch_loaders(function(batch, stream)
  if not log then return end
  local rows = batch.id.shape[1]
  log:write(checkpoint.steps + 1, ":")
  for i = #stream.ids - rows + 1, #stream.ids do log:write(" ", stream.ids[i]) end
  log:write "\n"
  log:flush() -- the process may be killed
end)
watch("checkpoint", function(results) checkpoint = results[1] end)
run_recipe()
if arg[3] then return end -- what several runs were given is looked at together
each_once(streams[1], 1)
for i, id in ipairs(streams[1].ids) do assert(id == tonumber(C.shardrt_order_index(7, 0, 3840, i - 1))) end
]]

proofs.full_replication = [[
watch("device_put", function(results)
  assert(results[1].is_fully_replicated)
  for _, shard in ipairs(results[1].addressable_shards) do
    assert(shard.index[1][2] == 64 and shard.index[2][2] == 128, "the whole array")
    each_element(shard, function(row, column, at) assert(shard.data.data[at] == row * 128 + column) end)
  end
end)
run_recipe()
]]

proofs.http = [[
watch_loaders()
run_recipe()
each_once(streams[1], 2)
]]

proofs.imagenet_folder = [[
watch_loaders(function(batch)
  assert(batch.image.dtype == "float32" and batch.image.shape[2] == 3 and batch.image.shape[4] == 224)
end)
run_recipe()
each_once(streams[1], 2)
]]

proofs.images_and_labels = [[
watch_loaders(function(batch, stream) -- every image shows its label
  if not stream.options.sharding.image then return end -- features
  for i, shard in ipairs(batch.image.addressable_shards) do
    local own = batch.label.addressable_shards[i].data
    for row = 0, own.size - 1 do assert(shard.data.data[row * 8 * 8 * 3] == own.data[row] % 256) end
  end
end, function(o)
  if not o.sharding.image then return false end
  local by = o.sharding
  o.sharding = { image = by.image, label = by.label, number = shardrt.NamedSharding(by.image.mesh, P()) }
end)
run_recipe()
each_once(streams[1], 1)
each_once(streams[2], 1)
]]

proofs.independent_streams = [[
local given, calls = {}, 0
watch("make_array_from_process_local_data", function(results, s, own)
  local x, rows = results[1], own.shape[1]
  for _, shard in ipairs(x.addressable_shards) do
    assert(shard.data.data[0] == own.data[0], "each device holds rows of its own process's batch")
  end
  local value, streams = elements(all(x)), x.shape[1] / rows
  local turn = math.floor(calls / math.floor(100 / streams)) + 1
  given[turn], calls = given[turn] or {}, calls + 1
  for i = 0, streams - 1 do
    local number = value[i * rows * 3]
    assert(not given[turn][number], "a batch came twice")
    given[turn][number] = true
  end
end)
run_recipe()
assert(#given == 2 and next(given[1]))
for number in pairs(given[1]) do assert(given[2][number], "an assignment lost a batch") end
for number in pairs(given[2]) do assert(given[1][number], "an assignment lost a batch") end
]]

proofs.lua_transform = [[
watch_loaders(function(batch, stream)
  for _, shard in ipairs(stream.steps == 1 and batch.image.addressable_shards or {}) do
    local x, size = shard.data.data, batch.image.shape[2]
    for row = 0, shard.data.shape[1] - 1 do -- its bytes count up, from whatever the first one was, and around
      local first = 255 - math.floor(x[row * size] * 255 + 0.5)
      for i = 0, size - 1 do
        assert(math.abs(x[row * size + i] - (255 - (first + i) % 251) / 255) < 1e-6)
      end
    end
  end
end, function() return false end)
run_recipe()
assert(streams[1].steps == 120)
]]

proofs.matmul = [[
local one, products = shardrt.SingleDeviceSharding(0), {}
watch("explain", function(results, f, a, b)
  local alone = f(shardrt.device_put(a, one), shardrt.device_put(b, one))
  assert(all(np.sum(np.not_equal(shardrt.device_put(results[1], one), alone))):to_table() == 0)
  products[#products + 1] = results[1].sharding
end)
run_recipe()
local function by(...) return shardrt.NamedSharding(products[1].mesh, P(...)) end
assert(products[1] == by("a", "b") and products[2] == by() and products[3] == by("a", nil) and #products == 3)
]]

proofs.mix = [[
watch_loaders(function(batch, stream)
  stream.corpora, stream.own = stream.corpora or {}, stream.own or {}
  local id, corpus, mask = elements(all(batch.id)), elements(all(batch.corpus)), elements(all(batch.mask))
  for row = 0, stream.loader.batch_size - 1 do
    if mask[row] then stream.corpora[#stream.corpora + 1], stream.own[#stream.own + 1] = corpus[row], id[row] end
  end
end, function() return false end)
run_recipe()
local first, second, whole = unpack(streams)
local counts, corpora, ids = { [0] = 0, 0, 0 }, whole.corpora, whole.own
assert(#ids == 2000)
for i, corpus in ipairs(corpora) do -- of any ten that follow one another, 6 are web, 3 code and 1 books
  counts[corpus] = counts[corpus] + 1
  if i > 10 then counts[corpora[i - 10] ] = counts[corpora[i - 10] ] - 1 end
  assert(i < 10 or counts[0] == 6 and counts[1] == 3 and counts[2] == 1)
end
local times, books = {}, 0
for i, corpus in ipairs(corpora) do -- every book once before any comes again
  if corpus == 2 then
    local epoch = math.floor(books / 90) -- of the books' own
    assert((times[ids[i] ] or 0) == epoch)
    times[ids[i] ], books = epoch + 1, books + 1
  end
end
assert(books == 200)
for _, id in ipairs(second.own) do first.own[#first.own + 1] = id end -- with other batches: the same samples, in order
assert(first.steps == 3 and #first.own == #ids)
for i, id in ipairs(ids) do assert(first.own[i] == id) end
]]

proofs.model_parallel_across_processes = [[
local step = 0
watch("make_array_from_process_local_data", function(results, s, own)
  local x, rows = results[1], own.shape[1]
  local streams = s:process_shards(x.shape, 0)
  assert(x.shape[1] == rows * streams)
  for _, shard in ipairs(x.addressable_shards) do
    -- Row r of the batch is row r % rows of stream r // rows, and stream k has the samples k, k + streams, ….
    local row = shard.index[1][1]
    assert(shard.data.data[0] == 3 * (math.floor(row / rows) + streams * (step * rows + row % rows)))
  end
  step = step + 1
end)
run_recipe()
assert(step == 3)
]]

proofs.model_parallel_within_process = [[
local calls = 0
watch("make_array_from_single_device_arrays", function(results, _, s)
  calls = calls + 1
  local parts = s.mesh.shape.data_parallelism
  for replica = 0, s.mesh.shape.model_replicas - 1 do -- the devices of the mesh stand row by row
    for part = 1, parts do
      local device, first = s.mesh.devices[replica * parts + part], s.mesh.devices[replica * parts + 1]
      assert(device.process_index == first.process_index, "a replica's devices must sit on one process")
    end
  end
  for _, shard in ipairs(results[1].addressable_shards) do
    local number = shard.data.data[0]
    assert(number == math.floor(shard.device.id / parts) and shard.index[1][1] == 4 * number)
  end
end)
run_recipe()
assert(calls == 1)
]]

proofs.partial_replication = [[
local puts = 0
watch("device_put", function(results)
  local x, first, stop = results[1], math.huge, 0
  for _, shard in ipairs(x.addressable_shards) do
    each_element(shard, function(row, column, at) assert(shard.data.data[at] == 4 * row + column) end)
    first, stop = math.min(first, shard.index[1][1]), math.max(stop, shard.index[1][2])
  end
  puts = puts + 1
  local count, process = shardrt.process_count(), shardrt.process_index()
  if puts == 1 then
    assert(stop - first == x.shape[1], "a copy inside a process is whole there")
  elseif count % 2 == 0 then
    assert(stop - first == x.shape[1] / 2 and first == (process >= count / 2 and x.shape[1] / 2 or 0))
  end
end)
run_recipe()
assert(puts == (shardrt.device_count() % 2 == 0 and 2 or 1))
]]

proofs.pipelines = [[
watch_loaders(function(batch, stream)
  for _, shard in ipairs(batch.image.addressable_shards) do
    stream.sum = (stream.sum or 0) + stream.steps * shard.data.data[0]
  end
end, function() return false end)
run_recipe()
local ways = streams[1].loader:predictions() -- of "auto", which ran first
assert(#streams == 1 + #ways)
for i, way in ipairs(ways) do
  local stats = streams[i + 1].loader:stats()
  assert(streams[i + 1].sum == streams[1].sum, "a pipeline changed the data")
  assert(stats.bytes_read <= way.bytes_read * stats.steps and stats.bytes_moved <= way.bytes_moved * stats.steps)
end
]]

proofs.reshard = [[
local moves = 0
watch("reshard", function(results)
  local x = results[1]
  for _, shard in ipairs(x.addressable_shards) do
    each_element(shard, function(row, column, at) assert(shard.data.data[at] == row * x.shape[2] + column) end)
  end
  moves = moves + 1
end)
run_recipe()
assert(moves == 7)
]]

proofs.resume = [[
watch_loaders()
local model
local keep = shardrt.checkpoint
shardrt.checkpoint = function(o)
  model = o.arrays
  return keep(o)
end
run_recipe()
local first, second = unpack(streams)
local ids, per_step = {}, first.loader.batch_size
for i = 1, 10 * per_step do ids[i] = first.ids[i] end -- what the checkpoint of step 10 counts
for _, id in ipairs(second.ids) do ids[#ids + 1] = id end
assert(#first.ids == 12 * per_step and #ids == 40 * per_step and second.has_ended)
for i, id in ipairs(ids) do -- each once, in the order of an undisturbed run
  assert(id == tonumber(C.shardrt_order_index(7, 0, #ids, i - 1)))
end
assert(second.steps == 15 and second.loader.batch_size == 2 * per_step)
local weight = all(model.weight)
for i = 0, weight.size - 1 do assert(weight.data[i] == 10 + 15) end
]]

proofs.save_and_load = [[
watch_files()
run_recipe()
assert(loaded == 2)
]]

proofs.sharding_constraint = [[
local made = 0
watch("explain", function(results)
  local y = results[1]
  for _, shard in ipairs(y.addressable_shards) do
    each_element(shard, function(row, column, at) assert(shard.data.data[at] == row * y.shape[2] + column + 1) end)
  end
  made = made + 1
end)
run_recipe()
assert(made == 2)
]]

proofs.sin_follows_sharding = [[
local y, looked
watch("explain", function(results, _, x)
  if not x then
    y = results[1]
    return
  end
  assert(y.sharding == x.sharding and results[1].sharding == x.sharding)
  for i, shard in ipairs(y.addressable_shards) do
    local own, copy = x.addressable_shards[i].data, results[1].addressable_shards[i].data
    for k = 0, own.size - 1 do
      assert(math.abs(shard.data.data[k] - math.sin(own.data[k])) < 1e-7 and copy.data[k] == own.data[k])
    end
  end
  looked = true
end)
run_recipe()
assert(looked)
]]

proofs.single_device = [[
watch_loaders()
run_recipe()
each_once(streams[1], 1)
each_once(streams[2], 1)
]]

proofs.spatial_image = [[
local looked
watch("load_npy", function(results, path)
  local image, whole = results[1], elements(ndarray.load(path))
  for _, shard in ipairs(image.addressable_shards) do
    each_element(shard, function(row, column, at)
      local pixel = (row * image.shape[2] + column) * 3
      assert(shard.data.data[3 * at] == column % 256 and shard.data.data[3 * at + 1] == row % 256)
      assert(shard.data.data[3 * at + 2] == whole[pixel + 2])
    end)
  end
  assert(total(results[2]) == image.size, "every byte is read once")
  looked = true
end)
run_recipe()
assert(looked)
]]

proofs.tfrecord = [[
watch_loaders()
run_recipe()
each_once(streams[1], 1)
]]

proofs.tokens = [[
local text = assert(io.open(RECIPE, "rb")):read "*a"
local found, letters, sequences = 0, #text:gsub("\n", ""), 0
watch_loaders(function(batch, stream)
  if stream.options.transform then
    local inputs, targets = elements(all(batch.inputs)), elements(all(batch.targets))
    local number, mask = elements(all(batch.number)), elements(all(batch.mask))
    for row = 0, stream.loader.batch_size - 1 do
      for i = 0, mask[row] and 31 or -1 do
        local at = tonumber(number[row]) * 32 + i + 1 -- in the text
        assert(inputs[row * 32 + i] == text:byte(at) and targets[row * 32 + i] == text:byte(at + 1))
        found = found + 1
      end
    end
    return
  end
  local tokens, segments = elements(all(batch.tokens)), elements(all(batch.segment_ids))
  local positions = elements(all(batch.positions))
  for i = 0, stream.loader.batch_size * 128 - 1 do
    if segments[i] > 0 then
      letters = letters - 1
      if positions[i] == 0 then sequences = sequences + 1 end
    else
      assert(tokens[i] == 0)
    end
  end
end, function(o)
  if not o.transform then return false end -- it has rows of sequences: samples of any number
  o.sharding = {
    inputs = o.sharding.inputs, targets = o.sharding.targets,
    number = shardrt.NamedSharding(o.sharding.inputs.mesh, P "data"),
  }
end)
run_recipe()
each_once(streams[1], 1)
assert(found == #streams[1].options.source * 32 and #text - 1 - found < 32)
assert(letters == 0 and sequences == select(2, text:gsub("[^\n]+", "")))
]]

proofs.uneven_epoch = [[
watch_loaders(function(batch, stream)
  local x, mask = elements(all(batch.x)), batch.mask and elements(all(batch.mask))
  for row = 0, stream.loader.batch_size - 1 do
    for i = 0, 4 do assert(x[row * 5 + i] == ((not mask or mask[row]) and 1 or 0), "padding rows are zeros") end
  end
end)
run_recipe()
local pad, drop = unpack(streams)
assert(#streams == 2, "what does not divide is refused")
each_once(pad, 1)
assert(drop.has_ended and drop.steps == 2 and #drop.ids == 2 * drop.loader.batch_size)
]]

proofs.webdataset = [[
local class = {}
watch_loaders(function(batch)
  local cls, mask = elements(all(batch.cls)), elements(all(batch.mask))
  for row = 0, batch.cls.shape[1] - 1 do
    local of = tonumber(cls[row])
    if mask[row] then class[of] = (class[of] or 0) + 1 end
  end
end)
run_recipe()
each_once(streams[1], 1)
assert(class[0] + class[1] == #streams[1].options.source)
]]

proofs.weights = [[
watch_files()
run_recipe()
assert(loaded == 15)
]]

-- The text of a program that runs a recipe and proves what it promises; nil where there is no proof of it.
local function program(name)
  local proof = proofs[name]
  return proof and ("local RECIPE = %q\n%s%s"):format("recipes/" .. name .. ".lua", SHARED, proof)
end

return { program = program, proofs = proofs }

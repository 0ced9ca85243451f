-- long: 15 s
-- The loader in one process with several devices: what it gives, against a plain Lua oracle; its words; its errors.

local cjson = require "cjson"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"
local boxes = require "tests.support.boxes"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local P, ndarray = shardrt.P, shardrt.ndarray

local DEVICES = 8
assert(shardrt.device_count() == DEVICES, "run this spec with --devices 8, as `make test` does")

local function bytes_of(host) return ffi.string(host.data, host.bytes) end

-- ---- the oracle ----

local function order(o, count, epoch)
  local samples = {}
  for i = 1, count do
    samples[i] = o.shuffle and tonumber(C.shardrt_order_index(o.seed or 0, epoch, count, i - 1)) or i - 1
  end
  return samples
end

-- The batches of an epoch as lists of batch_size sample numbers; false is a padding row.
local function batches_of(o, count, epoch)
  local samples, batches = order(o, count, epoch), {}
  for first = 1, count, o.batch_size do
    local batch = {}
    for i = first, first + o.batch_size - 1 do batch[#batch + 1] = samples[i] or false end
    if batch[o.batch_size] or o.remainder == "pad" then batches[#batches + 1] = batch end
  end
  return batches
end

-- The bytes of a batch's field, from the field's values in the source.
local function batch_bytes(host, batch)
  local row_bytes = host.bytes / host.shape[1]
  local base, words = ffi.cast("uint8_t *", host.data), {}
  for i, sample in ipairs(batch) do
    words[i] = sample and ffi.string(base + sample * row_bytes, row_bytes) or ("\0"):rep(row_bytes)
  end
  return table.concat(words)
end

local function check_array(x, expected, what)
  assert.equal(expected, bytes_of(shardrt.device_get(x)), what)
  local element = #expected / x.size
  for _, shard in ipairs(x.addressable_shards) do
    assert.equal(boxes.cut(expected, x.shape, shard.index, element), bytes_of(shard.data),
      what .. ", " .. tostring(shard.device))
  end
end

-- Runs a loader to its end and compares every batch.
local function check_stream(o, hosts, what)
  local made = shardrt.loader(o)
  local batch_number, count = 0, #o.source
  local expected = {}
  for epoch = 0, o.epochs - 1 do
    for _, batch in ipairs(batches_of(o, count, epoch)) do expected[#expected + 1] = batch end
  end
  for batch in made do
    batch_number = batch_number + 1
    local samples = assert(expected[batch_number], what .. ": a batch too many")
    for name, host in pairs(hosts) do
      check_array(batch[name], batch_bytes(host, samples), ("%s, batch %d, %s"):format(what, batch_number, name))
    end
    if o.remainder == "pad" then
      local mask = {}
      for i, sample in ipairs(samples) do mask[i] = sample and "\1" or "\0" end
      check_array(batch.mask, table.concat(mask), what .. ", mask")
    else
      assert.is_nil(batch.mask)
    end
  end
  assert.equal(#expected, batch_number, what)
  assert.is_nil(made())
  return made
end

-- ---- random cases ----

local function random_host(count, dims, dtype)
  local sizes = { count, unpack(dims) }
  local host = ndarray.zeros(sizes, dtype)
  local data = ffi.cast("uint8_t *", host.data)
  for i = 0, host.bytes - 1 do data[i] = dtype == "bool" and math.random(0, 1) or math.random(0, 255) end
  return host
end

local MESHES = { { 8 }, { 2, 4 }, { 4, 2 }, { 2, 2, 2 }, { 4 }, { 2, 2 }, { 1 } }

local function random_sharding()
  local sizes, names = MESHES[math.random(#MESHES)], { "a", "b", "c" }
  local devices = {}
  for id = 0, DEVICES - 1 do table.insert(devices, math.random(#devices + 1), id) end
  local total, axes = 1, {}
  for i, size in ipairs(sizes) do
    total, axes[i] = total * size, names[i]
  end
  local used = {}
  for i = 1, total do used[i] = devices[i] end
  local mesh = shardrt.Mesh(sizes, axes, used)
  -- Hand out some of the axes to the first dimensions, of which fields have 1 to 3.
  local entries = { {}, {}, {} }
  for _, axis in ipairs(axes) do
    local dim = math.random(0, 3)
    if dim > 0 then table.insert(entries[dim], axis) end
  end
  return function(ndim)
    local kept = {}
    for d = 1, ndim do kept[d] = #entries[d] > 0 and entries[d] or nil end
    return shardrt.NamedSharding(mesh, P(unpack(kept, 1, ndim)))
  end
end

local function random_case(seed)
  math.randomseed(seed)
  local count, pick = math.random(0, 70), function(list) return list[math.random(#list)] end
  local hosts, sharding = {}, {}
  for i = 1, math.random(1, 3) do
    local dims = {}
    for d = 1, math.random(0, 2) do dims[d] = pick { 8, 16 } end
    hosts["field" .. i] = random_host(count, dims, pick { "uint8", "int16", "float32", "int64", "bool" })
    sharding["field" .. i] = random_sharding()(1 + #dims)
  end
  return {
    source = shardrt.source.array(hosts), sharding = sharding, batch_size = pick { 8, 16, 24 },
    shuffle = pick { true, false }, seed = math.random(0, 1000), epochs = math.random(0, 3),
    remainder = pick { "drop", "pad" }, pipeline = pick { "per_process", "global", "per_device" },
    num_workers = math.random(1, 4), prefetch = math.random(1, 4),
  }, hosts
end

describe("a loader", function()
  it("gives the batches of the oracle, whatever its options", function()
    local seed = require "tests.support.seed"
    for i = 0, 149 do
      local o, hosts = random_case(seed + i)
      check_stream(o, hosts, ("SHARDRT_TEST_SEED=%d"):format(seed + i))
    end
  end)

  it("gives large batches, cut into many tasks", function()
    local hosts = { x = random_host(300, { 64, 96 }, "float32"), y = random_host(300, {}, "int32") }
    local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
    for _, pipeline in ipairs { "per_process", "global", "per_device" } do
      check_stream({
        source = shardrt.source.array(hosts), batch_size = 128, shuffle = true, seed = 9, epochs = 2, num_workers = 3,
        pipeline = pipeline, remainder = "pad", sharding = {
          x = shardrt.NamedSharding(mesh, P("data", nil, "model")), y = shardrt.NamedSharding(mesh, P "data"),
        },
      }, hosts, pipeline)
    end
  end)

  it("runs on one device, with no mesh in sight, or over all, with no sharding", function()
    local hosts = { x = random_host(20, { 3 }, "int16") }
    local single = shardrt.SingleDeviceSharding(shardrt.devices()[3])
    local made = check_stream({
      source = shardrt.source.array(hosts), batch_size = 6, epochs = 1, sharding = single, remainder = "pad",
    }, hosts, "one device")
    assert.equal(single, made.sharding.mask)
    made = check_stream({ source = shardrt.source.array(hosts), batch_size = 16, epochs = 1 }, hosts, "no sharding")
    assert.equal('NamedSharding(Mesh("data": 8), P("data"))', tostring(made.sharding.x))
  end)

  it("goes on where a for was left, and ends at once after the last epoch", function()
    local hosts = { x = ndarray.arange(24, "int32") }
    local made = shardrt.loader { source = shardrt.source.array(hosts), batch_size = 8, epochs = 2 }
    local seen = {}
    for batch in made do
      seen[#seen + 1] = shardrt.device_get(batch.x):to_table()[1]
      if #seen == 2 then break end
    end
    for batch in made do seen[#seen + 1] = shardrt.device_get(batch.x):to_table()[1] end
    assert.same({ 0, 8, 16, 0, 8, 16 }, seen)
    for _ in made do error "there is no batch left" end
  end)

  it("keeps batches as they were for as long as they are held", function()
    local hosts = { x = random_host(64, { 1000 }, "uint8") }
    local o = { source = shardrt.source.array(hosts), batch_size = 8, epochs = 1, shuffle = true, seed = 4 }
    local held = {}
    for batch in shardrt.loader(o) do
      held[#held + 1] = batch
      collectgarbage()
    end
    for i, samples in ipairs(batches_of(o, 64, 0)) do check_array(held[i].x, batch_bytes(hosts.x, samples), "held") end
  end)

  it("cuts the mask as the fields' rows, or leaves it whole where they differ", function()
    local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
    local function mask_of(a, b)
      local made = shardrt.loader {
        source = shardrt.source.array { a = ndarray.zeros({ 10, 4 }), b = ndarray.zeros({ 10 }) },
        batch_size = 8, epochs = 1, remainder = "pad", sharding = { a = a, b = b },
      }
      return tostring(made().mask.sharding)
    end
    local function named(...) return shardrt.NamedSharding(mesh, P(...)) end
    assert.equal(tostring(named "data"), mask_of(named("data", "model"), named "data"))
    assert.equal(tostring(named { "data", "model" }), mask_of(named { "data", "model" }, named { "data", "model" }))
    assert.equal(tostring(named()), mask_of(named(nil, "model"), named()))
    assert.equal(tostring(named()), mask_of(named "data", named "model"))
    local other = shardrt.NamedSharding(shardrt.make_mesh({ 2 }, { "data" }), P "data")
    assert.equal('NamedSharding(Mesh("data": 8), P())', mask_of(named "data", other))
  end)

  it("makes the mask of full batches once, and keeps it", function()
    local made = shardrt.loader {
      source = shardrt.source.array { x = ndarray.zeros { 40 } }, batch_size = 16, epochs = 2, remainder = "pad",
      sharding = shardrt.NamedSharding(shardrt.make_mesh({ 4, 2 }, { "data", "model" }), P "data"),
    }
    local function memory(batch)
      local places = {}
      for i = 0, 7 do
        places[i] = tonumber(ffi.cast("intptr_t", C.shardrt_buffer_data(C.shardrt_array_buffer(batch.mask.handle, i))))
      end
      return places
    end
    local first, second, rest, again = made(), made(), made(), made()
    assert.same(memory(first), memory(second))
    assert.same(memory(first), memory(again))
    for i = 0, 7 do
      assert.not_equal(memory(first)[i], memory(rest)[i])
      local shared = shardrt.devices()[1].platform == "host" or i % 2 == 0
      assert.equal(shared, memory(rest)[i - i % 2] == memory(rest)[i]) -- replicas share theirs, if it is the process's
    end
  end)

  it("costs what its own devices hold: in a job of 2^20 processes, with a batch of 2^40 padded rows", function()
    local n = 2 ^ 20
    local axis = ffi.new("const char *[1]", { "d" })
    local mesh, s = ffi.new "shardrt_mesh *[1]", ffi.new "shardrt_sharding *[1]"
    assert.equal(0, C.shardrt_mesh_new(1, ffi.new("int64_t[1]", n), axis, n, nil, n, mesh))
    assert.equal(0, C.shardrt_sharding_new(mesh[0], 1, ffi.new("int32_t[1]", 1), axis, s))
    local source = shardrt.source.array { x = ndarray.full({ 3 }, 7, "uint8") }
    for _, process in ipairs { 0, 5 } do
      local options = ffi.new("shardrt_loader_options", {
        source = source, shardings = ffi.new("shardrt_sharding *[2]", s[0], s[0]), batch_size = n * n, epochs = 1,
        remainder = C.SHARDRT_PAD, prefetch = 1, process = process, devices_per_process = 1,
      })
      local loader, arrays = ffi.new "shardrt_loader *[1]", ffi.new "shardrt_array *[2]"
      assert.equal(0, C.shardrt_loader_new(options, loader), ffi.string(C.shardrt_error_message()))
      assert.equal(1, C.shardrt_loader_next(loader[0], arrays))
      for i, real in ipairs { 7, 1 } do
        local buffer = C.shardrt_array_buffer(arrays[i - 1], 0)
        assert.equal(n, tonumber(C.shardrt_buffer_bytes(buffer)))
        local here = ffi.new "void *[1]"
        assert.equal(0, C.shardrt_buffer_host(buffer, here))
        local bytes = ffi.string(here[0], n)
        assert.is_true(bytes == (process == 0 and string.char(real):rep(3) or "\0\0\0") .. ("\0"):rep(n - 3))
        C.shardrt_array_free(arrays[i - 1])
      end
      C.shardrt_loader_free(loader[0])
    end
    C.shardrt_sharding_free(s[0])
    C.shardrt_mesh_free(mesh[0])
  end)

  it("knows its steps before the first one", function()
    for _, count in ipairs { 0, 1, 6, 7, 8, 20, 40 } do
      for _, batch_size in ipairs { 1, 7, 8, 41 } do
        local source = shardrt.source.array { x = ndarray.zeros { count } }
        local function steps(remainder)
          local made = shardrt.loader {
            source = source, batch_size = batch_size, epochs = 1, remainder = remainder,
            sharding = shardrt.SingleDeviceSharding(0),
          }
          local taken = 0
          for _ in made do taken = taken + 1 end
          assert.equal(made.steps_per_epoch, taken)
          return taken
        end
        assert.equal(math.floor(count / batch_size), steps "drop")
        assert.equal(math.ceil(count / batch_size), steps "pad")
        if count % batch_size == 0 then assert.equal(count / batch_size, steps "error") end
      end
    end
  end)

  it("tells what it did", function()
    local hosts = { x = random_host(100, { 16 }, "float32"), y = random_host(100, {}, "int64") }
    local made = check_stream({
      source = shardrt.source.array(hosts), batch_size = 32, epochs = 2, remainder = "pad", prefetch = 3,
      num_workers = 2,
    }, hosts, "stats")
    local stats = made:stats()
    assert.equal(2 * 100 * (64 + 8), stats.bytes_read)
    assert.equal(0, stats.bytes_moved)
    assert.equal(200, stats.samples)
    assert.equal(8, stats.steps)
    assert.equal(2, stats.num_workers)
    assert.equal(3, stats.prefetch)
    assert.equal(32 * (64 + 8), stats.batch_bytes)
    assert.is_true(stats.seconds > 0 and stats.stages.wait >= 0 and stats.stages.read > 0)
  end)

  it("lets memory go in step, with no help from the recipe", function()
    local row_bytes = 2 ^ 17
    local source = shardrt.source.array { x = ndarray.zeros({ 64, row_bytes }, "uint8") }
    local made = shardrt.loader { source = source, batch_size = 16, epochs = 20, prefetch = 2 }
    local most = 0
    for _ in made do most = math.max(most, tonumber(C.shardrt_loader_outstanding(made.handle))) end
    -- The batch in hand, the one before it (which the `for` holds while it asks), and what the slack allows.
    assert.is_true(most <= 2 * 16 * row_bytes + made:stats().slack_bytes, most)
    assert.is_true(most >= 16 * row_bytes)
  end)

  it("lets memory go in step where batches move, too", function()
    local row_bytes = 2 ^ 17
    local source = shardrt.source.array { x = ndarray.zeros({ 64, row_bytes }, "uint8") }
    local columns = shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "d" }), P(nil, "d"))
    local made = shardrt.loader {
      source = source, batch_size = 16, epochs = 20, prefetch = 2, pipeline = "reshard", load_sharding = columns,
    }
    local most = 0
    for _ in made do most = math.max(most, tonumber(C.shardrt_loader_outstanding(made.handle))) end
    assert.is_true(most <= 2 * 16 * row_bytes + made:stats().slack_bytes, most)
    assert.is_true(most >= 16 * row_bytes)
  end)
end)

describe("a loader's state", function()
  local hosts = { x = random_host(53, { 3 }, "int32") }
  local source = shardrt.source.array(hosts)
  local function make(more)
    local o = { source = source, batch_size = 8, epochs = 3, shuffle = true, seed = 11, remainder = "pad" }
    for key, value in pairs(more or {}) do o[key] = value end
    return shardrt.loader(o)
  end
  local function next_bytes(made)
    local batch = made()
    return batch and bytes_of(shardrt.device_get(batch.x)) .. bytes_of(shardrt.device_get(batch.mask)) or "end"
  end

  it("continues at every step, in a fresh loader, through JSON", function()
    local made, stream, states = make(), {}, {}
    repeat
      states[#states + 1] = cjson.encode(made:state())
      stream[#stream + 1] = next_bytes(made)
    until stream[#stream] == "end"
    assert.equal(22, #stream)
    for i, text in ipairs(states) do
      local fresh = make { num_workers = 1 + i % 3, prefetch = 1 + i % 4 }
      if i % 2 == 0 then next_bytes(fresh) end -- with batches in the making
      fresh:restore(cjson.decode(text))
      for j = i, math.min(i + 2, #stream) do assert.equal(stream[j], next_bytes(fresh), "state " .. i) end
    end
  end)

  it("goes back as well as forth", function()
    local made = make()
    local state, first = made:state(), next_bytes(made)
    for _ = 1, 10 do next_bytes(made) end
    made:restore(state)
    assert.equal(first, next_bytes(made))
    assert.same({ epoch = 0, row = 8 }, { epoch = made:state().epoch, row = made:state().row })
  end)

  it("continues with batches of another size: the same rows from there on", function()
    local made = make()
    for _ = 1, 3 do made() end
    local other = make { batch_size = 16 }
    other:restore(made:state())
    local samples = {}
    for i = 0, 15 do samples[i + 1] = tonumber(C.shardrt_order_index(11, 0, 53, 24 + i)) end
    assert.equal(batch_bytes(hosts.x, samples), bytes_of(shardrt.device_get(other().x)))
  end)

  it("is refused where it does not fit, by name", function()
    local state = make():state()
    local function refused(change, message, more)
      local changed = {}
      for key, value in pairs(state) do changed[key] = value end
      for key, value in pairs(change) do changed[key] = value end
      if change.drop then changed[change.drop], changed.drop = nil, nil end
      local ok, problem = pcall(function() make(more):restore(changed) end)
      assert.is_false(ok)
      assert.truthy(problem:find(message, 1, true), problem)
      assert.truthy(problem:find("tests/loader/loader_spec.lua:", 1, true), problem)
    end
    refused({ version = 2 }, "version")
    refused({ seed = 12 }, "seed")
    refused({ shuffle = false }, "shuffle")
    refused({ count = 54 }, "number of samples")
    refused({ source = ("0"):rep(16) }, "fingerprint")
    for _, key in ipairs { "version", "source", "count", "shuffle", "seed", "epoch", "row", "checksum" } do
      refused({ drop = key }, key == "source" and "fingerprint" or key == "count" and "number of samples" or key)
    end
    refused({ row = -1 }, "row")
    refused({ row = 1.5 }, "row")
    refused({ row = "0" }, "row")
    refused({ row = 54 }, "damaged")
    refused({ row = 16 }, "damaged")
    refused({ epoch = 1 }, "damaged")
    refused({ checksum = ("0"):rep(16) }, "damaged")
    refused({ more = 1 }, 'has "more"')
    local other = make { epochs = 9 }
    for _ = 1, 4 * 7 do other() end
    state = other:state()
    refused({}, "epoch 4", {})
    other = make { epochs = 4 }
    for _ = 1, 3 * 7 + 2 do other() end
    state = other:state()
    refused({}, "row 16 of epoch 3: the loader has 3, counted from 0", {})
    local first = make()
    first()
    state = first:state()
    refused({}, 'remainder = "error"', { remainder = "error", batch_size = 53, sharding =
      shardrt.SingleDeviceSharding(0) })
    local ok, problem = pcall(function() make():restore(nil) end)
    assert.is_false(ok)
    assert.truthy(problem:find("state()", 1, true))
  end)
end)

describe("a loader's words", function()
  local source = shardrt.source.array { image = ndarray.zeros({ 20, 6 }), label = ndarray.zeros { 20 } }
  local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
  local rows = shardrt.NamedSharding(mesh, P "data")

  local function refused(change, ...)
    local o = { source = source, batch_size = 8, sharding = rows }
    for key, value in pairs(change) do o[key] = value end
    local ok, problem = pcall(function() shardrt.loader(o) end)
    assert.is_false(ok)
    assert.truthy(problem:match "^tests/loader/loader_spec.lua:%d+: ", problem)
    expect.contains(problem, ...)
  end

  it("are refused when they are unknown, with the one that was meant", function()
    refused({ bach_size = 3 }, '"bach_size"', 'did you mean "batch_size"')
    refused({ shufle = true }, 'did you mean "shuffle"')
    refused({ [1] = source }, "unknown keyword 1")
  end)

  it("are refused when they are of the wrong kind", function()
    assert.has_error(function() shardrt.loader(3) end)
    refused({ source = 3 }, "source = 3")
    refused({ source = {} }, "shardrt.source.npy")
    refused({ batch_size = 0 }, "batch_size = 0")
    refused({ batch_size = 2.5 }, "batch_size = 2.5")
    refused({ batch_size = "8" }, 'batch_size = "8"')
    refused({ shuffle = 1 }, "shuffle = 1")
    refused({ seed = 0.5 }, "seed = 0.5")
    refused({ seed = "x" }, "seed")
    refused({ epochs = -1 }, "epochs = -1")
    refused({ remainder = "padd" }, '"padd"', 'did you mean "pad"')
    refused({ pipeline = "per_proces" }, 'did you mean "per_process"')
    refused({ num_workers = 0 }, "num_workers = 0")
    refused({ num_workers = 5000 }, "num_workers = 5000")
    refused({ prefetch = 0 }, "prefetch = 0")
    refused({ prefetch = 1e6 }, "prefetch = 1000000")
    refused({ sharding = 3 }, "sharding = 3")
    refused({ sharding = { image = rows } }, "sharding.label")
    refused({ sharding = { image = rows, label = 3 } }, "sharding.label = 3")
    refused({ sharding = { image = rows, label = rows, lable = rows } }, '"lable"', 'did you mean "label"')
  end)

  it("about transforms are checked", function()
    refused({ transform = function() end }, "it takes a table of fields")
    refused({ transform = { imag = {} } }, 'no field "imag"', 'did you mean "image"')
    refused({ transform = { image = { 3 } } }, "number 1 of its list is 3")
    refused({ transform = { image = false, label = false } }, "no field is left")
  end)

  it("that say nothing with this pipeline are refused", function()
    refused({ load_sharding = rows }, 'load_sharding is for pipeline = "reshard" or "auto"')
    refused({ pipeline = "reshard", bandwidth = { read = 1, link = 1 } }, 'bandwidth is for pipeline = "auto"')
  end)

  it("about the layout in which data is read are checked as the others", function()
    local function load(given, ...) refused({ pipeline = "reshard", load_sharding = given }, ...) end
    load(3, "load_sharding = 3")
    load({ image = rows }, "load_sharding.label = nil")
    load({ image = rows, label = rows, lable = rows }, 'load_sharding names a field "lable"', 'did you mean "label"')
    load(shardrt.NamedSharding(mesh, P(nil, "data")), '"image"', "as they are read", "6", "4")
  end)

  it("about bandwidths are checked", function()
    local function bandwidth(given, ...) refused({ pipeline = "auto", bandwidth = given }, ...) end
    bandwidth(3, "bandwidth = 3")
    bandwidth({ read = 1e9 }, "bandwidth.link = nil")
    bandwidth({ link = 1e9 }, "bandwidth.read = nil")
    bandwidth({ read = 0, link = 1 }, "bandwidth.read = 0")
    bandwidth({ read = 1, link = -1 }, "bandwidth.link = -1")
    bandwidth({ read = 1, link = 0 / 0 }, "bandwidth.link")
    bandwidth({ read = 1, link = 1, copy = 1 }, '"copy"')
    bandwidth({ read = {}, link = 1 }, "bandwidth.read")
    bandwidth({ read = { per_proces = 1 }, link = 1 }, 'did you mean "per_process"')
    bandwidth({ read = { global = "fast" }, link = 1 }, 'bandwidth.read.global = "fast"')
    bandwidth({ read = { load_sharding = 1 }, link = 1 }, "no number for any way")
  end)

  it("do not include a field named mask", function()
    refused({ source = shardrt.source.array { mask = ndarray.zeros { 20 } } }, '"mask"')
  end)

  it("say that a loader would never give a batch", function()
    local none = { label = function() return false end }
    refused({ filter = none }, "loader: its filter lets none of the source's 20 samples through")
    local two = mpi.run { processes = 2, devices = 4, source = [[
      local shardrt = require "shardrt"
      local source = shardrt.source.array { x = { 1, 2, 3 } }
      local function walk(o)
        for _ in shardrt.loader(o) do error "a batch" end
      end
      walk { source = source, batch_size = 8, epochs = 1 }
      walk { source = source, batch_size = 8, epochs = 0 }
      walk { source = source:filter { x = function() return false end }, batch_size = 8, epochs = 1 }]] }
    assert.equal(0, two.status, two.output)
    local _, lines = two.stderr:gsub("this loader gives no batch", "")
    assert.equal(2, lines, two.stderr)
    for _, words in ipairs { "shardrt: ", "the source has 3 samples, not one batch of 8; a smaller batch_size",
      "the source has no samples: its filter lets none through" } do
      assert.truthy(two.stderr:find(words, 1, true), two.stderr)
    end
  end)

  it("say once for each line that a loader is used up, and nothing of a loop that gave batches", function()
    local recipe = [[
      local shardrt = require "shardrt"
      local eight = shardrt.source.array { x = shardrt.ndarray.arange(8) }
      local function loader(epochs) return shardrt.loader { source = eight, batch_size = 4, epochs = epochs } end
      local used, twice, ended = loader(1), loader(1), loader(2)
      for _ in ended do end
      while true do
        if not twice() then break end
      end
      local restored = loader(2)
      restored:restore(ended:state())
      for pass = 1, 3 do
        local count = 0
        for _ in used do count = count + 1 end -- line 13
        shardrt.say("%d batches in pass %d", count, pass)
      end
      for _ in restored do error "a batch" end -- line 16
      for _ in used do error "a batch" end -- line 17
      for _ in loader(0) do error "a batch" end]]
    local two = mpi.run { processes = 2, devices = 2, source = recipe }
    assert.equal(0, two.status, two.output)
    local lines = {}
    for line, told in two.stderr:gmatch "recipe.lua:(%d+): this loader has no batches left: ([^\n]*)" do
      lines[#lines + 1] = line .. " " .. told:match "^[^.]*"
    end
    assert.same({ "13 its one epoch is behind it", "16 its 2 epochs are behind it", "17 its one epoch is behind it" },
      lines, two.stderr)
    assert.truthy(two.stderr:find("epochs = 2 would give one pass more (nil: without end), as would a new loader; "
      .. "loader:restore(state) goes back", 1, true), two.stderr)
  end)

  it("cannot break a loader: what it is lies where no assignment reaches", function()
    local made = shardrt.loader { source = shardrt.source.array { x = ndarray.arange(16) }, batch_size = 8, epochs = 1 }
    for _, name in ipairs { "arrays", "handle", "sharding", "batch_names", "source", "epochs", "anything" } do
      local told = files.message(function() made[name] = nil end)
      assert.truthy(told:find(('a loader never changes: "%s" cannot be set'):format(name), 1, true), told)
    end
    made.sharding.x = nil
    assert.has_error(function() rawset(made, "arrays", nil) end)
    for _, walk in ipairs { ipairs, pairs, next } do
      local told = files.message(function() return walk(made)(made) end)
      assert.truthy(told:find("table expected, got userdata", 1, true), told)
    end
    for words, ask in pairs {
      ["a loader has no length; loader.steps_per_epoch is how many batches"] = function() return #made end,
      ['a loader has no "next"; `for batch in loader do` takes its batches'] = function() return made:next() end,
      ['a loader has no "weights"; it has "batch_size", '] = function() return made.weights end,
      ['a loader has no "num_workers"; loader:stats() tells'] = function() return made.num_workers end,
    } do
      local told = files.message(ask)
      assert.truthy(told:find("^tests/loader/loader_spec.lua:%d+: ") and told:find(words, 1, true), told)
    end
    assert.equal(8, made().x.shape[1])
    assert.equal(1, made:stats().steps)
  end)

  it("in the name of a batch's field are found, and list the fields that there are", function()
    local eight = shardrt.source.array { label = ndarray.arange(8), image = ndarray.zeros { 8, 2 } }
    local function first(more)
      local o = { source = eight, batch_size = 8, epochs = 1, sharding = shardrt.SingleDeviceSharding(0) }
      for key, value in pairs(more or {}) do o[key] = value end
      return shardrt.loader(o)()
    end
    local batch = first()
    assert.truthy(files.message(function() return batch.lable end)
      :find('the batch has no "lable" (did you mean "label"?)', 1, true))
    for key, words in pairs {
      weights = 'the batch has no "weights"; its fields are "image", "label"',
      masks = 'the batch has no "masks"',
      [1] = 'the batch has no 1; its fields are "image", "label"',
    } do
      local told = files.message(function() return batch[key] end)
      assert.truthy(told:find("^tests/loader/loader_spec.lua:%d+: ") and told:find(words, 1, true), told)
    end
    assert.same({}, { batch.__index, batch.mask })
    assert.equal("bool", first { remainder = "pad" }.mask.dtype)
    local names = {}
    for name in pairs(batch) do names[#names + 1] = name end
    table.sort(names)
    assert.same({ "image", "label" }, names)
    local changed = first { batch_transform = function(given)
      given.image, given.pixels = nil, given.image
      return given
    end }
    assert.truthy(files.message(function() return changed.image end):find('no "image"; its fields are', 1, true))
    assert.equal(changed.pixels, first { batch_transform = function() return { z = changed.pixels } end }.z)
    assert.truthy(files.message(function()
      return first { batch_transform = function() return { z = changed.pixels } end }.image
    end):find('the batch has no "image"; its fields are "z"', 1, true))
    assert.truthy(files.message(function() return changed.pixel end):find('did you mean "pixels"', 1, true))
  end)

  it("tell of a field's transforms under the loader's word, and of one without a shape", function()
    refused({ transform = { lable = {} } }, 'loader: transform, field "lable"', 'did you mean "label"')
    for name, key in pairs { t = "t", ["a.b"] = '["a.b"]', ["2"] = '["2"]' } do
      local ragged = shardrt.source.ragged { [name] = { ndarray.zeros { 2 }, ndarray.zeros { 3 } } }
      refused({ source = ragged, batch_size = 1, sharding = shardrt.SingleDeviceSharding(0) },
        ('loader: the field "%s" differs in shape'):format(name),
        ("or source:map { %s = false } to leave it out"):format(key))
    end
  end)

  it("say which batches would do where one does not divide", function()
    refused({ batch_size = 10 }, '"image"', "10", '"data"', "4", "8", "12")
    refused({ sharding = { image = shardrt.NamedSharding(mesh, P(nil, "data")), label = rows } }, '"image"', "6", "4")
    refused({ sharding = { image = rows, label = shardrt.NamedSharding(mesh, P("data", nil)) } }, '"label"')
    refused({ remainder = "error" }, "20 samples", "batches of 8", "4 are left over", "batch_size = 5 or 10")
    refused({ batch_size = 24 }, "without end", "20 samples", "24")
  end)
end)

describe("batches that do not divide the samples", function()
  -- Sizes are tried one by one for the message, so with a number that has few divisors all of them could be.
  it("are refused at any size, with sizes that divide, where there are some near", function()
    local result = mpi.run { limit = 60, source = [[
      local ffi, C, shardrt = require "ffi", require "shardrt.base.ffi", require "shardrt"
      local one = shardrt.SingleDeviceSharding(0)
      local shardings = ffi.new("shardrt_sharding *[1]", one.handle)
      local function try(count, batch_size)
        local options = ffi.new("shardrt_loader_options", {
          source = shardrt.source.array { x = shardrt.ndarray.zeros({ count, 0 }, "uint8") }, shardings = shardings,
          batch_size = batch_size, epochs = 1, remainder = C.SHARDRT_ERROR, prefetch = 1, devices_per_process = 1,
        })
        assert(C.shardrt_loader_new(options, ffi.new "shardrt_loader *[1]") == C.SHARDRT_EINVAL)
        print(ffi.string(C.shardrt_error_message()))
      end
      try(1000000000000037, 3e11)
      try(20, 8)
      try(20, 24)
      try(20, 0x7fffffffffffffffLL)
      try(1000000007, 5)
      try(1000000007, 1000000006)
      try(2 ^ 50, 2 ^ 49 + 1)]] }
    assert.equal(0, result.status, result.output)
    local said = {}
    for line in result.stdout:gmatch "[^\n]+" do
      said[#said + 1] = assert(line:match "^.* are left over; (.*)$"):gsub(' ?o?r? ?remainder = "drop" or "pad"$', "")
    end
    assert.same({
      "", "batch_size = 5 or 10 would do,", "batch_size = 20 would do,", "batch_size = 20 would do,",
      "batch_size = 1 would do,", "batch_size = 1000000007 would do,", "batch_size = 562949953421312 would do,",
    }, said)
  end)
end)

describe("a loader that fails", function()
  it("refuses a batch that no memory holds before it lists the tasks", function()
    local folder = files.folder()
    local head = files.npy { dict = files.dict("|u1", { 2 ^ 40 }) }
    local path = files.write(folder, "x.npy", head)
    assert(os.execute(("truncate -s %d '%s'"):format(2 ^ 40 + #head, path)) == 0)
    local message = files.message(shardrt.loader, { source = shardrt.source.npy { x = path }, batch_size = 2 ^ 40 })
    assert.truthy(message:find("batch_size = 1099511627776: this process's part of one batch takes 1099.5 GB, and the "
      .. "list of the tasks that read it %d+.%d GB; this machine has [%d.]+ GB of memory"), message)
    files.remove(folder)
  end)

  it("frees all it took, whichever allocation fails", function()
    local hosts = { x = random_host(40, { 4 }, "int32"), y = random_host(40, {}, "uint8") }
    local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
    for _, pipeline in ipairs { "per_process", "global", "per_device", "reshard", "auto" } do
      local o = {
        source = shardrt.source.array(hosts), batch_size = 8, epochs = 1, remainder = "pad", pipeline = pipeline,
        num_workers = 2, shuffle = true, seed = 3, sharding = {
          x = shardrt.NamedSharding(mesh, P("data", "model")), y = shardrt.NamedSharding(mesh, P "data"),
        },
      }
      local expected = batches_of(o, 40, 0)
      local failures, n = 0, 0
      repeat
        n = n + 1
        C.shardrt_alloc_fail_at(n)
        local step = 0
        local ok, problem = pcall(function()
          local made = shardrt.loader(o)
          for batch in made do
            step = step + 1
            local first = batch.x.addressable_shards[1]
            assert.equal(boxes.cut(batch_bytes(hosts.x, expected[step]), batch.x.shape, first.index, 4),
              bytes_of(first.data))
          end
        end)
        local counted = tonumber(C.shardrt_alloc_fail_at(0))
        if ok then
          assert.equal(5, step)
        else
          failures = failures + 1
          assert.truthy(tostring(problem):find("out of memory", 1, true), problem)
        end
      until ok and counted < n
      assert.is_true(failures > 30, failures)
      collectgarbage()
    end
  end)

  it("can be asked again after a failure, and goes on with the same batch", function()
    local hosts = { x = ndarray.arange(32, "int32") }
    local made = shardrt.loader { source = shardrt.source.array(hosts), batch_size = 8, epochs = 1 }
    made()
    local failed = false
    for n = 1, 20 do
      local state = made:state()
      C.shardrt_alloc_fail_at(n)
      local ok, batch = pcall(made)
      C.shardrt_alloc_fail_at(0)
      if ok then
        assert.equal(8, shardrt.device_get(batch.x):to_table()[1])
        made:restore(state)
      else
        failed = true
        assert.same(state, made:state())
      end
    end
    assert.is_true(failed)
  end)
end)

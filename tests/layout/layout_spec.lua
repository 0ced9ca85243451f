-- Devices, meshes, specs and shardings: JAX's reference answers, what is refused, and how things read.

local golden = require "tests.support.golden"
local layout = require "tests.support.layout"

local function box_text(index)
  local ranges = {}
  for d, range in ipairs(index) do ranges[d] = range[1] .. ":" .. range[2] end
  return table.concat(ranges, ",")
end

-- The distinct boxes of some shards, as JAX sorts them, and their elements.
local function needs_of(shards)
  local boxes, seen, elements = {}, {}, 0
  for _, shard in ipairs(shards) do
    local text = box_text(shard.index)
    if not seen[text] then
      seen[text], boxes[#boxes + 1] = true, shard.index
      local size = 1
      for _, range in ipairs(shard.index) do size = size * (range[2] - range[1]) end
      elements = elements + size
    end
  end
  table.sort(boxes, function(a, b)
    for d = 1, #a do
      for side = 1, 2 do
        if a[d][side] ~= b[d][side] then return a[d][side] < b[d][side] end
      end
    end
    return false
  end)
  return boxes, elements
end

local function check_process(case, process)
  local words = layout.words(process.process, case.process_count, case.devices_per_process)
  local s = layout.sharding(words, case)
  assert.same(case.shard_shape, s:shard_shape(case.global_shape))
  assert.equal(case.is_fully_replicated, s.is_fully_replicated)
  local all, own, own_ids = {}, {}, {}
  for _, device in ipairs(case.devices) do
    all[device.id] = device.index
    if device.process == process.process then
      own[device.id] = device.index
      own_ids[#own_ids + 1] = device.id
    end
  end
  assert.same(all, s:devices_indices_map(case.global_shape))
  assert.same(own, s:addressable_devices_indices_map(case.global_shape))
  local addressable = {}
  for i, device in ipairs(s:addressable_devices()) do
    addressable[i] = device.id
    assert.equal(process.process, device.process_index)
  end
  assert.same(own_ids, addressable)
  local shards = words.sharding.shards("the spec", s, case.global_shape, process.process, case.devices_per_process)
  local replica_ids = {}
  for _, device in ipairs(case.devices) do replica_ids[device.id] = device.replica_id end
  for _, shard in ipairs(shards) do assert.equal(replica_ids[shard.device], shard.replica_id) end
  local boxes, elements = needs_of(shards)
  assert.same(process.needs, boxes)
  assert.equal(process.elements, elements)
end

describe("golden/sharding_maps.json", function()
  local cases = golden.cases "sharding_maps.json"
  it("is there", function()
    assert.is_true(#cases > 100)
  end)
  it("agrees in every process of every case", function()
    for _, case in ipairs(cases) do
      for _, process in ipairs(case.processes) do
        local ok, problem = pcall(check_process, case, process)
        assert.is_true(ok, case.name .. ", process " .. process.process .. ": " .. tostring(problem))
      end
    end
  end)
end)

-- What a golden row asks for, in our words.
local calls = {
  Mesh = function(words, case) return layout.mesh(words, case.mesh) end,
  make_mesh = function(words, case) return layout.mesh(words, case.mesh) end,
  NamedSharding = function(words, case) return layout.sharding(words, case) end,
  shard_shape = function(words, case) return layout.sharding(words, case):shard_shape(case.global_shape) end,
  devices_indices_map = function(words, case)
    return layout.sharding(words, case):devices_indices_map(case.global_shape)
  end,
}

-- What JAX lets pass and is refused here.
local refused = {
  ["axis names that repeat"] = 'both named "a"',
  ["a device that repeats"] = "device 1 stands twice",
  ["no devices"] = "the shape {0}",
  ["0 is taken for None"] = "holds 0",
  ["an empty string is taken for None"] = "an empty name",
  ["spec longer than the rank by a None"] = 'P("a", nil) has 2 entries, but an array of shape {8} has 1 dimension;',
}

-- What a message must hold, beside being there.
local says = {
  ["fewer axis names than axes"] = '{4, 2} has 2 axes, but 1 name is given: {"a"}',
  ["shape larger than the device list"] = "{3, 3} has 9 places, but 8 devices are given",
  ["shape smaller than the device list"] = "{3, 2} has 6 places, but 8 devices are given",
  ["more than there are devices"] = "{3, 3} needs 9 devices, but the job has 8",
  ["an axis of size 0"] = "{0, 2}",
  ["an axis of negative size"] = "-4",
  ["unknown axis"] = '"c" in P("c") is no axis of the mesh; its axes are "a", "b"',
  ["unknown axis in a list"] = '"nope" in P(nil, {"a", "nope"})',
  ["one axis on two dimensions"] = 'axis "a" stands twice in P("a", "a")',
  ["one axis in two lists"] = 'axis "b" stands twice in P({"a", "b"}, "b")',
  ["first dimension not divisible"] = 'dimension 0 of shape {5, 2} has size 5, which does not divide into the 4 parts '
    .. 'that P("a", "b") cuts along axis "a" (4); size 4 or 8 would do',
  ["second dimension not divisible"] = 'dimension 1 of shape {4, 3} has size 3',
  ["divisible by each axis, not by their product"] = 'axes "a" (4) and "b" (2); size 8 would do',
  ["spec longer than the rank"] = 'P("a", "b") has 2 entries',
}

describe("golden/sharding_errors.json", function()
  local cases = golden.cases "sharding_errors.json"
  it("refuses what JAX refuses, and what only seems right", function()
    local met, failures = 0, 0
    for _, case in ipairs(cases) do
      local call = calls[case.call]
      if call then
        met = met + 1
        local words = layout.words(0, 1, case.device_count or 8)
        local ok, result = pcall(call, words, case)
        local wanted = refused[case.name] or says[case.name]
        assert.equal(case.raises or refused[case.name] ~= nil, not ok, case.call .. ", " .. case.name)
        if not ok then
          failures = failures + 1
          assert.is_string(result)
          assert.truthy(result:find(wanted or "", 1, true), case.name .. ": " .. result)
          assert.truthy(result:match "^%S+_?%w*%.lua:%d+: ", result)
        end
      end
    end
    assert.is_true(met >= 30 and failures >= 25, met .. " rows, " .. failures .. " refused")
  end)
end)

-- The message of an error that must come, which must begin with this file and a line.
local function refusal(call, ...)
  local ok, message = pcall(call, ...)
  assert.is_false(ok, "nothing was refused")
  assert.truthy(message:match "layout_spec%.lua:%d+: ", message)
  return message
end

describe("devices", function()
  local words = layout.words(1, 4, 2)

  it("are the job's, and this process's", function()
    assert.equal(1, words.process_index())
    assert.equal(4, words.process_count())
    assert.equal(8, words.device_count())
    assert.equal(2, words.local_device_count())
    assert.equal(8, #words.devices())
    local own = words.local_devices()
    assert.same({ 2, 3 }, { own[1].id, own[2].id })
    assert.equal(1, own[1].process_index)
    assert.equal("host", own[1].platform)
    assert.equal(7, words.local_devices(3)[2].id)
    assert.equal("device 3 (host, process 1)", tostring(own[2]))
  end)

  it("are the same objects wherever they are met", function()
    local device = words.devices()[4]
    assert.is_true(rawequal(device, words.local_devices()[2]))
    local mesh = words.make_mesh({ 4, 2 }, { "a", "b" })
    assert.is_true(rawequal(device, mesh.devices[4]))
    assert.is_true(rawequal(device, words.NamedSharding(mesh, words.P()):addressable_devices()[2]))
  end)

  it("are asked of processes that exist", function()
    for _, process in ipairs { -1, 4, 0.5, "0", {} } do
      assert.truthy(refusal(function() words.local_devices(process) end):find("the job has 4 processes", 1, true))
    end
  end)
end)

describe("P", function()
  local P = layout.words(0, 1, 8).P

  it("keeps its length, its entries and its nils", function()
    local spec = P("a", nil, { "b", "c" }, nil)
    assert.equal(4, #spec)
    assert.equal("a", spec[1])
    assert.is_nil(spec[2])
    assert.same({ "b", "c" }, spec[3])
    assert.equal('P("a", nil, {"b", "c"}, nil)', tostring(spec))
    assert.equal(0, #P())
    assert.equal("P()", tostring(P()))
    assert.equal("P(nil)", tostring(P(nil)))
  end)

  it("takes an empty list for nil, and a list of one for its name", function()
    assert.equal('P(nil, "a")', tostring(P({}, { "a" })))
    assert.is_true(P({}, { "a" }) == P(nil, "a"))
    assert.is_false(P "a" == P("a", nil))
  end)

  it("does not see what happens to the list that it was given", function()
    local names = { "a", "b" }
    local spec = P(names)
    names[1] = "z"
    spec[1][1] = "z"
    assert.equal('P({"a", "b"})', tostring(spec))
  end)

  it("refuses what names nothing", function()
    for _, entry in ipairs { 0, 1.5, "", true, { "a", 0 }, { "" }, { { "a" } }, { x = "a" }, { "a", x = 1 }, "a\0b" } do
      assert.truthy(refusal(function() P(nil, entry) end):find("P: entry 2 (dimension 1)", 1, true))
    end
    assert.truthy(refusal(function() P { "a", nil, "b" } end):find "no list")
  end)
end)

describe("a mesh", function()
  local words = layout.words(0, 4, 2)

  it("tells its axes and devices", function()
    local mesh = words.make_mesh({ 3, 2 }, { "data", "model" })
    assert.same({ "data", "model" }, mesh.axis_names)
    assert.same({ data = 3, model = 2 }, mesh.shape)
    assert.equal(6, mesh.size)
    assert.equal(6, #mesh.devices)
    assert.equal(5, mesh.devices[6].id)
    assert.equal('Mesh("data": 3, "model": 2)', tostring(mesh))
  end)

  it("takes devices or ids in any order, or some of them only", function()
    local devices = words.devices()
    local mesh = words.Mesh({ 2, 2 }, { "a", "b" }, { devices[8], 2, devices[1], 3 })
    local ids = {}
    for i, device in ipairs(mesh.devices) do ids[i] = device.id end
    assert.same({ 7, 2, 0, 3 }, ids)
    assert.equal('Mesh("a": 2, "b": 2; devices 7, 2, 0, 3)', tostring(mesh))
    assert.equal('Mesh("a": 4; devices 4-7)', tostring(words.Mesh({ 4 }, { "a" }, { 4, 5, 6, 7 })))
  end)

  it("equals a mesh of the same axes over the same devices in the same order", function()
    local mesh = words.make_mesh({ 4, 2 }, { "a", "b" })
    assert.is_true(mesh == words.Mesh({ 4, 2 }, { "a", "b" }, words.devices()))
    assert.is_false(mesh == words.make_mesh({ 2, 4 }, { "a", "b" }))
    assert.is_false(mesh == words.make_mesh({ 4, 2 }, { "b", "a" }))
    assert.is_false(mesh == words.Mesh({ 4, 2 }, { "a", "b" }, { 0, 1, 2, 3, 6, 7, 4, 5 }))
    assert.is_false(mesh == words.make_mesh({ 4, 1 }, { "a", "b" }))
    assert.is_false(words.make_mesh({ 2 }, { "a" }) == words.Mesh({ 2 }, { "a" }, { 2, 3 }))
  end)

  it("shows names as Lua would read them", function()
    assert.equal([[Mesh("a\"b\\c\010": 2)]], tostring(words.make_mesh({ 2 }, { 'a"b\\c\n' })))
    assert.equal([[P("a\"b\\c\010")]], tostring(words.P 'a"b\\c\n'))
  end)

  it("is refused with the reason", function()
    local function expect(text, call, ...)
      local message = refusal(call, ...)
      assert.truthy(message:find(text, 1, true), message)
    end
    local make_mesh, Mesh = words.make_mesh, words.Mesh
    expect("the shape is 8", function() make_mesh(8, { "a" }) end)
    expect("the shape is nil", function() make_mesh(nil, { "a" }) end)
    expect('"4" as the size', function() make_mesh({ "4" }, { "a" }) end)
    expect("2.5 as the size", function() make_mesh({ 2.5 }, { "a" }) end)
    expect("nan as the size", function() make_mesh({ 0 / 0 }, { "a" }) end)
    expect("no axes", function() make_mesh({}, {}) end)
    expect("the axis names are nil", function() make_mesh { 4 } end)
    expect('"" in {"a", ""}', function() make_mesh({ 2, 2 }, { "a", "" }) end)
    expect('axes 0 and 2 of the mesh are both named "a"', function() make_mesh({ 2, 2, 2 }, { "a", "b", "a" }) end)
    expect("beyond 64 bits", function() make_mesh({ 2 ^ 40, 2 ^ 40 }, { "a", "b" }) end)
    expect("the devices are nil", function() Mesh({ 2 }, { "a" }) end)
    expect("entry 2 of the devices is {}", function() Mesh({ 2 }, { "a" }, { 0, {} }) end)
    expect("entry 2 of the devices is -1", function() Mesh({ 2 }, { "a" }, { 0, -1 }) end)
    expect("the job has 8 devices, 0 to 7", function() Mesh({ 2 }, { "a" }, { 0, 8 }) end)
    expect("stands twice in the mesh (at positions 0 and 2)", function() Mesh({ 3 }, { "a" }, { 5, 1, 5 }) end)
  end)
end)

describe("a sharding", function()
  local words = layout.words(2, 4, 2)
  local P, NamedSharding = words.P, words.NamedSharding
  local mesh = words.make_mesh({ 4, 2 }, { "data", "model" })

  it("tells its mesh, its spec and itself", function()
    local spec = P("data", nil)
    local s = NamedSharding(mesh, spec)
    assert.is_true(rawequal(mesh, s.mesh))
    assert.is_true(rawequal(spec, s.spec))
    assert.equal('NamedSharding(Mesh("data": 4, "model": 2), P("data", nil))', tostring(s))
    for _, other in ipairs { P(), P(nil), P({ "model", "data" }, nil), P(nil, "model") } do
      assert.equal(("NamedSharding(%s, %s)"):format(tostring(mesh), tostring(other)),
        tostring(NamedSharding(mesh, other)))
    end
  end)

  it("equals another one of the same layout", function()
    assert.is_true(NamedSharding(mesh, P "data") == NamedSharding(mesh, P("data", nil)))
    assert.is_false(NamedSharding(mesh, P "data") == NamedSharding(mesh, P "model"))
    assert.is_false(NamedSharding(mesh, P { "data", "model" }) == NamedSharding(mesh, P { "model", "data" }))
    local permuted = words.Mesh({ 4, 2 }, { "data", "model" }, { 1, 0, 2, 3, 4, 5, 6, 7 })
    assert.is_false(NamedSharding(mesh, P "data") == NamedSharding(permuted, P "data"))
    local flat = words.make_mesh({ 8, 1 }, { "a", "b" })
    assert.is_true(NamedSharding(flat, P("a", "b")) == NamedSharding(flat, P "a"))
  end)

  it("is refused with the reason", function()
    local function expect(text, call, ...)
      local message = refusal(call, ...)
      assert.truthy(message:find(text, 1, true), message)
    end
    expect('(did you mean "model"?)', function() NamedSharding(mesh, P "modle") end)
    expect('the spec is {"data"}', function() NamedSharding(mesh, { "data" }) end)
    expect('like P("data")', function() NamedSharding(mesh, "data") end)
    expect("the mesh is 8", function() NamedSharding(8, P()) end)
    expect("at most 8 dimensions", function() NamedSharding(mesh, P(nil, nil, nil, nil, nil, nil, nil, nil, nil)) end)
    expect("SingleDeviceSharding: 8", function() words.SingleDeviceSharding(8) end)
    expect("SingleDeviceSharding: nil", function() words.SingleDeviceSharding() end)
    local s = NamedSharding(mesh, P { "data", "model" })
    expect("size 8 or 16 would do", function() s:shard_shape { 12 } end)
    expect("size 8 would do", function() s:shard_shape { 7 } end)
    expect("more elements than 64 bits", function() s:shard_shape { 2 ^ 40, 2 ^ 40 } end)
    expect("process_shards: dimension 2", function() s:process_shards({ 8, 8 }, 2) end)
    expect("process_shards: dimension nil", function() s:process_shards { 8, 8 } end)
    for _, shape in ipairs { { -1 }, { 0.5 }, { "8" }, { 8, x = 1 }, { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, "8" } do
      refusal(function() s:shard_shape(shape) end)
    end
  end)

  it("of one device is whole there", function()
    local s = words.SingleDeviceSharding(words.devices()[5])
    assert.equal("SingleDeviceSharding(device 4)", tostring(s))
    assert.is_true(s.is_fully_replicated)
    assert.equal(4, s.device.id)
    assert.same({ 3, 5 }, s:shard_shape { 3, 5 })
    assert.same({ [4] = { { 0, 3 }, { 0, 5 } } }, s:devices_indices_map { 3, 5 })
    assert.same({ [4] = { { 0, 3 }, { 0, 5 } } }, s:addressable_devices_indices_map { 3, 5 })
    assert.equal(4, s:addressable_devices()[1].id)
    assert.same({ 1, 0 }, { s:process_shards({ 3, 5 }, 1) })
    assert.is_true(s == words.SingleDeviceSharding(4))
    assert.is_false(s == words.SingleDeviceSharding(5))
    assert.same({}, words.SingleDeviceSharding(0):addressable_devices_indices_map { 3 })
  end)

  it("of a mesh elsewhere gives this process nothing", function()
    local s = NamedSharding(words.make_mesh({ 2 }, { "a" }), P "a")
    assert.same({}, s:addressable_devices())
    assert.same({}, s:addressable_devices_indices_map { 4 })
    assert.same({ 1, 0 }, { s:process_shards({ 4 }, 0) })
    local permuted = NamedSharding(words.Mesh({ 4 }, { "a" }, { 2, 0, 3, 1 }), P "a")
    assert.same({ 2, 0 }, { permuted:process_shards({ 4 }, 0) })
  end)
end)

describe("process_shards", function()
  local function all(processes, devices_per_process, shape, names, ids, spec, dim)
    local answers = {}
    for process = 0, processes - 1 do
      local words = layout.words(process, processes, devices_per_process)
      local s = words.NamedSharding(words.Mesh(shape, names, ids), words.P(unpack(spec, 1, 2)))
      local count, index = s:process_shards({ 24, 24 }, dim)
      answers[process + 1] = count .. "/" .. index
    end
    return table.concat(answers, " ")
  end

  it("gives processes that need the same rows the same index", function()
    local ids = { 0, 1, 2, 3, 4, 5, 6, 7 }
    assert.equal("4/0 4/1 4/2 4/3", all(4, 2, { 8 }, { "x" }, ids, { "x" }, 0))
    assert.equal("2/0 2/1", all(2, 4, { 4, 2 }, { "a", "b" }, ids, { "a" }, 0))
    -- Processes 0 and 2 hold the devices of replicas 0 and 1, processes 1 and 3 those of 2 and 3.
    assert.equal("2/0 2/1 2/0 2/1", all(4, 2, { 4, 2 }, { "a", "b" }, { 0, 4, 1, 5, 2, 6, 3, 7 }, { "a" }, 0))
    assert.equal("1/0 1/0 1/0 1/0", all(4, 2, { 8 }, { "x" }, ids, {}, 1))
    assert.equal("1/0 1/0 1/0 1/0", all(4, 2, { 4, 2 }, { "a", "b" }, ids, { nil, "b" }, 1))
  end)

  it("counts by the first offset where ranges do not touch", function()
    assert.equal("4/0 4/1 4/2 4/3", all(4, 2, { 8 }, { "x" }, { 0, 2, 4, 6, 1, 3, 5, 7 }, { "x" }, 0))
    assert.equal("4/3 4/2 4/1 4/0", all(4, 2, { 8 }, { "x" }, { 6, 4, 2, 0, 7, 5, 3, 1 }, { "x" }, 0))
  end)

  it("refuses sets that overlap, and sets that differ in number, naming the processes", function()
    -- Parts 0 1, 1 2, 2 0: each shares one with each other.
    local ok, message = pcall(all, 3, 2, { 3, 2 }, { "a", "b" }, { 0, 5, 1, 2, 3, 4 }, { "a" }, 0)
    assert.is_false(ok)
    assert.truthy(message:find("overlap without being the same", 1, true), message)
    assert.truthy(message:match "processes %d and %d need parts of dimension 0", message)
    ok, message = pcall(all, 2, 2, { 3 }, { "a" }, { 0, 1, 2 }, { "a" }, 0)
    assert.is_false(ok)
    assert.truthy(message:find("differ in number (2 and 1 of ", 1, true), message)
  end)
end)

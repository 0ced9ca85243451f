-- long: 12 s
-- What one process alone holds, brought to many over several hosts: plans, walked through round by round, for random
-- layouts and hosts; and jobs over hosts made on this machine.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local hosts_of = require "tests.support.hosts"
local layout = require "tests.support.layout"
local moves_of = require "tests.support.moves"

local UNIT = 65536 -- elements of the last dimension, which no layout cuts: so each box is as large as what is relayed

-- ---- plans -------------------------------------------------------------------------------------------------------

-- Of each process, the first one on its host.
local function c_hosts(hosts)
  local first, out = {}, ffi.new("int32_t[?]", #hosts + 1)
  for p = 0, #hosts do
    first[hosts[p]] = first[hosts[p]] or p
    out[p] = first[hosts[p]]
  end
  return out
end

local function random_hosts(processes)
  local hosts, kind, count = {}, math.random(3), math.random(processes)
  for p = 0, processes - 1 do
    hosts[p] = kind == 1 and math.floor(p * count / processes) or kind == 2 and p % count or math.random(count)
  end
  return hosts
end

local function shift_of(shape)
  local shift = ffi.new "shardrt_shift"
  shift.ndim = #shape
  for d, size in ipairs(shape) do shift.old_shape[d - 1], shift.new_shape[d - 1] = size, size end
  return shift
end

-- The moves of a kind of a process: {process =, round =, is_relayed =, box = {{start, stop}, …}}.
local function moves(route, kind)
  local count, list = ffi.new "int64_t[1]", {}
  local items = C.shardrt_route_moves(route, kind, count)
  for i = 0, tonumber(count[0]) - 1 do
    local move, box = items[i], {}
    for d = 0, move.box.ndim - 1 do box[d + 1] = { tonumber(move.box.start[d]), tonumber(move.box.stop[d]) } end
    list[i + 1] = { process = move.process, round = move.round, is_relayed = move.is_relayed, box = box }
  end
  return list
end

local function route_of(from, to, shape, process, devices, hosts)
  local out = ffi.new "shardrt_route *[1]"
  assert.equal(0, C.shardrt_route_over_hosts(from.handle, to.handle, shift_of(shape), process, devices, hosts, out))
  return ffi.gc(out[0], C.shardrt_route_free)
end

-- Calls f with the number of each unit of a box, and how much of it is in the box: parts are as good as wholes here.
local function each(box, shape, f)
  local ndim = #shape
  local part = (box[ndim][2] - box[ndim][1]) / shape[ndim]
  local function go(d, number)
    if d == ndim then return f(number, part) end
    for i = box[d][1], box[d][2] - 1 do go(d + 1, number * shape[d] + i) end
  end
  go(1, 0)
end

local function holdings(sharding, shape, processes, devices)
  local held = {}
  for p = 0, processes - 1 do held[p] = {} end
  for device, index in pairs(sharding:devices_indices_map(shape)) do
    each(index, shape, function(number) held[math.floor(device / devices)][number] = true end)
  end
  return held
end

local function key(move)
  local words = { move.round }
  for d, range in ipairs(move.box) do words[d + 1] = range[1] .. ":" .. range[2] end
  return table.concat(words, ",") .. ";"
end

-- Walks through what all processes do, in rounds. Returns how many moves were relayed.
local function walk(label, from, to, shape, processes, devices, hosts)
  local first, routes = c_hosts(hosts), {}
  for p = 0, processes - 1 do routes[p] = route_of(from, to, shape, p, devices, first) end
  local old, new = holdings(from, shape, processes, devices), holdings(to, shape, processes, devices)
  local holders, streams, last, relayed = {}, {}, 0, 0
  for p = 0, processes - 1 do
    for number in pairs(old[p]) do holders[number] = (holders[number] or 0) + 1 end
  end
  local crossed = {} -- by unit and host: how much of it came from another host
  for p = 0, processes - 1 do
    local got, round = {}, 0 -- by unit: how much of it was received in which round
    for _, move in ipairs(moves(routes[p], C.SHARDRT_RECEIVES)) do
      assert(not move.is_relayed and move.round >= round, label)
      round = move.round
      last = math.max(last, round)
      local stream = ("%d to %d"):format(move.process, p)
      streams[stream] = (streams[stream] or "") .. key(move)
      each(move.box, shape, function(number, part)
        assert(new[p][number] and not old[p][number], label)
        got[number] = got[number] or { part = 0, round = move.round }
        got[number].part = got[number].part + part
        if first[p] ~= first[move.process] and holders[number] == 1 then
          local name = number .. " to " .. first[p]
          crossed[name] = (crossed[name] or 0) + part
        end
      end)
    end
    for number in pairs(new[p]) do
      assert(old[p][number] or math.abs((got[number] or { part = 0 }).part - 1) < 1e-9, label)
    end
    for _, move in ipairs(moves(routes[p], C.SHARDRT_SENDS)) do
      local stream = ("%d to %d"):format(p, move.process)
      streams[stream .. " sent"] = (streams[stream .. " sent"] or "") .. key(move)
      relayed = relayed + (move.is_relayed and 1 or 0)
      each(move.box, shape, function(number)
        if move.is_relayed then
          assert(got[number].round < move.round, label)
        else
          assert(old[p][number], label)
        end
      end)
    end
  end
  for stream, keys in pairs(streams) do
    local other = stream:match "^(.*) sent$" or stream .. " sent"
    assert.equal(keys, streams[other], label .. ": " .. stream)
  end
  for name, times in pairs(crossed) do
    assert(math.abs(times - 1) < 1e-9, ("%s: unit %s: %g"):format(label, name, times))
  end
  local names, count = {}, 0
  for p = 0, processes - 1 do
    if not names[first[p]] then names[first[p]], count = true, count + 1 end
  end
  assert(last <= math.ceil(math.log(count) / math.log(2)) + 1, label)
  return relayed
end

describe("a plan over several hosts", function()
  it("brings to each host once what one process holds, and everything to all who need it", function()
    local seed, relayed = require "tests.support.seed", 0
    math.randomseed(seed)
    for case = 1, 400 do
      local topology = ({ { 2, 4 }, { 4, 2 }, { 8, 1 }, { 8, 2 }, { 16, 1 }, { 13, 1 } })[math.random(6)]
      local processes, devices = topology[1], topology[2]
      local words = layout.words(0, processes, devices)
      local shape, from, to = moves_of.case(words, 100)
      shape[#shape + 1] = UNIT
      local hosts = random_hosts(processes)
      local label = ("seed %d, case %d: %d x %d, {%s} %s to %s"):format(seed, case, processes, devices,
        table.concat(shape, ","), tostring(from), tostring(to))
      if case % 4 == 0 then from = words.SingleDeviceSharding(words.devices()[math.random(processes * devices)]) end
      relayed = relayed + walk(label, from, to, shape, processes, devices, hosts)
    end
    assert.is_true(relayed > 100, relayed)
  end)

  it("relays nothing that is small", function()
    local words = layout.words(0, 8, 1)
    local mesh = words.make_mesh({ 8 }, { "x" })
    local from, to = words.NamedSharding(mesh, words.P "x"), words.NamedSharding(mesh, words.P())
    local first = c_hosts { [0] = 0, 0, 0, 0, 1, 1, 1, 1 }
    for _, elements in ipairs { UNIT - 1, UNIT } do
      local list = moves(route_of(from, to, { 8 * elements }, 1, 1, first), C.SHARDRT_SENDS)
      local rounds = 0
      for _, move in ipairs(list) do rounds = math.max(rounds, move.round) end
      assert.equal(elements == UNIT and 1 or 0, rounds)
    end
  end)

  it("has a process send a little more for twice as many hosts, and costs what its own moves cost", function()
    for _, topology in ipairs { { 64, 4 }, { 131072, 8 } } do
      local processes, here = topology[1], topology[2]
      local words = layout.words(0, processes, 1)
      local from = words.SingleDeviceSharding(words.devices()[1])
      local to = words.NamedSharding(words.make_mesh({ processes }, { "x" }), words.P())
      local first = ffi.new("int32_t[?]", processes)
      for p = 0, processes - 1 do first[p] = p - p % here end
      for _, process in ipairs { 0, 1, processes / 2, processes - 1 } do
        local route = route_of(from, to, { UNIT }, process, 1, first)
        local rounds = math.log(processes / here) / math.log(2)
        local sent = #moves(route, C.SHARDRT_SENDS)
        assert.is_true(sent <= rounds + here - 1, ("process %d of %d sends %d"):format(process, processes, sent))
        if process == 0 then assert.equal(math.floor(rounds + 0.5) + here - 1, sent) end
        assert.equal(process == 0 and 0 or 1, #moves(route, C.SHARDRT_RECEIVES))
      end
    end
  end)
end)

-- ---- jobs --------------------------------------------------------------------------------------------------------

describe("a job over several hosts", function()
  local missing = hosts_of.missing()
  if missing then
    it("can be tried", function() pending(missing) end)
    return
  end

  local head = [[
    local ffi = require "ffi"
    local shardrt = require "shardrt"
    local moves = require "tests.support.moves"
    local P = shardrt.P
    local me, count = shardrt.process_index(), shardrt.process_count()
    local everywhere = shardrt.NamedSharding(shardrt.make_mesh({ shardrt.device_count() }, { "x" }), P())
    local one = shardrt.SingleDeviceSharding(shardrt.devices()[3])
  ]]

  local function run(source, o)
    o.source, o.hosts, o.processes, o.devices, o.limit = head .. source, 4, 2, 2, 90
    local result = hosts_of.run(o)
    assert.equal("\n", result.left, result.output)
    return result
  end

  it("has the same in all replicas, whatever the layouts, and sends what its plans say", function()
    local result = run(([[
      math.randomseed(%d)
      for case = 1, 30 do
        local shape, from, to = moves.case(shardrt, 12)
        shape[#shape + 1] = %d
        local device = shardrt.devices()[math.random(shardrt.device_count())]
        if case %% 3 == 0 then from = shardrt.SingleDeviceSharding(device) end
        local dtype = moves.dtypes[case %% #moves.dtypes + 1]
        local label = ("case %%d: %%s {%%s}, %%s to %%s"):format(case, dtype, table.concat(shape, ", "), tostring(from),
          tostring(to))
        local value = moves.value(shape, dtype, case)
        local options = { donate = case %% 2 == 0, staging_bytes = ({ 4096, 100000 })[case %% 4] }
        local y = shardrt.reshard(shardrt.device_put(value, from), to, options)
        moves.holds(y, value, label)
        moves.holds(shardrt.reshard(y, from), value, label .. ", back")
      end
      -- Process 1 of host 0 tells two hosts; one of these tells the third; all tell who is on theirs.
      local plan = shardrt.reshard_plan({ %d }, "uint8", one, everywhere)
      local list = {}
      for p = 0, count - 1 do list[p + 1] = plan:bytes_sent(p) / %d end
      if me == 0 then print("sent", table.concat(list, " ")) end
    ]]):format(require "tests.support.seed", UNIT, UNIT, UNIT), {})
    assert.equal(0, result.status, result.output)
    assert.equal("0 3 2 0 1 0 1 0", result.stdout:match "sent\t([^\n]+)")
  end)

  it("says who is missing when one that passes on is stopped", function()
    local result = run([[
      ffi.cdef "int getpid(void); int kill(int pid, int signal);"
      local x = shardrt.device_put(moves.value({ 4194304 }, "uint8", 1), one)
      for i = 1, 1000 do
        shardrt.reshard(x, everywhere):delete()
        if i == 3 and me == 2 then ffi.C.kill(ffi.C.getpid(), 19) end
      end
    ]], { options = { "--timeout", "4" } })
    assert.not_equal(0, result.status)
    assert.not_equal(124, result.status, result.output)
    assert.truthy(result.stderr:find "process 2 did not", result.output)
  end)
end)

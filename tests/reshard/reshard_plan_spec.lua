-- The plan of a reshard, of any process of any job: the fewest bytes, as JAX's answers and a count element by element
-- in plain Lua have them; sender and receiver of one mind; the load spread.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local golden = require "tests.support.golden"
local layout = require "tests.support.layout"
local moves_of = require "tests.support.moves"

-- ---- the oracle: every element, and who has it ----

-- Calls f with the row-major number of every element of a box {{start, stop}, …}.
local function each(index, shape, f)
  local function go(d, number)
    if d > #shape then return f(number) end
    for i = index[d][1], index[d][2] - 1 do go(d + 1, number * shape[d] + i) end
  end
  go(1, 0)
end

-- The box in a frame of another shape, in which it begins `by` further on: what of it is there.
local function shifted(index, frame, by)
  local made = {}
  for d, range in ipairs(index) do
    made[d] = { math.max(0, range[1] + by[d]), math.min(frame[d], range[2] + by[d]) }
  end
  return made
end

-- Of each process, the set of elements that its devices hold, by their numbers in the frame.
local function holdings(sharding, shape, processes, devices, frame, by)
  local held = {}
  for p = 0, processes - 1 do held[p] = {} end
  for device, index in pairs(sharding:devices_indices_map(shape)) do
    local set = held[math.floor(device / devices)]
    each(shifted(index, frame, by), frame, function(number) set[number] = true end)
  end
  return held
end

local function key(index)
  local words = {}
  for d, range in ipairs(index) do words[d] = range[1] .. ":" .. range[2] end
  return table.concat(words, ",")
end

-- Everything that holds of any plan, against the oracle. Returns the bytes that each process sends.
local function check(plan, processes, devices, label, shift)
  local frame, by, none, window = plan.shape, {}, {}, {}
  for d, n in ipairs(plan.shape) do none[d], by[d], window[d] = 0, 0, { 0, n } end
  if shift then frame, by = shift.shape, shift.by end
  local size = tonumber(C.shardrt_dtype_size(C.shardrt_dtype_from_name(plan.dtype)))
  local old = holdings(plan.from, plan.shape, processes, devices, frame, by)
  local new, within = holdings(plan.to, frame, processes, devices, frame, none), {}
  each(shifted(window, frame, by), frame, function(number) within[number] = true end)
  for p = 0, processes - 1 do
    for number in pairs(new[p]) do new[p][number] = within[number] end -- what the old array does not have is not moved
  end
  local sent, moves, received_total, sent_total = {}, {}, 0, 0
  for p = 0, processes - 1 do
    moves[p] = plan:moves(p)
    sent[p] = plan:bytes_sent(p)
    received_total, sent_total = received_total + plan:bytes_received(p), sent_total + sent[p]
    local need, keep = 0, 0
    for number in pairs(new[p]) do
      if old[p][number] then keep = keep + 1 else need = need + 1 end
    end
    assert.equal(need * size, plan:bytes_received(p), label .. ": received by process " .. p)
    assert.equal(keep * size, plan:bytes_copied(p), label .. ": copied by process " .. p)
    -- Every element of the new blocks comes once: from this process, or from one that holds it.
    local got, bytes = {}, { copy = 0, receive = 0, send = 0 }
    for _, move in ipairs(moves[p]) do
      each(move.index, frame, function(number)
        bytes[move.kind] = bytes[move.kind] + size
        if move.kind == "send" then
          assert(old[p][number] and new[move.process][number] and not old[move.process][number] and move.process ~= p)
          return
        end
        assert(not got[number] and new[p][number] and old[move.process][number], label)
        assert((move.kind == "copy") == (move.process == p))
        got[number] = true
      end)
    end
    assert.same({ copy = keep * size, receive = need * size, send = sent[p] }, bytes)
  end
  assert.equal(received_total, sent_total, label)
  -- A sender's moves to a receiver are that receiver's moves from it, in the same order.
  local streams = {}
  for p = 0, processes - 1 do
    for _, move in ipairs(moves[p]) do
      local from, to = move.kind == "send" and p or move.process, move.kind == "send" and move.process or p
      if move.kind ~= "copy" then
        local name = ("%s from %d to %d"):format(move.kind, from, to)
        streams[name] = (streams[name] or "") .. key(move.index) .. ";"
      end
    end
  end
  for name, stream in pairs(streams) do
    local other = name:gsub("^%w+", { send = "receive", receive = "send" })
    assert.equal(stream, streams[other], label .. ": " .. name)
  end
  return sent, old, new
end

describe("a plan agrees with JAX", function()
  local cases = golden.cases "reshard.json"

  for number, case in ipairs(cases) do
    it(("in case %d, %s"):format(number, case.name), function()
      local words = layout.words(0, case.process_count, case.devices_per_process)
      local from, to = layout.sharding(words, case.from), layout.sharding(words, case.to)
      local plan = words.reshard_plan(case.global_shape, "float32", from, to)
      local total = 0
      for p = 0, case.process_count - 1 do
        assert.equal(4 * case.process_receive[p + 1], plan:bytes_received(p))
        total = total + plan:bytes_sent(p)
      end
      assert.equal(4 * case.process_receive_total, total)
      check(plan, case.process_count, case.devices_per_process, "case " .. number)
    end)
  end
end)

-- ---- random layouts ----

-- How much some process must send at least, with parts cut as one likes: over every set of processes, what only they
-- hold, shared by them. `mask` has the holders of each element as bits.
local function least_sent(mask, old, new, processes)
  local demand, least = {}, 0
  for p = 0, processes - 1 do
    for number in pairs(new[p]) do
      if not old[p][number] then demand[mask[number]] = (demand[mask[number]] or 0) + 1 end
    end
  end
  for set = 1, 2 ^ processes - 1 do
    local total, members = 0, 0
    for holders, count in pairs(demand) do
      if bit.band(holders, bit.bnot(set)) == 0 then total = total + count end
    end
    for p = 0, processes - 1 do members = members + bit.band(bit.rshift(set, p), 1) end
    least = math.max(least, total / members)
  end
  return least
end

describe("a random plan", function()
  it("moves the fewest bytes, agrees with the other processes', and lets no sender be the bottleneck", function()
    local seed, cases = require "tests.support.seed", 400
    math.randomseed(seed)
    for case = 1, cases do
      local topology = ({ { 1, 8 }, { 2, 4 }, { 4, 2 }, { 8, 1 }, { 3, 3 }, { 5, 2 }, { 8, 2 } })[math.random(7)]
      local processes, devices = topology[1], topology[2]
      local words = layout.words(0, processes, devices)
      local shape, from, to = moves_of.case(words, 800)
      local dtype = moves_of.dtypes[math.random(#moves_of.dtypes)]
      local plan = words.reshard_plan(shape, dtype, from, to)
      local label = ("seed %d, case %d: %d x %d, {%s} %s to %s"):format(seed, case, processes, devices,
        table.concat(shape, ","), tostring(from), tostring(to))
      local sent, old, new = check(plan, processes, devices, label)
      -- Twice of what an even spread would take, or of what a process has to receive, and one move.
      local size, mask = tonumber(C.shardrt_dtype_size(C.shardrt_dtype_from_name(dtype))), {}
      local most_sent, most_received, largest = 0, 0, 0
      for p = 0, processes - 1 do
        for number in pairs(old[p]) do mask[number] = bit.bor(mask[number] or 0, 2 ^ p) end
        most_sent = math.max(most_sent, sent[p])
        most_received = math.max(most_received, plan:bytes_received(p))
        for _, move in ipairs(plan:moves(p)) do
          local part = size
          for _, range in ipairs(move.index) do part = part * (range[2] - range[1]) end
          if move.kind == "send" then largest = math.max(largest, part) end
        end
      end
      local bound = 2 * math.max(most_received, size * least_sent(mask, old, new, processes)) + largest
      assert.is_true(most_sent <= bound, ("%s: %d of %d bytes"):format(label, most_sent, bound))
    end
  end)

  it("that shifts an array into another moves the fewest bytes and agrees with the other processes', too", function()
    local seed, cases = require "tests.support.seed", 300
    math.randomseed(seed)
    for case = 1, cases do
      local topology = ({ { 1, 8 }, { 2, 4 }, { 4, 2 }, { 8, 1 }, { 3, 3 }, { 5, 2 }, { 8, 2 } })[math.random(7)]
      local processes, devices = topology[1], topology[2]
      local words = layout.words(0, processes, devices)
      local shape, from = moves_of.case(words, 400)
      local frame, to, by
      repeat -- of as many dimensions
        frame, to = moves_of.case(words, 400)
      until #frame == #shape
      by = {}
      for d = 1, #shape do by[d] = math.random(-shape[d], frame[d]) end
      local dtype = moves_of.dtypes[math.random(#moves_of.dtypes)]
      local shift = { shape = frame, by = by }
      local plan = words.plan_of("a shift", { shape = shape, dtype = dtype, sharding = from }, to, shift)
      check(plan, processes, devices, ("seed %d, case %d: %d x %d, {%s} %s to {%s} %s by {%s}"):format(seed, case,
        processes, devices, table.concat(shape, ","), tostring(from), table.concat(frame, ","), tostring(to),
        table.concat(by, ",")), shift)
    end
  end)
end)

-- ---- replicas share the sending ----

describe("holders of the same part", function()
  -- Bytes that each process sends of {rows, 4} int8, from replicas on the first devices to the last ones.
  local function sent(processes, devices, from_count, to_count, to_spec, rows)
    local words = layout.words(0, processes, devices)
    local first, last = {}, {}
    for i = 1, from_count do first[i] = i - 1 end
    for i = 1, to_count do last[i] = processes * devices - to_count + i - 1 end
    local plan = words.reshard_plan({ rows, 4 }, "int8",
      words.NamedSharding(words.Mesh({ from_count }, { "x" }, first), words.P()),
      words.NamedSharding(words.Mesh({ to_count }, { "x" }, last), words.P(unpack(to_spec, 1, 1))))
    local list = {}
    for p = 0, processes - 1 do list[p + 1] = plan:bytes_sent(p) end
    return list
  end

  it("send as much as each other, to fewer, as many, and more receivers", function()
    assert.same({ 24, 24, 24, 24, 0, 0, 0, 0 }, sent(8, 1, 4, 1, {}, 24))
    assert.same({ 48, 48, 48, 48, 0, 0, 0, 0 }, sent(8, 1, 4, 2, {}, 24))
    assert.same({ 24, 24, 24, 24, 0, 0, 0, 0 }, sent(8, 1, 4, 4, { "x" }, 24))
    assert.same({ 192, 192, 0, 0, 0, 0 }, sent(6, 1, 2, 4, {}, 24))
    assert.same({ 144, 144, 0, 0, 0 }, sent(5, 1, 2, 3, {}, 24))
    assert.same({ 32, 32, 32, 0 }, sent(4, 2, 6, 2, {}, 24))
  end)

  it("begin with different ones for different blocks", function()
    -- Processes 0 and 1 hold blocks 0, 2, 4 and 6, processes 2 and 3 the others; each block goes to one receiver.
    local words = layout.words(0, 8, 4)
    local ids = {}
    for replica = 0, 1 do
      for block = 0, 7 do ids[#ids + 1] = (block % 2 * 2 + replica) * 4 + math.floor(block / 2) end
    end
    local last = {}
    for i = 1, 8 do last[i] = 16 + 2 * (i - 1) end
    local plan = words.reshard_plan({ 8, 4 }, "int8",
      words.NamedSharding(words.Mesh({ 2, 8 }, { "r", "x" }, ids), words.P "x"),
      words.NamedSharding(words.Mesh({ 8 }, { "x" }, last), words.P "x"))
    for p = 0, 3 do assert.equal(8, plan:bytes_sent(p)) end
  end)

  -- ---- beyond what is weighed: senders by arithmetic ----

  -- Devices of `count` processes from `first` on: in order, in turns, or one of each.
  local orders = {
    ["in order"] = function(first, count, devices)
      local ids = {}
      for i = 1, count * devices do ids[i] = first * devices + i - 1 end
      return ids
    end,
    ["in turns"] = function(first, count, devices)
      local ids = {}
      for i = 0, count * devices - 1 do ids[i + 1] = (first + i % count) * devices + math.floor(i / count) end
      return ids
    end,
    ["one of each"] = function(first, count, devices)
      local ids = {}
      for i = 1, count do ids[i] = (first + i - 1) * devices end
      return ids
    end,
  }

  local function check_balance(processes, devices, from_order, to_order, to_first, to_spec)
    local words = layout.words(0, processes, devices)
    local half = processes / 2
    local old = orders[from_order](0, half, devices)
    local new = orders[to_order](to_first, processes - to_first, devices)
    local shape = { to_spec and #new or 4 }
    local plan = words.reshard_plan(shape, "int8", words.NamedSharding(words.Mesh({ #old }, { "x" }, old), words.P()),
      words.NamedSharding(words.Mesh({ #new }, { "x" }, new), words.P(to_spec)))
    local label = ("%d x %d, %s to %s from process %d on, %s"):format(processes, devices, from_order, to_order,
      to_first, tostring(to_spec))
    local most, total = 0, 0
    for _, bytes in pairs(check(plan, processes, devices, label)) do
      most, total = math.max(most, bytes), total + bytes
    end
    assert.is_true(most > 0 and most <= 2 * total / half, ("%s: %d of %g bytes"):format(label, most, total / half))
  end

  for _, topology in ipairs { { 256, 4 }, { 128, 8 }, { 180, 6 } } do
    for from_order in pairs(orders) do
      for to_order in pairs(orders) do
        it(("share the sending in %d x %d devices, %s to %s"):format(topology[1], topology[2], from_order, to_order),
          function()
            local processes, devices = topology[1], topology[2]
            for _, to_first in ipairs { processes / 2, 0 } do
              check_balance(processes, devices, from_order, to_order, to_first, nil)
            end
            check_balance(processes, devices, from_order, to_order, processes / 2, "x")
          end)
      end
    end
  end

  it("share the sending of many blocks in 1024 devices", function()
    -- Each of the two blocks lies on a quarter of the processes; every new block is on one process, on all its devices.
    local words = layout.words(0, 256, 4)
    local new = orders["in order"](128, 128, 4)
    local plan = words.reshard_plan({ 256 }, "int8",
      words.NamedSharding(words.Mesh({ 2, 256 }, { "x", "r" }, orders["in order"](0, 128, 4)), words.P "x"),
      words.NamedSharding(words.Mesh({ 128, 4 }, { "x", "r" }, new), words.P "x"))
    for p, bytes in pairs(check(plan, 256, 4, "many blocks")) do
      assert.is_true(bytes <= 4, ("process %d sends %d bytes"):format(p, bytes))
    end
  end)
end)

-- ---- the cost of planning ----

describe("planning costs", function()
  -- What one process of a job does: allocations, and moves.
  local function cost(processes, devices, process, make)
    local words = layout.words(process, processes, devices)
    local shape, from, to = make(words, processes * devices)
    local plan = words.reshard_plan(shape, "float32", from, to) -- as this process
    assert.is_true(plan:bytes_received() >= 0)
    local out = ffi.new "shardrt_route *[1]"
    local c_shape = ffi.new("int64_t[8]", shape)
    C.shardrt_alloc_fail_at(0)
    assert.equal(0, C.shardrt_route_new(from.handle, to.handle, #shape, c_shape, process, devices, out))
    local allocations = tonumber(C.shardrt_alloc_fail_at(0))
    C.shardrt_route_free(out[0])
    return allocations, #plan:moves()
  end

  local cases = {
    ["cut along the model axis in another dimension"] = function(words, count)
      local mesh = words.make_mesh({ count / 8, 8 }, { "data", "model" })
      return { count, 64 }, words.NamedSharding(mesh, words.P("data", "model")),
        words.NamedSharding(mesh, words.P({ "data", "model" }, nil))
    end,
    ["replicas cut over the model axis"] = function(words, count)
      local mesh = words.make_mesh({ count / 8, 8 }, { "data", "model" })
      return { 64, 64 }, words.NamedSharding(mesh, words.P("model", nil)),
        words.NamedSharding(mesh, words.P(nil, "model"))
    end,
    ["the same cut with the devices the other way round"] = function(words, count)
      local mesh = words.make_mesh({ count / 4, 4 }, { "a", "b" })
      return { count * 2 }, words.NamedSharding(mesh, words.P({ "a", "b" })),
        words.NamedSharding(mesh, words.P({ "b", "a" }))
    end,
  }
  for name, make in pairs(cases) do
    it("do not grow with the job: " .. name, function()
      local least_allocations, least_moves = cost(4, 8, 1, make)
      for _, processes in ipairs { 64, 1024, 131072 } do
        for _, process in ipairs { 0, 17, processes - 1 } do
          local allocations, moves = cost(processes, 8, process, make)
          assert.is_true(moves <= 2 * least_moves + 16, ("%d moves, %d in a small job"):format(moves, least_moves))
          assert.is_true(allocations <= 2 * least_allocations + 16,
            ("%d allocations, %d in a small job"):format(allocations, least_allocations))
        end
      end
    end)
  end

  -- {n, n} cut by rows to cut by columns, each block on `replicas` devices: neighbours, or apart.
  local function transpose(replicas, is_apart)
    return function(words, count)
      local n = count / replicas
      local mesh = is_apart and words.make_mesh({ replicas, n }, { "r", "x" })
        or words.make_mesh({ n, replicas }, { "x", "r" })
      return { n, n }, words.NamedSharding(mesh, words.P("x", nil)), words.NamedSharding(mesh, words.P(nil, "x"))
    end
  end

  it("weigh nothing for a block that one process holds", function()
    for _, replicas in ipairs { 1, 2, 8 } do
      for _, processes in ipairs { 4, 31, 63 } do
        local allocations, moves = cost(processes, 8, processes - 1, transpose(replicas, false))
        local bound = 80 -- the holdings, three for each of the 8 old blocks, and what holds the moves
        assert.is_true(allocations <= bound, ("%d allocations for %d moves"):format(allocations, moves))
      end
    end
  end)

  it("weigh an old block once for all the new blocks of a process", function()
    for _, processes in ipairs { 4, 16, 30 } do
      local allocations = cost(processes, 8, processes - 1, transpose(2, true))
      local olds = processes * 8 / 2
      assert.is_true(allocations <= 3 * olds + 80, ("%d allocations for %d old blocks"):format(allocations, olds))
    end
  end)
end)

-- The plan of a reshard, of any process of any job: the fewest bytes, as JAX's answers and a count element by element in
-- plain Lua have them; sender and receiver of one mind; the load spread.

local ffi = require "ffi"
local C = require "shardrt.C"
local golden = require "tests.support.golden"
local layout = require "tests.support.layout"

-- ---- the oracle: every element, and who has it ----

local function elements_of(shape)
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  return count
end

-- Calls f with the row-major number of every element of a box {{start, stop}, …}.
local function each(index, shape, f)
  local function go(d, number)
    if d > #shape then return f(number) end
    for i = index[d][1], index[d][2] - 1 do go(d + 1, number * shape[d] + i) end
  end
  go(1, 0)
end

-- Of each process, the set of elements that its devices hold.
local function holdings(sharding, shape, processes, devices)
  local held = {}
  for p = 0, processes - 1 do held[p] = {} end
  for device, index in pairs(sharding:devices_indices_map(shape)) do
    local set = held[math.floor(device / devices)]
    each(index, shape, function(number) set[number] = true end)
  end
  return held
end

local function key(index)
  local words = {}
  for d, range in ipairs(index) do words[d] = range[1] .. ":" .. range[2] end
  return table.concat(words, ",")
end

-- Everything that holds of any plan, against the oracle. Returns the bytes that each process sends.
local function check(plan, processes, devices, label)
  local shape, size = plan.shape, tonumber(C.shardrt_dtype_size(C.shardrt_dtype_from_name(plan.dtype)))
  local old = holdings(plan.from, shape, processes, devices)
  local new = holdings(plan.to, shape, processes, devices)
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
      each(move.index, shape, function(number)
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
  if not cases then
    pending "golden files absent"
    return
  end

  for number, case in ipairs(cases) do
    it(("in case %d, %s"):format(number, key({}) .. table.concat(case.global_shape, "x")), function()
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

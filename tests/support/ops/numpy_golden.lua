-- A recipe for numpy_golden_spec: every case of JAX's elementwise.json, dot.json and placement.json, on any topology of
-- 8 devices. Prints what is wrong, and how many cases were looked at.

package.path = "./?.lua;" .. package.path
local cjson = require "cjson"
local golden = require "tests.support.golden"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P = shardrt.P

local function null(value)
  if value ~= cjson.null then return value end
end

local function spec_of(entries)
  local made = {}
  for i, entry in ipairs(entries) do made[i] = null(entry) end
  return P(unpack(made, 1, #entries))
end

local function mesh_of(m) return shardrt.Mesh(m.shape, m.axis_names, m.device_ids) end

local function value_of(input)
  local size = 1
  for _, n in ipairs(input.shape) do size = size * n end
  local h = shardrt.ndarray.empty(input.shape, "float32")
  local mul, add, mod, sub = unpack(input.fill)
  for k = 0, size - 1 do h.data[k] = (k * mul + add) % mod - sub end
  return h
end

local looked, agreed, left_out = 0, 0, 0

-- Where a process sees something wrong it says so itself: it may be the only one.
local function wrong(fmt, ...) print(fmt:format(...)) end

-- How each device of this process must hold the result: the box of each of the devices `ids`.
local function check_index(name, x, ids, index)
  local wanted, held, own = {}, 0, 0
  for i, id in ipairs(ids) do
    wanted[id] = index[i]
    if shardrt.devices()[id + 1].process_index == shardrt.process_index() then own = own + 1 end
  end
  for _, shard in ipairs(x.addressable_shards) do
    local right = wanted[shard.device.id]
    if cjson.encode(shard.index) ~= cjson.encode(right) then
      return wrong("%s: device %d holds %s, not %s", name, shard.device.id, cjson.encode(shard.index),
        cjson.encode(right))
    end
    held = held + 1
  end
  if held ~= own then wrong("%s: %d of this process's devices hold something, not %d", name, held, own) end
end

local function check_values(name, x, values)
  local host = shardrt.process_allgather(x)
  local sum = 0
  for i = 0, host.size - 1 do
    local v = host.data[i]
    sum = sum + v
    local right = values.first[i + 1]
    if right and (v ~= v or math.abs(v - right) > 1e-6 * math.max(1, math.abs(right))) then
      return wrong("%s: element %d is %.9g, not %.9g", name, i, v, right)
    end
  end
  if sum ~= sum or math.abs(sum - values.sum) > 1e-5 * math.max(1, math.abs(values.sum)) then
    wrong("%s: the sum is %.9g, not %.9g", name, sum, values.sum)
  end
end

local ops = {
  sin = function(_, x) return np.sin(x) end,
  relu = function(_, x) return np.maximum(x, 0) end,
  copy = function(_, x) return np.copy(x) end,
  add_scalar = function(_, x) return x + 1 end,
  transpose = function(_, x) return np.transpose(x) end,
  add = function(_, x, y) return x + y end,
  dot = function(_, x, y) return np.dot(x, y) end,
  sum = function(c, x) return np.sum(x, null(c.axis), c.keepdims) end,
  mean = function(c, x) return np.mean(x, null(c.axis), c.keepdims) end,
  max = function(c, x) return np.max(x, null(c.axis), c.keepdims) end,
  reshape = function(c, x) return np.reshape(x, c.new_shape) end,
  constrain = function(c, x, _, mesh)
    return shardrt.with_sharding_constraint(x + 1, shardrt.NamedSharding(mesh, spec_of(c.constrain_to)))
  end,
}

for _, file in ipairs { "elementwise.json", "dot.json" } do
  for number, case in ipairs(golden.cases(file)) do
    local mesh, inputs = mesh_of(case.mesh), {}
    for i, input in ipairs(case.inputs) do
      inputs[i] = shardrt.device_put(value_of(input), shardrt.NamedSharding(mesh, spec_of(input.spec)))
    end
    local name = ("%s case %d (%s)"):format(file, number, case.op)
    local good, out = pcall(ops[case.op], case, inputs[1], inputs[2], mesh)
    if not good then
      wrong("%s: %s", name, out)
    else
      if cjson.encode(out.shape) ~= cjson.encode(case.auto.shape) then
        wrong("%s: its shape is %s", name, cjson.encode(out.shape))
      end
      if case.agree then
        agreed = agreed + 1
        check_index(name, out, case.mesh.device_ids, case.auto.index)
      end
      check_values(name, out, case.values)
    end
    looked = looked + 1
  end
end

-- ---- where results are placed ----

local function placed(input, shape)
  local host = shardrt.ndarray.arange(shape[1], "float32")
  if input.kind == "scalar" then return 2 end
  if input.kind == "numpy" then return host end
  if input.kind == "uncommitted" then return np.arange(shape[1], "float32") end
  if input.kind == "device" then return shardrt.device_put(host, shardrt.SingleDeviceSharding(input.id)) end
  return shardrt.device_put(host, shardrt.NamedSharding(mesh_of(input.mesh), spec_of(input.spec)))
end

local function check_placed(name, case, out)
  if out.committed ~= case.committed then return wrong("%s: committed is %s", name, tostring(out.committed)) end
  if out.committed then -- what nobody placed is in every process, on a device of its own
    check_index(name, out, case.device_ids, case.index)
  elseif #out.addressable_shards ~= 1 then
    wrong("%s: %d shards", name, #out.addressable_shards)
  end
end

local function check_ids_shown(name, case, message)
  for _, input in ipairs(case.inputs) do
    local ids = "[" .. (input.id or table.concat(input.mesh.device_ids, ", ")) .. "]"
    if not message:find(ids, 1, true) then wrong("%s: the message does not show %s: %s", name, ids, message) end
  end
end

local function check_add(name, case)
  local x, y = placed(case.inputs[1], case.shape), placed(case.inputs[2], case.shape)
  local good, out = pcall(np.add, x, y)
  if good == case.raises then return wrong("%s: raises is %s: %s", name, tostring(not good), tostring(out)) end
  if case.raises then return check_ids_shown(name, case, out) end
  check_placed(name, case, out)
  local host, scalar = shardrt.process_allgather(out), case.inputs[2].kind == "scalar"
  for i = 0, host.size - 1 do
    if host.data[i] ~= (scalar and i + 2 or 2 * i) then wrong("%s: element %d is %g", name, i, host.data[i]) end
  end
end

-- By JAX's name of the case; device_put without a place, and zeros with one, are no words of shardrt.
local makes = {
  ["jnp.zeros"] = function() return np.zeros { 24 } end,
  ["jnp.ones_like of a sharded array"] = function(y) return np.ones_like(y) end,
  ["jnp.copy of a sharded array"] = function(y) return np.copy(y) end,
  ["y + jnp.ones_like(y)"] = function(y) return y + np.ones_like(y) end,
  ["y + jnp.arange(y.size).reshape(y.shape)"] = function(y) return y + np.reshape(np.arange(y.size), y.shape) end,
  ["one element of a sharded array"] = function(y) return np.squeeze(np.slice(y, { { 5, 6 } })) end,
  ["a slice of a sharded array"] = function(y) return np.slice(y, { { 5, 8 } }) end,
  ["sum of a sharded array"] = function(y) return np.sum(y) end,
}

for _, case in ipairs(golden.cases "placement.json") do
  local name, explicit = "placement.json: " .. case.name, false
  for _, input in ipairs(case.inputs) do explicit = explicit or input.axis_types == "explicit" end
  if case.op == "add" and not explicit then
    check_add(name, case)
    looked = looked + 1
  elseif makes[case.name] then
    check_placed(name, case, makes[case.name](placed(case.inputs[1], { 24 })))
    looked = looked + 1
  else
    left_out = left_out + 1
  end
end

shardrt.say("looked at %d cases, of which %d have one layout in JAX; left out %d", looked, agreed, left_out)

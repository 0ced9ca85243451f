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

-- How each device of this process must hold the result.
local function check_index(name, x, mesh, index)
  local wanted = {}
  for i, id in ipairs(mesh.device_ids) do wanted[id] = index[i] end
  for _, shard in ipairs(x.addressable_shards) do
    local right = wanted[shard.device.id]
    for d, range in ipairs(right) do
      if shard.index[d][1] ~= range[1] or shard.index[d][2] ~= range[2] then
        shardrt.say("%s: device %d holds %s, not %s", name, shard.device.id, cjson.encode(shard.index),
          cjson.encode(right))
        return
      end
    end
  end
end

local function check_values(name, x, values)
  local host = shardrt.process_allgather(x)
  local sum = 0
  for i = 0, host.size - 1 do
    local v = host.data[i]
    sum = sum + v
    if i < #values.first and math.abs(v - values.first[i + 1]) > 1e-6 * math.max(1, math.abs(v)) then
      print(("%s: element %d is %.9g, not %.9g"):format(name, i, v, values.first[i + 1]))
      return
    end
  end
  if math.abs(sum - values.sum) > 1e-4 * math.max(1, math.abs(values.sum)) then
    print(("%s: the sum is %.9g, not %.9g"):format(name, sum, values.sum))
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

local looked, agreed = 0, 0
for _, file in ipairs { "elementwise.json", "dot.json" } do
  for number, case in ipairs(golden.cases(file)) do
    local mesh = mesh_of(case.mesh)
    local inputs = {}
    for i, input in ipairs(case.inputs) do
      inputs[i] = shardrt.device_put(value_of(input), shardrt.NamedSharding(mesh, spec_of(input.spec)))
    end
    local name = ("%s case %d (%s)"):format(file, number, case.op)
    local good, out = pcall(ops[case.op], case, inputs[1], inputs[2], mesh)
    if not good then
      shardrt.say("%s: %s", name, out)
    else
      if case.agree then
        agreed = agreed + 1
        check_index(name, out, case.mesh, case.auto.index)
      end
      check_values(name, out, case.values)
    end
    looked = looked + 1
  end
end

-- ---- where results are placed ----

local function placed(input, shape)
  local size = 1
  for _, n in ipairs(shape) do size = size * n end
  if input.kind == "scalar" then return 2 end
  local host = shardrt.ndarray.arange(size, "float32"):reshape(shape)
  if input.kind == "numpy" then return host end
  if input.kind == "uncommitted" then return np.reshape(np.arange(size, "float32"), shape) end
  if input.kind == "device" then return shardrt.device_put(host, shardrt.SingleDeviceSharding(input.id)) end
  return shardrt.device_put(host, shardrt.NamedSharding(mesh_of(input.mesh), spec_of(input.spec)))
end

local alone = shardrt.process_count() == 1
for _, case in ipairs(golden.cases "placement.json") do
  local explicit = false
  for _, input in ipairs(case.inputs) do explicit = explicit or input.axis_types == "explicit" end
  if case.op == "add" and not explicit then
    local name = "placement.json: " .. case.name
    local x, y = placed(case.inputs[1], case.shape), placed(case.inputs[2], case.shape)
    local good, out = pcall(np.add, x, y)
    if good ~= not case.raises then shardrt.say("%s: raises %s; %s", name, tostring(not good), tostring(out)) end
    if good and not case.raises then
      if out.committed ~= case.committed then shardrt.say("%s: committed is %s", name, tostring(out.committed)) end
      if out.committed or alone then check_index(name, out, case, case.index) end
      if out.committed and tostring(case.device_ids) then
        local ids = {}
        for _, shard in ipairs(out.addressable_shards) do ids[#ids + 1] = shard.device.id end
        if alone and table.concat(ids, " ") ~= table.concat(case.device_ids, " ") then
          shardrt.say("%s: on %s", name, table.concat(ids, " "))
        end
      end
    elseif case.raises then
      for _, input in ipairs(case.inputs) do
        local ids = input.id or table.concat(input.mesh.device_ids, ", ")
        if not tostring(out):find("[" .. ids .. "]", 1, true) then
          shardrt.say("%s: the message does not show [%s]: %s", name, ids, out)
        end
      end
    end
    looked = looked + 1
  end
end

shardrt.say("looked at %d cases, of which %d have one layout in JAX", looked, agreed)

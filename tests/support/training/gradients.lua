-- Functions of one or two arrays, for each word of shardrt.numpy that has a gradient, and what is checked of them: the
-- gradient against central finite differences, in every sharding of a mesh.

local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local ndarray, P = shardrt.ndarray, shardrt.P

local gradients = {}

-- Away from 0, from 1, from each other, and from where a function has a step.
local function values(n, from, by)
  local list = {}
  for i = 1, n do list[i] = (from or -1.9) + (by or 0.1237) * ((i * 13) % n) end
  return list
end

local function product(list)
  local n = 1
  for _, size in ipairs(list) do n = n * size end
  return n
end

local function host(shape, from, by)
  return ndarray.from_table(values(product(shape), from, by), "float64"):reshape(shape)
end

local M, N = { 8, 4 }, { 4, 8 }

--- By name: f, and the shapes of its operands; `from`, `by`: the numbers in the first; `second`: in the second.
--- `loose`: what the tolerance is to be multiplied with.
local list = {}
gradients.list = list

local function unary(name, from, by)
  list[name] = { function(x) return np[name](x) end, M, from = from, by = by }
end
for _, name in ipairs {
  "negative", "abs", "square", "copy", "exp", "expm1", "sin", "cos", "tanh", "sigmoid", "erf", "reciprocal",
} do
  unary(name)
end
for _, name in ipairs { "sqrt", "rsqrt", "log", "log1p" } do unary(name, 0.3) end
unary("tan", -1.2, 0.07)
for _, name in ipairs { "sign", "floor", "ceil", "round" } do unary(name) end -- steps: the gradient is 0

local function binary(name, o)
  o = o or {}
  local f = function(x, y) return np[name](x, y) end
  list[name] = { f, M, M, from = o.from, by = o.by, second = o.second }
  list[name .. ", broadcast"] = { f, M, { 4 }, from = o.from, by = o.by, second = o.second }
  list[name .. ", broadcast both ways"] = { f, { 8, 1 }, { 1, 4 }, from = o.from, by = o.by, second = o.second }
end
for _, name in ipairs { "add", "subtract", "multiply", "maximum", "minimum", "arctan2" } do
  binary(name, { second = { -0.93, 0.0771 } })
end
for _, name in ipairs { "divide", "floor_divide", "remainder" } do binary(name, { second = { 0.71, 0.0771 } }) end
binary("power", { from = 0.3, by = 0.05, second = { -1.3, 0.0771 } })

list["operators"] = { function(x, y) return -(x + y * 2 - 1 / y) ^ 2 % 7 end, M, M, second = { 0.7, 0.05 } }
list["power, a number"] = { function(x) return x ^ 3 end, M }
list["power of a number"] = { function(x) return 2 ^ x end, M }
list["used twice"] = { function(x) return x * x + np.sin(x) * x end, M }
list.where = { function(x, y) return np.where(np.greater(x, 0.1), x * x, y * 3) end, M, { 4 } }
list.clip = { function(x) return np.clip(x, -1, 1) * x end, M }
list.astype = { function(x) return np.astype(np.astype(x, "float32"), "float64") * x end, M, loose = 1e5 }
list.broadcast_to = { function(x) return np.broadcast_to(x, { 2, 8, 4 }) * x end, { 8, 1 } }
list.stop_gradient = { function(x) return shardrt.stop_gradient(np.floor(x)) * x end, M }
list.zeros_like = { function(x) return (np.zeros_like(x) + np.ones_like(x) + np.full_like(x, 2)) * x end, M }
list.array = { function(x) return np.array(x, "float64") * x end, M }
list["comparisons"] = { function(x, y)
  return np.where(np.logical_and(np.less(x, y), np.logical_not(np.isnan(x))), x, y * y)
end, M, { 4 }, second = { -0.9, 0.5 } }

for _, name in ipairs { "sum", "mean", "max", "min", "prod", "var", "std" } do
  local f = np[name]
  for _, o in ipairs {
    { "" }, { " over axis 0", 0 }, { " over axis -1, kept", -1, true }, { " over both", { 1, 0 } },
    { " over all, kept", nil, true },
  } do
    list[name .. o[1]] = { function(x) return f(x * x, o[2], o[3]) end, M, from = 0.4, by = 0.0437 }
  end
end
list["prod with one 0"] = { function(x) return np.prod(x, 1) end, M, from = -0.5 * 7, by = 0.5 }
list["prod with many"] = { function(x) return np.prod(x * np.array { 0, 1, 0, 1 }, 1) end, M }
for _, name in ipairs { "softmax", "log_softmax" } do
  list[name] = { function(x) return np[name](x) end, M }
  list[name .. " along axis 0"] = { function(x) return np[name](x, 0) end, M }
end
-- Shifting by the largest is no part of the gradient, whatever that is.
list["log_softmax of large numbers"] = { function(x) return np.log_softmax(x * 100) end, M, loose = 1e3 }

local function dot(x, y) return np.dot(x, y) end
local function matmul(x, y) return np.matmul(x, y) end
list.dot = { dot, M, N }
list["dot of a matrix and a vector"] = { dot, M, { 4 } }
list["dot of a vector and a matrix"] = { dot, { 8 }, M }
list["dot of vectors"] = { dot, { 8 }, { 8 } }
list["dot of numbers"] = { dot, {}, M }
list["dot of many dimensions"] = { dot, { 2, 4 }, { 2, 4, 3 } }
list["dot with itself"] = { function(x) return np.dot(np.transpose(x), x) end, M }
list.matmul = { matmul, { 2, 4, 8 }, { 2, 8, 4 } }
list["matmul, batches broadcast"] = { matmul, { 2, 1, 4, 4 }, { 4, 4, 2 } }
list["matmul with a vector"] = { matmul, { 2, 4, 8 }, { 8 } }

list.transpose = { function(x) return np.transpose(x) * np.arange(8) end, M }
list["transpose of three"] = { function(x) return np.transpose(x, { 2, 0, -2 }) end, { 2, 4, 8 } }
list.reshape = { function(x) return np.reshape(x, { 4, 2, -1 }) end, M }
list.expand_dims = { function(x) return np.expand_dims(x, 1) * np.ones { 3, 1 } end, M }
list.squeeze = { function(x) return np.squeeze(x) end, { 8, 1, 4 } }
list.slice = { function(x) return np.slice(x, { { 1, 7, 2 }, { -1, 0, -1 } }) end, M }
list.split = { function(x)
  local parts = np.split(x, { 1, 5 })
  return np.dot(parts[3], np.transpose(parts[2] * parts[1])) -- {3, 4} with {4, 4}
end, M, from = 0.1 }
list.concatenate = { function(x, y) return np.concatenate({ x, y, x }, 0) end, M, { 4, 4 } }
list["concatenate along the last"] = { function(x, y) return np.concatenate({ x, y * y }, -1) end, M, { 8, 2 } }
list.stack = { function(x, y) return np.stack({ x, y, x }, 1) end, M, M }
list.take = { function(x) return np.take(x, ndarray.from_table({ 3, 0, -1, 3, 3, 7, 1, 0 }, "int32"), 0) end, M }
list["take along the last"] = { function(x)
  return np.take(x, ndarray.from_table({ { 3, 0 }, { -1, 3 } }, "int64"), 1)
end, M }

for _, name in ipairs { "relu", "gelu", "silu", "norm", "layer_norm" } do unary(name) end
list["tril and triu"] = { function(x) return np.tril(x * x, -1) + np.triu(x, 2) end, M }
local function indices(of) return ndarray.from_table(of, "int32") end
list.set_at = { function(x, y) return np.set_at(x * x, indices { 3, 0, -1, 3 }, y) end, M, { 4, 4 } }
list.add_at = { function(x, y) return np.add_at(np.add_at(x, indices { 3, 0, -1, 3 }, y), 2, 3) * x end, M,
  { 4, 4 } }
list.dynamic_slice = { function(x) return np.dynamic_slice(x * x, { 3, indices(1) }, { 4, 2 }) end, M }
list.dynamic_update_slice = { function(x, y)
  return np.dynamic_update_slice(x, y, { 2, 0 }) * np.dynamic_update_slice(x, y, { indices(9), 0 })
end, M, { 4, 4 } }
list.take_along_axis = { function(x)
  return np.take_along_axis(x * x, indices { { 0, 2, -1 } }, 1) * np.take_along_axis(x, indices { { -8, 5, 0 } }, 0)
end, { 8, 3 } }
list["sort, top_k and cumsum"] = { function(x) return np.sort(x, 0) * np.cumsum(x, 1) * (np.top_k(x, 4)) end, M }

list.einsum = { function(x, y) return np.einsum("ij,jk->k", x * x, y) * np.einsum("ii->i", np.dot(x, y)) end, N,
  { 8, 4 } }
list.attention = { function(x, y)
  local query, key = np.reshape(x, { 1, 4, 2, 4 }), np.reshape(y, { 1, 4, 2, 4 })
  return np.attention(query, key, key * key, { is_causal = true })
end, { 4, 8 }, { 4, 8 } }
list.conv = { function(x, y)
  return np.conv(np.reshape(x, { 1, 4, 4, 2 }), np.reshape(y, { 2, 2, 2, 2 }), { strides = { 1, 2 } })
end, M, { 4, 4 } }
list.max_pool = { function(x)
  return np.max_pool(np.reshape(x, { 2, 4, 4, 1 }), { 2, 2 }, { strides = 2, padding = "SAME" })
end, M }

list.tile = { function(x) return np.tile(x * x, { 2, 1, 3 }) end, M }
list.pad = { function(x) return np.pad(x * x, { { 1, 3 }, { 0, 4 } }) end, M }
list.softmax_cross_entropy_with_integer_labels = { function(x)
  return np.softmax_cross_entropy_with_integer_labels(x, ndarray.from_table({ 3, 0, -1, 3, 2, 1, 1, 0 }, "int32"))
end, M }

local line -- another mesh over the devices that the parameters are on
list["with_sharding_constraint"] = { function(x)
  return shardrt.with_sharding_constraint(x * x, shardrt.NamedSharding(line, P(nil, nil))) * x
end, M }
list["reshard and device_put"] = { function(x)
  local cut = shardrt.NamedSharding(line, P "line")
  return shardrt.reshard(shardrt.device_put(x * x, cut), cut) * shardrt.device_put({ x }, cut)[1]
end, M }
list["a device of its own"] = { function(x)
  return shardrt.device_put(x * x, shardrt.SingleDeviceSharding(0)) * 2
end, M }

-- ---- shardings ----

--- Every way to cut that many dimensions by axes of a mesh, whose parts divide the sizes.
function gradients.shardings(mesh, shape)
  local made = {}
  local axes = mesh.axis_names
  -- Each axis in its turn goes to a dimension, or none; of two axes in one dimension either may be first.
  local function go(entries, left)
    if #left == 0 then
      for d, size in ipairs(shape) do
        local parts = 1
        for _, axis in ipairs(entries[d] or {}) do parts = parts * mesh.shape[axis] end
        if size % parts ~= 0 then return end
      end
      local s = shardrt.NamedSharding(mesh, P(unpack(entries, 1, #shape)))
      made[tostring(s)] = s
      return
    end
    for i, axis in ipairs(left) do
      local rest = {}
      for j, other in ipairs(left) do
        if j ~= i then rest[#rest + 1] = other end
      end
      go(entries, rest)
      for d = 1, #shape do
        local with = {}
        for e = 1, #shape do with[e] = entries[e] end
        with[d] = { unpack(entries[d] or {}) }
        table.insert(with[d], axis)
        go(with, rest)
      end
    end
  end
  go({}, axes)
  local texts, all = {}, {}
  for text in pairs(made) do texts[#texts + 1] = text end
  table.sort(texts)
  for i, text in ipairs(texts) do all[i] = made[text] end
  return all
end

-- ---- gradients ----

--- The operands of a case, as host arrays.
function gradients.operands(case)
  local made = { host(case[2], case.from, case.by) }
  if case[3] then
    local second = case.second or { -1.07, 0.0893 }
    made[2] = host(case[3], second[1], second[2])
  end
  return made
end

--- The case as a function of a list of arrays that gives one number: every element of the result counts otherwise.
function gradients.loss(case)
  return function(params)
    local x, z = params[1], params[2]
    local y = case[1](ndarray.is(x) and np.array(x) or x, ndarray.is(z) and np.array(z) or z)
    return np.sum(y * host(y.shape, 0.3, 0.0719))
  end
end

-- How much each element of the gradient of operand i counts in what of_gradient makes.
local function weights(i, shape) return host(shape, 0.2 + i, -0.0531) end

--- A number that the gradient of such a function makes, for its own gradient.
function gradients.of_gradient(loss)
  return function(params)
    local sum
    for i, g in ipairs(shardrt.grad(loss)(params)) do
      local part = np.sum(g * weights(i, g.shape))
      sum = sum and sum + part or part
    end
    return sum
  end
end

--- By central finite differences, of host arrays: f(list of host arrays) is a number. The operands are put back.
function gradients.differences(f, operands, step)
  local made = {}
  for i, x in ipairs(operands) do
    made[i] = {}
    for k = 0, x.size - 1 do
      local was = x.data[k]
      x.data[k] = was + step
      local high = f(operands)
      x.data[k] = was - step
      local low = f(operands)
      x.data[k] = was
      made[i][k + 1] = (high - low) / (2 * step)
    end
  end
  return made
end

--- A number out of an array of one; every process must call it.
function gradients.number(x) return shardrt.process_allgather(x).data[0] end

--- The gradient of of_gradient(loss), by central finite differences of the gradient of `loss`: two gradients in all.
--- Second derivatives are the same in either order, so it is how the gradient changes along the weights.
function gradients.differences_of_gradient(loss, operands, step)
  local function at(by)
    local moved, made = {}, {}
    for i, x in ipairs(operands) do
      local w = weights(i, x.shape)
      moved[i] = ndarray.empty(x.shape, x.dtype)
      for k = 0, x.size - 1 do moved[i].data[k] = x.data[k] + by * w.data[k] end
    end
    for i, g in ipairs(shardrt.grad(loss)(moved)) do made[i] = shardrt.process_allgather(g) end
    return made
  end
  local high, low, made = at(step), at(-step), {}
  for i, x in ipairs(operands) do
    made[i] = {}
    for k = 0, x.size - 1 do made[i][k + 1] = (high[i].data[k] - low[i].data[k]) / (2 * step) end
  end
  return made
end

--- Whether each of this process's devices has its part of the gradient; nil, or what is wrong.
function gradients.complaint(g, right, tolerance)
  for _, shard in ipairs(g.addressable_shards) do
    local ndim, n = #shard.index, shard.data.size
    for k = 0, n - 1 do
      local rest, at, stride = k, 0, 1
      for d = ndim, 1, -1 do
        local range = shard.index[d]
        local size = range[2] - range[1]
        at, rest, stride = at + (range[1] + rest % size) * stride, math.floor(rest / size), stride * g.shape[d]
      end
      local got, wanted = shard.data.data[k], right[at + 1]
      if got ~= got or math.abs(got - wanted) > tolerance * math.max(1, math.abs(wanted)) then
        return ("element %d is %.12g, not %.12g"):format(at, got, wanted)
      end
    end
  end
end

--- All that is wrong with the gradients of a function of a list of arrays: without any sharding, then in every one
--- (of which `every` takes the 1st, the every + 1st, …) of each operand in its turn, the others lying otherwise.
--- `right` is the gradient where it is known, or a function(operands, step) that makes it of host arrays.
---@return string[]
---@return integer # how many gradients were compared
---@return number[][] # the gradient by finite differences
function gradients.check(case, loss, mesh, tolerance, every, right)
  local operands, wrong, looked = gradients.operands(case), {}, 0
  line = shardrt.Mesh({ mesh.size }, { "line" }, mesh.devices)
  if not right then
    right = gradients.differences(function(o) return gradients.number(loss(o)) end, operands, 1e-5)
  elseif type(right) == "function" then
    right = right(operands, 1e-5)
  end
  local shardings = {}
  for i, x in ipairs(operands) do shardings[i] = gradients.shardings(mesh, x.shape) end
  tolerance = tolerance * (case.loose or 1)
  local function compare(placed)
    local found, texts = shardrt.grad(loss)(placed), {}
    for i, x in ipairs(placed) do texts[i] = ndarray.is(x) and "not placed" or tostring(x.sharding.spec) end
    for i, g in ipairs(found) do
      local message = gradients.complaint(g, right[i], tolerance)
      if not ndarray.is(placed[i]) and g.sharding ~= placed[i].sharding then
        message = "it lies as " .. tostring(g.sharding)
      end
      if message then
        wrong[#wrong + 1] = ("of operand %d, with %s: %s"):format(i, table.concat(texts, " and "), message)
      end
      looked = looked + 1
    end
  end
  compare(operands)
  for i in ipairs(operands) do
    for k = 1, #shardings[i], every or 1 do
      local placed = {}
      for j, x in ipairs(operands) do
        local all = shardings[j]
        placed[j] = shardrt.device_put(x, j == i and all[k] or all[k * 7 % #all + 1])
      end
      compare(placed)
    end
  end
  return wrong, looked, right
end

return gradients

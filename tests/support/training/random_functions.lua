-- Random functions of arrays, which differ in little, and random arrays for them: for what is recorded of functions and
-- run again.

local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local ndarray, tree = shardrt.ndarray, shardrt.tree

local random_functions = {}

local N = 8
random_functions.N = N

--- Random numbers that add and multiply without rounding for a while; math.random decides.
---@param layout shardrt.Sharding? # nil: nobody places them
---@param sizes integer[]? # {N, N}
---@param name string? # the dtype; float32
---@return shardrt.Array
function random_functions.array(layout, sizes, name)
  local host = ndarray.zeros(sizes or { N, N }, "float32")
  for i = 0, host.size - 1 do host.data[i] = math.random(-64, 64) / 32 end
  local x = layout and shardrt.device_put(host, layout) or np.asarray(host)
  return name and np.astype(x, name) or x
end

--- All numbers of a tree of arrays, with their places, in words that are equal for equal bits.
---@param t any
---@return string
function random_functions.text_of(t)
  local words = {}
  for _, x in ipairs(tree.leaves(t)) do
    local host = shardrt.process_allgather(np.astype(x, "float64"))
    words[#words + 1] = ("%s %s %s"):format(tostring(x.sharding), x.dtype, tostring(x.committed))
    for i = 0, host.size - 1 do words[#words + 1] = ("%a"):format(host.data[i]) end
  end
  return table.concat(words, " ")
end

-- Words from {N, N} to {N, N}; each is given an array, another one and a small whole number. The gradients of some are
-- functions made for each step, which no program is recorded of.
local WORDS = {
  function(x, y) return x + y end,
  function(x, y) return x - y end,
  function(x, y) return x * y end,
  function(x, _, n) return x * n + n end,
  function(x, y) return np.maximum(x, y) end,
  function(x, y) return np.where(np.less(x, y), x, y) end,
  function(x) return np.sin(x) end,
  function(x) return np.tanh(x) end,
  function(x, _, n) return x ^ (n % 3 + 1) end,
  function(x, y) return np.dot(x, y) end,
  function(x, _, n) return x - np.mean(x, n % 2, true) end,
  function(x, y, n) return y + np.sum(x, n % 2) end,
  function(x) return np.reshape(np.reshape(x, { N * N }), { N, N }) end,
  function(x) return shardrt.stop_gradient(x) * x end,
  function(x, y) return np.matmul(x, np.transpose(y)) end,
  function(x, y, n) return np.max(x, n % 2, true) + y end,
  function(x) return np.softmax(x, -1) end,
  function(x) return np.log_softmax(x, 0) end,
  function(x, _, n) return np.clip(x, -n / 4, 1) end,
  function(x, y) return np.layer_norm(x) * np.gelu(y) end,
  function(x) return np.relu(np.silu(x)) end,
  function(x, y) return np.astype(np.astype(x, "bfloat16") * y, "float32") end,
}
local OTHERS = {
  function(x, _, n) return np.cumsum(x, n % 2) end,
  function(x, y, n) return np.concatenate({ np.slice(x, { { 0, n % N } }), np.slice(y, { { n % N, N } }) }, 0) end,
  function(x, _, n) return np.take(x, np.array({ n % N, 0, 1, 1, 2, 3, n % N, 7 }, "int32"), n % 2) end,
}

--- A function of {w =, layers = {…}} and an array beside them, all {N, N}, that gives one number; and its steps, which
--- may be changed: {word, the value that it is of, another one, a small number}. math.random decides.
---@param steps integer
---@return fun(params: any, beside: shardrt.Array): shardrt.Array
---@return any[]
function random_functions.new(steps)
  local chosen = {}
  for k = 1, steps do
    local words = math.random(12) == 1 and OTHERS or WORDS
    chosen[k] = { words[math.random(#words)], math.random(k + 2), math.random(k + 2), math.random(0, 6) }
  end
  local function f(params, beside)
    local values = { params.w, params.layers[1], beside }
    for k, step in ipairs(chosen) do values[k + 3] = step[1](values[step[2]], values[step[3]], step[4]) end
    return np.mean(values[#values] * values[#values - 1])
  end
  return f, chosen
end

return random_functions

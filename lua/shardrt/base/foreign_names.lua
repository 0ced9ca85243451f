-- What other libraries' names are called here, for messages.

local fail = require "shardrt.base.error"
fail.own()

local foreign_names = {}

---@class shardrt.foreign_names.numpy
---@field takes_array fun(name: string): boolean # whether it is a word that takes an array first, as np.sum(x) does

--- What is known of shardrt.numpy, which stands below this file: numpy.lua puts it here when it is loaded.
---@type shardrt.foreign_names.numpy
foreign_names.numpy = {}

local TREES = "shardrt.tree.map(f, t, …), shardrt.tree.leaves(t) and shardrt.tree.reduce(f, t, init) go through trees, "
  .. "which are nested tables"

-- Of words that JAX has, by the table in which they are looked for here.
local WORDS = {
  shardrt = {
    tree_map = TREES, tree_util = TREES,
    PartitionSpec = "shardrt.P makes one",
    tree_leaves = TREES, tree_reduce = TREES, jax = "its words are shardrt's: shardrt.device_put, shardrt.grad, …",
    jnp = 'np = require "shardrt.numpy" has its words',
    optax = "shardrt.optimizer and shardrt.schedule have its words",
    lax = "shardrt.numpy has words for computation, shardrt.with_sharding_constraint demands a layout",
    nn = "shardrt.numpy has words for computation: np.softmax(x), np.relu(x)",
    pmap = "each operation runs where its operands lie: shardrt.device_put(x, sharding) cuts them over devices",
    vmap = "words take arrays with any number of dimensions in front; np.matmul is batched",
    PRNGKey = "shardrt.random.key(seed) makes a key",
    clip_by_global_norm = "shardrt.optimizer.clip_by_global_norm(gradients, max) is it",
  },
  ["shardrt.numpy"] = {
    random = "shardrt.random makes random numbers, of keys",
    linalg = "np.norm(x) is there of it, and np.dot, np.matmul and np.einsum",
    nn = "its words stand in np: np.softmax(x), np.relu(x)",
    jit = "shardrt.jit(f) makes a program of f",
    empty = "np.zeros(shape) makes one",
    flip = "np.slice(x, {{n - 1, -n - 1, -1}}) is the first dimension of n the other way round",
    roll = "np.concatenate{np.slice(x, {{k, n}}), np.slice(x, {{0, k}})} has row k first",
    ravel = "np.reshape(x, {-1}) is it", flatten = "np.reshape(x, {-1}) is it",
    swapaxes = "np.transpose(x, {1, 0, 2}) puts axes in any order",
    moveaxis = "np.transpose(x, {1, 2, 0}) puts axes in any order",
    isinf = "np.equal(np.abs(x), math.huge) is it",
    isclose = "np.allclose(x, y) is it for all of x at once",
    logsumexp = "np.log(np.sum(np.exp(x - m), axis, true)) + m is it, where m = np.max(x, axis, true)",
    outer = 'np.einsum("i,j->ij", x, y) is it', inner = "np.dot(x, np.transpose(y)) is it",
    vdot = "np.sum(x * y) is it",
    diag = "np.eye(n) * x is a matrix with x in its diagonal",
    median = "np.sort(x, axis) stands in order; np.take picks of it",
    average = "np.mean(x) is it",
    bitwise_and = "of bool np.logical_and(x, y) is it", bitwise_or = "of bool np.logical_or(x, y) is it",
    invert = "of bool np.logical_not(x) is it",
    nonzero = "np.where(condition, x, y) takes from x or y; places by themselves are of a size that data decides",
    tensordot = 'np.einsum("ijk,jkl->il", x, y) does it by name',
    dot_product_attention = "np.attention(query, key, value, {is_causal = true}) is it",
    array_equal = "np.all(np.equal(x, y)):item() is it, for arrays of one shape",
    vstack = "np.concatenate({x, y}, 0) joins along the first dimension",
    hstack = "np.concatenate({x, y}, 1) joins along the second dimension",
    newaxis = "np.expand_dims(x, axis) adds a dimension",
    absolute = "np.abs(x) is it", mod = "np.remainder(x, y) is it", pow = "np.power(x, y) is it",
    amax = "np.max(x) is it", amin = "np.min(x) is it", true_divide = "np.divide(x, y) is it",
    atan2 = "np.arctan2(x, y) is it", rint = "np.round(x) is it", concat = "np.concatenate{x, y} is it",
    permute_dims = "np.transpose(x, {1, 0}) is it",
    shape = "x.shape is it", ndim = "x.ndim is it", size = "x.size is it",
    inf = "math.huge is it", pi = "math.pi is it", nan = "0 / 0 is it",
  },
  ["shardrt.optimizer"] = {
    apply_updates = "params, state = optimizer:update(params, gradients, state) gives the new parameters",
    chain = "shardrt.optimizer.clip_by_global_norm(gradients, max) gives what optimizer:update takes as gradients",
  },
  ["shardrt.schedule"] = {
    constant_schedule = "shardrt.schedule.constant(value) is it",
    linear_schedule = "shardrt.schedule.linear{init_value =, end_value =, transition_steps =} is it",
    cosine_decay_schedule = "shardrt.schedule.cosine{init_value =, decay_steps =} is it",
    warmup_cosine_decay_schedule = "shardrt.schedule.warmup_cosine{init_value =, peak_value =, warmup_steps =, "
      .. "decay_steps =} is it",
    join_schedules = "shardrt.schedule.join{schedules =, boundaries =} is it",
  },
  ["shardrt.tree"] = { flatten = TREES, unflatten = TREES, structure = TREES },
  ["shardrt.random"] = { PRNGKey = "shardrt.random.key(seed) makes a key" },
}

-- Of arrays' fields and methods, "%s" being the array.
local OF_ARRAYS = {
  T = "%s.T is np.transpose(%s)", tolist = "%s:tolist() is %s:to_table()", numpy = "%s:numpy() is %s:to_table()",
  detach = "%s:detach() is shardrt.stop_gradient(%s)",
}

--- What to use in place of a word that is not there; nil: nothing is known of it.
---@param words string # the name of the table of words
---@param name any
---@return string?
function foreign_names.of_words(words, name)
  local known = WORDS[words] and WORDS[words][name]
  return known or nil
end

--- How a name that other libraries' arrays have is written here; nil: nothing is known of it.
---@param example string # what stands for the array
---@param name any
---@return string?
function foreign_names.of_arrays(example, name)
  local text = OF_ARRAYS[name]
  if not text then
    if type(name) ~= "string" or not foreign_names.numpy.takes_array(name) then return nil end
    text = ("%%s:%s(…) is np.%s(%%s, …)"):format(name, name)
  end
  local told = text:gsub("%%s", example)
  return told .. (told:find(" np.", 1, true) and ', where np = require "shardrt.numpy"' or "")
end

return foreign_names

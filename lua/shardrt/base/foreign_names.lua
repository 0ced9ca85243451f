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
    lax = "shardrt.numpy has words for computation, shardrt.with_sharding_constraint demands a layout",
    nn = "shardrt.numpy has words for computation: np.softmax(x), np.relu(x)",
    pmap = "each operation runs where its operands lie: shardrt.device_put(x, sharding) cuts them over devices",
    jit = "nothing is compiled before: each operation is computed as it is called, where its operands lie",
    vmap = "words take arrays with any number of dimensions in front; np.matmul is batched",
    PRNGKey = "shardrt.random.key(seed) makes a key",
    clip_by_global_norm = "shardrt.optimizer.clip_by_global_norm(gradients, max) is it",
  },
  ["shardrt.numpy"] = {
    tensordot = 'np.einsum("ijk,jkl->il", x, y) does it by name',
    dot_product_attention = "np.attention(query, key, value, {is_causal = true}) is it",
    absolute = "np.abs(x) is it",
    array_equal = "np.all(np.equal(x, y)):item() is it, for arrays of one shape",
    vstack = "np.concatenate({x, y}, 0) joins along the first dimension",
    hstack = "np.concatenate({x, y}, 1) joins along the second dimension",
    newaxis = "np.expand_dims(x, axis) adds a dimension",
    inf = "math.huge is it", pi = "math.pi is it", nan = "0 / 0 is it",
  },
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

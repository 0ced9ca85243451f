-- What other libraries' names are called here, for messages.

local fail = require "shardrt.base.error"
fail.own()

local foreign_names = {}

---@class shardrt.foreign_names.numpy
---@field takes_array fun(name: string): boolean # whether it is a word that takes an array first, as np.sum(x) does
---@field hint fun(name: string): string? # what to say of a name that is no word and in no list here

--- What is known of shardrt.numpy, which stands below this file: numpy.lua puts it here when it is loaded.
---@type shardrt.foreign_names.numpy
foreign_names.numpy = {}

local TREES = "nested tables of arrays are trees, which device_put, device_get, grad, optimisers, save and checkpoints "
  .. "take as they are; `for name, x in pairs(tree) do` goes through one"

-- Of words that JAX has, by the table in which they are looked for here.
local WORDS = {
  shardrt = {
    tree = TREES, tree_map = TREES, tree_util = TREES,
    PartitionSpec = "shardrt.P makes one",
    lax = "shardrt.numpy has words for computation, shardrt.with_sharding_constraint demands a layout",
    nn = "shardrt.numpy has words for computation: np.softmax(x), np.maximum(x, 0) for relu",
    block_until_ready = "it is a method: x:block_until_ready()",
    pmap = "each operation runs where its operands lie: shardrt.device_put(x, sharding) cuts them over devices",
    jit = "nothing is compiled before: each operation is computed as it is called, where its operands lie",
    vmap = "words take arrays with any number of dimensions in front; np.matmul is batched",
    PRNGKey = "shardrt.random.key(seed) makes a key",
  },
  ["shardrt.numpy"] = {
    einsum = "np.matmul (batched), np.transpose and np.sum do it in steps",
    tensordot = "np.reshape and np.matmul do it in steps",
    relu = "np.maximum(x, 0) is it",
    gelu = "x * 0.5 * (1 + np.erf(x / math.sqrt(2))) is it",
    silu = "x * np.sigmoid(x) is it",
    asarray = "np.array(value) makes an array of numbers, lists of them and host arrays",
    absolute = "np.abs(x) is it",
    array_equal = "np.all(np.equal(x, y)):item() is it, for arrays of one shape",
    allclose = "np.all(np.less_equal(np.abs(x - y), 1e-8 + np.abs(y) * 1e-5)):item() is it",
    eye = "np.one_hot(np.arange(n), n) is it",
    linspace = "np.arange(n) * ((stop - start) / (n - 1)) + start is it",
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
  return known or words == "shardrt.numpy" and foreign_names.numpy.hint(name) or nil
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

-- What other libraries' names are called here, for messages.

local fail = require "shardrt.fail"
fail.own()

local elsewhere = {}

-- Of words that JAX has, by the table in which they are looked for here.
local WORDS = {
  shardrt = {
    jit = "nothing is compiled before: each operation is computed as it is called, where its operands lie",
    vmap = "words take arrays with any number of dimensions in front; np.matmul is batched",
    PRNGKey = "shardrt.random.key(seed) makes a key",
  },
  ["shardrt.numpy"] = {
    einsum = "np.matmul (batched), np.transpose and np.sum do it in steps",
    tensordot = "np.reshape and np.matmul do it in steps",
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
function elsewhere.of_words(words, name) return WORDS[words] and WORDS[words][name] end

--- How a name that other libraries' arrays have is written here; nil: nothing is known of it.
---@param example string # what stands for the array
---@param name any
---@return string?
function elsewhere.of_arrays(example, name)
  local text = OF_ARRAYS[name]
  if not text then
    if type(name) ~= "string" or require("shardrt.create").words[name] then return nil end
    if not rawget(require "shardrt.numpy", name) then return nil end
    text = ("%%s:%s(…) is np.%s(%%s, …)"):format(name, name)
  end
  local told = text:gsub("%%s", example)
  return told .. (told:find(" np.", 1, true) and ', where np = require "shardrt.numpy"' or "")
end

return elsewhere

-- shardrt: the words of a recipe, gathered from one file for each room.

local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local foreign_names = require "shardrt.base.foreign_names"
local lazy = require "shardrt.base.lazy"
local ndarray = require "shardrt.array.ndarray"
fail.own()

-- For editors: each word is declared where it is written. What follows says whose words these are.
---@class shardrt.words.layout: shardrt.device.words, shardrt.spec.words, shardrt.mesh.words, shardrt.sharding.words
---@class shardrt.words.placed: shardrt.device_put.words, shardrt.make_array.words, shardrt.reshard.words
---@class shardrt.words.arrays: shardrt.words.placed, shardrt.block_until_ready.words
---@class shardrt.words.files: shardrt.npy.words, shardrt.safetensors.words, shardrt.checkpoint.words
---@class shardrt.words.data: shardrt.mix.words, shardrt.loader.words
---@class shardrt.words.functions: shardrt.grad.words, shardrt.jit.words
---@class shardrt.words.computation: shardrt.constraint.words, shardrt.precision.words, shardrt.words.functions
---@class shardrt.words.shown: shardrt.explain.words, shardrt.visualize.words
---@class shardrt.words.job: shardrt.job.words, shardrt.temporary_folder.words, shardrt.words.shown
---@class shardrt.words.first: shardrt.words.layout, shardrt.words.arrays, shardrt.words.files, shardrt.words.data
---@class shardrt: shardrt.words.first, shardrt.words.computation, shardrt.words.job
---@field ndarray shardrt.ndarray.words
---@field source shardrt.source.words
---@field transform shardrt.transform.words
---@field random shardrt.random
---@field numpy shardrt.numpy
---@field optimizer shardrt.optimizer.words
---@field schedule shardrt.schedule.words
---@field tree shardrt.tree.words
local shardrt = {
  ndarray = class.words("shardrt.ndarray", ndarray.words),
  source = class.words("shardrt.source", require "shardrt.data.source"),
  transform = class.words("shardrt.transform", require("shardrt.data.transform").words),
}

--- Seconds on the machine's monotonic clock: for taking times.
---@return number
function shardrt.clock() return C.shardrt_clock() end

-- A room's module is the table of its public words, or has them in `words` where it has more than these.
for _, room in ipairs {
  "program.job", "layout.device", "layout.spec", "layout.mesh", "layout.sharding", "array.reshard", "array.device_put",
  "data.mix", "loader.loader",
} do
  local module = require("shardrt." .. room)
  for name, word in pairs(module.words or module) do shardrt[name] = word end
end

-- A word whose module is loaded when it is first called (base/lazy.lua says why).
local function when_called(room, word)
  return function(...)
    local module = require("shardrt." .. room)
    return (module.words or module)[word](...)
  end
end

local random = {}
for _, name in ipairs {
  "key", "key_data", "split", "fold_in", "bits", "uniform", "normal", "bernoulli", "randint", "permutation",
  "choice", "categorical",
} do
  random[name] = when_called("random", name)
end
shardrt.numpy = lazy.module "shardrt.numpy"
shardrt.random = class.words("shardrt.random", random)
local tree = {}
for _, name in ipairs { "map", "leaves", "reduce" } do tree[name] = when_called("array.tree_words", name) end
shardrt.tree = class.words("shardrt.tree", tree)
local optimizer = {}
for _, name in ipairs { "sgd", "momentum", "adam", "adamw", "clip_by_global_norm" } do
  optimizer[name] = when_called("autodiff.optimizer", name)
end
local schedule = {}
for _, name in ipairs { "constant", "linear", "cosine", "warmup_cosine", "join" } do
  schedule[name] = when_called("autodiff.schedule", name)
end
shardrt.schedule = class.words("shardrt.schedule", schedule)
shardrt.optimizer = class.words("shardrt.optimizer", optimizer)

for room, words in pairs {
  ["array.make_array"] = {
    "make_array_from_process_local_data", "make_array_from_callback", "make_array_from_single_device_arrays",
  },
  ["array.block_until_ready"] = { "block_until_ready" },
  ["array.npy"] = { "load_npy" }, ["array.safetensors"] = { "save", "load" },
  ["checkpoint.checkpoint"] = { "checkpoint" },
  ["layout.visualize"] = { "visualize_sharding", "visualize_array_sharding" },
  ["ops.constraint"] = { "with_sharding_constraint" }, ["ops.precision"] = { "default_matmul_precision" },
  ["autodiff.grad"] = { "grad", "value_and_grad", "stop_gradient" }, ["autodiff.jit"] = { "jit" },
  ["program.explain"] = { "explain" },
  ["program.temporary_folder"] = { "temporary_folder" },
} do
  for _, name in ipairs(words) do
    shardrt[name] = when_called(room, name)
  end
end

-- What arrays are computed with, and what is known of words.
lazy.entries(array.ops, {
  operators = "shardrt.ops.elementwise", constrain = "shardrt.ops.constraint", placed = "shardrt.ops.constraint",
})
lazy.entries(ndarray.ops, { operators = "shardrt.ops.host_operators" })
lazy.entries(foreign_names.numpy, { takes_array = "shardrt.numpy" })

require("shardrt.base.collective").pass_on() -- what the start has found

return class.words("shardrt", shardrt)

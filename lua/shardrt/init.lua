-- shardrt: the words of a recipe, gathered from one file for each room.

local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local foreign_names = require "shardrt.base.foreign_names"
local lazy = require "shardrt.base.lazy"
local ndarray = require "shardrt.array.ndarray"
fail.own()

---@alias shardrt.Callback fun(index: shardrt.Index): shardrt.Value
---@alias shardrt.PlanOf fun(of: integer[], as: string, a: shardrt.Sharding, b: shardrt.Sharding): shardrt.ReshardPlan
---@alias shardrt.FromLocalData fun(s: shardrt.Sharding, value: shardrt.Value, shape: integer[]?): shardrt.Array
---@alias shardrt.FromCallback fun(to: integer[], s: shardrt.Sharding, f: shardrt.Callback, as: string?): shardrt.Array
---@alias shardrt.GradOf fun(f: fun(params: any, ...: any): shardrt.Array, any): fun(params: any, ...: any): any
---@alias shardrt.Differentiated fun(params: any, ...: any): shardrt.Array, any, any # value, gradients, the rest
---@alias shardrt.ValueAndGradOf fun(f: fun(params: any, ...: any): shardrt.Array, any): shardrt.Differentiated
---@alias shardrt.Saved table<string|integer, shardrt.Array|shardrt.ndarray|table>
---@alias shardrt.Loaded table<string, shardrt.Array|shardrt.ndarray>
---@alias shardrt.LoadAs table<string, shardrt.Sharding|false>|shardrt.Sharding
---@alias shardrt.FromArrays fun(to: integer[], s: shardrt.Sharding, x: shardrt.Array[], as: string?): shardrt.Array

-- Every word stands here for editors, which do not see what the loop below gathers.
---@class shardrt
---@field ndarray shardrt.ndarray.words
---@field source shardrt.source.words
---@field transform shardrt.transform.words
---@field random shardrt.random
---@field numpy shardrt.numpy
---@field clock fun(): number
---@field is_planning fun(): boolean
---@field say fun(format: any, ...: any)
---@field sync_global_devices fun(name: string)
---@field process_index fun(): integer
---@field process_count fun(): integer
---@field device_count fun(): integer
---@field local_device_count fun(): integer
---@field devices fun(): shardrt.Device[]
---@field local_devices fun(process_index: integer?): shardrt.Device[]
---@field P fun(...: nil|string|string[]): shardrt.Spec
---@field make_mesh fun(shape: integer[], axis_names: string[]): shardrt.Mesh
---@field Mesh fun(shape: integer[], axis_names: string[], devices: (shardrt.Device|integer)[]): shardrt.Mesh
---@field NamedSharding fun(mesh: shardrt.Mesh, spec: shardrt.Spec): shardrt.Sharding
---@field SingleDeviceSharding fun(device: shardrt.Device|integer): shardrt.Sharding
---@field device_put fun(value: shardrt.Value, to: shardrt.Sharding|shardrt.Device|integer|table): shardrt.Array|table
---@field device_get fun(x: shardrt.Value): shardrt.ndarray|table
---@field process_allgather fun(x: shardrt.Value): shardrt.ndarray|table
---@field make_array_from_process_local_data shardrt.FromLocalData
---@field make_array_from_callback shardrt.FromCallback
---@field make_array_from_single_device_arrays shardrt.FromArrays
---@field load_npy fun(path: string, s: shardrt.Sharding): shardrt.Array, integer # and bytes that this process read
---@field reshard fun(x: shardrt.Array, to: shardrt.Sharding|shardrt.Device, o: shardrt.ReshardOptions?): shardrt.Array
---@field reshard_plan shardrt.PlanOf
---@field with_sharding_constraint fun(x: shardrt.Array|shardrt.ndarray, s: shardrt.Sharding): shardrt.Array
---@field grad shardrt.GradOf
---@field value_and_grad shardrt.ValueAndGradOf
---@field stop_gradient fun(x: shardrt.Operand): shardrt.Array
---@field default_matmul_precision fun(precision: shardrt.precision)
---@field explain fun(f: function, ...: any): any, any # all that f returns
---@field optimizer shardrt.optimizer.words
---@field save fun(path: string, values: shardrt.Saved): integer # bytes that this process wrote
---@field load fun(path: string, shardings: shardrt.LoadAs?): shardrt.Loaded, integer # and bytes that this process read
---@field concat fun(o: {[integer]: shardrt.source, part: string?}): shardrt.source
---@field mix fun(o: {[integer]: {[1]: shardrt.source, [2]: number}, samples: integer?, part: string?}): shardrt.source
---@field loader fun(options: shardrt.LoaderOptions): shardrt.Loader
---@field checkpoint fun(options: shardrt.CheckpointOptions): shardrt.Checkpoint
---@field visualize_sharding fun(shape: integer[], s: shardrt.Sharding, svg_file: string?)
---@field visualize_array_sharding fun(x: shardrt.Array, svg_file: string?)
local shardrt = {
  ndarray = class.words("shardrt.ndarray", {
    empty = ndarray.empty, zeros = ndarray.zeros, full = ndarray.full, arange = ndarray.arange,
    from_table = ndarray.from_table, load = ndarray.load, is = ndarray.is,
  }),
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
} do
  random[name] = when_called("random", name)
end
shardrt.numpy = lazy.module "shardrt.numpy"
shardrt.random = class.words("shardrt.random", random)
local optimizer = {}
for _, name in ipairs { "sgd", "momentum", "adam" } do optimizer[name] = when_called("autodiff.optimizer", name) end
shardrt.optimizer = class.words("shardrt.optimizer", optimizer)

for room, words in pairs {
  ["array.assemble"] = {
    "make_array_from_process_local_data", "make_array_from_callback", "make_array_from_single_device_arrays",
  },
  ["array.npy"] = { "load_npy" }, ["array.safetensors"] = { "save", "load" },
  ["checkpoint.checkpoint"] = { "checkpoint" },
  ["layout.visualize"] = { "visualize_sharding", "visualize_array_sharding" },
  ["ops.constraint"] = { "with_sharding_constraint" }, ["ops.precision"] = { "default_matmul_precision" },
  ["autodiff.grad"] = { "grad", "value_and_grad", "stop_gradient" }, ["program.explain"] = { "explain" },
} do
  for _, name in ipairs(words) do
    shardrt[name] = when_called(room, name)
  end
end

-- What arrays are computed with, and what is known of words.
lazy.entries(array.ops, {
  operators = "shardrt.ops.elementwise", constrain = "shardrt.ops.constraint", placed = "shardrt.ops.constraint",
})
lazy.entries(foreign_names.numpy, { takes_array = "shardrt.numpy", hint = "shardrt.numpy" })

require("shardrt.base.collective").pass_on() -- what the start has found

return class.words("shardrt", shardrt)

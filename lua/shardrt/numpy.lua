-- shardrt.numpy: computation on arrays, with JAX's numpy names and meanings. Every word takes arrays, host arrays and
-- numbers; where operands lie decides where the result lies, and what must move moves.

local class = require "shardrt.base.class"
local creation = require "shardrt.ops.creation"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local foreign_names = require "shardrt.base.foreign_names"
fail.own()

---@class shardrt.numpy.products: shardrt.matmul.words, shardrt.einsum.words
---@class shardrt.numpy.computed: shardrt.elementwise.words, shardrt.reduce.words, shardrt.numpy.products
---@class shardrt.numpy.parts: shardrt.slice.words, shardrt.take.words, shardrt.along_axis.words, shardrt.update.words
---@class shardrt.numpy.moved: shardrt.reshape.words, shardrt.concatenate.words, shardrt.numpy.parts
---@class shardrt.numpy.made: shardrt.creation.words, shardrt.triangle.words, shardrt.tile.words, shardrt.measure.words
---@class shardrt.numpy.networks: shardrt.activation.words, shardrt.layer_norm.words, shardrt.numpy.large
---@class shardrt.numpy.large: shardrt.attention.words, shardrt.convolution.words, shardrt.loss.words
---@class shardrt.numpy: shardrt.numpy.computed, shardrt.numpy.moved, shardrt.numpy.made, shardrt.numpy.networks
---@field bool "bool" # dtypes are texts: np.float32 is "float32"
---@field bool_ "bool"
---@field int8 "int8"
---@field int16 "int16"
---@field int32 "int32"
---@field int64 "int64"
---@field uint8 "uint8"
---@field uint16 "uint16"
---@field uint32 "uint32"
---@field uint64 "uint64"
---@field float16 "float16"
---@field bfloat16 "bfloat16"
---@field float32 "float32"
---@field float64 "float64"
local words = {}

-- The files that hold words.
local ROOMS = {
  "ops.elementwise", "ops.reduce", "ops.matmul", "ops.reshape", "ops.slice", "ops.concatenate", "ops.take",
  "ops.creation", "ops.triangle", "ops.tile", "ops.measure", "ops.along_axis", "ops.update", "ops.einsum",
  "nn.activation", "nn.attention", "nn.convolution", "nn.layer_norm", "nn.loss",
}

-- A word that refuses arguments which it would not look at.
local function bounded(name, word)
  local info = debug.getinfo(word, "u")
  if info.isvararg then return word end
  return function(...)
    if select("#", ...) > info.nparams then
      local _, second, third = ...
      local apart = type(second) == "number" and type(third) == "number" -- np.reshape(x, 4, 8)
      fail("np.%s: it takes %d argument%s, and got %d%s", name, info.nparams, info.nparams == 1 and "" or "s",
        select("#", ...), apart and "; numbers that go together are a list: {4, 8}" or "")
    end
    return word(...)
  end
end

for _, room in ipairs(ROOMS) do
  for name, word in pairs(require("shardrt." .. room).words) do words[name] = bounded(name, word) end
end

for _, name in ipairs(dtype.names()) do words[name] = name end
words.bool_ = "bool"

function foreign_names.numpy.takes_array(name)
  return type(words[name]) == "function" and creation.words[name] == nil
end

---@type shardrt.numpy
local numpy = class.words("shardrt.numpy", words)
return numpy

-- shardrt.numpy: computation on arrays, with JAX's numpy names and meanings. Every word takes arrays, host arrays and
-- numbers; where operands lie decides where the result lies, and what must move moves.

local class = require "shardrt.base.class"
local creation = require "shardrt.ops.creation"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local foreign_names = require "shardrt.base.foreign_names"
fail.own()

---@class shardrt.numpy.computed: shardrt.elementwise.words, shardrt.reduce.words, shardrt.matmul.words
---@class shardrt.numpy.moved: shardrt.reshape.words, shardrt.slice.words, shardrt.concatenate.words, shardrt.take.words
---@class shardrt.numpy: shardrt.numpy.computed, shardrt.numpy.moved, shardrt.creation.words
local words = {}

-- The files of ops/ that hold words.
local ROOMS = { "elementwise", "reduce", "matmul", "reshape", "slice", "concatenate", "take", "creation" }

-- A word that refuses arguments which it would not look at.
local function bounded(name, word)
  local info = debug.getinfo(word, "u")
  if info.isvararg then return word end
  return function(...)
    if select("#", ...) > info.nparams then
      fail("np.%s: it takes %d argument%s, and got %d", name, info.nparams, info.nparams == 1 and "" or "s",
        select("#", ...))
    end
    return word(...)
  end
end

for _, room in ipairs(ROOMS) do
  for name, word in pairs(require("shardrt.ops." .. room).words) do words[name] = bounded(name, word) end
end

function foreign_names.numpy.takes_array(name) return words[name] ~= nil and creation.words[name] == nil end

function foreign_names.numpy.hint(name)
  local kind = name:gsub("_$", "")
  return dtype.exists(kind) and ('a dtype is a text: "%s"'):format(kind) or nil
end

---@type shardrt.numpy
local numpy = class.words("shardrt.numpy", words)
return numpy

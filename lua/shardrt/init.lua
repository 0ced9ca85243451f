-- shardrt: the words of a recipe, gathered from one file for each room.

local C = require "shardrt.C"
local fail = require "shardrt.fail"
fail.own()

---@class shardrt
local shardrt = {
  ndarray = require "shardrt.ndarray",
  source = require "shardrt.source",
}

--- Seconds on the machine's monotonic clock: for taking times.
---@return number
function shardrt.clock() return C.shardrt_clock() end

-- A room's module is the table of its public words, or has them in `words` where it has more than these.
for _, room in ipairs {
  "job", "device", "spec", "mesh", "sharding", "reshard", "put", "make", "npy", "safetensors", "loader", "visualize",
} do
  local module = require("shardrt." .. room)
  for name, word in pairs(module.words or module) do shardrt[name] = word end
end

return shardrt

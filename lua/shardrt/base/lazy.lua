-- Modules that most recipes never come to are loaded when something in them is first asked for: what Lua holds, its
-- collector goes through again and again, in step with the batches that a loader hands out.

local fail = require "shardrt.base.error"
fail.own()

--- What stands for a module that is not loaded yet.
---@param name string # "shardrt.layout.plan"
---@return table
local function lazy(name)
  return setmetatable({}, { __index = function(_, key) return require(name)[key] end })
end

return lazy

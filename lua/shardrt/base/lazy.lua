-- Modules that most recipes never come to are loaded when something in them is first asked for: what Lua holds, its
-- collector goes through again and again, in step with the batches that a loader hands out.

local fail = require "shardrt.base.error"
fail.own()

local lazy = {}

--- What stands for a module that is not loaded yet.
---@param name string # "shardrt.loader.auto"
---@return table
function lazy.module(name)
  return setmetatable({}, { __index = function(_, key) return require(name)[key] end })
end

--- Has entries of a table filled in when they are first asked for, by modules that put them there as they are loaded.
---@param t table
---@param modules table<string, string> # which module fills an entry in
function lazy.entries(t, modules)
  setmetatable(t, {
    __index = function(_, key)
      if not modules[key] then return nil end
      require(modules[key])
      return rawget(t, key)
    end,
  })
end

return lazy

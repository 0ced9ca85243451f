-- Functions for C, which no error may leave: they return a code, below 0 with a message, and a result.

local fail = require "shardrt.base.error"
fail.own()

--- The functions of a table, as C calls them.
---@param calls table<string, function>
---@param counts string? # the name of the one that returns 1 where it has a result
---@return table<string, function>
return function(calls, counts)
  local guarded = {}
  for name, call in pairs(calls) do
    local code = name == counts and 1 or 0
    local function answer(ok, result)
      if not ok then return fail.code_of(result), tostring(result) end
      return result ~= nil and code or 0, result
    end
    guarded[name] = function(...) return answer(pcall(call, ...)) end
  end
  return guarded
end

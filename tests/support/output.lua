-- What a spec prints under tests/run.lua: as busted's plainTerminal, and the name of each case that fails as soon as it
-- does, for a spec that does not come to its end.

return function(options)
  local busted = require "busted"
  local handler = require "busted.outputHandlers.plainTerminal"(options)
  local function name(element)
    io.write("\nfails: ", handler.getFullName(element), "\n")
    io.flush()
    return nil, true -- and others hear of it, too
  end
  for _, what in ipairs { "failure", "error" } do busted.subscribe({ what, "it" }, name) end
  return handler
end

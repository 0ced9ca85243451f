-- What a spec prints under tests/run.lua: as busted's plainTerminal or, in a job, as `shardrt test` there; and the name
-- of each case that fails as soon as it does, for a spec that does not come to its end.
--
-- In a job all processes meet at the end of each case. One that failed there says so instead of what the others wait
-- for, and they hear at once: no case leaves the job in disorder to the next.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"

local MOST_CALLS = 100 -- that a process can be behind another at the end of a case

-- What specs ask in long loops, without the tables that luassert makes for each question; it says what is wrong.
local function answer_quickly()
  local luassert = require "luassert"
  local holds = {
    equal = function(a, b) return a == b end,
    is_true = function(a) return a == true end,
    is_nil = function(a) return a == nil and type(a) == "nil" end,
    truthy = function(a) return a end,
  }
  for name, hold in pairs(holds) do
    local slow, least = luassert[name], name == "equal" and 2 or 1
    rawset(luassert, name, function(...)
      if select("#", ...) >= least and hold(...) then return ... end
      return slow(...)
    end)
  end
end

return function(options)
  answer_quickly()
  local busted = require "busted"
  local index, count = current.info.process_index, current.info.process_count
  local handler = require(count > 1 and "shardrt.program.test_output" or "busted.outputHandlers.plainTerminal")(options)
  local process = count > 1 and ("process %d: "):format(index) or ""

  local function name(element)
    io.write("\nfails: ", process, handler.getFullName(element), "\n")
    io.flush()
    return nil, true -- and others hear of it, too
  end
  for _, what in ipairs { "failure", "error" } do busted.subscribe({ what, "it" }, name) end
  if count == 1 then return handler end

  local function meet(element)
    local place, code = ("the end of the case \"%s\""):format(element.name), nil
    for _ = 1, MOST_CALLS do
      code = C.shardrt_barrier(current.job, place)
      if code ~= C.SHARDRT_EMISMATCH then break end
    end
    if code < 0 then error(ffi.string(C.shardrt_error_message()), 0) end
    return nil, true
  end
  busted.subscribe({ "test", "end" }, meet)
  return handler
end

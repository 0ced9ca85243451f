-- Memory that runs out: each allocation of a call fails in its turn.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"

local no_memory = {}
local MOST = 2000 -- allocations of a call

--- Calls f again and again: first its first allocation fails, then its second one, …, until none is left to fail. Each
--- of these failures is told: f gives ENOMEM or raises an error, with the message "out of memory". The last call gives
--- 0, or whatever it is that is no code. f gives back itself what it took; o.prepare is called before it, with all
--- memory there is. With o.spares, f may do without some of what it asks for, as threads. Returns how often it failed.
---@param f fun(): any
---@param o? {prepare?: fun(), spares?: boolean}
---@return integer
function no_memory.each(f, o)
  local prepare, spares = o and o.prepare, o and o.spares
  local failures = 0
  for n = 1, MOST do
    if prepare then prepare() end
    C.shardrt_alloc_fail_at(n)
    local ok, got = pcall(f)
    local has_failed = tonumber(C.shardrt_alloc_fail_at(0)) >= n
    local is_code = ok and type(got) == "number"
    local said = not ok and tostring(got) or is_code and got < 0 and ffi.string(C.shardrt_error_message()) or nil
    assert(not is_code or got == 0 or got == C.SHARDRT_ENOMEM, said)
    assert(not said or said:find("out of memory", 1, true), said)
    assert(has_failed or not said, said)
    assert(said or spares or not has_failed, ("allocation %d failed, and nobody said so"):format(n))
    if not has_failed then return failures end
    if said then failures = failures + 1 end
    collectgarbage()
  end
  error(("a call makes more than %d allocations"):format(MOST))
end

return no_memory

-- Memory that runs out: each allocation of a call fails in its turn.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"

local no_memory = {}
local MOST = 2000 -- allocations of a call

--- Calls f again and again: first its first allocation fails, then its second one, …, until none is left to fail. Each
--- of these failures is told: f gives ENOMEM or raises an error, with the message "out of memory". The last call gives
--- 0, or whatever it is that is no code. f gives back itself what it took; o.prepare is called before it, with all
--- memory there is. o.spares lists what f goes on without, in the words of alloc_do_without: each of them must come up,
--- and no other allocation may fail without being told. Returns how often it failed.
---@param f fun(): any
---@param o? {prepare?: fun(), spares?: string[]}
---@return integer
function no_memory.each(f, o)
  local prepare, spares, spared = o and o.prepare, {}, {}
  for _, what in ipairs(o and o.spares or {}) do spares[what] = true end
  local failures = 0
  for n = 1, MOST do
    if prepare then prepare() end
    C.shardrt_alloc_fail_at(n)
    local ok, got = pcall(f)
    local without = C.shardrt_alloc_went_without()
    local has_failed = tonumber(C.shardrt_alloc_fail_at(0)) >= n
    local is_code = ok and type(got) == "number"
    local said = not ok and tostring(got) or is_code and got < 0 and ffi.string(C.shardrt_error_message()) or nil
    assert(not is_code or got == 0 or got == C.SHARDRT_ENOMEM, said)
    assert(not said or said:find("out of memory", 1, true), said)
    assert(has_failed or not said, said)
    if has_failed and not said then
      assert(without ~= nil, ("allocation %d failed, and nobody said so"):format(n))
      local what = ffi.string(without)
      assert(spares[what], ("allocation %d failed, without which %s was left out"):format(n, what))
      spared[what] = true
    end
    if not has_failed then
      for what in pairs(spares) do assert(spared[what], ("no allocation failed for %s"):format(what)) end
      return failures
    end
    if said then failures = failures + 1 end
    collectgarbage()
  end
  error(("a call makes more than %d allocations"):format(MOST))
end

return no_memory

-- Where the random cases of a spec begin: a number, SHARDRT_TEST_SEED or else the time. A spec with failures says which
-- it was, so that each of them can be seen again.

local busted = require "busted"

local seed = tonumber(os.getenv "SHARDRT_TEST_SEED") or os.time()
local is_failed = false

-- What they give back lets others hear of it, too.
local function note()
  is_failed = true
  return nil, true
end
for _, what in ipairs { "failure", "error" } do busted.subscribe({ what }, note) end
busted.subscribe({ "suite", "end" }, function()
  if is_failed then print(("\nthe same random cases again: SHARDRT_TEST_SEED=%d"):format(seed)) end
  return nil, true
end)

return seed

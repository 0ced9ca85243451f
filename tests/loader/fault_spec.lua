-- long: 25 s
-- The order survives: whatever is killed, and whatever goes on in its place, every epoch gives each sample once,
-- in the order of an undisturbed run. `make soak` kills more often.

local fault = require "tests.support.loader.fault"

describe("a job that is killed at random moments", function()
  it("is given each sample once, in the same order, by whatever processes and devices go on", function()
    local wanted, seed = tonumber(os.getenv "SHARDRT_KILLS") or 12, require "tests.support.seed"
    local ok, done = pcall(fault.inject, wanted, seed)
    assert(ok, ("seed %d: %s"):format(seed, tostring(done)))
    assert.is_true(done.kills >= wanted)
    if os.getenv "SHARDRT_KILLS" then
      print(("seed %d: %d kills in %d rounds, up to %d in one; %d in mid-save"):format(seed, done.kills, done.rounds,
        done.most, done.unfinished))
      assert.is_true(wanted < 100 or done.unfinished > 0, "no kill came in mid-save, seed " .. seed)
    end
  end)
end)

-- Every input of the fuzzers' corpus, and every one that a reader once failed on, is read or refused, and nothing else
-- happens: tests/fuzz/fuzz.h. `make fuzz` looks for more.

local files = require "tests.support.files"

local CORPUS, LIMIT = "tests/fuzz/corpus/", 120
local replay = assert(os.getenv "SHARDRT" or "build/shardrt"):gsub("[^/]*$", "") .. "fuzz/replay"

local targets = {}
for name in files.slurp "tests/fuzz/fuzz.h":gmatch "\n  X%(([%w_]+)%)" do targets[#targets + 1] = name end

describe("bad input", function()
  it("has a folder of inputs for every reader, and no other", function()
    assert.is_true(#targets >= 17)
    assert.same(targets, files.list(CORPUS))
  end)

  for _, target in ipairs(targets) do
    local inputs = files.list(CORPUS .. target)
    it(("is read or refused: %s, %d inputs"):format(target, #inputs), function()
      assert.is_true(#inputs > 0)
      local pipe = io.popen(("SHARDRT_FUZZ=%s timeout %d %s %s%s/* 2>&1"):format(target, LIMIT, replay, CORPUS, target))
      local text = pipe:read "*a"
      pipe:close()
      assert.truthy(text:find(("\n%d inputs\n$"):format(#inputs)), text)
    end)
  end
end)

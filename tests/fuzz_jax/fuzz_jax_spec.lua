-- processes: 1 x 8
-- processes: 2 x 4
-- processes: 4 x 2
-- Random programs give what JAX gave, at each of their lines: those of programs.jsonl, or of the file that
-- SHARDRT_FUZZ_JAX names, as `make fuzz-jax` writes it.

local programs = require "tests.fuzz_jax.programs"
local replay = require "shardrt.record.replay"
local shardrt = require "shardrt"

describe("random programs", function()
  local own = "tests/fuzz_jax/programs.jsonl"
  local path = os.getenv "SHARDRT_FUZZ_JAX" or own

  it("give JAX's answers at each line, wherever their arrays lie", function()
    local count, compared, wrong = programs.run(path)
    assert.equal("", table.concat(wrong, "\n\n", 1, math.min(#wrong, 10)), #wrong .. " of " .. count .. " programs")
    assert.is_true(count > 0 and compared > 3 * count)
  end)

  it("are the same when shardrt.jit runs their C calls again, of other numbers, too", function()
    local runs, run = 0, replay.run
    replay.run = function(...)
      local results = run(...)
      if results then runs = runs + 1 end
      return results
    end
    local count, wrong = programs.run_recorded(path)
    replay.run = run
    assert.equal("", table.concat(wrong, "\n\n", 1, math.min(#wrong, 5)), #wrong .. " of " .. count .. " programs")
    if shardrt.process_count() == 1 then assert.is_true(runs > count, runs) end
  end)

  it("may have every word that gives arrays", function()
    local file = assert(io.open "tests/fuzz_jax/generate.py")
    local text, words = file:read "*a", 0
    file:close()
    for _, room in ipairs { require "shardrt.numpy", shardrt.random } do
      for name, word in pairs(room) do
        if type(word) == "function" and name ~= "key_data" then -- two numbers
          assert.truthy(text:find(('["%%.]%s"'):format(name)), name)
          words = words + 1
        end
      end
    end
    assert.is_true(words > 100)
  end)
end)

-- processes: 4 x 2
-- processes: 3 x 1
-- processes: 1 x 4
-- long: 40 s
-- Every recipe keeps what it promises, in every topology: tests/support/source_tree/recipe_proofs.lua watches it. (What
-- each says, and the one that needs a server, is in recipes_spec.lua.)

local recipe_proofs = require "tests.support.source_tree.recipe_proofs"
local shardrt = require "shardrt"

local names = {}
for name in pairs(recipe_proofs.proofs) do names[#names + 1] = name end
table.sort(names)

-- Proofs watch words by putting others in their place; and each recipe has a temporary folder of its own.
local words = {}
for name, word in pairs(shardrt) do words[name] = word end
local function restore()
  for name, word in pairs(words) do shardrt[name] = word end
  require("shardrt.program.temporary_folder").remove(true)
  package.loaded["shardrt.program.temporary_folder"] = nil
  collectgarbage()
end

describe("recipe", function()
  for _, name in ipairs(names) do
    if name ~= "http" then
      it(name .. " keeps what it promises", function()
        finally(restore)
        _G.arg = {}
        assert(loadstring(recipe_proofs.program(name), "=" .. name))()
      end)
    end
  end
end)

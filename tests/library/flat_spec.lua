-- Ten thousand batches in a program: what it gives back it does not keep, and what it is given is no copy.

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

local RECIPE = [[
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
return shardrt.loader {
  source = shardrt.source.array {
    x = ndarray.arange(96 * 16, "float32"):reshape { 96, 16 }, all = ndarray.arange(96, "int32"),
  },
  batch_size = 8, shuffle = true,
  sharding = { x = shardrt.NamedSharding(mesh, P "data"), all = shardrt.NamedSharding(mesh, P()) },
}
]]

-- Bytes by which memory may grow from batch 1,000 to batch 10,000: the smallest handle that is forgotten each time
-- takes twice as much (9,000 blocks of malloc's least size, 32 bytes).
local MOST = 9000 * 16
local SANITIZED = os.getenv "SHARDRT_SANITIZER" -- which keeps what is freed for a while, and looks for leaks itself

describe("ten thousand batches", function()
  local folder, recipe = mpi.folder(), nil
  setup(function() recipe = files.write(folder, "recipe.lua", RECIPE) end)
  teardown(function() mpi.remove(folder) end)

  local function grown(program, forgets)
    local result = expect.well(library.run(("%s %s %s"):format(program, recipe, forgets)))
    local resident, anonymous = result.stdout:match "^1000 (%d+) (%d+)\n"
    local resident_then, anonymous_then = result.stdout:match "\n10000 (%d+) (%d+)\n$"
    return math.max(resident_then - resident, anonymous_then - anonymous)
  end

  for source, forgotten in pairs { ["flat.c"] = { "batch", "handle", "tensor" }, ["flat.cpp"] = { "batch" } } do
    it("leave memory as it was: " .. source, function()
      local program = library.build(folder, "tests/library/" .. source, "-Iruntime -Iexamples/cpp -pthread")
      local bytes = grown(program, "")
      if SANITIZED then return end
      assert.is_true(bytes < MOST, bytes)
      for _, what in ipairs(forgotten) do -- else nothing was measured
        bytes = grown(program, what)
        assert.is_true(bytes > MOST, ("%s: %d"):format(what, bytes))
      end
    end)
  end
end)

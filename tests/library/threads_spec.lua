-- Programs that have threads and signals of their own, beside a job that they join: tests/library/threads.c.

local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

local RECIPE = [[
local shardrt = require "shardrt"
local source = shardrt.source.array { x = shardrt.ndarray.arange(40, "float32"):reshape { 20, 2 } }
return shardrt.loader { source = source, batch_size = 4 }
]]

describe("a program of its own", function()
  local folder = mpi.folder()
  local recipe, program
  setup(function()
    recipe = files.write(folder, "recipe.lua", RECIPE)
    program = library.build(folder, "tests/library/threads.c", "-pthread")
  end)
  teardown(function() mpi.remove(folder) end)

  local function runs(what)
    local result = library.run(("%s %s %s"):format(program, what, recipe))
    assert.equal(0, result.status, result.output)
    assert.equal("fine\n", result.stdout)
  end

  it("closes handles on any thread, also while another one leaves the job", function() runs "close" end)

  it("finds its own handler of SIGBUS again when it has left the job", function() runs "sigbus" end)
end)

-- The library in a program that has OpenBLAS, HDF5 and another Lua of its own: each works on as before.

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

-- Multiplies in each step, and asks HDF5 for what there is and for what there is not.
local RECIPE = [[
local shardrt = require "shardrt"
local np, ndarray = require "shardrt.numpy", shardrt.ndarray
local source = shardrt.source.array { x = ndarray.arange(64 * 64, "float32"):reshape { 64, 64 } }
local ones = ndarray.full({ 64, 48 }, 1, "float32")
local held = shardrt.source.hdf5 { y = "data.h5:/gzip" }
assert(not pcall(shardrt.source.hdf5, { y = "data.h5:/none" }))
local first = 0
return shardrt.loader { source = source, batch_size = 8, epochs = 4, batch_transform = function(batch)
  assert(held:read(0, 1).y)
  local product = np.matmul(batch.x, ones)
  for r, row in ipairs(product:to_table()) do
    local number = (first + r - 1) % 64
    assert(#row == 48 and row[48] == 64 * 64 * number + 2016, row[48])
  end
  first = first + 8
  return { x = batch.x, product = product }
end }
]]

describe("a program with libraries of its own", function()
  if os.getenv "SHARDRT_SANITIZER" then
    pending "sanitizers refuse a second OpenBLAS"
    return
  end
  local folder = mpi.folder()
  setup(function()
    files.write(folder, "recipe.lua", RECIPE)
    assert.equal(0, mpi.shell(("tar xzf tests/files/arrays.tar.gz -C %s data.h5"):format(folder)).status)
  end)
  teardown(function() mpi.remove(folder) end)

  it("keeps OpenBLAS's threads, HDF5's messages and its own Lua", function()
    local build = "-pthread -l:libopenblas.so.0 $(pkg-config --cflags --libs hdf5-serial)"
    local program = library.build(folder, "tests/library/neighbours.c", build)
    for _, lua in ipairs { "liblua5.1.so.0", "libluajit-5.1.so.2" } do
      local result = expect.well(library.run(("sh -c 'cd %s && %s recipe.lua %s'"):format(folder, program, lua)))
      assert.equal("32 batches; OpenBLAS had other threads 0 times; looked often\n", result.stdout)
      assert.equal("", result.stderr)
    end
  end)
end)

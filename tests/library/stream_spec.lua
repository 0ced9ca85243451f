-- The same recipe gives a program the batches that it gives its own loop, byte for byte, on every topology.

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

local RECIPE = [[
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
local source = shardrt.source.array {
  x = ndarray.arange(96 * 6, "float32"):reshape { 96, 6 }, label = ndarray.arange(96, "int32"),
}
local cut = { x = shardrt.NamedSharding(mesh, P("data", "model")), label = shardrt.NamedSharding(mesh, P "data") }
local loaders = {
  train = shardrt.loader { source = source, batch_size = 8, sharding = cut, shuffle = true, seed = 7, epochs = 2,
    transform = { x = { shardrt.transform.scale { factor = 2 } } } },
  test = shardrt.loader { source = source, batch_size = 20, sharding = cut, epochs = 1, remainder = "pad" },
  moved = shardrt.loader { source = source, batch_size = 16, sharding = cut, epochs = 1, pipeline = "reshard" },
  changed = shardrt.loader { source = source, batch_size = 8, sharding = cut, epochs = 1, batch_transform = function(b)
    return { x = b.x, label = b.label }
  end },
  auto = shardrt.loader { source = source, batch_size = 8, sharding = cut, epochs = 3, pipeline = "auto" },
}
]]

local LOOP = [=[
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local step = 0
io.stdout:setvbuf "line"
for batch in loaders[arg[1]] do
  local names = {}
  for name in pairs(batch) do if name ~= "mask" then names[#names + 1] = name end end
  table.sort(names)
  if rawget(batch, "mask") then names[#names + 1] = "mask" end
  for _, name in ipairs(names) do
    for _, shard in ipairs(batch[name].addressable_shards) do
      local buffer = shard.data.buffer
      print(("%d %s %d %s"):format(step, name, shard.device.id,
        require("bit").tohex(C.shardrt_fingerprint(C.shardrt_buffer_data(buffer), C.shardrt_buffer_bytes(buffer)))))
    end
  end
  step = step + 1
end
]=]

local PYTHON = library.python()
local TOPOLOGIES = { { devices = 8 }, { processes = 2, devices = 4 }, { processes = 4, devices = 2 } }

describe("a program that takes batches from a recipe", function()
  local folder = mpi.folder()
  local written = folder .. "/written" -- by all processes, whole lines: those that mpirun collects may be torn
  local recipe, looping, stream, stream_in_cpp
  setup(function()
    recipe = files.write(folder, "recipe.lua", RECIPE .. "return loaders\n")
    looping = files.write(folder, "looping.lua", RECIPE .. LOOP)
    stream = library.build(folder, "tests/library/stream.c")
    stream_in_cpp = library.build(folder, "tests/library/stream.cpp", "-Iexamples/cpp")
  end)
  teardown(function() mpi.remove(folder) end)

  for _, name in ipairs { "train", "test", "moved", "changed", "auto" } do
    it("is given those of its own loop: " .. name, function()
      local first
      for _, topology in ipairs(TOPOLOGIES) do
        local function lines_of(program, ...)
          os.remove(written)
          local arguments = table.concat({ program, ... }, " ")
          expect.well(library.run(("sh -c '%s >>%s'"):format(arguments, written), topology.processes))
          local lines = {}
          for line in files.slurp(written):gmatch "[^\n]+" do lines[#lines + 1] = line end
          table.sort(lines)
          return lines
        end
        local devices = topology.devices
        local wanted = lines_of(mpi.program(), "--devices", devices, looping, name)
        assert.is_true(#wanted > 30)
        assert.same(wanted, lines_of(stream, devices, recipe, name))
        assert.same(wanted, lines_of(stream_in_cpp, devices, recipe, name))
        if PYTHON then assert.same(wanted, lines_of(PYTHON, "tests/library/stream.py", devices, recipe, name)) end
        first = first or wanted
        assert.same(first, wanted)
      end
    end)
  end
end)

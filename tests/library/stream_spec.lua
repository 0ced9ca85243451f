-- The same recipe gives a program the batches that it gives its own loop, byte for byte, on every topology.

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"
local streams = require "tests.support.streams"

local PYTHON = library.python()

describe("a program that takes batches from a recipe", function()
  local folder = mpi.folder()
  local written = folder .. "/written" -- by all processes, whole lines: those that mpirun collects may be torn
  local recipe, looping, stream, stream_in_cpp
  setup(function()
    recipe = files.write(folder, "recipe.lua", streams.RECIPE)
    looping = files.write(folder, "looping.lua", streams.LOOP)
    stream = library.build(folder, "tests/library/stream.c")
    stream_in_cpp = library.build(folder, "tests/library/stream.cpp", "-Iexamples/cpp")
  end)
  teardown(function() mpi.remove(folder) end)

  for _, name in ipairs(streams.NAMES) do
    it("is given those of its own loop: " .. name, function()
      local first
      for _, topology in ipairs(streams.TOPOLOGIES) do
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

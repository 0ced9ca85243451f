-- long: 10 s
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

  -- What a program prints of each loader, of all of which it is asked at once; as often as it is asked, it runs once.
  local known = {}
  local function lines_of(topology, program, ...)
    local arguments = table.concat({ program, ... }, " ") .. " " .. table.concat(streams.NAMES, " ")
    local key = ("%s in %d"):format(arguments, topology.processes or 1)
    if known[key] then return known[key] end
    os.remove(written)
    expect.well(library.run(("sh -c '%s >>%s'"):format(arguments, written), topology.processes))
    local lines = {}
    for loader, line in files.slurp(written):gmatch "(%S+) ([^\n]+)\n" do
      lines[loader] = lines[loader] or {}
      table.insert(lines[loader], line)
    end
    for _, list in pairs(lines) do table.sort(list) end
    known[key] = lines
    return lines
  end

  for _, name in ipairs(streams.NAMES) do
    it("is given those of its own loop: " .. name, function()
      local first
      for _, topology in ipairs(streams.TOPOLOGIES) do
        local devices = topology.devices
        local wanted = lines_of(topology, mpi.program(), "--devices", devices, looping)[name]
        assert.is_true(#wanted > 30)
        assert.same(wanted, lines_of(topology, stream, devices, recipe)[name])
        assert.same(wanted, lines_of(topology, stream_in_cpp, devices, recipe)[name])
        if PYTHON then
          assert.same(wanted, lines_of(topology, PYTHON, "tests/library/stream.py", devices, recipe)[name])
        end
        first = first or wanted
        assert.same(first, wanted)
      end
    end)
  end
end)

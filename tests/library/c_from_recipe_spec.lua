-- A C library that a recipe loads, the one of docs/c.md: built as a user would, and with more warnings. What its
-- thread reads late is what the batches held.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

local ROWS, COLUMNS, BATCH = 4096, 1024, 64

-- The mean of a run of rows, by the recipe's rule for its elements.
local function mean(first, count)
  local sum = 0
  for i = first * COLUMNS, (first + count) * COLUMNS - 1 do sum = sum + math.floor((i / COLUMNS + i) % 251) end
  return sum / (count * COLUMNS)
end

describe("a C library that a recipe loads", function()
  local folder = mpi.folder()
  local library = folder .. "/libmeans.so"

  setup(function()
    local result = mpi.shell(("cc -O2 -Wall -Wextra -Werror -shared -fPIC -pthread -Iruntime -o %s %s"):format(library,
      "examples/c_library/means.c"))
    assert.equal(0, result.status, result.output)
  end)
  teardown(function() mpi.remove(folder) end)

  for _, job in ipairs { { devices = 1 }, { devices = 4 }, { devices = 2, processes = 2 } } do
    local processes = job.processes or 1
    local devices = job.devices * processes
    it(("reads shards after their batch is gone: %d x %d"):format(processes, job.devices), function()
      -- What the recipe let go is given back at once, so that the loader fills it again. Each process prints to a file
      -- of its own, as mpirun cuts and mixes long texts.
      job.source, job.args = [[
        local file = assert(io.open(("%s.%d"):format(arg[1], require "shardrt".process_index()), "w"))
        function print(text) assert(file:write(text, "\n") and file:flush()) end
        local plain = assert
        function assert(...)
          collectgarbage()
          return plain(...)
        end
        dofile "examples/c_library/means.lua"]], { library }
      local result = mpi.run(job)
      assert.equal(0, result.status, result.output)
      local told, text = 0, ""
      for process = 0, processes - 1 do text = text .. files.slurp(("%s.%d"):format(library, process)) end
      for process, number, value in text:gmatch "process (%d+): mean (%d+) is ([%d.]+)\n" do
        local step = math.floor(number / job.devices)
        local device = process * job.devices + number % job.devices
        local rows = BATCH / devices
        assert.equal(("%.6f"):format(mean(step * BATCH + device * rows, rows)), value, process .. ", " .. number)
        told = told + 1
      end
      assert.equal(ROWS / BATCH * devices, told)
    end)
  end
end)

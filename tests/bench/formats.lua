-- Formats: JPEG images beside libjpeg-turbo alone, which decodes them whole (jpeg.c), on as many threads. Columns of
-- Parquet files in order beside pyarrow, both in one thread, by the processor's time; and epochs by blocks beside such
-- in order. Arrow's and Megatron's files beside pyarrow, datasets and Megatron-Core: tests/bench/peers/formats.py.

local mpi = require "tests.support.mpi"

-- The median of three columns is what the aim is of.
local function parquet(bench)
  local python, folder = bench.build .. "/peers/bin/python", mpi.folder()
  if os.execute(python .. " -c 'import pyarrow' 2>/dev/null") ~= 0 then
    print "Parquet: left out, as pyarrow is not there (make bench PARTS=formats installs it)"
    return
  end
  local script, all = python .. " -B tests/bench/parquet_pyarrow.py", {}
  bench.output(("%s make %s"):format(script, folder))
  for i, column in ipairs { "int64", "float32", "text" } do
    local path = ("%s/%s.parquet"):format(folder, column)
    local a, b, ratio = bench.alternate(function()
      local text = bench.output(("%s --devices 1 tests/bench/parquet_load.lua %s 1"):format(mpi.program(), path))
      return assert(tonumber(text:match "([%d.]+) rows/s"), text)
    end, function() return tonumber(bench.output(("%s read %s 1"):format(script, path))) end)
    all[i] = ratio
    bench.report(("Parquet, %s in order / pyarrow, one thread"):format(column), ratio, "",
      ("%.0f and %.0f rows/s"):format(a, b))
  end
  bench.report("Parquet in order / pyarrow, median of these", bench.median(all), ">= 0.8")
  -- Of numbers alone, a row's order and its wait for memory cost about 7 ns, and to read it in order 15 to 30.
  for _, column in ipairs { "text", "int64", "float32" } do
    local path = ("%s/%s.parquet"):format(folder, column)
    local function epoch(order)
      local program = mpi.program()
      local text = bench.output(("%s --devices 1 tests/bench/parquet_epoch.lua %s %s"):format(program, path, order))
      return assert(tonumber(text:match "([%d.]+) rows/s"), text)
    end
    local a, b, ratio = bench.alternate(function() return epoch "blocks" end, function() return epoch "false" end)
    bench.report(("Parquet, epochs of %s by blocks / in order"):format(column), ratio,
      ">= 0.7", ("%.0f and %.0f rows/s"):format(a, b))
  end
  mpi.remove(folder)
end

local function beside_peers(bench)
  local command = "/usr/bin/python3 -B tests/bench/peers/formats.py %s %s "
    .. "arrow arrow_in_order megatron megatron_in_order"
  io.stdout:flush()
  assert(os.execute(command:format(bench.build, mpi.program())) == 0, command)
end

return function(bench)
  local folder, jpeg = mpi.folder(), bench.build .. "/bench/jpeg"
  bench.output(("mkdir %s/class && %s make %s/class 64"):format(folder, jpeg, folder))
  local threads
  local function ours()
    local text = bench.output(("%s --devices 1 tests/bench/image_load.lua %s 1"):format(mpi.program(), folder))
    local rate
    rate, threads = text:match "([%d.]+) images/s, (%d+) threads"
    return assert(tonumber(rate), text)
  end
  local function theirs()
    return tonumber(bench.output(("%s %d 1 %s/class/*.jpg"):format(jpeg, threads, folder)):match "[%d.]+")
  end
  local a, b, ratio = bench.alternate(ours, theirs)
  bench.report("500x375 JPEG to random 224x224 / libjpeg-turbo, whole", ratio, ">= 0.95",
    ("%.0f and %.0f images/s, %d threads"):format(a, b, threads))
  mpi.remove(folder)
  parquet(bench)
  beside_peers(bench)
end

-- Formats: JPEG images beside libjpeg-turbo alone, which decodes them whole (jpeg.c), on as many threads.

local mpi = require "tests.support.mpi"

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
end

-- The loader's bytes/s over those of a plain C gather of the same rows from the same page-cached file, with as many
-- threads, into as many batch buffers in turn. 1 process x 8 devices, shuffled, batch 256. Then the loader against
-- itself: on fewer devices, and with replicas that are compared.

local records = require "tests.bench.records"

-- Throughput does not fall with the number of devices, memory for each does. Each is compared with one device in the
-- same round: what the machine is busy with changes from round to round.
local function scaling(bench, o)
  local counts, rates, ratios, bytes = { 1, 2, 4, 8 }, {}, {}, {}
  for i in ipairs(counts) do rates[i], ratios[i] = {}, {} end
  for round = 1, bench.rounds do
    for i, count in ipairs(counts) do
      local rate, _, _, each = records.load(bench, o, { devices = count })
      rates[i][round], bytes[i] = rate, each
      ratios[i][round] = rate / rates[1][round]
    end
  end
  local lowest, highest, said = math.huge, 0, {}
  for i, count in ipairs(counts) do
    local ratio = bench.median(ratios[i])
    lowest, highest = math.min(lowest, ratio), math.max(highest, ratio)
    said[i] = ("%d: %.2f GB/s, %d bytes"):format(count, bench.median(rates[i]) / 1e9, bytes[i])
    assert(bytes[i] * count == o.batch * o.bytes, "each device holds its share of a batch, and no more")
  end
  bench.report("slowest / fastest of 1, 2, 4, 8 devices", lowest / highest, ">= 0.9", table.concat(said, "; "))
end

local function checked(bench, o)
  local a, b, ratio = bench.alternate(
    function() return (records.load(bench, o, { replicas = 2, flags = "--check sample" })) end,
    function() return (records.load(bench, o, { replicas = 2, flags = "--check off" })) end)
  bench.report("2 replicas, some steps compared / none", ratio, ">= 0.95",
    ("%.2f and %.2f GB/s"):format(a / 1e9, b / 1e9))
end

-- What checksums cost: blocks were read and found to be right in the epoch before, or are looked at again.
local function verified(bench, o)
  for _, case in ipairs { { "once", ">= 0.95" }, { "true", "" } } do
    local a, b, ratio = bench.alternate(
      function() return (records.load(bench, o, { verify = case[1] })) end,
      function() return (records.load(bench, o, { verify = "false" })) end)
    bench.report(("%d-byte records, verify = %s / false"):format(o.bytes, case[1]), ratio, case[2],
      ("%.2f and %.2f GB/s"):format(a / 1e9, b / 1e9))
  end
end

return function(bench)
  local small = records.make { bytes = 3072, rows = 65536, descr = "|u1", shape = "3072" }
  local large = records.make { bytes = 150528, rows = 2048, descr = "|u1", shape = "150528" }
  records.compare(bench, small,
    { what = "copy", title = "loader, 3072-byte records / plain C gather", aim = ">= 0.8" })
  records.compare(bench, large,
    { what = "copy", title = "loader, 150528-byte records / plain C gather", aim = ">= 0.85" })
  verified(bench, small)
  verified(bench, large)
  scaling(bench, small)
  checked(bench, small)
  records.remove(small)
  records.remove(large)
end

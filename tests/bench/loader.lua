-- The loader's bytes/s over those of a plain C gather of the same rows from the same page-cached file, with as many
-- threads, into as many batch buffers in turn. 1 process x 8 devices, shuffled, batch 256. Then the loader against
-- itself: on fewer devices, and with replicas that are compared.

local ffi = require "ffi"
local C = require "shardrt.C"
local mpi = require "tests.support.mpi"

local BATCH, SEED, SECONDS = 256, 42, 1.0

-- A .npy file of uint8 {rows, bytes}; returns where its data begins.
local function write_records(path, rows, bytes)
  local header = ("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }"):format(rows, bytes)
  header = header .. (" "):rep(127 - 10 - #header) .. "\n"
  local file = assert(io.open(path, "wb"))
  file:write("\147NUMPY\1\0", string.char(#header, 0), header)
  local record = ffi.new("uint8_t[?]", bytes)
  for row = 0, rows - 1 do
    for i = 0, bytes - 1, 64 do record[i] = (row * 31 + i) % 251 end
    file:write(ffi.string(record, bytes))
  end
  file:close()
  return 10 + #header
end

local function write_order(path, rows)
  local count = math.floor(rows / BATCH) * BATCH
  local ids = ffi.new("int64_t[?]", count)
  for i = 0, count - 1 do ids[i] = C.shardrt_order_index(SEED, 0, rows, i) end
  local file = assert(io.open(path, "wb"))
  file:write(ffi.string(ids, ffi.sizeof(ids)))
  file:close()
end

-- What load.lua says: bytes/s, and how many workers, buffers and bytes of a batch on each device there are.
local function load(bench, path, devices, options)
  local text = bench.output(("%s --devices %d %s tests/bench/load.lua %s %d %d %g %d"):format(mpi.program(), devices,
    options and options.flags or "", path, BATCH, SEED, SECONDS, options and options.replicas or 1))
  local rate, workers, buffers, bytes = text:match "(%d+) bytes/s, (%d+) workers, (%d+) buffers, (%d+) bytes on each"
  return assert(tonumber(rate), text), workers, buffers, tonumber(bytes)
end

local function against_gather(bench, case, aim)
  local order = case.folder .. "/order"
  write_order(order, case.rows)
  local threads, buffers
  local function ours()
    local rate
    rate, threads, buffers = load(bench, case.path, 8)
    return rate
  end
  local function theirs()
    return tonumber(bench.output(("%s/bench/gather %s %d %d %s %d %d %d %g"):format(
      bench.build, case.path, case.offset, case.bytes, order, BATCH, buffers, threads, SECONDS)))
  end
  local a, b, ratio = bench.alternate(ours, theirs)
  bench.report(("loader, %d-byte records / plain C gather"):format(case.bytes), ratio, aim,
    ("%.2f and %.2f GB/s, %s threads, %s buffers"):format(a / 1e9, b / 1e9, threads, buffers))
end

-- D16: throughput does not fall with the number of devices, memory for each does.
local function scaling(bench, case)
  local counts, rates, bytes = { 1, 2, 4, 8 }, {}, {}
  for i in ipairs(counts) do rates[i] = {} end
  for round = 1, bench.rounds do
    for i, count in ipairs(counts) do
      local rate, _, _, each = load(bench, case.path, count)
      rates[i][round], bytes[i] = rate, each
    end
  end
  local lowest, highest, said = math.huge, 0, {}
  for i, count in ipairs(counts) do
    local rate = bench.median(rates[i])
    lowest, highest = math.min(lowest, rate), math.max(highest, rate)
    said[i] = ("%d: %.2f GB/s, %d bytes"):format(count, rate / 1e9, bytes[i])
    assert(bytes[i] * count == BATCH * case.bytes, "each device holds its share of a batch, and no more")
  end
  bench.report("slowest / fastest of 1, 2, 4, 8 devices", lowest / highest, ">= 0.9", table.concat(said, "; "))
end

local function checked(bench, case)
  local a, b, ratio = bench.alternate(
    function() return (load(bench, case.path, 8, { replicas = 2, flags = "--check sample" })) end,
    function() return (load(bench, case.path, 8, { replicas = 2, flags = "--check off" })) end)
  bench.report("2 replicas, some steps compared / none", ratio, ">= 0.95",
    ("%.2f and %.2f GB/s"):format(a / 1e9, b / 1e9))
end

return function(bench)
  local small, large = { bytes = 3072, rows = 65536 }, { bytes = 150528, rows = 2048 }
  for _, case in ipairs { small, large } do
    case.folder = mpi.folder()
    case.path = case.folder .. "/records.npy"
    case.offset = write_records(case.path, case.rows, case.bytes)
  end
  against_gather(bench, small, ">= 0.8")
  against_gather(bench, large, ">= 0.85")
  scaling(bench, small)
  checked(bench, small)
  mpi.remove(small.folder)
  mpi.remove(large.folder)
end

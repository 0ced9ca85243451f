-- The loader's bytes/s over those of a plain C gather of the same rows from the same page-cached file, with as many
-- threads, into as many batch buffers in turn. 1 process x 8 devices, shuffled, batch 256.

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

return function(bench)
  for _, case in ipairs { { bytes = 3072, rows = 65536 }, { bytes = 150528, rows = 2048 } } do
    local folder = mpi.folder()
    local path, order = folder .. "/records.npy", folder .. "/order"
    local offset = write_records(path, case.rows, case.bytes)
    write_order(order, case.rows)
    local threads, buffers
    local function ours()
      local text = bench.output(("%s --devices 8 tests/bench/load.lua %s %d %d %g"):format(
        mpi.program(), path, BATCH, SEED, SECONDS))
      local rate
      rate, threads, buffers = text:match "(%d+) bytes/s, (%d+) workers, (%d+) buffers"
      return assert(tonumber(rate), text)
    end
    local function theirs()
      return tonumber(bench.output(("%s/bench/gather %s %d %d %s %d %d %d %g"):format(
        bench.build, path, offset, case.bytes, order, BATCH, buffers, threads, SECONDS)))
    end
    local a, b, ratio = bench.alternate(ours, theirs)
    bench.report(("loader, %d-byte records / plain C gather"):format(case.bytes), ratio, ">= 0.5",
      ("%.2f and %.2f GB/s, %d threads, %d buffers"):format(a / 1e9, b / 1e9, threads, buffers))
    mpi.remove(folder)
  end
end

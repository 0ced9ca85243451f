-- The loader on files that are not in the page cache: its bytes/s with reading ahead over those without, and over plain
-- preads of the same rows, one and 32 in flight. Rows are shuffled; without reading ahead the kernel's own read-ahead
-- around every page fault reads much that nobody asked for, the more the larger the file.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local mpi = require "tests.support.mpi"

local BATCH, SEED, HEADER, FILE_BYTES = 256, 42, 128, 3 * 2 ^ 30

-- A file of bytes that no storage can compress away, for all cases.
local function write_bytes(path)
  assert(os.execute(("head -c %d /dev/urandom >'%s'"):format(HEADER + FILE_BYTES, path)) == 0)
end

-- Makes it a .npy file of uint8 {rows, bytes}, perhaps a little shorter.
local function write_header(path, rows, bytes)
  local text = ("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }"):format(rows, bytes)
  text = text .. (" "):rep(HEADER - 1 - 10 - #text) .. "\n"
  local file = assert(io.open(path, "r+b"))
  file:write("\147NUMPY\1\0", string.char(#text, 0), text)
  file:close()
  assert(os.execute(("truncate -s %d '%s'"):format(HEADER + rows * bytes, path)) == 0)
end

local function write_order(path, rows, count)
  local ids = ffi.new("int64_t[?]", count)
  for i = 0, count - 1 do ids[i] = C.shardrt_order_index(SEED, 0, rows, i) end
  local file = assert(io.open(path, "wb"))
  file:write(ffi.string(ids, ffi.sizeof(ids)))
  file:close()
end

return function(bench)
  local folder = mpi.folder()
  local path, order = folder .. "/records.npy", folder .. "/order"
  write_bytes(path)
  for _, case in ipairs {
    { bytes = 3072, steps = 60, aims = { 4, 2, 0.5 } }, { bytes = 150528, steps = 12, aims = { 3, 1.2, 0.6 } },
  } do
    local rows = math.floor(FILE_BYTES / case.bytes)
    write_header(path, rows, case.bytes)
    write_order(order, rows, case.steps * BATCH)
    local way
    local function load(name)
      local text = bench.output(("SHARDRT_AHEAD=%s %s --devices 8 tests/bench/cold_load.lua %s %d %d %d"):format(
        name, mpi.program(), path, BATCH, SEED, case.steps))
      local rate, how = text:match "(%d+) bytes/s, ([%w_]+)"
      if name == "" then way = how end
      return tonumber(rate)
    end
    local function pread(threads)
      return tonumber(bench.output(("%s/bench/pread %s %d %d %s %d %d"):format(
        bench.build, path, HEADER, case.bytes, order, case.steps * BATCH, threads)))
    end
    local ours, others = {}, { {}, {}, {} }
    local ratios = { {}, {}, {} }
    for round = 1, bench.rounds do
      ours[round] = load ""
      for i, rate in ipairs { load "off", pread(1), pread(32) } do
        others[i][round], ratios[i][round] = rate, ours[round] / rate
      end
    end
    for i, what in ipairs { "not read ahead", "pread, 1 in flight", "pread, 32 in flight" } do
      bench.report(("cold loader, %d-byte records / %s"):format(case.bytes, what), bench.median(ratios[i]),
        (">= %g"):format(case.aims[i]), ("%.0f and %.0f MB/s, by %s"):format(
          bench.median(ours) / 1e6, bench.median(others[i]) / 1e6, way))
    end
  end
  mpi.remove(folder)
end

-- Files of records that are loaded, and what loads them: the loader (load.lua) and a plain C loop (gather.c).

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local mpi = require "tests.support.mpi"

local records = { BATCH = 256, SEED = 42, SECONDS = 1.0 }

-- A .npy file of o.rows records of o.bytes, each of which `fill` makes; returns where its data begins. o.descr ("|u1")
-- and o.shape ("3072") say what a record is.
local function write(path, o, fill)
  local header = ("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %s), }"):format(o.descr, o.rows, o.shape)
  header = header .. (" "):rep(127 - 10 - #header) .. "\n"
  local file = assert(io.open(path, "wb"))
  file:write("\147NUMPY\1\0", string.char(#header, 0), header)
  local record = ffi.new("uint8_t[?]", o.bytes)
  for row = 0, o.rows - 1 do
    fill(record, row)
    file:write(ffi.string(record, o.bytes))
  end
  file:close()
  assert(os.execute("touch -d '1 hour ago' " .. path) == 0) -- of younger ones no checksums are noted
  return 10 + #header
end

-- The rows of an epoch in the loader's order, as int64.
local function write_order(path, rows, batch)
  local count = math.floor(rows / batch) * batch
  local ids = ffi.new("int64_t[?]", count)
  for i = 0, count - 1 do ids[i] = C.shardrt_order_index(records.SEED, 0, rows, i) end
  local file = assert(io.open(path, "wb"))
  file:write(ffi.string(ids, ffi.sizeof(ids)))
  file:close()
end

--- Makes o.rows records of o.bytes in a folder of their own, to be loaded in batches of o.batch (256).
function records.make(o)
  o.batch = o.batch or records.BATCH
  o.folder = mpi.folder()
  o.path, o.order = o.folder .. "/records.npy", o.folder .. "/order"
  o.offset = write(o.path, o, function(record, row)
    for i = 0, o.bytes - 1, 64 do record[i] = (row * 31 + i) % 251 end
  end)
  write_order(o.order, o.rows, o.batch)
  return o
end

--- Makes o.rows images of o.bytes, image.npy, and label.npy in a folder of their own: an image begins with its row's
--- number in four bytes, its label is that modulo 251.
function records.make_labelled(o)
  o.folder = mpi.folder()
  local number = ffi.new "uint32_t[1]"
  write(o.folder .. "/image.npy", { bytes = o.bytes, rows = o.rows, descr = "|u1", shape = tostring(o.bytes) },
    function(record, row)
      for i = 4, o.bytes - 1, 64 do record[i] = (row * 31 + i) % 251 end
      number[0] = row
      ffi.copy(record, number, 4)
    end)
  write(o.folder .. "/label.npy", { bytes = 1, rows = o.rows, descr = "|u1", shape = "" },
    function(record, row) record[0] = row % 251 end)
  return o
end

function records.remove(o) mpi.remove(o.folder) end

--- The loader's bytes/s, and the numbers of its threads and buffers and the bytes of a batch on each device, with
--- options.verify of the source, .devices (8), .what is done with a record ("copy"), .replicas (1) and .flags for
--- shardrt.
function records.load(bench, o, options)
  local text = bench.output(("%s --devices %d %s tests/bench/load.lua %s %d %d %g %d %s %s"):format(mpi.program(),
    options.devices or 8, options.flags or "", o.path, o.batch, records.SEED, records.SECONDS, options.replicas or 1,
    options.what or "copy", options.verify or ""))
  local rate, threads, buffers, bytes = text:match "(%d+) bytes/s, (%d+) threads, (%d+) buffers, (%d+) bytes on each"
  return assert(tonumber(rate), text), tonumber(threads), tonumber(buffers), tonumber(bytes)
end

--- Reports what the loader gets through with options.ours, of the bytes/s of a C loop that does options.what with the
--- same records, with as many threads and into as many buffers in turn. options.program is the loop ("gather").
function records.compare(bench, o, options)
  local threads, buffers
  local function ours()
    local rate
    rate, threads, buffers = records.load(bench, o, { what = options.ours })
    return rate
  end
  local function theirs()
    return tonumber(bench.output(("%s/bench/%s %s %s %d %d %s %d %d %d %g"):format(bench.build,
      options.program or "gather", options.what, o.path, o.offset, o.bytes, o.order, o.batch, math.max(buffers, 1),
      threads, records.SECONDS)))
  end
  local a, b, ratio = bench.alternate(ours, theirs)
  bench.report(options.title, ratio, options.aim,
    ("%.2f and %.2f GB/s, %d threads, %d buffers"):format(a / 1e9, b / 1e9, threads, buffers))
end

return records

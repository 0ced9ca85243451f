-- parquet_load.lua FILE SECONDS: reads the column "x" of a Parquet file in order, over and over for about SECONDS, in
-- one thread; each time as a source of its own, of which no page is there. At first so often that decoded pages take
-- the place of older ones, as in any long job. Prints rows for a second of the processor.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"

local path, seconds, BATCH, WARM = arg[1], tonumber(arg[2]), 65536, 300e6

-- Each returns how many bytes they are.
local function read_texts(source)
  local shape, out, bytes = ffi.new("int64_t[?]", C.SHARDRT_MAX_NDIM), ffi.new "shardrt_buffer *[1]", 0
  for i = 0, #source - 1 do
    assert(C.shardrt_source_value(source, 0, i, shape, out) == 0)
    bytes = bytes + tonumber(shape[0])
    C.shardrt_buffer_free(out[0])
  end
  return bytes
end

local function read_numbers(source)
  local host = shardrt.ndarray.zeros({ BATCH }, source.fields.x.dtype)
  for first = 0, #source - 1, BATCH do
    assert(C.shardrt_source_read(source, 0, first, math.min(BATCH, #source - first), host.data) == 0)
  end
  return #source * host.bytes / BATCH
end

local rows, bytes, start, sources = 0, 0, nil, {}
repeat
  local source = shardrt.source.parquet(path, { fields = { "x" } })
  sources[#sources + 1] = source -- so that its pages stay until others take their place
  bytes = bytes + (source.fields.x.shape[1] and read_texts or read_numbers)(source)
  if start then rows = rows + #source end
  start = start or bytes > WARM and os.clock() or nil
until start and os.clock() - start >= seconds
local spent = os.clock() - start
print(("%.0f rows/s of %d times"):format(rows / spent, #sources))

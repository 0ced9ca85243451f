-- parquet_load.lua FILE SECONDS: reads the column "x" of a Parquet file in order, over and over for about SECONDS, in
-- one thread; each time it is opened anew, so that no page is there already. Prints rows/s.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"

local path, seconds, BATCH = arg[1], tonumber(arg[2]), 65536

local function read_texts(source)
  local shape, out = ffi.new("int64_t[?]", C.SHARDRT_MAX_NDIM), ffi.new "shardrt_buffer *[1]"
  for i = 0, #source - 1 do
    assert(C.shardrt_source_value(source, 0, i, shape, out) == 0)
    C.shardrt_buffer_free(out[0])
  end
end

local function read_numbers(source)
  local host = shardrt.ndarray.zeros({ BATCH }, source.fields.x.dtype)
  for first = 0, #source - 1, BATCH do
    assert(C.shardrt_source_read(source, 0, first, math.min(BATCH, #source - first), host.data) == 0)
  end
end

local rows, start = 0, nil
repeat
  local source = shardrt.source.parquet(path, { fields = { "x" } })
  if source.fields.x.shape[1] then read_texts(source) else read_numbers(source) end
  if start then rows = rows + #source end
  start = start or shardrt.clock()
until shardrt.clock() - start >= seconds
print(("%.0f rows/s"):format(rows / (shardrt.clock() - start)))

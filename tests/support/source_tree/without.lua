-- A recipe for a shardrt that was built without any library that may be missing: without.lua FOLDER, with the files
-- that tests/source_tree/optional_spec.lua lays there. Prints "WORD: what it fails with", and what hashes are.

local ffi = require "ffi"
local shardrt = require "shardrt"
local ndarray, T = shardrt.ndarray, shardrt.transform
local folder = arg[1]

local function fails(word, f)
  local ok, message = pcall(f)
  print(("%s: %s"):format(word, ok and "works" or tostring(message)))
end

-- The bytes of a file, decoded: an image, unless another decoder is given.
local function decode(path, decoder)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  local host = ndarray.empty({ 1, #text }, "uint8")
  ffi.copy(host.data, text, #text)
  return shardrt.source.array { image = host }:map { image = { decoder or T.decode_image() } }:read(0, 1)
end

local function zarr(name) return shardrt.source.zarr { x = folder .. "/zarr/" .. name }:read(0, 1) end
local function records(name)
  local source = shardrt.source.array_record(("%s/%s.array_record"):format(folder, name))
  return source:read(0, #source)
end
local function mds(name)
  return shardrt.source.mds(("%s/mds/%s"):format(folder, name), { cache = folder .. "/cache" }):read(0, 1)
end

fails("hdf5", function() return shardrt.source.hdf5 { x = folder .. "/data.h5:/gzip" } end)
fails("http", function() return shardrt.source.npy { x = "http://127.0.0.1:9/x.npy" } end)
fails("jpeg", function() return decode "tests/files/images/jpeg/small.jpg" end)
fails("png", function() return decode "tests/files/images/png/rgb.png" end)
fails("webp", function() return decode "tests/files/images/webp/small.webp" end)
fails("sound", function() return decode("tests/files/audio/one.wav", T.decode_audio()) end)
fails("zarr of blosc", function() return zarr "v3-blosc" end)
fails("zarr of zstd", function() return zarr "v2-zstd" end)
fails("zarr of gzip", function() return zarr "v2-gzip" end)
fails("array_record of brotli", function() return records "brotli-1" end)
fails("array_record of zstd", function() return records "zstd-1" end)
fails("array_record of snappy", function() return records "snappy-1" end)
fails("array_record", function() return records "uncompressed-1" end)
fails("mds of zstd", function() return mds "zstd" end)
fails("mds with hashes of XXH", function() return mds "hashes" end)
fails("mds with hashes of SHA", function() return mds "sums" end)
fails("mds", function() return mds "raw" end)
local function parquet(name)
  local path = ("%s/parquet/%s.parquet"):format(folder, name)
  return shardrt.source.parquet(path, { fields = { "i32", "text" }, cache = folder .. "/cache" }):read(0, 120)
end
fails("parquet of lz4", function() return parquet "lz4" end)
fails("parquet of snappy", function() return parquet "dictionary" end)
fails("parquet of gzip", function() return parquet "split" end)
fails("parquet", function() return parquet "plain" end)
local function arrow(name)
  local path = ("%s/arrow/%s"):format(folder, name)
  return shardrt.source.arrow(path, { fields = { "i32", "text" }, cache = folder .. "/cache" }):read(0, 120)
end
fails("arrow of lz4", function() return arrow "lz4.arrow" end)
fails("arrow of zstd", function() return arrow "zstd.arrows" end)
fails("arrow", function() return arrow "plain.arrow" end)
fails("idx", function() return shardrt.source.idx { x = folder .. "/x.gz" }:read(0, 4) end)

-- What it computes by itself is what the libraries compute.
ffi.cdef [[
  uint64_t hash_bytes(uint64_t seed, const void *data, size_t bytes);
  uint32_t crc32c(uint32_t before, const void *data, size_t bytes);
]]
local bytes = ffi.new("uint8_t[?]", 4096)
for i = 0, 4095 do bytes[i] = (i * i * 31 + i * 7) % 251 end
local hash, crc = 0ULL, 0
for n = 0, 4090 do
  hash = hash * 3 + ffi.C.hash_bytes(n * 0x9E3779B97F4A7C15ULL, bytes + n % 5, n)
  crc = ffi.C.crc32c(crc, bytes + n % 5, n)
end
print(("hash %s"):format(tostring(hash)))
print(("crc32c %s"):format(tostring(crc)))

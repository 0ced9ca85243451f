-- cold_load.lua FILE BATCH SEED STEPS: loads shuffled batches of a .npy file that is not in the page cache; prints
-- bytes/s and how it was read ahead.

local ffi = require "ffi"
local shardrt = require "shardrt"

ffi.cdef [[
int open(const char *path, int flags, ...);
int fsync(int fd);
int posix_fadvise(int fd, long offset, long bytes, int advice);
]]

local fd = ffi.C.open(arg[1], 0)
assert(ffi.C.fsync(fd) == 0 and ffi.C.posix_fadvise(fd, 0, 0, 4) == 0) -- POSIX_FADV_DONTNEED

local start = shardrt.clock()
local loader = shardrt.loader {
  source = shardrt.source.npy { record = arg[1] }, batch_size = tonumber(arg[2]), seed = tonumber(arg[3]),
  shuffle = true, sharding = shardrt.NamedSharding(shardrt.make_mesh({ shardrt.device_count() }, { "data" }),
    shardrt.P "data"),
}
local bytes = 0
for _ = 1, tonumber(arg[4]) do bytes = bytes + loader().record.size end
print(("%.0f bytes/s, %s"):format(bytes / (shardrt.clock() - start), tostring(loader:stats().ahead)))

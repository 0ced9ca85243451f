-- Gives every batch to a C library (means.c), whose thread reads it after the loop has gone on, and takes what it made
-- without a copy.
--
--   build/shardrt --devices 2 examples/c_library/means.lua ./libmeans.so

local ffi = require "ffi"
local shardrt = require "shardrt"

ffi.cdef [[
typedef struct means means;
means *means_new(int64_t most);
int means_give(means *m, shardrt_buffer *buffer, const uint8_t *data, size_t bytes);
const double *means_wait(means *m, int64_t *count);
void means_free(means *m);
]]
local library = ffi.load(arg[1] or "./libmeans.so")

local ROWS, COLUMNS, BATCH = 4096, 1024, 64
local rows = shardrt.ndarray.empty({ ROWS, COLUMNS }, "uint8")
for i = 0, rows.size - 1 do rows.data[i] = (i / COLUMNS + i) % 251 end

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local loader = shardrt.loader {
  source = shardrt.source.array { x = rows }, batch_size = BATCH, epochs = 1,
  sharding = shardrt.NamedSharding(mesh, shardrt.P "data"),
}

local means = library.means_new(ROWS / BATCH * #shardrt.local_devices())
assert(means ~= nil, "no memory")
means = ffi.gc(means, library.means_free)

for batch in loader do
  for _, shard in ipairs(batch.x.addressable_shards) do
    local host = shard.data
    assert(library.means_give(means, host.buffer, host.data, host.bytes) == 0, "no room")
  end
end

local count = ffi.new "int64_t[1]"
local list = library.means_wait(means, count)
local values = shardrt.ndarray.from_pointer(list, "float64", tonumber(count[0]), { owner = means })
for i = 0, values.size - 1 do
  print(("process %d: mean %d is %.6f"):format(shardrt.process_index(), i, values.data[i]))
end

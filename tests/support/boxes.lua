-- What specs of sources of arrays have in common: boxes of samples against plain Lua, reading under many threads and
-- cut over devices against the same data in .npy files, memory that runs out.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"

ffi.cdef [[
int source_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                  const shardrt_box *inner, void *reader, void *dst);
void reader_clear(void *reader);
]]

local boxes = {}

--- The files that tests/files/arrays.py made, in a folder of their own.
function boxes.unpack()
  local folder = files.folder()
  assert(os.execute(("tar -xzf tests/files/arrays.tar.gz -C '%s'"):format(folder)) == 0)
  return folder
end

function boxes.bytes_of(host) return ffi.string(host.data, host.bytes) end

--- The bytes of `box` (a list of {start, stop}) of one packed sample, element by element.
function boxes.cut(sample, shape, box, size)
  local out = {}
  local function walk(depth, element)
    if depth > #shape then
      out[#out + 1] = sample:sub(element * size + 1, (element + 1) * size)
      return
    end
    for i = box[depth][1], box[depth][2] - 1 do walk(depth + 1, element * shape[depth] + i) end
  end
  walk(1, 0)
  return table.concat(out)
end

--- A list of {start, stop} as C has it.
function boxes.c_box(box)
  local made = ffi.new "shardrt_box"
  made.ndim = #box
  for d, range in ipairs(box) do made.start[d - 1], made.stop[d - 1] = range[1], range[2] end
  return made
end

--- What source_gather gives of these samples of a field, by its number: its code, and the bytes.
function boxes.gather(s, field, samples, box, size)
  local extent = size * #samples
  for _, range in ipairs(box) do extent = extent * (range[2] - range[1]) end
  local guard = 64
  local dst = ffi.new("uint8_t[?]", extent + guard)
  ffi.fill(dst, extent + guard, 0xA5)
  local reader = ffi.new "uint64_t[64]" -- a struct reader, which is less, of zeros
  local numbers = ffi.new("int64_t[?]", math.max(1, #samples), samples)
  local code = C.source_gather(s, field, numbers, #samples, boxes.c_box(box), reader, dst)
  C.reader_clear(reader)
  assert(ffi.string(dst + extent, guard) == ("\165"):rep(guard), "something was written beyond the end")
  return code, ffi.string(dst, extent)
end

--- Random boxes of random samples of a source of one field against `payload`, the bytes of all of them.
function boxes.check_random(s, payload, shape, size, rounds)
  local seed = require "tests.support.seed"
  math.randomseed(seed)
  local sample_bytes = #payload / #s
  for round = 1, rounds do
    local box, samples, expected = {}, {}, {}
    for d, n in ipairs(shape) do
      local a, b = math.random(0, n), math.random(0, n)
      box[d] = math.random(3) == 1 and { 0, n } or { math.min(a, b), math.max(a, b) }
    end
    for i = 1, math.random(0, 9) do
      samples[i] = math.random(0, #s - 1)
      local at = samples[i] * sample_bytes
      expected[i] = boxes.cut(payload:sub(at + 1, at + sample_bytes), shape, box, size)
    end
    local code, got = boxes.gather(s, 0, samples, box, size)
    assert(code == 0 and got == table.concat(expected), ("seed %d, round %d"):format(seed, round))
  end
end

--- Opens and reads all samples with the n-th allocation failing, for every n: each failure says so. `make` opens.
function boxes.check_memory(make)
  return no_memory.each(function()
    local s = make()
    return s:read(0, #s)
  end)
end

--- Whether two sources (texts in Lua) of a field x of three dimensions give the same batches to a loader with many
--- threads, its samples cut over all devices: one process' hash of its own shards, for each.
function boxes.check_loader(folder, one, other)
  local path = files.write(folder, "loader.lua", ([[
    local ffi, C, shardrt = require "ffi", require "shardrt.base.ffi", require "shardrt"
    local mesh = shardrt.make_mesh({ 2, 2 }, { "a", "b" })
    local function hashes(source)
      local words = {}
      for batch in shardrt.loader { source = source, batch_size = 4, seed = 3, epochs = 3, num_workers = 8,
        sharding = { x = shardrt.NamedSharding(mesh, shardrt.P("a", "b", nil)) } } do
        for _, shard in ipairs(batch.x.addressable_shards) do
          words[#words + 1] = ffi.string(shard.data.data, shard.data.bytes)
        end
      end
      return table.concat(words)
    end
    local one, other = hashes(%s), hashes(%s)
    assert(#one > 0 and one == other)
    print("the same")
  ]]):format(one, other))
  local result = mpi.run { processes = 2, devices = 2, recipe = path }
  assert(result.status == 0, result.output)
  assert(result.output:find("the same\n.*the same"), result.output)
end

return boxes

-- Reading ahead: which bytes of its files a batch needs, and that they are in the page cache before a worker asks.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"

assert(shardrt.device_count() == 8, "run this spec with --devices 8, as `make test` does")

ffi.cdef [[
typedef struct { const uint8_t *data; size_t bytes; int64_t changed; void *entry; } test_mapping;
struct extent { const test_mapping *file; size_t offset; size_t bytes; };
struct extents { struct extent *list; int64_t count; int64_t capacity; };
int extents_set(int64_t capacity, struct extents *out);
void extents_clear(struct extents *self);
int extents_add(struct extents *self, const test_mapping *file, size_t offset, size_t bytes);
void extents_merge(struct extents *self);
int source_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                   const shardrt_box *inner, struct extents *out);
const char *mapping_path_at(const void *address);
uint32_t crc32c(uint32_t before, const void *data, size_t bytes);
struct ahead;
int ahead_new(int32_t way, struct ahead **out);
void ahead_free(struct ahead *self);
struct extents *ahead_extents(struct ahead *self);
bool ahead_is_missing(struct ahead *self);
int64_t ahead_read(struct ahead *self);
const char *ahead_way(const struct ahead *self);

int open(const char *path, int flags, ...);
int close(int fd);
int dup2(int fd, int other);
long readlink(const char *path, char *to, size_t bytes);
int fsync(int fd);
int posix_fadvise(int fd, long offset, long bytes, int advice);
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, long offset);
int munmap(void *at, size_t bytes);
int mincore(void *at, size_t bytes, unsigned char *pages);
int usleep(unsigned microseconds);
int setenv(const char *name, const char *value, int overwrite);
int unsetenv(const char *name);
]]

local GAP, PAGE = 16 * 1024, 4096
local RING, THREADS = 0, 1
local seed = require "tests.support.seed"
math.randomseed(seed)

-- ---- the page cache ----

local function evict(path) -- but what is mapped into some memory, or on its way from the storage
  local fd = ffi.C.open(path, 0)
  ffi.C.posix_fadvise(fd, 0, 0, 4) -- POSIX_FADV_DONTNEED
  ffi.C.close(fd)
end

-- [page number from 0] = whether it is in the page cache.
local function resident(path, bytes)
  local fd = ffi.C.open(path, 0)
  local map = ffi.C.mmap(nil, bytes, 1, 1, fd, 0)
  local count = math.ceil(bytes / PAGE)
  local pages, list = ffi.new("unsigned char[?]", count), {}
  assert(ffi.C.mincore(map, bytes, pages) == 0)
  for i = 0, count - 1 do list[i] = bit.band(pages[i], 1) == 1 end
  ffi.C.munmap(map, bytes)
  ffi.C.close(fd)
  return list
end

-- Writes a file to the storage, as what is not there stays in memory; returns its path.
local function store(folder, name, bytes)
  local path = files.write(folder, name, bytes)
  local fd = ffi.C.open(path, 0)
  ffi.C.fsync(fd)
  ffi.C.close(fd)
  return path
end

-- Whether files can be evicted where the specs' folders are: not in a tmpfs.
local can_evict = (function()
  local folder = files.folder()
  local path = store(folder, "x", ("x"):rep(16 * PAGE))
  evict(path)
  local pages = resident(path, 16 * PAGE)
  files.remove(folder)
  for i = 0, 15 do
    if pages[i] then return false end
  end
  return true
end)()

local function it_evicts(name, run)
  it(name, function()
    if not can_evict then pending "files in the temporary folder cannot be evicted from memory" end
    run()
  end)
end

-- ---- the oracle ----

-- Ranges {start, stop} sorted, those no further apart than the gap joined.
local function joined(ranges)
  table.sort(ranges, function(a, b) return a[1] < b[1] end)
  local out = {}
  for _, range in ipairs(ranges) do
    local last = out[#out]
    if last and range[1] <= last[2] + GAP then
      last[2] = math.max(last[2], range[2])
    else
      out[#out + 1] = { range[1], range[2] }
    end
  end
  return out
end

-- The runs of a box of one sample, along its last dimension.
local function runs_of(out, at, shape, box, size)
  local function walk(d, element)
    if d >= #shape then
      local first, last = 0, 1
      if #shape > 0 then first, last = box[d][1], box[d][2] end
      element = element * (shape[d] or 1)
      if last > first then out[#out + 1] = { at + (element + first) * size, at + (element + last) * size } end
      return
    end
    for i = box[d][1], box[d][2] - 1 do walk(d + 1, element * shape[d] + i) end
  end
  walk(1, 0)
end

local function c_box(box)
  local b = ffi.new "shardrt_box"
  b.ndim = #box
  for d, range in ipairs(box) do b.start[d - 1], b.stop[d - 1] = range[1], range[2] end
  return b
end

-- What source_extents gives, merged: ranges {start, stop}, and the paths that they are of.
local function extents_of(source, field, samples, box, capacity)
  local list = ffi.new "struct extents"
  assert(C.extents_set(capacity or 1, list) == 0)
  local numbers = ffi.new("int64_t[?]", math.max(1, #samples), samples)
  assert(C.source_extents(source, field, numbers, #samples, box and c_box(box), list) == 0)
  C.extents_merge(list)
  local ranges, paths = {}, {}
  for i = 0, tonumber(list.count) - 1 do
    local e = list.list[i]
    ranges[i + 1] = { tonumber(e.offset), tonumber(e.offset + e.bytes) }
    paths[i + 1] = ffi.string(C.mapping_path_at(e.file.data))
  end
  C.extents_clear(list)
  return ranges, paths
end

local function product(sizes)
  local n = 1
  for _, size in ipairs(sizes) do n = n * size end
  return n
end

-- A .npy file of this shape that is a hole behind its header; returns its path and where its data begins.
local function hole(folder, name, descr, size, shape)
  local text = files.npy { dict = files.dict(descr, shape) }
  local path = files.write(folder, name, text)
  assert(os.execute(("truncate -s %d '%s'"):format(#text + product(shape) * size, path)) == 0)
  return path, #text
end

describe("what is to be read ahead (seed " .. seed .. ")", function()
  local folder = files.folder()
  teardown(function() files.remove(folder) end)

  it("is the union of the boxes' bytes, sorted, merged where the gaps are small", function()
    local kinds = { { "|u1", 1 }, { "<i2", 2 }, { "<f4", 4 }, { "<f8", 8 } }
    for case = 1, 150 do
      local kind = kinds[math.random(#kinds)]
      local shape, inner = { math.random(1, 12) }, {}
      for d = 1, math.random(0, 4) do
        inner[d] = math.random() < 0.3 and math.random(2000, 9000) or math.random(1, 7)
        if product(inner) > 3e5 then inner[d] = 3 end
        shape[d + 1] = inner[d]
      end
      local box = {}
      for d, size in ipairs(inner) do
        local start = math.random(0, size - 1)
        box[d] = math.random() < 0.3 and { 0, size } or { start, math.random(start, size) }
      end
      local path, first = hole(folder, "random.npy", kind[1], kind[2], shape)
      local source = shardrt.source.npy { x = path }
      local samples, expected = {}, {}
      for i = 1, math.random(0, 20) do
        samples[i] = math.random(0, shape[1] - 1)
        runs_of(expected, first + samples[i] * product(inner) * kind[2], inner, box, kind[2])
      end
      assert.same(joined(expected), (extents_of(source, 0, samples, box)), "case " .. case)
    end
  end)

  it("is of each file its own, whatever stands between", function()
    local a, a_first = hole(folder, "a.npy", "|u1", 1, { 100, 1000 })
    local b, b_first = hole(folder, "b.npy", "<i4", 4, { 100 })
    local source = shardrt.source.npy { a = a, b = b }
    local field = {}
    for f = 0, 1 do field[ffi.string(C.shardrt_source_field(source, f).name)] = f end
    assert.same({ { a_first + 7000, a_first + 9000 } }, (extents_of(source, field.a, { 8, 7 })))
    local ranges, paths = extents_of(source, field.b, { 99, 3, 50 }, {})
    assert.same({ { b_first + 12, b_first + 400 } }, ranges)
    assert.same({ b }, paths)
    -- Of a view: by the numbers that the samples have below it, and nothing for what is computed.
    local view = source:shard(10, 3):enumerate "n"
    for f = 0, 2 do field[ffi.string(C.shardrt_source_field(view, f).name)] = f end
    assert.same({ { a_first + 23000, a_first + 24000 }, { a_first + 93000, a_first + 94000 } },
      (extents_of(view, field.a, { 9, 2 })))
    assert.same({}, (extents_of(view, field.n, { 0, 1 }, {})))
    -- Through transforms: what they need; whole samples where that differs from one to the next.
    local cropped = source:map { a = { shardrt.transform.crop { size = { 10 } } } }
    for f = 0, 0 do field[ffi.string(C.shardrt_source_field(cropped, f).name)] = f end
    assert.same({ { a_first + 5000, a_first + 5010 } }, (extents_of(cropped, field.a, { 5 }, { { 0, 10 } })))
    cropped = source:map { a = { shardrt.transform.random_crop { size = { 10 } } } }
    assert.same({ { a_first + 5000, a_first + 6000 } }, (extents_of(cropped, field.a, { 5 }, { { 0, 10 } })))
  end)

  it("is, of views that choose samples, what they choose", function()
    local ROW = 50000
    local a, first = hole(folder, "a.npy", "|u1", 1, { 10, ROW })
    local b = hole(folder, "b.npy", "|u1", 1, { 10, ROW })
    local both = shardrt.concat { shardrt.source.npy { x = a }, shardrt.source.npy { x = b }, part = "part" }
    local function row(i, start, stop) return { first + i * ROW + (start or 0), first + i * ROW + (stop or ROW) } end
    local ranges, paths = extents_of(both, 0, { 12, 3 }, { { 0, 7 } })
    if paths[1] == b then ranges = { ranges[2], ranges[1] } end
    assert.same({ row(3, 0, 7), row(2, 0, 7) }, ranges)
    assert.same({}, (extents_of(both, 1, { 12, 3 }, {})))
    local mixed = shardrt.mix { { both:map { part = false }, 1 }, { shardrt.source.npy { x = b }, 1 } }
    assert.same({ row(4) }, (extents_of(mixed, 0, { 24 }))) -- as numbered in a concatenation
    shardrt.ndarray.from_table({ false, true, false, true, false, false, true, false, true, true }, "bool")
      :save(folder .. "/keep.npy")
    local kept = shardrt.source.npy { keep = folder .. "/keep.npy", x = a }:filter { keep = {} }
    assert.same({ row(1), row(6) }, (extents_of(kept, 1, { 2, 0 })))
    local tokens = files.write(folder, "t.bin", "")
    assert(os.execute(("truncate -s 600000 '%s'"):format(tokens)) == 0)
    local windows = shardrt.source.tokens(tokens, { window = 9, stride = 20000, dtype = "uint16" })
    assert.same({ { 40000, 40018 }, { 120002, 120006 } }, joined((function()
      local one, two = extents_of(windows, 0, { 1 }), extents_of(windows, 0, { 3 }, { { 1, 3 } })
      return { one[1], two[1] }
    end)()))
    local flat, flat_first = hole(folder, "flat.npy", "|u1", 1, { 300000 })
    local offsets = shardrt.ndarray.empty({ 5 }, "int64")
    for i, offset in ipairs { 0, 60000, 60000, 140000, 240000 } do offsets.data[i - 1] = offset end
    local ragged = shardrt.source.ragged { x = { data = flat, offsets = offsets } }
    assert.same({ { flat_first, flat_first + 60000 }, { flat_first + 140000, flat_first + 240000 } },
      (extents_of(ragged, 0, { 3, 1, 0 })))
    local rows = ragged:pack { length = 160000 } -- the first with the last, the third alone
    assert.same({ { flat_first, flat_first + 60000 }, { flat_first + 140000, flat_first + 240000 } },
      (extents_of(rows, 0, { 0 }, { { 0, 5 } })))
    assert.same({}, (extents_of(rows, 1, { 0 }, { { 0, 5 } })))
  end)

  it("is nothing for arrays, the unpacked file for a packed one", function()
    assert.same({}, (extents_of(shardrt.source.array { x = shardrt.ndarray.zeros { 9, 9 } }, 0, { 1, 2 })))
    local plain = files.write(folder, "x.idx", files.idx(8, { 50, 4 }, files.bytes(200)))
    local ranges, paths = extents_of(shardrt.source.idx({ x = files.gzip(plain) }, { cache = folder .. "/cache" }),
      0, { 3, 40 })
    assert.same({ { 12 + 12, 12 + 164 } }, ranges)
    assert.truthy(paths[1]:find(folder .. "/cache/", 1, true), paths[1])
  end)

  it("is the records of TFRecord files", function()
    local function little(n, bytes) -- as text
      local out = {}
      for i = 1, bytes do out[i] = string.char(math.floor(n / 256 ^ (i - 1)) % 256) end
      return table.concat(out)
    end
    local function checksum(data)
      local crc = C.crc32c(0, data, #data)
      return little((bit.ror(crc, 15) + 0xa282ead8) % 2 ^ 32, 4)
    end
    local function field(number, data) -- of a protocol buffer: bytes of a length below 2^14
      return string.char(number * 8 + 2, #data % 128 + 128, math.floor(#data / 128)) .. data
    end
    local paths, starts = {}, {}
    for file = 1, 2 do
      local words, at = {}, 0
      for _ = 1, 6 do
        local value = files.bytes(math.random(1, 9000))
        local data = field(1, field(1, field(1, "x") .. field(2, field(1, field(1, value)))))
        local length = little(#data, 8)
        starts[#starts + 1] = { at + 12, at + 12 + #data, file }
        words[#words + 1] = length .. checksum(length) .. data .. checksum(data)
        at = at + 16 + #data
      end
      paths[file] = files.write(folder, file .. ".tfrecord", table.concat(words))
    end
    local source = shardrt.source.tfrecord(paths)
    assert.equal(12, #source)
    local expected = { joined { starts[1], starts[4] }, joined { starts[9], starts[12] } }
    local ranges, of = extents_of(source, 0, { 11, 3, 8, 0 })
    local got = { {}, {} }
    for i, range in ipairs(ranges) do table.insert(got[of[i] == paths[1] and 1 or 2], range) end
    assert.same(expected, got)
  end)

  it("is the members of tar files", function()
    local inside, names, parts = folder .. "/members", {}, {}
    os.execute("mkdir " .. inside)
    for i = 1, 5 do
      for _, kind in ipairs { "a", "b" } do
        names[#names + 1] = ("%d.%s"):format(i, kind)
        parts[names[#names]] = files.bytes(20000 + math.random(20000)) .. names[#names]
        files.write(inside, names[#names], parts[names[#names]])
      end
    end
    local path = folder .. "/members.tar"
    assert.equal(0, os.execute(("cd %s && tar cf %s %s"):format(inside, path, table.concat(names, " "))))
    local source, packed = shardrt.source.tar(path), files.slurp(path)
    local field = {}
    for f = 0, 1 do field[ffi.string(C.shardrt_source_field(source, f).name)] = f end
    for kind, f in pairs(field) do
      local expected = {}
      for i, sample in ipairs { 0, 1, 4 } do
        local start, stop = packed:find(parts[("%d.%s"):format(sample + 1, kind)], 1, true)
        expected[i] = { start - 1, stop }
      end
      assert.same(joined(expected), (extents_of(source, f, { 4, 0, 1 })))
    end
  end)

  it("needs memory only where the room is used up", function()
    local source = shardrt.source.npy { x = (hole(folder, "far.npy", "|u1", 1, { 64, 100000 })) }
    local samples = {}
    for i = 1, 32 do samples[i] = 64 - 2 * i end
    local numbers = ffi.new("int64_t[32]", samples)
    for n = 1, 8 do
      local list = ffi.new "struct extents"
      assert(C.extents_set(4, list) == 0)
      C.shardrt_alloc_fail_at(n)
      local code = C.source_extents(source, 0, numbers, 32, nil, list)
      C.shardrt_alloc_fail_at(0)
      assert.equal(n <= 3 and C.SHARDRT_ENOMEM or 0, code) -- 4, 8, 16, 32
      C.extents_clear(list)
    end
  end)
end)

-- ---- reading ----

local ROWS, ROW = 512, 3 * PAGE + 100 -- of the file that is evicted

local text = files.npy { dict = files.dict("|u1", { ROWS, ROW }), payload = files.bytes(ROWS * ROW) }
local first = #text - ROWS * ROW -- where its data begins

-- A file of these bytes that nobody has mapped.
local written = 0
local function fresh(folder)
  written = written + 1
  return store(folder, ("rows%d.npy"):format(written), text)
end

local function pages_of(sample)
  local start = first + sample * ROW
  return math.floor(start / PAGE), math.floor((start + ROW - 1) / PAGE)
end

local function are_resident(pages, sample)
  local from, to = pages_of(sample)
  for page = from, to do
    if not pages[page] then return false end
  end
  return true
end

local function with_way(name, run)
  ffi.C.setenv("SHARDRT_AHEAD", name, 1)
  local ok, message = pcall(run)
  ffi.C.unsetenv "SHARDRT_AHEAD"
  if not ok then error(message, 0) end
end

local function ahead_new(way)
  local out = ffi.new "struct ahead *[1]"
  assert(C.ahead_new(way, out) == 0)
  return out[0]
end

-- A source of the file's rows of which nothing is there but its first pages, which are read when it is opened.
local function evicted(folder)
  local path = fresh(folder)
  local source = shardrt.source.npy { x = path }
  for _ = 1, 100 do
    evict(path)
    if not resident(path, #text)[math.floor(#text / PAGE)] then break end
    ffi.C.usleep(10000)
  end
  return source, path
end

-- Whether the kernel allows io_uring here.
local function first_way(source)
  local ahead = ahead_new(RING)
  C.source_extents(source, 0, ffi.new("int64_t[1]", ROWS / 2), 1, nil, C.ahead_extents(ahead))
  C.ahead_read(ahead)
  local way = C.ahead_way(ahead)
  C.ahead_free(ahead)
  return way ~= nil and ffi.string(way)
end

describe("reading ahead", function()
  local folder = files.folder()
  teardown(function() files.remove(folder) end)

  -- The ways that there are here.
  local ways = { threads = THREADS }
  if can_evict and first_way((evicted(folder))) == "io_uring" then ways.io_uring = RING end

  it("can use io_uring here", function()
    if not ways.io_uring then pending "io_uring is not allowed here" end
    assert.equal(RING, ways.io_uring)
  end)

  for name, way in pairs(ways) do
    it_evicts("brings what is missing, and little else, by " .. name, function()
      local source, path = evicted(folder)
      local ahead = ahead_new(way)
      local samples, asked = ffi.new "int64_t[20]", {}
      for i = 0, 19 do
        samples[i] = math.random(ROWS / 2, ROWS - 1)
        asked[tonumber(samples[i])] = true
      end
      local function add() assert(C.source_extents(source, 0, samples, 20, nil, C.ahead_extents(ahead)) == 0) end
      assert.is_false(C.ahead_is_missing(ahead)) -- nothing was asked
      add()
      assert.is_true(C.ahead_is_missing(ahead))
      assert.equal(0, tonumber(C.ahead_extents(ahead).count))
      assert.is_true(C.ahead_way(ahead) == nil)
      add()
      assert.is_true(C.ahead_read(ahead) >= 4 * PAGE)
      assert.equal(name, ffi.string(C.ahead_way(ahead)))
      C.ahead_free(ahead) -- waits
      local pages, count = resident(path, #text), 0
      for sample in pairs(asked) do assert.is_true(are_resident(pages, sample), "sample " .. sample) end
      for page = pages_of(ROWS / 2 - 8), #pages do count = count + (pages[page] and 1 or 0) end
      assert.is_true(count <= 20 * (5 + GAP / PAGE), count .. " pages")

      -- Again: nothing is missing, nothing is read.
      ahead = ahead_new(way)
      add()
      assert.is_false(C.ahead_is_missing(ahead))
      add()
      assert.equal(0, tonumber(C.ahead_read(ahead)))
      assert.is_true(C.ahead_way(ahead) == nil)
      C.ahead_free(ahead)
    end)

    it_evicts("takes more than fits in flight, and more than one read each, by " .. name, function()
      local source, path = evicted(folder)
      local ahead = ahead_new(way)
      local all = ffi.new("int64_t[?]", ROWS)
      for i = 0, ROWS - 1 do all[i] = ROWS - 1 - i end
      C.source_extents(source, 0, all, ROWS, nil, C.ahead_extents(ahead))
      assert.is_true(C.ahead_read(ahead) >= ROWS * ROW / 2)
      C.ahead_free(ahead)
      local pages = resident(path, #text)
      for sample = 0, ROWS - 1 do assert.is_true(are_resident(pages, sample)) end
    end)

    it_evicts("does no harm where the file has been replaced, by " .. name, function()
      local source, path = evicted(folder)
      os.rename(path, path .. ".old")
      files.write("", path, "something else")
      local ahead = ahead_new(way)
      C.source_extents(source, 0, ffi.new("int64_t[1]", 500), 1, nil, C.ahead_extents(ahead))
      assert.equal(0, tonumber(C.ahead_read(ahead)))
      C.ahead_free(ahead)
      local read = source:read(500, 1).x
      assert.equal(text:sub(first + 500 * ROW + 1, first + 501 * ROW), ffi.string(read.data, read.bytes))
    end)
  end

  it("counts nothing where io_uring breaks, and ends", function()
    if not ways.io_uring then pending "io_uring is not allowed here" end
    local function rings()
      local list, target = {}, ffi.new "char[64]"
      for fd = 0, 1023 do
        local bytes = tonumber(ffi.C.readlink("/proc/self/fd/" .. fd, target, 64))
        if bytes > 0 and ffi.string(target, bytes):find "io_uring" then list[fd] = true end
      end
      return list
    end
    local before = rings()
    local source, path = evicted(folder)
    local ahead = ahead_new(RING)
    local function read(sample)
      assert(C.source_extents(source, 0, ffi.new("int64_t[1]", sample), 1, nil, C.ahead_extents(ahead)) == 0)
      return tonumber(C.ahead_read(ahead))
    end
    assert.is_true(read(ROWS - 1) > 0)
    local null, broken = ffi.C.open("/dev/null", 0), 0
    for fd in pairs(rings()) do
      if not before[fd] then
        ffi.C.dup2(null, fd)
        broken = broken + 1
      end
    end
    ffi.C.close(null)
    assert.equal(1, broken)
    for sample = ROWS / 2, ROWS / 2 + 200, 20 do
      evict(path)
      assert.equal(0, read(sample))
    end
    C.ahead_free(ahead)
  end)

  it("reports every failure to make room", function()
    for n = 1, 20 do
      local out = ffi.new "struct ahead *[1]"
      C.shardrt_alloc_fail_at(n)
      local code = C.ahead_new(RING, out)
      local met = tonumber(C.shardrt_alloc_fail_at(0)) >= n
      if not met then
        C.ahead_free(out[0])
        assert.is_true(n > 3)
        return
      end
      assert.equal(C.SHARDRT_ENOMEM, code)
    end
    error "it never succeeded"
  end)
end)

-- ---- the loader ----

local BATCH = 8

describe("a loader", function()
  local folder = files.folder()
  teardown(function() files.remove(folder) end)

  local function loader(o)
    o = o or {}
    return shardrt.loader {
      source = o.source or evicted(folder), batch_size = BATCH, shuffle = true, seed = 7,
      epochs = o.epochs or 1, prefetch = o.prefetch or 1, num_workers = 1, pipeline = o.pipeline,
    }
  end

  local function samples_of(epoch, step)
    local samples = {}
    for i = 1, BATCH do
      samples[i] = tonumber(C.shardrt_order_index(7, epoch, ROWS, step * BATCH + i - 1))
    end
    return samples
  end

  local function check(batch, epoch, step)
    local host = shardrt.device_get(batch.x)
    for i, sample in ipairs(samples_of(epoch, step)) do
      local start = first + sample * ROW
      assert.equal(text:sub(start + 1, start + ROW), ffi.string(host.data + (i - 1) * ROW, ROW), "step " .. step)
    end
  end

  for _, way in ipairs { "io_uring", "threads" } do
    for _, pipeline in ipairs { "per_process", "global" } do
      it_evicts(("has batches there that no worker was set on, by %s, %s"):format(way, pipeline), function()
        with_way(way, function()
          local source, path = evicted(folder)
          local made = loader { source = source, pipeline = pipeline }
          check(made(), 0, 0)
          -- Batch 1 is in the making; 2 and all that follow nobody touches.
          local missing
          for _ = 1, 3000 do
            missing = nil
            local pages = resident(path, #text)
            for step = 2, 20 do
              for _, sample in ipairs(samples_of(0, step)) do
                if not are_resident(pages, sample) then missing = missing or step end
              end
            end
            if not missing then break end
            ffi.C.usleep(10000)
          end
          assert.is_nil(missing)
          local stats = made:stats()
          assert.is_true(stats.bytes_ahead > 0)
          assert.is_true(stats.ahead == way or stats.ahead == "threads", stats.ahead) -- where there is no io_uring
        end)
      end)
    end

    it_evicts("gives the same bytes however often its file is evicted, and wherever it goes, by " .. way, function()
      with_way(way, function()
        local source, path = evicted(folder)
        local made = loader { source = source, epochs = 2, prefetch = 3 }
        local steps = ROWS / BATCH
        for epoch = 0, 1 do
          for step = 0, steps - 1 do
            if step % 7 == 0 then evict(path) end
            check(made(), epoch, step)
          end
        end
        assert.is_nil(made())
        local state
        source, path = evicted(folder)
        made = loader { source = source, epochs = 2 }
        for step = 0, 9 do
          if step == 3 then state = made:state() end
          check(made(), 0, step)
        end
        for _ = 1, 20 do
          evict(path)
          made:restore(state)
          check(made(), 0, 3)
          check(made(), 0, 4)
        end
      end)
    end)
  end

  it_evicts("may be let go at any time", function()
    for round = 1, 30 do
      with_way(round % 2 == 0 and "threads" or "io_uring", function()
        local made = loader()
        for _ = 1, round % 4 do made() end
        made = nil -- luacheck: ignore
        collectgarbage()
      end)
    end
  end)

  it("reads nothing ahead where all is there", function()
    local made = loader { source = shardrt.source.npy { x = fresh(folder) }, epochs = 3 }
    for batch in made do assert(batch.x) end
    local stats = made:stats()
    assert.equal(0, stats.bytes_ahead)
    assert.is_nil(stats.ahead)
  end)

  it("reads nothing ahead where it shall not, and says which words there are", function()
    with_way("off", function()
      local made = loader()
      check(made(), 0, 0)
      assert.same({ "off", 0 }, { made:stats().ahead, made:stats().bytes_ahead })
    end)
    with_way("uring", function()
      assert.truthy(files.message(loader):find("SHARDRT_AHEAD=uring: it is io_uring, threads or off", 1, true))
    end)
  end)

  it_evicts("uses threads where the kernel allows no io_uring", function()
    local source, path = evicted(folder)
    local result = mpi.run { devices = 2, args = { path }, source = [[
      local ffi = require "ffi"
      ffi.cdef "struct sock_filter { uint16_t code; uint8_t jt, jf; uint32_t k; };"
      ffi.cdef "struct sock_fprog { unsigned short len; struct sock_filter *filter; };"
      ffi.cdef "int prctl(int option, ...);"
      local filter = ffi.new("struct sock_filter[4]", {
        { 0x20, 0, 0, 0 }, -- the number of the system call
        { 0x15, 0, 1, 425 }, -- io_uring_setup:
        { 0x06, 0, 0, 0x00050000 + 1 }, -- EPERM
        { 0x06, 0, 0, 0x7fff0000 }, -- else it goes on
      })
      local program = ffi.new("struct sock_fprog", { 4, filter })
      local function long(n) return ffi.cast("long", n) end
      if ffi.C.prctl(38, long(1), long(0), long(0), long(0)) ~= 0 or ffi.C.prctl(22, long(2), program) ~= 0 then
        print "no filter"
        return
      end
      local shardrt = require "shardrt"
      local source = shardrt.source.npy { x = arg[1] }
      local loader = shardrt.loader {
        source = source, batch_size = 8, epochs = 1, shuffle = true, prefetch = 1, num_workers = 1,
      }
      local steps = loader().x.shape[1] / 8
      ffi.cdef "int usleep(unsigned microseconds);"
      for _ = 1, 3000 do -- what is behind the next batch nobody else touches
        if loader:stats().bytes_ahead > 0 then break end
        ffi.C.usleep(10000)
      end
      for batch in loader do steps = steps + batch.x.shape[1] / 8 end
      local stats = loader:stats()
      print(steps, stats.ahead, stats.bytes_ahead > 0)
    ]] }
    assert.equal(ROWS, #source) -- it was mapped until here, and its first page there
    if result.stdout == "no filter\n" then pending "system calls cannot be filtered here" end
    assert.equal(("%d\tthreads\ttrue\n"):format(ROWS / BATCH), result.stdout, result.output)
  end)
end)

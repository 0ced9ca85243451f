-- How many workers and batches ahead: chosen from the machine, then from how steps go.
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"
local mpi = require "tests.support.mpi"

ffi.cdef [[
double cgroup_cores(const char *root, const char *groups);
double cgroup_bytes(const char *root, const char *groups);
int memcmp(const void *a, const void *b, size_t n);
]]

local function pace(workers)
  return ffi.new("shardrt_pace", { workers = workers or 7, most_workers = 8, prefetch = 2, most_prefetch = 12 })
end

local function look(p, waited, busy, full, slept)
  local changed = C.shardrt_pace_look(p, waited, busy, full, slept or 0)
  return changed, p.workers, p.prefetch
end

local function is(expected, ...) assert.same(expected, { ... }) end

describe("the pace of a loader", function()
  it("makes more batches ahead while at times all are there, at others none, as far as memory goes", function()
    local p = pace()
    is({ true, 7, 4 }, look(p, 0.4, 0.5, 0.5))
    is({ true, 7, 8 }, look(p, 0.3, 0.5, 0.2))
    is({ true, 7, 12 }, look(p, 0.2, 0.5, 0.2))
    is({ false, 7, 12 }, look(p, 0.1, 0.5, 0.2))
  end)

  it("goes back where more batches ahead did not help, and stays there", function()
    local p = pace()
    is({ true, 7, 4 }, look(p, 0.4, 0.5, 0.5))
    is({ true, 7, 8 }, look(p, 0.2, 0.5, 0.5))
    is({ true, 7, 4 }, look(p, 0.19, 0.5, 0.5))
    is({ false, 7, 4 }, look(p, 0.4, 0.5, 0.5))
  end)

  it("changes nothing where the workers can do no more, or nobody waits and all are needed", function()
    local p = pace()
    is({ false, 7, 2 }, look(p, 0.9, 0.97, 0))
    is({ false, 7, 2 }, look(p, 0.9, 0.5, 0.01))
    is({ false, 7, 2 }, look(p, 0, 0.8, 1))
    is({ false, 7, 2 }, look(p, 0.03, 0.1, 0.5)) -- neither much nor little
  end)

  it("lets workers rest that nobody waits for, and takes them back when somebody does", function()
    local p = pace(8)
    is({ true, 3, 2 }, look(p, 0, 0.2, 1)) -- of 8, 1.6 were busy; half as much again is kept
    is({ true, 1, 2 }, look(p, 0, 0.1, 1))
    is({ false, 1, 2 }, look(p, 0, 0, 1))
    is({ true, 7, 2 }, look(p, 0.5, 0.99, 0))
  end)

  it("has a worker on the recipe's own core, too, where that waits after it has slept", function()
    local p = pace()
    is({ true, 8, 2 }, look(p, 0.2, 0.99, 0, 0.6))
    is({ false, 8, 2 }, look(p, 0, 0.01, 1, 0.6)) -- for good
  end)

  it("keeps to what the recipe has fixed", function()
    local p = pace()
    p.workers_fixed, p.prefetch_fixed = true, true
    is({ false, 7, 2 }, look(p, 0.5, 0.1, 0.5, 0.9))
    is({ false, 7, 2 }, look(p, 0, 0.1, 1))
  end)

  local function loader(options)
    options.source = shardrt.source.array { x = shardrt.ndarray.zeros({ 64, 1024 }, "uint8") }
    options.batch_size = 16
    return shardrt.loader(options)
  end

  it("is said in stats()", function()
    local stats = loader({}):stats()
    assert.is_true(stats.num_workers >= 1 and stats.prefetch >= 2, stats.why)
    assert.equal("a worker for each core but the recipe's own; some megabytes ahead, and at least 2 batches", stats.why)
    assert.is_true(stats.budget_bytes >= (stats.prefetch + 1) * stats.batch_bytes)
    stats = loader({ num_workers = 3, prefetch = 5, read_size = 4096 }):stats()
    is({ 3, 5, 4096 }, stats.num_workers, stats.prefetch, stats.read_size)
    assert.equal("num_workers as asked for; prefetch as asked for", stats.why)
  end)

  it("changes no batch: with reads of any size, and a pace that changes meanwhile", function()
    local source = shardrt.source.array { x = shardrt.ndarray.arange(96, "int32"):reshape { 32, 3 } }
    local function values(options)
      options.source, options.batch_size, options.shuffle, options.epochs = source, 8, true, 40
      local all, made = {}, shardrt.loader(options)
      for batch in made do all[#all + 1] = shardrt.device_get(batch.x):to_table() end
      return all
    end
    local expected = values { num_workers = 1, prefetch = 1 }
    assert.equal(160, #expected)
    assert.same(expected, values {})
    for _, size in ipairs { 1, 13, 25, 1000 } do assert.same(expected, values { read_size = size }) end
  end)
end)

describe("batches that no cache holds", function()
  it("are what smaller ones are", function()
    local rows, size = 1024, 601 -- of 4 bytes: no row but the first begins a line of the cache
    local host = shardrt.ndarray.arange(rows * size, "int32"):reshape { rows, size }
    local source = shardrt.source.array { x = host }:enumerate "id"
    local made = shardrt.loader { source = source, batch_size = rows / 2, shuffle = true, epochs = 1, prefetch = 1000 }
    assert.is_true(made:stats().budget_bytes > 2 ^ 30)
    local steps = 0
    for batch in made do
      local x, ids = shardrt.device_get(batch.x), shardrt.device_get(batch.id):to_table()
      for i, id in ipairs(ids) do
        local first = x.data + (i - 1) * size
        assert.equal(0, ffi.C.memcmp(first, host.data + tonumber(id) * size, 4 * size), "row " .. i)
      end
      steps = steps + 1
    end
    assert.equal(2, steps)
  end)
end)

describe("limits of control groups", function()
  local folder
  before_each(function() folder = mpi.folder() end)
  after_each(function() mpi.remove(folder) end)

  local function write(path, text)
    assert.equal(0, os.execute(("mkdir -p '%s'"):format((folder .. path):match "^(.*)/")))
    local file = assert(io.open(folder .. path, "w"))
    file:write(text)
    file:close()
  end
  local function cores() return C.cgroup_cores(folder .. "/fs", folder .. "/groups") end
  local function bytes() return C.cgroup_bytes(folder .. "/fs", folder .. "/groups") end

  it("are the least on the way up, in version 2", function()
    write("/groups", "0::/a/b\n")
    write("/fs/a/b/cpu.max", "max 100000\n")
    write("/fs/a/cpu.max", "150000 100000\n")
    write("/fs/cpu.max", "800000 100000\n")
    write("/fs/a/b/memory.max", "4096000\n")
    write("/fs/a/memory.max", "max\n")
    assert.equal(1.5, cores())
    assert.equal(4096000, bytes())
  end)

  it("are in folders of their controllers, in version 1; inside a container, in the roots of these", function()
    write("/groups", "12:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n3:cpuset:/\n0::/\n")
    write("/fs/cpu/cpu.cfs_quota_us", "250000\n")
    write("/fs/cpu/cpu.cfs_period_us", "100000\n")
    write("/fs/memory/docker/x/memory.limit_in_bytes", "1000000\n")
    write("/fs/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert.equal(2.5, cores())
    assert.equal(1000000, bytes())
    write("/fs/cpu/docker/x/cpu.cfs_quota_us", "-1\n")
    write("/fs/cpu/docker/x/cpu.cfs_period_us", "100000\n")
    assert.equal(2.5, cores())
  end)

  it("are none where no file says so, or says nonsense", function()
    assert.equal(math.huge, cores())
    write("/groups", "0::/\nrubbish\n7:cpuset\n")
    write("/fs/cpu.max", "\n")
    write("/fs/memory.max", "-\n")
    assert.equal(math.huge, cores())
    assert.equal(math.huge, bytes())
  end)
end)

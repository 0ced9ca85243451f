-- processes: 4 x 2
-- processes: 3 x 2
-- processes: 2 x 2
-- What the processes of a job gather from each other, and the global value of an array.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local arrays = require "tests.support.arrays"
local expect = require "tests.support.expect"

local P = arrays.P
local job = current.info
local count, device_count = job.process_count, job.process_count * job.devices_per_process

describe("jobs in several processes", function()
  it("are opened again, and a second one beside the first", function()
    local function open()
      local options, out = ffi.new "shardrt_options", ffi.new "shardrt_job *[1]"
      C.shardrt_options_init(options)
      options.devices = job.devices_per_process
      fail.check(C.shardrt_job_open(options, out))
      return out[0]
    end
    local mine, all = ffi.new "int32_t[1]", ffi.new("int32_t[?]", count)
    local function gather(where, number)
      mine[0] = number + job.process_index
      fail.check(C.shardrt_allgather(where, "numbers", mine, 4, all))
      for p = 0, count - 1 do assert.equal(number + p, all[p]) end
    end
    for turn = 1, 3 do
      local first, second = open(), open()
      assert.equal(job.process_index, C.shardrt_job_info_get(second).process_index)
      gather(second, 10 * turn)
      gather(first, 100 * turn)
      gather(current.job, 1000 * turn)
      fail.check(C.shardrt_job_close(first))
      gather(second, turn)
      fail.check(C.shardrt_job_close(second))
    end
  end)
end)

describe("a job of several processes", function()
  it("brings texts of any length to process 0, in their order, whatever runs out of memory", function()
    local text = ("%d"):format(job.process_index):rep(job.process_index * 300000)
    local out, n, code = ffi.new "shardrt_buffer *[1]", 0
    repeat
      n = n + 1
      C.shardrt_alloc_fail_at(n)
      code = C.shardrt_gather_texts(current.job, "texts", text, out)
      assert(code == 0 or code == C.SHARDRT_ENOMEM)
    until code == 0
    C.shardrt_alloc_fail_at(0)
    assert.is_true(n > 2)
    local expected = {}
    for p = 0, job.process_index == 0 and count - 1 or -1 do
      expected[p + 1] = ("%d"):format(p):rep(p * 300000) .. "\0"
    end
    local got = ffi.string(C.shardrt_buffer_data(out[0]), C.shardrt_buffer_bytes(out[0]))
    C.shardrt_buffer_free(out[0])
    assert.is_true(got == table.concat(expected)) -- not to be printed
  end)

  it("gathers from all, small and in pieces", function()
    assert.same({ tonumber(os.getenv "OMPI_COMM_WORLD_SIZE"), 2 }, { count, job.devices_per_process })
    for _, bytes in ipairs { 0, 1, 240, 241, 5000, 2 ^ 24 + 12345 } do
      local mine, all = ffi.new("uint8_t[?]", bytes), ffi.new("uint8_t[?]", bytes * count)
      for i = 0, bytes - 1 do mine[i] = (i * (job.process_index + 3)) % 251 end
      fail.check(C.shardrt_allgather(current.job, "bytes", mine, bytes, all))
      local wrong = 0 -- busted's assert would take a minute for them all
      for p = 0, count - 1 do
        for i = 0, bytes - 1 do
          if all[p * bytes + i] ~= (i * (p + 3)) % 251 then wrong = wrong + 1 end
        end
      end
      assert.equal(0, wrong, bytes .. " bytes")
    end
  end)

  if count == 4 then
    it("does not burn a core while it waits", function()
      ffi.cdef "int usleep(unsigned microseconds);"
      fail.check(C.shardrt_barrier(current.job, "start"))
      local before = os.clock()
      if job.process_index == 1 then ffi.C.usleep(2000000) end
      fail.check(C.shardrt_barrier(current.job, "end"))
      local used = os.clock() - before -- CPU seconds, while about 2 s went by
      assert.is_true(used <= 1, used)
    end)
  end
end)

describe("process_allgather", function()
  it("gives every process the whole value, whatever the layout", function()
    math.randomseed(require "tests.support.seed")
    local sizes = { uint8 = 1, int16 = 2, float32 = 4, int64 = 8 }
    local function pick(list) return list[math.random(#list)] end
    for case = 1, 60 do
      local mesh_sizes, names, devices
      repeat
        mesh_sizes = pick { { 8 }, { 4, 2 }, { 2, 4 }, { 2, 2, 2 }, { 6 }, { 3, 2 }, { 4 }, { 2, 2 }, { 1 }, { 2 } }
        names, devices = {}, 1
        for i, size in ipairs(mesh_sizes) do names[i], devices = ("abc"):sub(i, i), devices * size end
      until devices <= device_count
      local ids, all = {}, {}
      for i = 1, device_count do all[i] = i - 1 end
      for i = 1, devices do ids[i] = table.remove(all, math.random(#all)) end
      local ndim = math.random(0, 4)
      local free, entries, shape, elements = { unpack(names) }, {}, {}, 1
      for d = 1, ndim do
        local entry, cut = {}, 1
        while #free > 0 and math.random() < 0.5 do
          local name = table.remove(free, math.random(#free))
          entry[#entry + 1] = name
          cut = cut * mesh_sizes[name:byte() - 96]
        end
        entries[d] = #entry > 0 and entry or nil
        shape[d] = cut * math.random(0, 3)
        elements = elements * shape[d]
      end
      local dtype = pick { "uint8", "int16", "float32", "int64" }
      local bytes = elements * sizes[dtype]
      local value = ffi.new("uint8_t[?]", bytes + 1)
      for i = 0, bytes - 1 do value[i] = math.random(0, 255) end
      local s = arrays.sharding(mesh_sizes, names, P(unpack(entries, 1, ndim)), ids)
      local x = arrays.global(s, dtype, shape, value)
      local got = ffi.new("uint8_t[?]", bytes + 1)
      fail.check(C.shardrt_process_allgather(current.job, x, got))
      local what = ("case %d: %s of {%s} on %s"):format(case, dtype, table.concat(shape, ", "), tostring(s))
      assert.is_true(ffi.string(got, bytes) == ffi.string(value, bytes), what)
    end
  end)

  it("sends large boxes in pieces", function()
    local rows, columns = 3, 2 * 1000 * 1003 -- boxes of 12 MB, in runs that no piece divides
    local value = ffi.new("int32_t[?]", rows * columns)
    for i = 0, rows * columns - 1 do value[i] = i * 2654435761 % 2147483647 end
    -- Over two devices, the second of another process.
    local x = arrays.global(arrays.sharding({ 2 }, { "a" }, P(nil, "a"), { 0, 2 }), "int32", { rows, columns }, value)
    local got = ffi.new("int32_t[?]", rows * columns)
    fail.check(C.shardrt_process_allgather(current.job, x, got))
    assert.is_true(ffi.string(got, rows * columns * 4) == ffi.string(value, rows * columns * 4))
  end)

  it("frees what it took and says so when memory runs out, for every allocation", function()
    local value = ffi.new("int32_t[?]", 64)
    for i = 0, 63 do value[i] = i * i end
    local x = arrays.global(arrays.sharding({ 2, 2 }, { "a", "b" }, P "a"), "int32", { 8, 8 }, value)
    local got, n, code = ffi.new("int32_t[?]", 64), 0
    repeat
      n = n + 1
      C.shardrt_alloc_fail_at(n)
      code = C.shardrt_process_allgather(current.job, x, got)
      assert(code == 0 or code == C.SHARDRT_ENOMEM)
    until code == 0
    C.shardrt_alloc_fail_at(0)
    assert.is_true(n > 2)
    for i = 0, 63 do assert.equal(i * i, got[i]) end
  end)

  it("refuses an array that has no data", function()
    local x = arrays.new(arrays.sharding({ 2 }, { "a" }, P "a", { 0, 2 }), "int32", { 8 })
    local code = C.shardrt_process_allgather(current.job, x, ffi.new "int32_t[8]")
    assert.is_true(code < 0)
    expect.contains(ffi.string(C.shardrt_error_message()), "process_allgather")
  end)
end)

-- The job: who is in it, what its processes gather from each other, and the global value of an array.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local arrays = require "tests.support.arrays"
local mpi = require "tests.support.mpi"

local P = arrays.P

local head = [[
package.path = "./?.lua;" .. package.path
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local arrays = require "tests.support.arrays"
local P = arrays.P
local job = current.info
]]

local run = mpi.runner(head)

local contains = require("tests.support.expect").contains

describe("a process alone", function()
  local job = current.info

  it("is the only one of its job", function()
    assert.equal(0, job.process_index)
    assert.equal(1, job.process_count)
  end)

  it("gathers what it gives, small or large", function()
    for _, bytes in ipairs { 0, 1, 8, 240, 241, 100000 } do
      local mine, all = ffi.new("uint8_t[?]", bytes + 1), ffi.new("uint8_t[?]", bytes + 1)
      for i = 0, bytes - 1 do mine[i] = (i * 7 + 1) % 251 end
      all[bytes] = 99
      assert.equal(0, C.shardrt_allgather(current.job, "test", mine, bytes, all))
      assert.equal(ffi.string(mine, bytes), ffi.string(all, bytes))
      assert.equal(99, all[bytes])
    end
    assert.equal(0, C.shardrt_barrier(current.job, "test"))
  end)

  it("refuses options that make no sense, and leaves nothing behind", function()
    local options, out = ffi.new "shardrt_options", ffi.new "shardrt_job *[1]"
    local wrong = { devices = -1, check = 3, transport = 4, timeout = 0, platform = "toaster", planning = 1 }
    for name, value in pairs(wrong) do
      C.shardrt_options_init(options)
      options[name], options.size = value, name == "planning" and 0 or 1
      assert.equal(C.SHARDRT_EINVAL, C.shardrt_job_open(options, out), name)
      C.shardrt_job_abandon(out[0]) -- of a platform that is not there the process has a job to say so in
    end
    C.shardrt_job_abandon(nil)
    assert.equal(1, current.info.process_count)
  end)
end)

-- A job of this process alone, beside the one that the program has.
local function open(o)
  local options, out = ffi.new "shardrt_options", ffi.new "shardrt_job *[1]"
  C.shardrt_options_init(options)
  for name, value in pairs(o) do options[name] = value end
  local code = C.shardrt_job_open(options, out)
  return code == 0 and out[0] or nil, code
end

local ALONE = { transport = C.SHARDRT_TRANSPORT_ALONE, check = C.SHARDRT_CHECK_ALL }

describe("jobs in one process", function()
  it("are opened and closed one after the other, and what was made in one may outlive it", function()
    local kept
    for turn = 1, 20 do
      local job = assert(open(ALONE))
      local x = arrays.global(arrays.sharding({ 1 }, { "d" }, P()), "int32", { 3 }, ffi.new("int32_t[3]", turn))
      local got = ffi.new "int32_t[3]"
      assert.equal(0, C.shardrt_process_allgather(job, x, got))
      assert.equal(turn, got[0])
      assert.equal(0, C.shardrt_check_array(job, "x", x))
      assert.equal(0, C.shardrt_job_close(job))
      if kept then
        assert.equal(0, C.shardrt_array_gather(kept, got))
        assert.equal(turn - 1, got[0])
      end
      kept = x
    end
    assert.equal(0, C.shardrt_barrier(current.job, "still there"))
  end)

  it("are several at once, each with its own options, steps and place in the recipe", function()
    local one, other = assert(open(ALONE)), assert(open { transport = C.SHARDRT_TRANSPORT_ALONE, timeout = 7 })
    local planned = assert(open { planning = 1, rank = 2, size = 5, devices = 3 })
    assert.equal(C.SHARDRT_CHECK_ALL, C.shardrt_job_info_get(one).check)
    assert.equal(300, C.shardrt_job_info_get(one).timeout)
    assert.equal(C.SHARDRT_CHECK_SAMPLE, C.shardrt_job_info_get(other).check)
    assert.equal(7, C.shardrt_job_info_get(other).timeout)
    local info = C.shardrt_job_info_get(planned)
    assert.same({ 2, 5, 3, 1 }, { info.process_index, info.process_count, info.devices_per_process, info.planning })
    C.shardrt_job_at(one, "recipe.lua:1")
    C.shardrt_job_step(one, "step 1 of the loader")
    for _, job in ipairs { other, one, planned, other } do assert.equal(0, C.shardrt_barrier(job, "here")) end
    local mine, all = ffi.new("int64_t[1]", 7), ffi.new "int64_t[5]"
    assert.equal(0, C.shardrt_allgather(planned, "numbers", mine, 8, all))
    assert.equal(7, tonumber(all[4]))
    assert.equal(0, C.shardrt_job_close(one))
    assert.equal(0, C.shardrt_barrier(other, "alone again"))
    assert.equal(0, C.shardrt_job_close(planned))
    C.shardrt_job_abandon(other)
  end)

  it("have as many devices each", function()
    local devices = current.info.devices_per_process
    local job, code = open { transport = C.SHARDRT_TRANSPORT_ALONE, devices = devices + 1 }
    assert.is_nil(job)
    assert.equal(C.SHARDRT_EINVAL, code)
    contains(ffi.string(C.shardrt_error_message()), ("a job with %d devices, and cannot be in one with %d yet"):format(
      devices, devices + 1))
  end)

  it("give back what they took where memory ends", function()
    local n, job = 0
    repeat
      n = n + 1
      C.shardrt_alloc_fail_at(n)
      local code
      job, code = open(ALONE)
      assert.is_true(job ~= nil or code == C.SHARDRT_ENOMEM)
    until job or n > 100
    C.shardrt_alloc_fail_at(0)
    assert.is_true(n > 3 and n < 100)
    assert.equal(0, C.shardrt_job_close(job))
  end)

  it("are opened again by several processes, and a second one beside the first", function()
    local result = run [[
      local function open()
        local options, out = ffi.new "shardrt_options", ffi.new "shardrt_job *[1]"
        C.shardrt_options_init(options)
        options.devices = job.devices_per_process
        fail.check(C.shardrt_job_open(options, out))
        return out[0]
      end
      local mine, all = ffi.new "int32_t[1]", ffi.new "int32_t[4]"
      local function gather(where, number)
        mine[0] = number + job.process_index
        fail.check(C.shardrt_allgather(where, "numbers", mine, 4, all))
        for p = 0, 3 do assert(all[p] == number + p) end
      end
      for turn = 1, 3 do
        local first, second = open(), open()
        assert(C.shardrt_job_info_get(second).process_index == job.process_index)
        gather(second, 10 * turn)
        gather(first, 100 * turn)
        gather(current.job, 1000 * turn)
        fail.check(C.shardrt_job_close(first))
        gather(second, turn)
        fail.check(C.shardrt_job_close(second))
      end
      fail.check(C.shardrt_barrier(current.job, "the end"))
    ]]
    assert.equal(0, result.status, result.output)
  end)
end)

describe("a job of several processes", function()
  it("knows its processes and gathers from all, small and in pieces", function()
    local result = run([[
      assert(job.process_count == 3 and job.devices_per_process == 2)
      for _, bytes in ipairs { 0, 1, 240, 241, 5000, 2^24 + 12345 } do
        local mine, all = ffi.new("uint8_t[?]", bytes), ffi.new("uint8_t[?]", bytes * 3)
        for i = 0, bytes - 1 do mine[i] = (i * (job.process_index + 3)) % 251 end
        fail.check(C.shardrt_allgather(current.job, "bytes", mine, bytes, all))
        for p = 0, 2 do
          for i = 0, bytes - 1 do assert(all[p * bytes + i] == (i * (p + 3)) % 251) end
        end
      end
      io.write("process ", job.process_index, " fine\n")
    ]], { processes = 3 })
    assert.equal(0, result.status, result.output)
    for p = 0, 2 do contains(result.stdout, "process " .. p .. " fine\n") end
  end)

  it("refuses processes with different --devices", function()
    local result = mpi.shell(([[%s mpirun -n 2 \
      sh -c 'exec %s --devices $((OMPI_COMM_WORLD_RANK + 2)) /dev/null']]):format(mpi.environment, mpi.program()))
    assert.equal(1, result.status)
    contains(result.stderr, "process 0 has 2 devices, process 1 has 3")
  end)

  it("refuses processes that a launcher started together and that find themselves alone", function()
    local result = mpi.shell("OMPI_COMM_WORLD_SIZE=2 " .. mpi.program() .. " /dev/null")
    assert.equal(1, result.status)
    contains(result.stderr, "the launcher started 2 processes, but each finds itself alone")
  end)

  it("does not burn a core while it waits", function()
    local result = run [[
      ffi.cdef "int usleep(unsigned microseconds);"
      fail.check(C.shardrt_barrier(current.job, "start"))
      local before = os.clock()
      if job.process_index == 1 then ffi.C.usleep(2000000) end
      fail.check(C.shardrt_barrier(current.job, "end"))
      local used = os.clock() - before -- CPU seconds, while about 2 s went by
      if used > 1 then error("used " .. used .. " s") end
    ]]
    assert.equal(0, result.status, result.output)
  end)
end)

describe("process_allgather", function()
  it("gives every process the whole value, whatever the layout", function()
    local seed = require "tests.support.seed"
    local result = run(([[
      math.randomseed(%d)
      local sizes = { uint8 = 1, int16 = 2, float32 = 4, int64 = 8 }
      local function pick(list) return list[math.random(#list)] end
      for case = 1, 60 do
        local mesh_sizes = pick { { 8 }, { 4, 2 }, { 2, 4 }, { 2, 2, 2 }, { 6 }, { 3, 2 }, { 1 }, { 2 } }
        local names, count = {}, 1
        for i, size in ipairs(mesh_sizes) do names[i], count = ("abc"):sub(i, i), count * size end
        local ids, all = {}, { 0, 1, 2, 3, 4, 5, 6, 7 }
        for i = 1, count do ids[i] = table.remove(all, math.random(#all)) end
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
        if ffi.string(got, bytes) ~= ffi.string(value, bytes) then
          error(("case %%d: %%s of {%%s} on %%s"):format(case, dtype, table.concat(shape, ", "), tostring(s)))
        end
      end
    ]]):format(seed))
    assert.equal(0, result.status, "seed " .. seed .. ": " .. result.output)
  end)

  it("sends large boxes in pieces", function()
    local result = run([[
      local rows, columns = 3, 2 * 1000 * 1003 -- boxes of 12 MB, in runs that no piece divides
      local value = ffi.new("int32_t[?]", rows * columns)
      for i = 0, rows * columns - 1 do value[i] = i * 2654435761 % 2147483647 end
      local x = arrays.global(arrays.sharding({ 2 }, { "a" }, P(nil, "a")), "int32", { rows, columns }, value)
      local got = ffi.new("int32_t[?]", rows * columns)
      fail.check(C.shardrt_process_allgather(current.job, x, got))
      assert(ffi.string(got, rows * columns * 4) == ffi.string(value, rows * columns * 4))
    ]], { processes = 2, devices = 1 })
    assert.equal(0, result.status, result.output)
  end)

  it("frees what it took and says so when memory runs out, for every allocation", function()
    local result = run([[
      local value = ffi.new("int32_t[?]", 64)
      for i = 0, 63 do value[i] = i * i end
      local x = arrays.global(arrays.sharding({ 2, 2 }, { "a", "b" }, P "a"), "int32", { 8, 8 }, value)
      local got, n = ffi.new("int32_t[?]", 64), 0
      repeat
        n = n + 1
        C.shardrt_alloc_fail_at(n)
        local code = C.shardrt_process_allgather(current.job, x, got)
        assert(code == 0 or code == C.SHARDRT_ENOMEM)
      until code == 0
      C.shardrt_alloc_fail_at(0)
      assert(n > 2)
      for i = 0, 63 do assert(got[i] == i * i) end
    ]], { processes = 2 })
    assert.equal(0, result.status, result.output)
  end)

  it("refuses an array that has no data", function()
    local result = run([[
      local x = arrays.new(arrays.sharding({ 2 }, { "a" }, P "a"), "int32", { 8 })
      fail.check(C.shardrt_process_allgather(current.job, x, ffi.new "int32_t[8]"))
    ]], { processes = 2, devices = 1 })
    assert.equal(1, result.status)
    contains(result.stderr, "all 2 processes: ")
    contains(result.stderr, "process_allgather")
  end)
end)

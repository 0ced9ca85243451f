-- The job: who is in it, and what a process alone gathers. (What several gather is in comm_processes_spec.lua.)

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local arrays = require "tests.support.arrays"
local mpi = require "tests.support.mpi"

local P = arrays.P

local run = mpi.runner(arrays.head)

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

  it("have as many devices as each asks for, on the host", function()
    local devices = current.info.devices_per_process
    local job = assert(open { transport = C.SHARDRT_TRANSPORT_ALONE, devices = devices + 1, platform = "host" })
    assert.equal(devices + 1, C.shardrt_job_info_get(job).devices_per_process)
    assert.equal(devices, current.info.devices_per_process)
    assert.equal(0, C.shardrt_job_close(job))
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
end)

describe("a job of several processes", function()
  it("refuses processes with different --devices", function()
    local result = mpi.shell(([[%s mpirun -n 2 \
      sh -c 'exec %s --devices $((OMPI_COMM_WORLD_RANK + 2)) /dev/null']]):format(mpi.environment, mpi.program()))
    assert.equal(1, result.status)
    contains(result.stderr, "process 0 has 2 devices, process 1 has 3")
  end)

  it("of many processes meets by an all-reduce, and says who differs, fails or is missing as one of few", function()
    local result = mpi.run { processes = 34, devices = 1, limit = 120, options = { "--timeout", "6" }, source = [[
      local ffi = require "ffi"
      local C = require "shardrt.base.ffi"
      local current = require "shardrt.base.current"
      local fail = require "shardrt.base.error"
      local job = current.info
      local me, count = job.process_index, job.process_count
      local function refused(code)
        assert(code < 0)
        return ffi.string(C.shardrt_error_message()) .. "\n"
      end
      local mine, all = ffi.new("int32_t[1]", me), ffi.new("int32_t[?]", count)
      fail.check(C.shardrt_allgather(current.job, "numbers", mine, 4, all))
      for p = 0, count - 1 do assert(all[p] == p) end
      local said = refused(C.shardrt_barrier(current.job, me == 20 and "this" or "that"))
      said = said .. refused(C.shardrt_check_same(current.job, "a number", me == 33 and 1 or 2))
      local own = me == 7 and C.shardrt_allgather(nil, "reading", mine, 4, all) or 0
      said = said .. refused(C.shardrt_check_outcome(current.job, "a step", own))
      if me == 0 then io.write(said) end
      local shardrt = require "shardrt"
      local rows = shardrt.NamedSharding(shardrt.make_mesh({ count }, { "x" }), shardrt.P "x")
      for _, columns in ipairs { 1, 1000, 1024 * count, 1024 * count + 1 } do -- little ones, and others, in stages
        local x = shardrt.make_array_from_callback({ count, columns }, rows, function()
          return shardrt.ndarray.full({ 1, columns }, 0.1 * (me + 1), "float32")
        end)
        local sum = shardrt.numpy.sum(x, 0).addressable_shards[1].data
        fail.check(C.shardrt_check_same(current.job, "the sum", C.shardrt_fingerprint(sum.data, sum.bytes)))
        sum = sum:to_table()
        for i = 1, columns do assert(math.abs(sum[i] - 0.1 * count * (count + 1) / 2) < 1e-4) end
      end
      C.shardrt_job_at(current.job, me == 5 and "here.lua:5" or "here.lua:6")
      fail.check(C.shardrt_barrier(current.job, "the last"))
      ffi.cdef "unsigned sleep(unsigned seconds);"
      if me == 5 then ffi.C.sleep(60) end
      C.shardrt_barrier(current.job, "the end")
      if me == 9 then error(ffi.string(C.shardrt_error_message()), 0) end
      ffi.C.sleep(60)
    ]] }
    contains(result.stdout, "processes 0-19, 21-33: that; process 20: this\n")
    contains(result.stdout, "a number must be the same in every process; different from process 0: process 33\n")
    contains(result.stdout, "process 7: reading: there is no job\n")
    contains(result.stderr, "process 5 did not come to the end within 6 seconds")
    contains(result.stderr, "process 5: last seen at here.lua:5, in the last, ")
  end)

  it("refuses processes that a launcher started together and that find themselves alone", function()
    local result = mpi.shell("OMPI_COMM_WORLD_SIZE=2 " .. mpi.program() .. " /dev/null")
    assert.equal(1, result.status)
    contains(result.stderr, "the launcher started 2 processes, but each finds itself alone")
  end)
end)

describe("process_allgather", function()
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

-- long: 40 s
-- Arrays laid out anew on GPUs (runtime/reshard/, reshard/exchange/peer_path.c), on the stand-in of tests/standin,
-- which runs nothing before somebody waits for it, and then in any order that is allowed: between the devices of a
-- process, over links between the GPUs of processes, and through the host.

local mpi = require "tests.support.mpi"

local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"
local seed = require "tests.support.seed"

local head = require "tests.support.on_line"
local _, lines_before = head:gsub("\n", "")

-- A recipe on o.gpus stand-in GPUs (2) in o.processes (nil: alone), of which process 1 is told o.one, too; it must end
-- well unless o.fails.
local function run(source, o)
  o = o or {}
  local env = {
    SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = o.gpus or 2, STANDIN_SEED = seed % 1000,
    STANDIN_MEMORY = o.memory or 64 * 2 ^ 20,
  }
  for name, value in pairs(o.env or {}) do env[name] = value end
  local options = { "--platform", "cuda", "--timeout", o.timeout or 60 }
  local result = mpi.run { source = head .. source, processes = o.processes, devices = o.devices or 8, env = env,
    one = o.one, options = options, limit = 120 }
  if not o.fails then assert.equal(0, result.status, result.output) end
  return result
end

local contains = require("tests.support.expect").contains

local slurp = require("tests.support.files").slurp

local RANDOM = [[
  local seed = %d
  moves.random(seed, %d, { staging_bytes = 4096 })
  moves.random(seed + 1, %d)
  moves.random(seed + 2, %d, { donate = true })
]]
local function random(n) return RANDOM:format(seed, n, n, n) end

local SHARED = "shardrt: GPUs are shared by processes "

describe("on the devices of one process, resharding", function()
  local kinds = {
    { "of one GPU", gpus = 1 },
    { "of two GPUs that reach each other", gpus = 2 },
    { "of three GPUs of which two do", gpus = 3, links = "0-1:nvlink" },
    { "of eight GPUs of which none does", gpus = 8, links = "none" },
  }
  for _, kind in ipairs(kinds) do
    it("puts every element where it belongs, with devices " .. kind[1], function()
      run(random(40), { gpus = kind.gpus, env = { STANDIN_LINKS = kind.links or "pcie" } })
    end)
  end

  it("goes through bounded memory where GPUs do not reach each other", function()
    -- 24 MiB on each of two GPUs; columns of rows are packed on the way.
    run([[
      local value = moves.value({ 1024, 6 * 1024 }, "float32", 1)
      local x = shardrt.device_put(value, on "x")
      moves.holds(shardrt.reshard(x, on(nil, "x"), { donate = true, staging_bytes = 2 ^ 20 }), value, "rows to columns")
    ]], { devices = 2, env = { STANDIN_LINKS = "none" }, memory = 56 * 2 ^ 20 })
  end)

  it("waits for nothing: only who looks at the value does", function()
    local folder = mpi.folder()
    local log = folder .. "/log"
    run(([[
      local x = shardrt.device_put(moves.value({ 64, 64 }, "float32", 1), on "x")
      x:block_until_ready()
      local function runs()
        local n = 0
        for text in io.lines %q do n = n + (text:find("run ", 1, true) and 1 or 0) end
        return n
      end
      local before = runs()
      local y = shardrt.reshard(shardrt.reshard(x, on(nil, "x")), on())
      local after = runs()
      assert(before == after, ("%%d pieces of work, then %%d"):format(before, after))
      y:block_until_ready()
      assert(runs() > after)
    ]]):format(log), { env = { STANDIN_LOG = log } })
    mpi.remove(folder)
  end)

  it("copies from the nearest device that has a part", function()
    local folder = mpi.folder()
    -- Devices 0 to 3 are GPUs 0 to 3. What does not come from the GPU that is linked goes through memory of its own.
    run(([[
      local function over(ids, ...) return shardrt.NamedSharding(shardrt.Mesh({ 2 }, { "r" }, ids), P(...)) end
      local value = moves.value({ 256, 256 }, "float32", 1)
      local x = shardrt.device_put(value, over({ 0, 3 }))
      x:block_until_ready()
      local function taken()
        local n = 0
        for text in io.lines %q do n = n + (text:find("call cudaMallocAsync", 1, true) and 1 or 0) end
        return n
      end
      local before = taken()
      local y = shardrt.reshard(x, over({ 1, 2 }, nil, "r"))
      assert(taken() == before + 2, taken() - before)
      local z = shardrt.reshard(y, over({ 0, 1 }, "r"))
      assert(taken() > before + 4)
      moves.holds(y, value, "near")
      moves.holds(z, value, "far")
    ]]):format(folder .. "/log"), { gpus = 4, devices = 4,
      env = { STANDIN_LINKS = "0-1:nvlink,2-3:nvlink", STANDIN_LOG = folder .. "/log" } })
    mpi.remove(folder)
  end)

  it("shares what is on the same device, and copies nothing then", function()
    local folder = mpi.folder()
    local log = folder .. "/log"
    run(([[
      local value = moves.value({ 64, 64 }, "float32", 1)
      local x = shardrt.device_put(value, on())
      local function copies()
        local n = 0
        for text in io.lines %q do n = n + (text:find("call cudaMemcpy", 1, true) and 1 or 0) end
        return n
      end
      local before = copies()
      local y = shardrt.reshard(x, on())
      local some = shardrt.Mesh({ 3 }, { "y" }, { 5, 1, 3 })
      local z = shardrt.reshard(x, shardrt.NamedSharding(some, P()))
      assert(before == copies())
      for i = 0, 7 do
        assert(C.shardrt_array_buffer(x.handle, i) == C.shardrt_array_buffer(y.handle, i))
      end
      assert(C.shardrt_array_buffer(z.handle, 0) == C.shardrt_array_buffer(x.handle, 5))
      x:delete()
      moves.holds(z, value, "shared")
    ]]):format(log), { env = { STANDIN_LOG = log } })
    mpi.remove(folder)
  end)

  it("needs no room for both where the old array is donated", function()
    local source = [[
      local rows = 8 * 1024
      local value = moves.value({ rows, 1024 }, "float32", 1) -- 32 MiB, of 40
      local x = shardrt.device_put(value, on "x")
      local back = shardrt.NamedSharding(shardrt.Mesh({ 8 }, { "x" }, { 7, 6, 5, 4, 3, 2, 1, 0 }), P "x")
      local y = shardrt.reshard(x, back, { donate = %s })
      moves.holds(y, value, "donated")
    ]]
    run(source:format "true", { gpus = 1, memory = 44 * 2 ^ 20 })
    local result = run(source:format "false", { gpus = 1, memory = 44 * 2 ^ 20, fails = true })
    assert.equal(1, result.status)
    contains(result.stderr, "recipe.lua:" .. lines_before + 5 .. ": reshard: float32 {8192, 1024} on NamedSharding(")
    contains(result.stderr, "out of memory")
  end)

  it("of what nobody placed goes from device to device", function()
    run [[
      local value = moves.value({ 16, 8 }, "float32", 3)
      local x = require("shardrt.array.unplaced").of_host("a spec", value)
      for _, to in ipairs { on "x", on(nil, "x"), on() } do
        moves.holds(shardrt.reshard(x, to), value, tostring(to))
      end
    ]]
  end)

  it("frees what it took when memory runs out, at every allocation", function()
    run([[
      local value = moves.value({ 64, 64 }, "int32", 2)
      local x = shardrt.device_put(value, on "x")
      local out, failed = ffi.new "shardrt_array *[1]", 0
      for _, to in ipairs { on(nil, "x"), on(), shardrt.SingleDeviceSharding(3) } do
        local n, code = 0
        repeat
          n = n + 1
          C.shardrt_alloc_fail_at(n)
          code = C.shardrt_reshard(current.job, x.handle, to.handle, nil, out)
          C.shardrt_alloc_fail_at(0)
          assert(code == 0 or code == C.SHARDRT_ENOMEM, ffi.string(C.shardrt_error_message()))
          if code ~= 0 then failed = failed + 1 end
        until code == 0
        moves.holds(require("shardrt.array.array").wrap(out, to), value, tostring(to))
        moves.holds(x, value, "the old one")
      end
      assert(failed > 20)
    ]], { env = { STANDIN_LINKS = "none" } })
  end)
end)

describe("between processes with GPUs of their own, resharding", function()
  for _, topology in ipairs { { 2, 4, 4 }, { 2, 4, 2 }, { 4, 2, 8 }, { 4, 2, 4 } } do
    local processes, devices, gpus = unpack(topology)
    local name = ("%d x %d devices on %d GPUs"):format(unpack(topology))
    it("over links puts every element where it belongs: " .. name, function()
      local result = run(random(12), { processes = processes, devices = devices, gpus = gpus })
      assert.is_nil(result.stderr:find("through the host", 1, true), result.stderr)
    end)
    it("without links, too: " .. name, function()
      local result = run(random(12), { processes = processes, devices = devices, gpus = gpus,
        env = { SHARDRT_LINKS = "off" } })
      assert.is_nil(result.stderr:find("through the host", 1, true), result.stderr) -- as was asked for
    end)
  end

  it("sends what the plan says, and each element once", function()
    local folder = mpi.folder()
    run([[
      local x = shardrt.device_put(moves.value({ 16, 64 }, "float32", 1), on "x")
      for _, to in ipairs { on(nil, "x"), on() } do
        local plan = shardrt.reshard_plan(x.shape, x.dtype, x.sharding, to)
        moves.holds(shardrt.reshard(x, to), moves.value({ 16, 64 }, "float32", 1), "arrived")
        if me == 0 then
          local sent, received = 0, 0
          for p = 0, count - 1 do sent, received = sent + plan:bytes_sent(p), received + plan:bytes_received(p) end
          print(("plan %d %d"):format(sent, received))
        end
      end
    ]], { processes = 2, devices = 4, gpus = 4, env = { STANDIN_NCCL_LOG = folder .. "/log" } })
    local moved = { send = 0, recv = 0 }
    for kind, bytes in slurp(folder .. "/log"):gmatch "(%l+) %d+ %d+ %d+ (%d+) %d+\n" do
      if moved[kind] then moved[kind] = moved[kind] + tonumber(bytes) end
    end
    mpi.remove(folder)
    -- 2 KiB of 4 change the process as rows become columns; all of the 4 as every device needs them.
    assert.same({ send = 2048 + 4096, recv = 2048 + 4096 }, moved)
  end)

  it("moves large arrays in pieces: runs as they stand, the rest in bounded memory", function()
    for _, way in ipairs { "on", "off" } do
      run([[
        local value = moves.value({ 1024, 3 * 1024 }, "float32", 1) -- 12 MiB
        local x = shardrt.device_put(value, on "x")
        local y = shardrt.reshard(x, on(nil, "x"), { staging_bytes = 2 ^ 18 })
        moves.holds(y, value, "columns")
        local there = shardrt.devices()[shardrt.device_count()]
        local z = shardrt.reshard(shardrt.device_put(value, shardrt.devices()[1]), there)
        if me == count - 1 then moves.holds(z, value, "a whole one") end
      ]], { processes = 2, devices = 2, gpus = 4, env = { SHARDRT_LINKS = way } })
    end
  end)

  it("takes the other way where it is asked to, which is news only where not all were asked", function()
    local source = "shardrt.reshard(shardrt.device_put(moves.value({ 16 }, 'int32', 1), on 'x'), on())"
    local all = run(source, { processes = 2, devices = 2, gpus = 4, env = { SHARDRT_LINKS = "off" } })
    assert.is_nil(all.stderr:find("goes through the host", 1, true), all.stderr)
    local some = run(source, { processes = 2, devices = 2, gpus = 4, one = { SHARDRT_LINKS = "off" } })
    contains(some.stderr, "SHARDRT_LINKS is off in 1 of the 2 processes: data between processes goes through the host")
    local wrong = mpi.run { source = "", env = { SHARDRT_LINKS = "of" } }
    assert.equal(1, wrong.status)
    contains(wrong.stderr, 'SHARDRT_LINKS is on (as without it), off, messages or collectives, not "of"')
  end)

  it("gathers the value in every process", function()
    run([[
      local value = moves.value({ 16, 24 }, "bfloat16", 1)
      for _, s in ipairs { on "x", on(nil, "x"), on() } do
        local all = shardrt.process_allgather(shardrt.device_put(value, s))
        assert(ffi.string(all.data, all.bytes) == ffi.string(value.data, value.bytes))
      end
    ]], { processes = 2, devices = 4, gpus = 4 })
  end)

  it("frees what it took when memory runs out, at every allocation", function()
    local source = [[
      local value = moves.value({ 16, 8 }, "int32", 1)
      local x, to = shardrt.device_put(value, on "x"), on(nil, "x")
      shardrt.reshard(x, to) -- settles the way, which is done once
      local out = ffi.new "shardrt_array *[1]"
      for n = 1, 25 do
        C.shardrt_alloc_fail_at(n)
        local code = C.shardrt_reshard(current.job, x.handle, to.handle, nil, out)
        C.shardrt_alloc_fail_at(0)
        assert(code == C.SHARDRT_ENOMEM, code)
      end
      moves.holds(shardrt.reshard(x, to), value, "after all")
    ]]
    -- These are made before messages are on their way; what fails then is final.
    run(source, { processes = 2, devices = 2, gpus = 4 })
    run(source, { processes = 2, devices = 2, gpus = 4, env = { SHARDRT_LINKS = "off" } })
  end)
end)

describe("links between the GPUs of processes", function()
  it("are one job's: a second one is told so, and its data goes through the host", function()
    run([[
      local fail = require "shardrt.base.error"
      local value, to = moves.value({ 64, 64 }, "float32", 1), on(nil, "x")
      local x = shardrt.device_put(value, on "x")
      moves.holds(shardrt.reshard(x, to), value, "before")
      assert(C.shardrt_job_notice(current.job) == nil)
      local options, out = ffi.new "shardrt_options", ffi.new "shardrt_job *[1]"
      C.shardrt_options_init(options)
      options.devices = current.info.devices_per_process
      fail.check(C.shardrt_job_open(options, out))
      local second, made = out[0], ffi.new "shardrt_array *[1]"
      fail.check(C.shardrt_reshard(second, x.handle, to.handle, nil, made))
      moves.holds(require("shardrt.array.array").wrap(made, to), value, "in the second job")
      if current.info.process_index == 0 then
        local notice = ffi.string(C.shardrt_job_notice(second))
        assert(notice:find("another job of this process has the links between its GPUs", 1, true), notice)
        assert(notice:find("goes through the host", 1, true), notice)
      end
      fail.check(C.shardrt_job_close(second))
      moves.holds(shardrt.reshard(x, to), value, "afterwards")
    ]], { processes = 2, devices = 1 })
  end)
end)

describe("where processes share GPUs, data goes through the host", function()
  for _, topology in ipairs { { 2, 8, 1 }, { 4, 2, 1 }, { 4, 2, 2 } } do
    it(("which is said once: %d x %d devices on %d GPUs"):format(unpack(topology)), function()
      local result = run(random(10), { processes = topology[1], devices = topology[2], gpus = topology[3] })
      local _, times = result.stderr:gsub(SHARED, "")
      assert.equal(1, times, result.stderr)
      contains(result.stderr, "data between processes goes through the host")
    end)
  end

  it("as where NCCL cannot be had in one of them", function()
    local result = run(random(5), { processes = 2, devices = 2, gpus = 4,
      one = { STANDIN_NCCL_VERSION = "2709" } })
    contains(result.stderr, "NCCL 2.7 is too old")
    contains(result.stderr, "data between processes goes through the host")
  end)
end)

local TIMES = [[
  local x = shardrt.device_put(shardrt.ndarray.zeros({ 512, 512 }, "float32"), on "x")
  local ok, message
  for _ = 1, 20 do
    ok, message = pcall(shardrt.reshard, x, on(nil, "x"))
    if not ok then break end
  end
  assert(not ok)
  io.stderr:write("first in ", me, ": ", message, "\n")
  ok, message = pcall(shardrt.reshard, x, on(nil, "x"))
  assert(not ok)
  io.stderr:write("then in ", me, ": ", message, "\n")
  collectgarbage()
  shardrt.reshard(x, on(nil, "x"))
]]

-- Reshards until something fails, in processes of which process 1 is told something: all of stderr, and what it said
-- first.
local function failing(one)
  local result = run(TIMES, { processes = 2, devices = 2, gpus = 4, timeout = 3, fails = true, one = one })
  assert.equal(1, result.status, result.output)
  return result.stderr, result.stderr:match "first in 1: ([^\n]*)"
end

-- Reshards until process 1 gets a signal.
local function signalled(signal, o)
  o.fails = true
  return run(([[
    local x = shardrt.device_put(shardrt.ndarray.zeros({ 512, 512 }, "float32"), on "x")
    if me == 1 then os.execute(("(sleep 0.5; kill -%s %%d) &"):format(ffi.C.getpid())) end
    while true do x = shardrt.reshard(shardrt.reshard(x, on(nil, "x")), on "x") end
  ]]):format(signal), o)
end

describe("links that fail during reshards", function()
  it("end the job where a process was killed", function()
    local result = signalled("KILL", { processes = 2, devices = 2, gpus = 4 })
    assert.are_not.equal(0, result.status)
    assert.are_not.equal(124, result.status)
  end)

  it("are waited for as long as the timeout says; who is silent is named", function()
    local result = signalled("STOP", { processes = 4, devices = 1, gpus = 4, timeout = 3 })
    assert.equal(1, result.status, result.output)
    contains(result.stderr, "process 1 did not ")
    contains(result.stderr, "reshard of float32 {512, 512}")
    contains(result.stderr, "\n  process 1: last seen at ")
    contains(result.stderr, "recipe.lua:" .. lines_before + 3)
  end)

  it("because an operation hangs end by the timeout, and say what hangs", function()
    local said = failing { STANDIN_NCCL_HANG = "5" }
    contains(said, "within 3 seconds")
    contains(said, "reshard of float32 {512, 512}")
    contains(said, "recipe.lua:" .. lines_before + 4)
    contains(said, "the processes lost each other before")
  end)

  it("say which call, array and device, and are of no use any more", function()
    local said, first = failing { STANDIN_FAIL = "ncclSend@5=2" }
    contains(first, "reshard of float32 {512, 512}, array 1, on NamedSharding")
    contains(first, "ncclSend")
    contains(first, "on device ")
    contains(said:match "then in 1: ([^\n]*)", "the processes lost each other before")
  end)

  it("or cannot be joined, say so", function()
    local _, first = failing { STANDIN_FAIL = "ncclCommInitRankConfig@1=2" }
    contains(first, "the links between the processes' GPUs: ")
    contains(first, "ncclCommInitRankConfig")
  end)

  it("leave what a device failed at to its own message", function()
    local said = failing { STANDIN_FAIL = "run@40=700" }
    contains(said, "illegal memory access")
    contains(said, "float32 {512, 512}")
  end)

  it("fails in all processes where one finds no memory, of the host or of its devices", function()
    local source = [[
      local value = moves.value({ 16, 8 }, "int32", 1)
      local x, to = shardrt.device_put(value, on "x"), on(nil, "x")
      %s
      local out, last = ffi.new "shardrt_array *[1]", %d
      for n = 1, last do
        if me == 1 then C.shardrt_alloc_fail_at(n) end
        local code = C.shardrt_reshard(current.job, x.handle, to.handle, nil, out)
        local said = ffi.string(C.shardrt_error_message())
        C.shardrt_alloc_fail_at(0)
        assert(code == C.SHARDRT_ENOMEM and said:find("process 1: ", 1, true), n .. ": " .. said)
        shardrt.sync_global_devices "the next"
      end
      moves.holds(shardrt.reshard(x, to), value, "after all")
    ]]
    local settled = source:format("shardrt.reshard(x, to) -- settles the way, which is done once", 25)
    local links_off = { SHARDRT_LINKS = "off" }
    run(settled, { processes = 2, devices = 2, gpus = 4, timeout = 20 })
    run(settled, { processes = 2, devices = 2, gpus = 4, timeout = 20, env = links_off })
    -- And what settling takes.
    run(source:format("", 30), { processes = 2, devices = 2, gpus = 4, timeout = 20, env = links_off })
    -- A device that is full: the large array goes there, and nowhere else.
    run([[
      local to = on(nil, "x")
      local x = shardrt.device_put(moves.value({ 1024, 1024 }, "float32", 1), on "x")
      local hold = {}
      if me == 1 then
        for i = 1, 64 do
          local ok, more = pcall(shardrt.device_put, moves.value({ 256, 1024 }, "float32", i), 2)
          if not ok then break end
          hold[i] = more
        end
      end
      local ok, said = pcall(shardrt.reshard, x, to)
      assert(not ok and said:find("process 1: ", 1, true), tostring(said))
      shardrt.sync_global_devices "and on"
    ]], { processes = 2, devices = 2, gpus = 4, timeout = 20, memory = 16 * 2 ^ 20 })
  end)
end)

describe("a copy between devices that fails midway", function()
  -- The device that the data comes from waits for the other one, as it does where nothing fails: a part of the copy may
  -- be under way, and the memory must not be used for something else before.
  it("is waited for as one that does not fail", function()
    local waits = {}
    for i, faults in ipairs { "", "cudaMemcpyPeerAsync@1=1" } do
      local result = run([[
        local runtime = ffi.load(((os.getenv "SHARDRT_CUDA_PLUGIN"):gsub("[^/]*$", "", 1)) .. "libstandin.so")
        ffi.cdef "long long standin_calls(const char *call);"
        local x = shardrt.device_put(shardrt.ndarray.zeros({ 16, 16 }, "int32"), 0)
        local to, made, shape = on(nil, "x"), ffi.new "shardrt_array *[1]", ffi.new("int64_t[2]", { 16, 16 })
        assert(C.shardrt_array_new(to.handle, C.shardrt_array_dtype(x.handle), 2, shape, 0, 2, made) == 0)
        local before = tonumber(runtime.standin_calls "cudaStreamWaitEvent")
        local code = C.shardrt_array_fill_from(made[0], x.handle)
        io.write(("%s, %d waits\n"):format(code == 0 and "well" or "failed",
          tonumber(runtime.standin_calls "cudaStreamWaitEvent") - before))
        C.shardrt_array_free(made[0])
      ]], { devices = 2, gpus = 2, env = { STANDIN_LINKS = "none", STANDIN_FAIL = faults } })
      local how, count = result.stdout:match "(%a+), (%d+) waits"
      assert.equal(i == 1 and "well" or "failed", how, result.output)
      waits[i] = tonumber(count)
    end
    assert.is_true(waits[1] > 0)
    assert.equal(waits[1], waits[2])
  end)
end)

-- long: 80 s
-- waits: for processes that do not come.
-- How a job ends when something goes wrong in it: at once, in every process, with one message and a status.

local mpi = require "tests.support.mpi"

local head = [[
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local job = current.info
local me = job.process_index
ffi.cdef "int getpid(void); int kill(int pid, int signal); int usleep(unsigned microseconds);"
local function meet(what)
  C.shardrt_job_at(current.job, "recipe.lua:" .. debug.getinfo(2, "l").currentline)
  fail.check(C.shardrt_barrier(current.job, what))
end
]]

local _, lines_before = head:gsub("\n", "")

-- Each of these ends long before the limit, or it hangs.
local run = mpi.runner(head, { limit = 30 })

local contains = require("tests.support.expect").contains

local function times(text, piece)
  local n, at = 0, 1
  while true do
    local first, last = text:find(piece, at, true)
    if not first then return n end
    n, at = n + 1, last + 1
  end
end

local function line(n) return "recipe.lua:" .. lines_before + n .. ": " end

describe("an error", function()
  it("in one process ends the others, which wait, with its message, once", function()
    local result = run [[
      if me == 2 then error "out of luck" end
      meet "the others wait here"
    ]]
    assert.equal(1, result.status)
    contains(result.stderr, "shardrt: process 2 of 4: ")
    contains(result.stderr, line(1) .. "out of luck\n")
    assert.equal(1, times(result.output, "out of luck"))
    -- Nothing else is said, by mpirun neither, but for OpenMPI 5's, which cannot be asked to be silent.
    local said = result.output:gsub("%-%-%-+\nprterun has exited due to process rank 2 .-\n%-%-%-+\n", "")
    assert.equal(1, times(said, "\n"), result.output)
  end)

  -- Debian 12's LuaJIT crashes where a finalizer finds no room; a newer one says "stack overflow".
  it("of a function that calls itself without end is told as that, or as the crash that LuaJIT makes of it", function()
    local result = run [[
      local np = require "shardrt.numpy"
      local function endless(x) return endless(x * 2) + x end
      if me == 2 then endless(np.ones { 4 }) end
      meet "the others wait here"
    ]]
    assert.is_true(result.status ~= 0)
    local is_told = result.stderr:find("shardrt: process 2 of 4: .-stack overflow")
    assert.truthy(is_told, result.output)
  end)

  it("of a pointer that leads nowhere is told as LuaJIT's crash", function()
    local result = run [[
      jit.off()
      if me == 2 then print(ffi.cast("int *", 16)[0]) end
      meet "the others wait here"
    ]]
    assert.is_true(result.status ~= 0)
    contains(result.stderr, "shardrt: process 2 of 4: LuaJIT crashed (SIGSEGV)", "a pointer of the FFI's")
  end)

  it("in one process ends the others, which compute", function()
    local result = run [[
      if me == 0 then error "out of luck" end
      while true do end
    ]]
    assert.equal(1, result.status)
    contains(result.stderr, "shardrt: process 0 of 4: ")
    assert.equal(1, times(result.output, "out of luck"))
  end)

  it("in all processes is printed once", function()
    local result = run [[error "nobody has luck"]]
    assert.equal(1, result.status)
    contains(result.stderr, "shardrt: all 4 processes: ")
    contains(result.stderr, line(1) .. "nobody has luck\n")
    assert.equal(1, times(result.output, "nobody has luck"))
  end)

  it("in all processes is printed once also where they get to it one after the other", function()
    for _, delay in ipairs { "me * 50000", "(3 - me) * 50000", "(3 - me) * 250000" } do
      local result = run("ffi.C.usleep(" .. delay .. ')\nerror "nobody has luck"')
      assert.equal(1, result.status)
      assert.equal(1, times(result.output, "nobody has luck"), result.output)
    end
  end)

  it("in two of four is printed once for both", function()
    local result = run [[
      if me % 2 == 1 then error "odd" end
      meet "the others wait here"
    ]]
    assert.equal(1, result.status)
    contains(result.stderr, "shardrt: processes 1, 3 of 4: ")
    assert.equal(1, times(result.output, "odd\n"))
  end)

  it("of another kind in each process is printed for each", function()
    local result = run [[error("unlucky number " .. me)]]
    assert.equal(1, result.status)
    for p = 0, 3 do assert.equal(1, times(result.stderr, "unlucky number " .. p .. "\n"), result.output) end
  end)

  it("that spans lines, or is long, comes out whole", function()
    local result = run [[error("first\nsecond " .. ("x"):rep(3000) .. " last", 0)]]
    contains(result.stderr, "shardrt: all 4 processes: first\nsecond x")
    contains(result.stderr, "x last\n")
  end)

  it("comes after what was printed before it", function()
    local result = run [[
      io.write("printed by ", me, "\n")
      if me == 1 then error "out of luck" end
      meet "the others wait here"
    ]]
    contains(result.stdout, "printed by 1\n")
  end)

  it("waits for room where stderr is full and does not wait by itself", function()
    local folder = mpi.folder()
    local file = assert(io.open(folder .. "/full.lua", "w"))
    file:write [[
      local ffi = require "ffi"
      ffi.cdef "int fcntl(int, int, int); long write(int, const void *, size_t);"
      assert(ffi.C.fcntl(2, 4, 2048) == 0) -- F_SETFL, O_NONBLOCK
      for size = 4096, 1, -4095 do
        while ffi.C.write(2, ("x"):rep(size), size) > 0 do end
      end
      error "the reason"]]
    file:close()
    local result = mpi.shell(("%s %s/full.lua 2>&1 >/dev/null | { sleep 0.3; cat; }"):format(mpi.program(), folder))
    mpi.remove(folder)
    assert.truthy(result.stdout:match "^x+shardrt: [^\n]*full.lua:7: the reason\n$", result.stdout:sub(-200))
  end)

  it("alone has no process in front of it", function()
    local result = mpi.run { source = 'error "out of luck"' }
    assert.equal(1, result.status)
    assert.truthy(result.stderr:match "^shardrt: [^\n]*recipe.lua:1: out of luck\n$", result.stderr)
  end)
end)

describe("a process that leaves", function()
  it("by the end of its recipe is found by those that go on", function()
    local result = run [[
      meet "all"
      if me == 1 then return end
      meet "the others"
    ]]
    assert.equal(1, result.status)
    contains(result.stderr, "process 1: the end of the recipe")
    contains(result.stderr, "processes 0, 2, 3: the others at ")
    contains(result.stderr, line(3):sub(1, -3))
    assert.equal(1, times(result.output, "the end of the recipe"), result.output)
  end)

  it("by os.exit is found, too", function()
    local result = run [[
      if me == 1 then os.exit(0) end
      meet "the others"
    ]]
    assert.equal(1, result.status)
    contains(result.stderr, "process 1: the end of the recipe")
  end)

  it("by os.exit with a status ends the job with it", function()
    local result = run [[
      if me == 1 then os.exit(7) end
      meet "the others"
    ]]
    assert.equal(7, result.status)
  end)

  it("by os.exit(0) in company of all others is no failure", function()
    local result = run [[meet "all" os.exit(0)]]
    assert.equal(0, result.status, result.output)
    assert.equal("", result.stderr)
  end)

  it("because it is killed takes the job with it", function()
    local result = run [[
      meet "all"
      if me == 1 then ffi.C.kill(ffi.C.getpid(), 9) end
      meet "the others"
    ]]
    assert.are_not.equal(0, result.status)
    assert.are_not.equal(124, result.status)
  end)
end)

describe("a process that does not come", function()
  it("is named, with where it was last seen, when the time is up", function()
    local result = run([[
      meet "first"
      if me == 1 then ffi.C.kill(ffi.C.getpid(), 19) end
      meet "second"
    ]], { options = { "--timeout", "2" } })
    assert.equal(1, result.status)
    contains(result.stderr, "process 1 did not come to second within 2 seconds")
    contains(result.stderr, "last seen at ")
    contains(result.stderr, line(1):sub(1, -3) .. ", in first")
    contains(result.stderr, "processes 0, 2, 3 of 4: ")
    assert.truthy(result.stderr:match "process 1: last seen at [^\n]*, in first, %d%.%d s ago\n", result.output)
    assert.equal(1, times(result.output, "did not come"), result.output)
  end)

  it("is told apart from those that wait, by where each is, and for how long", function()
    local result = run([[
      meet "first"
      if me == 1 then ffi.C.usleep(20000000) end
      if me == 2 then
        ffi.C.usleep(1000000)
        meet "elsewhere"
      end
      meet "second"
    ]], { options = { "--timeout", "2" } })
    assert.equal(1, result.status)
    local function seconds(pattern)
      local text = assert(result.stderr:match(pattern:gsub("LINE", "recipe%%.lua:")), result.output)
      return tonumber(text)
    end
    local both = ("\n  processes 0, 3: waiting at LINE%d for up to (%%d%%.%%d) s\n"):format(lines_before + 7)
    local late = ("\n  process 2: waiting at LINE%d for (%%d%%.%%d) s\n"):format(lines_before + 5)
    local lost = ("\n  process 1: last seen at LINE%d, in first, (%%d%%.%%d) s ago\n"):format(lines_before + 1)
    assert.truthy(seconds(both) >= 2 and seconds(lost) >= 2, result.output)
    assert.truthy(seconds(late) < seconds(both), result.output)
    -- Once for those who wait in one call; process 2 waits in another, and may say so, once, before it is ended. Nobody
    -- else is named.
    local elsewhere = times(result.output, "process 1 did not come to elsewhere")
    assert.equal(1, times(result.output, "process 1 did not come to second"), result.output)
    assert.is_true(elsewhere <= 1, result.output)
    assert.equal(1 + elsewhere, times(result.output, "did not come"), result.output)
  end)

  it("is named alone, though others come late", function()
    local result = run([[
      meet "all" -- from here on the time is counted, however long the processes take to start
      if me == 3 then ffi.C.usleep(1500000) end
      if me == 1 then ffi.C.usleep(20000000) end
      meet "first"
    ]], { options = { "--timeout", "4" } })
    assert.equal(1, result.status)
    contains(result.stderr, ": process 1 did not come to first")
  end)

  it("is waited for as long as --timeout says", function()
    local result = run([[
      if me == 2 then ffi.C.usleep(2500000) end
      meet "first"
    ]], { options = { "--timeout", "20" } })
    assert.equal(0, result.status, result.output)
  end)

  it("leaves a job that cannot go on, even where the recipe wants to", function()
    local result = run([[
      if me == 1 then ffi.C.usleep(20000000) end
      if C.shardrt_barrier(current.job, "first") ~= C.SHARDRT_ETIMEOUT then error "no timeout" end
      meet "second"
    ]], { options = { "--timeout", "1" } })
    assert.equal(1, result.status)
    contains(result.stderr, "second: the processes lost each other")
  end)
end)

-- Moves from device 0 to those of process 1, and then 2; process 3 has nothing to do with it. One element is under way
-- in each direction at a time, so that this takes as long as it is large.
local slow_move = [[
  local shardrt = require "shardrt"
  local function on(...)
    return shardrt.NamedSharding(shardrt.Mesh({ select("#", ...) }, { "x" }, { ... }), shardrt.P(nil, "x"))
  end
  local function start(rows) return shardrt.device_put(shardrt.ndarray.zeros({ rows, 4 }, "int32"), on(0)) end
  local function move(x) return shardrt.reshard(x, on(2, 4), { staging_bytes = 8 }) end
]]

describe("a process that moves data", function()
  it("is waited for, however long it takes, by those whose turn it is not", function()
    local result = run(slow_move .. [[
      local seconds, all = ffi.new "double[1]", ffi.new "double[4]"
      local rows, longest = 2 ^ 8, 0 -- few: on a busy machine each element takes milliseconds
      while longest < 2.5 do -- until it takes more than twice the timeout
        rows = rows * 2
        local x, before = start(rows), C.shardrt_clock()
        local y = move(x)
        seconds[0] = C.shardrt_clock() - before
        fail.check(C.shardrt_allgather(current.job, "seconds", seconds, 8, all)) -- process 3 waits here
        for p = 0, 3 do longest = math.max(longest, all[p]) end
      end
      io.write("process ", me, " fine\n")
    ]], { options = { "--timeout", "1" }, limit = 240 })
    assert.equal(0, result.status, result.output)
    for p = 0, 3 do contains(result.stdout, "process " .. p .. " fine\n") end
  end)

  it("and stops in the middle of it is named", function()
    local result = run(slow_move .. [[
      local x = start(2 ^ 20)
      if me == 1 then os.execute("(sleep 1.5; kill -STOP " .. ffi.C.getpid() .. ") >/dev/null 2>&1 &") end
      move(x)
      meet "what comes then"
    ]], { options = { "--timeout", "2" } })
    assert.equal(1, result.status, result.output)
    contains(result.stderr, "process 1 did not ")
    contains(result.stderr, "within 2 seconds")
    contains(result.stderr, "\n  process 1: last seen at ")
    assert.equal(0, times(result.output, "though every process came to it"), result.output)
  end)
end)

describe("processes that do different things", function()
  it("are told who does what, where", function()
    local result = run [[
      if me == 1 then
        meet "left"
      else
        meet "right"
      end
    ]]
    assert.equal(1, result.status)
    contains(result.stderr, "processes 0, 2, 3: right at ")
    contains(result.stderr, line(4):sub(1, -3))
    contains(result.stderr, "process 1: left at ")
    contains(result.stderr, line(2):sub(1, -3))
    assert.equal(1, times(result.output, "process 1: left"), result.output)
  end)

  it("are told apart by the size of what they give", function()
    local result = run [[
      local bytes = me == 3 and 16 or 8
      fail.check(C.shardrt_allgather(current.job, "sizes", ffi.new("char[16]"), bytes, ffi.new("char[64]")))
    ]]
    assert.equal(1, result.status)
    contains(result.stderr, "processes 0-2: sizes with 8 bytes")
    contains(result.stderr, "process 3: sizes with 16 bytes")
  end)

  it("are told apart by the end of a long name", function()
    local result = run [[meet(("x"):rep(300) .. (me == 0 and "a" or "b"))]]
    assert.equal(1, result.status)
    contains(result.stderr, "process 0: xxx")
    contains(result.stderr, "processes 1-3: xxx")
  end)
end)

describe("what one process finds no memory for", function()
  -- Every call, at every allocation of process 1 alone until none is missing: all fail alike, or none does.
  it("before it meets the others fails in all of them, and the job may go on", function()
    local folder = mpi.folder()
    local result = run(([[
      local shardrt, folder = require "shardrt", %q
      local value = shardrt.ndarray.arange(96)
      local line = shardrt.make_mesh({ 6 }, { "a" })
      local cut, whole = shardrt.NamedSharding(line, shardrt.P "a"), shardrt.NamedSharding(line, shardrt.P())
      local x, y = shardrt.device_put(value, cut), shardrt.device_put(value, whole)
      local out, got = ffi.new "shardrt_array *[1]", ffi.new("int32_t[96]")
      -- Another file in process 2, so that all are compared and named.
      local path, source = ("%%s/%%d.npy"):format(folder, me == 2 and 2 or 0), ffi.new "shardrt_source *[1]"
      fail.check(C.shardrt_npy_save(path, C.SHARDRT_INT32, 1, ffi.new("int64_t[1]", { 4 }),
        ffi.new("int32_t[4]", { 1, 2, 3, me })))
      fail.check(C.shardrt_source_open("npy", 1, ffi.new("const char *[1]", { "x" }),
        ffi.new("const char *[1]", { path }), nil, source))
      local entry = ffi.new("shardrt_saved[1]", { { name = "x", array = x.handle } })
      local tall = shardrt.device_put(shardrt.ndarray.zeros({ 600, 6 }, "float32"),
        shardrt.NamedSharding(line, shardrt.P(nil, "a"))) -- is laid out in rows before it is written
      local crumbs = ffi.new("shardrt_saved[1]", { { name = "tall", array = tall.handle } })
      local calls = {
        { "reshard", function() return C.shardrt_reshard(current.job, x.handle, whole.handle, nil, out) end },
        { "carry", function() return C.shardrt_reshard_operand(current.job, x.handle, whole.handle, nil, out) end },
        { "process_allgather", function() return C.shardrt_process_allgather(current.job, x.handle, got) end },
        { "save", function()
          return C.shardrt_safetensors_save(current.job, folder .. "/x.safetensors", 1, entry, nil, nil)
        end },
        { "save in rows", function()
          return C.shardrt_safetensors_save(current.job, folder .. "/y.safetensors", 1, crumbs, nil, nil)
        end },
        { "check_array", function() return C.shardrt_check_array(current.job, "y", y.handle) end },
        { "check_same", function() return C.shardrt_check_same(current.job, "it", 1) end },
        { "check_source", function()
          local code = C.shardrt_check_source(current.job, source[0])
          return code == C.SHARDRT_EMISMATCH and 0 or code
        end },
        { "the words", function()
          local ok, message = pcall(shardrt.process_allgather, x)
          return ok and 0 or C.SHARDRT_ENOMEM, message
        end },
        { "stacking", function()
          local ok, message = pcall(shardrt.process_allgather, value)
          return ok and 0 or C.SHARDRT_ENOMEM, message
        end },
      }
      local codes, mine = ffi.new "int32_t[3]", ffi.new "int32_t[1]"
      for _, call in ipairs(calls) do
        local name, n, failed = call[1], 0, 0
        repeat
          n = n + 1
          if me == 1 then C.shardrt_alloc_fail_at(n) end
          local code, message = call[2]()
          local missed = me == 1 and tonumber(C.shardrt_alloc_fail_at(0)) >= n
          message = message or ffi.string(C.shardrt_error_message())
          local at = ("%%s, allocation %%d, process %%d: %%d %%s"):format(name, n, me, code, message)
          assert(code == 0 or code == C.SHARDRT_ENOMEM, at)
          assert(code == 0 or message:find "process 1: .*out of memory", at)
          assert(me ~= 1 or (code ~= 0) == missed, at)
          mine[0] = code
          fail.check(C.shardrt_allgather(current.job, "how it went", mine, 4, codes))
          assert(codes[0] == codes[1] and codes[2] == codes[1], at)
          if code == 0 and out[0] ~= nil then
            C.shardrt_array_free(out[0])
            out[0] = nil
          end
          failed = failed + (code == 0 and 0 or 1)
        until code == 0
        if me == 0 then io.write(name, ": ", failed, "\n") end
      end
      C.shardrt_source_free(source[0])
    ]]):format(folder), { processes = 3, options = { "--timeout", "10" }, limit = 60 })
    mpi.remove(folder)
    assert.equal(0, result.status, result.output)
    for _, name in ipairs { "reshard", "carry", "process_allgather", "save", "save in rows", "check_array",
      "check_same", "check_source", "the words", "stacking" } do
      local failed = tonumber(result.stdout:match("%f[%w]" .. name .. ": (%d+)"))
      assert.is_true(failed ~= nil and failed >= 1, name .. ": " .. result.output)
    end
  end)

  it("is passed on with a long message, which is cut, and with those of others", function()
    local result = run [[
      local message = ("x"):rep(me == 2 and 5000 or 10)
      -- A message that C leaves: a path that cannot be opened is named in it.
      local out = ffi.new "shardrt_safetensors *[1]"
      local code = 0
      if me >= 2 then code = C.shardrt_safetensors_open("/nowhere/" .. message, out) end
      assert(me < 2 or code < 0)
      local all = C.shardrt_check_outcome(current.job, "opening", code)
      local said = ffi.string(C.shardrt_error_message())
      assert(all == C.SHARDRT_EIO, all)
      assert(said:find("^process 2: /nowhere/xxx"), said)
      assert(#said > 1000, #said)
      meet "after it"
      code = C.shardrt_safetensors_open("/nowhere/alike", out)
      all = C.shardrt_check_outcome(current.job, "opening", code)
      assert(all == C.SHARDRT_EIO and ffi.string(C.shardrt_error_message()):find "^/nowhere/alike")
      io.write "fine\n"
    ]]
    assert.equal(0, result.status, result.output)
    assert.equal(4, times(result.stdout, "fine"))
  end)
end)

describe("the end of a job", function()
  -- Counts what is sent and received at MPI's own door.
  local shim = [[
    #include <mpi.h>
    #include <stdio.h>
    static long sent, received;
    int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
      sent++;
      return PMPI_Isend(data, n, type, to, tag, comm, request);
    }
    int MPI_Recv(void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status) {
      received++;
      return PMPI_Recv(data, n, type, from, tag, comm, status);
    }
    int MPI_Finalize(void) {
      long mine[2] = {sent, received}, all[2];
      int rank;
      PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
      PMPI_Allreduce(mine, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
      if (rank == 0) fprintf(stderr, "notes: %ld sent, %ld received\n", all[0], all[1]);
      return PMPI_Finalize();
    }]]

  it("leaves no note of who waited for whom unread", function()
    if os.getenv "SHARDRT_SANITIZER" then pending "a sanitizer wants to be the first library" return end
    local folder = mpi.folder()
    local file = assert(io.open(folder .. "/shim.c", "w"))
    file:write(shim)
    file:close()
    local compile = "cd %s && gcc -shared -fPIC -o shim.so shim.c $(pkg-config --cflags --libs ompi-c)"
    local made = mpi.shell(compile:format(folder))
    assert.equal(0, made.status, made.output)
    file = assert(io.open(folder .. "/recipe.lua", "w"))
    file:write(head, [[
      meet "begin"
      if me == 2 then ffi.C.usleep(1500000) end -- the others say that they wait, and then that they do not any more]])
    file:close()
    local result = mpi.shell(([[OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
      mpirun --oversubscribe -n 4 env LD_PRELOAD=%s/shim.so %s %s/recipe.lua]]):format(
      folder, mpi.program(), folder), 60)
    mpi.remove(folder)
    assert.equal(0, result.status, result.output)
    local sent, received = result.stderr:match "notes: (%d+) sent, (%d+) received"
    assert.is_true(tonumber(sent) > 0, result.output)
    assert.equal(sent, received)
  end)
end)

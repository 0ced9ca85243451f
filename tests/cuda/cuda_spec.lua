-- long: 35 s
-- The plug-in's own logic (runtime/device/cuda.c, pinned.c) on the stand-in of CUDA's runtime: which GPUs are whose,
-- what comes before what, who holds memory, what is said when calls fail; and how shardrt takes what is there and what
-- is not.

local mpi = require "tests.support.mpi"

local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"
local seed = require "tests.support.seed"

-- Runs a recipe that calls the plug-in by itself; it prints what is asked of it.
local function alone(source, limit)
  return mpi.run { options = { "--platform", "host" }, limit = limit or 120, env = { SHARDRT_STANDIN = plugin },
    source = 'package.path = "./?.lua;" .. package.path\nlocal ffi = require "ffi"\nlocal seed = ' .. seed .. [[

      math.randomseed(seed)
      local standin = require "tests.support.cuda.standin"
      local a, check = standin.a, standin.check
      local MAIN, IN, OUT, ARRAYS, BATCHES, SCRATCH = 0, 1, 2, 0, 1, 2
    ]] .. source }
end

local well = require("tests.support.expect").well

describe("a process's devices", function()
  it("are its share of the GPUs, evenly", function()
    well(alone [[
      for gpus = 1, 9 do
        for size = 1, 5 do
          local owner = {} -- of each GPU, where there are enough: the process to whose share its end belongs
          for gpu = 0, gpus - 1 do owner[gpu] = math.ceil((gpu + 1) * size / gpus) - 1 end
          for devices = 0, 6 do
            for rank = 0, size - 1 do
              local at = ("%d GPUs, process %d of %d, %d wanted"):format(gpus, rank, size, devices)
              local mine = {}
              for gpu = 0, gpus - 1 do
                local is = gpu == math.floor(rank * gpus / size)
                if gpus >= size then is = owner[gpu] == rank end
                if is then mine[#mine + 1] = gpu end
              end
              standin.reset { STANDIN_GPUS = gpus, STANDIN_MEMORY = 2 ^ 22 }
              local number = assert(standin.open(devices, rank, size))
              local wanted = devices > 0 and devices or math.max(1, math.floor(gpus / size))
              assert(number == wanted, at .. ": " .. number)
              local used = math.min(wanted, #mine)
              local counts, last = {}, 0
              for d = 0, number - 1 do
                local info = standin.describe(d)
                assert(info.name == "Stand-in " .. info.gpu, at)
                local place
                for i = 1, used do if mine[i] == info.gpu then place = i end end
                assert(place and place >= last, at .. ": device " .. d .. " is GPU " .. info.gpu)
                last = place
                counts[place] = (counts[place] or 0) + 1
              end
              for i = 1, used do
                assert(counts[i] == math.floor(wanted / used) or counts[i] == math.ceil(wanted / used), at)
              end
              for d = 0, number - 1 do
                local info = standin.describe(d)
                for i = 1, used do if mine[i] == info.gpu then assert(counts[i] == info.shared, at) end end
              end
              a.close()
              assert(standin.held(-1) == 0)
            end
          end
        end
      end
    ]])
  end)

  it("are those that CUDA_VISIBLE_DEVICES leaves, in its order", function()
    well(alone [[
      standin.reset { STANDIN_GPUS = 8, STANDIN_MEMORY = 2 ^ 22, CUDA_VISIBLE_DEVICES = "6,1,4" }
      assert(standin.count() == 3)
      assert(standin.open(0) == 3)
      for d, physical in ipairs { 6, 1, 4 } do
        local info = standin.describe(d - 1)
        assert(info.name == "Stand-in " .. physical and info.gpu == d - 1)
        assert(info.uuid:byte(16) == physical + 1)
      end
      a.close()
      standin.reset { STANDIN_GPUS = 8, CUDA_VISIBLE_DEVICES = "" }
      assert(standin.count() == 0)
    ]])
  end)

  it("are shared with processes that see the same ones, and no others", function()
    well(alone [[
      local seen = {}
      for _, host in ipairs { "here", "there" } do
        for _, visible in ipairs { "0,1,2,3", "0,1", "2,3", "3" } do
          standin.reset { STANDIN_GPUS = 4, STANDIN_HOST = host, CUDA_VISIBLE_DEVICES = visible }
          local number, which = standin.count()
          assert(number == math.floor(#visible / 2) + 1 and which ~= 0)
          which = tostring(which)
          assert(seen[which] == nil, visible)
          seen[which] = true
          standin.reset { STANDIN_GPUS = 4, STANDIN_HOST = host, CUDA_VISIBLE_DEVICES = visible }
          assert(tostring(select(2, standin.count())) == which)
        end
      end
    ]])
    -- As with a launcher that gives each process two of four GPUs: both are its own.
    local job = ([[export %s STANDIN_GPUS=4 SHARDRT_CUDA_PLUGIN=%s
      mpirun -n 2 sh -c 'own=$((OMPI_COMM_WORLD_RANK * 2)); export CUDA_VISIBLE_DEVICES=$own,$((own + 1))
        exec %s --platform cuda tests/support/cuda/gpus.lua']]):format(mpi.environment, plugin, mpi.program())
    local result = well(mpi.shell(job, 60))
    assert.truthy(result.stdout:find("0\t4\tStand-in 0, Stand-in 1\n", 1, true), result.output)
    assert.truthy(result.stdout:find("1\t4\tStand-in 2, Stand-in 3\n", 1, true), result.output)
  end)

  it("know how they are linked", function()
    well(alone [[
      local kinds = { [0] = 1, 2, 3 } -- none, PCIe, NVLink: by the host, peers, NVLink
      for case = 1, 30 do
        local links, list = {}, {}
        for g = 0, 4 do
          for h = g + 1, 4 do
            local kind = math.random(0, 2)
            links[g .. " " .. h], links[h .. " " .. g] = kind, kind
            if kind > 0 then list[#list + 1] = ("%d-%d:%s"):format(g, h, kind == 2 and "nvlink" or "pcie") end
          end
        end
        standin.reset { STANDIN_GPUS = 5, STANDIN_LINKS = table.concat(list, ","), STANDIN_MEMORY = 2 ^ 22,
          STANDIN_POOLS = case % 2 }
        assert(standin.open(10) == 10)
        for d = 0, 9 do
          for e = 0, 9 do
            local g, h = math.floor(d / 2), math.floor(e / 2)
            local wanted = g == h and 4 or kinds[links[g .. " " .. h] ]
            assert(a.link(d, e) == wanted, ("%d and %d: %d"):format(d, e, a.link(d, e)))
            assert(a.copies.reaches(d, e) == (wanted >= 2))
          end
        end
        a.close()
      end
    ]])
  end)
end)

describe("what is put on streams", function()
  -- A random program over devices, streams and blocks of memory, in which whoever touches a block waits for whoever
  -- touched it last; a plain table says what each block must hold in the end.
  local program = [[
    local function run(case, waits, pools)
      local gpus = math.random(1, 3)
      standin.reset { STANDIN_GPUS = gpus, STANDIN_MEMORY = 2 ^ 24, STANDIN_SEED = seed + case, STANDIN_POOLS = pools,
        STANDIN_LINKS = ({ "none", "pcie", "nvlink" })[math.random(3)] }
      local devices, size = math.random(2, 5), 1024
      assert(standin.open(devices) == devices)
      local blocks, staging = {}, {}
      -- On its own stream of its own device, `other`'s work before it and after it is put in order by events.
      local function touch(device, stream, block)
        if not waits or (block.device == device and block.stream == stream) then return end
        local event = assert(standin.record(block.device, block.stream))
        check(a.streams.wait(device, stream, event))
        a.streams.event_free(event)
      end
      local function touched(device, stream, block)
        block.device, block.stream = device, stream
      end
      for i = 1, 6 do
        local device = math.random(0, devices - 1)
        local block = { home = device, device = device, stream = MAIN }
        block.data = assert(standin.allocate(device, MAIN, ARRAYS, size))
        check(a.copies.zero(device, block.data, size))
        block.value = 0
        blocks[i] = block
      end
      for _ = 1, 60 do
        local block, what = blocks[math.random(#blocks)], math.random(waits and 5 or 4)
        local stream = math.random(0, 2)
        if what == 1 then -- pinned memory: not to be written to until it was read
          local value = math.random(1, 200)
          local data = assert(standin.pinned(size))
          ffi.fill(data, size, value)
          touch(block.home, stream, block)
          check(a.copies.upload(block.home, stream, block.data, data, size))
          touched(block.home, stream, block)
          staging[#staging + 1] = { data = data, event = assert(standin.record(block.home, stream)) }
          block.value = value
        elseif what == 2 then -- pageable memory is the caller's again at once
          local value = math.random(1, 200)
          local data = ffi.new("uint8_t[?]", size)
          ffi.fill(data, size, value)
          touch(block.home, stream, block)
          check(a.copies.upload(block.home, stream, block.data, data, size))
          ffi.fill(data, size, 255)
          touched(block.home, stream, block)
          block.value = value
        elseif what == 3 then
          local from = blocks[math.random(#blocks)]
          if from ~= block then
            touch(block.home, MAIN, from)
            touch(block.home, MAIN, block)
            check(a.copies.copy(block.home, block.data, from.home, from.data, size))
            touched(block.home, MAIN, block)
            touched(block.home, MAIN, from)
            block.value = from.value
          end
        elseif what == 4 then
          touch(block.home, MAIN, block)
          check(a.copies.zero(block.home, block.data, size))
          touched(block.home, MAIN, block)
          block.value = 0
        else -- given back where it was used last, and another one in its place
          local owner = block.device == block.home and block.stream or MAIN
          touch(block.home, owner, block)
          a.memory.free(block.home, owner, ARRAYS, block.data, size)
          block.data = assert(standin.allocate(block.home, stream, ARRAYS, size))
          local value = math.random(1, 200)
          local data = ffi.new("uint8_t[?]", size)
          ffi.fill(data, size, value)
          check(a.copies.upload(block.home, stream, block.data, data, size))
          touched(block.home, stream, block)
          block.value = value
        end
      end
      local wrong = 0
      for d = 0, waits and -1 or devices - 1 do -- what is given back has been used, at least
        for s = 0, 2 do
          local event = assert(standin.record(d, s))
          check(a.streams.finish(event))
          a.streams.event_free(event)
        end
      end
      for _, block in ipairs(blocks) do
        local data = assert(standin.pinned(size))
        touch(block.home, OUT, block)
        check(a.copies.download(block.home, OUT, data, block.data, size))
        local event = assert(standin.record(block.home, OUT))
        check(a.streams.finish(event))
        assert(standin.reached(event))
        a.streams.event_free(event)
        local bytes = ffi.cast("uint8_t *", data)
        for i = 0, size - 1 do
          if bytes[i] ~= block.value then
            wrong = wrong + 1
            break
          end
        end
        a.memory.free_pinned(data, size)
        a.memory.free(block.home, OUT, ARRAYS, block.data, size)
      end
      for _, one in ipairs(staging) do
        check(a.streams.finish(one.event))
        a.streams.event_free(one.event)
        a.memory.free_pinned(one.data, size)
      end
      a.close()
      assert(standin.held(-1) == 0, "pinned memory is left")
      for g = 0, gpus - 1 do assert(standin.held(g) == 0, "memory of a GPU is left") end
      return wrong
    end
  ]]

  it("comes in the order that events make", function()
    well(alone(program .. "for case = 1, 150 do assert(run(case, true, 1) == 0, 'case ' .. case) end"))
  end)

  it("comes in that order where memory is not allocated on streams", function()
    well(alone(program .. "for case = 1, 50 do assert(run(case, true, 0) == 0, 'case ' .. case) end"))
  end)

  it("is found wrong on the stand-in where nobody waits", function()
    well(alone(program .. [[
      local wrong = 0
      for case = 1, 20 do wrong = wrong + (run(case, false, 1) > 0 and 1 or 0) end
      assert(wrong > 10, wrong .. " of 20 programs without order were found out")
    ]]))
  end)

  it("of one device comes after another's, by `after`", function()
    well(alone [[
      for case = 1, 40 do
        standin.reset { STANDIN_GPUS = math.random(1, 3), STANDIN_MEMORY = 2 ^ 24, STANDIN_SEED = seed + case }
        standin.open(3)
        local size, data = 4096, {}
        local host, back = ffi.new("uint8_t[?]", 4096), ffi.new("uint8_t[?]", 4096)
        for d = 0, 2 do data[d] = assert(standin.allocate(d, MAIN, ARRAYS, size)) end
        ffi.fill(host, size, 77)
        check(a.copies.upload(0, MAIN, data[0], host, size))
        for d = 1, 2 do
          check(a.streams.after(d, d - 1))
          check(a.copies.copy(d, data[d], d - 1, data[d - 1], size))
          check(a.streams.after(d - 1, d))
          a.memory.free(d - 1, MAIN, ARRAYS, data[d - 1], size)
        end
        check(a.streams.after(2, 2))
        check(a.copies.download(2, MAIN, back, data[2], size))
        for i = 0, size - 1 do assert(back[i] == 77) end
        a.memory.free(2, MAIN, ARRAYS, data[2], size)
        a.close()
      end
    ]])
  end)

  it("takes a time that can be told", function()
    well(alone [[
      standin.reset {}
      standin.open(2)
      local data = assert(standin.allocate(0, MAIN, SCRATCH, 100))
      local marks = ffi.new "struct accelerator_event *[2]"
      check(a.streams.mark(0, MAIN, marks))
      check(a.copies.zero(0, data, 100))
      check(a.streams.mark(0, MAIN, marks + 1))
      check(a.streams.finish(marks[1]))
      local seconds = ffi.new "double[1]"
      check(a.streams.elapsed(marks[0], marks[1], seconds))
      assert(seconds[0] > 0 and seconds[0] < 1)
      a.streams.event_free(marks[0])
      a.streams.event_free(marks[1])
      a.streams.event_free(nil)
      a.memory.free(0, MAIN, SCRATCH, data, 100)
      a.close()
    ]])
  end)
end)

describe("memory of a GPU", function()
  it("is accounted for by device and holder, and says who has it when there is no more", function()
    local said = well(alone [[
      standin.reset { STANDIN_GPUS = 2, STANDIN_MEMORY = 2 ^ 30, STANDIN_HELD = 2 ^ 28 }
      assert(standin.open(4) == 4)
      local MIB = 2 ^ 20
      local list = {}
      local function take(device, holder, bytes)
        list[#list + 1] = { device, holder, assert(standin.allocate(device, MAIN, holder, bytes)), bytes }
      end
      take(0, ARRAYS, 256 * MIB)
      take(1, ARRAYS, 128 * MIB)
      take(0, BATCHES, 64 * MIB)
      take(1, SCRATCH, 32 * MIB)
      take(2, ARRAYS, 512 * MIB) -- of the other GPU
      local none, message, code = standin.allocate(1, IN, BATCHES, 320 * MIB)
      assert(none == nil and code == -1)
      print(message)
      for _, one in ipairs(list) do a.memory.free(one[1], MAIN, one[2], one[3], one[4]) end
      -- What was given back, on whatever stream, is there again when it is wanted.
      local all = assert(standin.allocate(1, IN, BATCHES, 700 * MIB))
      a.memory.free(1, IN, BATCHES, all, 700 * MIB)
      none, message = standin.allocate(0, MAIN, ARRAYS, 2 ^ 31)
      assert(none == nil)
      print(message)
      a.close()
    ]]).stdout
    local first, second = said:match "^([^\n]*)\n([^\n]*)"
    local one = "out of memory on device 1 (GPU 0, Stand-in 0): 335544320 bytes are wanted for batches; of its 1.00 " ..
      "GiB 0.28 are free; this process holds 0.47 there in 2 devices, this one 0.16: 0.38 as arrays, 0.06 as " ..
      "batches, 0.03 as scratch memory; 0.25 are other processes'"
    assert.truthy(first:find(one, 1, true), first)
    local two = "this process holds 0.00 there in 2 devices, this one 0.00: 0.00 as arrays"
    assert.truthy(second:find(two, 1, true), second)
  end)

  it("that was freed is kept, but for what other processes and CUDA's libraries need", function()
    well(alone [[
      ffi.cdef "int cudaMemGetInfo(size_t *available, size_t *total);"
      local function available()
        local sizes = ffi.new "size_t[2]"
        assert(standin.runtime.cudaMemGetInfo(sizes, sizes + 1) == 0)
        return tonumber(sizes[0])
      end
      -- All of each GPU is taken and given back; once that has happened, a part of it is everybody's.
      for case = 1, 40 do
        local gpus, size, total = math.random(1, 5), math.random(1, 9), 2 ^ 24
        local rank, first, sharing = math.random(0, size - 1), nil, 0
        local function gpu_of(r) return math.floor(gpus * r / size) end
        for r = 0, size - 1 do if gpu_of(r) == gpu_of(rank) then sharing = sharing + 1 end end
        if gpus >= size then sharing = 1 end
        local at = ("%d GPUs, process %d of %d"):format(gpus, rank, size)
        standin.reset { STANDIN_GPUS = gpus, STANDIN_MEMORY = total }
        local number = assert(standin.open(gpus < size and math.random(1, 3) or 0, rank, size))
        for d = 0, number - 1 do
          local info = standin.describe(d)
          assert(info.memory == math.floor(total / sharing), at)
          if d == 0 or info.gpu ~= standin.describe(d - 1).gpu then
            local data = assert(standin.allocate(d, MAIN, ARRAYS, total))
            a.memory.free(d, MAIN, ARRAYS, data, total)
            local event = assert(standin.record(d, MAIN))
            check(a.streams.finish(event))
            a.streams.event_free(event)
            assert(total - available() == math.floor(total / 16 * 15 / sharing), at)
          end
        end
        a.close()
      end
      -- What nobody has waited for is given back when a library finds none.
      standin.reset { STANDIN_GPUS = 1, STANDIN_MEMORY = 2 ^ 24 }
      standin.open(1)
      a.memory.free(0, MAIN, ARRAYS, assert(standin.allocate(0, MAIN, ARRAYS, 2 ^ 24)), 2 ^ 24)
      assert(available() == 0)
      local x, y, z = standin.allocate(0, MAIN, ARRAYS, 4), standin.allocate(0, MAIN, ARRAYS, 4), nil
      z = standin.allocate(0, MAIN, ARRAYS, 4)
      check(a.copies.upload(0, MAIN, x, ffi.new("float[1]", 3), 4))
      check(a.copies.upload(0, MAIN, y, ffi.new("float[1]", 5), 4))
      local C = require "shardrt.base.ffi"
      local product = ffi.new("struct accelerator_product", { dtype = C.SHARDRT_FLOAT32, out_dtype = C.SHARDRT_FLOAT32,
        m = 1, n = 1, k = 1, batches = 1 })
      check(a.kernels.product("matmul", 0, product, x, y, z))
      local got = ffi.new "float[1]"
      check(a.copies.download(0, MAIN, got, z, 4))
      assert(got[0] == 15)
      a.close()
    ]])
  end)

  it("has an address also where it has no bytes", function()
    well(alone [[
      for pools = 0, 1 do
        standin.reset { STANDIN_POOLS = pools }
        standin.open(1)
        local data = assert(standin.allocate(0, MAIN, ARRAYS, 0))
        assert(data ~= nil)
        check(a.copies.zero(0, data, 0))
        check(a.copies.upload(0, MAIN, data, nil, 0))
        check(a.copies.download(0, MAIN, nil, data, 0))
        check(a.copies.copy(0, data, 0, data, 0))
        a.memory.free(0, MAIN, ARRAYS, data, 0)
        a.memory.free(0, MAIN, ARRAYS, nil, 0)
        local host = assert(standin.pinned(0))
        assert(host ~= nil)
        a.memory.free_pinned(host, 0)
        a.memory.free_pinned(nil, 10)
        a.close()
        assert(standin.held(0) == 0)
      end
    ]])
  end)
end)

describe("what a device's data was brought to", function()
  it("is uploaded to others before it is used again", function()
    for order = 1, 6 do
      local result = well(mpi.run { processes = 2, devices = 2, limit = 120, options = { "--platform", "cuda" },
        env = { SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = 2, STANDIN_SEED = order, SHARDRT_LINKS = "off" },
        source = [[
          local shardrt, np = require "shardrt", require "shardrt.numpy"
          local all = shardrt.NamedSharding(shardrt.make_mesh({ 4 }, { "x" }), shardrt.P "x")
          local a = shardrt.device_put(np.ones { 4 }, all) -- by way of the host: nobody placed the ones
          shardrt.random.normal(shardrt.random.key(3), { 4 }, all)
          local s = a + 0 * a
          assert(shardrt.process_allgather(np.sum(s)):to_table() == 4)
          assert(table.concat(shardrt.process_allgather(s):to_table(), " ") == "1 1 1 1")
        ]] })
      assert.equal("", result.stderr)
    end
  end)
end)

describe("arrays that a recipe does not need any more", function()
  -- A recipe on one stand-in of a GPU; STANDIN_FAIL and the like in `standin`.
  local function run(source, standin)
    local env = { SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = 1, STANDIN_SEED = seed % 1000 + 1 }
    for name, value in pairs(standin) do env["STANDIN_" .. name] = value end
    return well(mpi.run { options = { "--platform", "cuda" }, devices = 2, limit = 120, env = env, source = [[
      local C, shardrt, np = require "shardrt.base.ffi", require "shardrt", require "shardrt.numpy"
      local mesh = shardrt.make_mesh({ 2 }, { "a" })
      local x = np.zeros({ 1024, 1024 }, "float32", shardrt.NamedSharding(mesh, shardrt.P "a"))
    ]] .. source })
  end

  it("are collected as often as the GPU's memory wants it, not at every operation", function()
    run([[
      assert(tonumber(C.shardrt_device_memory()) == 2 ^ 28)
      local collections, collect = 0, collectgarbage
      function collectgarbage(...)
        local result = collect(...)
        if select("#", ...) == 0 or result == true then collections = collections + 1 end -- or the last step of one
        return result
      end
      for _ = 1, 300 do local y = np.sin(x) end -- of 4 MiB each
      assert(collections >= 300 / 5 and collections <= 300 / 3, collections)
    ]], { MEMORY = 2 ^ 28 })
  end)

  it("make room where there is none", function()
    local pairs_of_calls = {}
    for n = 30, 90, 5 do
      pairs_of_calls[#pairs_of_calls + 1] = ("cudaMallocAsync@%d=2,cudaMallocAsync@%d=2"):format(n, n + 1)
    end
    local result = run([[
      local collections, collect = 0, collectgarbage
      function collectgarbage(...)
        if select("#", ...) == 0 then collections = collections + 1 end
        return collect(...)
      end
      local y = x
      for _ = 1, 60 do y = np.add(y, 1) end
      assert(np.max(y):item() == 60 and np.min(y):item() == 60)
      print(collections > 5)
    ]], { FAIL = table.concat(pairs_of_calls, ",") })
    assert.equal("true\n", result.stdout)
  end)
end)

describe("pinned memory", function()
  it("is used again, up to a limit, and given back at the end", function()
    well(alone [[
      standin.reset {}
      standin.open(1)
      local first = assert(standin.pinned(100000))
      a.memory.free_pinned(first, 100000)
      local made = standin.calls "cudaHostAlloc"
      assert(standin.pinned(99000) == first, "a block of the same size")
      a.memory.free_pinned(first, 99000)
      assert(standin.calls "cudaHostAlloc" == made)
      local other = assert(standin.pinned(40000))
      assert(other ~= first, "a block far too large")
      a.memory.free_pinned(other, 40000)
      -- Blocks hold what they are to, and waste at most a fifth.
      for _ = 1, 200 do
        local bytes = math.random(4096, 3000000)
        local before, calls = standin.held(-1), standin.calls "cudaHostAlloc"
        local data = assert(standin.pinned(bytes))
        if standin.calls "cudaHostAlloc" > calls then
          local room = standin.held(-1) - before
          assert(room >= bytes and bytes >= room * 0.8 - 1024, bytes .. " in " .. room)
        end
        ffi.fill(data, bytes, 1)
        a.memory.free_pinned(data, bytes)
      end
      -- More than is kept.
      local large = {}
      for i = 1, 5 do large[i] = assert(standin.pinned(2 ^ 28)) end
      for i = 1, 5 do a.memory.free_pinned(large[i], 2 ^ 28) end
      assert(standin.held(-1) <= 2 ^ 30 and standin.held(-1) >= 2 ^ 29)
      a.close()
      assert(standin.held(-1) == 0)
    ]])
  end)

  it("is taken from what waits when there is no more", function()
    well(alone [[
      standin.reset { STANDIN_FAIL = "cudaHostAlloc@2=2" }
      standin.open(1)
      local small = assert(standin.pinned(5000))
      a.memory.free_pinned(small, 5000)
      local large = assert(standin.pinned(2 ^ 20))
      assert(standin.calls "cudaFreeHost" == 1)
      a.memory.free_pinned(large, 2 ^ 20)
      a.close()
    ]])
  end)
end)

describe("a call of CUDA's that fails", function()
  -- All that the plug-in does by itself; gives back the first failure.
  local everything = [[
    local function everything(devices)
      local number, message, code = standin.open(devices)
      if not number then return message, code end
      local failed, failure
      local function try(result, said, c)
        if failed then return nil end
        if type(result) == "number" and result < 0 then
          failed, failure = standin.message(), result
        elseif result == nil then
          failed, failure = said, c
        end
        return not failed and result or nil
      end
      local size, events = 5000, {}
      local one, two, host = try(standin.allocate(0, MAIN, ARRAYS, size))
      if not failed then two = try(standin.allocate(number - 1, IN, BATCHES, size)) end
      if not failed then host = try(standin.pinned(size)) end
      if not failed then try(a.copies.upload(0, MAIN, one, host, size)) end
      if not failed then events[1] = try(standin.record(number - 1, IN)) end
      if not failed then try(a.streams.wait(number - 1, MAIN, events[1])) end
      if not failed then try(a.streams.after(number - 1, 0)) end
      if not failed then try(a.copies.copy(number - 1, two, 0, one, size)) end
      if not failed then try(a.copies.zero(0, one, size)) end
      if not failed then try(a.copies.download(number - 1, MAIN, host, two, size)) end
      if not failed then events[2] = try(standin.record(number - 1, MAIN)) end
      if not failed then
        local reached, said, c = standin.reached(events[2])
        if reached == nil then failed, failure = said, c end
      end
      if not failed then try(a.streams.finish(events[2])) end
      for _, event in pairs(events) do a.streams.event_free(event) end
      if one then a.memory.free(0, MAIN, ARRAYS, one, size) end
      if two then a.memory.free(number - 1, MAIN, BATCHES, two, size) end
      if host and not failed then a.memory.free_pinned(host, size) end
      a.close()
      return failed, failure
    end
  ]]

  it("is said, whichever it is, and everything is given back", function()
    local result = well(alone(everything .. [[
      local log = os.tmpname()
      for pools = 0, 1 do
        io.open(log, "w"):close()
        standin.reset { STANDIN_GPUS = 2, STANDIN_MEMORY = 2 ^ 22, STANDIN_POOLS = pools, STANDIN_LOG = log }
        assert(everything(3) == nil)
        local calls, said, names = standin.calls "any", 0, {}
        for line in io.lines(log) do names[#names + 1] = line:match " call (%w+)" end
        assert(calls > 40 and #names == calls)
        for n = 1, calls do
          for _, problem in ipairs { 2, 101, 801, 700, 719 } do
            local at = ("call %d of %d, %s, fails with %d: "):format(n, calls, names[n], problem)
            standin.reset { STANDIN_GPUS = 2, STANDIN_MEMORY = 2 ^ 22, STANDIN_POOLS = pools,
              STANDIN_FAIL = ("any@%d=%d"):format(n, problem) }
            local message, code = everything(3)
            if message then
              said = said + 1
              assert(message:match "cuda%w+ failed" or message:match "out of memory on device" or
                message:match "no GPU was found", at .. message)
              if message:match " failed on device" then
                assert(message:match "device %d %(GPU %d, Stand%-in %d%): [^()]+ %(cudaError%w+%)", at .. message)
              end
              assert(code == -1 or code == -10 or message:match "no GPU was found", at .. code)
            end
            -- Nothing is left, where the error itself does not stay and giving back is not what failed.
            if problem ~= 700 and problem ~= 719 and names[n] ~= "cudaFreeAsync" and names[n] ~= "cudaFree" and
              (pools == 1 or names[n] ~= "cudaStreamSynchronize") then
              for g = 0, 1 do assert(standin.held(g) == 0, at .. "memory is left") end
            end
            -- And nothing of it is left in the plug-in.
            standin.reset { STANDIN_GPUS = 2, STANDIN_MEMORY = 2 ^ 22 }
            assert(everything(3) == nil, at .. "not afterwards")
          end
        end
        print("said", said, calls)
      end
      os.remove(log)
    ]], 300))
    for said in result.stdout:gmatch "said%s+(%d+)" do assert.is_true(tonumber(said) > 100) end
  end)

  it("while a device is half open gives its streams back, too", function()
    well(alone [[
      standin.reset { STANDIN_GPUS = 2, STANDIN_MEMORY = 2 ^ 22 }
      assert(standin.open(3) == 3)
      local streams = standin.calls "cudaStreamCreateWithFlags"
      a.close()
      assert(streams % 3 == 0 and streams > 3, streams)
      for n = 1, streams do
        standin.reset { STANDIN_GPUS = 2, STANDIN_MEMORY = 2 ^ 22,
          STANDIN_FAIL = ("cudaStreamCreateWithFlags@%d=2"):format(n) }
        assert(standin.open(3) == nil)
        local made, gone = standin.calls "cudaStreamCreateWithFlags" - 1, standin.calls "cudaStreamDestroy"
        assert(made == n - 1 and gone == made, ("%d made, %d destroyed"):format(made, gone))
      end
    ]])
  end)

  it("long after it was put on the device names what was put there last", function()
    local said = well(alone [[
      standin.reset { STANDIN_GPUS = 1, STANDIN_FAIL = "run@3=700" }
      standin.open(2)
      local data = assert(standin.allocate(1, MAIN, ARRAYS, 1000))
      local host = ffi.new("uint8_t[?]", 1000)
      check(a.copies.upload(1, MAIN, data, host, 1000))
      check(a.copies.zero(1, data, 1000))
      check(a.copies.zero(1, data, 1000))
      check(a.copies.copy(1, data, 1, data, 500))
      local event = assert(standin.record(1, MAIN))
      local code = a.streams.finish(event)
      assert(code == -10)
      print(standin.message())
      -- Whatever is asked now fails at once, and what is given back is not missed.
      assert(a.streams.finish(event) == -10)
      assert(standin.reached(event) == nil)
      assert(standin.record(1, MAIN) == nil)
      assert(standin.allocate(0, MAIN, ARRAYS, 10) == nil)
      assert(a.copies.zero(0, data, 10) == -10)
      a.streams.event_free(event)
      a.memory.free(1, MAIN, ARRAYS, data, 1000)
      a.close()
    ]]).stdout
    local expected = "cudaEventSynchronize failed on device 1 (GPU 0, Stand-in 0): an illegal memory access was " ..
      "encountered (cudaErrorIllegalAddress); it may be about what was put on the device before: copy, before that " ..
      "zeros, before that zeros, before that upload"
    assert.truthy(said:find(expected, 1, true), said)
  end)

  it("while memory for the plug-in's own notes is missing, too, is said", function()
    well(alone(everything .. [[
      local C = require "shardrt.base.ffi"
      local said = 0
      for n = 1, 40 do
        standin.reset { STANDIN_GPUS = 2, STANDIN_MEMORY = 2 ^ 22 }
        C.shardrt_alloc_fail_at(n)
        local message, code = everything(3)
        C.shardrt_alloc_fail_at(0)
        if message then
          said = said + 1
          assert(code == -1, message)
        end
        for g = 0, 1 do assert(standin.held(g) == 0 or message) end
      end
      assert(said >= 2, said .. " allocations failed")
    ]]))
  end)
end)

describe("a thread that did nothing on a GPU yet", function()
  it("may do all that any thread may, on this process's GPUs", function()
    well(alone [[
      ffi.cdef "int pthread_create(uint64_t *, const void *, void *(*)(void *), void *);"
      ffi.cdef "int pthread_join(uint64_t, void **);"
      local function there(call, argument)
        local thread = ffi.new "uint64_t[1]"
        assert(ffi.C.pthread_create(thread, nil, ffi.cast("void *(*)(void *)", call), argument) == 0)
        assert(ffi.C.pthread_join(thread[0], nil) == 0)
      end
      standin.reset { STANDIN_GPUS = 2 }
      assert(standin.open(1, 1, 2) == 1)
      local marked = ffi.new "struct accelerator_event *[1]"
      check(a.streams.mark(0, MAIN, marked))
      there(a.streams.finish, marked[0])
      there(a.streams.event_free, marked[0])
      check(a.streams.mark(0, MAIN, marked))
      there(a.streams.event_free, marked[0])
      a.close()
    ]])
  end)
end)

describe("memory that is uploaded", function()
  it("may be used again at once where it is not pinned, and is not waited for, also by GPUs that read it", function()
    well(alone [[
      for _, case in ipairs { { pageable = 0 }, { pageable = 1 }, { pageable = 1, refuses = true } } do
        standin.reset { STANDIN_GPUS = 1, STANDIN_PAGEABLE = case.pageable,
          STANDIN_FAIL = case.refuses and "cudaMemcpyBatchAsync@1=1" or nil }
        assert(standin.open(1) == 1)
        local data, from = assert(standin.allocate(0, MAIN, ARRAYS, 64)), ffi.new("uint8_t[64]", 7)
        local pinned = ffi.cast("uint8_t *", assert(standin.pinned(64)))
        ffi.fill(from, 64, 7)
        local before = standin.calls "cudaStreamSynchronize"
        check(a.copies.upload(0, MAIN, data, from, 64))
        assert(standin.calls "cudaStreamSynchronize" - before == (case.refuses and 1 or 0), "it is waited for")
        ffi.fill(from, 64, 9)
        check(a.copies.download(0, MAIN, pinned, data, 64))
        local event = assert(standin.record(0, MAIN))
        check(a.streams.finish(event))
        a.streams.event_free(event)
        for i = 0, 63 do assert(pinned[i] == 7, "the byte is " .. pinned[i]) end
        local waits = standin.calls "cudaStreamSynchronize" -- which what is pinned needs not
        check(a.copies.upload(0, MAIN, data, pinned, 64))
        assert(standin.calls "cudaStreamSynchronize" == waits)
        a.memory.free(0, MAIN, ARRAYS, data, 64)
        event = assert(standin.record(0, MAIN))
        check(a.streams.finish(event))
        a.streams.event_free(event)
        a.memory.free_pinned(pinned, 64)
        a.close()
      end
    ]])
  end)
end)

describe("a recipe", function()
  it("has the memory of all arrays that it has let go of", function()
    well(mpi.run { options = { "--platform", "cuda" }, limit = 60, source = [[
        local shardrt = require "shardrt"
        local x = shardrt.numpy.zeros({ 2 ^ 21 }, "float32")
        for i = 1, 20 do assert((x + i):block_until_ready().shape[1] == 2 ^ 21) end
      ]], env = { SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = 1, STANDIN_MEMORY = 60 * 2 ^ 20 } })
  end)

  it("brings what replicas hold to the host once", function()
    local log = os.tmpname()
    well(mpi.run { options = { "--platform", "cuda", "--devices", 4 }, limit = 60, source = [[
        local shardrt = require "shardrt"
        local mesh = shardrt.make_mesh({ 2, 2 }, { "a", "b" })
        local to = shardrt.NamedSharding(mesh, shardrt.P("a"))
        local x = shardrt.make_array_from_callback({ 4 }, to, function() return { 1, 2 } end, "float32")
        x:block_until_ready()
        local before = io.open(os.getenv "STANDIN_LOG"):read "*a"
        x:copy_to_host_async()
        assert(x.addressable_shards[1].data)
        local _, count = io.open(os.getenv "STANDIN_LOG"):read("*a"):sub(#before + 1):gsub("call cudaMemcpyAsync", "")
        assert(count == 2, count .. " copies")
      ]], env = { SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = 2, STANDIN_LOG = log } })
    os.remove(log)
  end)
end)

describe("a device that hangs", function()
  it("lets everything go on that does not wait for it", function()
    well(alone [[
      standin.reset { STANDIN_GPUS = 2, STANDIN_HANG = 1 }
      assert(standin.open(2) == 2)
      local one, two = assert(standin.allocate(0, MAIN, ARRAYS, 64)), assert(standin.allocate(1, MAIN, ARRAYS, 64))
      check(a.copies.zero(1, two, 64))
      local event = assert(standin.record(1, MAIN))
      for _ = 1, 50 do assert(standin.reached(event) == false) end
      check(a.copies.zero(0, one, 64))
      local other = assert(standin.record(0, MAIN))
      check(a.streams.finish(other))
      a.streams.event_free(event)
      a.streams.event_free(other)
      a.memory.free(1, MAIN, ARRAYS, two, 64)
      a.memory.free(0, MAIN, ARRAYS, one, 64)
      os.exit(0)
    ]])
  end)
end)

describe("--platform", function()
  local source = 'print(require("shardrt").devices()[1].platform, #require("shardrt").devices())'
  local function run(env, ...)
    return mpi.run { source = source, env = env, options = { ... }, limit = 60 }
  end

  it("says what its devices are", function()
    local env = { SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = 3, SHARDRT_PLATFORM = "" }
    assert.equal("cuda\t3\n", well(run(env, "--platform", "cuda")).stdout)
    assert.equal("cuda\t3\n", well(run(env, "--platform", "auto")).stdout)
    assert.equal("cuda\t3\n", well(run(env)).stdout)
    assert.equal("cuda\t5\n", well(run(env, "--platform", "cuda", "--devices", 5)).stdout)
    assert.equal("host\t1\n", well(run(env, "--platform", "host")).stdout)
  end)

  it("gives each process of a job GPUs of its own", function()
    local result = mpi.run { processes = 2, options = { "--platform", "cuda" }, limit = 60, source = [[
        local shardrt = require "shardrt"
        print(shardrt.process_index(), shardrt.device_count(), shardrt.local_device_count())
      ]], env = { SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = 5 } }
    well(result)
    assert.truthy(result.stdout:find("0\t4\t2\n", 1, true), result.output)
    assert.truthy(result.stdout:find("1\t4\t2\n", 1, true), result.output)
  end)

  it("cuda says where there is no GPU, and auto takes the host", function()
    local env = { SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = 0, SHARDRT_PLATFORM = "" }
    local result = run(env, "--platform", "cuda")
    assert.equal(1, result.status)
    assert.truthy(result.stderr:find("no GPU was found here, or no driver for it", 1, true), result.output)
    assert.truthy(result.stderr:find("no CUDA-capable device is detected (cudaErrorNoDevice)", 1, true), result.output)
    assert.equal("host\t1\n", well(run(env)).stdout)
    env.STANDIN_GPUS, env.STANDIN_FAIL = 1, "cudaGetDeviceCount@1=35"
    result = run(env, "--platform", "cuda")
    assert.equal(1, result.status)
    assert.truthy(result.stderr:find("(cudaErrorInsufficientDriver)", 1, true), result.output)
    assert.equal("host\t1\n", well(run(env)).stdout)
  end)

  it("cuda says where there is no plug-in, or a wrong one, and auto takes the host", function()
    local folder = mpi.folder()
    assert(os.execute(("cp %s %s/shardrt"):format(mpi.program(), folder)) == 0)
    local file = assert(io.open(folder .. "/recipe.lua", "w"))
    file:write(source)
    file:close()
    local function there(options)
      return mpi.shell(("env -u SHARDRT_CUDA_PLUGIN -u SHARDRT_PLATFORM %s/shardrt %s %s/recipe.lua"):format(folder,
        options, folder))
    end
    local result, automatic, host = there "--platform cuda", there "", there "--platform host"
    mpi.remove(folder)
    assert.equal(1, result.status)
    local where = ("there is no CUDA plug-in, shardrt-cuda.so, in %s, %s/../lib/shardrt or %s/shardrt: `make cuda`")
      :format(folder, folder, folder)
    assert.truthy(result.stderr:find(where, 1, true), result.output)
    assert.equal("host\t1\n", well(automatic).stdout)
    assert.equal("host\t1\n", well(host).stdout)
    assert.equal("", automatic.stderr)

    local wrong = { SHARDRT_CUDA_PLUGIN = (plugin:gsub("[^/]*$", "", 1)) .. "libstandin.so", SHARDRT_PLATFORM = "" }
    assert.truthy(run(wrong, "--platform", "cuda").stderr:find("is no plug-in of this shardrt", 1, true))
    wrong.SHARDRT_CUDA_PLUGIN = "/nowhere.so"
    local nowhere = run(wrong, "--platform", "cuda")
    assert.truthy(nowhere.stderr:find("the CUDA plug-in cannot be loaded: /nowhere.so", 1, true), nowhere.output)
    nowhere = run(wrong) -- what was named is wanted
    assert.equal(1, nowhere.status)
    assert.truthy(nowhere.stderr:find("SHARDRT_CUDA_PLUGIN: the CUDA plug-in cannot be loaded: /nowhere.so", 1, true))
  end)

  it("auto says why a plug-in that is there is not used, once", function()
    local folder = mpi.folder()
    assert(os.execute(("cp %s %s/shardrt && echo old > %s/shardrt-cuda.so"):format(mpi.program(), folder, folder)) == 0)
    local file = assert(io.open(folder .. "/recipe.lua", "w"))
    file:write(source)
    file:close()
    assert(os.execute(("cp %sshardrt-openmpi.so %s"):format(mpi.program():match "^.*/", folder)) == 0)
    local command = "env -u SHARDRT_CUDA_PLUGIN -u SHARDRT_PLATFORM %s/shardrt run -n 2 %s %s/recipe.lua"
    local automatic = mpi.shell(command:format(folder, "", folder))
    local host = mpi.shell(command:format(folder, "--platform host", folder))
    mpi.remove(folder)
    assert.equal("host\t2\nhost\t2\n", well(automatic).stdout)
    local _, times = automatic.stderr:gsub("the CUDA plug%-in cannot be loaded: [^\n]+: devices are the host's", "")
    assert.equal(1, times, automatic.output)
    assert.equal("host\t2\nhost\t2\n", well(host).stdout)
    assert.equal("", host.stderr)
  end)
end)

describe("the stand-in", function()
  it("ends a process that touches a device's memory", function()
    local result = alone [[
      standin.reset {}
      standin.open(1)
      local data = assert(standin.allocate(0, MAIN, ARRAYS, 64))
      print(ffi.cast("uint8_t *", data)[0])
    ]]
    assert.not_equal(0, result.status)
    assert.truthy(result.stderr:find("touches a device's memory", 1, true), result.output)
  end)

  local wrongs = {
    ["frees twice"] = { "was freed before",
      "a.memory.free(0, MAIN, ARRAYS, data, 64) a.memory.free(0, MAIN, ARRAYS, data, 64)" },
    ["copies what was freed"] = { "freed memory",
      "a.memory.free(0, MAIN, ARRAYS, data, 64) a.copies.zero(0, data, 64)" },
    ["copies more than there is"] = { "not in one allocation", "a.copies.zero(0, data, 65)" },
    ["gives back pinned memory that is in use"] = { "still to use", [[
      local host = standin.pinned(2 ^ 31) -- more than is kept
      a.copies.download(0, MAIN, host, data, 64)
      a.memory.free_pinned(host, 2 ^ 31)
    ]] },
  }
  for what, wrong in pairs(wrongs) do
    it("ends a process that " .. what, function()
      local result = alone([[
        standin.reset {}
        standin.open(1)
        local data = assert(standin.allocate(0, MAIN, ARRAYS, 64))
      ]] .. wrong[2])
      assert.not_equal(0, result.status)
      assert.truthy(result.stderr:find(wrong[1], 1, true), result.output)
    end)
  end
end)

-- The toolkit, as the Makefile finds it; nil: it is not here.
local function toolkit()
  local said = mpi.shell("make -s cuda-where", 60)
  return said.status == 0 and said.stdout:match "^(%S+)" or nil
end

describe("the toolkit", function()
  it("has the values and prototypes that the stand-in has", function()
    local flags = toolkit()
    if not flags then return pending "CUDA's toolkit is not here" end
    local count = 0
    for file in io.popen("ls tests/standin/*drift.c"):lines() do
      count = count + 1
      local words = mpi.shell("make -s cuda-where", 60).stdout:gsub("%s+$", "")
      well(mpi.shell(("gcc -std=c11 -Wall -Wextra -Werror %s -Itests -fsyntax-only %s"):format(words, file)))
    end
    assert.is_true(count >= 2)
  end)

  it("makes a plug-in that can be opened", function()
    if not toolkit() then return pending "CUDA's toolkit is not here" end
    local real = mpi.program():gsub("[^/]*$", "", 1) .. "shardrt-cuda.so"
    if not io.open(real) then return pending "the plug-in is not built with this program" end
    local env = { SHARDRT_CUDA_PLUGIN = real, SHARDRT_PLATFORM = "", CUDA_VISIBLE_DEVICES = "" }
    local result = mpi.run { source = "", env = env, options = { "--platform", "cuda" } }
    assert.equal(1, result.status)
    -- All its symbols are there, and it has found out that there is no GPU.
    assert.truthy(result.stderr:find("no GPU was found here", 1, true), result.output)
  end)

  it("is asked for by `make cuda`, which says what is missing", function()
    local result = mpi.shell("make cuda CUDA_HOME=/nowhere", 60)
    assert.not_equal(0, result.status)
    assert.truthy(result.output:find("missing for CUDA: nvcc cuda_runtime_api.h", 1, true), result.output)
    assert.truthy(result.output:find("pip install nvidia-cuda-nvcc", 1, true), result.output)
  end)

  -- A folder that looks like a toolkit, all but what is left out.
  local function fake(folder, version, left_out)
    local names = { "bin/nvcc", "include/cuda_runtime_api.h", "include/nv/target", "lib/libcudart_static.a",
      "include/cublas_v2.h", "include/nccl.h" }
    os.execute(("mkdir -p %s/bin %s/include/nv %s/lib"):format(folder, folder, folder))
    for _, name in ipairs(names) do
      if name ~= left_out then
        local file = assert(io.open(folder .. "/" .. name, "w"))
        if name:find "runtime" then file:write("#define CUDART_VERSION  ", version, "\n") end
        file:close()
      end
    end
  end

  it("is of CUDA 13 at least, and whole", function()
    local folder = mpi.folder()
    fake(folder .. "/old", 12040)
    fake(folder .. "/half", 13000, "include/nv/target")
    local old = mpi.shell(("make cuda CUDA_HOME=%s/old"):format(folder), 60)
    local half = mpi.shell(("make cuda CUDA_HOME=%s/half"):format(folder), 60)
    mpi.remove(folder)
    assert.not_equal(0, old.status)
    local said = ("missing for CUDA: CUDA 13: in %s/old is 12.4\n"):format(folder)
    assert.truthy(old.output:find(said, 1, true), old.output)
    assert.not_equal(0, half.status)
    assert.truthy(half.output:find(("missing for CUDA: nv/target in %s/half\n"):format(folder), 1, true), half.output)
    assert.truthy(half.output:find("nvidia-cuda-cccl", 1, true), half.output)
  end)

  it("is the active environment's, where that has one, and so is NCCL", function()
    local folder = mpi.folder()
    local pip = folder .. "/env/lib/python3.11/site-packages/nvidia"
    fake(pip .. "/cu13", 13050, "include/nccl.h")
    fake(folder .. "/kit", 13000, "include/nccl.h")
    os.execute(("mkdir -p %s/nccl/include && touch %s/nccl/include/nccl.h"):format(pip, pip))
    local function where(words)
      return mpi.shell(("env -u CUDA_HOME -u NCCL_HOME VIRTUAL_ENV=%s/env make -s cuda-where %s"):format(folder, words),
        60).output:gsub((folder:gsub("%p", "%%%0")), ""):gsub("/lib/python3.11/site%-packages/nvidia", "")
    end
    local active, named = where "", where(("CUDA_HOME=%s/kit"):format(folder))
    os.remove(pip .. "/cu13/include/nv/target")
    local broken = where ""
    mpi.remove(folder)
    assert.equal("-isystem /env/nccl/include -isystem /env/cu13/include -Iruntime\n", active)
    assert.equal("-isystem /env/nccl/include -isystem /kit/include -Iruntime\n", named)
    assert.is_nil(broken:find("cu13", 1, true), broken)
  end)

  it("compiles for the GPUs that are named, the oldest being what is needed", function()
    local folder = mpi.folder()
    fake(folder .. "/kit", 13000)
    local function make(archs)
      return mpi.shell(("make -n cuda CUDA_HOME=%s/kit CUDA_ARCHS=%s BUILD=%s/build"):format(folder, archs, folder), 60)
    end
    local results = { wrong = {} }
    for _, archs in ipairs { "sm_90", "9.0", "90a", "9", "''" } do results.wrong[archs] = make(archs) end
    results.right = make "'120 90 80 90'"
    mpi.remove(folder)
    for archs, result in pairs(results.wrong) do
      assert.not_equal(0, result.status, archs)
      assert.truthy(result.output:find("compute capabilities without their points", 1, true), result.output)
    end
    assert.equal(0, results.right.status, results.right.output)
    assert.truthy(results.right.output:find("-DCUDA_LEAST=80 ", 1, true))
    assert.truthy(results.right.output:find("arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 "
      .. "-gencode arch=compute_120,code=sm_120 -gencode arch=compute_120,code=compute_120 ", 1, true))
  end)

  it("need not be there where what it built is installed", function()
    local folder = mpi.folder()
    local built = {}
    for i, name in ipairs { "shardrt", "libshardrt.so.0", "libshardrt.so", "libshardrt.a", "shardrt.pc" } do
      built[i] = ("%s/build/%s"):format(folder, name)
    end
    os.execute(("mkdir %s/build && touch %s"):format(folder, table.concat(built, " ")))
    local function install(to)
      return mpi.shell(("make install CUDA_HOME=/nowhere BUILD=%s/build DESTDIR=%s/%s -o %s"):format(
        folder, folder, to, table.concat(built, " -o ")), 60)
    end
    local function holds(path)
      local file = io.open(folder .. "/" .. path)
      return file ~= nil and file:close()
    end
    local program = install "one"
    assert.equal(0, program.status, program.output)
    assert.is_true(holds "one/usr/local/bin/shardrt")
    assert.is_true(holds "one/usr/local/lib/libshardrt.so")
    assert.is_true(holds "one/usr/local/lib/pkgconfig/shardrt.pc")
    assert.is_true(holds "one/usr/local/share/shardrt/lua/shardrt/init.lua")
    assert.is_false(holds "one/usr/local/lib/shardrt/shardrt-cuda.so")
    os.execute(("touch %s/build/shardrt-cuda.so"):format(folder))
    local both = install "two"
    assert.equal(0, both.status, both.output)
    assert.is_true(holds "two/usr/local/lib/shardrt/shardrt-cuda.so")
    os.execute(("touch -d 2001-01-01 %s/build/shardrt-cuda.so"):format(folder))
    local stale = install "three"
    assert.not_equal(0, stale.status)
    assert.truthy(stale.output:find("is older than what it is made of", 1, true), stale.output)
    assert.is_false(holds "three/usr/local/bin/shardrt")
    mpi.remove(folder)
  end)

  it("is left out by `make` where there is no toolkit, which says so", function()
    local result = mpi.shell(("make -n all CUDA_HOME=/nowhere SANITIZE= BUILD=%s/build"):format(mpi.folder()), 60)
    assert.equal(0, result.status, result.output)
    assert.truthy(result.output:find("no nvcc found in /nowhere, built for the host only", 1, true), result.output)
    assert.truthy(result.output:find("/build/shardrt ", 1, true), result.output)
    for _, part in ipairs { "shardrt-cuda.so", "/nowhere/", "cuda/device" } do
      assert.is_nil(result.output:find(part, 1, true), part)
    end
  end)
end)

-- Checks: replicas that differ, inside a process and across processes, and things that all must see alike.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local mpi = require "tests.support.mpi"
local arrays = require "tests.support.arrays"
local P = arrays.P

local run = mpi.runner(arrays.head)

local contains = require("tests.support.expect").contains

local function message() return ffi.string(C.shardrt_error_message()) end

describe("fingerprints", function()
  it("are XXH3, 64 bits", function()
    -- From xxHash's own test vectors and `xxhsum -H3`.
    assert.equal(0x2D06800538D394C2ULL, C.shardrt_fingerprint(nil, 0))
    assert.equal(0x78AF5F94892F3950ULL, C.shardrt_fingerprint("abc", 3))
  end)

  it("differ with one bit", function()
    local data = ffi.new("uint8_t[?]", 1000)
    local plain = C.shardrt_fingerprint(data, 1000)
    for _, i in ipairs { 0, 1, 63, 64, 500, 999 } do
      data[i] = 1
      assert.are_not.equal(plain, C.shardrt_fingerprint(data, 1000))
      data[i] = 0
    end
    assert.equal(plain, C.shardrt_fingerprint(data, 1000))
    assert.are_not.equal(plain, C.shardrt_fingerprint(data, 999))
  end)
end)

describe("the replica check in one process", function()
  local shape = { 8, 6 }
  local s = arrays.sharding({ 4, 2 }, { "copies", "rows" }, P "rows")
  local value = ffi.new("int32_t[?]", 48)
  for i = 0, 47 do value[i] = i end
  local x = arrays.global(s, "int32", shape, value)

  it("passes replicas that are equal, in one buffer or in many", function()
    assert.equal(0, C.shardrt_check_array(current.job, "x", x))
    assert.equal(0, C.shardrt_check_array(current.job, "x", arrays.apart(x, s, "int32", shape)))
  end)

  it("names the devices and the range of those that differ", function()
    for device = 0, 7 do
      local y = arrays.apart(x, s, "int32", shape, device)
      assert.equal(C.SHARDRT_EMISMATCH, C.shardrt_check_array(current.job, "label", y))
      contains(message(), "label: ")
      contains(message(), device % 2 == 0 and "[0:4, 0:6]" or "[4:8, 0:6]")
      contains(message(), "device " .. device .. " (process 0)")
      local others = {}
      for d = device % 2, 7, 2 do
        if d ~= device then others[#others + 1] = d end
      end
      contains(message(), "devices " .. table.concat(others, ", ") .. " (process 0)")
    end
  end)

  it("names some of many that differ, and says how many more there are", function()
    local job = ffi.cast("shardrt_job_info *", current.info)
    local before, many = job.devices_per_process, 2 ^ 18
    job.devices_per_process = many
    local ok, problem = pcall(function()
      local everywhere = arrays.sharding({ many }, { "copies" }, P())
      local y = arrays.new(everywhere, "int32", { 2 })
      local prints = ffi.new("uint64_t[?]", many)
      for i = 0, many - 1 do prints[i] = i end
      assert.equal(C.SHARDRT_EMISMATCH, C.shardrt_check_replicas(current.job, "x", y, prints))
      contains(message(), "differ: device 0 (process 0) against device 1 (process 0) against device 2 (process 0) "
        .. "against device 3 (process 0) and 262140 more devices")
      for i = 0, many - 1 do prints[i] = i == 77777 and 1 or 0 end
      assert.equal(C.SHARDRT_EMISMATCH, C.shardrt_check_replicas(current.job, "x", y, prints))
      contains(message(), "differ: devices 0-77776, 77778-262143 (process 0) against device 77777 (process 0) (")
    end)
    job.devices_per_process = before
    assert.is_true(ok, problem)
  end)

  it("compares the fingerprints that it is given", function()
    local prints = ffi.new("uint64_t[8]", { 1, 2, 1, 2, 1, 2, 1, 2 })
    assert.equal(0, C.shardrt_check_replicas(current.job, "x", x, prints))
    prints[5] = 3
    assert.equal(C.SHARDRT_EMISMATCH, C.shardrt_check_replicas(current.job, "x", x, prints))
    contains(message(), "device 5 (process 0)")
  end)

  it("finds nothing to compare where no device holds what another does", function()
    local cut = arrays.sharding({ 4, 2 }, { "a", "b" }, P("a", "b"))
    local prints = ffi.new("uint64_t[8]", { 1, 2, 3, 4, 5, 6, 7, 8 })
    assert.equal(0, C.shardrt_check_replicas(current.job, "x", arrays.new(cut, "int32", { 8, 6 }), prints))
  end)

  it("frees what it took and says so when memory runs out, for every allocation", function()
    local y = arrays.apart(x, s, "int32", shape, 3)
    for _, case in ipairs { { x, 0 }, { y, C.SHARDRT_EMISMATCH } } do
      local n, code = 0
      repeat
        n = n + 1
        C.shardrt_alloc_fail_at(n)
        code = C.shardrt_check_array(current.job, "x", case[1])
        assert(code == case[2] or code == C.SHARDRT_ENOMEM)
      until code ~= C.SHARDRT_ENOMEM
      C.shardrt_alloc_fail_at(0)
      assert.is_true(n > 2)
    end
    local n, code = 0
    repeat
      n = n + 1
      C.shardrt_alloc_fail_at(n)
      code = C.shardrt_check_same(current.job, "it", 1)
      assert(code == 0 or code == C.SHARDRT_ENOMEM)
    until code == 0
    C.shardrt_alloc_fail_at(0)
    assert.is_true(n > 1)
  end)

  it("refuses an array without data", function()
    assert.equal(C.SHARDRT_EDATA, C.shardrt_check_array(current.job, "x", arrays.new(s, "int32", shape)))
    contains(message(), "device 0 has no data")
  end)
end)

describe("the replica check across processes", function()
  -- Replicas of 2 devices, each of its own process: processes 0 and 2 hold the same rows, 1 and 3 the others.
  local across = [[
    local s = arrays.sharding({ 4, 2 }, { "copies", "rows" }, P("rows"), { 0, 2, 4, 6, 1, 3, 5, 7 })
    local value = ffi.new("float[?]", 64)
    for i = 0, 63 do value[i] = i end
    local function put(wrong) -- wrong: this process has other numbers
      if wrong then value[63], value[0] = -1, -2 end
      return arrays.global(s, "float32", { 8, 8 }, value)
    end
  ]]

  it("names processes, devices and ranges, once, in the words of all", function()
    local result = run(across .. [[
      C.shardrt_job_at(current.job, fail.where())
      fail.check(C.shardrt_check_array(current.job, "image", put(job.process_index == 2)))
    ]])
    assert.equal(1, result.status)
    assert.equal(1, select(2, result.output:gsub("image: ", "")), result.output)
    contains(result.stderr, "shardrt: all 4 processes: ")
    contains(result.stderr, "[0:4, 0:8]")
    contains(result.stderr, "devices 0, 1 (process 0)")
    contains(result.stderr, "devices 4, 5 (process 2)")
    assert.falsy(result.stderr:find("[4:8, 0:8]", 1, true))
  end)

  it("can be caught, in every process, and the job goes on", function()
    local result = run(across .. [[
      for turn = 0, 3 do
        local code = C.shardrt_check_array(current.job, "x", put(job.process_index == turn))
        assert(code == C.SHARDRT_EMISMATCH or turn > 0)
      end
      fail.check(C.shardrt_barrier(current.job, "still together"))
      io.write("process ", job.process_index, " goes on\n")
    ]])
    assert.equal(0, result.status, result.output)
    for p = 0, 3 do contains(result.stdout, "process " .. p .. " goes on\n") end
  end)

  it("is off with --check off, and on with sample and all", function()
    for option, status in pairs { off = 0, sample = 1, all = 1 } do
      local result = run(across .. [[fail.check(C.shardrt_check_array(current.job, "x", put(job.process_index == 2)))]],
        { options = { "--check", option } })
      assert.equal(status, result.status, option .. ": " .. result.output)
    end
  end)

  it("tells processes with other layouts apart before it compares anything", function()
    local result = run [[
      local order = job.process_index == 3 and { 1, 0, 2, 3 } or { 0, 1, 2, 3 }
      local s = arrays.sharding({ 2, 2 }, { "a", "b" }, P "a", order)
      fail.check(C.shardrt_check_array(current.job, "x", arrays.global(s, "int32", { 4 }, ffi.new("int32_t[4]"))))
    ]]
    assert.equal(1, result.status)
    contains(result.stderr, "processes 0-2: x, comparing replicas")
    contains(result.stderr, "process 3: x, comparing replicas")
  end)

  it("finds every difference and never one that is not there, whatever the layout", function()
    local seed = require "tests.support.seed"
    local result = run(([[
      math.randomseed(%d)
      local function pick(list) return list[math.random(#list)] end
      local found, passed = 0, 0
      for case = 1, 80 do
        local sizes = pick { { 8 }, { 4, 2 }, { 2, 4 }, { 2, 2, 2 }, { 3, 2 }, { 2 }, { 5 } }
        local names, count = {}, 1
        for i, size in ipairs(sizes) do names[i], count = ("abc"):sub(i, i), count * size end
        local ids, all = {}, { 0, 1, 2, 3, 4, 5, 6, 7 }
        for i = 1, count do ids[i] = table.remove(all, math.random(#all)) end
        local entries, shape, cutting, free = {}, {}, {}, { unpack(names) }
        for d = 1, 2 do
          local entry, cut = {}, 1
          while #free > 0 and math.random() < 0.4 do
            local name = table.remove(free, math.random(#free))
            entry[#entry + 1] = name
            cutting[name] = true
            cut = cut * sizes[name:byte() - 96]
          end
          entries[d] = #entry > 0 and entry or nil
          shape[d] = cut * math.random(1, 3)
        end
        local s = arrays.sharding(sizes, names, P(unpack(entries, 1, 2)), ids)
        local value = ffi.new("uint16_t[?]", shape[1] * shape[2])
        for i = 0, shape[1] * shape[2] - 1 do value[i] = math.random(0, 65535) end
        local x = arrays.global(s, "uint16", shape, value)
        -- Every device on every axis that cuts nothing holds the same box as its neighbour along it.
        local copies = 1
        for i, name in ipairs(names) do copies = copies * (cutting[name] and 1 or sizes[i]) end
        local wrong = math.random() < 0.6 and pick(ids) or nil
        local expected = wrong and copies > 1 and C.SHARDRT_EMISMATCH or 0
        local code = C.shardrt_check_array(current.job, "x", arrays.apart(x, s, "uint16", shape, wrong))
        if code ~= expected then
          error(("case %%d: %%d in place of %%d: %%s, device %%s: %%s"):format(case, code, expected, tostring(s),
            tostring(wrong), ffi.string(C.shardrt_error_message())))
        end
        if code == 0 then
          passed = passed + 1
        else
          found = found + 1
          local text = ffi.string(C.shardrt_error_message())
          local owner = math.floor(wrong / 2)
          assert(text:find("device " .. wrong .. " (process " .. owner .. ")", 1, true)
            or copies == 2 or text:find(tostring(wrong), 1, true), text)
        end
      end
      assert(found > 5 and passed > 5)
    ]]):format(seed))
    assert.equal(0, result.status, "seed " .. seed .. ": " .. result.output)
  end)
end)

describe("what every process must see alike", function()
  it("is compared with process 0", function()
    local result = run [[
      fail.check(C.shardrt_check_same(current.job, "the host value", 7))
      C.shardrt_job_at(current.job, fail.where())
      fail.check(C.shardrt_check_same(current.job, "the file a.npy", job.process_index % 2 == 1 and 8 or 7))
    ]]
    assert.equal(1, result.status)
    contains(result.stderr, "all 4 processes: ")
    contains(result.stderr, "the file a.npy must be the same in every process")
    contains(result.stderr, "processes 1, 3")
  end)

  it("is compared with --check off, too, which is about what arrays hold", function()
    local result = run([[fail.check(C.shardrt_check_same(current.job, "it", job.process_index))]],
      { options = { "--check", "off" } })
    assert.equal(1, result.status, result.output)
    contains(result.stderr, "it must be the same in every process; different from process 0: processes 1-3")
  end)

  it("includes files and options with --check off", function()
    local folder = mpi.folder()
    for what, body in pairs {
      ["/0.npy"] = [[shardrt.loader { source = shardrt.source.npy { x = path }, batch_size = 8 }]],
      ["the loader's options"] = [[shardrt.loader { source = shardrt.source.array { x = shardrt.ndarray.arange(8) },
        batch_size = 8, seed = job.process_index == 2 and 1 or 0 }]],
      ["the file a.npy"] = [[
        fail.check(C.shardrt_barrier(current.job, "written"))
        ffi.cdef "int chdir(const char *)"
        os.execute(("cd %s && mkdir -p in%d && mv %d.npy in%d/a.npy"):format(arg[1], job.process_index,
          job.process_index, job.process_index))
        ffi.C.chdir(("%s/in%d"):format(arg[1], job.process_index))
        shardrt.load_npy("a.npy", arrays.sharding({ 8 }, { "x" }, P "x"))]],
    } do
      local result = run([[
        local shardrt = require "shardrt"
        local path = ("%s/%d.npy"):format(arg[1], job.process_index)
        shardrt.ndarray.full({ 8 }, job.process_index == 2 and 1 or 0):save(path)
      ]] .. body, { options = { "--check", "off" }, args = { folder } })
      assert.equal(1, result.status, what .. result.output)
      contains(result.stderr, what)
      contains(result.stderr, "process 2")
    end
    mpi.remove(folder)
  end)

  it("names a file that has another path in each process alike in all, so that it is said once", function()
    local folder = mpi.folder()
    local result = run([[
      local shardrt = require "shardrt"
      local path = ("%s/%d.npy"):format(arg[1], job.process_index)
      shardrt.ndarray.full({ 8 }, job.process_index == 2 and 1 or 0):save(path)
      shardrt.loader { source = shardrt.source.npy { x = path }, batch_size = 8 }
    ]], { args = { folder } })
    mpi.remove(folder)
    assert.equal(1, result.status)
    assert.equal(1, select(2, result.stderr:gsub("must be the same", "")), result.stderr)
    contains(result.stderr, "all 4 processes: ")
    contains(result.stderr, ("the file %s/0.npy (in process 1: the file %s/1.npy) must be the same in every process; "
      .. "different from process 0: process 2"):format(folder, folder))
  end)

  it("reads the head of each of a source's files once in the job, where all see the same files", function()
    local folder = mpi.folder()
    for i = 1, 40 do
      local file = assert(io.open(("%s/%02d.jsonl"):format(folder, i), "wb"))
      file:write('{"x": ', i, "}\n")
      file:close()
    end
    local result = run(([[
      local paths = {}
      for i = 1, 40 do paths[i] = ("%%s/%%02d.jsonl"):format(%q, i) end
      local source = require("shardrt").source
      source.jsonl(paths) -- makes their indexes
      fail.check(C.shardrt_barrier(current.job, "indexes"))
      local s = source.jsonl(paths)
      -- Counted are the files of which this process has a page, with those of one source.
      collectgarbage()
      collectgarbage()
      local read, path = 0, nil
      fail.check(C.shardrt_check_source(current.job, s))
      for line in io.lines "/proc/self/smaps" do
        path = line:match "%%S+%%.jsonl$" or not line:find "^%%x+%%-%%x+ " and path or nil
        if path and tonumber(line:match "^Rss:%%s+(%%d+)" or 0) > 0 then read = read + 1 end
      end
      -- A quarter of them, and the first, which says which fields there are.
      assert(read >= 10 and read <= 11, read .. " heads were read")
      local given = ffi.new("uint64_t[1]", C.shardrt_source_fingerprint(s))
      C.shardrt_source_free(ffi.gc(s, nil))
      assert(C.shardrt_source_fingerprint(source.jsonl(paths)) == given[0]) -- what one process makes of all heads
    ]]):format(folder))
    mpi.remove(folder)
    assert.equal(0, result.status, result.output)
  end)

  it("includes a source's files: the one that differs is named, with the processes", function()
    local folder = mpi.folder()
    for _, name in ipairs { "same", "one", "other" } do
      local value = ffi.new("int32_t[4]", { 1, 2, 3, name == "other" and 5 or 4 })
      assert.equal(0, C.shardrt_npy_save(folder .. "/" .. name .. ".npy", C.SHARDRT_INT32, 1,
        ffi.new("int64_t[1]", { 4 }), value))
    end
    local result = run(([[
      local folder = %q
      local function open(label, number)
        local names = ffi.new("const char *[2]", { "image", "label" })
        local image, file = folder .. "/same.npy", folder .. "/" .. label .. ".npy"
        local paths = ffi.new("const char *[2]", { image, file })
        local out = ffi.new "shardrt_source *[1]"
        fail.check(C.shardrt_source_open("npy", number, names, paths, nil, out))
        return ffi.gc(out[0], C.shardrt_source_free)
      end
      fail.check(C.shardrt_check_source(current.job, open("one", 2)))
      assert(C.shardrt_check_source(current.job, open("one", job.process_index == 3 and 1 or 2)) == C.SHARDRT_EMISMATCH)
      fail.check(C.shardrt_check_source(current.job, open(job.process_index == 2 and "other" or "one", 2)))
    ]]):format(folder))
    mpi.remove(folder)
    assert.equal(1, result.status)
    contains(result.stderr, "one.npy")
    contains(result.stderr, "different from process 0: process 2")
  end)
end)

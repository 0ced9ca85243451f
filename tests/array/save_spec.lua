-- long: 55 s
-- save and load in jobs: one file from any number of processes into any other; what goes wrong in one process; jobs
-- that are killed in the middle.

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

local environment = mpi.environment

local topologies = {
  { devices = 8 }, { processes = 2, devices = 4 }, { processes = 4, devices = 2 }, { processes = 8, devices = 1 },
}

-- What the recipes below begin with: arrays of every kind, the k-th element of each worked out from k.
local head = [[
local shardrt = require "shardrt"
local ffi = require "ffi"
local P, ndarray = shardrt.P, shardrt.ndarray
local mesh = shardrt.Mesh({ 4, 2 }, { "a", "b" }, { 3, 6, 1, 0, 7, 2, 5, 4 })
local few = shardrt.Mesh({ 3 }, { "c" }, { 5, 0, 2 }) -- not all processes own a device of it
local specs = { P("a", "b"), P("b", "a"), P { "b", "a" }, P("a"), P(nil, { "a", "b" }), P(nil, "b"), P() }
local function value(k, scale) return (k * 7 + scale) % 120 end
local function whole(shape, dtype, scale)
  local host = ndarray.empty(shape, dtype)
  for k = 0, host.size - 1 do host.data[k] = value(k, scale) end
  return host
end
local function over(i)
  return i == 0 and shardrt.NamedSharding(few, P(nil, "c")) or shardrt.NamedSharding(mesh, specs[i])
end
local function check(x, scale)
  for _, shard in ipairs(x.addressable_shards) do
    local rows, columns, at = shard.index[1], shard.index[2], 0
    for i = rows[1], rows[2] - 1 do
      for j = columns[1], columns[2] - 1 do
        assert(shard.data.data[at] == value(i * x.shape[2] + j, scale))
        at = at + 1
      end
    end
  end
end
local function say(...) if shardrt.process_index() == 0 then print(...) end end
]]

describe("save and load", function()
  local folder, path
  before_each(function()
    folder = files.folder()
    path = folder .. "/w.safetensors"
  end)
  after_each(function() files.remove(folder) end)

  local function run(topology, source, args, options)
    return mpi.run {
      source = head .. source, args = args, options = options, processes = topology.processes,
      devices = topology.devices, limit = 60,
    }
  end

  local function refused(topology, source, args, ...)
    local result = run(topology, source, args, { "--timeout", "20" })
    assert.not_equal(0, result.status, result.output)
    expect.contains(result.stderr, ...)
    assert.is_nil(result.stderr:find("\n[^\n]*\n", 1, true), result.output)
    return result
  end

  local function assert_nothing_left()
    for _, name in ipairs(files.list(folder)) do assert.is_nil(name:match "%.tmp$") end
  end

  local four = topologies[3]

  it("agree over all numbers of processes: one file, whoever writes it, into any layout, whoever reads it", function()
    local first
    for _, topology in ipairs(topologies) do
      local result = run(topology, [[
        local arrays, bytes = {}, 0
        for i = 0, #specs do
          for scale, dtype in ipairs { "int8", "int32", "float64" } do
            arrays[i .. dtype] = shardrt.device_put(whole({ 16, 24 }, dtype, scale + i), over(i))
            bytes = bytes + arrays[i .. dtype].size * ({ 1, 4, 8 })[scale]
          end
        end
        arrays.host = whole({ 5, 3 }, "int16", 1)
        arrays.none = shardrt.device_put(ndarray.zeros { 0, 8 }, over(1))
        -- Columns of a byte or two, which go to the file in rows; of a number of rows that only divides by one, not.
        arrays.thin = shardrt.device_put(whole({ 4096, 8 }, "int8", 2), over(5))
        arrays.prime = shardrt.device_put(whole({ 1009, 8 }, "int16", 4), over(6))
        arrays.primes = shardrt.device_put(whole({ 1009, 8 }, "int16", 4), over(5))
        bytes = bytes + 4096 * 8 + 2 * 1009 * 8 * 2
        arrays.one = shardrt.device_put(whole({ 1, 1 }, "float32", 5), over(7))
        local written = shardrt.save(arg[1], arrays)
        -- Each element was written once in the whole job; the rest is the header.
        local total = 0
        for _, n in ipairs(shardrt.process_allgather(ndarray.from_table(written, "float64")):to_table()) do
          total = total + n
        end
        local file = io.open(arg[1], "rb")
        assert(total == file:seek "end" and total - bytes - 30 - 4 < 4000)
        say "saved"]], { path })
      assert.equal(0, result.status, result.output)
      assert.equal("saved\n", result.stdout)
      local text = files.slurp(path)
      first = first or text
      assert.is_true(text == first)
      assert.same({ "w.safetensors" }, files.list(folder))
    end
    for _, topology in ipairs(topologies) do
      local result = run(topology, [[
        -- Every array into another layout than it was saved from.
        for turn = 1, #specs do
          local wanted, distinct = {}, 0
          for i = 0, #specs do
            for _, dtype in ipairs { "int8", "int32", "float64" } do
              wanted[i .. dtype] = over((i + turn) % (#specs + 1))
            end
          end
          wanted.host, wanted.none, wanted.one = over(7), over(2), over(7)
          wanted.thin, wanted.prime, wanted.primes = over(turn), over(6), over(7)
          local back, bytes = shardrt.load(arg[1], wanted)
          local needed = 0
          for name, x in pairs(back) do
            local i, dtype = name:match "^(%d)(.*)$"
            local scale = ({ int8 = 1, int32 = 2, float64 = 3 })[dtype]
            check(x, scale and scale + i or ({ host = 1, one = 5, none = 0, thin = 2, prime = 4, primes = 4 })[name])
            local seen = {}
            for _, shard in ipairs(x.addressable_shards) do
              local key = shard.index[1][1] .. "," .. shard.index[2][1]
              if not seen[key] then needed = needed + shard.data.bytes end
              seen[key] = true
            end
          end
          assert(bytes == needed)
        end
        for name, host in pairs((shardrt.load(arg[1]))) do
          if name == "host" then assert(host.dtype == "int16" and host:to_table()[5][3] == value(14, 1)) end
        end
        say "right"]], { path })
      assert.equal(0, result.status, result.output)
      assert.equal("right\n", result.stdout)
    end
  end)

  it("lay arrays out in rows where their boxes would be crumbs, one part for each process that fits", function()
    local ffi = require "ffi"
    local C = require "shardrt.base.ffi"
    local shardrt = require "shardrt"
    local P = shardrt.P
    local mesh = shardrt.make_mesh({ 4, 2 }, { "a", "b" })
    local function rows(shape, spec, processes, devices)
      local out = ffi.new "shardrt_sharding *[1]"
      assert.equal(0, C.shardrt_safetensors_rows(shardrt.NamedSharding(mesh, spec).handle, C.SHARDRT_INT32, #shape,
        ffi.new("int64_t[?]", #shape, shape), processes, devices, out))
      if out[0] == nil then return nil end
      local text = ffi.string(C.shardrt_sharding_text(out[0]))
      C.shardrt_sharding_free(out[0])
      return text
    end
    local by_four = 'NamedSharding(Mesh("rows": 4; devices 0, 2, 4, 6), P("rows"))'
    for _, case in ipairs {
      { { 4096, 8 }, P(nil, "a"), 4, 2, by_four },
      { { 4096, 8 }, P("b", "a"), 4, 2, by_four },
      { { 4096, 8 }, P(nil, "a"), 2, 4, 'NamedSharding(Mesh("rows": 2; devices 0, 4), P("rows"))' },
      { { 4096, 8 }, P(nil, "a"), 1, 8, nil },      -- one process writes them together
      { { 4096, 8 }, P { "b", "a" }, 4, 2, nil },   -- rows already
      { { 4096, 8 }, P(), 4, 2, nil },
      { { 4096, 4096 }, P(nil, "a"), 4, 2, nil },   -- runs of 4096 bytes
      { { 4096, 4092 }, P(nil, "a"), 4, 2, by_four },
      { { 255, 8 }, P(nil, "a"), 4, 2, nil },       -- few of them
      { { 256, 8 }, P(nil, "a"), 4, 2, by_four },
      { { 4099, 8 }, P(nil, "a"), 4, 2, nil },      -- no number of processes divides them
      { { 4098, 8 }, P(nil, "a"), 4, 2, 'NamedSharding(Mesh("rows": 3; devices 0, 2, 4), P("rows"))' },
      { { 1, 4096, 8 }, P(nil, nil, "a"), 4, 2, (by_four:gsub("P%(", "P(nil, ")) },
      { { 2, 4096, 8 }, P(nil, nil, "a"), 4, 2, (by_four:gsub("P%(", "P(nil, ")) },
      { { 4096, 4096, 8 }, P(nil, nil, "a"), 4, 2, by_four },
      { { 4096, 8, 4 }, P(nil, "a"), 4, 2, by_four },
      { { 4096, 8, 1024 }, P(nil, "a"), 4, 2, nil },
      { { 4096, 0 }, P(nil, "a"), 4, 2, nil },
      { { 0, 8 }, P(nil, "a"), 4, 2, nil },
    } do
      assert.equal(case[5], rows(unpack(case, 1, 4)))
    end
  end)

  it("tell once for all of processes that load different things", function() -- and what else: save_processes_spec.lua
    local result = run(four, [[
      local me = shardrt.process_index()
      for i = 0, 1 do shardrt.save(arg[1] .. i, { x = whole({ 8, 8 }, "int32", i) }) end
      shardrt.load(arg[1] .. (me == 3 and 1 or 0), { x = over(1) })]], { path })
    assert.not_equal(0, result.status, result.output)
    assert.equal(1, select(2, result.output:gsub("different things", "")), result.output)
  end)

  -- A recipe that saves 24 MiB, every element of them arg[2], and then says so.
  local large = [[
    local shape, n = { 1024, 6144 }, tonumber(arg[2])
    local function save(k)
      return shardrt.save(arg[1], { x = shardrt.device_put(ndarray.full(shape, k, "int32"), over(2)),
        y = ndarray.full({ 100 }, k, "int32") })
    end
  ]]

  -- That the file is whole, from one call of it; of which.
  local function saved()
    local result = run(topologies[1], [[
      local all = shardrt.load(arg[1])
      for k = 0, all.x.size - 1 do assert(all.x.data[k] == all.x.data[0]) end
      for k = 0, 99 do assert(all.y.data[k] == all.x.data[0]) end
      print(all.x.data[0])]], { path })
    assert.equal(0, result.status, result.output)
    return tonumber(result.stdout)
  end

  it("keep the old file where the disk is full, in whichever process that shows", function()
    assert.equal(0, run(topologies[2], large .. "save(n)", { path, "1" }).status)
    local recipe = files.write(folder, "save.lua", head .. large .. "local ok, message = pcall(save, n)\n"
      .. "if shardrt.process_index() == 0 then print(ok, message) end\n"
      .. "shardrt.process_allgather(ndarray.zeros { 1 })") -- all go on together
    local limited = files.write(folder, "limited.sh", [[
      trap "" XFSZ
      if [ $OMPI_COMM_WORLD_RANK = $1 ]; then ulimit -f 200; fi
      shift
      exec "$@"]])
    for _, process in ipairs { 0, 2 } do
      -- A limit on the size of files in one process stands for its quota.
      local result = mpi.shell(("%s mpirun -n 4 sh %s %d %s --devices 2 %s %s 2"):format(environment, limited, process,
        mpi.program(), recipe, path), 60)
      assert.equal(0, result.status, result.output)
      assert.truthy(result.stdout:find(("process %d: %s: cannot be written: File too large"):format(process, path), 1,
        true), result.output)
      assert.equal(1, saved())
      assert_nothing_left()
    end
  end)

  it("keep the old file where a real disk is full", function()
    local own = path
    local is_here = files.on_small_disk(folder, function(disk)
      path = disk .. "/w.safetensors"
      assert.equal(0, run(four, large .. "save(n)", { path, "1" }).status)
      refused(four, large .. "save(n)", { path, "2" }, "process 0: " .. path .. ": cannot be written: No space left")
      assert.same({ "w.safetensors" }, files.list(disk))
      assert.equal(1, saved())
    end)
    path = own
    if not is_here then pending "no file system can be mounted here" end
  end)

  it("leave the old file or the new one where the job is killed, and go on from there", function()
    assert.equal(0, run(topologies[1], large .. "save(1)", { path }).status)
    local recipe = files.write(folder, "save.lua", head .. large .. [[
      local pid = io.open("/proc/self/stat"):read "*n"
      local pids = shardrt.process_allgather(ndarray.from_table(pid, "float64")):to_table()
      if shardrt.process_index() == 0 then
        local file = io.open(arg[2], "w")
        file:write(table.concat(pids, " "), "\n")
        file:close()
      end
      for k = 2, 1000 do save(k) end]])
    local seed = require "tests.support.seed"
    math.randomseed(seed)
    local left = 0
    for turn = 1, 60 do -- a handful, and then until one was killed in mid-save
      if turn > 6 and left > 0 then break end
      local pids = folder .. "/pids"
      os.remove(pids)
      -- Waits until the job runs, then a while, and kills one process or all of them.
      local result = mpi.shell(([=[
        %s mpirun -n 4 %s --devices 2 %s %s %s &
        while [ ! -s %s ]; do sleep 0.02; done
        sleep 0.%03d
        set -- $(cat %s)
        kill -9 %s
        wait $!
        echo ended $?]=]):format(environment, mpi.program(), recipe, path, pids, pids, math.random(50, 500), pids,
        turn % 2 == 0 and "$3" or "$1 $2 $3 $4"), 60)
      assert.is_nil(result.stdout:find("ended 0", 1, true), result.output)
      assert.is_true(saved() >= 1)
      for _, name in ipairs(files.list(folder)) do
        if name:match "^w%.safetensors%.%x+%.tmp$" then left = left + 1 end
      end
    end
    -- What is left trips nobody, and goes with the next one.
    assert.equal(0, run(topologies[2], large .. "save(n)", { path, "7" }).status)
    assert.equal(7, saved())
    assert_nothing_left()
    assert.is_true(left > 0, "no job was killed in mid-save, seed " .. seed)
  end)

  it("are shown by a recipe, across two numbers of processes", function()
    for i, topology in ipairs { four, topologies[2], topologies[1], { devices = 1 } } do
      local result = mpi.run {
        recipe = "recipes/save_and_load.lua", args = { path }, processes = topology.processes,
        devices = topology.devices, limit = 60,
      }
      assert.equal(0, result.status, result.output)
      assert.equal(i > 1, result.stdout:find("found " .. path, 1, true) ~= nil, result.output)
      assert.truthy(result.stdout:find("step 100\r?\n"), result.output)
    end
  end)

  it("are planned without data, and without writing", function()
    local written = run(topologies[1], [[
      shardrt.save(arg[1], { x = shardrt.device_put(whole({ 8, 8 }, "int32", 3), over(2)) })]], { path })
    assert.equal(0, written.status, written.output)
    local recipe = files.write(folder, "plan.lua", head .. [[
      local all = shardrt.load(arg[1])
      assert(all.x.dtype == "int32" and all.x.shape[2] == 8 and not pcall(function() return all.x.data end))
      local x = shardrt.load(arg[1], over(4)).x
      assert(not pcall(function() return x.addressable_shards[1].data.data end))
      shardrt.save(arg[1] .. "2", { ["the x"] = x, host = all.x,
        thin = shardrt.device_put(ndarray.zeros { 256, 4 }, over(6)) })]])
    local result = mpi.shell(("%s plan --processes 4 --devices 2 %s %s"):format(mpi.program(), recipe, path))
    assert.equal(0, result.status, result.output)
    for _, words in ipairs {
      ('load %s, "x"\n  int32 {8, 8}'):format(path), ("save %s2"):format(path), "host: int32 {8, 8}, a host array",
      "process 0\n    host: writes all of it: 256 bytes", "process 1\n    host: writes nothing",
      "the x: writes [0:2, :]: 64 bytes", "thin: writes [0:64, :]: 1,024 bytes, laid out in rows first",
    } do
      assert.truthy(result.stdout:find(words, 1, true), words .. "\n" .. result.output)
    end
    assert.is_nil(table.concat(files.list(folder), " "):find("tensors2", 1, true))
  end)
end)

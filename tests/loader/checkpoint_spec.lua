-- long: 32 s
-- Checkpoints: what they hold comes back, whatever the next job looks like; what is damaged is not used; nothing that
-- goes wrong in the middle costs the last complete one.

local cjson = require "cjson"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local json = require "shardrt.base.json"
local shardrt = require "shardrt"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local P, ndarray = shardrt.P, shardrt.ndarray

local mesh = shardrt.make_mesh({ 4, 2 }, { "a", "b" })
local function over(...) return shardrt.NamedSharding(mesh, P(...)) end
local source = shardrt.source.array { id = ndarray.arange(48, "int32") }
local function new_loader(more)
  local o = { source = source, batch_size = 8, shuffle = true, seed = 5, epochs = 2 }
  for key, value in pairs(more or {}) do o[key] = value end
  return shardrt.loader(o)
end
local function full(n, sharding) return shardrt.device_put(ndarray.full({ 8, 4 }, n, "int32"), sharding) end

describe("checkpoints", function()
  local folder, dir, said, stderr
  before_each(function()
    folder = files.folder()
    dir = folder .. "/deep/run"
    said = folder .. "/said"
    stderr = io.stderr
    io.stderr = assert(io.open(said, "w")) -- luacheck: ignore 122 (what is said of damaged ones)
    io.stderr:setvbuf "no"
  end)
  after_each(function()
    io.stderr:close()
    io.stderr = stderr -- luacheck: ignore 122
    files.remove(folder)
  end)

  local function make(more)
    local o = { dir = dir }
    for key, value in pairs(more or {}) do o[key] = value end
    local made = shardrt.checkpoint(o) -- no tail call, which would leave no line
    return made
  end
  local function names() return table.concat(files.list(dir), " ") end
  local function refused(more, ...)
    local message = files.message(make, more)
    expect.contains(message, ...)
    assert.truthy(message:find "^[^:]*checkpoint_spec.lua:%d+: ", message)
  end

  it("give back arrays that nobody placed, to jobs of any size", function()
    local recipe = [[
      local shardrt, np = require "shardrt", require "shardrt.numpy"
      local model = { step = np.zeros({}), free = np.arange(6) }
      model.rows = shardrt.device_put(np.arange(12), shardrt.NamedSharding(
        shardrt.make_mesh({ shardrt.device_count() }, { "x" }), shardrt.P "x"))
      local checkpoint = shardrt.checkpoint { dir = arg[1], arrays = model }
      assert(not model.step.committed and not model.free.committed and model.rows.committed)
      model.step, model.free = model.step + 1, model.free * 2
      checkpoint:save()
      assert(shardrt.device_get(model.step):to_table() == tonumber(arg[2]))
      assert(shardrt.device_get(np.sum(model.free)):to_table() == 15 * 2 ^ arg[2])
      shardrt.save(arg[1] .. "/saved.safetensors", model)
      local loaded = shardrt.load(arg[1] .. "/saved.safetensors")
      assert(loaded.free.data[5] == 5 * 2 ^ arg[2] and loaded.rows.data[11] == 11)
    ]]
    for run, job in ipairs {
      { processes = 4, devices = 1 }, { devices = 1 }, { processes = 2, devices = 3 }, { processes = 3, devices = 1 },
    } do
      job.source, job.args = recipe, { dir, run }
      local result = mpi.run(job)
      assert.equal(0, result.status, result.output)
    end
    local planned = mpi.run { options = { "plan", "--processes", "2" }, source = [[
      local shardrt, np = require "shardrt", require "shardrt.numpy"
      shardrt.save("weights.safetensors", { step = np.zeros {} })
    ]] }
    assert.truthy(planned.stdout:find("step: float32 {}, a host array", 1, true), planned.output)
  end)

  it("give back loaders, arrays in the recipe's own layouts, and metadata", function()
    local first, other = new_loader(), new_loader { seed = 6, batch_size = 16 }
    local model = { w = full(1, over("a", "b")), layers = { { b = ndarray.full({ 3 }, 1, "float32") }, {} },
      none = shardrt.device_put(ndarray.zeros { 0, 8 }, over "a") }
    model.layers[2].b = full(7, over())
    local data = { note = 'ä "quoted"\n', list = { 1, 2.5, { true } }, lost = 1 }
    local checkpoint = make { loader = { train = first, valid = other }, arrays = model, metadata = data }
    assert.is_nil(checkpoint.restored)
    first()
    first()
    other()
    model.w, model.layers[1].b, data.lost, data.loss = full(3, over "b"), ndarray.full({ 3 }, 0.5, "float32"), nil, 1e-3
    for _ = 1, 4 do assert.is_false(checkpoint:step()) end
    checkpoint:save()
    checkpoint:close()
    assert.equal("step-0000000004", names())
    local again, valid = new_loader { batch_size = 4, sharding = over() }, new_loader { seed = 6 }
    local mine = { w = full(0, over(nil, "a")), layers = { { b = ndarray.zeros({ 3 }, "float32") } },
      none = shardrt.device_put(ndarray.zeros { 0, 8 }, over()) }
    mine.layers[2] = { b = full(0, shardrt.SingleDeviceSharding(5)) }
    local table_of_mine, back = mine.layers[1], { old = 1 }
    checkpoint = make { loader = { train = again, valid = valid }, arrays = mine, metadata = back }
    assert.same({ 4, 4 }, { checkpoint.restored, checkpoint.steps })
    assert.same({ note = 'ä "quoted"\n', list = { 1, 2.5, { true } }, loss = 1e-3, old = 1 }, back)
    assert.equal(table_of_mine, mine.layers[1])
    assert.equal(tostring(over(nil, "a")), tostring(mine.w.sharding))
    assert.same({ 3, 0.5, 7 }, { shardrt.device_get(mine.w).data[31], mine.layers[1].b.data[2],
      shardrt.device_get(mine.layers[2].b).data[0] })
    assert.same({ "float32", "int32" }, { mine.layers[1].b.dtype, mine.w.dtype })
    assert.same(first:state(), again:state())
    assert.same(other:state(), valid:state())
    checkpoint:close()
  end)

  it("hold numbers that JSON has not, and texts that look like what stands for them", function()
    local texts = { "shardrt:inf", "shardrt:", "shardrt:shardrt:nan", "inf" }
    local checkpoint = make { metadata = { loss = 0 / 0, best = { math.huge, -math.huge }, texts = texts } }
    checkpoint:save()
    checkpoint:close()
    local back = { loss = 1 }
    checkpoint = make { metadata = back }
    checkpoint:close()
    assert.is_true(type(back.loss) == "number" and back.loss ~= back.loss)
    assert.same({ { math.huge, -math.huge }, texts }, { back.best, back.texts })
  end)

  it("come every so many steps, over all runs, and the newest are kept", function()
    local checkpoint, due = make { every = 3, keep = 2 }, {}
    for step = 1, 10 do if checkpoint:step() then due[#due + 1] = step end end
    assert.same({ 3, 6, 9 }, due)
    assert.equal("step-0000000006 step-0000000009", names())
    checkpoint:close()
    checkpoint = make { every = 5, keep = 1 }
    assert.same({ 9, 9 }, { checkpoint.restored, checkpoint.steps })
    assert.is_true(checkpoint:step())
    assert.equal("step-0000000010", names())
    checkpoint:save() -- the same step once more
    assert.equal("step-0000000010.1", names())
    checkpoint:close()
    checkpoint = make()
    assert.equal(10, checkpoint.restored)
    checkpoint:save()
    checkpoint:step()
    checkpoint:save()
    assert.equal("step-0000000010.1 step-0000000010.2 step-0000000011", names())
    checkpoint:close()
  end)

  -- Two checkpoints, of steps 1 and 2; returns what the newer one consists of.
  local function two()
    local data, model = { step = 1 }, { w = full(1, over "a") }
    local checkpoint = make { loader = new_loader(), arrays = model, metadata = data, every = 1 }
    checkpoint:step()
    data.step, model.w = 2, full(2, over "b")
    checkpoint:step()
    checkpoint:close()
    local path = dir .. "/step-0000000002/"
    return path .. "checkpoint.json", path .. "arrays.safetensors"
  end
  local one
  local function restored()
    one = one or new_loader()
    local data, model = {}, { w = full(0, over "b") }
    local checkpoint = make { loader = one, arrays = model, metadata = data }
    checkpoint:close()
    assert.equal(checkpoint.restored, data.step)
    assert.equal(data.step, shardrt.device_get(model.w).data[31])
    return data.step
  end
  local function rewrite(path, text)
    os.remove(path) -- some file systems bring what is cut and written anew to the disk at once
    local file = assert(io.open(path, "wb"))
    file:write(text)
    file:close()
  end
  local function last_said()
    return files.slurp(said):sub(-1000):match "([^\n]*)\n$" or ""
  end

  it("that were cut at any length, or had any byte changed, are refused by name: the one before is used", function()
    local manifest, arrays = two()
    assert.equal(2, restored())
    assert.equal("", last_said())
    for _, path in ipairs { manifest, arrays } do
      local whole = files.slurp(path)
      for length = 0, #whole - 1 do
        rewrite(path, whole:sub(1, length))
        assert.equal(1, restored(), length)
        assert.truthy(last_said():find("step-0000000002 is not used: " .. path, 1, true), last_said())
        local byte = string.char((whole:byte(length + 1) + 1 + length % 255) % 256)
        rewrite(path, whole:sub(1, length) .. byte .. whole:sub(length + 2))
        if path == manifest and length == #'{"shardrt_checkpoint":' and byte:find "%d" then
          assert.truthy(files.message(restored):find("another version", 1, true))
        else
          assert.equal(1, restored(), length)
        end
      end
      rewrite(path, whole .. "\n")
      assert.equal(1, restored())
      os.remove(path)
      assert.equal(1, restored())
      rewrite(path, whole)
      assert.equal(2, restored())
    end
  end)

  it("that are all damaged are an error: the job does not begin anew", function()
    local manifest = two()
    rewrite(manifest, "{}")
    rewrite(dir .. "/step-0000000001/checkpoint.json", "")
    refused({ loader = new_loader() }, "none of its checkpoints is complete")
    assert.equal("step-0000000001 step-0000000002", names())
  end)

  it("of a later step that were damaged go when the job has saved again, the newest complete one never", function()
    local manifest = two()
    rewrite(manifest, "{}")
    local data = {}
    local checkpoint = make { loader = new_loader(), arrays = { w = full(0, over "a") }, metadata = data, keep = 1,
      every = 1 }
    assert.equal(1, checkpoint.restored)
    assert.equal("step-0000000001 step-0000000002", names())
    checkpoint:save()
    assert.equal("step-0000000001.1", names())
    checkpoint:close()
    checkpoint = make { loader = new_loader(), arrays = { w = full(0, over "a") }, metadata = data }
    assert.equal(1, checkpoint.restored)
    checkpoint:close()
  end)

  it("never run what stands in them", function()
    local manifest = two()
    local witness = folder .. "/witness"
    local content = ("(function() io.open(%q, 'w') end)()"):format(witness)
    local sum = require("bit").tohex(C.shardrt_fingerprint(content, #content))
    for _, text in ipairs { content, "return " .. content,
      ('{"shardrt_checkpoint":1,"xxh3":"%s","content":%s}\n'):format(sum, content) } do
      rewrite(manifest, text)
      assert.equal(1, restored())
      assert.is_nil(io.open(witness))
    end
  end)

  it("whose checksum is right and whose content is not what it should be are refused, too", function()
    local manifest = two()
    for _, content in ipairs {
      "{}", "[]", "1", '{"step":1}', '{"step":-1,"loaders":{},"arrays":{},"metadata":{}}',
      '{"step":1,"loaders":1,"arrays":{},"metadata":{}}', '{"step":1,"loaders":{},"arrays":{},"metadata":{},"file":1}',
      '{"step":1,"loaders":{},"arrays":{},"metadata":{},"file":{"bytes":1,"piece":8388608,"pieces":[]}}', "nonsense",
    } do
      local sum = require("bit").tohex(C.shardrt_fingerprint(content, #content))
      rewrite(manifest, ('{"shardrt_checkpoint":1,"xxh3":"%s","content":%s}\n'):format(sum, content))
      assert.equal(1, restored())
    end
  end)

  it("of another dataset, seed, array or shape are errors that name it, not a reason to take an older one", function()
    two()
    local model = { w = full(0, over "a") }
    local other = shardrt.source.array { id = ndarray.arange(49, "int32") }
    local function o(more, arrays) return { loader = new_loader(more), arrays = arrays or model } end
    refused(o { seed = 6 }, "seed")
    refused(o { shuffle = false }, "shuffle")
    refused(o { source = other }, "fingerprint of the data")
    refused({ arrays = model }, 'it has the loader "loader", which this recipe has not', "none")
    refused({ arrays = model, loader = { train = new_loader() } }, 'the loader "loader"', '"train"')
    refused(o({}, {}), 'it has the array "w"')
    refused(o({}, { w = model.w, v = model.w }), 'it has no array "v"', "the checkpoint has", '"w"')
    local floats = shardrt.device_put(ndarray.zeros({ 8, 4 }, "float32"), over "a")
    refused(o({}, { w = floats }), '"w" is int32 {8, 4} there', "float32 {8, 4} in this recipe")
    refused(o({}, { w = shardrt.device_put(ndarray.zeros({ 8, 8 }, "int32"), over "a") }), "int32 {8, 8}")
    assert.equal(2, restored())
  end)

  it("say what cannot be saved", function()
    local x = full(1, over "a")
    refused({ every = 0 }, "every = 0")
    refused({ keep = 1.5 }, "keep = 1.5")
    refused({ evry = 1 }, "unknown keyword", 'did you mean "every"?')
    refused({ dir = "" }, 'dir = ""')
    refused({ arrays = { step = 3 } }, 'arrays: "step" is 3', "metadata")
    refused({ arrays = { ["a.b"] = x, a = { b = x } } }, '"a.b"')
    refused({ loader = { 1 } }, "loader is a loader or a table of them")
    refused({ metadata = { f = print } }, "metadata.f is a function")
    refused({ metadata = { x, x } }, "metadata[1]")
    refused({ metadata = { [1] = 1, a = 1 } }, "metadata has the key 1")
    refused({ metadata = { "\255" } }, "not UTF-8")
    assert.same({}, files.list(folder .. "/deep"))
    local data, model = {}, { x = x }
    local checkpoint = make { metadata = data, arrays = model }
    data.n = print
    assert.truthy(files.message(function() checkpoint:save() end):find("metadata.n is a function", 1, true))
    data.n, model.x = 1, 5
    assert.truthy(files.message(function() checkpoint:save() end):find('arrays: "x" is 5', 1, true))
    model.x = x
    checkpoint:save()
    checkpoint:close()
    assert.truthy(files.message(function() checkpoint:save() end):find("it is closed", 1, true))
    assert.equal("step-0000000000", names())
  end)

  it("have one keeper at a time; leave alone what is not theirs", function()
    local checkpoint = make()
    local out = ffi.new "shardrt_folder *[1]"
    assert.equal(C.SHARDRT_EIO, C.shardrt_folder_open(dir, 0, out))
    assert.truthy(ffi.string(C.shardrt_error_message()):find("needs a folder of its own", 1, true))
    checkpoint:close()
    os.execute(("cd %s && mkdir .step-0000000007.0123456789abcdef.tmp step-7 step-0000000001.tmp && touch file "
      .. ".step-0000000007.0123456789abcdef.tmp/checkpoint.json"):format(dir))
    checkpoint = make { every = 1, keep = 1 }
    assert.equal("file step-0000000001.tmp step-7", names())
    for _ = 1, 3 do checkpoint:step() end
    assert.equal("file step-0000000001.tmp step-0000000003 step-7", names())
    -- What cannot be removed is told, and the job goes on.
    os.execute(("mkdir %s/step-0000000003/mine"):format(dir))
    checkpoint:step()
    assert.truthy(last_said():find "step%-0000000003%.%x+%.tmp: cannot be removed: Directory not empty", last_said())
    assert.truthy(names():find "step%-0000000004 step%-7$", names())
    checkpoint:close()
    os.execute(("touch %s/plain"):format(folder))
    assert.truthy(files.message(make, { dir = folder .. "/plain" }):find("cannot be opened: Not a directory", 1, true))
    assert.truthy(files.message(make, { dir = "/proc/none" }):find("/proc/none: cannot be", 1, true))
  end)

  it("survive every allocation that fails", function()
    for n = 1, 1000 do
      local model = { w = full(n, over "a") }
      local checkpoint
      C.shardrt_alloc_fail_at(n)
      local ok, message = pcall(function()
        checkpoint = make { arrays = model, keep = 1 }
        checkpoint:step()
        checkpoint:save()
      end)
      local failed = tonumber(C.shardrt_alloc_fail_at(0)) >= n
      if checkpoint then checkpoint:close() end
      collectgarbage()
      assert.is_true(ok or message:find("out of memory", 1, true) ~= nil, message)
      if not failed then return end
      checkpoint = make { arrays = model, keep = 1 } -- and nothing is in the way of the next
      checkpoint:close()
      assert.is_nil(names():find "tmp")
    end
    error "more allocations than were tried"
  end)

  it("are planned without being there", function()
    local recipe = files.write(folder, "plan.lua", [[
      local shardrt = require "shardrt"
      local x = shardrt.device_put(shardrt.ndarray.zeros { 8, 8 }, shardrt.NamedSharding(
        shardrt.make_mesh({ shardrt.device_count() }, { "a" }), shardrt.P "a"))
      local checkpoint = shardrt.checkpoint { dir = arg[1], every = 1, arrays = { layers = { x } } }
      assert(not checkpoint:step())
      checkpoint:save()]])
    local result = mpi.shell(("%s plan --processes 4 --devices 2 %s %s"):format(mpi.program(), recipe, dir))
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find("checkpoint " .. dir .. "\n  layers.1: float32 {8, 8}", 1, true), result.stdout)
    assert.truthy(result.stdout:find("process 3\n    layers.1: writes [6:8, :]: 64 bytes", 1, true), result.stdout)
    assert.same({}, files.list(dir))
  end)
end)

describe("checkpoints of jobs", function()
  local folder, dir
  before_each(function()
    folder = files.folder()
    dir = folder .. "/run"
  end)
  after_each(function() files.remove(folder) end)

  -- 24 MiB of weights, every element of them the step, which the metadata tell, too.
  local head = [[
    local shardrt = require "shardrt"
    local ffi = require "ffi"
    local ndarray, me = shardrt.ndarray, shardrt.process_index()
    local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "a" })
    local columns = shardrt.NamedSharding(mesh, shardrt.P(nil, "a"))
    local rows = shardrt.NamedSharding(mesh, shardrt.P "a")
    local source = shardrt.source.array { id = ndarray.arange(48, "int32") }
    local loader = shardrt.loader { source = source, batch_size = 8, shuffle = true, seed = 5 }
    local function weights(n) return shardrt.device_put(ndarray.full({ 6144, 1024 }, n, "int32"), columns) end
    local dir, model, data = arg[1], { w = weights(0) }, { step = 0 }
    local function make(more)
      local o = { dir = dir, loader = loader, arrays = model, metadata = data, every = 1, keep = 1 }
      for key, value in pairs(more or {}) do o[key] = value end
      return shardrt.checkpoint(o)
    end
    local function check()
      for _, shard in ipairs(model.w.addressable_shards) do
        for i = 0, shard.data.size - 1 do assert(shard.data.data[i] == data.step) end
      end
      return data.step
    end
    local function step(checkpoint)
      loader()
      data.step = data.step + 1
      model.w = weights(data.step)
      return checkpoint:step()
    end
  ]]
  local function run(processes, text, options, args)
    return mpi.run { processes = processes, devices = 8 / (processes or 1), source = head .. text, options = options,
      args = { dir, unpack(args or {}) }, limit = 60 }
  end
  local function restored() -- by a process alone: mpirun would take longer than that
    local result = run(nil, "make() io.write(check(), '\\n')")
    assert.equal(0, result.status, result.output)
    return tonumber(result.stdout)
  end
  local function assert_complete(steps)
    for _, name in ipairs(files.list(dir)) do assert.truthy(name:match "^step%-%d+$", name) end
    assert.equal(steps, restored())
  end

  it("go from any number of processes to any other", function()
    for i, processes in ipairs { 4, 1, 8, 2, 4 } do
      local result = run(processes, [[
        local checkpoint = make()
        assert((checkpoint.restored or 0) == check() and data.step == tonumber(arg[2]))
        assert(loader:state().row == data.step * 8 % 48)
        step(checkpoint)
        step(checkpoint)]], nil, { 2 * i - 2 })
      assert.equal(0, result.status, result.output)
      assert_complete(2 * i)
    end
  end)

  it("that differ between processes are errors, alike in all", function()
    for _, case in ipairs {
      { "local c = make() if me == 1 then data.step = 7 end c:save()", "the metadata or the arrays", "process 1" },
      { "make { every = me == 2 and 3 or 4 }", "its options", "process 2" },
      { "make { metadata = { me == 3 and 1 or nil } }", "its options", "process 3" },
      { "local c = make { every = 2 } if me == 2 then c:step() end c:step()", "do different things" },
      { "local c = make() if me == 1 then model.v = ndarray.zeros { 2 } end c:save()", "process 1" },
    } do
      local result = run(4, case[1], { "--timeout", "20" })
      assert.not_equal(0, result.status, case[1])
      for i = 2, #case do assert.truthy(result.stderr:find(case[i], 1, true), case[1] .. "\n" .. result.output) end
      for _, name in ipairs(files.list(dir)) do assert.is_nil(name:match "^step", name) end
    end
    -- A folder of the same name that is another one.
    assert.equal(0, run(2, "step(make { dir = dir .. '/0/run' }) step(make { dir = dir .. '/1/run' })").status)
    local result = run(2, [[
      ffi.cdef "int chdir(const char *)"
      assert(ffi.C.chdir(dir .. "/" .. me) == 0)
      dir = "run"
      make()]], { "--timeout", "20" })
    assert.not_equal(0, result.status)
    assert.truthy(result.stderr:find("process 1 does not see the run/step-0000000001/checkpoint.json that process 0",
      1, true), result.output)
  end)

  it("that are damaged are refused by all processes, once said", function()
    assert.equal(0, run(4, "local c = make { keep = 2 } step(c) step(c)").status)
    local path = dir .. "/step-0000000002/arrays.safetensors"
    os.execute(("printf x | dd of=%s bs=1 seek=20000000 conv=notrunc 2>/dev/null"):format(path))
    local result = run(4, "make() assert(check() == 1)")
    assert.equal(0, result.status, result.output)
    assert.equal(("shardrt: checkpoint %s: step-0000000002 is not used: %s: its bytes from 16777216 on are not those "
      .. "that were saved\n"):format(dir, path), result.stderr)
    os.execute(("truncate -s 10000000 %s"):format(path))
    result = run(4, "make() assert(check() == 1)")
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stderr:find("it has 10000000 bytes; 25165", 1, true), result.output)
  end)

  it("are not lost where the disk is full, in whichever process that shows", function()
    assert.equal(0, run(4, "step(make())").status)
    local recipe = files.write(folder, "save.lua", head .. [[
      local checkpoint = make()
      local ok, message = pcall(step, checkpoint)
      assert(not ok and message:find "File too large")
      shardrt.sync_global_devices "the recipe may go on"]])
    local limited = files.write(folder, "limited.sh", [[
      trap "" XFSZ
      if [ $OMPI_COMM_WORLD_RANK = $1 ]; then ulimit -f 200; fi
      shift
      exec "$@"]])
    for _, process in ipairs { 0, 2 } do
      local result = mpi.shell((mpi.environment .. " mpirun -n 4 "
        .. "sh %s %d %s --devices 2 %s %s"):format(limited, process, mpi.program(), recipe, dir), 60)
      assert.equal(0, result.status, result.output)
      assert.same({ "step-0000000001" }, files.list(dir))
      assert_complete(1)
    end
  end)

  it("are not lost where a real disk is full", function()
    local is_here = files.on_small_disk(folder, function(disk)
      dir = disk .. "/run"
      assert.equal(0, run(4, "step(make())").status)
      local result = run(4, "step(make())")
      assert.not_equal(0, result.status)
      assert.truthy(result.stderr:find("No space left on device", 1, true), result.output)
      assert_complete(1)
    end)
    if not is_here then pending "no file system can be mounted here" end
  end)

  it("are complete, or not there, wherever a save is killed", function()
    assert.equal(0, run(4, "step(make())").status)
    local recipe = files.write(folder, "save.lua", head .. [[
      local checkpoint = make()
      check()
      local pid = io.open("/proc/self/stat"):read "*n"
      local pids = shardrt.process_allgather(ndarray.from_table(pid, "float64")):to_table()
      if me == 0 then
        local file = io.open(arg[2], "w")
        file:write(table.concat(pids, " "), "\n")
        file:close()
      end
      while true do step(checkpoint) end]])
    local seed = require "tests.support.seed"
    math.randomseed(seed)
    local left, last = 0, 1
    for turn = 1, 40 do -- a few, and then until one was killed in mid-save
      if turn > 4 and left > 0 then break end
      local pids = folder .. "/pids"
      os.remove(pids)
      mpi.shell(([=[
        %s mpirun -n 4 %s --devices 2 %s %s %s &
        while [ ! -s %s ]; do sleep 0.02; done
        sleep 0.%03d
        set -- $(cat %s)
        kill -9 %s
        wait $!]=]):format(mpi.environment, mpi.program(), recipe, dir, pids, pids, math.random(50, 500), pids,
        turn % 2 == 0 and "$3" or "$1 $2 $3 $4"), 60)
      for _, name in ipairs(files.list(dir)) do
        if name:match "%.tmp$" then left = left + 1 end
      end
      local now = restored()
      assert.is_true(now >= last, "seed " .. seed)
      last = now
      assert_complete(last)
    end
    assert.is_true(left > 0, "no job was killed in mid-save, seed " .. seed)
  end)
end)

describe("JSON", function()
  it("comes back as it was, and reads as another reader does", function()
    local seed = require "tests.support.seed"
    math.randomseed(seed)
    local pieces = { "a", '"', "\\", "\n", "é", "€", "😀", "\1", "/", "\127" }
    local function random(depth)
      local kind = math.random(depth > 3 and 4 or 6)
      if kind == 1 then return math.random(-1e6, 1e6) end
      if kind == 2 then return (math.random() - 0.5) * 10 ^ math.random(-300, 300) end
      if kind == 3 then return math.random() < 0.5 end
      local made = {}
      if kind == 4 then
        for i = 1, math.random(0, 8) do made[i] = pieces[math.random(#pieces)] end
        return table.concat(made)
      end
      for i = 1, math.random(0, 4) do made[kind == 5 and i or "k" .. math.random(99)] = random(depth + 1) end
      return made
    end
    for _ = 1, 1000 do
      local value = { random(1) }
      local text = assert(json.encode(value, "value"))
      assert.same(value, json.decode(text), "seed " .. seed)
      assert.same(value, cjson.decode(text), "seed " .. seed)
      assert.equal(text, json.encode(json.decode(text), "value"))
    end
    assert.same({ "😀é/" }, json.decode ' [ "\\uD83D\\ude00\\u00e9\\/" ] ')
  end)

  it("is refused where it is none", function()
    for text, expected in pairs {
      [""] = "byte 0", ["[1,]"] = "byte 3", ["{"] = "a name", ['{"a":}'] = "a value", ["[01]"] = ", or ]",
      ["[1.]"] = "digits", ["[.5]"] = "a value", ["[1e]"] = "digits", nul = "a value", null = "null",
      ["[0x1]"] = ", or ]", ['["\1"]'] = "rest of a text", ['["\\x"]'] = "an escape", ['["\\ud800"]'] = "surrogate",
      ['["\\udc00\\ud800"]'] = "surrogate", ['{"a":1,"a":2}'] = "stands twice", ["[1] 2"] = "the end",
      ['["\255"]'] = "not UTF-8", ['["\192\128"]'] = "not UTF-8", ['["\237\160\128"]'] = "not UTF-8",
      ['["a'] = "rest of a text", ["[nan]"] = "a value", ["{a:1}"] = "a name", ["['a']"] = "a value",
      [("["):rep(101)] = "nested more than 100", ['"\\u0000"'] = "zero byte", ["[1 2]"] = ", or ]",
    } do
      local value, problem = json.decode(text)
      assert.is_nil(value, text)
      assert.truthy(problem:find(expected, 1, true), text .. ": " .. problem)
    end
  end)
end)

-- long: 40 s
-- waits: for a server in Python
-- Objects that are written to buckets: by all processes together, in parts; with a server that checks signatures and
-- bodies, and tells which uploads are open. Checkpoints there.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local s3 = require "tests.support.storage.s3"

local folder, server

setup(function()
  folder = files.folder()
  local buckets = "data busy resets hesitant unfinished lost expires hangs stalls clings"
  os.execute(("cd '%s' && mkdir -p %s"):format(folder, buckets))
  server = s3.start(folder)
end)
teardown(function()
  server:stop()
  files.remove(folder)
end)

local function run(source, o)
  local env = {}
  for name, value in pairs(server.env) do env[name] = value end
  env.SHARDRT_CACHE = server.work .. "/cache"
  o = o or {}
  return mpi.run {
    source = 'local shardrt = require "shardrt"\nlocal np, P = require "shardrt.numpy", shardrt.P\n' .. source,
    env = env, processes = o.processes, devices = o.devices or 1, args = o.args, limit = o.limit or 100,
  }
end

local function is_same(a, b) return os.execute(("cmp -s '%s' '%s'"):format(a, b)) == 0 end

-- What is saved: arrays in every layout, one cut into crumbs, some larger than a part, one without elements.
local VALUES = [[
  local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "d" })
  local function over(...) return shardrt.NamedSharding(mesh, P(...)) end
  local function made(dtype, shape, sharding)
    local value = shardrt.ndarray.arange(shape[1] * shape[2], "int32"):reshape(shape)
    return np.astype(shardrt.device_put(value, sharding), dtype)
  end
  local values = {
    rows = made("float32", { 4000, 1024 }, over "d"), columns = made("int32", { 256, 4096 }, over(nil, "d")),
    crumbs = made("int16", { 512, 32 }, over(nil, "d")), everywhere = made("float64", { 100, 3 }, over()),
    empty = shardrt.ndarray.zeros({ 0, 3 }, "int8"), flags = shardrt.ndarray.from_table({ true, false }, "bool"),
  }
]]

describe("an object that all processes write", function()
  it("has the same bytes as the file, whatever the topology, and is read by any other", function()
    local file = folder .. "/values.safetensors"
    for _, topology in ipairs { { devices = 8 }, { processes = 2, devices = 4 }, { processes = 4, devices = 2 } } do
      topology.args = { topology.processes and "" or file }
      server:log()
      local result = run(VALUES .. [[
        if arg[1] ~= "" then shardrt.save(arg[1], values) end
        local wrote = shardrt.save("s3://data/a b/ü+1=.safetensors", values)
        local total, parts = 0, {}
        for _, bytes in ipairs(shardrt.process_allgather(wrote):to_table()) do total = total + bytes end
        shardrt.say("%.0f", total)
        local there = shardrt.load("s3://data/a b/ü+1=.safetensors", {
          rows = over(nil, "d"), columns = over "d", crumbs = over(), flags = false,
        })
        for _, name in ipairs { "rows", "columns", "crumbs" } do
          local same = np.equal(there[name], shardrt.reshard(values[name], there[name].sharding))
          local differ = np.sum(1 - np.astype(same, "int32"))
          shardrt.say("%s %d", name, shardrt.device_put(differ, over()):item())
        end
        assert(there.flags.data[0] and not there.flags.data[1])
      ]], topology)
      assert.equal(0, result.status, result.output)
      local bytes = files.slurp(file)
      assert.equal(("%d\nrows 0\ncolumns 0\ncrumbs 0\n"):format(#bytes), result.stdout)
      assert.is_true(is_same(file, folder .. "/data/a b/ü+1=.safetensors"))
      local parts = 0
      for _, line in ipairs(server:log()) do
        if line:find "^PUT .*partNumber=%d+&uploadId=.* 200" then parts = parts + 1 end
      end
      assert.equal(math.ceil(#bytes / 2 ^ 23), parts)
      assert.same({}, server:uploads())
    end
  end)

  it("is one request where it is small, and a host array may be one", function()
    server:log()
    local result = run [[
      local small = shardrt.ndarray.arange(10, "int64")
      local large = shardrt.ndarray.arange(3e6, "float32"):reshape { 3, 1e6 }
      shardrt.save("s3://data/small.safetensors", { a = small })
      small:save "s3://data/small.npy"
      large:save "s3://data/large.npy"
      assert(shardrt.ndarray.load("s3://data/small.npy").data[9] == 9)
      local x = shardrt.load_npy("s3://data/large.npy", shardrt.SingleDeviceSharding(0))
      assert(x.addressable_shards[1].data.data[2999999] == 2999999)
      print(pcall(shardrt.save, "https://host/x.safetensors", { a = small }))
      print(pcall(small.save, small, "s3://data/../x.npy"))
    ]]
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find("to files of this machine and to buckets (s3://), not to other servers", 1, true))
    assert.truthy(result.stdout:find('objects with a part ".." in their keys', 1, true), result.stdout)
    local text = table.concat(server:log(), "\n")
    assert.truthy(text:find "PUT /data/small.npy 200" and text:find "PUT /data/small.safetensors 200")
    assert.truthy(text:find "PUT /data/large.npy%?partNumber=2&")
    assert.same({}, server:uploads())
  end)

  it("survives what may pass; else it is what it was, no upload stays open, and one line says why", function()
    files.write(folder, "unfinished/x.safetensors", "old")
    local result = run([[
      local over = shardrt.NamedSharding(shardrt.make_mesh({ 2 }, { "d" }), P "d")
      local x = shardrt.device_put(shardrt.ndarray.arange(4.5e6, "float32"), over)
      for _, bucket in ipairs { "data", "busy", "resets", "hesitant", "lost", "unfinished", "expires", "nothing" } do
        local ok, problem = pcall(shardrt.save, ("s3://%s/x.safetensors"):format(bucket), { x = x })
        shardrt.say("%s %s", bucket, ok and "saved" or problem)
      end
    ]], { processes = 2 })
    assert.equal(0, result.status, result.output)
    for _, bucket in ipairs { "busy", "resets", "hesitant", "lost" } do
      assert.truthy(result.stdout:find(bucket .. " saved\n", 1, true), result.stdout)
      assert.is_true(is_same(folder .. "/data/x.safetensors", ("%s/%s/x.safetensors"):format(folder, bucket)))
    end
    for _, said in ipairs {
      "s3://unfinished/x.safetensors: the server's answer is 200, and then InvalidPart: We could not put it together",
      "s3://expires/x.safetensors: the server answers 400 ExpiredToken: ", "s3://nothing/x.safetensors: the server ",
      " 404 NoSuchBucket: The specified bucket does not exist; the bucket's name",
    } do
      assert.truthy(result.stdout:find(said, 1, true), result.stdout)
    end
    assert.equal(8, select(2, result.stdout:gsub("\n", "")))
    assert.falsy(result.output:find "wJalr")
    assert.equal("old", files.slurp(folder .. "/unfinished/x.safetensors"))
    assert.is_nil(io.open(folder .. "/expires/x.safetensors"))
    assert.same({}, server:uploads())
  end)

  -- Ends the last process of a job by a signal, as soon as a part is there.
  local KILLED = [=[
    local signal, bucket, dir = arg[1], arg[2], arg[3]
    if shardrt.process_index() == shardrt.process_count() - 1 then
      local pipe = io.popen "echo $PPID"
      local pid = pipe:read "*n"
      pipe:close()
      os.execute(([==[n=$(cat '%s/s3.log' | wc -l)
        ( until tail -n +$((n + 1)) '%s/s3.log' | grep -q '^PUT /%s.*partNumber=.* 200'; do
            sleep 0.05; kill -0 %d || exit; done
          for s in %s; do kill -$s %d; sleep 2.1; done ) >/dev/null 2>&1 &]==]):format(dir, dir, bucket, pid, signal,
          pid))
    end
  ]=]
  local SAVE = KILLED .. [[
    local all = shardrt.make_mesh({ shardrt.device_count() }, { "d" })
    local x = shardrt.device_put(shardrt.ndarray.arange(9e6, "float32"), shardrt.NamedSharding(all, P "d"))
    shardrt.save("s3://hangs/x.safetensors", { x = x })
  ]]

  it("is given up by a job that a signal ends, and by the others where a process is killed", function()
    for _, signal in ipairs { "TERM", "INT", "KILL" } do
      local result = run(SAVE, { args = { signal, "hangs", server.work }, processes = signal == "KILL" and 2 or nil })
      assert.is_true(result.status > 128, result.output)
      assert.same({}, server:uploads(), signal)
      assert.is_nil(io.open(folder .. "/hangs/x.safetensors"))
    end
    local left = run(SAVE, { args = { "KILL", "hangs", server.work } }) -- nobody is there to give it up
    assert.equal(137, left.status, left.output)
    assert.equal(1, #server:uploads())
    assert.is_true(run(SAVE, { args = { "TERM", "hangs", server.work } }).status > 128) -- but the next one does
    assert.same({}, server:uploads())
  end)

  local CHECKPOINT = KILLED .. [[
    local rows = shardrt.NamedSharding(shardrt.make_mesh({ shardrt.device_count() }, { "d" }), P "d")
    local source = shardrt.source.array { id = shardrt.ndarray.arange(80, "int32") }
    local loader = shardrt.loader { source = source, batch_size = 8, shuffle = true, seed = 7, epochs = 3 }
    local model = { w = np.zeros({ 2400, 1024 }, "float32", rows), layers = { np.zeros({ 7 }, "float32") } }
    local checkpoint = shardrt.checkpoint {
      dir = ("s3://%s/run 7/"):format(bucket), every = 3, keep = 2, loader = loader, arrays = model,
    }
    shardrt.say("restored %s", tostring(checkpoint.restored))
    for _ in loader do
      model.w = model.w + 1
      checkpoint:step()
      if checkpoint.steps == tonumber(arg[4]) then break end
    end
    shardrt.say("%d steps, %g", checkpoint.steps, np.mean(model.w):item())
  ]]
  it("must lie in a bucket that has a name", function()
    for _, dir in ipairs { "s3://", "s3:///run" } do
      local ok, problem = pcall(require "shardrt".checkpoint, { dir = dir })
      assert.truthy(not ok and problem:find(('dir = "%s"; a bucket\'s name stands behind s3://'):format(dir), 1, true))
    end
  end)

  local function list_steps(bucket)
    local pipe = io.popen(("cd '%s/%s' && find . -type f | sort"):format(folder, bucket))
    local text = pipe:read "*a"
    pipe:close()
    return text
  end

  it("may be a checkpoint, which is there whole or not, goes on with other processes, and is removed in its turn",
    function()
      local function goes_on(expected, last, o)
        o.args = { "0", "data", server.work, last }
        local result = run(CHECKPOINT, o)
        assert.equal(0, result.status, result.output)
        assert.equal(expected, result.stdout)
        return result.stderr
      end
      os.execute(("rm -rf '%s'/data/*"):format(folder))
      goes_on("restored nil\n7 steps, 7\n", "7", { processes = 2, devices = 2 })
      assert.equal("./run 7/step-0000000003/arrays.safetensors\n./run 7/step-0000000003/checkpoint.json\n"
        .. "./run 7/step-0000000006/arrays.safetensors\n./run 7/step-0000000006/checkpoint.json\n", list_steps "data")
      -- A server that refuses says nothing of a checkpoint, which is neither passed over nor removed for it.
      files.write(server.work, "withheld", "run 7/step-0000000006/arrays.safetensors")
      local refused = run(CHECKPOINT, { processes = 2, devices = 2, args = { "0", "data", server.work, "9" } })
      assert.not_equal(0, refused.status)
      assert.truthy(refused.stderr:find "step%-0000000006/arrays%.safetensors: .*the server answers 403 AccessDenied",
        refused.stderr)
      assert.equal("", refused.stdout)
      os.remove(server.work .. "/withheld")
      -- What a killed run left, and a newest one that was damaged.
      os.execute(("cd '%s/data/run 7' && mkdir step-0000000008 && cp step-0000000003/arrays.safetensors "
        .. "step-0000000008 && cp -r step-0000000006 step-0000000009 && printf X | "
        .. "dd of=step-0000000009/arrays.safetensors bs=1 "
        .. "seek=9000000 conv=notrunc status=none"):format(folder))
      local said = goes_on("restored 6\n14 steps, 14\n", "14", { devices = 4 })
      assert.truthy(said:find("step-0000000009 is not used: s3://data/run 7/step-0000000009/arrays.safetensors: its "
        .. "bytes from 8388608 on are not those that were saved", 1, true), said)
      assert.equal("./run 7/step-0000000009.1/arrays.safetensors\n./run 7/step-0000000009.1/checkpoint.json\n"
        .. "./run 7/step-0000000012/arrays.safetensors\n./run 7/step-0000000012/checkpoint.json\n", list_steps "data")
      -- The same files make a checkpoint on a disk.
      local here = run(CHECKPOINT:gsub('%("s3://%%s/run 7/"%):format%(bucket%)', "arg[5]"), {
        devices = 2, args = { "0", "data", server.work, "15", folder .. "/data/run 7" },
      })
      assert.equal("restored 12\n15 steps, 15\n", here.stdout, here.output)
      assert.same({}, server:uploads())
    end)

  it("is where recipes/s3.lua keeps its checkpoint", function()
    os.execute(("mkdir -p '%s/data/tars'; cp recipes/data/shard-*.tar '%s/data/tars'"):format(folder, folder))
    local env = { SHARDRT_CACHE = server.work .. "/cache" }
    for name, value in pairs(server.env) do env[name] = value end
    local args = { "s3://data/tars/shard-*.tar", "s3://data/run-1" }
    local first = mpi.run { recipe = "recipes/s3.lua", args = args, env = env, processes = 2, devices = 2 }
    assert.equal(0, first.status, first.output)
    assert.truthy(first.stdout:find "^6 steps over %d+ images; their mean is in s3://data/run%-1/mean.safetensors\n$")
    local whole = mpi.run { recipe = "recipes/s3.lua", args = { args[1], "s3://data/run-2" }, env = env, devices = 4 }
    assert.equal((first.stdout:gsub("run%-1", "run-2")), whole.stdout)
    assert.is_true(is_same(folder .. "/data/run-1/mean.safetensors", folder .. "/data/run-2/mean.safetensors"))
    local again = mpi.run { recipe = "recipes/s3.lua", args = args, env = env, devices = 1 }
    assert.equal(0, again.status, again.output)
    assert.equal("went on from step 6\n" .. first.stdout, again.stdout)
  end)

  it("that SIGTERM finds on its way is given up and saved anew, where the job ends in order", function()
    local result = run(CHECKPOINT, { args = { "TERM", "stalls", server.work, "9" } })
    assert.equal(85, result.status, result.output)
    assert.equal("./run 7/step-0000000003/arrays.safetensors\n./run 7/step-0000000003/checkpoint.json\n",
      list_steps "stalls")
    assert.same({}, server:uploads())
    assert.truthy(result.stderr:find("the job was stopped by SIGTERM at step 3, which is saved", 1, true))
  end)

  it("does not hold up who asks again for an end while the server does not answer", function()
    -- The server would be silent for longer than this limit.
    local result = run((SAVE:gsub("s3://hangs", "s3://clings")),
      { args = { "TERM TERM", "clings", server.work }, limit = 50 })
    assert.equal(128 + 15, result.status, result.output)
    assert.equal(1, #server:uploads())
  end)
end)

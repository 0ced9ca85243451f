-- long: 40 s
-- waits: for a server in Python
-- Objects that are written to buckets: by all processes together, in parts; with a server that checks signatures and
-- bodies, and tells which uploads are open. Checkpoints there.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local s3 = require "tests.support.storage.s3"
local uploads = require "tests.support.storage.uploads"

local folder, server

setup(function()
  folder = files.folder()
  local buckets = "data busy resets hesitant unfinished lost kms replaced expires hangs stalls clings belated"
  os.execute(("cd '%s' && mkdir -p %s"):format(folder, buckets))
  server = s3.start(folder)
end)
teardown(function()
  server:stop()
  files.remove(folder)
end)

local function run(source, o) return uploads.run(server, source, o) end
local is_same = uploads.is_same

describe("an object that all processes write", function()
  it("has the same bytes as the file, whatever the topology, and is read by any other", function()
    uploads.check_topologies(server, "s3://data/a b/ü+1=.safetensors", folder .. "/data/a b/ü+1=.safetensors",
      "^PUT .*partNumber=%d+&uploadId=.* 200")
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
    assert.truthy(result.stdout:find("to buckets (s3://, gs://, az://), not to other servers", 1, true), result.stdout)
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
      for _, bucket in ipairs {
        "data", "busy", "resets", "hesitant", "lost", "kms", "replaced", "unfinished", "expires", "nothing",
      } do
        local ok, problem = pcall(shardrt.save, ("s3://%s/x.safetensors"):format(bucket), { x = x })
        shardrt.say("%s %s", bucket, ok and "saved" or problem)
      end
    ]], { processes = 2 })
    assert.equal(0, result.status, result.output)
    for _, bucket in ipairs { "busy", "resets", "hesitant", "lost", "kms" } do
      assert.truthy(result.stdout:find(bucket .. " saved\n", 1, true), result.stdout)
      assert.is_true(is_same(folder .. "/data/x.safetensors", ("%s/%s/x.safetensors"):format(folder, bucket)))
    end
    for _, said in ipairs {
      "s3://unfinished/x.safetensors: the server's answer is 200, and then InvalidPart: We could not put it together",
      "s3://expires/x.safetensors: the server answers 400 ExpiredToken: ", "s3://nothing/x.safetensors: the server ",
      " 404 NoSuchBucket: The specified bucket does not exist; the bucket's name",
      "s3://replaced/x.safetensors: the server answers 404 NoSuchUpload: ", -- somebody else's object is not ours
    } do
      assert.truthy(result.stdout:find(said, 1, true), result.stdout)
    end
    assert.equal(10, select(2, result.stdout:gsub("\n", "")))
    assert.falsy(result.output:find "wJalr")
    assert.equal("old", files.slurp(folder .. "/unfinished/x.safetensors"))
    assert.is_nil(io.open(folder .. "/expires/x.safetensors"))
    assert.same({}, server:uploads())
  end)

  it("is given up by a job that a signal ends, and by the others where a process is killed", function()
    for _, signal in ipairs { "TERM", "INT", "KILL" } do
      local processes = signal == "KILL" and 2 or nil
      local result = run(uploads.SAVE, { args = { signal, "s3", "hangs", server.work }, processes = processes })
      assert.is_true(result.status > 128, result.output)
      assert.same({}, server:uploads(), signal)
      assert.is_nil(io.open(folder .. "/hangs/x.safetensors"))
    end
    local left = run(uploads.SAVE, { args = { "KILL", "s3", "hangs", server.work } }) -- nobody is there to give it up
    assert.equal(137, left.status, left.output)
    assert.equal(1, #server:uploads())
    local next_one = run(uploads.SAVE, { args = { "TERM", "s3", "hangs", server.work } }) -- but the next one does
    assert.is_true(next_one.status > 128, next_one.output)
    assert.same({}, server:uploads())
  end)

  it("is ended again where the server takes a part that was on its way when it was ended", function()
    server:log()
    local result = run(uploads.SAVE, { args = { "TERM", "s3", "belated", server.work } })
    assert.is_true(result.status > 128, result.output)
    local ends = 0
    for _, line in ipairs(server:log()) do ends = ends + (line:find "^DELETE .*uploadId=" and 1 or 0) end
    assert.equal(2, ends)
    os.execute "sleep 0.5"
    assert.same({}, server:uploads())
  end)

  it("goes up anew where SIGTERM finds it on its way and a checkpoint hears that, and the job ends in order", function()
    for _, case in ipairs {
      { "save", "TERM", "x.safetensors", 2 }, { "save", "all TERM", "y.safetensors", 4 }, { "npy", "TERM", "x.npy" },
    } do
      local kind, signal, name, processes = unpack(case)
      local dir, object = files.folder(), ("%s/stalls/%s"):format(folder, name)
      server:log()
      local result = run(uploads.BESIDE, {
        processes = processes, args = { signal, "s3", "stalls", server.work, "9", dir, kind, name },
      })
      assert.equal(85, result.status, result.output)
      local begun = 0
      for _, line in ipairs(server:log()) do begun = begun + (line:find "^POST .*uploads= 200" and 1 or 0) end
      assert.is_true(signal == "TERM" and begun == 2 or signal ~= "TERM" and begun >= 2, begun)
      assert.is_true(#files.slurp(object) > 2400 * 1024 * 4)
      assert.same({}, server:uploads())
      os.remove(object)
      assert.truthy(result.stderr:find("the job was stopped by SIGTERM at step 1, which is saved in " .. dir, 1, true),
        result.stderr)
      files.remove(dir)
    end
  end)

  it("is asked for once where the server refuses it, though the job was asked to end before", function()
    server:log()
    local result = run([[
      local x = shardrt.ndarray.arange(3e6, "float32")
      require "shardrt.base.ffi".shardrt_stop_ask()
      print(pcall(shardrt.save, "s3://nothing/x.safetensors", { x = x }))
    ]], { processes = 2 })
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find("404 NoSuchBucket", 1, true), result.stdout)
    local begun = 0
    for _, line in ipairs(server:log()) do begun = begun + (line:find "^POST .*uploads= " and 1 or 0) end
    assert.equal(1, begun)
  end)

  it("must lie in a bucket that has a name", function()
    for _, dir in ipairs { "s3://", "s3:///run", "az:///run" } do
      local ok, problem = pcall(require "shardrt".checkpoint, { dir = dir })
      local said = ('dir = "%s"; a bucket\'s name stands behind %s'):format(dir, dir:sub(1, 5))
      assert.truthy(not ok and problem:find(said, 1, true), problem)
    end
  end)

  it("may be a checkpoint, which is there whole or not, goes on with other processes, and is removed in its turn",
    function()
      local function goes_on(expected, last, o)
        o.args = { "0", "s3", "data", server.work, last }
        local result = run(uploads.CHECKPOINT, o)
        assert.equal(0, result.status, result.output)
        assert.equal(expected, result.stdout)
        return result.stderr
      end
      os.execute(("rm -rf '%s'/data/*"):format(folder))
      goes_on("restored nil\n7 steps, 7\n", "7", { processes = 2, devices = 2 })
      assert.equal(uploads.kept("0000000003", "0000000006"), uploads.list(folder .. "/data"))
      -- A server that refuses says nothing of a checkpoint, which is neither passed over nor removed for it.
      files.write(server.work, "withheld", "run 7/step-0000000006/arrays.safetensors")
      local refused = run(uploads.CHECKPOINT,
        { processes = 2, devices = 2, args = { "0", "s3", "data", server.work, "9" } })
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
      assert.equal(uploads.kept("0000000009.1", "0000000012"), uploads.list(folder .. "/data"))
      -- The same files make a checkpoint on a disk.
      local here = run(uploads.BESIDE,
        { devices = 2, args = { "0", "s3", "data", server.work, "15", folder .. "/data/run 7", "" } })
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
    local result = run(uploads.CHECKPOINT, { args = { "TERM", "s3", "stalls", server.work, "9" } })
    assert.equal(85, result.status, result.output)
    assert.equal(uploads.kept "0000000003", uploads.list(folder .. "/stalls"))
    assert.same({}, server:uploads())
    assert.truthy(result.stderr:find("the job was stopped by SIGTERM at step 3, which is saved", 1, true))
  end)

  it("does not hold up who asks again for an end while the server does not answer", function()
    -- The server would be silent for longer than this limit.
    local result = run(uploads.SAVE, { args = { "TERM TERM", "s3", "clings", server.work }, limit = 50 })
    assert.equal(128 + 15, result.status, result.output)
    assert.equal(1, #server:uploads())
  end)
end)

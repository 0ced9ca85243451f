-- long: 60 s
-- waits: for servers in Python
-- Objects that are written to Google's and Azure's servers, by all processes together, in parts; with servers that
-- check signatures and bodies, and tell what is open. Checkpoints there.

local files = require "tests.support.files"
local server = require "tests.support.server"
local uploads = require "tests.support.storage.uploads"

local KEY = "dGhlIGtleSBvZiB0aGUgYWNjb3VudCwgYXMgbG9uZyBhcyBhbnk="
local SAS = "sv=2021-08-06&sr=c&sp=%s&se=2999-01-01T00%%3A00%%3A00Z&sig=sas%%2Fsignature%%2Bvalue%%3D"
local SECRETS = { "ya29", "hmac/secret", "Signature=", "sig=", "sas/", KEY }

local folder, google, azure

setup(function()
  folder = files.folder()
  local buckets = "data busy resets hesitant unfinished lost kms expires hangs stalls foreign stolen"
  os.execute(("cd '%s' && mkdir -p %s"):format(folder, buckets))
  google, azure = server.start("storage/google", folder), server.start("storage/azure", folder)
  google.env = { STORAGE_EMULATOR_HOST = google.host, GOOGLE_OAUTH_ACCESS_TOKEN = "ya29.given" }
  azure.env = { AZURE_STORAGE_ACCOUNT = "corpus", AZURE_STORAGE_SERVICE_ENDPOINT = azure.url .. "/corpus",
    AZURE_STORAGE_KEY = KEY }
end)
teardown(function()
  google:stop()
  azure:stop()
  files.remove(folder)
end)

local HMAC = { GOOGLE_OAUTH_ACCESS_TOKEN = "", GS_ACCESS_KEY_ID = "GOOG1EXAMPLE",
  GS_SECRET_ACCESS_KEY = "hmac/secret+value" }

local function run(at, source, o)
  local result = uploads.run(at, source, o)
  for _, secret in ipairs(SECRETS) do assert.falsy(result.output:find(secret, 1, true), result.output) end
  return result
end

local function clear(bucket) os.execute(("rm -rf '%s/%s'/*"):format(folder, bucket)) end
local function path(...) return table.concat({ folder, ... }, "/") end

-- Saves the same array of three parts in buckets. `saved`: those where it is there whole then; `refused`: where it
-- is what it was, with what is said.
local function check_faults(at, scheme, saved, refused)
  local names = { "data" }
  for _, bucket in ipairs(saved) do names[#names + 1] = bucket end
  for bucket in pairs(refused) do
    names[#names + 1] = bucket
    clear(bucket)
  end
  local result = run(at, [[
    local over = shardrt.NamedSharding(shardrt.make_mesh({ 2 }, { "d" }), P "d")
    local x = shardrt.device_put(shardrt.ndarray.arange(4.5e6, "float32"), over)
    for i = 2, #arg do
      local ok, problem = pcall(shardrt.save, ("%s://%s/x.safetensors"):format(arg[1], arg[i]), { x = x })
      shardrt.say("%s %s", arg[i], ok and "saved" or problem)
    end
  ]], { processes = 2, args = { scheme, unpack(names) } })
  assert.equal(0, result.status, result.output)
  for _, bucket in ipairs(saved) do
    assert.truthy(result.stdout:find(bucket .. " saved\n", 1, true), result.stdout)
    assert.is_true(uploads.is_same(path("data", "x.safetensors"), path(bucket, "x.safetensors")))
  end
  for bucket, said in pairs(refused) do
    assert.truthy(result.stdout:find(said, 1, true), result.stdout)
    local object = io.open(path(bucket, "x.safetensors"))
    assert.is_nil(object and object:read "*a" ~= "somebody else's" or nil)
    if object then object:close() end
  end
  assert.equal(#names, select(2, result.stdout:gsub("\n", "")))
end

-- Wherever memory is exhausted, that is said, or does not matter.
local function check_memory(at, scheme)
  local result = run(at, [[
    local C = require "shardrt.base.ffi"
    local over = shardrt.NamedSharding(shardrt.make_mesh({ 2 }, { "d" }), P "d")
    local x, told = shardrt.device_put(shardrt.ndarray.arange(2.2e6, "float32"), over), 0
    for n = 1, 1000 do
      C.shardrt_alloc_fail_at(n)
      local ok, problem = pcall(shardrt.save, arg[1] .. "://data/x.safetensors", { x = x })
      local met = tonumber(C.shardrt_alloc_fail_at(0)) >= n
      assert(ok or tostring(problem):find "out of memory", problem)
      told = told + (ok and 0 or 1)
      if not met then break end
    end
    print(told)
  ]], { devices = 2, args = { scheme } })
  assert.equal(0, result.status, result.output)
  assert.is_true(tonumber(result.stdout) > 30, result.stdout)
end

-- How many uploads are open in a bucket; of Azure: how many blobs have blocks that nobody committed.
local function open_in(at, bucket)
  local n = 0
  for _, line in ipairs(at:uploads()) do n = n + (line:find("^" .. bucket .. "/") and 1 or 0) end
  return n
end

-- A job's checkpoints, which another one goes on from.
local function check_checkpoints(at, scheme)
  clear "data"
  for _, case in ipairs {
    { "7", "restored nil\n7 steps, 7\n", { processes = 2, devices = 2 }, { "0000000003", "0000000006" } },
    { "14", "restored 6\n14 steps, 14\n", { devices = 4 }, { "0000000009", "0000000012" } },
  } do
    local last, said, o, kept = unpack(case)
    o.args = { "0", scheme, "data", at.work, last }
    local result = run(at, uploads.CHECKPOINT, o)
    assert.equal(0, result.status, result.output)
    assert.equal(said, result.stdout)
    assert.equal(uploads.kept(unpack(kept)), uploads.list(folder .. "/data"))
    assert.equal(0, open_in(at, "data"))
  end
end

describe("gs://, where objects are written,", function()
  local PART = "^PUT .*partNumber=%d+&uploadId=.* 200"

  it("has the same bytes as the file, whatever the topology, with a token or a key of HMAC", function()
    uploads.check_topologies(google, "gs://data/a b/ü+1=.safetensors", path("data", "a b", "ü+1=.safetensors"), PART)
    uploads.check_topologies(google, "gs://data/w.safetensors", path("data", "w.safetensors"), PART, HMAC)
  end)

  it("takes small ones in one request, and host arrays", function()
    google:log()
    for _, env in ipairs { {}, HMAC } do
      local result = run(google, [[
        shardrt.save("gs://data/small.safetensors", { a = shardrt.ndarray.arange(10, "int64") })
        shardrt.ndarray.arange(3e6, "float32"):save "gs://data/large.npy"
        assert(shardrt.ndarray.load("gs://data/large.npy").data[2999999] == 2999999)
      ]], { env = env })
      assert.equal(0, result.status, result.output)
    end
    assert.truthy(table.concat(google:log(), "\n"):find("PUT /data/small.safetensors 200", 1, true))
    assert.same({}, google:uploads())
  end)

  it("survives what may pass; else an object is what it was, no upload stays open, and one line says why", function()
    check_faults(google, "gs", { "busy", "resets", "hesitant", "lost", "kms" }, {
      unfinished = "gs://unfinished/x.safetensors: the server's answer is 200, and then InvalidPart: We could not",
      expires = "gs://expires/x.safetensors: the server answers 400 ExpiredToken: ",
      nothing = "gs://nothing/x.safetensors: the server answers 404 NoSuchBucket: ",
    })
    assert.same({}, google:uploads())
    os.remove(path("kms", "x.safetensors"))
    local kept = run(google, uploads.SAVE, { args = { "0", "gs", "kms", google.work }, env = HMAC })
    assert.equal(0, kept.status, kept.output)
  end)

  it("has no open upload where a signal ends the job, or a process is killed", function()
    for _, signal in ipairs { "TERM", "KILL" } do
      local processes = signal == "KILL" and 2 or nil
      local result = run(google, uploads.SAVE, { args = { signal, "gs", "hangs", google.work }, processes = processes })
      assert.is_true(result.status > 128, result.output)
      assert.same({}, google:uploads(), signal)
      assert.is_nil(io.open(path("hangs", "x.safetensors")))
    end
  end)

  it("keeps checkpoints", function() check_checkpoints(google, "gs") end)

  it("says where memory is exhausted, wherever that is, and leaves no upload open", function()
    check_memory(google, "gs")
    assert.same({}, google:uploads())
  end)
end)

describe("az://, where blobs are written,", function()
  local PART = "^PUT .*blockid=[%w%%]+&comp=block[ &].*201 "

  it("has the same bytes as the file, whatever the topology, with a key or a SAS", function()
    uploads.check_topologies(azure, "az://data/a b/ü+1=.safetensors", path("data", "a b", "ü+1=.safetensors"), PART)
    local sas = { AZURE_STORAGE_KEY = "", AZURE_STORAGE_SAS_TOKEN = SAS:format "rcw" }
    uploads.check_topologies(azure, "abfss://data@corpus.dfs.core.windows.net/w.safetensors",
      path("data", "w.safetensors"), PART, sas)
  end)

  it("takes small ones in one request, and host arrays", function()
    azure:log()
    local result = run(azure, [[
      shardrt.save("az://data/small.safetensors", { a = shardrt.ndarray.arange(10, "int64") })
      shardrt.ndarray.arange(3e6, "float32"):save "az://data/large.npy"
      assert(shardrt.ndarray.load("az://data/large.npy").data[2999999] == 2999999)
    ]])
    assert.equal(0, result.status, result.output)
    assert.truthy(table.concat(azure:log(), "\n"):find("PUT /corpus/data/small.safetensors 201", 1, true))
    assert.same({}, azure:uploads())
  end)

  it("survives what may pass; else a blob is what it was, and one line says why", function()
    azure:log()
    check_faults(azure, "az", { "busy", "resets", "lost" }, {
      expires = "az://expires/x.safetensors: the server answers 403 AuthenticationFailed: ",
      foreign = "400 InvalidBlobOrBlock: The specified blob or block content is invalid.; another program left blocks",
      stolen = "400 InvalidBlockList: The specified block list is invalid.; somebody else wrote there meanwhile",
      nothing = "az://nothing/x.safetensors: the server answers 404 ContainerNotFound: ",
    })
    local lists = 0 -- that were committed, and the answer to the first was lost
    for _, line in ipairs(azure:log()) do lists = lists + (line:find "/lost/.*comp=blocklist" and 1 or 0) end
    assert.equal(2, lists)
    local read_only = { AZURE_STORAGE_KEY = "", AZURE_STORAGE_SAS_TOKEN = SAS:format "rl" }
    local refused = run(azure, uploads.SAVE, { args = { "0", "az", "data", azure.work }, env = read_only })
    assert.equal(1, refused.status, refused.output)
    assert.truthy(refused.stderr:find("403 AuthorizationPermissionMismatch: ", 1, true), refused.output)
    assert.truthy(refused.stderr:find("for what is written also writing (cw)", 1, true), refused.output)
  end)

  it("shows nothing of a job that is killed, whose blocks the next one throws away", function()
    for _, signal in ipairs { "TERM", "KILL" } do
      local result = run(azure, uploads.SAVE, { args = { signal, "az", "hangs", azure.work } })
      assert.is_true(result.status > 128, result.output)
      assert.is_nil(io.open(path("hangs", "x.safetensors")))
      assert.equal(1, open_in(azure, "hangs"))
    end
    local small = run(azure, [[
      shardrt.save("az://hangs/x.safetensors", { a = shardrt.ndarray.arange(10, "int64") })
    ]])
    assert.equal(0, small.status, small.output)
    assert.equal(0, open_in(azure, "hangs"))
  end)

  it("says where memory is exhausted, wherever that is", function() check_memory(azure, "az") end)

  it("keeps checkpoints; SIGTERM does not end what is on its way, and the job ends in order", function()
    check_checkpoints(azure, "az")
    local result = run(azure, uploads.CHECKPOINT, { args = { "TERM", "az", "stalls", azure.work, "9" } })
    assert.equal(85, result.status, result.output)
    assert.equal(uploads.kept "0000000003", uploads.list(folder .. "/stalls"))
    assert.truthy(result.stderr:find("the job was stopped by SIGTERM at step 3, which is saved", 1, true))
  end)
end)

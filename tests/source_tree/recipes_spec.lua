-- long: 190 s
-- Every recipe runs alone and with 4 processes x 2 devices, makes its claim with numbers that it worked out, can be
-- planned, and begins with a comment that says what it shows. (docs_spec looks whether recipes/README.md lists it.)

local C = require "shardrt.base.ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local nginx = require "tests.support.nginx"
local platform = require "tests.support.platform"
local recipe_proofs = require "tests.support.source_tree.recipe_proofs"

local recipes = {}
do
  local pipe = assert(io.popen "ls recipes/*.lua")
  for path in pipe:lines() do
    local name = path:match "([%w_]+)%.lua$"
    if name ~= "s3" then recipes[#recipes + 1] = name end -- which tests/storage/s3_write_spec.lua runs
  end
  pipe:close()
end

-- What a recipe must have said with 4 processes x 2 devices (Lua patterns): the claims that it makes.
local claims = {
  conv_net = { -- golden/networks.json
    "after  0 steps the loss is 2.492[89]%d\n", "after 20 steps the loss is 0.432[12]%d\n",
    'the second kernel lies by P%(nil, nil, nil, "model"%)\n',
  },
  convenient_load = { -- of 1/4 of 327,680 bytes that each process reads, it needs 1/4, or all of the rest
    'wanted as P%("all"%)\n  process 0 read 81920 bytes and received 61440\n',
    "wanted as P%(%)\n  process 0 read 81920 bytes and received 245760\n", "the data has 327680 bytes\n",
  },
  data_parallel = {
    "\nstep 200 of 235: Array%(uint8 {256, 28, 28}, ", "process 3 read 11%.8 MB\n",
    "\n60000 images in 235 steps: %d+ images/s\n",
  },
  disagreeing_shardings = {
    "another order is refused:\nrecipes/disagreeing_shardings.lua:%d+: np.add: [^\n]*%[0, 1, 2, 3, 4, 5, 6, 7%] and "
      .. "array 2 on %[7, 6, 5, 4, 3, 2, 1, 0%]",
    "a single device is refused:\n[^\n]* on %[7%]", "\nx %+ a host array lies by P%(\"x\"%)\n",
    "ones_like%(x%) is Array%(float32 {32}, NamedSharding%(Mesh%(\"x\": 8%), P%(\"x\"%)%)%)\n",
    "zeros %+ arange is Array%(float32 {4}, not placed%): {0, 1, 2, 3}\n", "the sum of x %+ arange is 992\n",
  },
  elastic = { "4 processes, from step 0 on\n", "3840 samples in 40 steps\n" },
  fineweb_like = { -- 64 of 240 rows were given before
    "an epoch:\n  240 rows, 120 of code, %d+ tokens\n", "two batches:\n  176 rows, 104 of code, %d+ tokens\n",
  },
  full_replication = {
    "process 3: 2 copies of 32768 bytes in meaning, " .. (platform.host and 1 or 2) .. " in memory\n", "devices 0%-7",
  },
  http = {
    "10 samples in 2 archives\n", "two epochs: 20 samples; their classes come to 10\n",
  },
  imagenet_folder = {
    "10 images of 2 classes: stripes, waves\n",
    "\nthe first batch: Array%(float32 {16, 3, 224, 224}, ", "\n2 epochs: 20 images\n",
  },
  images_and_labels = {
    "1%-D mesh\nimage {256, 8, 8, 3}, on each device {64, 8, 8, 3}\n", "process 0 has had 256 images",
    "2%-D mesh\nimage {256, 8, 8, 3}, on each device {128, 8, 8, 3}\n", "process 0 has had 512 images",
    "features {256, 4, 4, 32}, on each device {256, 4, 4, 16}\n", "process 0 read 524288 of 1048576 bytes",
  },
  independent_streams = { -- each of 0 to 99 fills 16 x 3 numbers
    "process 0 takes stream 0 of 4: all that the job was given comes to 237600\n",
    "process 0 takes stream 1 of 4: all that the job was given comes to 237600\n",
  },
  layouts = {
    'columns in as many parts[^\n]*: P%(nil, "x"%)\n  every device holds {64, 16}\n'
      .. "  process 0 needs %[0:64, 0:16%] %[0:64, 16:32%]\n",
    "the devices in another order[^\n]*\n  every device holds {64, 16}\n"
      .. "  process 0 needs %[0:64, 0:16%] %[0:64, 64:80%]\n",
    "each copy across processes[^\n]*\n  every device holds {32, 128}\n"
      .. "  process 0 needs %[0:32, 0:128%]\n  process 1 needs %[0:32, 0:128%]\n"
      .. "  process 2 needs %[32:64, 0:128%]\n",
    "\n{8192, 8192} over [^\n]*: P%({\"a\", \"b\"}, nil%)", "on one device\n",
  },
  lua_transform = { "%d+ samples/s after a warm%-up of 20" },
  matmul = { -- of {256, 256} float32, over 8 devices
    'np.dot +float32 {256, 256} P%("a", "b"%) +0 B [^\n]*P%("a", nil%), P%(nil, "b"%)\nin all: 0 B moved',
    "in all: 1536 KiB moved", "in all: 768 KiB moved", -- all-reduce and reduce-scatter of 256 KiB, over 4 processes
    "ms on one device, [%d.]+ ms on 8\n",
  },
  megatron = { -- as tests/support/dataset/megatron.py works out of the same files; 24 windows were given before
    "device 0 [^\n]*, replica_id 0: windows 0 to 4\n", "device 3 [^\n]*, replica_id 3: windows 0 to 4\n",
    "device 7 [^\n]*, replica_id 3: windows 4 to 8\n",
    "train: 160 windows, whose tokens come to 37099788\nvalid: 20 windows, whose tokens come to 4795745\n"
      .. "train, after three batches: 136 windows, whose tokens come to 31338819\n",
  },
  mix = {
    "an epoch:\n  1200 of web\n   600 of code\n   200 of books\n", -- of the rest 3 batches of 80 were given before
    "with batches of twice the size:\n  1056 of web\n   528 of code\n   176 of books\n",
  },
  mlp_data_parallel = { -- golden/mlp.json
    "256 rows, 32 on each device",
    "after  0 steps the loss is 34.8407%d%d\n",
    "after 30 steps the loss is 25.3248[45]%d\n", "ms on one device, [%d.]+ ms on 8\n",
  },
  mlp_tensor_parallel = {
    "after 30 steps the loss is 25.3248[45]%d\nrows over batch, W2 by P%(nil, \"model\"%) and W3 by "
      .. "P%(\"model\", nil%):\nafter  0 steps the loss is 25.3248[45]%d\n",
    "ms on one device, [%d.]+ ms on 8\n",
  },
  mixed_up_batches = {
    "fed rightly", "refused:\n[^\n]*device 0 %(process 0%) against device 4 %(process 2%)",
  },
  model_parallel_across_processes = {
    "process 0 read stream 0 of 2: 24 samples\n", "process 1 read stream 1 of 2", "process 2 read stream 0 of 2",
    "process 3 read stream 1 of 2",
    "device 4 %(" .. platform.name .. ", process 2%), replica_id 1: rows 0 to 4\n",
    "device 6 %(" .. platform.name .. ", process 3%), replica_id 1: rows 8 to 12\n",
  },
  model_parallel_within_process = {
    "device 7 %(" .. platform.name .. ", process 3%), replica_id 1: rows 12 to 16\n",
    "are refused:\n[^\n]*device 0 %(process 0%) against device 1 %(process 0%)",
  },
  partial_replication = {
    "copies inside a process: process 0 needs rows 0 to 32 of 32\n",
    "copies inside a process: process 2 needs rows 0 to 32 of 32\n",
    "copies across processes: process 1 needs rows 0 to 16 of 32\n",
    "copies across processes: process 2 needs rows 16 to 32 of 32\n",
  },
  pipelines = { -- of batches of 2,097,664 bytes, half of them for each process
    "per_process +1048832 +0 ", "per_device +1048832 +0 ", "global +2097664 +0 ", "rows +524416 +1048832 ",
    "shares +524416 +524416 ", "chosen by auto\n",
  },
  reshard = {
    "rows change places +196608 bytes over links, +65536 from the same memory\n",
    "mirrored devices +262144 bytes over links, +0 from the same memory\n",
    "all of it everywhere +0 bytes over links, +1048576 from", "one device +0 bytes over links, +262144 from",
    "process 0 receives 49152 bytes, sends 49152, copies 16384\n",
  },
  resume = {
    "stopped after step 12\n", "went on from step 10, on 4 of 8 devices, with batches of 256\n",
    "\n25 steps, and as many are in the weights: their mean is 25\n", -- 10, and half of the 30 that were left
  },
  sharding_constraint = {
    'f%(x%) by P%("y", "x"%):\n', 'f%(x%) by P%(%):\n.*the gradient lies by P%("x", "y"%)\n',
  },
  sin_follows_sharding = {
    'np.sin +float32 {1024, 1024} P%("a", "b"%) +0 B', 'np.copy +float32 {1024, 1024} P%("a", "b"%) +0 B',
    "a copy by NamedSharding%(Mesh%(\"a\": 4, \"b\": 2%), P%(\"a\", \"b\"%)%)\n", "ms on one device, [%d.]+ ms on 8\n",
  },
  single_device = {
    'no sharding: the first of 4 batches: Array%(int32 {128}, NamedSharding%(Mesh%("data": 8%), P%("data"%)%)%)\n',
    "one device: the first of 4 batches: Array%(int32 {128}, SingleDeviceSharding%(device 0%)%)\n",
  },
  spatial_image = {
    "process 0 read 1572864 bytes\nprocess 1 read 1572864 bytes\nprocess 2 read 1572864 bytes\n"
      .. "process 3 read 1572864 bytes\nthe image has 6291456 uint8 values\n",
  },
  save_and_load = {
    "process 0 saved 4917%d%d bytes\nprocess 1 saved 491520 bytes\n", "process 3 saved 491520 bytes\n",
    "process 0 loaded 1228800 bytes\n", "process 3 loaded 1228800 bytes\n",
    'layer.0.weight: Array%(float32 {960, 256}, [^\n]+P%({"model", "data"}%)%)%)\n', "\nstep 100\n",
  },
  train_fashion_mnist = {
    "step 300: loss 0.%d+\n", "after 300 steps and [%d.]+ s 8[5-9]%.%d%d %% of the test images are named rightly\n",
  },
  tokens = {
    "%d+ windows of 32 letters: %d+ letters were a target\n",
    "%d+ letters of %d+ lines in %d+ rows of 128, each line whole: 9%d %% of",
  },
  tfrecord = {
    "source of 24 samples of image: uint8 {2, 3}, label: int64 {}\n",
    "24 records; their labels come to 60\n",
  },
  throughput = {
    "\n +1 +[%d.]+ +%d+ +0%.786\n", "\n +2 +[%d.]+ +%d+ +0%.393\n", "\n +4 +[%d.]+ +%d+ +0%.197\n",
    "\n +8 +[%d.]+ +%d+ +0%.098\n",
  },
  weights = { "process 3 read 787968 bytes\n", '15 arrays; layers.0.attention.o.weight: [^\n]+P%(nil, "model"%)' },
  transformer = {
    "after  0 steps the loss is 4.3001%d\n", "after 20 steps the loss is 1.102[45]%d\n",
    '27264 numbers in 18 arrays; the heads lie by P%(nil, "model", nil%)\n',
  },
  uneven_epoch = {
    "are 3 steps\n  32 of 32 rows are real\n  32 of 32 rows are real\n  3 of 32 rows are real\n", "are 2 steps\n",
    '"error":\n[^\n]*67',
  },
  webdataset = { "10 samples in all archives\n", "class 0: 5 samples, class 1: 5\n" },
}

-- These make more of their data than a machine holds, or nothing, where a job has a million devices; or have batches
-- that so many do not divide; or work out for minutes what moves between so many.
local small = {
  convenient_load = true, elastic = true, http = true, imagenet_folder = true, layouts = true, lua_transform = true,
  matmul = true, mlp_data_parallel = true, mlp_tensor_parallel = true, sharding_constraint = true,
  pipelines = true, reshard = true,
  resume = true, spatial_image = true, throughput = true, train_fashion_mnist = true,
  weights = true,
}

-- Those that train do so in full once, for their claims with 4 processes; else a few steps show that they run. The
-- stand-in computes one thread after the other: they do less there, too. That they come to the same on any processes
-- and devices is looked at by mlp_spec and train_spec.
local less = {
  mlp_data_parallel = {
    args = function() return { 64, 2 } end,
    "64 rows, 8 on each device", "after  2 steps the loss is %d+%.%d+\n", "ms on one device, [%d.]+ ms on 8\n",
  },
  mlp_tensor_parallel = {
    args = function() return { 64, 2 } end,
    "after  2 steps the loss is %d+%.%d+\nrows over batch, W2 by P%(nil, \"model\"%)",
    "ms on one device, [%d.]+ ms on 8\n",
  },
  train_fashion_mnist = {
    args = function(folder) return { folder, 25 } end,
    "step  25: loss %d+%.%d+\n", "after 25 steps and [%d.]+ s %d+%.%d+ %% of the test images are named rightly\n",
  },
}

-- One recipe after the other, in one job, whose start takes longer than most of them: a line of the file arg[1] is a
-- recipe and its arguments. What a process prints of each stands between two lines of this one's own.
local ONE_BY_ONE = [[
  io.stdout:setvbuf "line" -- all of it is there where a job is ended
  for line in io.lines(arg[1]) do
    local words = {}
    for word in line:gmatch "%S+" do words[#words + 1] = word end
    local path = table.remove(words, 1)
    words[0], arg = path, words
    print(("begins: %s"):format(path))
    dofile(path)
    print(("ended: %s"):format(path))
    collectgarbage()
  end
]]

local server -- of recipes/data, for the recipe that reads from one
local function run(name, job, in_full)
  job.recipe = not job.source and "recipes/" .. name .. ".lua" or nil
  job.limit = in_full and 400 or 120
  if name == "http" and not job.args then
    job.args = { server.url .. "/shard-000000.tar", server.url .. "/shard-000001.tar" }
    job.env = { SHARDRT_CACHE = server.work .. "/cache" }
  end
  local folder = less[name] and not in_full and not job.options and mpi.folder()
  if folder then job.args = less[name].args(folder) end
  local result = mpi.run(job)
  if folder then mpi.remove(folder) end
  assert.equal(0, result.status, name .. "\n" .. result.output)
  assert.not_equal("", result.stdout, name .. " says nothing")
  return (result.stdout:gsub("\r\n", "\n"))
end

-- Runs all recipes in one job, but the one that has a server and a cache of its own: what each process printed.
local function run_all(job)
  local folder = mpi.folder()
  local lines = {}
  for _, name in ipairs(recipes) do
    local words = { "recipes/" .. name .. ".lua" }
    local own = ("%s/of_%s"):format(folder, name)
    assert.equal(0, os.execute("mkdir " .. own))
    for _, word in ipairs(less[name] and less[name].args(own) or {}) do
      words[#words + 1] = word
    end
    if name ~= "http" then lines[#lines + 1] = table.concat(words, " ") end
  end
  files.write(folder, "recipes", table.concat(lines, "\n") .. "\n")
  files.write(folder, "one_by_one.lua", ONE_BY_ONE)
  -- Each process writes a file: lines of several that mpirun collects come in any order.
  local command = "env %s mpirun -n %d sh -c 'exec \"$0\" \"$@\" >%s/$OMPI_COMM_WORLD_RANK' %s --devices %d %s/%s %s/%s"
  local result = mpi.shell(command:format(mpi.environment, job.processes, folder, mpi.program(), job.devices, folder,
    "one_by_one.lua", folder, "recipes"), 400)
  local printed = {}
  for process = 1, job.processes do
    local file = io.open(("%s/%d"):format(folder, process - 1), "rb") -- none where mpirun failed
    printed[process] = file and file:read "*a" or ""
    if file then file:close() end
  end
  mpi.remove(folder)
  return { status = result.status, output = result.output, printed = printed }
end

local together = { { processes = 3, devices = 1 }, { processes = 3, devices = 2 } }
local function result_of(job)
  job.result = job.result or run_all(job)
  return job.result
end

local function ends_well(name, job)
  local said, result = "", result_of(job)
  for process, text in ipairs(result.printed) do
    local own = text:match(("begins: recipes/%s.lua\n(.-)ended: recipes/%s.lua\n"):format(name, name))
    assert.truthy(own, ("%s does not end well in process %d of %d:\n%s%s"):format(name, process - 1, job.processes,
      text:match(("begins: recipes/%s.lua\n(.*)"):format(name)) or "another one before it did not\n",
      result.output))
    said = said .. own
  end
  assert.not_equal("", said, name .. " says nothing")
end

local function has(text, pattern) assert.truthy(text:find(pattern), pattern .. "\nis not in\n" .. text) end

describe("recipe", function()
  setup(function()
    local pipe = assert(io.popen "pwd")
    server = nginx.start(pipe:read "*l" .. "/recipes/data")
    pipe:close()
  end)
  teardown(function() server:stop() end)

  for _, name in ipairs(recipes) do
    it(name .. " begins with what it shows, and how it is run", function()
      local comment = files.slurp("recipes/" .. name .. ".lua"):match "^(%-%- %u.-)\n\n"
      assert.truthy(comment, name)
      assert.truthy(comment:find("\n--   [^\n]*build/shardrt [^\n]*recipes/" .. name .. "%.lua"), name)
    end)

    it(name .. " makes its claims with 4 processes x 2 devices", function()
      assert.truthy(claims[name], "no claim of " .. name .. " is listed here")
      local text = run(name, { processes = 4, devices = 2 }, not platform.standin)
      for _, claim in ipairs(platform.standin and less[name] or claims[name]) do has(text, claim) end
    end)

    it(name .. " runs alone, and with numbers of processes and devices that are no powers of two", function()
      for _, devices in ipairs { 1, 8 } do run(name, { devices = devices }) end
      for _, job in ipairs(together) do
        if name == "http" then
          run(name, { processes = job.processes, devices = job.devices })
        else
          ends_well(name, job)
        end
      end
    end)

    it(name .. " can be planned", function()
      local text = run(name, { options = { "plan", "--processes", "4", "--devices", "2" } })
      has(text, "a job of 4 processes with 2 devices each: 8 devices\n")
      if name == "layouts" then return has(text, "the recipe made no array and no loader") end
      has(text, "recipes/[%w_/]+%.lua:%d+: ") -- its own lines, or those of what it shares with others
      has(text, "\n  process 3\n")
      local one = run(name, { options = { "plan", "--processes", "4", "--devices", "2", "--process", "3" } })
      has(one, "\n  process 3\n")
      if small[name] then return end
      has(run(name, { options = { "plan", "--processes", "262144", "--devices", "4" } }), ": 1,048,576 devices\n")
    end)
  end

  it("jobs of all recipes end as jobs of one do", function()
    for _, job in ipairs(together) do assert.equal(0, result_of(job).status, result_of(job).output) end
  end)

  it("http keeps what it promises, in every topology", function() -- others: recipe_proofs_spec.lua
    for _, job in ipairs { { processes = 4, devices = 2 }, { processes = 3, devices = 1 }, { devices = 4 } } do
      job.source = recipe_proofs.program "http"
      run("http", job)
    end
  end)

  it("http and s3 explain themselves where they are given no address", function()
    has(run("http", { args = {} }), "it takes the addresses of archives")
    has(run("s3", {}), "it takes a pattern of archives and a folder, s3://")
  end)

  it("elastic loses a process, and goes on with fewer", function()
    local folder = mpi.folder()
    local proof, log = folder .. "/proof.lua", folder .. "/log"
    local file = assert(io.open(proof, "w"))
    file:write(recipe_proofs.program "elastic")
    file:close()
    local command = "%s run -n 4 --devices 2 --restarts 3 --min 2 %s 12 %s/saved %s"
    local result = mpi.shell(command:format(mpi.program(), proof, folder, log), 120)
    assert.equal(0, result.status, result.output)
    has(result.stderr, "\nshardrt run: a process was ended by signal 9 %(Killed%); restart 1 of 3, with 3 processes, "
      .. "from its checkpoint of step 10\n")
    has(result.stdout, "4 processes, from step 0 on\r?\n3 processes, from step 10 on\r?\n3840 samples in 40 steps")
    local at, steps = 0, {} -- every sample once, in the order of an undisturbed run
    for line in io.lines(log) do
      local step, ids = line:match "^(%d+):(.*)$"
      steps[tonumber(step)] = ids -- 11 and 12 were done twice
    end
    assert.equal(40, #steps)
    for _, ids in ipairs(steps) do
      for id in ids:gmatch "%d+" do
        assert.equal(tonumber(C.shardrt_order_index(7, 0, 3840, at)), tonumber(id))
        at = at + 1
      end
    end
    assert.equal(3840, at)
    mpi.remove(folder)
  end)

  it("that shows a refusal says so where nothing is checked", function()
    for _, name in ipairs { "mixed_up_batches", "model_parallel_within_process" } do
      local text = run(name, { processes = 4, devices = 2, options = { "--check", "off" } })
      has(text, "nobody noticed, for nothing is compared")
    end
  end)
end)

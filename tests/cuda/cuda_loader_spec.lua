-- long: 15 s
-- The loader where devices have memory of their own: what it gives, against the host platform's in the same job;
-- batches that are held, dropped while they are uploaded, and refused by a device; what all of it leaves behind. On the
-- stand-in for CUDA's runtime (tests/standin), whose streams run late and in bad orders, or, with
-- SHARDRT_TEST_PLATFORM=cuda, on GPUs, as far as nothing is made to fail.

local mpi = require "tests.support.mpi"

local ON_GPUS = os.getenv "SHARDRT_TEST_PLATFORM" == "cuda"
local PLUGIN = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"
local SEED = require "tests.support.seed" % 100000

local function is_there(path)
  local file = io.open(path)
  return file and file:close()
end

-- The job on devices of their own; `standin` is for its environment (STANDIN_FAIL = …).
local function run(o)
  local env = { CUDA_VISIBLE_DEVICES = ON_GPUS and os.getenv "CUDA_VISIBLE_DEVICES" or nil }
  if not ON_GPUS then
    env.SHARDRT_CUDA_PLUGIN, env.SHARDRT_CUDA_LIBRARIES = PLUGIN, PLUGIN:match "^(.*)/"
  end
  for name, value in pairs(ON_GPUS and {} or o.standin or {}) do env["STANDIN_" .. name] = value end
  return mpi.run {
    source = o.source, args = o.args, processes = o.processes, devices = o.devices, limit = o.limit or 120, env = env,
    options = { "--platform", "cuda" },
  }
end

-- A folder until the test has ended.
local function own_folder()
  local folder = mpi.folder()
  finally(function() mpi.remove(folder) end)
  return folder
end

local function lines_of(path)
  local lines = {}
  for line in io.lines(path) do lines[#lines + 1] = line end
  return lines
end

-- What stands in one file for each process.
local function files_of(folder, processes)
  local texts = {}
  for p = 1, processes or 1 do
    local file = assert(io.open(folder .. "/" .. p - 1, "rb"))
    texts[p] = file:read "*a"
    file:close()
  end
  return texts
end

-- How often the stand-in was called, and did so; and what should be given back is.
local function calls_of(log)
  local calls = setmetatable({}, { __index = function() return 0 end })
  for _, line in ipairs(lines_of(log)) do
    local name = line:match "call (%S+)"
    if name then calls[name] = calls[name] + 1 end
  end
  return calls
end

local PAIRS = {
  { "cudaMallocAsync", "cudaFreeAsync" }, { "cudaHostAlloc", "cudaFreeHost" },
  { "cudaEventCreateWithFlags", "cudaEventDestroy" }, { "cudaStreamCreateWithFlags", "cudaStreamDestroy" },
}

-- `failed`: of the first of each pair, how many calls were made to fail.
local function check_balance(calls, failed, what)
  for _, pair in ipairs(PAIRS) do
    local made = calls[pair[1]] - (failed and failed[pair[1]] or 0)
    assert.is_true(made > 0, what)
    assert.equal(made, calls[pair[2]], what .. ": " .. pair[2])
  end
end

local standin_it = function(what, body)
  if ON_GPUS then return pending(what .. " (on the stand-in alone)") end
  it(what, body)
end

-- How recipes begin whose batches lie on all devices.
local ON_LINE = [[
  local shardrt = require "shardrt"
  local P, ndarray = shardrt.P, shardrt.ndarray
  local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "d" })
]]

-- ---- what it gives ----

-- Reads shards at once, later, or never; goes back and forth; lets loaders go in the middle. What it does depends on
-- the seed alone; of what it reads it writes the shards' fingerprints.
local STREAMS = [[
local ffi, bit = require "ffi", require "bit"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"
local pipelines = require "tests.support.pipelines"
local P = shardrt.P
local folder, seed = arg[1], tonumber(arg[2])
local out = assert(io.open(folder .. "/" .. shardrt.process_index(), "wb"))
math.randomseed(seed)
local random = math.random

local n = shardrt.device_count()
local flat = shardrt.make_mesh({ n }, { "d" })
local square = n > 1 and shardrt.make_mesh({ 2, n / 2 }, { "d", "m" }) or flat
local some = n > 2 and shardrt.Mesh({ 2 }, { "d" }, { n - 1, 0 }) or flat -- of two devices, perhaps of two processes
local shardings = {
  shardrt.NamedSharding(flat, P "d"), shardrt.NamedSharding(flat, P()), shardrt.NamedSharding(square, P "d"),
  shardrt.NamedSharding(square, P { n > 1 and "m" or "d" }), shardrt.NamedSharding(some, P "d"),
  shardrt.SingleDeviceSharding(shardrt.devices()[n]), -- other processes have nothing
}
local ways = { "per_process", "global", "per_device", "reshard" }

local function write(what, batch)
  local names = {}
  for name in pairs(batch) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    for i, shard in ipairs(batch[name].addressable_shards) do
      local host = shard.data
      out:write(("%s %s %d %s %s\n"):format(what, name, i, tostring(shard.device):gsub("^.-(%d+).*$", "%1"),
        bit.tohex(C.shardrt_fingerprint(host.data, host.bytes))))
    end
  end
end

local uploaded = 0
for case = 1, 4 do
  local made = pipelines.make(seed * 10 + case)
  local o = {
    batch_size = 8 * random(1, 2), sharding = shardings[random(#shardings)], num_workers = random(3),
    prefetch = random(3) > 1 and random(4) or nil, pipeline = ways[random(#ways)],
  }
  local loader, late, state, restored, step = pipelines.loader(made, o), {}, nil, false, 0
  while true do
    local batch = loader()
    if not batch then break end
    step = step + 1
    local choice = random(4)
    local what = ("case %d step %d"):format(case, step)
    if choice == 1 then write(what, batch) end
    if choice == 2 then late[#late + 1] = { what, batch } end
    if choice == 3 and random(3) == 1 then collectgarbage() end
    if state == nil and random(3) == 1 then state = loader:state() end
    if state and not restored and random(3) == 1 then
      loader:restore(state)
      restored = true
    end
    if step > 40 then break end -- and it is let go, with what it was making
  end
  uploaded = uploaded + loader:stats().bytes_uploaded
  if random(2) == 1 then
    loader = nil
    collectgarbage()
  end
  for _, one in ipairs(late) do write(one[1] .. " late", one[2]) end
end
out:write "end\n"
out:close()
if shardrt.process_index() == 0 then print(uploaded) end
]]

describe("batches on devices with memory of their own", function()
  if not ON_GPUS and not is_there(PLUGIN) then
    return pending("there is no stand-in for CUDA's runtime; `make standin` builds it")
  end

  for i, job in ipairs {
    { devices = 1, gpus = 1 }, { devices = 2, gpus = 1 }, { devices = 2, gpus = 2 }, { devices = 4, gpus = 3 },
    { devices = 8, gpus = 1 }, { devices = 8, gpus = 4 }, { processes = 2, devices = 1, gpus = 1 },
    { processes = 2, devices = 4, gpus = 2 }, { processes = 2, devices = 2, gpus = 4 },
  } do
    local what = ("%s%d device%s on %d GPU%s"):format(job.processes and job.processes .. " processes with " or "",
      job.devices, job.devices == 1 and "" or "s", job.gpus, job.gpus == 1 and "" or "s")
    it("are the host platform's: " .. what, function()
      local seed, here, there = SEED + i, mpi.folder(), mpi.folder()
      finally(function()
        mpi.remove(here)
        mpi.remove(there)
      end)
      local host = mpi.run {
        source = STREAMS, args = { here, seed }, processes = job.processes, devices = job.devices,
        options = { "--platform", "host" },
      }
      assert.equal(0, host.status, "seed " .. seed .. "\n" .. host.output)
      local result = run {
        source = STREAMS, args = { there, seed }, processes = job.processes, devices = job.devices,
        standin = { GPUS = job.gpus, SEED = seed },
      }
      assert.equal(0, result.status, "seed " .. seed .. "\n" .. result.output)
      assert.same(files_of(here, job.processes), files_of(there, job.processes), "seed " .. seed)
      assert.is_true(tonumber(result.stdout) > 0, result.stdout)
      assert.equal(0, tonumber(host.stdout))
    end)
  end

  -- ---- what it takes ----

  standin_it("take no more pinned memory however many there are, and give everything back", function()
    local folder = own_folder()
    local result = run {
      source = [[
        local shardrt = require "shardrt"
        local P, ndarray = shardrt.P, shardrt.ndarray
        local mesh = shardrt.make_mesh({ 4 }, { "d" })
        local loader = shardrt.loader {
          source = shardrt.source.array { x = ndarray.arange(256, "int32"), y = ndarray.arange(512, "float32")
            :reshape { 256, 2 }, none = ndarray.zeros({ 256, 0 }, "int32") },
          batch_size = 16, epochs = 65, shuffle = true, prefetch = 2, num_workers = 2,
          sharding = {
            x = shardrt.NamedSharding(mesh, P "d"), y = shardrt.NamedSharding(mesh, P()),
            none = shardrt.NamedSharding(mesh, P()),
          },
        }
        local steps = 0
        for batch in loader do
          steps = steps + 1
          if steps % 100 == 0 then batch.x:block_until_ready() end
        end
        local stats = loader:stats()
        print(steps, stats.pinned_bytes, stats.bytes_uploaded, stats.stages.upload > 0, stats.batch_bytes,
          stats.budget_bytes - stats.slack_bytes)
      ]],
      devices = 4, standin = { GPUS = 2, LOG = folder .. "/log" },
    }
    assert.equal(0, result.status, result.output)
    local steps, pinned, uploaded, took, batch, budget =
      result.stdout:match "(%d+)%s+(%d+)%s+(%d+)%s+(%a+)%s+(%d+)%s+(%d+)"
    assert.equal("1040", steps, result.output)
    assert.equal(4 * 16 * (4 + 8), tonumber(pinned)) -- two batches ahead, two that land: each box once
    assert.equal(16 * 4 + 4 * 16 * 8, tonumber(batch)) -- on devices, replicas each
    assert.equal(4 * (16 * 4 + 4 * 16 * 8), tonumber(budget)) -- two ahead, two handed out
    assert.equal("true", took)
    assert.is_true(tonumber(uploaded) >= 1036 * tonumber(batch) and tonumber(uploaded) <= 1040 * tonumber(batch))
    local calls = calls_of(folder .. "/log")
    assert.is_true(calls.cudaHostAlloc <= 4 * (4 + 1 + 1) + 4, calls.cudaHostAlloc) -- blocks, fingerprints
    check_balance(calls, nil, "after 1040 steps")
  end)

  -- ---- what fails ----

  local FAILING = [[
    local shardrt = require "shardrt"
    local P, ndarray = shardrt.P, shardrt.ndarray
    local mesh = shardrt.make_mesh({ 2 }, { "d" })
    local function fresh()
      return shardrt.loader {
        source = shardrt.source.array { image = ndarray.arange(64, "int32"), label = ndarray.arange(64, "int64") },
        batch_size = 8, epochs = 1, prefetch = 2, num_workers = 1,
        sharding = { image = shardrt.NamedSharding(mesh, P()), label = shardrt.NamedSharding(mesh, P "d") },
      }
    end
    local ok, loader = pcall(fresh)
    if not ok then
      print("problem: " .. tostring(loader))
      loader = fresh()
    end
    local step, problems = 0, 0
    while problems < 10 do
      local ok, batch = pcall(loader)
      if not ok then
        problems = problems + 1
        print("problem: " .. tostring(batch):gsub("\n", " "))
      elseif not batch then
        break
      else
        for _, name in ipairs { "image", "label" } do
          local ok, host = pcall(shardrt.device_get, batch[name])
          if not ok then print("problem: " .. tostring(host)) end
          for i = 0, ok and 7 or -1 do assert(host.data[i] == step * 8 + i, "another batch") end
        end
        step = step + 1
      end
    end
    print(step .. " steps")
  ]]

  -- Every place of a call where it matters: the loader goes on with the same batch, and nothing stays. What is made
  -- ahead and asked for again may fail unnoticed (`absorbed`).
  for _, case in ipairs {
    { "cudaMemcpyAsync", 1 }, { "cudaEventRecord", 1 }, { "cudaStreamWaitEvent", 1 }, { "cudaHostAlloc", 1 },
    { "cudaMallocAsync", 1 }, { "cudaEventQuery", 1, absorbed = true }, { "cudaEventElapsedTime", 1, absorbed = true },
    { "cudaEventCreateWithFlags", 2, absorbed = true },
  } do
    standin_it("are made again where " .. case[1] .. " failed, and say so", function()
      local folder = own_folder()
      local problems = 0
      for n = 1, 17, 4 do
        local log = folder .. "/log" .. n
        local result = run {
          source = FAILING, devices = 2,
          standin = { GPUS = 2, SEED = SEED + n, LOG = log, FAIL = ("%s@%d=%d"):format(case[1], n, case[2]) },
        }
        local what = ("%s, call %d, seed %d\n%s"):format(case[1], n, SEED + n, result.output)
        assert.equal(0, result.status, what)
        assert.truthy(result.stdout:find("8 steps", 1, true), what)
        for problem in result.stdout:gmatch "problem: ([^\n]*)" do
          problems = problems + 1
          assert.truthy(problem:find "^[^:]+:%d+: ", what)
          assert.truthy(problem:find(case[1] .. " failed", 1, true) or problem:find "out of memory", what)
        end
        -- What a download that failed half-way may still write to is given up.
        local _, given_up = result.stdout:gsub("cannot be brought to the host", "")
        local calls = calls_of(log)
        local failed = { [case[1]] = calls[case[1]] >= n and 1 or 0 }
        failed.cudaHostAlloc = (failed.cudaHostAlloc or 0) + given_up
        check_balance(calls, failed, what)
      end
      assert.is_true(problems > 0 or case.absorbed, "nothing failed")
    end)
  end

  standin_it("end with the device's error where it will never work again", function()
    if os.getenv "SHARDRT_SANITIZER" then pending "what such a device may still read is given up" return end
    for n = 1, 40, 13 do
      local result = run {
        source = FAILING, devices = 2, limit = 30,
        standin = { GPUS = 2, SEED = SEED + n, FAIL = "run@" .. n .. "=700" },
      }
      assert.truthy(result.status == 0 or result.status == 1, result.output)
      assert.truthy(result.stdout:find("problem: [^\n]*device [01] %(GPU [01], Stand%-in [01]%)"), result.output)
    end
  end)

  -- The recipe holds batches until a device is full; then it lets them go, and goes on where it was.
  standin_it("say which field has no room on a device, and come once there is", function()
    local folder = own_folder()
    local result = run {
      source = ON_LINE .. [[
        local loader = shardrt.loader {
          source = shardrt.source.array { image = ndarray.arange(64 * 2 ^ 16, "int32"):reshape { 64, 2 ^ 16 } },
          batch_size = 4, epochs = 1, prefetch = 2, sharding = shardrt.NamedSharding(mesh, P "d"),
        }
        local held, problems, step = {}, 0, 0
        while true do
          local ok, batch = pcall(loader)
          if not ok then
            problems = problems + 1
            print(batch)
            for i, one in ipairs(held) do
              local host = shardrt.device_get(one.image)
              for k = 0, host.size - 1, 997 do assert(host.data[k] == (step - #held + i - 1) * host.size + k) end
            end
            held = {}
            collectgarbage()
          elseif not batch then
            break
          else
            held[#held + 1], step = batch, step + 1
          end
        end
        print(step, problems)
      ]],
      devices = 2, standin = { GPUS = 1, MEMORY = 6 * 2 ^ 20, LOG = folder .. "/log" },
    }
    assert.equal(0, result.status, result.output)
    local steps, problems = result.stdout:match "(%d+)\t(%d+)\n$"
    assert.equal("16", steps, result.output)
    assert.is_true(tonumber(problems) >= 2, result.output)
    assert.truthy(result.stdout:find('recipe.lua:%d+: field "image" of the loader\'s next batch: out of memory on '
      .. "device [01] %(GPU 0, Stand%-in 0%): 524288 bytes are wanted for batches; .* as batches"), result.output)
    local calls = calls_of(folder .. "/log")
    assert.equal(calls.cudaHostAlloc, calls.cudaFreeHost)
    assert.equal(calls.cudaEventCreateWithFlags, calls.cudaEventDestroy)
  end)

  standin_it("are compared as they lie on the devices: a bit that an upload turns is found", function()
    local source = ON_LINE .. [[
      local loader = shardrt.loader {
        source = shardrt.source.array {
          x = ndarray.arange(64 * 4, "int32"):reshape { 64, 4 }, y = ndarray.arange(64, "int32"),
        },
        sharding = { x = shardrt.NamedSharding(mesh, P()), y = shardrt.NamedSharding(mesh, P "d") }, batch_size = 16,
        epochs = 1,
      }
      for _ in loader do end
      local stats = loader:stats()
      if shardrt.process_index() == 0 then print(stats.steps_checked, stats.bytes_fingerprinted) end
    ]]
    for _, job in ipairs { { devices = 2, processes = 2 }, { devices = 4 } } do
      local found = 0
      for flip = 0, 8 do
        local result = run {
          source = source, devices = job.devices, processes = job.processes, standin = { GPUS = 2, FLIP = flip },
        }
        local named = result.output:find('step %d of the loader, field "x": the devices that hold %[0:16, 0:4%] must '
          .. "hold the same data, but differ: device")
        if flip == 0 then
          assert.equal(0, result.status, result.output)
          assert.equal(("4\t%d\n"):format(4 * job.devices * 16 * 4 * 4), result.stdout)
        elseif result.status ~= 0 then
          assert.truthy(named, result.output)
          found = found + 1
        end
      end
      -- One of each batch's two copies to a device is of x; batches may be uploaded side by side.
      assert.is_true(found >= 2 and found <= 6, found)
    end
  end)

  standin_it("are made again wherever the host's memory runs out", function()
    local folder = own_folder()
    local result = run {
      source = ON_LINE .. [[
        local C = require "shardrt.base.ffi"
        local data = shardrt.source.array { x = ndarray.arange(20, "int32"), y = ndarray.arange(20, "int64") }
        local o = {
          source = data, batch_size = 8, epochs = 1, remainder = "pad", num_workers = 1, prefetch = 2,
          sharding = { x = shardrt.NamedSharding(mesh, P "d"), y = shardrt.NamedSharding(mesh, P()) },
        }
        local n, failures = 0, 0
        repeat
          n = n + 1
          C.shardrt_alloc_fail_at(n)
          local held = {}
          local ok, problem = pcall(function()
            for batch in shardrt.loader(o) do held[#held + 1] = batch end
          end)
          local counted = tonumber(C.shardrt_alloc_fail_at(0))
          if not ok then
            failures = failures + 1
            assert(tostring(problem):find("out of memory", 1, true), problem)
          end
          for step, batch in ipairs(held) do
            local y, mask = shardrt.device_get(batch.y), shardrt.device_get(batch.mask)
            for i = 0, 7 do
              local at = (step - 1) * 8 + i
              assert(mask.data[i] == (at < 20) and tonumber(y.data[i]) == (at < 20 and at or 0), "another batch")
            end
          end
          if n % 20 == 0 then collectgarbage() end
        until ok and counted < n
        print(n, failures)
      ]],
      devices = 2, standin = { GPUS = 2, LOG = folder .. "/log" },
    }
    assert.equal(0, result.status, result.output)
    local n, failures = result.stdout:match "(%d+)\t(%d+)"
    assert.is_true(tonumber(n) > 60 and tonumber(failures) > 40, result.stdout)
    check_balance(calls_of(folder .. "/log"), nil, "after all")
  end)
end)

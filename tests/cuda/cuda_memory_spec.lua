-- long: 35 s
-- Where a GPU has no memory left, what a recipe does not need any more is given back, wherever that is found: on the
-- stand-in of tests/standin, with little memory, or with allocations that are refused.

local mpi = require "tests.support.mpi"

local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"
local seed = require "tests.support.seed"

-- Nobody tells the collector of memory on devices, and Lua's own steps are off: it runs where memory is missing.
local head = require "tests.support.on_line" .. [[
local np, outside = require "shardrt.numpy", require "shardrt.base.memory_pressure"
outside.made_on_devices = function() end
collectgarbage "stop"
local collections, collect = 0, collectgarbage
function collectgarbage(...)
  if select("#", ...) == 0 then collections = collections + 1 end
  return collect(...)
end
]]

-- A recipe on o.gpus GPUs (1) of 4 MiB, in o.processes (nil: alone), of which process 1 is told o.one, too.
local function run(source, o)
  local env = {
    SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = o.gpus or 1, STANDIN_SEED = seed % 1000, STANDIN_MEMORY = 2 ^ 22,
  }
  for name, value in pairs(o.env or {}) do env[name] = value end
  local result = mpi.run { source = head .. source, processes = o.processes, devices = 2, env = env, one = o.one,
    options = { "--platform", "cuda", "--timeout", 30 }, limit = 120 }
  assert.equal(0, result.status, result.output)
  return result
end

-- Recipes that make 512 KiB on devices again and again, of which one is needed at a time.
local WORDS = {
  { "device_put of a host array", "return shardrt.device_put(host, on 'x')" },
  { "device_put of one in every process", "return shardrt.device_put(half, on())" },
  { "device_put to a device", "return shardrt.device_put(host, shardrt.devices()[2])" },
  { "device_put from a device to another", "return shardrt.device_put(there, shardrt.devices()[2])" },
  { "device_put of what nobody placed", "return shardrt.device_put(np.add(host, 1), on 'x')" },
  { "reshard", "return shardrt.reshard(rows, on(nil, 'x'))" },
  { "a donating reshard", "return shardrt.reshard(np.add(rows, 0), on(nil, 'x'), { donate = true })" },
  { "with_sharding_constraint", "return shardrt.with_sharding_constraint(rows, on(nil, 'x'))" },
  { "make_array_from_process_local_data", "return shardrt.make_array_from_process_local_data(on 'x', host)" },
  { "make_array_from_callback", [[
    return shardrt.make_array_from_callback(host.shape, on "x", function(index)
      return shardrt.ndarray.full({ index[1][2] - index[1][1], 1024 }, 1, "float32")
    end)]] },
  { "an operation", "return np.add(rows, 0)" },
  { "random numbers", "return shardrt.random.normal(shardrt.random.key(1), { 128, 1024 }, on 'x')" },
  { "load", "return shardrt.load(file, on 'x').x" },
  { "load_npy", "return shardrt.load_npy(file .. '.npy', on 'x')" },
  { "a loader's batch", "return loader().x" },
  { "a loader's batch, moved", "return mover().x" },
}

describe("where a GPU is full of what nobody needs any more, it is given back by", function()
  local folder = mpi.folder()
  teardown(function() mpi.remove(folder) end)

  for _, word in ipairs(WORDS) do
    it(word[1], function()
      run(([[
        local host = shardrt.ndarray.full({ 128, 1024 }, 1, "float32") -- 512 KiB
        local half = shardrt.ndarray.full({ 64, 1024 }, 1, "float32") -- replicas share nothing
        local rows, there = shardrt.device_put(host, on "x"), shardrt.device_put(host, shardrt.devices()[1])
        local file = %q
        shardrt.save(file, { x = host })
        host:save(file .. ".npy")
        local function batches(more)
          local o = { source = shardrt.source.array { x = host }, batch_size = 128, sharding = on "x", prefetch = 1 }
          for name, value in pairs(more) do o[name] = value end
          return shardrt.loader(o)
        end
        local loader = batches {}
        local mover = batches { sharding = on(nil, "x"), load_sharding = on "x", pipeline = "reshard" }
        for _ = 1, 120 do -- which is compiled, as far as it may be
          local x = (function() %s end)()
          assert(x.dtype == "float32" and x.size >= 2 ^ 16)
        end
        assert(collections > 0)
      ]]):format(folder .. "/x.safetensors", word[2]), {})
    end)
  end
end)

-- Allocations that one process is refused twice, which is once more than waiting for the device helps against: while
-- the others have met and go on.
describe("where an allocation finds no memory between processes", function()
  local folder = mpi.folder()
  teardown(function() mpi.remove(folder) end)

  local SOURCE = [[
    local value = moves.value({ 16, 96 }, "float32", 1)
    local x = shardrt.device_put(value, on "x")
    local function next_layout(y, options, what)
      local z = shardrt.reshard(y, on(nil, "x"), options)
      moves.holds(z, value, what)
      return z
    end
    local data = shardrt.source.array { v = value }
    for i = 1, 3 do
      next_layout(x, { staging_bytes = 512 }, "moved")
      next_layout(shardrt.reshard(x, on("x", nil)), { donate = true }, "donated")
      local all = shardrt.process_allgather(x)
      assert(all.data[95] == value.data[95] and all.data[16 * 96 - 1] == value.data[16 * 96 - 1])
      local loader = shardrt.loader { source = data, batch_size = 8, epochs = 1, sharding = on(nil, "x"),
        load_sharding = on "x", pipeline = "reshard", prefetch = 1, num_workers = 1 }
      for batch in loader do assert(batch.v.size == 8 * 96) end
      shardrt.save(%q, { x = x })
      moves.holds(shardrt.load(%q, on(nil, "x")).x, value, "loaded")
    end
    print(me, collections)
  ]]
  local path = folder .. "/x.safetensors"

  for _, way in ipairs { "links", "host", "a GPU that both have" } do
    it("the others wait for it, by " .. way, function()
      local times = 0
      for first = 1, 7, 3 do
        local refused = {}
        for n = first, first + 280, 7 do
          for _, call in ipairs { "cudaMallocAsync", "cudaHostAlloc" } do
            refused[#refused + 1] = ("%s@%d=2,%s@%d=2"):format(call, n, call, n + 1)
          end
        end
        local result = run(SOURCE:format(path, path), {
          processes = 2, gpus = way == "a GPU that both have" and 1 or 4,
          one = { STANDIN_FAIL = table.concat(refused, ",") },
          env = { SHARDRT_LINKS = way == "host" and "off" or "on" },
        })
        times = times + tonumber(result.stdout:match "1\t(%d+)\n")
      end
      assert.is_true(times > 40, times)
    end)
  end
end)

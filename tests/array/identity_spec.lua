-- Every word that makes a sharded array makes one that the processes can tell from all others: whoever takes another
-- one in a call of all processes is found, and no number comes out.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

local head = [[
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local me = shardrt.process_index()
local line = shardrt.make_mesh({ shardrt.device_count() }, { "x" })
local cut, whole = shardrt.NamedSharding(line, P "x"), shardrt.NamedSharding(line, P())
local folder, n = arg[1], 8
local function host(k) return ndarray.full({ n }, k, "int32") end
-- Both processes must be refused, each with what is said of it.
local function refused(name, piece, f, ...)
  local ok, result = pcall(f, ...)
  if ok then error(name .. " went through in process " .. me) end
  if not result:find(piece, 1, true) then error(name .. ": " .. result) end
end
]]

local function run(source, options)
  local folder = files.folder()
  local result = mpi.run { source = head .. source, processes = 2, devices = 2, options = options, args = { folder } }
  files.remove(folder)
  assert.equal(0, result.status, result.output)
  return result
end

describe("arrays that processes take for one another", function()
  -- Every word, with the value k in every element: each array made below has a value of its own.
  local words = [[
    local words = {
      { "device_put", function(k) return shardrt.device_put(host(k), cut) end },
      { "device_put of a replica", function(k) return shardrt.device_put(host(k), whole) end },
      { "device_put of a tree", function(k) return shardrt.device_put({ x = host(k) }, cut).x end },
      { "device_put to a device", function(k) return shardrt.device_put(host(k), 0) end },
      { "device_put to another process's device", function(k)
        return shardrt.device_put(host(k), shardrt.SingleDeviceSharding(3))
      end },
      { "make_array_from_process_local_data", function(k)
        return shardrt.make_array_from_process_local_data(cut, ndarray.full({ n / 2 }, k, "int32"))
      end },
      { "make_array_from_callback", function(k)
        return shardrt.make_array_from_callback({ n }, cut, function() return ndarray.full({ n / 4 }, k, "int32") end)
      end },
      { "make_array_from_single_device_arrays", function(k)
        local parts = {}
        for i, device in ipairs(shardrt.local_devices()) do
          parts[i] = shardrt.device_put(ndarray.full({ n / 4 }, k, "int32"), device)
        end
        return shardrt.make_array_from_single_device_arrays({ n }, cut, parts)
      end },
      { "load_npy", function(k)
        local path = folder .. "/" .. k .. ".npy"
        if me == 0 then host(k):save(path) end
        shardrt.sync_global_devices "saved"
        return (shardrt.load_npy(path, cut))
      end },
      { "load", function(k)
        local path = folder .. "/" .. k .. ".safetensors"
        shardrt.save(path, { x = host(k) })
        return shardrt.load(path, { x = cut }).x
      end },
      { "load of all", function(k)
        local path = folder .. "/" .. k .. ".safetensors"
        shardrt.save(path, { x = host(k) })
        return shardrt.load(path, cut).x
      end },
      { "a batch", function(k)
        return shardrt.loader { source = shardrt.source.array { x = host(k) }, batch_size = n, sharding = cut }().x
      end },
      { "reshard", function(k) return shardrt.reshard(shardrt.device_put(host(k), whole), cut) end },
      { "reshard from one device", function(k) return shardrt.reshard(shardrt.device_put(host(k), 0), cut) end },
      { "reshard to one device", function(k) return shardrt.reshard(shardrt.device_put(host(k), cut), 0) end },
      { "reshard from a device to its neighbour", function(k)
        return shardrt.reshard(shardrt.device_put(host(k), 0), 1)
      end },
      { "device_put of an array", function(k) return shardrt.device_put(shardrt.device_put(host(k), whole), cut) end },
      { "with_sharding_constraint", function(k)
        return shardrt.with_sharding_constraint(shardrt.device_put(host(k), whole), cut)
      end },
    }
    local function saved(x) return shardrt.save(folder .. "/mixed", { w = x }) end
  ]]

  for _, check in ipairs { "off", "sample", "all" } do
    it("are found, by whatever word they were made, with --check " .. check, function()
      local result = run(words .. [[
        local arrays = {}
        for i, word in ipairs(words) do
          local a, b = word[2](2 * i), word[2](2 * i + 1)
          local mine = me == 0 and a or b
          refused(word[1] .. ", reshard", "do different things", shardrt.reshard, mine, whole)
          refused(word[1] .. ", process_allgather", "do different things", shardrt.process_allgather, mine)
          refused(word[1] .. ", save", 'process 1 gives another array for "w" than process 0', saved, mine)
          assert(shardrt.process_allgather(a).data[0] == 2 * i) -- and the right one is still the right one
          assert(shardrt.process_allgather(shardrt.reshard(b, whole)).data[n - 1] == 2 * i + 1)
          arrays[#arrays + 1], arrays[#arrays + 2] = a, b
        end
        local found = 0
        for i = 1, #arrays do
          for j = i + 1, #arrays do
            refused(i .. " and " .. j, "do different things", shardrt.process_allgather, arrays[me == 0 and i or j])
            found = found + 1
          end
        end
        saved(arrays[1])
        assert(shardrt.load(folder .. "/mixed").w.data[0] == 2)
        if me == 0 then print(found) end
      ]], { "--check", check, "--timeout", "20" })
      assert.equal("630\n", result.stdout)
    end)
  end
end)

describe("what is put on a single device", function()
  it("is the same array where the values are equal, in however many calls", function()
    run [[
      -- Process 1 has put more than process 0, on its own device and on that of process 0.
      if me == 1 then shardrt.device_put(host(9), 2) shardrt.device_put(host(5), 0) end
      local x = shardrt.device_put(host(5), 0)
      assert(shardrt.process_allgather(x).data[0] == 5)
      local moved = shardrt.reshard(shardrt.reshard(x, 1), whole)
      assert(shardrt.device_get(moved).data[n - 1] == 5)
      -- A value of no elements, of a number, of another dtype with the same bytes.
      assert(shardrt.process_allgather(shardrt.device_put(ndarray.zeros({ 0, 3 }), 0)).size == 0)
      local zero = ndarray.zeros({ n }, me == 0 and "int32" or "float32")
      refused("another dtype", "do different things", shardrt.process_allgather, shardrt.device_put(zero, 0))
      refused("another value", "array of value", shardrt.process_allgather, shardrt.device_put(host(me), 0))
    ]]
  end)

  it("may differ from process to process on their own devices, and be joined", function()
    run [[
      local parts = {}
      for i, device in ipairs(shardrt.local_devices()) do
        parts[i] = shardrt.device_put(ndarray.full({ 2 }, 10 * me + i, "int32"), device)
      end
      local x = shardrt.make_array_from_single_device_arrays({ n }, cut, parts)
      assert(table.concat(shardrt.process_allgather(x):to_table(), " ") == "1 1 2 2 11 11 12 12")
    ]]
  end)
end)

describe("gradients of what nobody placed, or one device has", function()
  it("are the same arrays, whatever gradients a process took by itself before", function()
    local result = run [[
      local np = require "shardrt.numpy"
      local slope = shardrt.grad(function(p) return np.sum(np.sin(p)) end)
      local function own(list) return np.array(list) end
      local function on_first(list) return shardrt.device_put(np.array(list), 0) end
      for _, made in ipairs { own, on_first } do
        if me == 0 then slope(made { 7, 8, 9 }) end
        local g = shardrt.device_put(slope(made { 1, 2, 3 }), whole)
        if me == 1 then print(("%.4f"):format(shardrt.device_get(g).data[2])) end
        refused("another gradient", "differ", shardrt.device_put, slope(made { me, 2, 3 }), whole)
      end
    ]]
    assert.equal("-0.9900\n-0.9900\n", result.stdout)
  end)
end)

-- make_mesh on GPUs: devices that are linked best stand side by side. The order beside brute force, and what recipes
-- get of it on machines that the stand-in plays.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local mpi = require "tests.support.mpi"

ffi.cdef [[
  int link_order_find(int32_t count, const int64_t *worth, int32_t *order);
  int64_t device_order_worth(int32_t link);
]]

local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"
local HOST, PEER, NVLINK, SAME = 1, 2, 3, 4
local worths = { [0] = 0, 1, 8, 64, 512 }

-- What an order is worth, by the mesh's axes: each two devices count as often as there are lengths of the fastest axis
-- with which they stand in one line, twice, and once where they stand side by side.
local function value(order, links)
  local sum = 0
  for i = 0, #order - 1 do
    for k = i + 1, #order - 1 do
      local times = k == i + 1 and 1 or 0
      for length = 2, #order - 1 do
        if #order % length == 0 and math.floor(i / length) == math.floor(k / length) then times = times + 2 end
      end
      sum = sum + times * worths[links[order[i + 1]][order[k + 1]]]
    end
  end
  return sum
end

local function best_value(count, links)
  local order, best = {}, -1
  for i = 1, count do order[i] = i - 1 end
  local function place(i)
    if i > count then
      best = math.max(best, value(order, links))
      return
    end
    for k = i, count do
      order[i], order[k] = order[k], order[i]
      place(i + 1)
      order[i], order[k] = order[k], order[i]
    end
  end
  place(1)
  return best
end

local function shuffled(count)
  local list = {}
  for i = 0, count - 1 do list[i] = i end
  for i = count - 1, 1, -1 do
    local k = math.random(0, i)
    list[i], list[k] = list[k], list[i]
  end
  return list
end

-- links[i][k], of numbers that are mixed up; `class` says it of the places that they had before.
local function machine(count, class)
  local links, at = {}, shuffled(count)
  for i = 0, count - 1 do links[i] = {} end
  for i = 0, count - 1 do
    for k = 0, count - 1 do links[at[i]][at[k]] = i == k and SAME or class(math.min(i, k), math.max(i, k)) end
  end
  return links
end

local machines = {
  ["pairs with NVLink"] = function(count)
    return machine(count, function(i, k) return math.floor(i / 2) == math.floor(k / 2) and NVLINK or PEER end)
  end,
  ["two sockets of pairs"] = function(count)
    return machine(count, function(i, k)
      if math.floor(i / 2) == math.floor(k / 2) then return NVLINK end
      return math.floor(2 * i / count) == math.floor(2 * k / count) and PEER or HOST
    end)
  end,
  ["fours of NVLink, and a cube of them"] = function(count)
    return machine(count, function(i, k)
      return (math.floor(i / 4) == math.floor(k / 4) or i % 4 == k % 4) and NVLINK or HOST
    end)
  end,
  ["a ring"] = function(count)
    return machine(count, function(i, k) return (k - i == 1 or k - i == count - 1) and NVLINK or PEER end)
  end,
  ["GPUs that are several devices"] = function(count)
    return machine(count, function(i, k) return math.floor(i / 2) == math.floor(k / 2) and SAME or PEER end)
  end,
  ["all alike"] = function(count)
    return machine(count, function() return NVLINK end)
  end,
}

local function worth_of(count, links)
  local worth = ffi.new("int64_t[?]", count * count)
  for i = 0, count - 1 do
    for k = 0, count - 1 do worth[i * count + k] = C.device_order_worth(links[i][k]) end
  end
  return worth
end

local function order_of(count, links)
  local order, list, seen = ffi.new("int32_t[?]", count), {}, {}
  assert.equal(0, C.link_order_find(count, worth_of(count, links), order))
  for i = 0, count - 1 do
    list[i + 1] = order[i]
    assert.is_true(order[i] >= 0 and order[i] < count and not seen[order[i]])
    seen[order[i]] = true
  end
  return list
end

local function counting(count)
  local list = {}
  for i = 1, count do list[i] = i - 1 end
  return list
end

describe("the order of devices", function()
  it("values a class of links above several of the class below", function()
    for class = 0, 4 do assert.equal(worths[class], tonumber(C.device_order_worth(class))) end
  end)

  for name, make in pairs(machines) do
    it("is the best that there is: " .. name, function()
      for seed = 1, 4 do
        math.randomseed(seed)
        for _, count in ipairs { 2, 4, 6, 7 } do
          local links = make(count)
          assert.equal(best_value(count, links), value(order_of(count, links), links), count .. ", seed " .. seed)
        end
      end
    end)
  end

  it("is nearly that where links are without a plan", function()
    for seed = 1, 12 do
      math.randomseed(seed)
      local count = 4 + seed % 3
      local classes = {}
      for i = 0, count * count - 1 do classes[i] = math.random(0, NVLINK) end
      local links = machine(count, function(i, k) return classes[i * count + k] end)
      local found, best = value(order_of(count, links), links), best_value(count, links)
      assert.is_true(found >= 0.9 * best, ("seed %d: %d of %d"):format(seed, found, best))
    end
  end)

  it("is the order of the numbers where nothing is better, also of many", function()
    for _, count in ipairs { 1, 2, 3, 8, 48 } do
      local links = machine(count, function() return PEER end)
      assert.same(counting(count), order_of(count, links))
    end
    local links = {}
    for i = 0, 7 do
      links[i] = {}
      for k = 0, 7 do links[i][k] = i == k and SAME or math.floor(i / 4) == math.floor(k / 4) and NVLINK or HOST end
    end
    assert.same(counting(8), order_of(8, links))
  end)

  it("puts 32 GPUs of four together again", function()
    math.randomseed(7)
    local links = machine(32, function(i, k) return math.floor(i / 4) == math.floor(k / 4) and NVLINK or PEER end)
    local order = order_of(32, links)
    for i = 1, 32, 4 do
      for k = i + 1, i + 3 do assert.equal(NVLINK, links[order[i]][order[k]]) end
    end
  end)

  it("says that memory is missing", function()
    local links = machine(4, function() return PEER end)
    local worth, order = worth_of(4, links), ffi.new "int32_t[4]"
    local n = 0
    repeat
      n = n + 1
      C.shardrt_alloc_fail_at(n)
      local code = C.link_order_find(4, worth, order)
      C.shardrt_alloc_fail_at(0)
      assert.truthy(code == 0 or code == -1 or ffi.string(C.shardrt_error_name(code)) == "ENOMEM")
    until code == 0
    assert.equal(3, n)
  end)
end)

describe("make_mesh on GPUs", function()
  if not io.open(plugin) then
    pending("needs the stand-in of CUDA: make standin")
    return
  end

  -- The ids of make_mesh({n}) with all devices, of make_mesh({2}), and of a Mesh that says 1, 0.
  local source = [[
    local function ids(mesh)
      local list = {}
      for i, d in ipairs(mesh.devices) do list[i] = d.id end
      return table.concat(list, " ")
    end
    local n = shardrt.device_count()
    local all = ids(shardrt.make_mesh({ n }, { "x" }))
    assert(ids(shardrt.make_mesh({ 1, n }, { "x", "y" })) == all)
    if n >= 2 then
      assert(ids(shardrt.make_mesh({ 2 }, { "x" })) == all:match "^%d+ %d+")
      assert(ids(shardrt.Mesh({ 2 }, { "x" }, { 1, 0 })) == "1 0")
    end
    local well, message = pcall(shardrt.make_mesh, { n + 1 }, { "x" })
    assert(not well and message:find "devices", message)
    local list = {}
    for i, d in ipairs(shardrt.devices()) do list[i] = d.id end
    for i = 1, n do assert(list[i] == i - 1) end
    if shardrt.process_index() == 0 then print(all) end
    local file = io.open((...) .. "/" .. shardrt.process_index(), "w")
    file:write(all)
    file:close()
  ]]

  local function ids(o)
    local folder = mpi.folder()
    local env = {
      SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = o.gpus, STANDIN_LINKS = o.links, STANDIN_MEMORY = 2 ^ 24,
    }
    for name, text in pairs(o.env or {}) do env[name] = text end
    local result = mpi.run {
      processes = o.processes, devices = o.devices, options = { "--platform", o.platform or "cuda" }, env = env,
      source = "local shardrt = require 'shardrt'\n" .. source, args = { folder },
    }
    assert.equal(0, result.status, result.output)
    local said = {}
    for p = 0, (o.processes or 1) - 1 do
      local file = assert(io.open(folder .. "/" .. p))
      said[p + 1] = file:read "*a"
      file:close()
    end
    mpi.remove(folder)
    for p = 2, #said do assert.equal(said[1], said[p]) end
    return said[1]
  end

  it("puts GPUs with NVLink side by side", function()
    assert.equal("0 2 1 3", ids { gpus = 4, links = "0-2:nvlink,1-3:nvlink,0-1:pcie,2-3:pcie,0-3:pcie,1-2:pcie" })
    assert.equal("0 3 1 2", ids { gpus = 4, links = "0-3:nvlink,1-2:nvlink" })
    assert.equal("0 1 2 3", ids { gpus = 4, links = "nvlink" })
    assert.equal("0 1 2 3", ids { gpus = 4, links = "none" })
  end)

  it("keeps devices that share a GPU together", function()
    -- Devices 0 and 1 are GPU 0, and so on.
    assert.equal("0 1 4 5 2 3 6 7", ids { gpus = 4, devices = 8, links = "0-2:nvlink,1-3:nvlink" })
    assert.equal("0 1 2 3", ids { gpus = 1, devices = 4 })
  end)

  it("puts processes side by side whose GPUs are linked best, and leaves each one's devices together", function()
    assert.equal("0 2 1 3", ids { processes = 4, gpus = 4, devices = 1, links = "0-2:nvlink,1-3:nvlink" })
    assert.equal("0 1 2 3", ids { processes = 4, gpus = 4, devices = 1, links = "pcie" })
    -- Of a process's own: GPUs 0, 1, 2 and 3, 4, 5.
    assert.equal("0 2 1 3 4 5", ids { processes = 2, gpus = 6, links = "0-2:nvlink,3-4:nvlink" })
    assert.equal("0 1 2 3", ids { processes = 2, gpus = 4, links = "0-2:nvlink,1-3:nvlink" })
  end)

  it("leaves the order where a process does not see the others' GPUs", function()
    local folder = mpi.folder()
    local file = assert(io.open(folder .. "/recipe.lua", "w"))
    file:write [[
      local shardrt, ids = require "shardrt", {}
      for i, d in ipairs(shardrt.make_mesh({ 3 }, { "x" }).devices) do ids[i] = d.id end
      if shardrt.process_index() == 0 then print(table.concat(ids, " ")) end
    ]]
    file:close()
    local result = mpi.shell(([[
      %s mpirun -n 3 \
      -x SHARDRT_CUDA_PLUGIN=%s -x STANDIN_GPUS=3 -x STANDIN_LINKS=0-2:nvlink \
      sh -c 'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec %s --platform cuda --devices 1 "$0"' %s]]):format(
      mpi.environment, plugin, mpi.program(), folder .. "/recipe.lua"))
    mpi.remove(folder)
    assert.equal(0, result.status, result.output)
    assert.equal("0 1 2\n", result.stdout)
  end)

  it("is as it was on the host", function()
    assert.equal("0 1 2 3", ids { processes = 2, devices = 2, platform = "host" })
  end)

  it("says what of it fails, and where", function()
    local said = 0
    for n = 1, 10 do -- others ask for the same before it
      local result = mpi.run {
        options = { "--platform", "cuda" }, source = "",
        env = {
          SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = 2,
          STANDIN_FAIL = ("cudaGetDeviceProperties@%d=46"):format(n),
        },
      }
      if result.output:find("links between GPUs are looked at: cudaGetDeviceProperties failed", 1, true) then
        assert.not_equal(0, result.status)
        said = said + 1
      end
    end
    assert.is_true(said > 0)
  end)
end)

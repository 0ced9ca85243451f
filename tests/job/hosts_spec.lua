-- long: 27 s
-- Jobs over several hosts, made on this machine: contents, what goes over the links, links that fail, processes that
-- die.

local files = require "tests.support.files"
local hosts = require "tests.support.hosts"

local head = [[
local ffi = require "ffi"
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local me = shardrt.process_index()
local folder = os.getenv "HOSTS_FOLDER"
ffi.cdef "int getpid(void); int getppid(void); int kill(int pid, int signal);"
local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end
local function ready() io.open(folder .. "/ready", "w"):close() end
local mesh = shardrt.make_mesh({ 8 }, { "a" })
local rows, columns = shardrt.NamedSharding(mesh, P("a")), shardrt.NamedSharding(mesh, P(nil, "a"))
]]

local _, lines_before = head:gsub("\n", "")

local function line(n) return "recipe.lua:" .. lines_before + n end

local contains = require("tests.support.expect").contains

-- Nothing less than planned, and little more: headers, acknowledgements, and what meets say.
local function close(counted, planned, label)
  counted, planned = tonumber(counted), tonumber(planned)
  assert(counted >= planned and counted <= planned * 1.03 + 200000,
    ("%s: %d bytes by the interface, %d planned"):format(label, counted, planned))
end

describe("a job over several hosts", function()
  local missing = hosts.missing()
  if missing then
    it("can be tried", function() pending(missing) end)
    return
  end

  local function run(source, o)
    o = o or {}
    o.source, o.hosts, o.processes, o.devices = head .. source, o.hosts or 2, o.processes or 2, 2
    local result = hosts.run(o)
    assert.equal("\n", result.left, result.output)
    return result
  end

  it("has processes on each, and the right contents on every device", function()
    local result = run [[
      local moves = require "tests.support.moves"
      assert(moves.random(7, 25) == 25)
      local count, batch = 40, 16
      local x = ndarray.arange(count * 24, "int32"):reshape { count, 4, 6 }
      local both = shardrt.make_mesh({ 4, 2 }, { "x", "y" })
      for _, spec in ipairs { P({ "x", "y" }), P("y", "x"), P("x", nil, "y"), P(nil, "x"), P() } do
        for _, pipeline in ipairs { "per_process", "global", "per_device" } do
          local step = 0
          for b in shardrt.loader {
            source = shardrt.source.array { x = x }, batch_size = batch, epochs = 1, pipeline = pipeline,
            sharding = shardrt.NamedSharding(both, spec),
          } do
            for _, shard in ipairs(b.x.addressable_shards) do
              local at, r, s, t = 0, unpack(shard.index)
              for i = r[1], r[2] - 1 do
                for j = s[1], s[2] - 1 do
                  for k = t[1], t[2] - 1 do
                    assert(shard.data.data[at] == ((step * batch + i) * 4 + j) * 6 + k)
                    at = at + 1
                  end
                end
              end
              assert(at > 0)
            end
            step = step + 1
          end
          assert(step == 2)
        end
      end
      io.write(me, " on ", read "/proc/sys/kernel/hostname")
    ]]
    assert.equal(0, result.status, result.output)
    for p = 0, 3 do contains(result.stdout, ("%d on host%d\n"):format(p, math.floor(p / 2))) end
  end)

  -- What each host's interface counts while an array is laid out anew a few times, beside what the plan says; for two
  -- hosts or four, so with and without messages that stay on a host. The line of each host: its name, what it received
  -- and sent by its interface, and by the plan.
  local counting = [[
    local here = tonumber(arg[1]) -- processes on each host
    local function counters()
      local path = "/sys/class/net/eth0/statistics/"
      return tonumber(read(path .. "rx_bytes")), tonumber(read(path .. "tx_bytes"))
    end
    local function host_of(process) return math.floor(process / here) end
    local function elements(index)
      local count = 1
      for _, range in ipairs(index) do count = count * (range[2] - range[1]) end
      return count
    end
    local layouts = {
      rows = rows, columns = columns, whole = shardrt.NamedSharding(mesh, P()),
      some = shardrt.NamedSharding(shardrt.Mesh({ 2, 3 }, { "b", "c" }, { 5, 0, 7, 2, 1, 4 }), P("c", "b")),
      one = shardrt.SingleDeviceSharding(shardrt.devices()[7]),
    }
    local shape, times = { 1536, 2048 }, 3
    for _, way in ipairs { "rows columns", "columns whole", "some rows", "one columns", "rows one" } do
      local from, to = way:match "(%w+) (%w+)"
      from, to = layouts[from], layouts[to]
      local plan = shardrt.reshard_plan(shape, "float32", from, to)
      local received, sent = 0, 0
      for process = host_of(me) * here, host_of(me) * here + here - 1 do
        for _, move in ipairs(plan:moves(process)) do
          local bytes = host_of(move.process) ~= host_of(me) and elements(move.index) * 4 or 0
          if move.kind == "receive" then received = received + bytes end
          if move.kind == "send" then sent = sent + bytes end
        end
      end
      if here == 1 then assert(received == plan:bytes_received() and sent == plan:bytes_sent()) end
      local x = shardrt.device_put(ndarray.zeros(shape, "float32"), from)
      shardrt.process_allgather(shardrt.device_put(0, shardrt.devices()[1])) -- nobody moves anything any more
      local received_before, sent_before = counters()
      shardrt.process_allgather(shardrt.device_put(0, shardrt.devices()[1])) -- everybody has counted
      for _ = 1, times do shardrt.reshard(x, to) end
      shardrt.process_allgather(shardrt.device_put(0, shardrt.devices()[1]))
      local received_after, sent_after = counters()
      if me % here == 0 then
        print(("%s, host %d: %.0f of %.0f received, %.0f of %.0f sent"):format(way, host_of(me),
          received_after - received_before, times * received, sent_after - sent_before, times * sent))
      end
      shardrt.process_allgather(shardrt.device_put(0, shardrt.devices()[1]))
    end
  ]]

  for _, o in ipairs { { hosts = 4, processes = 1 }, { hosts = 2, processes = 2 } } do
    it(("of %d processes sends between hosts what its plans say"):format(o.processes), function()
      o.args = { o.processes }
      local result = run(counting, o)
      assert.equal(0, result.status, result.output)
      local lines = 0
      for way, received, received_planned, sent, sent_planned in
        result.stdout:gmatch "(%w+ %w+, host %d): (%d+) of (%d+) received, (%d+) of (%d+) sent\n"
      do
        close(received, received_planned, way .. ", received")
        close(sent, sent_planned, way .. ", sent")
        lines = lines + 1
      end
      assert.equal(5 * o.hosts, lines, result.stdout)
    end)
  end

  -- Lays an array out anew without end, when it is known that all are at it.
  local endless = [[
    local x = shardrt.device_put(ndarray.zeros({ 2048, 2048 }, "float32"), rows)
    x = shardrt.reshard(x, columns)
    if me == 0 then ready() end
    while true do
      x = shardrt.reshard(x, rows)
      x = shardrt.reshard(x, columns)
    end
  ]]

  it("whose link is cut ends with a report of who is missing, and leaves nothing behind", function()
    local result = run(endless, { options = { "--timeout", "4" }, down = 1, after = 0.3, limit = 60 })
    assert.not_equal(0, result.status)
    assert.not_equal(124, result.status, result.output)
    assert.truthy(result.seconds > 2, result.seconds) -- nobody was given up before the time was up
    assert.truthy(result.stderr:match "process[es]* [23, ]+ did not ", result.output)
    -- Where everybody is: one line for those who are at one place.
    for who, doing in pairs { ["[01, ]+"] = "waiting", ["[23, ]+"] = "last seen" } do
      local count = 0
      for number in result.stderr:gmatch("\n  process[es]* " .. who .. ": " .. doing .. " at [^\n]*recipe.lua:(%d+)") do
        assert.truthy(line(5) == "recipe.lua:" .. number or line(6) == "recipe.lua:" .. number, result.output)
        count = count + 1
      end
      assert.is_true(count > 0, result.output)
    end
  end)

  it("of which one process is killed ends at once", function()
    local result = run([[
      if me == 3 then
        ready()
        ffi.C.kill(ffi.C.getpid(), 9)
      end
    ]] .. endless:gsub("if me == 0.-end\n", ""), { limit = 60 })
    assert.not_equal(0, result.status)
    assert.not_equal(124, result.status, result.output)
    -- So says mpirun; or OpenMPI 5 in a process that finds its connection closed before mpirun ends it.
    local named = result.stderr:find("process rank 3", 1, true) or result.stderr:find "Peer host: +host1"
    assert.truthy(named, result.output)
    assert.truthy(result.seconds < 30, result.seconds) -- it ended long before any wait would have
  end)

  it("of which one host's daemon is killed ends", function()
    local result = run([[
      if me == 3 then
        ready()
        ffi.C.kill(ffi.C.getppid(), 9)
      end
    ]] .. endless:gsub("if me == 0.-end\n", ""), { limit = 60 })
    -- OpenMPI 5.0's mpirun says what it lost, and ends with status 0 all the same.
    assert.truthy(result.status ~= 0 or result.stderr:find("PRTE has lost communication", 1, true), result.output)
    assert.not_equal(124, result.status, result.output)
    contains(result.stderr, "host1")
  end)

  it("names a file that is not the same on every host", function()
    local disks = {}
    for h = 0, 1 do
      disks[h] = {
        ["same.npy"] = files.npy { dict = files.dict("|u1", { 8, 16 }), payload = files.bytes(128) },
        ["other.npy"] = files.npy {
          dict = files.dict("|u1", { 8, 16 }), payload = files.bytes(127) .. string.char(h),
        },
      }
    end
    for _, read in ipairs {
      "local function use(path) shardrt.load_npy(path, rows) end\n",
      "local function use(path) shardrt.loader { source = shardrt.source.npy { x = path }, batch_size = 8 }() end\n",
    } do
      local result = run(read .. [[
        use(folder .. "/disk/same.npy")
        if me == 0 then print "the same" end
        use(folder .. "/disk/other.npy")
      ]], { disks = disks })
      assert.not_equal(0, result.status)
      contains(result.stdout, "the same\n")
      contains(result.stderr, "/disk/other.npy must be the same in every process")
      contains(result.stderr, "processes 2, 3")
    end
  end)
end)

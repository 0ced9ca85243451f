-- long: 16 s
-- Links between the GPUs of several processes (runtime/comm/transport/nccl.c), against the stand-in of CUDA and NCCL:
-- what is sent is what an oracle says, arrives where it should, and whatever fails or hangs is said and ends.

local mpi = require "tests.support.mpi"

local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

local function read(path)
  local file = io.open(path, "rb")
  if not file then return "" end
  local text = file:read "*a"
  file:close()
  return text
end

-- Runs a recipe in several processes that tell each other what they have to through files: o.processes is a list of
-- {gpus = "0,1", devices = 2, env = {…}}, o.files a table of files in their folder, which is `folder` to the recipe.
-- Gives back, for each, {status=, output=, log= (NCCL's calls)}.
local function run(o)
  local folder = mpi.folder()
  for name, text in pairs(o.files or {}) do write(folder .. "/" .. name, text) end
  write(folder .. "/recipe.lua", ([[
    local folder = %q
    local links = require "tests.support.cuda.links"
    local a = require("tests.support.cuda.accelerator").get()
  ]]):format(folder):gsub("\n", " ") .. o.source)
  local lines = {}
  for p, process in ipairs(o.processes) do
    local env = {
      SHARDRT_CUDA_PLUGIN = plugin, CUDA_VISIBLE_DEVICES = process.gpus, STANDIN_GPUS = 16,
      STANDIN_MEMORY = 64 * 2 ^ 20, STANDIN_HOST = "here",
      SHARDRT_LINKS_AS = ("%s %d %d"):format(folder, p - 1, #o.processes),
      STANDIN_NCCL_LOG = ("%s/log-%d"):format(folder, p),
    }
    for name, value in pairs(o.env or {}) do env[name] = value end
    for name, value in pairs(process.env or {}) do env[name] = value end
    local words = { "env" }
    for name, value in pairs(env) do words[#words + 1] = ("'%s=%s'"):format(name, value) end
    lines[p] = ("(%s %s --platform cuda --devices %d %s/recipe.lua >%s/out-%d 2>&1; echo $? >%s/status-%d) &"):format(
      table.concat(words, " "), mpi.program(), process.devices or 1, folder, folder, p, folder, p)
  end
  local all = mpi.shell(table.concat(lines, " ") .. " wait", o.limit or 60)
  local results = { status = all.status }
  for p in ipairs(o.processes) do
    results[p] = {
      status = tonumber(read(("%s/status-%d"):format(folder, p))), output = read(("%s/out-%d"):format(folder, p)),
      log = read(("%s/log-%d"):format(folder, p)),
    }
  end
  mpi.remove(folder)
  return results
end

local function all_well(results)
  assert.equal(0, results.status)
  for p = 1, #results do
    assert.equal(0, results[p].status, ("process %d: %s%s"):format(p - 1, results[p].output, results[p].log))
  end
end

-- One process with two GPUs, which are linked as if they were of two.
local function alone(source, env, limit)
  return run { processes = { { gpus = "0,1", devices = 2 } }, source = source, env = env, limit = limit }[1]
end

local pair = [[
  local text = ("what is sent"):rep(500)
  local function send_one()
    local x, y = links.memory(0, text), links.memory(1, #text)
    links.exchange {
      { device = 0, rank = 1, outgoing = true, data = x, bytes = #text },
      { device = 1, rank = 0, outgoing = false, data = y, bytes = #text },
    }
    links.settle()
    return y
  end
]]

describe("links between GPUs", function()
  if not io.open(plugin) then
    pending("need the stand-in of CUDA: make standin")
    return
  end

  -- What a route is made of: a job's devices on GPUs, and rounds of messages {from process, device, to process, device,
  -- bytes} between GPUs of different processes.
  local function random_job(random)
    local job = { processes = {}, rounds = {} }
    local gpu = 0
    for p = 1, random(2, 4) do
      local gpus, names = random(1, 3), {}
      for g = 1, gpus do names[g], gpu = gpu, gpu + 1 end
      job.processes[p] = { gpus = table.concat(names, ","), count = gpus, devices = gpus + random(0, 2) }
    end
    for r = 1, 3 do
      job.rounds[r] = {}
      for m = 1, random(0, 14) do
        local from = random(1, #job.processes)
        local to = (from + random(1, #job.processes - 1) - 1) % #job.processes + 1
        job.rounds[r][m] = {
          from - 1, random(0, job.processes[from].devices - 1), to - 1, random(0, job.processes[to].devices - 1),
          ({ 0, 1, random(2, 300), random(2, 300), random(1000, 400000) })[random(1, 5)],
        }
      end
    end
    return job
  end

  -- By what the platform says of devices and GPUs: the first ranks are process 0's GPUs.
  local function rank_of(job, process, device)
    local before = 0
    for p = 1, process do before = before + job.processes[p].count end
    local its = job.processes[process + 1]
    return before + math.floor(device * its.count / its.devices)
  end

  -- What a process is to have called: in each round one group of each of its GPUs that has messages, in their order.
  local function expected(job, process)
    local lines, number = {}, 0
    for _, round in ipairs(job.rounds) do
      local order, of = {}, {}
      for _, m in ipairs(round) do
        local from, to, bytes = rank_of(job, m[1], m[2]), rank_of(job, m[3], m[4]), m[5]
        local own = m[1] == process and from or m[3] == process and to
        if own and bytes > 0 then
          if not of[own] then
            of[own] = {}
            order[#order + 1] = own
          end
          table.insert(of[own], m[1] == process and { "send", own, to, bytes } or { "recv", own, from, bytes })
        end
      end
      for _, own in ipairs(order) do
        number = number + 1
        lines[#lines + 1] = ("group %d %d"):format(number, own)
        for _, l in ipairs(of[own]) do
          lines[#lines + 1] = ("%s %d %d %d %d 1"):format(l[1], number, l[2], l[3], l[4])
        end
      end
    end
    return lines
  end

  local function literal(rounds)
    local parts = {}
    for _, round in ipairs(rounds) do
      local list = {}
      for _, m in ipairs(round) do list[#list + 1] = "{" .. table.concat(m, ",") .. "}" end
      parts[#parts + 1] = "{" .. table.concat(list, ",") .. "}"
    end
    return "return {" .. table.concat(parts, ",") .. "}"
  end

  local route = [==[
    local rounds = dofile(folder .. "/rounds.lua")
    local devices = tonumber((links.hear("devices-" .. links.index)))
    local ranks = links.join(devices)
    assert(links.settle() > 1, "joining took no time")
    local function text_of(m, number)
      return (("%d of %d,"):format(number, m[5])):rep(math.ceil(m[5] / 5)):sub(1, m[5])
    end
    local messages
    local function add(device, peer, peers_device, outgoing, data, bytes)
      local rank = ranks[peer][peers_device]
      messages[#messages + 1] = { device = device, rank = rank, outgoing = outgoing, data = data, bytes = bytes }
    end
    local garbage = ("garbage!"):rep(50001)
    local shuffled = 0
    for r, round in ipairs(rounds) do
      local received, sent = {}, {}
      messages = {}
      for number, m in ipairs(round) do
        local text = text_of(m, number + 100 * r)
        if m[1] == links.index then
          local data = links.memory(m[2], text)
          sent[#sent + 1] = { m[2], data, #text }
          add(m[2], m[3], m[4], true, data, #text)
        elseif m[3] == links.index then
          -- What is on MAIN before comes before.
          local data = links.memory(m[4], garbage:sub(1, #text))
          received[#received + 1] = { m[4], data, text }
          add(m[4], m[1], m[2], false, data, #text)
        end
      end
      links.exchange(messages)
      local asked = links.settle()
      -- What is put there afterwards comes after.
      for _, s in ipairs(sent) do links.check(a.copies.upload(s[1], 0, s[2], garbage, s[3])) end
      for _, x in ipairs(received) do
        assert(links.read(x[1], x[2], #x[3]) == x[3], "round " .. r .. ": what came is not what was sent")
      end
    end
    links.meet()
    a.links.close()
  ]==]

  for number = 1, 6 do
    it("carry messages in groups that an oracle says, and to where they are meant, " .. number, function()
      local seed = require "tests.support.seed" + number
      math.randomseed(seed)
      local job = random_job(math.random)
      local files = { ["rounds.lua"] = literal(job.rounds) }
      for p, process in ipairs(job.processes) do files["devices-" .. p - 1] = tostring(process.devices) end
      local results = run { processes = job.processes, source = route, files = files, env = { STANDIN_SEED = seed } }
      all_well(results)
      local sends, receives = {}, {} -- bytes, by "from to", in their order
      for p = 1, #job.processes do
        local lines = {}
        for line in results[p].log:gmatch "[^\n]+" do
          local call, _, rank, peer, bytes = line:match "^(%a+) (%d+) (%d+) (%d+) (%d+)"
          if line:match "^group" or call == "send" or call == "recv" then lines[#lines + 1] = line end
          if call == "send" or call == "recv" then
            local key = call == "send" and rank .. " " .. peer or peer .. " " .. rank
            local list = call == "send" and sends or receives
            list[key] = (list[key] or "") .. bytes .. " "
          end
        end
        assert.same(expected(job, p - 1), lines)
      end
      assert.same(sends, receives)
    end)
  end

  it("are left in order: finished by all, then given back", function()
    local result = alone(pair .. "links.join(2) links.settle() send_one() a.links.close()")
    assert.equal(0, result.status, result.output)
    assert.truthy(result.log:match "finalize 0\nfinalize 1\n.*destroy 0\ndestroy 1\n$")
    assert.is_nil(result.log:match "abort")
  end)

  it("never block, whatever the user has set for other programs", function()
    local result = alone(pair .. "links.join(2) links.settle() send_one() a.links.close()", { NCCL_COMM_BLOCKING = 1 })
    assert.equal(0, result.status, result.output)
  end)

  it("can be joined again after they were closed", function()
    local result = alone(pair .. [[
      links.join(2) links.settle() send_one() a.links.close()
      links.join(2) links.settle()
      assert(links.read(1, send_one(), #text) == text)
      a.links.close()
    ]])
    assert.equal(0, result.status, result.output)
  end)

  it("have nothing to do where there is no message, or none with bytes", function()
    local result = alone [[
      links.join(2) links.settle()
      links.exchange {}
      assert(links.settle() == 1)
      links.exchange { { device = 0, rank = 1, outgoing = true, data = nil, bytes = 0 } }
      assert(links.settle() == 1)
      a.links.close()
    ]]
    assert.equal(0, result.status, result.output)
    assert.is_nil(result.log:match "group")
  end)

  it("refuse messages while others are being put on the way", function()
    local result = alone(pair .. [[
      links.join(2) links.settle()
      local x, y = links.memory(0, text), links.memory(1, #text)
      local messages = {
        { device = 0, rank = 1, outgoing = true, data = x, bytes = #text },
        { device = 1, rank = 0, outgoing = false, data = y, bytes = #text },
      }
      links.exchange(messages)
      print(links.fails(links.exchange, messages))
      links.settle()
      assert(links.read(1, y, #text) == text)
    ]])
    assert.equal(0, result.status, result.output)
    assert.truthy(result.output:find("EINVAL: messages are being put on the way still", 1, true), result.output)
  end)

  describe("divided into lines", function()
    local lines = [[
      local ffi = require "ffi"
      local function floats(...)
        return ffi.string(ffi.new("float[?]", select("#", ...), { ... }), 4 * select("#", ...))
      end
      local function read(device, data, count)
        local numbers, text = {}, links.read(device, data, 4 * count)
        for i = 0, count - 1 do numbers[i + 1] = ffi.cast("const float *", text)[i] end
        return table.concat(numbers, " ")
      end
      local function work(device, kind, from, room, elements, root)
        local to = links.memory(device, 4 * room)
        return { device = device, kind = kind, dtype = "SHARDRT_FLOAT32", from = from, to = to, elements = elements,
          root = root }
      end
    ]]

    it("add up, gather and pass on, each line by itself and in its own order", function()
      -- Devices 0 to 5 of two processes; the lines are {4, 0, 2} and {5, 1, 3}.
      local results = run { processes = { { gpus = "0,1,2", devices = 3 }, { gpus = "3,4,5", devices = 3 } },
        source = lines .. [[
          local PLACE = { [0] = 1, 1, 2, 2, 0, 0 }
          links.join(3)
          links.settle()
          local function own(values)
            local made = {}
            for d = 0, 2 do made[d] = values(3 * links.index + d) end
            return made
          end
          links.divide(5, own(function(id) return id % 2 end), own(function(id) return PLACE[id] end))
          links.settle()
          local function all(kind, given, room, elements, root)
            local works = {}
            for d = 0, 2 do
              local id = 3 * links.index + d
              works[d + 1] = work(d, kind, links.memory(d, floats(unpack(given(id)))), room, elements, root)
            end
            links.together(5, works)
            links.settle()
            for d = 0, 2 do
              print(kind, 3 * links.index + d, read(d, works[d + 1].to, room))
              works[d + 1] = nil
            end
          end
          all("ACCELERATOR_SUM_ALL", function(id) return { id, 10 * id, 1 } end, 3, 3)
          all("ACCELERATOR_SUM_PART", function(id) return { id, 10 * id, 100 * id } end, 1, 1)
          all("ACCELERATOR_GATHER", function(id) return { id, 10 * id } end, 6, 2)
          all("ACCELERATOR_COPY", function(id) return { id, 10 * id } end, 2, 2, 2)
          links.meet()
          a.links.close()
        ]] }
      all_well(results)
      local said = results[1].output .. results[2].output
      local results_of = {
        SUM_ALL = { "6 60 3", "9 90 3", "6 60 3", "9 90 3", "6 60 3", "9 90 3" },
        SUM_PART = { "60", "90", "600", "900", "6", "9" },
        GATHER = { "4 40 0 0 2 20", "5 50 1 10 3 30", "4 40 0 0 2 20", "5 50 1 10 3 30", "4 40 0 0 2 20",
          "5 50 1 10 3 30" },
        COPY = { "2 20", "3 30", "2 20", "3 30", "2 20", "3 30" },
      }
      for kind, values in pairs(results_of) do
        for id = 0, 5 do
          local line = ("ACCELERATOR_%s\t%d\t%s\n"):format(kind, id, values[id + 1])
          assert.truthy(said:find(line, 1, true), line .. " is not in\n" .. said)
        end
      end
      for p = 1, 2 do
        local log = results[p].log
        for _, call in ipairs { "ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast" } do
          assert.equal(3, select(2, log:gsub(call .. " %d+ %d 3 %d+ %d+ 1\n", "")), log)
        end
        -- What was made is given back: the lines' communicators, and the job's.
        assert.equal(6, select(2, log:gsub("destroy %d\n", "")), log)
      end
    end)

    it("are made anew where a set is used again, and not all GPUs need be in one", function()
      local result = alone(lines .. [[
        links.join(2)
        links.settle()
        for _, of in ipairs { { 0, 0 }, { -1, 3 }, { 7, 7 } } do
          links.divide(0, { [0] = of[1], of[2] }, { [0] = 1, 0 })
          links.settle()
        end
        local x, y = links.memory(0, floats(1, 2)), links.memory(1, floats(3, 4))
        local works = { work(0, "ACCELERATOR_GATHER", x, 4, 2), work(1, "ACCELERATOR_GATHER", y, 4, 2) }
        links.together(0, works)
        links.settle()
        assert(read(0, works[1].to, 4) == "3 4 1 2" and read(1, works[2].to, 4) == "3 4 1 2")
        -- The job's GPUs are a line, too.
        local sums = { work(0, "ACCELERATOR_SUM_ALL", x, 2, 2), work(1, "ACCELERATOR_SUM_ALL", y, 2, 2) }
        links.together(-1, sums)
        links.settle()
        assert(read(1, sums[2].to, 2) == "4 6")
        links.together(0, {})
        assert(links.settle() == 1)
        a.links.close()
      ]])
      assert.equal(0, result.status, result.output)
      assert.equal(6, select(2, result.log:gsub("split ", "")), result.log)
      assert.equal(7, select(2, result.log:gsub("destroy ", "")), result.log)
    end)

    -- The stand-in ends a process that does what NCCL does not allow.
    local wrong = {
      { "sizes that differ", "work(0, 'ACCELERATOR_SUM_ALL', x, 2, 2), work(1, 'ACCELERATOR_SUM_ALL', y, 2, 1)",
        "receives %d+ bytes from rank %d, which sends %d+" },
      { "kinds that differ", "work(0, 'ACCELERATOR_SUM_ALL', x, 2, 2), work(1, 'ACCELERATOR_COPY', y, 2, 2)",
        "rank %d calls nccl%a+ %(type %d, op %d, root %d%), rank %d nccl%a+" },
      { "roots that differ", "work(0, 'ACCELERATOR_COPY', x, 2, 2, 0), work(1, 'ACCELERATOR_COPY', y, 2, 2, 1)",
        "rank %d calls ncclBroadcast" },
      { "memory of another GPU", "work(0, 'ACCELERATOR_COPY', y, 2, 2), work(1, 'ACCELERATOR_COPY', y, 2, 2)",
        "ncclBroadcast is called with memory that its GPU has not" },
      { "too little room", "work(0, 'ACCELERATOR_GATHER', x, 64, 64), work(1, 'ACCELERATOR_GATHER', y, 64, 64)",
        "ncclAllGather is called with memory that its GPU has not" },
    }
    for _, case in ipairs(wrong) do
      it("end where GPUs come with " .. case[1], function()
        local result = alone(lines .. [[
          links.join(2)
          links.settle()
          local x, y = links.memory(0, floats(1, 2)), links.memory(1, floats(3, 4))
          links.together(-1, { ]] .. case[2] .. [[ })
          links.settle()
          links.ends(0, 5000)
          print "it went on"
        ]], { STANDIN_LINKS = "none" })
        assert.not_equal(0, result.status)
        assert.truthy(result.output:find(case[3]), result.output)
        assert.is_nil(result.output:find("it went on", 1, true))
      end)
    end
  end)

  describe("whose other side does not come", function()
    it("are aborted while they hang: streams go on, and nothing more is sent", function()
      local results = run { processes = { { gpus = "0" }, { gpus = "1" } }, source = [[
        if links.index == 1 then links.setenv("STANDIN_NCCL_HANG", "1") end
        local ranks = links.join(1)
        links.settle()
        local x = links.memory(0, 1000)
        local message = { device = 0, rank = 1 - links.index, outgoing = links.index == 0, data = x, bytes = 1000 }
        links.exchange { message }
        links.settle()
        if links.index == 0 then
          -- The one that is waited for: its message arrives, though that group of the other side never ends.
          assert(links.ends(0, 5000))
        else
          assert(not links.ends(0, 100))
        end
        links.meet()
        a.links.abort()
        assert(links.ends(0, 5000))
        print(links.fails(links.exchange, { message }))
        print(links.fails(links.settle))
        a.links.abort() -- again: nothing
        a.links.close()
      ]] }
      all_well(results)
      for p = 1, 2 do
        local _, count = results[p].output:gsub("ECOMM: the links between GPUs failed before", "")
        assert.equal(2, count, results[p].output)
        assert.truthy(results[p].log:find("abort", 1, true))
      end
    end)

    it("are aborted while it is waited for when joining", function()
      local results = run { processes = { { gpus = "0,1", devices = 2 }, { gpus = "2" } }, source = [[
        if links.index == 1 then
          links.rank(1)
        else
          links.join(2)
          local done = require("ffi").new "bool[1]"
          for _ = 1, 50 do
            links.check(a.links.state(done))
            assert(not done[0])
          end
          a.links.abort()
          print(links.fails(links.settle))
        end
      ]] }
      all_well(results)
      assert.truthy(results[1].output:find("ECOMM: the links between GPUs failed before", 1, true))
    end)

    it("say so when it has died", function()
      local results = run { processes = { { gpus = "0" }, { gpus = "1" } }, source = [[
        if links.index == 1 then links.setenv("STANDIN_NCCL_LEAVE", "1") end
        links.join(1)
        links.settle()
        local x = links.memory(0, 100000)
        links.exchange { { device = 0, rank = 1 - links.index, outgoing = links.index == 0, data = x, bytes = 100000 } }
        links.settle()
        local done, last = require("ffi").new "bool[1]", 0
        for _ = 1, 5000 do
          last = a.links.state(done)
          if last < 0 then break end
          require("ffi").C.usleep(1000)
        end
        print(links.fails(links.check, last))
        a.links.abort()
        assert(links.ends(0, 5000))
      ]] }
      all_well(results)
      assert.truthy(results[1].output:find("ECOMM: an exchange between GPUs: ncclCommGetAsyncError failed on device 0 "
        .. "(GPU 0, ", 1, true), results[1].output)
      assert.truthy(results[1].output:find("remote process exited or there was a network error (Connection closed by "
        .. "remote peer) (it is number 0 of the job's 2 GPUs); NCCL_DEBUG=INFO has NCCL tell more", 1, true),
        results[1].output)
    end)

    it("are left as they are where NCCL does not end them either", function()
      local result = alone(pair .. [[
        links.join(2) links.settle()
        links.setenv("STANDIN_NCCL_STUCK", "1")
        a.links.abort()
        print(links.fails(links.settle))
        a.links.close()
      ]], { ASAN_OPTIONS = "detect_leaks=0" }, 50) -- a thread of NCCL's is left at work: at the end nobody can count
      assert.equal(0, result.status, result.output)
      assert.truthy(result.output:find("ECOMM: the links between GPUs failed before", 1, true), result.output)
    end)
  end)

  it("refuse a GPU that two processes have, with NCCL's words", function()
    local results = run { processes = { { gpus = "0" }, { gpus = "0" } }, source = [[
      links.rank = function() return { [0] = { [0] = 0 }, { [0] = 1 } }, 2 end
      links.join(1)
      print(links.fails(links.settle))
      a.links.close()
    ]] }
    all_well(results)
    for p = 1, 2 do
      local said = results[p].output
      assert.truthy(said:find("ECOMM: joining the job's GPUs: ncclCommGetAsyncError failed on device", 1, true), said)
      assert.truthy(said:find("invalid usage (Duplicate GPU detected", 1, true), said)
    end
  end)

  describe("without a library that does", function()
    local function opened(env) return alone("print(links.fails(links.check, a.links.open()))", env).output end

    it("say what would, where there is none", function()
      local folder = mpi.folder()
      write(folder .. "/libnccl.so.2", "no library")
      local said = opened { LD_LIBRARY_PATH = folder, SHARDRT_CUDA_LIBRARIES = folder }
      mpi.remove(folder)
      assert.truthy(said:find("EINVAL: moving data between GPUs of different processes needs libnccl.so.2, which is "
        .. "not found: " .. folder .. "/libnccl.so.2", 1, true), said)
      assert.truthy(said:find("`pip install nvidia-nccl-cu13` brings it", 1, true), said)
    end)

    it("say that it is too old", function()
      assert.truthy(opened { STANDIN_NCCL_VERSION = "21806" }:find("EINVAL: NCCL 2.18 is too old", 1, true))
      assert.truthy(opened { STANDIN_NCCL_VERSION = "2804" }:find("EINVAL: NCCL 2.8 is too old", 1, true))
    end)

    it("find the one that pip put beside the toolkit, and in a list of folders", function()
      local folder = mpi.folder()
      local absolute = plugin:sub(1, 1) == "/" and plugin or io.popen("pwd"):read "*l" .. "/" .. plugin
      os.execute(("mkdir -p %s/nvidia/cu13/lib %s/nvidia/nccl/lib && ln -s %s %s/nvidia/nccl/lib/"):format(
        folder, folder, absolute:gsub("[^/]+$", "libnccl.so.2"), folder))
      -- What the system would find is none.
      write(folder .. "/libnccl.so.2", "no library")
      local result = alone("links.check(a.links.open()) print 'opened'",
        { LD_LIBRARY_PATH = folder, SHARDRT_CUDA_LIBRARIES = folder .. "/nvidia/cu13/lib" })
      local listed = alone("links.check(a.links.open()) print 'opened'",
        { LD_LIBRARY_PATH = folder, SHARDRT_CUDA_LIBRARIES = (":/tmp:%s/nvidia/nccl/lib"):format(folder) })
      mpi.remove(folder)
      assert.equal("opened\n", result.output)
      assert.equal("opened\n", listed.output)
      local said = opened { SHARDRT_CUDA_LIBRARIES = "/tmp:/nowhere/lib" }
      assert.truthy(said:find("SHARDRT_CUDA_LIBRARIES names /nowhere/lib, which is no folder", 1, true), said)
    end)

    it("take the real one, where it is", function()
      local pipe = io.popen "ls /usr/local/cuda/lib64/libnccl.so.2 2>/dev/null"
      local path = pipe:read "*l"
      pipe:close()
      if not path then return pending "needs NCCL" end
      local env = { SHARDRT_CUDA_LIBRARIES = "/usr/local/cuda/lib64" }
      local result = alone("links.check(a.links.open()) print 'opened'", env)
      assert.equal("opened\n", result.output)
    end)
  end)

  describe("where a call fails", function()
    -- The call and which one of its name, the result, and what is said.
    local joining, sending = "joining the job's GPUs: ", "an exchange between GPUs: "
    local dividing, adding = "dividing the job's GPUs into lines: ", "what GPUs do together: "
    local cases = {
      { "ncclGetVersion@1", 3, "ECOMM: asking for its version: ncclGetVersion failed: internal error" },
      { "ncclGetUniqueId@1", 2, "ECOMM: making the id of the job's GPUs: ncclGetUniqueId failed: unhandled system" },
      { "ncclGroupStart@1", 3, "ECOMM: " .. joining .. "ncclGroupStart failed: internal error" },
      { "ncclCommInitRankConfig@1", 4, "ECOMM: " .. joining .. "ncclCommInitRankConfig failed on device 0 (GPU 0, " },
      { "ncclCommInitRankConfig@2", 1, "EDEVICE: " .. joining .. "ncclCommInitRankConfig failed on device 1 (GPU 1, ",
        "unhandled cuda error (injected into ncclCommInitRankConfig) (it is number 1 of the job's 2 GPUs)" },
      { "ncclGroupEnd@1", 2, "ECOMM: " .. joining .. "ncclGroupEnd failed: unhandled system error" },
      { "ncclCommGetAsyncError@2", 3, "ECOMM: " .. joining .. "ncclCommGetAsyncError failed on device 1" },
      { "ncclGroupStart@2", 3, "ECOMM: " .. sending .. "ncclGroupStart failed: internal error" },
      { "ncclSend@1", 4, "ECOMM: " .. sending .. "ncclSend failed on device 0 (GPU 0, ", "invalid argument" },
      { "ncclRecv@1", 1, "EDEVICE: " .. sending .. "ncclRecv failed on device 1 (GPU 1, ", "unhandled cuda error" },
      { "ncclGroupEnd@2", 6, "ECOMM: " .. sending .. "ncclGroupEnd failed: remote process exited" },
      { "ncclCommSplit@2", 3, "ECOMM: " .. dividing .. "ncclCommSplit failed on device 1 (GPU 1, ", "internal error" },
      { "ncclGroupEnd@3", 2, "ECOMM: " .. dividing .. "ncclGroupEnd failed: unhandled system error" },
      { "ncclAllReduce@1", 4, "ECOMM: " .. adding .. "ncclAllReduce failed on device 0 (GPU 0, ", "invalid argument" },
      { "ncclReduceScatter@2", 1, "EDEVICE: " .. adding .. "ncclReduceScatter failed on device 1 (GPU 1, " },
      { "ncclAllGather@1", 3, "ECOMM: " .. adding .. "ncclAllGather failed on device 0 (GPU 0, ", "internal error" },
      { "ncclBroadcast@1", 3, "ECOMM: " .. adding .. "ncclBroadcast failed on device 0 (GPU 0, ", "internal error" },
    }
    for _, case in ipairs(cases) do
      it("say which, " .. case[1], function()
        local result = alone(pair .. [[
          local function all()
            links.join(2)
            links.settle()
            send_one()
            assert(links.ends(0, 5000) and links.ends(1, 5000)) -- nothing is under way while they are divided
            links.divide(0, { [0] = 0, 0 }, { [0] = 0, 1 })
            links.settle()
            for _, kind in ipairs { "SUM_ALL", "SUM_PART", "GATHER", "COPY" } do
              local works = {}
              for d = 0, 1 do
                works[d + 1] = { device = d, kind = "ACCELERATOR_" .. kind, dtype = "SHARDRT_INT32", elements = 1,
                  from = links.memory(d, 64), to = links.memory(d, 64) }
              end
              links.together(0, works)
              links.settle()
            end
          end
          print(links.fails(all))
          links.setenv("STANDIN_FAIL", "")
          print(links.fails(links.exchange, {}))
          a.links.abort()
          assert(links.ends(0, 5000) and links.ends(1, 5000))
          a.links.close()
        ]], { STANDIN_FAIL = case[1] .. "=" .. case[2] })
        assert.equal(0, result.status, result.output)
        assert.truthy(result.output:find(case[3], 1, true), result.output)
        assert.truthy(result.output:find(case[4] or "", 1, true), result.output)
        assert.truthy(result.output:find("ECOMM: the links between GPUs failed before", 1, true), result.output)
      end)
    end

    it("close all the same", function()
      for _, fault in ipairs { "ncclCommFinalize@1=3", "ncclCommDestroy@2=3" } do
        local all = pair .. "links.join(2) links.settle() send_one() a.links.close()"
        local result = alone(all, { STANDIN_FAIL = fault })
        assert.equal(0, result.status, result.output)
      end
    end)
  end)

  describe("that a recipe's reshards go over", function()
    local recipe = [[
      local shardrt = require "shardrt"
      local ffi = require "ffi"
      ffi.cdef "int setenv(const char *, const char *, int);"
      local P, n = shardrt.P, shardrt.device_count()
      local mesh = shardrt.make_mesh({ n }, { "x" })
      local function named(...) return shardrt.NamedSharding(mesh, P(...)) end
      local host = shardrt.ndarray.arange(24 * 24, "int32"):reshape { 24, 24 }
      local x = shardrt.device_put(host, named("x", nil))
      local function check(y)
        for _, shard in ipairs(y.addressable_shards) do
          local rows, columns, data = shard.index[1], shard.index[2], shard.data:to_table()
          for i = rows[1], rows[2] - 1 do
            for k = columns[1], columns[2] - 1 do
              assert(data[i - rows[1] + 1][k - columns[1] + 1] == 24 * i + k)
            end
          end
        end
      end
    ]]

    local function go(o)
      local folder = mpi.folder()
      local env = { SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = 6, STANDIN_NCCL_LOG = folder .. "/log" }
      local result = mpi.run {
        processes = o.processes, devices = o.devices, options = o.options or { "--platform", "cuda" }, env = env,
        source = recipe .. o.source, limit = 60,
      }
      result.log = read(folder .. "/log")
      mpi.remove(folder)
      return result
    end

    it("each message is sent as it is received, between GPUs of different processes only", function()
      local result = go { processes = 3, devices = 2, source = [[
        local y = shardrt.reshard(x, named(nil, "x"))
        check(y)
        check(shardrt.reshard(y, named("x", nil)))
        check(shardrt.reshard(y, named()))
      ]] }
      assert.equal(0, result.status, result.output)
      local sums = { send = {}, recv = {} }
      local lines = 0
      for call, rank, peer, bytes in result.log:gmatch "(%a+) %d+ (%d+) (%d+) (%d+) 1\n" do
        assert.not_equal(math.floor(rank / 2), math.floor(peer / 2)) -- ranks 0 and 1 are process 0's GPUs
        local key = call == "send" and rank .. " to " .. peer or peer .. " to " .. rank
        sums[call][key] = (sums[call][key] or "") .. bytes .. " "
        lines = lines + 1
      end
      assert.is_true(lines > 0)
      assert.same(sums.send, sums.recv)
    end)

    it("one that hangs ends by the timeout, with who was waited for", function()
      local result = go { processes = 2, devices = 1, options = { "--platform", "cuda", "--timeout", "2" }, source = [[
        if shardrt.process_index() == 1 then ffi.C.setenv("STANDIN_NCCL_HANG", "1", 1) end
        local y = shardrt.reshard(x, named(nil, "x"))
        shardrt.process_allgather(y)
        print "it went on"
      ]] }
      assert.not_equal(0, result.status)
      assert.is_nil(result.output:find("it went on", 1, true))
      assert.truthy(result.output:find("reshard of int32 {24, 24}", 1, true), result.output)
      local why = "did not end within 2 seconds: nothing came from, or got to, process 0"
      assert.truthy(result.output:find(why, 1, true), result.output)
    end)
  end)

  it("are against a header that is NCCL's own, as far as it goes", function()
    local home = os.getenv "CUDA_HOME" or "/usr/local/cuda"
    local header = io.open(home .. "/include/nccl.h")
    if not header then return pending "needs NCCL's header" end
    header:close()
    local result = mpi.shell(("gcc -std=c11 -Wall -Wextra -Werror -fsyntax-only -isystem %s/include -Itests %s"):format(
      home, "tests/standin/nccl_drift.c"))
    assert.equal(0, result.status, result.output)
  end)

  it("leave nothing behind where an allocation fails", function()
    local result = alone(pair .. [[
      local C = require "shardrt.base.ffi"
      local failed = 0
      for n = 1, 50 do
        C.shardrt_alloc_fail_at(n)
        local well, message = pcall(function()
          links.join(2)
          links.settle()
          send_one()
        end)
        C.shardrt_alloc_fail_at(0)
        a.links.close()
        if well then break end
        failed = failed + 1
        assert(message:find "ENOMEM", message)
      end
      assert(failed > 1, failed)
    ]])
    assert.equal(0, result.status, result.output)
  end)
end)

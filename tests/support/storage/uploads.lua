-- Recipes that write to buckets, for specs of the servers that take what is written.

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

local uploads = {}

--- Runs a recipe with a server's variables, and a cache in its folder. `folder` of what is written is `arg[1]`'s.
---@param server tests.server # with `env`
---@param source string
---@param o {processes: integer?, devices: integer?, args: string[]?, limit: number?, env: table<string, string>?}?
function uploads.run(server, source, o)
  local env = { SHARDRT_CACHE = server.work .. "/cache" }
  o = o or {}
  for _, more in ipairs { server.env, o.env or {} } do
    for name, value in pairs(more) do env[name] = value end
  end
  return mpi.run {
    source = 'local shardrt = require "shardrt"\nlocal np, P = require "shardrt.numpy", shardrt.P\n' .. source,
    env = env, processes = o.processes, devices = o.devices or 1, args = o.args, limit = o.limit or 100,
  }
end

---@return boolean
function uploads.is_same(a, b) return os.execute(("cmp -s '%s' '%s'"):format(a, b)) == 0 end

--- The files below a folder, a line each.
---@return string
function uploads.list(folder)
  local pipe = io.popen(("cd '%s' && find . -type f | sort"):format(folder))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

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

-- Saves these to the file arg[2], unless that is "", and to the address arg[1], loads them from there in other layouts,
-- and tells how many bytes were written, and how many elements differ.
local WHOLE = VALUES .. [[
  if arg[2] ~= "" then shardrt.save(arg[2], values) end
  local wrote = shardrt.save(arg[1], values)
  local total = 0
  for _, bytes in ipairs(shardrt.process_allgather(wrote):to_table()) do total = total + bytes end
  local differ = 0
  local there = shardrt.load(arg[1], { rows = over(nil, "d"), columns = over "d", crumbs = over(), flags = false })
  for _, name in ipairs { "rows", "columns", "crumbs" } do
    local same = np.equal(there[name], shardrt.reshard(values[name], there[name].sharding))
    differ = differ + shardrt.device_put(np.sum(1 - np.astype(same, "int32")), over()):item()
  end
  assert(there.flags.data[0] and not there.flags.data[1])
  shardrt.say("%d %d", total, differ)
]]

--- Saves arrays from 1x8, 2x4 and 4x2 devices: the object has the bytes of the file, in parts that are sent once each,
--- and is read again by other layouts. `env`: more variables; then 2x4 is left out.
---@param server tests.server
---@param address string
---@param object string # where the server keeps it
---@param part string # a pattern of the server's line for a part that it took
---@param env table<string, string>?
function uploads.check_topologies(server, address, object, part, env)
  local file = os.tmpname()
  local topologies = { { devices = 8 }, { processes = 4, devices = 2 } }
  if not env then table.insert(topologies, 2, { processes = 2, devices = 4 }) end
  for _, topology in ipairs(topologies) do
    topology.args, topology.env = { address, topology.processes and "" or file }, env
    server:log()
    os.remove(object)
    local result = uploads.run(server, WHOLE, topology)
    expect.well(result)
    local bytes = files.slurp(file)
    assert(result.stdout == ("%d 0\n"):format(#bytes), result.stdout)
    assert(uploads.is_same(file, object), "the object is not the file")
    local parts = 0
    for _, line in ipairs(server:log()) do parts = parts + (line:find(part) and 1 or 0) end
    assert(parts == math.ceil(#bytes / 2 ^ 23), ("%d parts"):format(parts))
    assert(#server:uploads() == 0, "an upload is open")
  end
  os.remove(file)
end

-- Sends signals ("TERM", "TERM TERM") to the last process of a job, or to each ("all TERM"), as soon as the server took
-- a part there.
local KILLED = [=[
  local signal, everybody = arg[1]:gsub("^all ", "")
  local scheme, bucket, dir = arg[2], arg[3], arg[4]
  if everybody > 0 or shardrt.process_index() == shardrt.process_count() - 1 then
    local pipe = io.popen "echo $PPID"
    local pid = pipe:read "*n"
    pipe:close()
    os.execute(([==[touch '%s/log'; n=$(cat '%s/log' | wc -l)
      ( until tail -n +$((n + 1)) '%s/log' | grep -qE '^PUT .*/%s/.*(partNumber|blockid)=.* 20[01] '; do
          sleep 0.05; kill -0 %d || exit; done
        for s in %s; do kill -$s %d; sleep 2.1; done ) >/dev/null 2>&1 &]==]):format(dir, dir, dir, bucket, pid,
        signal, pid))
  end
]=]

--- Saves an object of five parts, and nothing is there that hears signals.
uploads.SAVE = KILLED .. [[
  local all = shardrt.make_mesh({ shardrt.device_count() }, { "d" })
  local x = shardrt.device_put(shardrt.ndarray.arange(9e6, "float32"), shardrt.NamedSharding(all, P "d"))
  shardrt.save(("%s://%s/x.safetensors"):format(scheme, bucket), { x = x })
]]

-- A loop with a checkpoint every third step; ends after arg[5] steps. `between`: what else it does then.
local LOOP = [[
  local rows = shardrt.NamedSharding(shardrt.make_mesh({ shardrt.device_count() }, { "d" }), P "d")
  local source = shardrt.source.array { id = shardrt.ndarray.arange(80, "int32") }
  local loader = shardrt.loader { source = source, batch_size = 8, shuffle = true, seed = 7, epochs = 3 }
  local model = { w = np.zeros({ 2400, 1024 }, "float32", rows), layers = { np.zeros({ 7 }, "float32") } }
  local checkpoint = shardrt.checkpoint {
    dir = %s, every = 3, keep = 2, loader = loader, arrays = model,
  }
  shardrt.say("restored %%s", tostring(checkpoint.restored))
  for _ in loader do
    model.w = model.w + 1
    %s
    checkpoint:step()
    if checkpoint.steps == tonumber(arg[5]) then break end
  end
  shardrt.say("%%d steps, %%g", checkpoint.steps, np.mean(model.w):item())
]]

--- With its checkpoints in the bucket, at "run 7/".
uploads.CHECKPOINT = KILLED .. LOOP:format('("%s://%s/run 7/"):format(scheme, bucket)', "")
--- With them in the folder arg[6]. In its first step it saves to the bucket, too, by arg[7], under the name arg[8].
uploads.BESIDE = KILLED .. LOOP:format("arg[6]", [[
    if checkpoint.steps == 0 and arg[7] == "save" then
      shardrt.save(("%s://%s/%s"):format(scheme, bucket, arg[8]), { x = model.w })
    elseif checkpoint.steps == 0 and arg[7] == "npy" then
      local host = shardrt.process_allgather(model.w)
      if shardrt.process_index() == 0 then host:save(("%s://%s/%s"):format(scheme, bucket, arg[8])) end
    end]])

--- The files of checkpoints at these steps ("0000000003"), as uploads.list has them.
---@return string
function uploads.kept(...)
  local lines = {}
  for _, step in ipairs { ... } do
    for _, name in ipairs { "arrays.safetensors", "checkpoint.json" } do
      lines[#lines + 1] = ("./run 7/step-%s/%s\n"):format(step, name)
    end
  end
  return table.concat(lines)
end

return uploads

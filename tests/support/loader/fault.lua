-- Jobs that are killed at random moments and started again with other processes, devices and batch sizes, until all
-- epochs are done; what they were given is compared with an undisturbed run.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local C = require "shardrt.base.ffi"

local fault = {}

local SAMPLES, EPOCHS = 250, 4

-- Every step takes some milliseconds, so that a kill comes somewhere in the middle. All ids that the job was given
-- stand in the metadata of its checkpoints, so that one which does not fit its loader's place shows; and an array over
-- all devices counts how often each sample came.
fault.recipe = [==[
local shardrt = require "shardrt"
local ffi = require "ffi"
ffi.cdef "int usleep(unsigned microseconds);"
local ndarray, say = shardrt.ndarray, shardrt.say
local folder, batch_size, seed, samples, epochs = arg[1], tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4]),
  tonumber(arg[5])
for line in io.lines "/proc/self/maps" do -- the memory that MPI shares between the processes of this job
  local name = line:match " /dev/shm/(%S+)"
  if name then say("shares %s", name) end
end
local source = shardrt.source.idx({ id = folder .. "/id-idx1-int.gz" }, { cache = folder .. "/cache" })
local rows = shardrt.NamedSharding(shardrt.make_mesh({ shardrt.device_count() }, { "a" }), shardrt.P "a")
local loader = shardrt.loader {
  source = source, batch_size = batch_size, sharding = rows, shuffle = true, seed = seed, epochs = epochs,
  remainder = "pad",
}
local counts = { total = shardrt.device_put(ndarray.zeros({ 264 }, "int32"), rows) } -- 264: what 1, 2, … 8 divide
local given = { ids = {} }
local checkpoint = shardrt.checkpoint {
  dir = folder .. "/checkpoints", every = 1 + seed % 3, keep = 1 + seed % 2, loader = loader, arrays = counts,
  metadata = given,
}
for batch in loader do
  local ids, mask = shardrt.process_allgather(batch.id), shardrt.process_allgather(batch.mask)
  local total = shardrt.process_allgather(counts.total)
  for i = 0, batch_size - 1 do
    if mask.data[i] ~= 0 and mask.data[i] ~= false then
      given.ids[#given.ids + 1] = ids.data[i]
      total.data[ids.data[i]] = total.data[ids.data[i]] + 1
    end
  end
  counts.total = shardrt.device_put(total, rows)
  checkpoint:step()
  ffi.C.usleep(15000)
end
local total = shardrt.process_allgather(counts.total)
for i = 0, total.size - 1 do assert(total.data[i] == (i < samples and epochs or 0)) end
say("ids %s", table.concat(given.ids, " "))
]==]

-- What an undisturbed run is given, as C's order says.
local function undisturbed(seed)
  local ids = {}
  for epoch = 0, EPOCHS - 1 do
    for i = 0, SAMPLES - 1 do ids[#ids + 1] = tonumber(C.shardrt_order_index(seed, epoch, SAMPLES, i)) end
  end
  return "ids " .. table.concat(ids, " ")
end

local function big_endian(n)
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256, math.floor(n / 2 ^ 8) % 256, n % 256)
end

-- Starts the job and kills one of its processes, or all, after a while (nil: never): the shell's output.
local function run(folder, processes, devices, batch_size, seed, delay, victim)
  local all = victim == 0 and math.random(3) == 1
  -- mpirun's children are the processes of the job. They are looked for until there are any, and then for a while more.
  return mpi.shell(([=[
    %s mpirun -n %d %s --devices %d %s/job.lua \
      %s %d %d %d %d &
    pid=$!
    children() { cat /proc/$pid/task/$pid/children 2>/dev/null; }
    if %s; then
      while [ -d /proc/$pid ] && [ -z "$(children)" ]; do sleep 0.02; done
      sleep %.3f
      set -- $(children)
      if [ $# -gt %d ]; then
        shift %d
        kill -9 %s && echo killed
      fi
    fi
    wait $pid
    echo "status $?"]=]):format(mpi.environment, processes, mpi.program(), devices, folder, folder, batch_size, seed,
    SAMPLES, EPOCHS, tostring(delay ~= nil), delay or 0, victim, victim, all and "$@" or "$1"), 120)
end

-- What lay there before: others' (a fuzzer's that was killed, say).
local before = {}
for _, name in ipairs(files.list "/dev/shm") do before[name] = true end

-- What a killed job may leave: nothing that has no meaning to the next one.
local function check_left(folder, output)
  local own = {}
  for name in output:gmatch "shares (%S+)" do own[name] = true end
  for _, name in ipairs(files.list "/dev/shm") do
    assert(before[name] or not name:find "shardrt", name)
    assert(not own[name], name)
  end
  for _, name in ipairs(files.list(folder .. "/cache")) do
    local unpacked, index = name:match "^id%-idx1%-int%.gz%-[%x%-]+(.*)$", name:find "%.shardrt%-index$" ~= nil
    assert(unpacked == (index and ".shardrt-index" or ""), name)
    assert(index or #files.slurp(folder .. "/cache/" .. name) == 8 + 4 * SAMPLES, name)
  end
  local unfinished = 0
  for _, name in ipairs(files.list(folder .. "/checkpoints")) do
    local is_temporary = name:match "^%.step%-%d+%.%x+%.tmp$"
    assert(is_temporary or name:match "^step%-%d+$", name)
    if is_temporary then unfinished = unfinished + 1 end
  end
  return unfinished
end

--- Goes on until `wanted` jobs were killed: {kills=, rounds=, unfinished= (kills in mid-save), most= (kills in one
--- round)}. Raises where anything was lost.
function fault.inject(wanted, seed)
  math.randomseed(seed)
  local done = { kills = 0, rounds = 0, unfinished = 0, most = 0 }
  while done.kills < wanted do
    local folder, kills, finished = files.folder(), 0, false
    files.write(folder, "job.lua", fault.recipe)
    local payload = {}
    for i = 0, SAMPLES - 1 do payload[i + 1] = big_endian(i) end
    files.gzip(files.write(folder, "id-idx1-int", string.char(0, 0, 0x0C, 1) .. big_endian(SAMPLES)
      .. table.concat(payload)))
    os.remove(folder .. "/id-idx1-int")
    local order = seed + done.rounds
    while not finished do
      local processes, devices = math.random(4), math.random(2)
      local batch_size = 24 * math.random(2)
      -- When a round has had its kills, or all are done, it comes to its end undisturbed.
      local is_last = done.kills >= wanted or kills >= 8
      local delay = not is_last and math.random() * 0.9 or nil
      local result = run(folder, processes, devices, batch_size, order, delay, math.random(processes) - 1)
      if result.stdout:find "killed\n" then kills, done.kills = kills + 1, done.kills + 1 end
      done.unfinished = done.unfinished + check_left(folder, result.stdout)
      finished = result.stdout:find "status 0\n" ~= nil
      if is_last then assert(finished, result.output) end
      if finished then
        assert(result.stdout:gsub("\r", ""):match "(ids [%d ]*)\n" == undisturbed(order), result.output)
        assert(check_left(folder, result.stdout) == 0)
      end
    end
    files.remove(folder)
    done.rounds, done.most = done.rounds + 1, math.max(done.most, kills)
  end
  return done
end

return fault

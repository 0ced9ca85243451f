-- Links between GPUs (platform/accelerator.h) without the words in between: for recipes of specs, each of which is
-- started as a job of one process; what processes tell each other goes through files.

local ffi = require "ffi"
local accelerator = require "tests.support.cuda.accelerator"

ffi.cdef [[
  int setenv(const char *name, const char *value, int overwrite);
  int usleep(unsigned microseconds);
  int rename(const char *from, const char *to);
]]

local links = { check = accelerator.check }

--- Of this process: SHARDRT_LINKS_AS is "folder index count".
local folder, index, count = assert(os.getenv "SHARDRT_LINKS_AS"):match "^(%S+) (%d+) (%d+)$"
links.index, links.count = tonumber(index), tonumber(count)

function links.say(name, text)
  local path = folder .. "/" .. name
  local file = assert(io.open(path .. ".new", "wb"))
  file:write(text)
  file:close()
  assert(ffi.C.rename(path .. ".new", path) == 0)
end

function links.hear(name)
  for _ = 1, 20000 do
    local file = io.open(folder .. "/" .. name, "rb")
    if file then
      local text = file:read "*a"
      file:close()
      return text
    end
    ffi.C.usleep(1000)
  end
  error("nobody said " .. name)
end

local meetings = 0
--- Waits until all processes are there.
function links.meet()
  meetings = meetings + 1
  links.say(("met-%d-%d"):format(meetings, links.index), "")
  for p = 0, links.count - 1 do links.hear(("met-%d-%d"):format(meetings, p)) end
end

function links.setenv(name, value) ffi.C.setenv(name, value, 1) end

--- Ranks of all devices, [process][device], by the GPUs that they are, and how many there are: in the order of the
--- processes, and in each in the order of its devices.
function links.rank(devices)
  local a = accelerator.get()
  local own = {}
  for d = 0, devices - 1 do
    local info = ffi.new "struct accelerator_info"
    links.check(a.describe(d, info))
    own[#own + 1] = ffi.string(info.uuid, 16):gsub(".", function(c) return ("%02x"):format(c:byte()) end)
  end
  links.say("gpus-" .. links.index, table.concat(own, " "))
  local ranks, known, total = {}, {}, 0
  for p = 0, links.count - 1 do
    ranks[p] = {}
    local d = 0
    for uuid in links.hear("gpus-" .. p):gmatch "%S+" do
      if not known[uuid] then
        known[uuid], total = total, total + 1
      end
      ranks[p][d], d = known[uuid], d + 1
    end
  end
  return ranks, total
end

--- Asks until what was started is on its way. Raises what went wrong; gives back how often it asked.
function links.settle()
  local done, asked = ffi.new "bool[1]", 0
  repeat
    links.check(accelerator.get().links.state(done))
    asked = asked + 1
    if not done[0] then ffi.C.usleep(200) end
  until done[0]
  return asked
end

--- Starts to join; process 0 makes the id.
function links.join(devices)
  local a = accelerator.get()
  links.check(a.links.open())
  local ranks, total = links.rank(devices)
  local id = ffi.new "uint8_t[128]"
  if links.index == 0 then
    links.check(a.links.id(id))
    links.say("id", ffi.string(id, 128))
  end
  ffi.copy(id, links.hear "id", 128)
  local own, seen = {}, {}
  for d = 0, devices - 1 do
    local rank = ranks[links.index][d]
    if not seen[rank] then own[#own + 1] = { device = d, rank = rank } end
    seen[rank] = true
  end
  local own_devices, own_ranks = ffi.new("int32_t[?]", #own), ffi.new("int32_t[?]", #own)
  for i, o in ipairs(own) do own_devices[i - 1], own_ranks[i - 1] = o.device, o.rank end
  links.check(a.links.join(id, total, #own, own_devices, own_ranks))
  return ranks, total
end

--- Messages, each {device=, rank=, outgoing=, data=, bytes=}, as one group.
function links.exchange(messages)
  local list = ffi.new("struct accelerator_message[?]", math.max(#messages, 1))
  for i, m in ipairs(messages) do
    list[i - 1] = { device = m.device, rank = m.rank, outgoing = m.outgoing, data = m.data, bytes = m.bytes }
  end
  links.check(accelerator.get().links.exchange(#messages, list))
end

--- Starts to make lines of GPUs: for each of this process's devices, from 0, the number of its line, and its place.
function links.divide(set, lines, places)
  local c_lines, c_places = ffi.new("int32_t[?]", #lines + 1), ffi.new("int32_t[?]", #lines + 1)
  for d = 0, #lines do c_lines[d], c_places[d] = lines[d], places[d] end
  links.check(accelerator.get().links.divide(set, c_lines, c_places))
end

--- What devices do in their lines, each {device=, kind=, dtype=, from=, to=, elements=, root=}.
function links.together(set, works)
  local list = ffi.new("struct accelerator_line_work[?]", math.max(#works, 1))
  for i, w in ipairs(works) do
    list[i - 1] = { device = w.device, kind = accelerator.C[w.kind], dtype = accelerator.C[w.dtype], root = w.root or 0,
      from = w.from, to = w.to, elements = w.elements }
  end
  links.check(accelerator.get().links.together(set, #works, list))
end

--- Memory of a device, filled with `text` or, where that is a number, of so many bytes.
function links.memory(device, text)
  local a, out = accelerator.get(), ffi.new "void *[1]"
  local bytes = type(text) == "number" and text or #text
  links.check(a.memory.allocate(device, 0, 0, bytes, out))
  if type(text) == "string" then links.check(a.copies.upload(device, 0, out[0], text, bytes)) end
  return out[0]
end

--- What is in it, after all that its MAIN has now.
function links.read(device, data, bytes)
  local a = accelerator.get()
  local text, event = ffi.new("char[?]", bytes), ffi.new "struct accelerator_event *[1]"
  links.check(a.copies.download(device, 0, text, data, bytes))
  links.check(a.streams.record(device, 0, event))
  links.check(a.streams.finish(event[0]))
  a.streams.event_free(event[0])
  return ffi.string(text, bytes)
end

--- Whether all that MAIN of a device has now is done within so many milliseconds.
function links.ends(device, milliseconds)
  local a, event, reached = accelerator.get(), ffi.new "struct accelerator_event *[1]", ffi.new "bool[1]"
  links.check(a.streams.record(device, 0, event))
  for _ = 1, milliseconds do
    links.check(a.streams.reached(event[0], reached))
    if reached[0] then break end
    ffi.C.usleep(1000)
  end
  a.streams.event_free(event[0])
  return reached[0]
end

--- What a call that is to fail says.
function links.fails(call, ...)
  local well, message = pcall(call, ...)
  assert(not well, "it did not fail")
  return message
end

return links

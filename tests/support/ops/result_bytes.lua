-- A recipe for result_layout_spec: arrays that lie anyhow, joined, split and sliced. What explain says was moved is
-- counted element by element: what some process needs of a result and does not hold of the operands. Values are those
-- that the operands have there. Products move what the same product of matrices moves.

package.path = "./?.lua;" .. package.path
local shardrt = require "shardrt"
local job = require "shardrt.program.job"
local np = require "shardrt.numpy"
local P = shardrt.P

math.randomseed(tonumber(arg[1]))
local function pick(list) return list[math.random(#list)] end

local MESHES = { { 8 }, { 2, 4 }, { 4, 2 }, { 2, 2, 2 } }
local NAMES = { "a", "b", "c" }
local ids = {}
for id = 0, 7 do ids[id + 1] = id end

local function shuffled(list)
  local made = { unpack(list) }
  for i = #made, 2, -1 do
    local j = math.random(i)
    made[i], made[j] = made[j], made[i]
  end
  return made
end

-- A sharding that cuts the array evenly.
local function some_sharding(mesh, names, shape)
  local left, entries = shuffled(names), {}
  local order = {}
  for d = 1, #shape do order[d] = d end
  for _, d in ipairs(shuffled(order)) do
    local list, parts = {}, 1
    for _ = 1, pick { 0, 1, 1, 2 } do
      local axis = left[1]
      if axis and shape[d] % (parts * mesh.shape[axis]) == 0 then
        parts = parts * mesh.shape[axis]
        list[#list + 1] = table.remove(left, 1)
      end
    end
    entries[d] = #list > 0 and list or nil
  end
  return shardrt.NamedSharding(mesh, P(unpack(entries, 1, #shape)))
end

-- Calls f(number, index) for every element of a box of an array of that shape; both row-major, from 0.
local function each(box, shape, f)
  local index = {}
  local function go(d, number)
    if d > #shape then return f(number, index) end
    for i = box[d][1], box[d][2] - 1 do
      index[d] = i
      go(d + 1, number * shape[d] + i)
    end
  end
  go(1, 0)
end

-- Of each process, which elements its devices hold.
local function held_by(x)
  local held = {}
  for p = 0, shardrt.process_count() - 1 do held[p] = {} end
  for id, box in pairs(x.sharding:devices_indices_map(x.shape)) do
    local set = held[shardrt.devices()[id + 1].process_index]
    each(box, x.shape, function(number) set[number] = true end)
  end
  return held
end

-- What explain says of each operation of f: the bytes.
local function explained(f)
  local say, lines = job.words.say, {}
  job.words.say = function(format, ...) lines[#lines + 1] = format:format(...) end
  local good, out = pcall(shardrt.explain, f)
  job.words.say = say
  if not good then error(out, 0) end
  local bytes = lines[#lines]:match "in all: (%d+ %a+) moved"
  return out, tonumber(bytes:match "^(%d+) B$") or bytes
end

local function wrong(format, ...) print(format:format(...)) end

local function put(mesh, names, shape, first)
  local h = shardrt.ndarray.empty(shape, "int8")
  for i = 0, h.size - 1 do h.data[i] = (i * 5 + first) % 127 end
  local s = some_sharding(mesh, names, shape)
  return { host = h, array = shardrt.device_put(h, s), text = table.concat(shape, ",") .. " " .. tostring(s.spec) }
end

-- Compares results with what element (result r, index) is to be: source(r, index) gives the operand's number and the
-- element's there.
local function check(name, operands, f, source)
  local results, bytes = explained(f)
  local held, right = {}, 0
  for k, one in ipairs(operands) do held[k] = held_by(one.array) end
  for r, out in ipairs(results) do
    local host = shardrt.process_allgather(out)
    for p, set in pairs(held_by(out)) do
      local whole = {}
      for d, size in ipairs(out.shape) do whole[d] = { 0, size } end
      each(whole, out.shape, function(number, index)
        local k, element = source(r, index)
        if set[number] and not held[k][p][element] then right = right + 1 end
        if host.data[number] ~= operands[k].host.data[element] then
          error(("%s: result %d, element %d has another value"):format(name, r, number), 0)
        end
      end)
    end
  end
  if bytes ~= right then wrong("seed %s: %s: %s bytes were moved, not %d", arg[1], name, bytes, right) end
end

local function number_at(index, shape)
  local number = 0
  for d, size in ipairs(shape) do number = number * size + index[d] end
  return number
end

local function join(mesh, names, shape, along)
  local operands, arrays, texts, starts, total = {}, {}, {}, {}, 0
  for k = 1, math.random(2, 3) do
    local own = { unpack(shape) }
    own[along] = pick { 1, 3, 4, 8, 8, 12, 16 }
    operands[k] = put(mesh, names, own, k)
    arrays[k], texts[k], starts[k], total = operands[k].array, operands[k].text, total, total + own[along]
  end
  check(("concatenate %s along %d"):format(table.concat(texts, "; "), along - 1), operands, function()
    return { np.concatenate(arrays, along - 1) }
  end, function(_, index)
    local k = #starts
    while index[along] < starts[k] do k = k - 1 end
    local own = { unpack(index) }
    own[along] = own[along] - starts[k]
    return k, number_at(own, arrays[k].shape)
  end)
end

local function cut(mesh, names, shape, along)
  local x, at, size = put(mesh, names, shape, 0), {}, shape[along]
  for i = 1, math.random(1, 2) do at[i] = math.random(0, size) end
  table.sort(at)
  check(("split %s along %d at %s"):format(x.text, along - 1, table.concat(at, " ")), { x }, function()
    return np.split(x.array, at, along - 1)
  end, function(r, index)
    local own = { unpack(index) }
    own[along] = own[along] + (at[r - 1] or 0)
    return 1, number_at(own, shape)
  end)
end

local function part(mesh, names, shape)
  local x, index, starts, words = put(mesh, names, shape, 0), {}, {}, {}
  for d, size in ipairs(shape) do
    starts[d] = math.random(0, size - 1)
    index[d] = { starts[d], math.random(starts[d] + 1, size) }
    words[d] = index[d][1] .. ":" .. index[d][2]
  end
  check(("slice %s [%s]"):format(x.text, table.concat(words, ", ")), { x }, function()
    return { np.slice(x.array, index) }
  end, function(_, at)
    local own = {}
    for d = 1, #shape do own[d] = at[d] + starts[d] end
    return 1, number_at(own, shape)
  end)
end

local function put_floats(mesh, names, shape)
  local s = some_sharding(mesh, names, shape)
  return shardrt.device_put(shardrt.ndarray.zeros(shape, "float32"), s), s
end

-- The axes that cut all dimensions but one, and how many cut that one.
local function free(s, but)
  local spec, axes = tostring(s.spec):match "%((.*)%)", {}
  local d, within, others = 1, false, 0
  for char in spec:gmatch "[abc{},]" do
    if char == "{" or char == "}" then
      within = char == "{"
    elseif char == "," then
      d = within and d or d + 1
    elseif d == but then
      others = others + 1
    else
      axes[#axes + 1] = char
    end
  end
  return axes, others
end

-- dot moves what matmul moves where both are the same, and nothing where each device has all that it needs.
local function multiply(mesh, names)
  local inner, a, b = 8, {}, {}
  for d = 1, math.random(0, 2) do a[d] = pick { 4, 8 } end
  for d = 1, math.random(1, 3) do b[d] = pick { 4, 8 } end
  a[#a + 1], b[math.max(1, #b - 1)] = inner, inner
  local x, x_lies = put_floats(mesh, names, a)
  local y, y_lies = put_floats(mesh, names, b)
  local name = ("dot %s %s by %s %s"):format(table.concat(a, ","), tostring(x_lies.spec), table.concat(b, ","),
    tostring(y_lies.spec))
  local out, bytes = explained(function() return np.dot(x, y) end)
  local rows, left = free(x_lies, #a)
  local columns, right = free(y_lies, math.max(1, #b - 1))
  local used, contradict = {}, false
  for _, list in ipairs { rows, columns } do
    for _, axis in ipairs(list) do
      contradict = contradict or used[axis]
      used[axis] = true
    end
  end
  if left + right == 0 and not contradict and bytes ~= 0 then wrong("%s: %s bytes were moved", name, bytes) end
  if #a > 1 and #b > 2 then return end
  local other, others = explained(function() return np.matmul(x, y) end)
  if others ~= bytes then wrong("%s: %s bytes were moved, by matmul %s", name, bytes, others) end
  if tostring(out.sharding.spec) ~= tostring(other.sharding.spec) then
    wrong("%s: it lies on %s, matmul's on %s", name, tostring(out.sharding.spec), tostring(other.sharding.spec))
  end
end

local count = tonumber(arg[2])
for _ = 1, count do
  local sizes, shape = pick(MESHES), {}
  local names = { unpack(NAMES, 1, #sizes) }
  local mesh = shardrt.Mesh(sizes, names, math.random() < 0.5 and ids or shuffled(ids))
  for d = 1, math.random(1, 2) do shape[d] = pick { 4, 8, 12, 16, 24 } end
  pick { join, cut, part, multiply }(mesh, names, shape, math.random(#shape))
end
shardrt.say("looked at %d", count)

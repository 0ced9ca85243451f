-- A recipe for result_layout_spec: every line of tests/golden/layouts.txt, on any topology of 8 devices. Prints what is
-- wrong, and of each word how many lines were looked at and how many of them have operands that contradict each other.

package.path = "./?.lua;" .. package.path
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P = shardrt.P

local WORDS = { "concatenate", "stack", "split", "slice", "dot", "matmul" }

local meshes = {}
local function mesh_of(name)
  if not meshes[name] then
    local sizes, names = {}, {}
    for n in name:gmatch "%d+" do
      sizes[#sizes + 1] = tonumber(n)
      names[#names + 1] = ("abc"):sub(#sizes, #sizes)
    end
    meshes[name] = shardrt.make_mesh(sizes, names)
  end
  return meshes[name]
end

-- "8,16:ab|-" as its shape and, of each dimension, the axes as one word.
local function read(text)
  local array = { shape = {}, cuts = {} }
  local shape, cuts = text:match "^(.*):(.*)$"
  for n in shape:gmatch "%d+" do array.shape[#array.shape + 1] = tonumber(n) end
  for axes in cuts:gmatch "[^|]+" do array.cuts[#array.cuts + 1] = axes == "-" and "" or axes end
  return array
end

local function text_of(shape, cuts)
  local words = {}
  for d, axes in ipairs(cuts) do words[d] = axes == "" and "-" or axes end
  return table.concat(shape, ",") .. ":" .. table.concat(words, "|")
end

-- Of each dimension of an array the axes as one word, from P({"a", "b"}, nil).
local function lies(x)
  local cuts, d, within = {}, 1, false
  for e = 1, x.ndim do cuts[e] = "" end
  for char in tostring(x.sharding.spec):match("%((.*)%)"):gmatch "[abc{},]" do
    if char == "," then
      d = within and d or d + 1
    elseif char == "{" or char == "}" then
      within = char == "{"
    else
      cuts[d] = cuts[d] .. char
    end
  end
  return cuts
end

local function is_beginning(a, b) return b:sub(1, #a) == a end

local function used_once(cuts)
  local used = {}
  for axis in table.concat(cuts):gmatch "." do
    if used[axis] then return false end
    used[axis] = true
  end
  return true
end

-- Whether each dimension's axes are the beginning of the other's, or the other way round, and no axis then cuts two.
local function contradict(all)
  local made = { unpack(all[1]) }
  for _, cuts in ipairs(all) do
    for d, axes in ipairs(cuts) do
      if is_beginning(made[d], axes) then
        made[d] = axes
      elseif not is_beginning(axes, made[d]) then
        return true
      end
    end
  end
  return not used_once(made)
end

-- The cuts of a product's dimensions as the operands have them, batch dimensions of a matmul together.
local function product_contradicts(word, a, b)
  local all = {}
  local function free(array, contracted) -- the axes of its dimensions but one
    local made = {}
    for d, axes in ipairs(array.cuts) do
      if d ~= contracted then made[#made + 1] = axes end
    end
    return made
  end
  local left, right = free(a, #a.shape), free(b, math.max(1, #b.shape - 1))
  if word == "matmul" and #a.shape == 3 and #b.shape == 3 then
    if contradict { { left[1] }, { right[1] } } then return true end
    local batch = #left[1] > #right[1] and left[1] or right[1]
    all = { batch, left[2], right[2] }
  else
    for _, list in ipairs { left, right } do
      for _, axes in ipairs(list) do all[#all + 1] = axes end
    end
  end
  return not used_once(all)
end

local function host_of(shape, first)
  local h = shardrt.ndarray.empty(shape, "float32")
  for i = 0, h.size - 1 do h.data[i] = (i * 7 + first) % 31 - 15 end
  return h
end

-- The word called on these arrays; a list of results.
local function call(word, how, xs)
  local axis, kind, numbers = how:match "^(%d*)([/@]?)(.*)$"
  axis = tonumber(axis)
  local at = {}
  for n in numbers:gmatch "-?%d+" do at[#at + 1] = tonumber(n) end
  if word == "split" then return np.split(xs[1], kind == "/" and at[1] or at, axis) end
  if word == "slice" then
    local index, start, stop, step = {}, at[1], at[2], at[3]
    for d = 1, axis do index[d] = {} end
    index[axis + 1] = step > 0 and { start, stop, step }
      or { stop - 1, start > 0 and start - 1 or -xs[1].shape[axis + 1] - 1, step }
    return { np.slice(xs[1], index) }
  end
  if word == "concatenate" or word == "stack" then return { np[word](xs, axis) } end
  return { np[word](xs[1], xs[2]) }
end

local counts = {}
for _, word in ipairs(WORDS) do counts[word] = { looked = 0, contradict = 0 } end

local function equal(a, b)
  for i = 0, a.size - 1 do
    if a.data[i] ~= b.data[i] then return false end
  end
  return a.size == b.size
end

local function try(line, word, name, how, arrays, rights)
  local mesh, placed, plain, all = mesh_of(name), {}, {}, {}
  for i, array in ipairs(arrays) do
    local entries = {}
    for d, axes in ipairs(array.cuts) do
      local list = {}
      for axis in axes:gmatch "." do list[#list + 1] = axis end
      entries[d] = #list > 0 and list or nil
    end
    plain[i], all[i] = host_of(array.shape, i), array.cuts
    placed[i] = shardrt.device_put(plain[i], shardrt.NamedSharding(mesh, P(unpack(entries, 1, #array.shape))))
  end
  local product = word == "dot" or word == "matmul"
  local open = product and product_contradicts(word, arrays[1], arrays[2]) or not product and contradict(all)
  counts[word].looked, counts[word].contradict = counts[word].looked + 1, counts[word].contradict + (open and 1 or 0)
  local results, values = call(word, how, placed), call(word, how, plain)
  for i, right in ipairs(rights) do
    local found = text_of(results[i].shape, lies(results[i]))
    local free = open or word == "slice" and tonumber(how:match "[^,]+$") < 0 -- backwards: it is whole there
    if found ~= right and not free then print(("%s\n  result %d is %s"):format(line, i, found)) end
    if not equal(shardrt.process_allgather(results[i]), shardrt.device_get(values[i])) then
      print(("%s\n  result %d has other values"):format(line, i))
    end
  end
end

for line in io.lines "tests/golden/layouts.txt" do
  local word, name, how, rest = line:match "^(%S+) (%S+) (%S+) (.*)$"
  local arrays, rights, after = {}, {}, false
  for text in rest:gmatch "%S+" do
    if text == "=" then
      after = true
    elseif after then
      rights[#rights + 1] = text
    else
      arrays[#arrays + 1] = read(text)
    end
  end
  try(line, word, name, how, arrays, rights)
end
for _, word in ipairs(WORDS) do
  shardrt.say("%s: %d lines, %d of them with operands that contradict each other", word, counts[word].looked,
    counts[word].contradict)
end

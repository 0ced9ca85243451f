-- Runs programs that tests/fuzz_jax/generate.py wrote, and says where one first gives something else than JAX. A whole
-- program runs before anything is looked at, so that words are put off and their memory is reused, as in a recipe.

local cjson = require "cjson"
local golden = require "tests.support.golden"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"

local programs = {}

local rooms = { np = np, random = shardrt.random, shardrt = shardrt }

local function word_of(name)
  local room, word = name:match "^(%w+)%.([%w_]+)$"
  return rooms[room][word]
end

local function sharding_of(mesh, spec)
  local made = {}
  for i, entry in ipairs(spec) do
    if entry ~= cjson.null then made[i] = entry end
  end
  return shardrt.NamedSharding(mesh, shardrt.P(unpack(made, 1, #spec)))
end

-- ---- as text ----

local function spec_text(spec)
  local parts = {}
  for i, entry in ipairs(spec) do
    if entry == cjson.null then
      parts[i] = "nil"
    elseif type(entry) == "table" then
      parts[i] = '{ "' .. table.concat(entry, '", "') .. '" }'
    else
      parts[i] = '"' .. entry .. '"'
    end
  end
  return "P(" .. table.concat(parts, ", ") .. ")"
end

local function text_of(given)
  if type(given) == "string" then return '"' .. given .. '"' end
  if given == cjson.null then return "nil" end
  if type(given) ~= "table" then return tostring(given) end
  if given.value then return "v" .. given.value end
  if given.number then return given.number end
  if given.key then
    local text = ("random.key(%d)"):format(given.key)
    for _, step in ipairs(given.path or {}) do
      text = step[1] == "split" and ("random.split(%s, %d)[%d]"):format(text, step[2], step[3] + 1)
        or ("random.fold_in(%s, %d)"):format(text, step[2])
    end
    return text
  end
  if given.sharding then return ("NamedSharding(mesh, %s)"):format(spec_text(given.sharding)) end
  local parts = {}
  for key, each in pairs(given.table or given) do
    parts[#parts + 1] = (given.table and key .. " = " or "") .. text_of(each)
  end
  return #parts == 0 and "{}" or "{ " .. table.concat(parts, ", ") .. " }"
end

local function line_text(line, first)
  if line.input then
    return ("v%d = %s{%s} %s"):format(first, line.input[1], table.concat(line.input[2], ", "),
      line.spec and "on " .. spec_text(line.spec) or line.host and "a host array" or "not placed")
  end
  if line.gradient then
    return ("the gradients of v%d to v%s"):format(line.gradient, table.concat(line.to, ", v"))
  end
  local names, args = {}, {}
  for i = 1, #line.gives do names[i] = "v" .. first + i - 1 end
  for i, given in ipairs(line.args) do args[i] = text_of(given) end
  return ("%s = %s(%s)"):format(table.concat(names, ", "), line.word, table.concat(args, ", "))
end

--- A program as a recipe would have it, up to one of its lines.
---@param program table
---@param last integer?
---@return string
function programs.text(program, last)
  local texts, first = {}, 1
  for i, line in ipairs(program.lines) do
    if i > (last or #program.lines) then break end
    texts[i] = ("  %2d  %s"):format(i, line_text(line, first))
    first = first + (line.input and 1 or #line.gives)
  end
  return table.concat(texts, "\n")
end

-- ---- as it runs ----

local function key_of(given)
  local random = shardrt.random
  local key = random.key(given.key)
  for _, step in ipairs(given.path or {}) do
    key = step[1] == "split" and random.split(key, step[2])[step[3] + 1] or random.fold_in(key, step[2])
  end
  return key
end

local function argument(given, mesh, values)
  if given == cjson.null then return nil end
  if type(given) ~= "table" then return given end
  if given.value then return values[given.value] end
  if given.number then return tonumber(given.number) end
  if given.key then return key_of(given) end
  if given.sharding then return sharding_of(mesh, given.sharding) end
  local made = {}
  for key, each in pairs(given.table or given) do made[key] = argument(each, mesh, values) end
  return made
end

-- Calls a word; a list of results, too, becomes several, and a boolean of Lua's an array.
local function called(line, mesh, values)
  local args = {}
  for i, given in ipairs(line.args) do args[i] = argument(given, mesh, values) end
  local made = { word_of(line.word)(unpack(args, 1, #line.args)) }
  if #line.gives > 1 and #made == 1 then return { unpack(made[1], 1, #made[1]) } end
  if type(made[1]) == "boolean" then made[1] = np.array(made[1]) end
  return made
end

-- The lines again, as a function of some of its inputs.
local function gradients(program, line, mesh, inputs)
  local params = {}
  for k, number in ipairs(line.to) do params[k] = inputs[number] end
  return shardrt.grad(function(given)
    local values, at = {}, {}
    for k, number in ipairs(line.to) do at[number] = given[k] end
    for _, other in ipairs(program.lines) do
      if other.input then
        values[#values + 1] = at[#values + 1] or inputs[#values + 1]
      elseif other.word then
        for _, x in ipairs(called(other, mesh, values)) do values[#values + 1] = x end
      end
      if values[line.gradient] then break end
    end
    return golden.weighted(values[line.gradient])
  end)(params)
end

-- The element at which a shard is not what JAX has there, and both; nil: it is.
local function difference(shard, right, sizes, near)
  local got = shard.data:reshape({ shard.data.size }):to_table()
  local ndim = #sizes
  local at = {}
  for i = 1, ndim do at[i] = shard.index[i][1] end
  for _, value in ipairs(got) do
    local k = 0
    for i = 1, ndim do k = k * sizes[i] + at[i] end
    local wanted = right[k + 1]
    if value ~= wanted and not (value ~= value and wanted ~= wanted) then
      local is_near = near > 0 and math.abs(value - wanted) <= near
      if not is_near then return k, value, wanted end
    end
    for i = ndim, 1, -1 do
      at[i] = at[i] + 1
      if at[i] < shard.index[i][2] then break end
      at[i] = shard.index[i][1]
    end
  end
end

-- What is wrong with a result; nil: nothing.
local function wrong(got, shards, given, near, index)
  if got.dtype ~= given[1] then return ("it is %s, not %s"):format(got.dtype, given[1]) end
  if table.concat(got.shape, ", ") ~= table.concat(given[2], ", ") then
    return ("its shape is %s, not {%s}"):format(tostring(got.shape), table.concat(given[2], ", "))
  end
  for _, shard in ipairs(shards) do
    local box = index and index[shard.device.id + 1]
    for i, range in ipairs(box or {}) do
      if shard.index[i][1] ~= range[1] or shard.index[i][2] ~= range[2] then
        return ("device %d has %d to %d of dimension %d, not %d to %d"):format(shard.device.id, shard.index[i][1],
          shard.index[i][2], i - 1, range[1], range[2])
      end
    end
  end
  if got.size == 0 then return nil end
  local host = golden.array(given)
  local right = host:reshape({ host.size }):to_table()
  for _, shard in ipairs(shards) do
    local k, value, wanted = difference(shard, right, given[2], near)
    if k then
      return ("element %d on device %d is %s, not %s%s"):format(k, shard.device.id,
        type(value) == "number" and ("%.9g"):format(value) or tostring(value),
        type(wanted) == "number" and ("%.9g"):format(wanted) or tostring(wanted),
        near > 0 and (" within %g"):format(near) or "")
    end
  end
end

--- Runs a program; the text of its first difference from JAX, or nil, and how many results were compared. All processes
--- call it alike.
---@param program table
---@return string?
---@return integer
function programs.check(program)
  local mesh = shardrt.make_mesh(program.mesh[1], program.mesh[2])
  local values, made, failed = {}, {}, nil
  for i, line in ipairs(program.lines) do
    local good, result = pcall(function()
      if line.input then
        local host = golden.array(line.input)
        if line.host then return { host } end
        return { line.spec and shardrt.device_put(host, sharding_of(mesh, line.spec)) or np.array(host) }
      end
      if line.gradient then return gradients(program, line, mesh, values) end
      return called(line, mesh, values)
    end)
    if good and not line.input and #result ~= #line.gives then
      good, result = false, ("it gives %d values, not %d"):format(#result, #line.gives)
    end
    if not good then
      failed = { i, "it fails: " .. tostring(result) }
      break
    end
    made[i] = result
    for _, x in ipairs(line.gradient and {} or result) do values[#values + 1] = x end
  end
  -- Every process looks at everything: sums may be added up where one looks.
  local shards = {}
  for i = 1, #made do
    shards[i] = {}
    for k, x in ipairs(program.lines[i].gives and made[i] or {}) do shards[i][k] = x.addressable_shards end
  end
  local compared = 0
  local function said(i, text)
    return ("program %d, line %d: %s\n  mesh {%s} of %s\n%s"):format(program.seed, i, text,
      table.concat(program.mesh[1], ", "), table.concat(program.mesh[2], ", "), programs.text(program, i))
  end
  for i = 1, #made do
    local line = program.lines[i]
    for k, given in ipairs(line.gives or {}) do
      local text = wrong(made[i][k], shards[i][k], given, line.near and line.near[k] or 0, line.index)
      if text then return said(i, text), compared end
      compared = compared + 1
    end
  end
  if failed then return said(failed[1], failed[2]), compared end
  return nil, compared
end

-- ---- as a function that is recorded ----

-- The inputs of a program, in their order; `turned`: with their elements in another order. `shardings`: by lines.
local function inputs_of(program, mesh, turned, shardings)
  local inputs = {}
  for number, line in ipairs(program.lines) do
    if line.input then
      shardings[number] = shardings[number] or line.spec and sharding_of(mesh, line.spec)
      local host = golden.array(line.input)
      for i = 0, turned and math.floor(host.size / 2) - 1 or -1 do
        local k = host.size - 1 - i
        host.data[i], host.data[k] = host.data[k], host.data[i]
      end
      inputs[#inputs + 1] = line.host and host
        or line.spec and shardrt.device_put(host, shardings[number]) or np.array(host)
    end
  end
  return inputs
end

-- All that a program's lines give.
local function results_of(program, mesh, inputs)
  local values, results, at = {}, {}, 0
  for _, line in ipairs(program.lines) do
    if line.input then
      at = at + 1
      values[#values + 1] = inputs[at]
    else
      local made = line.gradient and gradients(program, line, mesh, values) or called(line, mesh, values)
      for _, x in ipairs(made) do
        results[#results + 1] = x
        if not line.gradient then values[#values + 1] = x end
      end
    end
  end
  return results
end

local function text_of_array(x)
  local host, words = shardrt.process_allgather(x), { x.dtype, tostring(x.shape), tostring(x.sharding) }
  for _, value in ipairs(host:reshape({ host.size }):to_table()) do
    words[#words + 1] = type(value) == "number" and (value ~= value and "nan" or ("%a"):format(value))
      or tostring(value)
  end
  return table.concat(words, " ")
end

--- Runs every program of a file as a function that shardrt.jit records, for its own inputs and for others, twice each:
--- how many there were, and the texts of what is not what the function gives without it. A program that looks at
--- elements, as np.allclose does, is refused.
---@param path string
---@return integer
---@return string[]
function programs.run_recorded(path)
  local count, texts = 0, {}
  for text in io.lines(path) do
    local program = cjson.decode(text)
    local mesh, shardings = shardrt.make_mesh(program.mesh[1], program.mesh[2]), {}
    local jitted = shardrt.jit(function(...) return results_of(program, mesh, { ... }) end)
    local function said(what)
      texts[#texts + 1] = ("program %d: %s\n  mesh {%s} of %s\n%s"):format(program.seed, what,
        table.concat(program.mesh[1], ", "), table.concat(program.mesh[2], ", "), programs.text(program))
    end
    for call = 1, 4 do
      local inputs = inputs_of(program, mesh, call % 2 == 0, shardings)
      local good, right = pcall(results_of, program, mesh, inputs)
      local ran, made = pcall(jitted, unpack(inputs))
      if good and not ran and not made:find("looks at an array's elements", 1, true) then said(made) end
      if not good and ran then said("it does not fail: " .. right) end
      for k, x in ipairs(good and ran and right or {}) do
        local wanted, got = text_of_array(x), text_of_array(made[k])
        if wanted ~= got then said(("call %d, result %d: %s is not %s"):format(call, k, got, wanted)) end
      end
    end
    count = count + 1
    if count % 20 == 0 then collectgarbage() end
  end
  return count, texts
end

--- Runs every program of a file: how many there were, how many results were compared, and the texts of what differs.
---@param path string
---@return integer
---@return integer
---@return string[]
function programs.run(path)
  local count, compared, texts = 0, 0, {}
  for text in io.lines(path) do
    local said, results = programs.check(cjson.decode(text))
    count, compared = count + 1, compared + results
    texts[#texts + 1] = said
    if count % 20 == 0 then collectgarbage() end
  end
  return count, compared, texts
end

return programs

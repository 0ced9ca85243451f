-- Cases of tests/golden/words.json, which JAX answered: each on arrays that lie at random in some mesh.

local cases = require "tests.support.ops.numpy_cases"
local cjson = require "cjson"
local golden = require "tests.support.golden"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"

local jax_words = {}

-- Within this of the larger of two numbers, or of 1.
local TOLERANCE = { float16 = 2e-3, bfloat16 = 1.6e-2, float32 = 5e-6, float64 = 1e-13 }

-- What has no word of shardrt.numpy's own, and the words.
local calls = setmetatable({}, { __index = np })

local function trained(optimizer, params, ...)
  local state = optimizer:init(params)
  for _, gradient in ipairs { ... } do params, state = optimizer:update(params, gradient, state) end
  return params
end

function calls.adamw(options, ...) return trained(shardrt.optimizer.adamw(options), ...) end
for _, name in ipairs { "sgd", "momentum", "adam" } do
  calls[name .. "_linear"] = function(options, ...)
    return trained(shardrt.optimizer[name] { learning_rate = shardrt.schedule.linear(options) }, ...)
  end
end

local function at_steps(schedule)
  local values = {}
  for i = 1, 10 do values[i] = schedule(3 * i - 3) end
  return np.array(values)
end

function calls.schedule(name, options) return at_steps(shardrt.schedule[name](options)) end

function calls.schedule_join(linear, cosine, boundaries)
  local schedule = shardrt.schedule
  return at_steps(schedule.join { schedules = { schedule.linear(linear), schedule.cosine(cosine) },
    boundaries = boundaries })
end

function calls.clip_by_global_norm(x, y, max)
  local made = shardrt.optimizer.clip_by_global_norm({ x = x, deep = { y } }, max)
  return made.x, made.deep[1]
end

function calls.choice(seed, ...) return shardrt.random.choice(shardrt.random.key(seed), ...) end
function calls.categorical(seed, ...) return shardrt.random.categorical(shardrt.random.key(seed), ...) end

local function is_host(given) return type(given[3]) == "string" and type(given[2]) == "table" end

-- An argument, each array in it placed at random; `arrays` becomes a list of where they stand: {table, key}.
local function argument(given, mesh, arrays, into, key)
  if given == cjson.null then
    into[key] = nil
  elseif type(given) ~= "table" then
    into[key] = given
  elseif given.number then
    into[key] = tonumber(given.number)
  elseif is_host(given) then
    local host = golden.array(given)
    local free = math.random() < 0.15
    into[key] = free and np.array(host) or shardrt.device_put(host, cases.sharding_of(mesh, host.shape))
    arrays[#arrays + 1] = { into, key }
  else
    into[key] = {}
    for k, each in pairs(given.table or given) do argument(each, mesh, arrays, into[key], k) end
  end
end

local function gradients(case, args, count, arrays)
  local params = {}
  for k, i in ipairs(case.grad) do params[k] = arrays[i][1][arrays[i][2]] end
  return shardrt.grad(function(given)
    for k, i in ipairs(case.grad) do arrays[i][1][arrays[i][2]] = given[k] end
    local sum
    for _, x in ipairs { calls[case.word](unpack(args, 1, count)) } do
      if x.dtype:find "float" then
        local part = golden.weighted(x)
        sum = sum and sum + part or part
      end
    end
    return sum
  end)(params)
end

local function near(got, right, tolerance)
  if got == right or got ~= got and right ~= right then return true end
  if not tolerance then return false end
  return math.abs(got - right) <= tolerance * math.max(math.abs(got), math.abs(right), 1)
end

-- What is wrong with a result, on each of this process's devices; nil: nothing.
local function wrong(case, got, given)
  local right = golden.array(given)
  if type(got) == "boolean" then return got ~= right:item() and ("it is %s"):format(tostring(got)) or nil end
  if got.dtype ~= right.dtype then return ("it is %s, not %s"):format(got.dtype, right.dtype) end
  if got.shape ~= right.shape then return ("its shape is %s, not %s"):format(tostring(got.shape), tostring(right.shape))
  end
  local x = shardrt.process_allgather(got)
  if x.size == 0 then return nil end
  local a, b = x:reshape({ x.size }):to_table(), right:reshape({ right.size }):to_table()
  local tolerance = TOLERANCE[right.dtype]
  for i, value in ipairs(b) do
    if not near(a[i], value, tolerance and tolerance * (case.loose or 1) * (case.grad and 4 or 1)) then
      return ("element %d is %s, not %s"):format(i - 1, tostring(a[i]), tostring(value))
    end
  end
end

local function problem(case, mesh)
  local args, arrays, texts = {}, {}, {}
  for i, given in ipairs(case.args) do argument(given, mesh, arrays, args, i) end
  for i, place in ipairs(arrays) do
    local x = place[1][place[2]]
    texts[i] = x.dtype .. tostring(x.shape) .. (x.committed and tostring(x.sharding.spec) or " not placed")
  end
  local count = #case.args
  local good, text = pcall(function()
    local results = case.grad and gradients(case, args, count, arrays) or { calls[case.word](unpack(args, 1, count)) }
    if #results ~= #case.gives then return ("it gives %d values, not %d"):format(#results, #case.gives) end
    for k, given in ipairs(case.gives) do
      local said = wrong(case, results[k], given)
      if said then return ("value %d: %s"):format(k, said) end
    end
  end)
  return text and ("%s%s of %s: %s%s"):format(case.grad and "the gradient of " or "", case.word,
    table.concat(texts, ", "), good and "" or "it fails: ", tostring(text))
end

--- The words that have cases.
---@return table<string, true>
function jax_words.names()
  local names = {}
  for line in io.lines "tests/golden/words.json" do names[line:match '"word":"([%w_]+)"'] = true end
  return names
end

--- Looks at every `each`-th case, on meshes of three shapes in turn; returns how many, and what was wrong.
---@param seed integer
---@param each integer?
---@return integer
---@return string[]
function jax_words.run(seed, each)
  local texts, looked, number = {}, 0, 0
  local meshes = {}
  for i, sizes in ipairs { { 8 }, { 2, 4 }, { 4, 2 } } do
    meshes[i] = shardrt.make_mesh(sizes, { unpack({ "x", "y" }, 1, #sizes) })
  end
  math.randomseed(seed)
  for line in io.lines "tests/golden/words.json" do
    number = number + 1
    if (number + seed) % (each or 1) == 0 then
      local text = problem(cjson.decode(line), meshes[number % 3 + 1])
      looked = looked + 1
      if text then texts[#texts + 1] = ("case %d, seed %d: %s"):format(number, seed, text) end
    end
  end
  return looked, texts
end

return jax_words

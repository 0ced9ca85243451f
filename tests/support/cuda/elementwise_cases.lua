-- A recipe: elementwise programs over every operation, dtype and way to broadcast, and numbers that count, the same
-- ones wherever it runs with the same seed. What they give goes to a file, which tests/cuda/cuda_elementwise_spec.lua
-- compares with that of another platform.
--
--   build/shardrt --devices 2 tests/support/cuda/elementwise_cases.lua SEED RESULTS

package.path = (arg[0]:match "^(.*)/tests/" or ".") .. "/?.lua;" .. package.path
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local fail = require "shardrt.base.error"
local arrays = require "tests.support.arrays"
local P = arrays.P

math.randomseed(tonumber(arg[1]))
local random = math.random
local results = assert(io.open(arg[2], "wb"))

local ELEMENT = { bool = "uint8_t", int8 = "int8_t", int16 = "int16_t", int32 = "int32_t", int64 = "int64_t",
  uint8 = "uint8_t", uint16 = "uint16_t", uint32 = "uint32_t", uint64 = "uint64_t", float16 = "uint16_t",
  bfloat16 = "uint16_t", float32 = "float", float64 = "double" }
local DTYPES = { "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
  "bfloat16", "float32", "float64" }
local LANES = { "int32", "uint32", "int64", "uint64", "float32", "float64" }
local FLOATS_ONLY = { ATAN2 = true, RECIPROCAL = true, SQRT = true, RSQRT = true, EXP = true, EXPM1 = true, LOG = true,
  LOG1P = true, SIN = true, COS = true, TAN = true, TANH = true, LOGISTIC = true, ERF = true, FLOOR = true, CEIL = true,
  ROUND = true, ISNAN = true, ISFINITE = true }
-- In float64 these are the C library's on the host, CUDA's on a GPU.
local LIBRARY = { POW = true, ATAN2 = true, RSQRT = true, EXP = true, EXPM1 = true, LOG = true, LOG1P = true,
  SIN = true, COS = true, TAN = true, TANH = true, LOGISTIC = true, ERF = true }
local TRUTH = { EQ = true, NE = true, LT = true, LE = true, GT = true, GE = true, LOGICAL_AND = true, LOGICAL_OR = true,
  LOGICAL_NOT = true, ISNAN = true, ISFINITE = true }
local ARITY = { CONSTANT = 0, COPY = 1, SELECT = 3, NEG = 1, ABS = 1, SIGN = 1, SQUARE = 1, CUBE = 1,
  LOGICAL_NOT = 1, ATAN2 = 2 }
local OPS = {}
for code = 0, C.SHARDRT_OP_COUNT - 1 do
  local name = ffi.string(C.shardrt_op_name(code))
  OPS[#OPS + 1] = { name = name, operands = ARITY[name] or (FLOATS_ONLY[name] and 1) or 2 }
end

-- Sharded over two devices by rows, or held by both.
local OVER = { [true] = arrays.sharding({ 2 }, { "a" }, P "a"), [false] = arrays.sharding({ 2 }, { "a" }, P()) }

local function pick(list) return list[random(#list)] end
local function is_float(dtype) return dtype:find "float" ~= nil end
local function product(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

-- ---- operands ------------------------------------------------------------------------------------------------------

local SPECIAL = { 0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 1 / 0, -1 / 0, 0 / 0, 1e-40, -1e-45, 3.4e38, -3e7, 2 ^ 24, 88.7,
  -104, 65504, 65520, 2 ^ 31, -2 ^ 31, 2 ^ 63, 2 ^ -126, 1e300, 4e6 }
local function random_float()
  local kind = random(8)
  if kind == 1 then return pick(SPECIAL) end
  if kind == 2 then return random(-9, 9) end
  if kind == 3 then return (random() - 0.5) * 2 ^ random(-140, 127) end
  return (random() - 0.5) * 2 ^ random(-8, 8)
end

local function random_whole(bits)
  local kind = random(6)
  if kind == 1 then return bit.lshift(1LL, bits - 1) - random(0, 1) end
  if kind == 2 then return random(0, 2 ^ 31 - 1) * 4294967296LL + random(0, 2 ^ 31 - 1) end
  return ffi.cast("int64_t", random(-9, 9))
end

local function random_element(dtype)
  if dtype == "bool" then return random(0, 1) end
  if dtype == "float16" then return C.shardrt_float16_from_double(random_float()) end
  if dtype == "bfloat16" then return C.shardrt_bfloat16_from_double(random_float()) end
  if is_float(dtype) then return random_float() end
  return ffi.cast(ELEMENT[dtype], random_whole(8 * ffi.sizeof(ELEMENT[dtype])))
end

local function operand(dtype, shape, cut)
  local n = product(shape)
  local data = ffi.new(ELEMENT[dtype] .. "[?]", math.max(1, n))
  for i = 0, n - 1 do data[i] = random_element(dtype) end
  return arrays.global(OVER[cut], dtype, shape, data)
end

-- Shapes of results; the first dimension is a multiple of 2. Blocks of a kernel have 1,024 or 2,048 elements.
local SHAPES = { {}, { 0, 3 }, { 2 }, { 6 }, { 2, 1 }, { 2, 3 }, { 4, 8 }, { 2, 5, 7 }, { 4, 3, 4 }, { 2, 2, 3, 2, 5 },
  { 2, 1023 }, { 4, 1024 }, { 2, 2048 }, { 2, 2049 }, { 8, 129, 5 }, { 10, 12, 40 } }

-- One that broadcasts to `shape`: all of it, one element, an inner part, a column, or some dimensions of it.
local function broadcast(dtype, shape)
  local kind, own, cut = random(5), {}, #shape > 0
  if kind == 2 then own, cut = pick { {}, { 1 } }, false end
  for d = 1, #shape do
    if kind == 1 or (kind == 4 and d < #shape) or (kind == 5 and random(2) == 1) then own[d] = shape[d] end
    if kind == 3 and d > 1 then own[#own + 1] = shape[d] end
    if kind >= 4 then own[d] = own[d] or 1 end
  end
  return operand(dtype, own, cut and kind ~= 3 and own[1] == shape[1])
end

-- ---- programs -------------------------------------------------------------------------------------------------------

local function steps_of(list)
  local steps = ffi.new("shardrt_step[?]", #list)
  for i, step in ipairs(list) do
    steps[i - 1].op = C["SHARDRT_OP_" .. step[1]]
    steps[i - 1].a, steps[i - 1].b, steps[i - 1].c = step[2] or -1, step[3] or -1, step[4] or -1
    steps[i - 1].value = step.value or 0
  end
  return steps
end

-- Each result: a line of a label, the dtype, whether another library's functions may give other bits, and the bytes;
-- then these.
local function write(label, dtype, library, n, array)
  local bytes = n * ffi.sizeof(ELEMENT[dtype])
  local data = ffi.new("uint8_t[?]", math.max(1, bytes))
  fail.check(C.shardrt_array_gather(array, data))
  results:write(("%s\t%s\t%s\t%d\n"):format(label, dtype, library and "library" or "exact", bytes),
    ffi.string(data, bytes))
end

local function run(label, list, lane, operands, dtype, shape, library)
  local handles = ffi.new("shardrt_array *[?]", math.max(1, #operands), operands)
  local out = arrays.new(OVER[#shape > 0], dtype, shape)
  fail.check(C.shardrt_elementwise(steps_of(list), #list, C["SHARDRT_" .. lane:upper()], #operands, handles, out))
  write(("%s in %s {%s}"):format(label, lane, table.concat(shape, ",")), dtype, library, product(shape), out)
end

-- Of one operation: in the lane's own dtype, which has kernels of its own, or of any others.
local function single(op, lane, own)
  local shape = pick(SHAPES)
  local operands, list, registers = {}, {}, {}
  for _ = 1, op.operands do
    if random(5) > 1 then operands[#operands + 1] = broadcast(own and lane or pick(DTYPES), shape) end
  end
  for k = 1, op.operands do
    registers[k] = k - 1
    if k > #operands then
      list[#list + 1] = { "CONSTANT", value = is_float(lane) and random_float() or random(-9, 9) }
    end
  end
  list[#list + 1] = { op.name, unpack(registers) }
  list[#list].value = 2.5
  local dtype = not own and pick(DTYPES) or (TRUTH[op.name] and random(3) > 1) and "bool" or lane
  run(("%s %s"):format(op.name, own and "alone" or "converted"), list, lane, operands, dtype, shape,
    lane == "float64" and LIBRARY[op.name])
end

local function known(op, lane) return is_float(lane) or not FLOATS_ONLY[op.name] end

-- Many steps of all registers before them; `far` of 1: of the last few.
local function chain(lane, nin, nsteps, far)
  local shape = pick(SHAPES)
  local operands, list, library = {}, {}, false
  for k = 1, nin do operands[k] = broadcast(random(2) == 1 and lane or pick(DTYPES), shape) end
  while #list < nsteps do
    local op = pick(OPS)
    if known(op, lane) and not (nin + #list == 0 and op.operands > 0) then
      local registers, count = {}, nin + #list
      for k = 1, op.operands do registers[k] = math.max(0, count - 1 - math.floor(count * far * random() ^ 2 + 0.5)) end
      for k = 1, op.operands do registers[k] = math.max(0, math.min(count - 1, registers[k] - random(0, 1))) end
      list[#list + 1] = { op.name, unpack(registers) }
      list[#list].value = random(-4, 4)
      library = library or (lane == "float64" and LIBRARY[op.name])
    end
  end
  run(("%d operands, %d steps"):format(nin, nsteps), list, lane, operands, pick(DTYPES), shape, library)
end

-- Several results of some of the steps, which later ones take too. Each is one of a row of steps, so that none is a
-- constant alone.
local function several(lane, nresults)
  local shape, list, registers, dtypes = pick(SHAPES), {}, {}, {}
  local operands = { broadcast(lane, shape), broadcast(pick(DTYPES), shape), broadcast(lane, {}) }
  local outs, handles = {}, ffi.new("shardrt_array *[3]", operands)
  for k = 1, nresults do
    for _ = 1, random(1, 4) do
      list[#list + 1] = { pick { "ADD", "SUB", "MUL", "MAXIMUM" }, random(0, #list + 2), #list + 2 }
    end
    registers[k], dtypes[k] = #list + 2, pick { lane, pick(DTYPES) }
    outs[k] = arrays.new(OVER[#shape > 0], dtypes[k], shape)
  end
  fail.check(C.shardrt_elementwise_several(steps_of(list), #list, C["SHARDRT_" .. lane:upper()], #operands, handles,
    nresults, ffi.new("int32_t[?]", nresults, registers), ffi.new("shardrt_array *[?]", nresults, outs)))
  for k = 1, nresults do
    write(("result %d of %d in %s {%s}"):format(k, nresults, lane, table.concat(shape, ",")), dtypes[k], false,
      product(shape), outs[k])
  end
end

-- So many values at a time are needed, in a row.
local function wide(lane, nin, nvalues)
  local operands, list, shape = {}, {}, pick(SHAPES)
  for k = 1, nin do operands[k] = broadcast(lane, shape) end
  for i = 1, nvalues do list[i] = { pick { "ADD", "SUB", "MAXIMUM" }, random(0, nin - 1), nin + i - 2 } end
  list[1][3] = 0
  for i = 1, nvalues - 1 do
    list[#list + 1] = { pick { "ADD", "MUL", "MINIMUM" }, nin + #list - 1, nin + nvalues - 1 - i }
  end
  run(("%d operands, %d values at a time"):format(nin, nvalues), list, lane, operands, lane, shape, false)
end

local function count(dtype)
  local shape = pick(SHAPES)
  if #shape == 0 then return end
  local out = arrays.new(OVER[true], dtype, shape)
  fail.check(C.shardrt_iota(random(-100, 100), random(-8, 8) / 4, random(0, #shape - 1), out))
  write(("counting in %s {%s}"):format(dtype, table.concat(shape, ",")), dtype, false, product(shape), out)
end

for _, lane in ipairs(LANES) do
  for _, op in ipairs(OPS) do
    if known(op, lane) then
      for i = 1, 6 do single(op, lane, i % 2 == 0) end
    end
  end
  chain(lane, 0, 1, 1)
  for _ = 1, 6 do chain(lane, random(1, 4), random(2, 12), 0.1) end
  chain(lane, 3, 90, 0.05) -- as long as goes with a launch, and longer
  chain(lane, 2, 130, 0.02)
  chain(lane, 20, 30, 1)
  chain(lane, 56, 200, 1)
  for i = 1, 8 do several(lane, i % 3 + 1) end
  wide(lane, 2, 17)
  wide(lane, 3, 120)
end
for _, dtype in ipairs(DTYPES) do
  for _ = 1, dtype == "bool" and 0 or 5 do count(dtype) end
end
results:close()

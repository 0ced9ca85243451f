-- long: 20 s
-- Products of matrices and random numbers on devices with memory of their own (runtime/compute/matmul/product.c,
-- cublas.c, wrap.cu, random.cu), on the stand-ins of CUDA and cuBLAS, beside what the host computes: the same recipe on
-- both.

local mpi = require "tests.support.mpi"

local folder_of_program = mpi.program():match "^(.*)/[^/]*$" or "."
local plugin = os.getenv "SHARDRT_STANDIN" or folder_of_program .. "/standin/shardrt-cuda.so"

local seed = require "tests.support.seed"

-- What every recipe here begins with. `tell` prints a number made of each device's bytes.
local PRELUDE = ([[
package.path = "./?.lua;" .. package.path
local bit, ffi = require "bit", require "ffi"
local C, fail = require "shardrt.base.ffi", require "shardrt.base.error"
local current = require "shardrt.base.current"
local arrays = require "tests.support.arrays"
local P, random = arrays.P, math.random
math.randomseed(%d)
local function bytes_of(array, i)
  local out = ffi.new "void *[1]"
  fail.check(C.shardrt_buffer_host(C.shardrt_array_buffer(array, i), out))
  return ffi.cast("const uint8_t *", out[0]), tonumber(C.shardrt_array_shard_bytes(array))
end
local function tell(name, array)
  local words = {}
  for i = 0, tonumber(C.shardrt_array_shard_count(array)) - 1 do
    local data, n = bytes_of(array, i)
    words[#words + 1] = bit.tohex(tonumber(C.shardrt_fingerprint(data, n) %% 2 ^ 32))
  end
  print(name, table.concat(words, " "))
end
]]):format(seed % 2 ^ 31)

-- Runs a recipe on the host, or on stand-ins of so many GPUs.
local function run(source, o)
  o = o or {}
  local env = { SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = o.gpus or 4, STANDIN_SEED = seed % 1000 + 1 }
  for name, value in pairs(o.env or {}) do env[name] = value end
  local result = mpi.run {
    source = PRELUDE .. source, devices = o.devices or 8, env = env, limit = 300,
    options = { "--platform", o.gpus and "cuda" or "host" },
  }
  if not o.fails then assert.equal(0, result.status, result.output) end
  return result
end

-- The same words of the recipe on every platform, line by line.
local function same_everywhere(source, platforms)
  local expected = run(source).stdout
  assert.truthy(expected:find "\n", expected)
  for _, o in ipairs(platforms) do
    local line, found = 0, run(source, o).stdout:gmatch "[^\n]+"
    for wanted in expected:gmatch "[^\n]+" do
      line = line + 1
      assert.equal(wanted, found(), ("line %d on %d GPUs"):format(line, o.gpus))
    end
    assert.is_nil(found())
  end
end

local EVERYWHERE = {
  { gpus = 1 }, { gpus = 4, env = { STANDIN_LINKS = "nvlink" } }, { gpus = 3, env = { STANDIN_LINKS = "0-1:pcie" } },
  { gpus = 8, env = { STANDIN_LINKS = "none" } },
}

-- Operands of small whole numbers, of which every dtype gives the same sum in any order, and products of them: `case`
-- is {dtype=, out=, m=, n=, k= (of a shard), batch= {{size, of a, of b}, …}, ta=, tb=, layout= (of LAYOUTS)}.
local PRODUCTS = [[
local function half(x)
  if x == 0 then return 0 end
  local size = math.abs(x)
  local e = math.floor(math.log(size) / math.log(2) + 1e-9)
  return (x < 0 and 0x8000 or 0) + (e + 15) * 1024 + (size / 2 ^ e - 1) * 1024
end
local float = ffi.new "union { float x; uint32_t bits; }"
local function brain(x)
  float.x = x
  return bit.rshift(float.bits, 16)
end
local TYPES = {
  int8 = "int8_t", uint8 = "uint8_t", int16 = "int16_t", uint16 = "uint16_t", int32 = "int32_t", uint32 = "uint32_t",
  int64 = "int64_t", uint64 = "uint64_t", float16 = "uint16_t", bfloat16 = "uint16_t", float32 = "float",
  float64 = "double",
}
local DTYPES = {}
for name in pairs(TYPES) do DTYPES[#DTYPES + 1] = name end
table.sort(DTYPES)
local function values(dtype, n)
  local data = ffi.new(TYPES[dtype] .. "[?]", math.max(n, 1))
  local whole = not dtype:find "float"
  for i = 0, n - 1 do
    local x = whole and random(-2 ^ 31, 2 ^ 31 - 1) or random(-4, 4)
    data[i] = dtype == "float16" and half(x) or dtype == "bfloat16" and brain(x)
      or dtype:find "64" and whole and ffi.cast("int64_t", x) * 77777777777LL or whole and bit.tobit(x) or x
  end
  return data
end
-- What of M, N and K is cut over how many devices of {2, 4}, as axes; the rest is a sum's parts or replicas.
local LAYOUTS = {
  { name = "replicas" }, { name = "rows", m = "a" }, { name = "a grid", m = "a", n = "b" },
  { name = "four parts", k = "b" }, { name = "eight parts", k = { "a", "b" } },
  { name = "parts of rows", m = "a", k = "b" }, { name = "parts of columns", n = "b", k = "a" },
}
local alone = current.info.devices_per_process == 1
local SIZES = alone and { a = 1, b = 1 } or { a = 2, b = 4 }
local function cut(axes)
  local n = 1
  for _, axis in ipairs(type(axes) == "table" and axes or { axes }) do n = n * SIZES[axis] end
  return n
end
local function matrix(case, of, rows, columns, row_axes, column_axes, transposed, dtype, data)
  local shape = {}
  for d, sizes in ipairs(case.batch) do shape[d] = sizes[of] end
  local n = #shape
  if transposed then rows, columns, row_axes, column_axes = columns, rows, column_axes, row_axes end
  shape[n + 1], shape[n + 2] = rows, columns
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  local entries = {}
  for d = 1, n do entries[d] = false end
  entries[n + 1], entries[n + 2] = row_axes or false, column_axes or false
  for d, entry in ipairs(entries) do if not entry then entries[d] = nil end end
  local over = arrays.sharding({ SIZES.a, SIZES.b }, { "a", "b" }, P(unpack(entries, 1, n + 2)))
  if not data then return arrays.new(over, dtype, shape) end
  return arrays.global(over, dtype, shape, values(dtype, count))
end
local function multiply(case)
  local l = case.layout
  local m, n, k = case.m * cut(l.m), case.n * cut(l.n), case.k * cut(l.k)
  local a = matrix(case, 2, m, k, l.m, l.k, case.ta, case.dtype, true)
  local b = matrix(case, 3, k, n, l.k, l.n, case.tb, case.dtype, true)
  local out = matrix(case, 1, m, n, l.m, l.n, false, case.out or case.dtype)
  fail.check(C.shardrt_matmul(a, b, case.ta and 1 or 0, case.tb and 1 or 0, 0, out))
  local batch = {}
  for d, sizes in ipairs(case.batch) do batch[d] = table.concat(sizes, "/") end
  tell(("%s %s->%s [%s] %dx%dx%d %s%s"):format(l.name, case.dtype, case.out or case.dtype, table.concat(batch, " "),
    m, k, n, case.ta and "T" or "-", case.tb and "T" or "-"), out)
  return out
end
local function some_case()
  local dtype = DTYPES[random(#DTYPES)]
  local case = { dtype = dtype, layout = LAYOUTS[random(#LAYOUTS)], batch = {} }
  case.ta, case.tb = random(2) == 1, random(2) == 1
  if (dtype == "float16" or dtype == "bfloat16") and random(2) == 1 then case.out = "float32" end
  local function size() return random(12) == 1 and 0 or random(3) == 1 and 1 or random(2, 20) end
  case.m, case.n, case.k = size(), size(), random(4) == 1 and size() or random(70)
  for d = 1, random(0, 3) do
    local full, one = random(20) == 1 and 0 or random(3), random(3)
    case.batch[d] = { full, one == 1 and 1 or full, one == 2 and 1 or full }
  end
  return case
end
]]

describe("a product on devices with memory of their own", function()
  it("has the host's bits, whole numbers and floats, wherever the sum is exact", function()
    same_everywhere(PRODUCTS .. [[
for _ = 1, 60 do multiply(some_case()) end
for _, dtype in ipairs(DTYPES) do
  for _, layout in ipairs(LAYOUTS) do
    multiply { dtype = dtype, layout = layout, m = 5, n = 7, k = 9, batch = {} }
  end
end
for _, batch in ipairs { { { 3, 3, 3 } }, { { 3, 3, 1 } }, { { 3, 1, 3 } }, { { 2, 2, 1 }, { 3, 3, 3 } },
  { { 2, 2, 2 }, { 3, 3, 1 } }, { { 2, 1, 2 }, { 3, 3, 1 } } } do
  for number = 0, 3 do
    local case = { layout = LAYOUTS[1], m = 5, n = 7, k = 9, batch = batch, ta = number % 2 == 1, tb = number > 1 }
    for _, dtype in ipairs { "float32", "int16" } do
      case.dtype = dtype
      multiply(case)
    end
  end
end
]], EVERYWHERE)
  end)

  it("of parts that are worth it is added up in slices", function()
    same_everywhere(PRODUCTS .. [[
for _, case in ipairs {
  { "float32", 601, 437 }, { "float16", 521, 511 }, { "int8", 1031, 1030 }, { "float64", 131072, 1 },
} do
  multiply { dtype = case[1], layout = LAYOUTS[5], m = case[2], n = case[3], k = 2, batch = {} }
end
multiply { dtype = "bfloat16", out = "float32", layout = LAYOUTS[6], m = 513, n = 514, k = 2, batch = {} }
]], { { gpus = 4 }, { gpus = 8, env = { STANDIN_LINKS = "none" } } })
  end)

  it("is within rounding of the host's", function()
    local source = [[
local function normals(n)
  local data = ffi.new("float[?]", n)
  for i = 0, n - 1 do
    data[i] = math.sqrt(-2 * math.log(1 - random())) * math.cos(2 * math.pi * random())
  end
  return data
end
for _, spec in ipairs { { P(), P() }, { P(nil, "a"), P("a") } } do
  local function on(p) return arrays.sharding({ 8 }, { "a" }, p) end
  local a = arrays.global(on(spec[1]), "float32", { 9, 800 }, normals(7200))
  local b = arrays.global(on(spec[2]), "float32", { 800, 7 }, normals(5600))
  local out = arrays.new(on(P()), "float32", { 9, 7 })
  fail.check(C.shardrt_matmul(a, b, 0, 0, 0, out))
  for i = 0, 7 do
    local data = ffi.cast("const float *", (bytes_of(out, i)))
    for j = 0, 62 do print(("%.9g"):format(data[j])) end
  end
end
]]
    local expected = run(source).stdout
    local found, count = run(source, { gpus = 4 }).stdout:gmatch "[^\n]+", 0
    for wanted in expected:gmatch "[^\n]+" do
      count = count + 1
      local value = found()
      assert.is_true(math.abs(value - wanted) < 800 * 2 ^ -24 * 30, wanted .. " " .. value)
    end
    assert.equal(2 * 8 * 63, count)
  end)

  it("of float32 is exact in all of its bits, unless TF32 is asked for", function()
    local source = [[
local function one(value)
  return arrays.global(arrays.sharding({ 1 }, { "a" }, P()), "float32", { 1, 1 }, ffi.new("float[1]", value))
end
local out = one(0)
out = arrays.new(arrays.sharding({ 1 }, { "a" }, P()), "float32", { 1, 1 })
fail.check(C.shardrt_matmul(one(1 + 2 ^ -20), one(1), 0, 0, PRECISION, out))
print(("%.9g"):format(ffi.cast("const float *", (bytes_of(out, 0)))[0]))
]]
    local exact, gpu = ("%.9g\n"):format(1 + 2 ^ -20), { gpus = 1, devices = 1 }
    local full, less = source:gsub("PRECISION", "C.SHARDRT_PRECISION_FLOAT32"),
      source:gsub("PRECISION", "C.SHARDRT_PRECISION_TF32")
    assert.equal(exact, run(full, gpu).stdout)
    assert.equal("1\n", run(less, gpu).stdout)
    assert.equal(exact, run(less, { devices = 1 }).stdout) -- the host has none
  end)

  it("and its gradients are as exact as the recipe says: by the product, or for all", function()
    local source = [[
local shardrt, np = require "shardrt", require "shardrt.numpy"
local x = shardrt.device_put(np.full({ 1, 1 }, 1 + 2 ^ -20), arrays.sharding({ 1 }, { "a" }, P()))
local function tell_of(options)
  local product, gradient = shardrt.value_and_grad(function(y) return np.sum(np.dot(y, x, options)) end)(x)
  print(("%.9g %.9g"):format(product:item(), gradient:item()))
end
tell_of()
tell_of { precision = "tensorfloat32" }
local kept = shardrt.value_and_grad(function(y)
  local product = np.sum(np.dot(y, x))
  shardrt.default_matmul_precision "tensorfloat32" -- what was computed before stays what it is
  return product
end)
local product, gradient = kept(x)
print(("%.9g %.9g"):format(product:item(), gradient:item()))
tell_of()
tell_of { precision = "float32" }
print(np.dot(np.astype(x, "float16"), np.full({ 1, 1 }, 3, "float16")):item())
]]
    local exact = ("%.9g %.9g\n"):format(1 + 2 ^ -19, 1 + 2 ^ -20)
    assert.equal(exact:rep(5) .. "3\n", run(source, { devices = 1 }).stdout)
    assert.equal(exact .. "1 1\n" .. exact .. "1 1\n" .. exact .. "3\n",
      run(source, { gpus = 1, devices = 1 }).stdout)
  end)

  it("is as few calls of cuBLAS as the leading dimensions allow", function()
    local log = os.tmpname()
    run(PRODUCTS .. [[
local function of(batch, ta)
  multiply { dtype = "float32", layout = { name = "one" }, m = 3, n = 5, k = 7, batch = batch, ta = ta }
end
of { { 2, 2, 1 }, { 4, 4, 1 } }        -- many left, one right: one of more rows
of({ { 2, 2, 1 }, { 4, 4, 1 } }, true) -- but not where these are columns
of { { 2, 2, 2 }, { 4, 4, 4 } }
of { { 2, 2, 1 }, { 4, 1, 4 } }
of { { 6, 1, 6 }, { 4, 4, 1 } }
of { { 1, 1, 1 } }
of { { 70000, 70000, 70000 } }
]], { gpus = 1, devices = 1, env = { STANDIN_CUBLAS_LOG = log } })
    local file = assert(io.open(log, "rb"))
    local text = file:read "*a"
    file:close()
    os.remove(log)
    local batched, one = "cublasGemmStridedBatchedEx 5 3 7 ", "cublasGemmEx 5 3 7 1\n"
    assert.equal("cublasGemmEx 5 24 7 1\n" .. batched .. "8\n" .. batched .. "8\n" .. batched .. "4\n" .. batched
      .. "4\n" .. "cublasGemmStridedBatchedEx 5 12 7 6\n" .. one .. batched .. "65535\n" .. batched .. "4465\n", text)
  end)

  it("survives every allocation that fails, here and on the device", function()
    local source = PRODUCTS .. [[
local over = LAYOUTS[5]
local failures = 0
local function until_it_works(case, fail_at)
  for n = 1, 1000 do
    math.randomseed(7)
    if fail_at then C.shardrt_alloc_fail_at(n) end
    local good, message = pcall(multiply, case)
    C.shardrt_alloc_fail_at(0)
    if good then return end
    failures = failures + 1
    assert(tostring(message):find "memory", message)
  end
  error "it never works"
end
]]
    local cases = [[
until_it_works({ dtype = "float16", layout = over, m = 3, n = 4, k = 5, batch = {} }, HERE)
until_it_works({ dtype = "int16", layout = over, m = 3, n = 4, k = 5, batch = {} }, HERE)
until_it_works({ dtype = "float32", layout = over, m = 300, n = 1000, k = 1, batch = {} }, HERE)
]]
    local expected = run(source .. cases:gsub("HERE", "false")).stdout
    local here = run(source .. cases:gsub("HERE", "true") .. "print(failures > 20)", { gpus = 4 })
    assert.equal(expected .. "true\n", here.stdout)
    local twice = {}
    for n = 20, 70, 3 do twice[#twice + 1] = ("cudaMallocAsync@%d=2,cudaMallocAsync@%d=2"):format(n, n + 1) end
    local there = run(source .. cases:gsub("HERE", "false") .. "print(failures > 5)",
      { gpus = 4, env = { STANDIN_FAIL = table.concat(twice, ","), STANDIN_LINKS = "none" } })
    assert.equal(expected .. "true\n", there.stdout)
  end)

  local SMALL = PRODUCTS .. [[
multiply { dtype = "float32", layout = LAYOUTS[1], m = 3, n = 4, k = 5, batch = {} }
]]

  it("says what cuBLAS failed at", function()
    local function failing(calls, ...)
      local result = run(SMALL, { gpus = 2, fails = true, env = { STANDIN_FAIL = calls } })
      assert.not_equal(0, result.status)
      for _, text in ipairs { ... } do assert.truthy(result.stderr:find(text, 1, true), result.stderr) end
    end
    failing("cublasGemmEx@3=13", "matmul: cublasGemmEx failed on device 2", "CUBLAS_STATUS_EXECUTION_FAILED",
      "failed to launch")
    failing("cublasCreate@1=1,cublasCreate@2=1", "matmul: cublasCreate failed on device 0",
      "CUBLAS_STATUS_NOT_INITIALIZED")
    failing("cublasCreate@2=3,cublasCreate@3=3", "matmul: cublasCreate failed on device 1",
      "CUBLAS_STATUS_ALLOC_FAILED")
    run(SMALL, { gpus = 2, env = { STANDIN_FAIL = "cublasCreate@2=3,cublasCreate@4=1" } }) -- which then has room
    failing("cublasSetMathMode@1=7", "matmul: cublasSetMathMode failed on device 0", "CUBLAS_STATUS_INVALID_VALUE")
    failing("run@20=700", "an illegal memory access was encountered")
  end)

  it("is tried again where cuBLAS finds no memory of its own", function()
    local expected = run(SMALL, { gpus = 2 }).stdout
    local calls = "cublasCreate@1=1,cublasCreate@3=3,cublasGemmEx@1=3"
    assert.equal(expected, run(SMALL, { gpus = 2, env = { STANDIN_FAIL = calls } }).stdout)
  end)

  it("says what is needed where cuBLAS is missing, and finds it where it is said to be", function()
    if os.getenv "SHARDRT_SANITIZER" then pending "sanitizers are shown the stand-in's libraries everywhere" end
    local folder = mpi.folder()
    local from = plugin:match "^(.*)/"
    mpi.shell(("cp %s %s/libstandin.so %s"):format(plugin, from, folder))
    for _, name in ipairs { "libcublas.so.13", "libcublas.so.12", "libcublas.so" } do
      local file = assert(io.open(folder .. "/" .. name, "wb")) -- the first that is found, and is none
      file:write(("nothing"):rep(100))
      file:close()
    end
    local env = { SHARDRT_CUDA_PLUGIN = folder .. "/shardrt-cuda.so", SHARDRT_CUDA_LIBRARIES = folder }
    local result = run(SMALL, { gpus = 1, fails = true, env = env })
    assert.not_equal(0, result.status)
    for _, text in ipairs { "matmul needs libcublas.so.13, which is not found", "`pip install nvidia-cublas`",
      "LD_LIBRARY_PATH", "SHARDRT_CUDA_LIBRARIES" } do
      assert.truthy(result.stderr:find(text, 1, true), result.stderr)
    end
    assert.is_nil(result.stderr:find "stand%-in")
    env.SHARDRT_CUDA_LIBRARIES = from
    local found = run(SMALL, { gpus = 1, env = env })
    assert.equal(run(SMALL).stdout, found.stdout)
    -- One that needs another one beside it, which nothing else would find; both are empty.
    local other = mpi.folder()
    local linked = mpi.shell(("cd %s && echo 'int none;' > none.c && gcc -shared -fPIC -Wl,-soname,libneeded.so.1 " ..
      "-o libneeded.so.1 none.c && gcc -shared -fPIC -Wl,--no-as-needed -o libcublas.so.13 none.c " ..
      "./libneeded.so.1"):format(other))
    assert.equal(0, linked.status, linked.output)
    env.SHARDRT_CUDA_LIBRARIES = other
    result = run(SMALL, { gpus = 1, fails = true, env = env })
    assert.truthy(result.stderr:find("the library that is found has no cublasCreate_v2", 1, true), result.stderr)
    mpi.remove(other)
    env.SHARDRT_CUDA_LIBRARIES = folder -- whole numbers need none
    local whole = SMALL:gsub('"float32"', '"int32"')
    assert.equal(run(whole).stdout, run(whole, { gpus = 1, env = env }).stdout)
    mpi.remove(folder)
  end)
end)

describe("random numbers on devices with memory of their own", function()
  local source = [[
local SPECS = {
  P(), P("a"), P(nil, "a"), P("a", "b"), P("b", "a"), P { "a", "b" }, P(nil, { "b", "a" }), P(nil, nil, "b"),
  P("b", nil, "a"),
}
local function key(partitionable)
  return ffi.new("shardrt_key", { { random(0, 2 ^ 32 - 1), random(0, 2 ^ 32 - 1) }, partitionable and 1 or 0 })
end
local function made(name, over, dtype, shape, fill, ...)
  local out = arrays.new(over, dtype, shape)
  fail.check(fill(..., out))
  tell(name, out)
end
local KINDS = {
  { "uint8", function(k, out) return C.shardrt_key_bits(k, out) end },
  { "uint16", function(k, out) return C.shardrt_key_bits(k, out) end },
  { "uint32", function(k, out) return C.shardrt_key_bits(k, out) end },
  { "float32", function(k, out) return C.shardrt_key_uniform(k, -1.7, 3.3, out) end },
  { "float32", function(k, out) return C.shardrt_key_normal(k, out) end },
  { "bool", function(k, out) return C.shardrt_key_bernoulli(k, 0.3, out) end },
  { "int32", function(k, out) return C.shardrt_key_randint(k, -7, 1000, out) end },
  { "int32", function(k, out) return C.shardrt_key_randint(k, -2 ^ 31, 2 ^ 31, out) end },
}
for _, partitionable in ipairs { true, false } do
  for s, spec in ipairs(SPECS) do
    local over = arrays.sharding({ 4, 2 }, { "a", "b" }, spec)
    for n, kind in ipairs(KINDS) do
      local shape = { 8 * random(0, 3), 8 * random(3), 4 * random(2), random(3) }
      if random(2) == 1 then shape[4] = nil end
      made(("%d %d %s %s"):format(s, n, tostring(partitionable), table.concat(shape, "x")), over, kind[1], shape,
        kind[2], key(partitionable))
    end
  end
  local over = arrays.sharding({ 4, 2 }, { "a", "b" }, P("a", "b"))
  for n, kind in ipairs(KINDS) do made("many " .. n, over, kind[1], { 412, 514 }, kind[2], key(partitionable)) end
end
local whole = arrays.sharding({ 4, 2 }, { "a", "b" }, P())
for _, n in ipairs { 0, 1, 2, 1000, 70001 } do
  made("order of " .. n, whole, "int32", { n }, C.shardrt_key_permutation, key(n % 2 == 0))
end
]]

  it("are the host's, to the bit, in every sharding and both layouts of counters", function()
    same_everywhere(source, { { gpus = 1 }, { gpus = 4, env = { STANDIN_NARROW = 1000 } } })
  end)
end)

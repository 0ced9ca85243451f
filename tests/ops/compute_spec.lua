-- long: 45 s
-- Reductions, products of matrices and moved elements, through C, against plain Lua: every shard of a result is worked
-- out here from the same shard of the operands.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"

ffi.cdef "int setenv(const char *, const char *, int); int unsetenv(const char *);"

local arrays = require "tests.support.arrays"
local dtype = require "shardrt.layout.dtype"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local platform = require "tests.support.platform"
local P = arrays.P
local it_on_host = platform.host_only(it, pending, "what is computed meanwhile is the host's")

local seed = require "tests.support.seed"
math.randomseed(seed)
local random, floor = math.random, math.floor

local DTYPES = {
  "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
  "float64",
}
local FLOAT = { float16 = true, bfloat16 = true, float32 = true, float64 = true }
local BITS = { int8 = 8, int16 = 16, int32 = 32, uint8 = 8, uint16 = 16, uint32 = 32 }

local function elements(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function any_of(list) return list[random(#list)] end

-- A mesh of 1 to 8 devices in any order, with up to three axes, and one sharding of a shape over it; `free` are
-- dimensions that may be cut. A size is made a multiple of its cuts.
local function random_mesh()
  local sizes = any_of { { 1 }, { 2 }, { 3 }, { 4 }, { 8 }, { 2, 2 }, { 2, 3 }, { 4, 2 }, { 2, 4 }, { 2, 2, 2 } }
  local names, ids, all = {}, {}, { 0, 1, 2, 3, 4, 5, 6, 7 }
  for i = 1, #sizes do names[i] = ("abc"):sub(i, i) end
  for i = #all, 2, -1 do
    local j = random(i)
    all[i], all[j] = all[j], all[i]
  end
  for i = 1, elements(sizes) do ids[i] = all[i] end
  return { sizes = sizes, names = names, ids = ids }
end

-- For each of ndim dimensions the axes that cut it; some axes cut nothing.
local function random_cuts(mesh, ndim)
  local cuts = {}
  for d = 1, ndim do cuts[d] = {} end
  for i, name in ipairs(mesh.names) do
    local d = random(0, ndim)
    if d > 0 then table.insert(cuts[d], { name = name, size = mesh.sizes[i] }) end
  end
  return cuts
end

local function pieces(cut)
  local n = 1
  for _, axis in ipairs(cut) do n = n * axis.size end
  return n
end

local function sharding(mesh, cuts)
  local entries = {}
  for d, cut in ipairs(cuts) do
    if #cut > 0 then
      entries[d] = {}
      for i, axis in ipairs(cut) do entries[d][i] = axis.name end
    end
  end
  return arrays.sharding(mesh.sizes, mesh.names, P(unpack(entries, 1, #cuts)), mesh.ids)
end

-- Values of a shape as a host array of C, from make(i); of many only the first are made, and come again and again.
local MADE = 65537
local function host(name, n, make, most)
  local kind = dtype.named("dense_spec", name)
  local data = ffi.new(kind.element .. "[?]", math.max(n, 1))
  most = math.min(n, most or n)
  for i = 0, most - 1 do assert(kind.write(data, i, make(i))) end
  for i = most, n - 1, math.max(1, most) do ffi.copy(data + i, data, math.min(most, n - i) * kind.size) end
  return data
end

local function values(name)
  if name == "bool" then return function() return random(2) == 1 end end
  if name:match "^u" then return function() return random(0, 9) end end
  return function() return random(-9, 9) end
end

local function as_number(value)
  if type(value) == "boolean" then return value and 1 or 0 end
  return tonumber(value)
end

local function elements_of(x, i)
  local kind = dtype.coded(C.shardrt_array_dtype(x))
  return ffi.cast(kind.pointer, arrays.data(x, i or 0))
end

-- The i-th shard of an array as Lua numbers, from 0 on.
local function shard(x, i)
  local kind, data = dtype.coded(C.shardrt_array_dtype(x)), elements_of(x, i)
  local got = {}
  for k = 0, tonumber(C.shardrt_array_shard_bytes(x)) / kind.size - 1 do got[k] = as_number(kind.read(data, k)) end
  return got
end

local function global(over, name, shape, make)
  return arrays.global(over, name, shape, host(name, elements(shape), make or values(name), not make and MADE or nil))
end

local function message() return ffi.string(C.shardrt_error_message()) end
local function ok(code) assert.equal(0, code, code < 0 and message() or nil) end
local function refuses(code, expected, text)
  assert.equal(expected, code)
  assert.truthy(message():find(text, 1, true), message())
end

local function int32(list) return ffi.new("int32_t[?]", math.max(#list, 1), list) end
local function int64(list) return ffi.new("int64_t[?]", math.max(#list, 1), list) end

-- Calls body(index, k) for every index (a list from 0) of a shape, row-major.
local function each(shape, body)
  local index = {}
  local k = 0
  local function level(d)
    if d > #shape then
      body(index, k)
      k = k + 1
      return
    end
    for i = 0, shape[d] - 1 do
      index[d] = i
      level(d + 1)
    end
  end
  level(1)
end

local function flat(shape, index)
  local k = 0
  for d = 1, #shape do k = k * shape[d] + index[d] end
  return k
end

local function wrap(name, value)
  if not BITS[name] then return value end
  local range = 2 ^ BITS[name]
  value = value % range
  return not name:match "^u" and value >= range / 2 and value - range or value
end

local function same(expected, got, what)
  for k, value in pairs(expected) do
    local other = got[k]
    if not (value == other or (value ~= value and other ~= other)) then
      error(("%s, seed %d: element %d is %s, not %s"):format(what, seed, k, tostring(other), tostring(value)), 2)
    end
  end
end

local function shards(x) return tonumber(C.shardrt_array_shard_count(x)) - 1 end

-- Sizes of a shard and of the whole, for these cuts.
local function random_shape(cuts, most)
  local own, whole = {}, {}
  for d, cut in ipairs(cuts) do
    own[d] = random(12) == 1 and 0 or random(most or 5)
    whole[d] = own[d] * pieces(cut)
  end
  return own, whole
end

-- A random mesh, over it cuts of ndim dimensions, of `uncut` none, and the sizes of a shard and of the whole.
local function random_layout(ndim, most, uncut)
  local mesh = random_mesh()
  local cuts = random_cuts(mesh, ndim)
  if uncut then cuts[uncut] = {} end
  return mesh, cuts, random_shape(cuts, most)
end

-- ---- reductions ----

local OPS = { "SUM", "PROD", "MAX", "MIN", "ANY", "ALL", "ARGMAX", "ARGMIN" }
local START = { SUM = 0, PROD = 1, ANY = 0, ALL = 1 }

local STEPS = {
  SUM = function(a, b) return a + b end,
  PROD = function(a, b) return a * b end,
  ANY = function(a, b) return (a ~= 0 or b ~= 0) and 1 or 0 end,
  ALL = function(a, b) return (a ~= 0 and b ~= 0) and 1 or 0 end,
  MAX = function(a, b) return (a == nil or (b ~= b and a == a) or b > a) and b or a end,
  MIN = function(a, b) return (a == nil or (b ~= b and a == a) or b < a) and b or a end,
}
STEPS.ARGMAX, STEPS.ARGMIN = STEPS.MAX, STEPS.MIN

-- x: a shard as numbers. Returns what is left, or nil where that is nothing to be had.
local function reduce_oracle(op, x, shape, gone)
  local left, acc, where, count, index, strides, kept = {}, {}, {}, {}, {}, {}, 1
  for d, size in ipairs(shape) do
    if not gone[d] then left[#left + 1] = size end
  end
  for d = #shape, 1, -1 do -- what a step in a dimension is in the result
    index[d], strides[d] = 0, gone[d] and 0 or kept
    if not gone[d] then kept = kept * shape[d] end
  end
  for k = 0, elements(left) - 1 do acc[k], count[k] = START[op], 0 end
  local step, at = STEPS[op], 0
  for k = 0, elements(shape) - 1 do
    local before = acc[at]
    local value = step(before, x[k])
    if before == nil or (value ~= before and (value == value or before == before)) then where[at] = count[at] end
    acc[at], count[at] = value, count[at] + 1
    for d = #shape, 1, -1 do -- the next index, row-major
      index[d], at = index[d] + 1, at + strides[d]
      if index[d] < shape[d] then break end
      index[d], at = 0, at - strides[d] * shape[d]
    end
  end
  return op:match "^ARG" and where or acc, left
end

local function result_dtypes(op, name)
  if op == "ANY" or op == "ALL" then return { "bool" } end
  if op:match "^ARG" then return { "int32" } end
  if op == "MAX" or op == "MIN" then return { name } end
  if name == "bool" then return { "int32", "float32", "int8" } end
  if FLOAT[name] then return { name, "float32", "float64" } end
  return { name, "int32", "int64", "uint32" }
end

local function random_reduction(op, name, ndim, most)
  local mesh, cuts, own, whole = random_layout(ndim, most)
  local axes, gone, partial, kept_cuts, kept = {}, {}, {}, {}, {}
  local first, last = 1, ndim
  if op:match "^ARG" and random(3) > 1 and ndim > 0 then first = random(ndim) last = first end
  for d = 1, ndim do
    gone[d] = op:match "^ARG" and d >= first and d <= last or not op:match "^ARG" and random(2) == 1
    if gone[d] then
      axes[#axes + 1] = d - 1
      for _, axis in ipairs(cuts[d]) do partial[#partial + 1] = axis end
    else
      kept[#kept + 1] = whole[d]
      kept_cuts[#kept_cuts + 1] = cuts[d]
    end
  end
  table.insert(kept, 1, pieces(partial))
  table.insert(kept_cuts, 1, partial)
  for i = #axes, 2, -1 do
    local j = random(i)
    axes[i], axes[j] = axes[j], axes[i]
  end
  local make = values(name)
  local twos = 14 -- so that a product is within what every dtype holds, or wraps as 32 bits do
  if op == "PROD" and name ~= "bool" then
    make = function()
      if twos == 0 or random(3) > 1 then return 1 end
      twos = twos - 1
      return 2
    end
  end
  local with_nan = FLOAT[name] and op ~= "SUM" and op ~= "PROD" and random(2) == 1
  local x = global(sharding(mesh, cuts), name, whole, function(i)
    return with_nan and random(7) == 1 and 0 / 0 or make(i)
  end)
  local as = any_of(result_dtypes(op, name))
  local out = arrays.new(sharding(mesh, kept_cuts), as, kept)
  local code = C.shardrt_reduce(C["SHARDRT_" .. op], x, #axes, int32(axes), out)
  local what = ("%s of %s as %s, shards {%s}, %d axes"):format(op, name, as, table.concat(own, ","), #axes)
  local empty = false
  for d = 1, ndim do empty = empty or gone[d] and own[d] == 0 end
  for i = 0, shards(x) do
    local expected, left = reduce_oracle(op, shard(x, i), own, gone)
    if empty and not START[op] and elements(left) > 0 then
      assert.equal(C.SHARDRT_EINVAL, code, what)
      return
    end
    assert.equal(0, code, what .. ": " .. message())
    for k, value in pairs(expected) do
      if as == "bool" then value = value ~= 0 and 1 or 0 end
      expected[k] = wrap(as, value)
    end
    same(expected, shard(out, i), what)
  end
end

describe("a reduction", function()
  for _, op in ipairs(OPS) do
    it(op:lower() .. " gives what plain Lua gives, of every dtype, over any axes, in any sharding", function()
      for _, name in ipairs(DTYPES) do
        for _ = 1, 5 do random_reduction(op, name, random(0, 4)) end
      end
    end)
  end

  -- Sizes beyond a block, beyond a task, and cut into chunks; whole numbers, so that any order gives the same.
  for _, case in ipairs {
    { { 170001 }, { 0 } }, { { 3, 5003 }, { 1 } }, { { 5003, 3 }, { 0 } }, { { 40, 1500 }, { 0 } },
    { { 301, 1100 }, { 0 } }, { { 3, 700, 5 }, { 1 } }, { { 3, 700, 5 }, { 0, 2 } }, { { 1700, 10 }, { 1 } },
    { { 9, 4000, 7 }, { 0, 1 } }, { { 20, 513, 9 }, { 0 } }, { { 2, 70000 }, { 0 } }, { { 70000, 2 }, { 0 } },
    { { 1200, 130 }, {} },
  } do
    local shape, axes = case[1], case[2]
    it(("of {%s} over {%s} gives the same"):format(table.concat(shape, ","), table.concat(axes, ",")), function()
      local gone, left = {}, {}
      for _, axis in ipairs(axes) do gone[axis + 1] = true end
      for d, size in ipairs(shape) do
        if not gone[d] then left[#left + 1] = size end
      end
      local over = arrays.sharding({ 1 }, { "a" }, P())
      for _, name in ipairs { "float32", "uint8", "float64", "int64" } do
        local x = global(over, name, shape, function() return random(0, 5) end)
        local numbers = shard(x, 0)
        for _, op in ipairs { "SUM", "MAX", "MIN", "ALL", "ARGMAX", "ARGMIN" } do
          local as = op == "SUM" and not FLOAT[name] and "int32" or result_dtypes(op, name)[1]
          local out = arrays.new(over, as, left)
          if not (op:match "^ARG" and #axes == 2 and axes[2] ~= axes[1] + 1) then
            ok(C.shardrt_reduce(C["SHARDRT_" .. op], x, #axes, int32(axes), out))
            same(reduce_oracle(op, numbers, shape, gone), shard(out, 0), op .. " of " .. name)
          end
        end
      end
    end)
  end

  it("adds two million floats with an error of a few roundings", function()
    local n = 2000000
    local data = ffi.new("float[?]", n)
    local exact = 0
    for i = 0, n - 1 do
      data[i] = random()
      exact = exact + data[i]
    end
    local over = arrays.sharding({ 1 }, { "a" }, P())
    for _, case in ipairs { { { n }, {} }, { { n / 10, 10 }, { 10 } }, { { n / 2000, 2000 }, { 2000 } } } do
      local x = arrays.global(over, "float32", case[1], data)
      local out = arrays.new(over, "float32", case[2])
      ok(C.shardrt_reduce(C.SHARDRT_SUM, x, 1, int32 { 0 }, out))
      local sum = 0
      for _, value in pairs(shard(out, 0)) do sum = sum + value end
      assert.is_true(math.abs(sum / exact - 1) < 4 * 2 ^ -24, tostring(sum / exact - 1))
    end
  end)

  it("finds an extreme wherever it stands, the first of equals and of NaNs", function()
    local over = arrays.sharding({ 1 }, { "a" }, P())
    local rows = 200003
    for width = 1, 2 do
      for _, name in ipairs { "float32", "int16" } do
        local plain = {}
        for _, at in ipairs { 0, 1023, 1024, 65535, 65536, 131072, random(0, rows - 2), rows - 2 } do
          for _, planted in ipairs { 100, name == "float32" and 0 / 0 or -100 } do
            local data = host(name, rows * width, function() return 7 end, MADE)
            data[at * width], data[(rows - 1) * width] = planted, planted -- in the first column
            local x = arrays.global(over, name, { rows, width }, data)
            for _, op in ipairs { "ARGMAX", "ARGMIN", "MAX", "MIN" } do
              local most = op:match "MAX$"
              local found = planted ~= planted or planted > 0 == (most ~= nil)
              local out = arrays.new(over, op:match "^ARG" and "int32" or name, { width })
              ok(C.shardrt_reduce(C["SHARDRT_" .. op], x, 1, int32 { 0 }, out))
              plain[0] = op:match "^ARG" and (found and at or at == 0 and 1 or 0) or found and planted or 7
              plain[1] = width == 2 and (op:match "^ARG" and 0 or 7) or nil
              same(plain, shard(out, 0), ("%s of %d rows of %s"):format(op, rows, name))
            end
          end
        end
      end
    end
  end)

  it("of zeros of both signs is the same in any order", function()
    local over = arrays.sharding({ 1 }, { "a" }, P())
    for _, name in ipairs { "float16", "float32", "float64" } do
      for _, shape in ipairs { { 2 }, { 5 }, { 40 }, { 3000 }, { 200, 700 } } do
        for negative = 0, shape[1] - 1, math.ceil(shape[1] / 5) do
          for _, sign in ipairs { 1, -1 } do -- one row of the other sign
            local width = elements(shape) / shape[1]
            local x = global(over, name, shape, function(i)
              return floor(i / width) == negative and -sign * 0.0 or sign * 0.0
            end)
            for _, op in ipairs { "MAX", "MIN" } do
              local out = arrays.new(over, name, { unpack(shape, 2) })
              ok(C.shardrt_reduce(C["SHARDRT_" .. op], x, 1, int32 { 0 }, out))
              for _, value in pairs(shard(out, 0)) do
                assert.equal(op == "MAX" and 1 / 0 or -1 / 0, 1 / value)
              end
            end
          end
        end
      end
    end
  end)

  it("says what it cannot do", function()
    local over = arrays.sharding({ 2 }, { "a" }, P "a")
    local x, half = global(over, "float32", { 4, 6 }), arrays.sharding({ 2 }, { "a" }, P())
    local function try(op, axes, name, shape, where)
      return C.shardrt_reduce(op, x, #axes, int32(axes), arrays.new(where or half, name, shape))
    end
    refuses(try(C.SHARDRT_SUM, { 0 }, "int32", { 6 }), C.SHARDRT_EINVAL, "sum of float32 as int32")
    refuses(try(C.SHARDRT_MAX, { 0 }, "float64", { 6 }), C.SHARDRT_EINVAL, "the same")
    refuses(try(C.SHARDRT_ARGMAX, { 0 }, "float32", { 6 }), C.SHARDRT_EINVAL, "int32")
    refuses(try(C.SHARDRT_SUM, { 2 }, "float32", { 6 }), C.SHARDRT_EINVAL, "axis 2")
    refuses(try(C.SHARDRT_SUM, { 1, 1 }, "float32", { 4 }), C.SHARDRT_EINVAL, "twice")
    refuses(try(C.SHARDRT_SUM, { 1 }, "float32", { 4 }), C.SHARDRT_EINVAL, "2 elements of a shard; the result has 4")
    refuses(try(99, { 1 }, "float32", { 4 }), C.SHARDRT_EINVAL, "number 99")
    refuses(try(C.SHARDRT_SUM, { 0 }, "float32", { 6 }, arrays.sharding({ 2 }, { "a" }, P(), { 1, 0 })),
      C.SHARDRT_EINVAL, "same devices")
    local cube = global(half, "int8", { 2, 3, 2 })
    refuses(C.shardrt_reduce(C.SHARDRT_ARGMIN, cube, 2, int32 { 0, 2 }, arrays.new(half, "int32", { 3 })),
      C.SHARDRT_EINVAL, "no neighbours")
    local none = arrays.new(half, "float32", { 3 })
    assert.equal(C.SHARDRT_EDATA,
      C.shardrt_reduce(C.SHARDRT_SUM, none, 1, int32 { 0 }, arrays.new(half, "float32", {})))
  end)

  -- (a - b)^2 + c, where b and c are broadcast.
  local DISTANCE = ffi.new("shardrt_step[3]", { { C.SHARDRT_OP_SUB, 0, 1 }, { C.SHARDRT_OP_SQUARE, 3 },
    { C.SHARDRT_OP_ADD, 4, 2 } })

  local function bytes(x, i) return ffi.string(arrays.data(x, i), tonumber(C.shardrt_array_shard_bytes(x))) end

  it_on_host("of what is computed meanwhile has the same bits, whether that is stored or not", function()
    local over = arrays.sharding({ 2 }, { "a" }, P "a")
    for _, case in ipairs {
      { { 17000 }, { 0 } }, { { 6, 5003 }, { 1 } }, { { 40, 1500 }, { 0 } }, { { 18, 50, 3 }, { 0, 2 } },
      { { 302, 1100 }, { 0 } }, { { 2, 70000 }, { 1 } }, { { 17002, 2 }, { 0 } }, { { 20, 513, 9 }, { 1 } },
      { { 4, 5 }, {} }, { { 4, 0 }, { 1 } },
    } do
      local shape, axes = case[1], case[2]
      local gone, left, rows, last = {}, {}, {}, { shape[#shape] }
      for _, axis in ipairs(axes) do gone[axis + 1] = true end
      for d, size in ipairs(shape) do
        if not gone[d] or d == 1 then left[#left + 1] = d == 1 and gone[d] and 2 or size end
        rows[d] = d == 1 and size or 1
      end
      if #shape == 1 then last = { 1 } end
      local whole = arrays.sharding({ 2 }, { "a" }, P())
      local function real() return random() * 2 - 1 end
      for _, names in ipairs { { "float32", "float32", "float32" }, { "bfloat16", "int8", "float32" } } do
        local a, b = global(over, names[1], shape, real), global(whole, names[2], last, values(names[2]))
        local c = global(over, names[3], rows, real)
        local operands = ffi.new("shardrt_array *[3]", a, b, c)
        for _, made in ipairs { "float32", "float16", "bool" } do
          for _, op in ipairs { "SUM", "PROD", "MAX", "MIN", "ANY", "ALL" } do
            local as = result_dtypes(op, made)[1]
            local x, expected = arrays.new(over, made, shape), arrays.new(over, as, left)
            ok(C.shardrt_elementwise(DISTANCE, 3, C.SHARDRT_FLOAT32, 3, operands, x))
            local code = C.shardrt_reduce(C["SHARDRT_" .. op], x, #axes, int32(axes), expected)
            for stores = 0, 1 do
              local also, out = arrays.new(over, made, shape), arrays.new(over, as, left)
              assert.equal(code, C.shardrt_reduce_elements(C["SHARDRT_" .. op], DISTANCE, 3, C.SHARDRT_FLOAT32, 3,
                operands, also, stores, #axes, int32(axes), out))
              for i = 0, code == 0 and 1 or -1 do
                assert(bytes(expected, i) == bytes(out, i), ("%s of %s, shape {%s}"):format(op, made,
                  table.concat(shape, ",")))
                if stores == 1 then assert(bytes(x, i) == bytes(also, i)) end
              end
              assert.equal(stores == 1 and code == 0, C.shardrt_array_buffer(also, 0) ~= nil)
            end
          end
        end
      end
    end
  end)

  it_on_host("of what is computed meanwhile says what it cannot do", function()
    local over = arrays.sharding({ 1 }, { "a" }, P())
    local x = global(over, "float32", { 4, 6 })
    local operands = ffi.new("shardrt_array *[3]", x, x, x)
    local function try(op, shape, to, left, steps)
      return C.shardrt_reduce_elements(op, steps or DISTANCE, 3, C.SHARDRT_FLOAT32, 3, operands,
        arrays.new(over, "float32", shape), 0, 1, int32 { 0 }, arrays.new(over, to, left))
    end
    refuses(try(C.SHARDRT_ARGMAX, { 4, 6 }, "int32", { 6 }), C.SHARDRT_EINVAL, "meanwhile")
    refuses(try(C.SHARDRT_SUM, { 4, 7 }, "float32", { 7 }), C.SHARDRT_EINVAL, "dimension 1")
    refuses(try(C.SHARDRT_SUM, { 4, 6 }, "float32", { 7 }), C.SHARDRT_EINVAL, "6 elements of a shard")
    refuses(try(C.SHARDRT_SUM, { 4, 6 }, "float32", { 6 }, ffi.new("shardrt_step[3]", { { C.SHARDRT_OP_SUB, 0, 9 } })),
      C.SHARDRT_EINVAL, "register 9")
  end)
end)

-- ---- products of matrices ----

local function product_oracle(x, y, batch, xa, yb, m, n, k, ta, tb)
  local out = {}
  for at = 0, #xa do
    for i = 0, m - 1 do
      for j = 0, n - 1 do
        local sum = 0
        for l = 0, k - 1 do
          local in_x, in_y = ta and l * m + i or i * k + l, tb and j * k + l or l * n + j
          sum = sum + x[xa[at] * m * k + in_x] * y[yb[at] * k * n + in_y]
        end
        out[at * m * n + i * n + j] = sum
      end
    end
  end
  assert(batch == #xa + 1)
  return out
end

local function random_product(name)
  local mesh = random_mesh()
  local a_lead, b_lead = random(0, 2), random(0, 2)
  local lead = math.max(a_lead, b_lead)
  local cuts = random_cuts(mesh, lead + 3) -- batch…, m, n, k
  local function size(most) return random(20) == 1 and 0 or random(most) end
  local m, n, k = size(9), size(9), size(9)
  local ta, tb = random(2) == 1, random(2) == 1
  local a_shape, a_cuts, b_shape, b_cuts, out_shape, out_cuts = {}, {}, {}, {}, {}, {}
  local xa, yb, sizes, a_sizes, b_sizes = {}, {}, {}, {}, {}
  for d = 1, lead do
    local own, cut = size(3), cuts[d]
    local in_a, in_b = d > lead - a_lead, d > lead - b_lead
    local one_a = in_a and in_b and random(4) == 1
    local one_b = in_a and in_b and not one_a and random(4) == 1
    sizes[d] = own
    a_sizes[d] = in_a and not one_a and own or 1
    b_sizes[d] = in_b and not one_b and own or 1
    if in_a then
      table.insert(a_shape, one_a and 1 or own * pieces(cut))
      table.insert(a_cuts, one_a and {} or cut)
    end
    if in_b then
      table.insert(b_shape, one_b and 1 or own * pieces(cut))
      table.insert(b_cuts, one_b and {} or cut)
    end
    table.insert(out_shape, own * pieces(cut))
    table.insert(out_cuts, cut)
  end
  each(sizes, function(index, at)
    local a, b = 0, 0
    for d = 1, lead do
      a = a * a_sizes[d] + (a_sizes[d] > 1 and index[d] or 0)
      b = b * b_sizes[d] + (b_sizes[d] > 1 and index[d] or 0)
    end
    xa[at], yb[at] = a, b
  end)
  local cm, cn, ck = cuts[lead + 1], cuts[lead + 2], cuts[lead + 3]
  local function add(shape, list, transposed, rows, row_cuts, columns, column_cuts)
    if transposed then rows, row_cuts, columns, column_cuts = columns, column_cuts, rows, row_cuts end
    table.insert(shape, rows * pieces(row_cuts))
    table.insert(shape, columns * pieces(column_cuts))
    table.insert(list, row_cuts)
    table.insert(list, column_cuts)
  end
  add(a_shape, a_cuts, ta, m, cm, k, ck)
  add(b_shape, b_cuts, tb, k, ck, n, cn)
  add(out_shape, out_cuts, false, m, cm, n, cn)
  -- Of the axes that cut k, the first ones keep their parts of the sum apart; over the others they are added up.
  local apart, cut_k = {}, random(0, #ck)
  for i = 1, cut_k do apart[i] = ck[i] end
  table.insert(out_shape, 1, pieces(apart))
  table.insert(out_cuts, 1, apart)
  local make = name == "bfloat16" and function() return random(-1, 1) end or nil -- sums that it holds
  local x = global(sharding(mesh, a_cuts), name, a_shape, make)
  local y = global(sharding(mesh, b_cuts), name, b_shape, make)
  local as = (name == "float16" or name == "bfloat16") and random(2) == 1 and "float32" or name
  local out = arrays.new(sharding(mesh, out_cuts), as, out_shape)
  ok(C.shardrt_matmul(x, y, ta, tb, 0, out))
  local what = ("%s, %dx%dx%d, transposed %s %s"):format(name, m, n, k, tostring(ta), tostring(tb))
  local function block(array, i) return C.shardrt_array_shard(array, i).block end
  for i = 0, shards(x) do
    if elements(sizes) > 0 then
      local expected, counted = {}, {}
      for j = 0, shards(x) do
        local pair = block(x, j) .. " " .. block(y, j)
        if block(out, j) == block(out, i) and not counted[pair] then
          counted[pair] = true
          local part = product_oracle(shard(x, j), shard(y, j), elements(sizes), xa, yb, m, n, k, ta, tb)
          for at, value in pairs(part) do expected[at] = (expected[at] or 0) + value end
        end
      end
      for at, value in pairs(expected) do expected[at] = wrap(as, value) end
      same(expected, shard(out, i), what)
    end
  end
end

describe("a product of matrices", function()
  for _, name in ipairs(DTYPES) do
    if name ~= "bool" then
      it("of " .. name .. " gives what plain Lua gives, transposed, in batches, in any sharding", function()
        for _ = 1, 25 do random_product(name) end
      end)
    end
  end

  it("of large matrices is cut into tiles and is the same", function()
    local over = arrays.sharding({ 1 }, { "a" }, P())
    for _, case in ipairs {
      { 1700, 1500, 3 }, { 130, 20000, 2 }, { 20000, 131, 2 }, { 1, 5000, 600 }, { 5001, 1, 600 }, { 100, 101, 300 },
    } do
      local m, n, k = unpack(case)
      for _, name in ipairs { "float32", "int32", "float64" } do
        local ta, tb = random(2) == 1, random(2) == 1
        local x = global(over, name, ta and { k, m } or { m, k })
        local y = global(over, name, tb and { n, k } or { k, n })
        local out = arrays.new(over, name, { m, n })
        ok(C.shardrt_matmul(x, y, ta, tb, 0, out))
        local a, b, got = elements_of(x), elements_of(y), elements_of(out)
        local arow, acolumn, brow, bcolumn = ta and 1 or k, ta and m or 1, tb and 1 or n, tb and k or 1
        for i = 0, m - 1, m > 1 and 7 or 1 do
          for j = 0, n - 1, n > 1 and 11 or 1 do
            local sum = 0
            for l = 0, k - 1 do
              sum = sum + tonumber(a[i * arow + l * acolumn]) * tonumber(b[l * brow + j * bcolumn])
            end
            if sum ~= got[i * n + j] then
              error(("%s %dx%dx%d: [%d, %d] is %g, not %g"):format(name, m, n, k, i, j, got[i * n + j], sum))
            end
          end
        end
      end
    end
  end)

  it("does not skip zeros: 0 times NaN is NaN", function()
    local over = arrays.sharding({ 1 }, { "a" }, P())
    for _, shape in ipairs { { 1, 3, 2 }, { 2, 3, 1 }, { 2, 3, 2 }, { 40, 30, 50 } } do
      local m, k, n = unpack(shape)
      local x = global(over, "float32", { m, k }, function() return 0 end)
      local y = global(over, "float32", { k, n }, function() return 0 / 0 end)
      local out = arrays.new(over, "float32", { m, n })
      ok(C.shardrt_matmul(x, y, false, false, 0, out))
      for _, value in pairs(shard(out, 0)) do assert.is_true(value ~= value) end
    end
  end)

  it("says what it cannot do", function()
    local over = arrays.sharding({ 2 }, { "a" }, P())
    local function try(a, b, c, names)
      names = names or { "float32", "float32", "float32" }
      return C.shardrt_matmul(global(over, names[1], a), global(over, names[2], b), false, false, 0,
        arrays.new(over, names[3], c))
    end
    refuses(try({ 2, 3 }, { 4, 5 }, { 2, 5 }), C.SHARDRT_EINVAL, "over 3 and 4 elements")
    refuses(try({ 3 }, { 3, 5 }, { 5 }), C.SHARDRT_EINVAL, "1 and 2 dimensions")
    refuses(try({ 2, 2, 3 }, { 3, 3, 5 }, { 2, 2, 5 }), C.SHARDRT_EINVAL, "2 and 3 in a shard")
    refuses(try({ 2, 3 }, { 3, 5 }, { 5, 5 }), C.SHARDRT_EINVAL, "25 elements")
    refuses(try({ 2, 3 }, { 3, 5 }, { 2, 5 }, { "float32", "float64", "float64" }), C.SHARDRT_EINVAL, "float64")
    refuses(try({ 2, 3 }, { 3, 5 }, { 2, 5 }, { "float32", "float32", "int32" }), C.SHARDRT_EINVAL, "as int32")
    refuses(try({ 2, 3 }, { 3, 5 }, { 2, 5 }, { "int16", "int16", "float32" }), C.SHARDRT_EINVAL, "as float32")
    refuses(try({ 2, 3 }, { 3, 5 }, { 2, 5 }, { "bool", "bool", "bool" }), C.SHARDRT_EINVAL, "not bool")
  end)

  it("writes over whatever the memory held", function()
    local over = arrays.sharding({ 1 }, { "a" }, P())
    for _, name in ipairs { "float32", "float64", "float16" } do
      for _, case in ipairs { { 1, 300, 7 }, { 300, 1, 7 }, { 30, 10, 7 }, { 1, 1, 7 }, { 30, 10, 0 } } do
        local m, n, k = unpack(case)
        local used = arrays.new(over, name, { m, n })
        ok(C.shardrt_iota(0 / 0, 0, 0, used))
        local at = C.shardrt_buffer_data(C.shardrt_array_buffer(used, 0))
        C.shardrt_array_free(ffi.gc(used, nil)) -- what was freed last is the next to be used
        local out = arrays.new(over, name, { m, n })
        ok(C.shardrt_matmul(global(over, name, { m, k }), global(over, name, { k, n }), 0, 0, 0, out))
        local buffer = C.shardrt_array_buffer(out, 0) -- a device's memory is its driver's to hand out
        if C.shardrt_buffer_device(buffer) < 0 then assert.equal(at, C.shardrt_buffer_data(buffer)) end
        for _, value in pairs(shard(out, 0)) do assert.equal(value, value) end
      end
    end
  end)

  -- A folder with a libopenblas.so.0 that is found before the machine's.
  local function run_with(make, env, source)
    local folder = mpi.folder()
    assert.equal(0, os.execute(make(folder .. "/libopenblas.so.0")))
    env.LD_LIBRARY_PATH = folder
    local core = os.getenv "OPENBLAS_CORETYPE" -- the tester's own
    if core then ffi.C.unsetenv "OPENBLAS_CORETYPE" end
    local result = mpi.run { options = { "--platform", "host" }, env = env, source = source }
    if core then ffi.C.setenv("OPENBLAS_CORETYPE", core, 1) end
    mpi.remove(folder)
    return result
  end

  local function dot_with(make)
    local result = run_with(make, {}, [[
      local np = require "shardrt.numpy"
      np.dot(np.ones {2, 3}, np.ones {3, 2})
    ]])
    assert.equal(1, result.status)
    assert.truthy(result.stderr:find("recipe.lua:2: np.dot: products of matrices are computed by OpenBLAS", 1, true),
      result.stderr)
    return result.stderr
  end

  local function compiled(source)
    return function(path) return ("printf '%%s' '%s' | gcc -shared -fPIC -x c -o %s -"):format(source, path) end
  end
  local functions = "void cblas_sgemm() {} void cblas_dgemm() {} void cblas_sgemv() {} void cblas_dgemv() {} "

  it("needs an OpenBLAS that works, and says so", function()
    local said = dot_with(function(path) return ("echo nothing >%s"):format(path) end)
    assert.truthy(said:find "package libopenblas0%-pthread: [^\n]*libopenblas%.so%.0", said)
    assert.truthy(dot_with(compiled(functions)):find("is no OpenBLAS with the C interface", 1, true))
    local wide = 'char *openblas_get_config() { return "OpenBLAS 0.3.21 USE64BITINT Haswell"; }'
    assert.truthy(dot_with(compiled(functions .. "void openblas_set_num_threads() {} " .. wide))
      :find("integers of 64 bits", 1, true))
  end)

  it("has an OpenBLAS that does not know the processor take its vectors", function()
    local make = compiled([[
#include <stdio.h>
#include <stdlib.h>
static __attribute__((constructor)) void begin(void) {
  printf("loaded for %s\n", getenv("OPENBLAS_CORETYPE") ? getenv("OPENBLAS_CORETYPE") : "any");
  fflush(stdout);
}
char *openblas_get_corename() { return getenv("OPENBLAS_CORETYPE") ? getenv("OPENBLAS_CORETYPE") : "Prescott"; }
char *openblas_get_config() { return "OpenBLAS 0.3.21"; }
void openblas_set_num_threads() {}
]] .. functions)
    local source = [[
      local np = require "shardrt.numpy"
      np.dot(np.ones {2, 3}, np.ones {3, 2})
      print("recipe: " .. tostring(os.getenv "OPENBLAS_CORETYPE"))
    ]]
    local file = assert(io.open "/proc/cpuinfo")
    local flags = file:read "*a"
    file:close()
    local function has(...)
      for _, flag in ipairs { ... } do
        if not flags:find("%f[%w_]" .. flag .. "%f[^%w_]") then return false end
      end
      return true
    end
    local vectors = has("avx2", "fma")
      and (has("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl") and "SkylakeX" or "Haswell")
    assert.equal("loaded for any\n" .. (vectors and ("loaded for %s\n"):format(vectors) or "") .. "recipe: nil\n",
      run_with(make, {}, source).stdout)
    assert.equal("loaded for Prescott\nrecipe: Prescott\n",
      run_with(make, { OPENBLAS_CORETYPE = "Prescott" }, source).stdout)
  end)
end)

-- ---- elements that change places ----

local MOVED = { "uint8", "bool", "int16", "bfloat16", "float32", "int64", "float64" }

describe("elements that change places", function()
  it("are transposed", function()
    for round = 1, 150 do
      local ndim, name = random(0, 5), any_of(MOVED)
      local most = round % 10 == 0 and ndim < 3 and 90 or ndim < 4 and 9 or 4
      local mesh, cuts, own, whole = random_layout(ndim, most)
      local permutation, out_cuts, out_shape, out_own = {}, {}, {}, {}
      for d = 1, ndim do permutation[d] = d - 1 end
      for i = ndim, 2, -1 do
        local j = random(i)
        permutation[i], permutation[j] = permutation[j], permutation[i]
      end
      for d = 1, ndim do
        local from = permutation[d] + 1
        out_cuts[d], out_shape[d], out_own[d] = cuts[from], whole[from], own[from]
      end
      local x = global(sharding(mesh, cuts), name, whole)
      local out = arrays.new(sharding(mesh, out_cuts), name, out_shape)
      ok(C.shardrt_transpose(x, int32(permutation), out))
      for i = 0, shards(x) do
        local from, expected = shard(x, i), {}
        each(out_own, function(index, k)
          local back = {}
          for d = 1, ndim do back[permutation[d] + 1] = index[d] end
          expected[k] = from[flat(own, back)]
        end)
        same(expected, shard(out, i), ("transpose {%s} by {%s}"):format(table.concat(own, ","),
          table.concat(permutation, ",")))
      end
    end
  end)

  it("are sliced with steps, and put back where they were", function()
    for _ = 1, 150 do
      local ndim, name = random(0, 4), any_of(MOVED)
      local mesh, cuts, own, whole = random_layout(ndim, 9)
      local start, steps, part, part_whole = {}, {}, {}, {}
      for d = 1, ndim do
        steps[d] = any_of { 1, 1, 2, 3, -1, -2, 2 ^ 62, -2 ^ 63 }
        local from = own[d] > 0 and random(0, own[d] - 1) or 0
        start[d] = from
        local most = own[d] == 0 and 0 or steps[d] > 0 and floor((own[d] - 1 - from) / steps[d]) + 1
          or floor(from / -steps[d]) + 1
        part[d] = random(0, most)
        part_whole[d] = part[d] * pieces(cuts[d])
      end
      local x = global(sharding(mesh, cuts), name, whole)
      local out = arrays.new(sharding(mesh, cuts), name, part_whole)
      ok(C.shardrt_slice(x, int64(start), int64(steps), out))
      local back = arrays.new(sharding(mesh, cuts), name, whole)
      ok(C.shardrt_pad(out, int64(start), int64(steps), nil, back))
      local base, put = global(sharding(mesh, cuts), name, whole), arrays.new(sharding(mesh, cuts), name, whole)
      ok(C.shardrt_pad(out, int64(start), int64(steps), base, put))
      for i = 0, shards(x) do
        local from, expected, padded, within = shard(x, i), {}, {}, shard(base, i)
        for k in pairs(from) do padded[k] = 0 end
        each(part, function(index, k)
          local at = {}
          for d = 1, ndim do at[d] = start[d] + index[d] * steps[d] end
          expected[k] = from[flat(own, at)]
          padded[flat(own, at)], within[flat(own, at)] = expected[k], expected[k]
        end)
        same(expected, shard(out, i), "slice")
        same(padded, shard(back, i), "pad")
        same(within, shard(put, i), "pad of a base")
      end
    end
  end)

  it("of several arrays stand one behind the other", function()
    for _ = 1, 100 do
      local ndim, name, n = random(1, 4), any_of(MOVED), random(1, 4)
      local axis = random(ndim)
      local mesh, cuts, own, whole = random_layout(ndim, nil, axis)
      local over, sum, list, sizes = sharding(mesh, cuts), 0, {}, {}
      for i = 1, n do
        sizes[i] = random(0, 4)
        sum = sum + sizes[i]
        whole[axis] = sizes[i]
        list[i] = global(over, name, whole)
      end
      whole[axis], own[axis] = sum, sum
      local out = arrays.new(over, name, whole)
      ok(C.shardrt_concatenate(n, ffi.new("shardrt_array *[?]", n, list), axis - 1, out))
      for i = 0, shards(out) do
        local expected, from = {}, {}
        for j = 1, n do from[j] = shard(list[j], i) end
        each(own, function(index, k)
          local j, at, shape = 1, {}, {}
          for d = 1, ndim do at[d], shape[d] = index[d], own[d] end
          while at[axis] >= sizes[j] do
            at[axis] = at[axis] - sizes[j]
            j = j + 1
          end
          shape[axis] = sizes[j]
          expected[k] = from[j][flat(shape, at)]
        end)
        same(expected, shard(out, i), "concatenate")
      end
    end
  end)

  -- x {.., size, ..} cut but for the axis, indices cut in other axes of the mesh: as in the result.
  local function random_take(body)
    local ndim, more, mesh = random(1, 3), random(0, 2), random_mesh()
    local cuts, axis = random_cuts(mesh, ndim + more), random(ndim)
    local x_cuts, i_cuts, out_cuts = {}, {}, {}
    for d = 1, ndim do
      if d == axis then
        x_cuts[d] = {}
        for e = 1, more do
          i_cuts[e] = cuts[ndim + e]
          out_cuts[#out_cuts + 1] = i_cuts[e]
        end
      else
        x_cuts[d] = cuts[d]
        out_cuts[#out_cuts + 1] = cuts[d]
      end
    end
    local own, whole = random_shape(x_cuts)
    own[axis] = random(5)
    whole[axis] = own[axis]
    local i_own, i_whole = random_shape(i_cuts)
    local out_own, out_whole = {}, {}
    for d = 1, ndim do
      if d == axis then
        for e = 1, more do
          out_own[#out_own + 1] = i_own[e]
          out_whole[#out_whole + 1] = i_whole[e]
        end
      else
        out_own[#out_own + 1] = own[d]
        out_whole[#out_whole + 1] = whole[d]
      end
    end
    local indices = global(sharding(mesh, i_cuts), any_of { "int32", "int64" }, i_whole,
      function() return random(-own[axis], own[axis] - 1) end)
    -- Where the indices are cut, every device has a sum of its own of what is added: one dimension more.
    local partial = {}
    for _, cut in ipairs(i_cuts) do
      for _, one in ipairs(cut) do partial[#partial + 1] = one end
    end
    local parts_over = sharding(mesh, { partial, unpack(x_cuts) })
    local parts = { pieces(partial), unpack(whole) }
    local of_x = { over = sharding(mesh, x_cuts), own = own, whole = whole, parts_over = parts_over, parts = parts }
    body(axis, indices, of_x, { over = sharding(mesh, out_cuts), own = out_own, whole = out_whole }, function(i, visit)
        local at = shard(indices, i)
        each(out_own, function(index, k)
          local from, place = {}, {}
          for e = 1, more do place[e] = index[axis - 1 + e] end
          local taken = at[flat(i_own, place)]
          for d = 1, ndim do
            from[d] = d < axis and index[d] or d > axis and index[d - 1 + more] or taken % own[axis]
          end
          visit(flat(own, from), k)
        end)
      end)
  end

  it("are taken at indices", function()
    for _ = 1, 150 do
      local name = any_of(MOVED)
      random_take(function(axis, indices, whole, taken, pairs_of)
        local x = global(whole.over, name, whole.whole)
        local out = arrays.new(taken.over, name, taken.whole)
        ok(C.shardrt_take(x, indices, axis - 1, out))
        for i = 0, shards(x) do
          local from, expected = shard(x, i), {}
          pairs_of(i, function(at, k) expected[k] = from[at] end)
          same(expected, shard(out, i), "take")
        end
      end)
    end
  end)

  it("are added where they were taken", function()
    for _ = 1, 150 do
      local name = any_of(DTYPES)
      if name ~= "bool" then
        random_take(function(axis, indices, whole, taken, pairs_of)
          local dy = global(taken.over, name, taken.whole)
          local out = arrays.new(whole.parts_over, name, whole.parts)
          ok(C.shardrt_take_add(dy, indices, axis - 1, out))
          for i = 0, shards(dy) do
            local from, expected = shard(dy, i), {}
            for k = 0, elements(whole.own) - 1 do expected[k] = 0 end
            pairs_of(i, function(at, k) expected[at] = expected[at] + from[k] end)
            for k, value in pairs(expected) do expected[k] = wrap(name, value) end
            same(expected, shard(out, i), "take_add of " .. name)
          end
        end)
      end
    end
  end)

  it("are added in spans where rows are long", function()
    local over = arrays.sharding({ 1 }, { "a" }, P())
    local size, count, inner = 50, 300, 1000
    local indices = global(over, "int32", { count }, function() return random(0, size - 1) end)
    for _, name in ipairs { "float32", "float16", "int8" } do
      local dy = global(over, name, { count, inner })
      local out = arrays.new(over, name, { size, inner })
      ok(C.shardrt_take_add(dy, indices, 0, out))
      local expected, from, at = {}, shard(dy, 0), shard(indices, 0)
      for k = 0, size * inner - 1 do expected[k] = 0 end
      for i = 0, count - 1 do
        for k = 0, inner - 1 do
          local to = at[i] * inner + k
          expected[to] = expected[to] + from[i * inner + k]
        end
      end
      for k, value in pairs(expected) do expected[k] = wrap(name, value) end
      same(expected, shard(out, 0), "take_add of " .. name)
    end
  end)

  it("count along an axis of the whole array", function()
    for _ = 1, 100 do
      local ndim, name = random(1, 4), any_of(DTYPES)
      if name ~= "bool" then
        local axis = random(ndim)
        local mesh, cuts, own, whole = random_layout(ndim)
        local out = arrays.new(sharding(mesh, cuts), name, whole)
        ok(C.shardrt_iota(3, 2, axis - 1, out))
        for i = 0, shards(out) do
          local expected, begin = {}, tonumber(C.shardrt_array_shard(out, i).box.start[axis - 1])
          each(own, function(index, k) expected[k] = 3 + 2 * (begin + index[axis]) end)
          same(expected, shard(out, i), "iota")
        end
      end
    end
  end)

  platform.host_only(it, pending, "devices count and then compute")("go from one number to another", function()
    for _, name in ipairs { "float32", "float64" } do
      local cases = { { 2, -5, 8, 9 }, { 0, 1 / 0, 4, 5 }, { -1, 1, 12, 12 }, { 3, 4, 1, 1 }, { 3, 4, 1, 0 } }
      for _, case in ipairs(cases) do
        local start, stop, steps, n = unpack(case)
        local out, expected = arrays.new(arrays.sharding({ 1 }, { "a" }, P()), name, { n }), {}
        ok(C.shardrt_linspace(start, stop, steps, out))
        for i = 0, n - 1 do
          local value = (1 - i / steps) * start + i / steps * stop
          expected[i] = i == steps and stop or value
          if name == "float32" then expected[i] = tonumber(ffi.cast("float", expected[i])) end
        end
        same(expected, shard(out, 0), "linspace")
      end
    end
    local over = arrays.sharding({ 2 }, { "a" }, P "a")
    local cut, numbers = arrays.new(over, "float64", { 10 }), {}
    ok(C.shardrt_linspace(3, 12, 9, cut))
    for i = 0, 1 do
      for k, value in pairs(shard(cut, i)) do numbers[5 * i + k] = value end
    end
    for i = 0, 9 do assert.near(3 + i, numbers[i], 1e-14) end
  end)

  platform.host_only(it, pending, "devices add to zeros")("are put, or added, where indices say", function()
    local over = arrays.sharding({ 2 }, { "a" }, P())
    for _, name in ipairs { "int32", "float64", "bfloat16", "bool" } do
      for _, inner in ipairs { 1, 3, 300 } do
        local x, given = global(over, name, { 5, inner }), global(over, name, { 4, inner })
        local rows = { [0] = 3, 0, -2, 0 }
        local indices = global(over, "int32", { 4 }, function(i) return rows[i] end)
        local out, expected, put = arrays.new(over, name, { 5, inner }), shard(x, 0), shard(given, 0)
        ok(C.shardrt_take_update(x, given, indices, 0, 1, out))
        for i = 0, 3 do
          for k = 0, inner - 1 do expected[(rows[i] + 5) % 5 * inner + k] = put[i * inner + k] end
        end
        same(expected, shard(out, 0), "set")
        if name == "bool" then
          refuses(C.shardrt_take_update(x, given, indices, 0, 0, arrays.new(over, name, { 5, inner })),
            C.SHARDRT_EINVAL, "bools")
        elseif name ~= "bfloat16" then
          local sums, added = shard(x, 0), arrays.new(over, name, { 5, inner })
          ok(C.shardrt_take_update(x, given, indices, 0, 0, added))
          for i = 0, 3 do
            for k = 0, inner - 1 do
              local at = (rows[i] + 5) % 5 * inner + k
              sums[at] = sums[at] + put[i * inner + k]
            end
          end
          same(sums, shard(added, 0), "added")
        end
        refuses(C.shardrt_take_update(given, given, indices, 0, 1, arrays.new(over, name, { 5, inner })),
          C.SHARDRT_EINVAL, "differ")
      end
    end
  end)

  it("are the windows over pictures, with their channels last or before what is within them", function()
    local over = arrays.sharding({ 1 }, { "a" }, P())
    for case = 1, 60 do
      local name, first = any_of(MOVED), case % 2
      local window, stride, apart = { random(1, 3), random(1, 3) }, { random(1, 3), random(1, 3) }, {}
      local count, shape = { random(0, 4), random(1, 4) }, { random(0, 3), 0, 0, random(1, 3) }
      for d = 1, 2 do
        apart[d] = random(1, 2)
        local span = (window[d] - 1) * apart[d] + 1
        shape[1 + d] = (count[d] == 0 and 0 or (count[d] - 1) * stride[d] + span) + random(0, 2)
        if window[d] == 1 and random(3) == 1 then apart[d] = 2 ^ 61 end -- a step from the only element to none
        if count[d] <= 1 and random(3) == 1 then stride[d] = 2 ^ 61 end
      end
      local x, sizes = global(over, name, shape), { shape[1], count[1], count[2], window[1], window[2] }
      table.insert(sizes, first == 1 and 4 or 6, shape[4])
      local out, expected, from = arrays.new(over, name, sizes), {}, shard(x, 0)
      ok(C.shardrt_windows(x, int64(stride), int64(apart), first, out))
      each(sizes, function(index, k)
        local channel, within = index[first == 1 and 4 or 6], first == 1 and 5 or 4
        local at = { index[1], 0, 0, channel }
        for d = 1, 2 do
          at[1 + d] = (count[d] > 1 and index[1 + d] * stride[d] or 0)
            + (window[d] > 1 and index[within + d - 1] * apart[d] or 0)
        end
        expected[k] = from[flat(shape, at)]
      end)
      same(expected, shard(out, 0), "windows")
    end
    local x = global(over, "float32", { 2, 4, 5, 3 })
    local function new(...) return arrays.new(over, "float32", { ... }) end
    local one, two = int64 { 1, 1 }, int64 { 2, 1 }
    refuses(C.shardrt_windows(x, one, one, 0, new(2, 3, 4, 3, 2, 3)), C.SHARDRT_EINVAL, "leave dimension 1")
    refuses(C.shardrt_windows(x, two, two, 0, new(2, 2, 4, 2, 2, 3)), C.SHARDRT_EINVAL, "leave dimension 1")
    refuses(C.shardrt_windows(x, int64 { 0, 1 }, one, 0, new(2, 3, 4, 2, 2, 3)), C.SHARDRT_EINVAL, "leave dimension 1")
    refuses(C.shardrt_windows(x, one, one, 0, new(2, 3, 5, 2, 2, 3)), C.SHARDRT_EINVAL, "leave dimension 2")
    refuses(C.shardrt_windows(x, one, one, 1, new(2, 3, 4, 2, 2, 3)), C.SHARDRT_EINVAL, "other pictures or channels")
    refuses(C.shardrt_windows(x, one, one, 0, new(2, 3, 4, 3)), C.SHARDRT_EINVAL, "4 and 6")
  end)

  it("share their memory under another shape or sharding", function()
    local by = arrays.sharding({ 2, 2 }, { "a", "b" }, P("a", "b"))
    local x = global(by, "int32", { 4, 6 })
    local out = arrays.new(arrays.sharding({ 4 }, { "c" }, P "c"), "int32", { 24 })
    ok(C.shardrt_alias(x, out))
    for i = 0, 3 do assert.equal(C.shardrt_array_buffer(x, i), C.shardrt_array_buffer(out, i)) end
    -- What is the same everywhere may be different parts of something, but not the other way round.
    local copies = global(arrays.sharding({ 4 }, { "c" }, P()), "int32", { 6 })
    ok(C.shardrt_alias(copies, arrays.new(arrays.sharding({ 4 }, { "c" }, P "c"), "int32", { 24 })))
    refuses(C.shardrt_alias(out, arrays.new(arrays.sharding({ 4 }, { "c" }, P()), "int32", { 6 })), C.SHARDRT_EINVAL,
      "different parts")
    refuses(C.shardrt_alias(x, arrays.new(by, "int32", { 4, 4 })), C.SHARDRT_EINVAL, "6 elements")
    refuses(C.shardrt_alias(x, arrays.new(by, "float32", { 4, 6 })), C.SHARDRT_EINVAL, "float32")
  end)

  it("are refused where they do not fit", function()
    local over = arrays.sharding({ 2 }, { "a" }, P())
    local x = global(over, "float32", { 4, 6 })
    local function new(...) return arrays.new(over, "float32", { ... }) end
    refuses(C.shardrt_transpose(x, int32 { 0, 0 }, new(4, 4)), C.SHARDRT_EINVAL, "each once")
    refuses(C.shardrt_transpose(x, int32 { 1, 0 }, new(4, 6)), C.SHARDRT_EINVAL, "has 4, dimension 1 of x 6")
    refuses(C.shardrt_transpose(x, int32 { 1, 0 }, new(24)), C.SHARDRT_EINVAL, "2 dimensions as 1")
    refuses(C.shardrt_slice(x, int64 { 0, 2 }, int64 { 1, 2 }, new(4, 3)), C.SHARDRT_EINVAL, "dimension 1")
    refuses(C.shardrt_slice(x, int64 { 0, 2 }, int64 { 1, 0 }, new(4, 3)), C.SHARDRT_EINVAL, "is 0")
    refuses(C.shardrt_slice(x, int64 { 0, 1 }, int64 { 1, -1 }, new(4, 3)), C.SHARDRT_EINVAL, "dimension 1")
    refuses(C.shardrt_slice(x, int64 { -1, 0 }, int64 { 1, 1 }, new(4, 6)), C.SHARDRT_EINVAL, "dimension 0")
    refuses(C.shardrt_slice(x, int64 { 4, 0 }, int64 { -1, 1 }, new(4, 6)), C.SHARDRT_EINVAL, "dimension 0")
    refuses(C.shardrt_slice(x, int64 { 0, 2 ^ 62 }, int64 { 1, 2 ^ 62 }, new(4, 3)), C.SHARDRT_EINVAL, "dimension 1")
    refuses(C.shardrt_pad(x, int64 { 0, 1 }, int64 { 1, 1 }, nil, new(4, 6)), C.SHARDRT_EINVAL, "dimension 1")
    refuses(C.shardrt_pad(x, int64 { 0, 0 }, int64 { 1, 1 }, new(4, 4), new(4, 6)), C.SHARDRT_EINVAL, "what is around")
    local two = ffi.new("shardrt_array *[2]", { x, new(4, 5) })
    refuses(C.shardrt_concatenate(2, two, 0, new(8, 6)), C.SHARDRT_EINVAL, "array 1 has 5 in dimension 1")
    refuses(C.shardrt_concatenate(2, two, 1, new(4, 12)), C.SHARDRT_EINVAL, "11 along axis 1")
    refuses(C.shardrt_concatenate(2, two, 2, new(4, 12)), C.SHARDRT_EINVAL, "axis 2")
    refuses(C.shardrt_concatenate(0, two, 0, new(4, 12)), C.SHARDRT_EINVAL, "no array")
    assert.equal(C.SHARDRT_EDATA, C.shardrt_concatenate(2, two, 1, new(4, 11)))
    local indices = global(over, "int32", { 2 }, function(i) return i == 0 and 3 or 6 end)
    refuses(C.shardrt_take(x, indices, 0, new(2, 6)), C.SHARDRT_EINVAL, "index 6 is outside an axis of 4")
    local next_one = global(over, "int64", { 2 }, function(i) return i == 0 and 3 or 4 end)
    refuses(C.shardrt_take(x, next_one, 0, new(2, 6)), C.SHARDRT_EINVAL, "index 4 is outside an axis of 4")
    refuses(C.shardrt_take_add(new(2, 6), next_one, 0, new(4, 6)), C.SHARDRT_EDATA, "no data")
    local dy = global(over, "float32", { 2, 6 })
    refuses(C.shardrt_take_add(dy, next_one, 0, new(4, 6)), C.SHARDRT_EINVAL, "index 4 is outside an axis of 4")
    ok(C.shardrt_take(x, global(over, "int32", { 2 }, function() return -4 end), 0, new(2, 6)))
    refuses(C.shardrt_take(x, global(over, "int64", { 2 }, function() return -5 end), 0, new(2, 6)), C.SHARDRT_EINVAL,
      "index -5")
    refuses(C.shardrt_take(x, x, 0, new(4, 6, 6)), C.SHARDRT_EINVAL, "int32 or int64")
    refuses(C.shardrt_take(x, indices, 0, new(3, 6)), C.SHARDRT_EINVAL, "it must be 2")
    refuses(C.shardrt_take_add(x, indices, 0, new(3, 6)), C.SHARDRT_EINVAL, "it must be 2")
    refuses(C.shardrt_iota(0, 1, 2, new(3, 6)), C.SHARDRT_EINVAL, "axis 2")
    refuses(C.shardrt_iota(0, 1, 0, arrays.new(over, "bool", { 2 })), C.SHARDRT_EINVAL, "bool")
    refuses(C.shardrt_linspace(0, 1, 1, new(3, 6)), C.SHARDRT_EINVAL, "linspace")
  end)
end)

describe("a computation of this kind", function()
  it("is refused where devices with one part of the result hold different parts of an operand", function()
    local cut, whole = arrays.sharding({ 2 }, { "a" }, P "a"), arrays.sharding({ 2 }, { "a" }, P())
    local x = global(cut, "float32", { 4 })
    local function new(...) return arrays.new(whole, "float32", { ... }) end
    local text = "operand 0, devices 0 and 1 hold different parts"
    local steps = ffi.new("shardrt_step[1]", { { C.SHARDRT_OP_COPY, 0, 0, 0, 0 } })
    local list = ffi.new("shardrt_array *[1]", x)
    refuses(C.shardrt_elementwise(steps, 1, C.SHARDRT_FLOAT32, 1, list, new(2)), C.SHARDRT_EINVAL, text)
    refuses(C.shardrt_reduce(C.SHARDRT_SUM, x, 1, int32 { 0 }, new()), C.SHARDRT_EINVAL, text)
    refuses(C.shardrt_transpose(x, int32 { 0 }, new(2)), C.SHARDRT_EINVAL, text)
  end)

  it("frees what it took, whichever allocation fails", function()
    local over = arrays.sharding({ 2, 2 }, { "a", "b" }, P("a", "b"))
    local x, y = global(over, "float16", { 8, 8 }), global(over, "float16", { 8, 8 })
    local large = global(arrays.sharding({ 4 }, { "a" }, P()), "float32", { 200000 })
    local small = arrays.sharding({ 4 }, { "a" }, P())
    local indices = global(arrays.sharding({ 2, 2 }, { "a", "b" }, P()), "int32", { 4 }, function(i) return i end)
    local pictures = global(small, "float32", { 2, 4, 4, 5 })
    local list = ffi.new("shardrt_array *[2]", { x, y })
    local function square() return arrays.new(over, "float16", { 8, 8 }) end
    local function wide() return arrays.new(over, "float16", { 16, 8 }) end
    local function one(name) return arrays.new(small, name, {}) end
    local calls = {
      reduce = function() return C.shardrt_reduce(C.SHARDRT_SUM, large, 1, int32 { 0 }, one "float32") end,
      argmax = function() return C.shardrt_reduce(C.SHARDRT_ARGMAX, large, 1, int32 { 0 }, one "int32") end,
      matmul = function() return C.shardrt_matmul(x, y, true, false, 0, square()) end,
      transpose = function() return C.shardrt_transpose(x, int32 { 1, 0 }, square()) end,
      slice = function() return C.shardrt_slice(x, int64 { 3, 0 }, int64 { -1, 1 }, square()) end,
      pad = function() return C.shardrt_pad(x, int64 { 1, 0 }, int64 { 2, 1 }, nil, wide()) end,
      pad_base = function() return C.shardrt_pad(y, int64 { 0, 0 }, int64 { 1, 1 }, x, square()) end,
      windows = function()
        return C.shardrt_windows(pictures, int64 { 1, 1 }, int64 { 1, 1 }, 0, arrays.new(small, "float32",
          { 2, 3, 3, 2, 2, 5 }))
      end,
      linspace = function() return C.shardrt_linspace(0, 1, 9, arrays.new(small, "float32", { 10 })) end,
      take_update = function() return C.shardrt_take_update(x, y, indices, 0, 0, square()) end,
      concatenate = function() return C.shardrt_concatenate(2, list, 0, wide()) end,
      take = function() return C.shardrt_take(x, indices, 0, square()) end,
      take_add = function() return C.shardrt_take_add(x, indices, 0, square()) end,
      iota = function() return C.shardrt_iota(0, 1, 0, square()) end,
      alias = function() return C.shardrt_alias(x, square()) end,
    }
    for name, call in pairs(calls) do
      ok(call())
      collectgarbage()
      assert.is_true(no_memory.each(call) >= 3, name)
      ok(call())
    end
  end)

  -- The bits of results, on one core and on several.
  local BITS_OF = [[
    local ffi, C, arrays = require "ffi", require "shardrt.base.ffi", require "tests.support.arrays"
    local over = arrays.sharding({ 1 }, { "a" }, arrays.P())
    math.randomseed(7)
    local function make(shape)
      local n = 1
      for _, size in ipairs(shape) do n = n * size end
      local data = ffi.new("float[?]", n)
      for i = 0, n - 1 do data[i] = math.random() - 0.5 end
      return arrays.global(over, "float32", shape, data)
    end
    local text = {}
    local function show(out)
      local data = ffi.cast("uint32_t *", arrays.data(out, 0))
      local sum = 0
      for i = 0, tonumber(C.shardrt_array_shard_bytes(out)) / 4 - 1 do sum = (sum * 31 + data[i]) % 2 ^ 40 end
      text[#text + 1] = ("%.0f"):format(sum)
    end
    for _, case in ipairs {
      { { 500001 }, {}, 0 }, { { 4001, 33 }, { 33 }, 0 }, { { 33, 4001 }, { 33 }, 1 }, { { 900, 1300 }, { 1300 }, 0 },
    } do
      local out = arrays.new(over, "float32", case[2])
      local axis = ffi.new("int32_t[1]", case[3])
      assert(0 == C.shardrt_reduce(C.SHARDRT_SUM, make(case[1]), 1, axis, out))
      show(out)
    end
    for _, case in ipairs { { 1501, 1603, 77 }, { 3, 5, 70001 }, { 1, 4099, 777 }, { 4099, 1, 777 }, { 99, 98, 97 } } do
      local m, n, k = unpack(case)
      local out = arrays.new(over, "float32", { m, n })
      assert(0 == C.shardrt_matmul(make { m, k }, make { k, n }, 0, 0, 0, out))
      show(out)
    end
    print(table.concat(text, " "))
  ]]

  it("gives the same bits on any number of threads", function()
    local folder = mpi.folder()
    local file = assert(io.open(folder .. "/bits.lua", "w"))
    file:write('package.path = "./?.lua;" .. package.path\n', BITS_OF)
    file:close()
    local got = {}
    for i, cores in ipairs { "0", "0-" .. (tonumber(io.popen("nproc"):read "*l") - 1) } do
      local pipe = io.popen(("taskset -c %s timeout 60 %s %s/bits.lua"):format(cores, os.getenv "SHARDRT", folder))
      got[i] = pipe:read "*a"
      pipe:close()
    end
    mpi.remove(folder)
    assert.truthy(got[1]:match "^%d+ %d+")
    assert.equal(got[1], got[2])
  end)

  -- The bits of each block of a product, of six devices as two each of three processes have them.
  local BLOCKS_OF = [[
    local ffi, C, arrays = require "ffi", require "shardrt.base.ffi", require "tests.support.arrays"
    local P = arrays.P
    local function over(spec) return arrays.sharding({ 2, 3 }, { "a", "b" }, spec) end
    local function make(process, at, shape, value)
      local out = ffi.new "shardrt_array *[1]"
      assert(0 == C.shardrt_array_new(at.handle, C.SHARDRT_FLOAT32, 2, ffi.new("int64_t[2]", shape), process, 2, out))
      local made = ffi.gc(out[0], C.shardrt_array_free)
      if value then assert(0 == C.shardrt_array_fill_global(made, value)) end
      return made
    end
    math.randomseed(7)
    for _, case in ipairs { { 1400, 300, 1900 }, { 2046, 1001, 1031 }, { 2200, 640, 1100 } } do
      local m, k, n = unpack(case)
      local x, y = ffi.new("float[?]", m * k), ffi.new("float[?]", k * n)
      for i = 0, m * k - 1 do x[i] = math.random() - 0.5 end
      for i = 0, k * n - 1 do y[i] = math.random() - 0.5 end
      for process = 0, 2 do
        local rows, whole = over(P "a"), over(P())
        local out = make(process, rows, { m, n })
        local a, b = make(process, rows, { m, k }, x), make(process, whole, { k, n }, y)
        assert(0 == C.shardrt_matmul(a, b, 0, 0, 0, out))
        for i = 0, 1 do
          local data, sum = ffi.cast("uint32_t *", arrays.data(out, i)), 0
          for j = 0, m / 2 * n - 1 do sum = (sum * 31 + data[j]) % 2 ^ 40 end
          print(("%d rows from %d: %.0f"):format(m, tonumber(C.shardrt_array_shard(out, i).box.start[0]), sum))
        end
      end
    end
  ]]

  -- A block of one term, of twelve devices as three each of four processes have them. In process 0 it is beside a block
  -- of two terms, in process 2 beside others of one.
  local TERMS_OF = [[
    local ffi, C, arrays = require "ffi", require "shardrt.base.ffi", require "tests.support.arrays"
    local P, ids = arrays.P, { 0, 1, 2, 3, 4, 5, 6, 9, 7, 10, 8, 11 }
    local function make(process, spec, shape, value)
      local out, at = ffi.new "shardrt_array *[1]", arrays.sharding({ 2, 3, 2 }, { "r", "a", "k" }, spec, ids)
      assert(0 == C.shardrt_array_new(at.handle, C.SHARDRT_FLOAT32, 2, ffi.new("int64_t[2]", shape), process, 3, out))
      local array = ffi.gc(out[0], C.shardrt_array_free)
      if value then assert(0 == C.shardrt_array_fill_global(array, value)) end
      return array
    end
    math.randomseed(7)
    for _, case in ipairs { { 6150, 600, 3101 }, { 7800, 1282, 3401 } } do
      local m, k, n = unpack(case)
      local x, y = ffi.new("float[?]", m * k), ffi.new("float[?]", k * n)
      for i = 0, m * k - 1 do x[i] = math.random() - 0.5 end
      for i = 0, k * n - 1 do y[i] = math.random() - 0.5 end
      for process = 0, 2, 2 do
        local out = make(process, P "a", { m, n })
        local left, right = make(process, P("a", "k"), { m, k }, x), make(process, P "k", { k, n }, y)
        assert(0 == C.shardrt_matmul(left, right, 0, 0, 0, out))
        local one, sum = process == 0 and 2 or 1, 0
        assert(tonumber(C.shardrt_array_shard(out, one).box.start[0]) == m / 3)
        local data = ffi.cast("uint32_t *", arrays.data(out, one))
        for j = 0, m / 3 * n - 1 do sum = (sum * 31 + data[j]) % 2 ^ 40 end
        print(("%d rows from %d: %.0f"):format(m, m / 3, sum))
      end
    end
  ]]

  -- Runs a script that prints blocks' bits: those of one block are to be the same.
  local function prints_same_bits(script, devices, lines)
    local folder = mpi.folder()
    local file = assert(io.open(folder .. "/blocks.lua", "w"))
    file:write('package.path = "./?.lua;" .. package.path\n', script)
    file:close()
    -- Of these of OpenBLAS's loops the bits depend on a tile's sizes.
    local pipe = io.popen(("OPENBLAS_CORETYPE=Haswell timeout 60 %s --devices %d %s/blocks.lua 2>&1"):format(
      os.getenv "SHARDRT", devices, folder))
    local found, count = {}, 0
    for line in pipe:lines() do
      local block, bits = line:match "^(%d+ rows from %d+): (%d+)$"
      assert(block, line)
      assert.equal(found[block] or bits, bits, block)
      found[block], count = bits, count + 1
    end
    pipe:close()
    mpi.remove(folder)
    assert.equal(lines, count)
  end

  it("gives replicas of a product the same bits in processes with one block and with two", function()
    prints_same_bits(BLOCKS_OF, 6, 18)
  end)

  it("gives a block of one term the same bits beside a block of two", function() prints_same_bits(TERMS_OF, 12, 4) end)
end)

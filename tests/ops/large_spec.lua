-- processes: 1 x 1
-- processes: 2 x 4
-- Results that are large beside the cores' own caches are written past these (runtime/system/cache_stream.h), in whole
-- lines where they can be: every element is what Lua makes of the same numbers, at every level of vectors.

local ffi = require "ffi"

ffi.cdef "int setenv(const char *name, const char *value, int replace);"
local THREADS = 2 -- of a process, at most: it starts them when it first computes
assert(ffi.C.setenv("SHARDRT_THREADS", tostring(THREADS), 1) == 0)

local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P, ndarray = shardrt.P, shardrt.ndarray

local seed = require "tests.support.seed"
math.randomseed(seed)

-- Bytes: twice what is large (compute/work.c), which is a quarter of the caches of the cores that compute here.
local pipe = assert(io.popen "getconf LEVEL2_CACHE_SIZE")
local cache = math.max(pipe:read "*n" or 0, 2 ^ 20)
pipe:close()
local LARGE = 2 * THREADS * cache / 4

local ALL = 2
local highest = C.shardrt_simd_limit(ALL)
local many = shardrt.device_count() == 8
local mesh = shardrt.make_mesh(many and { 4, 2 } or { 1, 1 }, { "a", "b" })
local function over(...) return shardrt.NamedSharding(mesh, P(...)) end
local layouts = many and { over({ "a", "b" }), over() } or { over() }

local BYTES = { bool = 1, bfloat16 = 2, float32 = 4, int64 = 8 }
local COLUMNS = 1021 -- so rows, and blocks of them, begin anywhere in a line

-- Random whole numbers, all of which bfloat16 has, of so many rows that a result of that dtype is large.
local function random_of(name)
  local rows = math.ceil(LARGE / BYTES[name] / COLUMNS / 8) * 8
  local host = ndarray.zeros({ rows, COLUMNS }, "float32")
  for i = 0, host.size - 1 do host.data[i] = math.random(-100, 100) end
  return host
end

-- Checks an array whose element at a row and a column, from 0 on, is value(row, column), of float32.
local function check(what, x, value)
  local host, wrong = shardrt.process_allgather(np.astype(x, "float32")), nil
  local columns, at = host.shape[2], 0
  for row = 0, host.shape[1] - 1 do
    for column = 0, columns - 1 do
      if host.data[at] ~= value(row, column) and not wrong then
        wrong = ("%s: at %d, %d stands %s and not %s"):format(what, row, column, host.data[at], value(row, column))
      end
      at = at + 1
    end
  end
  assert(not wrong, wrong)
end

-- A host array's elements, by row and column, as long as it is there.
local function elements(host)
  local data, columns = host.data, host.shape[2]
  return function(row, column) return data[row * columns + column] end
end

-- Rows out of their order: the i-th, from 0 on, is row i * STEP + 1, and behind the last row comes the first.
local STEP = 7

local function shuffled(rows)
  local order = {}
  for i = 0, rows - 1 do order[i + 1] = (i * STEP + 1) % rows end
  return order
end

local round = ffi.new "float[1]"
local function float32(value)
  round[0] = value
  return round[0]
end

-- The same array; a large one was computed since. What reads the last one is not written past the caches.
local function apart(x)
  np.copy(x)
  return x
end

describe("large results", function()
  after_each(function() C.shardrt_simd_limit(ALL) end)

  -- In the first layout at all levels, in the others at the highest.
  local function at_all_levels(f)
    for k, layout in ipairs(layouts) do
      for level = k == 1 and 0 or highest, highest do
        C.shardrt_simd_limit(level)
        f(("level %d, layout %d"):format(level, k), layout)
      end
    end
  end

  it("are computed in float32", function()
    local host = random_of "float32"
    local of = elements(host)
    at_all_levels(function(what, layout)
      local x = shardrt.device_put(host, layout)
      check(what, apart(x / 7) + x, function(i, k) return float32(float32(of(i, k) / 7) + of(i, k)) end)
    end)
  end)

  it("are converted to their dtypes", function()
    for name in pairs(BYTES) do
      local host = random_of(name)
      local of = elements(host)
      at_all_levels(function(what, layout)
        local x = apart(np.astype(shardrt.device_put(host, layout), "bfloat16"))
        if name == "bool" then
          check(what, np.greater(x, 3), function(i, k) return of(i, k) > 3 and 1 or 0 end)
        else
          check(what, np.astype(apart(np.negative(x)), name), function(i, k) return -of(i, k) end)
        end
      end)
    end
  end)

  it("are several of one pass", function()
    local host = random_of "float32"
    local of, optimizer = elements(host), shardrt.optimizer.momentum { learning_rate = 0.5, momentum = 0.25 }
    at_all_levels(function(what, layout)
      local x = shardrt.device_put(host, layout)
      local first, state = optimizer:update(x, apart(x * 2), { velocity = x })
      check(what, state.velocity, function(i, k) return 2.25 * of(i, k) end)
      check(what, first, function(i, k) return of(i, k) - 1.125 * of(i, k) end)
    end)
  end)

  it("are rows of softmax, with the bits that small ones have", function()
    for _, name in ipairs { "float32", "bfloat16" } do
      local host = random_of(name)
      local rows = host.shape[1]
      at_all_levels(function(what, layout)
        local x = apart(np.astype(shardrt.device_put(host, layout), name))
        local parts, size = {}, rows / 8
        for first = 0, rows - size, size do
          parts[#parts + 1] = np.softmax(np.slice(x, { { first, first + size } }), 1)
        end
        local small = shardrt.process_allgather(np.astype(np.concatenate(parts, 0), "float32"))
        check(what .. ", " .. name, np.softmax(x, 1), elements(small))
      end)
    end
  end)

  it("are moved, repeated and joined", function()
    local host = random_of "float32"
    local of, rows = elements(host), host.shape[1]
    local line = ndarray.zeros({ 1, COLUMNS }, "float32")
    for k = 0, COLUMNS - 1 do line.data[k] = k end
    at_all_levels(function(what, layout)
      local x = shardrt.device_put(host, layout)
      check(what .. ", copied", np.copy(x), of)
      check(what .. ", a row", np.broadcast_to(np.asarray(line), { rows, COLUMNS }), function(_, k) return k end)
      check(what .. ", a column", np.broadcast_to(np.slice(x, { {}, { 0, 1 } }), { rows, COLUMNS }),
        function(i) return of(i, 0) end)
      check(what .. ", joined", np.concatenate({ x, x }, 0), function(i, k) return of(i % rows, k) end)
      check(what .. ", framed", np.pad(x, { { 1, 2 }, { 3, 0 } }), function(i, k)
        return i >= 1 and i <= rows and k >= 3 and of(i - 1, k - 3) or 0
      end)
      check(what .. ", a part", np.slice(apart(np.concatenate({ x, x }, 1)), { {}, { 5, 5 + COLUMNS } }),
        function(i, k) return of(i, (k + 5) % COLUMNS) end)
      local order = np.array(shuffled(rows), "int32")
      check(what .. ", taken", np.take(x, order, 0), function(i, k) return of((i * STEP + 1) % rows, k) end)
      check(what .. ", filled", np.full({ rows, COLUMNS }, 3, "float32", layout), function() return 3 end)
    end)
  end)
end)

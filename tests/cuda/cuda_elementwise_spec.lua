-- Elementwise programs and numbers that count on GPUs beside the host's: the same bits, but of those functions of
-- float64 that are CUDA's there. Against the stand-in, whose functions are the host's, or with
-- SHARDRT_TEST_PLATFORM=cuda on a GPU.

local ffi = require "ffi"
local mpi = require "tests.support.mpi"

local real = os.getenv "SHARDRT_TEST_PLATFORM" == "cuda"

local seed = require "tests.support.seed"

-- Of the results here, the larger ones are counted as those of 2^31 elements are.
local env = not real and { SHARDRT_CUDA_PLUGIN = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so",
  STANDIN_NARROW = 1100, STANDIN_SEED = seed % 1000 } or {}

-- What tests/support/cuda/elementwise_cases.lua finds on a platform: a list of {label=, dtype=, library=, data=}.
local function results_of(platform)
  local folder = mpi.folder()
  local result = mpi.run { recipe = "tests/support/cuda/elementwise_cases.lua", devices = 2, limit = 120,
    options = { "--platform", platform }, args = { seed, folder .. "/results" }, env = env }
  assert(result.status == 0, result.output)
  local list, file = {}, assert(io.open(folder .. "/results", "rb"))
  for line in file:lines() do
    local label, dtype, exactness, bytes = line:match "^(.*)\t(.*)\t(.*)\t(%d+)$"
    list[#list + 1] = { label = label, dtype = dtype, library = exactness == "library",
      data = tonumber(bytes) > 0 and file:read(tonumber(bytes)) or "" }
  end
  file:close()
  mpi.remove(folder)
  return list
end

-- Elements as numbers. NaNs have other bits on other processors.
local C_TYPE = { float32 = "const float *", float64 = "const double *" }
local function is_nan(dtype, data, i)
  if C_TYPE[dtype] then
    local x = ffi.cast(C_TYPE[dtype], data)[i]
    return x ~= x
  end
  local bits = ffi.cast("const uint16_t *", data)[i] % 0x8000
  return dtype == "float16" and bits > 0x7C00 or dtype == "bfloat16" and bits > 0x7F80
end

local WIDTH = { bool = 1, int8 = 1, uint8 = 1, int16 = 2, uint16 = 2, float16 = 2, bfloat16 = 2, int32 = 4, uint32 = 4,
  float32 = 4, int64 = 8, uint64 = 8, float64 = 8 }

-- The first element that is another; nil: none.
local function difference(host, device)
  if host.data == device.data then return nil end
  local width = WIDTH[host.dtype]
  for i = 0, #host.data / width - 1 do
    local first, last = i * width + 1, (i + 1) * width
    if host.data:sub(first, last) ~= device.data:sub(first, last)
      and not (is_nan(host.dtype, host.data, i) and is_nan(host.dtype, device.data, i)) then
      return i
    end
  end
end

local function hex(text) return (text:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

describe("on a GPU", function()
  it("every operation, dtype, way to broadcast and length of a program gives the host's bits", function()
    local host, device = results_of "host", results_of "cuda"
    assert.equal(#host, #device)
    assert.is_true(#host > 1000)
    local compared = 0
    for k, expected in ipairs(host) do
      local got = device[k]
      assert.equal(expected.label, got.label)
      assert.equal(#expected.data, #got.data)
      if not (real and expected.library) then
        local i = difference(expected, got)
        local width = WIDTH[expected.dtype]
        local function element(text) return hex(text:sub(i * width + 1, (i + 1) * width)) end
        if i then
          error(("%s: element %d is %s %s, not %s"):format(got.label, i, got.dtype, element(got.data),
            element(expected.data)))
        end
        compared = compared + 1
      end
    end
    assert.is_true(compared > 900)
  end)

  -- The functions of float64 are another library's there: within some units of the last place of what C gives.
  it("float64's functions are close to the C library's", function()
    local result = mpi.run { env = env, options = { "--platform", "cuda" }, source = [[
      local np = require "shardrt.numpy"
      local ffi = require "ffi"
      ffi.cdef "double expm1(double); double log1p(double); double erf(double);"
      local n, values = 4000, {}
      math.randomseed(]] .. seed .. [[)
      for i = 1, n do values[i] = (math.random() - 0.5) * 2 ^ math.random(-10, 9) end
      local x = np.array(values, "float64")
      local of = { exp = math.exp, sin = math.sin, cos = math.cos, tan = math.tan, tanh = math.tanh,
        expm1 = ffi.C.expm1, erf = ffi.C.erf }
      for name, f in pairs(of) do
        local y = np[name](x):to_table()
        for i = 1, n do
          local expected = f(values[i])
          local close = 2 ^ -49 * math.abs(expected)
          assert(math.abs(y[i] - expected) <= close, ("%s of %.17g is %.17g"):format(name, values[i], y[i]))
        end
      end
      print "close"
    ]] }
    assert.equal("close\n", result.output)
  end)

  it("operands and results that lie anywhere, and with any strides, are read and written where they are", function()
    local result = mpi.run { env = env, options = { "--platform", "cuda" }, source = [[
      local ffi = require "ffi"
      local accelerator = require "tests.support.cuda.accelerator"
      local a, C, check = accelerator.get(), accelerator.C, accelerator.check
      math.randomseed(]] .. seed .. [[)
      local random = math.random
      local TYPES = { { C.SHARDRT_UINT8, "uint8_t" }, { C.SHARDRT_INT16, "int16_t" }, { C.SHARDRT_INT32, "int32_t" },
        { C.SHARDRT_FLOAT32, "float" }, { C.SHARDRT_FLOAT64, "double" }, { C.SHARDRT_INT64, "int64_t" } }
      local ROOM = 9000

      -- Memory of ROOM elements of a type: {c_type=, dtype=, host=, at=}.
      local function memory(pair, filled)
        local self = { dtype = pair[1], c_type = pair[2], bytes = ROOM * ffi.sizeof(pair[2]) }
        self.host = ffi.new(pair[2] .. "[?]", ROOM)
        for i = 0, ROOM - 1 do self.host[i] = filled or random(0, 9) end
        local out = ffi.new "void *[1]"
        check(a.memory.allocate(0, C.ACCELERATOR_MAIN, C.ACCELERATOR_ARRAYS, self.bytes, out))
        self.at = ffi.cast(pair[2] .. " *", out[0])
        check(a.copies.upload(0, C.ACCELERATOR_MAIN, self.at, self.host, self.bytes))
        return self
      end

      local function attempt()
        local ndim, sizes, n = random(1, 3), {}, 1
        for d = 1, ndim do
          sizes[d] = random(3) == 1 and 4 * random(1, 5) or random(1, 17)
          n = n * sizes[d]
        end
        local operands, from = ffi.new "struct accelerator_operand[2]", {}
        for k = 0, 1 do
          from[k] = memory(TYPES[random(#TYPES)])
          local first, stride = random(0, 9), 1
          from[k].first = first
          operands[k].data, operands[k].dtype, operands[k].ndim = from[k].at + first, from[k].dtype, ndim
          local order = random(2) == 1
          for d = order and ndim or 1, order and 1 or ndim, order and -1 or 1 do
            operands[k].sizes[d - 1] = sizes[d]
            operands[k].strides[d - 1] = random(4) == 1 and 0 or stride
            stride = stride * sizes[d] -- at most 17^3
          end
        end
        local to, place = memory(TYPES[random(#TYPES)], 77), random(0, 9)
        local steps = ffi.new("shardrt_step[2]", { { C.SHARDRT_OP_ADD, 0, 1 }, { C.SHARDRT_OP_ADD, 2, 2 } })
        local nsteps = random(2)
        local lane = ({ C.SHARDRT_INT32, C.SHARDRT_INT64, C.SHARDRT_FLOAT32, C.SHARDRT_FLOAT64 })[random(4)]
        local program = ffi.new("struct accelerator_program", { steps, nsteps, 2, lane })
        check(a.kernels.elementwise("the spec", 0, program, operands, to.dtype, to.at + place, n))
        local got = ffi.new(to.c_type .. "[?]", ROOM)
        check(a.copies.download(0, C.ACCELERATOR_MAIN, got, to.at, to.bytes))
        local event = ffi.new "struct accelerator_event *[1]"
        check(a.streams.record(0, C.ACCELERATOR_MAIN, event))
        check(a.streams.finish(event[0]))
        a.streams.event_free(event[0])
        for i = 0, ROOM - 1 do
          local position = i - place
          local expected = 77
          if position >= 0 and position < n then
            expected = 0
            for k = 0, 1 do
              local at, left = from[k].first, position
              for d = ndim, 1, -1 do
                at = at + left % sizes[d] * tonumber(operands[k].strides[d - 1])
                left = math.floor(left / sizes[d])
              end
              expected = expected + nsteps * tonumber(from[k].host[at])
            end
          end
          assert(tonumber(got[i]) == expected, ("element %d: %s, not %s"):format(position, got[i], expected))
        end
        for _, each in ipairs { from[0], from[1], to } do
          a.memory.free(0, C.ACCELERATOR_MAIN, C.ACCELERATOR_ARRAYS, each.at, each.bytes)
        end
      end
      for _ = 1, 150 do attempt() end
      print "all"
    ]] }
    assert.equal("all\n", result.output)
  end)
end)

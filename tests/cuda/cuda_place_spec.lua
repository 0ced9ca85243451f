-- long: 15 s
-- Elements that change places on GPUs: the kernels of runtime/compute/cuda/{place,take,buckets}.cu and regroup, on the
-- stand-in of tests/standin, beside what the host makes of the same.

local mpi = require "tests.support.mpi"
local places = require "tests.support.cuda.places"

local seed = require "tests.support.seed"

local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"

-- Without STANDIN_LINKS, GPUs are linked by PCIe; "none" links none.
local function standin(source, gpus, env)
  local all = { SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = gpus or 2, STANDIN_SEED = seed % 1000 }
  for name, value in pairs(env or {}) do all[name] = value end
  return mpi.run { source = 'package.path = "./?.lua;" .. package.path\n' .. source, devices = 8, env = all,
    options = { "--platform", "cuda" }, limit = 300 }
end

local function host(source)
  return mpi.run { source = 'package.path = "./?.lua;" .. package.path\n' .. source, devices = 8, limit = 300,
    options = { "--platform", "host" } }
end

local well = require("tests.support.expect").well

-- The same cases on both. More than some thousand elements are counted as 2^31 and more are.
local function compare(kind, count, gpus, env)
  local folder = mpi.folder()
  local source = ([[require("tests.support.cuda.places").write(%q, %q, %d, %d)]])
  well(host(source:format(folder .. "/host", kind, seed, count)))
  local all = { STANDIN_NARROW = kind:match "^take" and 3000 or 20000 }
  for name, value in pairs(env or {}) do all[name] = value end
  well(standin(source:format(folder .. "/device", kind, seed, count), gpus, all))
  local expected, got = places.read(folder .. "/host"), places.read(folder .. "/device")
  mpi.remove(folder)
  assert.equal(count, #expected)
  assert.equal(count, #got)
  for i, one in ipairs(expected) do
    assert.equal(one.text, got[i].text)
    assert.is_true(one.bytes == got[i].bytes, kind .. " of " .. one.text .. " is not the host's")
  end
end

describe("on a device, elements", function()
  it("are transposed", function() compare("transpose", 60) end)
  it("are sliced by any steps", function() compare("slice", 60) end)
  it("are padded", function() compare("pad", 60) end)
  it("stand one behind the other", function() compare("concatenate", 40) end)
  it("are taken at indices", function() compare("take", 60) end)
  it("are added where they were taken, in their order", function() compare("take_add", 80) end)
  it("are brought in order", function() compare("argsort", 15) end)
  it("are added up one after the other", function() compare("cumsum", 12) end)
  it("are added at very many indices", function()
    compare("take_add_many", 1)
    compare("take_add_many", 1, 2, { STANDIN_NARROW = 2 ^ 31 - 1 })
  end)
end)

describe("an array on devices is laid out otherwise", function()
  it("where all devices are one GPU", function() compare("regroup", 40, 1) end)
  it("where GPUs reach each other", function() compare("regroup", 40, 2) end)
  it("where some do", function() compare("regroup", 40, 4, { STANDIN_LINKS = "0-1:nvlink,2-3:pcie" }) end)
  it("where none does", function() compare("regroup", 40, 4, { STANDIN_LINKS = "none" }) end)
  it("where each is a GPU", function() compare("regroup", 40, 8, { STANDIN_LINKS = "none" }) end)
end)

describe("a box", function()
  it("of elements of any size is copied between any places, another GPU's among them", function()
    well(standin(([[
      local ffi = require "ffi"
      local accelerator = require "tests.support.cuda.accelerator"
      local a, check = accelerator.get(), accelerator.check
      math.randomseed(%d)
      local random = math.random
      -- Strides of a block that holds the box with steps and gaps, in a random order of dimensions, some backwards:
      -- how many elements it has.
      local function lay_out(extent, first, strides)
        local order, n = {}, 1
        for d = 1, #extent do order[d] = d end
        for d = #extent, 2, -1 do
          local e = random(d)
          order[d], order[e] = order[e], order[d]
        end
        first[0] = random(0, 2) * 2
        for _, d in ipairs(order) do
          local step = random(5) == 1 and random(3) or 1
          local stride = n * step
          n = n * (extent[d] * step + (random(4) == 1 and random(3) or 0))
          local backwards = random(6) == 1
          if backwards then first[0] = first[0] + (extent[d] - 1) * stride end
          strides[d - 1] = backwards and -stride or stride
        end
        return n + 8
      end
      local function memory(device, bytes, text)
        local out = ffi.new "void *[1]"
        check(a.memory.allocate(device, 0, 0, bytes, out))
        check(a.copies.upload(device, 0, out[0], text, bytes))
        return out[0]
      end
      local one, box = ffi.new "int64_t[1]", ffi.new "struct accelerator_place"
      for _ = 1, 120 do
        local element, ndim, extent, n = ({ 1, 2, 3, 4, 5, 8, 12, 16, 24 })[random(9)], random(0, 6), {}, 1
        for d = 1, ndim do
          extent[d] = random(3) == 1 and random(40) or random(0, 4)
          if n * extent[d] > 2000 then extent[d] = 1 end
          n = n * extent[d]
          box.extent[d - 1] = extent[d]
        end
        box.ndim = ndim
        local strides = ffi.new "int64_t[8]"
        local to_size = lay_out(extent, one, strides)
        box.to_first = one[0]
        for d = 0, ndim - 1 do box.to_stride[d] = strides[d] end
        local from_size = lay_out(extent, one, strides)
        box.from_first = one[0]
        for d = 0, ndim - 1 do box.from_stride[d] = strides[d] end
        local from_text, to_text = ffi.new("uint8_t[?]", from_size * element), ffi.new("uint8_t[?]", to_size * element)
        for i = 0, from_size * element - 1 do from_text[i] = random(0, 255) end
        for i = 0, to_size * element - 1 do to_text[i] = random(0, 255) end
        local other = random(0, 7)
        local from, to = memory(other, from_size * element, from_text), memory(0, to_size * element, to_text)
        check(a.streams.after(0, other))
        check(a.copies.place("copying", 0, element, box, to, from))
        check(a.streams.after(other, 0))
        a.memory.free(other, 0, 0, from, from_size * element)
        local got = ffi.new("uint8_t[?]", to_size * element)
        check(a.copies.download(0, 0, got, to, to_size * element))
        local event = ffi.new "struct accelerator_event *[1]"
        check(a.streams.record(0, 0, event))
        check(a.streams.finish(event[0]))
        a.streams.event_free(event[0])
        a.memory.free(0, 0, 0, to, to_size * element)
        local function level(d, t, f)
          if d == ndim then
            ffi.copy(to_text + t * element, from_text + f * element, element)
            return
          end
          for i = 0, extent[d + 1] - 1 do
            level(d + 1, t + i * tonumber(box.to_stride[d]), f + i * tonumber(box.from_stride[d]))
          end
        end
        level(0, tonumber(box.to_first), tonumber(box.from_first))
        assert(ffi.string(got, to_size * element) == ffi.string(to_text, to_size * element),
          ("elements of %%d bytes, {%%s}"):format(element, table.concat(extent, ",")))
      end
    ]]):format(seed), 4))
  end)
end)

describe("what is wrong on a device", function()
  local made = [[
    local ffi, C, arrays = require "ffi", require "shardrt.base.ffi", require "tests.support.arrays"
    local P = arrays.P
    local function text() return ffi.string(C.shardrt_error_message()) end
    local function is(code, expected, part)
      assert(code == expected and text():find(part, 1, true), code .. " " .. text())
    end
    local over = arrays.sharding({ 8 }, { "a" }, P "a")
  ]]

  it("is an index outside, the first of them", function()
    well(standin(made .. [[
      local x = arrays.global(arrays.sharding({ 8 }, { "a" }, P()), "float32", { 4, 2 }, ffi.new "float[8]")
      local function try(name, list)
        local n = #list
        local whole = arrays.sharding({ 8 }, { "a" }, P())
        local indices = arrays.global(whole, name, { n }, ffi.new(name .. "_t[?]", n, list))
        local code = C.shardrt_take(x, indices, 0, arrays.new(whole, "float32", { n, 2 }))
        if code == 0 then return code end
        local first = text()
        local dy = arrays.global(whole, "float32", { n, 2 }, ffi.new("float[?]", 2 * n))
        assert(code == C.shardrt_take_add(dy, indices, 0, arrays.new(whole, "float32", { 4, 2 })))
        assert(first == text(), text())
        return code
      end
      for _, name in ipairs { "int32", "int64" } do
        is(try(name, { 0, 3, 5, -9 }), C.SHARDRT_EINVAL, "index 5 is outside an axis of 4")
        is(try(name, { 0, -5, 4 }), C.SHARDRT_EINVAL, "index -5 is outside an axis of 4")
        assert(0 == try(name, { 3, -4, 0, -1 }))
      end
      is(try("int64", { 2 ^ 32 }), C.SHARDRT_EINVAL, "index 4294967296 is outside an axis of 4")
    ]]))
  end)

  it("is a part that the process does not hold, and replicas that would differ", function()
    well(standin(made .. [[
      local x = arrays.global(over, "float32", { 8, 2 }, ffi.new "float[16]")
      local whole = arrays.sharding({ 8 }, { "a" }, P())
      is(C.shardrt_alias(x, arrays.new(whole, "float32", { 1, 2 })), C.SHARDRT_EINVAL, "would hold the same")
      is(C.shardrt_transpose(x, ffi.new("int32_t[2]", { 1, 0 }), arrays.new(whole, "float32", { 2, 1 })),
        C.SHARDRT_EINVAL, "hold different parts")
    ]]))
  end)

  it("is memory that is not there, whichever piece it is", function()
    well(standin(made .. [[
      local x = arrays.global(over, "int32", { 8, 8 }, ffi.new "int32_t[64]")
      local function attempt(n)
        local out = arrays.new(arrays.sharding({ 8 }, { "a" }, P(nil, "a")), "int32", { 8, 8 })
        C.shardrt_alloc_fail_at(n)
        local code = C.shardrt_regroup(x, out)
        return code, tonumber(C.shardrt_alloc_fail_at(0))
      end
      assert((attempt(0)) == 0) -- events are kept from now on
      local code, allocations = attempt(0)
      assert(code == 0 and allocations > 0)
      for n = 1, allocations do
        local got = attempt(n)
        assert(got == C.SHARDRT_ENOMEM, n .. ": " .. got .. " " .. text())
      end
    ]], 4, { STANDIN_LINKS = "none" }))
  end)
end)

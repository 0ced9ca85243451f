-- .safetensors files in one process: written from every layout and read into every other, byte by byte against plain
-- Lua and the reference implementation; malformed ones; running out of memory.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local boxes = require "tests.support.boxes"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local ndarray, P = shardrt.ndarray, shardrt.P

ffi.cdef [[
int memcmp(const void *a, const void *b, size_t bytes);
int open(const char *path, int flags, ...);
int flock(int fd, int operation);
int close(int fd);
]]

-- The reference implementation's names, and its order: the last stands first in a file.
local names = {
  "BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64",
  BOOL = "bool", U8 = "uint8", I8 = "int8", I16 = "int16", U16 = "uint16", F16 = "float16", BF16 = "bfloat16",
  I32 = "int32", U32 = "uint32", F32 = "float32", F64 = "float64", I64 = "int64", U64 = "uint64",
}
local rank, tag = {}, {}
for i, name in ipairs(names) do rank[names[name]], tag[names[name]] = i, name end

local function size_of(dtype) return tonumber(C.shardrt_dtype_size(C.shardrt_dtype_from_name(dtype))) end

local function little(n, count)
  local text = {}
  for i = 1, count do
    text[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(text)
end

-- A file with any header; `length` is what it says of it.
local function file_of(header, payload, length) return little(length or #header, 8) .. header .. (payload or "") end

-- What a file of {name, dtype, shape, payload} must be; names need no escapes.
local function encode(entries)
  table.sort(entries, function(a, b)
    if rank[a.dtype] ~= rank[b.dtype] then return rank[a.dtype] > rank[b.dtype] end
    return a.name < b.name
  end)
  local words, payloads, at = {}, {}, 0
  for i, e in ipairs(entries) do
    words[i] = ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(e.name, tag[e.dtype],
      table.concat(e.shape, ","), at, at + #e.payload)
    payloads[i], at = e.payload, at + #e.payload
  end
  local header = "{" .. table.concat(words, ",") .. "}"
  return file_of(header .. (" "):rep(-#header % 8), table.concat(payloads))
end

local function product(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function bytes_of(host) return ffi.string(host.data, host.bytes) end

local function host_of(dtype, shape, payload)
  local host = ndarray.empty(shape, dtype)
  ffi.copy(host.data, payload, #payload)
  return host
end

local function assert_shards(x, payload)
  assert.equal(8, #x.addressable_shards)
  for _, shard in ipairs(x.addressable_shards) do
    assert.equal(boxes.cut(payload, x.shape, shard.index, size_of(x.dtype)), bytes_of(shard.data))
  end
end

-- A python that has the reference implementation; nil: there is none.
local python
for _, program in ipairs { os.getenv "SHARDRT_PYTHON" or "python3", "python3", "/usr/bin/python3" } do
  if not python and os.execute(program .. " -c 'import numpy, safetensors.numpy' 2>/dev/null") == 0 then
    python = program
  end
end

describe(".safetensors files", function()
  local folder, path
  before_each(function()
    folder = files.folder()
    path = folder .. "/w.safetensors"
  end)
  after_each(function() files.remove(folder) end)

  local shapes = { {}, { 5 }, { 2, 3 }, { 0, 4 }, { 3, 0, 2 }, { 1, 2, 1, 2, 1, 2, 1, 2 } }

  local function every_dtype()
    local arrays, entries = {}, {}
    for dtype, name in pairs(tag) do
      for i, shape in ipairs(shapes) do
        local bytes = product(shape) * size_of(dtype)
        local payload = dtype == "bool" and ("\0\1\1"):rep(bytes):sub(1, bytes) or files.bytes(bytes)
        local key = name:lower() .. "." .. i
        arrays[key] = host_of(dtype, shape, payload)
        entries[#entries + 1] = { name = key, dtype = dtype, shape = shape, payload = payload }
      end
    end
    return arrays, entries
  end

  it("are written as the format says, and read back, in every dtype and number of dimensions", function()
    local arrays, entries = every_dtype()
    local written = shardrt.save(path, arrays)
    local text = files.slurp(path)
    assert.equal(encode(entries), text)
    assert.equal(#text, written)
    local back, bytes = shardrt.load(path)
    local total = 0
    for _, e in ipairs(entries) do
      assert.equal(e.dtype, back[e.name].dtype)
      assert.same(e.shape, back[e.name].shape)
      assert.equal(e.payload, bytes_of(back[e.name]))
      back[e.name], total = nil, total + #e.payload
    end
    assert.same({}, back)
    assert.equal(total, bytes)
  end)

  it("may hold nothing", function()
    shardrt.save(path, {})
    assert.equal(file_of "{}      ", files.slurp(path))
    assert.same({}, (shardrt.load(path)))
  end)

  it("are saved from any layout and loaded into any other", function()
    local seed = require "tests.support.seed"
    math.randomseed(seed)
    local message = "seed " .. seed
    local dtypes = { "int8", "int16", "float32", "int64" }
    -- Axes a, b, c of 8 devices in a random order, each cutting one dimension of a random shape, or none.
    local function random_sharding(ndim)
      local sizes = ({ { 2, 2, 2 }, { 4, 2, 1 }, { 8, 1, 1 }, { 1, 2, 4 } })[math.random(4)]
      local ids, entries = {}, {}
      for i = 0, 7 do table.insert(ids, math.random(#ids + 1), i) end
      for d = 1, ndim do entries[d] = {} end
      for _, axis in ipairs { "a", "b", "c" } do
        local d = math.random(0, ndim)
        if d > 0 then table.insert(entries[d], math.random(#entries[d] + 1), axis) end
      end
      return shardrt.NamedSharding(shardrt.Mesh(sizes, { "a", "b", "c" }, ids), P(unpack(entries)))
    end
    for _ = 1, 60 do
      local arrays, entries, wanted = {}, {}, {}
      for k = 1, 3 do
        local shape = {}
        for d = 1, math.random(0, 4) do shape[d] = 8 * (d <= 2 and math.random(0, 2) or 1) end
        local dtype = dtypes[math.random(#dtypes)]
        local payload = files.bytes(product(shape) * size_of(dtype))
        local name = "x" .. k
        arrays[name] = shardrt.device_put(host_of(dtype, shape, payload), random_sharding(#shape))
        wanted[name] = random_sharding(#shape)
        entries[k] = { name = name, dtype = dtype, shape = shape, payload = payload }
      end
      shardrt.save(path, arrays)
      assert.equal(encode(entries), files.slurp(path), message)
      local back, bytes = shardrt.load(path, wanted)
      local total = 0
      for _, e in ipairs(entries) do
        assert.equal(wanted[e.name], back[e.name].sharding)
        assert.same(e.shape, back[e.name].shape)
        assert_shards(back[e.name], e.payload)
        total = total + #e.payload
      end
      assert.equal(total, bytes, message) -- all boxes are here, each read once
    end
  end)

  it("give one array, several, or all with one sharding", function()
    local value = ndarray.arange(64, "int16"):reshape { 8, 8 }
    shardrt.save(path, { a = value, b = value, c = value })
    local s = shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "x" }), P(nil, "x"))
    local one, bytes = shardrt.load(path, { b = s })
    assert.is_nil(one.a or one.c)
    assert_shards(one.b, bytes_of(value))
    assert.equal(128, bytes)
    local all = shardrt.load(path, s)
    for _, name in ipairs { "a", "b", "c" } do assert_shards(all[name], bytes_of(value)) end
    local on = shardrt.load(path, { c = shardrt.SingleDeviceSharding(shardrt.devices()[3]) }).c
    assert.equal(bytes_of(value), bytes_of(on.addressable_shards[1].data))
    assert.same({}, (shardrt.load(path, {})))
  end)

  it("are written in pieces where they are large, in rounds", function()
    -- 160 MiB: more than two rounds; columns that lie side by side, and rows that are one run each.
    local rows, columns = 2 ^ 12, 2 ^ 12 * 5 / 2
    local value = ndarray.empty({ rows, columns }, "int32")
    for i = 0, rows * columns - 1 do value.data[i] = i * 7 end
    local mesh = shardrt.make_mesh({ 2, 4 }, { "a", "b" })
    for _, spec in ipairs { P("a", "b"), P { "a", "b" } } do
      local written = shardrt.save(path, { x = shardrt.device_put(value, shardrt.NamedSharding(mesh, spec)) })
      assert.equal(tonumber(#files.slurp(path)), written)
      local back = shardrt.load(path).x
      assert.equal(0, ffi.C.memcmp(back.data, value.data, value.bytes))
      collectgarbage()
    end
  end)

  it("are read as any JSON writer may write them", function()
    local payload = files.bytes(7)
    for _, header in ipairs {
      '{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"I16","shape":[2,1],"data_offsets":[3,7]}}',
      '{ \t"b" :\n{"shape": [ 2 , 1 ] ,"data_offsets":[3 ,7 ] , "dtype" : "I16"} ,\r\n"a":{"data_offsets":[0,3],'
        .. '"dtype":"U8","shape":[3]} } \t\r\n  ',
      '{"__metadata__":{},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},'
        .. '"b":{"dtype":"I16","shape":[2,1],"data_offsets":[3,7]}}',
      '{"\\u0061":{"dtyp\\u0065":"U8","shape":[3],"data_offsets":[0,3]},'
        .. '"__metadata__":{"a":"b","c\\n":"\\ud83d\\ude00"},'
        .. '"b":{"dtype":"I16","shape":[2,1],"data_offsets":[3,7]}}',
    } do
      files.write(folder, "w.safetensors", file_of(header, payload))
      local back = shardrt.load(path)
      assert.equal(payload:sub(1, 3), bytes_of(back.a))
      assert.equal(payload:sub(4, 7), bytes_of(back.b)) -- at an odd place
      assert.same({ 2, 1 }, back.b.shape)
    end
  end)

  it("keep any name", function()
    local arrays = {}
    local list = {
      "", "a.b/c", 'q"\\/', "\1\8\9\10\12\13\31\127", "h\195\169llo \226\130\172 \240\159\152\128", "{}[]",
    }
    for i, name in ipairs(list) do arrays[name] = ndarray.full({ 1 }, i, "int8") end
    shardrt.save(path, arrays)
    local back = shardrt.load(path)
    for i, name in ipairs(list) do assert.equal(i, back[name].data[0]) end
    -- Escapes of all kinds make the same names.
    local header = '{"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00E9\\u20aC\\uD83D\\uDE00":'
      .. '{"dtype":"U8","shape":[],"data_offsets":[0,1]}}'
    files.write(folder, "w.safetensors", file_of(header, "A"))
    assert.equal(65, shardrt.load(path)['"\\/\8\12\10\13\9\195\169\226\130\172\240\159\152\128'].data[0])
  end)

  it("are read by the index that a hub keeps beside several of them", function()
    local hub = files.folder()
    local a, b = ndarray.arange(16, "float32"), ndarray.arange(6, "int8")
    shardrt.save(hub .. "/model-00001-of-00002.safetensors", { a = a, old = a })
    shardrt.save(hub .. "/model-00002-of-00002.safetensors", { b = b, old = b })
    local listed = hub .. "/model.safetensors.index.json"
    local function index(text) files.write(hub, "model.safetensors.index.json", text) end
    local first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    index(('{"metadata": {"total_size": 70}, "weight_map": {"a": "%s", "b": "%s", "old": "%s"}}'):format(first, second,
      second))
    local all = shardrt.load(listed)
    assert.same(a:to_table(), all.a:to_table())
    assert.same(b:to_table(), all.b:to_table())
    assert.same(b:to_table(), all.old:to_table())
    local mesh = shardrt.make_mesh({ 8 }, { "x" })
    local some = shardrt.load(listed, { a = shardrt.NamedSharding(mesh, P "x") })
    assert.same(a:to_table(), shardrt.device_get(some.a):to_table())
    assert.is_nil(some.b)
    for text, part in pairs {
      ["{"] = "is no index of .safetensors files", ['{"weight_map": {}}'] = "is no index of .safetensors files",
      ['{"weight_map": {"a": "../x.safetensors"}}'] = "which is no file beside it",
      ['{"weight_map": {"a": "none.safetensors"}}'] = "none.safetensors",
      [('{"weight_map": {"c": "%s"}}'):format(first)] = 'has no array "c", which the index says it has',
    } do
      index(text)
      assert.truthy(files.message(shardrt.load, listed):find(part, 1, true))
    end
    os.remove(listed)
    assert.truthy(files.message(shardrt.load, listed):find("cannot be read", 1, true))
    files.remove(hub)
  end)

  it("agree with the reference implementation in both directions", function()
    if not python then pending "no python3 with safetensors and numpy (SHARDRT_PYTHON names one)" return end
    local arrays, entries = every_dtype()
    arrays['q"\\\n\1\195\169'] = ndarray.full({ 2 }, 7, "int32")
    shardrt.save(path, arrays)
    local script = files.write(folder, "check.py", ([==[
import numpy as np, safetensors
from safetensors.numpy import load_file, save_file, save
f = '%s/'
with safetensors.safe_open(f + 'w.safetensors', 'np') as w:
    keys = list(w.keys())
    tags = {k: w.get_slice(k).get_dtype() for k in keys}
assert len(keys) == %d + 1, keys
for k in keys:
    if '.' in k: assert tags[k] == k.split('.')[0].upper(), (k, tags[k])
# numpy has no bfloat16, so these are left out of what is compared byte by byte.
ours = load_file(f + 'numpy.safetensors')
assert open(f + 'numpy.safetensors', 'rb').read() == save(ours)
assert ours['q"\\\n\x01\u00e9'].tolist() == [7, 7]
save_file({'x': np.arange(12, dtype='<f4').reshape(3, 4), 'y': np.array(True), 'z': np.zeros((2, 0), 'u2')},
          f + 'theirs.safetensors', metadata={'format': 'np', 'more': '"'})
]==]):format(folder, #entries))
    for name, value in pairs(arrays) do
      if value.dtype == "bfloat16" then arrays[name] = nil end
    end
    shardrt.save(folder .. "/numpy.safetensors", arrays)
    local result = mpi.shell(python .. " " .. script)
    assert.equal(0, result.status, result.output)
    local theirs = shardrt.load(folder .. "/theirs.safetensors")
    assert.same({ { 0, 1, 2, 3 }, { 4, 5, 6, 7 }, { 8, 9, 10, 11 } }, theirs.x:to_table())
    assert.same({ true, {} }, { theirs.y:to_table(), theirs.z:reshape { 0 }:to_table() })
    assert.same({ 2, 0 }, theirs.z.shape)
  end)

  it("are refused where the recipe asks for the wrong thing", function()
    local value = ndarray.arange(12, "int32"):reshape { 4, 3 }
    local s = shardrt.NamedSharding(shardrt.make_mesh({ 4 }, { "x" }), P "x")
    shardrt.save(path, { weights = value, bias = value })
    local gone = shardrt.device_put(value, s)
    gone:delete()
    for _, case in ipairs {
      { "load", { path, { weigths = s } }, '"weigths" (did you mean "weights"?); it has {"bias", "weights"}' },
      { "load", { path, { bias = "x" } }, '"bias": "x" is no sharding' },
      { "load", { path, { s } }, "name is a text" },
      { "load", { path, 5 }, "a table of shardings by their names" },
      { "load", { path, { bias = shardrt.NamedSharding(s.mesh, P(nil, "x")) } }, "bias" },
      { "load", { 5 }, "the path of a .safetensors file, not 5" },
      { "load", { folder .. "/none.safetensors" }, "none.safetensors: No such file" },
      { "load", { folder }, "is a folder" },
      { "save", { path, { a = 5 } }, '"a" is 5; it takes global arrays, host arrays, and tables of these' },
      { "save", { path, { a = { b = { 1 } } } }, '"a.b.1" is 1; it takes global' },
      { "save", { path, { a = { b = value }, ["a.b"] = value } }, 'two of them would be called "a.b"' },
      { "save", { path, { [0.5] = value } }, "a name in it is 0.5" },
      { "save", { path, value }, "a table of arrays by their names" },
      { "save", { path, { ["\255"] = value } }, "UTF-8" },
      { "save", { path, { ["a\237\160\128"] = value } }, "UTF-8" },
      { "save", { path, { ["\192\128"] = value } }, "UTF-8" },
      { "save", { path, { ["a\0b"] = value } }, "zero bytes" },
      { "save", { path, { __metadata__ = value } }, "keeps for itself" },
      { "save", { path, { x = gone } }, "was deleted" },
      { "save", { folder .. "/none/w", { x = value } }, "none/w: cannot be written: No such file" },
      { "save", { folder, { x = value } }, "cannot be written: Is a directory" },
    } do
      local before = files.slurp(path)
      local message = files.message(function() shardrt[case[1]](unpack(case[2])) end)
      assert.truthy(message:find(case[3], 1, true), message)
      assert.truthy(message:match "^tests/array/safetensors_spec.lua:%d+: ", message)
      assert.equal(before, files.slurp(path))
    end
    for _, name in ipairs(files.list(folder)) do assert.is_nil(name:match "%.tmp$") end
  end)

  describe("that are bad", function()
    local payload = files.bytes(24)
    local good = '{"first":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]},'
      .. '"next":{"dtype":"U8","shape":[8],"data_offsets":[16,24]}}'

    local function load()
      local ok, result = pcall(shardrt.load, path)
      if ok then return result end
      assert.truthy(result:find(path, 1, true), result)
      assert.truthy(result:match "^tests/array/safetensors_spec.lua:%d+: ", result)
      assert.is_nil(result:find("\n", 1, true), result)
      return nil, result
    end

    it("because they are cut, at any length, are refused", function()
      local text = file_of(good, payload)
      for length = 0, #text - 1 do
        files.write(folder, "w.safetensors", text:sub(1, length))
        assert.is_nil(load(), length)
      end
    end)

    it("because a byte of the header is flipped are refused, or give the bytes that are there", function()
      local text, opened = file_of(good, payload), 0
      for at = 1, #text - #payload do
        for _, mask in ipairs { 1, 2, 4, 8, 16, 32, 64, 128, 255 } do
          files.write(folder, "w.safetensors",
            text:sub(1, at - 1) .. string.char(bit.bxor(text:byte(at), mask)) .. text:sub(at + 1))
          local back = load()
          if back then
            opened = opened + 1
            local all = {}
            for _, host in pairs(back) do all[#all + 1] = bytes_of(host) end
            table.sort(all, function(a, b) return #a > #b end)
            assert.same({ payload:sub(1, 16), payload:sub(17) }, all)
          end
        end
      end
      assert.is_true(opened > 0) -- "first" becomes "girst", I32 becomes U32, …
    end)

    it("because they are random are refused", function()
      local seed = require "tests.support.seed"
      math.randomseed(seed)
      for _ = 1, 500 do
        local bytes = {}
        for i = 1, math.random(0, 100) do bytes[i] = string.char(math.random(0, 255)) end
        local body = ({ "", '{"', '{"a":{"dtype":"', "{" })[math.random(4)] .. table.concat(bytes)
        files.write(folder, "w.safetensors", math.random(2) == 1 and body or file_of(body))
        assert.is_nil(load(), "seed " .. seed)
      end
    end)

    it("because the header lies are refused with the reason, and the array's name", function()
      local function one(entry, data) return file_of('{"x":{' .. entry .. "}}", data or payload) end
      local function shape(text, data) return one('"dtype":"U8","shape":' .. text .. ',"data_offsets":[0,24]', data) end
      local function dtype(text) return one('"dtype":' .. text .. ',"shape":[24],"data_offsets":[0,24]') end
      local function offsets(text) return one('"dtype":"U8","shape":[24],"data_offsets":' .. text) end
      local function two(a, b, c, d)
        return file_of(('{"x":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]},'
          .. '"y":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}}'):format(b - a, a, b, d - c, c, d), payload)
      end
      for _, case in ipairs {
        { "", "has 0 bytes" },
        { "\0\0\0", "has 3 bytes" },
        { file_of("", ""), "does not begin with {" },
        { file_of(good, payload, 1000), "said to have 1000 bytes, but only" },
        { "\255\255\255\255\255\255\255\255" .. good, "said to have 18446744073709551615 bytes" },
        { "\0\0\0\0\0\0\0\128" .. good, "said to have 9223372036854775808 bytes" },
        { file_of(" " .. good, payload), "does not begin with {" },
        { file_of("[]", payload), "does not begin with {" },
        { file_of("null", payload), "does not begin with {" },
        { "\147NUMPY\1\0v\0{'descr': '<f4'}", "said to have" },
        { file_of(("["):rep(1000), payload), "does not begin with {" },
        { file_of(('{"a":'):rep(1000) .. ("}"):rep(1000), payload), "expected an object with" },
        { file_of('{"a":' .. ("["):rep(1000) .. ("]"):rep(1000) .. "}", payload), '"a": malformed header' },
        { file_of('{"__metadata__":' .. ('{"a":'):rep(1000) .. "1" .. ("}"):rep(1001), payload), "object of texts" },
        { shape(("["):rep(1000) .. ("]"):rep(1000)), '"x": malformed header' },
        { file_of(good:sub(1, -2), payload), "an object of arrays" },
        { file_of(good .. "}", payload), "nothing but spaces" },
        { file_of(good .. "x", payload), "nothing but spaces" },
        { file_of(good .. "\0", payload), "nothing but spaces" },
        { file_of(good:gsub("},", "}"), payload), "an object of arrays" },
        { file_of(good:sub(1, -2) .. ",}", payload), "an object of arrays" },
        { file_of('{"x":5}', payload), '"x": malformed header, at byte 13' },
        { file_of('{"x" {}}', payload), "what the name stands for" },
        { file_of("{x:{}}", payload), "an object of arrays" },
        { file_of('{"x', payload), "the rest of a text" },
        { file_of('{"a\nb":{}}', payload), "the rest of a text" },
        { file_of('{"a\\x":{}}', payload), "behind a backslash" },
        { file_of('{"a\\', payload), "behind a backslash" },
        { file_of('{"a\\u12g4":{}}', payload), "four hexadecimal digits" },
        { file_of('{"a\\u12', payload), "four hexadecimal digits" },
        { file_of('{"a\\ud800":{}}', payload), "surrogate pair" },
        { file_of('{"a\\ud800\\u0041":{}}', payload), "surrogate pair" },
        { file_of('{"a\\udc00":{}}', payload), "surrogate pair" },
        { file_of('{"a\\u0000":{}}', payload), "zero byte" },
        { file_of('{"a\255":{}}', payload), "UTF-8" },
        { file_of('{"a\192\128":{}}', payload), "UTF-8" },
        { file_of('{"a\237\160\128":{}}', payload), "UTF-8" },
        { file_of('{"a\244\144\128\128":{}}', payload), "UTF-8" },
        { file_of('{"a\226\130', payload), "UTF-8" },
        { file_of('{"__metadata__":null}', ""), "an object of texts" },
        { file_of('{"__metadata__":{"a":1}}', ""), "an object of texts" },
        { file_of('{"__metadata__":{"a"}}', ""), "an object of texts" },
        { file_of('{"__metadata__":{},"__metadata__":{}}', ""), '"__metadata__": stands twice' },
        { file_of(good:gsub("next", "first"), payload), '"first": stands twice' },
        { file_of(good:gsub("next", "firs\\u0074"), payload), '"first": stands twice' },
        { dtype '"F8_E4M3"', '"x": its dtype is "F8_E4M3"' },
        { dtype '"u8"', '"x": its dtype is "u8"' },
        { dtype '""', '"x": its dtype is ""' },
        { dtype('"' .. ("U8"):rep(1000) .. '"'), '"x": its dtype is a long text' },
        { dtype "8", '"x": malformed header' },
        { one '"dtype":"U8","shape":[24]', '"x": malformed header' },
        { one '"dtype":"U8","dtype":"U8","shape":[24],"data_offsets":[0,24]', "each once" },
        { one '"dtype":"U8","shape":[24],"data_offsets":[0,24],"more":1', "each once" },
        { one '"dtype":"U8" "shape":[24],"data_offsets":[0,24]', "each once" },
        { one "", "each once" },
        { shape "[-24]", "whole numbers from 0 on" },
        { shape "[24.0]", "whole numbers from 0 on" },
        { shape "[24e0]", "whole numbers from 0 on" },
        { shape "[024]", "whole numbers from 0 on" },
        { shape "[24,]", "whole numbers from 0 on" },
        { shape "[24 1]", "whole numbers from 0 on" },
        { shape '["24"]', "whole numbers from 0 on" },
        { shape "24", "whole numbers from 0 on" },
        { shape "[1,1,1,1,1,1,1,1,24]", "more than 8 dimensions" },
        { shape "[9223372036854775808]", "does not fit in 64 bits" },
        { shape "[99999999999999999999999999999999]", "does not fit in 64 bits" },
        { shape "[4294967296,4294967296]", "multiply to more than 64 bits hold" },
        { shape "[23]", "its dtype and shape make 23 bytes, its data_offsets 24" },
        { shape "[0]", "make 0 bytes" },
        { shape("[24]", payload:sub(1, 23)), '"x": its data ends at 24, but only 23 bytes follow' },
        { shape("[24]", payload .. "x"), "something stands behind the data" },
        { file_of("{}", payload), "something stands behind the data" },
        { offsets "[24,0]", "ends before it begins" },
        { offsets "[0,24,24]", "[begin, end]" },
        { offsets "[0]", "[begin, end]" },
        { offsets "[]", "[begin, end]" },
        { offsets "[-1,23]", "[begin, end]" },
        { offsets "[1,25]", "the bytes from 0 on belong to no array" },
        { offsets "[9223372036854775783,9223372036854775807]", "belong to no array" },
        { two(0, 16, 8, 24), '"y": its data overlaps' },
        { two(0, 24, 0, 24), '"y": its data overlaps' },
        { two(0, 24, 8, 8), '"y": its data overlaps' },
        { two(0, 8, 16, 24), '"y": its data begins at 16, but the bytes from 8 on' },
        { two(0, 16, 16, 26), '"y": its data ends at 26' },
      } do
        files.write(folder, "w.safetensors", case[1])
        local back, message = load()
        assert.is_nil(back, case[2])
        assert.truthy(message:find(case[2], 1, true), message .. "\nis not: " .. case[2])
      end
      -- A name of any length does not drown the message.
      files.write(folder, "w.safetensors", file_of('{"' .. ("long"):rep(10000) .. '":{}}', ""))
      local _, message = load()
      assert.is_true(#message < 1000 and message:find("longlong", 1, true) ~= nil, message)
    end)

    it("because the header is larger than the format allows are refused", function()
      local head = little(100000001, 8) .. "{}"
      files.write(folder, "w.safetensors", head)
      assert.equal(0, os.execute(("truncate -s 100000009 %s"):format(path)))
      local _, message = load()
      assert.truthy(message:find("the format allows 100000000", 1, true), message)
    end)
  end)

  it("leave nothing behind when an allocation fails", function()
    local s = shardrt.NamedSharding(shardrt.make_mesh({ 2, 4 }, { "x", "y" }), P("y", "x"))
    local value = ndarray.arange(64, "int16"):reshape { 8, 8 }
    local x = shardrt.device_put(value, s)
    shardrt.save(path, { x = x, y = value })
    local old = files.slurp(path)
    local entries = ffi.new "shardrt_saved[2]"
    entries[0].name, entries[0].array = "x", x.handle
    entries[1].name, entries[1].data, entries[1].dtype, entries[1].ndim = "y", value.data, C.SHARDRT_INT16, 2
    entries[1].shape[0], entries[1].shape[1] = 8, 8
    local opened = ffi.new "shardrt_safetensors *[1]"
    assert.equal(0, C.shardrt_safetensors_open(path, opened))
    local thin = shardrt.NamedSharding(s.mesh, P(nil, "x"))
    local made = require("shardrt.array.array").new("spec", s, { code = C.SHARDRT_INT16 }, { 8, 8 })
    local calls = {
      open = function()
        local out = ffi.new "shardrt_safetensors *[1]"
        local code = C.shardrt_safetensors_open(path, out)
        if code == 0 then C.shardrt_safetensors_free(out[0]) end
        return code
      end,
      load = function()
        local out = ffi.new "shardrt_buffer *[1]"
        local code = C.shardrt_safetensors_load(opened[0], 0, out)
        if code == 0 then C.shardrt_buffer_free(out[0]) end
        return code
      end,
      fill = function() return C.shardrt_safetensors_fill(opened[0], 0, made.handle, nil) end,
      rows = function()
        local out = ffi.new "shardrt_sharding *[1]"
        local code = C.shardrt_safetensors_rows(thin.handle, C.SHARDRT_INT16, 2, ffi.new("int64_t[2]", 512, 8), 4, 2,
          out)
        if code == 0 then C.shardrt_sharding_free(out[0]) end
        return code
      end,
      save = function() return C.shardrt_safetensors_save(current.job, path, 2, entries, nil, nil) end,
    }
    for name, call in pairs(calls) do
      local failures = 0
      for n = 1, 100 do
        C.shardrt_alloc_fail_at(n)
        local code = call()
        C.shardrt_alloc_fail_at(0)
        if code == 0 then break end
        assert.equal(C.SHARDRT_ENOMEM, code, name)
        assert.truthy(ffi.string(C.shardrt_error_message()):match "out of memory")
        failures = failures + 1
        assert.equal(old, files.slurp(path))
        assert.same({ "w.safetensors" }, files.list(folder))
      end
      assert.is_true(failures > 0 and failures < 100, name)
    end
    C.shardrt_safetensors_free(opened[0])
    assert.equal(old, files.slurp(path))
  end)

  it("refuse to be saved with a name twice, or more than 64 bits count", function()
    local entries = ffi.new "shardrt_saved[2]"
    for i = 0, 1 do entries[i].name, entries[i].dtype = "x", C.SHARDRT_INT8 + i end
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_safetensors_save(current.job, path, 2, entries, nil, nil))
    assert.truthy(ffi.string(C.shardrt_error_message()):find('two arrays are named "x"', 1, true))
    entries[0].ndim, entries[0].shape[0] = 1, 0x7fffffffffffffffLL
    assert.equal(C.SHARDRT_EOVERFLOW, C.shardrt_safetensors_save(current.job, path, 1, entries, nil, nil))
    entries[0].ndim = 9
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_safetensors_save(current.job, path, 1, entries, nil, nil))
    entries[0].ndim, entries[0].dtype = 0, 77
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_safetensors_save(current.job, path, 1, entries, nil, nil))
    assert.same({}, files.list(folder))
  end)

  it("are cleaned of what a killed job left beside them, and of nothing else", function()
    local left = { "w.safetensors.0123456789abcdef.tmp", "w.safetensors.ffffffffffffffff.tmp" }
    local kept = {
      "w.safetensors.0123456789abcde.tmp", "w.safetensors.0123456789abcdeg.tmp", "x.safetensors.0123456789abcdef.tmp",
      "w.safetensors.0123456789abcdef.tmp2", "w.safetensors.tmp", "w.safetensors.aaaaaaaaaaaaaaaa.tmp",
    }
    for _, name in ipairs(left) do files.write(folder, name, "left") end
    for _, name in ipairs(kept) do files.write(folder, name, "kept") end
    -- The last one is still being written by another job, which holds a lock.
    local fd = ffi.C.open(folder .. "/" .. kept[#kept], 1)
    local locked = ffi.C.flock(fd, 2) == 0
    shardrt.save(path, { x = ndarray.zeros({ 4 }) })
    local wanted = { "w.safetensors" }
    for i, name in ipairs(kept) do
      if i < #kept or locked then wanted[#wanted + 1] = name end
    end
    table.sort(wanted)
    local found = files.list(folder)
    table.sort(found)
    ffi.C.close(fd)
    assert.same(wanted, found)
  end)
end)

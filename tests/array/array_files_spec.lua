-- Files of arrays that are not as they seem: bools of other bytes than 0 and 1, types that only look like shardrt's,
-- shapes that their storage cannot have (tests/files/odd_arrays.tar.gz, made by odd_arrays.py), and of several arrays
-- only the one that is named.

local expect = require "tests.support.expect"
local boxes = require "tests.support.boxes"
local ffi = require "ffi"
local files = require "tests.support.files"
local shardrt = require "shardrt"
local ndarray, source, T = shardrt.ndarray, shardrt.source, shardrt.transform

local folder
setup(function()
  folder = files.folder()
  assert(os.execute(("tar -xzf tests/files/odd_arrays.tar.gz -C '%s'"):format(folder)) == 0)
end)
teardown(function() files.remove(folder) end)

local function refuses(words, f, ...)
  expect.contains(files.message(f, ...), unpack(words))
end

describe("a bool of a file", function()
  local right
  setup(function() right = boxes.bytes_of(ndarray.load(folder .. "/right.npy")) end)

  it("is true for any byte but 0, as numpy, zarr and h5py read it, in every format", function()
    local opened = {
      npy = source.npy { x = folder .. "/bool.npy" },
      hdf5 = source.hdf5 { x = folder .. "/bool.h5:/plain" },
      ["hdf5, chunked"] = source.hdf5 { x = folder .. "/bool.h5:/chunked" },
      zarr2 = source.zarr { x = folder .. "/bool-v2" }, zarr3 = source.zarr { x = folder .. "/bool-v3" },
      npz = source.npz(folder .. "/bool.npz", { cache = folder }),
      ["npz, deflated"] = source.npz(folder .. "/bool-deflated.npz", { cache = folder }),
    }
    for _, verify in ipairs { true, false } do
      opened["safetensors, verify = " .. tostring(verify)] =
        source.safetensors(folder .. "/bool.safetensors", { verify = verify })
    end
    for name, s in pairs(opened) do
      assert.same({ dtype = "bool", shape = { 4 } }, s.fields.x, name)
      assert.is_true(right == boxes.bytes_of(s:read(0, #s).x), name)
      local numbers = s:map { x = { T.cast "int32" } }:read(0, #s).x -- which looks at the file where it lies
      for i = 1, #right do assert.equal(right:byte(i), numbers.data[i - 1], name) end
      assert.is_true(right == boxes.bytes_of(s:map { x = { T.transpose { 0 } } }:read(0, #s).x), name)
      local counted = s:filter { x = function(sample) return sample.data[0] end }
      assert.equal(2, #counted, name)
    end
  end)

  it("is so as a whole array, and behind decoders", function()
    local s = shardrt.SingleDeviceSharding(0)
    local raw = files.slurp(folder .. "/bool.npy")
    local host = ndarray.empty({ 1, #raw }, "uint8")
    ffi.copy(host.data, raw, #raw)
    local bytes = source.array { x = host }
    local elements = ndarray.empty({ 1, 12 }, "uint8")
    ffi.copy(elements.data, raw:sub(-12), 12)
    for name, found in pairs {
      ["ndarray.load"] = ndarray.load(folder .. "/bool.npy"),
      load_npy = shardrt.device_get((shardrt.load_npy(folder .. "/bool.npy", s))),
      load = shardrt.device_get((shardrt.load(folder .. "/bool.safetensors", { x = s })).x),
      decode_npy = bytes:map { x = { T.decode_npy { dtype = "bool", shape = { 3, 4 } } } }:read(0, 1).x,
      decode_raw = source.array { x = elements }:map { x = { T.decode_raw { dtype = "bool", shape = { 12 } } } }
        :read(0, 1).x,
    } do
      assert.equal("bool", found.dtype, name)
      assert.is_true(right == boxes.bytes_of(found), name)
    end
  end)
end)

describe("an HDF5 type", function()
  it("that is one of shardrt's is read", function()
    local s = source.hdf5 { bool = folder .. "/types.h5:/bool", half = folder .. "/types.h5:/float16" }
    assert.equal("bool", s.fields.bool.dtype)
    assert.same({ false, true, true, false }, s:read(0, 4).bool:to_table())
    assert.equal("float16", s.fields.half.dtype)
    assert.same({ 1, 2, -3, 0.5 }, s:read(0, 4).half:to_table())
  end)

  it("that only looks like one is refused, and named", function()
    for name, what in pairs {
      turned = "enumerations", colours = "enumerations", three = "enumerations", wide = "enumerations",
      bfloat16 = "numbers of another kind", bias = "numbers of another kind", int12 = "numbers of another kind",
      uint12 = "numbers of another kind", long = "numbers of another kind", bits8 = "bit fields", bits16 = "bit fields",
      opaque = "bytes", complex = "compounds", reference = "references", lists = "arrays",
    } do
      refuses({ "types.h5:/" .. name, "its elements are " .. what, "would do" }, source.hdf5,
        { x = folder .. "/types.h5:/" .. name })
    end
  end)
end)

describe("an HDF5 shape", function()
  local function little(n)
    return (ffi.string(ffi.new("uint64_t[1]", n), 8))
  end
  local ROWS, COLUMNS, ENDLESS = little(61), little(7), ("\255"):rep(8)

  -- A copy in which the sizes stand otherwise: rows, columns, and the most that these may be. Each has a name of its
  -- own: libhdf5 knows a file again that is still open.
  local copies = 0
  local function changed(name, from, to)
    local text = files.slurp(folder .. "/" .. name .. ".h5")
    local at = assert(text:find(table.concat(from), 1, true), name)
    local all = table.concat(to)
    copies = copies + 1
    return files.write(folder, ("copy%d.h5"):format(copies), text:sub(1, at - 1) .. all .. text:sub(at + #all)) .. ":/x"
  end
  local function open(path) return source.hdf5 { x = path } end

  -- HDF5 1.14 looks at that itself, and says so in other words.
  local function refuses_size(path, ours, of_the_library)
    local told = files.message(open, path)
    local by_library = told:find(of_the_library .. " is greater than max", 1, true)
    assert.truthy(told:find(path, 1, true) and (told:find(ours, 1, true) or by_library), told)
  end

  it("is what the file says, and no more than it may be", function()
    for _, name in ipairs { "piece", "fixed", "grows" } do
      local s = open(folder .. "/" .. name .. ".h5:/x")
      assert.is_true(boxes.bytes_of(ndarray.load(folder .. "/rows.npy")) == boxes.bytes_of(s:read(0, 61).x), name)
    end
    local fixed = { ROWS, COLUMNS, ROWS, COLUMNS }
    for _, rows in ipairs { 62, 2 ^ 32 + 61, 2 ^ 48 + 61 } do
      for _, name in ipairs { "piece", "fixed" } do
        local path = changed(name, fixed, { little(rows), COLUMNS, ROWS, COLUMNS })
        refuses_size(path, ("has size %.0f, and may have 61 at most"):format(rows), ("size of %.0f"):format(rows))
      end
    end
    local path = changed("fixed", fixed, { ROWS, little(9), ROWS, COLUMNS })
    refuses_size(path, "dimension 1 has size 9, and may have 7 at most", "dim 1 size of 9")
  end)

  it("is that of its elements, where these lie in one piece", function()
    for _, rows in ipairs { 60, 62, 2 ^ 40 } do
      local path = changed("piece", { ROWS, COLUMNS, ROWS, COLUMNS }, { little(rows), COLUMNS, little(rows), COLUMNS })
      refuses({ path }, open, path)
    end
  end)

  it("does not have more chunks than its file has bytes", function()
    local grows = { ROWS, COLUMNS, ENDLESS, COLUMNS }
    for _, rows in ipairs { 2 ^ 30, 2 ^ 48 + 61, 2 ^ 62 } do
      local path = changed("grows", grows, { little(rows), COLUMNS, ENDLESS, COLUMNS })
      refuses({ path, "more chunks than the file has bytes" }, open, path)
    end
    local s = open(changed("grows", grows, { little(80), COLUMNS, ENDLESS, COLUMNS })) -- as if it had grown
    assert.equal(80, #s)
    assert.same({ 0, 0, 0, 0, 0, 0, 0 }, s:read(79, 1).x:to_table()[1])
  end)
end)

describe("an HDF5 chunk", function()
  local function little(n, bytes) return (ffi.string(ffi.new("uint64_t[1]", n), bytes or 8)) end

  it("whose place is damaged is not taken for one that was never written", function()
    local size = little(8 * 7 * 4, 4) .. little(0, 4) -- of a chunk, in the index, before its coordinates
    for _, name in ipairs { "fixed", "grows" } do
      local text = files.slurp(folder .. "/" .. name .. ".h5")
      local refused = 0
      for row = 8, 56, 8 do
        for bit = 3, 40 do
          local at = assert(text:find(size .. little(row), 1, true)) + #size
          local other = row + (math.floor(row / 2 ^ bit) % 2 == 0 and 2 ^ bit or -2 ^ bit)
          local path = files.write(folder, ("changed-%s-%d-%d.h5"):format(name, row, bit),
            text:sub(1, at - 1) .. little(other) .. text:sub(at + 8))
          local ok, told = pcall(function() return source.hdf5 { x = path .. ":/x" }:read(0, 61).x end)
          if ok then -- what it should be: the place of a chunk is also told by those beside it
            local right = boxes.bytes_of(ndarray.load(folder .. "/rows.npy"))
            assert.is_true(right == boxes.bytes_of(told), row .. " " .. bit)
          else
            assert.truthy(told:find("changed-", 1, true) and told:find("damaged", 1, true), told)
            refused = refused + 1
          end
        end
      end
      assert.is_true(refused > 20, name .. " " .. refused)
    end
  end)
end)

describe("of files with several arrays or columns the named ones alone are looked at", function()
  local function little(n) return (ffi.string(ffi.new("uint64_t[1]", n), 8)) end

  it("in .npz files", function()
    local odd = "tests/files/npz/odd.npz" -- a scalar, Python's objects, and arrays of other lengths beside x
    assert.same({ "x" }, source.npz(odd, { fields = { "x" }, cache = folder }).names)
    assert.same({ 0, 1, 2, 3 }, source.npz(odd, { fields = { "x" }, cache = folder }):read(0, 4).x:to_table())
    for name, words in pairs { scalar = "is a single number", objects = "Python objects", none = 'no array "none"' } do
      refuses({ odd, words }, source.npz, odd, { fields = { "x", name }, cache = folder })
    end
  end)

  it("in safetensors files, also beside dtypes that shardrt does not read", function()
    local header = '{"x":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},'
      .. '"y":{"dtype":"F8_E4M3","shape":[3,2],"data_offsets":[8,14]},'
      .. '"z":{"dtype":"I16","shape":[3],"data_offsets":[14,20]}}'
    local path = files.write(folder, "several.safetensors", little(#header) .. header
      .. "\1\0\0\0\2\0\0\0" .. ("\0"):rep(12))
    for _, verify in ipairs { true, false } do
      local s = source.safetensors(path, { fields = { "x" }, verify = verify })
      assert.same({ "x" }, s.names)
      assert.same({ 1, 2 }, s:read(0, 2).x:to_table())
    end
    refuses({ path, '"y": its dtype is "F8_E4M3"; shardrt reads BOOL' }, source.safetensors, path)
    refuses({ path, '"y": its dtype is "F8_E4M3"' }, source.safetensors, path, { fields = { "y" } })
    refuses({ path, '"y": its dtype is "F8_E4M3"' }, shardrt.load, path, { x = shardrt.SingleDeviceSharding(0) })
    refuses({ "different length" }, source.safetensors, path, { fields = { "x", "z" } })
    path = files.write(folder, "short.safetensors", little(#header) .. (header:gsub("%[3,2%]", "[3,3]"))
      .. ("\0"):rep(20))
    refuses({ path, "its dtype and shape make 9 bytes" }, source.safetensors, path, { fields = { "x" } })
    path = files.write(folder, "damaged.safetensors", little(#header) .. (header:gsub("F8_E4M3", "F8_E4M2"))
      .. ("\0"):rep(20))
    refuses({ path, 'its dtype is "F8_E4M2"' }, source.safetensors, path, { fields = { "x" } })
  end)

  it("in tables and lines", function()
    local csv = files.write(folder, "twice.csv", "x,y,y\n1,2,a\n4,5,b\n")
    refuses({ csv, 'two columns are called "y"' }, source.csv, csv)
    assert.same({ 1, 4 }, source.csv(csv, { fields = { "x" } }):read(0, 2).x:to_table())
    local lines = files.write(folder, "odd.jsonl", '{"x":1,"y":{"a":[{"b":1}]},"z":null}\n{"x":2}\n')
    refuses({ lines, "`fields` says which are wanted" }, source.jsonl, lines)
    assert.same({ 1, 2 }, source.jsonl(lines, { fields = { "x" } }):read(0, 2).x:to_table())
    refuses({ "the files have no field 5" }, source.csv, csv, { fields = { 5 } })
    refuses({ '"x" stands twice' }, source.csv, csv, { fields = { "x", "x" } })
    refuses({ '"x" stands twice' }, source.csv, csv, { fields = { "x", x = "int64" } })
  end)
end)

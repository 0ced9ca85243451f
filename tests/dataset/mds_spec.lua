-- long: 15 s
-- Folders of MDS shards as MosaicML's Streaming writes them (tests/files/write_mds.py): read back column by column;
-- damaged, cut and lying ones; compressed ones; many processes; running out of memory.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"

ffi.cdef "int truncate(const char *path, long length);"

local ragged = {
  number = "int64", text = "bytes", bytes = "bytes", json = "bytes", digits = "bytes", fixed = "int16",
  typed = { "float32", { -1 } }, free = { "uint8", { 2, -1 } },
}

local function bytes_of(host) return ffi.string(host.data, host.bytes) end

local function host_bytes(ctype, values)
  local array = ffi.new(ctype .. "[?]", #values, values)
  return ffi.string(array, ffi.sizeof(array))
end

-- Sample i as the script makes it: each column's bytes.
local function sample(i)
  local bytes, fixed, typed, free = {}, {}, {}, {}
  for k = 0, i * 3 - 1 do bytes[k + 1] = string.char((i * 31 + k * 7) % 256) end
  for k = 0, 5 do fixed[k + 1] = k * i end
  for k = 0, i do typed[k + 1] = k / 4 end
  for k = 1, 2 * (i + 1) do free[k] = i end
  return {
    number = host_bytes("int64_t", { i - 5 }), text = ("ä"):rep(i % 4), bytes = table.concat(bytes),
    json = ('{"a": %d}'):format(i), digits = "1" .. ("0"):rep(i), fixed = host_bytes("int16_t", fixed),
    typed = host_bytes("float", typed), free = host_bytes("uint8_t", free),
  }
end

local function expected()
  local samples = {}
  for i = 0, 11 do samples[i + 1] = sample(i) end
  return samples
end

describe("MDS folders", function()
  local folder, cache
  before_each(function()
    folder = files.folder()
    cache = folder .. "/cache"
  end)
  after_each(function() files.remove(folder) end)

  local function copy(name)
    assert(os.execute(("cp -r tests/files/mds/%s %s/"):format(name, folder)) == 0)
    return folder .. "/" .. name
  end

  local function open(path, o)
    return shardrt.source.mds(path, { fields = o and o.fields or ragged, cache = cache, verify = o and o.verify })
  end

  local function read_all(path, o)
    local source, samples = open(path, o), {}
    for i = 0, #source - 1 do
      local values = source:read(i, 1)
      samples[i + 1] = {}
      for name, value in pairs(values) do samples[i + 1][name] = bytes_of(value.data and value or value[1]) end
    end
    return samples
  end

  for _, name in ipairs { "raw", "zstd", "gz", "br", "snappy", "hashes", "zstd-hashes" } do
    it("are read back as they were written: " .. name, function()
      local path = copy(name)
      assert.same(expected(), read_all(path))
      assert.same(expected(), read_all(path)) -- from what the first one left beside them, and in the cache
      assert.same(expected(), read_all(path, { verify = false }))
      local left = #files.list(path)
      for _, one in ipairs(files.list(path)) do left = left - (one:find "%.shardrt%-index$" and 2 or 0) end
      assert.equal(1, left, "an index beside each shard, and nothing else")
    end)
  end

  it("have an index that merge_index made of several, with shards in folders", function()
    local shards = {}
    for i = 0, 1 do
      local words = "mkdir -p %s/merged && cp -r tests/files/mds/scalars %s/merged/%d"
      assert(os.execute(words:format(folder, folder, i)) == 0)
      local text = files.slurp(("%s/merged/%d/index.json"):format(folder, i))
      shards[i + 1] = text:match '"shards": %[(.*)%]':gsub('"basename": "', ('"basename": "%d/'):format(i))
    end
    local function merged(list)
      files.write(folder .. "/merged", "index.json", ('{"version": 2, "shards": [%s]}'):format(list))
      return shardrt.source.mds(folder .. "/merged", { cache = cache })
    end
    local one = shardrt.source.mds(folder .. "/merged/0", { cache = cache })
    local both = merged(table.concat(shards, ", "))
    assert.equal(2 * #one, #both)
    for name, host in pairs(one:read(0, #one)) do
      assert.equal(bytes_of(host), bytes_of(both:read(#one, #one)[name]))
    end
    for _, name in ipairs { "../0/", "/0/", "0//", "0/../0/", "./0/" } do
      expect.contains(files.message(merged, (shards[1]:gsub('"0/', '"' .. name))), "no name of a file in its folder")
    end
    merged(table.concat(shards, ", "))
    for _, command in ipairs { "index", "index --check" } do
      local result = mpi.shell(("%s %s %s/merged"):format(mpi.program(), command, folder))
      assert.equal(0, result.status, result.output)
    end
  end)

  it("have the fields that their columns tell of", function()
    local source = shardrt.source.mds(copy "raw")
    assert.same({
      number = { dtype = "int64", shape = {} }, text = { dtype = "uint8", shape = { -1 } },
      bytes = { dtype = "uint8", shape = { -1 } }, json = { dtype = "uint8", shape = { -1 } },
      digits = { dtype = "uint8", shape = { -1 } }, fixed = { dtype = "int16", shape = { 2, 3 } },
      typed = { dtype = "float32", shape = { -1 } }, free = { dtype = "uint8", shape = { 2, -1 } },
    }, source.fields) -- sizes that are not the same in all samples are -1, also where the index is there
    assert.same({ 2, 8 }, source:read(7, 1).free[1].shape)
    assert.same({ 2, -1 }, shardrt.source.mds(folder .. "/raw").fields.free.shape)
    local asked = { fields = { free = { "uint8", { 2, 1 } } } }
    expect.contains(files.message(shardrt.source.mds, folder .. "/raw", asked), "record 1 at byte", "`fields` can say")
    asked.on_bad_record = "skip"
    assert.equal(1, #shardrt.source.mds(folder .. "/raw", asked))
    source = shardrt.source.mds(copy "scalars")
    local values = source:read(0, 3)
    for dtype, field in pairs(source.fields) do
      assert.same({ dtype = dtype, shape = {} }, field)
      if dtype ~= "float16" then
        for i = 0, 2 do assert.equal(i, tonumber(values[dtype].data[i])) end
      end
    end
    assert.equal("\0\0\0\60\0\64", bytes_of(values.float16))
  end)

  local function write_byte(path, at, byte)
    local file = assert(io.open(path, "r+b"))
    file:seek("set", at)
    file:write(string.char(byte))
    file:close()
  end

  -- A byte with one bit turned.
  local function turned(text, at)
    local byte, bit = text:byte(at + 1), 2 ^ math.random(0, 7)
    return math.floor(byte / bit) % 2 == 1 and byte - bit or byte + bit
  end

  -- Pixel {y, x, c} of picture i, as the script makes it.
  local function pixel(i, y, x, c) return i * 50 + y * 20 + x * 7 + (c or 0) * 3 end

  local function check_pixels(host, i, channels, scale)
    local height, wrong = host.shape[1], 0
    assert.same({ channels == 3 and 2 + i % 2 or 2, 3, channels }, host.shape)
    for y = 0, height - 1 do
      for x = 0, 2 do
        for c = 0, channels - 1 do
          local right = pixel(i, y, x, c) * (scale or 1)
          if host.data[(y * 3 + x) * channels + c] ~= (host.dtype == "uint8" and right % 256 or right) then
            wrong = wrong + 1
          end
        end
      end
    end
    assert.equal(0, wrong)
  end

  it("have Pillow's pixels, and lists of images as fields of one item each", function()
    local source = shardrt.source.mds(copy "pictures")
    local bytes = { dtype = "uint8", shape = { -1 } }
    assert.same({
      rgb = { dtype = "uint8", shape = { -1, 3, 3 } }, gray = { dtype = "uint8", shape = { 2, 3, 1 } },
      deep = { dtype = "int32", shape = { 2, 3, 1 } }, real = { dtype = "float32", shape = { 2, 3, 1 } },
      short = { dtype = "uint16", shape = { 2, 3, 1 } }, ["pair.0"] = bytes, ["pair.1"] = bytes,
      ["pair.count"] = { dtype = "int64", shape = {} }, ["words.0"] = bytes, ["words.1"] = bytes,
      ["words.count"] = { dtype = "int64", shape = {} },
    }, source.fields)
    local images = source:map {
      ["pair.0"] = { shardrt.transform.decode_image() }, ["pair.1"] = { shardrt.transform.decode_image() },
    }
    for i = 0, 4 do
      local got, decoded = source:read(i, 1), images:read(i, 1)
      check_pixels(got.rgb[1], i, 3)
      local function one(name) return { shape = { 2, 3, 1 }, dtype = got[name].dtype, data = got[name].data } end
      check_pixels(one "gray", i, 1)
      check_pixels(one "deep", i, 1)
      check_pixels(one "short", i, 1)
      check_pixels(one "real", i, 1, 0.25)
      check_pixels(decoded["pair.0"][1], i, 3)
      check_pixels(decoded["pair.1"][1], i + 1, 3)
      for k = 0, 1 do
        local right = {}
        for j = 0, i * (k + 2) - 1 do right[j + 1] = string.char((i * 31 + j * 7) % 256) end
        assert.equal(table.concat(right), bytes_of(got["words." .. k][1]))
      end
      assert.equal(2, tonumber(got["pair.count"].data[0]))
    end
    local asked = { fields = { rgb = { "uint8", { 2, 3, 3 } } } }
    expect.contains(files.message(shardrt.source.mds, folder .. "/pictures", asked), "record 1 at byte",
      'its "rgb" has not the shape of the field')
  end)

  it("have lists of any length, whose items are read where they are", function()
    local path = copy "albums"
    local function try(fields, o)
      return shardrt.source.mds(path, { fields = fields, on_bad_record = o })
    end
    local source = try { "some.count", "one", ["some.0"] = "bytes" }
    local names = {}
    for i = 0, 4 do
      local ok, got = pcall(source.read, source, i, 1)
      if i == 0 then
        expect.contains(tostring(got), "record 0 at byte", '"some.0": its list has 0 items, and so no number 0')
      else
        assert.equal(bytes_of(got.one[1]), bytes_of(got["some.0"][1])) -- the same picture, encoded twice
      end
      names[i + 1] = ok and tonumber(got["some.count"].data[0])
    end
    assert.same({ false, 1, 2, 3, 4 }, names)
    assert.equal(2, #try({ "some.2" }, "skip"))
    local long = try({ "some.count", "some.3" }):filter { ["some.count"] = { ">", 3 } }
    assert.equal(1, #long)
    assert.equal("\255\216", bytes_of(long:read(0, 1)["some.3"][1]):sub(1, 2))
    local function fails(fields, ...) expect.contains(files.message(try, fields), ...) end
    fails({ "some" }, 'the column "some" holds lists ("list[jpeg]"): "some.0"', '"some.count" how many a sample has')
    fails({ "some.0", "some.01" }, 'no column "some.01"')
    fails({ ["some.0"] = "float32" }, "which are no elements")
    fails({ ["some.count"] = "int32" }, "int32 is asked for, and it holds int64")
    fails({ "one.0" }, 'no column "one.0"')
    fails({ "stack" }, 'encoded as "list[pil]", which shardrt does not read: write it anew as list[png]')
    fails(nil, "that are not of one length", '"some.count" how many a sample has')
    local odd = try { "odd" }
    assert.same({ -1, 3, 3 }, odd.fields.odd.shape)
    expect.contains(files.message(odd.read, odd, 4, 1), "record 4 at byte", 'mode "P", which shardrt does not read')
    assert.equal(4, #try({ "odd" }, "skip"))
    path = copy "pictures"
    fails({ ["pair.2"] = "bytes" }, 'it has no "pair.2": each list of "pair" has 2 items')
  end)

  it("whose lists and pictures are damaged or cut are refused, and never give more than what stands there", function()
    local path = copy "pictures"
    local json, shard = files.slurp(path .. "/index.json"), path .. "/shard.00000.mds"
    local text = files.slurp(shard)
    local refusals = 0
    for at = 0, #text - 1, 2 do
      write_byte(shard, at, turned(text, at))
      os.remove(shard .. ".shardrt-index")
      local ok, message = pcall(function()
        local source = shardrt.source.mds(path)
        return source:read(0, #source)
      end)
      if not ok then
        refusals = refusals + 1
        assert.truthy(message:find("shard.00000.mds", 1, true) or message:find("not of one length", 1, true), message)
      end
      write_byte(shard, at, text:byte(at + 1))
    end
    assert.is_true(refusals > 50, refusals)
    files.write(path, "index.json", json)
  end)

  it("whose lists are shorter than their own head are refused", function()
    for _, list in ipairs { { "list[jpeg]", "ab" }, { "jpeg_array", "abc" }, { "list[png]", "" } } do
      local encoding, cell = list[1], list[2]
      local shard = string.char(1, 0, 0, 0, 12, 0, 0, 0, 16 + #cell, 0, 0, 0, #cell, 0, 0, 0) .. cell
      files.write(folder, "shard.mds", shard)
      files.write(folder, "index.json", ([[{"version": 2, "shards": [{"version": 2, "format": "mds", "samples": 1,
        "compression": null, "hashes": [], "column_names": ["x"], "column_encodings": ["%s"], "column_sizes": [null],
        "raw_data": {"basename": "shard.mds", "bytes": %d, "hashes": {}}, "zip_data": null}]}]]):format(encoding,
        #shard))
      for _, field in ipairs { "x.count", "x.0" } do
        local message = files.message(function()
          local source = shardrt.source.mds(folder, { fields = { field } })
          return source:read(0, 1)
        end)
        expect.contains(message, "shard.mds", "its list is malformed")
      end
    end
  end)

  it("whose index.json one process cannot read are refused in all, which hear whose and why", function()
    local path = copy "raw"
    local json = files.slurp(path .. "/index.json")
    local from, to = json:find('{"column_encodings".-"version": 2, "zip_data": null}')
    local shards = {} -- many: then all processes open them together
    for i = 1, 64 do shards[i] = json:sub(from, to) end
    files.write(path, "index.json", ('{"version": 2, "shards": [%s]}'):format(table.concat(shards, ", ")))
    for _, wanted in ipairs { "raw", "scalars" } do -- of few shards, the others come to the barrier, and hear it there
      copy "scalars"
      local result = mpi.run { processes = 3, devices = 1, options = { "--timeout", "30" },
        env = { FOLDER = folder .. "/" .. wanted }, one = { FOLDER = folder .. "/gone" }, source = [[
        local shardrt = require "shardrt"
        local C = require "shardrt.base.ffi"
        local fail = require "shardrt.base.error"
        local ok, problem = pcall(shardrt.source.mds, os.getenv "FOLDER")
        if ok then
          ok, problem = pcall(function()
            fail.check(C.shardrt_barrier(require("shardrt.base.current").job, "the end"))
          end)
        end
        problem = tostring(problem)
        assert(not ok and problem:find("process 1", 1, true) and problem:find("gone/index.json", 1, true), problem)
      ]] }
      assert.equal(0, result.status, result.output)
    end
  end)

  it("give raw elements where a dtype and a shape are asked for", function()
    local source = open(copy "raw", { fields = { bytes = { "uint8", { 3, -1 } } } })
    assert.same({ 3, 5 }, source:read(5, 1).bytes[1].shape)
    assert.equal(sample(5).bytes, bytes_of(source:read(5, 1).bytes[1]))
  end)

  local function refused(path, o, ...)
    local message = files.message(shardrt.source.mds, path, o)
    expect.contains(message, ...)
  end

  it("are refused with advice where shardrt does not read them", function()
    refused(copy "bz2", { cache = cache }, 'compressed by "bz2"', "zstd, gz, br and snappy")
    refused(copy "pickle", nil, 'column "y" is encoded as "pkl"', "a pickle runs whatever program it holds")
    assert.equal(2, tonumber(open(folder .. "/pickle", { fields = { x = "int64" } }):read(1, 1).x.data[0]))
    refused(copy "raw", { fields = { nothing = "bytes" } }, 'has no column "nothing"')
    refused(folder .. "/raw", { fields = { number = "int32" } }, "int32 is asked for, and it holds int64")
    refused(folder .. "/nowhere", nil, "nowhere/index.json")
    refused({ folder .. "/raw", folder .. "/zstd" }, nil, "it takes one")
  end)

  -- Damage ------------------------------------------------------------------------------------------------------------

  it("are found to be damaged wherever a bit of a sample turns after the index was made", function()
    local path = copy "raw"
    local shard = path .. "/shard.00001.mds"
    local index = shard .. ".shardrt-index"
    assert.same(expected(), read_all(path))
    local kept, text, found = files.slurp(index), files.slurp(shard), 0
    local source = open(path) -- maps the file, as a job does in which a disk begins to fail
    for at = 0, #text - 1 do
      write_byte(shard, at, turned(text, at))
      local ok, message = pcall(source.read, source, 0, #source)
      if not ok then
        found = found + 1
        assert.truthy(message:find("shard.00001.mds: record %d+ at byte %d+ %(%d+ bytes%) is damaged"), message)
      end
      write_byte(shard, at, text:byte(at + 1))
    end
    -- All but the offsets, the JSON and the sizes, which nobody reads any more.
    local bytes = 0
    for i = 0, 11 do
      for _, value in pairs(sample(i)) do bytes = bytes + #value end
    end
    assert.is_true(found > 50 and found < bytes, tostring(found))
    assert.equal(kept, files.slurp(index))
  end)

  it("never give more than what stands in them where they were damaged or cut before the index was made", function()
    local path = copy "raw"
    local shard = path .. "/shard.00000.mds"
    local text, refused_ones = files.slurp(shard), 0
    local function try(what)
      os.remove(shard .. ".shardrt-index")
      local ok, message = pcall(read_all, path)
      if not ok then
        refused_ones = refused_ones + 1
        assert.truthy(message:find("shard.00000.mds", 1, true), what .. ": " .. message)
      end
      return ok
    end
    for at = 0, #text - 1 do
      write_byte(shard, at, turned(text, at))
      try("byte " .. at)
      write_byte(shard, at, text:byte(at + 1))
    end
    assert.is_true(refused_ones > 20)
    for length = #text - 1, 0, -1 do
      assert(ffi.C.truncate(shard, length) == 0)
      assert.is_false(try("length " .. length))
    end
  end)

  it("with hashes are found to be damaged wherever a bit turns", function()
    for _, name in ipairs { "hashes/shard.00002.mds", "zstd-hashes/shard.00002.mds.zstd" } do
      local path = copy(name:match "^[^/]*")
      local shard = folder .. "/" .. name
      local text = files.slurp(shard)
      for at = 0, #text - 1, 3 do
        write_byte(shard, at, turned(text, at))
        os.remove(shard .. ".shardrt-index")
        local message = files.message(open, path)
        assert.truthy(message:find(name .. ": is damaged: its xxh", 1, true), message)
        write_byte(shard, at, text:byte(at + 1))
      end
      assert.same(expected(), read_all(path))
    end
  end)

  it("with one hash, of whatever kind Streaming writes, are found to be damaged wherever a bit turns", function()
    local path, names = copy "sums", {}
    local json, shard = files.slurp(path .. "/index.json"), path .. "/shard.00000.mds"
    for name in json:match('"raw_data": %b{}'):match('"hashes": (%b{})'):gmatch '"([^"]+)": ' do
      names[#names + 1] = name
    end
    assert.equal(17, #names)
    local text = files.slurp(shard)
    for _, name in ipairs(names) do
      local one = json:gsub('("raw_data": .-"hashes": )(%b{})', function(before, hashes)
        return before .. "{" .. hashes:match(('"%s": "%%x+"'):format(name)) .. "}"
      end)
      files.write(path, "index.json", one)
      os.remove(shard .. ".shardrt-index")
      local values = shardrt.source.mds(path):read(0, 6)
      for i = 0, 5 do
        assert.equal(i * 7 - 5, tonumber(values.x.data[i]))
        assert.equal("word " .. i, bytes_of(values.text[i + 1]))
      end
      for at = math.random(0, 9), #text - 1, 10 do
        write_byte(shard, at, turned(text, at))
        os.remove(shard .. ".shardrt-index")
        local message = files.message(shardrt.source.mds, path)
        assert.truthy(message:find(("shard.00000.mds: is damaged: its %s is "):format(name), 1, true), message)
        write_byte(shard, at, text:byte(at + 1))
      end
      files.write(path, "index.json", (one:gsub('": "%x%x', '": "zz', 1))) -- a digit that is wrong
      os.remove(shard .. ".shardrt-index")
      assert.truthy(files.message(shardrt.source.mds, path):find(" is damaged: its " .. name, 1, true))
    end
  end)

  it("with a hash that nobody knows are refused, unless there is another, or none is wanted", function()
    local path = copy "numbers"
    local json = files.slurp(path .. "/index.json")
    local function write(hashes)
      files.write(path, "index.json", (json:gsub('("raw_data": .-"hashes": )%b{}', "%1{" .. hashes .. "}")))
      os.remove(path .. "/shard.00000.mds.shardrt-index")
    end
    write '"sha1": "00"'
    refused(path, nil, "shard.00000.mds: is damaged: its sha1 is ")
    write '"whirlpool": "00"'
    refused(path, nil, 'the only hash of shard.00000.mds is its "whirlpool"', "`verify = false`")
    assert.equal(3, #shardrt.source.mds(path, { verify = false }))
    refused(path, nil, "whirlpool") -- also where that left an index
    local sha1 = json:match '"sha1": "%x+"'
    write('"whirlpool": "00", ' .. sha1)
    assert.equal(3, #shardrt.source.mds(path))
    write('"whirlpool": "00", ' .. sha1:gsub("%x%x\"$", '00"'))
    refused(path, nil, "is damaged: its sha1 is ")
    write '"sha1": 5'
    refused(path, nil, "the digits of a hash")
  end)

  it("have numbers in text, which are read as numbers where a dtype is asked for, and never as elements", function()
    local path = copy "numbers"
    local function read(fields) return shardrt.source.mds(path, { fields = fields }):read(0, 3) end
    local texts = read { "i", "f", "d", "s" }
    assert.equal("12345678", bytes_of(texts.i[1]))
    local got = read { i = "int64", f = "float64", d = "float32", s = "bytes" }
    assert.equal("12345678", tostring(tonumber(got.i.data[0])))
    assert.equal("9007199254740993LL", tostring(got.i.data[2]))
    assert.same({ 0.25, 1e300, -math.huge }, got.f:to_table())
    assert.same({ 1.5, 100, -0.125 }, got.d:to_table())
    assert.equal("00000001", bytes_of(got.s[2]))
    assert.same({ 12345678, -3 }, { read { i = "float64" }.i.data[0], read { i = { "float32", {} } }.i.data[1] })
    local function fails(fields, ...)
      local message = files.message(read, fields)
      expect.contains(message, ...)
    end
    fails({ i = "int16" }, "record 0", '"i" holds "12345678", which is no int16')
    fails({ f = "int64" }, '"f" holds "0.25", which is no int64')
    fails({ f = "float32" }, '"f" holds "1e+300", which is no float32')
    fails({ i = { "int64", { -1 } } }, 'field "i": int64 is asked for, and it holds bytes ("str_int")')
    fails({ s = "int64" }, 'field "s": int64 is asked for, and it holds bytes ("str")')
    fails({ s = { "int64", { 1 } } }, 'field "s": int64 is asked for')
    fails({ s = { "bool", { -1 } } }, 'field "s": bool is asked for')
    path = copy "raw"
    fails({ json = { "float32", { -1 } } }, "it holds bytes (\"json\"), which are no elements")
    fails({ fixed = { "int16", { 3, 2 } } }, 'field "fixed": it is "ndarray:int16:2,3"')
    fails({ fixed = { "int16", { 6 } } }, 'field "fixed": it is "ndarray:int16:2,3"')
    local open_ended = shardrt.source.mds(path, { fields = { fixed = { "int16", { -1, 3 } } } })
    assert.same({ 2, 3 }, open_ended:read(1, 1).fixed[1].shape)
    local raw = shardrt.source.mds(path, { fields = { bytes = "bytes" } }):read(1, 1).bytes[1]
    local bools = shardrt.source.mds(path, { fields = { bytes = { "bool", { -1 } } } }):read(1, 1).bytes[1]
    assert.truthy(raw.size > 0 and raw.size == bools.size)
    for i = 0, raw.size - 1 do assert.equal(raw.data[i] ~= 0 and 1 or 0, ffi.cast("uint8_t *", bools.data)[i]) end
  end)

  it("that are compressed and damaged are refused, or give what stands in them", function()
    for _, name in ipairs { "zstd", "gz", "br", "snappy" } do
      local path = copy(name)
      local shard = ("%s/shard.00000.mds.%s"):format(path, name)
      local text, failures = files.slurp(shard), 0
      for at = 0, #text - 1, 3 do
        write_byte(shard, at, turned(text, at))
        os.remove(shard .. ".shardrt-index")
        local ok, message = pcall(read_all, path)
        if not ok then
          failures = failures + 1
          assert.truthy(message:find("shard.00000.mds", 1, true), message)
        end
        write_byte(shard, at, text:byte(at + 1))
      end
      assert.is_true(failures > 20, name .. ": " .. failures)
      for length = 0, #text - 1, 5 do
        files.write(path, "shard.00000.mds." .. name, text:sub(1, length))
        os.remove(shard .. ".shardrt-index")
        assert.truthy(files.message(open, path):find("shard.00000.mds", 1, true))
      end
    end
  end)

  it("whose index.json lies are refused", function()
    local path = copy "raw"
    local json = files.slurp(path .. "/index.json")
    local function lie(pattern, replacement, what)
      local changed, count = json:gsub(pattern, replacement, 1)
      assert(count == 1, pattern)
      files.write(path, "index.json", changed)
      refused(path, { fields = ragged }, what)
    end
    lie('"samples": %d+', '"samples": 2', "is no MDS shard of 2 samples")
    lie('"samples": %d+', '"samples": 9000000000000000000', "is no MDS shard of")
    lie('"bytes": %d+', '"bytes": 17', "index.json tells of 17")
    lie('"version": 2', '"version": 3', "is of version 3")
    lie('"format": "mds"', '"format": "json"', 'format "json"')
    lie('"basename": "', '"basename": "../', "no name of a file in its folder")
    lie('"column_names": %[', '"column_names": ["x", ', "has 9 column_names, 8 column_encodings")
    lie('"samples"', '"format": "mds", "samples"', '"format" stands twice')
    lie('"raw_data"', '"raw_data": {"basename": "x"}, "raw_data"', '"raw_data" stands twice')
    lie('"shards"', '"shards": [], "shards"', '"shards" stands twice')
    lie('"samples"', '"number"', "is no MDS shard of 0 samples")
    lie('"raw_data"', '"more"', 'has no "raw_data"')
    lie('"bytes": 815', '"more": 815', "index.json tells of 0")
    files.write(path, "index.json", (json:gsub('"column_names": %["[^"]*", ("[^"]*")', '"column_names": [%1, %1')))
    refused(path, { fields = ragged }, "two columns are called")
    lie('"column_sizes": %[', '"column_sizes": [null, ', "8 column_encodings and 9 column_sizes")
    lie('"column_sizes": %[null, ', '"column_sizes": [4, ', "the columns of shard 1")
    lie('"ndarray:int16:2,3"', '"ndarray:int16:2,4"', "the columns of shard 1")
    files.write(path, "index.json", (json:gsub('"ndarray:int16:2,3"', '"ndarray:int16:2,4"')))
    assert.truthy(files.message(read_all, path):find('"fixed" holds 6 elements', 1, true))
    for _, wrong in ipairs { "ndarray:int16:", "ndarray:int16:0", "ndarray:int16:2,", "ndarray:int16:2,x", "ndarray:q",
      "ndarray:int16:1,1,1,1,1,1,1,1,1", "what" } do
      files.write(path, "index.json", (json:gsub('"ndarray:int16:2,3"', '"' .. wrong .. '"')))
      refused(path, nil, ('is encoded as "%s"'):format(wrong))
    end
    path = copy "zstd"
    json = files.slurp(path .. "/index.json")
    files.write(path, "index.json", (json:gsub('("raw_data": {"basename": "[^"]*", "bytes": )%d+', "%19999999999")))
    refused(path, { cache = cache }, "no MDS shard has more than 4294967295")
    files.write(path, "index.json", (json:gsub('("raw_data": {"basename": "[^"]*", "bytes": )%d+', "%130")))
    refused(path, { cache = cache }, "do not become the 30 bytes that it tells of")
  end)

  it("whose index.json is cut or has other bytes never crash", function()
    local path = copy "raw"
    local json = files.slurp(path .. "/index.json")
    for length = 0, #json - 1 do
      if length % 7 == 0 or length > #json - 40 then
        files.write(path, "index.json", json:sub(1, length))
        refused(path, nil, "index.json")
      end
    end
    local seed = require "tests.support.seed"
    math.randomseed(seed)
    for _ = 1, 300 do
      local at = math.random(#json)
      files.write(path, "index.json", json:sub(1, at - 1) .. string.char(math.random(0, 255)) .. json:sub(at + 1))
      pcall(read_all, path)
    end
    files.write(path, "index.json", '{"version": 2, "shards": []}')
    refused(path, nil, "tells of no shard")
    files.write(path, "index.json", ('{"x": %s'):format(("["):rep(100000)))
    refused(path, nil, "values lie within values")
  end)

  -- Everything else ---------------------------------------------------------------------------------------------------

  it("give back all memory when an allocation fails, whichever it is", function()
    for name, wanted in pairs { raw = "free", zstd = "free", gz = "free", pictures = "rgb", albums = "some.count" } do
      local path, options = copy(name), ffi.new("shardrt_source_options", { cache = cache })
      local field = ffi.new "shardrt_field[1]"
      field[0].name, field[0].dtype, field[0].ndim = wanted, -1, -1
      local failures = no_memory.each(function()
        os.execute(("rm -rf %s %s/*.shardrt-index"):format(cache, path))
        local out, sizes, buffer = ffi.new "shardrt_source *[1]", ffi.new "int64_t[8]", ffi.new "shardrt_buffer *[1]"
        local code = C.shardrt_source_files("mds", 1, ffi.new("const char *[1]", { path }), 1, field, options, out)
        if code == 0 then code = C.shardrt_source_value(out[0], 0, 0, sizes, buffer) end
        if buffer[0] ~= nil then C.shardrt_buffer_free(buffer[0]) end
        if out[0] ~= nil then C.shardrt_source_free(out[0]) end
        return code
      end, { spares = (name == "zstd" or name == "gz") and { "removing old unpacked files" } or nil })
      assert.is_true(failures > 50, failures)
    end
  end)

  it("come to many processes that open them at once through a loader as they were written", function()
    local path = copy "zstd"
    local result = mpi.run { processes = 8, devices = 1, source = ([[
      local shardrt = require "shardrt"
      local source = shardrt.source.mds("%s", { cache = "%s",
        fields = { number = "int64", fixed = "int16" } })
      local seen = 0
      for batch in shardrt.loader { source = source, batch_size = 8, shuffle = true, epochs = 5 } do
        for s, shard in ipairs(batch.fixed.addressable_shards) do
          local i = tonumber(batch.number.addressable_shards[s].data.data[0]) + 5
          for k = 0, 5 do assert(shard.data.data[k] == k * i) end
          seen = seen + 1
        end
      end
      assert(seen > 0)
    ]]):format(path, cache) }
    assert.equal(0, result.status, result.output)
    local made = 0 -- each shard once, and nothing half made; who comes late notes its checksums beside it
    for _, name in ipairs(files.list(cache)) do made = made + (name:find "%.shardrt%-index$" and 0 or 1) end
    assert.equal(4, made)
    assert.same(expected(), read_all(path))
  end)
end)

-- Tar archives: as webdataset, Python's tarfile (tests/files/records, made by records.py) and GNU tar write them,
-- malformed, damaged and cut.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local files = require "tests.support.files"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"

local COUNT, FOLDER = 12, "tests/files/records/"
local folder
before_each(function() folder = files.folder() end)
after_each(function() files.remove(folder) end)

local function copy(name) return files.write(folder, name, files.slurp(FOLDER .. name)) end

local function raw(i, length)
  local bytes = {}
  for k = 0, length - 1 do bytes[k + 1] = string.char((i * 7 + k) % 256) end
  return table.concat(bytes)
end

local function text_of(host) return ffi.string(host.data, host.bytes) end

-- A header and its data, by hand: o.type ("0"), o.size (that of the data).
local function member(name, data, o)
  o = o or {}
  local head = name .. ("\0"):rep(100 - #name) .. "0000644\0" .. "0000000\0" .. "0000000\0"
    .. ("%011o\0"):format(o.size or #data) .. "00000000000\0" .. "        " .. (o.type or "0") .. ("\0"):rep(100)
    .. "ustar\00000" .. ("\0"):rep(247)
  local sum = 0
  for i = 1, 512 do sum = sum + head:byte(i) end
  return head:sub(1, 148) .. ("%06o\0 "):format(sum) .. head:sub(157) .. data .. ("\0"):rep(-#data % 512)
end

local ZEROS = ("\0"):rep(1024)

local function open(text, o) return shardrt.source.tar(files.write(folder, "made.tar", text), o) end

local function refused(text, pattern, o)
  local ok, message = pcall(function()
    local source = open(text, o)
    source:read(0, #source)
  end)
  assert.is_false(ok, pattern)
  assert.truthy(message:find(pattern), message .. "\nis not: " .. pattern)
end

local function shell(command) assert(os.execute("cd " .. folder .. " && " .. command) == 0, command) end

describe("source.tar", function()
  it("reads what webdataset writes", function()
    local source = shardrt.source.tar(copy "webdataset.tar")
    assert.equal(COUNT, #source)
    assert.same({ "bin", "cls", "json", "npy", "txt" }, source.names)
    assert.same({ dtype = "int64", shape = {} }, source.fields.cls)
    assert.same({ dtype = "float32", shape = { 2, 3 } }, source.fields.npy)
    local all = source:read(0, COUNT)
    for i = 0, COUNT - 1 do
      assert.equal(i - 3, tonumber(all.cls.data[i]))
      assert.equal("number " .. i, text_of(all.txt[i + 1]))
      assert.equal(('{"i": %d}'):format(i), (text_of(all.json[i + 1]):gsub(":%s*", ": ")))
      assert.equal(raw(i, i), text_of(all.bin[i + 1]))
      for k = 0, 5 do assert.equal(i + k, all.npy.data[6 * i + k]) end
    end
    local chosen = shardrt.source.tar(folder .. "/webdataset.tar", {
      fields = { npy = { "float32", { -1, 3 } }, cls = "bytes", ["png;bin"] = "bytes" },
    })
    assert.same({ "cls", "npy", "png;bin" }, chosen.names)
    assert.equal("-3", text_of(chosen:read(0, 1).cls[1]))
    assert.same({ 2, 3 }, chosen:read(3, 1).npy[1].shape)
    assert.equal(raw(7, 7), text_of(chosen:read(7, 1)["png;bin"][1]))
  end)

  it("goes by what follows a name's last dot, as webdataset does", function()
    shardrt.ndarray.arange(6, "float32"):reshape({ 2, 3 }):save(folder .. "/x.npy")
    local turned = files.write(folder, "turned.tar", member("a.npy", files.turned_npy { 3, 4, 2 })
      .. member("b.npy", files.slurp(files.write(folder, "y.npy", files.npy {
        dict = files.dict("<i4", { 3, 4, 2 }), payload = ("\7\0\0\0"):rep(24) }))) .. ZEROS)
    local arrays = shardrt.source.tar(turned)
    assert.same({ dtype = "int32", shape = { 3, 4, 2 } }, arrays.fields.npy)
    local both = arrays:read(0, 2).npy
    for i = 0, 23 do assert.same({ i, 7 }, { both.data[i], both.data[24 + i] }) end
    local text = member("a.left.npy", files.slurp(folder .. "/x.npy")) .. member("a.left.cls", "7") .. ZEROS
    local source = open(text)
    assert.same({ dtype = "int64", shape = {} }, source.fields["left.cls"])
    assert.same({ dtype = "float32", shape = { 2, 3 } }, source.fields["left.npy"])
    local sample = source:read(0, 1)
    assert.equal(7, tonumber(sample["left.cls"].data[0]))
    assert.equal(5, sample["left.npy"].data[5])
    local either = open(text, { fields = { ["left.cls;right.cls"] = "bytes" } })
    assert.equal("7", text_of(either:read(0, 1)["left.cls;right.cls"][1]))
  end)

  it("takes the shapes of arrays from all samples, and names the first that does not fit", function()
    local ndarray = shardrt.ndarray
    local function array(shape, dtype)
      local count = 1
      for _, size in ipairs(shape) do count = count * size end
      ndarray.arange(count, dtype or "float32"):reshape(shape):save(folder .. "/x.npy")
      return files.slurp(folder .. "/x.npy")
    end
    local function samples(shapes, dtype)
      local text = {}
      for i, shape in ipairs(shapes) do text[i] = member(("s%d.npy"):format(i), array(shape, dtype)) end
      return table.concat(text) .. ZEROS
    end
    for _ = 1, 2 do -- the second time by its index
      local source = open(samples { { 2, 3 }, { 2, 3 }, { 2, 5 }, { 2, 3 } })
      assert.same({ 2, -1 }, source.fields.npy.shape)
      assert.same({ 2, 5 }, source:read(2, 1).npy[1].shape)
    end
    local first = files.write(folder, "a.tar", samples { { 4 }, { 4 } })
    local second = files.write(folder, "b.tar", samples { { 3 }, { 3 } })
    assert.same({ -1 }, shardrt.source.tar({ first, second }).fields.npy.shape)
    assert.same({ 4 }, shardrt.source.tar(first).fields.npy.shape)
    local function opens_not(text, pattern, o)
      local message = files.message(open, text, o)
      assert.truthy(message:find(pattern), message)
    end
    opens_not(samples { { 2 }, { 2 }, { 2, 1 }, { 2 } }, 'made.tar: sample 2: its "npy" has not the dtype or')
    opens_not(samples { { 2 }, { 3 }, { 2 } }, "made.tar: record 1 at .*`fields` can say", { fields = { npy = {
      "float32", { 2 } } } })
    files.write(folder, "b.tar", samples({ { 4 } }, "int32"))
    local message = files.message(shardrt.source.tar, { first, second })
    assert.truthy(message:find 'b.tar: sample 0: its "npy" has not the dtype', message)
    assert.equal(2, #open(samples { { 2 }, { 3 }, { 2 } }, {
      fields = { npy = { "float32", { 2 } } }, on_bad_record = "skip" }))
    local left = open(samples { { 2 }, { 3 }, { 2, 1 }, { 4 } }, { on_bad_record = "skip" })
    assert.same({ -1 }, left.fields.npy.shape) -- that one is left out says nothing of the sizes of the others
    assert.equal(3, #left)
  end)

  for _, name in ipairs { "ustar", "gnu", "pax" } do
    it("reads what Python's tarfile writes as " .. name, function()
      local source = shardrt.source.tar(copy(name .. ".tar"))
      assert.equal(3, #source)
      assert.same({ "bin", "cls" }, source.names)
      local all = source:read(0, 3)
      for i = 0, 2 do
        assert.equal(i, tonumber(all.cls.data[i]))
        assert.equal(raw(i + 5, i + 5), text_of(all.bin[i + 1]))
      end
    end)
  end

  for _, format in ipairs { "v7", "oldgnu", "gnu", "ustar", "posix" } do
    it("reads what GNU tar writes as " .. format, function()
      local long = format == "v7" and "short" or ("d"):rep(60) .. "/" .. ("n"):rep(60)
      shell("mkdir -p in/" .. (long:match "^(.*)/" or ""))
      for i = 0, 4 do
        files.write(folder, ("in/%s%d.cls"):format(long, i), i .. "\n")
        files.write(folder, ("in/%s%d.jpg"):format(long, i), raw(i, 600 + i))
      end
      shell("ln -s nowhere in/link.jpg && tar --sort=name --format=" .. format .. " -cf out.tar -C in .")
      local source = shardrt.source.tar(folder .. "/out.tar")
      assert.equal(5, #source)
      for i = 0, 4 do
        local one = source:read(i, 1)
        assert.equal(i, tonumber(one.cls.data[0]))
        assert.equal(raw(i, 600 + i), text_of(one.jpg[1]))
      end
    end)
  end

  it("takes jpg;jpeg;png as one field, archives behind each other, several files", function()
    local text = member("a.jpg", "one") .. member("a.cls", "1") .. member("b.jpeg", "two") .. member("b.cls", " 2\n")
      .. ZEROS .. member("c.PNG", "three") .. member("c.cls", "3") .. ZEROS
    local other = files.write(folder, "other.tar", member("d/d.cls", "4") .. member("d/d.png", "four") .. ZEROS)
    files.write(folder, "made.tar", text)
    local source = shardrt.source.tar({ folder .. "/made.tar", other },
      { fields = { ["jpg;jpeg;png"] = "bytes", cls = "int64" } })
    assert.equal(4, #source)
    local all = source:read(0, 4)
    for i, word in ipairs { "one", "two", "three", "four" } do
      assert.equal(word, text_of(all["jpg;jpeg;png"][i]))
      assert.equal(i, tonumber(all.cls.data[i - 1]))
    end
  end)

  it("takes dtypes and shapes of raw members", function()
    local text = member("a.bin", "\1\0\2\0\3\0\4\0") .. member("b.bin", "\5\0\6\0\7\0\8\0") .. ZEROS
    assert.same({ 4 }, open(text, { fields = { bin = "int16" } }):read(1, 1).bin[1].shape)
    local source = open(text, { fields = { bin = { "int16", { 2, 2 } } } })
    assert.equal(7, source:read(0, 2).bin.data[6])
    refused(text, "record 0 at byte 512: \"bin\" holds 4 elements of int16", { fields = { bin = { "int16", { 3 } } } })
    refused(text, "leaves dimensions 0 and 1 open", { fields = { bin = { "int16", { -1, -1 } } } })
  end)

  it("takes a name alone for the field that the archive has, and text for a number where it is one", function()
    local text = member("a.cls", "12345678") .. member("a.id", "87654321\n") .. member("a.txt", "12345678")
      .. member("a.score", "0.25") .. member("a.json", "[1234]") .. ZEROS
    local function read(fields) return open(text, { fields = fields }):read(0, 1) end
    local alone, found = open(text, { fields = { "cls", "id", "txt" } }), open(text)
    for _, name in ipairs { "cls", "id", "txt" } do assert.same(found.fields[name], alone.fields[name]) end
    assert.equal(12345678, tonumber(alone:read(0, 1).cls.data[0]))
    assert.equal("87654321\n", text_of(alone:read(0, 1).id[1]))
    for _, way in ipairs { "int64", { "int64", {} } } do
      local got = read { cls = way, id = way }
      assert.same({ 12345678, 87654321 }, { tonumber(got.cls.data[0]), tonumber(got.id.data[0]) })
    end
    assert.equal("12345678", text_of(read { cls = "bytes" }.cls[1]))
    assert.equal("0.25", text_of(read { score = "bytes" }.score[1]))
    local function fails(fields, pattern) refused(text, pattern, { fields = fields }) end
    fails({ cls = { "int64", { 1 } } }, 'field "cls": is a whole number in text, and has no dimensions')
    fails({ cls = { "int64", { -1 } } }, "has no dimensions")
    fails({ id = { "int64", { -1 } } }, "has no dimensions")
    fails({ cls = "float32" }, "float32 is asked for, and it holds int64")
    fails({ id = { "float32", { 2 } } }, "float32 is asked for, and it holds int64")
    for _, name in ipairs { "txt", "json" } do
      for _, way in ipairs { "int64", { "int64", { 1 } }, { "float32", { -1 } }, { "bool", { 8 } } } do
        fails({ [name] = way }, "is asked for, and it is text, which is never taken as raw elements")
      end
    end
    fails({ ["cls;id"] = "int64" }, "is never taken as raw elements")
    fails({ score = "float32" }, 'it holds bytes, which may be text or anything; {"float32", {%-1}} takes them')
    assert.same({ 1 }, read { score = { "float32", { -1 } } }.score[1].shape) -- it was said
    refused(member("a.cls", "1") .. member("b.cls", "0.5") .. ZEROS, 'record 1 .* its "cls" is no whole number',
      { fields = { "cls" } })
    refused(member("a.id", "seven") .. ZEROS, 'its "id" is no whole number', { fields = { id = "int64" } })
  end)

  it("takes any byte of a bool but 0 as true, as numpy does", function()
    local made = open(member("a.bin", "\0\1\2\255\128") .. ZEROS, { fields = { bin = { "bool", { 5 } } } })
    assert.same({ { false, true, true, true, true } }, made:read(0, 1).bin:to_table())
    assert.equal("\0\1\1\1\1", ffi.string(made:read(0, 1).bin.data, 5))
  end)

  it("refuses what is no sample, missing, twice or in disorder", function()
    local a, b = member("a.jpg", "x") .. member("a.cls", "1"), member("b.jpg", "y")
    refused(a .. b .. ZEROS, "made%.tar: sample 1 has no \"cls\"; where samples differ, `fields` says which")
    assert.equal(2, #open(a .. b .. ZEROS, { fields = { jpg = "bytes" } }))
    refused(a .. member("a.cls", "2") .. ZEROS, "the member at byte 2048: a second \"cls\" of the sample \"a\"")
    refused(a .. b .. member("a.txt", "z") .. ZEROS, "the members of a sample do not stand together")
    refused(member("folder", "", { type = "5" }) .. ZEROS, "holds no sample: none of its members is called name%.field")
    refused(member("a.cls", "one") .. ZEROS, "record 0 at byte 512: its \"cls\" is no whole number")
    refused(member("a.cls", "1\0") .. ZEROS, "its \"cls\" is no whole number")
    refused(member("a.cls", "99999999999999999999") .. ZEROS, "its \"cls\" is no whole number")
    refused(member("a.npy", "no numpy") .. ZEROS, "npy")
    refused(member("a.x", "x", { size = 2 ^ 32 }) .. ZEROS, "the member at byte 0: is cut off")
    refused(member("a.x", "x", { type = "S" }) .. ZEROS, "is a sparse file, which cannot be read where it lies")
    refused(member("p", "20 GNU.sparse.major=1\n", { type = "x" }) .. a .. ZEROS, "its pax header is malformed")
    refused(member("p", "22 GNU.sparse.major=1\n", { type = "x" }) .. a .. ZEROS, "is a sparse file")
    refused(member("p", "9999999 path=x\n", { type = "x" }) .. a .. ZEROS, "its pax header is malformed")
    refused(member("p", "25 size=9999999999999999\n", { type = "x" }) .. a .. ZEROS, "is cut off")
    refused("", "the file is empty")
    refused(ZEROS, "holds no sample")
    refused(a .. ZEROS .. ("garbage "):rep(64), "the member at byte 3072: its header is damaged %(checksum%)")
    refused(a .. ZEROS, "it holds int64; transform%.cast converts", { fields = { cls = "int32" } })
    refused(a .. ZEROS, "sample 0 has no \"png\"", { fields = { png = "bytes" } })
  end)

  it("survives single bits that are flipped, and finds those in headers' checksums", function()
    local text = member("a.jpg", "one") .. member("p", "22 path=bbbbbbbbb.jpg\n", { type = "x" }) .. member("x", "two")
      .. ZEROS
    open(text)
    for at = 1, 512 * 6, 7 do
      local other = string.char(bit.bxor(text:byte(at), 2 ^ (at % 8)))
      local ok, message = pcall(function()
        local source = open(text:sub(1, at - 1) .. other .. text:sub(at + 1))
        return source:read(0, #source)
      end)
      local place = (at - 1) % 1024
      local header = place < 512 and place ~= 154 and place ~= 155 -- what follows the checksum's digits
      if header then assert.is_false(ok, "byte " .. at) end
      if not ok then assert.truthy(tostring(message):find "made%.tar: ", message) end
    end
  end)

  it("finds every cut", function()
    local text = member("a.jpg", "one") .. member("b.jpg", "two") .. ZEROS
    for length = 0, #text - 1025, 3 do refused(text:sub(1, length), "made%.tar: the member at byte %d+: ") end
    -- Within the first member also where what is damaged is left out: there is nothing else to tell of it.
    for _, length in ipairs { 0, 1, 511, 512, 514 } do
      for _, fields in ipairs { false, { jpg = "bytes" } } do
        local what = length == 0 and "empty" or "cut off"
        refused(text:sub(1, length), "made%.tar: the member at byte 0: [^\n]*" .. what,
          { on_bad_record = "skip", fields = fields or nil })
      end
    end
    local three = text:sub(1, 2048) .. member("c.jpg", "three") .. ZEROS -- the one before the cut may lack members
    assert.equal(1, #open(three:sub(1, 2048 + 100), { on_bad_record = "skip" }))
  end)

  it("gives everything back where memory runs out", function()
    local path = copy "webdataset.tar"
    shardrt.source.tar(path)
    local paths, out = ffi.new("const char *[1]", { path }), ffi.new "shardrt_source *[1]"
    for _, indexed in ipairs { true, false } do
      local failures = no_memory.each(function()
        if not indexed then os.remove(path .. ".shardrt-index") end
        local code = C.shardrt_source_files("tar", 1, paths, 0, nil, nil, out)
        if code == 0 then C.shardrt_source_free(out[0]) end
        return code
      end)
      assert.is_true(failures > 8, failures)
    end
  end)
end)

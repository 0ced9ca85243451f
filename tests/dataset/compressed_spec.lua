-- Compressed files of lines, tars, TFRecords and tokens are what they hold, however that is divided.

local ffi = require "ffi"
local shardrt = require "shardrt"
local C = require "shardrt.base.ffi"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local nginx = require "tests.support.nginx"
local source = shardrt.source

ffi.cdef [[
  size_t ZSTD_compress(void *dst, size_t room, const void *src, size_t bytes, int level);
  int setenv(const char *name, const char *value, int overwrite);
  int unsetenv(const char *name);
]]

local FROM = "tests/files/compressed/"
local NAMES = { "one.gz", "members.gz", "one.zst", "streamed.zst", "frames.zst", "mixed.zst", "seekable.zst" }

describe("a compressed file", function()
  local folder, o
  before_each(function()
    folder = mpi.folder()
    o = { cache = folder .. "/cache" }
  end)
  teardown(function() collectgarbage() end)
  after_each(function() mpi.remove(folder) end)

  -- All that a source has, as text.
  local function all(s)
    local list = {}
    for name, values in pairs(s:read(0, #s)) do
      list[#list + 1] = name
      for _, value in ipairs(values.size and { values } or values) do
        list[#list + 1] = ffi.string(value.data, value.bytes)
      end
    end
    return table.concat(list, "\n")
  end

  -- Also to whoever compares sources: processes, and a checkpoint that is restored.
  local function check(plain, compressed)
    assert.equal(all(plain), all(compressed))
    assert.equal(tostring(C.shardrt_source_fingerprint(plain)), tostring(C.shardrt_source_fingerprint(compressed)))
  end

  local function copy(path, name)
    return files.write(folder, name or path:match "[^/]*$", files.slurp(path))
  end

  it("of lines is what it holds, in any number of members and frames, by whatever name", function()
    local plain = source.jsonl(copy(FROM .. "plain.jsonl"))
    local expected = all(plain)
    assert.equal(400, #plain)
    for i, name in ipairs(NAMES) do
      local path = copy(FROM .. name, "x" .. i)
      for _ = 1, 2 do -- the second time it is in the cache
        local s = source.jsonl(path, o)
        assert.equal(400, #s, name)
        assert.equal(expected, all(s), name)
      end
    end
    assert.equal(#NAMES, #files.list(o.cache))
  end)

  it("is a table, an archive, tokens or records, too", function()
    local table_of = files.write(folder, "t.csv", "a,b\n1,x\n2,yy\n")
    check(source.csv(table_of), source.csv(files.gzip(table_of), o))
    local tar = copy "tests/files/records/webdataset.tar"
    check(source.tar(tar), source.tar(files.gzip(tar), o))
    local flat = files.write(folder, "x.bin", files.bytes(3000))
    local asked = { window = 20, dtype = "uint16", cache = o.cache }
    check(source.tokens(flat, asked), source.tokens(files.gzip(flat), asked))
    asked.header, asked.dtype, asked.window = false, "uint8", 1 -- tokens from the first byte on
    assert.equal(#files.slurp(flat .. ".gz"), #source.tokens(flat .. ".gz", asked))
    local records = source.tfrecord(copy "tests/files/records/tensorflow.tfrecord")
    for _, name in ipairs { "gzip", "zlib" } do
      check(records, source.tfrecord(copy(("tests/files/records/%s.tfrecord"):format(name)), o))
    end
  end)

  it("is refused by its name where it is cut, wherever that is", function()
    for _, name in ipairs(NAMES) do
      local text = files.slurp(FROM .. name)
      local ends = 0
      for k = 1, 24 do
        local length = k == 24 and #text - 1 or math.floor(#text * k / 24)
        local path = files.write(folder, ("%s-%d"):format(name, k), text:sub(1, length))
        local ok, message = pcall(source.jsonl, path, o)
        if ok then ends = ends + 1 else expect.contains(message, path) end
        if not ok and length > 10 then expect.contains(message, "is cut off") end
      end
      assert.is_true(ends <= 1, name) -- a cut may fall between two parts, where the file may end
    end
    local path = files.write(folder, "z.tfrecord", files.slurp("tests/files/records/zlib.tfrecord"):sub(1, -5))
    expect.contains(files.message(source.tfrecord, path, o), path, "is cut off")
  end)

  it("is refused by its name where it is damaged, or something else stands behind it", function()
    for _, name in ipairs { "one.gz", "one.zst", "seekable.zst", "members.gz" } do
      local text = files.slurp(FROM .. name)
      for k = 1, 8 do
        local at = math.floor(#text * k / 10)
        local flipped = text:sub(1, at) .. string.char(bit.bxor(text:byte(at + 1), 16)) .. text:sub(at + 2)
        local path = files.write(folder, name .. k, flipped)
        expect.contains(files.message(source.jsonl, path, o), path)
      end
      local path = files.write(folder, name .. "-more", text .. "something else")
      expect.contains(files.message(source.jsonl, path, o), path)
    end
  end)

  it("is indexed and compared by shardrt index, and named where what is in the cache has changed", function()
    local path = copy(FROM .. "members.gz", "x.jsonl.gz")
    local command = ("SHARDRT_CACHE=%s %s index %%s %s"):format(o.cache, mpi.program(), path)
    local made, compared = mpi.shell(command:format ""), mpi.shell(command:format "--check")
    assert.equal(0, made.status, made.output)
    assert.equal(0, compared.status, compared.output)
    assert.truthy(files.list(folder)[3]:find "x.jsonl.gz.shardrt%-index")
    local cached = o.cache .. "/" .. files.list(o.cache)[1]
    local text = files.slurp(cached)
    os.execute(("cp -p %s %s/kept"):format(cached, folder))
    local file = io.open(cached, "r+b")
    file:seek("set", 1000)
    file:write(string.char(bit.bxor(text:byte(1001), 1)))
    file:close()
    local s = source.jsonl(path, o)
    expect.contains(files.message(all, s), path, "is damaged")
    compared = mpi.shell(command:format "--check")
    assert.equal(1, compared.status, compared.output)
  end)

  it("is read from a server", function()
    copy(FROM .. "frames.zst", "x.jsonl.zst")
    local server = nginx.start(folder)
    local ok, message = pcall(function()
      local s = source.jsonl(server.url .. "/x.jsonl.zst", o)
      assert.equal(all(source.jsonl(copy(FROM .. "plain.jsonl"))), all(s))
    end)
    server:stop()
    assert(ok, message)
  end)

  describe("for which the cache has no room", function()
    local plain, expected
    before_each(function() ffi.C.setenv("SHARDRT_UNPACKED_BYTES", "0", 1) end)
    after_each(function() ffi.C.unsetenv "SHARDRT_UNPACKED_BYTES" end)

    local function zstd(text)
      local room = #text + 1024
      local dst = ffi.new("uint8_t[?]", room)
      return ffi.string(dst, ffi.C.ZSTD_compress(dst, room, text, #text, 1))
    end

    -- About 2.5 MB of lines, of which some are long.
    local function lines()
      local made, seed = {}, 7
      for i = 1, 4000 do
        seed = (seed * 16807) % 2147483647
        made[i] = ('{"id": %d, "text": "%s"}'):format(i, files.bytes(400 + seed % 90):gsub("[^%w ]", "")
          .. ("%x"):format(seed):rep(i % 500 == 0 and 9000 or 40))
      end
      return table.concat(made, "\n") .. "\n"
    end

    -- Each part by itself, one behind the other.
    local function parts(text, bytes, pack)
      local list = {}
      for at = 1, #text, bytes do list[#list + 1] = pack(text:sub(at, at + bytes - 1)) end
      return table.concat(list)
    end

    local function gzip(text) return files.slurp(files.gzip(files.write(folder, "part", text))) end

    local function gone_through(s, shuffle)
      local loader = shardrt.loader {
        source = s, batch_size = 40, shuffle = shuffle, window = shuffle == "blocks" and 3 or nil, seed = 3, epochs = 1,
        transform = { text = false },
      }
      local ids = {}
      for batch in loader do
        for _, id in ipairs(batch.id:to_table()) do ids[#ids + 1] = tostring(id) end
      end
      return table.concat(ids, " "), loader:stats()
    end

    it("is read where it lies, span by span, in the same orders", function()
      local text = lines()
      plain = source.jsonl(files.write(folder, "plain.jsonl", text))
      expected = all(plain)
      local orders = {}
      for _, shuffle in ipairs { true, "blocks" } do orders[shuffle] = gone_through(plain, shuffle) end
      for name, packed in pairs {
        ["one.gz"] = gzip(text), ["members.gz"] = parts(text, 700001, gzip), ["many.gz"] = parts(text, 199999, gzip),
        ["frames.zst"] = parts(text, 300007, zstd), ["one.zst"] = zstd(text),
      } do
        local path = files.write(folder, name, packed)
        for _ = 1, 2 do -- the second time its places are known
          local s = source.jsonl(path, o)
          assert.equal(expected, all(s), name)
          for shuffle, order in pairs(orders) do
            local found, stats = gone_through(s, shuffle)
            assert.equal(order, found, name)
            assert.is_true(stats.blocks_decoded <= 40, name)
          end
        end
        assert.truthy(io.open(path .. ".restart.shardrt-index"), name)
      end
      assert.same({}, files.list(o.cache))
    end)

    it("may be of any format, have any members and frames, and be indexed", function()
      expected = all(source.jsonl(copy(FROM .. "plain.jsonl")))
      for i, name in ipairs(NAMES) do
        local path = copy(FROM .. name, "x" .. i)
        assert.equal(expected, all(source.jsonl(path, o)), name)
      end
      local table_of = files.write(folder, "t.csv", "a,b\n1,x\n2,yy\n")
      check(source.csv(table_of), source.csv(files.gzip(table_of), o))
      local tar = copy "tests/files/records/webdataset.tar"
      check(source.tar(tar), source.tar(files.gzip(tar), o))
      local flat = files.write(folder, "x.bin", files.bytes(3000))
      local asked = { window = 20, stride = 7, dtype = "uint16", cache = o.cache }
      check(source.tokens(flat, asked), source.tokens(files.gzip(flat), asked))
      local loader = shardrt.loader { source = source.tokens(flat .. ".gz", asked), batch_size = 8, epochs = 1 }
      assert.same(source.tokens(flat, asked):read(0, 8).tokens:to_table(), loader().tokens:to_table())
      local records = source.tfrecord(copy "tests/files/records/tensorflow.tfrecord")
      for _, name in ipairs { "gzip", "zlib" } do
        check(records, source.tfrecord(copy(("tests/files/records/%s.tfrecord"):format(name)), o))
      end
      assert.same({}, files.list(o.cache))
      local command = ("SHARDRT_CACHE=%s %s index %%s %s/x1"):format(o.cache, mpi.program(), folder)
      local file = assert(io.open(folder .. "/x1.restart.shardrt-index", "r+b")) -- a table that is damaged is made anew
      file:write "x"
      file:seek("end", -20)
      file:write "x"
      file:close()
      for _, option in ipairs { "--force", "", "--check" } do
        local done = mpi.shell(command:format("--format jsonl " .. option))
        assert.equal(0, done.status, done.output)
      end
    end)

    it("says so, in a plan, too", function()
      local path = copy(FROM .. "one.gz")
      local recipe = files.write(folder, "r.lua", ([[
        local shardrt = require "shardrt"
        local s = shardrt.source.jsonl(%q, { cache = %q })
        for _ in shardrt.loader { source = s, batch_size = 4, epochs = 1, transform = { text = false } } do end
      ]]):format(path, o.cache))
      for _, command in ipairs { "--devices 1 ", "plan --devices 1 " } do
        local done = mpi.shell(("%s %s %s"):format(mpi.program(), command, recipe))
        expect.contains(done.output, "source.jsonl reads 1 compressed file where it lies", "SHARDRT_UNPACKED_BYTES")
      end
    end)

    it("is refused where it is cut off, or nothing of it can be decompressed alone", function()
      for _, name in ipairs { "one.gz", "members.gz", "one.zst" } do
        local text = files.slurp(FROM .. name)
        local path = files.write(folder, name, text:sub(1, #text - 3))
        expect.contains(files.message(source.jsonl, path, o), path, "is cut off")
      end
      local path = files.write(folder, "large.zst", zstd((" "):rep(65 * 1024 * 1024)))
      expect.contains(files.message(source.jsonl, path, o), path, "68157440 bytes", "one frame", "pzstd",
        "SHARDRT_UNPACKED_BYTES")
    end)

    it("is damaged where it is no longer what it was, and only there", function()
      local text = lines()
      local path = files.write(folder, "x.gz", parts(text, 700001, gzip))
      local s = source.jsonl(path, o)
      local before = all(s)
      s = nil -- luacheck: ignore
      collectgarbage()
      local packed = files.slurp(path)
      os.execute(("touch -r %s %s/time"):format(path, folder))
      local at = math.floor(#packed * 0.6)
      local flipped = string.char(bit.bxor(packed:byte(at + 1), 64))
      files.write(folder, "x.gz", packed:sub(1, at) .. flipped .. packed:sub(at + 2))
      os.execute(("touch -r %s/time %s"):format(folder, path))
      s = source.jsonl(path, o)
      expect.contains(files.message(all, s), path, "is damaged")
      assert.equal(before:match "id\n........", "id\n" .. ffi.string(s:read(0, 1).id.data, 8))
      local bad = source.jsonl(path, { cache = o.cache, on_bad_record = "skip" })
      assert.is_true(#bad > 2000 and #bad < 4000)
    end)

    it("is read from a server", function()
      copy(FROM .. "frames.zst", "x.jsonl.zst")
      local server = nginx.start(folder)
      local ok, message = pcall(function()
        local s = source.jsonl(server.url .. "/x.jsonl.zst", o)
        assert.equal(all(source.jsonl(copy(FROM .. "plain.jsonl"))), all(s))
      end)
      server:stop()
      assert(ok, message)
    end)

    it("opens, or lacks memory and says so", function()
      files.opens_or_lacks_memory("jsonl", copy(FROM .. "members.gz"))
    end)
  end)
end)

-- Compressed files of lines, tars, TFRecords and tokens are what they hold, however that is divided.

local shardrt = require "shardrt"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local nginx = require "tests.support.nginx"
local source = shardrt.source

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
        list[#list + 1] = require("ffi").string(value.data, value.bytes)
      end
    end
    return table.concat(list, "\n")
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
    local function check(plain, compressed) assert.equal(all(plain), all(compressed)) end
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
end)

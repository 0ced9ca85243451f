-- long: 130 s
-- waits: for servers that fail to be given up.
-- Files on servers: every format from nginx as from the file, by one process and by four that share a cache folder;
-- the cache's limit, kills, damage in the cache; and a server that fails in every way that it can.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local boxes = require "tests.support.boxes"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local nginx = require "tests.support.nginx"
local shardrt = require "shardrt"

ffi.cdef [[
int setenv(const char *name, const char *value, int replace);
int unsetenv(const char *name);
]]

local BLOCK, BIG = 262144, 1500000 -- numbers in the large .npy file: 23 blocks;
local SMALL = 180000 -- in the smaller one: 3
local folder, cache, server

setup(function()
  folder = boxes.unpack() -- arrays of zarr, hdf5, safetensors and .npy
  assert(os.execute(("cp tests/files/records/* tests/files/cifar/data_batch_*.bin '%s'"):format(folder)) == 0)
  for _, name in ipairs { "mds", "npz", "megatron", "parquet", "arrow" } do
    assert(os.execute(("cp -r tests/files/%s '%s'"):format(name, folder)) == 0)
  end
  for _, name in ipairs { "zstd-4", "uncompressed-4", "examples" } do
    local from = ("tests/files/array_record/%s.array_record.gz"):format(name)
    assert(os.execute(("gunzip -c %s >'%s/%s.array_record'"):format(from, folder, name)) == 0)
  end
  shardrt.ndarray.arange(BIG, "int32"):reshape { BIG / 6, 6 }:save(folder .. "/big.npy")
  shardrt.ndarray.arange(SMALL, "int32"):reshape { SMALL / 6, 6 }:save(folder .. "/small.npy")
  shardrt.ndarray.arange(1001, "int64"):save(folder .. "/offsets.npy")
  files.gzip(files.write(folder, "labels.idx", files.idx(0x0C, { 40, 3 }, files.bytes(480))))
  files.write(folder, "tokens.bin", files.bytes(700002))
  local rows = { "a,b" }
  for i = 1, 60000 do rows[#rows + 1] = ("%d,%.3f"):format(i * 7 % 1000, i / 8) end
  files.write(folder, "table.csv", table.concat(rows, "\n") .. "\n")
  for i = 1, 60000 do rows[i] = ('{"a": %d, "b": [%d, %d]}'):format(i, i % 7, i % 11) end
  files.write(folder, "lines.jsonl", table.concat(rows, "\n", 1, 60000) .. "\n")
  for i = 0, 2 do
    os.execute(("cp '%s/tensorflow.tfrecord' '%s/set-0000%d-of-00003'"):format(folder, folder, i))
  end
  files.write(folder, "empty.csv", "")
  server = nginx.start(folder)
end)
teardown(function()
  server:stop()
  files.remove(folder)
end)
before_each(function()
  cache = files.folder()
  server:log()
  server:log "faults"
  assert(ffi.C.setenv("SHARDRT_CACHE", cache, 1) == 0)
end)
after_each(function()
  ffi.C.unsetenv "SHARDRT_HTTP_TIMEOUT"
  files.remove(cache)
end)

local function npy(url, o) return shardrt.source.npy({ x = url }, o) end

-- The large file, or the smaller one, as it should be.
local function check_big(source, count)
  assert.equal((count or BIG) / 6, #source)
  local x = source:read(0, #source).x
  local data, wrong = ffi.cast("const int32_t *", x.data), 0
  for i = 0, #source * 6 - 1 do if data[i] ~= i then wrong = wrong + 1 end end
  assert.equal(0, wrong)
end
local function check_small(source) check_big(source, SMALL) end

-- What lies in the cache: the files of blocks, and their bytes.
local function blocks()
  local list, bytes = {}, 0
  local pipe = assert(io.popen(("find '%s/http' -type f -name '*-*' -printf '%%s %%p\\n' 2>/dev/null"):format(cache)))
  for line in pipe:lines() do
    local size, path = line:match "^(%d+) (.*)$"
    list[#list + 1], bytes = path, bytes + tonumber(size)
  end
  pipe:close()
  return list, bytes
end

-- The bytes that a server sent as parts of a file, by its log.
local function sent(name)
  local bytes = 0
  for _, line in ipairs(server:log()) do
    local path, status, count = line:match "^(%S+) (%d+) .* (%d+) %d+$"
    if path and path:find(name, 1, true) and status == "206" then bytes = bytes + tonumber(count) end
  end
  return bytes
end

-- All sources, opened below `base` (a folder or an address), as a recipe says it; `o` are options with the cache.
local SOURCES = [[
  local s = require("shardrt").source
  local MDS = { bytes = "bytes", fixed = "int16", number = "int64", text = "bytes" }
  local function sources(base, o)
    local function at(name) return base .. "/" .. name end
    local function with(more)
      for key, value in pairs(o) do more[key] = value end
      return more
    end
    return {
      npy = s.npy({ x = at "big.npy", y = at "big.npy" }, o), set = s.tfrecord(at "set-00000-of-00003", o),
      list = s.tfrecord({ at "package.tfrecord", at "tensorflow.tfrecord" }, o),
      zstd = s.array_record(at "zstd-4.array_record", o), plain = s.array_record(at "uncompressed-4.array_record", o),
      examples = s.array_record(at "examples.array_record", with { fields = { label = "int64" } }),
      mds = s.mds(at "mds/raw", with { fields = MDS }), mds_scalars = s.mds(at "mds/scalars", o),
      mds_zstd = s.mds(at "mds/zstd-hashes", with { fields = MDS }), mds_gz = s.mds(at "mds/gz", with { fields = MDS }),
      parquet = s.parquet(at "parquet/delta.parquet", with { fields = { "i32", "text", "list" } }),
      pages = s.parquet(at "parquet/plain.parquet", with { fields = { "i64", "class", maybe = { null = 5 } } }),
      arrow = s.arrow(at "arrow/plain.arrow", with { fields = { "i32", "text", "list", "class" } }),
      stream = s.arrow(at "arrow/zstd.arrows", with { fields = { "i64", "text", maybe = { null = 5 } } }),
      saved = s.arrow(at "arrow/saved/train/", with { fields = { "x", "text" } }),
      tar = s.tar(at "webdataset.tar", o), csv = s.csv(at "table.csv", o), jsonl = s.jsonl(at "lines.jsonl", o),
      cifar = s.cifar({ at "data_batch_1.bin", at "data_batch_2.bin" }, o),
      safetensors = s.safetensors(at "data.safetensors", with { fields = { float32 = "float32", int8 = "int8" } }),
      unverified = s.safetensors(at "data.safetensors", with { verify = false, fields = { uint64 = "uint64" } }),
      npz = s.npz(at "npz/stored.npz", o), deflated = s.npz(at "npz/deflated.npz", o),
      idx = s.idx({ x = at "labels.idx" }, o), gzipped = s.idx({ x = at "labels.idx.gz" }, o),
      tokens = s.tokens(at "tokens.bin", with { window = 129, stride = 64, dtype = "uint16" }),
      documents = s.megatron(at "megatron/2", with { view = "documents" }),
      gpt = s.megatron(at "megatron/0", { view = "gpt", window = 17, seed = 3, cache = o.cache }),
      ragged = s.ragged { x = { data = at "tokens.npy", offsets = at "offsets.npy" } },
      v2 = s.zarr({ x = at "zarr/v2-zstd" }, o), v3 = s.zarr({ x = at "zarr/v3-plain" }, o),
      shards = s.zarr({ x = at "zarr/v3-shard-zstd-end" }, o), holes = s.zarr({ x = at "zarr/v2-holes" }, o),
      h5 = s.hdf5({ x = at "data.h5:/group/int16" }, o), h5_gzip = s.hdf5({ x = at "data.h5:/gzip" }, o),
      h5_chunks = s.hdf5({ x = at "v110.h5:/chunked" }, o), h5_user = s.hdf5({ x = at "user.h5:/plain" }, o),
      h5_user_chunks = s.hdf5({ x = at "user.h5:/chunked" }, o), h5_compact = s.hdf5({ x = at "data.h5:/compact" }, o),
    }
  end
]]

describe("a file on a server", function()
  setup(function() shardrt.ndarray.arange(2000, "int16"):save(folder .. "/tokens.npy") end)

  it("is as the file, in every format, for one process and for four", function()
    local out = files.folder()
    local recipe = SOURCES .. ([[
      local shardrt = require "shardrt"
      local ffi, C = require "ffi", require "shardrt.base.ffi"
      ffi.cdef "uint64_t hash_bytes(uint64_t seed, const void *data, size_t bytes);"
      local lines, all = {}, sources(arg[1], { cache = arg[2] })
      local function add(hash, host)
        local packed = host:packed()
        local size = tonumber(C.shardrt_dtype_size(C.shardrt_dtype_from_name(host.dtype)))
        for _, extent in ipairs(host.shape) do hash = ffi.C.hash_bytes(hash, tostring(extent), #tostring(extent)) end
        return ffi.C.hash_bytes(hash, packed.data, packed.size * size)
      end
      for name, source in pairs(all) do
        local values = source:read(0, #source)
        for field, value in pairs(values) do
          local hash = 0ULL
          if shardrt.ndarray.is and type(value) ~= "table" then
            hash = add(hash, value)
          else
            for _, one in ipairs(value) do hash = add(hash, one) end
          end
          lines[#lines + 1] = ("%%s.%%s %%s of %%d"):format(name, field, tostring(hash), #source)
        end
      end
      table.sort(lines)
      -- And as a loader reads it: shuffled, cut among all devices, ahead of who asks.
      local mesh = shardrt.make_mesh({ shardrt.device_count() / 2, 2 }, { "a", "b" })
      local loader = shardrt.loader {
        source = all.npy:shard(10, 3), batch_size = 400, shuffle = true, seed = 3, epochs = 1,
        sharding = {
          x = shardrt.NamedSharding(mesh, shardrt.P("a", "b")), y = shardrt.NamedSharding(mesh, shardrt.P "a"),
        },
      }
      local hash = 0ULL
      for batch in loader do
        hash = add(add(hash, shardrt.process_allgather(batch.x)), shardrt.process_allgather(batch.y))
      end
      lines[#lines + 1] = "loader " .. tostring(hash)
      local file = assert(io.open(("%s/%%s-%%d"):format(arg[3], shardrt.process_index()), "w"))
      file:write(table.concat(lines, "\n"))
      file:close()
    ]]):format(out)
    local function run(name, base, processes, folder_of_cache)
      local result = mpi.run {
        source = recipe, processes = processes, devices = processes and 2 or 8, limit = 200,
        args = { base, folder_of_cache or cache, name }, env = { SHARDRT_CACHE = folder_of_cache or cache },
      }
      assert.equal(0, result.status, result.output)
      return files.slurp(("%s/%s-0"):format(out, name))
    end
    local here = run("here", folder)
    local _, fields = here:gsub("\n", "\n")
    assert.is_true(fields > 40, here)
    assert.equal(here, run("one", server.url))
    assert.equal(4 * BIG + 128, sent "big.npy") -- each block once, though it is read four times
    assert.equal(here, run("again", server.url))
    assert.equal(0, sent "big.npy") -- the cache has it
    local shared = files.folder()
    assert.equal(here, run("four", server.url, 4, shared))
    for i = 1, 3 do assert.equal(here, files.slurp(("%s/four-%d"):format(out, i))) end
    -- Once for all of them, but for the first block, which comes with the answer to each process that opens the file.
    local together = sent "big.npy"
    assert.is_true(together <= 4 * BIG + 128 + 3 * BLOCK, tostring(together))
    files.remove(shared)
    files.remove(out)
  end)

  it("is brought ahead of a shuffled loader, by many requests at once", function()
    local result = mpi.run {
      devices = 1, env = { SHARDRT_CACHE = cache, SHARDRT_HTTP_TIMEOUT = "60" }, source = ([[
        local shardrt = require "shardrt"
        local loader = shardrt.loader {
          source = shardrt.source.npy { x = "%s/big.npy" }, batch_size = 500, shuffle = true, seed = 5, epochs = 1 }
        local sum = 0
        for batch in loader do
          local x = shardrt.device_get(batch.x)
          for i = 0, x.size - 1 do sum = sum + x.data[i] end
        end
        shardrt.say("%%.0f", sum)
      ]]):format(server.faults .. "/together-0-4"), -- which answers when four ask
    }
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find(("%.0f"):format((BIG - 1) * BIG / 2), 1, true), result.stdout)
    local most = files.number_in(server.work .. "/in_flight")
    assert.is_true(most ~= nil and most >= 4, tostring(most) .. " requests at once")
  end)

  it("is downloaded once where what it was decompressed to is kept", function()
    local function little(n, bytes)
      local text = {}
      for i = 1, bytes do text[i] = string.char(math.floor(n / 256 ^ (i - 1)) % 256) end
      return table.concat(text)
    end
    -- An MDS shard of one sample; and as zstd (RFC 8878) in blocks that are not compressed.
    local BYTES = 1000000
    local head = little(1, 4) .. little(12, 4) .. little(16 + BYTES, 4)
    local shard = head .. little(BYTES, 4) .. ("shard+rt"):rep(BYTES / 8)
    local zstd = { "\x28\xb5\x2f\xfd\xa0" .. little(#shard, 4) }
    for at = 1, #shard, 131072 do
      local piece = shard:sub(at, at + 131071)
      zstd[#zstd + 1] = little(#piece * 8 + (at + #piece > #shard and 1 or 0), 3) .. piece
    end
    zstd = table.concat(zstd)
    os.execute(("mkdir -p '%s/large'"):format(folder))
    files.write(folder .. "/large", "s.mds.zstd", zstd)
    local index = ([[{"version": 2, "shards": [{"column_encodings": ["bytes"],
      "column_names": ["x"], "column_sizes": [null], "compression": "zstd", "format": "mds", "hashes": [],
      "samples": 1, "size_limit": null, "version": 2, "raw_data": {"basename": "s.mds", "bytes": %d, "hashes": {}},
      "zip_data": {"basename": "s.mds.zstd", "bytes": %d, "hashes": {}}}]}]]):format(#shard, #zstd)
    files.write(folder .. "/large", "index.json", index)
    for i, most in ipairs { #zstd, BLOCK } do
      local source = shardrt.source.mds(server.url .. "/large", { fields = { x = "bytes" } })
      local x = source:read(0, 1).x[1]
      assert.equal(BYTES, x.size)
      assert.equal(("t"):byte(), x.data[BYTES - 1])
      assert.equal(most, sent "s.mds.zstd", i)
      files.remove(cache .. "/http")
    end
    for from, to in pairs { ['"samples": 1,'] = '"samples": 250005,', ['"bytes": 1000'] = '"bytes": 9000001000' } do
      files.write(folder .. "/large", "index.json", (index:gsub(from, to)))
      local ok, message = pcall(shardrt.source.mds, server.url .. "/large", { fields = { x = "bytes" } })
      assert.is_false(ok, to)
      assert.truthy(message:find("index.json tells of ", 1, true), message)
      files.remove(cache .. "/http")
    end
  end)

  it("is planned for as a file is", function()
    local result = mpi.run {
      source = ([[
        local shardrt = require "shardrt"
        local source = shardrt.source.npy { x = "%s/big.npy" }
        shardrt.say("%%d", #source)
      ]]):format(server.url), options = { "plan" }, env = { SHARDRT_CACHE = cache },
    }
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find("250000", 1, true))
  end)

  it("is never taken for another one, of hundreds", function()
    os.execute(("mkdir -p '%s/many'"):format(folder))
    local parts = {}
    for i = 1, 400 do -- more than there are places for pages that were read lately
      shardrt.ndarray.full({ 2 }, i, "int32"):save(("%s/many/%d.npy"):format(folder, i))
      parts[i] = npy(("%s/many/%d.npy"):format(server.url, i))
    end
    local source = shardrt.concat(parts)
    local all = source:read(0, 800).x
    for i = 1, 400 do assert.equal(i, tonumber(all.data[2 * i - 1])) end
  end)

  it("has lines of any length", function()
    local lines = { ('{"a": "%s"}'):format(("x"):rep(3000000)) } -- each line behind it was once looked for in as much
    for i = 2, 60000 do lines[i] = ('{"a": "%s"}'):format(("y"):rep(i % 61)) end
    lines[30000] = ('{"a": "%s"}'):format(("z"):rep(1500000))
    local path = files.write(folder, "long.jsonl", table.concat(lines, "\n"))
    local here, there = shardrt.source.jsonl(path), shardrt.source.jsonl(server.url .. "/long.jsonl")
    assert.equal(60000, #here)
    assert.equal(60000, #there)
    for _, i in ipairs { 0, 1, 2, 777, 29998, 29999, 30000, 59999 } do
      local length = #lines[i + 1] - 9
      for _, source in ipairs { here, there } do
        local a = source:read(i, 1).a[1]
        assert.equal(length, a.size)
        if length > 0 then assert.equal(lines[i + 1]:byte(8), tonumber(a.data[length - 1])) end
      end
    end
  end)

  it("has its index in the cache folder", function()
    shardrt.source.csv(server.url .. "/table.csv")
    shardrt.source.csv(server.url .. "/table.csv?x=1#y")
    local names = table.concat(files.list(cache), " ")
    local _, count = names:gsub("table%.csv%-%x+%.shardrt%-index", "")
    assert.equal(2, count, names)
    assert.truthy(files.message(shardrt.source.csv, server.url .. "/empty.csv"):find "holds no row")
  end)

  it("is found where it was moved to, and asked for with a password", function()
    check_big(npy(server.url .. "/moved/big.npy"))
    check_big(npy(server.url:gsub("//", "//me:secret@") .. "/password/big.npy"))
    local message = files.message(npy, server.url:gsub("//", "//me:wrong@") .. "/password/big.npy?signature=abc")
    assert.truthy(message:find("/password/big.npy?…", 1, true), message)
    assert.is_nil(message:find "wrong", message)
    assert.is_nil(message:find "abc", message)
    assert.truthy(message:find("401", 1, true))
  end)

  it("is read by https where the server's certificate can be trusted, and not asked for where it cannot", function()
    local url = server.secure .. "/small.npy"
    local message = files.message(npy, url)
    assert.truthy(message:find "certificate" and message:find("(1 try", 1, true), message)
    assert(ffi.C.setenv("CURL_CA_BUNDLE", server.work .. "/cert.pem", 1) == 0)
    local ok, problem = pcall(function()
      check_small(npy(url))
      local moved = files.message(npy, (url:gsub("127%.0%.0%.1", "localhost")))
      assert.truthy(moved:find "certificate", moved) -- it is another server's
    end)
    ffi.C.unsetenv "CURL_CA_BUNDLE"
    assert.is_true(ok, problem)
    assert.equal(4 * SMALL + 128, sent "small.npy")
  end)

  it("is trusted by certificates that lie elsewhere than Debian's", function()
    if mpi.shell("unshare -m true").status ~= 0 then
      pending "this user may not make a mount namespace"
      return
    end
    local recipe = files.write(folder, "secure.lua", [[
      print(#require("shardrt").source.npy({ x = arg[1] }, { cache = arg[2] })) ]])
    local function try(more, variables)
      local command = "mount -t tmpfs none /etc/ssl && %s && "
        .. "exec env -u CURL_CA_BUNDLE -u SSL_CERT_FILE %s %s %s %s/small.npy %s/else"
      local inside = command:format(more, variables or "", mpi.program(), recipe, server.secure, folder)
      return mpi.shell(("rm -rf %s/else; unshare -m sh -c '%s' 2>&1"):format(folder, inside)).output
    end
    local cert, rows = server.work .. "/cert.pem", "^" .. SMALL / 6 .. "\n$"
    assert.matches(rows, try("cp " .. cert .. " /etc/ssl"))
    assert.matches(rows, try("true", "SSL_CERT_FILE=" .. cert))
    assert.matches("certificate.*; CURL_CA_BUNDLE names a file of certificates %(1 try", try "true")
  end)

  it("is named without password and signature by whatever fails", function()
    local base, n, o = server.url:gsub("//", "//me:secret@") .. "/password", 0, { cache = cache }
    for _, name in ipairs { "npy", "idx", "bin", "h5", "safetensors", "npz", "tar", "csv", "jsonl" } do
      files.write(folder, "x." .. name, "damaged, and no whole {")
    end
    files.write(folder, "x.idx.gz", "\31\139\8" .. ("\0"):rep(40))
    local function try(format, what, more)
      local message = files.message(shardrt.source[format], what, more or o)
      assert.truthy(message:find("http://127.0.0.1", 1, true), message)
      for _, secret in ipairs { "secret", "abc" } do assert.is_nil(message:find(secret, 1, true), message) end
      n = n + 1
    end
    for _, name in ipairs { "x.npy", "x.idx", "x.idx.gz", "x.safetensors", "x.npz", "x.tar", "x.csv", "x.jsonl" } do
      local format = name:match "%.(%a+)"
      local url = ("%s/%s?signature=abc"):format(base, name)
      try(format, (format == "npy" or format == "idx") and { x = url } or url)
    end
    try("tokens", base .. "/x.bin?signature=abc", { window = 10, cache = cache })
    try("hdf5", { x = base .. "/x.h5?signature=abc" })
    try("hdf5", { x = base .. "/x.h5?signature=abc:/x" })
    try("zarr", { x = base .. "/nothing" })
    try("folder", base .. "/images?signature=abc")
    try("tar", base .. "/*.tar?signature=abc")
    try("cifar", { base .. "/x.csv?signature=abc" })
    assert.equal(15, n)
    local url = server.url .. "/table.csv?a=/b/abc-signature"
    shardrt.source.csv(url, o)
    assert.is_nil(table.concat(files.list(cache), " "):find "signature") -- nor is a file in the cache
  end)

  it("is cut out of any text", function()
    for given, hidden in pairs {
      ["a http://u:p@h/x?sig=1: b HTTPS://v@h?s=2, c"] = "a http://h/x?…: b HTTPS://h?…, c",
      ['"http://h/x?y=1" and u@h'] = '"http://h/x?…" and u@h', ["http://h/u@x"] = "http://h/u@x",
      ["http://u:a:b@c@h:8/x"] = "http://h:8/x", ["http://"] = "http://", ["http:// ?abcd"] = "http:// ?abcd",
      ["https://h/x?… 100 %"] = "https://h/x?… 100 %", ["http, http:/u@h"] = "http, http:/u@h",
    } do
      local text = ffi.new("char[?]", #given + 1, given)
      C.shardrt_error_hide(text)
      assert.equal(hidden, ffi.string(text))
    end
  end)

  for name, case in pairs {
    ["/nothing.npy"] = "/nothing%.npy: there is no such file on the server %(404%)",
    ["/forbidden/x.npy"] = "/forbidden/x%.npy: bytes 0 to 262143: the server answers 403 .*%(1 try,",
    ["/circle/x.npy"] = "/circle/x%.npy: bytes 0 to 262143: .*redirects",
    ["/table.csv"] = "/table%.csv: is no %.npy file",
  } do
    it("is refused if it is " .. name, function()
      local message = files.message(npy, server.url .. name)
      assert.truthy(message:find(case), message)
    end)
  end

  it("is an array of the host's, too", function()
    local there, wrong = shardrt.ndarray.load(server.url .. "/big.npy"), 0
    assert.same({ "int32", { BIG / 6, 6 } }, { there.dtype, there.shape })
    for i = 0, BIG - 1 do wrong = wrong + (there.data[i] == i and 0 or 1) end
    assert.equal(0, wrong)
  end)

  it("is no pattern and no folder of images", function()
    assert.truthy(files.message(shardrt.source.tar, server.url .. "/*.tar"):find "cannot be asked")
    assert.truthy(files.message(shardrt.source.folder, server.url .. "/images"):find "source%.tar")
    assert.truthy(files.message(npy, "http://127.0.0.1:1/x.npy" --[[ nobody is there ]]):find "6 tries")
    assert.truthy(files.message(shardrt.source.hdf5, { x = server.url .. "/data.h5" }):find "named behind its file")
    assert.truthy(files.message(shardrt.source.hdf5, { x = server.url .. "/data.h5:/none" }):find "cannot be opened")
  end)

  it("can be opened when memory runs out, or says so", function()
    assert.is_true(files.opens_or_lacks_memory("tar", server.url .. "/webdataset.tar") > 10)
  end)
end)

describe("the cache of files on servers", function()
  it("keeps to its limit, also when four processes read more than it holds", function()
    local LIMIT = 4 * 1024 * 1024 -- of 23 blocks it holds fifteen
    check_big(npy(server.url .. "/big.npy", { cache_bytes = LIMIT }))
    local _, bytes = blocks()
    assert.is_true(bytes <= LIMIT and bytes > LIMIT / 2, tostring(bytes))
    local stop = cache .. "/stop"
    local most = cache .. "/most" -- what somebody who looks all the time sees
    os.execute(([[sh -c 'most=0; while [ ! -e %s ]; do
      now=$(find %s/http -type f -name "*-*" -printf "%%s\n" 2>/dev/null | awk "{s += \$1} END {print s + 0}");
      [ "$now" -gt "$most" ] && most=$now; done; echo $most >%s' &]]):format(stop, cache, most))
    local result = mpi.run {
      processes = 4, devices = 1, limit = 200, env = { SHARDRT_CACHE = cache }, source = ([[
        local shardrt = require "shardrt"
        local source = shardrt.source.npy({ x = "%s/big.npy" }, { cache_bytes = %d })
        local rank, wrong = shardrt.process_index(), 0
        for i = 0, 25 do
          local first = (i * 104729 + rank * 31337) %% (#source - 3000)
          local x = source:read(first, 3000).x
          for k = 0, 17999 do if tonumber(x.data[k]) ~= first * 6 + k then wrong = wrong + 1 end end
        end
        assert(wrong == 0)
        shardrt.sync_global_devices "end"
        shardrt.say "all read"
      ]]):format(server.url, LIMIT),
    }
    files.write(cache, "stop", "")
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find "all read")
    _, bytes = blocks()
    assert.is_true(bytes <= LIMIT, tostring(bytes))
    for _ = 1, 100 do
      if io.open(most) then break end
      os.execute "sleep 0.05"
    end
    local seen = tonumber(files.slurp(most))
    -- While one is renamed or removed, a look at 256 folders may count a block twice.
    assert.is_true(seen > LIMIT / 2 and seen <= LIMIT + 2 * BLOCK, tostring(seen))
  end)

  it("removes what was not used for the longest time", function()
    local source = npy(server.url .. "/big.npy", { cache_bytes = 4 * 1024 * 1024 })
    local rows = BLOCK / 24
    for i = 1, 22 do
      source:read(math.ceil(rows), 1) -- of the second block, which stays in use
      source:read(math.ceil(i * rows), 1)
    end
    assert.equal(4 * BIG + 128, sent "big.npy") -- each block once, so that one was never removed
    source:read(math.ceil(2 * rows), 1)
    assert.equal(BLOCK, sent "big.npy")
  end)

  it("refuses a limit that holds next to nothing", function()
    assert.truthy(files.message(npy, server.url .. "/big.npy", { cache_bytes = 1000 }):find "4194304 or more")
    ffi.C.setenv("SHARDRT_CACHE_BYTES", "lots", 1)
    local message = files.message(npy, server.url .. "/big.npy")
    ffi.C.unsetenv "SHARDRT_CACHE_BYTES"
    assert.truthy(message:find "lots", message)
  end)

  it("finds damage in itself, and downloads anew", function()
    check_big(npy(server.url .. "/big.npy"))
    local list = blocks()
    for i, path in ipairs(list) do
      local size = #files.slurp(path)
      if i % 3 == 0 then
        assert(os.execute(("truncate -s %d '%s'"):format(size / 2, path)) == 0)
      else
        local at = i % 3 == 1 and math.floor(size * i / (#list + 1)) or size - 1 - i
        local file = assert(io.open(path, "r+b"))
        file:seek("set", at)
        local byte = file:read(1):byte()
        file:seek("set", at)
        file:write(string.char(bit.bxor(byte, 4)))
        file:close()
      end
    end
    check_big(npy(server.url .. "/big.npy"))
    assert.is_true(sent "big.npy" > 4 * BIG)
  end)

  it("is whole whenever a process that fills it is killed", function()
    local script = files.write(cache, "read.lua", ([[
      local source = require("shardrt").source.npy({ x = "%s/big.npy" }, { cache_bytes = 4194304 })
      for round = 1, 100 do source:read(0, #source) end
    ]]):format(server.url))
    for i = 1, 12 do
      os.execute(("timeout -s KILL %.2f %s %s >/dev/null 2>&1"):format(0.05 + 0.06 * i, mpi.program(), script))
      local _, bytes = blocks()
      assert.is_true(bytes <= 4194304, "kill " .. i .. ": " .. bytes)
    end
    check_big(npy(server.url .. "/big.npy", { cache_bytes = 4194304 }))
    local left = {}
    for _, name in ipairs(files.list(cache .. "/http")) do
      if #name ~= 2 then left[#left + 1] = name end
    end
    assert.is_true(#left <= 2, table.concat(left, " ")) -- the lock and, of a killed process, "new"
  end)

  it("says when its folder cannot be written", function()
    local message = files.message(npy, server.url .. "/big.npy", { cache = "/proc/nothing" })
    assert.truthy(message:find("/proc/nothing", 1, true) and message:find("SHARDRT_CACHE", 1, true), message)
  end)
end)

describe("a server that fails", function()
  local function fault(how, name) return ("%s/%s/%s"):format(server.faults, how, name or "big.npy") end

  for _, how in ipairs { "status-2-503", "status-1-500", "status-1-429", "drop-2", "reset-2", "short-2", "less-2",
    "more-2", "other-1" } do
    it("is asked again: " .. how, function()
      check_small(npy(fault(how, "small.npy")))
      assert.is_true(#server:log "faults" >= 4)
    end)
  end

  for how, why in pairs {
    ["status--503"] = "the server answers 503", drop = "", short = "the server answers 206, with other bytes",
    less = "131072 bytes came, not 262144", more = "more bytes came than were asked for",
  } do
    it("is given up in the end: " .. how, function()
      local message = files.message(npy, fault((how:gsub("%-%-", "-99-"))))
      assert.truthy(message:find("/big.npy: bytes 0 to 262143: ", 1, true), message)
      assert.truthy(message:find(why, 1, true), message)
      assert.truthy(message:find "%(6 tries, %d+%.%d s%)", message)
      assert.equal(6, #server:log "faults")
    end)
  end

  it("is asked no more often for fields by name", function()
    for _, format in ipairs { "parquet", "jsonl", "arrow" } do
      local before = #server:log "faults"
      local message = files.message(shardrt.source[format], fault("status-99-503"), { fields = { "id" } })
      assert.truthy(message:find("the server answers 503", 1, true), message)
      assert.equal(6, #server:log "faults" - before, format)
    end
  end)

  for _, how in ipairs { "silent", "stall", "slow" } do
    it("is given up when time is over: " .. how, function()
      ffi.C.setenv("SHARDRT_HTTP_TIMEOUT", "0.3", 1)
      local message = files.message(npy, fault(how))
      assert.truthy(message:find "bytes 0 to 262143: .*%(%d tr[iy]e?s?, %d+%.%d s%)", message)
    end)
  end

  it("is waited for where it says how long", function()
    -- Four times that and a second for 256 KiB: five pauses of a second are too long, four are not.
    ffi.C.setenv("SHARDRT_HTTP_TIMEOUT", "0.2", 1)
    local message = files.message(npy, fault("status-99-429", "offsets.npy"))
    assert.truthy(message:find "429 %(too many requests%), and wants to be asked later than there is time for", message)
  end)

  it("is not believed when the file changes, and data is never mixed", function()
    for _, how in ipairs { "changed-3", "gone-3" } do
      local source = npy(fault(how))
      assert.equal(5, tonumber(source:read(0, 1).x.data[5]))
      local message = files.message(function() return source:read(0, #source) end)
      local why = how == "gone-3" and "not on the server any more" or "another one since it was opened"
      assert.truthy(message:find(why, 1, true), message)
    end
    local source = npy(fault "plain")
    check_big(source)
    local other = shardrt.ndarray.arange(BIG, "int32"):reshape { BIG / 6, 6 }
    local path = folder .. "/changing.npy"
    other:save(path)
    source = npy(server.url .. "/changing.npy")
    other.data[BIG - 1] = 77
    os.execute "sleep 1.1" -- nginx's ETag counts seconds
    other:save(path)
    assert.truthy(files.message(function() return source:read(#source - 1, 1) end):find "another one")
    assert.equal(77, tonumber(npy(server.url .. "/changing.npy"):read(BIG / 6 - 1, 1).x.data[5])) -- as it is now
  end)

  it("sends whole files only: into the cache, if they fit", function()
    check_big(npy(server.url .. "/whole/big.npy"))
    local whole = 0
    for _, line in ipairs(server:log()) do if line:find "/whole/big.npy 200 .* 6000128 " then whole = whole + 1 end end
    assert.equal(1, whole)
    check_big(npy(server.url .. "/whole/big.npy")) -- from the cache
    local again = server:log()
    assert.equal(1, #again, table.concat(again, "\n"))
    assert.truthy(again[1]:find " 304 ")
    local message = files.message(npy, server.url .. "/whole/big.npy",
      { cache = cache .. "/small", cache_bytes = 4194304 })
    assert.truthy(message:find "sends files whole only .* 6000128 bytes.*cache_bytes", message)
    message = files.message(npy, fault("endless"))
    assert.truthy(message:find "does not say how long", message)
    local result = mpi.run {
      processes = 4, devices = 1, env = { SHARDRT_CACHE = cache .. "/four" }, source = ([[
        local shardrt = require "shardrt"
        local source = shardrt.source.npy { x = "%s/whole/big.npy" }
        local x = source:read(0, #source).x
        for i = 0, x.size - 1 do assert(x.data[i] == i) end
      ]]):format(server.url),
    }
    assert.equal(0, result.status, result.output)
    whole = 0
    for _, line in ipairs(server:log()) do if line:find "/whole/big.npy 200 .* 6000128 " then whole = whole + 1 end end
    assert.equal(1, whole) -- one process downloads it
  end)

  it("is asked for a file that has no ETag, whatever its date", function()
    local path, host = folder .. "/dated.npy", shardrt.ndarray.arange(600, "int32"):reshape { 100, 6 }
    host:save(path)
    check_big(npy(fault("dated", "dated.npy")), 600)
    host.data[599] = 77
    host:save(path)
    assert(os.execute(("touch -d 2001-01-01 '%s'"):format(path)) == 0) -- as of a backup that was put back
    assert.equal(77, tonumber(npy(fault("dated", "dated.npy")):read(99, 1).x.data[5]))
  end)

  it("is not waited for as nobody can say how long", function()
    for _, text in ipairs { "soon", "-1", "0", "nan", "inf", "1e300" } do
      ffi.C.setenv("SHARDRT_HTTP_TIMEOUT", text, 1)
      local message = files.message(npy, fault "plain")
      assert.truthy(message:find(('SHARDRT_HTTP_TIMEOUT is "%s"'):format(text), 1, true), message)
    end
  end)

  it("may say neither ETag nor time, but not that it compresses", function()
    check_big(npy(fault "unnamed"))
    assert.truthy(files.message(npy, fault "encoded"):find "Content%-Encoding")
  end)

  it("ends a job with the message of the process that met it", function()
    local result = mpi.run {
      processes = 2, devices = 1, env = { SHARDRT_CACHE = cache, SHARDRT_HTTP_TIMEOUT = "1" }, source = ([[
        local shardrt = require "shardrt"
        local loader = shardrt.loader {
          source = shardrt.source.npy { x = "%s" }, batch_size = 1000, shuffle = true, seed = 1, epochs = 1 }
        for _ in loader do end
      ]]):format(fault "gone-4"),
    }
    assert.is_true(result.status ~= 0)
    assert.truthy(result.output:find "not on the server any more", result.output)
  end)
end)

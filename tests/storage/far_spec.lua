-- long: 40 s
-- Files on a server that is far away and busy (store.py): how many requests and bytes it takes to open many of them,
-- alone and in a job; a loader's stream, which is that of the disk, though one request in a few fails; what is asked
-- for once. All is counted by the server.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local store = require "tests.support.store"

local FILES = 70
local MIB = 2 ^ 20

local folder, server

-- Runs a recipe, alone or in o.processes, with a new cache; `after` of what the server counted.
local function run(source, o)
  o = o or {}
  local cache = o.cache or files.folder()
  server:counts()
  local result = mpi.run {
    source = [[
      local shardrt = require "shardrt"
      local ffi = require "ffi"
      local url, folder = os.getenv "STORE", os.getenv "STORED"
      local function many(base, name, n)
        local list = {}
        for i = 1, n do list[i] = ("%s/many/%02d.%s"):format(base, i, name) end
        return list
      end
      -- What a loader over the source gives, as a number; and the loader.
      local function stream(source, field, o)
        o.source, o.epochs, o.seed = source, 1, 5
        local loader, hash, step = shardrt.loader(o), 0ULL, 0
        for batch in loader do
          local host = shardrt.process_allgather(batch[field])
          local packed = host:packed()
          local words = ffi.cast("const uint64_t *", packed.data)
          for i = 0, packed.size / 8 - 1 do hash = hash * 31 + words[i] end
          step = step + 1
        end
        return tostring(hash) .. " of " .. step, loader
      end
    ]] .. source,
    processes = o.processes, devices = 1, limit = 120, options = o.options,
    env = { SHARDRT_CACHE = cache, STORE = server.url, STORED = folder, SHARDRT_HTTP_TIMEOUT = o.timeout or "20" },
  }
  if not o.cache then files.remove(cache) end
  return result, server:counts()
end

-- As tar writes it: members are pairs of a name and data.
local function tar(members)
  local out = {}
  for _, member in ipairs(members) do
    local name, data = member[1], member[2]
    local head = name .. ("\0"):rep(100 - #name) .. "0000644\0" .. "0000000\0" .. "0000000\0"
      .. ("%011o\0"):format(#data) .. "00000000000\0" .. "        " .. "0" .. ("\0"):rep(100) .. "ustar\00000"
      .. ("\0"):rep(247)
    local sum = 0
    for i = 1, 512 do sum = sum + head:byte(i) end
    out[#out + 1] = head:sub(1, 148) .. ("%06o\0 "):format(sum) .. head:sub(157) .. data .. ("\0"):rep(-#data % 512)
  end
  return table.concat(out) .. ("\0"):rep(1024)
end

setup(function()
  folder = files.folder()
  os.execute(("mkdir -p '%s/many' '%s/large' && cp -r tests/files/mds '%s/'"):format(folder, folder, folder))
  os.execute(("gunzip -c tests/files/array_record/zstd-4.array_record.gz >'%s/one.array_record'"):format(folder))
  for i = 1, FILES do
    local function copy(from, ending)
      os.execute(("ln '%s' '%s/many/%02d.%s' 2>/dev/null || cp '%s' '%s/many/%02d.%s'"):format(from, folder, i, ending,
        from, folder, i, ending))
    end
    files.write(folder .. "/many", ("%02d.jsonl"):format(i), ('{"x": %d}\n'):format(i))
    files.write(folder .. "/many", ("%02d.tar"):format(i), tar { { i .. ".cls", tostring(i) } })
    copy("tests/files/parquet/plain.parquet", "parquet")
    copy(folder .. "/one.array_record", "array_record")
  end
  local data = files.bytes(2 * MIB)
  for i = 0, 2 do -- shards of large members
    local members = {}
    for k = 0, 3 do
      local key = ("%04d"):format(4 * i + k)
      members[#members + 1] = { key .. ".bin", key .. data:sub(#key + 1) }
      members[#members + 1] = { key .. ".cls", tostring(4 * i + k) }
    end
    files.write(folder .. "/large", ("%d.tar"):format(i), tar(members))
  end
  server = store.start(folder, "latency=30")
end)
teardown(function()
  server:stop()
  files.remove(folder)
end)

local function ran(result) assert.equal(0, result.status, result.output) end

describe("many files on a server", function()
  local opening = ([[
    local n = { jsonl = 1, tar = 1, parquet = 1, array_record = 1 }
    for _, format in ipairs { "jsonl", "tar", "parquet", "array_record" } do
      local o = format == "parquet" and { fields = { "i64" } } or {}
      local source = shardrt.source[format](many(url, format, %d), o)
      local here = shardrt.source[format](many(folder, format, %d), o)
      assert(#source == #here)
      n[format] = #source
    end
    shardrt.say("%%d %%d %%d %%d", n.jsonl, n.tar, n.parquet, n.array_record)
  ]]):format(FILES, FILES)

  it("is opened by a request for each, or two, many at once, and later by a short one", function()
    local cache = files.folder()
    local result, counts = run(opening, { cache = cache })
    ran(result)
    local bytes = counts.bytes
    assert.equal(5 * FILES, counts.requests) -- ArrayRecord files here are longer than what is asked for first
    assert.is_true(counts.most >= 16, counts.most .. " at once")
    result, counts = run(opening, { cache = cache })
    ran(result)
    assert.is_true(counts.requests == 4 * FILES and counts.bytes == 0 and bytes > 0, counts.bytes .. " bytes again")
    files.remove(cache)
  end)

  it("is opened by as many in the whole job", function()
    local result, counts = run(opening, { processes = 3 })
    ran(result)
    -- Of records, every process opens the first file.
    assert.is_true(counts.requests <= 5 * FILES + 2 * 2, counts.requests .. " requests")
  end)

  it("that cannot be opened is one line for all processes", function()
    local result = run([[
      local list = many(url, "parquet", 70)
      list[41] = url .. "/many/missing.parquet"
      shardrt.source.parquet(list)
    ]], { processes = 3 })
    assert.equal(1, result.status, result.output)
    local _, lines = result.stderr:gsub("missing%.parquet: there is no such file on the server %(404%)", "")
    assert.equal(1, lines, result.stderr)
  end)
end)

describe("what tells where its samples are", function()
  it("is all that is asked for: index.json, headers of tars and of arrays", function()
    local result, counts = run [[
      local source = shardrt.source.mds(url .. "/mds/raw", { fields = { number = "int64", text = "bytes" } })
      shardrt.say("%d", #source)
    ]]
    ran(result)
    assert.equal(1, counts.requests)
    result, counts = run [[
      local list = { url .. "/large/0.tar", url .. "/large/1.tar", url .. "/large/2.tar" }
      assert(#shardrt.source.tar(list) == 12)
    ]]
    ran(result)
    assert.is_true(counts.bytes < 3 * 4 * 2 * MIB / 4, counts.bytes .. " bytes of 24 MiB")
    result, counts = run [[
      local shardrt = require "shardrt"
      local x = shardrt.ndarray.arange(2 ^ 20, "int32"):reshape { 2 ^ 12, 2 ^ 8 }
      shardrt.save(folder .. "/large/x.safetensors", { x = x })
      local source = shardrt.source.safetensors(url .. "/large/x.safetensors")
      assert(#source == 2 ^ 12)
      shardrt.say("%d", tonumber(source:read(4000, 1).x.data[1]))
    ]]
    ran(result)
    assert.truthy(result.stdout:find(tostring(4000 * 256 + 1), 1, true), result.stdout)
    assert.is_true(counts.bytes <= 3 * 2 ^ 18, counts.bytes .. " bytes of 4 MiB")
  end)

  it("suffices for a stream of MDS that is the disk's", function()
    local result = run([[
      local function all(base)
        local source = shardrt.source.mds(base .. "/mds/raw", { fields = { number = "int64" } })
        local words = {}
        for batch in shardrt.loader { source = source, batch_size = 6, shuffle = "blocks", seed = 2, epochs = 1 } do
          local host = shardrt.process_allgather(batch.number)
          for i = 0, host.size - 1 do words[#words + 1] = tonumber(host.data[i]) end
        end
        return table.concat(words, " ")
      end
      assert(#all(folder) > 5 and all(folder) == all(url))
    ]], { processes = 2 })
    ran(result)
  end)
end)

describe("a loader over files on a server", function()
  local LARGE = [[
    local function large(base, o)
      o.fields = { bin = { "uint8", { 2 ^ 21 } }, cls = "int64" }
      return shardrt.source.tar({ base .. "/large/0.tar", base .. "/large/1.tar", base .. "/large/2.tar" }, o)
    end
    local function counts() -- what the server counted up to now
      local ask = "python3 -c 'import urllib.request as r; print(r.urlopen(\"%s/-/counts\").read().decode())'"
      local pipe = io.popen(ask:format(url))
      local text = pipe:read "*a"
      pipe:close()
      return text
    end
  ]]

  it("gives the disk's stream while requests fail, and keeps to the cache's limit", function()
    local kept = server
    server = store.start(folder, "latency=2 fail=6")
    local cache = files.folder()
    local result, counts = run(LARGE .. [[
      for _, shuffle in ipairs { false, true } do
        local one = stream(large(folder, {}), "bin", { batch_size = 2, shuffle = shuffle })
        local other = stream(large(url, { cache_bytes = 8 * 2 ^ 20 }), "bin", { batch_size = 2, shuffle = shuffle })
        assert(one == other, one .. " and " .. other)
        assert(one:find "of 6$", one)
      end
    ]], { processes = 2, cache = cache })
    server:stop()
    server = kept
    ran(result)
    assert.is_true(counts.failed >= 8, counts.failed .. " failed")
    local pipe = io.popen(("find '%s/http' -type f -name '*-*' -printf '%%s\n'"):format(cache))
    local bytes = 0
    for line in pipe:lines() do bytes = bytes + tonumber(line) end
    pipe:close()
    assert.is_true(bytes > 2 * MIB and bytes <= 8 * MIB, bytes .. " bytes in the cache")
    files.remove(cache)
  end)

  it("counts what the server counts: each byte of a shuffled epoch by blocks once", function()
    local result, counts = run(LARGE .. [[
      local source = large(url, { cache_bytes = 14 * 2 ^ 20 })
      counts()
      local _, loader = stream(source, "bin",
        { batch_size = 1, shuffle = "blocks", window = 2, num_workers = 1, prefetch = 1 })
      os.execute "sleep 0.3" -- the thread that reads ahead counts what it brought when all of it has come
      shardrt.say("%.0f", loader:stats().bytes_from_network)
    ]])
    ran(result)
    assert.equal(counts.bytes, tonumber(result.stdout))
    -- What surrounds the headers came when the tars were opened; beside members there are 2 KiB of headers for each.
    assert.is_true(counts.bytes <= 24 * MIB + 12 * 4096, counts.bytes .. " bytes for 24 MiB")
  end)

  it("asks for each byte once where runs of rows are shuffled, for all processes of a host", function()
    shardrt.ndarray.arange(6000 * 1000, "int32"):reshape { 6000, 1000 }:save(folder .. "/rows.npy")
    for processes = 1, 2 do
      local result, counts = run([[
        local function rows(base, o) return shardrt.source.npy({ x = base .. "/rows.npy" }, o) end
        local o = { batch_size = 60, shuffle = "blocks", window = 4, prefetch = 1, num_workers = 1 }
        local one = stream(rows(folder), "x", o)
        local other, loader = stream(rows(url, { cache_bytes = 10 * 2 ^ 20 }), "x", o)
        assert(one == other, one .. " and " .. other)
        os.execute "sleep 0.3"
        shardrt.say("%.0f", loader:stats().bytes_from_network)
      ]], { processes = processes })
      ran(result)
      local bytes = 6000 * 1000 * 4
      assert.is_true(counts.bytes >= bytes, counts.bytes .. " bytes of " .. bytes)
      -- And the head, which came when the file was opened, and may be gone when its run's turn comes.
      assert.is_true(counts.bytes <= 128 + bytes + 2 ^ 18, counts.bytes .. " bytes for " .. bytes)
      assert.is_true(counts.requests <= 2 * bytes / 2 ^ 18, counts.requests .. " requests")
    end
  end)

  it("keeps parts of blocks, which become whole, and asks anew for damaged ones", function()
    shardrt.ndarray.arange(2000 * 1000, "int32"):reshape { 2000, 1000 }:save(folder .. "/parts.npy")
    local cache = files.folder()
    local function read(first, count)
      local result, counts = run(([[
        local source = shardrt.source.npy { x = url .. "/parts.npy" }
        local x = source:read(%d, %d).x
        local first, wrong = ffi.cast("const int32_t *", x.data), 0
        for i = 0, x.size - 1 do if first[i] ~= %d * 1000 + i then wrong = wrong + 1 end end
        assert(wrong == 0, wrong .. " are wrong")
      ]]):format(first, count, first), { cache = cache })
      ran(result)
      return counts.bytes
    end
    local function parts()
      local list, bytes = {}, 0
      local pipe = io.popen(("find '%s/http' -name '*.part' -printf '%%s %%p\\n' | sort"):format(cache))
      for line in pipe:lines() do
        list[#list + 1] = line:match " (.*)$"
        bytes = bytes + tonumber(line:match "^%d+") - 112 -- without the footer
      end
      pipe:close()
      return list, bytes
    end
    assert.equal(300 * 4000 + 2 ^ 18, read(100, 300)) -- and the head
    local list, bytes = parts()
    assert.equal(2, #list)
    assert.equal(0, read(100, 300))
    for _, path in ipairs(list) do -- a byte of each is another one
      local file = assert(io.open(path, "r+b"))
      file:seek("set", 5000)
      local byte = file:read(1)
      file:seek("set", 5000)
      file:write(string.char((byte:byte() + 1) % 256))
      file:close()
    end
    assert.equal(bytes, read(100, 300))
    assert.equal(300 * 4000, read(400, 300))
    list = parts()
    assert.equal(2, #list) -- the border between the two is whole
    assert.equal(0, read(100, 600))
    files.remove(cache)
  end)

  local PART = [[
    ffi.cdef "struct room { uint64_t now, most; }; int setrlimit(int what, const struct room *room);"
    local FSIZE = 1
    local source = shardrt.source.npy { x = url .. "/killed.npy" }
    local function read(first, count)
      local x = source:read(first, count).x
      local numbers, wrong = ffi.cast("const int32_t *", x.data), 0
      for i = 0, x.size - 1 do if numbers[i] ~= first * 1000 + i then wrong = wrong + 1 end end
      assert(wrong == 0, wrong .. " are wrong")
    end
  ]]

  it("is as it was where a process is killed in the middle of a part of a block, or of making it whole", function()
    shardrt.ndarray.arange(1000 * 1000, "int32"):reshape { 1000, 1000 }:save(folder .. "/killed.npy")
    local bytes, cache = files.slurp(folder .. "/killed.npy"), files.folder()
    -- Reads rows; `most`: a file that would be longer than so many bytes ends the process (SIGXFSZ) as it is written.
    local function read(first, count, most)
      local limit = most and ("ffi.C.setrlimit(FSIZE, ffi.new('struct room', %d, %d))"):format(most, most) or ""
      local result, counts = run(PART .. limit .. ("\nread(%d, %d)"):format(first, count), { cache = cache })
      assert.equal(most and 128 + 25 or 0, result.status, result.output)
      return counts.bytes
    end
    local function is_left(most, ...) -- what was half written, one of these bytes of the file
      local left, found = files.slurp(cache .. "/http/new"), false
      assert.equal(most, #left)
      for _, at in ipairs { ... } do found = found or left == bytes:sub(at + 1, at + most) end
      assert.is_true(found)
    end
    local BLOCK = 2 ^ 18
    read(100, 263, 100000) -- two parts, and whole blocks between them
    is_left(100000, 100 * 4000 + 128, 5 * BLOCK)
    assert.equal(263 * 4000, read(100, 263))
    read(70, 10, 200000) -- what is missing of the block in which the first part lies
    is_left(200000, BLOCK)
    assert.equal(0, read(100, 263))
    assert.equal(100 * 4000 + 128 - BLOCK, read(70, 10))
    assert.equal(0, read(70, 290))
    files.remove(cache)
  end)

  it("says where memory is exhausted while parts of blocks are put together, and has the right bytes then", function()
    shardrt.ndarray.arange(1000 * 1000, "int32"):reshape { 1000, 1000 }:save(folder .. "/killed.npy")
    ran((run(PART .. [[
      local C = require "shardrt.base.ffi"
      local n, lacked, met = 0, 0, true
      while met do
        n = n + 1
        os.execute(("rm -rf '%s/http'"):format(os.getenv "SHARDRT_CACHE"))
        C.shardrt_alloc_fail_at(n)
        local ok, message = pcall(function()
          read(100 + n, 263)
          read(363 + n, 263) -- of the block between the two there is a part
        end)
        met = tonumber(C.shardrt_alloc_fail_at(0)) >= n
        assert(ok or met and tostring(message):find("out of memory", 1, true), message)
        if not ok then
          lacked = lacked + 1
          read(100 + n, 526)
        end
      end
      assert(lacked > 10, lacked .. " of " .. n)
    ]])))
  end)

  it("opens, for runs that are shuffled, the files that it reads first, and not all of them in each process", function()
    local result = run(LARGE .. [[
      ffi.cdef "int setenv(const char *name, const char *value, int replace);"
      local rank = shardrt.process_index()
      ffi.C.setenv("SHARDRT_CACHE", os.getenv "SHARDRT_CACHE" .. "/" .. rank, 1) -- as on two hosts
      ffi.C.setenv("SHARDRT_AHEAD", "off", 1) -- which would open more of them while they are counted
      local source = shardrt.source.jsonl(many(url, "jsonl", 70))
      shardrt.sync_global_devices "opened"
      if rank == 0 then counts() end
      shardrt.sync_global_devices "counted"
      local loader = shardrt.loader { source = source, batch_size = 4, shuffle = "blocks", window = 2, seed = 3,
        epochs = 1, num_workers = 1, prefetch = 1 }
      shardrt.sync_global_devices "made"
      if rank == 0 then shardrt.say("%s", counts():match "^%d+") end
      local rows = 0
      for batch in loader do rows = rows + batch.x.shape[1] end
      assert(rows >= 68, rows)
    ]], { processes = 2 })
    ran(result)
    local opened = tonumber(result.stdout)
    assert.is_true(opened >= 1 and opened <= 20, result.stdout)
  end)

  it("asks for each byte once where processes read parts of one block at the same time, and for a head once", function()
    shardrt.ndarray.arange(1640 * 1000, "int32"):reshape { 1640, 1000 }:save(folder .. "/border.npy")
    local last = 128 + (3 * 410 + 400) * 4000
    for round = 1, 3 do
      local result, counts = run([[
        local source = shardrt.source.npy { x = url .. "/border.npy" }
        local function read(p)
          local x = source:read(p * 410, 400).x -- what it ends in and the next one begins in is one block
          local first, wrong = ffi.cast("const int32_t *", x.data), 0
          for i = 0, x.size - 1 do if first[i] ~= p * 410000 + i then wrong = wrong + 1 end end
          assert(wrong == 0, wrong .. " are wrong")
        end
        shardrt.sync_global_devices "opened"
        for i = 0, 3 do read((shardrt.process_index() + i) % 4) end
      ]], { processes = 4 })
      ran(result)
      -- Beside the head, the rows from the first to the last, with those between that share a block with others.
      assert.equal(last, counts.bytes, "round " .. round)
    end
  end)

  it("downloads what is damaged in a site's cache, of another version or of a broken disk", function()
    shardrt.ndarray.arange(2 ^ 18, "int32"):save(folder .. "/site.npy") -- 1 MiB, and the header
    local site, cache = files.folder(), files.folder()
    local function read(into)
      local result, counts = run(([[
        ffi.cdef "int setenv(const char *name, const char *value, int replace);"
        if %q ~= "" then ffi.C.setenv("SHARDRT_SITE_CACHE", %q, 1) end
        local x = shardrt.ndarray.load(url .. "/site.npy")
        for i = 0, x.size - 1 do assert(x.data[i] == i, "a wrong element") end
      ]]):format(into == site and "" or site, site), { cache = into })
      ran(result)
      return counts.bytes
    end
    read(site)
    assert.equal(0, read(cache))
    local pipe = io.popen(("find '%s/http' -size +200k | sort"):format(site))
    for path in pipe:lines() do -- of one the footer, of the next a page
      local file = assert(io.open(path, "r+b"))
      local at = path:byte(-1) % 2 == 0 and 2 ^ 18 or 5000
      file:seek("set", at)
      local byte = file:read(1)
      file:seek("set", at)
      file:write(string.char((byte:byte() + 1) % 256))
      file:close()
    end
    pipe:close()
    assert.is_true(read(cache) >= 2 ^ 20)
    assert.equal(0, read(cache))
    files.remove(site)
    files.remove(cache)
  end)

  it("does not wait, when it is dropped or goes elsewhere, for a server that stands still", function()
    local slow = store.start(folder, "latency=20 rate=5000000")
    local pid = files.number_in(slow.work .. "/pid")
    shardrt.ndarray.arange(2 ^ 22, "int32"):reshape { 2 ^ 8, 2 ^ 14 }:save(folder .. "/still.npy")
    local result = run(([[
      local loader = shardrt.loader { source = shardrt.source.npy { x = "%s/still.npy" }, batch_size = 2 ^ 4,
        epochs = 1, num_workers = 2, prefetch = 4 }
      local begun = loader:state()
      loader()
      os.execute "kill -STOP %d" -- some of the next batches are on their way
      loader:restore(begun)
      loader = nil
      collectgarbage()
      collectgarbage()
      shardrt.say "dropped"
    ]]):format(slow.url, pid), { timeout = "3600" })
    os.execute("kill -CONT " .. pid)
    local came = slow:counts().bytes
    slow:stop()
    ran(result)
    assert.equal("dropped\n", result.stdout)
    assert.is_true(came >= 2 ^ 20 and came < 2 ^ 24, came)
  end)

  it("is told in one line of a server that does not answer, and of an object that is another one", function()
    local result = run([[
      shardrt.source.npy { x = url .. "/hang" }
    ]], { processes = 2, timeout = "0.3" })
    assert.equal(1, result.status, result.output)
    local _, lines = result.stderr:gsub("/hang: bytes 0 to 262143: no answer came in time", "")
    assert.equal(1, lines, result.stderr)
    result = run([[
      shardrt.ndarray.arange(2 ^ 20, "int32"):reshape { 2 ^ 12, 2 ^ 8 }:save(folder .. "/replaced.npy")
      shardrt.sync_global_devices "made"
      -- 256 batches: a lookahead goes at most 64 ahead, so most of the file is asked for afterwards.
      local loader = shardrt.loader { source = shardrt.source.npy { x = url .. "/replaced.npy" }, batch_size = 2 ^ 4,
        epochs = 1, num_workers = 1, prefetch = 1 }
      loader()
      shardrt.sync_global_devices "read"
      if shardrt.process_index() == 0 then
        shardrt.ndarray.zeros({ 2 ^ 12, 2 ^ 8 }, "int32"):save(folder .. "/other.npy")
        os.rename(folder .. "/other.npy", folder .. "/replaced.npy")
      end
      shardrt.sync_global_devices "replaced"
      for _ in loader do end
    ]], { processes = 2, options = { "--timeout", "20" } })
    assert.equal(1, result.status, result.output)
    local _, said = result.stderr:gsub("/replaced%.npy: the file on the server is another one since it was opened", "")
    assert.equal(1, said, result.stderr)
  end)
end)

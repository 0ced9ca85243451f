-- Sources of many files: each process opens its share, and tells the others; what it was told of is opened when it is
-- first read, and must be what it was. Files on a server are opened many at once.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local nginx = require "tests.support.nginx"

local FILES = 90

local folder
setup(function() folder = files.folder() end)
teardown(function() files.remove(folder) end)

-- Each of FILES files has as many lines as its number's last digit, but the tenth, twentieth, … 10.
local head = [[
  local ffi = require "ffi"
  local C = require "shardrt.base.ffi"
  local fail = require "shardrt.base.error"
  local current = require "shardrt.base.current"
  local shardrt = require "shardrt"
  local me, folder, FILES = shardrt.process_index(), os.getenv "OPENING", 90
  local function path(i, ending) return ("%s/%02d.%s"):format(folder, i, ending or "jsonl") end
  local function paths(ending)
    local list = {}
    for i = 1, FILES do list[i] = path(i, ending) end
    return list
  end
  local function put(name, text)
    local file = assert(io.open(name, "wb"))
    file:write(text)
    file:close()
  end
  local function rows(i) return i % 10 == 0 and 10 or i % 10 end
  -- How many files of an ending are mapped here.
  local function mapped(ending)
    local count = 0
    for line in io.lines "/proc/self/maps" do
      if line:sub(-#ending) == ending and line:find(folder, 1, true) then count = count + 1 end
    end
    return count
  end
  local function meet(what) fail.check(C.shardrt_barrier(current.job, what)) end
  local function fails(call, ...)
    local ok, problem = pcall(call, ...)
    assert(not ok, "it did not fail")
    return tostring(problem)
  end
  local function has(text, part) assert(text:find(part, 1, true), text) end
]]

local function lines(i)
  local made = {}
  for row = 1, i % 10 == 0 and 10 or i % 10 do made[row] = ('{"x": %d}\n'):format(i * 100 + row) end
  return table.concat(made)
end

local function put_all()
  for i = 1, FILES do files.write(folder, ("%02d.jsonl"):format(i), lines(i)) end
end

local function run(source, o)
  o = o or {}
  o.source, o.processes, o.devices = head .. source, 3, 1
  o.env = { OPENING = folder, SERVER = o.server }
  return mpi.run(o)
end

describe("a source of many files", function()
  before_each(put_all)

  it("is opened by all processes together, and each file where it is first read", function()
    local result = run [[
      -- The first time each process makes the indexes of its share.
      C.shardrt_source_free(ffi.gc(shardrt.source.jsonl(paths()), nil))
      local source = shardrt.source.jsonl(paths())
      for _, ending in ipairs { ".jsonl", ".shardrt-index" } do
        local count = mapped(ending)
        assert(count >= FILES / 3 and count <= FILES / 3 + 1, count .. " are mapped") -- its share, and the first
      end
      fail.check(C.shardrt_check_source(current.job, source)) -- which opens none
      assert(mapped ".jsonl" <= FILES / 3 + 1, mapped ".jsonl" .. " are mapped")
      local at = 0
      local all = source:read(0, #source).x
      for i = 1, FILES do
        for row = 1, rows(i) do
          assert(all.data[at] == i * 100 + row)
          at = at + 1
        end
      end
      assert(at == #source and mapped ".jsonl" == FILES and mapped ".shardrt-index" == FILES)
      -- What this process finds by itself is the same, also as blocks.
      local alone = {}
      for i = 1, FILES do alone[i] = shardrt.source.jsonl(path(i)) end
      local joined = shardrt.concat(alone)
      local one = joined:read(0, #source).x
      for i = 0, at - 1 do assert(one.data[i] == all.data[i]) end
      local mesh = shardrt.make_mesh({ 3 }, { "data" })
      local sharding = shardrt.NamedSharding(mesh, shardrt.P "data")
      for _, shuffle in ipairs { true, "blocks" } do
        local both = {}
        for i, from in ipairs { shardrt.source.jsonl(paths()), joined } do
          both[i] = shardrt.loader { source = from, batch_size = 45, shuffle = shuffle, seed = 3, epochs = 1,
            sharding = sharding }
        end
        local steps = 0
        for batch in both[1] do
          local other = both[2]()
          for k, shard in ipairs(batch.x.addressable_shards) do
            local twin = other.x.addressable_shards[k]
            for i = 0, 14 do assert(shard.data.data[i] == twin.data.data[i]) end
          end
          steps = steps + 1
        end
        assert(steps == 11)
      end
    ]]
    assert.equal(0, result.status, result.output)
  end)

  it("names a file that is another one, shorter or gone when it is read", function()
    local result = run [[
      local source = shardrt.source.jsonl(paths())
      local first = {} -- of each file
      for i = 1, FILES do first[i + 1] = (first[i] or 0) + rows(i) end
      first[1] = 0
      meet "opened"
      -- The last process opened the last files, and process 0 did not.
      if me == 2 then
        put(path(81), '{"x": 1}\n')
        os.remove(path(82))
        put(path(90) .. ".new", '{"x": 9001}\n')
        os.rename(path(90) .. ".new", path(90))
        os.remove(path(85) .. ".shardrt-index") -- which is made again
      end
      meet "changed"
      if me == 0 then
        local function read(i) return fails(source.read, source, first[i], 1) end
        has(read(81), path(81))
        has(read(81), "is not the file that it was when the source was opened")
        has(read(82), path(82))
        has(read(82), "No such file")
        has(read(90), path(90))
        assert(source:read(first[84], 1).x.data[0] == 8401 and source:read(first[85], 1).x.data[0] == 8501)
      end
      meet "read"
    ]]
    assert.equal(0, result.status, result.output)
  end)

  it("is opened by each process for itself where they ask for different files", function()
    local result = run [[
      local list = paths()
      if me == 1 then list[90] = path(10) end
      local source = shardrt.source.jsonl(list)
      assert(#source == 495 and source:read(494, 1).x.data[0] == (me == 1 and 1010 or 9010))
      has(fails(function() fail.check(C.shardrt_check_source(current.job, source)) end), "90.jsonl")
    ]]
    assert.equal(0, result.status, result.output)
  end)

  it("fails in all processes with the message of the one that found a bad file", function()
    local result = run [[
      for i = 1, me == 0 and FILES or 0 do put(path(i, "csv"), i == 77 and 'a,b\n1\n' or 'a,b\n1,2\n') end
      meet "made"
      has(fails(shardrt.source.csv, paths "csv"), path(77, "csv"))
      if me == 0 then put(path(77, "csv"), 'a,b\n1,2\n') end
      meet "mended"
      local source = shardrt.source.csv(paths "csv")
      assert(#source == 90 and mapped ".csv" <= 31, mapped ".csv")
      meet "opened"
      -- Another header is found by the process that opens the file, wherever it stands.
      if me == 0 then put(path(44, "csv"), 'a,c\n1,2\n') end
      meet "changed"
      local problem = fails(shardrt.source.csv, paths "csv")
      has(problem, path(44, "csv"))
      has(problem, 'is called "c"')
      -- The first file, which one process alone does not find.
      local list = paths "csv"
      if me == 1 then list[1] = folder .. "/missing.csv" end
      has(fails(shardrt.source.csv, list), "missing.csv")
      -- A first file without a line leaves that to the second.
      meet "asked"
      if me == 0 then
        put(path(1, "csv"), "")
        put(path(44, "csv"), 'a,b\n1,2\n')
      end
      meet "emptied"
      assert(#shardrt.source.csv(paths "csv") == 89)
      meet "read"
      if me == 0 then put(path(88, "csv"), 'a,d\n1,2\n') end
      meet "changed again"
      has(fails(shardrt.source.csv, paths "csv"), 'is called "d"')
    ]]
    assert.equal(0, result.status, result.output)
  end)

  it("takes members of tar archives as the process that opened them found them", function()
    local result = run [[
      local function member(name, data)
        local head = name .. ("\0"):rep(100 - #name) .. "0000644\0" .. "0000000\0" .. "0000000\0"
          .. ("%011o\0"):format(#data) .. "00000000000\0" .. "        " .. "0" .. ("\0"):rep(100)
          .. "ustar\00000" .. ("\0"):rep(247)
        local sum = 0
        for i = 1, 512 do sum = sum + head:byte(i) end
        return head:sub(1, 148) .. ("%06o\0 "):format(sum) .. head:sub(157) .. data .. ("\0"):rep(-#data % 512)
      end
      for i = 1, me == 0 and FILES or 0 do
        local cls = member(i .. ".cls", tostring(i))
        local bin = member(i .. (i % 2 == 0 and ".bin" or ".raw"), ("x"):rep(i))
        put(path(i, "tar"), (i == 50 and bin .. cls or cls .. bin) .. ("\0"):rep(1024)) -- another order of columns
      end
      meet "made"
      local source = shardrt.source.tar(paths "tar", { fields = { cls = "int64", ["bin;raw"] = "bytes" } })
      assert(mapped ".tar" <= 31, mapped ".tar")
      local all = source:read(0, 90)
      for i = 1, 90 do assert(all.cls.data[i - 1] == i and all["bin;raw"][i].shape[1] == i) end
      meet "read"
      if me == 0 then put(path(60, "tar"), member("60.cls", "60") .. ("\0"):rep(1024)) end
      meet "changed"
      has(fails(shardrt.source.tar, paths "tar", { fields = { "cls", "bin;raw" } }), path(60, "tar"))
      has(fails(shardrt.source.tar, paths "tar"), "has no")
    ]]
    assert.equal(0, result.status, result.output)
  end)

  it("has the shapes that arrays have in all files, whoever opened them", function()
    local function float32(n) -- the number n, n times, as .npy and as MDS has it
      local payload = require("ffi").string(require("ffi").new("float[?]", n, n), 4 * n)
      return files.npy { dict = files.dict("<f4", { n }), payload = payload }, "\34\4" .. string.char(n) .. payload
    end
    local function little(n) return string.char(n % 256, math.floor(n / 256), 0, 0) end
    local shards = {}
    for i = 1, FILES do
      local npy, array = float32(i % 3 + 1)
      for _, name in ipairs { "a.txt", "b.npy", "c.npy" } do files.write(folder, ("%02d.%s"):format(i, name), name) end
      files.write(folder, ("%02d.b.npy"):format(i), npy)
      files.write(folder, ("%02d.c.npy"):format(i), (float32(7)))
      -- One sample: how many, where it begins and ends, its columns' sizes, the columns.
      local shard = little(1) .. little(12) .. little(12 + 8 + #array + 8) .. little(#array) .. little(8) .. array
        .. ("x"):rep(8)
      files.write(folder, ("shard.%02d.mds"):format(i), shard)
      shards[i] = ([[{"version": 2, "format": "mds", "column_encodings": ["ndarray", "bytes"],
        "column_names": ["x", "y"], "column_sizes": [null, null], "compression": null, "hashes": [], "samples": 1,
        "size_limit": 1000, "zip_data": null,
        "raw_data": {"basename": "shard.%02d.mds", "bytes": %d, "hashes": {}}}]]):format(i, #shard)
    end
    files.write(folder, "odd.npy", files.npy { dict = files.dict("<i4", { 1 }), payload = "1234" })
    files.write(folder, "index.json", ('{"version": 2, "shards": [%s]}'):format(table.concat(shards, ",")))
    assert(os.execute(([[cd %s && for i in $(seq -w 1 %d); do tar -cf $i.tar $i.a.txt $i.b.npy $i.c.npy; done]])
      :format(folder, FILES)) == 0)
    local result = run [[
      local function check(source, name)
        assert(#source == FILES and source.fields[name].shape[1] == -1)
        local all = source:read(0, FILES)[name]
        for i = 1, FILES do
          assert(all[i].shape[1] == i % 3 + 1 and all[i].data[i % 3] == i % 3 + 1)
        end
        fail.check(C.shardrt_check_source(current.job, source))
      end
      local source = shardrt.source.tar(paths "tar")
      assert(mapped ".tar" <= 31 and source.fields["c.npy"].shape[1] == 7, mapped ".tar")
      check(source, "b.npy")
      check(shardrt.source.tar(paths "tar", { fields = { "b.npy" }, on_bad_record = "skip" }), "b.npy")
      source = nil -- luacheck: ignore
      collectgarbage()
      local mds = shardrt.source.mds(folder)
      assert(mapped ".mds" <= 31, mapped ".mds")
      check(mds, "x")
      -- Processes that ask for different fields open all files themselves.
      source = shardrt.source.tar(paths "tar", { fields = { ["b.npy"] = me == 1 and "bytes" or "float32" } })
      assert(#source == FILES and mapped ".tar" == FILES and source.fields["b.npy"].dtype == (me == 1 and "uint8" or
        "float32"))
      meet "asked"
      if me == 0 then
        assert(os.execute(("cd %s && cp odd.npy 70.b.npy && tar -cf 70.tar 70.?.*"):format(folder)) == 0)
      end
      meet "changed"
      local problem = fails(shardrt.source.tar, paths "tar")
      has(problem, path(70, "tar"))
      has(problem, 'its "b.npy" has not the dtype')
      source = shardrt.source.tar(paths "tar", { on_bad_record = "skip" })
      assert(#source == FILES - 1 and source.fields["b.npy"].shape[1] == -1)
    ]]
    assert.equal(0, result.status, result.output)
  end)

  it("says how many are compressed and read where they lie, whoever opened them", function()
    local packed = files.slurp(files.gzip(files.write(folder, "one", lines(3))))
    for i = 1, FILES do files.write(folder, ("%02d.gz"):format(i), packed) end
    local result = run [[
      local ffi = require "ffi"
      ffi.cdef "int setenv(const char *name, const char *value, int replace);"
      ffi.C.setenv("SHARDRT_UNPACKED_BYTES", "0", 1)
      local source = shardrt.source.jsonl(paths "gz")
      assert(#source == 3 * FILES and mapped ".gz" <= 31, mapped ".gz")
      local order = { source = source, batch_size = 9, shuffle = true, epochs = 1 }
      assert(source:read(200, 1).x.data[0] == 303)
      fail.check(C.shardrt_check_source(current.job, source))
      local batch = shardrt.loader(order)()
      assert(batch.x.addressable_shards[1].data.data[0] > 300)
      source, batch = nil, nil -- luacheck: ignore
      collectgarbage() -- and once more where nulls are looked for
      assert(#shardrt.source.jsonl(paths "gz", { nulls = "skip" }) == 3 * FILES)
      -- Who comes to something else is told where the others are.
      local line = debug.getinfo(1, "l").currentline + 1
      has(fails(me == 0 and function() shardrt.source.jsonl(paths "gz") end or function() meet "something else" end),
        ("opening the files of source.jsonl at %s:%d"):format(arg[0], line))
    ]]
    assert.equal(0, result.status, result.output)
    assert(result.output:find("source.jsonl reads 90 compressed files where they lie", 1, true), result.output)
  end)

  it("on a server is opened by many requests at once, one for each file in the job", function()
    local server = nginx.start(folder)
    local result = run([[
      local ffi = require "ffi"
      ffi.cdef "int setenv(const char *name, const char *value, int replace);"
      ffi.C.setenv("SHARDRT_CACHE", folder .. "/cache", 1)
      local list = {}
      for i = 1, FILES do list[i] = ("%s/late-0-300/%02d.jsonl"):format(os.getenv "SERVER", i) end
      local source = shardrt.source.jsonl(list)
      fail.check(C.shardrt_check_source(current.job, source))
      local all, at = source:read(0, #source).x, 0
      for i = 1, FILES do
        for row = 1, rows(i) do
          assert(all.data[at] == i * 100 + row)
          at = at + 1
        end
      end
      assert(at == 495)
    ]], { server = server.faults })
    local asked, n = {}, 0
    for _, line in ipairs(server:log "faults") do
      local name = line:match "(%d+%.jsonl)"
      n = n + 1
      asked[name] = (asked[name] or 0) + 1
    end
    local most = tonumber(files.slurp(server.work .. "/in_flight"))
    server:stop()
    assert.equal(0, result.status, result.output)
    for i = 2, FILES do assert.equal(1, asked[("%02d.jsonl"):format(i)], i) end
    assert(asked["01.jsonl"] <= 3 and n <= FILES + 2) -- the first is opened by each process, of three
    assert(most >= 12, most .. " requests at once")
  end)
end)

-- long: 40 s
-- Damaged records, left out: batches are those of a dataset that was made without them, on every topology.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"

pcall(ffi.cdef, "uint32_t crc32c(uint32_t before, const void *data, size_t bytes);")

local seed = require "tests.support.seed"
local random_state = seed % 2147483648
local function random(n)
  random_state = (random_state * 1103515245 + 12345) % 2147483648
  return math.floor(random_state / 65536) % n
end

local folder
before_each(function() folder = files.folder() end)
after_each(function() files.remove(folder) end)

local function shell(format, ...) assert(os.execute(format:format(...)) == 0, format) end

local function little(n, bytes)
  local text = {}
  for i = 1, bytes do
    text[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(text)
end

-- What sample `id` holds besides its number: it can be found in a file, and differs in length.
local function payload(id) return ("<%06d"):format(id) .. ("x"):rep(id % 7 + 8) .. ">" end

-- ---- files of every format, written without its own software -------------------------------------------------------

local function masked(text)
  local crc = bit.tobit(tonumber(ffi.C.crc32c(0, text, #text)))
  return little(bit.tobit(bit.ror(crc, 15) + 0xa282ead8) % 2 ^ 32, 4)
end
local function record(text)
  local head = little(#text, 8)
  return head .. masked(head) .. text .. masked(text)
end
local function field(number, text) return string.char(number * 8 + 2, #text) .. text end
local function feature(name, kind, list) return field(1, field(1, name) .. field(2, field(kind, list))) end

local WINDOW = '{ T.pad { size = { 32 } } }'

-- write(path, ids); `open`, the source in a recipe, of `path`, with options `o`; the payload's `chain`.
local formats = { -- `at`: of its file, a pattern
  tfrecord = {
    name = "x.tfrecord", at = "x%.tfrecord", chain = WINDOW,
    open = [[shardrt.source.tfrecord(path, o { id = "int64", payload = "bytes" })]],
    write = function(path, ids)
      local text = {}
      for i, id in ipairs(ids) do
        text[i] = record(field(1, feature("id", 3, string.char(8, 128 + id % 128, math.floor(id / 128)))
          .. feature("payload", 1, field(1, payload(id)))))
      end
      files.write(path:match "(.*)/", path:match "[^/]*$", table.concat(text))
    end,
  },
  tar = {
    name = "x.tar", at = "x%.tar", chain = WINDOW,
    open = [[shardrt.source.tar(path, o { cls = "int64", bin = "bytes" }):map { id = { from = "cls" }, cls = false,
      payload = { from = "bin" }, bin = false }]],
    write = function(path, ids)
      local parts = path .. ".parts"
      shell("rm -rf '%s' && mkdir '%s'", parts, parts)
      for _, id in ipairs(ids) do
        files.write(parts, ("%06d.cls"):format(id), tostring(id))
        files.write(parts, ("%06d.bin"):format(id), payload(id))
      end
      shell("tar --format=ustar --sort=name -C '%s' -cf '%s' .", parts, path)
    end,
  },
  csv = {
    name = "x.csv", at = "x%.csv", chain = WINDOW,
    open = [[shardrt.source.csv(path, o { id = "int64", payload = "bytes" })]],
    write = function(path, ids)
      local text = { "id,payload" }
      for _, id in ipairs(ids) do text[#text + 1] = id .. ',"' .. payload(id) .. '"' end
      files.write(path:match "(.*)/", path:match "[^/]*$", table.concat(text, "\n") .. "\n")
    end,
  },
  jsonl = {
    name = "x.jsonl", at = "x%.jsonl", chain = WINDOW,
    open = [[shardrt.source.jsonl(path, o { id = "int64", payload = "bytes" })]],
    write = function(path, ids)
      local text = {}
      for i, id in ipairs(ids) do text[i] = ('{"id": %d, "payload": "%s"}\n'):format(id, payload(id)) end
      files.write(path:match "(.*)/", path:match "[^/]*$", table.concat(text))
    end,
  },
  mds = {
    name = "mds", at = "00000%.mds", file = "mds/shard.00000.mds", chain = WINDOW,
    open = [[shardrt.source.mds(path, o { id = "int64", payload = "bytes" })]],
    write = function(path, ids)
      local samples, offsets, config = {}, {}, "{}"
      local at = 4 * (#ids + 2) + #config
      for i, id in ipairs(ids) do
        samples[i] = little(#payload(id), 4) .. little(id, 8) .. payload(id)
        offsets[i], at = little(at, 4), at + #samples[i]
      end
      local text = little(#ids, 4) .. table.concat(offsets) .. little(at, 4) .. config .. table.concat(samples)
      shell("mkdir -p '%s'", path)
      files.write(path, "shard.00000.mds", text)
      files.write(path, "index.json", ([[{"version": 2, "shards": [{"column_encodings": ["int", "bytes"],
        "column_names": ["id", "payload"], "column_sizes": [8, null], "compression": null, "format": "mds",
        "hashes": [], "raw_data": {"basename": "shard.00000.mds", "bytes": %d, "hashes": {}}, "samples": %d,
        "size_limit": 67108864, "version": 2, "zip_data": null}]}]]):format(#text, #ids))
    end,
  },
  safetensors = {
    name = "x.safetensors", at = "x%.safetensors", chain = "{ T.crop { size = { 16 } } }", -- of which a part is read
    open = [[shardrt.source.safetensors(path, o { id = "int64", payload = "uint8" })]],
    write = function(path, ids)
      local rows = {}
      for i, id in ipairs(ids) do
        local row = ffi.new("uint8_t[4096]", 32)
        ffi.copy(row + 4000, payload(id))
        rows[i] = ffi.string(row, 4096)
      end
      local header = ('{"id":{"dtype":"I64","shape":[%d],"data_offsets":[0,%d]},'
        .. '"payload":{"dtype":"U8","shape":[%d,4096],"data_offsets":[%d,%d]}}'):format(#ids, #ids * 8, #ids, #ids * 8,
        #ids * 4104)
      header = header .. (" "):rep(-#header % 8)
      local numbers = {}
      for i, id in ipairs(ids) do numbers[i] = little(id, 8) end
      files.write(path:match "(.*)/", path:match "[^/]*$", little(#header, 8) .. header .. table.concat(numbers)
        .. table.concat(rows))
    end,
  },
}

local function file_of(format, name) return folder .. "/" .. name .. (format.file and "/shard.00000.mds" or "") end

-- Changes a byte of a file; where `keep`, the file's time stays.
local function change(path, at, byte, keep)
  local text = files.slurp(path)
  if keep then shell("touch -r '%s' '%s/time'", path, folder) end
  local file = assert(io.open(path, "r+b"))
  file:seek("set", at)
  file:write(byte or string.char(bit.bxor(text:byte(at + 1), 2 ^ random(7))))
  file:close()
  if keep then shell("touch -r '%s/time' '%s'", folder, path) end
end

-- Where in a file a sample's payload begins.
local function find(path, id) return assert(files.slurp(path):find(("<%06d"):format(id), 1, true), id) - 1 end

-- ---- recipes -------------------------------------------------------------------------------------------------------

local RECIPE = [[
local shardrt = require "shardrt"
local T, C, path = shardrt.transform, require "shardrt.base.ffi", "PATH"
local function o(fields) return { fields = fields, on_bad_record = OPENING, cache = "CACHE" } end
local loader = shardrt.loader { source = OPEN, batch_size = 4, epochs = 2, seed = 5, OPTIONS,
  transform = { payload = CHAIN } }
io.stdout:write(shardrt.process_index() == 0 and ("bad %d\n"):format(loader:stats().bad_records) or "")
START
for batch in loader do
  local words = {}
  for i, name in ipairs { "id", "payload", "mask" } do
    local all = rawget(batch, name) and shardrt.process_allgather(batch[name])
    if all and name == "payload" then
      words[i] = bit.tohex(C.shardrt_fingerprint(all.data, all.bytes))
    else
      words[i] = all and table.concat(require "tests.support.flat"(all), " ") or ""
    end
  end
  shardrt.say("%s", table.concat(words, " | "))
end]]

-- What a recipe prints: the number of bad records, and the batches; with its stderr.
local function run(format, name, topology, o)
  local text = RECIPE:gsub("[A-Z][A-Z][A-Z][A-Z]+", {
    PATH = folder .. "/" .. name, CACHE = folder .. "/cache", OPEN = format.open:gsub("\n", " "),
    OPENING = ("%q"):format(o.opening or "error"), OPTIONS = o.options or "shuffle = false",
    CHAIN = o.chain or format.chain, START = o.start or "",
  }):gsub('require "tests.support.flat"%(all%)', [[(function(x) local t = {}
    for k = 0, x.shape[1] - 1 do t[k + 1] = tostring(tonumber(x.data[k]) or x.data[k]) end return t end)(all)]])
  local result = mpi.run { source = text, processes = topology[1], devices = topology[2], limit = 100 }
  return result, tonumber(result.stdout:match "^bad (%d+)\n"), result.stdout:gsub("^bad %d+\n", "", 1)
end

local TOPOLOGIES = { { nil, 1 }, { 2, 2 }, { 4, 1 } }

local function ids_of(count)
  local ids = {}
  for i = 1, count do ids[i] = i * 3 end
  return ids
end

-- `count` of the ids, and the others.
local function choose(ids, count)
  local is_bad, good, bad = {}, {}, {}
  while count > 0 do
    local id = ids[random(#ids) + 1]
    if not is_bad[id] then is_bad[id], count = true, count - 1 end
  end
  for _, id in ipairs(ids) do
    local list = is_bad[id] and bad or good
    list[#list + 1] = id
  end
  return good, bad
end

-- That the recipe gives the batches of the good dataset wherever it runs, and counts and names what is bad.
local function check(format, good, bad_count, o, topologies)
  local oracle_o = { options = o.options, chain = o.chain, start = o.start }
  if o.options then oracle_o.options = o.options:gsub(', on_bad_record = "skip"', "") end
  format.write(folder .. "/good-" .. format.name, good)
  local oracle, none, wanted = run(format, "good-" .. format.name, { nil, 1 }, oracle_o)
  assert.equal(0, oracle.status, oracle.output)
  assert.equal(0, none)
  assert.truthy(wanted:find " | ", oracle.output)
  local last
  for _, topology in ipairs(topologies or TOPOLOGIES) do
    local result, bad, got = run(format, format.name, topology, o)
    assert.equal(0, result.status, "seed " .. seed .. "\n" .. result.output)
    assert.equal(bad_count, bad, "seed " .. seed .. "\n" .. result.output)
    assert.equal(wanted, got, "seed " .. seed)
    local _, lines = result.stderr:gsub("left out " .. bad_count .. " of ", "")
    assert.equal(1, lines, result.stderr)
    last = result
  end
  return last
end

describe("damaged records", function()
  local options = {
    tfrecord = 'shuffle = true, remainder = "pad"', tar = 'shuffle = true, remainder = "drop"',
    csv = 'shuffle = false, remainder = "pad"', jsonl = 'shuffle = true, remainder = "pad"',
    mds = 'shuffle = true, remainder = "pad"', safetensors = 'shuffle = true, remainder = "drop"',
  }
  for kind, format in pairs(formats) do
    it("of " .. kind .. ", found by the index's checksums, are left out alike everywhere", function()
      local ids = ids_of(40 + random(5))
      local good, bad = choose(ids, 3 + random(3))
      format.write(folder .. "/" .. format.name, ids)
      local result = run(format, format.name, TOPOLOGIES[1], {})
      assert.equal(0, result.status, result.output)
      for _, id in ipairs(bad) do
        change(file_of(format, format.name), find(file_of(format, format.name), id) + random(12), nil, true)
      end
      local o = { options = options[kind] .. ', on_bad_record = "skip"' }
      result = check(format, good, #bad, o)
      assert.truthy(result.stderr:find(format.at .. ": record %d+ at byte %d+"), result.stderr)
      -- The default is an error that names them.
      result = run(format, format.name, TOPOLOGIES[2], {})
      assert.equal(1, result.status, result.output)
      assert.truthy(result.stderr:find(format.at .. ": record %d+ at byte %d+ [^\n]*is damaged"),
        result.stderr)
    end)
  end

  it("are found whole, whatever a random crop takes of them", function()
    local format, ids = formats.safetensors, ids_of(20)
    format.write(folder .. "/" .. format.name, ids)
    run(format, format.name, TOPOLOGIES[1], {})
    change(folder .. "/" .. format.name, find(folder .. "/" .. format.name, ids[7]), nil, true)
    local result, bad = run(format, format.name, TOPOLOGIES[2],
      { options = 'shuffle = true, on_bad_record = "skip"', chain = "{ T.random_crop { size = { 2 } } }" })
    assert.equal(0, result.status, result.output)
    assert.equal(1, bad)
  end)

  it("are no reason not to open a tfrecord, where the source is told so; else they are", function()
    local format, ids = formats.tfrecord, ids_of(30)
    local good, bad = choose(ids, 4)
    if bad[1] ~= ids[1] then -- also the first, which tells of fields
      for i, id in ipairs(good) do
        if id == ids[1] then good[i], bad[1] = bad[1], id end
      end
      table.sort(good)
    end
    local path = folder .. "/" .. format.name
    format.write(path, ids)
    for _, id in ipairs(bad) do change(path, find(path, id) + random(7)) end
    local result = run(format, format.name, TOPOLOGIES[1], {})
    assert.equal(1, result.status)
    assert.truthy(result.stderr:find("record 0 at byte 0: its data is damaged (CRC-32C)", 1, true), result.stderr)
    check(format, good, #bad, { opening = "skip", options = 'shuffle = true' })
    -- The index that notes them is not taken where they are an error.
    result = run(format, format.name, TOPOLOGIES[1], {})
    assert.equal(1, result.status)
    assert.truthy(result.stderr:find("its data is damaged (CRC-32C)", 1, true), result.stderr)
  end)

  it("lose the rest of a file where what is behind them cannot be told apart, and that is said", function()
    for kind, case in pairs {
      tfrecord = { at = function(text) return select(2, text:find(payload(33), 1, true)) + 4 end, byte = "\255" },
      tar = { at = function(text) return assert(text:find("000036.bin", 1, true)) - 1 end, byte = "#" },
      csv = { at = function(text) return assert(text:find '"%s*$') - 1 end, byte = "x" }, -- of the last cell
    } do
      local format, good = formats[kind], ids_of(kind == "tar" and 10 or kind == "csv" and 19 or 11)
      local path = folder .. "/" .. format.name
      format.write(path, ids_of(20))
      change(path, case.at(files.slurp(path)), case.byte)
      local wrong = run(format, format.name, TOPOLOGIES[1], {})
      assert.equal(1, wrong.status, kind)
      local result = check(format, good, 1, { opening = "skip", options = 'remainder = "pad"' }, { TOPOLOGIES[2] })
      assert.truthy(result.stderr:find("the rest of the file, %d+ bytes, is lost"), result.stderr)
    end
  end)

  it("are what is missing of a file that is cut off", function()
    for kind, lost in pairs { tfrecord = 1, tar = 1, mds = 6 } do
      -- Of tar, the sample before it might have had more members.
      local format, good = formats[kind], ids_of(kind == "tar" and 13 or 14)
      local path = file_of(format, format.name)
      format.write(folder .. "/" .. format.name, ids_of(20))
      shell("truncate -s %d '%s'", find(path, 45) + 3, path)
      assert.equal(1, run(format, format.name, TOPOLOGIES[1], {}).status, kind)
      check(format, good, lost, { opening = "skip", options = 'shuffle = true, remainder = "pad"' }, { TOPOLOGIES[3] })
    end
  end)

  it("of csv and jsonl that do not parse are left out", function()
    for _, kind in ipairs { "csv", "jsonl" } do
      local format, ids = formats[kind], ids_of(23)
      local good, bad
      repeat good, bad = choose(ids, 2) until bad[1] ~= ids[1] -- which tells of fields
      local path = folder .. "/" .. format.name
      format.write(path, ids)
      for _, id in ipairs(bad) do
        local text = files.slurp(path)
        local at = text:find((kind == "csv" and "\n%d," or ' %d,'):format(id))
        change(path, at, "?")
      end
      check(format, good, 2, { options = 'remainder = "pad", on_bad_record = "skip"' }, { TOPOLOGIES[2] })
      check(format, good, 2, { opening = "skip" }, { TOPOLOGIES[1] })
    end
  end)

  it("of mds, whose offsets or sizes lie, are left out", function()
    local format, ids = formats.mds, ids_of(20)
    format.write(folder .. "/mds", ids)
    local path = file_of(format, "mds")
    local at = find(path, ids[5])
    change(path, at - 12, "\255") -- the size of a column
    local good = {}
    for i, id in ipairs(ids) do good[#good + 1] = i ~= 5 and id or nil end
    check(format, good, 1, { opening = "skip" }, { TOPOLOGIES[2] })
  end)

  it("of array_record files are left out", function()
    local path = folder .. "/x.array_record"
    shell("gunzip -c tests/files/array_record/zstd-1.array_record.gz > '%s'", path)
    local clean = shardrt.source.array_record(path)
    local count = #clean
    local function payload_of(i)
      local host = clean:read(i, 1).record[1]
      return ffi.string(host.data, host.bytes)
    end
    local texts = {}
    for i = 0, count - 1 do texts[i] = payload_of(i) end
    for i = 0, 2 do change(path, 64 + 400 * i + random(390)) end -- the footer is behind that
    local damaged, good, bad = shardrt.source.array_record(path), {}, 0
    for i = 0, count - 1 do
      if pcall(damaged.read, damaged, i, 1) then good[#good + 1] = texts[i] else bad = bad + 1 end
    end
    assert.truthy(bad > 0 and #good > 4, "seed " .. seed)
    local result = mpi.run { processes = 2, devices = 2, limit = 100, source = ([[
      local shardrt = require "shardrt"
      local ffi = require "ffi"
      local loader = shardrt.loader { source = shardrt.source.array_record "%s", batch_size = 4, epochs = 1,
        remainder = "pad", on_bad_record = "skip",
        transform = { record = { shardrt.transform.pad { size = { 1024 } } } } }
      for batch in loader do
        local all, mask = shardrt.process_allgather(batch.record), shardrt.process_allgather(batch.mask)
        for i = 0, 3 do
          local text = ffi.string(ffi.cast("char *", all.data) + i * 1024, 1024)
          if mask.data[i] then
            shardrt.say("%%s", (text:gsub(".", function(c) return ("%%02x"):format(c:byte()) end)))
          end
        end
      end
    ]]):format(path) }
    assert.equal(0, result.status, result.output)
    local lines = {}
    for _, text in ipairs(good) do
      lines[#lines + 1] = (text .. ("\0"):rep(1024 - #text)):gsub(".", function(c) return ("%02x"):format(c:byte()) end)
    end
    assert.equal(table.concat(lines, "\n") .. "\n", result.stdout)
    assert.truthy(result.stderr:find(("left out %d of %d samples"):format(bad, count)), result.stderr)
  end)

  -- A folder of two classes, of which three images are cut off.
  local function images()
    shell("mkdir -p '%s/i/jpeg' '%s/i/png' && cp tests/files/images/jpeg/4*.jpg '%s/i/jpeg' && "
      .. "cp tests/files/images/png/basn2*.png '%s/i/png'", folder, folder, folder, folder)
    shell("cp -r '%s/i' '%s/good' && cd '%s' && truncate -s -40 i/jpeg/444.jpg && truncate -s 200 i/jpeg/420.jpg "
      .. "&& : > i/png/basn2c08.png && rm good/jpeg/444.jpg good/jpeg/420.jpg good/png/basn2c08.png", folder, folder,
      folder)
  end

  it("are images that cannot be decoded whole, whatever part of them is taken; resumed, and where a mix has them",
    function()
      images()
      local recipe = ([[
        local shardrt = require "shardrt"
        local T, C = shardrt.transform, require "shardrt.base.ffi"
        local chain = { T.decode_image(), T.crop { size = { 2, 2 } } }
        local source = shardrt.source.folder "%s/WHICH"
        local function loader(o)
          local wanted = { source = source, batch_size = 4, shuffle = true, seed = 3, epochs = 2, remainder = "pad",
            on_bad_record = "skip", transform = { image = chain } }
          for key, value in pairs(o or {}) do wanted[key] = value end
          return shardrt.loader(wanted)
        end
        local function show(batch)
          local words = {}
          for _, name in ipairs { "image", "label", "mask" } do
            local all = shardrt.process_allgather(batch[name])
            words[#words + 1] = bit.tohex(C.shardrt_fingerprint(all.data, all.bytes))
          end
          return table.concat(words, " ")
        end
        local first, state, expected = loader(), nil, nil
        local step = 0
        for batch in first do
          step = step + 1
          if step == 3 then expected = show(batch) end
          shardrt.say("%%s", show(batch))
          if step == 2 then state = first:state() end
        end
        local second = loader()
        second:restore(state)
        assert(show(second()) == expected)
        local readable = source:map { image = chain }:readable()
        local mixed = shardrt.mix { { readable, 0.5 }, { readable, 0.5 } }
        local both = shardrt.concat { readable, readable }
        shardrt.say("%%d %%d %%d %%d", #readable, #both, #both.bad_records, #mixed.bad_records)
        local good, message = pcall(loader, { source = mixed, transform = {} })
        assert(good == (#source == #readable) or message:find "this is a mix", message)
        if #readable < #source then
          local other = loader { on_bad_record = "error" }
          good, message = pcall(other.restore, other, state)
          assert(not good and message:find "which samples are left out because they are damaged", message)
          -- A filter sees only what can be read, also of a field that the batches have not.
          local filtered = loader { transform = { image = false }, filter = { image = { T.decode_image(),
            T.lua(function(image) return image.size > 0 end, { shape = {}, dtype = "bool" }) } } }
          assert(#filtered.source == #readable, #filtered.source)
        end
      ]]):format(folder)
      local outputs = {}
      for i, topology in ipairs(TOPOLOGIES) do
        local good = mpi.run { source = recipe:gsub("WHICH", "good"), processes = topology[1], devices = topology[2] }
        local result = mpi.run { source = recipe:gsub("WHICH", "i"), processes = topology[1], devices = topology[2] }
        assert.truthy(result.stderr:find "i/jpeg/444.jpg: sample 9, field \"image\": transform.decode_image: a damaged",
          result.output)
        assert.equal(0, result.status, result.output)
        assert.equal(0, good.status, good.output)
        assert.equal(good.stdout:gsub("(%d+ %d+) 0 0\n$", "%1 6 6\n"), result.stdout)
        outputs[i] = result.stdout
      end
      assert.same({ outputs[1], outputs[1], outputs[1] }, outputs)
    end)

  it("that were good when they were looked for are an error", function()
    local format, ids = formats.tfrecord, ids_of(400)
    local path = folder .. "/" .. format.name
    format.write(path, ids)
    run(format, format.name, TOPOLOGIES[1], {})
    change(path, find(path, ids[3]), nil, true)
    local start = ('if shardrt.process_index() == 0 then local f = io.open("%s", "r+b") f:seek("set", %d) f:write "?" '
      .. 'f:close() end shardrt.sync_global_devices "changed"'):format(path, find(path, ids[350]) + 9)
    local result, bad = run(format, format.name, TOPOLOGIES[2], { start = start,
      options = 'prefetch = 1, on_bad_record = "skip"' })
    assert.equal(1, bad, result.output)
    assert.equal(1, result.status, result.output)
    assert.truthy(result.stderr:find "x%.tfrecord: record 349 at byte %d+ [^\n]*is damaged", result.stderr)
  end)

  it("are an error where there is nothing else, and what is not damage always is", function()
    local path = files.write(folder, "x.csv", "id\n1\n?\n?\n")
    shardrt.source.csv(path, { fields = { id = "int64" }, on_bad_record = "skip" })
    path = files.write(folder, "x.csv", "id\n?\n?\n")
    local message = files.message(shardrt.source.csv, path, { fields = { id = "int64" }, on_bad_record = "skip" })
    assert.truthy(message:find("all 2 samples are damaged; the first: the file " .. path .. ": record 0", 1, true),
      message)
    local source = shardrt.source.array { x = shardrt.ndarray.arange(8, "int32") }
    local own = shardrt.transform.lua(function(x) error("of the recipe " .. tostring(x.index)) end,
      { shape = {}, dtype = "int32" })
    message = files.message(function() source:map { x = { own } }:readable() end)
    assert.truthy(message:find "of the recipe 0", message)
    shell("mkdir -p '%s/f/a' && touch '%s/f/a/1.png' && cp tests/files/images/png/basn2c08.png '%s/f/a/2.png'", folder,
      folder, folder)
    source = shardrt.source.folder(folder .. "/f")
    os.remove(folder .. "/f/a/1.png")
    message = files.message(function() source:readable() end)
    assert.truthy(message:find "f/a/1.png: No such file", message)
    message = files.message(shardrt.source.folder, folder .. "/f", { on_bad_record = "skip" })
    assert.truthy(message:find "on_bad_record is for the loader", message)
    message = files.message(shardrt.loader, { source = source, batch_size = 1, on_bad_record = "skp" })
    assert.truthy(message:find 'on_bad_record = "skp" %(did you mean "skip"%?%)', message)
  end)

  it("cost a plan nothing: every sample counts there", function()
    local path = files.write(folder, "x.csv", "id\n1\n?\n3\n")
    local result = mpi.shell(("%s plan %s"):format(mpi.program(), files.write(folder, "plan.lua", ([[
      local shardrt = require "shardrt"
      local loader = shardrt.loader { source = shardrt.source.csv("%s", { fields = { id = "int64" } }), batch_size = 1,
        epochs = 1, on_bad_record = "skip" }
      for _ in loader do end]]):format(path))))
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find "what is damaged", result.output)
  end)

  it("are listed, a thousand of them, also where memory runs out", function()
    local rows = { "id" }
    for i = 1, 3000 do rows[i + 1] = i % 2 == 0 and "?" or tostring(i) end
    local path = files.write(folder, "x.csv", table.concat(rows, "\n"))
    local source = shardrt.source.csv(path, { fields = { id = "int64" } })
    local readable = source:readable()
    assert.equal(1500, #readable)
    assert.equal(1000, #readable.bad_records)
    assert.equal(1999, readable.bad_records[1000].record)
    assert.truthy(readable.bad_records[1000].reason:find("the file " .. path .. ": record 1999 at byte", 1, true))
    assert.equal(2999, tonumber(readable:read(1499, 1).id.data[0]))
    assert.equal(0, #source.bad_records)
    local out = ffi.new "shardrt_source *[1]"
    local failures = no_memory.each(function()
      local code = C.shardrt_source_readable(current.job, source, source, out)
      if code == 0 then C.shardrt_source_free(out[0]) end
      return code
    end)
    assert.is_true(failures > 3, failures)
    local o = ffi.new("shardrt_source_options", { skips_damage = 1 })
    local lost = files.write(folder, "lost.csv", 'id\n1\n"3\n')
    local paths, opened = ffi.new("const char *[1]", { lost }), false
    for n = 1, 200 do
      os.remove(lost .. ".shardrt-index")
      C.shardrt_alloc_fail_at(n)
      local code = C.shardrt_source_files("csv", 1, paths, 0, nil, o, out)
      C.shardrt_alloc_fail_at(0)
      opened = code == 0
      if opened then break end
      assert.equal(C.SHARDRT_ENOMEM, code, ffi.string(C.shardrt_error_message()))
    end
    assert.is_true(opened)
    assert.equal(2, tonumber(C.shardrt_source_count(out[0])))
    C.shardrt_source_free(out[0])
  end)
end)

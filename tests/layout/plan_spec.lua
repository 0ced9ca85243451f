-- long: 20 s
-- `shardrt plan`: what every process of a job would read, without the job.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

local RECIPE = [[
local shardrt = require "shardrt"
local P = shardrt.P
local n = shardrt.device_count()
local mesh = shardrt.make_mesh({ n / 2, 2 }, { "data", "model" })
local image, label = shardrt.NamedSharding(mesh, P("data", "model")), shardrt.NamedSharding(mesh, P "data")
local source = shardrt.source.array {
  image = shardrt.ndarray.zeros({ 100, 6, 10 }, "uint8"), label = shardrt.ndarray.zeros({ 100 }, "int64"),
}
local loader = shardrt.loader {
  source = source:enumerate "id", batch_size = PIPELINE and 16 or n, shuffle = true, epochs = 3, remainder = REMAINDER,
  pipeline = PIPELINE, sharding = { image = image, label = label, id = label },
}
for _ in loader do error "a plan has no batches" end
for i = 1, 3 do shardrt.device_put(shardrt.ndarray.zeros { 4 * n, 8 }, image) end
]]

local function plan(options, o)
  o = o or {}
  local head = ("local PIPELINE, REMAINDER = %s, %q\n"):format(o.pipeline and ("%q"):format(o.pipeline) or "nil",
    o.remainder or "drop")
  local words = { "plan" }
  for _, word in ipairs(options) do words[#words + 1] = tostring(word) end
  local result = mpi.run { source = head .. (o.recipe or RECIPE), options = words, limit = o.limit, cpu = o.cpu }
  assert.equal(0, result.status, result.output)
  return result.stdout
end

local has = require("tests.support.expect").contains

-- The part of a plan that is about one process, of the entry that begins with `what`.
local function process_part(text, entry, process)
  local from = assert(text:find(entry, 1, true), text)
  local _, start = text:find(("\n  process %d\n"):format(process), from, true)
  assert(start, "no process " .. process .. " in\n" .. text)
  local stop = text:find("\n  %S", start) or text:find("\n\n", start, true) or #text
  return text:sub(start, stop)
end

describe("shardrt plan", function()
  it("tells for each process what it reads and where it goes", function()
    local text = plan({ "--processes", 4, "--devices", 2 }, { pipeline = "per_process" })
    has(text, "a job of 4 processes with 2 devices each: 8 devices",
      "recipe.lua:10: loader of 100 samples in batches of 16", "6 steps an epoch",
      'image: uint8 {16, 6, 10}, NamedSharding(Mesh("data": 4, "model": 2), P("data", "model"))',
      "8 devices, each with {4, 3, 10}, 120 bytes; no replicas",
      "8 devices, each with {4}, 32 bytes; 2 replicas of each part")
    local part = process_part(text, "loader of", 2)
    has(part, "image: reads [8:12, :, :]: 4 rows, 240 bytes in a step; 24 rows, 1,440 bytes in an epoch",
      "device 4: [8:12, 0:3, :]", "device 5: [8:12, 3:6, :]",
      "label: reads [8:12]: 4 rows, 32 bytes in a step; 24 rows, 192 bytes in an epoch",
      "device 5: [8:12], replica 1", "id: computed, not read: [8:12]")
  end)

  it("tells what is read of samples that have lengths of their own", function()
    local folder = mpi.folder()
    files.write(folder, "texts.jsonl", ('{"text": "a text", "n": 1}\n'):rep(100))
    local text = plan({ "--processes", 1, "--devices", 2 }, { recipe = [[
      local shardrt = require "shardrt"
      local T = shardrt.transform
      local fields = { text = "bytes", n = "int32" }
      local texts = shardrt.source.jsonl("]] .. folder .. [[/texts.jsonl", { fields = fields }):enumerate "id"
      local rows = shardrt.NamedSharding(shardrt.make_mesh({ 2 }, { "data" }), shardrt.P "data")
      local padded = texts:map { text = { T.pad { size = { 9 } } } }
      for _ in shardrt.loader { source = padded, batch_size = 10, sharding = rows } do end
    ]] })
    has(text, "text: reads [:, :]: 10 rows in a step; 100 rows in an epoch, of which each has a length of its own",
      "n: reads [:]: 10 rows, 40 bytes in a step; 100 rows, 400 bytes in an epoch", "id: computed, not read: [:]")
    mpi.remove(folder)
  end)

  it("counts the padded last batch as what is read of it", function()
    local text = plan({ "--processes", 4, "--devices", 2 }, { pipeline = "per_process", remainder = "pad" })
    has(process_part(text, "loader of", 0),
      "image: reads [0:4, :, :]: 4 rows, 240 bytes in a step; 28 rows, 1,680 bytes in an epoch")
    has(process_part(text, "loader of", 1),
      "image: reads [4:8, :, :]: 4 rows, 240 bytes in a step; 24 rows, 1,440 bytes in an epoch",
      "mask: needs [4:8]: 4 rows, 4 bytes")
  end)

  it("knows the pipelines", function()
    has(process_part(plan({ "--processes", 2, "--devices", 4 }, { pipeline = "per_device" }), "loader of", 1),
      "image: reads [8:12, 0:3, :] and [8:12, 3:6, :] and [12:16, 0:3, :] and [12:16, 3:6, :]: "
        .. "16 rows, 480 bytes in a step",
      "label: reads [8:12] and [8:12] and [12:16] and [12:16]: 16 rows, 128 bytes in a step")
    has(process_part(plan({ "--processes", 2, "--devices", 4 }, { pipeline = "global" }), "loader of", 1),
      "image: reads [:, :, :]: 16 rows, 960 bytes in a step; 96 rows, 5,760 bytes in an epoch")
  end)

  it("says what arrays need, once for a line that makes the same again", function()
    local text = plan { "--processes", 4, "--devices", 2 }
    has(text, "recipe.lua:15: device_put (made 3 times)", "float32 {32, 8}")
    has(process_part(text, "device_put", 3), "needs [24:32, :]: 8 rows, 256 bytes, 2 distinct parts")
  end)

  it("has one entry for what a loop makes in turn, in the order of first appearance", function()
    local text = plan({ "--processes", 2 }, { recipe = [[
      local shardrt = require "shardrt"
      local s = shardrt.NamedSharding(shardrt.make_mesh({ shardrt.device_count() }, { "data" }), shardrt.P "data")
      for step = 1, 128 do
        shardrt.device_put(shardrt.ndarray.zeros { 4, 3 }, s)
        shardrt.device_put(shardrt.ndarray.zeros { step % 2 == 0 and 2 or 8 }, s)
      end]] })
    local entries = {}
    for entry in text:gmatch "\n\n(%S+ device_put[^\n]*\n[^\n]*)" do entries[#entries + 1] = entry end
    assert.equal(3, #entries, text)
    for i, expected in ipairs {
      { "recipe.lua:5: device_put (made 128 times)", "float32 {4, 3}" },
      { "recipe.lua:6: device_put (made 64 times)", "float32 {8}" },
      { "recipe.lua:6: device_put (made 64 times)", "float32 {2}" },
    } do
      has(entries[i], unpack(expected))
    end
  end)

  it("counts a row that is cut in columns once, and says nothing of rows where there are none", function()
    local text = plan({ "--processes", 1, "--devices", 4 }, { recipe = [[
      local shardrt = require "shardrt"
      local mesh = shardrt.Mesh({ 2, 2 }, { "a", "b" }, { 0, 3, 1, 2 })
      shardrt.device_put(shardrt.ndarray.zeros { 6, 10 }, shardrt.NamedSharding(mesh, shardrt.P("a", "b")))
      shardrt.device_put(5, shardrt.NamedSharding(mesh, shardrt.P()))]] })
    has(text, "needs [:, :]: 6 rows, 240 bytes, 4 distinct parts", "needs []: 4 bytes, 1 distinct part")
  end)

  it("shows one process when asked", function()
    local text = plan { "--processes", 4, "--devices", 2, "--process", 3 }
    has(text, "process 3")
    assert.is_nil(text:find("process 0\n", 1, true))
  end)

  it("agrees with what the job then reads", function()
    local job = [[
      local stats = loader:stats()
      local bytes = shardrt.process_allgather(shardrt.ndarray.from_table({ stats.bytes_read }, "float64")):to_table()
      for process, row in ipairs(bytes) do
        if shardrt.process_index() == 0 then print(process - 1, row[1] / 3) end
      end]]
    for _, pipeline in ipairs { "per_process", "per_device", "global", "reshard" } do
      for _, remainder in ipairs { "drop", "pad" } do
        local head = ("local PIPELINE, REMAINDER = %q, %q\n"):format(pipeline, remainder)
        local recipe = RECIPE:gsub("for _ in loader do.-end\n", "for _ in loader do end\n")
        local result = mpi.run { source = head .. recipe .. job, processes = 4, devices = 2 }
        assert.equal(0, result.status, result.output)
        local text = plan({ "--processes", 4, "--devices", 2 }, { pipeline = pipeline, remainder = remainder })
        for process, bytes in result.stdout:gmatch "(%d+)\t(%d+)\n" do
          local planned = 0
          local part = process_part(text, "loader of", tonumber(process))
          for number in part:gmatch "rows?, ([%d,]+) bytes? in an epoch" do
            planned = planned + tonumber((number:gsub(",", "")))
          end
          assert.equal(planned, tonumber(bytes))
        end
      end
    end
  end)

  it("works for a million devices, and prints a few processes of them", function()
    for _, job in ipairs { { 2 ^ 18, 4 }, { 2 ^ 20, 1 }, { 2 ^ 10, 2 ^ 10 } } do
      local text = plan({ "--processes", job[1], "--devices", job[2] }, { limit = 240, cpu = 20 })
      has(text, "1,048,576 devices", "more processes (--process K shows process K)")
      assert.is_true(#text < 20000)
      has(process_part(text, "loader of", job[1] - 1), "1048576", "label: reads ")
    end
    has(plan { "--processes", 2 ^ 18, "--devices", 4, "--process", 77777 }, "device 311109: [1244432:1244440, 4:8]")
  end)

  it("works for one process of a million devices", function()
    local cpu = os.getenv "SHARDRT_SANITIZER" and 300 or 60
    has(plan({ "--processes", 1, "--devices", 2 ^ 20 }, { limit = 480, cpu = cpu }), "… 1,048,572 more devices …")
  end)

  for what, call in pairs {
    item = "print(x:item())", process_allgather = "print(s.process_allgather(2):to_table())",
    device_get = "print(s.device_get(x))", to_table = "print(x:to_table())",
    addressable_shards = "print(x.addressable_shards[1].data)",
  } do
    it("ends well where data is asked for that only a run has, by " .. what .. ", and says where", function()
      local result = mpi.run {
        source = 'local s = require "shardrt"\nlocal x = s.device_put(1, s.devices()[1])\n' .. call .. '\nerror "on"',
        options = { "plan", "--processes", "2" },
      }
      assert.equal(0, result.status, result.output)
      has(result.stdout, "recipe.lua:2: device_put")
      has(result.stderr, "recipe.lua:3: " .. what .. ": there are no values in a plan, and it ends here")
      assert.is_nil(result.output:find("recipe.lua:4", 1, true), result.output)
    end)
  end

  it("goes on where a recipe catches that", function()
    local text = plan({ "--processes", 2 }, { recipe = [[
      local s = require "shardrt"
      local x = s.device_put(1, s.devices()[1])
      assert(not pcall(x.item, x))
      s.device_put(s.ndarray.zeros { 3 }, s.devices()[1])]] })
    has(text, "recipe.lua:5: device_put")
  end)

  it("has a folder for what the recipe writes, which goes with it", function()
    local result = mpi.run {
      source = [[
        local s = require "shardrt"
        s.ndarray.arange(8):save(s.temporary_folder() .. "/x.npy")
        s.load_npy(s.temporary_folder() .. "/x.npy", s.NamedSharding(s.make_mesh({ 8 }, { "x" }), s.P "x"))
        print(s.temporary_folder())]],
      options = { "plan", "--processes", "4", "--devices", "2", "--process", "3" },
    }
    assert.equal(0, result.status, result.output)
    has(result.stdout, "int32 {8}")
    assert.is_nil(io.open(result.stdout:match "^(%S+)\n" .. "/x.npy"))
  end)

  it("shows what was made before an error, and then the error", function()
    local result = mpi.run {
      source = 'local s = require "shardrt"\ns.device_put(1, s.devices()[1])\nerror "that far"',
      options = { "plan", "--processes", "2" },
    }
    assert.equal(1, result.status, result.output)
    has(result.stdout, "a job of 2 processes", "recipe.lua:2: device_put")
    has(result.stderr, "recipe.lua:3: that far")
  end)

  it("says of a batch that is not there why that is so", function()
    local result = mpi.run { source = RECIPE:gsub("PIPELINE", "nil"):gsub("REMAINDER", '"drop"') ..
      "local batch = loader()\nprint(batch.label)", options = { "plan", "--processes", "2" } }
    assert.equal(1, result.status, result.output)
    has(result.stdout, "a job of 2 processes")
    has(result.stderr, "(a nil value) (in a plan loader() is nil, as there are no batches; shardrt.is_planning() tells")
  end)

  it("says so where there is nothing to plan", function()
    has(plan({ "--processes", 2 }, { recipe = "" }), "no array and no loader")
  end)
end)

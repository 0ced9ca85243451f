-- Datasets of Megatron-LM's: against its algorithm written down in Python (tests/support/dataset/megatron.py), with
-- numpy's shuffles; what is refused.

local cjson = require "cjson"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local megatron = shardrt.source.megatron

local seed = require "tests.support.seed"
math.randomseed(seed)

local SCRIPT = "tests/support/dataset/megatron.py"
local PARTS = { "train", "valid", "test" }

local function numbers(host)
  local list = {}
  for i = 0, host.size - 1 do list[i + 1] = tonumber(host.data[i]) end
  return list
end

local function of_json(value)
  if value ~= cjson.null then return value end
end

-- What a case of answers.json asks for.
local function open(folder, case)
  local prefixes, weights = {}, of_json(case.weights)
  for i, number in ipairs(case.prefixes) do
    if weights then prefixes[#prefixes + 1] = weights[i] end
    prefixes[#prefixes + 1] = ("%s/%d"):format(folder, number)
  end
  return megatron(#prefixes == 1 and prefixes[1] or prefixes, {
    view = "gpt", window = case.window, seed = case.seed, samples = of_json(case.samples), split = case.split,
    part = case.part and PARTS[case.part + 1],
  })
end

-- All that answers.json has is what shardrt reads. Returns how many cases there are.
local function check_answers(folder)
  local answers = cjson.decode(files.slurp(folder .. "/answers.json"))
  for i, set in ipairs(answers.sets) do
    local source = megatron(("%s/%d"):format(folder, i - 1), { view = "documents" })
    assert.equal(#set.documents, #source)
    assert.same({ tokens = { dtype = set.dtype, shape = { -1 } } }, source.fields)
    for k, host in ipairs(source:read(0, #source).tokens) do assert.same(set.documents[k], numbers(host)) end
  end
  for number, case in ipairs(answers.cases) do
    local source = open(folder, case)
    local name = "case " .. number
    assert.equal(#case.texts, #source, name)
    local got, expected = numbers(source:read(0, #source).tokens), {}
    for _, text in ipairs(case.texts) do
      for _, token in ipairs(text) do expected[#expected + 1] = token end
    end
    assert.same(expected, got, name)
  end
  return #answers.cases
end

describe("a dataset of Megatron's", function()
  local folder
  setup(function()
    folder = mpi.folder()
    assert(os.execute("cp tests/files/megatron/* " .. folder) == 0)
  end)
  teardown(function() mpi.remove(folder) end)

  it("is what Megatron's own algorithm gives with numpy's shuffles: in every view", function()
    assert.is_true(check_answers(folder) >= 10)
  end)

  it("is that of any seed", function()
    for i = 0, 2 do
      local other = mpi.folder()
      assert(os.execute(("python3 %s %s %d"):format(SCRIPT, other, seed + i)) == 0)
      assert.is_true(check_answers(other) >= 10)
      mpi.remove(other)
    end
  end)

  it("gives one epoch of (tokens - 1) // (window - 1) samples, whose boxes are parts of the whole", function()
    local source = megatron(folder .. "/0", { view = "gpt", window = 6, seed = 5 })
    local tokens, documents = 0, megatron(folder .. "/0", { view = "documents" })
    for _, host in ipairs(documents:read(0, #documents).tokens) do tokens = tokens + host.size end
    assert.equal(math.floor((tokens - 1) / 5), #source)
    local whole = numbers(source:read(0, #source).tokens)
    local cut = source:map { tokens = { shardrt.transform.crop { size = { 2 }, start = { 3 } } } }
    local part = numbers(cut:read(0, #cut).tokens)
    for i = 0, #source - 1 do
      assert.equal(whole[6 * i + 4], part[2 * i + 1])
      assert.equal(whole[6 * i + 5], part[2 * i + 2])
    end
    assert.equal(0, #megatron(folder .. "/0", { view = "gpt", window = tokens + 1 }))
    assert.equal(1, #megatron(folder .. "/0", { view = "gpt", window = tokens }))
    assert.not_equal(C.shardrt_source_fingerprint(source),
      C.shardrt_source_fingerprint(megatron(folder .. "/0", { view = "gpt", window = 6, seed = 6 })))
  end)

  it("is packed, and its documents lie where they lie in the file", function()
    local documents = megatron(folder .. "/1", { view = "documents" })
    local rows = documents:pack { length = 48 }
    local sum, expected = 0, 0
    for _, token in ipairs(numbers(rows:read(0, #rows).tokens)) do sum = sum + token end
    for _, host in ipairs(documents:read(0, #documents).tokens) do
      for _, token in ipairs(numbers(host)) do expected = expected + token end
    end
    assert.equal(expected, sum)
  end)

  it("is planned without its tokens, and the same on every topology", function()
    local recipe = files.write(folder, "recipe.lua", ([[
      local shardrt = require "shardrt"
      local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "x" })
      local source = shardrt.source.megatron({ 30, %q, 70, %q }, { view = "gpt", window = 17, seed = 3, samples = 40 })
      local loader = shardrt.loader { source = source, batch_size = 8, epochs = 1,
        sharding = shardrt.NamedSharding(mesh, shardrt.P("x")) }
      local sum, place = 0, 0
      for batch in loader do
        local all = shardrt.process_allgather(batch.tokens)
        for i = 0, all.size - 1 do
          place = place + 1
          sum = (sum * 31 + place * tonumber(all.data[i])) %% 2^40
        end
      end
      if shardrt.process_index() == 0 then print("sum", sum, #source) end]]):format(folder .. "/0", folder .. "/1"))
    local alone = expect.well(mpi.run { recipe = recipe, devices = 8 })
    local four = expect.well(mpi.run { recipe = recipe, processes = 4, devices = 2 })
    assert.truthy(alone.stdout:find "sum%s+%d+")
    assert.equal(alone.stdout, four.stdout)
    local plan = mpi.shell(("%s plan --processes 2 --devices 2 %s"):format(mpi.program(), recipe))
    assert.equal(0, plan.status, plan.output)
    assert.truthy(plan.stdout:find("tokens", 1, true), plan.output)
  end)

  it("is refused where its options are wrong", function()
    local a = folder .. "/0"
    local function refused(piece, prefixes, o) expect.refused(piece, function() megatron(prefixes, o) end) end
    refused('view = "gpd" (did you mean "gpt"?)', a, { view = "gpd" })
    refused("view = nil", a, {})
    refused("takes options", a)
    refused("what stands before .bin", a .. ".bin", { view = "documents" })
    refused("window = nil; it is a whole number from 2", a, { view = "gpt" })
    refused('window is for view = "gpt"', a, { view = "documents", window = 3 })
    refused("seed = -1", a, { view = "gpt", window = 3, seed = -1 })
    refused("seed = 4294967296", a, { view = "gpt", window = 3, seed = 2 ^ 32 })
    refused("split = \"x\"; it is up to three numbers", a, { view = "documents", split = "x" })
    refused("up to three numbers", a, { view = "documents", split = "1,2,3,4" })
    refused("leaves nothing for test", a, { view = "documents", split = "9,1", part = "test" })
    refused("without a split", a, { view = "documents", part = "train" })
    refused("how many samples there are to be", { 1, a, 2, a }, { view = "gpt", window = 3 })
    refused("a weight of 0", { 0, a, 2, a }, { view = "gpt", window = 3, samples = 9 })
    refused("has no samples", { a, a }, { view = "gpt", window = 2 ^ 30 })
    refused("No such file", folder .. "/none", { view = "documents" })
    refused("a prefix, or a list", { x = 1 }, { view = "documents" })
  end)

  it("is another dataset where its last epoch is ordered for itself", function()
    local function of(samples) return megatron(folder .. "/0", { view = "gpt", window = 9, samples = samples }) end
    assert.equal(#of(69), #of(113))
    local loader = shardrt.loader { source = of(69), batch_size = 8, epochs = 1 }
    loader()
    local other = shardrt.loader { source = of(113), batch_size = 8, epochs = 1 }
    assert.is_false((pcall(other.restore, other, loader:state())))
    local same = shardrt.loader { source = of(69), batch_size = 8, epochs = 1 }
    same:restore(loader:state())
  end)

  it("is refused where its index is cut, damaged, or of another file", function()
    local idx, bin = files.slurp "tests/files/megatron/0.idx", files.slurp "tests/files/megatron/0.bin"
    local folder_of = mpi.folder()
    local function try(index, tokens, ...)
      os.execute(("rm -f %s/*.shardrt-index"):format(folder_of))
      files.write(folder_of, "x.idx", index)
      files.write(folder_of, "x.bin", tokens)
      for _, o in ipairs { { view = "documents" }, { view = "gpt", window = 3 } } do
        o.verify = false
        expect.contains(files.message(megatron, folder_of .. "/x", o), folder_of, ...)
      end
    end
    for _, length in ipairs { 0, 5, 20, 33, 34, 100, #idx - 1 } do try(idx:sub(1, length), bin, "x.idx") end
    try(idx .. "\0", bin, "cut off, or damaged")
    try(idx:gsub("^MMIDIDX", "MMIDIDY"), bin, "no index of Megatron's")
    try(idx:sub(1, 9) .. "\2" .. idx:sub(11), bin, "of version 2")
    try(idx:sub(1, 17) .. "\9" .. idx:sub(19), bin, "dtype number 9")
    try(idx:sub(1, 34) .. "\255\255\255\255" .. idx:sub(39), bin, "sequence 0 of")
    try(idx, bin:sub(1, -2), "x.bin", "cut off, or of another index")
    files.write(folder_of, "x.bin", bin)
    files.write(folder_of, "x.idx", idx:sub(1, -9) .. "\1" .. idx:sub(-7))
    expect.contains(files.message(megatron, folder_of .. "/x", { view = "documents", verify = false }), "x.idx",
      "the documents are to be all")
    assert.is_true(#megatron(folder_of .. "/x", { view = "gpt", window = 3, verify = false }) > 0)
    mpi.remove(folder_of)
  end)

  it("says so where memory runs out, and gives all back", function()
    for _, view in ipairs { "documents", "gpt" } do
      local options = ffi.new "shardrt_megatron_options"
      options.view = view == "gpt" and C.SHARDRT_MEGATRON_GPT or C.SHARDRT_MEGATRON_DOCUMENTS
      options.to, options.window, options.samples = 1, 5, view == "gpt" and 30 or 0
      local names = { folder .. "/0", folder .. "/1" } -- which live as long as they are used
      local paths = ffi.new("const char *[2]", names)
      local weights = view == "gpt" and ffi.new("double[2]", { 1, 2 }) or nil
      local out = ffi.new "shardrt_source *[1]"
      assert.is_true(no_memory.each(function()
        local code = C.shardrt_source_megatron(2, paths, weights, options, out)
        if code == 0 then C.shardrt_source_free(out[0]) end
        return code
      end) > 5)
      assert.equal(2, #names)
    end
  end)
end)

-- Every word and method with odd arguments: each call works, or raises an error that begins with the caller's own line.

local ffi = require "ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P, ndarray = shardrt.P, shardrt.ndarray

local mesh = shardrt.make_mesh({ 8 }, { "a" })
local s, one = shardrt.NamedSharding(mesh, P "a"), shardrt.SingleDeviceSharding(0)
local function host() return ndarray.arange(16, "int32") end
local x = shardrt.device_put(host(), s)
local deleted = shardrt.device_put(host(), s)
deleted:delete()
local source = shardrt.source.array { x = host() }
local cyclic = {}
cyclic[1] = cyclic

-- Nothing here names a file that could be written, and no size is both large and possible.
local NIL = {}
local odd = {
  NIL, true, false, 0, 1, -1, 0.5, 0 / 0, math.huge, -math.huge, 2 ^ 53, 2 ^ 63, 1e300, "", "nowhere/%s%d", "a\0b", {},
  { 1 }, { -1 }, { 0 / 0 }, { 1e300 }, { 2 ^ 52, 2 ^ 52 }, { a = 1 }, { [true] = 1, [false] = 2 }, { {} }, { { 1 }, 2 },
  { 1, nil, 3 }, cyclic, { "a" }, { "" }, tostring, function() end, function() return {} end, ffi.cast("void *", 0),
  3LL, -1LL, 0xffffffffffffffffULL, ffi.new "int64_t[2]", coroutine.create(tostring), io.stdout, setmetatable({}, {}),
  mesh, P "a", P(), s, one, x, deleted, host(), ndarray.full({}, 1), source, shardrt.devices()[1],
  x.addressable_shards[1], shardrt, ndarray, mesh.shape,
}

local failures
local function try(what, f, ...)
  local ok, message = pcall(f, ...)
  if ok then return end
  if type(message) ~= "string" or not message:find "^[^\n:]*words_fuzz_spec%.lua:%d+: " then
    failures[#failures + 1] = ("%s -> %s"):format(what, tostring(message))
  end
end

local function name_of(value)
  if value == NIL then return "nil" end
  return type(value) == "string" and ("%q"):format(value) or type(value) == "table" and "table" or tostring(value)
end

-- Calls f with its good arguments, one of them odd, then with all odd, then with none. `self` (nil: none) stays.
local function fuzz(what, f, self, ...)
  local count, good = select("#", ...), { ... }
  local function call(text, arguments, n)
    if self == nil then
      try(text, f, unpack(arguments, 1, n))
    else
      try(text, f, self, unpack(arguments, 1, n))
    end
  end
  for number, value in ipairs(odd) do
    local given
    if value ~= NIL then given = value end
    local all = {}
    for i = 1, count do
      local arguments = { unpack(good, 1, count) }
      arguments[i], all[i] = given, given
      call(("%s, argument %d is odd value %d, %s"):format(what, i, number, name_of(value)), arguments, count)
    end
    call(("%s, all are odd value %d, %s"):format(what, number, name_of(value)), all, count)
  end
  call(what .. " of nothing", {}, 0)
end

local function nothing_failed() assert.equal("", table.concat(failures, "\n")) end

describe("odd arguments", function()
  local folder, printed
  before_each(function() failures = {} end)
  setup(function()
    folder = mpi.folder()
    host():save(folder .. "/h.npy")
    shardrt.save(folder .. "/x.safetensors", { w = host() })
    files.write(folder, "tokens.bin", "abcdef")
    files.write(folder, "t.csv", "a\n1\n")
    for _, ending in ipairs { "bin", "idx" } do
      files.write(folder, "m." .. ending, files.slurp("tests/files/megatron/0." .. ending))
    end
    printed = io.stdout
    io.stdout = assert(io.open("/dev/null", "w")) -- luacheck: ignore 122 (pictures go there)
  end)
  teardown(function()
    io.stdout = printed -- luacheck: ignore 122
    mpi.remove(folder)
  end)

  it("of the words", function()
    local identity = function(index) return ndarray.full({ index[1][2] - index[1][1] }, 1) end
    local floats, total = np.astype(x, "float32"), np.sum
    local parts = {}
    for i, device in ipairs(shardrt.devices()) do parts[i] = shardrt.device_put(ndarray.full({ 2 }, i), device) end
    local good = {
      clock = {}, is_planning = {}, temporary_folder = {}, say = { "%s", 1 }, sync_global_devices = { "here" },
      process_index = {}, process_count = {}, device_count = {}, local_device_count = {}, devices = {},
      local_devices = { 0 }, P = { "a", "b" }, make_mesh = { { 8 }, { "a" } }, Mesh = { { 2 }, { "a" }, { 0, 1 } },
      NamedSharding = { mesh, P "a" }, SingleDeviceSharding = { 0 }, device_put = { host(), s }, device_get = { x },
      process_allgather = { x }, make_array_from_process_local_data = { s, host(), { 16 } },
      make_array_from_callback = { { 16 }, s, identity, "float32" },
      make_array_from_single_device_arrays = { { 16 }, s, parts, "float32" },
      load_npy = { folder .. "/h.npy", s }, visualize_sharding = { { 16 }, s, folder .. "/v.svg" },
      save = { folder .. "/w.safetensors", { w = x } }, load = { folder .. "/x.safetensors", { w = s } },
      reshard = { x, one }, reshard_plan = { { 16 }, "int32", s, one }, with_sharding_constraint = { x, s },
      visualize_array_sharding = { x, folder .. "/v.svg" }, concat = { { source, source, part = "part" } },
      mix = { { { source, 0.5 }, { source, 0.5 }, samples = 9, part = "part" } },
      grad = { total }, value_and_grad = { total }, stop_gradient = { x }, explain = { total, floats },
      jit = { total, { donate_argnums = 0 } },
      default_matmul_precision = { "float32" }, block_until_ready = { { w = x } },
    }
    for name, arguments in pairs(good) do
      assert(pcall(shardrt[name], unpack(arguments)), name)
      fuzz(name, shardrt[name], nil, unpack(arguments))
    end
    fuzz("loader", shardrt.loader, nil, { source = source, batch_size = 8 })
    for number, value in ipairs(odd) do
      local given
      if value ~= NIL then given = value end
      for _, o in ipairs {
        { { given, 1 } }, { { source, given } }, { given }, { { source, 1 }, samples = given },
        { { source, 1 }, part = given },
      } do
        try(("mix of odd value %d"):format(number), shardrt.mix, o)
      end
      for _, o in ipairs { { source, given }, { source, part = given } } do
        try(("concat of odd value %d"):format(number), shardrt.concat, o)
      end
      try(("the filter of odd value %d"):format(number), shardrt.loader,
        { source = source, batch_size = 8, filter = { x = given } })
      try(("the loader's on_bad_record of odd value %d"):format(number), shardrt.loader,
        { source = source, batch_size = 8, on_bad_record = given })
      try(("the source's on_bad_record of odd value %d"):format(number), shardrt.source.csv, folder .. "/t.csv",
        { on_bad_record = given })
    end
    local loader = shardrt.loader { source = source, batch_size = 8 }
    for number, value in ipairs(odd) do
      for _, name in ipairs { "dir", "every", "keep", "loader", "arrays", "metadata" } do
        local o = { dir = ("%s/%d-%s"):format(folder, number, name), loader = loader, arrays = { w = x } }
        if value ~= NIL and not (name == "dir" and type(value) == "string") then o[name] = value end
        try(("checkpoint of %s = odd value %d"):format(name, number), function() shardrt.checkpoint(o):close() end)
      end
      if value ~= NIL then
        try("checkpoint of an array", function()
          shardrt.checkpoint({ dir = ("%s/%d-array"):format(folder, number), arrays = { value } }):close()
        end)
      end
    end
    fuzz("checkpoint", shardrt.checkpoint, nil, { dir = folder .. "/checkpoints" })
    nothing_failed()
    for name, word in pairs(shardrt) do
      if type(word) == "function" and name ~= "loader" and name ~= "checkpoint" then
        assert.truthy(good[name], name .. " is not tried")
      end
    end
  end)

  it("of the words of shardrt.ndarray and shardrt.source", function()
    local good = {
      empty = { { 2 }, "int8" }, zeros = { { 2 }, "int8" }, full = { { 2 }, 1, "int8" }, arange = { 4, "int8" },
      from_table = { { 1, 2 }, "int8" }, load = { folder .. "/h.npy" }, is = { 1 },
      from_pointer = { ffi.new "int8_t[4096]", "int8", { 2 }, {} },
    }
    for name, arguments in pairs(good) do
      assert(pcall(ndarray[name], unpack(arguments)), name)
      fuzz("ndarray." .. name, ndarray[name], nil, unpack(arguments))
    end
    for name in pairs(ndarray) do assert.truthy(good[name], name .. " is not tried") end
    good = {
      npy = { { h = folder .. "/h.npy" }, { cache = folder } }, idx = { {}, { cache = folder } },
      parquet = { folder .. "/nowhere.parquet", { fields = { x = "int8" }, nulls = "skip", cache = folder } },
      arrow = { folder .. "/nowhere.arrow", { fields = { x = "int8" }, nulls = "skip", cache = folder } },
      safetensors = { folder .. "/nowhere.safetensors", { fields = { x = "int8" }, verify = true, cache = folder } },
      zarr = { { x = folder } }, hdf5 = { { x = folder .. "/h.h5:/x" } },
      array = { { x = host() } }, is = { 1 }, ragged = { { x = { host(), host() } } },
      tokens = { folder .. "/tokens.bin", { window = 2, stride = 1 } },
      megatron = { folder .. "/m", { view = "gpt", window = 3, seed = 1, samples = 2, split = "9,1", part = "train" } },
      tfrecord = { "nowhere.tfrecord", { fields = { x = "bytes" } } },
      array_record = { "nowhere.array_record", { fields = { record = "bytes" } } },
      mds = { "nowhere", { fields = { x = "int64" } } },
      tar = { "nowhere.tar", { fields = { jpg = "bytes" } } }, folder = { "nowhere" },
      csv = { "nowhere.csv", { delimiter = ";", header = false } },
      npz = { "nowhere.npz", { fields = { x = "int8" } } },
      cifar = { "nowhere.bin", { fields = { label = "uint8" } } },
      jsonl = { "nowhere.jsonl", { fields = { x = { "int32", { -1 } } } } },
    }
    for name in pairs(shardrt.source) do
      assert.truthy(good[name], name .. " is not tried")
      fuzz("source." .. name, shardrt.source[name], nil, unpack(good[name]))
    end
    good = {
      crop = { { size = { 2 }, start = { 0 }, axis = 0 } }, center_crop = { { size = { 2 }, axis = 0 } },
      random_crop = { { size = { 2 }, padding = 1, value = 0, axis = 0 } },
      pad = { { size = { 2 }, value = 0, where = "both" } }, cast = { { dtype = "int8" } },
      decode_audio = { { dtype = "int16", channels = 2, rate = 8000 } },
      decode_image = { { channels = 3 } }, decode_text = { { size = 8, value = 32 } },
      decode_raw = { { dtype = "int16", shape = { 2, -1 } } }, decode_npy = { { dtype = "int16", shape = { -1, -1 } } },
      scale = { { factor = 2, offset = { 1 }, axis = 0, dtype = "int8" } },
      normalize = { { mean = 1, std = { 1 }, max = 1, axis = 0, dtype = "float32" } },
      one_hot = { { classes = 3, dtype = "int8" } },
      resize = { { height = 2, width = 2, filter = "nearest", axis = 0 } },
      random_resized_crop = { { size = { 2, 2 }, scale = { 0.5, 1 }, ratio = { 1, 2 }, filter = "nearest", axis = 0 } },
      random_flip = { { p = 0.5, axis = 0 } }, transpose = { { axes = { 1, 0 } } },
      lua = { function() end, { shape = { -1 }, bound = 2, dtype = "int8" } },
      tokenize = { { file = "tests/golden/tokenize/ranks.tiktoken", pattern = "gpt2", special_tokens = { a = 1 } } },
      window = { { from = "t", inputs = "i", targets = "t", size = 2, shift = 1, dtype = "int8" } },
    }
    for name in pairs(shardrt.transform) do
      assert.truthy(good[name], name .. " is not tried")
      assert(pcall(shardrt.transform[name], unpack(good[name])))
      fuzz("transform." .. name, shardrt.transform[name], nil, unpack(good[name]))
      for key in pairs(type(good[name][1]) == "table" and good[name][1] or {}) do
        for _, value in ipairs(odd) do
          local options = {}
          for other, kept in pairs(good[name][1]) do options[other] = kept end
          if value == NIL then options[key] = nil else options[key] = value end
          try("transform." .. name .. ", " .. tostring(key), shardrt.transform[name], options)
        end
      end
    end
    for _, value in ipairs(odd) do
      if value ~= NIL then
        try("source.npy of a field", shardrt.source.npy, { h = value })
        try("source.idx of a field", shardrt.source.idx, { h = value })
        try("source.array of a field", shardrt.source.array, { h = value })
        try("source.ragged of a field", shardrt.source.ragged, { h = value })
        try("source.ragged of a list", shardrt.source.ragged, { h = { value } })
        try("source.ragged of data", shardrt.source.ragged, { h = { data = value, offsets = folder .. "/h.npy" } })
        try("source.ragged of offsets", shardrt.source.ragged, { h = { data = folder .. "/h.npy", offsets = value } })
        for _, key in ipairs { "window", "stride", "dtype", "header" } do
          local o = { window = 2, dtype = "uint16" }
          o[key] = value
          try("source.tokens of " .. key, shardrt.source.tokens, folder .. "/tokens.bin", o)
        end
        for _, key in ipairs { "view", "window", "seed", "samples", "split", "part", "cache", "verify" } do
          local o = { view = "gpt", window = 3 }
          o[key] = value
          try("source.megatron of " .. key, shardrt.source.megatron, folder .. "/m", o)
          try("source.megatron of a list", shardrt.source.megatron, { 1, folder .. "/m", value, folder .. "/m" }, o)
        end
        try("the cache", shardrt.source.npy, { h = folder .. "/h.npy" }, { cache = value })
        try("the cache's limit", shardrt.source.npy, { h = folder .. "/h.npy" }, { cache_bytes = value })
        try("the cache of tokens", shardrt.source.tokens, folder .. "/tokens.bin",
          { window = 2, dtype = "uint16", cache = value })
        try("the cache's limit of tokens", shardrt.source.tokens, folder .. "/tokens.bin",
          { window = 2, dtype = "uint16", cache_bytes = value })
        try("the cache's limit of tar", shardrt.source.tar, "nowhere.tar", { cache_bytes = value })
      end
    end
    nothing_failed()
  end)

  it("of the words of shardrt.random", function()
    local random = shardrt.random
    local key = random.key(1)
    local good = {
      key = { 1, { partitionable = false } }, key_data = { key }, split = { key, 3 }, fold_in = { key, 7 },
      bits = { key, { 8 }, { dtype = "uint8", sharding = s } },
      uniform = { key, { 8 }, { minval = 0, maxval = 1, sharding = s } }, normal = { key, { 8 }, s },
      bernoulli = { key, 0.5, { 8 }, s }, randint = { key, { 8 }, 0, 3, s }, permutation = { key, 8 },
      choice = { key, 8, { 2 }, { p = np.ones { 8 } } }, categorical = { key, np.ones { 4, 2 }, { axis = 0 } },
    }
    for name in pairs(random) do
      assert.truthy(good[name], name .. " is not tried")
      assert(pcall(random[name], unpack(good[name])), name)
      fuzz("random." .. name, random[name], nil, unpack(good[name]))
    end
    for number, value in ipairs(odd) do
      for _, option in ipairs { "minval", "maxval", "sharding", "dtype" } do
        local o = { [option] = value ~= NIL and value or nil }
        local word = option == "dtype" and random.bits or random.uniform
        try(("random.* of %s = odd value %d"):format(option, number), word, key, { 8 }, o)
      end
      local o = { partitionable = value ~= NIL and value or nil }
      try(("random.key of odd value %d"):format(number), random.key, 1, o)
      try(("a key's field, odd value %d"):format(number), function() return key[value] end)
      try(("a key beside odd value %d"):format(number), function() return key == value end)
    end
    nothing_failed()
  end)

  it("of the words of shardrt.numpy, and of arrays' operators", function()
    local good, y = {}, np.astype(x, "float32")
    local square, heads = np.reshape(y, { 4, 4 }), np.reshape(y, { 1, 4, 2, 2 })
    for name, word in pairs(np) do good[name] = type(word) == "function" and { y } or nil end
    for _, name in ipairs {
      "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum", "minimum", "arctan2",
      "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
    } do
      good[name] = { y, y }
    end
    for _, name in ipairs { "sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin", "var", "std" } do
      good[name] = { y, 0, true }
    end
    for name, arguments in pairs {
      where = { y, y, y }, clip = { y, 0, 1 }, astype = { y, "int32" }, one_hot = { x, 4, "int8" },
      broadcast_to = { y, { 2, 16 } }, softmax = { y, 0 }, log_softmax = { y, 0 },
      dot = { y, y, { sharding = shardrt.NamedSharding(mesh, P()), precision = "float32" } },
      matmul = { y, y, { sharding = shardrt.NamedSharding(mesh, P()) } },
      reshape = { y, { 4, -1 } }, transpose = { y, { 0 } }, expand_dims = { y, 0 },
      squeeze = { np.reshape(y, { 16, 1 }), 1 }, slice = { y, { { 0, 4, 2 } } }, split = { y, { 4 }, 0 },
      concatenate = { { y, y }, 0 }, stack = { { y, y }, 0 }, take = { y, x, 0 }, zeros = { { 4 }, "int8" },
      ones = { { 4 }, "int8" }, full = { { 4 }, 1, "int8" }, arange = { 0, 4, 1, "int8" }, array = { { 1, 2 }, "int8" },
      zeros_like = { y, "int8" }, ones_like = { y, "int8" }, full_like = { y, 1, "int8" },
      asarray = { { 1, 2 }, "int8" }, linspace = { 0, 1, 5, true, "float64" }, eye = { 3, 4, 1, "int8" },
      tril = { square, 1 }, triu = { square, -1 }, tile = { y, { 2, 3 } }, pad = { y, { { 1, 2 } }, "constant", 3 },
      norm = { y, 0, true }, allclose = { y, y, 1e-5, 1e-8, true }, gelu = { y, false },
      set_at = { y, np.array({ 1, 3 }, "int32"), 2 }, add_at = { y, 3, 2 },
      dynamic_slice = { square, { 1, 2 }, { 2, 2 } }, top_k = { y, 3 }, cumsum = { y, 0, "float64" },
      dynamic_update_slice = { square, np.ones { 2, 2 }, { 1, 2 } },
      take_along_axis = { y, np.array({ 1, 3 }, "int32"), 0 }, sort = { y, 0, true }, argsort = { y, 0, true },
      einsum = { "ij,jk->ik", square, square, { precision = "float32" } },
      attention = { heads, heads, heads, { is_causal = true, scale = 2, bias = np.ones { 4, 4 } } },
      conv = { heads, heads, { padding = "SAME", strides = 2, dilation = { 1, 1 }, layout = "NHWC" } },
      max_pool = { heads, { 2, 2 }, { strides = { 2, 1 }, padding = { { 1, 0 }, { 0, 1 } } } },
      layer_norm = { y, { axis = 0, epsilon = 1e-3, scale = 2, bias = y } },
      softmax_cross_entropy_with_integer_labels = { square, np.array({ 1, 0, 3, 2 }, "int32"), 1 },
    } do
      good[name] = arguments
    end
    for name, arguments in pairs(good) do
      local word = np[name]
      local ok, message = pcall(word, unpack(arguments))
      assert(ok, name .. ": " .. tostring(message))
      fuzz("np." .. name, word, nil, unpack(arguments))
    end
    for number, value in ipairs(odd) do
      local given
      if value ~= NIL then given = value end
      for name, operator in pairs {
        add = function(a, b) return a + b end, sub = function(a, b) return a - b end,
        mul = function(a, b) return a * b end, div = function(a, b) return a / b end,
        pow = function(a, b) return a ^ b end, mod = function(a, b) return a % b end,
      } do
        local function text(way) return ("%s, %s, odd value %d, %s"):format(name, way, number, name_of(value)) end
        try(text "behind", operator, y, given)
        try(text "before", operator, given, y)
      end
      try(("a slice of odd value %d"):format(number), np.slice, y, { given })
      for place = 1, 3 do
        local range = { 0, 4, 1 }
        range[place] = given
        try(("a slice's number, odd value %d"):format(number), np.slice, y, { range })
      end
      try(("a list of odd value %d"):format(number), np.concatenate, { y, given })
      try(("a list of odd value %d"):format(number), np.stack, { y, given })
      try(("a product to odd value %d"):format(number), np.dot, y, y, { sharding = given })
      try(("a product in precision of odd value %d"):format(number), np.dot, y, y, { precision = given })
    end
    nothing_failed()
  end)

  it("of gradients, and of optimisers", function()
    local y = np.astype(x, "float32")
    local g = shardrt.value_and_grad(np.sum)
    for number, value in ipairs(odd) do
      local given
      if value ~= NIL then given = value end
      try(("a gradient of odd value %d"):format(number), g, given)
      try(("a gradient of a tree with odd value %d"):format(number), g, { w = given })
      try(("a function that gives odd value %d"):format(number), shardrt.grad(function() return given end), y)
      try(("explain of odd value %d"):format(number), shardrt.explain, function() return given end)
    end
    for name, options in pairs {
      sgd = { learning_rate = 0.1 }, momentum = { learning_rate = 0.1, momentum = 0.9 },
      adam = { learning_rate = 0.1, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8 },
      adamw = { learning_rate = function() return 0.1 end, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8,
        weight_decay = 1e-4 },
    } do
      local word = shardrt.optimizer[name]
      fuzz("optimizer." .. name, word, nil, options)
      for option in pairs(options) do
        for number, value in ipairs(odd) do
          local o = {}
          for other, kept in pairs(options) do o[other] = kept end
          if value == NIL then o[option] = nil else o[option] = value end
          try(("optimizer.%s of %s = odd value %d"):format(name, option, number), word, o)
        end
      end
      local made = word(options)
      fuzz("init", made.init, made, y)
      fuzz("update", made.update, made, y, y, made:init(y))
      fuzz("init of a tree", made.init, made, { w = y })
      fuzz("update of a tree", made.update, made, { w = y }, { w = y }, made:init { w = y })
    end
    fuzz("optimizer.clip_by_global_norm", shardrt.optimizer.clip_by_global_norm, nil, { w = y }, 1)
    local tried = { sgd = true, momentum = true, adam = true, adamw = true, clip_by_global_norm = true }
    for name in pairs(shardrt.optimizer) do assert.truthy(tried[name], name .. " is not tried") end
    for name, arguments in pairs {
      map = { function(a) return a end, { w = y } }, leaves = { { w = y } },
      reduce = { function(a) return a end, { w = y }, 0 },
    } do fuzz("tree." .. name, assert(shardrt.tree[name]), nil, unpack(arguments)) end
    nothing_failed()
  end)

  it("of methods, and things that are no object of theirs before the colon", function()
    local loader = shardrt.loader { source = source, batch_size = 8 }
    local ragged = shardrt.source.ragged { x = { host(), host() } }
    for _, key in ipairs { "field", "length", "longer", "window", "seed" } do
      for number, value in ipairs(odd) do
        local o = { length = 32 }
        if value ~= NIL then o[key] = value end
        try(("pack of %s = odd value %d"):format(key, number), ragged.pack, ragged, o)
      end
    end
    local h = host()
    local checkpoint = shardrt.checkpoint { dir = folder .. "/checkpoint", loader = loader, every = 2, keep = 1 }
    local methods = {
      { h, "save", folder .. "/w.npy" }, { h, "reshape", { 16 } }, { h, "rows", 0, 1 }, { h, "packed" },
      { h, "to_table" }, { x, "block_until_ready" }, { deleted, "delete" }, { deleted, "block_until_ready" },
      { s, "shard_shape", { 16 } }, { s, "devices_indices_map", { 16 } },
      { s, "addressable_devices_indices_map", { 16 } }, { s, "addressable_devices" },
      { s, "process_shards", { 16 }, 0 }, { source, "read", 0, 1 }, { source, "shard", 2, 1 },
      { source, "enumerate", "id" }, { source, "filter", { x = {} } }, { source, "readable" },
      { ragged, "pack", { length = 32 } }, { source, "map", { x = { shardrt.transform.crop { size = {} } } } },
      { loader, "restore", loader:state() }, { checkpoint, "step" }, { checkpoint, "save" }, { checkpoint, "close" },
    }
    for _, case in ipairs(methods) do
      local object, name = case[1], case[2]
      fuzz(name, object[name], object, unpack(case, 3))
      if object ~= loader then
        for number, value in ipairs(odd) do
          local other = value ~= NIL and value or nil
          try(("%s of odd value %d"):format(name, number), object[name], other, unpack(case, 3))
        end
      end
    end
    nothing_failed()
  end)

  it("of fields, set and asked for", function()
    local shard = shardrt.device_put(host(), s).addressable_shards[1]
    for number, object in ipairs {
      mesh, s, one, x, deleted, host(), source, shard.device, shard, shardrt, ndarray, shardrt.source, mesh.shape,
      P "a",
    } do
      for _, value in ipairs(odd) do
        if value ~= NIL and value == value then
          try(("field of object %d"):format(number), function() return object[value] end)
        end
      end
    end
    nothing_failed()
  end)
end)

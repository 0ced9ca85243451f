-- shardrt_join, open, next and the others, as a program calls them: this one is in a job of its own beside the spec's.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local json = require "cjson"
local mpi = require "tests.support.mpi"

local HEAD = [[
local shardrt = require "shardrt"
local ndarray = shardrt.ndarray
local source = shardrt.source.array { x = ndarray.arange(40, "float32"):reshape { 20, 2 } }
local function loader(o)
  o.source, o.batch_size = source, o.batch_size or 4
  return shardrt.loader(o)
end
]]

describe("a program with a recipe", function()
  local folder = mpi.folder()
  teardown(function() mpi.remove(folder) end)
  after_each(function() C.shardrt_abandon() end)

  local function write(body, name)
    local path = folder .. "/" .. (name or "recipe.lua")
    local file = assert(io.open(path, "w"))
    file:write(HEAD, body)
    file:close()
    return path
  end

  local function join(devices)
    local options = ffi.new "shardrt_options"
    C.shardrt_options_init(options)
    options.devices, options.transport, options.platform = devices or 2, C.SHARDRT_TRANSPORT_ALONE, "host"
    return C.shardrt_join(options)
  end

  local function message() return ffi.string(C.shardrt_error_message()) end

  local function open(path, ...)
    local out, words = ffi.new "shardrt_recipe *[1]", { ... }
    local argv = ffi.new("const char *[?]", #words + 1, words)
    local code = C.shardrt_open(path, #words, argv, out)
    return code == 0 and out[0] or nil, code
  end

  local function opened(path, ...) return (assert(open(path, ...), message())) end

  local function pick(recipe, name)
    local out = ffi.new "shardrt_recipe *[1]"
    local code = C.shardrt_recipe_loader(recipe, name, out)
    return code == 0 and out[0] or nil, code
  end

  local function next_batch(recipe)
    local out = ffi.new "shardrt_batch *[1]"
    local code = C.shardrt_next(recipe, -1, out)
    return code == 1 and out[0] or nil, code
  end

  -- The numbers of a shard of a batch's field.
  local function numbers(batch, field, shard)
    local array = C.shardrt_batch_array(batch, field)
    local data = ffi.cast("const float *", C.shardrt_buffer_data(C.shardrt_array_buffer(array, shard)))
    local list = {}
    for i = 1, tonumber(C.shardrt_array_shard_bytes(array)) / 4 do list[i] = data[i - 1] end
    return list
  end

  local function text_of(call, recipe)
    local out = ffi.new "char *[1]"
    assert.equal(0, call(recipe, out), message())
    local text = ffi.string(out[0])
    C.shardrt_text_free(out[0])
    return text
  end

  local function refuses(code, piece, expected)
    assert.equal(expected or C.SHARDRT_EINVAL, code)
    expect.contains(message(), piece)
  end

  it("is given the mask last, whoever makes the batch", function()
    local body = [[
local two = shardrt.source.array { z = ndarray.arange(6, "float32"), a = ndarray.arange(6, "float32") }
local function of(transform)
  return shardrt.loader { source = two, batch_size = 4, remainder = "pad", epochs = 1, batch_transform = transform }
end
return { direct = of(nil), changed = of(function(batch) return batch end) }]]
    assert.equal(0, join())
    local recipe = opened(write(body))
    for _, name in ipairs { "direct", "changed" } do
      local loader, count = pick(recipe, name), 0
      for batch in function() return (next_batch(loader)) end do
        local fields = {}
        for i = 1, C.shardrt_batch_fields(batch) do fields[i] = ffi.string(C.shardrt_batch_name(batch, i - 1)) end
        assert.same({ "a", "z", "mask" }, fields)
        C.shardrt_batch_free(batch)
        count = count + 1
      end
      assert.equal(2, count)
      C.shardrt_close(loader)
    end
    C.shardrt_close(recipe)
  end)

  it("is given batches in their order, and 0 after the last", function()
    assert.equal(0, join())
    local recipe = opened(write "return loader { epochs = 1 }")
    assert.equal(5, tonumber(C.shardrt_steps(recipe)))
    local layout
    for step = 0, 4 do
      local batch = next_batch(recipe)
      assert.equal(1, C.shardrt_batch_fields(batch))
      assert.equal("x", ffi.string(C.shardrt_batch_name(batch, 0)))
      assert.is_true(C.shardrt_batch_name(batch, 1) == nil and C.shardrt_batch_array(batch, -1) == nil)
      assert.same({ step * 8, step * 8 + 1, step * 8 + 2, step * 8 + 3 }, numbers(batch, 0, 0))
      local x = C.shardrt_batch_array(batch, 0)
      assert.is_true(C.shardrt_batch_find(batch, "x") == x and C.shardrt_batch_find(batch, "xx") == nil)
      assert.is_true(C.shardrt_array_host_data(x, 1) == C.shardrt_buffer_data(C.shardrt_array_buffer(x, 1)))
      layout = layout or C.shardrt_array_layout(x)
      assert.is_true(C.shardrt_array_layout(x) == layout)
      C.shardrt_batch_free(batch)
    end
    for _ = 1, 2 do
      local _, code = next_batch(recipe)
      assert.equal(0, code)
    end
    C.shardrt_close(recipe)
    assert.equal(0, C.shardrt_leave())
  end)

  it("keeps a batch for as long as it likes, beyond loader, recipe and job", function()
    assert.equal(0, join())
    local recipe = opened(write "return loader { epochs = 3 }")
    local kept = {}
    for step = 1, 15 do
      kept[step] = next_batch(recipe)
      C.shardrt_batch_retain(kept[step])
      C.shardrt_batch_free(kept[step])
    end
    C.shardrt_close(recipe)
    assert.equal(0, C.shardrt_leave())
    for step = 1, 15 do
      local from = (step - 1) % 5 * 8
      assert.same({ from + 4, from + 5, from + 6, from + 7 }, numbers(kept[step], 0, 1))
      C.shardrt_batch_free(kept[step])
    end
  end)

  it("picks loaders by name, and their handles go on together", function()
    assert.equal(0, join())
    local recipe = opened(write "return { train = loader {}, test = loader { batch_size = 20, epochs = 1 } }")
    assert.equal(2, C.shardrt_recipe_count(recipe))
    assert.equal("test", ffi.string(C.shardrt_recipe_name(recipe, 0)))
    assert.is_true(C.shardrt_recipe_name(recipe, 2) == nil)
    local _, code = next_batch(recipe)
    refuses(code, '"test", "train"; shardrt_recipe_loader picks one')
    _, code = pick(recipe, "valid")
    refuses(code, 'no loader "valid"; the recipe returned "test", "train"')
    local one, other = pick(recipe, "train"), pick(recipe, "train")
    assert.equal(0, C.shardrt_recipe_count(one))
    C.shardrt_close(recipe) -- the others hold it
    C.shardrt_batch_free((next_batch(one)))
    local batch = next_batch(other)
    assert.equal(8, numbers(batch, 0, 0)[1])
    C.shardrt_batch_free(batch)
    C.shardrt_close(one)
    C.shardrt_close(other)
  end)

  it("goes back to a state, of one loader and of all", function()
    assert.equal(0, join())
    local body = "return { a = loader { shuffle = true }, b = loader { batch_size = 2 } }"
    local recipe = opened(write(body))
    local a = pick(recipe, "a")
    C.shardrt_batch_free((next_batch(a)))
    local one, all = text_of(C.shardrt_state, a), text_of(C.shardrt_state, recipe)
    assert.equal(json.encode(json.decode(one)), json.encode(json.decode(all).a))
    local batch = next_batch(a)
    local wanted = numbers(batch, 0, 0)
    C.shardrt_batch_free(batch)
    local again = opened(write(body))
    local b = pick(again, "a")
    for _, to in ipairs { { a, one }, { recipe, all }, { again, all } } do
      assert.equal(0, C.shardrt_restore(to[1], to[2]), message())
      batch = next_batch(to[1] == again and b or a)
      assert.same(wanted, numbers(batch, 0, 0))
      C.shardrt_batch_free(batch)
    end
    refuses(C.shardrt_restore(a, "{"), "JSON")
    refuses(C.shardrt_restore(recipe, '{"a": {}}'), 'nothing of the loader "b"')
    refuses(C.shardrt_restore(recipe, '{"c": {}}'), 'a loader "c", which the recipe did not return')
    for _, each in ipairs { a, b, recipe, again } do C.shardrt_close(each) end
  end)

  it("moves all loaders to a state or none", function()
    assert.equal(0, join())
    local recipe = opened(write "return { a = loader {}, b = loader { batch_size = 2 } }")
    local a, b = pick(recipe, "a"), pick(recipe, "b")
    local function first(loader)
      local batch = assert(next_batch(loader), message())
      local value = numbers(batch, 0, 0)[1]
      C.shardrt_batch_free(batch)
      return value
    end
    local start = text_of(C.shardrt_state, recipe)
    assert.same({ 0, 8, 0 }, { first(a), first(a), first(b) })
    local damaged = json.decode(start)
    damaged.b.row = 2
    refuses(C.shardrt_restore(recipe, json.encode(damaged)), "checksum")
    assert.same({ 16, 4 }, { first(a), first(b) })
    assert.equal(0, C.shardrt_restore(recipe, start), message())
    assert.same(json.decode(start).a, json.decode(text_of(C.shardrt_state_before, a)))
    assert.same({ 0, 0 }, { first(a), first(b) })
    for _, each in ipairs { a, b, recipe } do C.shardrt_close(each) end
  end)

  it("has Lua asked once whether it has a part in the batches", function()
    assert.equal(0, join())
    local recipe = opened(write [[
local library, asked = require "shardrt.program.library", 0
local direct = library.direct
function library.direct(...)
  asked = asked + 1
  return direct(...)
end
return loader { epochs = 1, batch_transform = function(batch)
  assert(asked == 1, "asked again")
  return batch
end }]])
    for _ = 1, 5 do C.shardrt_batch_free((assert(next_batch(recipe), message()))) end
    C.shardrt_close(recipe)
  end)

  it("learns what it holds of batches that Lua made", function()
    assert.equal(0, join())
    local body = [[
local np = require "shardrt.numpy"
return loader { batch_transform = function(b) return { x = b.x, twice = np.concatenate({ b.x, b.x }, 1) } end }]]
    local recipe, held = opened(write(body)), {}
    local function held_bytes() return json.decode(text_of(C.shardrt_stats, recipe)).held_bytes end
    for step = 1, 3 do
      held[step] = assert(next_batch(recipe), message())
      assert.equal(step * 3 * 4 * 2 * 4, held_bytes())
    end
    C.shardrt_batch_retain(held[1])
    for step = 1, 3 do C.shardrt_batch_free(held[step]) end
    assert.equal(3 * 4 * 2 * 4, held_bytes())
    C.shardrt_close(recipe)
    C.shardrt_batch_free(held[1]) -- which outlives the recipe
  end)

  it("learns what a loader did, and what it holds", function()
    assert.equal(0, join())
    local recipe = opened(write "return loader {}")
    local batch = next_batch(recipe)
    local stats = json.decode(text_of(C.shardrt_stats, recipe))
    assert.equal(1, stats.steps)
    assert.is_true(stats.held_bytes >= 32)
    C.shardrt_batch_free(batch)
    assert.equal(0, json.decode(text_of(C.shardrt_stats, recipe)).held_bytes)
    C.shardrt_close(recipe)
  end)

  it("hands arguments over", function()
    assert.equal(0, join())
    local recipe = opened(
      write "return loader { batch_size = tonumber(arg[1]), epochs = tonumber((select(2, ...))) }", "10", "1")
    assert.equal(2, tonumber(C.shardrt_steps(recipe)))
    C.shardrt_close(recipe)
  end)

  it("is told what a recipe does wrong, where", function()
    assert.equal(0, join())
    local function fails(body, ...)
      local recipe, code = open(write(body))
      assert.is_nil(recipe)
      assert.equal(C.SHARDRT_EINVAL, code)
      expect.contains(message(), ...)
    end
    fails("error 'no luck'", folder .. "/recipe.lua:8: no luck")
    fails("return 7", "it returned 7")
    fails("", "it returned nil")
    fails("return {}", "its table is empty")
    fails("return { train = loader {}, 3 }", "in its table 1 is 3")
    fails("return { ['a\\0b'] = loader {} }", "in its table")
    fails("os.exit(0)", "recipe.lua:8: os.exit")
    fails("x = = 1", "recipe.lua:8: ")
    fails("return loader { batch_size = 0 }", folder .. "/recipe.lua:8: loader: batch_size = 0")
    fails("return loader {\n  batch_size = 0,\n  epochs = 1,\n}", folder .. "/recipe.lua:8: loader: batch_size = 0")
    fails("if arg[1] then return loader {} end return loader { batch_size = 0 }", folder .. "/recipe.lua: loader: ")
    local _, code = open(folder .. "/none.lua")
    refuses(code, "none.lua: No such file", C.SHARDRT_EIO)
    -- What is no recipe is told by what it is.
    local what = "; a recipe is a file with the text of a program in Lua"
    _, code = open(folder)
    refuses(code, folder .. ": Is a directory" .. what, C.SHARDRT_EIO)
    for bytes, problem in pairs {
      [""] = "is empty", ["\127ELF\2\1\1"] = "is a program or a library (ELF), not a recipe, which a program may open",
      [string.dump(function() end)] = "is Lua that was compiled (bytecode)", ["PK\3\4\0\0"] = "is a binary file",
    } do
      _, code = open(files.write(folder, "other.lua", bytes))
      refuses(code, ("%s/other.lua %s%s"):format(folder, problem, what))
    end
    _, code = open(write "return shardrt.loader { source = shardrt.source.npy { x = 'none.npy' }, batch_size = 1 }")
    refuses(code, "none.npy: No such file", C.SHARDRT_EIO)
  end)

  it("is refused what needs a job, or another", function()
    local _, code = open(write "return loader {}")
    refuses(code, "shardrt_open: this process is in no job; shardrt_join comes first")
    assert.equal(0, C.shardrt_leave())
    assert.equal(0, join())
    refuses(join(), "shardrt_leave comes first")
    local recipe = opened(write "return loader {}")
    assert.equal(0, C.shardrt_leave()) -- which ends the recipe
    assert.equal(0, join(4))
    _, code = next_batch(recipe)
    refuses(code, "the job that the recipe was opened in was left")
    C.shardrt_close(recipe)
    C.shardrt_abandon()
    assert.equal(0, join(1))
    recipe = opened(write "return loader {}")
    local batch = next_batch(recipe)
    assert.equal(1, tonumber(C.shardrt_array_shard_count(C.shardrt_batch_array(batch, 0))))
    C.shardrt_batch_free(batch)
    C.shardrt_close(recipe)
  end)

  it("finds no job in a process that was forked", function()
    assert.equal(0, join())
    local recipe = opened(write "return loader {}")
    ffi.cdef "int fork(void); int waitpid(int, int *, int); void _exit(int);"
    local child = ffi.C.fork()
    if child == 0 then
      local _, code = next_batch(recipe)
      local said = message():find("num_workers=0: shardrt has its own threads", 1, true)
      C.shardrt_close(recipe)
      C.shardrt_abandon()
      ffi.C._exit(code == C.SHARDRT_EINVAL and said and 7 or 1)
    end
    local status = ffi.new "int[1]"
    ffi.C.waitpid(child, status, 0)
    assert.equal(7 * 256, status[0])
    C.shardrt_batch_free((next_batch(recipe)))
    C.shardrt_close(recipe)
  end)

  it("has several recipes open, each with globals of its own", function()
    assert.equal(0, join())
    local one = opened(write("shared = (shared or 0) + 1; return loader { batch_size = 2 * shared }", "one.lua"))
    local two = opened(write("shared = (shared or 0) + 1; return loader { batch_size = 4 * shared }", "two.lua"))
    assert.equal(10, tonumber(C.shardrt_steps(one)))
    assert.equal(5, tonumber(C.shardrt_steps(two)))
    for _ = 1, 3 do
      C.shardrt_batch_free((next_batch(one)))
      C.shardrt_batch_free((next_batch(two)))
    end
    C.shardrt_close(one)
    C.shardrt_batch_free((next_batch(two)))
    C.shardrt_close(two)
  end)

  -- Rows of 256 KiB, so that each device's part of a batch is a task of its own.
  local SLOW = [[
source = shardrt.source.array { x = ndarray.arange(20 * 65536, "float32"):reshape { 20, 65536 } }
return loader { batch_size = 20, epochs = 3, num_workers = 1, prefetch = 1, transform = {
  x = { shardrt.transform.lua(function(sample)
    local until_then = os.clock() + 0.02
    while os.clock() < until_then do end
    sample.out[0] = sample.data[0]
  end) },
} }]]

  it("waits in slices, and loses nothing between them", function()
    assert.equal(0, join(10)) -- as many tasks, of which a slice runs one
    local recipe, other = opened(write(SLOW)), opened(write("return loader { batch_size = 10 }", "other.lua"))
    local out, again, steps = ffi.new "shardrt_batch *[1]", 0, 0
    while true do
      local code = C.shardrt_next(recipe, 0.001, out)
      if code == 0 then break end
      if code == 1 then
        assert.equal(2 * 65536, numbers(out[0], 0, 1)[1])
        C.shardrt_batch_free(out[0])
        steps = steps + 1
      else
        assert.equal(C.SHARDRT_EAGAIN, code, message())
        again = again + 1
        for _, call in ipairs {
          function() return C.shardrt_next(other, -1, out) end,
          function() return C.shardrt_restore(recipe, "{}") end,
          function() return C.shardrt_open(folder .. "/other.lua", 0, nil, ffi.new "shardrt_recipe *[1]") end,
          function() return C.shardrt_allreduce(nil, 0, C.SHARDRT_FLOAT32, nil, "data") end,
        } do
          refuses(call(), "has returned SHARDRT_EAGAIN; it is called again first")
        end
      end
    end
    assert.equal(3, steps)
    assert.is_true(again > 5)
    C.shardrt_batch_free((next_batch(other)))
    C.shardrt_close(other)
    C.shardrt_close(recipe)
  end)

  it("looks at the clock between rows, where a transform takes long", function()
    local function numbers_of(seconds)
      assert.equal(0, join(2)) -- two tasks, of 48 rows each: one is the caller's
      local recipe, out, again, all = opened(write [[
local many = shardrt.source.array { x = ndarray.arange(192, "float32") }
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
return shardrt.loader { source = many, batch_size = 96, epochs = 1, num_workers = 1, prefetch = 1,
  sharding = shardrt.NamedSharding(mesh, shardrt.P "data"),
  transform = { x = { shardrt.transform.lua(function(sample)
    local until_then = os.clock() + 0.004
    while os.clock() < until_then do end
    sample.out[0] = 3 * sample.data[0]
  end) } } }]]), ffi.new "shardrt_batch *[1]", {}, {}
      for step = 1, 2 do
        local code
        again[step] = -1
        repeat
          code = C.shardrt_next(recipe, seconds, out)
          again[step] = again[step] + 1
        until code ~= C.SHARDRT_EAGAIN
        assert.equal(1, code, message())
        for shard = 0, 1 do
          for _, number in ipairs(numbers(out[0], 0, shard)) do all[#all + 1] = number end
        end
        C.shardrt_batch_free(out[0])
      end
      C.shardrt_close(recipe)
      assert.equal(0, C.shardrt_leave(), message())
      return all, math.min(again[1], again[2])
    end
    local whole = numbers_of(-1)
    assert.equal(192, #whole)
    for i, number in ipairs(whole) do assert.equal(3 * (i - 1), number) end
    for _, seconds in ipairs { 0.001, 0 } do
      local sliced, fewest = numbers_of(seconds)
      assert.same(whole, sliced)
      assert.is_true(fewest > 4, fewest) -- a whole task in one slice leaves one or two
    end
  end)

  it("answers where it stands while a call rests, as before that call", function()
    local in_lua = SLOW:gsub("batch_size", "batch_transform = function(b) return b end, %0")
    for kind, body in pairs { direct = SLOW, lua = in_lua } do
      assert.equal(0, join(10))
      local recipe, out = opened(write(body)), ffi.new "shardrt_batch *[1]"
      for step = 1, 3 do
        local before, again, code = text_of(C.shardrt_state, recipe), 0
        repeat
          code = C.shardrt_next(recipe, 0.001, out)
          if code == C.SHARDRT_EAGAIN then
            again = again + 1
            assert.same(json.decode(before), json.decode(text_of(C.shardrt_state, recipe)), kind)
            assert.equal(step - 1, json.decode(text_of(C.shardrt_stats, recipe)).steps - (kind == "lua" and 1 or 0))
            if kind == "lua" then -- the batch is there, and waits to be taken
              code = C.shardrt_next(recipe, 0, out)
              assert.equal(1, code)
            end
          end
        until code ~= C.SHARDRT_EAGAIN
        assert.equal(1, code, message())
        assert.is_true(again > 0, kind)
        assert.equal(2 * 65536, numbers(out[0], 0, 1)[1])
        C.shardrt_batch_free(out[0])
        assert.same(json.decode(before), json.decode(text_of(C.shardrt_state_before, recipe)))
        assert.is_true(before ~= text_of(C.shardrt_state, recipe))
      end
      assert.equal(0, C.shardrt_next(recipe, -1, out))
      C.shardrt_close(recipe)
      assert.equal(0, C.shardrt_leave(), message())
    end
  end)

  it("may go while a call of its rests", function()
    for _, leave in ipairs { C.shardrt_abandon, C.shardrt_leave } do
      for _, closes in ipairs { true, false } do
        assert.equal(0, join(10))
        local recipe, out = opened(write(SLOW)), ffi.new "shardrt_batch *[1]"
        assert.equal(C.SHARDRT_EAGAIN, C.shardrt_next(recipe, 0, out))
        if closes then C.shardrt_close(recipe) end
        leave()
        if not closes then C.shardrt_close(recipe) end
      end
    end
  end)

  it("leaves nothing behind where memory ends on the way", function()
    local path = write "return { train = loader { epochs = 1 }, test = loader { batch_size = 2 } }"
    assert.equal(0, join())
    C.shardrt_alloc_fail_at(0)
    C.shardrt_close(opened(path))
    local count = tonumber(C.shardrt_alloc_fail_at(0))
    assert.is_true(count > 50)
    local failed = 0
    for n = 1, count, 3 do
      C.shardrt_alloc_fail_at(n)
      local recipe, code = open(path)
      C.shardrt_alloc_fail_at(0)
      if recipe then
        C.shardrt_close(recipe)
      else
        assert.equal(C.SHARDRT_ENOMEM, code, message())
        failed = failed + 1
      end
    end
    assert.is_true(failed > 10)
  end)

  -- Whatever the n-th allocation of a call is, of Lua's or of C's: it fails, and the next call does not.
  local ARMED = 2 ^ 52 -- of a state that is made meanwhile, Lua's allocations are counted

  local function walk(what, call, most)
    C.shardrt_alloc_fail_at(ARMED)
    assert.equal(0, call(), message())
    local count = tonumber(C.shardrt_alloc_fail_at(0))
    assert.is_true(count > 0)
    local failed, stride = 0, math.max(1, math.floor(count / most))
    for n = 1, count, stride do
      C.shardrt_alloc_fail_at(n)
      local code = call()
      C.shardrt_alloc_fail_at(0)
      if code ~= 0 then
        assert.equal(C.SHARDRT_ENOMEM, code, what .. ": " .. message())
        failed = failed + 1
      end
    end
    assert.is_true(failed > 0, what)
    assert.equal(0, call(), message())
  end

  it("goes on where Lua had no memory", function()
    local path = write [[
return { plain = loader {}, changed = loader { batch_transform = function(batch) return { x = batch.x } end } }]]
    assert.equal(0, join())
    local function open_and_close()
      local recipe, code = open(path)
      C.shardrt_close(recipe)
      return code or 0
    end
    walk("open", open_and_close, 150)
    C.shardrt_alloc_fail_at(ARMED)
    local recipe = opened(path)
    C.shardrt_alloc_fail_at(0)
    local plain, changed = pick(recipe, "plain"), pick(recipe, "changed")
    local text, out = ffi.new "char *[1]", ffi.new "shardrt_batch *[1]"
    local function asks(call)
      return function()
        local code = call(recipe, text)
        if code == 0 then C.shardrt_text_free(text[0]) end
        return code
      end
    end
    local function steps(loader)
      return function()
        local code = C.shardrt_next(loader, -1, out)
        if code == 1 then C.shardrt_batch_free(out[0]) end
        return code == 1 and 0 or code
      end
    end
    walk("state", asks(C.shardrt_state), 100)
    walk("stats", asks(C.shardrt_stats), 100)
    local state = text_of(C.shardrt_state, recipe)
    walk("restore", function() return C.shardrt_restore(recipe, state) end, 100)
    walk("next", steps(plain), 100)
    walk("next in Lua", steps(changed), 100)
    for _, each in ipairs { plain, changed, recipe } do C.shardrt_close(each) end
    assert.equal(0, C.shardrt_leave(), message())
  end)

  it("hears at the end of the job that another one read other bytes of a file", function()
    local data = files.write(folder, "x.npy", files.npy { dict = files.dict("|u1", { 256, 64 }),
      payload = files.bytes(256 * 64) })
    os.execute("touch -d 2015-05-05 " .. data)
    assert.equal(0, join(1))
    local recipe = opened(write [[
      local source = shardrt.source.npy { x = arg[1] }
      return shardrt.loader { source = source, batch_size = 64, epochs = 1 }]], data)
    repeat
      local batch = next_batch(recipe)
      if batch then C.shardrt_batch_free(batch) end
    until not batch
    local other = mpi.shell(("printf X | dd of=%s bs=1 seek=9000 conv=notrunc && touch -d 2015-05-05 %s && %s index %s")
      :format(data, data, mpi.program(), data))
    assert.equal(0, other.status, other.output)
    C.shardrt_close(recipe)
    assert.equal(C.SHARDRT_EFORMAT, C.shardrt_leave())
    expect.contains(message(), "another process or job read other bytes than this one")
    assert.is_true(C.shardrt_joined() == nil)
    assert.equal(0, join(1)) -- which is told once
    assert.equal(0, C.shardrt_leave(), message())
  end)
end)

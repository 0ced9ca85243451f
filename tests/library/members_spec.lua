-- processes: 2 x 1
-- Programs of several processes, as these are, which join a job of their own beside the specs'.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local expect = require "tests.support.expect"
local shardrt = require "shardrt"

ffi.cdef "int usleep(unsigned);"

local RECIPE = [[
local shardrt = require "shardrt"
local source = shardrt.source.array { x = shardrt.ndarray.arange(64, "float32"):reshape { 16, 4 } }
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
return shardrt.loader { source = source, batch_size = 4, epochs = 1, pipeline = "reshard",
  sharding = shardrt.NamedSharding(mesh, shardrt.P(nil, "data")) }
]]

describe("the processes of a program", function()
  local own = current.info.process_index
  local path = shardrt.temporary_folder() .. "/recipe.lua"
  if own == 0 then
    local file = assert(io.open(path, "w"))
    file:write(RECIPE)
    file:close()
  end
  shardrt.sync_global_devices "the recipe is written"
  after_each(function() C.shardrt_abandon() end)

  local function message() return ffi.string(C.shardrt_error_message()) end

  local function join(timeout)
    local options = ffi.new "shardrt_options"
    C.shardrt_options_init(options)
    options.devices, options.platform, options.timeout = 1, "host", timeout or 60
    assert.equal(0, C.shardrt_join(options), message())
  end

  local function open()
    local out = ffi.new "shardrt_recipe *[1]"
    assert.equal(0, C.shardrt_open(path, 0, nil, out), message())
    return out[0]
  end

  it("wait for each other in slices, also where batches move", function()
    join()
    local recipe, out, again = open(), ffi.new "shardrt_batch *[1]", 0
    for step = 0, 3 do
      if own == 1 then ffi.C.usleep(200000) end
      local code
      repeat
        code = C.shardrt_next(recipe, own == 0 and 0.01 or -1, out)
        if code == C.SHARDRT_EAGAIN then again = again + 1 end
      until code ~= C.SHARDRT_EAGAIN
      assert.equal(1, code, message())
      local array = C.shardrt_batch_array(out[0], 0)
      local data = ffi.cast("const float *", C.shardrt_buffer_data(C.shardrt_array_buffer(array, 0)))
      for row = 0, 3 do
        for column = 0, 1 do assert.equal(step * 16 + row * 4 + own * 2 + column, data[row * 2 + column]) end
      end
      C.shardrt_batch_free(out[0])
    end
    assert.equal(0, C.shardrt_next(recipe, 1, out))
    assert.is_true(own == 1 or again > 4)
    C.shardrt_close(recipe)
    assert.equal(0, C.shardrt_leave(), message())
  end)

  it("join, open and leave in slices, and may give up in each", function()
    local options, out = ffi.new "shardrt_options", ffi.new "shardrt_recipe *[1]"
    C.shardrt_options_init(options)
    options.devices, options.platform, options.timeout, options.slice = 1, "host", 60, own == 0 and 0.02 or 0
    -- The other process is late; this one gives up, if it is told to, and counts how often it was called again.
    local function sliced(call, gives_up)
      if own == 1 then ffi.C.usleep(300000) end
      local again, code = 0, C.SHARDRT_EAGAIN
      while code == C.SHARDRT_EAGAIN do
        code = call()
        if code == C.SHARDRT_EAGAIN then
          again = again + 1
          if gives_up and again == 3 then return C.shardrt_abandon_because "enough" end
          if C.shardrt_joined() ~= nil then
            assert.equal(C.SHARDRT_EINVAL, C.shardrt_allreduce(nil, 0, C.SHARDRT_FLOAT32, nil, "data"))
            expect.contains(message(), "has returned SHARDRT_EAGAIN; it is called again first")
          end
        end
      end
      assert.equal(0, code, message())
      assert.is_true(own == 1 or again >= 3, again)
    end
    local function join_in_slices() return C.shardrt_join(options) end
    if own == 0 then sliced(join_in_slices, true) end
    sliced(join_in_slices)
    sliced(function() return C.shardrt_open(path, 0, nil, out) end)
    local batch = ffi.new "shardrt_batch *[1]"
    assert.equal(1, C.shardrt_next(out[0], -1, batch), message())
    C.shardrt_batch_free(batch[0])
    C.shardrt_close(out[0])
    sliced(C.shardrt_leave)
    for _, call in ipairs { function() return C.shardrt_open(path, 0, nil, out) end, C.shardrt_leave } do
      sliced(join_in_slices)
      if own == 0 then sliced(call, true) end
      shardrt.sync_global_devices "one has given up"
      if own == 1 then
        assert.equal(C.SHARDRT_ECOMM, call())
        expect.contains(message(), "process 0 left the job (abandoned it)", "because of: enough")
        C.shardrt_abandon()
      end
      assert.is_true(C.shardrt_joined() == nil)
      shardrt.sync_global_devices "both have left"
    end
  end)

  it("hear of one that is missing, leave, and join again", function()
    join(1)
    local recipe, out = open(), ffi.new "shardrt_batch *[1]"
    if own == 0 then
      local code
      repeat code = C.shardrt_next(recipe, 0.05, out) until code ~= C.SHARDRT_EAGAIN
      assert.equal(C.SHARDRT_ETIMEOUT, code)
      expect.contains(message(), "process 1", "; by now it may be in its program, after shardrt_open of ")
    end
    shardrt.sync_global_devices "one has waited"
    C.shardrt_close(recipe)
    C.shardrt_abandon()
    shardrt.sync_global_devices "both have left"
    join()
    recipe = open()
    assert.equal(1, C.shardrt_next(recipe, -1, out), message())
    C.shardrt_batch_free(out[0])
    C.shardrt_close(recipe)
    assert.equal(0, C.shardrt_leave(), message())
  end)

  it("leave one after the other's patience has ended, and join again at once", function()
    join(1)
    if own == 1 then ffi.C.usleep(2500000) end
    assert.equal(own == 0 and C.SHARDRT_ETIMEOUT or C.SHARDRT_ECOMM, C.shardrt_leave(), message())
    if own == 1 then expect.contains(message(), "process 0 left the job", "because of: process 1 did not come to") end
    join()
    local recipe, out = open(), ffi.new "shardrt_batch *[1]"
    assert.equal(1, C.shardrt_next(recipe, -1, out), message())
    C.shardrt_batch_free(out[0])
    assert.equal(0, C.shardrt_leave(), message())
    C.shardrt_close(recipe)
  end)

  it("need not wait for the end of a call that rests", function()
    join()
    local recipe, out = open(), ffi.new "shardrt_batch *[1]"
    if own == 0 then assert.equal(C.SHARDRT_EAGAIN, C.shardrt_next(recipe, 0.05, out)) end
    shardrt.sync_global_devices "one has waited"
    local before = C.shardrt_clock()
    C.shardrt_abandon()
    assert.is_true(C.shardrt_clock() - before < 30) -- the job's timeout is 60
    C.shardrt_close(recipe)
  end)

  it("read in the recipe's temporary folder until all have left", function()
    local lending = shardrt.temporary_folder() .. "/lending.lua"
    if own == 0 then
      local file = assert(io.open(lending, "w"))
      file:write([[local shardrt = require "shardrt"
        if shardrt.process_index() == 0 then
          assert(io.open(shardrt.temporary_folder() .. "/one", "w")):close()
          os.execute("mkdir " .. shardrt.temporary_folder() .. "/more")
          assert(io.open(shardrt.temporary_folder() .. "/more/two", "w")):close()
        end
        error(shardrt.temporary_folder())]])
      file:close()
    end
    shardrt.sync_global_devices "the lending recipe is written"
    join()
    local out = ffi.new "shardrt_recipe *[1]"
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_open(lending, 0, nil, out))
    local folder = message():match "(/%S+/shardrt%-%w+)$"
    assert.is_truthy(folder, message())
    shardrt.sync_global_devices "process 0 has ended its recipe"
    for _, name in ipairs { "one", "more/two" } do assert(io.open(folder .. "/" .. name)):close() end
    shardrt.sync_global_devices "both have looked"
    assert.equal(0, C.shardrt_leave(), message())
    shardrt.sync_global_devices "both have left"
    assert.is_nil(io.open(folder))
  end)

  local function new_mesh()
    local names, sizes = ffi.new("const char *[1]", { "data" }), ffi.new("int64_t[1]", 2)
    local mesh = ffi.new "shardrt_mesh *[1]"
    assert.equal(0, C.shardrt_mesh_new(1, sizes, names, 0, nil, 2, mesh))
    return mesh
  end

  it("add up buffers of their own", function()
    join()
    local mesh = new_mesh()
    local values = ffi.new "float[1000]"
    for i = 0, 999 do values[i] = (own + 1) * i end
    assert.equal(0, C.shardrt_allreduce(values, 1000, C.SHARDRT_FLOAT32, mesh[0], "data"), message())
    for i = 0, 999 do assert.equal(3 * i, values[i]) end
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_allreduce(values, 1, C.SHARDRT_FLOAT32, mesh[0], "rows"))
    C.shardrt_mesh_free(mesh[0])
    assert.equal(0, C.shardrt_leave(), message())
  end)

  -- The timeout is longer than the spec may take.
  describe("hear at once that one left, where, and why:", function()
    local out

    -- Process 1 leaves, where process 0 waits, in a job that both have joined; in the next one all is well.
    local function case(name, leave, wait, ...)
      local pieces = { "process 1 left the job (abandoned it)", ... }
      it(name, function()
        out = ffi.new "shardrt_batch *[1]"
        join(1000)
        if own == 1 then
          leave()
          C.shardrt_abandon()
        else
          local code = wait()
          local said = message()
          assert.equal(C.SHARDRT_ECOMM, code, said)
          expect.contains(said, unpack(pieces))
          assert.is_nil(said:find("more of it", 1, true))
          if code == C.shardrt_leave() then expect.contains(message(), unpack(pieces)) end -- it is told again
        end
        join(1000)
        local recipe = open()
        assert.equal(1, C.shardrt_next(recipe, -1, out), message())
        C.shardrt_batch_free(out[0])
        C.shardrt_close(recipe)
        assert.equal(0, C.shardrt_leave(), message())
      end)
    end

    local function take_all()
      local recipe = open()
      local code
      repeat
        code = C.shardrt_next(recipe, 0.05, out)
        if code == 1 then C.shardrt_batch_free(out[0]) end
      until code ~= 1 and code ~= C.SHARDRT_EAGAIN
      C.shardrt_close(recipe)
      return code
    end
    local function take_one()
      local recipe = open()
      assert.equal(1, C.shardrt_next(recipe, -1, out), message())
      C.shardrt_batch_free(out[0])
      return recipe
    end

    local failing = shardrt.temporary_folder() .. "/failing.lua"
    if own == 0 then
      local file = assert(io.open(failing, "w"))
      file:write('if require("shardrt").process_index() == 1 then error "boom\\nmore of it" end\n', RECIPE)
      file:close()
    end
    shardrt.sync_global_devices "the failing recipe is written"
    local function open_failing() return C.shardrt_open(failing, 0, nil, ffi.new "shardrt_recipe *[1]") end
    case("while a recipe is opened", function()
      assert.equal(C.SHARDRT_EINVAL, open_failing())
    end, open_failing, "in the program, after shardrt_open of ", "failing.lua, because of: ", "failing.lua:1: boom")

    case("while a batch is waited for", function()
      C.shardrt_close(take_one())
      C.shardrt_abandon_because "ValueError: the loss is nan\nmore of it"
    end, take_all, "in the program, after shardrt_next of ", "recipe.lua, because of: ValueError: the loss is nan")

    case("while it waited itself", function()
      local recipe = open()
      assert.equal(C.SHARDRT_EAGAIN, C.shardrt_next(recipe, 0.05, out))
      C.shardrt_abandon()
      C.shardrt_close(recipe)
    end, function()
      local recipe = open()
      ffi.C.usleep(300000)
      local code = C.shardrt_next(recipe, -1, out)
      if code == 1 then C.shardrt_batch_free(out[0]) end
      C.shardrt_close(recipe)
      return code
    end, "in shardrt_next of ")

    case("while buffers are added up", function()
      local recipe = take_one()
      assert.equal(C.SHARDRT_EINVAL, C.shardrt_restore(recipe, "{"))
      C.shardrt_abandon()
      C.shardrt_close(recipe)
    end, function()
      local mesh, recipe = new_mesh(), take_one()
      local code = C.shardrt_allreduce(ffi.new "float[3]", 3, C.SHARDRT_FLOAT32, mesh[0], "data")
      C.shardrt_mesh_free(mesh[0])
      C.shardrt_close(recipe)
      return code
    end, "after shardrt_restore, because of: ", "the state is no JSON")

    case("while the job is left", function() C.shardrt_close(take_one()) end, function()
      C.shardrt_close(take_one())
      return C.shardrt_leave()
    end, "in the program, after shardrt_next of ")
  end)
end)

-- The command: options, paths, modules, and how a recipe's error ends it.

local mpi = require "tests.support.mpi"

local function count(text, piece)
  local n, from = 0, 1
  while true do
    local first, last = text:find(piece, from, true)
    if not first then return n end
    n, from = n + 1, last + 1
  end
end

describe("the command line", function()
  local function run(words, environment)
    return mpi.shell((environment or "") .. " " .. mpi.program() .. " " .. words)
  end

  it("answers --help and --version", function()
    local help = run "--help"
    assert.equal(0, help.status)
    assert.truthy(help.stdout:find("--devices N", 1, true))
    local version = run "--version"
    assert.equal(0, version.status)
    assert.truthy(version.stdout:match
      "^shardrt %d+%.%d+%.%d+\nMPI: [^\n]+\nGPUs: [^\n]+\nLuaJIT: [^\n]+\nbuilt in: [^\n]+\n$")
    version = run("--version", "SHARDRT_CUDA_PLUGIN=/dev/null")
    assert.same({ 0, true }, { version.status, version.stdout:find("\nGPUs: [^\n]*/dev/null") ~= nil }, version.output)
  end)

  it("ends with one line and status 2 where it is wrong", function()
    local cases = {
      ["--divices 2 x.lua"] = "unknown option --divices",
      ["--devices"] = "--devices wants a value",
      ["--devices two x.lua"] = 'not "two"',
      ["--devices 0 x.lua"] = 'not "0"',
      ["--devices 99999999999999999999 x.lua"] = "whole number",
      ["--check some x.lua"] = 'not "some"',
      ["--timeout -1 x.lua"] = "--timeout",
      ["no-such-recipe.lua"] = "no-such-recipe.lua",
      [""] = "no recipe",
      ["plan"] = "no recipe",
      ["plan --process 4 --processes 4 recipes"] = "--process",
      ["--process 1 recipes"] = "shardrt plan",
    }
    for words, expected in pairs(cases) do
      local result = run(words)
      assert.equal(2, result.status, words)
      assert.truthy(result.stderr:find(expected, 1, true), words .. ": " .. result.stderr)
      assert.equal(1, count(result.stderr, "\n"), result.stderr)
      assert.equal("", result.stdout)
    end
    assert.truthy(run("x.lua", "SHARDRT_DEVICES=many").stderr:find("SHARDRT_DEVICES", 1, true))
  end)

  it("says it once under mpirun, with status 2", function()
    for _, recipe in ipairs { "no-such-recipe.lua", "recipes" } do
      local result = mpi.run { processes = 4, recipe = recipe }
      assert.equal(2, result.status)
      assert.equal(1, count(result.output, "cannot read the recipe"))
    end
  end)

  it("gives the recipe its arguments and its path as given", function()
    local result = mpi.run { source = "print(arg[0], arg[1], arg[2], #arg, ...)", args = { "one", "--devices" } }
    assert.truthy(result.stdout:match "recipe%.lua\tone\t%-%-devices\t2\tone\t%-%-devices\n")
  end)

  it("takes the number of devices from the option, else from the environment, else 1", function()
    local source = "print(require('shardrt').local_device_count())"
    assert.equal("1\n", mpi.run { source = source, options = { "--platform", "host" } }.stdout) -- elsewhere, its GPUs
    assert.equal("3\n", mpi.run { source = source, env = { SHARDRT_DEVICES = 3 } }.stdout)
    assert.equal("2\n", mpi.run { source = source, devices = 2, env = { SHARDRT_DEVICES = 3 } }.stdout)
  end)
end)

describe("modules", function()
  it("are found in the recipe's own folder, from any working folder", function()
    local folder = mpi.folder()
    local function write(name, text)
      local file = assert(io.open(folder .. "/" .. name, "w"))
      file:write(text)
      file:close()
    end
    write("helper.lua", "return { answer = 42 }")
    write("recipe.lua", "require 'shardrt' print(require('helper').answer)")
    local program = mpi.program()
    if not program:match "^/" then program = "$OLDPWD/" .. program end
    local result = mpi.shell(("cd / && %s %s/recipe.lua"):format(program, folder))
    assert.equal("42\n", result.stdout)
    mpi.remove(folder)
  end)

  it("of shardrt are replaced by SHARDRT_LUA_PATH", function()
    local folder = mpi.folder()
    os.execute("mkdir -p " .. folder .. "/shardrt/layout")
    local file = assert(io.open(folder .. "/shardrt/layout/spec.lua", "w"))
    file:write "return { P = function() return 'another P' end }"
    file:close()
    local result = mpi.run { source = "print(require('shardrt.layout.spec').P())", env = { SHARDRT_LUA_PATH = folder } }
    assert.equal("another P\n", result.stdout)
    mpi.remove(folder)
  end)
end)

describe("a recipe's error", function()
  it("is one message with the recipe's line, and a status that is not 0", function()
    local result = mpi.run { source = "local x = 1\nerror('this is wrong')" }
    assert.equal(1, result.status)
    assert.truthy(result.stderr:match "recipe%.lua:2: this is wrong\n$")
    local syntax = mpi.run { source = "local = 1" }
    assert.equal(1, syntax.status)
    assert.truthy(syntax.stderr:match "recipe%.lua:1:")
    local list = mpi.run { source = "return require('shardrt').source.array { x = { 1, 2 } }[1]" }
    assert.truthy(list.stderr:find("a source is no list of samples: source:read(0, 1)", 1, true), list.stderr)
    local object = mpi.run { source = "error({})" }
    assert.truthy(object.stderr:find("an error that is a table", 1, true))
  end)

  it("raised by shardrt begins with the recipe's line", function()
    local result = mpi.run { source = "local shardrt = require 'shardrt'\n\nshardrt.loader{ sauce = 1 }" }
    assert.equal(1, result.status)
    assert.truthy(result.stderr:match "recipe%.lua:3: ")
  end)

  it("has the line of a call that the recipe ends with, where that is the only one", function()
    local head = "local shardrt = require 'shardrt'\n"
    local function told(body) return mpi.run({ source = head .. body }).stderr:match "recipe%.lua(:?%d*): loader: " end
    assert.equal(":3", told "\nreturn shardrt.loader {\n  sauce = 1,\n}")
    assert.equal(":3", told "\nreturn shardrt.loader(unpack {\n  1 })")
    assert.equal("", told "if arg[1] then return shardrt.loader {} end\nreturn shardrt.loader { sauce = 1 }")
    assert.equal(":2", told "if not arg[1] then shardrt.loader {} end\nreturn shardrt.loader { sauce = 1 }")
  end)

  it("keeps the status of os.exit", function()
    assert.equal(0, mpi.run { source = "os.exit(0)" }.status)
    assert.equal(0, mpi.run { source = "os.exit(true)" }.status)
    assert.equal(7, mpi.run { source = "os.exit(7)" }.status)
    assert.equal(1, mpi.run { source = "os.exit(false)" }.status)
  end)
end)

describe("a recipe for another program", function()
  local head = [[
local shardrt = require "shardrt"
local source = shardrt.source.array { x = shardrt.ndarray.arange(40, "float32") }
local function loader(size) return shardrt.loader { source = source, batch_size = size, epochs = 1 } end
]]
  local only_returns = "only returns loaders: a program of C, C++ or Python takes their batches (docs/c.md)"

  it("says in one line, once, that it only returns loaders", function()
    for _, returned in ipairs { "return loader(4)", "return { train = loader(4), test = loader(8) }" } do
      for _, processes in ipairs { false, 2 } do
        local result = mpi.run { source = head .. returned, processes = processes or nil }
        assert.equal(0, result.status, result.output)
        assert.equal(1, count(result.output, "\n"), result.output)
        assert.truthy(result.stderr:find(only_returns, 1, true), result.stderr)
      end
    end
    for _, other in ipairs { "for _ in loader(4) do end", "return 7", "return {}", "return { loader(4), 7 }" } do
      assert.equal("", mpi.run({ source = head .. other }).output)
    end
  end)

  it("is planned as any other", function()
    local folder = mpi.folder()
    local file = assert(io.open(folder .. "/recipe.lua", "w"))
    file:write(head, "return { train = loader(4), test = loader(8) }")
    file:close()
    local result = mpi.shell(("%s plan --processes 2 --devices 2 %s/recipe.lua"):format(mpi.program(), folder))
    mpi.remove(folder)
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find("recipe.lua:4: loader of 40 samples in batches of 4", 1, true), result.stdout)
    assert.truthy(result.stdout:find("recipe.lua:4: loader of 40 samples in batches of 8", 1, true), result.stdout)
    assert.equal("", result.stderr)
  end)
end)

describe("os.exit", function()
  it("with a status other than 0, in a job of several, is told by the process and its line", function()
    local result = mpi.run { processes = 3, source = [[
      local shardrt = require "shardrt"
      if shardrt.process_index() == 2 then os.exit(3) end
      shardrt.sync_global_devices "all"]] }
    assert.equal(3, result.status)
    assert.equal(1, count(result.stderr, "os.exit"), result.stderr)
    assert.truthy(result.stderr:match "process 2 of 3: [^\n]*recipe%.lua:2: os%.exit ended the job with status 3\n")
  end)

  it("says nothing alone", function()
    assert.equal("", mpi.run { source = "os.exit(3)" }.output)
  end)
end)

describe("shardrt test", function()
  local folder
  before_each(function() folder = mpi.folder() end)
  after_each(function() mpi.remove(folder) end)
  local function spec(name, text)
    local file = assert(io.open(folder .. "/" .. name, "w"))
    file:write(text)
    file:close()
  end
  local function test(options)
    return mpi.shell(("%s %s"):format(mpi.program(), options:gsub("FOLDER", folder)), 60)
  end

  it("runs a user's specs inside shardrt and counts them", function()
    spec("mine_spec.lua", [[
      local shardrt = require "shardrt"
      describe("mine", function()
        it("passes", function() assert.equal(1, shardrt.process_count()) end)
        it("fails", function() assert.equal(2, shardrt.process_count()) end)
      end)]])
    local result = test "test FOLDER"
    assert.truthy(result.output:find("1 success / 1 failure", 1, true), result.output)
    assert.not_equal(0, result.status)
  end)

  it("in a job of several processes is told by process 0, and by those that have failures", function()
    spec("mine_spec.lua", [[
      local shardrt = require "shardrt"
      describe("mine", function()
        it("passes", function() assert.same({ 4, 8 }, { shardrt.process_count(), shardrt.device_count() }) end)
        it("fails in one", function() assert.not_equal(2, shardrt.process_index()) end)
        it("raises in one", function() if shardrt.process_index() == 3 then error "this is wrong" end end)
        it("meets", function() shardrt.sync_global_devices "all" end)
      end)]])
    local result = test "run -n 4 --devices 2 test FOLDER"
    local text = result.stdout:gsub("\r", "")
    assert.not_equal(0, result.status)
    assert.equal(4, count(text, "+"), text) -- of process 0; what others say may stand between, on a full machine
    assert.truthy(text:find("\n4 successes / 0 failures / 0 errors / 0 pending", 1, true), text)
    assert.truthy(text:find("\nprocess 2: 3 successes / 1 failure / 0 errors / 0 pending", 1, true), text)
    assert.truthy(text:find("\nprocess 2: Failure -> " .. folder .. "/mine_spec.lua @ 4\nmine fails in one\n", 1, true),
      text)
    assert.truthy(text:find("\nprocess 3: Error -> " .. folder .. "/mine_spec.lua @ 5\nmine raises in one\n", 1, true),
      text)
    assert.equal(3, count(text, " pending : "), text)
    assert.is_nil(text:find("\27", 1, true))
  end)

  it("in a job of several processes that all pass is one count", function()
    spec("mine_spec.lua", 'it("passes", function() require("shardrt").sync_global_devices "all" end)')
    local result = test "run -n 2 test FOLDER"
    assert.equal(0, result.status, result.output)
    local all = "^%+\n1 success / 0 failures / 0 errors / 0 pending : [%d.]+ seconds\n$"
    assert.truthy(result.stdout:gsub("\r", ""):match(all), result.output)
  end)

  it("answers --help", function()
    local result = test "test --help"
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find("Usage: shardrt [options] test", 1, true), result.output)
    assert.is_nil(result.output:find("error:", 1, true), result.output)
  end)
end)

describe("shardrt run", function()
  it("starts mpirun by itself", function()
    local folder = mpi.folder()
    local file = assert(io.open(folder .. "/recipe.lua", "w"))
    file:write [[
      local s = require "shardrt"
      io.write(("%d of %d, %d %s\n"):format(s.process_index(), s.process_count(), s.local_device_count(), arg[1]))]]
    file:close()
    local result = mpi.shell(("%s run -n 3 --devices 2 %s/recipe.lua word"):format(mpi.program(), folder))
    assert.equal(0, result.status)
    for process = 0, 2 do
      assert.equal(1, count(result.stdout, ("%d of 3, 2 word\n"):format(process)))
    end
    mpi.remove(folder)
  end)

  it("says that a plan needs no other process", function()
    local result = mpi.shell(mpi.program() .. " run -n 2 plan recipe.lua")
    assert.equal(2, result.status)
    assert.truthy(result.stderr:find("shardrt plan --processes N", 1, true), result.output)
  end)
end)

describe("the words of the job", function()
  it("say a line once, and know a plan", function()
    local source = [[
      local shardrt = require "shardrt"
      shardrt.say("%d processes", shardrt.process_count())
      shardrt.say "100%"
      shardrt.say(tostring(shardrt.is_planning()))
      shardrt.sync_global_devices "the end"]]
    local result = mpi.run { processes = 3, source = source }
    assert.equal("3 processes\n100%\nfalse\n", result.stdout, result.output)
    result = mpi.run { options = { "plan", "--processes", "3" }, source = source }
    assert.equal(1, count(result.stdout, "3 processes\n100%\ntrue\n"), result.output)
    result = mpi.run { source = "\nrequire('shardrt').sync_global_devices()" }
    assert.truthy(result.stderr:match "recipe%.lua:2: sync_global_devices: it takes a name, not nil", result.output)
  end)

  it("say the number of an array where a number is wanted, and leave such a line out of a plan", function()
    local has = require("tests.support.expect").contains
    local source = [[
      local shardrt = require "shardrt"
      local np = require "shardrt.numpy"
      local mesh = shardrt.make_mesh({ 3 }, { "x" })
      local rows = shardrt.NamedSharding(mesh, shardrt.P "x")
      local x = shardrt.device_put(shardrt.ndarray.arange(6, "float32"), rows)
      local last = shardrt.device_put(7, shardrt.devices()[1])
      shardrt.say("step %d: %5.2f of 100%% and %d, %s", 3, np.sum(x), last, x)
      shardrt.say("%s is %q", last, "it")
      print(pcall(shardrt.say, "%d", x))
      shardrt.say "the end"]]
    local result = mpi.run { processes = 3, source = source }
    has(result.stdout, "step 3: 15.00 of 100% and 7, Array(float32 {6}, ")
    has(result.stdout, '\nArray(float32 {}, SingleDeviceSharding(device 0)): 7 is "it"\n')
    assert.equal(3, count(result.stdout, ": item: an array of shape {6}; it is of one number"), result.output)
    has(result.stdout, "the end\n")
    result = mpi.run { options = { "plan", "--processes", "3" }, source = source }
    assert.equal(0, result.status, result.output)
    assert.is_nil(result.stdout:find("step 3", 1, true), result.output)
    has(result.stdout, "the end\n")
    has(result.stdout, ": item: an array of shape {6}; it is of one number")
    has(result.stdout, "recipe.lua:5: device_put")
  end)

  it("that meet at different places are an error that names them", function()
    local result = mpi.run { processes = 2, source = [[
      local shardrt = require "shardrt"
      shardrt.sync_global_devices(shardrt.process_index() == 0 and "here" or "there")]] }
    assert.not_equal(0, result.status)
    for _, name in ipairs { '"here"', '"there"', "recipe.lua:2" } do
      assert.truthy(result.stderr:find(name, 1, true), result.output)
    end
  end)
end)

describe("an array of variable length", function()
  -- LuaJIT makes one that it had sunk with a length of 2^32 - 1, and so without room for its elements.
  it("that leaves compiled code has room for its elements", function()
    local result = mpi.run { limit = 120, source = [[
      local ffi = require "ffi"
      local int64s = ffi.typeof "int64_t[?]"
      local kept = {}
      local function one(i)
        local values = int64s(1)
        values[0] = i
        if i % 100 == 0 then kept[#kept + 1] = values end
        return values[0]
      end
      local sum = 0
      for i = 1, 2e5 do sum = sum + tonumber(one(i)) end
      for i, values in ipairs(kept) do
        if ffi.sizeof(values) ~= 8 then error(("number %d has %d bytes"):format(i, ffi.sizeof(values))) end
        if values[0] ~= 100 * i then error(("number %d holds %d"):format(i, tonumber(values[0]))) end
      end
      print(sum, #kept)]] }
    assert.equal("20000100000\t2000\n", result.output)
    assert.equal(0, result.status)
  end)
end)

describe("a loop over pairs or next", function()
  -- https://github.com/LuaJIT/LuaJIT/issues/827: after some ten thousand rounds, loops end early or begin again.
  local function lost(head, inner)
    return mpi.run { limit = 120, source = ([[
      local function back(...) for _ = 1, 100 do end end -- to where nothing is compiled
      local values = { 1, 2, 3, 4, 5 }
      local function try(tree, expected)
        for round = 1, 100000 do
          back()
          local count = 0
          for _, value in %s do
            for _ in %s do end
            count = count + 1
          end
          if count ~= expected then error(("round %%d: %%d of %%d entries"):format(round, count, expected)) end
        end
      end
      try({ values, values, values, values, values }, 5)
      try({ a = values, values, values, values }, 4)
      try({ a = values, b = values, c = values, d = values }, 4)
    ]]):format(head, inner) }
  end

  for _, case in ipairs {
    { "pairs(tree)", "pairs(value)" }, { "next, tree", "next, value" }, { "pairs(tree)", "next, value" },
  } do
    it(("takes every entry once, compiled: %s, %s"):format(case[1], case[2]), function()
      local result = lost(case[1], case[2])
      assert.equal("", result.output)
      assert.equal(0, result.status)
    end)
  end

  it("in specs and in libraries is such a one, too", function()
    assert.truthy(debug.getinfo(pairs, "S").source:find "sorted_pairs")
    assert.truthy(debug.getinfo(next, "S").source:find "sorted_pairs")
    for _, f in ipairs { pairs {}, (pairs { 1, a = 2 }) } do assert.are_not.equal("C", debug.getinfo(f, "S").what) end
    local ok, message = pcall(function() return pairs(nil) end)
    assert.is_false(ok)
    assert.truthy(message:find "bad argument #1 to 'pairs' %(table expected, got nil%)", message)
    assert.is_nil(next {})
    assert.same({ 1, "x" }, { next { "x" } })
  end)

  it("goes through names in ascending order behind the rest, and may remove them", function()
    local t, keys = { 30, 10, [2.5] = 1, [true] = 2 }, {}
    for i = 1, 40 do t[("n%02d"):format(i * 7 % 41)] = i end
    for key in pairs(t) do
      keys[#keys + 1] = key
      t[key], t.n25 = nil, nil
    end
    local names = {}
    for i, key in ipairs(keys) do
      assert.equal(i > 4, type(key) == "string")
      if i > 4 then names[#names + 1] = key end
    end
    assert.equal(39, #names)
    for i = 2, #names do assert.is_true(names[i - 1] < names[i]) end
    assert.is_nil(next(t))
  end)
end)

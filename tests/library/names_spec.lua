-- What other code in the process sees of shardrt, and shardrt of it.

local expect = require "tests.support.expect"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

local build = library.folder()
local shared = os.getenv "SHARDRT_SANITIZER" and pending or it -- a sanitizer's library is static, and shows all

-- The names that a file shows to others.
local function shown(file)
  local names = {}
  for line in mpi.shell("nm -D --defined-only " .. file).stdout:gmatch "[^\n]+" do
    names[#names + 1] = line:match "%S+$"
  end
  return names
end

-- The linker's own, which it shows where a library of the program asks for them, as some of sound do.
local LINKER = { __bss_start = true, _edata = true, _end = true }

local function only_public(file)
  local names = shown(file)
  assert.is_true(#names > 100, file)
  for _, name in ipairs(names) do
    assert.truthy(LINKER[name] or name:match "^shardrt_", file .. " shows " .. name)
  end
end

describe("the names of shardrt", function()
  local folder = mpi.folder()
  teardown(function() mpi.remove(folder) end)

  shared("are all that its library shows", function()
    only_public(build .. "/libshardrt.so.0")
    local head = mpi.shell(("readelf -d %s/libshardrt.so"):format(build)).stdout
    expect.contains(head, "soname: [libshardrt.so.0]")
    assert.is_nil(head:find("luajit", 1, true)) -- which it opens by itself
    local static = mpi.shell("nm --defined-only --extern-only " .. build .. "/libshardrt.a")
    local count = 0
    for name in static.stdout:gmatch " [A-Z] (%S+)" do
      assert.truthy(name:match "^shardrt_", name)
      count = count + 1
    end
    assert.is_true(count > 100)
  end)

  -- What each needs of others: an MPI's library is needed by its plug-in alone.
  shared("need no MPI: a plug-in does, of which each shows one", function()
    local function needed(file)
      return mpi.shell(("readelf -d %s/%s"):format(build, file)).stdout:gsub("[^\n]*%(SONAME%)[^\n]*", "")
    end
    for _, file in ipairs { "shardrt", "libshardrt.so.0" } do
      local text = needed(file)
      expect.contains(text, "Shared library: [libc.so.6]")
      assert.is_nil(text:find "mpi", text)
    end
    local plugins = mpi.shell(("cd %s && ls shardrt-*mpi*.so"):format(build)).stdout
    assert.truthy(plugins:find "shardrt%-%w+%.so", plugins)
    for file in plugins:gmatch "%S+" do
      assert.same({ "shardrt_mpi" }, shown(build .. "/" .. file))
      local mpis = {}
      for name in needed(file):gmatch "Shared library: %[(libmpi[^%]]*)%]" do mpis[#mpis + 1] = name end
      local names = { openmpi = "libmpi.so.40", mpich = "libmpi.so.12", libmpich = "libmpich.so.12" }
      assert.same({ names[file:match "^shardrt%-(%w+)"] }, mpis, file)
    end
  end)

  shared("are all that the program shows which users have", function()
    local command = "make --no-print-directory -s BUILD=%s ASSERTS=1 %s/users/shardrt"
    local made = mpi.shell(command:format(build, build), 120)
    assert.equal(0, made.status, made.output)
    only_public(build .. "/users/shardrt")
  end)

  shared("do not meet those of the program that opens the library for itself alone, or those of its Lua", function()
    local recipe = folder .. "/recipe.lua"
    local file = assert(io.open(recipe, "w"))
    file:write [[
      local shardrt = require "shardrt"
      local source = shardrt.source.array { x = shardrt.ndarray.arange(64, "float32") }
      return shardrt.loader { source = source, batch_size = 4, epochs = 1, num_workers = 2, transform = {
        x = { shardrt.transform.lua(function(sample) return 2 * sample.data[0] end) } } }
    ]]
    file:close()
    local program = library.build(folder, "tests/library/crowded.c", "-Wl,-E -Wl,--as-needed -ldl")
    -- The library that the compiler was told of is not the one that the program opens.
    local result = expect.well(library.run(("%s %s/libshardrt.so.0 %s"):format(program, build, recipe)))
    assert.equal("16 batches\n", result.stdout)
  end)
end)

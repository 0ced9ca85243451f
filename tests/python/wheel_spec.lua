-- long: 60 s
-- The wheel that SHARDRT_WHEEL names (`make test-wheel` makes it, and names it), as a user has it: in a fresh
-- environment of Debian's Python, away from the tree.

local contains = require("tests.support.expect").contains
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

local wheel = os.getenv "SHARDRT_WHEEL"

-- What every system has that may install it: glibc, and what manylinux (PEP 600) takes for granted beside it. MPI is
-- the user's own.
local SYSTEMS = {}
for name in ([[
  linux-vdso.so.1 ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0 libresolv.so.2
  libgcc_s.so.1 libstdc++.so.6 libz.so.1]]):gmatch "%S+" do SYSTEMS[name] = true end
local MPIS = { ["libmpi.so.40"] = "openmpi", ["libmpi.so.12"] = "mpich", ["libmpich.so.12"] = "libmpich" }

local SCRIPT = [[
import os, sys
import shardrt
assert shardrt.__file__.startswith(sys.argv[1]), shardrt.__file__
with shardrt.open(sys.argv[2], devices=2) as data:
    rows = [int(shard.index[0].start) for shard in next(iter(data))["x"].shards]
    print(shardrt.__version__, len(data), rows, flush=True)
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if ".so" in line}
    for path in sorted(loaded):
        name = os.path.basename(path)
        if name.startswith(("libshardrt", "libluajit", "libopenblas", "libhdf5", "libcurl", "libssl")):
            assert path.startswith(sys.argv[1]), path
            print(name.split("-")[0].split(".")[0], end=" ")
]]

describe("the wheel", function()
  if not wheel then
    pending "SHARDRT_WHEEL names none: make test-wheel"
    return
  end
  local folder, inside, python
  setup(function()
    folder = files.folder()
    local command = "cd %s && /usr/bin/python3 -m venv env && env/bin/pip install -q --no-index --no-deps %s && "
      .. "env/bin/python -c 'import shardrt; print(shardrt.__file__)'"
    local result = mpi.shell(command:format(folder, wheel), 120)
    assert.equal(0, result.status, result.output)
    inside = result.stdout:match "^(.*)/shardrt/__init__%.py\n$"
    assert.truthy(inside and inside:find(folder, 1, true), result.output)
    python = folder .. "/env/bin/python -B "
    files.write(folder, "script.py", SCRIPT)
    files.write(folder, "r.lua", [[
      local shardrt, np = require "shardrt", require "shardrt.numpy"
      local ones = np.ones { 8, 8 }
      assert(shardrt.device_get(np.sum(np.dot(ones, ones))):item() == 512) -- by OpenBLAS
      local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
      return shardrt.loader { source = shardrt.source.array { x = shardrt.ndarray.arange(64, "float32") },
        batch_size = 16, epochs = 1, sharding = shardrt.NamedSharding(mesh, shardrt.P "data") }]])
  end)
  teardown(function() files.remove(folder) end)

  -- Runs the script from a folder that holds nothing.
  local function start(launcher)
    return mpi.shell(("mkdir -p %s/empty && cd %s/empty && export %s && env -u LD_LIBRARY_PATH -u SHARDRT_LIBRARY "
      .. "-u PYTHONPATH %s %s %s/script.py %s %s/r.lua"):format(folder, folder, mpi.environment, launcher or "", python,
      folder, inside, folder))
  end

  it("opens a recipe, with libraries of its own alone", function()
    local result = start()
    assert.equal(0, result.status, result.output)
    local version = wheel:match "shardrt%-([%d.]+)%-py3%-none%-[%w_]*linux[%w_]*_x86_64%.whl$"
    contains(result.stdout, version .. " 4 [0, 8]\n")
    contains(result.stdout, "libcurl libhdf5_serial libssl libluajit libopenblas libshardrt")
  end)

  it("is one job under OpenMPI's mpirun, and under MPICH's mpiexec", function()
    local launchers = { "mpirun -n 2" }
    if mpi.shell("command -v mpiexec.hydra").status == 0 then launchers[2] = "mpiexec.hydra -n 2" end
    for _, launcher in ipairs(launchers) do
      local result = start(launcher)
      assert.equal(0, result.status, result.output)
      contains(result.stdout, " 4 [0, 4]\n")
      contains(result.stdout, " 4 [8, 12]\n")
    end
  end)

  it("has the command, which finds its plug-ins, also under mpirun", function()
    files.write(folder, "count.lua", [[
      local shardrt, np = require "shardrt", require "shardrt.numpy"
      assert(shardrt.device_get(np.sum(np.ones { 8, 8 })):item() == 64)
      print(("process %d of %d"):format(shardrt.process_index(), shardrt.process_count()))]])
    local bare = ("cd %s/empty && export %s && env -u LD_LIBRARY_PATH -u SHARDRT_LIBRARY -u PYTHONPATH "):format(folder,
      mpi.environment)
    local version = wheel:match "shardrt%-([%d.]+)%-py3"
    for _, command in ipairs { folder .. "/env/bin/shardrt", python .. "-m shardrt" } do
      local result = mpi.shell(bare .. command .. " --version")
      assert.equal("shardrt " .. version, result.stdout:match "^[^\n]*", result.output)
      result = mpi.shell(("%smpirun -n 2 %s %s/count.lua"):format(bare, command, folder))
      assert.equal(0, result.status, result.output)
      contains(result.stdout, "process 0 of 2\n", "process 1 of 2\n")
    end
    local result = mpi.shell(bare .. folder .. "/env/bin/shardrt run -n 2 " .. folder .. "/count.lua")
    assert.equal(0, result.status, result.output)
    contains(result.stdout, "process 1 of 2\n")
  end)

  it("needs nothing but what every system has, and, of its plug-ins, MPI", function()
    local list = mpi.shell(("cd %s && find shardrt shardrt.libs -name '*.so*'"):format(inside)).stdout
    local held, count, plugins = {}, 0, {}
    for path in list:gmatch "[^\n]+" do held[path:match "[^/]*$"] = true end
    for path in list:gmatch "[^\n]+" do
      local dynamic = mpi.shell(("readelf -d %s/%s"):format(inside, path)).stdout
      for name in dynamic:gmatch "%(NEEDED%)[^%[]*%[([^%]]*)%]" do
        if MPIS[name] then
          plugins[path] = MPIS[name]
        else
          assert.truthy(SYSTEMS[name] or held[name], path .. " needs " .. name)
        end
      end
      for place in (dynamic:match "R[UN]*PATH%)[^%[]*%[([^%]]*)%]" or ""):gmatch "[^:]+" do
        assert.truthy(place:find("^%$ORIGIN"), path .. " looks in " .. place)
      end
      count = count + 1
    end
    assert.is_true(count > 30, list)
    assert.same({ ["shardrt/shardrt-openmpi.so"] = "openmpi", ["shardrt/shardrt-mpich.so"] = "mpich",
      ["shardrt/shardrt-libmpich.so"] = "libmpich" }, plugins)
  end)

  it("holds the licences of all that it carries", function()
    local notices = mpi.shell(("cd %s/shardrt-*.dist-info/licenses && ls"):format(inside)).stdout
    for _, name in ipairs { "LICENSE\n", "libluajit%-5.1%-2.copyright\n", "libopenblas", "libhdf5", "libcurl4",
      "LGPL%-2.1" } do
      assert.truthy(notices:find(name), name .. " is not in\n" .. notices)
    end
    local libraries = mpi.shell(("ls %s/shardrt.libs | wc -l"):format(inside)).stdout
    local _, count = notices:gsub("%.copyright\n", "")
    assert.is_true(count > tonumber(libraries) / 2, notices) -- some packages hold several
  end)

  it("says what it is to types: its package is typed", function()
    assert.equal(0, mpi.shell(("test -e %s/shardrt/py.typed"):format(inside)).status)
  end)
end)

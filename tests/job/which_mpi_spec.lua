-- Which MPI a process opens, by which plug-in: one program for OpenMPI, for MPICH, and for a process alone.

local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"
local contains = require("tests.support.expect").contains

local build = library.folder()
local OPENMPI, MPICH = "mpirun -n 2 ", "mpiexec.hydra -n 2 "

local function is_there(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

-- Why MPICH cannot be tried here; nil: it can.
local function without_mpich()
  if mpi.shell("command -v mpiexec.hydra").status ~= 0 then return "no mpiexec.hydra: Debian's mpich has it" end
  if is_there(build .. "/shardrt-libmpich.so") then return nil end
  return "no plug-in for MPICH: Debian's libmpich-dev has mpi.h"
end

-- The plug-in that finds its MPICH here: its library has Debian's name, and on Debian 13 everybody else's, too.
local function mpich_plugin()
  local named = mpi.shell [[python3 -c 'import ctypes; ctypes.CDLL("libmpi.so.12")']]
  return named.status == 0 and "shardrt-mpich" or "shardrt-libmpich"
end

-- What the process has loaded of any MPI, and what it has of the job.
local RECIPE = [[
  local shardrt = require "shardrt"
  local P = shardrt.P
  local found, seen = {}, {}
  for line in io.lines "/proc/self/maps" do
    local name = line:match "/(shardrt%-[%w_]*mpi[%w_]*)%.so" or line:match "/(libmpi[%w_]*%.so%.%d+)"
    if name and not seen[name] then found[#found + 1], seen[name] = name, true end
  end
  table.sort(found)
  local count = shardrt.device_count()
  local mesh = shardrt.make_mesh({ count }, { "data" })
  local np = require "shardrt.numpy"
  local rows = np.reshape(np.arange(4 * count), { count, 4 })
  local cut = shardrt.device_put(rows, shardrt.NamedSharding(mesh, P "data"))
  local turned = shardrt.device_put(cut, shardrt.NamedSharding(mesh, P(nil, nil)))
  local total = shardrt.device_get(np.sum(turned)):item()
  io.write(("%d of %d, sum %d: %s\n"):format(shardrt.process_index(), shardrt.process_count(), total,
    table.concat(found, " ")))
]]

describe("the MPI of a process", function()
  local folder, recipe
  setup(function()
    folder = files.folder()
    recipe = files.write(folder, "recipe.lua", RECIPE)
  end)
  teardown(function() files.remove(folder) end)

  local function start(launcher, program, path)
    return mpi.shell(("export %s; %s %s --devices 2 %s"):format(mpi.environment, launcher, program or mpi.program(),
      path or recipe))
  end

  -- Both processes see each other, and have `loaded`.
  local function joins(result, loaded)
    assert.equal(0, result.status, result.output)
    assert.equal("", result.stderr)
    local lines = {}
    for line in result.stdout:gmatch "[^\n]+" do lines[#lines + 1] = line end
    table.sort(lines)
    assert.same({ "0 of 2, sum 120: " .. loaded, "1 of 2, sum 120: " .. loaded }, lines)
  end

  it("is none where the process is alone: neither a plug-in nor a library is loaded", function()
    local result = start ""
    assert.equal(0, result.status, result.output)
    assert.equal("0 of 1, sum 28: \n", result.stdout)
  end)

  it("is OpenMPI under its mpirun", function()
    if not is_there(build .. "/shardrt-openmpi.so") then return pending "no plug-in for OpenMPI" end
    joins(start(OPENMPI), "libmpi.so.40 shardrt-openmpi")
  end)

  it("is MPICH under mpiexec.hydra, which ends the job with one message", function()
    local reason = without_mpich()
    if reason then return pending(reason) end
    joins(start(MPICH), "libmpich.so.12 " .. mpich_plugin())
    local failing = files.write(folder, "failing.lua", [[
      local shardrt = require "shardrt"
      if shardrt.process_index() == 1 then error "this is wrong" end
      shardrt.sync_global_devices "here"]])
    local result = start(MPICH, nil, failing)
    assert.equal(1, result.status, result.output)
    assert.equal(("shardrt: process 1 of 2: %s:2: this is wrong\n"):format(failing), result.stderr)
    -- Nobody is waited for longer than is said, and who is missing is named.
    local waiting = files.write(folder, "waiting.lua", [[
      local shardrt = require "shardrt"
      if shardrt.process_index() == 1 then while true do end end
      shardrt.sync_global_devices "here"]])
    result = start(MPICH, mpi.program() .. " --timeout 2", waiting)
    assert.not_equal(0, result.status)
    contains(result.stderr, "process 1")
  end)

  it("is MPICH under mpiexec.hydra, which returns the status of a job that was asked to end", function()
    local reason = without_mpich()
    if reason then return pending(reason) end
    local stopping = files.write(folder, "stopping.lua", ([[
      local shardrt = require "shardrt"
      local checkpoint = shardrt.checkpoint { dir = %q, every = 1e6 }
      assert(io.open(%q, "w")):close()
      while true do checkpoint:step() end]]):format(folder .. "/saved", folder .. "/begun"))
    local result = mpi.shell(([[export %s; %s %s --devices 2 %s & job=$!
      until [ -e %s/begun ]; do sleep 0.1; done
      kill -USR1 $job; wait $job]]):format(mpi.environment, MPICH, mpi.program(), stopping, folder))
    assert.equal(85, result.status, result.output)
    local _, told = result.stderr:gsub("the job was stopped by SIGUSR1 at step %d+, which is saved in ", "")
    assert.equal(1, told, result.output)
  end)

  it("is that which the program has begun, though nobody else sees it", function()
    local python = library.python()
    if not python then return pending "no shared library is built with sanitizers" end
    local script = files.write(folder, "own.py", [[
import ctypes, os, sys
own = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_LOCAL)
assert own.MPI_Init_thread(None, None, 1, ctypes.byref(ctypes.c_int())) == 0
import shardrt
with shardrt.open(sys.argv[2], devices=2) as data:
    starts = [shard.index[0].start for shard in next(iter(data))["x"].shards]
    os.write(1, f"{len(data)} {starts}\n".encode()) # at once: other processes' words come between two writes
own.MPI_Finalize()
]])
    local stream = files.write(folder, "stream.lua", [[
      local shardrt = require "shardrt"
      local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
      return shardrt.loader { source = shardrt.source.array { x = shardrt.ndarray.arange(64, "float32") },
        batch_size = 16, epochs = 1, sharding = shardrt.NamedSharding(mesh, shardrt.P "data") }]])
    local ways = { [OPENMPI] = "libmpi.so.40", [MPICH] = not without_mpich() and "libmpich.so.12" or nil }
    for launcher, name in pairs(ways) do
      local result = start(launcher .. python, ("%s %s %s"):format(script, name, stream), "")
      assert.equal(0, result.status, result.output)
      contains(result.stdout, "4 [0, 4]\n")
      contains(result.stdout, "4 [8, 12]\n")
    end
  end)

  it("is that which the program is linked with, on a communicator of it", function()
    if os.getenv "SHARDRT_SANITIZER" then return pending "no shared library is built with sanitizers" end
    local source = files.write(folder, "linked.c", [[
      #include <mpi.h>
      #include <shardrt.h>
      #include <stdio.h>
      int main(int argc, char **argv) {
        int rank, provided;
        MPI_Comm some;
        MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_split(MPI_COMM_WORLD, rank == 1 ? MPI_UNDEFINED : 0, -rank, &some);
        shardrt_options options;
        shardrt_options_init(&options);
        options.mpi_comm = &some;
        shardrt_job *job;
        int64_t mine = rank, all[2];
        if (rank == 1) return MPI_Finalize();
        if (shardrt_job_open(&options, &job) != 0 || shardrt_allgather(job, "ranks", &mine, sizeof mine, all) != 0 ||
            shardrt_job_close(job) != 0)
          return printf("%s\n", shardrt_error_message()), 1;
        MPI_Barrier(some);
        printf("%d and %d\n", (int)all[0], (int)all[1]);
        return MPI_Finalize();
      }]])
    local tried = 0
    for compiler, launcher in pairs { mpicc = "mpirun -n 3", ["mpicc.mpich"] = "mpiexec.hydra -n 3" } do
      local is_mpich = compiler ~= "mpicc"
      local can = not (is_mpich and without_mpich()) and
        mpi.shell(("%s -E %s >/dev/null -I%s/include"):format(compiler, source, build)).status == 0
      if can then
        local command = "%s -Wall -Werror -I%s/include -o %s/linked %s -L%s -lshardrt -Wl,-rpath,%s"
        local result = mpi.shell(command:format(compiler, build, folder, source, build, build))
        assert.equal(0, result.status, result.output)
        result = start(launcher, folder .. "/linked", "")
        assert.equal("2 and 0\n2 and 0\n", result.stdout, result.output)
        tried = tried + 1
      end
    end
    assert.is_true(tried > 0)
  end)

  it("is missing in one line, which says where was looked and what would do", function()
    assert(os.execute(("cp %s %s/shardrt"):format(mpi.program(), folder)) == 0)
    local alone = folder .. "/shardrt"
    local function refused(variables, ...)
      local result = start("env " .. variables, alone)
      assert.equal(1, result.status, result.output)
      assert.equal(1, select(2, result.stderr:gsub("\n", "")), result.stderr)
      for _, piece in ipairs { "finds itself alone", "shardrt run -n", ... } do contains(result.stderr, piece) end
    end
    local openmpi = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0"
    local looked = "there is no OpenMPI plug-in, shardrt-openmpi.so, in %s, %s/../lib/shardrt or %s/shardrt: "
    refused(openmpi, looked:format(folder, folder, folder), "OMPI_COMM_WORLD_SIZE is 2", "SHARDRT_MPI_PLUGIN names one")
    refused("PMI_SIZE=2 PMI_RANK=0", "there is no MPICH plug-in, shardrt-mpich.so", "PMI_SIZE is 2")
    -- PMIx says of the first process alone nothing but its name.
    refused("PMIX_RANK=0 PMIX_NAMESPACE=gone PMIX_SERVER_URI2=gone", "there is no OpenMPI plug-in", "PMIX_RANK is 0")
    refused(openmpi .. " SHARDRT_MPI_PLUGIN=/nowhere.so",
      "SHARDRT_MPI_PLUGIN: the OpenMPI plug-in cannot be loaded: /nowhere.so", "LD_LIBRARY_PATH")
    local old = files.write(folder, "old.c", [[
      static const unsigned version = 0;
      const void *shardrt_mpi(const void *host) { return (void)host, &version; }]])
    assert(os.execute(("cc -shared -fPIC -o %s/shardrt-openmpi.so %s"):format(folder, old)) == 0)
    refused(openmpi, folder .. "/shardrt-openmpi.so is no plug-in of this shardrt; `make` builds both alike")
    os.remove(folder .. "/shardrt-openmpi.so")
    -- Where one process was started, and nobody else is missed, none is needed.
    for _, one in ipairs { "OMPI_COMM_WORLD_SIZE=1", "PMI_SIZE=1 PMI_RANK=0" } do
      assert.equal("0 of 1, sum 28: \n", start("env " .. one, alone).stdout)
    end
  end)

  it("is found where shardrt is installed, also by a program that holds all of it and lies elsewhere", function()
    local copying = "mkdir -p %s/prefix/lib/shardrt %s/prefix/bin && cp %s/shardrt-openmpi.so %s/prefix/lib/shardrt && "
      .. "cp %s %s/prefix/bin/shardrt"
    assert(os.execute(copying:format(folder, folder, build, folder, mpi.program(), folder)) == 0)
    joins(start(OPENMPI, folder .. "/prefix/bin/shardrt"), "libmpi.so.40 shardrt-openmpi")
    if os.getenv "SHARDRT_SANITIZER" then return pending "a sanitizer opens libraries by itself" end
    local source = files.write(folder, "static.c", [[
      #include <shardrt.h>
      #include <stdio.h>
      int main(int argc, char **argv) {
        shardrt_options options;
        shardrt_options_init(&options);
        options.devices = 2;
        shardrt_recipe *recipe;
        if (shardrt_join(&options) != 0 || shardrt_open(argv[1], argc - 2, (const char *const *)argv + 2, &recipe) != 0)
          return printf("%s\n", shardrt_error_message()), 1;
        shardrt_close(recipe);
        return shardrt_leave() != 0;
      }]])
    local told = files.write(folder, "told.lua", RECIPE .. [[
      local source = shardrt.source.array { x = shardrt.ndarray.arange(64, "float32") }
      return shardrt.loader { source = source, batch_size = 4 }]])
    local command = "cc -Wall -Werror -o %s/static %s %s/libshardrt.a $(PKG_CONFIG_PATH=%s pkg-config "
      .. "--define-variable=libdir=%s/prefix/lib --define-variable=includedir=%s/include --static --cflags --libs "
      .. "shardrt | sed s/-lshardrt//)"
    local result = mpi.shell(command:format(folder, source, build, build, folder, build))
    assert.equal(0, result.status, result.output)
    joins(mpi.shell(("export %s; %s %s/static %s"):format(mpi.environment, OPENMPI, folder, told)),
      "libmpi.so.40 shardrt-openmpi")
  end)
end)

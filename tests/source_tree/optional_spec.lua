-- long: 30 s
-- A shardrt that was built without any library that may be missing (`make WITHOUT=all`): it runs, each word that needs
-- one of them names it, and what it computes in their place is the same. Only the sources that know of a library are
-- compiled anew.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

-- What words say of the library that they need; "": they work.
local SAID = {
  ["hdf5"] = "HDF5 (libhdf5)", ["http"] = "curl (libcurl)", ["jpeg"] = "JPEG (libjpeg-turbo)",
  ["png"] = "PNG (libspng)", ["webp"] = "WebP (libwebp)", ["sound"] = "sound (libsndfile)",
  ["zarr of blosc"] = "Blosc (libblosc)", ["zarr of zstd"] = "Zstandard (libzstd)", ["zarr of gzip"] = "",
  ["array_record of brotli"] = "Brotli (libbrotlidec)", ["array_record of zstd"] = "Zstandard (libzstd)",
  ["array_record of snappy"] = "Snappy (libsnappy)", ["array_record"] = "", ["mds of zstd"] = "Zstandard (libzstd)",
  ["mds with hashes of XXH"] = "xxHash (libxxhash)", ["mds with hashes of SHA"] = "OpenSSL (libcrypto)", ["mds"] = "",
  ["parquet of lz4"] = "LZ4 (liblz4)", ["parquet of snappy"] = "Snappy (libsnappy)", ["parquet of gzip"] = "",
  ["parquet"] = "", ["idx"] = "",
  ["arrow of lz4"] = "LZ4 (liblz4)", ["arrow of zstd"] = "Zstandard (libzstd)", ["arrow"] = "",
}

local CLEAN = "env -u MAKEFLAGS -u CFLAGS -u CPPFLAGS -u LDFLAGS -u ASSERTS -u SANITIZE -u CUDA_KERNELS"

describe("a shardrt without libraries", function()
  if os.getenv "SHARDRT_SANITIZER" then
    pending "is built from objects of a build without sanitizers"
    return
  end
  local folder, program, built
  setup(function()
    folder = mpi.folder()
    program = folder .. "/build/shardrt"
    local command = "mkdir %s/build && cd %s && "
      .. "find . -name cuda -prune -o -type f ! -name '*.so' ! -name '*.so.*' ! -name '*.a' ! -name shardrt -print | "
      .. "tar -cf - --format=posix -T - | tar -xf - -C %s/build && cd - >/dev/null && "
      .. "%s make BUILD=%s/build ASSERTS=1 OPTIMIZE=-O0 WITHOUT=all CUDA_HOME=/nowhere %s"
    built = mpi.shell(command:format(folder, mpi.program():match "^(.*)/", folder, CLEAN, folder, program), 300)
    assert.equal(0, built.status, built.output)
    local unpack = "cd %s && tar -xzf %s/tests/files/arrays.tar.gz && for name in brotli zstd snappy uncompressed; do "
      .. "gunzip -c %s/tests/files/array_record/$name-1.array_record.gz > $name-1.array_record; done; "
      .. "cp -r %s/tests/files/mds %s/tests/files/parquet %s/tests/files/arrow ."
    local here = mpi.shell("pwd").stdout:match "[^\n]+"
    assert.equal(0, mpi.shell(unpack:format(folder, here, here, here, here, here)).status)
    files.write(folder, "x", "\0\0\8\1\0\0\0\4abcd") -- IDX: uint8 {4}
    assert.equal(0, mpi.shell(("gzip %s/x"):format(folder)).status)
  end)
  teardown(function() mpi.remove(folder) end)

  it("is made by compiling what knows of a library, and nothing else", function()
    local known = mpi.shell("grep -rl --include='*.c' SHARDRT_WITHOUT_ runtime").stdout
    local compiled = {}
    for path in built.stdout:gmatch "  cc     %S+/build/(%S+)%.o\n" do compiled[#compiled + 1] = path end
    assert.is_true(#compiled >= 10)
    for _, path in ipairs(compiled) do
      local needs = path == "base/libraries" or known:find(("runtime/%s.c\n"):format(path), 1, true)
      assert.truthy(needs, path .. " is compiled anew")
    end
  end)

  it("needs LuaJIT and zlib alone, says so, and runs", function()
    local version = mpi.shell(program .. " --version").stdout
    assert.truthy(version:find "\nMPI: .-\nLuaJIT: LuaJIT 2.*\nbuilt in: no more than it needs\n", version)
    local needed = mpi.shell(("objdump -p %s | sed -n 's/^ *NEEDED *//p'"):format(program)).stdout
    local count = 0
    for name in needed:gmatch "[^\n]+" do
      count = count + 1
      local kind = name:match "^%a+"
      assert.truthy(kind == "libc" or kind == "libm" or kind == "libluajit" or kind == "libz" or kind == "ld", needed)
    end
    assert.is_true(count >= 3)
    local result = mpi.shell(program .. " --devices 8 recipes/layouts.lua")
    assert.equal(0, result.status, result.output)
  end)

  it("names what a word lacks, and computes what libraries would", function()
    local command = "%s tests/support/source_tree/without.lua " .. folder
    local without, with = mpi.shell(command:format(program)), mpi.shell(command:format(mpi.program()))
    assert.equal(0, without.status, without.output)
    local count = 0
    for word, library in pairs(SAID) do
      local line = ("\n" .. without.stdout):match(("\n%s: ([^\n]*)"):format(word))
      local expected = library == "" and "works" or "this shardrt was built without " .. library
      assert.truthy(line and line:find(expected, 1, true), word .. ": " .. tostring(line))
      count = count + 1
    end
    assert.equal(count, select(2, without.stdout:gsub("\n[a-z0-9_ A-Z]+: ", "")) + 1)
    for _, name in ipairs { "hash", "crc32c" } do
      local line = assert(without.stdout:match("\n(" .. name .. " %d%S*)\n"), without.output)
      assert.equal(with.stdout:match("\n(" .. name .. " %d%S*)\n"), line)
    end
  end)
end)

describe("the Makefile", function()
  local folder
  before_each(function() folder = mpi.folder() end)
  after_each(function() mpi.remove(folder) end)

  -- Looks for libraries in a build folder of its own; returns what it says, and what it notes.
  local function look(words)
    local result = mpi.shell(("%s make -n %s BUILD=%s/build %s/build/found"):format(CLEAN, words, folder, folder))
    local noted = mpi.shell(("cat %s/build/libraries.mk 2>/dev/null"):format(folder)).stdout
    return result, noted
  end

  it("knows which libraries it may leave out, and which MPI it may be asked for", function()
    local result = look "WITHOUT=nothing"
    assert.truthy(result.status ~= 0 and result.stderr:find('no library "nothing"', 1, true), result.output)
    result = look "MPI=nothing"
    assert.truthy(result.status ~= 0 and result.stderr:find('MPI is "nothing"', 1, true), result.output)
    local _, noted = look "MPI=mpich WITHOUT='hdf5 curl'"
    assert.truthy(noted:find "\nMPI_BUILT := MPICH and its like %(libmpi.so.12%)\n", noted)
    assert.truthy(noted:find("\nMISSING := -DSHARDRT_WITHOUT_HDF5 -DSHARDRT_WITHOUT_CURL\n", 1, true), noted)
    -- What is installed then is what was built: nothing is looked for anew.
    local config = mpi.shell(("cat %s/build/config"):format(folder)).stdout
    mpi.shell(("%s make -n MPI=mpich BUILD=%s/build DESTDIR=%s install"):format(CLEAN, folder, folder))
    assert.equal(config, mpi.shell(("cat %s/build/config"):format(folder)).stdout)
    assert.truthy(config:find(" WITHOUT hdf5 curl MPI ", 1, true), config)
  end)

  it("says what is missing, with the packages that hold it", function()
    local result, noted = look "CC=false"
    assert.truthy(result.stdout:find "\nLuaJIT +missing +libluajit%-5.1%-dev +luajit%-devel ", result.output)
    assert.truthy(result.stdout:find "\nHDF5 %(libhdf5%) +missing +libhdf5%-dev +hdf5%-devel ", result.output)
    assert.truthy(noted:find "\nNEEDED := LuaJIT zlib\n", noted)
  end)

  it("says without root what only root could install, and what works all the same", function()
    local said = mpi.shell(CLEAN .. " make --no-print-directory deps-demo SUDO=no-sudo NEEDS=demo:no-such-package")
    assert.not_equal(0, said.status)
    assert.equal("needs Debian's packages no-such-package; only root may install them, and there is no no-sudo. "
      .. "`make` alone builds with the libraries that it finds\n", said.stdout)
  end)

  it("installs for the demo what that needs, and nothing that is for tests", function()
    local said = mpi.shell(CLEAN .. " make -n deps-demo").stdout
    local packages = assert(said:match "for package in ([^;]+);", said) .. " "
    for _, name in ipairs { "gcc", "luajit", "libhdf5-dev", "dataset-fashion-mnist" } do
      assert.truthy(packages:find(name .. " ", 1, true), packages)
    end
    for _, name in ipairs { "nginx-light", "valgrind", "lua-busted", "libmpich-dev", "python3-numpy" } do
      assert.is_nil(packages:find(name .. " ", 1, true), packages)
    end
  end)

  it("installs OpenMPI for the demo where there is no MPI, and none where there is one", function()
    local function packages(found)
      local said = mpi.shell(("%s make -n deps-demo %s"):format(CLEAN, found)).stdout
      return assert(said:match "for package in ([^;]+);", said) .. " "
    end
    local OPENMPI, MPICH = "OPENMPI_FLAGS=%s", "MPICH_FLAGS=%s"
    local there, missing = "-I/opt/mpi", ""
    for _, case in ipairs { { there, missing }, { missing, there }, { there, there }, { missing, missing } } do
      local found = packages(OPENMPI:format(case[1]) .. " " .. MPICH:format(case[2]))
      local wants = case[1] == missing and case[2] == missing
      assert.equal(wants, found:find("openmpi-bin ", 1, true) ~= nil, found)
    end
  end)

  it("makes the tarball that the container takes", function()
    local version = mpi.shell(mpi.program() .. " --version").stdout:match "^shardrt (%S+)"
    local name = ("dist/shardrt-%s-linux-x86_64.tar.xz"):format(version)
    local definition = files.slurp "examples/apptainer/shardrt.def"
    assert.truthy(definition:find("\n    " .. name .. " ", 1, true), name)
  end)
end)

-- `shardrt devices`: which devices each process has, how GPUs are linked, what libraries are found and what is missing.
-- GPUs are the stand-in's.

local mpi = require "tests.support.mpi"
local contains = require("tests.support.expect").contains

local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"
local folder = plugin:gsub("/[^/]*$", "", 1)

local function run(environment, words, program)
  return mpi.shell(("env -u SHARDRT_PLATFORM %s %s %s %s"):format(mpi.environment, environment,
    program or mpi.program(), words))
end

-- The cells of the lines of `text` that begin so: without the file, which has blanks nowhere.
local function rows(text, first)
  local found = {}
  for line in text:gmatch "[^\n]+" do
    local cells = {}
    for cell in (line .. "  "):gmatch "(%S.-)%s%s+" do cells[#cells + 1] = cell end
    if line:match("^  " .. first) then found[#found + 1] = cells end
  end
  return found
end

-- What stands between the heading of a process (or of libraries) and the next heading.
local function part(output, heading)
  local _, from = output:find("\n" .. heading, 1, true)
  assert.truthy(from, heading .. " is missing in\n" .. output)
  return output:sub(from + 1, (output:find("\n%S", from + 1) or #output + 1) - 1)
end

describe("shardrt devices", function()
  it("shows each process's GPUs, their links and the libraries, once where all have the same", function()
    local words = "-n 2 " .. mpi.program() .. " --platform cuda --devices 2 devices"
    local result = run(("STANDIN_GPUS=4 STANDIN_MEMORY=2147483648 STANDIN_HELD=536870912 "
      .. "STANDIN_LINKS=0-1:nvlink,2-3:pcie,1-2:nvlink SHARDRT_CUDA_PLUGIN=%s"):format(plugin), words, "mpirun")
    assert.equal(0, result.status, result.output)
    local output = "\n" .. result.stdout:gsub("\r", "")
    local first, second = part(output, "process 0 on "), part(output, "process 1 on ")
    contains(first, ": devices 0 and 1, of platform cuda\n")
    contains(second, ": devices 2 and 3, of platform cuda\n")
    assert.same({ { "0", "0", "Stand-in 0", "0000:01:00.0", "9.0", "2.0 GiB", "1.5 GiB" },
      { "0", "same", "nvlink", "host", "host" } }, rows(first, "0"))
    assert.same({ { "1", "1", "Stand-in 1", "0000:02:00.0", "9.0", "2.0 GiB", "1.5 GiB" },
      { "1", "nvlink", "same", "nvlink", "host" } }, rows(first, "1"))
    assert.same({ { "link", "0", "1", "2", "3" } }, rows(second, "link"))
    assert.same({ { "2", "2", "Stand-in 2", "0000:03:00.0", "9.0", "2.0 GiB", "1.5 GiB" },
      { "2", "host", "nvlink", "same", "peer" } }, rows(second, "2"))
    for _, text in ipairs { first, second } do
      assert.truthy(text:match "\n  host: [^\n]+, %d+ cores? %([%d,-]+%), [%d.]+ GiB of [%d.]+ GiB of memory", text)
    end
    local libraries = part(output, "libraries of processes 0 and 1")
    local own = mpi.shell("readlink -f " .. folder).stdout:gsub("\n", "")
    assert.same({ { "CUDA plug-in", "-", own .. "/shardrt-cuda.so" } }, rows(libraries, "CUDA plug%-in"))
    assert.same({ { "CUDA runtime", "13.0", own .. "/libstandin.so" } }, rows(libraries, "CUDA runtime"))
    assert.same({ { "cuBLAS", "-", own .. "/libcublas.so.13" } }, rows(libraries, "cuBLAS"))
    local nccl = rows(libraries, "NCCL")
    assert.same({ 1, "NCCL", own .. "/libnccl.so.2" }, { #nccl, nccl[1][1], nccl[1][3] })
    assert.truthy(nccl[1][2]:match "^2%.%d+%.%d+$", nccl[1][2])
    local of_mpi = rows(libraries, "MPI")
    assert.is_true(#of_mpi >= 2, libraries)
    assert.is_nil(libraries:find("missing: CUDA", 1, true), libraries)
  end)

  it("says that devices share a GPU, and which libraries are missing, with what would do", function()
    local result = run(("STANDIN_GPUS=1 SHARDRT_CUDA_LIBRARIES=/nowhere SHARDRT_CUDA_PLUGIN=%s"):format(plugin),
      "--devices 3 devices")
    assert.equal(0, result.status, result.output)
    assert.same({ { "2", "0", "Stand-in 0", "0000:01:00.0", "9.0", "1.0 GiB", "1.0 GiB" },
      { "2", "same", "same", "same" } }, rows(result.stdout, "2"))
    for _, name in ipairs { "cuBLAS", "NCCL" } do
      local said = "\n  missing: " .. name .. ": SHARDRT_CUDA_LIBRARIES names /nowhere, which is no folder"
      contains(result.stdout, said)
    end
  end)

  it("goes on where a GPU does not answer", function()
    local result = run(("STANDIN_GPUS=3 STANDIN_FAIL=cudaMemGetInfo@2=801 SHARDRT_CUDA_PLUGIN=%s"):format(plugin),
      "devices")
    assert.equal(0, result.status, result.output)
    contains(result.stdout, "\n  device 1: a GPU is looked at: cudaMemGetInfo failed on device 1")
    assert.same({ { "link", "0", "2" } }, rows(result.stdout, "link"))
    assert.same({ "0", "same", "peer" }, rows(result.stdout, "0")[2])
    assert.same({ { "1", "?", "?" } }, rows(result.stdout, "1"))
    result = run(("STANDIN_GPUS=2 STANDIN_FAIL=cudaMemGetInfo@2=999 SHARDRT_CUDA_PLUGIN=%s"):format(plugin), "devices")
    assert.equal(0, result.status, result.output)
    contains(result.stdout, "\n  links: links between GPUs are looked at: cudaGetDeviceCount failed")
  end)

  it("shows the host's devices where there is no GPU, no plug-in or no driver, and says so", function()
    local result = run(("STANDIN_GPUS=0 SHARDRT_CUDA_PLUGIN=%s"):format(plugin), "--devices 3 devices")
    assert.equal(0, result.status, result.output)
    contains(result.stdout, ": devices 0 to 2, of platform host\n")
    contains(result.stdout, "\n  missing: CUDA plug-in: no GPU was found here, or no driver for it: ")
    local bare = mpi.folder()
    local copied = mpi.shell(("cp %s %s/shardrt"):format(mpi.program(), bare))
    assert.equal(0, copied.status, copied.output)
    result = run("SHARDRT_CUDA_PLUGIN=", "devices", bare .. "/shardrt")
    mpi.remove(bare)
    assert.equal(0, result.status, result.output)
    contains(result.stdout, ": device 0, of platform host\n")
    contains(result.stdout, "\n  missing: CUDA plug-in: there is no CUDA plug-in, shardrt-cuda.so, in ")
    contains(result.stdout, "`make cuda` builds it")
    local driver = os.execute "ldconfig -p 2>/dev/null | grep -q libcuda.so.1" == 0
    if not driver then contains(result.stdout, "\n  missing: libcuda.so.1: the NVIDIA driver is not installed") end
  end)

  it("tells of its options, and refuses others with status 2", function()
    local help = run("", "--platform host devices --help")
    assert.equal(0, help.status, help.output)
    contains(help.stdout, "usage: shardrt [options] devices")
    for words, said in pairs { ["devices --all"] = "it takes no --all", ["--metrics m devices"] = "are for recipes" } do
      local result = run("", words)
      assert.same({ 2, "" }, { result.status, result.stdout }, result.output)
      contains(result.stderr, said)
    end
  end)
end)

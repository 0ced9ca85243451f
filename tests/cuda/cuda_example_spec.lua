-- long: 30 s
-- The example in CUDA: built by nvcc where it is, and run on GPUs where SHARDRT_TEST_PLATFORM=cuda asks for it. It runs
-- on the stand-in for CUDA's runtime (tests/standin), too: its text but for the launch, which no other compiler knows.

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

local SOURCE = "examples/cuda/means.cu"
local MEAN = "the mean of 59904 images is 0.28602\n" -- of 234 batches of 256, as numpy has it
local SANITIZED = os.getenv "SHARDRT_SANITIZER"

-- nvcc, where there is one: what `make` takes.
local function find_nvcc()
  local home = mpi.shell("make -s cuda-where").stdout:match "(%S+)/include"
  local found = mpi.shell(("command -v %s/bin/nvcc nvcc | head -n 1"):format(home or "")).stdout:match "%S+"
  return found
end

describe("the example in CUDA", function()
  local folder = mpi.folder()
  teardown(function() mpi.remove(folder) end)

  local NVCC = not SANITIZED and find_nvcc() or nil
  if not NVCC then
    pending "is built by nvcc (there is none, or a sanitizer is in its place)"
  else
    it("is built by nvcc", function()
      local build = library.folder()
      local command = "%s -std=c++17 -O2 -arch=sm_80 -Werror all-warnings -Xcompiler -Wall,-Wextra -Iruntime "
        .. "-I%s/include -o %s/means %s -L%s -Xlinker -rpath,%s -lshardrt"
      local result = mpi.shell(command:format(NVCC, build, folder, SOURCE, build, build), 180)
      assert.equal(0, result.status, result.output)
      if os.getenv "SHARDRT_TEST_PLATFORM" == "cuda" then
        assert.equal(MEAN, expect.well(library.run(folder .. "/means examples/c/data.lua")).stdout)
      end
    end)
  end

  -- The source as plain C++, `changed`, built with the stand-in, and run on so many of its GPUs.
  local function run(gpus, changed)
    local launch = "([%w_]+)<<<([^>]*), (%w+), 0, (%w+)>>>%("
    local text, launches = files.slurp(SOURCE):gsub(launch, "KERNEL_LAUNCH(%1, %2, %3, %4, ")
    assert.equal(1, launches)
    text = changed and changed(text) or text
    local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"
    local standin = mpi.shell("realpath " .. plugin).stdout:match "^(.*)/"
    local program = library.build(folder, files.write(folder, "means.cpp", (text:gsub('"../cpp/', '"'))), table.concat({
      "-include tests/standin/kernel.h -Itests/standin/include -Itests -Iruntime -Iexamples/cpp",
      "-L" .. standin, "-Wl,-rpath," .. standin, "-lstandin",
    }, " "))
    local command = "env STANDIN_GPUS=%d SHARDRT_CUDA_PLUGIN=%s SHARDRT_CUDA_LIBRARIES=%s %s examples/c/data.lua"
    return library.run(command:format(gpus, standin .. "/shardrt-cuda.so", standin, program))
  end

  if SANITIZED then
    pending "runs on the stand-in (which a program cannot be linked with beside a sanitizer's library)"
    return
  end

  it("computes on the GPUs that have the shards, in its own streams, on the stand-in", function()
    for _, gpus in ipairs { 1, 2, 4 } do assert.equal(MEAN, expect.well(run(gpus)).stdout) end
  end)

  it("would read what is not there yet without its stream, on the stand-in", function()
    local result = run(2, function(text)
      local wrong, count = text:gsub("shardrt_array_dlpack%(array, shard, stream,",
        "shardrt_array_dlpack(array, shard, reinterpret_cast<void *>(-1),")
      assert.equal(1, count)
      return (wrong:gsub("cudaStream_t stream%) {\n  DL", "cudaStream_t) {\n  DL"))
    end)
    assert.not_equal(MEAN, result.stdout)
  end)

  it("says where there is no GPU", function()
    local result = run(0)
    assert.equal(1, result.status)
    expect.contains(result.stderr, "means: ")
  end)
end)

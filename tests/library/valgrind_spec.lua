-- long: 40 s
-- The examples of C and C++ under valgrind's memcheck, in LuaJIT's machine code, too: nothing is read that was not
-- written, and nothing is left behind. (Under asan and tsan they are in cpp_spec.lua.)

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

-- Fashion-MNIST's files, with few images.
local function write_images(folder, part, count)
  local function idx(name, header, bytes)
    local body = {}
    for i = 1, bytes do body[i] = string.char(i * 7 % (bytes == count and 10 or 251)) end
    files.write(folder, ("%s-%s-ubyte"):format(part, name), header .. table.concat(body))
  end
  local number = string.char(0, 0, math.floor(count / 256), count % 256)
  idx("images-idx3", "\0\0\8\3" .. number .. "\0\0\0\28\0\0\0\28", count * 28 * 28)
  idx("labels-idx1", "\0\0\8\1" .. number, count)
end

local COMMAND = "valgrind --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --keep-debuginfo=yes "
  .. "--num-callers=40 --suppressions=tests/support/valgrind.supp "

describe("under valgrind", function()
  if os.getenv "SHARDRT_SANITIZER" or mpi.shell("command -v valgrind").status ~= 0 then
    pending "there is no valgrind, or a sanitizer is in its place"
    return
  end
  local folder, in_c, in_cpp = mpi.folder(), nil, nil
  setup(function()
    write_images(folder, "train", 260)
    write_images(folder, "t10k", 400)
    assert.equal(0, mpi.shell(("gzip -1 %s/*-ubyte"):format(folder)).status)
    local flags = "-O2 -pthread $(pkg-config --cflags --libs ompi-c) -lm"
    in_c = library.build(folder, "examples/c/train.c", flags) .. " examples/c/data.lua " .. folder
    in_cpp = library.build(folder, "examples/cpp/train.cpp", flags) .. " examples/cpp/data.lua %d " .. folder
  end)
  teardown(function() mpi.remove(folder) end)

  local function clean(command, processes)
    local result = library.run(COMMAND .. command, processes, 240)
    assert.equal(0, result.status, result.output)
    assert.equal(processes or 1, select(2, result.stderr:gsub("ERROR SUMMARY: 0 errors", "")), result.output)
    expect.contains(result.stdout, "mean loss of the last 20 steps: ")
  end

  it("the example in C has no errors and no leaks, alone and in two processes", function()
    clean(in_c)
    clean(in_c, 2)
  end)

  it("the example in C++ has no errors and no leaks, alone and where one process trains and one tests", function()
    clean(in_cpp:format(0))
    clean(in_cpp:format(1), 2)
  end)

  it("a program that forgets batches is told so, with the library's function", function()
    local program = library.build(folder, files.write(folder, "forgets.c", [[
#include <shardrt.h>
int main(int argc, char **argv) {
  shardrt_options options;
  shardrt_recipe *recipe;
  shardrt_batch *batch;
  shardrt_options_init(&options);
  if (argc < 2 || shardrt_join(&options) < 0 || shardrt_open(argv[1], 0, NULL, &recipe) < 0) return 1;
  while (shardrt_next(recipe, -1, &batch) == 1) {}
  shardrt_close(recipe);
  return shardrt_leave();
}
]]))
    local recipe = files.write(folder, "recipe.lua", [[
local shardrt = require "shardrt"
local source = shardrt.source.array { x = shardrt.ndarray.zeros({ 80, 16 }, "float32") }
return shardrt.loader { source = source, batch_size = 8, epochs = 1 }
]])
    local result = library.run(COMMAND .. program .. " " .. recipe, nil, 240)
    assert.equal(9, result.status, result.output)
    expect.contains(result.stderr, "are definitely lost", "recipe_batch_new")
  end)
end)

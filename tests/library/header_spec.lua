-- shardrt.h as it is installed: first an example and what a program needs, then what only recipes call.

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

describe("the installed header", function()
  local folder, text = mpi.folder(), files.slurp(library.folder() .. "/include/shardrt.h")
  teardown(function() mpi.remove(folder) end)

  it("begins with an example, which works as it stands", function()
    local example = text:match "^/%*[^\n]*\n %*\n( %*     #include <shardrt.h>\n.- %*     }\n)"
    example = example:gsub("^ %* ?", ""):gsub("\n %* ?", "\n")
    local program = library.build(folder, files.write(folder, "example.c", example))
    local function run(processes)
      return library.run(("sh -c 'cd %s && exec %s'"):format(folder, program), processes)
    end
    local missing = run()
    assert.equal(1, missing.status)
    expect.contains(missing.stderr, "data.lua")
    files.write(folder, "data.lua", [[
      local shardrt = require "shardrt"
      return shardrt.loader {
        source = shardrt.source.array { image = shardrt.ndarray.arange(8, "float32") }, batch_size = 8, epochs = 1,
        sharding = shardrt.NamedSharding(shardrt.make_mesh({ shardrt.device_count() }, { "x" }), shardrt.P "x"),
      }]])
    local alone, two = run(), run(2)
    assert.equal("rows 0 to 4 begin with 0\nrows 4 to 8 begin with 4\n", alone.stdout, alone.output)
    assert.equal(0, two.status, two.output)
    for row = 0, 6, 2 do expect.contains(two.stdout, ("rows %d to %d begin with %d"):format(row, row + 2, row)) end
  end)

  it("has all that a program needs in front of what recipes call", function()
    local own = text:match "^(.-)\n/%* ==== For recipes"
    local _, lines = own:gsub("\n", "")
    assert.is_true(lines < 450, lines)
    files.write(folder, "shardrt.h", own .. "\n#ifdef __cplusplus\n}\n#endif\n#endif\n")
    local flags = mpi.shell("pkg-config --cflags ompi-c").stdout:gsub("\n", "")
    for file, compiler in pairs {
      ["examples/c/train.c"] = "cc -std=c11", ["examples/c_library/means.c"] = "cc -std=c11",
      ["examples/cpp/train.cpp"] = "c++ -std=c++17",
    } do
      local command = "%s -D_GNU_SOURCE -Wall -Werror -fsyntax-only -I%s %s %s"
      local result = mpi.shell(command:format(compiler, folder, flags, file))
      assert.equal(0, result.status, result.output)
    end
    local rest = mpi.shell(("echo '#include <shardrt.h>\nint main(void) { shardrt_loader_free(0); }' | cc -Werror -I%s "
      .. "-fsyntax-only -x c -"):format(folder))
    assert.is_false(rest.status == 0) -- what stands below is not there
  end)
end)

-- long: 30 s
-- Programs of C++: the header, and the example.

local expect = require "tests.support.expect"
local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

describe("shardrt.h", function()
  local folder, empty = mpi.folder(), nil
  setup(function() empty = files.write(folder, "empty.cpp", "#include <shardrt.h>\nint main() {}\n") end)
  teardown(function() mpi.remove(folder) end)

  for _, compiler in ipairs { "g++", "clang++" } do
    if mpi.shell("command -v " .. compiler).status ~= 0 then
      pending(("is C++ without a warning: %s (which is not here)"):format(compiler))
    else
      it("is C++ without a warning: " .. compiler, function()
        for _, standard in ipairs { 11, 14, 17, 20 } do
          local command = "%s -std=c++%d -Wall -Wextra -pedantic -Werror -fsyntax-only -I%s/include %s"
          local result = mpi.shell(command:format(compiler, standard, library.folder(), empty))
          assert.equal("", result.output)
          assert.equal(0, result.status)
        end
      end)
    end
  end
end)

describe("the example in C++", function()
  local folder, in_c, program = mpi.folder(), nil, nil
  setup(function()
    local flags = "-O2 -pedantic -pthread $(pkg-config --cflags --libs ompi-c) -lm"
    in_c = library.build(folder, "examples/c/train.c", flags)
    program = library.build(folder, "examples/cpp/train.cpp", flags)
  end)
  teardown(function() mpi.remove(folder) end)

  -- What the processes that train print, and what those that test print.
  local function trained(command, processes)
    local result = expect.well(library.run(command, processes))
    local trains, tests = {}, {}
    for line in result.stdout:gmatch "[^\n]+" do
      local list = line:find("test images right", 1, true) and tests or trains
      list[#list + 1] = line
    end
    return table.concat(trains, "\n"), tests
  end

  it("trains as the one in C, however many processes there are, and whatever others do", function()
    local wanted = trained(in_c .. " examples/c/data.lua", 2)
    expect.contains(wanted, "step 200 of 234: loss 0.6", "mean loss of the last 20 steps: 0.59")
    local command = program .. " examples/cpp/data.lua %d"
    for _, job in ipairs { { 1, 0 }, { 2, 0 }, { 4, 0 }, { 2, 1 }, { 4, 2 } } do
      local processes, testers = job[1], job[2]
      local trains, tests = trained(command:format(testers), processes)
      assert.equal(wanted, trains, table.concat(job, " "))
      assert.equal(testers > 0 and 5 or 0, #tests)
      if testers > 0 then expect.contains(tests[5], "0 steps before the end: 7872 of 10000") end
    end
    assert.equal(wanted, (trained(command:format(0))))
  end)

  it("ends with the message of what failed", function()
    local recipe = files.write(folder, "wrong.lua", "local x = 1\nerror 'no luck'\n")
    for _, processes in ipairs { false, 2 } do
      local result = library.run(("%s %s"):format(program, recipe), processes or nil)
      assert.not_equal(0, result.status)
      expect.contains(result.stderr, "train: " .. recipe .. ":2: no luck")
    end
    local result = library.run(("%s %s"):format(program, files.write(folder, "one.lua", [[
local shardrt = require "shardrt"
return shardrt.loader { source = shardrt.source.array { x = shardrt.ndarray.zeros({ 8 }, "int8") }, batch_size = 4 }
]])))
    expect.contains(result.stderr, 'there is no loader "train"')
  end)
end)

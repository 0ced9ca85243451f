-- What a process has only once stays the program's: signals, exit handlers, output, environment, rounding, traps, the
-- decimal point. And batches are the same whatever the program has set.

local files = require "tests.support.files"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"

-- Numbers that are read as text, and such as depend on how one rounds, and on denormals.
local RECIPE = [[
local shardrt = require "shardrt"
local csv = shardrt.source.csv(%q, { fields = { price = "float32", weight = "float64" } })
return shardrt.loader {
  source = csv, batch_size = 4, epochs = 2, shuffle = true, seed = 3, num_workers = 1,
  sharding = shardrt.NamedSharding(shardrt.make_mesh({ shardrt.device_count() }, { "data" }), shardrt.P "data"),
  transform = {
    price = { shardrt.transform.scale { factor = 1 / 3 } },
    weight = { shardrt.transform.lua(function(sample) sample.out[0] = sample.data[0] * 1e-20 / 3 end) },
  },
  batch_transform = function(batch)
    return { price = batch.price, weight = batch.weight, sum = require("shardrt.numpy").sum(batch.price / 7) }
  end,
}
]]

describe("a program that is a host to the library", function()
  local folder, recipe = mpi.folder(), nil
  local in_german = "LOCPATH=" .. folder .. " "
  setup(function()
    local lines = { "price,weight\n" }
    for i = 1, 48 do lines[#lines + 1] = ("%d.5%d,%d.%02de-2%02d\n"):format(i, i, i, i, 80 + i) end
    local csv = files.write(folder, "x.csv", table.concat(lines))
    recipe = files.write(folder, "recipe.lua", RECIPE:format(csv))
    local made = mpi.shell(("localedef --no-archive -i de_DE -f UTF-8 %s/de_DE.UTF-8"):format(folder))
    assert.equal(0, made.status, made.output)
  end)
  teardown(function() mpi.remove(folder) end)

  -- What the program prints, in its own order: exit handlers run from the last to the first.
  local function printed(program, odd, processes)
    local written = folder .. "/written-$OMPI_COMM_WORLD_RANK"
    mpi.shell(("rm -f %s/written-*"):format(folder))
    local command = ("sh -c \"%s%s %s %s >%s; test \\$? = 5\""):format(in_german, program, recipe, odd, written)
    if processes then command = command:gsub("%$OMPI", "\\$OMPI") end
    local result = library.run(command, processes)
    assert.equal(0, result.status, result.output)
    assert.equal("", result.output)
    local all = mpi.shell(("cat %s/written-*"):format(folder)).stdout
    assert.equal(processes or 1, select(2, all:gsub("\nfirst\nlast\n", "")))
    return all
  end

  it("finds all as it was after each call, and batches the same whatever it has set", function()
    local program = library.build(folder, "tests/library/guest.c", "-lm")
    local all = printed(program, "")
    assert.equal(24 * 6, select(2, ("\n" .. all):gsub("\n%a+ %d %x+", "")))
    assert.equal(all, printed(program, "odd"))
  end)

  it("finds all as it was after each call, where it has MPI of its own", function()
    local flags = "-DGUEST_HAS_MPI -lm $(pkg-config --cflags --libs ompi-c)"
    local program = library.build(folder, "tests/library/guest.c", flags)
    assert.equal(printed(program, "", 2), printed(program, "odd", 2))
  end)
end)

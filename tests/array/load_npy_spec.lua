-- load_npy: one file into a sharded array, by many processes, each reading its own parts.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"

describe("load_npy", function()
  local folder
  before_each(function() folder = files.folder() end)
  after_each(function() files.remove(folder) end)

  -- 16 x 12 numbers, the k-th of them k.
  local function counting(name, last)
    local words = {}
    for k = 0, 16 * 12 - 1 do words[k + 1] = string.char(k == 191 and last or k % 256, 0) end
    return files.write(folder, name, files.npy { dict = files.dict("<u2", { 16, 12 }), payload = table.concat(words) })
  end

  local run = mpi.runner "local shardrt = require 'shardrt'\nlocal P = shardrt.P\n"

  it("gives every device its part, and reads no more than this process's distinct parts", function()
    local result = run([[
      local mesh = shardrt.Mesh({ 4, 2 }, { "a", "b" }, { 7, 0, 1, 6, 5, 2, 3, 4 })
      for _, spec in ipairs { P("a", "b"), P("b", "a"), P("a"), P(nil, "b"), P({ "b", "a" }), P() } do
        local sharding = shardrt.NamedSharding(mesh, spec)
        local x, bytes = shardrt.load_npy(arg[1], sharding)
        assert(x.dtype == "uint16" and x.shape[1] == 16 and x.shape[2] == 12)
        local distinct, wanted = {}, 0
        for _, shard in ipairs(x.addressable_shards) do
          local rows, columns, at = shard.index[1], shard.index[2], 0
          for i = rows[1], rows[2] - 1 do
            for j = columns[1], columns[2] - 1 do
              assert(shard.data.data[at] == i * 12 + j)
              at = at + 1
            end
          end
          local key = rows[1] .. "," .. columns[1]
          if not distinct[key] then wanted = wanted + 2 * at end
          distinct[key] = true
        end
        assert(bytes == wanted, bytes .. " bytes read, " .. wanted .. " needed")
        local all = shardrt.process_allgather(x):reshape(192):to_table()
        for k = 0, 191 do assert(all[k + 1] == k) end
      end
      if shardrt.process_index() == 0 then print "right" end]], { args = { counting("w.npy", 191) } })
    assert.equal(0, result.status, result.output)
    assert.equal("right\n", result.stdout)
  end)

  it("refuses a file that differs between processes, naming it and them", function()
    local one, other = counting("w.npy", 191), counting("other.npy", 190)
    local result = run([[
      local path = shardrt.process_index() == 2 and arg[2] or arg[1]
      shardrt.load_npy(path, shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "a" }), P("a")))
    ]], { args = { one, other } })
    assert.not_equal(0, result.status)
    assert.truthy(result.stderr:find("w.npy", 1, true), result.output)
    assert.truthy(result.stderr:match "process 2", result.output)
  end)

  it("refuses one that does not divide, or is not there, at the recipe's line", function()
    local path = counting("w.npy", 191)
    local text = [[shardrt.load_npy(arg[1], shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "a" }), P(nil, "a")))]]
    local uneven = run(text, { args = { path } })
    assert.not_equal(0, uneven.status)
    assert.truthy(uneven.stderr:match "recipe.lua:3: .*12", uneven.output)
    local absent = run(text, { args = { folder .. "/none.npy" } })
    assert.not_equal(0, absent.status)
    assert.truthy(absent.stderr:find(folder .. "/none.npy: No such file", 1, true), absent.output)
  end)

  it("is planned from the header alone", function()
    local path = counting("w.npy", 191)
    local recipe = files.write(folder, "plan.lua", [[
      local shardrt = require "shardrt"
      local mesh = shardrt.make_mesh({ 2, 2 }, { "a", "b" })
      local x = shardrt.load_npy(arg[1], shardrt.NamedSharding(mesh, shardrt.P("a", "b")))
      assert(not pcall(function() return x.addressable_shards[1].data.data end))]])
    local result = mpi.shell(("%s plan --processes 2 --devices 2 %s %s"):format(mpi.program(), recipe, path))
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find("load_npy " .. path, 1, true), result.output)
    assert.truthy(result.stdout:find("192 bytes", 1, true), result.output)
  end)
end)

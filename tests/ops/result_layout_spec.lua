-- long: 20 s
-- How results of words that join, cut and multiply lie: as in JAX (tests/golden/layouts.txt), unless operands
-- contradict each other or a slice goes backwards; and that nothing travels for it but what a process does not hold.

local mpi = require "tests.support.mpi"

local LOOKED = [[
concatenate: 200 lines, 39 of them with operands that contradict each other
stack: 100 lines, 20 of them with operands that contradict each other
split: 200 lines, 0 of them with operands that contradict each other
slice: 120 lines, 0 of them with operands that contradict each other
dot: 240 lines, 33 of them with operands that contradict each other
matmul: 240 lines, 24 of them with operands that contradict each other
]]

local TOPOLOGIES = { { 1, 8 }, { 2, 4 }, { 4, 2 }, { 8, 1 } }

local seed = require "tests.support.seed"

describe("a result", function()
  for _, topology in ipairs { { 1, 8 }, { 2, 4 } } do
    it(("lies as in JAX, with the same values, on %d x %d"):format(topology[1], topology[2]), function()
      local result = mpi.run {
        recipe = "tests/support/ops/result_layouts.lua", processes = topology[1], devices = topology[2], limit = 240,
      }
      assert.equal(0, result.status, result.output)
      assert.equal(LOOKED, result.stdout)
    end)
  end

  for _, topology in ipairs(TOPOLOGIES) do
    it(("takes only what a process does not hold, on %d x %d"):format(topology[1], topology[2]), function()
      local result = mpi.run {
        recipe = "tests/support/ops/result_bytes.lua", processes = topology[1], devices = topology[2], limit = 240,
        args = { seed, 80 },
      }
      assert.equal(0, result.status, result.output)
      assert.equal("looked at 80\n", result.stdout)
    end)
  end

  it("stays cut in gradients, which are right, and what is added up there is no more than a parameter", function()
    local result = mpi.run {
      processes = 4, devices = 2, limit = 120,
      source = [[
        local shardrt = require "shardrt"
        local job, np, P = require "shardrt.program.job", require "shardrt.numpy", shardrt.P
        local mesh = shardrt.make_mesh({ 8 }, { "x" })
        local function ones(shape, ...)
          return np.ones(shape, "float32", shardrt.NamedSharding(mesh, P(...)))
        end
        local function lie(name, arrays)
          local specs = {}
          for i, x in ipairs(arrays) do specs[i] = tostring(x.sharding.spec) end
          shardrt.say("%s: %s", name, table.concat(specs, ", "))
        end
        local a, b = ones({ 16, 4 }, "x", nil), ones({ 8, 4 }, "x", nil)
        lie("concatenate", shardrt.grad(function(p) return np.sum(np.concatenate(p) ^ 2) end) { a, b })
        lie("split", { shardrt.grad(function(x) return np.sum(np.split(x, 2)[2] ^ 2) end)(a) })
        lie("slice", { shardrt.grad(function(x) return np.sum(np.slice(x, { { 3, 14, 2 } }) ^ 2) end)(a) })
        for _ = 1, 20 do np.multiply(a, 7):block_until_ready() end -- whose memory is used again
        collectgarbage()
        collectgarbage()
        local slope = shardrt.grad(function(x) return np.sum(np.slice(x, { { 3, 14, 2 } })) end)(a)
        for i, row in ipairs(shardrt.process_allgather(slope):to_table()) do
          assert(row[1] == (i >= 4 and i <= 14 and i % 2 == 0 and 1 or 0), "row " .. i)
        end
        local numbers = shardrt.device_put(np.reshape(np.astype(np.arange(32), "float32"), { 8, 4 }), b.sharding)
        local back = shardrt.grad(function(x) -- what comes back to the slice is cut
          return np.sum(np.slice(x, { { 14, -17, -2 } }) * numbers)
        end)(a)
        for i, row in ipairs(shardrt.process_allgather(back):to_table()) do
          assert(row[1] == (i % 2 == 1 and 4 * (15 - i) / 2 or 0), "row " .. i)
        end
        local function counted(shape, size) return np.reshape(np.astype(np.arange(size) % 11, "float32"), shape) end
        local plain = { counted({ 4, 8, 8 }, 256), counted({ 8, 3 }, 24) }
        local cut = { shardrt.device_put(plain[1], shardrt.NamedSharding(mesh, P(nil, "x"))),
          shardrt.device_put(plain[2], shardrt.NamedSharding(mesh, P "x")) }
        local weights = counted({ 4, 8, 3 }, 96)
        local product = shardrt.grad(function(p) return np.sum(np.dot(p[1], p[2]) * weights) end)
        local found, right = product(cut), product(plain)
        for i in ipairs(plain) do
          local one, other = shardrt.process_allgather(found[i]), shardrt.device_get(right[i])
          for k = 0, other.size - 1 do assert(one.data[k] == other.data[k], "a product's gradient") end
        end
        local tokens = ones({ 4, 16, 8 }, nil, "x", nil)
        local step = shardrt.grad(function(w) return np.sum(np.dot(tokens, w)) end)
        local lines, say = {}, job.words.say
        local w = ones({ 8, 2 })
        job.words.say = function(format, ...) lines[#lines + 1] = format:format(...) end
        shardrt.explain(step, w)
        job.words.say = say
        -- Each process receives the three others' parts of a sum of 8 x 2, and of one number.
        shardrt.say("dot: %s", lines[#lines]:match "^in all: (.-) moved")
      ]],
    }
    assert.equal(0, result.status, result.output)
    assert.equal([[
concatenate: P("x", nil), P("x", nil)
split: P("x", nil)
slice: P("x", nil)
dot: 816 B
]], result.stdout)
  end)
end)

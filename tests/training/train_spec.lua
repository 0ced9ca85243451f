-- long: 20 s
-- Training on Fashion-MNIST: the same losses on any number of processes and devices, also where a job stops in the
-- middle and another goes on from its checkpoint.

local mpi = require "tests.support.mpi"

local has_fashion = io.open("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", "rb")
if has_fashion then has_fashion:close() end

-- The losses that a run of the recipe said, by step.
local function train(folder, steps, job)
  job.recipe, job.args, job.limit = "recipes/train_fashion_mnist.lua", { folder, steps }, 120
  local result = mpi.run(job)
  assert.equal(0, result.status, result.output)
  local losses = {}
  for step, loss in result.stdout:gmatch "step +(%d+): loss ([%d.]+)" do losses[tonumber(step)] = tonumber(loss) end
  return losses, result.stdout
end

-- What rounding in another order makes of a loss in so many steps.
local function same(expected, found, steps)
  for _, step in ipairs(steps) do
    local difference = math.abs(expected[step] - found[step])
    assert.is_true(difference <= 1e-5, ("step %d: %.6f, expected %.6f"):format(step, found[step], expected[step]))
  end
end

describe("training", function()
  local folders = {}
  local function folder()
    folders[#folders + 1] = mpi.folder()
    return folders[#folders]
  end
  after_each(function()
    for _, path in ipairs(folders) do mpi.remove(path) end
    folders = {}
  end)

  it("has the same losses in every topology, also stopped in one and gone on with in others", function()
    if not has_fashion then pending "Debian's package dataset-fashion-mnist is absent" return end
    local alone = train(folder(), 100, { devices = 1 })
    assert.is_true(alone[100] < alone[25] and alone[25] < math.log(10))
    same(alone, train(folder(), 100, { processes = 2, devices = 4 }), { 25, 50, 75, 100 })

    local shared = folder()
    same(alone, train(shared, 60, { processes = 4, devices = 2 }), { 25, 50 })
    local losses, said = train(shared, 85, { devices = 1 }) -- from the checkpoint of step 50
    assert.truthy(said:find("goes on from step 50\n", 1, true), said)
    assert.is_nil(losses[50])
    same(alone, losses, { 75 })
    losses, said = train(shared, 100, { processes = 2, devices = 4 })
    assert.truthy(said:find "goes on from step 75\r?\n", said)
    same(alone, losses, { 100 })
  end)
end)

-- Every recipe runs alone and with 4 processes x 2 devices, begins with a comment that names its scenario, and stands
-- in the README; every command of the README runs.

local mpi = require "tests.support.mpi"

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local recipes = {}
do
  local pipe = assert(io.popen "ls recipes/*.lua")
  for path in pipe:lines() do recipes[#recipes + 1] = path end
  pipe:close()
end

-- What a recipe must have said, beyond ending well: the claim it makes.
local claims = {
  ["recipes/data_parallel.lua"] = "60,000 images",
  ["recipes/mixed_up_batches.lua"] = "refused",
}

describe("recipe", function()
  for _, recipe in ipairs(recipes) do
    it(recipe .. " runs alone and under mpirun", function()
      assert.truthy(read(recipe):match "^%-%- [^\n]*[LDC]%d+", recipe .. " does not begin with its scenario")
      for _, job in ipairs { { devices = 1 }, { devices = 8 }, { processes = 4, devices = 2 } } do
        job.recipe, job.limit = recipe, 120
        local result = mpi.run(job)
        assert.equal(0, result.status, recipe .. "\n" .. result.output)
        assert.not_equal("", result.stdout, recipe .. " says nothing")
        local several = job.processes or job.devices > 1
        if claims[recipe] and several then assert.truthy(result.stdout:find(claims[recipe], 1, true), result.output) end
      end
    end)
  end
end)

describe("the README", function()
  local readme = read "README.md"

  it("lists every recipe and no other", function()
    for _, recipe in ipairs(recipes) do
      assert.truthy(readme:find("(" .. recipe .. ")", 1, true), recipe .. " is not in the README")
    end
    for path in readme:gmatch "%((recipes/[%w_]+%.lua)%)" do assert.is_string(read(path)) end
  end)

  it("links to files that are there", function()
    for path in readme:gmatch "%]%(([%w_./]+)%)" do assert.is_string(read(path)) end
  end)

  it("shows commands that run", function()
    local ran = 0
    for line in readme:gsub("```.-```", ""):gmatch "\n    ([^\n]+)" do
      local command = line:gsub("%s+#.*", "")
      if not command:match "^make " then
        if command:match " test " then command = command:gsub("path/to/specs", "tests/program_spec.lua --list") end
        command = command:gsub("build/shardrt", mpi.program())
        local result = mpi.shell("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
          .. "OMPI_MCA_rmaps_base_oversubscribe=1 " .. command, 120)
        assert.equal(0, result.status, command .. "\n" .. result.output)
        ran = ran + 1
      end
    end
    assert.is_true(ran >= 4)
  end)

  it("shows a recipe that runs", function()
    local source = readme:match "```lua\n(.-)```"
    local result = mpi.run { source = source, processes = 4, devices = 2 }
    assert.equal(0, result.status, result.output)
  end)
end)

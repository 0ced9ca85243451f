-- Arrow files and streams that pyarrow writes at random, with what pyarrow reads of them. SHARDRT_TEST_CASES says how
-- many (12), SHARDRT_TEST_SEED which.

local ffi = require "ffi"
local files = require "tests.support.files"
local json = require "shardrt.base.json"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"

local SEED = require "tests.support.seed"
local CASES, MOST = tonumber(os.getenv "SHARDRT_TEST_CASES" or 12), 200 -- rows of a column that are looked at
local python, missing = library.pyarrow()

local function hex(host)
  return (ffi.string(host.data, host.bytes):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

describe("Arrow files beside pyarrow", function()
  if not python then
    pending(missing)
    return
  end
  local folder
  before_each(function() folder = files.folder() end)
  after_each(function() files.remove(folder) end)

  for case = 1, CASES do
    local seed = SEED % 1000000 * 100 + case
    it(("are read as it reads them, seed %d"):format(seed), function()
      math.randomseed(seed)
      local path = folder .. "/x.arrow"
      local command = "%s -B tests/support/dataset/arrow_random.py %d %s"
      local made = mpi.shell(command:format(python, seed, path), 100)
      assert.equal(0, made.status, made.output)
      local right = json.decode(files.slurp(path .. ".json"))
      for name, rows in pairs(right.columns) do
        local source = shardrt.source.arrow(path, { fields = { name } })
        assert.equal(right.rows, #source)
        for k = 1, math.min(right.rows, MOST) do
          local i = case % 2 == 0 and right.rows <= MOST and k - 1 or math.random(0, right.rows - 1)
          local ok, got = pcall(source.read, source, i, 1)
          local place = ("seed %d, %s, row %d: %s"):format(seed, name, i, tostring(right.how))
          if type(rows[i + 1]) ~= "string" then
            assert.is_true(not ok and tostring(got):find("it is null", 1, true) ~= nil, place)
          else
            assert.is_true(ok, place .. ": " .. tostring(got))
            local value = got[name].dtype and got[name] or got[name][1]
            assert.equal(rows[i + 1], hex(value), place)
          end
        end
      end
    end)
  end
end)

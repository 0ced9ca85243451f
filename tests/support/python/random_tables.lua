-- Tables that a script writes at random by pyarrow, with what pyarrow reads of them, which lies beside in JSON.
-- SHARDRT_TEST_CASES says how many (12), SHARDRT_TEST_SEED which.

local ffi = require "ffi"
local assert = require "luassert"
local files = require "tests.support.files"
local json = require "shardrt.base.json"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"

local SEED = require "tests.support.seed"

local random_tables = { CASES = tonumber(os.getenv "SHARDRT_TEST_CASES" or 12) }

--- How Python is started that has pyarrow; or nil, and why there is none.
random_tables.python, random_tables.missing = library.pyarrow()

--- The seed of a case.
function random_tables.seed(case) return SEED % 1000000 * 100 + case end

local function hex(host)
  return (ffi.string(host.data, host.bytes):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

local function check_row(source, name, i, right, place)
  local ok, got = pcall(source.read, source, i, 1)
  if type(right) ~= "string" then
    assert.is_true(not ok and tostring(got):find("it is null", 1, true) ~= nil, place)
  else
    assert.is_true(ok, place .. ": " .. tostring(got))
    assert.equal(right, hex(got[name].dtype and got[name] or got[name][1]), place)
  end
end

--- One case of a format, whose script is tests/support/dataset/FORMAT_random.py. Up to `most` rows of a column are
--- looked at.
function random_tables.check(format, case, most)
  local seed, folder = random_tables.seed(case), files.folder()
  math.randomseed(seed)
  local path = folder .. "/x." .. format
  local command = "%s -B tests/support/dataset/%s_random.py %d %s"
  local made = mpi.shell(command:format(random_tables.python, format, seed, path), 100)
  assert.equal(0, made.status, made.output)
  local right = json.decode(files.slurp(path .. ".json"))
  for name, rows in pairs(right.columns) do
    local source = shardrt.source[format](path, { fields = { name } })
    assert.equal(right.rows, #source)
    for k = 1, math.min(right.rows, most) do
      local i = case % 2 == 0 and right.rows <= most and k - 1 or math.random(0, right.rows - 1)
      local place = ("seed %d, %s, row %d: %s"):format(seed, name, i, tostring(right.how))
      check_row(source, name, i, rows[i + 1], place)
    end
  end
  files.remove(folder)
end

return random_tables

-- Folders of MDS whose columns MosaicML Streaming encodes at random, with what Streaming decodes of them.
-- SHARDRT_TEST_CASES says how many (8), SHARDRT_TEST_SEED which.

local ffi = require "ffi"
local files = require "tests.support.files"
local json = require "shardrt.base.json"
local library = require "tests.support.library"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"

local SEED = require "tests.support.seed"
local CASES = tonumber(os.getenv "SHARDRT_TEST_CASES" or 8)
local python, missing = library.streaming()

local function hex(host)
  return (ffi.string(host.data, host.bytes):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

describe("MDS folders beside Streaming", function()
  if not python then
    pending(missing)
    return
  end
  local folder
  before_each(function() folder = files.folder() end)
  after_each(function() files.remove(folder) end)

  for case = 1, CASES do
    local seed = SEED % 1000000 * 100 + case
    it(("are read as it decodes them, seed %d"):format(seed), function()
      local path = folder .. "/mds"
      local command = "%s -B tests/support/dataset/mds_random.py %d %s"
      local made = mpi.shell(command:format(python, seed, path), 100)
      assert.equal(0, made.status, made.output)
      local right = json.decode(files.slurp(path .. ".json"))
      for row, fields in ipairs(right.rows) do
        for name, value in pairs(fields) do
          local encoding = right.encodings[name:match "^[^.]*"]
          local place = ("seed %d, %s (%s), row %d"):format(seed, name, encoding, row - 1)
          local source = shardrt.source.mds(path, { fields = { name } })
          if name:find "%.%d" then source = source:map { [name] = { shardrt.transform.decode_image() } } end
          local got = source:read(row - 1, 1)[name]
          assert.equal(value[1], hex(got.dtype and got or got[1]), place)
          local shape, sizes = got.dtype and { unpack(got.shape, 2) } or got[1].shape, {}
          for d = 1, #shape do sizes[d] = tonumber(value[2][d]) end
          assert.same(sizes, shape, place)
          assert.equal(#value[2], #shape, place)
        end
      end
    end)
  end
end)

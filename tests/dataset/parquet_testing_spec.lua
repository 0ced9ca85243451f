-- Files of apache/parquet-testing (tests/files/parquet/testing/README.md): every row is what pyarrow reads, and what is
-- refused says why.

local ffi = require "ffi"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local shardrt = require "shardrt"

local FOLDER = "tests/files/parquet/testing/"

describe("the files of parquet-testing", function()
  local folder
  before_each(function()
    folder = files.folder()
    assert(os.execute(("cp %s*.parquet %s/"):format(FOLDER, folder)) == 0)
  end)
  after_each(function() files.remove(folder) end)

  local function open(name, column)
    return shardrt.source.parquet(("%s/%s.parquet"):format(folder, name),
      { fields = { column }, cache = folder .. "/cache" })
  end

  -- A row as expected.py writes it.
  local function row_of(source, column, i)
    local ok, got = pcall(source.read, source, i, 1)
    if not ok then
      expect.contains(tostring(got), "it is null, or a list with one")
      return "-"
    end
    local value = got[column].dtype and got[column] or got[column][1]
    local bytes = ffi.string(value.data, value.bytes)
    return bytes == "" and "0" or (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
  end

  it("hold what pyarrow reads in them", function()
    local compared = 0
    for name, columns in pairs(dofile(FOLDER .. "expected.lua")) do
      for column, expected in pairs(columns) do
        local source, rows = open(name, column), {}
        assert.equal(expected[1], source.fields[column].dtype, name .. ", " .. column)
        for i = 0, #source - 1 do rows[i + 1] = row_of(source, column, i) end
        assert.equal(expected[2]:gsub("%s+", " "), table.concat(rows, " ") .. (#rows > 0 and " " or ""),
          name .. ", " .. column)
        compared = compared + #rows
      end
    end
    assert.is_true(compared > 2000)
  end)

  it("are refused where shardrt does not read them, by what they are", function()
    local function refused(name, column, ...)
      local ok, message = pcall(function()
        local source = open(name, column)
        return source:read(0, #source)
      end)
      assert.is_false(ok, name)
      expect.contains(tostring(message), name .. ".parquet", ...)
    end
    refused("int96_from_spark", "a", "a time that is no int64 of nanoseconds since 1970")
    refused("old_list_structure", "a", '"a" is a list of lists')
    refused("nation.dict-malformed", "name", "its header tells of 28 bytes, and 13 are left")
    refused("rle-dict-uncompressed-corrupt-checksum", "long_field", "its dictionary at byte 4", "CRC-32 is 6522df69")
  end)
end)

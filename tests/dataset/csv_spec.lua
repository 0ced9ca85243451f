-- Tables in text: cells, quotes, dtypes, rows that lack something; a plain-Lua writer says what must come out.

local ffi = require "ffi"
local expect = require "tests.support.expect"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"

local function text_of(value) return ffi.string(value.data, value.size) end

-- A cell as RFC 4180 has it, quoted where it must be, and now and then where it need not.
local function quoted(text, delimiter)
  if text:find('[%c"]') or text:find(delimiter, 1, true) or math.random() < 0.2 then
    return '"' .. text:gsub('"', '""') .. '"'
  end
  return text
end

describe("a csv file", function()
  local folder
  before_each(function() folder = mpi.folder() end)
  after_each(function() mpi.remove(folder) end)

  local function write(name, text)
    local file = assert(io.open(folder .. "/" .. name, "wb"))
    file:write(text)
    file:close()
    return folder .. "/" .. name
  end

  it("is read as it was written, whatever stands in its cells", function()
    local seed = require "tests.support.seed"
    math.randomseed(seed)
    local letters = { "a", "Z", " ", ",", ";", '"', "\n", "\r\n", "é", "\t" }
    for round = 1, 40 do
      local delimiter, ends = math.random() < 0.5 and "," or ";", math.random() < 0.5 and "\n" or "\r\n"
      local rows, lines = {}, { table.concat({ "id", "text", "x" }, delimiter) }
      for i = 1, math.random(1, 30) do
        local parts = {}
        for k = 1, math.random(0, 6) do parts[k] = letters[math.random(#letters)] end
        local row = { math.random(-1e9, 1e9), table.concat(parts), (math.random() - 0.5) * 10 ^ math.random(-6, 6) }
        rows[i] = row
        lines[#lines + 1] = table.concat({
          quoted(("%d"):format(row[1]), delimiter), quoted(row[2], delimiter), ("%.17g"):format(row[3]),
        }, delimiter)
      end
      local last = math.random() < 0.5 and ends or ""
      local path = write(("t%d.csv"):format(round), table.concat(lines, ends) .. last)
      local source = shardrt.source.csv(path, {
        delimiter = delimiter, fields = { id = "int64", text = "bytes", x = "float64" },
      })
      assert.equal(#rows, #source, "seed " .. seed)
      local got = source:read(0, #rows)
      for i, row in ipairs(rows) do
        assert.equal(row[1], tonumber(got.id.data[i - 1]), "seed " .. seed)
        assert.equal(row[2], text_of(got.text[i]), "seed " .. seed)
        assert.equal(row[3], got.x.data[i - 1], "seed " .. seed)
      end
    end
  end)

  -- What Python's csv makes of a text (tests/files/csv_cases.py), or an error where a row is longer than others, or
  -- quotes do not end.
  it("has the rows and cells that Python's csv finds, or is refused", function()
    local function plain(hex) return (hex:gsub("%x%x", function(c) return string.char(tonumber(c, 16)) end)) end
    local same, ragged, open_quotes = 0, 0, 0
    for line in io.lines "tests/files/lines/csv.txt" do
      local delimiter, text, shown = line:match "^(%S+) (%x*) (.*)$"
      delimiter, text = plain(delimiter), plain(text)
      local rows, equal = {}, true
      for row in shown:gmatch "([^;]*);" do
        rows[#rows + 1] = {}
        for c in row:gmatch "(%x*)," do table.insert(rows[#rows], plain(c)) end
        equal = equal and #rows[#rows] == #rows[1]
      end
      local path = write("python.csv", text)
      os.remove(path .. ".shardrt-index")
      local fields = {}
      for c = 1, rows[1] and #rows[1] or 0 do fields[tostring(c - 1)] = "bytes" end
      local ok, source = pcall(shardrt.source.csv, path, { delimiter = delimiter, header = false, fields = fields })
      if ok then
        assert.is_true(equal, line)
        assert.equal(#rows, #source, line)
        local got = source:read(0, #rows)
        for r, row in ipairs(rows) do
          for c, text_wanted in ipairs(row) do
            assert.equal(text_wanted, text_of(got[tostring(c - 1)][r]), line)
          end
        end
        -- The first row as names, but for those that stand twice.
        os.remove(path .. ".shardrt-index")
        local named, other = pcall(shardrt.source.csv, path, { delimiter = delimiter })
        if named then
          local names = {}
          for _, name in ipairs(rows[1]) do names[name] = true end
          for _, name in ipairs(other.names) do assert.is_true(names[name], line) end
        end
        same = same + 1
      elseif source:find("quotes do not end", 1, true) then
        open_quotes = open_quotes + 1
      elseif #rows > 0 then
        assert.is_false(equal, line)
        assert.truthy(source:find("it has %d+ cells?, and the first line %d+"), source)
        ragged = ragged + 1
      else
        assert.truthy(source:find("holds no row", 1, true), source)
      end
    end
    assert.is_true(same > 150 and ragged > 30 and open_quotes > 5, ("%d %d %d"):format(same, ragged, open_quotes))
  end)

  it("has lines that end wherever the pieces end in which it is read", function()
    for _, ends in ipairs { "\n", "\r", "\r\n" } do
      for length = 65530, 65540 do
        local long = ("x"):rep(length - 4 - #ends)
        local path = write("long.csv", "a,b" .. ends .. "1," .. long .. ends .. '2,"' .. ends .. '"' .. ends .. "3,z")
        os.remove(path .. ".shardrt-index")
        local source = shardrt.source.csv(path)
        assert.equal(3, #source)
        local got = source:read(0, 3)
        assert.same({ 1, 2, 3 }, { tonumber(got.a.data[0]), tonumber(got.a.data[1]), tonumber(got.a.data[2]) })
        assert.equal(#long, got.b[1].size)
        assert.same({ ends, "z" }, { text_of(got.b[2]), text_of(got.b[3]) })
      end
    end
  end)

  it("has names as their cells have them, without a mark of byte order, and each once", function()
    local path = write("t.csv", '\239\187\191"a ""b""","c,d"x,plain\n1,2,3\n')
    local source = shardrt.source.csv(path)
    assert.same({ 'a "b"', "c,dx", "plain" }, source.names)
    assert.equal(2, tonumber(shardrt.source.csv(path, { fields = { ["c,dx"] = "int64" } }):read(0, 1)["c,dx"].data[0]))
    path = write("twice.csv", "a,b,a\n1,2,3\n")
    assert.equal(2, tonumber(shardrt.source.csv(path, { fields = { "b" } }):read(0, 1).b.data[0]))
    local ok, problem = pcall(shardrt.source.csv, path, { fields = { "a" } })
    assert.is_false(ok)
    assert.truthy(problem:find('two columns are called "a"', 1, true), problem)
  end)

  it("says by its first row what its columns are", function()
    local path = write("t.csv", "a,b,c\n1,0.5,one\n2,3,two\n")
    local fields = shardrt.source.csv(path).fields
    assert.same({ "int64", "float32", "uint8" }, { fields.a.dtype, fields.b.dtype, fields.c.dtype })
    assert.same({ {}, {}, { -1 } }, { fields.a.shape, fields.b.shape, fields.c.shape })
    assert.equal(3, #shardrt.source.csv(path, { header = false }))
  end)

  it("gives several columns as one field, and cuts it among devices", function()
    local path = write("t.csv", "label,p0,p1,p2,p3\n7,1,2,3,4\n8,5,6,7,8\n")
    local source = shardrt.source.csv(path, { fields = { label = "int32", p0 = { "uint8", { 2, 2 } } } })
    assert.same({ { { 1, 2 }, { 3, 4 } }, { { 5, 6 }, { 7, 8 } } }, source:read(0, 2).p0:to_table())
    local mesh = shardrt.make_mesh({ 2 }, { "m" })
    local P = shardrt.P
    for batch in shardrt.loader {
      source = source, batch_size = 2, epochs = 1,
      sharding = { p0 = shardrt.NamedSharding(mesh, P(nil, nil, "m")), label = shardrt.NamedSharding(mesh, P()) },
    } do
      assert.same({ { { 1 }, { 3 } }, { { 5 }, { 7 } } }, batch.p0.addressable_shards[1].data:to_table())
      assert.same({ 7, 8 }, shardrt.device_get(batch.label):to_table())
    end
  end)

  it("refuses what is no number, no column, no row, and tells where", function()
    local function refused(text, options, ...)
      local path = write("bad.csv", text)
      os.remove(path .. ".shardrt-index")
      local ok, problem = pcall(function() shardrt.source.csv(path, options):read(0, 2) end)
      assert.is_false(ok)
      expect.contains(problem, ...)
    end
    refused("a,b\n1,2\n3,x\n", nil, "bad.csv", "record 1 at byte 8", 'column 1 (from 0 on) holds "x"', "int64")
    refused("a,b\n1,2\n3,\n", nil, "line 3", "column 1 (from 0 on) is empty, which is no int64; on_bad_record")
    refused("a,b\n1,2\n3\n", nil, "record 1 at byte 8", "it has no column 1 (from 0 on)")
    refused("a,b\n1,2\n3,4,5\n", nil, "bad.csv", "record 1 at byte 8, line 3: ", "it has 3 cells, and the first line 2")
    refused("a,b\n1,2,\n", nil, "line 2", "it has 3 cells, and the first line 2")
    refused('a,b\n1,"x\ny"\n\n3\n', nil, "line 5", "it has 1 cell, and the first line 2")
    refused("a,b\r1,2\r3,4,5", nil, "line 3", "it has 3 cells, and the first line 2")
    refused("1,2\n3\n", { header = false, fields = { ["0"] = "int64" } }, "it has 1 cell, and the first line 2")
    refused("a,b\n1,5\n2,3,5\n", { fields = { a = "int64" } }, "line 3", "it has 3 cells, and the first line 2")
    refused("a,b\n1,2\n3,4\n", { fields = { b = { "int64", { 2 } } } }, "more elements than there are columns")
    refused("a,b\n9223372036854775808,2\n3,4\n", nil, 'holds "9223372036854775808", which is no int64')
    refused("a,b\n1e400,2\n3,4\n", nil, 'holds "1e400", which is no float32')
    refused("\255\254a\0,\0b\0\n\0", nil, "UTF-16")
    refused("PAR1\21\4\21" .. ("\0"):rep(99), nil, "a Parquet file")
    refused("a,b\n300,2\n3,4\n", { fields = { a = "uint8" } }, 'holds "300"', "uint8")
    refused("a,b\n0x1p3,2\n3,4\n", { fields = { a = "float32" } }, 'holds "0x1p3"')
    refused("a,b\n1,2\n3,4\n", { fields = { c = "uint8" } }, 'no column is called "c"')
    refused("a,a\n1,2\n3,4\n", nil, 'two columns are called "a"')
    refused("a,b\n", nil, "holds no row")
    refused("", nil, "holds no row")
    refused('a,b\n1,"2\n', nil, "its quotes do not end")
    refused("a,b\n1,2\n3,4\n", { delimiter = ";;" }, "one character")
  end)

  it("of several files has the same columns in all, in one order", function()
    local a, b, c = write("a.csv", "x,y\n1,2\n"), write("b.csv", '"x",y\n3,4\n'), write("c.csv", "y,x\n5,6\n")
    assert.same({ 1, 3 }, shardrt.source.csv({ a, b }, { fields = { x = "int32" } }):read(0, 2).x:to_table())
    local function problem_of(paths, o)
      local ok, problem = pcall(shardrt.source.csv, paths, o)
      assert.is_false(ok)
      return problem
    end
    local problem = problem_of { a, c }
    assert.truthy(problem:find('c.csv: its column 0 (from 0 on) is called "y", and in', 1, true), problem)
    problem = problem_of({ a, write("d.csv", "x\n5\n") }, { fields = { x = "int32" } })
    assert.truthy(problem:find("d.csv: has 1 columns, and", 1, true), problem)
    assert.equal(2, #shardrt.source.csv({ a, write("e.csv", ""), write("f.csv", "x,y"), b }))
  end)

  it("is read without the rows of another length where damage is to be skipped", function()
    local source = shardrt.source.csv(write("t.csv", "a,b\n1,2\n3\n4,5,6\n7,8\n"), { on_bad_record = "skip" })
    assert.equal(2, #source)
    assert.equal(7, tonumber(source:read(1, 1).a.data[0]))
    assert.equal(2, #source.bad_records)
  end)

  it("is found to have changed under its index", function()
    local path = write("t.csv", "a,b\n1,2\n3,4\n")
    local source = shardrt.source.csv(path)
    local file = assert(io.open(path, "r+b"))
    file:seek("set", 8)
    file:write "9"
    file:close()
    local ok, problem = pcall(source.read, source, 0, 2)
    assert.is_false(ok)
    assert.truthy(problem:find("record 1 at byte 8 (3 bytes) is damaged: its CRC-32C is", 1, true), problem)
  end)

  it("that is cut or has flipped bits gives what stands there, or an error; and with its index, an error", function()
    local text = 'a,"b ""c""",d\n1,"x, y",-2.5\n20,"two\nlines",3e2\n'
    local whole = shardrt.source.csv(write("whole.csv", text)):read(0, 2)
    assert.equal(20, tonumber(whole.a.data[1]))
    local function read(path)
      local source = shardrt.source.csv(path)
      return source:read(0, #source)
    end
    local refused = 0
    for length = 0, #text - 2 do
      local ok, problem = pcall(read, write(("cut-%d.csv"):format(length), text:sub(1, length)))
      if not ok then
        refused = refused + 1
        assert.truthy(problem:find(("cut-%d.csv"):format(length), 1, true), problem)
      end
    end
    assert.equal(39, refused) -- not where what is left of a row is one, too: of 3e2 "3e" is none, and "3" is
    for i = 1, #text do
      for bit = 0, 7 do
        local name = ("bit-%d-%d.csv"):format(i, bit)
        local path = write(name, text)
        local source = i % 4 == bit % 4 and shardrt.source.csv(path)
        local file = assert(io.open(path, "r+b"))
        file:seek("set", i - 1)
        file:write(string.char(require("bit").bxor(text:byte(i), 2 ^ bit)))
        file:close()
        local ok, problem = pcall(source and source.read or read, source or path, 0, 2)
        if not ok then assert.truthy(problem:find(name, 1, true), problem) end
        local in_row = i > 14 and text:sub(i, i) ~= "\n"
        if source and in_row then assert.truthy(not ok and problem:find "is damaged: its CRC%-32C is", problem) end
      end
    end
  end)

  it("leaves nothing behind where memory ends", function()
    local path = write("t.csv", 'a,b\n1,"x""y"\n3,z\n')
    local function open() return shardrt.source.csv(path):read(0, 2) end
    open()
    assert.is_true(no_memory.each(open) > 5)
  end)
end)

-- Lines of JSON: as Python's json writes them (tests/files/lines, made by lines.py), by hand, malformed, damaged, cut.

local ffi = require "ffi"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"
local ndarray, T = shardrt.ndarray, shardrt.transform

local FOLDER, COUNT = "tests/files/lines/", 48
local folder
before_each(function() folder = files.folder() end)
after_each(function() files.remove(folder) end)

local function bytes_of(host) return ffi.string(host.data, host.bytes) end
local function reference(name) return ndarray.load(FOLDER .. name .. ".npy") end

local function open(text, o)
  os.remove(folder .. "/made.jsonl.shardrt-index")
  return shardrt.source.jsonl(files.write(folder, "made.jsonl", text), o)
end

local function refused(text, fields, ...)
  local message = files.message(function()
    local source = open(text, fields and { fields = fields })
    source:read(0, #source)
  end)
  expect.contains(message, ...)
end

describe("source.jsonl", function()
  it("has texts in all lines, or numbers in all: bytes of one are not taken for the other", function()
    local text, list = '{"x": "abc"}\n', '{"x": [97, 98, 99]}\n'
    refused(text .. list, nil, "line 2", "stands no text, and in the first line a text")
    refused(text .. list, { "x" }, "line 2", "stands no text")
    refused(text .. list, { x = "bytes" }, "line 2", "stands no text")
    refused(list .. text, { x = { "uint8", { 3 } } }, "line 2", "stands a text, and in the first line no text")
    assert.equal("abc", bytes_of(open(text, { fields = { x = "bytes" } }):read(0, 1).x[1]))
    assert.equal("abc", bytes_of(open(list, { fields = { x = "bytes" } }):read(0, 1).x[1])) -- it was asked for
  end)

  it("has lists of texts and of objects, and objects that are asked for, as the JSON that stands there", function()
    local chats = { '[ {"role": "user", "content": "a\\u00e9 [1]"}, {"role": "b"}]', "[]", '[ [{"x": 1}], [] ]' }
    local lines = {}
    for i, chat in ipairs(chats) do
      lines[i] = ('{"messages": %s, "id": %d, "tags": ["a", "b"], "meta": {"k": %d}}\n'):format(chat, i, i)
    end
    local text = table.concat(lines)
    local source = open(text)
    assert.same({ dtype = "uint8", shape = { -1 } }, source.fields.messages)
    local all = source:read(0, 3)
    for i, chat in ipairs(chats) do
      assert.equal(chat, bytes_of(all.messages[i]))
      assert.equal('["a", "b"]', bytes_of(all.tags[i]))
    end
    local asked = open(text, { fields = { messages = "bytes", meta = "bytes" } }):read(0, 3)
    assert.equal(chats[3], bytes_of(asked.messages[3]))
    assert.equal('{"k": 2}', bytes_of(asked.meta[2]))
    refused('{"m": ["a"]}\n{"m": "a"}\n', nil, "line 2", "a text, and in the first line a list of objects or texts")
    refused('{"m": ["a"]}\n{"m": [1]}\n{"m": 5}\n', nil, "line 3", "stands no text")
    refused('{"m": [1]}\n{"m": ["a"]}\n', nil, "line 2", "which is no int64")
    refused('{"m": [["a"]]}\n{"m": ["a" "b"]}\n', nil, "line 2", "malformed line")
  end)

  local MAYBE = table.concat {
    '{"id": 0, "x": null, "list": [1, null, 3], "text": "a", "meta": {"k": 1}, "chat": null, "pair": [1, 2]}\n',
    '{"id": 1, "x": 2.5, "list": [], "text": null, "meta": null, "chat": [{"a": null}], "pair": [null, 4]}\n',
    '{"id": 2, "list": null, "meta": {"k": null}, "chat": [null, "b"], "pair": [5, 6]}\n',
    '{"id": 3, "x": -1, "list": [7], "text": "", "meta": {"k": 4}, "chat": [], "pair": [7, 8]}\n',
  }

  it("has nulls as errors, which name line and member; a missing member is one", function()
    local source = open(MAYBE)
    assert.same({ "chat", "id", "list", "meta.k", "pair", "text", "x" }, (function(names)
      table.sort(names)
      return names
    end)({ unpack(source.names) })) -- what the first line lacks, the first one that has it tells
    assert.equal("float32", source.fields.x.dtype)
    for _, case in ipairs {
      { "x", "line 1", "is null" }, { "list", "line 1", "has a null in its list" }, { "text", "line 2", "is null" },
      { "meta.k", "line 2", "is missing, which is the same as null" }, { "chat", "line 1", "is null" },
      { "pair", "line 2", "has a null in its list" },
    } do
      refused(MAYBE, { case[1] }, case[2], ('field "%s": %s'):format(case[1], case[3]), 'nulls = "skip"')
    end
  end)

  it("gives nulls a value where one is told, also in lists", function()
    local all = open(MAYBE, { fields = {
      x = { "float32", null = -1 }, list = { null = -7 }, text = { null = "none" }, ["meta.k"] = { "int8", null = 9 },
      chat = { null = "[]" }, pair = { "int32", { 2 }, null = 0 },
    } }):read(0, 4)
    assert.same({ -1, 2.5, -1, -1 }, all.x:to_table())
    assert.same({ 1, 9, 9, 4 }, all["meta.k"]:to_table())
    assert.same({ { 1, 2 }, { 0, 4 }, { 5, 6 }, { 7, 8 } }, all.pair:to_table())
    local texts, chats, lists = {}, {}, {}
    for i = 1, 4 do
      texts[i], chats[i], lists[i] = bytes_of(all.text[i]), bytes_of(all.chat[i]), all.list[i].shape[1]
    end
    assert.same({ "a", "none", "none", "" }, texts)
    assert.same({ "[]", '[{"a": null}]', '[null, "b"]', "[]" }, chats)
    assert.same({ 3, 0, 0, 1 }, lists)
    assert.equal("-7LL", tostring(all.list[1].data[1]))
    refused('{"a": [1, 2, 3]}\n{"a": null}\n', { a = { "int8", { 3 }, null = 0 } }, "line 2", "is null",
      "lists of its shape are 3 long")
    local odd = { fields = { ["meta.k"] = { "int8", null = 1.5 } } }
    expect.contains(files.message(open, MAYBE, odd), "null = 1.5 is no")
    expect.contains(files.message(open, MAYBE, { nulls = "skp" }), 'nulls = "skp"', '"skip"')
  end)

  it("leaves out lines with nulls where that is told, in what is asked for", function()
    local function ids(o)
      local source = open(MAYBE, o)
      local list = {}
      for i, id in ipairs(source:read(0, #source).id:to_table()) do list[i] = tonumber(id) end
      return list
    end
    assert.same({ 3 }, ids { nulls = "skip" })
    assert.same({ 1, 3 }, ids { fields = { "id", "x" }, nulls = "skip" })
    assert.same({ 0, 1, 2, 3 }, ids { fields = { "id", x = { null = 0 } }, nulls = "skip" })
    assert.same({ 1, 3 }, ids { fields = { "id", "list" }, nulls = "skip" })
    assert.same({ 0, 3 }, ids { fields = { "id", ["meta.k"] = "int32" }, nulls = "skip" })
    assert.same({ 1, 2, 3 }, ids { fields = { "id", "chat" }, nulls = "skip" })
  end)

  it("takes no number for another: edges of every dtype", function()
    local function value(text, dtype)
      return open(('{"x": %s}\n'):format(text), { fields = { x = dtype } }):read(0, 1).x
    end
    for _, way in ipairs {
      { "true", "float32" }, { "true", "int64" }, { "1", "bool" }, { '"5"', "int64" }, { "1.5", "int64" },
      { "1e3", "int64" },
      { "1.0", "int32" }, { "-1", "uint64" }, { "18446744073709551616", "uint64" }, { "9223372036854775808", "int64" },
      { "256", "uint8" }, { "1e400", "float64" }, { "1e39", "float32" }, { "65520", "float16" }, { "NaN", "int64" },
      { "null", "float32" }, { "9223372036854775808", nil },
    } do
      assert.is_false((pcall(value, way[1], way[2])), way[1] .. " as " .. tostring(way[2]))
    end
    assert.equal("18446744073709551615ULL", tostring(value("18446744073709551615", "uint64").data[0]))
    assert.equal("-9223372036854775808LL", tostring(value("-9223372036854775808", "int64").data[0]))
    assert.equal("9007199254740993LL", tostring(value("9007199254740993", "int64").data[0]))
    assert.equal(9007199254740992, value("9007199254740993", "float64").data[0]) -- the nearest there is
    assert.equal(-math.huge, 1 / value("-0.0", "float64").data[0])
  end)

  local path
  before_each(function() path = files.write(folder, "python.jsonl", files.slurp(FOLDER .. "python.jsonl")) end)

  it("reads what Python's json writes, to the bit", function()
    local source = shardrt.source.jsonl(path, { fields = {
      id = "int64", big = "uint64", small = "int8", x = "float64", ok = "bool", text = "bytes",
      tokens = { "int32", { -1 } }, box = { "float64", { 2, 3 } }, ["meta.lang"] = { "uint8", { 2 } },
      ["meta.at.line"] = "int16",
    } })
    assert.equal(COUNT, #source)
    local all = source:read(0, COUNT)
    for _, name in ipairs { "id", "big", "small", "x", "ok", "box" } do
      assert.equal(bytes_of(reference(name)), bytes_of(all[name]), name)
    end
    local at, text, tokens, lengths, sizes = { 0, 0 }, reference "text", reference "tokens", reference "text_lengths",
      reference "lengths"
    for i = 0, COUNT - 1 do
      assert.equal(lengths.data[i], all.text[i + 1].size)
      assert.equal(ffi.string(text.data + at[1], lengths.data[i]), bytes_of(all.text[i + 1]))
      assert.same({ sizes.data[i] }, all.tokens[i + 1].shape)
      assert.equal(ffi.string(tokens.data + at[2], 4 * sizes.data[i]), bytes_of(all.tokens[i + 1]))
      at = { at[1] + lengths.data[i], at[2] + sizes.data[i] }
      assert.equal(i, all["meta.at.line"].data[i])
    end
    assert.equal(text.size, at[1])
    assert.equal(tokens.size, at[2])
    assert.equal(1, ffi.string(all["meta.lang"].data, 2):find "^[ed][ne]")
  end)

  it("rounds decimals once, also such as lie half-way between two floats", function()
    for _, name in ipairs { "float32", "float16", "bfloat16" } do
      local read = shardrt.source.jsonl(path, { fields = { hard = name } }):read(0, COUNT).hard
      assert.equal(bytes_of(reference(name)), bytes_of(read), name)
    end
    local csv = { "x" }
    for line in io.lines(path) do csv[#csv + 1] = line:match '"hard": ([%d.]+)' end
    local table_path = files.write(folder, "hard.csv", table.concat(csv, "\n"))
    local read = shardrt.source.csv(table_path, { fields = { x = "float32" } }):read(0, COUNT).x
    assert.equal(bytes_of(reference "float32"), bytes_of(read))
  end)

  it("goes by the first line where nothing is asked for", function()
    local source = open '{"a": 1, "b": {"c": 0.5, "d": true}, "e": "é", "f": [1, 2.5], "g": [[1], [2]], "h": []}\n'
    assert.same({ "a", "b.c", "b.d", "e", "f", "g", "h" }, source.names)
    local found = {}
    for name, field in pairs(source.fields) do found[name] = field.dtype .. " " .. #field.shape end
    assert.same({
      a = "int64 0", ["b.c"] = "float32 0", ["b.d"] = "bool 0", e = "uint8 1", f = "float32 1", g = "int64 2",
      h = "int64 1",
    }, found)
    local one = source:read(0, 1)
    assert.same({ { 1, 2.5 } }, { one.f[1]:to_table() })
    assert.same({ 2, 1 }, one.g[1].shape)
    assert.same({ 0 }, one.h[1].shape)
    assert.same({ -1, -1 }, open('{"x": [[1]]}', { fields = { x = "float32" } }).fields.x.shape)

    -- A list that does not say what it holds leaves it to the lines behind it, but not for ever.
    local hollow = '{"x": [], "m": [], "n": [], "k": [null]}\n'
    local told = hollow .. hollow .. '{"x": [1.5], "m": ["a"], "n": [], "k": [true]}\n'
    source = open(told)
    for name, dtype in pairs { x = "float32", m = "uint8", n = "int64", k = "bool" } do
      assert.same({ dtype = dtype, shape = { -1 } }, source.fields[name])
    end
    local lists = open(told, { fields = { "m", "x" } }):read(0, 3)
    assert.same({ { 0 }, { 1.5 } }, { lists.x[2].shape, lists.x[3]:to_table() })
    for _, all in ipairs { lists, open(told, { fields = { m = "bytes" } }):read(0, 3) } do
      assert.same({ "[]", '["a"]' }, { bytes_of(all.m[1]), bytes_of(all.m[3]) })
    end
    refused(hollow:rep(1000) .. told, { "x" }, "line 1003", "which is no int64")
  end)

  it("takes CRLF, a byte order mark, empty lines, no last line's end, several files, names with dots", function()
    for _, text in ipairs {
      '{"a.b": 1}\n{"a.b": 2}\n{"a": {"b": 3}}', '{"a.b":1}\r\n\r\n{"a.b":2}\r\n{"a":{"b":3}}\r\n',
      '\239\187\191{"a.b":1}\n{"a.b":2}\n\n\n { "a" : {"b": 3 } , "x":NaN}\n\n',
    } do
      local source = open(text, { fields = { ["a.b"] = "int32" } })
      assert.same({ 1, 2, 3 }, source:read(0, #source)["a.b"]:to_table())
    end
    local other = files.write(folder, "other.jsonl", '{"a.b": 4}')
    local source = shardrt.source.jsonl({ folder .. "/made.jsonl", other }, { fields = { ["a.b"] = "int32" } })
    assert.same({ 3, 4 }, source:read(2, 2)["a.b"]:to_table())
    assert.equal("\239\187\191", files.slurp(folder .. "/made.jsonl"):sub(1, 3))
    local marked = files.write(folder, "marked.csv", "\239\187\191a,b\n1,2\n")
    assert.same({ "a", "b" }, shardrt.source.csv(marked).names)
  end)

  it("reads floats without a number, and whole ones as floats", function()
    local x = open('{"x": NaN}\n{"x": Infinity}\n{"x": -Infinity}\n{"x": 7}\n{"x": -0}', { fields = { x = "float16" } })
      :read(0, 5).x
    assert.same({ 0x7e00, 0x7c00, 0xfc00, 0x4700, 0x8000 }, (function()
      local bits, out = ffi.cast("uint16_t *", x.data), {}
      for i = 0, 4 do out[i + 1] = bits[i] end
      return out
    end)())
  end)

  it("feeds a loader, filled up to one length", function()
    local source = shardrt.source.jsonl(path, { fields = { tokens = { "int32", { -1 } }, id = "int64" } })
    local seen = {}
    for batch in shardrt.loader {
      source = source, batch_size = 8, epochs = 1, shuffle = true, seed = 3,
      transform = { tokens = { T.pad { size = { 10 }, value = -1 } } },
    } do
      local ids, tokens = shardrt.device_get(batch.id), shardrt.device_get(batch.tokens)
      for i = 0, 7 do seen[tostring(ids.data[i])] = ffi.string(tokens.data + 10 * i, 40) end
    end
    local ids, all = reference "id", source:read(0, COUNT).tokens
    for i = 0, COUNT - 1 do
      local row = ndarray.full({ 10 }, -1, "int32")
      ffi.copy(row.data, all[i + 1].data, all[i + 1].bytes)
      assert.equal(bytes_of(row), seen[tostring(ids.data[i])])
    end
  end)

  it("refuses what is missing, twice, of another type or too large, naming file, line and byte", function()
    refused('{"a": 1}\n\n{"b": 2}\n', { a = "int8" }, "made.jsonl: line 3, record 1 at byte 10: ",
      'field "a": is missing, which is the same as null', 'nulls = "skip"')
    refused('{"a": 1, "b": 2, "a": 3}', { a = "int8" }, "line 1, record 0 at byte 0", "stands twice, again at byte 22")
    refused('{"a.b": 1, "a": {"b": 3}}', { ["a.b"] = "int8" }, 'field "a.b": stands twice')
    refused('{"a": 1}\n{"a": 128}', { a = "int8" }, "line 2", "at byte 15 of the file stands 128, which is no int8")
    refused('{"a": 9223372036854775808}', { a = "int64" }, "stands 9223372036854775808, which is no int64")
    refused('{"a": 18446744073709551616}', { a = "uint64" }, "no uint64")
    refused('{"a": -1}', { a = "uint64" }, "no uint64")
    refused('{"a": 1e39}', { a = "float32" }, "stands 1e39, which is no float32")
    refused('{"a": 1e309}', { a = "float64" }, "no float64")
    refused('{"a": 65520}', { a = "float16" }, "no float16")
    refused('{"a": 1.0}', { a = "int64" }, "stands 1.0, which is no int64; `fields` can say what it is")
    refused('{"a": true}', { a = "int64" }, "stands true, which is no int64")
    refused('{"a": 1}', { a = "bool" }, "stands 1, which is no bool")
    refused('{"a": null}', { a = "float32" }, 'field "a": is null or missing in every line')
    refused('{"a": 0.5}\n{"a": null}', { a = "float32" }, "line 2", 'field "a": is null', "null = -1")
    refused('{"a": "7"}', { a = { "int64", {} } }, 'stands "7", which is no int64')
    refused('{"a": [1, 2]}', { a = { "int64", {} } }, "stands [1, which is no int64")
    refused('{"a": 5}', { a = { "int64", { -1 } } }, "stands 5, where a list should")
    refused('{"a": [1, 2]}', { a = { "int64", { 3 } } }, "a list of 2, where lists of its shape are 3 long")
    refused('{"a": [[1], [2, 3]]}', { a = { "int64", { -1, -1 } } }, "at byte 12 of the file stands a list of 2",
      ", where the lists beside it are 1 long")
    refused('{"a": "abc"}', { a = { "uint8", { 4 } } }, '"a" holds 3 elements of uint8')
    refused('{"a": [null]}', nil, 'field "a": has a null in its list')
    refused('{"a": {"b": null}}', nil, 'field "a.b": is null or missing in every line')
    refused('{"a": 1, "a": 2}', nil, 'two members "a"')
    refused('{}', nil, "an object without members")
    refused('{"' .. ("n"):rep(300) .. '": 1}', nil, "too long for a field's")
    for _, number in ipairs { "01", "+1", ".5", "1.", "1e", "0x1p3", "1_0", "nan", "inf", "--1", "1e5x", "-" } do
      refused(('{"a": %s}'):format(number), { a = { "float64", {} } }, "made.jsonl: line 1, record 0 at byte 0")
    end
  end)

  it("refuses what is no JSON, naming the byte", function()
    for text, part in pairs {
      ["[1]"] = "at byte 9 of the file: expected an object", ['{"a" 1}'] = 'expected ":" behind a name',
      ['{"a": 1} x'] = "expected nothing behind the object", ['{"a": 1'] = "expected a comma or }",
      ['{"a": "x'] = "expected the rest of a text", ['{"a": "\\x"}'] = "behind a backslash",
      ['{"a": "\\ud800"}'] = "both halves of a surrogate pair", ['{"a": "\\ud800\\u0041"}'] = "both halves",
      ['{"a": "\\udc00"}'] = "both halves", ['{"a": "\255"}'] = "a text in UTF-8",
      ['{"a": ' .. ("["):rep(99) .. ("]"):rep(99) .. "}"] = "more than 64 deep", ["   "] = "expected an object",
    } do
      refused('{"a": 1}\n' .. text, { a = { "uint8", {} } }, "line 2, record 1 at byte 9: field \"a\"", part)
    end
    refused("", nil, "holds no line")
    refused("\n\n", { a = "int8" }, "holds no line")
    local twice = files.gzip(files.write(folder, "twice", files.slurp(files.gzip(path))))
    assert.truthy(files.message(shardrt.source.jsonl, twice):find("gzipped", 1, true))
  end)

  it("finds single bits that are flipped, and survives them without an index", function()
    local text = files.slurp(path)
    local fields = { text = "bytes", tokens = { "int32", { -1 } }, hard = "float32", ["meta.at.line"] = "int8" }
    local source = shardrt.source.jsonl(path, { fields = fields })
    local file = assert(io.open(path, "r+b"))
    local from, line, number = 1, 0, {}
    for at in text:gmatch "()\n" do
      for k = from, at do number[k] = line end
      from, line = at + 1, line + 1
    end
    for at = 1, #text - 1, 131 do
      if not text:sub(at, at):find "[\r\n]" then
        local function put(c)
          file:seek("set", at - 1)
          file:write(c)
          file:flush()
        end
        put(string.char(bit.bxor(text:byte(at), 2 ^ (at % 8))))
        local message = files.message(source.read, source, number[at], 1)
        assert.truthy(message:find(("record %d at byte"):format(number[at]), 1, true), message)
        assert.truthy(message:find("is damaged: its CRC-32C is", 1, true), message)
        put(text:sub(at, at))
      end
    end
    file:close()
    assert.equal(COUNT, #source:read(0, COUNT).text)
    local line_1 = text:match "^[^\n]*"
    for at = 1, #line_1 do
      local other = string.char(bit.bxor(line_1:byte(at), 2 ^ (at % 8)))
      local ok, message = pcall(function()
        open(line_1:sub(1, at - 1) .. other .. line_1:sub(at + 1), { fields = fields }):read(0, 1)
      end)
      assert.truthy(ok or message:find("made.jsonl", 1, true), message)
    end
  end)

  it("survives being cut at every length", function()
    local line = files.slurp(path):match "^[^\r\n]*"
    local fields = { text = { "uint8", { -1 } }, tokens = { "int32", { -1 } }, hard = { "float32", {} } }
    for length = 0, #line - 1 do refused(line:sub(1, length), fields, "made.jsonl") end
    assert.equal(1, #open(line, { fields = fields }))
  end)

  it("leaves nothing behind where memory ends", function()
    local text = '{"a": "x\\ny", "b": [1, 2], "c": {"d": 0.5}}\n'
    open(text)
    for _, fields in ipairs { false, { a = "bytes", b = { "int8", { 2 } }, ["c.d"] = "float16" } } do
      local failures = no_memory.each(function()
        shardrt.source.jsonl(folder .. "/made.jsonl", { fields = fields or nil }):read(0, 1)
      end)
      assert.is_true(failures > 5, failures)
    end
  end)
end)

-- Tables that the scripts of tests/files/arrow and tests/files/parquet write: what each row of each column is, and that
-- it is read so.

local ffi = require "ffi"
local assert = require "luassert"
local expect = require "tests.support.expect"
local shardrt = require "shardrt"

local SEED = require "tests.support.seed"

local tables = { ROWS = 120 }

--- Elements as they lie in memory.
function tables.host_bytes(ctype, values)
  local array = ffi.new(ctype .. "[?]", math.max(#values, 1), values)
  return ffi.string(array, #values * ffi.sizeof(ctype))
end
local host_bytes = tables.host_bytes

--- That f raises a message with all of these words.
function tables.refuses(f, ...)
  local ok, message = pcall(f)
  assert(not ok, "was not refused: " .. table.concat({ ... }, ", "))
  expect.contains(tostring(message), ...)
end

--- Row i of `text` and its like.
function tables.text(i) return ("row %d %s"):format(i, ("é"):rep(i % 11)) end

--- What a column of scalars is, as in `columns`.
function tables.scalar(ctype, of) return function(i) return host_bytes(ctype, { of(i) }) end end
local scalar = tables.scalar

--- Row i of `list`.
function tables.list(i)
  local values = {}
  for k = 0, i % 4 - 1 do values[k + 1] = i + k end
  return host_bytes("int32_t", values)
end

--- Of each column that both have its dtype, and row i as bytes; nil where it is null.
tables.columns = {
  i8 = { "int8", scalar("int8_t", function(i) return i - 60 end) },
  u16 = { "uint16", scalar("uint16_t", function(i) return i * 500 end) },
  i32 = { "int32", scalar("int32_t", function(i) return i * 7919 % 1000 - 500 end) },
  u32 = { "uint32", scalar("uint32_t", function(i) return i * 35000000 end) },
  i64 = { "int64", scalar("int64_t", function(i) return i * 2LL ^ 33 - 5 end) },
  f16 = { "float16", function(i)
    return ffi.string(shardrt.ndarray.from_table({ i / 4 }, "float16").data, 2)
  end },
  f32 = { "float32", scalar("float", function(i) return i / 8 end) },
  f64 = { "float64", scalar("double", function(i) return i / 64 end) },
  bool = { "bool", scalar("uint8_t", function(i) return i % 3 == 0 and 1 or 0 end) },
  text = { "uint8", tables.text },
  class = { "uint8", function(i) return ({ "cat", "dog", "", "żółw" })[math.floor(i / 7) % 4 + 1] end },
  fixed = { "uint8", function(i) return string.char(i, 1, 2, i % 7) end },
  time = { "int64", scalar("int64_t", function(i) return 10LL ^ 12 + i end) },
  day = { "int32", scalar("int32_t", function(i) return i end) },
  price = { "float64", scalar("double", function(i) return (i * 125 - 1000) / 1000 end) },
  maybe = { "int32", function(i) return i % 5 > 0 and host_bytes("int32_t", { i }) or nil end },
  maybe_text = { "uint8", function(i) return i % 7 > 0 and tables.text(i) or nil end },
  ["image.bytes"] = { "uint8", tables.text },
  ["image.width"] = { "int32", scalar("int32_t", function(i) return i end) },
  list = { "int32", tables.list },
  maybe_list = { "int16", function(i)
    if i % 6 == 0 or (i % 10 == 1 and i % 3 > 0) then return nil end
    local values = {}
    for k = 1, i % 3 do values[k] = i end
    return host_bytes("int16_t", values)
  end },
  triple = { "float32", function(i) return host_bytes("float", { i / 2, i / 4, i / 8 }) end },
}

--- A sample of one field, as bytes.
function tables.read_one(source, name, i)
  local got = source:read(i, 1)[name]
  local value = got.dtype and got or got[1]
  return ffi.string(value.data, value.bytes)
end

-- That rows of several fields come right in one batch, scattered: rights has those of each, from 0 on.
local function check_scattered(source, path, rights)
  local batch = shardrt.loader {
    source = source:enumerate "id", batch_size = tables.ROWS, shuffle = "blocks", window = 9, seed = SEED, epochs = 1,
  }()
  for name, right in pairs(rights) do
    local rows = 0
    for k, shard in ipairs(batch[name].addressable_shards) do
      local ids, data = batch.id.addressable_shards[k].data, shard.data
      local each, bytes = data.bytes / ids.size, ffi.string(data.data, data.bytes)
      for r = 0, ids.size - 1 do
        local id = tonumber(ids.data[r])
        local got = bytes:sub(r * each + 1, (r + 1) * each)
        assert.equal(right[id + 1], got, ("%s, row %d of %s"):format(name, id, path))
      end
      rows = rows + ids.size
    end
    assert.equal(tables.ROWS, rows)
  end
end

--- That columns of a file are read right, in order, at random, scattered and at once: open(path, fields) opens it.
function tables.check(open, path, columns, names)
  local ROWS, fields, rights = tables.ROWS, {}, {}
  math.randomseed(SEED)
  for _, name in ipairs(names) do
    local dtype, of = unpack(columns[name])
    local source = open(path, { name })
    local rows, complete = {}, true
    assert.equal(ROWS, #source)
    assert.equal(dtype, source.fields[name].dtype, name)
    for k = 0, ROWS + 39 do
      local i = k < ROWS and k or math.random(0, ROWS - 1)
      local right = of(i)
      rows[i + 1], complete = right or "", complete and right ~= nil
      if right then
        assert.equal(right, tables.read_one(source, name, i), ("%s, row %d of %s"):format(name, i, path))
      else
        tables.refuses(function() source:read(i, 1) end, path, ('column "%s", row %d'):format(name, i), "null = ")
      end
    end
    if complete and source.fields[name].shape[1] ~= -1 then
      local all = source:read(0, ROWS)[name]
      assert.equal(table.concat(rows), ffi.string(all.data, all.bytes), name .. " of " .. path)
      fields[#fields + 1], rights[name] = name, rows
    elseif name == "maybe" then
      fields.maybe, rights.maybe = { "int32", null = -7 }, {}
      for i = 0, ROWS - 1 do rights.maybe[i + 1] = of(i) or host_bytes("int32_t", { -7 }) end
    end
  end
  if next(fields) then check_scattered(open(path, fields), path, rights) end
end

--- That nulls are what takes their place, in lists, too.
function tables.check_nulls(open, path)
  local source = open(path, { maybe = { "int64", null = -7 }, maybe_text = { null = "none" },
    maybe_list = { "int16", null = 9 } })
  for i = 0, tables.ROWS - 1 do
    local row, values = source:read(i, 1), {}
    for k = 1, i % 6 == 0 and 0 or i % 3 do values[k] = i % 10 == 1 and 9 or i end
    assert.equal(i % 5 == 0 and -7 or i, tonumber(row.maybe.data[0]))
    assert.equal(i % 7 == 0 and "none" or tables.text(i), tables.read_one(source, "maybe_text", i))
    assert.equal(host_bytes("int16_t", values), ffi.string(row.maybe_list[1].data, row.maybe_list[1].bytes))
  end
end

--- The rows in which neither `maybe` nor `maybe_list` is null.
function tables.left()
  local left = {}
  for i = 0, tables.ROWS - 1 do
    if tables.columns.maybe[2](i) and tables.columns.maybe_list[2](i) then left[#left + 1] = i end
  end
  return left
end

return tables

-- JSON (https://www.rfc-editor.org/rfc/rfc8259) of plain tables. What is read is parsed, never run.

local list = require "shardrt.base.list"
require("shardrt.base.error").own()

local json = {}

local DEEPEST = 100 -- tables within tables

-- The problem with a text as UTF-8 without zero bytes, or nil.
local function bad_text(text)
  if text:find("\0", 1, true) then return "a zero byte" end
  local at = text:find "[\128-\255]"
  while at do
    local first = text:byte(at)
    local more = first >= 0xC2 and first < 0xE0 and 1 or first >= 0xE0 and first < 0xF0 and 2
      or first >= 0xF0 and first < 0xF5 and 3
    local tail = more and text:match("^[\128-\191]+", at + 1) or ""
    local second = tail:byte(1) or 0
    -- Longer than need be, halves of surrogate pairs, and beyond U+10FFFF.
    local wrong = first == 0xE0 and second < 0xA0 or first == 0xED and second > 0x9F
      or first == 0xF0 and second < 0x90 or first == 0xF4 and second > 0x8F
    if not more or #tail < more or wrong then return "bytes that are not UTF-8" end
    at = text:find("[\128-\255]", at + more + 1)
  end
end

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }
local function quote(text)
  return '"' .. text:gsub('[%c"\\]', function(c) return ESCAPES[c] or ("\\u%04x"):format(c:byte()) end) .. '"'
end

local function child(path, key)
  return type(key) == "number" and ("%s[%d]"):format(path, key) or path .. "." .. key
end

-- Raises {problem}: what cannot be said in JSON, and where it stands.
local function problem(format, ...) error({ format:format(...) }, 0) end

local write

local function write_table(value, path, depth)
  if depth > DEEPEST then problem("%s: tables within tables, more than %d deep", path, DEEPEST) end
  if not list.is_plain(value) then problem("%s is %s, not plain data", path, tostring(value)) end
  local parts, length = {}, list.length(value)
  if length and length > 0 then
    for i = 1, length do parts[i] = write(value[i], child(path, i), depth + 1) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  local keys = {}
  for key in pairs(value) do
    if type(key) ~= "string" then
      problem("%s has the key %s: it is neither a list without holes nor a table of names", path, list.show(key))
    end
    keys[#keys + 1] = key
  end
  table.sort(keys)
  for i, key in ipairs(keys) do
    local bad = bad_text(key)
    if bad then problem("%s has a name with %s, %s", path, bad, list.quote(key)) end
    parts[i] = quote(key) .. ":" .. write(value[key], child(path, key), depth + 1)
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

function write(value, path, depth)
  local kind = type(value)
  if kind == "table" then return write_table(value, path, depth) end
  if kind == "boolean" then return tostring(value) end
  if kind == "string" then
    local bad = bad_text(value)
    if bad then problem("%s is a text with %s, which JSON has not", path, bad) end
    return quote(value)
  end
  if kind ~= "number" then
    problem("%s is %s, not plain data: a number, text, boolean or table", path, list.show(value))
  end
  if value ~= value or value == math.huge or value == -math.huge then
    problem("%s is %s, which JSON has not", path, tostring(value))
  end
  return (value % 1 == 0 and math.abs(value) <= 2 ^ 53 and "%.0f" or "%.17g"):format(value)
end

--- Plain data as JSON, in one line; the same text for equal data. Numbers, texts in UTF-8, booleans, lists and tables
--- of names; an empty table becomes {}.
---@param value any
---@param name string # of the value, for the problem: "metadata"
---@return string? # nil where it is not plain
---@return string? # the problem: "metadata.loss is nan, which JSON has not"
function json.encode(value, name)
  local ok, text = pcall(write, value, name, 1)
  if ok then return text end
  if type(text) ~= "table" then error(text, 0) end
  return nil, text[1]
end

-- ---- reading ----

local function malformed(at, expected) problem("malformed JSON at byte %d: expected %s", at - 1, expected) end

local function skip(text, at) return (text:find("[^ \t\r\n]", at)) or #text + 1 end

local NAMED = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }

local function utf8(code)
  local floor, char = math.floor, string.char
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
  if code < 0x10000 then return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64) end
  return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64,
    0x80 + code % 64)
end

-- What stands behind a backslash at `at`, and where it goes on.
local function read_escape(text, at)
  local c = text:sub(at, at)
  if NAMED[c] then return NAMED[c], at + 1 end
  local function hex(from)
    local digits = text:match("^u(%x%x%x%x)", from)
    return digits and tonumber(digits, 16) or malformed(from, "an escape")
  end
  local code = hex(at)
  if code == 0 then problem("a text with a zero byte, at byte %d", at - 1) end
  at = at + 5
  if code >= 0xD800 and code < 0xE000 then
    local low = code < 0xDC00 and text:sub(at, at) == "\\" and hex(at + 1) or 0
    if low < 0xDC00 or low > 0xDFFF then malformed(at, "both halves of a surrogate pair") end
    code, at = 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00), at + 6
  end
  return utf8(code), at
end

-- A text whose opening quote stands at `at`.
local function read_text(text, at)
  local parts, from = {}, at + 1
  while true do
    local stop = text:find('[%z\1-\31"\\]', from) or #text + 1
    parts[#parts + 1] = text:sub(from, stop - 1)
    local c = text:sub(stop, stop)
    if c == '"' then
      local made = table.concat(parts)
      if bad_text(made) then problem("a text with %s, before byte %d", bad_text(made), stop - 1) end
      return made, stop + 1
    end
    if c ~= "\\" then malformed(stop, 'the rest of a text, and "') end
    parts[#parts + 1], from = read_escape(text, stop + 1)
  end
end

local function read_number(text, at)
  local stop = at
  local function take(pattern)
    local _, last = text:find("^" .. pattern, stop)
    stop = last and last + 1 or stop
    return last
  end
  take "%-"
  if not take "0" and not take "[1-9]%d*" then malformed(at, "a value") end
  if take "%." and not take "%d+" then malformed(stop, "digits") end
  if take "[eE][+-]?" and not take "%d+" then malformed(stop, "digits") end
  return tonumber(text:sub(at, stop - 1)), stop
end

local read

local function read_entries(text, at, close, depth, read_entry)
  if depth > DEEPEST then problem("JSON nested more than %d deep", DEEPEST) end
  at = skip(text, at + 1)
  if text:sub(at, at) == close then return at + 1 end
  while true do
    at = skip(text, read_entry(at))
    local c = text:sub(at, at)
    if c == close then return at + 1 end
    if c ~= "," then malformed(at, ", or " .. close) end
    at = skip(text, at + 1)
  end
end

local function read_object(text, at, depth)
  local made = {}
  return made, read_entries(text, at, "}", depth, function(from)
    if text:sub(from, from) ~= '"' then malformed(from, "a name") end
    local name, value
    name, from = read_text(text, from)
    from = skip(text, from)
    if text:sub(from, from) ~= ":" then malformed(from, ":") end
    if made[name] ~= nil then problem("the name %s stands twice, before byte %d", list.quote(name), from - 1) end
    value, from = read(text, skip(text, from + 1), depth + 1)
    made[name] = value
    return from
  end)
end

local function read_list(text, at, depth)
  local made = {}
  return made, read_entries(text, at, "]", depth, function(from)
    local value
    value, from = read(text, from, depth + 1)
    made[#made + 1] = value
    return from
  end)
end

local WORDS = { { "true", true }, { "false", false } }

function read(text, at, depth)
  local c = text:sub(at, at)
  if c == "{" then return read_object(text, at, depth) end
  if c == "[" then return read_list(text, at, depth) end
  if c == '"' then return read_text(text, at) end
  for _, word in ipairs(WORDS) do
    if text:sub(at, at + #word[1] - 1) == word[1] then return word[2], at + #word[1] end
  end
  if text:sub(at, at + 3) == "null" then problem("null, at byte %d, which plain data has not", at - 1) end
  return read_number(text, at)
end

--- The data of a JSON text. Refused are null, which a Lua table cannot hold, and names that stand twice.
---@param text string
---@return any # nil where it is malformed
---@return string? # the problem
function json.decode(text)
  local ok, value = pcall(function()
    local value, at = read(text, skip(text, 1), 1)
    at = skip(text, at)
    if at <= #text then malformed(at, "the end") end
    return value
  end)
  if ok then return value end
  if type(value) ~= "table" then error(value, 0) end
  return nil, value[1]
end

return json

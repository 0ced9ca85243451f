-- Errors as a recipe's user sees them: they begin with the recipe's own file and line.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"

---@class shardrt.fail
local fail = {}

---@type string? # the path of the recipe that runs
fail.recipe = nil
---@type function? # the recipe itself, for as long as it runs
fail.chunk = nil

local own = {} -- sources of shardrt's own modules, which a user did not write

--- Marks the file of the calling function as shardrt's own. Every module calls it once.
function fail.own()
  own[debug.getinfo(2, "S").source] = true
end
own[debug.getinfo(1, "S").source] = true

--- Whether a file is shardrt's own.
---@param source string # as debug.getinfo gives it
---@return boolean
function fail.is_own(source) return own[source] ~= nil end

-- The operations of a function's bytecode, in their order, with the register that each begins with and its line.
local function operations(chunk)
  local util, list = require "jit.util", {}
  for pc = 1, math.huge do
    local code = util.funcbc(chunk, pc)
    if not code then return list end
    list[pc] = { name = bit.band(code, 0xff), register = bit.band(bit.rshift(code, 8), 0xff),
      line = util.funcinfo(chunk, pc).currentline }
  end
end

-- The line of a recipe's `return f(…)`, if it has one alone outside of its functions: it leaves no frame of the recipe
-- on the stack. The call's own line is the last one of its arguments: it begins where its register is given f.
local function tail_call(chunk)
  local is_tail, list, found = {}, operations(chunk), nil
  for _, text in ipairs { "return f()", "return f(...)" } do
    local sample = operations(assert(loadstring(text)))
    is_tail[sample[#sample].name] = true
  end
  for pc, one in ipairs(list) do
    if is_tail[one.name] then
      if found then return nil end
      found = pc
    end
  end
  for pc = (found or 0) - 1, 1, -1 do
    if list[pc].register == list[found].register then return list[pc].line end
  end
end

--- Where the recipe is: the innermost frame on the stack that is not shardrt's own.
---@return string? # "recipe.lua:12"; "recipe.lua" where it has several calls `return f(…)`, one of which left no frame
function fail.where()
  local level = 2
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then
      local line = fail.chunk and not coroutine.running() and tail_call(fail.chunk)
      return line and fail.recipe .. ":" .. line or fail.recipe
    end
    if info.what ~= "C" and info.currentline >= 0 and not own[info.source] then
      return (info.source:gsub("^[@=]", "")) .. ":" .. info.currentline
    end
    level = level + 1
  end
end

--- Raises a message with its place, formatted as by string.format.
local function raise(_, format, ...)
  local where = fail.where()
  local message = select("#", ...) > 0 and format:format(...) or format
  if message:find("://", 1, true) then
    local text = ffi.new("char[?]", #message + 1, message)
    C.shardrt_error_hide(text)
    message = ffi.string(text)
  end
  error(where and where .. ": " .. message or message, 0)
end

local last = { message = nil, code = 0 } -- of the C function that failed last

--- The message of a C function that has just failed.
---@param code integer
---@return string
function fail.message(code)
  local message = ffi.string(C.shardrt_error_message())
  last.message, last.code = message ~= "" and message or ffi.string(C.shardrt_error_text(code)), code
  return last.message
end

--- Notes that a message is about a file that cannot be read.
---@param message string
function fail.note_unreadable(message) last.message, last.code = message, C.SHARDRT_EIO end

--- The code of an error: that of the C function which it is about, or EINVAL.
---@param problem any # what was raised
---@return integer
function fail.code_of(problem)
  if type(problem) == "string" and problem:find "not enough memory$" then return C.SHARDRT_ENOMEM end -- LuaJIT's words
  local is_about = last.message and type(problem) == "string" and problem:find(last.message, 1, true)
  return is_about and last.code or C.SHARDRT_EINVAL
end

--- Passes on what a C function returned, or raises its message.
---@param code integer
---@param caller string? # the call that a recipe made, to stand before the message
---@return integer
function fail.check(code, caller)
  if code >= 0 then return code end
  -- What differs between processes is told by all of them alike, whatever each of them called: so it is printed once.
  local told = caller and code ~= C.SHARDRT_EMISMATCH and caller .. ": " or ""
  return raise(nil, "%s%s", told, fail.message(code))
end

local BETWEEN_PROCESSES = { [C.SHARDRT_EMISMATCH] = true, [C.SHARDRT_ETIMEOUT] = true, [C.SHARDRT_ECOMM] = true }

--- Whether an error is about what lies between processes: these tell it alike, and it names what each of them called.
---@param code integer
---@return boolean
function fail.is_between_processes(code) return BETWEEN_PROCESSES[code] == true end

local LONGEST_WORD = 64 -- nothing is suggested for longer ones

-- How many insertions, removals, replacements and swaps of neighbours turn a into b.
local function edit_distance(a, b)
  local rows = { [0] = {} }
  for j = 0, #b do rows[0][j] = j end
  for i = 1, #a do
    local row, above, before = { [0] = i }, rows[i - 1], rows[i - 2]
    for j = 1, #b do
      row[j] = math.min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a:byte(i) == b:byte(j) and 0 or 1))
      if before and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        row[j] = math.min(row[j], before[j - 2] + 1)
      end
    end
    rows[i] = row
  end
  return rows[#a][#b]
end

-- The word of a set that is nearest to another, not further away than `furthest`, or nil.
local function nearest(word, known, furthest)
  local best, best_distance = nil, furthest
  local words = {}
  for name in pairs(known) do words[#words + 1] = tostring(name) end
  table.sort(words)
  for _, name in ipairs(words) do
    local distance = edit_distance(word:lower(), name:lower())
    if distance <= best_distance and (not best or distance < best_distance) then
      best, best_distance = name, distance
    end
  end
  return best
end

--- The word of a set that was probably meant, as text to add to a message: ` (did you mean "seed"?)`, or "".
---@param word any
---@param known table<string, any> # its keys are the words
---@return string
function fail.suggestion(word, known)
  if type(word) ~= "string" or #word > LONGEST_WORD then return "" end
  local best = nearest(word, known, math.max(1, math.floor(#word / 2)))
  return best and (' (did you mean "%s"?)'):format(best) or ""
end

local function quoted(key) return type(key) == "string" and '"' .. key .. '"' or tostring(key) end

--- For a field that an object does not have: an error where there is a hint, or where it is all but the name of one
--- that it has; nil otherwise, since code that is given any value may ask it for any field.
---@param what string # the object: "an array"
---@param key any
---@param known table<string, any> # its keys are the fields
---@param aliases table<string, string>? # names that mean a field, although they look different
---@param hint string? # what would work
function fail.no_field(what, key, known, aliases, hint)
  local is_word = type(key) == "string" and #key >= 3 and #key <= LONGEST_WORD and key:sub(1, 1) ~= "_"
  local meant = is_word and (aliases and aliases[key] or nearest(key, known, math.max(1, math.floor(#key / 4))))
  if hint then raise(nil, "%s has no %s; %s", what, quoted(key), hint) end
  if meant then raise(nil, '%s has no %s (did you mean "%s"?)', what, quoted(key), meant) end
end

--- Refuses keys that a function does not know.
---@param caller string # how the function is called in a recipe: "loader"
---@param given table
---@param known table<string, any> # its keys are the words allowed
---@param aliases table<string, string>? # names that mean a word, although they look different
function fail.keywords(caller, given, known, aliases)
  for word in pairs(given) do
    if known[word] == nil then
      local names = {}
      for name in pairs(known) do names[#names + 1] = name end
      table.sort(names)
      local meant = aliases and aliases[word]
      raise(nil, "%s: unknown keyword %s%s; it takes %s", caller,
        quoted(word),
        meant and (' (did you mean "%s"?)'):format(meant) or fail.suggestion(word, known), table.concat(names, ", "))
    end
  end
end

return setmetatable(fail, { __call = raise })

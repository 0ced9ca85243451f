-- What the bytecode of a Lua function tells of it: the globals that it reads and writes, the upvalues that it assigns
-- to, and an identity that is one in all processes. Functions written inside it count as parts of it.

local bit = require "bit"
local util = require "jit.util"
local fail = require "shardrt.base.error"
fail.own()

local bytecode = {}

local function opcode(f, pc)
  local instruction = util.funcbc(f, pc)
  return instruction and bit.band(instruction, 0xff), instruction
end

-- The numbers of opcodes differ between versions of LuaJIT; they are learnt from functions that use them.
local accessor = assert(loadstring "written = read")
local read_global, write_global = opcode(accessor, 1), opcode(accessor, 2)
local read_upvalue
local assign_upvalue = {} ---@type table<integer, boolean>
do
  local u, v, w, x
  local function learn(value)
    u = value
    v = "text"
    w = 1
    x = nil
  end
  for pc = 1, 4 do assign_upvalue[opcode(learn, pc)] = true end
  local function use() return u, v, w, x end
  read_upvalue = opcode(use, 1)
end

-- How a loop over `pairs` or `next` starts and goes on before it has run, and what LuaJIT writes in these places once
-- it finds that it was given others (base/sorted_pairs.lua's).
local settled = {} ---@type table<integer, integer>
do
  local fresh, other = assert(loadstring "for _ in pairs() do end"), assert(loadstring "for _ in other() do end")
  local pc = 1
  while opcode(fresh, pc) do
    local before, after = opcode(fresh, pc), opcode(other, pc)
    if before ~= after then settled[before] = after end
    pc = pc + 1
  end
end

-- The function's own prototypes: itself, then those of the functions inside it.
local function prototypes(f)
  local found, at = { f }, 1
  while found[at] do
    local i = -1
    while true do
      local constant = util.funck(found[at], i)
      if constant == nil then break end
      if type(constant) == "proto" then found[#found + 1] = constant end
      i = i - 1
    end
    at = at + 1
  end
  return found
end

--- A line of Lua, as messages show it: recipe.lua:12.
---@param source string? # as debug.getinfo gives it
---@param line integer?
---@return string
function bytecode.line(source, line)
  return ("%s:%d"):format((source or ""):match "^[@=](.*)$" or "[string]", line or 0)
end

-- Where an instruction stands.
local function instruction_place(proto, pc)
  local info = util.funcinfo(proto, pc)
  return bytecode.line(info.source, info.currentline)
end

--- Where a function begins.
---@param f function
---@return string
function bytecode.place(f)
  local info = debug.getinfo(f, "S")
  return bytecode.line(info.source, info.linedefined)
end

--- Where a function first uses its i-th upvalue.
---@param f function
---@param i integer # from 1
---@return string
function bytecode.upvalue_place(f, i)
  local name = util.funcuvname(f, i - 1)
  for _, proto in ipairs(prototypes(f)) do
    local pc = 1
    local op, instruction = opcode(proto, pc)
    while op do
      if op == read_upvalue and util.funcuvname(proto, bit.rshift(instruction, 16)) == name then
        return instruction_place(proto, pc)
      end
      pc = pc + 1
      op, instruction = opcode(proto, pc)
    end
  end
  return bytecode.place(f)
end

--- What a function does that would make its outcome depend on the calls before: it assigns to a variable outside it;
--- or, that there is no such thing: it reads a global that is not in `globals`. nil: nothing.
---@param f function
---@param globals table<string, any>
---@return string? # with its place
function bytecode.problem(f, globals)
  local outer, i = {}, 0 -- names of its upvalues
  while util.funcuvname(f, i) do
    outer[util.funcuvname(f, i)] = true
    i = i + 1
  end
  for _, proto in ipairs(prototypes(f)) do
    local pc = 1
    local op, instruction = opcode(proto, pc)
    while op do
      if assign_upvalue[op] then
        local name = util.funcuvname(proto, bit.band(bit.rshift(instruction, 8), 0xff))
        if proto == f or not name or outer[name] then -- of those inside, all but local variables of the function
          return ('%s: it assigns to "%s", a variable outside it; what a sample becomes may depend on nothing that '
            .. "other samples leave behind"):format(instruction_place(proto, pc), name ~= "" and name or "?")
        end
      elseif op == write_global or op == read_global then
        local name = util.funck(proto, -bit.rshift(instruction, 16) - 1)
        if op == write_global then
          return ('%s: it writes the global "%s"; make it a local variable'):format(instruction_place(proto, pc), name)
        elseif globals[name] == nil then
          return ('%s: it reads the global "%s", which is not there in a worker; make it a local variable before the '
            .. "function"):format(instruction_place(proto, pc), name)
        end
      end
      pc = pc + 1
      op, instruction = opcode(proto, pc)
    end
  end
end

--- The order in which keys of a plain table are taken: numbers, texts, false, true.
---@param a number|string|boolean
---@param b number|string|boolean
---@return boolean
function bytecode.before(a, b)
  if type(a) ~= type(b) then return type(a) == "number" or type(b) == "boolean" end
  if type(a) == "boolean" then return b and not a end
  return a < b
end

-- A constant: a number, a text, a 64-bit number, or the template of a table of these.
local function constant_text(value)
  if type(value) == "number" then return ("%.17g"):format(value) end
  if type(value) ~= "table" then return type(value) .. " " .. tostring(value) end
  local keys, words = {}, {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys, bytecode.before)
  for i, key in ipairs(keys) do words[i] = constant_text(key) .. "=" .. constant_text(value[key]) end
  return "{" .. table.concat(words, ";") .. "}"
end

--- A text that is equal for equal functions with equal names, in all processes, whether they ran before or not:
--- string.dump's is not, since it has the entries of tables in their order in memory.
---@param f function # not compiled: fresh from loadstring
---@return string
function bytecode.identity(f)
  local words = {}
  for _, proto in ipairs(prototypes(f)) do
    local info = util.funcinfo(proto)
    words[#words + 1] = ("%s %d %d"):format(info.source or "?", info.linedefined or 0, info.params)
    local pc = 0
    local op, instruction = opcode(proto, pc)
    while op do
      words[#words + 1] = bit.tohex(instruction - op + (settled[op] or op))
      pc = pc + 1
      op, instruction = opcode(proto, pc)
    end
    for i = -1, -info.gcconsts, -1 do
      local constant = util.funck(proto, i)
      words[#words + 1] = type(constant) == "proto" and "function" or constant_text(constant)
    end
    for i = 0, info.nconsts - 1 do words[#words + 1] = constant_text(util.funck(proto, i)) end
  end
  return table.concat(words, "\n")
end

return bytecode

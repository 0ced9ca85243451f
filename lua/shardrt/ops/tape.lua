-- What was computed from what, while somebody wants a gradient of it (autodiff/grad.lua).

local array = require "shardrt.array.array"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local tree = require "shardrt.array.tree"
fail.own()

local DEEPEST = 100 -- tables within tables

local tape = {}

---@alias shardrt.tape.wants fun(x: shardrt.Array): boolean
---@alias shardrt.tape.vjp fun(dy: shardrt.Array, wants: shardrt.tape.wants, entry: shardrt.tape.entry): table
-- The gradient of each input that is wanted and has one, by the input's place

---@class shardrt.tape.entry
---@field what string # the word
---@field where string|false|nil # the recipe's line, where it has no gradient
---@field out shardrt.Array
---@field inputs shardrt.Array[]
---@field vjp shardrt.tape.vjp|nil # nil: it has no gradient
---@field detail (string|shardrt.Node|fun():string)? # what else the result depends on
---@field given any # what the gradient takes beside these, which one function for all of a kind does not hold

local open = {} -- tapes that run, the innermost last: {tracked = set of arrays, entries = list}
local scopes = 0

--- Begins to write down what is computed from these arrays.
---@param arrays shardrt.Array[]
---@return table # the tape
function tape.begin(arrays)
  local made = { tracked = {}, entries = {} }
  for _, x in ipairs(arrays) do made.tracked[x] = true end
  open[#open + 1] = made
  return made
end

--- Ends it, and all that began later.
---@param made table
function tape.finish(made)
  while #open > 0 do
    local last = open[#open]
    open[#open] = nil
    if last == made then return end
  end
end

--- Writes down that `out` was computed, on each tape that follows one of its inputs.
---@param entry shardrt.tape.entry
function tape.note(entry)
  for _, made in ipairs(open) do
    for _, x in ipairs(entry.inputs) do
      if made.tracked[x] then
        made.tracked[entry.out] = true
        made.entries[#made.entries + 1] = entry
        break
      end
    end
  end
end

--- Whether any tape is open.
---@return boolean
function tape.is_open() return #open > 0 end

-- Within a function that is run as one (grad, explain), a sum that is still to be made waits for what it is used for.
-- Such a function is called alike in every process, and what it returns is complete.

local function finish_all(value, depth)
  if type(value) ~= "table" or depth > DEEPEST then return end
  if array.is(value) then
    local _ = value.handle
  elseif tree.is("a function's results", value) then
    for _, key in ipairs(tree.keys("a function's results", value)) do finish_all(value[key], depth + 1) end
  end
end

-- C calls it, so that the function cannot yield: what others do then would be taken for its own.
local task
local function run_task()
  local own = task
  task = nil
  own.results, own.result_count = list.pack(pcall(own.f, unpack(own.arguments, 1, own.count)))
end

--- Runs f(...) as one; an error is passed on.
---@param f function
---@param ... any
---@return any ...
function tape.within(f, ...)
  local own = { f = f, arguments = { ... }, count = select("#", ...) }
  scopes, task = scopes + 1, own
  string.gsub(" ", " ", run_task)
  scopes = scopes - 1
  local results, count = own.results, own.result_count
  if not results[1] and tostring(results[2]):find("yield across", 1, true) then
    fail "the function yields; what grad, jit or explain is given computes and returns"
  end
  if not results[1] then error(results[2], 0) end
  for i = 2, count do finish_all(results[i], 1) end
  return unpack(results, 2, count)
end

---@return boolean
function tape.is_within() return scopes > 0 end

return tape

-- What every operation on arrays does: find its place, bring its operands there, make the result, sum what is partial.

local ffi = require "ffi"
local C = require "shardrt.C"
local array = require "shardrt.array"
local dtype = require "shardrt.dtype"
local fail = require "shardrt.fail"
local list = require "shardrt.list"
local ndarray = require "shardrt.ndarray"
local outside = require "shardrt.outside"
local place = require "shardrt.place"
local promote = require "shardrt.promote"
local propagate = require "shardrt.propagate"
local put = require "shardrt.put"
local reshard = require "shardrt.reshard"
local shape = require "shardrt.shape"
local tape = require "shardrt.tape"
fail.own()

local operate = {}

---@alias shardrt.Operand shardrt.Array|shardrt.ndarray|number|boolean

--- Who is told of each operation (explain.lua): observer(what, out, inputs).
---@type fun(what: string, out: shardrt.Array, inputs: shardrt.Array[])|nil
operate.observer = nil
--- Who is told of what moves between devices (explain.lua): mover(x, to), or mover(x, to, what of it goes where).
---@type fun(x: shardrt.Array, to: shardrt.Sharding, shift: shardrt.Shift?)|nil
operate.mover = nil

---@return boolean
function operate.is_planning() return C.shardrt_job_get().planning ~= 0 end

--- The array that an operand is: itself, or one that nobody placed, of a host array or number.
---@param what string
---@param value any
---@param which string # "the first operand", for messages
---@return shardrt.Array
function operate.array(what, value, which)
  if array.is(value) then
    array.check(what, value)
    return value
  end
  if ndarray.is(value) then return array.unplaced_from(what, value) end
  if type(value) == "number" or type(value) == "boolean" or type(value) == "cdata" then
    return array.unplaced_from(what, put.to_host(what, value))
  end
  return fail("%s: %s is %s; it takes arrays, host arrays and numbers%s", what, which,
    type(value) == "table" and "a table" or list.show(value),
    list.length(value) and " (np.array{1, 2} makes an array of a list of numbers, np.stack{x, y} one of arrays)" or "")
end

--- Whether a value is one number and not an array.
---@param value any
---@return boolean
function operate.is_number(value)
  return type(value) == "number" or type(value) == "boolean" or ffi.istype("int64_t", value)
    or ffi.istype("uint64_t", value)
end

--- A new array there, without data; every process must call it alike.
---@param what string
---@param at shardrt.place
---@param cuts shardrt.Cuts
---@param name string # its dtype
---@param sizes integer[]
---@return shardrt.Array
function operate.result(what, at, cuts, name, sizes)
  local kind = dtype.named(what, name)
  if not at.committed then return array.unplaced(what, kind, sizes) end
  if at.single then return array.new(what, at.single, kind, sizes) end -- what is on one device is its owner's alone
  return array.made_by_all(array.new(what, place.sharding(at, cuts), kind, sizes))
end

--- Calls C for a result that was just made; nothing under planning.
---@param what string
---@param out shardrt.Array
---@param call fun(...): integer
function operate.compute(what, out, call, ...)
  if operate.is_planning() then return end
  local code = outside.call(call, ...)
  if code == C.SHARDRT_EDEVICE or code == C.SHARDRT_ENOMEM then what = ("%s for %s"):format(what, tostring(out)) end
  fail.check(code, what)
  array.tell_collector(out)
end

local DONATE = { donate = true }

--- The array in another sharding, by what links there are between processes.
---@param what string
---@param x shardrt.Array
---@param to shardrt.Sharding
---@param options shardrt.ReshardOptions?
---@param move function? # C's; left out: the one that takes memory from results which are gone
---@return shardrt.Array
function operate.move(what, x, to, options, move)
  if operate.mover and not array.is_pending(x) then operate.mover(x, to) end -- what finishes a sum tells by itself
  return reshard.array(what, x, to, options, move or C.shardrt_reshard_operand)
end

-- The array in a layout of which this process holds all that it needs.
local function regroup(what, x, at, cuts)
  local out = operate.result(what, at, cuts, x.dtype, x.shape)
  operate.compute(what, out, C.shardrt_regroup, x.handle, out.handle)
  return out
end

--- The array in that layout. What only has to be cut further does not travel.
---@param what string
---@param x shardrt.Array
---@param at shardrt.place
---@param cuts shardrt.Cuts
---@param donate boolean? # nobody needs x as it is any more
---@return shardrt.Array
function operate.bring(what, x, at, cuts, donate)
  if not at.committed then return x end
  local to, held = place.sharding(at, cuts), place.cuts(at, x)
  if held == nil then return array.place(what, x, to) end
  if held and propagate.equal(held, cuts) and (at.mesh == nil or x.sharding.mesh) then return x end
  if array.is_pending(x) then return operate.move(what, x, to) end -- summed as it is needed
  if C.shardrt_job_get().process_count == 1 or held and propagate.is_finer(held, cuts) then
    return regroup(what, x, at, cuts)
  end
  return operate.move(what, x, to, donate and DONATE or nil)
end

--- Puts arrays into a result that was just made, wherever their parts lie; each begins there at an element of its own.
---@param what string
---@param out shardrt.Array
---@param arrays shardrt.Array[] # over the same devices
---@param starts integer[][] # may be negative, or beyond the end: what the result does not have is left out
function operate.assemble(what, out, arrays, starts)
  for i, x in ipairs(arrays) do
    if operate.mover then operate.mover(x, out.sharding, { shape = out.shape, by = starts[i] }) end
  end
  reshard.assemble(what, out, arrays, starts)
end

-- What is computed from what. Behind the first line's end stands what processes compare and messages do not show.
local function described(what, name, sizes, inputs, told)
  local words = { ("%s: %s %s\n"):format(what, name, shape.text(sizes)) }
  for _, x in ipairs(inputs) do words[#words + 1] = array.name(x) end
  words[#words + 1] = type(told) == "function" and told() or told
  return table.concat(words, ", ")
end

-- Tells what a result was computed from: where processes compute it together, as a step that all must take alike; else
-- it becomes the result's number, which is compared once the result meets what all have.
local function agree(what, out, inputs, told)
  local text = described(what, out.dtype, out.shape, inputs, told)
  if out.committed and not out.sharding.device then
    C.shardrt_job_step(text)
  else
    array.derived(out, text)
  end
end

--- Notes what was computed, for gradients, for other processes' checks and for who watches.
---@param what string
---@param out shardrt.Array
---@param inputs shardrt.Array[]
---@param vjp shardrt.tape.vjp|nil
---@param told (string|fun(): string)? # what else the result depends on: numbers, axes
---@return shardrt.Array out
function operate.done(what, out, inputs, vjp, told)
  if C.shardrt_job_get().process_count > 1 then agree(what, out, inputs, told) end
  if tape.is_open() then
    tape.note { what = what, where = fail.where(), out = out, inputs = inputs, vjp = vjp }
  end
  if operate.observer then operate.observer(what, out, inputs) end
  return out
end

--- The result with other sizes and cuts but the same elements on each device; shares the memory.
---@param what string
---@param x shardrt.Array
---@param at shardrt.place
---@param cuts shardrt.Cuts
---@param sizes integer[]
---@return shardrt.Array
function operate.alias(what, x, at, cuts, sizes)
  local out = operate.result(what, at, cuts, x.dtype, sizes)
  if not operate.is_planning() then fail.check(C.shardrt_alias(x.handle, out.handle), what) end
  return out
end

-- ---- sums that are not complete ----

local LITTLE = 65536 -- bytes of a block for which one exchange is quicker than two of parts of it

local function prepend(first, rest)
  local made = { first }
  for i = 1, #rest do made[i + 1] = rest[i] end
  return made
end

-- The array {n, …} reduced over its first dimension.
local function reduce_first(what, op, x, at, cuts, sizes)
  local out = operate.result(what, at, cuts, x.dtype, sizes)
  operate.compute(what, out, C.shardrt_reduce, op, x.handle, 1, ffi.new("int32_t[1]", 0), out.handle)
  return out
end

-- A layout in which every process sums an equal part: the result's, with one dimension cut further; nil: none divides.
local function spread(split, cuts, sizes)
  for d, size in ipairs(sizes) do
    if size > 0 and size % (propagate.parts(cuts[d], split.at.axis_size) * split.count) == 0 then
      local made = list.copy(cuts)
      made[d] = list.copy(cuts[d])
      for _, axis in ipairs(split.outer) do made[d][#made[d] + 1] = axis end
      return made
    end
  end
end

-- The parts {count, …} of a sum, added up over processes and laid out as it is wanted.
local function settle(what, op, parts, split, at, cuts, sizes, wanted)
  if split.count == 1 then
    local sum = operate.alias(what, parts, at, cuts, sizes)
    return propagate.equal(cuts, wanted) and sum or operate.bring(what, sum, at, wanted, true)
  end
  local fine, goal = place.renamed(split, cuts), place.renamed(split, wanted)
  local scattered
  if propagate.is_finer(fine, goal) and not propagate.equal(fine, goal) then
    scattered = goal -- reduce-scatter: each process sums what it will hold
  elseif shape.elements(sizes) * dtype.named(what, parts.dtype).size > LITTLE then
    scattered = spread(split, fine, sizes)
  end
  scattered = scattered or fine
  local gathered = operate.bring(what, parts, split.at, prepend({}, scattered), true)
  local sum = reduce_first(what, op, gathered, split.at, scattered, sizes)
  if propagate.equal(scattered, goal) then return operate.alias(what, sum, at, wanted, sizes) end
  local to = place.sharding(at, wanted)
  return operate.move(what, sum, to, DONATE)
end

-- The parts {count, …} of a sum, one in each process: each device's own, and of these what is in one process added up.
local function own_parts(what, o, cuts, sizes, split, compute)
  local outer = prepend(split.outer, place.renamed(split, cuts))
  if o.adds then
    local out = operate.result(what, split.at, outer, o.dtype, prepend(split.count, sizes))
    if not operate.is_planning() then compute(out) end
    return out
  end
  local count = propagate.parts(o.partial, o.at.axis_size)
  local each = operate.result(what, o.at, prepend(o.partial, cuts), o.dtype, prepend(count, sizes))
  if not operate.is_planning() then compute(each) end
  if split.count == count then return each end
  local together = regroup(what, each, split.at, outer)
  local out = operate.result(what, split.at, outer, o.dtype, prepend(split.count, sizes))
  operate.compute(what, out, C.shardrt_reduce, o.op, together.handle, 1, ffi.new("int32_t[1]", 0), out.handle)
  return out
end

---@class shardrt.operate.partial
---@field op integer
---@field at shardrt.place
---@field cuts shardrt.Cuts # of the result
---@field partial string[] # the axes over which it is to be summed
---@field dtype string
---@field sizes integer[]
---@field inputs shardrt.Array[]
---@field told string? # what else it depends on, as of `done`
---@field adds boolean? # compute adds up the parts of a process itself

-- Parts have a dimension more than their sum. Where no array has as many, two of its dimensions are taken for one that
-- lies alike in the memory of every device.
local function fitted(cuts, sizes)
  if #sizes < C.SHARDRT_MAX_NDIM then return cuts, sizes end
  for d = 1, #sizes - 1 do
    if #cuts[d + 1] == 0 or sizes[d] == 1 and #cuts[d] == 0 then
      local made_cuts, made_sizes = {}, {}
      for e = 1, #sizes - 1 do
        local old = e < d and e or e + 1
        made_cuts[e], made_sizes[e] = cuts[old], sizes[old]
      end
      made_cuts[d] = #cuts[d] > 0 and cuts[d] or cuts[d + 1]
      made_sizes[d] = sizes[d] * sizes[d + 1]
      return made_cuts, made_sizes
    end
  end
  return cuts, sizes
end

--- A result whose parts lie in different devices.
---@param what string
---@param o shardrt.operate.partial
---@param compute fun(out: shardrt.Array) # fills the array of parts, {count, …} or {…}: each device's own, or where it
--- `adds`, the sums of each process's own
---@param wanted shardrt.Sharding? # how the result is to lie; nil: by its cuts
---@return shardrt.Array
function operate.partial(what, o, compute, wanted)
  local at, cuts = o.at, o.cuts
  if #o.partial == 0 then
    local out = operate.result(what, at, cuts, o.dtype, o.sizes)
    if not operate.is_planning() then compute(out) end
    return wanted and operate.move(what, out, wanted) or out
  end
  local split = place.split(at, o.partial, C.shardrt_job_get().devices_per_process)
  -- Processes that compute different things find out before they add up each other's parts.
  if split.count > 1 then C.shardrt_job_step("parts of " .. described(what, o.dtype, o.sizes, o.inputs, o.told)) end
  local part_cuts, part_sizes = fitted(cuts, o.sizes)
  local parts = own_parts(what, o, part_cuts, part_sizes, split, compute)
  local made -- once it was summed
  local function finish(to, asked)
    local who = asked or what
    if made then return operate.move(who, made, to) end
    local goal
    if to.mesh == at.mesh and #part_sizes == #o.sizes then
      goal = place.cuts(at, { sharding = to, ndim = #o.sizes, committed = true })
    end
    made = settle(who, o.op, parts, split, at, part_cuts, part_sizes, goal or part_cuts)
    parts = nil
    if goal then return operate.alias(who, made, at, goal, o.sizes) end -- which may be deleted: this is kept
    made = operate.alias(who, made, at, cuts, o.sizes)
    return operate.move(who, made, to)
  end
  if wanted then return finish(wanted) end
  local own = place.sharding(at, cuts)
  if not tape.is_within() then return finish(own) end
  return array.pending(own, o.dtype, o.sizes, finish)
end

--- The dtype in which parts of a sum are kept until they are added up.
---@param name string
---@return string
function operate.part_dtype(name)
  return promote.is_float(name) and promote.computed(name) or name
end

return operate

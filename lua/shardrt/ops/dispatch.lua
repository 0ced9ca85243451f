-- What every operation on arrays does: find its mesh, bring its operands there, make the result, sum what is partial.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local buffers = require "shardrt.array.buffers"
local common_mesh = require "shardrt.ops.common_mesh"
local current = require "shardrt.base.current"
local device_put = require "shardrt.array.device_put"
local dtype = require "shardrt.layout.dtype"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local memory_pressure = require "shardrt.base.memory_pressure"
local ndarray = require "shardrt.array.ndarray"
local numbering = require "shardrt.array.numbering"
local promote = require "shardrt.ops.promote"
local propagate = require "shardrt.ops.propagate"
local recording = require "shardrt.record.recording"
local reshard = require "shardrt.array.reshard"
local shape = require "shardrt.layout.shape"
local tape = require "shardrt.ops.tape"
local unplaced = require "shardrt.array.unplaced"
fail.own()

local dispatch = {}

---@alias shardrt.Operand shardrt.Array|shardrt.ndarray|number|boolean

--- Who is told of each operation (program/explain.lua): observer(what, out, inputs).
---@type fun(what: string, out: shardrt.Array, inputs: shardrt.Array[])|nil
dispatch.observer = nil
--- Who is told of what moves between devices (program/explain.lua): mover(x, to), or mover(x, to, what of it goes
--- where).
---@type fun(x: shardrt.Array, to: shardrt.Sharding, shift: shardrt.Shift?)|nil
dispatch.mover = nil

---@return boolean
function dispatch.is_planning() return current.info.planning ~= 0 end

--- Whether arrays lie in the host's memory.
---@return boolean
function dispatch.is_on_host() return ffi.string(current.info.platform) == "host" end

--- The array that an operand is: itself, or one that nobody placed, of a host array or number.
---@param caller string
---@param value any
---@param which string? # "the first operand", for messages; left out: "the operand"
---@return shardrt.Array
function dispatch.array(caller, value, which)
  if array.is(value) then
    array.check(caller, value)
    return value
  end
  if ndarray.is(value) then return unplaced.of_host(caller, value) end
  if type(value) == "number" or type(value) == "boolean" or type(value) == "cdata" then
    return unplaced.of_host(caller, device_put.to_host(caller, value))
  end
  return fail("%s: %s is %s; it takes arrays, host arrays and numbers%s", caller, which or "the operand",
    type(value) == "table" and "a table" or list.show(value),
    list.length(value) and " (np.array{1, 2} makes an array of a list of numbers, np.stack{x, y} one of arrays)" or "")
end

--- Whether a value is one number and not an array.
---@param value any
---@return boolean
function dispatch.is_number(value)
  return type(value) == "number" or type(value) == "boolean" or ffi.istype("int64_t", value)
    or ffi.istype("uint64_t", value)
end

--- A new array there, without data; every process must call it alike.
---@param caller string
---@param at shardrt.common_mesh
---@param dim_axes shardrt.DimAxes
---@param name string # its dtype
---@param sizes integer[]
---@return shardrt.Array
function dispatch.result(caller, at, dim_axes, name, sizes)
  local kind = dtype.named(caller, name)
  if not at.committed then return unplaced.new(caller, kind, sizes) end
  if at.single then return array.new(caller, at.single, kind, sizes) end -- what is on one device is its owner's alone
  return numbering.made_by_all(array.new(caller, common_mesh.sharding(at, dim_axes), kind, sizes))
end

--- The same of a known form: that of a result with the same cuts there.
---@param caller string
---@param at shardrt.common_mesh
---@param form shardrt.array.form
---@return shardrt.Array
function dispatch.result_of(caller, at, form)
  local x = array.of_form(caller, form)
  return at.committed and not at.single and numbering.made_by_all(x) or x
end

--- Calls C for a result that was just made; nothing under planning.
---@param caller string
---@param out shardrt.Array
---@param refused (fun(): any)? # raises the error of arguments that C refuses; left out: it is C's
---@param call fun(...): integer
function dispatch.compute_or(caller, out, refused, call, ...)
  if dispatch.is_planning() then return end
  recording.note(call, ...)
  local code = memory_pressure.call(call, ...)
  if code == C.SHARDRT_EINVAL and refused then refused() end
  if code == C.SHARDRT_EDEVICE or code == C.SHARDRT_ENOMEM then
    caller = ("%s for %s"):format(caller, array.text(out))
  end
  fail.check(code, caller)
  buffers.tell_collector(out)
end

--- The same, whose errors are C's.
---@param caller string
---@param out shardrt.Array
---@param call fun(...): integer
function dispatch.compute(caller, out, call, ...) dispatch.compute_or(caller, out, nil, call, ...) end

local DONATE = { donate = true }

--- The array in another sharding, by what links there are between processes.
---@param caller string
---@param x shardrt.Array
---@param to shardrt.Sharding
---@param options shardrt.ReshardOptions?
---@param move function? # C's; left out: the one that takes memory from results which are gone
---@return shardrt.Array
function dispatch.move(caller, x, to, options, move)
  if dispatch.mover and not array.is_pending(x) then dispatch.mover(x, to) end -- what finishes a sum tells by itself
  return reshard.array(caller, x, to, options, move or C.shardrt_reshard_operand)
end

-- The array in a layout of which this process holds all that it needs.
local function regroup(caller, x, at, dim_axes)
  local out = dispatch.result(caller, at, dim_axes, x.dtype, x.shape)
  dispatch.compute(caller, out, C.shardrt_regroup, x.handle, out.handle)
  return out
end

--- The array in that layout. What only has to be cut further does not travel.
---@param caller string
---@param x shardrt.Array
---@param at shardrt.common_mesh
---@param dim_axes shardrt.DimAxes
---@param donate boolean? # nobody needs x as it is any more
---@return shardrt.Array
function dispatch.to_layout(caller, x, at, dim_axes, donate)
  if not at.committed then return x end
  local to, held = common_mesh.sharding(at, dim_axes), common_mesh.dim_axes(at, x)
  if held == nil then return unplaced.place(caller, x, to) end
  if held and propagate.equal(held, dim_axes) and (at.mesh == nil or x.sharding.mesh) then return x end
  if array.is_pending(x) then return dispatch.move(caller, x, to) end -- summed as it is needed
  if current.info.process_count == 1 or held and propagate.is_finer(held, dim_axes) then
    local there = regroup(caller, x, at, dim_axes)
    if donate then array.drop(x) end
    return there
  end
  return dispatch.move(caller, x, to, donate and DONATE or nil)
end

--- The same of what is only read: where each device has its part already, whatever its cuts are called, it is the
--- array.
---@param caller string
---@param x shardrt.Array
---@param at shardrt.common_mesh
---@param dim_axes shardrt.DimAxes
---@return shardrt.Array
function dispatch.operand(caller, x, at, dim_axes)
  local held = at.mesh and x.sharding.mesh and common_mesh.dim_axes(at, x)
  if held and not array.is_pending(x) and propagate.alike(held, dim_axes, at.axis_size) then return x end
  return dispatch.to_layout(caller, x, at, dim_axes)
end

--- Puts arrays into a result that was just made, wherever their parts lie; each begins there at an element of its own.
---@param caller string
---@param out shardrt.Array
---@param arrays shardrt.Array[] # over the same devices
---@param starts integer[][] # may be negative, or beyond the end: what the result does not have is left out
function dispatch.assemble(caller, out, arrays, starts)
  for i, x in ipairs(arrays) do
    if dispatch.mover then dispatch.mover(x, out.sharding, { shape = out.shape, by = starts[i] }) end
  end
  reshard.assemble(caller, out, arrays, starts)
end

-- What is computed from what. Behind the first line's end stands what processes compare and messages do not show.
local function described(caller, name, sizes, inputs, detail)
  local words = { ("%s: %s %s\n"):format(caller, name, shape.text(sizes)) }
  for _, x in ipairs(inputs) do words[#words + 1] = numbering.name(x) end
  if type(detail) == "table" then detail = expression.text(detail) end
  if type(detail) == "function" then detail = detail() end
  words[#words + 1] = detail
  return table.concat(words, ", ")
end

-- Tells what a result was computed from: where processes compute it together, as a step that all must take alike; else
-- it becomes the result's number, which is compared once the result meets what all have.
local function agree_on_step(caller, out, inputs, detail)
  local text = described(caller, out.dtype, out.shape, inputs, detail)
  if numbering.is_of_all(out) then
    C.shardrt_job_step(current.job, text)
  else
    numbering.derived(out, text)
  end
end

--- Notes what was computed, for gradients, for other processes' checks and for who watches.
---@param caller string
---@param out shardrt.Array
---@param inputs shardrt.Array[]
---@param vjp shardrt.tape.vjp|nil
---@param detail (string|shardrt.Node|fun():string)? # what else the result depends on: numbers, axes, an expression
---@param given any # for the gradient
---@return shardrt.Array out
function dispatch.done(caller, out, inputs, vjp, detail, given)
  if current.info.process_count > 1 then agree_on_step(caller, out, inputs, detail) end
  if tape.is_open() then
    tape.note { what = caller, where = not vjp and fail.where(), out = out, inputs = inputs, vjp = vjp,
      detail = detail, given = given }
  end
  if dispatch.observer then dispatch.observer(caller, out, inputs) end
  return out
end

local function share(caller, x, out)
  if dispatch.is_planning() then return end
  recording.note(C.shardrt_alias, x.handle, out.handle)
  fail.check(C.shardrt_alias(x.handle, out.handle), caller)
end

--- The result with other sizes and cuts but the same elements on each device; shares the memory.
---@param caller string
---@param x shardrt.Array
---@param at shardrt.common_mesh
---@param dim_axes shardrt.DimAxes
---@param sizes integer[]
---@return shardrt.Array
function dispatch.alias(caller, x, at, dim_axes, sizes)
  local out = dispatch.result(caller, at, dim_axes, x.dtype, sizes)
  share(caller, x, out)
  return out
end

--- The same of a known form, as of `result_of`.
---@param caller string
---@param x shardrt.Array
---@param at shardrt.common_mesh
---@param form shardrt.array.form
---@return shardrt.Array
function dispatch.alias_of(caller, x, at, form)
  local out = dispatch.result_of(caller, at, form)
  share(caller, x, out)
  return out
end

--- The same array as an object of its own, which is then what a tape follows.
---@param caller string
---@param x shardrt.Array
---@param vjp shardrt.tape.vjp
---@return shardrt.Array
function dispatch.another(caller, x, vjp)
  local out = array.another(caller, x)
  if numbering.is_of_all(x) then numbering.made_by_all(out) end
  return dispatch.done(caller, out, { x }, vjp)
end

local function no_gradients() return {} end

--- The same array, through which no gradient is taken: shardrt.stop_gradient.
---@param x shardrt.Array
---@return shardrt.Array
function dispatch.stop_gradient(x) return dispatch.another("stop_gradient", x, no_gradients) end

-- ---- sums that are not complete ----

local LITTLE = 65536 -- bytes of a block for which one exchange is quicker than two of parts of it

local function prepend(first, rest)
  local made = { first }
  for i = 1, #rest do made[i + 1] = rest[i] end
  return made
end

-- The array {n, …} reduced over its first dimension.
local function reduce_first(caller, op, x, at, dim_axes, sizes)
  local out = dispatch.result(caller, at, dim_axes, x.dtype, sizes)
  dispatch.compute(caller, out, C.shardrt_reduce, op, x.handle, 1, ffi.new("int32_t[1]", 0), out.handle)
  return out
end

-- A layout in which every process sums an equal part: the result's, with one dimension cut further; nil: none divides.
local function spread_over_processes(split, dim_axes, sizes)
  for d, size in ipairs(sizes) do
    if size > 0 and size % (propagate.parts(dim_axes[d], split.at.axis_size) * split.count) == 0 then
      local made = list.copy(dim_axes)
      made[d] = list.copy(dim_axes[d])
      for _, axis in ipairs(split.outer) do made[d][#made[d] + 1] = axis end
      return made
    end
  end
end

-- The cuts with one more, by an axis, of a dimension that it divides; nil: there is none.
local function cut_further(at, axis, dim_axes, sizes)
  for d, size in ipairs(sizes) do
    if size > 0 and size % (propagate.parts(dim_axes[d], at.axis_size) * at.axis_size[axis]) == 0 then
      local made = list.copy(dim_axes)
      made[d] = list.copy(made[d])
      made[d][#made[d] + 1] = axis
      return made
    end
  end
end

-- The parts {count, …} of a sum over many processes, added up along one axis after the other, each among few of them:
-- so messages do not grow with the processes, but with the number of stages. Of what is not little each keeps a part at
-- each stage, and all gather these along the same axes afterwards.
local function add_in_stages(caller, op, parts, staged, dim_axes, sizes, wanted)
  local at, count, cuts = staged.at, staged.count, {}
  local little = shape.elements(sizes) * dtype.named(caller, parts.dtype).size <= LITTLE
  local goal = common_mesh.renamed(staged, wanted)
  dim_axes = common_mesh.renamed(staged, dim_axes)
  for i = #staged.outer, 1, -1 do
    local axis, rest = staged.outer[i], { unpack(staged.outer, 1, i - 1) }
    local size = at.axis_size[axis]
    count = count / size
    local part_sizes = { count, size, unpack(sizes) }
    local cut = not little and cut_further(at, axis, dim_axes, sizes)
    local apart = dispatch.alias(caller, parts, at, { rest, { axis }, unpack(dim_axes) }, part_sizes)
    array.drop(parts)
    if cut then
      cuts[#cuts + 1] = dim_axes
      dim_axes = cut
    end
    local gathered = dispatch.to_layout(caller, apart, at, { rest, {}, unpack(dim_axes) }, true)
    parts = dispatch.result(caller, at, { rest, unpack(dim_axes) }, gathered.dtype, { count, unpack(sizes) })
    dispatch.compute(caller, parts, C.shardrt_reduce, op, gathered.handle, 1, ffi.new("int32_t[1]", 1), parts.handle)
    array.drop(gathered)
  end
  local sum = dispatch.alias(caller, parts, at, dim_axes, sizes)
  for i = #cuts, 1, -1 do
    if not propagate.is_finer(goal, cuts[i]) then break end
    sum = dispatch.move(caller, sum, common_mesh.sharding(at, cuts[i]), DONATE)
  end
  return dispatch.to_layout(caller, sum, at, goal, true)
end

-- The parts {count, …} of a sum, added up over processes and laid out as it is wanted.
local function complete_sum(caller, op, parts, split, at, dim_axes, sizes, wanted)
  if split.count == 1 then
    local sum = dispatch.alias(caller, parts, at, dim_axes, sizes)
    return propagate.equal(dim_axes, wanted) and sum or dispatch.to_layout(caller, sum, at, wanted, true)
  end
  local fine, goal = common_mesh.renamed(split, dim_axes), common_mesh.renamed(split, wanted)
  local staged = #sizes + 2 <= C.SHARDRT_MAX_NDIM and common_mesh.stages(split)
  if staged then
    return dispatch.alias(caller, add_in_stages(caller, op, parts, staged, fine, sizes, goal), at, wanted, sizes)
  end
  local scattered
  if propagate.is_finer(fine, goal) and not propagate.equal(fine, goal) then
    scattered = goal -- reduce-scatter: each process sums what it will hold
  elseif shape.elements(sizes) * dtype.named(caller, parts.dtype).size > LITTLE then
    scattered = spread_over_processes(split, fine, sizes)
  end
  scattered = scattered or fine
  local gathered = dispatch.to_layout(caller, parts, split.at, prepend({}, scattered), true)
  local sum = reduce_first(caller, op, gathered, split.at, scattered, sizes)
  array.drop(gathered)
  if propagate.equal(scattered, goal) then
    local out = dispatch.alias(caller, sum, at, wanted, sizes)
    array.drop(sum)
    return out
  end
  local to = common_mesh.sharding(at, wanted)
  return dispatch.move(caller, sum, to, DONATE)
end

-- The parts {count, …} of a sum, one in each device along the axes that it is over.
local function device_parts(caller, o, dim_axes, sizes, compute)
  local count = propagate.parts(o.partial, o.at.axis_size)
  local each = dispatch.result(caller, o.at, prepend(o.partial, dim_axes), o.dtype, prepend(count, sizes))
  if not dispatch.is_planning() then compute(each) end
  return each
end

-- Of these, which are dropped, what is in one process added up: the parts {count, …} of a sum, one in each process.
local function added_in_processes(caller, o, each, dim_axes, sizes, split)
  if split.count == each.shape[1] then return each end
  local outer = prepend(split.outer, common_mesh.renamed(split, dim_axes))
  local together = regroup(caller, each, split.at, outer)
  local out = dispatch.result(caller, split.at, outer, o.dtype, prepend(split.count, sizes))
  array.drop(each)
  dispatch.compute(caller, out, C.shardrt_reduce, o.op, together.handle, 1, ffi.new("int32_t[1]", 0), out.handle)
  array.drop(together)
  return out
end

-- The parts {count, …} of a sum, one in each process: each device's own, and of these what is in one process added up.
local function own_parts(caller, o, dim_axes, sizes, split, compute)
  if o.adds then
    local outer = prepend(split.outer, common_mesh.renamed(split, dim_axes))
    local out = dispatch.result(caller, split.at, outer, o.dtype, prepend(split.count, sizes))
    if not dispatch.is_planning() then compute(out) end
    return out
  end
  local each = device_parts(caller, o, dim_axes, sizes, compute)
  return added_in_processes(caller, o, each, dim_axes, sizes, split)
end

-- Whether links between GPUs add up such parts, one in each device, into a sum that lies as it is wanted.
local function links_add(caller, o, dim_axes, sizes, wanted)
  if o.op ~= C.SHARDRT_SUM or dispatch.is_planning() or dispatch.is_on_host() then
    return false
  end
  local from, to = common_mesh.sharding(o.at, prepend(o.partial, dim_axes)), common_mesh.sharding(o.at, wanted)
  local whole = prepend(propagate.parts(o.partial, o.at.axis_size), sizes)
  local answer = ffi.new "bool[1]"
  fail.check(C.shardrt_sums_in_lines(current.job, from.handle, to.handle, dtype.named(caller, o.dtype).code, #whole,
    shape.to_c(whole), answer), caller)
  return answer[0]
end

-- The sum of these, laid out as it is wanted. Links give all of it, or each device its own part of it; nil: they do not
-- give that part.
local function add_over_links(caller, o, each, dim_axes, sizes, wanted)
  local given = propagate.is_finer(dim_axes, wanted) and wanted or dim_axes
  if not propagate.equal(given, dim_axes) and not links_add(caller, o, dim_axes, sizes, given) then return nil end
  local sum = reshard.array(caller, each, common_mesh.sharding(o.at, given), DONATE, C.shardrt_sum_in_lines)
  return dispatch.to_layout(caller, sum, o.at, wanted, true)
end

---@class shardrt.dispatch.partial
---@field op integer
---@field at shardrt.common_mesh
---@field dim_axes shardrt.DimAxes # of the result
---@field partial string[] # the axes over which it is to be summed
---@field dtype string
---@field sizes integer[]
---@field inputs shardrt.Array[]
---@field detail string? # what else it depends on, as of `done`
---@field adds boolean? # compute adds up the parts of a process itself

-- Parts have a dimension more than their sum. Where no array has as many, two of its dimensions are taken for one that
-- lies alike in the memory of every device.
local function fitted(dim_axes, sizes)
  if #sizes < C.SHARDRT_MAX_NDIM then return dim_axes, sizes end
  for d = 1, #sizes - 1 do
    if #dim_axes[d + 1] == 0 or sizes[d] == 1 and #dim_axes[d] == 0 then
      local made_dim_axes, made_sizes = {}, {}
      for e = 1, #sizes - 1 do
        local old = e < d and e or e + 1
        made_dim_axes[e], made_sizes[e] = dim_axes[old], sizes[old]
      end
      made_dim_axes[d] = #dim_axes[d] > 0 and dim_axes[d] or dim_axes[d + 1]
      made_sizes[d] = sizes[d] * sizes[d + 1]
      return made_dim_axes, made_sizes
    end
  end
  return dim_axes, sizes
end

--- A result whose parts lie in different devices.
---@param caller string
---@param o shardrt.dispatch.partial
---@param compute fun(out: shardrt.Array) # fills the array of parts, {count, …} or {…}: each device's own, or where it
--- `adds`, the sums of each process's own
---@param wanted shardrt.Sharding? # how the result is to lie; nil: by its cuts
---@return shardrt.Array
function dispatch.partial(caller, o, compute, wanted)
  local at, dim_axes = o.at, o.dim_axes
  if #o.partial == 0 then
    local out = dispatch.result(caller, at, dim_axes, o.dtype, o.sizes)
    if not dispatch.is_planning() then compute(out) end
    return wanted and dispatch.move(caller, out, wanted) or out
  end
  local split = common_mesh.split(at, o.partial, current.info.devices_per_process)
  -- Processes that compute different things find out before they add up each other's parts.
  if split.count > 1 then
    C.shardrt_job_step(current.job, "parts of " .. described(caller, o.dtype, o.sizes, o.inputs, o.detail))
  end
  local part_dim_axes, part_sizes = fitted(dim_axes, o.sizes)
  local linked = split.count > 1 and links_add(caller, o, part_dim_axes, part_sizes, part_dim_axes)
  local parts = linked and device_parts(caller, o, part_dim_axes, part_sizes, compute)
    or own_parts(caller, o, part_dim_axes, part_sizes, split, compute)
  local made -- once it was summed
  local function sum(to, who)
    if made then return dispatch.move(who, made, to) end
    if array.is_gone(parts) then fail("%s: adding up failed before, and what was added up is gone with it", who) end
    local goal
    if to.mesh == at.mesh and #part_sizes == #o.sizes then
      goal = common_mesh.dim_axes(at, { sharding = to, ndim = #o.sizes, committed = true })
    end
    local lies = goal or part_dim_axes
    if linked then
      made = add_over_links(who, o, parts, part_dim_axes, part_sizes, lies)
      if not made then parts = added_in_processes(who, o, parts, part_dim_axes, part_sizes, split) end
    end
    made = made or complete_sum(who, o.op, parts, split, at, part_dim_axes, part_sizes, lies)
    array.drop(parts)
    parts = nil
    if goal then return dispatch.alias(who, made, at, goal, o.sizes) end -- which may be deleted: this is kept
    made = dispatch.alias(who, made, at, dim_axes, o.sizes)
    return dispatch.move(who, made, to)
  end
  -- Compiled code may keep this function: where it is not called any more, it refers to no array.
  local function finish(to, asked, is_last)
    local out = sum(to, asked or caller)
    if is_last then made, o = nil, nil end
    return out
  end
  if wanted then return finish(wanted, nil, true) end
  local own = common_mesh.sharding(at, dim_axes)
  if not tape.is_within() then return finish(own, nil, true) end
  return array.pending(own, o.dtype, o.sizes, finish)
end

--- The dtype in which parts of a sum are kept until they are added up.
---@param name string
---@return string
function dispatch.part_dtype(name)
  return promote.is_float(name) and promote.computed(name) or name
end

return dispatch

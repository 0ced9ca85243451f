-- From one sharding to another: the array laid out anew, and the plan of it.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local buffers = require "shardrt.array.buffers"
local class = require "shardrt.base.class"
local collective = require "shardrt.base.collective"
local current = require "shardrt.base.current"
local device = require "shardrt.layout.device"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local memory_pressure = require "shardrt.base.memory_pressure"
local numbering = require "shardrt.array.numbering"
local owned = require "shardrt.base.owned"
local plan = require "shardrt.layout.plan"
local shape = require "shardrt.layout.shape"
local sharding = require "shardrt.layout.sharding"
local unplaced = require "shardrt.array.unplaced"
local watch = require "shardrt.array.watch"
fail.own()

---@class shardrt.reshard.words
local words = {}
local reshard = { words = words }

---@class shardrt.ReshardOptions
---@field staging_bytes integer? # memory for messages, at most; 64 MiB. The same in every process
---@field donate boolean? # the array gives its memory up, as it is no longer needed

---@class shardrt.Move # a box that goes from one block to another
---@field kind "copy"|"receive"|"send"
---@field process integer # the other one; in a copy, this one
---@field index shardrt.Index

---@class shardrt.Shift # element i of an array is element i + by of another one, where that has it
---@field shape integer[] # of the other one
---@field by integer[]

local plan_fields = { dtype = true, from = true, to = true }
function plan_fields.shape(inside) return list.copy(inside.shape) end

---@class shardrt.ReshardPlan # what every process does in a reshard
---@field shape integer[]
---@field dtype string
---@field from shardrt.Sharding
---@field to shardrt.Sharding
local Plan = {}
local PlanClass = class.define("a plan", "plan", plan_fields, Plan)

-- ---- the plan ----

local Shift = ffi.typeof "shardrt_shift"

local function unmoved(sizes)
  local by = {}
  for d = 1, #sizes do by[d] = 0 end
  return { shape = sizes, by = by }
end

local function to_c(sizes, shift)
  local made = Shift()
  made.ndim = #sizes
  for d, size in ipairs(sizes) do
    made.old_shape[d - 1], made.new_shape[d - 1], made.by[d - 1] = size, shift.shape[d], shift.by[d]
  end
  return made
end

-- The route of one process (a process's own where none is named), made when it is first asked for.
local function route_of(self, caller, process)
  local job = device.job()
  if process == nil then process = job.process_index end
  if not list.is_whole(process, 0) or process >= job.process_count then
    fail("%s: process %s: the job has %d process%s, counted from 0", caller, list.show(process), job.process_count,
      job.process_count == 1 and "" or "es")
  end
  local inside = class.inside(self)
  local found = inside.routes[process]
  if not found then
    local out = ffi.new "shardrt_route *[1]"
    local shift = to_c(inside.shape, inside.shift or unmoved(inside.shape))
    local hosts = job == current.info and C.shardrt_job_hosts(current.job) or nil
    fail.check(C.shardrt_route_over_hosts(inside.from.handle, inside.to.handle, shift, process, job.devices_per_process,
      hosts, out), caller)
    found = owned(out, "shardrt_route_free")
    inside.routes[process] = found
  end
  return found
end

local elements = ffi.typeof "int64_t[3]"

local function bytes_of(self, caller, process, which)
  local out = elements()
  C.shardrt_route_elements(route_of(self, caller, process), out, out + 1, out + 2)
  return tonumber(out[which]) * dtype.named(caller, self.dtype).size
end

--- Bytes that a process receives from others: each element once, however many of its devices need it.
---@param process integer? # this process
---@return integer
function Plan:bytes_received(process) return bytes_of(self, "bytes_received", process, 0) end

--- Bytes that a process sends to others.
---@param process integer? # this process
---@return integer
function Plan:bytes_sent(process) return bytes_of(self, "bytes_sent", process, 1) end

--- Bytes that a process's new parts take from its own old ones (a part that stays as it is is shared, and not moved).
---@param process integer? # this process
---@return integer
function Plan:bytes_copied(process) return bytes_of(self, "bytes_copied", process, 2) end

local KINDS = { { "copy", C.SHARDRT_COPIES }, { "receive", C.SHARDRT_RECEIVES }, { "send", C.SHARDRT_SENDS } }

--- What a process copies, receives and sends, each in the order in which it does so.
---@param process integer? # this process
---@return shardrt.Move[]
function Plan:moves(process)
  local route, count, made = route_of(self, "moves", process), ffi.new "int64_t[1]", {}
  for _, kind in ipairs(KINDS) do
    local moves = C.shardrt_route_moves(route, kind[2], count)
    for i = 0, tonumber(count[0]) - 1 do
      made[#made + 1] = { kind = kind[1], process = moves[i].process, index = shape.index_of(moves[i].box) }
    end
  end
  return made
end

local SHOWN_MOVES = 16
local WAY = { copy = "copies %s", receive = "receives %s from process %d", send = "sends %s to process %d" }

local function index_text(index)
  local ranges = {}
  for d, range in ipairs(index) do ranges[d] = ("%.0f:%.0f"):format(range[1], range[2]) end
  return "[" .. table.concat(ranges, ", ") .. "]"
end

-- What this process does, move by move.
function PlanClass:__tostring()
  local me, moves = device.job().process_index, self:moves()
  local lines = {
    ("%s %s from %s to %s"):format(self.dtype, shape.text(self.shape), tostring(self.from), tostring(self.to)),
    ("  process %d receives %.0f bytes, sends %.0f, copies %.0f"):format(me, self:bytes_received(), self:bytes_sent(),
      self:bytes_copied()),
  }
  for i = 1, math.min(#moves, SHOWN_MOVES) do
    lines[#lines + 1] = "    " .. WAY[moves[i].kind]:format(index_text(moves[i].index), moves[i].process)
  end
  if #moves > SHOWN_MOVES then lines[#lines + 1] = ("    … %d more"):format(#moves - SHOWN_MOVES) end
  return table.concat(lines, "\n")
end

-- Without checks of what a recipe gave.
local function new_plan(caller, sizes, dtype_name, from, to, shift)
  local made = class.new(PlanClass,
    { shape = sizes, dtype = dtype_name, from = from, to = to, shift = shift, routes = {} })
  route_of(made, caller, device.job().process_index) -- so that a sharding which does not fit is found here
  return made
end

--- What an array of that shape and dtype costs to lay out anew, in every process; nothing is moved.
---@param shape_given integer[]
---@param dtype_name string
---@param from shardrt.Sharding
---@param to shardrt.Sharding
---@return shardrt.ReshardPlan
function words.reshard_plan(shape_given, dtype_name, from, to)
  local caller = "reshard_plan"
  local sizes = shape.check(caller, shape_given)
  return new_plan(caller, sizes, dtype.named(caller, dtype_name).name, sharding.check(caller, from),
    sharding.check(caller, to))
end

--- What an array that is there costs to lay out anew, or to become a part of another one.
---@param caller string
---@param x shardrt.Array
---@param to shardrt.Sharding
---@param shift shardrt.Shift?
---@return shardrt.ReshardPlan
function reshard.plan_of(caller, x, to, shift) return new_plan(caller, x.shape, x.dtype, x.sharding, to, shift) end

-- ---- the move ----

local Options = ffi.typeof "shardrt_reshard_options"
local OPTIONS = { staging_bytes = true, donate = true }

local function options_of(caller, given)
  local options = Options()
  if given == nil then return options end
  if type(given) ~= "table" then
    fail("%s: the options are a table, as in {donate = true}, not a %s", caller, type(given))
  end
  fail.keywords(caller, given, OPTIONS)
  if given.staging_bytes ~= nil then
    if not list.is_whole(given.staging_bytes, 1) then
      fail("%s: staging_bytes = %s; it is a number of bytes, from 1 on", caller, list.show(given.staging_bytes))
    end
    options.staging_bytes = given.staging_bytes
  end
  if given.donate ~= nil and type(given.donate) ~= "boolean" then
    fail("%s: donate = %s; it is true or false", caller, list.show(given.donate))
  end
  options.donate = given.donate and 1 or 0
  return options
end

-- From one device of a process to another of the same: no other process is asked, and in one memory nothing moves.
local function stay_in_process(caller, x, to)
  local moved = array.new(caller, to, dtype.named(caller, x.dtype), x.shape)
  C.shardrt_array_set_number(moved.handle, C.shardrt_array_number(x.handle)) -- for it is the same value
  if x.is_fully_addressable then
    buffers.set(caller, moved, 0, C.shardrt_array_buffer(x.handle, 0))
  end
  return moved
end

-- For a plan: the new array without data.
local function note_in_plan(caller, x, to)
  local kind = dtype.named(caller, x.dtype)
  local moved = array.new(caller, to, kind, x.shape)
  plan.note_reshard(caller, moved, reshard.plan_of(caller, x, to))
  return moved
end

-- Calls what all processes call. What they say of each other begins with the call that each made.
local function called_by_all(caller, call, ...)
  C.shardrt_job_at(current.job, fail.where())
  local code = memory_pressure.call(call, ...)
  if fail.is_between_processes(code) then fail.check(code) end
  fail.check(code, caller)
  collective.pass_on()
end

--- A global array laid out anew; every process must call it.
---@param caller string # the word of the recipe
---@param x shardrt.Array
---@param to shardrt.Sharding
---@param given shardrt.ReshardOptions?
---@param move function? # C's; shardrt_reshard where it is left out
---@return shardrt.Array
function reshard.array(caller, x, to, given, move)
  array.check(caller, x)
  local options, from = options_of(caller, given), x.sharding
  if options.donate ~= 0 then array.settle(x) end
  local finished = array.finished(x, to, caller)
  if finished then
    if options.donate ~= 0 then x:delete() end
    return finished
  end
  if not x.committed then return unplaced.place(caller, x, to) end
  if current.info.planning ~= 0 then return note_in_plan(caller, x, to) end
  local moved
  if from.device and to.device and from.device.process_index == to.device.process_index then
    moved = stay_in_process(caller, x, to)
    watch.moved(x.handle, moved.handle)
  else
    local out, call = ffi.new "shardrt_array *[1]", move or C.shardrt_reshard
    called_by_all(caller, call, current.job, x.handle, to.handle, options, out)
    moved = numbering.made_by_all(array.wrap(out, to))
    buffers.tell_collector(moved, x)
    watch.moved(x.handle, moved.handle, call, to.handle, options)
  end
  if options.donate ~= 0 then x:delete() end
  return moved
end

local Arrays, Numbers = ffi.typeof "shardrt_array *[?]", ffi.typeof "int64_t[?]"

--- Puts arrays into one that was just made, in which each begins at an element of its own; what none gives is 0. Every
--- process must call it.
---@param caller string
---@param out shardrt.Array
---@param arrays shardrt.Array[]
---@param starts integer[][]
function reshard.assemble(caller, out, arrays, starts)
  local ndim = out.ndim
  local handles, by = Arrays(#arrays), Numbers(#arrays * ndim)
  for i, x in ipairs(arrays) do
    if current.info.planning ~= 0 then
      plan.note_reshard(("%s at %s"):format(caller, shape.text(starts[i])), out,
        reshard.plan_of(caller, x, out.sharding, { shape = out.shape, by = starts[i] }))
    else
      handles[i - 1] = x.handle
      for d = 1, ndim do by[(i - 1) * ndim + d - 1] = starts[i][d] end
    end
  end
  if current.info.planning ~= 0 then return end
  watch.called(C.shardrt_assemble, current.job, #arrays, handles, by, out.handle)
  called_by_all(caller, C.shardrt_assemble, current.job, #arrays, handles, by, out.handle)
  buffers.tell_collector(out)
end

local function given_array(caller, x)
  if not array.is(x) then
    fail("%s: %s is no global array; device_put and the make_array_ words make one", caller,
      type(x) == "table" and "a table" or list.show(x))
  end
  return x
end

--- The same global array in another sharding, also of other devices. Only what a process does not hold comes over the
--- links, and once.
---@param x shardrt.Array
---@param to shardrt.Sharding|shardrt.Device
---@param options shardrt.ReshardOptions?
---@return shardrt.Array
function words.reshard(x, to, options)
  local caller = "reshard"
  return array.ops.constrain(caller, given_array(caller, x), sharding.of(caller, to), options)
end

return reshard

-- Global arrays as a recipe sees them: one object in every process, of which each process holds its devices' shards.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local buffers = require "shardrt.array.buffers"
local class = require "shardrt.base.class"
local current = require "shardrt.base.current"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local foreign_names = require "shardrt.base.foreign_names"
local list = require "shardrt.base.list"
local memory_pressure = require "shardrt.base.memory_pressure"
local ndarray = require "shardrt.array.ndarray"
local numbering = require "shardrt.array.numbering"
local operator = require "shardrt.base.operator"
local owned = require "shardrt.base.owned"
local plan = require "shardrt.layout.plan"
local shape = require "shardrt.layout.shape"
local shards = require "shardrt.array.shards"
local watch = require "shardrt.array.watch"
fail.own()

local array = {}

---@class shardrt.array.ops
---@field operators table<string, fun(a: shardrt.Operand, b: shardrt.Operand): shardrt.Array> # "add" for a + b
---@field constrain fun(what: string, x: shardrt.Array, to: shardrt.Sharding, o: shardrt.ReshardOptions?): shardrt.Array
-- x in that sharding, as a step that gradients go through
---@field placed fun(what: string, x: shardrt.Array, out: shardrt.Array): shardrt.Array
-- notes that `out` is x, placed

--- What is computed with arrays. The files in ops/ stand below this one: each puts its own here when it is loaded.
---@type shardrt.array.ops
array.ops = {}

---@class shardrt.Array
---@field shape integer[]
---@field dtype string
---@field ndim integer
---@field size integer # elements
---@field sharding shardrt.Sharding
---@field is_fully_replicated boolean # whether every device of the sharding holds everything
---@field is_fully_addressable boolean # whether this process owns all of the sharding's devices
---@field committed boolean # whether somebody placed it; if not, every process has all of it, and it goes anywhere
---@field addressable_shards shardrt.Shard[] # this process's shards, in mesh order
---@field handle ffi.cdata* # shardrt_array *; false after delete
---@operator add(shardrt.Operand): shardrt.Array
---@operator sub(shardrt.Operand): shardrt.Array
---@operator mul(shardrt.Operand): shardrt.Array
---@operator div(shardrt.Operand): shardrt.Array
---@operator pow(shardrt.Operand): shardrt.Array
---@operator mod(shardrt.Operand): shardrt.Array
---@operator unm: shardrt.Array
local methods = {}

-- What is worked out when it is first asked for, so that making an array for every batch costs little. An array of a
-- known form has most of it there.
local lazy = {}
local fields = { sharding = true }
for _, name in ipairs {
  "dtype", "ndim", "shape", "size", "is_fully_replicated", "is_fully_addressable", "addressable_shards",
} do
  fields[name] = function(inside, x)
    local value, form = inside[name], inside.form
    if value == nil and form then value = form[name] end
    if value == nil then
      value = lazy[name](x)
      inside[name] = value
    end
    return value
  end
end

---@class shardrt.array.late # how an array is computed that nobody has looked at
---@field handle ffi.cdata* # shardrt_array *, without buffers
---@field operands shardrt.Array[]
---@field compute fun(x: shardrt.Array, late: shardrt.array.late) # gives the handle its buffers

local waiting = setmetatable({}, { __mode = "k" }) -- the arrays that are

-- What was put off is done now; where that fails, it goes on waiting.
local function make_now(x, inside)
  local late = inside.late
  inside.handle, inside.late, waiting[x] = late.handle, nil, nil
  local ok, problem = pcall(late.compute, x, late)
  if not ok then
    inside.handle, inside.late, waiting[x] = nil, late, true
    error(problem, 0)
  end
end

-- What waits is made now: a sum as it is usually laid out.
function fields.handle(inside, x)
  if inside.late then
    make_now(x, inside)
  elseif inside.finish then -- which goes on waiting where that fails
    inside.handle = inside.finish(inside.sharding, nil, true).handle
    inside.finish = nil
  end
  return inside.handle
end

function fields.committed(inside) return not inside.unplaced end

local known_shape = fields.shape
function fields.shape(inside, x) return list.given(list.copy(known_shape(inside, x))) end

local known_shards = fields.addressable_shards
function fields.addressable_shards(inside, x) return list.counted(list.copy(known_shards(inside, x))) end

local HINTS = {
  at = "it never changes: np.set_at(x, i, value) and np.add_at(x, i, value) give an array with other values at places, "
    .. 'np.where(condition, new, x) one with other elements, where np = require "shardrt.numpy"',
  addressable_data = "x.addressable_shards[1].data is the first shard's; the list counts from 1",
  devices = "x.sharding:addressable_devices() lists this process's, x.sharding.mesh.devices all",
  device = "x.sharding says where it lies, x.sharding:addressable_devices() on which devices of this process",
  global_shards = "x.addressable_shards lists this process's, x.sharding:devices_indices_map(x.shape) which part is "
    .. "where",
  nbytes = "x.size is the number of its elements, x.dtype says what they are",
  itemsize = "x.dtype says what its elements are",
}

-- An array has no elements that Lua could take: a part of it is an array, which all processes make alike.
local function hint(key)
  if type(key) == "string" then return HINTS[key] or foreign_names.of_arrays("x", key) end
  return ('it is not indexed: np.take(x, %s) takes one place of its first dimension (from 0 on), '
    .. 'np.slice(x, {{start, stop}}) a part, where np = require "shardrt.numpy"; x:to_table() gives the numbers')
    :format(type(key) == "number" and list.show(key) or "i")
end

local Array = class.define("an array", "x", fields, methods, { shards = "addressable_shards" }, hint)
operator.refuse(Array)

local refuse_change = Array.__newindex
function Array.__newindex(x, key)
  if type(key) == "string" then refuse_change(x, key) end
  fail('an array never changes: np.set_at(x, i, value) and np.add_at(x, i, value) give an array with other values at '
    .. 'places of its first dimension, where np = require "shardrt.numpy"')
end

--- The array object around what C made: takes over the count of out[at].
---@param out ffi.cdata* # shardrt_array *[?]
---@param sharding shardrt.Sharding # the one that it was made with
---@param at integer? # 0 where it is left out
---@return shardrt.Array
function array.wrap(out, sharding, at)
  local handle = owned(out, "shardrt_array_free", at) -- before the table, for which Lua may have no memory
  watch.made(handle)
  return class.new(Array, { handle = handle, sharding = sharding })
end

local made_out = ffi.new "shardrt_array *[1]" -- empty but within functions below

local function new_handle(caller, sharding, kind, sizes)
  local job = current.info
  fail.check(C.shardrt_array_new(sharding.handle, kind.code, #sizes, shape.to_c(sizes), job.process_index,
    job.devices_per_process, made_out), caller)
  local handle = owned(made_out, "shardrt_array_free")
  watch.made(handle)
  return handle
end

--- A new array without buffers.
---@param caller string
---@param sharding shardrt.Sharding
---@param kind shardrt.dtype
---@param sizes integer[]
---@return shardrt.Array
function array.new(caller, sharding, kind, sizes)
  return class.new(Array, { handle = new_handle(caller, sharding, kind, sizes), sharding = sharding })
end

---@class shardrt.array.form # all that decides an array's layout: those with the same have one form
---@field sharding shardrt.Sharding
---@field unplaced true|nil # nobody placed it
---@field dtype string
---@field shape integer[] # never changed
---@field ndim integer
---@field size integer # elements
---@field like ffi.cdata* # shardrt_array *, without buffers
---@field ones shardrt.Array? # one of it, for gradients
---@field plans table? # of words (array/plans.lua)
---@field plan_count integer?
---@field once table? # operands of words that came once
---@field once_count integer?
---@field generation integer? # of its plans: others than that of `among` are gone
---@field among {count: integer, plan_count: integer, generation: integer} # the forms of its sharding

local MOST_FORMS = 1024 -- of a sharding; then they are found anew, as where every batch has a shape of its own

--- The form of an array that was not deleted. It is the same table for arrays alike, as long as it is remembered.
---@param x shardrt.Array
---@return shardrt.array.form
function array.form(x)
  local inside = class.inside(x)
  if inside.form then return inside.form end
  local of, sizes = class.inside(inside.sharding), known_shape(inside, x)
  local name = inside.unplaced and "unplaced_forms" or "forms"
  local forms = of[name]
  if not forms or forms.count >= MOST_FORMS then
    forms = { count = 0, plan_count = 0, generation = 0 }
    of[name] = forms
  end
  local key = x.dtype .. " " .. table.concat(sizes, " ")
  local form = forms[key]
  if not form then
    local like = new_handle("an array", inside.sharding, dtype.named("array", x.dtype), sizes)
    form = { sharding = inside.sharding, unplaced = inside.unplaced, dtype = x.dtype, shape = sizes,
      ndim = #sizes, size = shape.elements(sizes), like = like, among = forms }
    forms[key], forms.count = form, forms.count + 1
  end
  inside.form = form
  return form
end

--- Whether an array has a form, also one that is not remembered any more.
---@param x shardrt.Array
---@param form shardrt.array.form
---@return boolean
function array.has_form(x, form)
  local own = array.form(x)
  if rawequal(own, form) then return true end
  return rawequal(own.sharding, form.sharding) and own.dtype == form.dtype and own.unplaced == form.unplaced
    and shape.equal(own.shape, form.shape)
end

--- The array object around a handle that C made, of that form.
---@param form shardrt.array.form
---@param handle ffi.cdata* # shardrt_array *, which Lua's collector frees
---@return shardrt.Array
function array.around(form, handle)
  return class.new(Array, { handle = handle, sharding = form.sharding, unplaced = form.unplaced, form = form })
end

-- The handle of another array like that of a handle.
local function like(caller, handle)
  fail.check(C.shardrt_array_like(handle, made_out), caller)
  return owned(made_out, "shardrt_array_free")
end

--- A new array of that form, without buffers.
---@param caller string
---@param form shardrt.array.form
---@return shardrt.Array
function array.of_form(caller, form)
  local handle = like(caller, form.like)
  watch.made(handle)
  return array.around(form, handle)
end

--- The same array as an object of its own, which shares the memory.
---@param caller string
---@param x shardrt.Array
---@return shardrt.Array
function array.another(caller, x)
  local from = array.live(caller, x)
  local handle = like(caller, from)
  watch.shared(from, handle)
  return array.around(array.form(x), handle)
end

--- An array's shape as it is kept: for reading alone. (x.shape is a copy, which a recipe may change.)
---@param x shardrt.Array
---@return integer[]
function array.sizes(x) return known_shape(class.inside(x), x) end

--- An array whose value is to be made by `finish(sharding)`, in that sharding or, where the recipe asks for another
--- layout at once, in that. Every process must use it alike.
---@param to shardrt.Sharding
---@param name string # its dtype
---@param sizes integer[]
---@param finish fun(to: shardrt.Sharding, what: string?, is_last: true?): shardrt.Array # each time an array of its own
---@return shardrt.Array
function array.pending(to, name, sizes, finish)
  return class.new(Array, {
    sharding = to, dtype = name, shape = sizes, ndim = #sizes, size = shape.elements(sizes), finish = finish,
    number = numbering.next(),
  })
end

--- Whether an array is a sum that waits for what it is used for.
---@param x shardrt.Array
---@return boolean
function array.is_pending(x) return class.inside(x).finish ~= nil end

--- A pending array in a sharding that it may not have; nil: it is not pending.
---@param x shardrt.Array
---@param to shardrt.Sharding
---@param caller string # who asks, for messages
---@return shardrt.Array?
function array.finished(x, to, caller)
  local finish = class.inside(x).finish
  return finish and finish(to, caller)
end

--- Puts off what an array is computed by, until somebody asks for its handle.
---@param x shardrt.Array # that was just made, without buffers
---@param late shardrt.array.late # but for `handle`
---@param name string # its dtype
---@param sizes integer[]
function array.put_off(x, late, name, sizes)
  local inside = class.inside(x)
  late.handle, inside.handle, inside.late, waiting[x] = inside.handle, nil, late, true
  if inside.form then return end
  inside.dtype, inside.shape, inside.ndim, inside.size = name, sizes, #sizes, shape.elements(sizes)
end

--- What an array is to be computed by, where that was put off.
---@param x shardrt.Array
---@return shardrt.array.late?
function array.late(x) return class.inside(x).late end

--- Notes that what was put off has been done: its handle has buffers.
---@param x shardrt.Array
function array.was_made(x)
  local inside = class.inside(x)
  inside.handle, inside.late, waiting[x] = inside.late.handle, nil, nil
end

--- Makes what was put off and reads this array, whose memory is about to go.
---@param x shardrt.Array
function array.settle(x)
  local readers = {}
  for reader in pairs(waiting) do
    local late = class.inside(reader).late
    for _, operand in ipairs(late and late.operands or {}) do
      if rawequal(operand, x) then readers[#readers + 1] = reader end
    end
  end
  for _, reader in ipairs(readers) do local _ = reader.handle end
end

--- Whether a value is a global array.
---@param value any
---@return boolean
function array.is(value) return getmetatable(value) == Array end

--- Notes that an array is a gradient, which nobody takes for a parameter then.
---@param x shardrt.Array # that nobody has yet
function array.mark_gradient(x) class.inside(x).is_gradient = true end

---@param x shardrt.Array
---@return boolean
function array.is_gradient(x) return class.inside(x).is_gradient == true end

local function describe(x) return ("%s %s"):format(x.dtype, shape.text(x.shape)) end

--- Whether an array has its data: it waits for nothing, and was not deleted.
---@param x shardrt.Array
---@return boolean
function array.is_made(x) return not not class.inside(x).handle end

--- Whether an array was deleted or dropped.
---@param x shardrt.Array
---@return boolean
function array.is_gone(x) return class.inside(x).handle == false end

--- An error if the array was deleted; a sum that waits goes on waiting.
---@param caller string
---@param x shardrt.Array
function array.check(caller, x)
  if array.is_gone(x) then fail("%s: the array %s was deleted", caller, describe(x)) end
end

--- The handle, of an array that was not deleted.
---@param caller string
---@param x shardrt.Array
---@return ffi.cdata* # shardrt_array *
function array.live(caller, x)
  array.check(caller, x)
  return x.handle
end

function lazy.dtype(x) return dtype.coded(C.shardrt_array_dtype(x.handle)).name end
function lazy.ndim(x) return tonumber(C.shardrt_array_ndim(x.handle)) end
function lazy.shape(x) return shape.from_c(x.ndim, C.shardrt_array_shape(x.handle)) end
function lazy.size(x) return shape.elements(x.shape) end
function lazy.is_fully_replicated(x) return x.sharding.is_fully_replicated end

function lazy.is_fully_addressable(x)
  local over, job = C.shardrt_sharding_mesh(x.sharding.handle), current.info
  for position = 0, tonumber(C.shardrt_mesh_size(over)) - 1 do
    local process = math.floor(C.shardrt_mesh_device(over, position) / job.devices_per_process)
    if process ~= job.process_index then return false end
  end
  return true
end

function lazy.addressable_shards(x)
  array.live("addressable_shards", x)
  return shards.of(x)
end

-- The value of an array that was made already and is whole in this process; nil: it is not.
local function known_value(x)
  local handle = class.inside(x).handle
  if not handle or current.info.planning ~= 0 or not watch.shows() then return nil end
  local shard_count = tonumber(C.shardrt_array_shard_count(handle))
  if shard_count == 0 or C.shardrt_array_buffer(handle, 0) == nil then return nil end
  local host = ndarray.words.empty(x.shape, x.dtype)
  return C.shardrt_array_gather(handle, host.data) == 0 and host or nil
end

--- What an array is, without its values: "Array(float32 {2}, not placed)".
---@param x shardrt.Array
---@return string
function array.text(x)
  local inside = class.inside(x)
  local at = inside.unplaced and "not placed" or tostring(x.sharding)
  return ("Array(%s, %s)"):format(describe(x), inside.handle == false and "deleted" or at)
end

Array.__described = array.text -- in messages

function Array:__tostring() -- print(x) shows the values of a small one
  local text, values = array.text(self), ndarray.shown(self.size, function() return known_value(self) end)
  return values and text .. ": " .. values or text
end

for _, name in ipairs { "add", "sub", "mul", "div", "pow", "mod", "unm" } do
  Array["__" .. name] = function(a, b) return array.ops.operators[name](a, b) end
end

--- Waits until the data is there; returns the array.
---@return shardrt.Array
function methods:block_until_ready()
  fail.check(C.shardrt_array_wait(array.live("block_until_ready", self)), "block_until_ready")
  return self
end

--- Begins to bring what this process's devices hold to the host, and does not wait for it: asking for the value later
--- then waits less. Nothing where it lies there anyway.
function methods:copy_to_host_async()
  local handle, count = array.live("copy_to_host_async", self), 0
  for i = 0, tonumber(C.shardrt_array_shard_count(handle)) - 1 do
    local buffer = C.shardrt_array_buffer(handle, i)
    local block = C.shardrt_array_shard(handle, i).block
    if buffer ~= nil and block == count then -- they are numbered by first appearance, and replicas hold the same
      fail.check(memory_pressure.call(C.shardrt_buffer_fetch, buffer), "copy_to_host_async")
      buffers.tell_of_copy(buffer)
      count = count + 1
    end
  end
end

--- The array's one number (a loss, an accuracy), in every process that owns a device of its sharding: no process waits
--- for another, and each may ask alone. An array of one number is never cut, so every device holds it. Under
--- `shardrt plan` there is no number: the plan ends here.
---@return number|boolean|ffi.cdata*
function methods:item()
  if self.size ~= 1 then
    fail("item: an array of shape %s; it is of one number. to_table gives all", shape.text(self.shape))
  end
  array.check("item", self)
  if current.info.planning ~= 0 then plan.finish "item" end
  local value = array.gather("item", self):to_table()
  while type(value) == "table" do value = value[1] end
  return value
end

--- The array's value as nested lists of numbers, where all of it is in this process; else shardrt.process_allgather(x)
--- brings it, in every process, and has to_table, too.
---@return any
function methods:to_table() return array.gather("to_table", self):to_table() end

--- Gives the memory back now, where no view of a shard holds on to it. Using the array's data afterwards is an error.
function methods:delete()
  array.check("delete", self)
  array.settle(self)
  for name in pairs(lazy) do -- all but the data stays known, for messages too
    if name ~= "addressable_shards" then local _ = self[name] end
  end
  local inside = class.inside(self)
  local handle = inside.late and inside.late.handle or inside.handle
  inside.handle, inside.finish, inside.late, inside.addressable_shards = false, nil, nil, nil
  waiting[self] = nil
  if handle then C.shardrt_array_free(ffi.gc(handle, nil)) end -- a sum that waited is never made
end

--- Gives the memory back of an array that the caller made and nobody else has: Lua's collector would do so late.
---@param x shardrt.Array
function array.drop(x)
  local inside = class.inside(x)
  local handle = inside.late and inside.late.handle or inside.handle
  inside.handle, inside.finish, inside.late, waiting[x] = false, nil, nil, nil
  if handle then C.shardrt_array_free(ffi.gc(handle, nil)) end
end

--- The whole value of an array that is whole in this process.
---@param caller string
---@param x shardrt.Array
---@return shardrt.ndarray
function array.gather(caller, x)
  local handle = array.live(caller, x)
  watch.looked()
  if current.info.planning ~= 0 then shards.no_data(caller) end
  local host = ndarray.words.empty(x.shape, x.dtype)
  fail.check(memory_pressure.call(C.shardrt_array_gather, handle, host.data), caller)
  return host
end

return array

-- Host arrays: a dtype, a shape and one block of memory, C-contiguous, in this process only.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
local current = require "shardrt.base.current"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local foreign_names = require "shardrt.base.foreign_names"
local list = require "shardrt.base.list"
local memory_pressure = require "shardrt.base.memory_pressure"
local operator = require "shardrt.base.operator"
local owned = require "shardrt.base.owned"
local path_of = require "shardrt.base.path"
local shape = require "shardrt.layout.shape"
fail.own()

---@class shardrt.ndarray.words
---@field is fun(value: any): boolean # whether a value is a host array
local words = {}
local ndarray = { words = words }

---@class shardrt.ndarray.ops
---@field operators table<string, fun(a: any, b: any): shardrt.ndarray|shardrt.Array> # "add" for a + b

--- What is computed with host arrays. The files in ops/ stand below this one: one puts its own here when it is loaded.
---@type shardrt.ndarray.ops
ndarray.ops = {}

---@class shardrt.ndarray
---@field shape integer[]
---@field dtype string
---@field ndim integer
---@field size integer # elements
---@field bytes integer
---@field data ffi.cdata* # a typed pointer, of a shard's memory to const; lives as long as the host array; bool is
---booleans, 16-bit floats are bits
---@field buffer ffi.cdata* # the shardrt_buffer that holds the memory (a view's data may begin inside it)
---@operator add(shardrt.ndarray|number): shardrt.ndarray
---@operator add(shardrt.Array): shardrt.Array
---@operator sub(shardrt.ndarray|number): shardrt.ndarray
---@operator sub(shardrt.Array): shardrt.Array
---@operator mul(shardrt.ndarray|number): shardrt.ndarray
---@operator mul(shardrt.Array): shardrt.Array
---@operator div(shardrt.ndarray|number): shardrt.ndarray
---@operator div(shardrt.Array): shardrt.Array
---@operator pow(shardrt.ndarray|number): shardrt.ndarray
---@operator pow(shardrt.Array): shardrt.Array
---@operator mod(shardrt.ndarray|number): shardrt.ndarray
---@operator mod(shardrt.Array): shardrt.Array
---@operator unm: shardrt.ndarray
local methods = {}

local function needs_data(name)
  return function(inside)
    if not inside.buffer then
      fail("a host array without data (this is a plan: nothing is read), asked for its data")
    end
    return inside[name]
  end
end

local function hint(key)
  if type(key) == "string" then return foreign_names.of_arrays("h", key) end
  if type(key) ~= "number" then return nil end
  return "it is not indexed: h.data[i] is its i-th element, from 0 on and row by row; h:to_table() gives nested lists"
end

local Host = class.define("a host array", "h", {
  shape = function(inside) return list.given(list.copy(inside.shape)) end,
  dtype = true, ndim = true, size = true, bytes = true, data = needs_data "data", buffer = needs_data "buffer",
}, methods, nil, hint)
operator.refuse(Host)

local refuse_change = Host.__newindex
function Host.__newindex(h, key)
  if type(key) == "string" then refuse_change(h, key) end
  fail "a host array is not indexed: h.data[i] = value sets its i-th element, from 0 on and row by row"
end

for _, name in ipairs { "add", "sub", "mul", "div", "pow", "mod", "unm" } do
  Host["__" .. name] = function(a, b) return ndarray.ops.operators[name](a, b) end
end

local byte_pointer = ffi.typeof "uint8_t *"
local release_function = ffi.typeof "void (*)(void *, void *, size_t)"
local any_element = { void = true, char = true, ["unsigned char"] = true } -- what a pointer to anything is to
---@class shardrt.FromPointerOptions
---@field owner any? # kept while the host array is there
---@field release ffi.cdata*? # void (*)(void *context, void *data, size_t bytes)
---@field context ffi.cdata*? # what release is given
local POINTER_OPTIONS = { owner = true, release = true, context = true }
local buffer_out = ffi.typeof "shardrt_buffer *[1]"
local FILL_BYTES = 65536
local shown_elements = 64 -- tostring shows the values of an array that has at most so many

-- A buffer that a C function wrote to an out-parameter, with its count given to Lua's collector.
local function own_buffer(out)
  local buffer = owned(out, "shardrt_buffer_free")
  memory_pressure.made(tonumber(C.shardrt_buffer_bytes(buffer)))
  return buffer
end

local address = ffi.new "void *[1]"

-- Where a buffer's bytes lie in the process's own memory: those of a device are brought here.
local function host_address(buffer)
  fail.check(memory_pressure.call(C.shardrt_buffer_host, buffer, address), "an array's data")
  return ffi.cast(byte_pointer, address[0])
end

local function wrap_buffer(buffer, dtype_name, sizes, offset, is_shared, is_borrowed)
  local kind = dtype.named("ndarray", dtype_name)
  local size = shape.elements(sizes)
  return class.new(Host, {
    shape = sizes,
    dtype = dtype_name,
    ndim = #sizes,
    size = size,
    bytes = size * kind.size,
    data = buffer and ffi.cast(is_shared and kind.constant or kind.pointer, host_address(buffer) + offset),
    buffer = buffer,
    is_shared = is_shared,
    is_borrowed = is_borrowed,
  })
end

--- A host array around a counted buffer (a cdata that gives its count back when it is collected).
---@param buffer ffi.cdata*? # nil: the array has no data, as under `shardrt plan`
---@param dtype_name string
---@param sizes integer[] # kept
---@param offset integer? # bytes from the buffer's beginning
---@return shardrt.ndarray
function ndarray.wrap(buffer, dtype_name, sizes, offset)
  return wrap_buffer(buffer, dtype_name, sizes, offset or 0, false)
end

--- The same around memory that others have, too, as the devices of an array: its .data is a pointer to const.
---@param buffer ffi.cdata*
---@param dtype_name string
---@param sizes integer[] # kept
---@return shardrt.ndarray
function ndarray.shared(buffer, dtype_name, sizes) return wrap_buffer(buffer, dtype_name, sizes, 0, true) end

-- A host array in fresh memory: C.shardrt_buffer_new or C.shardrt_buffer_zeros.
local function allocate(caller, allocator, sizes, dtype_name, for_all)
  local kind = dtype.named(caller, dtype_name)
  local bytes = shape.elements(sizes) * kind.size
  if bytes > 2 ^ 53 then fail("%s: %s %s has %.3g bytes", caller, dtype_name, shape.text(sizes), bytes) end
  local out = buffer_out()
  local code = allocator(bytes, out)
  if code < 0 and for_all then code = C.shardrt_check_outcome(current.job, caller, code) end
  fail.check(code)
  return ndarray.wrap(own_buffer(out), dtype_name, sizes), kind
end

--- Room for what all processes are about to gather, each of them the same. One that has no memory for it tells the
--- others, which wait for it in the gathering, so that this fails in all.
---@param caller string # what they do together
---@param sizes integer[]
---@param dtype_name string
---@return shardrt.ndarray
function ndarray.for_all(caller, sizes, dtype_name)
  return (allocate(caller, C.shardrt_buffer_new, sizes, dtype_name, true))
end

--- A host array whose values are still to be written, through .data.
---@param sizes integer|integer[]
---@param dtype_name string
---@return shardrt.ndarray
function words.empty(sizes, dtype_name)
  return (allocate("ndarray.empty", C.shardrt_buffer_new, shape.check("ndarray.empty", sizes), dtype_name))
end

---@param sizes integer|integer[]
---@param dtype_name string? # float32
---@return shardrt.ndarray
function words.zeros(sizes, dtype_name)
  sizes = shape.check("ndarray.zeros", sizes)
  return (allocate("ndarray.zeros", C.shardrt_buffer_zeros, sizes, dtype_name or "float32"))
end

local function misfit(caller, value, kind)
  fail("%s: %s does not fit %s, which holds %s", caller, list.show(value), kind.name, kind.range)
end

--- Every element the same.
---@param sizes integer|integer[]
---@param value number|boolean|ffi.cdata*
---@param dtype_name string? # float32; bool, int64, uint64 for a value that is one
---@return shardrt.ndarray
function words.full(sizes, value, dtype_name)
  sizes = shape.check("ndarray.full", sizes)
  local host, kind = allocate("ndarray.full", C.shardrt_buffer_new, sizes,
    dtype_name or dtype.of_value(value) or misfit("ndarray.full", value, dtype.named("ndarray.full", "float32")))
  local one = ffi.new(ffi.typeof("uint64_t[1]")) -- also where the array has no element, a value must fit
  local first = ffi.cast(kind.pointer, one)
  if not kind.write(first, 0, value) then misfit("ndarray.full", value, kind) end
  local data, written = ffi.cast(byte_pointer, host.data), math.min(kind.size, host.bytes)
  ffi.copy(data, one, written)
  while written < host.bytes do -- as much again as is there, up to what stays in a cache
    local more = math.min(written, FILL_BYTES, host.bytes - written)
    ffi.copy(data + written, data, more)
    written = written + more
  end
  return host
end

--- 0, 1, 2, … count - 1.
---@param count integer
---@param dtype_name string? # int32
---@return shardrt.ndarray
function words.arange(count, dtype_name)
  if not list.is_whole(count, 0) then
    fail("ndarray.arange: it takes how many numbers there are, a whole number from 0 on, not %s", list.show(count))
  end
  local sizes = { count }
  local host, kind = allocate("ndarray.arange", C.shardrt_buffer_new, sizes, dtype_name or "int32")
  local data, write = host.data, kind.write
  for i = 0, host.size - 1 do
    if not write(data, i, i) then misfit("ndarray.arange", i, kind) end
  end
  return host
end

-- The shape of a nested table, read off its first elements, and the first element (nil: there is none).
local function nested_shape(caller, value)
  local sizes = {}
  while type(value) == "table" and not class.is(value) do
    sizes[#sizes + 1] = #value
    if #sizes > C.SHARDRT_MAX_NDIM then
      fail("%s: a table nested more than %d deep", caller, C.SHARDRT_MAX_NDIM)
    end
    value = value[1]
  end
  return sizes, value
end

-- "[2][1]", as one would write it after the table's name.
local function place_text(path, depth)
  local steps = {}
  for i = 1, depth do steps[i] = "[" .. path[i] .. "]" end
  return #steps > 0 and table.concat(steps) or "its value"
end

-- An array where numbers are expected is an error.
local function check_no_array(caller, value, at)
  if not operator.is_array(value) then return end
  fail("%s: %s is an array, where numbers are expected: np.stack{x, y} joins arrays of one shape along a new "
    .. 'dimension, np.concatenate{x, y} along their first, where np = require "shardrt.numpy"', caller, at)
end

-- What is wrong with a value that stands where a list of `count` is expected, and leads there by path[1 … depth].
local function list_problem(value, count, path, depth)
  if type(value) ~= "table" or class.is(value) then
    return ("%s is %s, where a list of %d is expected"):format(place_text(path, depth), list.show(value), count)
  end
  local entries, i = 0, 1
  for key in pairs(value) do
    if type(key) ~= "number" then
      return ("%s has the name %s, where a list is expected"):format(place_text(path, depth), list.show(key))
    end
    if key < 1 or key % 1 ~= 0 then
      return ("%s has [%s], where a list is expected, which counts from 1"):format(place_text(path, depth),
        list.show(key))
    end
    entries = entries + 1
  end
  while value[i] ~= nil do i = i + 1 end
  if i - 1 == entries then
    return ("%s has %d %s, where a list of %d is expected"):format(place_text(path, depth), entries,
      entries == 1 and "entry" or "entries", count)
  end
  path[depth + 1] = i
  return ("%s is nil, although the list goes on behind it"):format(place_text(path, depth + 1))
end

-- Writes a nested table that should be of `sizes` from element `at` on; returns the next one. `path` leads to it.
local function write_nested(caller, host, kind, sizes, value, depth, path, at)
  if depth > #sizes then
    if type(value) == "table" and not class.is(value) then
      fail("%s: the table is ragged: %s is a table, where a number is expected", caller, place_text(path, depth - 1))
    elseif not kind.write(host.data, at, value) then
      check_no_array(caller, value, place_text(path, depth - 1))
      misfit(caller .. ", " .. place_text(path, depth - 1), value, kind)
    end
    return at + 1
  end
  local entries = not class.is(value) and list.length(value)
  if entries ~= sizes[depth] then
    check_no_array(caller, value, place_text(path, depth - 1))
    fail("%s: the table is ragged: %s", caller, list_problem(value, sizes[depth], path, depth - 1))
  end
  for i = 1, entries do
    path[depth] = i
    at = write_nested(caller, host, kind, sizes, value[i], depth + 1, path, at)
  end
  return at
end

--- From nested lists of numbers or booleans, all of one length at each depth. A number or boolean by itself makes an
--- array without dimensions. A value that the dtype cannot hold is an error; floats are rounded to the nearest.
---@param value table|number|boolean|ffi.cdata*
---@param dtype_name string? # float32; bool, int64, uint64 where the first element is one
---@return shardrt.ndarray
function words.from_table(value, dtype_name) return ndarray.nested("ndarray.from_table", value, dtype_name) end

--- The same for other words.
---@param caller string # the call, for messages
---@param value table|number|boolean|ffi.cdata*
---@param dtype_name string?
---@return shardrt.ndarray
function ndarray.nested(caller, value, dtype_name)
  local sizes, first = nested_shape(caller, value)
  dtype_name = dtype_name or dtype.of_value(first) or "float32"
  local host, kind = allocate(caller, C.shardrt_buffer_new, sizes, dtype_name)
  write_nested(caller, host, kind, sizes, value, 1, {}, 0)
  return host
end

-- What a cdata points to, as LuaJIT writes it, whether to const, and, of an array, its bytes; nil: it is no pointer.
local function pointee_of(pointer)
  if type(pointer) ~= "cdata" then return nil end
  local text, constants = tostring(ffi.typeof(pointer)):match "^ctype<(.*)>$":gsub("^const ", "")
  local pointee, rest = text:match "^([%w_ ]*[%w_]) ([%*%[].*)$"
  if rest == "*" or rest == "*const" then return pointee, constants > 0 end
  if pointee and rest:match "^%[[%d?]+%]$" then return pointee, constants > 0, ffi.sizeof(pointer) end
  return nil
end

-- The caller's memory as an address, checked against what is said to lie there.
local function check_pointer(caller, pointer, kind, bytes)
  local pointee, is_constant, room = pointee_of(pointer)
  if not pointee then
    fail("%s: it takes a pointer or an array of the FFI, as ffi.new and C functions give them, not %s", caller,
      list.show(pointer))
  end
  local element = tostring(ffi.typeof(kind.element)):match "^ctype<(.*)>$"
  if pointee ~= element and not any_element[pointee] then
    fail('%s: the pointer is to %s, and %s is %s; ffi.cast("%s *", pointer) would do where that is what lies there',
      caller, pointee, kind.name, element, kind.element)
  elseif room and room < bytes then
    fail("%s: the array has %.0f bytes, and the shape takes %.0f", caller, room, bytes)
  end
  local start = ffi.cast("void *", pointer)
  if start == nil and bytes > 0 then fail("%s: the pointer is NULL, and the shape takes %.0f bytes", caller, bytes) end
  if ffi.cast("uintptr_t", start) % kind.size ~= 0 then
    fail("%s: the pointer is %s; %s lies at a multiple of %d bytes (a copy by ffi.copy into ndarray.empty would)",
      caller, tostring(start):match "0x%x+" or "NULL", kind.name, kind.size)
  end
  return start, is_constant
end

-- The C function that takes the memory back; nil: there is none.
local function check_release(caller, release)
  local is_function = release == nil or type(release) == "cdata" and pcall(ffi.cast, release_function, release)
  if is_function then return release end
  fail("%s: release is a C function, void (*)(void *context, void *data, size_t bytes), as it may be called on any "
    .. "thread, not %s; owner keeps a value of Lua's for as long as the host array is there", caller,
    list.show(release))
end

--- A host array over memory that the caller has, without a copy: of a C library, or of the FFI's own. It must not be
--- freed or moved while the host array or one of its views is there: `owner` is any value, which is kept until then;
--- an array of ffi.new is kept by itself. Or `release`, a C function, is called with `context`, the address and the
--- bytes when nobody has a count of the buffer any more, on whatever thread. device_put and np's words copy it.
---@param pointer ffi.cdata* # to the dtype's C type, void or bytes; to const: the host array's data is, too
---@param dtype_name string
---@param sizes integer|integer[] # C-contiguous
---@param options shardrt.FromPointerOptions?
---@return shardrt.ndarray
function words.from_pointer(pointer, dtype_name, sizes, options)
  local caller = "ndarray.from_pointer"
  local kind = dtype.named(caller, dtype_name)
  sizes = shape.check(caller, sizes)
  local bytes = shape.elements(sizes) * kind.size
  local start, is_constant = check_pointer(caller, pointer, kind, bytes)
  if options ~= nil and type(options) ~= "table" then
    fail("%s: its options are a table, as { owner = library }, not %s", caller, list.show(options))
  end
  local o = type(options) == "table" and options or {} -- a pointer that is NULL equals nil, too
  for name in pairs(o) do
    if not POINTER_OPTIONS[name] then
      fail("%s: there is no option %s%s; there are %s", caller, list.show(name),
        fail.suggestion(name, POINTER_OPTIONS), list.words(POINTER_OPTIONS))
    end
  end
  local release, out = check_release(caller, o.release), buffer_out()
  local kept = { pointer, o.owner, release } -- by the buffer's finalizer, for as long as that is to be called
  local function free(gone) C.shardrt_buffer_free(kept and gone) end
  fail.check(C.shardrt_buffer_wrap(start, bytes, release, o.context, out), caller)
  local buffer = owned(out, free)
  return wrap_buffer(buffer, dtype_name, sizes, 0, is_constant, release == nil)
end

--- Reads a .npy file.
---@param path string
---@return shardrt.ndarray
function words.load(path)
  path = path_of.check("ndarray.load", path, ".npy")
  local code, ndim = ffi.new "int32_t[1]", ffi.new "int32_t[1]"
  local sizes, out = ffi.new("int64_t[?]", C.SHARDRT_MAX_NDIM), buffer_out()
  path_of.check_code("ndarray.load", path, C.shardrt_npy_load(path, code, ndim, sizes, out))
  return ndarray.wrap(own_buffer(out), dtype.coded(code[0]).name, shape.from_c(ndim[0], sizes))
end

--- Whether a value is a host array.
---@param value any
---@return boolean
function ndarray.is(value) return getmetatable(value) == Host end
words.is = ndarray.is

--- Whether a host array has memory: under `shardrt plan`, what would be read has none.
---@param host shardrt.ndarray
---@return boolean
function ndarray.has_data(host) return class.inside(host).buffer ~= nil end

--- Writes a .npy file, whole or not at all; returns the host array. It may be an object: "s3://bucket/x.npy"
--- (gs://, az://).
---@param path string
---@return shardrt.ndarray
function methods:save(path)
  path = path_of.check("save", path, ".npy")
  path_of.refuse_unwritable("save", path)
  path_of.check_code("save", path, C.shardrt_npy_save(path, dtype.named("save", self.dtype).code, self.ndim,
    shape.to_c(self.shape), self.data))
  return self
end

-- Another view of the same memory, or of none.
local function view(host, sizes, offset)
  if not ndarray.has_data(host) then return ndarray.wrap(nil, host.dtype, sizes) end
  local base = host_address(host.buffer)
  local inside = class.inside(host)
  return wrap_buffer(host.buffer, host.dtype, sizes, (ffi.cast(byte_pointer, host.data) - base) + offset,
    inside.is_shared, inside.is_borrowed)
end

--- The same elements in another shape, in the same memory.
---@param sizes integer|integer[]
---@return shardrt.ndarray
function methods:reshape(sizes)
  sizes = shape.check("reshape", sizes)
  if shape.elements(sizes) ~= self.size then
    fail("reshape: %s has %.0f elements, %s has %.0f", shape.text(self.shape), self.size, shape.text(sizes),
      shape.elements(sizes))
  end
  return view(self, sizes, 0)
end

--- `count` entries of the first dimension from `first` (from 0) on, in the same memory.
---@param first integer
---@param count integer
---@return shardrt.ndarray
function methods:rows(first, count)
  if self.ndim == 0 then fail("rows: an array without dimensions has no rows") end
  local sizes = self.shape
  local rows = sizes[1]
  if not (list.is_whole(first, 0) and list.is_whole(count, 0)) or first + count > rows then
    fail("rows: %s rows from %s on; the array has %.0f, counted from 0", list.show(count), list.show(first), rows)
  end
  sizes[1] = count
  local row_bytes = rows == 0 and 0 or self.bytes / rows
  return view(self, sizes, first * row_bytes)
end

--- This array, or a copy of it, such that its buffer holds exactly its elements (a view's may hold more), and for as
--- long as anybody has a count of it (memory that an owner keeps lives as long as Lua has the host array).
---@return shardrt.ndarray
function methods:packed()
  if not ndarray.has_data(self) then return self end
  local begins = host_address(self.buffer) == ffi.cast(byte_pointer, self.data)
  local lives = begins and not class.inside(self).is_borrowed
  if lives and C.shardrt_buffer_bytes(self.buffer) == self.bytes then return self end
  local copy = words.empty(self.shape, self.dtype)
  ffi.copy(copy.data, self.data, self.bytes)
  return copy
end

-- The nested table of dimension `depth` and those after it, from element `at` on; and the next element.
local function read_nested(data, read, sizes, depth, at)
  if depth > #sizes then return read(data, at), at + 1 end
  local values = {}
  for i = 1, sizes[depth] do values[i], at = read_nested(data, read, sizes, depth + 1, at) end
  return values, at
end

--- Nested lists of numbers, of booleans for bool, of int64_t and uint64_t cdata for these dtypes.
---@return table|number|boolean|ffi.cdata*
function methods:to_table()
  return (read_nested(self.data, dtype.named("to_table", self.dtype).read, self.shape, 1, 0))
end

--- The array's one number.
---@return number|boolean|ffi.cdata*
function methods:item()
  if self.size ~= 1 then
    fail("item: a host array of shape %s; it is of one number. to_table gives all", shape.text(self.shape))
  end
  return dtype.named("item", self.dtype).read(self.data, 0)
end

local function value_text(value)
  if type(value) == "number" then return ("%.7g"):format(value) end
  if type(value) ~= "table" then return tostring(value) end
  local texts = {}
  for i, entry in ipairs(value) do texts[i] = value_text(entry) end
  return "{" .. table.concat(texts, ", ") .. "}"
end

--- The values of few elements as a text: "{1, 2.5}"; nil: they are too many to be shown.
---@param size integer # elements
---@param value fun(): shardrt.ndarray? # asked only where they are few
---@return string?
function ndarray.shown(size, value)
  local host = size <= shown_elements and value()
  return host and value_text(host:to_table()) or nil
end

function Host:__described() -- in messages
  return ("%s %s"):format(self.dtype, shape.text(self.shape))
end

function Host:__tostring()
  local head = Host.__described(self)
  if not ndarray.has_data(self) then return head .. ", without data" end
  local values = ndarray.shown(self.size, function() return self end)
  return values and head .. ": " .. values or head
end

return ndarray

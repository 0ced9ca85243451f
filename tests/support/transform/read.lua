-- Samples of a source as a loader's workers read them: any box, with a seed and an epoch.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local dtype = require "shardrt.layout.dtype"
local ndarray = require("shardrt").ndarray

ffi.cdef [[
int source_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                  const shardrt_box *inner, void *reader, void *dst);
void reader_clear(void *reader);
]]

local read = {}

local function field_of(source, name)
  for i, other in ipairs(source.names) do
    if other == name then return i - 1, source.fields[name] end
  end
end

--- The samples' bytes of one field within a box {{start, stop}, …} (nil: all), and 64 bytes more that must not be
--- touched: the C code, and a list of one text for each sample.
function read.bytes(source, name, samples, box, seed, epoch, past_caches)
  local index, field = field_of(source, name)
  local c_box, size = ffi.new "shardrt_box", tonumber(C.shardrt_dtype_size(C.shardrt_dtype_from_name(field.dtype)))
  c_box.ndim = #field.shape
  for d, extent in ipairs(field.shape) do
    c_box.start[d - 1], c_box.stop[d - 1] = box and box[d][1] or 0, box and box[d][2] or extent
    size = size * tonumber(c_box.stop[d - 1] - c_box.start[d - 1])
  end
  local guard = 64
  local room = ffi.new("double[?]", (size * #samples + guard) / 8 + 1) -- as aligned as any element wants to be
  local dst = ffi.cast("uint8_t *", room)
  ffi.fill(dst, size * #samples + guard, 0xA5)
  local reader = ffi.new "uint64_t[64]" -- a struct reader, which is less: seed, epoch, epochs, past_caches, …
  reader[0], reader[1], reader[3] = seed or 0, epoch or 0, past_caches and 1 or 0
  local code = C.source_gather(source, index, ffi.new("int64_t[?]", math.max(1, #samples), samples), #samples, c_box,
    reader, dst)
  C.reader_clear(reader)
  assert(ffi.string(dst + size * #samples, guard) == ("\165"):rep(guard), "written beyond the end")
  local texts = {}
  for i = 1, #samples do texts[i] = ffi.string(dst + size * (i - 1), size) end
  return code, texts
end

-- What an element is in memory; a bool is a byte, which may be any.
local CTYPES = { bool = "uint8_t", float16 = "uint16_t", bfloat16 = "uint16_t", float32 = "float", float64 = "double" }

--- A text of elements as numbers. NaNs of memory are made Lua's own: LuaJIT may take others for values of other types.
function read.numbers(text, name)
  local kind, numbers = dtype.named("read", name), {}
  local data = ffi.cast("const " .. (CTYPES[name] or name .. "_t") .. " *", text)
  local words = ffi.cast("const uint32_t *", text)
  for i = 0, #text / kind.size - 1 do
    if name == "bool" then
      numbers[i + 1] = tonumber(data[i])
    elseif name == "float32" and words[i] % 2 ^ 31 > 0x7f800000 then
      numbers[i + 1] = 0 / 0
    elseif name == "float64" and words[2 * i + 1] % 2 ^ 31 >= 0x7ff00000 and (words[2 * i + 1] % 2 ^ 20 > 0 or
      words[2 * i] > 0) then
      numbers[i + 1] = 0 / 0
    else
      numbers[i + 1] = tonumber(kind.read(data, i))
    end
  end
  return numbers
end

--- A host array of numbers in C order.
function read.host(numbers, shape, name)
  local host, kind = ndarray.empty(shape, name), dtype.named("host", name)
  for i, x in ipairs(numbers) do
    if name == "bool" then x = x ~= 0 end
    assert(kind.write(host.data, i - 1, x), "does not fit")
  end
  return host
end

return read

-- Files made by hand, byte by byte, for specs of sources.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local mpi = require "tests.support.mpi"

local files = {}

--- Writes a file in the folder; returns its path.
function files.write(folder, name, text)
  local path = folder .. "/" .. name
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  file:close()
  return path
end

files.slurp = mpi.slurp

--- The number that a file begins with; nil: it is not there yet, or has none.
---@param path string
---@return number?
function files.number_in(path)
  local file = io.open(path)
  local value = file and file:read "*n"
  if file then file:close() end
  return value
end

--- Calls f with a folder that is a disk of its own, of 40 MB, which is soon full. False: there can be none here.
---@param folder string in which it is made
---@param f fun(disk: string)
---@return boolean
function files.on_small_disk(folder, f)
  local disk = folder .. "/disk"
  local mount = ("mkdir %s && mount -t tmpfs -o size=40m none %s 2>/dev/null"):format(disk, disk)
  if os.execute(mount) ~= 0 then return false end
  local ok, message = pcall(f, disk)
  os.execute("umount " .. disk)
  assert(ok, message)
  return true
end

--- The names in a folder, sorted.
function files.list(folder)
  local names = {}
  local pipe = assert(io.popen("ls -A '" .. folder .. "' 2>/dev/null"))
  for name in pipe:lines() do names[#names + 1] = name end
  pipe:close()
  return names
end

local function little(n, bytes)
  local text = {}
  for i = 1, bytes do
    text[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(text)
end

--- A .npy file with any dict literal: o.dict, o.payload, o.major (1), o.minor (0).
function files.npy(o)
  local major = o.major or 1
  local dict = o.dict .. "\n"
  return "\147NUMPY" .. string.char(major, o.minor or 0) .. little(#dict, major == 1 and 2 or 4) .. dict
    .. (o.payload or "")
end

--- A well-formed dict literal.
function files.dict(descr, shape, order)
  local sizes = table.concat(shape, ", ") .. (#shape == 1 and "," or "")
  return ("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }"):format(descr, order or "False", sizes)
end

--- A .npy file of big-endian int32 in Fortran's order: the i-th element in C's order holds i.
function files.turned_npy(shape)
  local strides, count = {}, 1
  for d, size in ipairs(shape) do strides[d], count = count, count * size end
  local payload = ffi.new("uint8_t[?]", 4 * math.max(count, 1))
  for i = 0, count - 1 do
    local rest, at = i, 0
    for d = #shape, 1, -1 do
      at, rest = at + rest % shape[d] * strides[d], math.floor(rest / shape[d])
    end
    for b = 0, 3 do payload[4 * at + b] = math.floor(i / 256 ^ (3 - b)) % 256 end
  end
  return files.npy { dict = files.dict(">i4", shape, "True"), payload = ffi.string(payload, 4 * count) }
end

--- An IDX file: type, list of sizes, payload (big-endian).
function files.idx(type, sizes, payload)
  local words = { string.char(0, 0, type, #sizes) }
  for i, size in ipairs(sizes) do words[i + 1] = little(size, 4):reverse() end
  return table.concat(words) .. payload
end

--- `count` bytes that look random and are the same every time.
function files.bytes(count)
  local bytes, x = {}, 12345
  for i = 1, count do
    x = (x * 1103515245 + 12345) % 2147483648
    bytes[i] = string.char(math.floor(x / 65536) % 256)
  end
  return table.concat(bytes)
end

--- Compresses a file beside itself with the gzip program; returns the new path.
function files.gzip(path)
  assert(os.execute(("gzip -nkf '%s'"):format(path)) == 0)
  return path .. ".gz"
end

--- Runs a function that must raise; returns the message.
function files.message(f, ...)
  local ok, message = pcall(f, ...)
  assert(not ok, "no error was raised")
  return tostring(message)
end

--- Opens a source of files again and again, each time with another allocation that fails, until one goes well: every
--- other time it must say that memory ran out. Returns how often.
function files.opens_or_lacks_memory(format, path)
  local paths, out = ffi.new("const char *[1]", { path }), ffi.new "shardrt_source *[1]"
  local n, code = 0, -1
  while code ~= 0 do
    n = n + 1
    C.shardrt_alloc_fail_at(n)
    code = C.shardrt_source_files(format, 1, paths, 0, nil, nil, out)
    C.shardrt_alloc_fail_at(0)
    assert(code == 0 or code == C.SHARDRT_ENOMEM, n .. ": " .. ffi.string(C.shardrt_error_message()))
  end
  C.shardrt_source_free(out[0])
  return n
end

files.folder, files.remove = mpi.folder, mpi.remove

return files

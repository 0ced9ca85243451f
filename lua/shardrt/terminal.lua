-- Whether what a recipe prints is read on a terminal.

local fail = require "shardrt.fail"
fail.own()
local ffi = require "ffi"

ffi.cdef [[
int isatty(int fd);
int getppid(void);
long readlink(const char *path, char *target, size_t capacity);
]]

local terminal = {}

-- What /proc says that a process writes to: "/dev/pts/3", "pipe:[123]"; nil where it does not say.
local function stdout_of(process)
  local target = ffi.new "char[256]"
  local length = ffi.C.readlink(("/proc/%d/fd/1"):format(process), target, 256)
  return length > 0 and ffi.string(target, length) or nil
end

--- Whether stdout is a terminal, of this process or, under mpirun, of mpirun: it gives every process a
--- pseudo-terminal, also where its own output goes into a pipe.
---@return boolean
function terminal.is_stdout()
  if ffi.C.isatty(1) ~= 1 then return false end
  if not os.getenv "OMPI_COMM_WORLD_RANK" then return true end
  local target = stdout_of(ffi.C.getppid())
  return target ~= nil and (target:match "^/dev/pts/" or target:match "^/dev/tty") ~= nil
end

--- Whether what is printed may have colours: on a terminal that has them, unless the user wants none
--- (https://no-color.org).
---@return boolean
function terminal.has_colours()
  if (os.getenv "NO_COLOR" or "") ~= "" or os.getenv "TERM" == "dumb" then return false end
  return terminal.is_stdout()
end

return terminal

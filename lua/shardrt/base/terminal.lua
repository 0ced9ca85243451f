-- Whether what a recipe prints is read on a terminal, and how wide that is.

local ffi = require "ffi"
local fail = require "shardrt.base.error"
fail.own()

ffi.cdef [[
int isatty(int fd);
int getppid(void);
long readlink(const char *path, char *target, size_t capacity);
int open(const char *path, int flags, ...);
int close(int fd);
int ioctl(int fd, unsigned long request, ...);
]]

local O_NOCTTY, TIOCGWINSZ = 0x100, 0x5413 -- Linux
local DEFAULT_WIDTH = 80

local terminal = {}

-- What /proc says that a process writes to: "/dev/pts/3", "pipe:[123]"; nil where it does not say.
local function output_of(process, fd)
  local target = ffi.new "char[256]"
  local length = ffi.C.readlink(("/proc/%d/fd/%d"):format(process, fd), target, 256)
  return length > 0 and ffi.string(target, length) or nil
end

-- The terminal that stdout (1) or stderr (2) goes to, as a path: of this process or, under mpirun, of mpirun, which
-- gives every process a pseudo-terminal as stdout and a pipe as stderr, whatever its own are. nil: to none that is
-- known.
local function terminal_of(fd)
  if not os.getenv "OMPI_COMM_WORLD_RANK" then
    return ffi.C.isatty(fd) == 1 and ("/proc/self/fd/%d"):format(fd) or nil
  end
  local process = ffi.C.getppid()
  local target = output_of(process, fd)
  local known = target ~= nil and (target:match "^/dev/pts/" or target:match "^/dev/tty")
  return known and ("/proc/%d/fd/%d"):format(process, fd) or nil
end

--- Whether stdout is a terminal, of this process or, under mpirun, of mpirun.
---@return boolean
function terminal.is_stdout() return terminal_of(1) ~= nil end

--- Whether stderr is one on which a line can be drawn again and again.
---@return boolean
function terminal.is_stderr() return os.getenv "TERM" ~= "dumb" and terminal_of(2) ~= nil end

--- How many characters stderr's terminal has in a line now; 80 where it does not say.
---@return integer
function terminal.width()
  local path = terminal_of(2)
  local fd = path and ffi.C.open(path, O_NOCTTY) or -1
  if fd < 0 then return DEFAULT_WIDTH end
  local size = ffi.new "unsigned short[4]" -- rows, columns, pixels
  local known = ffi.C.ioctl(fd, TIOCGWINSZ, ffi.cast("void *", size)) == 0 and size[1] > 0
  ffi.C.close(fd)
  return known and size[1] or DEFAULT_WIDTH
end

--- Whether what is printed may have colours: on a terminal that has them, unless the user wants none
--- (https://no-color.org).
---@return boolean
function terminal.has_colours()
  if (os.getenv "NO_COLOR" or "") ~= "" or os.getenv "TERM" == "dumb" then return false end
  return terminal.is_stdout()
end

return terminal

-- runtime/platform/accelerator.h for specs that call what a platform offers by themselves, without the words in
-- between.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"

local lines = { "typedef unsigned long pthread_t;" }
for line in io.lines "runtime/platform/accelerator.h" do
  lines[#lines + 1] = line:match "^%s*#" and "" or line
end
ffi.cdef(table.concat(lines, "\n"))

local accelerator = { C = C }

--- Raises the message of a call that failed.
function accelerator.check(code)
  if code < 0 then
    error(ffi.string(C.shardrt_error_name(code)) .. ": " .. ffi.string(C.shardrt_error_message()), 2)
  end
end

--- The table of functions of this process's platform.
function accelerator.get()
  local a = C.accelerator_get()
  assert(a ~= nil, "the devices are the host's")
  return a
end

return accelerator

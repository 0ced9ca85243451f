-- What processes tell each other in a few numbers, and what process 0 says for all.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
fail.own()

ffi.cdef "int gethostname(char *name, size_t capacity);"

local collective = {}

local Numbers = ffi.typeof "int64_t[?]"

--- Whether this is process 0.
---@return boolean
function collective.is_first() return current.info.process_index == 0 end

--- The name of the host that this process is on.
---@return string
function collective.host_name()
  local name = ffi.new "char[256]"
  return ffi.C.gethostname(name, 255) == 0 and ffi.string(name) or "?"
end

--- Says what the user should know although the job goes on; once, on stderr.
---@param format string
---@param ... any
function collective.notice(format, ...)
  if collective.is_first() then io.stderr:write("shardrt: ", format:format(...), "\n") end
end

--- Says what C has found that the user should know, each thing once.
function collective.pass_on()
  local said = C.shardrt_job_notice(current.job)
  while said ~= nil do
    collective.notice("%s", ffi.string(said))
    said = C.shardrt_job_notice(current.job)
  end
end

--- The numbers of all processes, process by process. Every process must call it alike.
---@param caller string
---@param kind ffi.ctype* # of arrays of 8 bytes each
---@param mine ffi.cdata*
---@param count integer # from each process
---@return ffi.cdata*
function collective.gather(caller, kind, mine, count)
  local all = kind(current.info.process_count * count)
  fail.check(C.shardrt_allgather(current.job, caller, mine, count * 8, all))
  return all
end

--- The same of whole numbers, of which each process gives as many.
---@param caller string
---@param numbers (number|ffi.cdata*)[]
---@return ffi.cdata* # of int64_t
function collective.gather_numbers(caller, numbers)
  return collective.gather(caller, Numbers, Numbers(#numbers, numbers), #numbers)
end

--- In process 0 the texts of all processes, process 0's first; elsewhere none. A text has a byte at least, and none is
--- zero. Every process must call it alike.
---@param caller string
---@param text string
---@return string[]
function collective.gather_texts(caller, text)
  local out = ffi.new "shardrt_buffer *[1]"
  fail.check(C.shardrt_gather_texts(current.job, caller, text, out))
  local texts = ffi.string(C.shardrt_buffer_data(out[0]), C.shardrt_buffer_bytes(out[0]))
  C.shardrt_buffer_free(out[0])
  local told = {}
  for one in texts:gmatch "[^%z]+" do told[#told + 1] = one end
  return told
end

--- Process 0's two whole numbers, in every process. Every process must call it alike.
---@param caller string
---@param a number|ffi.cdata*
---@param b number|ffi.cdata*
---@return ffi.cdata*
---@return ffi.cdata*
function collective.from_first(caller, a, b)
  local all = collective.gather_numbers(caller, { a, b })
  return all[0], all[1]
end

return collective

-- A job whose processes gather through files in a folder: what a program without MPI would bring, in Lua. A recipe that
-- requires this before anything else, with arg = {folder, rank, size}, is in that job.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"

jit.off() -- compiled code must not come to a call that calls Lua back

local callbacks = {}

local folder, rank, size = arg[1], tonumber(arg[2]), tonumber(arg[3])
local number = 0 -- of the gathering
local bytes, target

--- What allgather_start and allgather_test return, and where a process that is to stop does.
callbacks.code = { start = 0, test = 0 }

local function path(p) return ("%s/%d.%d"):format(folder, number, p) end

local function start(_, mine, count, all)
  if callbacks.code.start < 0 then return callbacks.code.start end
  number, bytes, target = number + 1, tonumber(count), ffi.cast("char *", all)
  local file = assert(io.open(path(rank) .. ".part", "wb"))
  assert(file:write(ffi.string(mine, count)))
  file:close()
  assert(os.rename(path(rank) .. ".part", path(rank)))
  return 0
end

local function test(_, done)
  if callbacks.code.test < 0 then return callbacks.code.test end
  for p = 0, size - 1 do
    local file = io.open(path(p), "rb")
    if not file then return 0 end
    local text = file:read "*a"
    file:close()
    assert(#text == bytes)
    ffi.copy(target + p * bytes, text, bytes)
  end
  done[0] = true
  return 0
end

callbacks.transport = ffi.new("shardrt_transport", {
  allgather_start = ffi.cast("int (*)(void *, const void *, size_t, void *)", start),
  allgather_test = ffi.cast("int (*)(void *, bool *)", test),
})

local own = { job = current.job, info = current.info }
local options, out = ffi.new "shardrt_options", ffi.new "shardrt_job *[1]"
C.shardrt_options_init(options)
options.transport, options.callbacks = C.SHARDRT_TRANSPORT_CALLBACKS, callbacks.transport
options.rank, options.size = rank, size
options.devices, options.timeout = own.info.devices_per_process, tonumber(os.getenv "TIMEOUT" or 30)
local code = C.shardrt_job_open(options, out)
if code < 0 then
  C.shardrt_job_abandon(out[0])
  fail.check(code)
end
current.job, current.info = out[0], C.shardrt_job_info_get(out[0])

--- Leaves the job; the process is in its own again. What was made in it must be forgotten.
function callbacks.leave()
  collectgarbage()
  collectgarbage()
  fail.check(C.shardrt_job_close(out[0]))
  current.job, current.info = own.job, own.info
end

return callbacks

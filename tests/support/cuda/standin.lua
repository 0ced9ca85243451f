-- The plug-in on the stand-in (tests/standin) without a job around it: opened in this process as often as is wanted,
-- each time on other GPUs. For recipes of specs that run with --platform host.

local ffi = require "ffi"
local accelerator = require "tests.support.cuda.accelerator"

ffi.cdef [[
  int setenv(const char *name, const char *value, int overwrite);
  int unsetenv(const char *name);
  struct plugin_host;
  const struct plugin_host *shardrt_plugin_host(void);
  const struct accelerator *shardrt_accelerator(const struct plugin_host *host);
  void standin_reset(void);
  size_t standin_held(int gpu);
  long long standin_calls(const char *call);
]]

local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"
local runtime = ffi.load((plugin:gsub("[^/]*$", "", 1)) .. "libstandin.so")
local library = ffi.load(plugin)
local a = library.shardrt_accelerator(ffi.C.shardrt_plugin_host())

local standin = { a = a, runtime = runtime, library = library, -- which goes when nobody holds it
  check = accelerator.check, MAIN = 0, IN = 1, OUT = 2, ARRAYS = 0, BATCHES = 1, SCRATCH = 2 }

local NAMES = {
  "STANDIN_GPUS", "STANDIN_MEMORY", "STANDIN_HELD", "STANDIN_LINKS", "STANDIN_HOST", "STANDIN_POOLS", "STANDIN_SEED",
  "STANDIN_FAIL", "STANDIN_HANG", "STANDIN_LOG", "STANDIN_PAGEABLE", "CUDA_VISIBLE_DEVICES",
}

--- Begins anew, with GPUs as `env` says; nothing is open.
function standin.reset(env)
  for _, name in ipairs(NAMES) do
    if env[name] ~= nil then
      ffi.C.setenv(name, tostring(env[name]), 1)
    else
      ffi.C.unsetenv(name)
    end
  end
  runtime.standin_reset()
end

--- Opens `devices` as one of `size` processes: how many there are, or nil and the message.
function standin.open(devices, rank, size)
  local sizes = { devices = devices, local_rank = rank or 0, local_size = size or 1 }
  local wanted = ffi.new("struct accelerator_wanted", sizes)
  local number = ffi.new "int32_t[1]"
  local code = a.open(wanted, number)
  if code < 0 then return nil, standin.message(), code end
  return number[0]
end

--- How many GPUs there are, and which.
function standin.count()
  local which = ffi.new "uint64_t[1]"
  return a.count(which), which[0]
end

function standin.message() return ffi.string(accelerator.C.shardrt_error_message()) end

--- Bytes that are allocated: of a GPU, or, -1, pinned.
function standin.held(gpu) return tonumber(runtime.standin_held(gpu)) end

--- How often a call of CUDA's was made.
function standin.calls(name) return tonumber(runtime.standin_calls(name)) end

function standin.describe(device)
  local info = ffi.new "struct accelerator_info"
  standin.check(a.describe(device, info))
  return {
    name = ffi.string(info.name), uuid = ffi.string(info.uuid, 16), gpu = info.gpu, shared = info.shared,
    memory = tonumber(info.memory),
  }
end

--- Calls one of the platform's functions that gives something back by its last argument.
local function out(kind, call, ...)
  local value = ffi.new(kind .. "[1]")
  local arguments = { ... }
  arguments[#arguments + 1] = value
  local code = call(unpack(arguments))
  if code < 0 then return nil, standin.message(), code end
  return value[0]
end

function standin.allocate(device, stream, holder, bytes)
  return out("void *", a.memory.allocate, device, stream, holder, bytes)
end
function standin.pinned(bytes) return out("void *", a.memory.allocate_pinned, bytes) end
function standin.record(device, stream) return out("struct accelerator_event *", a.streams.record, device, stream) end
function standin.reached(event) return out("bool", a.streams.reached, event) end

return standin

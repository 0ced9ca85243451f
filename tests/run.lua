-- Runs every spec given, each in a process of its own with a time limit, and counts what really ran.
-- The last line is `N passed, N failed`, with `, N skipped` where some were. A spec that dies or says nothing counts as
-- one failure.
--
-- SHARDRT_TEST_PLATFORM says on what devices: host (the default), cuda (the GPUs of this machine; without one, every
-- spec is skipped), or standin (the plug-in for GPUs on what tests/standin puts in the place of CUDA).

local limit = tonumber(os.getenv "SHARDRT_TEST_LIMIT" or 600)
local program = os.getenv "SHARDRT" or "build/shardrt"
local passed, failed, skipped = 0, 0, 0

local platform = os.getenv "SHARDRT_TEST_PLATFORM" or ""
if platform == "" then platform = "host" end
local libraries = (program:match "^(.*/)" or "") .. "standin"
local plugin = libraries .. "/shardrt-cuda.so"
local environments = {
  host = "SHARDRT_PLATFORM=host",
  cuda = "SHARDRT_PLATFORM=cuda",
  standin = ("SHARDRT_PLATFORM=cuda SHARDRT_CUDA_PLUGIN=%s SHARDRT_CUDA_LIBRARIES=%s"):format(plugin, libraries),
}
local environment = environments[platform]
-- A sanitizer opens libraries by itself, and so not those that lie beside whoever asks for them.
if os.getenv "SHARDRT_SANITIZER" then environment = environment and environment .. " LD_LIBRARY_PATH=" .. libraries end
if not environment then
  io.stderr:write(("SHARDRT_TEST_PLATFORM is %s; it may be host, cuda or standin\n"):format(platform))
  os.exit(1)
end

-- Whether there is a job on that platform; else what shardrt says of it.
local function try_platform()
  local recipe = os.tmpname()
  local file = assert(io.open(recipe, "w"))
  file:write "local _ = require 'shardrt'.devices()"
  file:close()
  local pipe = assert(io.popen(("%s timeout -k 10 60 %s %s 2>&1"):format(environment, program, recipe)))
  local said = pipe:read "*a"
  pipe:close()
  os.remove(recipe)
  return said
end

if platform ~= "host" then
  local said = try_platform()
  if said ~= "" then
    io.write(("skipped: %d specs, as there is no platform %s here:\n%s"):format(#arg, platform, said))
    print(("0 passed, 0 failed, %d skipped"):format(#arg))
    os.exit(platform == "cuda" and 0 or 1) -- the stand-in is always there
  end
end

local function number(text, word) return tonumber(text:match("(%d+) " .. word)) end

for _, spec in ipairs(arg) do
  local log = os.tmpname()
  local command = "%s SHARDRT_STANDIN=%s SHARDRT=%s timeout -k 10 %d %s --devices 8 test -o plainTerminal %s >%s 2>&1 "
    .. "</dev/null"
  local status = os.execute(command:format(environment, plugin, program, limit, program, spec, log))
  local file = assert(io.open(log, "rb"))
  local text = file:read "*a"
  file:close()
  os.remove(log)
  local line = text:match "(%d+ success[^\n]*pending[^\n]*)" or ""
  local good, failures = number(line, "success"), number(line, "failure")
  local errors, pending = number(line, "error"), number(line, "pending")
  if good and (status == 0) == (failures + errors == 0) then
    passed, failed, skipped = passed + good, failed + failures + errors, skipped + pending
  else
    failed = failed + 1
    line = status == 124 * 256 and ("ran past its limit of %d s"):format(limit)
      or ("ended without a result (status %d)"):format(status)
  end
  print(("%-36s %s"):format(spec, line))
  if status ~= 0 or (pending or 0) > 0 then print(text) end
  io.stdout:flush()
end

print(("%d passed, %d failed%s"):format(passed, failed, skipped > 0 and (", %d skipped"):format(skipped) or ""))
os.exit(failed == 0 and passed > 0 and 0 or 1)

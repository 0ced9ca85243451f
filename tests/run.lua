-- Runs every spec given, each in a process of its own with a time limit, and counts what really ran.
-- The last line is `N passed, N failed`, with `, N skipped` where some were. A spec that dies or says nothing counts as
-- one failure.

local limit = tonumber(os.getenv "SHARDRT_TEST_LIMIT" or 600)
local program = os.getenv "SHARDRT" or "build/shardrt"
local passed, failed, skipped = 0, 0, 0

local function number(text, word) return tonumber(text:match("(%d+) " .. word)) end

for _, spec in ipairs(arg) do
  local log = os.tmpname()
  local status = os.execute(("SHARDRT=%s timeout -k 10 %d %s --devices 8 test -o plainTerminal %s >%s 2>&1 </dev/null")
    :format(program, limit, program, spec, log))
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

-- make bench: speed and memory as ratios, each pair measured alternately in this one run; medians of seven.

local C = require "shardrt.base.ffi"
local shell = require("tests.support.mpi").shell
local build = assert(arg[1], "usage: run.lua BUILD_FOLDER PART...")

local bench = {
  build = build, rounds = tonumber(os.getenv "SHARDRT_BENCH_ROUNDS" or 7), aims = 0, missed = 0,
  jax = os.getenv "JAX_PYTHON", -- a Python that has JAX, to compare with; nil: no comparison
}

--- Runs a command and gives its output; an error where it fails.
function bench.output(command, limit)
  local result = shell(command, limit or 300)
  assert(result.status == 0, command .. "\n" .. result.output)
  return result.stdout
end

function bench.median(list)
  table.sort(list)
  local middle = math.floor(#list / 2)
  return #list % 2 == 1 and list[middle + 1] or (list[middle] + list[middle + 1]) / 2
end

--- Calls the two functions in turn, as often as there are rounds: the medians of what they return, and of the ratios.
function bench.alternate(ours, theirs)
  local a, b, ratios = {}, {}, {}
  for round = 1, bench.rounds do
    a[round] = ours()
    b[round] = theirs()
    ratios[round] = a[round] / b[round]
  end
  return bench.median(a), bench.median(b), bench.median(ratios)
end

--- One line of the report. `aim` says what the ratio should be: ">= 0.5"; or nothing. A figure that misses its aim is
--- marked.
function bench.report(what, ratio, aim, detail)
  local sign, number = aim:match "^([<>])= ([%d.]+)$"
  local met = not sign or (sign == ">" and ratio >= tonumber(number)) or (sign == "<" and ratio <= tonumber(number))
  if sign then bench.aims = bench.aims + 1 end
  if not met then bench.missed = bench.missed + 1 end
  print(("%-58s %7.2f %s %-11s %s"):format(what, ratio, met and " " or "!", sign and "aim " .. aim or "", detail or ""))
  io.stdout:flush()
end

local function words_of(path, count)
  local file = assert(io.open(path))
  local text = file:read "*l"
  file:close()
  return text:match("^" .. ("%S+ "):rep(count)):sub(1, -2)
end

local start = C.shardrt_clock()
print(("%d cores, load %s; medians of %d rounds, what is compared taken in turn; ! marks what misses its aim"):format(
  bench.output "nproc", words_of("/proc/loadavg", 3), bench.rounds))
io.stdout:flush()
local peers = arg[#arg] == "peers" -- last: a table, which has its own aims
for part = 2, peers and #arg - 1 or #arg do require("tests.bench." .. arg[part])(bench) end
if bench.aims > 0 then
  print(("%d of %d aims met, in %.0f s; load %s"):format(bench.aims - bench.missed, bench.aims,
    C.shardrt_clock() - start, words_of("/proc/loadavg", 3)))
end
if peers then require "tests.bench.peers"(bench) end

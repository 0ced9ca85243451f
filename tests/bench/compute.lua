-- Computation beside JAX, with 8 devices on the same cores, in one process and in 4 of 2 devices each: a sine, a
-- product, and the gradient step of a network, data-parallel and tensor-parallel. Steps of a small network are on one
-- device, too: there it counts what a word costs beside its arithmetic. JAX's are all compiled functions; ours are of
-- shardrt.jit, as JAX's, and without. Time is what counts; the processor's time stands beside it, as other work on the
-- machine does not change that. The product is also beside OpenBLAS alone, and each on one device beside all.

local mpi = require "tests.support.mpi"

local PROCESSES, ROUNDS = 4, 5
local ROOT = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
local MPIRUN = ROOT .. "mpirun -n " .. PROCESSES .. " --oversubscribe "

-- The line of three numbers; JAX's gloo says things beside it.
local function figures(bench, command)
  local text = bench.output(command)
  local seconds, processor, bytes = ("\n" .. text):match "\n(%d+%.%d+) (%d+%.%d+) (%d+)\n"
  return { seconds = assert(tonumber(seconds), text), processor = tonumber(processor), bytes = tonumber(bytes) }
end

local function ours(bench, processes, what, layout)
  local start = processes > 1 and MPIRUN or ROOT
  return figures(bench, start .. ("%s --devices %d tests/bench/compute_once.lua %s %s %d"):format(mpi.program(),
    8 / processes, what, layout, ROUNDS))
end

local port = 20000 + math.floor(require("shardrt.base.ffi").shardrt_clock()) % 20000

local function jax(bench, processes, what, layout)
  local script = ("%s tests/bench/compute_jax.py %s %s %d"):format(bench.jax, what, layout, ROUNDS)
  if processes == 1 then return figures(bench, script .. " 2>/dev/null") end
  port = port + 1
  local words = {}
  for process = 0, processes - 1 do
    words[#words + 1] = ("%s %d %d localhost:%d 2>/dev/null"):format(script, process, processes, port)
  end
  return figures(bench, table.concat(words, " & ") .. " & wait")
end

-- Both in turn: the medians of each figure, and of their ratios, ours first.
local function compare(bench, first, second)
  local a, b, ratio = {}, {}, {}
  for _, name in ipairs { "seconds", "processor", "bytes" } do a[name], b[name], ratio[name] = {}, {}, {} end
  for _ = 1, bench.rounds do
    local mine, theirs = first(), second()
    for name, value in pairs(mine) do
      table.insert(a[name], value)
      table.insert(b[name], theirs[name])
      table.insert(ratio[name], value / theirs[name])
    end
  end
  for name in pairs(ratio) do
    a[name], b[name], ratio[name] = bench.median(a[name]), bench.median(b[name]), bench.median(ratio[name])
  end
  return a, b, ratio
end

local CASES = {
  { what = "sin", layout = "all", name = "sin 8192x8192 on P(a,b)", aim = ">= 8" },
  { what = "dot", layout = "all", name = "dot 4096x4096, P(a,nil) and P(nil,b)", aim = ">= 1", flop = 2 * 4096 ^ 3 },
  { what = "step", layout = "data", name = "gradient step, batch over 8", aim = ">= 1.2", memory = true },
  { what = "step", layout = "tensor", name = "gradient step, 4 x 2", aim = ">= 1.2" },
  { what = "small_jit", layout = "one", name = "100 steps of a small network, one device, jit", aim = ">= 1" },
  { what = "small", jax = "small_jit", layout = "one", name = "100 steps of a small network, one device", aim = "" },
  { what = "small_jit", layout = "data", name = "10 steps of a small network, batch over 8, jit", aim = ">= 1" },
}

local function detail(case, a, b)
  if case.flop then
    return ("%.0f and %.0f GFLOP/s"):format(case.flop / a.seconds / 1e9, case.flop / b.seconds / 1e9)
  end
  return ("%.0f and %.0f ms"):format(a.seconds * 1e3, b.seconds * 1e3)
end

local function beside_jax(bench, case, processes)
  local a, b, ratio = compare(bench, function() return ours(bench, processes, case.what, case.layout) end,
    function() return jax(bench, processes, case.jax or case.what, case.layout) end)
  local where = processes > 1 and ("%d x %d, "):format(processes, 8 / processes) or ""
  bench.report(where .. case.name .. ", speed / JAX", 1 / ratio.seconds, case.aim,
    ("%s; of the processor %.2f"):format(detail(case, a, b), 1 / ratio.processor))
  if case.memory then
    bench.report(where .. case.name .. ", memory / JAX", ratio.bytes, "<= 0.5",
      ("%.0f and %.0f MB beyond the bare program"):format(a.bytes / 1e6, b.bytes / 1e6))
  end
end

local function beside_blas(bench, case)
  local a, b, ratio = compare(bench, function() return ours(bench, 1, case.what, case.layout) end, function()
    return figures(bench, ("%s/bench/gemm 4096 %d"):format(bench.build, ROUNDS))
  end)
  bench.report(case.name .. ", speed / OpenBLAS", 1 / ratio.seconds, "",
    ("%s; of the processor %.2f"):format(detail(case, a, b), 1 / ratio.processor))
end

local function beside_one(bench, case)
  local a, b, ratio = compare(bench, function() return ours(bench, 1, case.what, case.layout) end,
    function() return ours(bench, 1, case.what, "one") end)
  bench.report(case.name .. ", speed / one device", 1 / ratio.seconds, "",
    ("%s; of the processor %.2f"):format(detail(case, a, b), 1 / ratio.processor))
end

return function(bench)
  for _, case in ipairs(CASES) do
    if bench.jax then
      for _, processes in ipairs(case.layout == "one" and { 1 } or { 1, PROCESSES }) do
        beside_jax(bench, case, processes)
      end
    end
    if case.flop then beside_blas(bench, case) end
    if case.layout ~= "one" and case.what ~= "small_jit" then beside_one(bench, case) end
  end
end

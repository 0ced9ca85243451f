-- One GPU: uploads to it (upload.lua); a sine, a product and a network's gradient step at full size beside JAX on the
-- same GPU, products of float32 and of TF32, which is JAX's default there; and the network's losses. Left out where
-- there is no GPU, and beside JAX without JAX_PYTHON.

local cjson = require "cjson"
local mpi = require "tests.support.mpi"
local golden = require "tests.support.golden"
local cases = dofile "tests/bench/gpu_cases.lua"

local LIMIT = 600

local function left_out(what, why) print(("%-58s left out: %s"):format(what, why)) end

local function program(words)
  return ("%s --platform cuda --devices 1 tests/bench/gpu_once.lua %s"):format(mpi.program(), words)
end

-- Why there is nothing to be measured; nil: there is a GPU.
local function missing()
  local result = mpi.shell(program "nothing", LIMIT)
  if result.status == 0 then return nil end
  for _, why in ipairs { "no GPU was found here", "was built without CUDA" } do
    if result.output:find(why, 1, true) then return why end
  end
  error(result.output)
end

-- The numbers that a program prints, a line each.
local function numbers(bench, command, count)
  local found = {}
  for line in bench.output(command, LIMIT):gmatch "[^\n]+" do found[#found + 1] = assert(tonumber(line), line) end
  assert(#found == count, command)
  return found
end

local function jax_command(bench)
  local words = { bench.jax, "tests/bench/gpu_jax.py", cases.ROUNDS, cases.sin, cases.dot, cases.batch }
  for _, case in ipairs(cases) do
    words[#words + 1] = ("%s %s %d"):format(case.what, case.precision, case.steps)
  end
  return table.concat(words, " ") .. " 2>/dev/null"
end

-- Whether JAX is there and computes on the GPU, or, where the bench itself is tried, anywhere.
local function has_jax(bench)
  local what = "sin, dot and gradient steps beside JAX"
  if not bench.jax then return left_out(what, "JAX_PYTHON names no Python that has JAX for CUDA") end
  local where = mpi.shell(bench.jax .. " tests/bench/gpu_jax.py where 2>/dev/null", LIMIT).stdout:match "%a+"
  if where == "gpu" or where and cases.shrink > 1 then return true end
  return left_out(what, ("%s has %s"):format(bench.jax, where and "JAX for the " .. where or "no JAX"))
end

local function speed(bench)
  local beside, ours, theirs, ratios = has_jax(bench), {}, {}, {}
  for i in ipairs(cases) do ours[i], theirs[i], ratios[i] = {}, {}, {} end
  for round = 1, bench.rounds do
    local a = numbers(bench, program "", #cases)
    local b = beside and numbers(bench, jax_command(bench), #cases)
    for i in ipairs(cases) do
      ours[i][round] = a[i]
      if b then theirs[i][round], ratios[i][round] = b[i], b[i] / a[i] end
    end
  end
  for i, case in ipairs(cases) do
    local ms = bench.median(ours[i]) * 1e3
    if beside then
      bench.report(case.name .. " on a GPU, speed / JAX", bench.median(ratios[i]), ">= 1",
        ("%.3f and %.3f ms"):format(ms, bench.median(theirs[i]) * 1e3))
    else
      print(("%-58s %7.3f ms"):format(case.name .. " on a GPU", ms))
    end
  end
end

-- What JAX gives at full size: with today's keys and with older ones, on a CPU; then what the notebook printed, on
-- another kind of hardware, whose products are those of bfloat16.
local function expected()
  local file = io.open(golden.folder .. "/mlp_full.json", "rb")
  if not file then return nil end
  local all = cjson.decode(file:read "*a")
  file:close()
  local first = {}
  for _, case in ipairs(all.cases) do first[case.partitionable] = case.loss["0"] end
  local printed = all.notebook_printed
  return { first[true], first[false], printed["30"], printed["60, the last 30 on 4x2"] }
end

local LOSSES = {
  { "loss, beside JAX's on a CPU", "<= 5" }, { "loss with older keys, beside JAX's on a CPU", "<= 5" },
  { "loss after 30 data-parallel steps, beside the notebook's", "<= 1000" },
  { "loss after 30 more, tensor-parallel, beside the notebook's", "<= 1000" },
}

local function losses(bench)
  local wanted = cases.shrink == 1 and expected()
  local found = numbers(bench, program "losses", #LOSSES)
  for i, row in ipairs(LOSSES) do
    if wanted then
      bench.report(row[1] .. ", millionths", math.abs(found[i] / wanted[i] - 1) * 1e6, row[2],
        ("%.6f and %.6f"):format(found[i], wanted[i]))
    else
      print(("%-58s %.6f; nothing to compare with"):format(row[1], found[i]))
    end
  end
end

return function(bench)
  require "tests.bench.upload"(bench)
  local why = missing()
  if why then return left_out("computation on a GPU", why) end
  if cases.shrink > 1 then print(("sizes are divided by %d"):format(cases.shrink)) end
  speed(bench)
  losses(bench)
end

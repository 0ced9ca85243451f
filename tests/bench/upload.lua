-- Where there is a GPU: how fast a loader's batches are copied to it, beside cudaMemcpyAsync of as many bytes from
-- pinned memory, while workers fill the next ones and the GPU computes; and how much of that copying it does not wait
-- for.

local mpi = require "tests.support.mpi"

local ROWS, ROW_BYTES, STEPS = 4096, 16384, 60
local WORK = 4 -- products of 4096 x 4096 x 4096: several times what copying takes

local function left_out(why)
  print(("%-58s %s"):format("uploads to a GPU", "left out: " .. why))
end

return function(bench)
  local baseline = bench.build .. "/bench/upload"
  local file = io.open(baseline)
  if not file then return left_out "CUDA's toolkit was not found, so there is nothing to compare with" end
  file:close()
  local said = bench.output(("%s %d"):format(baseline, ROWS * ROW_BYTES))
  if said:find "^no GPU" then return left_out "there is no GPU here" end
  local hidden, whole = {}, {}
  local ours, theirs, ratio = bench.alternate(function()
    local text = bench.output(("%s --platform cuda --devices 1 tests/bench/upload_once.lua %d %d %d"):format(
      mpi.program(), ROWS, STEPS, WORK))
    local rate, share, all = text:match "^(%S+) (%S+) (%S+)"
    hidden[#hidden + 1], whole[#whole + 1] = tonumber(share), tonumber(all)
    return tonumber(rate)
  end, function() return tonumber(bench.output(("%s %d"):format(baseline, ROWS * ROW_BYTES))) end)
  local gb = ("%.2f and %.2f GB/s"):format(ours / 1e9, theirs / 1e9)
  bench.report("batches of 64 MiB to a GPU / cudaMemcpyAsync", ratio, ">= 0.9", gb)
  bench.report("of copying them, hidden behind 4 products each", bench.median(hidden), ">= 0.9",
    ("%.2f GB/s with the products"):format(bench.median(whole) / 1e9))
end

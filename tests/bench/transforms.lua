-- Transforms: what the loader gets through with one, of what a plain C loop does that makes the same of the same
-- page-cached records, with as many threads, into as many batch buffers in turn.

local records = require "tests.bench.records"

return function(bench)
  local tokens = records.make { bytes = 2 * 1025, rows = 65536, descr = "<u2", shape = "1025", batch = 64 }
  records.compare(bench, tokens,
    { what = "window", ours = "window", title = "64 windows of 1025 tokens, to int32 / plain C loop", aim = ">= 0.7" })
  records.remove(tokens)
  local images = records.make { bytes = 3072, rows = 65536, descr = "|u1", shape = "32, 32, 3" }
  records.compare(bench, images, { what = "normalize", ours = "normalize", aim = ">= 0.8",
    title = "normalize, 32x32x3 uint8 to float32 / vectorised C loop" })
  records.compare(bench, images, { what = "invert", ours = "lua", program = "gather-scalar", aim = ">= 0.8",
    title = "a transform in Lua / C loop that is not vectorised" })
  records.compare(bench, images, { what = "invert", ours = "lua", aim = "",
    title = "the same / vectorised C loop" })
  records.remove(images)
end

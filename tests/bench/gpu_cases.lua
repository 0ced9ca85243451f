-- What the bench computes on a GPU, and how large: for gpu.lua and gpu_once.lua; work_jax.py has the same. The sizes
-- are those of the JAX notebook "Distributed arrays and automatic parallelization"; SHARDRT_BENCH_SHRINK divides
-- them, which serves to try the bench itself. Data: batch over all devices; tensor: inner layers cut, too.

local shrink = tonumber(os.getenv "SHARDRT_BENCH_SHRINK" or 1)

return {
  shrink = shrink,
  sin = 8192 / shrink, dot = 4096 / shrink,
  layers = { 784, 8192 / shrink, 8192 / shrink, 8192 / shrink, 10 }, batch = 8192 / shrink,
  ROUNDS = 5, -- of which each program gives the median
  -- `steps` are put on the GPU one after the other before it is waited for.
  { what = "sin", precision = "float32", steps = 100, name = "sin 8192x8192" },
  { what = "dot", precision = "float32", steps = 50, name = "dot 4096x4096 in float32" },
  { what = "dot", precision = "tensorfloat32", steps = 100, name = "dot 4096x4096 in TF32" },
  { what = "data", precision = "float32", steps = 3, name = "data-parallel gradient step in float32" },
  { what = "data", precision = "tensorfloat32", steps = 10, name = "data-parallel gradient step in TF32" },
  { what = "tensor", precision = "float32", steps = 3, name = "tensor-parallel gradient step in float32" },
  { what = "tensor", precision = "tensorfloat32", steps = 10, name = "tensor-parallel gradient step in TF32" },
}

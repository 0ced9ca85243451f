// build: plug-in
/* cuda_alloc.c - the GPUs' memory, and who holds it. It comes from the GPU's default pool, in the order of streams, and
 * what is freed stays with the pool, but for what others need (gpu.c): an allocation costs about a microsecond and
 * stops nothing. Where a GPU has no pools, memory is given back after waiting for its stream. */
#include "device/cuda_alloc.h"

#include <stdio.h>

#include "base/error.h"
#include "device/gpu.h"

/* What holds the GPU's memory, as a message: this device's, this process's, and what is left is everybody else's. */
static int is_out_of_memory(int32_t number, int32_t holder, size_t bytes) {
  static const char *const holders[ACCELERATOR_HOLDERS] = {"arrays", "batches", "scratch memory"};
  const double gib = 1 << 30;
  const struct gpu *g = gpu_of(number);
  size_t available = 0, total = g->memory, held[ACCELERATOR_HOLDERS] = {0}, own = 0, mine = 0;
  if (cudaMemGetInfo(&available, &total) != cudaSuccess) (void)cudaGetLastError();
  for (int32_t d = 0; d < gpu_devices(); d++)
    for (int32_t h = 0; gpu_of(d) == g && h < ACCELERATOR_HOLDERS; h++) {
      const size_t here = atomic_load(&gpu_device_at(d)->held[h]);
      held[h] += here;
      mine += here;
      if (d == number) own += here;
    }
  const size_t taken = total > available ? total - available : 0;
  char sharing[96] = "";
  if (g->shared > 1) snprintf(sharing, sizeof sharing, " in %d devices, this one %.2f", g->shared, (double)own / gib);
  return error_set(
      SHARDRT_ENOMEM,
      "out of memory on device %d (GPU %d, %s): %zu bytes are wanted for %s; of its %.2f GiB %.2f are free; "
      "this process holds %.2f there%s: %.2f as arrays, %.2f as batches, %.2f as scratch memory; %.2f are "
      "other processes', CUDA's own, or in pieces; smaller batches, arrays cut over more devices, or "
      "x:delete() of what is not needed would help",
      cuda_id(number), g->number, g->name, bytes, holders[holder], (double)total / gib, (double)available / gib,
      (double)mine / gib, sharing, (double)held[ACCELERATOR_ARRAYS] / gib, (double)held[ACCELERATOR_BATCHES] / gib,
      (double)held[ACCELERATOR_SCRATCH] / gib, taken > mine ? (double)(taken - mine) / gib : 0.0);
}

static cudaError_t try_allocate(int32_t number, int32_t stream, size_t bytes, void **out) {
  if (gpu_of(number)->pool == NULL) return cudaMalloc(out, bytes);
  return cudaMallocAsync(out, bytes, cuda_stream(number, stream));
}

bool cuda_alloc_reclaim(int32_t number) {
  (void)cudaGetLastError();
  const bool could = accelerator_reclaim();
  gpu_come_back(number);
  return could;
}

/* What was in pieces is in one then, too. */
void cuda_alloc_gather(const char *what, int32_t number) {
  const struct gpu *g = gpu_of(number);
  if (cuda_use(what, number) < 0) return;
  for (int32_t d = 0; d < gpu_devices(); d++)
    for (int32_t s = 0; gpu_of(d) == g && s < ACCELERATOR_STREAMS; s++)
      (void)cudaStreamSynchronize(gpu_device_at(d)->streams[s]);
  if (g->pool != NULL) (void)cudaMemPoolTrimTo(g->pool, 0);
  (void)cudaGetLastError();
}

int cuda_alloc_take(int32_t number, int32_t stream, int32_t holder, size_t bytes, void **out) {
  static const char what[] = "memory is allocated";
  static const char *const calls[] = {"cudaMalloc", "cudaMallocAsync"};
  int code = cuda_use(what, number);
  if (code < 0) return code;
  const size_t room = bytes > 0 ? bytes : 1; /* so that it has an address */
  cudaError_t problem = try_allocate(number, stream, room, out);
  if (problem == cudaErrorMemoryAllocation && cuda_alloc_reclaim(number))
    problem = try_allocate(number, stream, room, out);
  if (problem == cudaErrorMemoryAllocation) { /* now it is worth waiting for */
    (void)cudaGetLastError();
    cuda_alloc_gather(what, number);
    problem = try_allocate(number, stream, room, out);
  }
  if (problem == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return is_out_of_memory(number, holder, bytes);
  }
  code = cuda_check(problem, calls[gpu_of(number)->pool != NULL], what, number);
  if (code == SHARDRT_OK) atomic_fetch_add(&gpu_device_at(number)->held[holder], bytes);
  return code;
}

/* Where nothing works anymore, neither does this, and nobody wants to hear of it. */
void cuda_alloc_free(int32_t number, int32_t stream, int32_t holder, void *data, size_t bytes) {
  if (data == NULL || number >= gpu_devices()) return; /* closed: CUDA has taken it back */
  gpu_come_back(number);
  atomic_fetch_sub(&gpu_device_at(number)->held[holder], bytes);
  if (gpu_of(number)->pool != NULL)
    (void)cudaFreeAsync(data, cuda_stream(number, stream));
  else if (cudaStreamSynchronize(cuda_stream(number, stream)) == cudaSuccess)
    (void)cudaFree(data);
  (void)cudaGetLastError();
}

int cuda_scratch(const char *what, int32_t number, size_t bytes, void **out) {
  int code = cuda_alloc_take(number, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, bytes, out);
  return code < 0 ? error_prefix(code, "%s", what) : code;
}

void cuda_scratch_free(int32_t number, void *data, size_t bytes) {
  cuda_alloc_free(number, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, data, bytes);
}

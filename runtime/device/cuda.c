// build: plug-in
/* cuda.c - the platform "cuda": GPUs by CUDA's runtime. With the rest of the plug-in it makes the table that
 * platform/accelerator.c opens: GPUs and their streams (device/gpu.c), memory (cuda_alloc.c, pinned.c), events
 * (event.c), transfers (transfer.c), what is said when they fail (failure.c), links (topology.c,
 * comm/transport/nccl.c), cuBLAS (compute/cuda/cublas.c, library.c) and the kernels (*.cu). */
#include "device/cuda.h"

#include <stdlib.h>

#include "device/cuda_alloc.h"
#include "device/event.h"
#include "device/gpu.h"
#include "device/pinned.h"
#include "device/transfer.h"
#include "platform/opener.h"

/* What a user, or the machine's nccl.conf, has set for other programs would be stronger than what comm/transport/nccl.c
 * says of its communicators. Now, as other threads may read the environment later. */
static int open_all(const struct accelerator_wanted *wanted, int32_t *devices) {
  setenv("NCCL_COMM_BLOCKING", "0", 1); /* NOLINT(concurrency-mt-unsafe) */
  return gpu_open(wanted, devices);
}

static void close_all(void) {
  gpu_synchronize();
  cublas_close();
  pinned_close();
  event_close();
  gpu_close();
}

/* In this process's context, not GPU 0's. */
static int allocate_pinned(size_t bytes, void **out) {
  int code = cuda_use("pinned memory is allocated", 0);
  if (code == SHARDRT_OK) code = pinned_allocate(bytes, out);
  if (code == SHARDRT_ENOMEM && cuda_alloc_reclaim(0)) code = pinned_allocate(bytes, out);
  return code;
}

static void free_pinned(void *data, size_t bytes) {
  if (gpu_devices() > 0) gpu_come_back(0);
  pinned_free(data, bytes);
}

static const struct accelerator_memory cuda_memory = {
    .allocate = cuda_alloc_take,
    .free = cuda_alloc_free,
    .allocate_pinned = allocate_pinned,
    .free_pinned = free_pinned,
};

static const struct accelerator_streams cuda_streams = {
    .record = event_record,
    .wait = event_wait,
    .reached = event_reached,
    .finish = event_finish,
    .mark = event_mark,
    .elapsed = event_elapsed,
    .event_free = event_free,
    .after = event_after,
    .lend = event_lend,
    .take_back = event_take_back,
};

static const struct accelerator_copies cuda_copies = {
    .upload = transfer_upload,
    .is_pinned = transfer_is_pinned,
    .download = transfer_download,
    .copy = transfer_copy,
    .reaches = gpu_reaches,
    .place = cuda_place,
    .zero = transfer_zero,
};

static const struct accelerator_kernels cuda_kernels = {
    .fingerprint = cuda_fingerprint,
    .elementwise = cuda_elementwise,
    .reduce = cuda_reduce,
    .product = cuda_product,
    .check_indices = cuda_check_indices,
    .take = cuda_take,
    .take_add = cuda_take_add,
    .argsort = cuda_argsort,
    .cumsum = cuda_cumsum,
    .count_along = cuda_count_along,
    .random = cuda_random,
};

const struct accelerator cuda_accelerator = {
    .version = ACCELERATOR_VERSION,
    .name = "cuda",
    .count = gpu_count,
    .open = open_all,
    .close = close_all,
    .describe = gpu_describe,
    .link = gpu_link,
    .topology = cuda_topology,
    .examine = gpu_examine,
    .library = cuda_library_at,
    .memory = &cuda_memory,
    .streams = &cuda_streams,
    .copies = &cuda_copies,
    .kernels = &cuda_kernels,
    .links = &nccl_links,
};

const void *shardrt_accelerator(const struct plugin_host *host) {
  opener_set(host);
  return &cuda_accelerator;
}

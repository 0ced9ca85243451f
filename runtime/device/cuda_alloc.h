/* cuda_alloc.h - the GPUs' memory: what accelerator.h says of allocate and free. Part of the CUDA plug-in. */
#ifndef SHARDRT_DEVICE_CUDA_ALLOC_H
#define SHARDRT_DEVICE_CUDA_ALLOC_H

#include "shardrt.h"

int cuda_alloc_take(int32_t device, int32_t stream, int32_t holder, size_t bytes, void **out);
void cuda_alloc_free(int32_t device, int32_t stream, int32_t holder, void *data, size_t bytes);
/* Waits until all that this process has freed on the device's GPU is free, and gives it back to the GPU, where what is
 * not of the pool finds it: what cuBLAS takes for itself. */
void cuda_alloc_gather(const char *what, int32_t device);
/* After memory was found missing, on the device or, pinned, on the host: accelerator_reclaim. The thread's calls go to
 * the device's GPU afterwards. */
bool cuda_alloc_reclaim(int32_t device);

#endif

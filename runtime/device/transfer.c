// build: plug-in
/* transfer.c - bytes between the host and GPUs, and between GPUs, in the order of streams. */
#include "device/transfer.h"

#include "device/gpu.h"

static int transfer(const char *what, int32_t number, int32_t stream, void *to, const void *from, size_t bytes,
                    enum cudaMemcpyKind kind) {
  if (bytes == 0) return SHARDRT_OK;
  int code = cuda_use(what, number);
  if (code < 0) return code;
  gpu_note(what, number);
  return cuda_check(cudaMemcpyAsync(to, from, bytes, kind, cuda_stream(number, stream)), "cudaMemcpyAsync", what,
                    number);
}

/* Whether the memory is pageable and the GPU reads it by itself (HMM, Grace). */
static int is_read_there(int32_t number, const void *from, bool *out) {
  static const char what[] = "upload";
  *out = false;
  if (!gpu_of(number)->reads_pageable) return SHARDRT_OK;
  struct cudaPointerAttributes memory;
  int code = cuda_use(what, number);
  if (code == SHARDRT_OK)
    code = cuda_check(cudaPointerGetAttributes(&memory, from), "cudaPointerGetAttributes", what, number);
  *out = code == SHARDRT_OK && memory.type == cudaMemoryTypeUnregistered;
  return code;
}

/* A copy whose source is read before the call returns, in whatever order, so that nobody waits for what the stream has
 * before; false: the driver knows no such copy. */
static bool upload_at_once(int32_t number, int32_t stream, void *to, const void *from, size_t bytes) {
  struct cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall};
  size_t first = 0; /* of the copies that have these attributes */
  gpu_note("upload", number);
  if (cudaMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, cuda_stream(number, stream)) == cudaSuccess)
    return true;
  (void)cudaGetLastError();
  return false;
}

/* CUDA's "API synchronization behavior": from pageable memory that must first be staged the call returns when it has
 * been (its programming guide: without waiting for the device, up to 64 KiB; so small uploads need no pinned memory of
 * ours on their way). Where the GPU reads such memory by itself, a plain copy may read it later, and is waited for,
 * with all that the stream had before. */
int transfer_upload(int32_t number, int32_t stream, void *to, const void *from, size_t bytes) {
  static const char what[] = "upload";
  if (bytes == 0) return SHARDRT_OK;
  bool read_there;
  int code = is_read_there(number, from, &read_there);
  if (code < 0 || (read_there && upload_at_once(number, stream, to, from, bytes))) return code;
  code = transfer(what, number, stream, to, from, bytes, cudaMemcpyHostToDevice);
  if (code < 0 || !read_there) return code;
  return cuda_check(cudaStreamSynchronize(cuda_stream(number, stream)), "cudaStreamSynchronize", what, number);
}

bool transfer_is_pinned(const void *data) {
  struct cudaPointerAttributes memory;
  const cudaError_t problem = cudaPointerGetAttributes(&memory, data);
  if (problem == cudaSuccess) return memory.type == cudaMemoryTypeHost;
  (void)cudaGetLastError();
  return true; /* not known: then it is waited for */
}

int transfer_download(int32_t number, int32_t stream, void *to, const void *from, size_t bytes) {
  return transfer("download", number, stream, to, from, bytes, cudaMemcpyDeviceToHost);
}

int transfer_copy(int32_t number, void *to, int32_t other, const void *from, size_t bytes) {
  static const char what[] = "copy between devices";
  const struct gpu *here = gpu_of(number), *there = gpu_of(other);
  if (here == there) return transfer("copy", number, ACCELERATOR_MAIN, to, from, bytes, cudaMemcpyDeviceToDevice);
  if (bytes == 0) return SHARDRT_OK;
  int code = cuda_use(what, number);
  if (code < 0) return code;
  gpu_note(what, number);
  return cuda_check(
      cudaMemcpyPeerAsync(to, here->number, from, there->number, bytes, cuda_stream(number, ACCELERATOR_MAIN)),
      "cudaMemcpyPeerAsync", what, number);
}

int transfer_zero(int32_t number, void *to, size_t bytes) {
  static const char what[] = "zeros";
  if (bytes == 0) return SHARDRT_OK;
  int code = cuda_use(what, number);
  if (code < 0) return code;
  gpu_note(what, number);
  return cuda_check(cudaMemsetAsync(to, 0, bytes, cuda_stream(number, ACCELERATOR_MAIN)), "cudaMemsetAsync", what,
                    number);
}

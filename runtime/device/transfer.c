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

/* CUDA's "API synchronization behavior": from pageable memory that must first be staged the call returns when it has
 * been; where the GPU reads it by itself (HMM, Grace), the copy may be asynchronous, and is waited for. */
int transfer_upload(int32_t number, int32_t stream, void *to, const void *from, size_t bytes) {
  static const char what[] = "upload";
  int code = transfer(what, number, stream, to, from, bytes, cudaMemcpyHostToDevice);
  if (code < 0 || bytes == 0 || !gpu_of(number)->reads_pageable) return code;
  struct cudaPointerAttributes memory;
  code = cuda_check(cudaPointerGetAttributes(&memory, from), "cudaPointerGetAttributes", what, number);
  if (code < 0 || memory.type != cudaMemoryTypeUnregistered) return code;
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
  const gpu *here = gpu_of(number), *there = gpu_of(other);
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

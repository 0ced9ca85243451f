// build: plug-in
/* topology.c - how the GPUs of this host are linked, also those that other processes have. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/cuda.h"

static const char what[] = "links between GPUs are looked at";

static int failed(cudaError_t problem, const char *call) {
  (void)cudaGetLastError();
  return error_set(SHARDRT_EDEVICE, "%s: %s failed: %s (%s)", what, call, cudaGetErrorString(problem),
                   cudaGetErrorName(problem));
}

/* CUDA's numbers of those that this process sees; -1 of the others. */
static int find_numbers(int32_t count, const uint8_t (*uuids)[16], int *numbers) {
  int there = 0;
  cudaError_t problem = cudaGetDeviceCount(&there);
  if (problem != cudaSuccess) return failed(problem, "cudaGetDeviceCount");
  for (int32_t i = 0; i < count; i++) numbers[i] = -1;
  for (int number = 0; number < there; number++) {
    struct cudaDeviceProp properties;
    problem = cudaGetDeviceProperties(&properties, number);
    if (problem != cudaSuccess) return failed(problem, "cudaGetDeviceProperties");
    for (int32_t i = 0; i < count; i++)
      if (memcmp(uuids[i], properties.uuid.bytes, sizeof uuids[i]) == 0) numbers[i] = number;
  }
  return SHARDRT_OK;
}

int32_t cuda_peer_link(int gpu, int other) {
  int atomics = 0;
  if (cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, gpu, other) != cudaSuccess)
    (void)cudaGetLastError();
  return atomics ? ACCELERATOR_NVLINK : ACCELERATOR_PEER;
}

static int32_t link_between(int gpu, int other) {
  int can = 0;
  if (cudaDeviceCanAccessPeer(&can, gpu, other) != cudaSuccess) (void)cudaGetLastError();
  return can ? cuda_peer_link(gpu, other) : ACCELERATOR_HOST_LINK;
}

int cuda_topology(int32_t count, const uint8_t (*uuids)[16], int32_t *links) {
  int *numbers = alloc_array((size_t)count, sizeof *numbers);
  if (numbers == NULL) return ALLOC_FAILED;
  int code = find_numbers(count, uuids, numbers);
  for (int32_t i = 0; code == SHARDRT_OK && i < count; i++)
    for (int32_t k = 0; k < count; k++) {
      int32_t *link = &links[(int64_t)i * count + k];
      if (memcmp(uuids[i], uuids[k], sizeof uuids[i]) == 0)
        *link = ACCELERATOR_SAME;
      else
        *link = numbers[i] < 0 || numbers[k] < 0 ? ACCELERATOR_FAR : link_between(numbers[i], numbers[k]);
    }
  alloc_free(numbers);
  return code;
}

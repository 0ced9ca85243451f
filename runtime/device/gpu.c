// build: plug-in
/* gpu.c - which of the machine's GPUs are this process's, which of its devices are which GPU, and their streams. */
#include "device/gpu.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"

static struct {
  int32_t process; /* in the job */
  int32_t count;   /* of devices; 0: closed */
  struct gpu_device *devices;
  int32_t gpu_count;
  struct gpu gpus[GPU_MOST];
} opened;

int32_t gpu_devices(void) {
  return opened.count;
}

struct gpu_device *gpu_device_at(int32_t number) {
  return &opened.devices[number];
}

struct gpu *gpu_of(int32_t number) {
  return opened.devices[number].gpu;
}

int32_t cuda_id(int32_t number) {
  return opened.process * opened.count + number;
}

int cuda_use(const char *what, int32_t number) {
  return cuda_check(cudaSetDevice(gpu_of(number)->number), "cudaSetDevice", what, number);
}

cudaStream_t cuda_stream(int32_t number, int32_t stream) {
  return opened.devices[number].streams[stream];
}

int32_t cuda_multiprocessors(int32_t number) {
  return gpu_of(number)->multiprocessors;
}

void gpu_come_back(int32_t number) {
  (void)cudaSetDevice(gpu_of(number)->number);
}

int32_t gpu_count(uint64_t *which) {
  int there = 0;
  *which = 0;
  const cudaError_t problem = cudaGetDeviceCount(&there);
  if (problem != cudaSuccess || there == 0) {
    there = 0;
    error_set(SHARDRT_EINVAL, "no GPU was found here, or no driver for it: %s (%s)", cudaGetErrorString(problem),
              cudaGetErrorName(problem));
  }
  for (int g = 0; g < there; g++) {
    struct cudaDeviceProp properties = {0};
    (void)cudaGetDeviceProperties(&properties, g); /* what is wrong, open says */
    *which = hash_bytes(*which, properties.uuid.bytes, sizeof properties.uuid.bytes);
  }
  (void)cudaGetLastError();
  return there;
}

/* Which GPUs are this process's: as many as processes or more, and each has its own, side by side; fewer, and
 * neighbours share one: make_mesh, which puts devices of one GPU side by side, then leaves the processes in order. */
static void share(int32_t there, const struct accelerator_wanted *wanted, int32_t *first, int32_t *end) {
  const int64_t rank = wanted->local_rank, size = wanted->local_size;
  *first = (int32_t)(there * rank / size);
  *end = (int32_t)(there * (rank + 1) / size);
  if (there < size) *end = *first + 1;
}

#ifndef CUDA_LEAST
#define CUDA_LEAST 80 /* of the architectures that the kernels were compiled for, the least */
#endif

/* How many of the processes have a GPU. */
static int32_t count_processes(int32_t there, const struct accelerator_wanted *wanted, int32_t number) {
  const int64_t size = wanted->local_size;
  if (there >= size) return 1;
  const int64_t first = (number * size + there - 1) / there, end = ((number + 1) * size + there - 1) / there;
  return (int32_t)(end - first);
}

/* What the pool may keep of what was freed: this process's part of the GPU, less a sixteenth for what is not of the
 * pool, to which this is no free memory: contexts, kernels, what cuBLAS and NCCL take for themselves. More than that
 * goes back to the GPU when somebody waits for it. */
static cudaError_t keep_freed(const struct gpu *g) {
  unsigned long long keep = g->memory / 16 * 15 / (size_t)g->processes;
  return cudaMemPoolSetAttribute(g->pool, cudaMemPoolAttrReleaseThreshold, &keep);
}

static int open_gpu(struct gpu *g, int number, int32_t processes) {
  static const char what[] = "the GPUs are opened";
  *g = (struct gpu){.number = number, .processes = processes};
  struct cudaDeviceProp properties;
  cudaError_t problem = cudaGetDeviceProperties(&properties, number);
  if (problem != cudaSuccess) return gpu_failed(problem, "cudaGetDeviceProperties", what);
  snprintf(g->name, sizeof g->name, "%.*s", (int)sizeof g->name - 1, properties.name);
  memcpy(g->uuid, properties.uuid.bytes, sizeof g->uuid);
  g->memory = properties.totalGlobalMem;
  g->multiprocessors = properties.multiProcessorCount;
  if (properties.major * 10 + properties.minor < CUDA_LEAST)
    return error_set(SHARDRT_EINVAL,
                     "GPU %d, %s, has compute capability %d.%d; this shardrt's kernels need %d.%d or newer: `make cuda "
                     "CUDA_ARCHS=%d%d` builds them for it, %s host runs without",
                     number, g->name, properties.major, properties.minor, CUDA_LEAST / 10, CUDA_LEAST % 10,
                     properties.major, properties.minor, error_words("--platform", "platform"));
  problem = cudaSetDevice(number);
  if (problem != cudaSuccess) return gpu_failed(problem, "cudaSetDevice", what);
  int reads_pageable = 0, has_pools = 0;
  problem = cudaDeviceGetAttribute(&reads_pageable, cudaDevAttrPageableMemoryAccess, number);
  if (problem != cudaSuccess) return gpu_failed(problem, "cudaDeviceGetAttribute", what);
  g->reads_pageable = reads_pageable != 0;
  problem = cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, number);
  if (problem != cudaSuccess) return gpu_failed(problem, "cudaDeviceGetAttribute", what);
  if (!has_pools) return SHARDRT_OK;
  problem = cudaDeviceGetDefaultMemPool(&g->pool, number);
  if (problem != cudaSuccess) return gpu_failed(problem, "cudaDeviceGetDefaultMemPool", what);
  problem = keep_freed(g);
  return problem == cudaSuccess ? SHARDRT_OK : gpu_failed(problem, "cudaMemPoolSetAttribute", what);
}

/* Lets GPU `from` read and write the memory of `to`. Where that cannot be, copies go through the host. */
static int open_peer(struct gpu *from, const struct gpu *to) {
  static const char what[] = "GPUs are given access to each other's memory";
  int can = 0;
  cudaError_t problem = cudaDeviceCanAccessPeer(&can, from->number, to->number);
  if (problem != cudaSuccess) return gpu_failed(problem, "cudaDeviceCanAccessPeer", what);
  if (!can) return SHARDRT_OK;
  problem = cudaSetDevice(from->number);
  if (problem != cudaSuccess) return gpu_failed(problem, "cudaSetDevice", what);
  problem = cudaDeviceEnablePeerAccess(to->number, 0);
  if (problem != cudaSuccess) (void)cudaGetLastError();
  if (problem == cudaErrorTooManyPeers || problem == cudaErrorPeerAccessUnsupported) return SHARDRT_OK;
  if (problem != cudaSuccess && problem != cudaErrorPeerAccessAlreadyEnabled)
    return gpu_failed(problem, "cudaDeviceEnablePeerAccess", what);
  if (to->pool != NULL) { /* for what comes from pools, that is not enough */
    const struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = from->number},
                                             .flags = cudaMemAccessFlagsProtReadWrite};
    problem = cudaMemPoolSetAccess(to->pool, &access, 1);
    if (problem != cudaSuccess) return gpu_failed(problem, "cudaMemPoolSetAccess", what);
  }
  from->reaches[to->own] = true;
  return SHARDRT_OK;
}

static int open_gpus(int32_t first, int32_t end, int32_t there, const struct accelerator_wanted *wanted) {
  int code = SHARDRT_OK;
  for (int32_t number = first; code == SHARDRT_OK && number < end; number++) {
    code = open_gpu(&opened.gpus[opened.gpu_count], number, count_processes(there, wanted, number));
    opened.gpus[opened.gpu_count].own = opened.gpu_count;
    if (code == SHARDRT_OK) opened.gpu_count++;
  }
  for (int32_t from = 0; code == SHARDRT_OK && from < opened.gpu_count; from++) {
    opened.gpus[from].reaches[from] = true;
    for (int32_t to = 0; code == SHARDRT_OK && to < opened.gpu_count; to++)
      if (from != to) code = open_peer(&opened.gpus[from], &opened.gpus[to]);
  }
  return code;
}

static int open_device(struct gpu_device *d, struct gpu *g) {
  static const char what[] = "the devices are opened";
  d->gpu = g;
  g->shared++;
  cudaError_t problem = cudaSetDevice(g->number);
  if (problem != cudaSuccess) return gpu_failed(problem, "cudaSetDevice", what);
  for (int32_t s = 0; s < ACCELERATOR_STREAMS; s++) {
    problem = cudaStreamCreateWithFlags(&d->streams[s], cudaStreamNonBlocking);
    if (problem != cudaSuccess) return gpu_failed(problem, "cudaStreamCreateWithFlags", what);
  }
  return SHARDRT_OK;
}

int gpu_open(const struct accelerator_wanted *wanted, int32_t *devices) {
  uint64_t which;
  const int32_t there = gpu_count(&which);
  if (there == 0) return SHARDRT_EINVAL;
  int32_t first, end;
  share(there, wanted, &first, &end);
  if (end - first > GPU_MOST) end = first + GPU_MOST;
  /* The same number in every process, also where some could have one more. */
  int32_t number = there / wanted->local_size;
  if (wanted->devices > 0) number = wanted->devices;
  if (number < 1) number = 1;
  if (end - first > number) end = first + number;
  opened.process = wanted->process;
  opened.devices = alloc_zeros((size_t)number, sizeof *opened.devices);
  if (opened.devices == NULL) return ALLOC_FAILED;
  int code = open_gpus(first, end, there, wanted);
  while (code == SHARDRT_OK && opened.count < number) {
    const int32_t d = opened.count++; /* counted before it is open: what it has by then goes with the others */
    code = open_device(&opened.devices[d], &opened.gpus[(int64_t)d * opened.gpu_count / number]);
  }
  if (code < 0) {
    gpu_close();
    return code;
  }
  *devices = number;
  return SHARDRT_OK;
}

void gpu_synchronize(void) {
  for (int32_t d = 0; d < opened.count; d++)
    for (int32_t s = 0; s < ACCELERATOR_STREAMS; s++)
      if (opened.devices[d].streams[s] != NULL) (void)cudaStreamSynchronize(opened.devices[d].streams[s]);
}

void gpu_close(void) {
  for (int32_t d = 0; d < opened.count; d++)
    for (int32_t s = 0; s < ACCELERATOR_STREAMS; s++)
      if (opened.devices[d].streams[s] != NULL) (void)cudaStreamDestroy(opened.devices[d].streams[s]);
  alloc_free(opened.devices);
  opened.devices = NULL;
  opened.count = opened.gpu_count = 0;
  (void)cudaGetLastError();
}

int gpu_describe(int32_t number, struct accelerator_info *out) {
  const struct gpu *g = gpu_of(number);
  *out = (struct accelerator_info){.gpu = g->number, .shared = g->shared, .memory = g->memory / (size_t)g->processes};
  memcpy(out->name, g->name, sizeof out->name);
  memcpy(out->uuid, g->uuid, sizeof out->uuid);
  return SHARDRT_OK;
}

int gpu_examine(int32_t number, shardrt_gpu *out) {
  static const char what[] = "a GPU is looked at";
  const struct gpu *g = gpu_of(number);
  struct cudaDeviceProp properties;
  size_t available = 0, total = 0;
  int code = cuda_check(cudaGetDeviceProperties(&properties, g->number), "cudaGetDeviceProperties", what, number);
  if (code < 0) return code;
  shardrt_gpu made = {
      .number = g->number, .major = properties.major, .minor = properties.minor, .memory = (int64_t)g->memory};
  memcpy(made.name, g->name, sizeof made.name);
  memcpy(made.uuid, g->uuid, sizeof made.uuid);
  code = cuda_check(cudaDeviceGetPCIBusId(made.bus, sizeof made.bus, g->number), "cudaDeviceGetPCIBusId", what, number);
  if (code == SHARDRT_OK) code = cuda_use(what, number);
  if (code == SHARDRT_OK) code = cuda_check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo", what, number);
  if (code < 0) return code;
  made.available = (int64_t)available;
  *out = made;
  return SHARDRT_OK;
}

int32_t gpu_link(int32_t number, int32_t other) {
  const struct gpu *from = gpu_of(number), *to = gpu_of(other);
  if (from == to) return ACCELERATOR_SAME;
  return from->reaches[to->own] ? cuda_peer_link(from->number, to->number) : ACCELERATOR_HOST_LINK;
}

bool gpu_reaches(int32_t number, int32_t other) {
  return gpu_of(number)->reaches[gpu_of(other)->own];
}

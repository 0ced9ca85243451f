/* cuda.c - GPUs by CUDA's runtime: which of them are this process's devices, their memory, streams, events and
 * transfers, and what is said when they fail. With the kernels (*.cu), comm/nccl.c and compute/cublas.c it makes the
 * plug-in, which device/accelerator.c opens.
 *
 * Memory comes from the GPU's default pool, in the order of streams, and what is freed stays with the pool: an
 * allocation costs about a microsecond and stops nothing. Where a GPU has no pools, memory is given back after waiting
 * for its stream. What CUDA reports may be about something that was put on the device long before, and after most
 * errors of that kind nothing works anymore; so each device keeps the names of what was put on it last. */
#include "device/cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "device/pinned.h"

enum { MAX_GPUS = 64, LAST = 4, NOTE = 40 };

struct accelerator_event {
  cudaEvent_t event;
  int32_t gpu; /* of `self.gpus` */
  int32_t device;
  bool timed;
  accelerator_event *next; /* unused ones of a GPU */
};

typedef struct gpu {
  int number; /* CUDA's */
  char name[64];
  uint8_t uuid[16];
  size_t memory;
  int32_t multiprocessors;
  bool reads_pageable;          /* the host's memory that is not pinned, by itself: the driver need not stage it */
  int32_t shared;               /* devices that it is */
  cudaMemPool_t pool;           /* NULL: it has none */
  bool reaches[MAX_GPUS];       /* the memory of another of `self.gpus` */
  accelerator_event *events[2]; /* to be used again; those in [1] tell the time; under `self.lock` */
} gpu;

typedef struct device {
  int32_t gpu; /* of `self.gpus` */
  cudaStream_t streams[ACCELERATOR_STREAMS];
  _Atomic size_t held[ACCELERATOR_HOLDERS];
  char last[LAST][NOTE]; /* what was put on it, a ring; under `self.lock` */
  uint32_t noted;
} device;

static struct {
  pthread_mutex_t lock;
  int32_t count; /* of devices; 0: closed */
  device *devices;
  int32_t gpu_count;
  gpu gpus[MAX_GPUS]; /* this process's */
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what went wrong -------------------------------------------------------------------------------------------- */

int32_t cuda_id(int32_t number) {
  const shardrt_job *job = shardrt_job_get();
  return job == NULL ? number : job->process_index * job->devices_per_process + number;
}

static void note(const char *what, int32_t number) {
  device *d = &self.devices[number];
  pthread_mutex_lock(&self.lock);
  snprintf(d->last[d->noted++ % LAST], NOTE, "%s", what);
  pthread_mutex_unlock(&self.lock);
}

/* "matmul, add and before it sin": the latest first. */
static void list_last(int32_t number, char *text, size_t room) {
  const device *d = &self.devices[number];
  size_t used = 0;
  text[0] = '\0';
  pthread_mutex_lock(&self.lock);
  for (uint32_t i = 1; i <= LAST && i <= d->noted && used < room; i++)
    used += (size_t)snprintf(text + used, room - used, "%s%s", i == 1 ? "" : ", before that ",
                             d->last[(d->noted - i) % LAST]);
  pthread_mutex_unlock(&self.lock);
}

/* An error of a call that is about no device. */
static int failed(cudaError_t problem, const char *call, const char *what) {
  (void)cudaGetLastError();
  return error_set(problem == cudaErrorMemoryAllocation ? SHARDRT_ENOMEM : SHARDRT_EDEVICE, "%s: %s failed: %s (%s)",
                   what, call, cudaGetErrorString(problem), cudaGetErrorName(problem));
}

int cuda_failed(int code, const char *call, const char *words, const char *what, int32_t number) {
  const gpu *g = &self.gpus[self.devices[number].gpu];
  char last[LAST * (NOTE + 16)];
  list_last(number, last, sizeof last);
  return error_set(code, "%s: %s failed on device %d (GPU %d, %s): %s%s%s", what, call, cuda_id(number), g->number,
                   g->name, words,
                   last[0] == '\0' ? "" : "; it may be about what was put on the device before: ", last);
}

int cuda_check(cudaError_t problem, const char *call, const char *what, int32_t number) {
  if (problem == cudaSuccess) return SHARDRT_OK;
  (void)cudaGetLastError(); /* what does not stay is not reported again */
  char words[256];
  snprintf(words, sizeof words, "%s (%s)", cudaGetErrorString(problem), cudaGetErrorName(problem));
  return cuda_failed(problem == cudaErrorMemoryAllocation ? SHARDRT_ENOMEM : SHARDRT_EDEVICE, call, words, what,
                     number);
}

int cuda_launched(const char *what, int32_t number) {
  note(what, number);
  return cuda_check(cudaGetLastError(), "a kernel's launch", what, number);
}

/* ---- devices ---------------------------------------------------------------------------------------------------- */

static gpu *gpu_of(int32_t number) {
  return &self.gpus[self.devices[number].gpu];
}

int cuda_use(const char *what, int32_t number) {
  return cuda_check(cudaSetDevice(gpu_of(number)->number), "cudaSetDevice", what, number);
}

cudaStream_t cuda_stream(int32_t number, int32_t stream) {
  return self.devices[number].streams[stream];
}

int32_t cuda_multiprocessors(int32_t number) {
  return gpu_of(number)->multiprocessors;
}

/* As a thread that has chosen none makes a context on the first GPU, which need not be this process's, giving back
 * chooses one, too. */
static void come_back(int32_t number) {
  (void)cudaSetDevice(gpu_of(number)->number);
}

static int32_t count(uint64_t *which) {
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
static void share(int32_t there, const accelerator_wanted *wanted, int32_t *first, int32_t *end) {
  const int64_t rank = wanted->local_rank, size = wanted->local_size;
  *first = (int32_t)(there * rank / size);
  *end = (int32_t)(there * (rank + 1) / size);
  if (there < size) *end = *first + 1;
}

#ifndef CUDA_LEAST
#define CUDA_LEAST 80 /* of the architectures that the kernels were compiled for, the least */
#endif

static int open_gpu(gpu *g, int number) {
  static const char what[] = "the GPUs are opened";
  *g = (gpu){.number = number};
  struct cudaDeviceProp properties;
  cudaError_t problem = cudaGetDeviceProperties(&properties, number);
  if (problem != cudaSuccess) return failed(problem, "cudaGetDeviceProperties", what);
  snprintf(g->name, sizeof g->name, "%.*s", (int)sizeof g->name - 1, properties.name);
  memcpy(g->uuid, properties.uuid.bytes, sizeof g->uuid);
  g->memory = properties.totalGlobalMem;
  g->multiprocessors = properties.multiProcessorCount;
  if (properties.major * 10 + properties.minor < CUDA_LEAST)
    return error_set(SHARDRT_EINVAL,
                     "GPU %d, %s, has compute capability %d.%d; this shardrt's kernels need %d.%d or newer: `make cuda "
                     "CUDA_ARCHS=%d%d` builds them for it, --platform host runs without",
                     number, g->name, properties.major, properties.minor, CUDA_LEAST / 10, CUDA_LEAST % 10,
                     properties.major, properties.minor);
  problem = cudaSetDevice(number);
  if (problem != cudaSuccess) return failed(problem, "cudaSetDevice", what);
  int reads_pageable = 0, has_pools = 0;
  problem = cudaDeviceGetAttribute(&reads_pageable, cudaDevAttrPageableMemoryAccess, number);
  if (problem != cudaSuccess) return failed(problem, "cudaDeviceGetAttribute", what);
  g->reads_pageable = reads_pageable != 0;
  problem = cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, number);
  if (problem != cudaSuccess) return failed(problem, "cudaDeviceGetAttribute", what);
  if (!has_pools) return SHARDRT_OK;
  problem = cudaDeviceGetDefaultMemPool(&g->pool, number);
  if (problem != cudaSuccess) return failed(problem, "cudaDeviceGetDefaultMemPool", what);
  unsigned long long keep = ~0ull; /* all that was freed: the next step wants it again */
  problem = cudaMemPoolSetAttribute(g->pool, cudaMemPoolAttrReleaseThreshold, &keep);
  return problem == cudaSuccess ? SHARDRT_OK : failed(problem, "cudaMemPoolSetAttribute", what);
}

/* Lets GPU `from` read and write the memory of `to`. Where that cannot be, copies go through the host. */
static int open_peer(gpu *from, const gpu *to) {
  static const char what[] = "GPUs are given access to each other's memory";
  int can = 0;
  cudaError_t problem = cudaDeviceCanAccessPeer(&can, from->number, to->number);
  if (problem != cudaSuccess) return failed(problem, "cudaDeviceCanAccessPeer", what);
  if (!can) return SHARDRT_OK;
  problem = cudaSetDevice(from->number);
  if (problem != cudaSuccess) return failed(problem, "cudaSetDevice", what);
  problem = cudaDeviceEnablePeerAccess(to->number, 0);
  if (problem != cudaSuccess) (void)cudaGetLastError();
  if (problem == cudaErrorTooManyPeers || problem == cudaErrorPeerAccessUnsupported) return SHARDRT_OK;
  if (problem != cudaSuccess && problem != cudaErrorPeerAccessAlreadyEnabled)
    return failed(problem, "cudaDeviceEnablePeerAccess", what);
  if (to->pool != NULL) { /* for what comes from pools, that is not enough */
    const struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = from->number},
                                             .flags = cudaMemAccessFlagsProtReadWrite};
    problem = cudaMemPoolSetAccess(to->pool, &access, 1);
    if (problem != cudaSuccess) return failed(problem, "cudaMemPoolSetAccess", what);
  }
  from->reaches[to - self.gpus] = true;
  return SHARDRT_OK;
}

static int open_gpus(int32_t first, int32_t end) {
  int code = SHARDRT_OK;
  for (int32_t number = first; code == SHARDRT_OK && number < end; number++) {
    code = open_gpu(&self.gpus[self.gpu_count], number);
    if (code == SHARDRT_OK) self.gpu_count++;
  }
  for (int32_t from = 0; code == SHARDRT_OK && from < self.gpu_count; from++) {
    self.gpus[from].reaches[from] = true;
    for (int32_t to = 0; code == SHARDRT_OK && to < self.gpu_count; to++)
      if (from != to) code = open_peer(&self.gpus[from], &self.gpus[to]);
  }
  return code;
}

static int open_device(device *d, int32_t of_gpu) {
  static const char what[] = "the devices are opened";
  d->gpu = of_gpu;
  self.gpus[of_gpu].shared++;
  cudaError_t problem = cudaSetDevice(self.gpus[of_gpu].number);
  if (problem != cudaSuccess) return failed(problem, "cudaSetDevice", what);
  for (int32_t s = 0; s < ACCELERATOR_STREAMS; s++) {
    problem = cudaStreamCreateWithFlags(&d->streams[s], cudaStreamNonBlocking);
    if (problem != cudaSuccess) return failed(problem, "cudaStreamCreateWithFlags", what);
  }
  return SHARDRT_OK;
}

static void close_all(void);

static int open_all(const accelerator_wanted *wanted, int32_t *devices) {
  uint64_t which;
  const int32_t there = count(&which);
  if (there == 0) return SHARDRT_EINVAL;
  int32_t first, end;
  share(there, wanted, &first, &end);
  if (end - first > MAX_GPUS) end = first + MAX_GPUS;
  /* The same number in every process, also where some could have one more. */
  int32_t number = there / wanted->local_size;
  if (wanted->devices > 0) number = wanted->devices;
  if (number < 1) number = 1;
  if (end - first > number) end = first + number;
  self.devices = alloc_zeros((size_t)number, sizeof *self.devices);
  if (self.devices == NULL) return ALLOC_FAILED;
  int code = open_gpus(first, end);
  for (; code == SHARDRT_OK && self.count < number; self.count++)
    code = open_device(&self.devices[self.count], (int32_t)((int64_t)self.count * self.gpu_count / number));
  if (code < 0) {
    close_all();
    return code;
  }
  *devices = number;
  return SHARDRT_OK;
}

static void destroy_events(accelerator_event *list) {
  for (accelerator_event *next; list != NULL; list = next) {
    next = list->next;
    (void)cudaEventDestroy(list->event);
    alloc_free(list);
  }
}

/* Whatever still runs is waited for; after an error that stays, CUDA does not wait. */
static void close_all(void) {
  for (int32_t d = 0; d < self.count; d++)
    for (int32_t s = 0; s < ACCELERATOR_STREAMS; s++)
      if (self.devices[d].streams[s] != NULL) (void)cudaStreamSynchronize(self.devices[d].streams[s]);
  cublas_close();
  pinned_close();
  for (int32_t g = 0; g < self.gpu_count; g++) {
    for (int32_t timed = 0; timed < 2; timed++) destroy_events(self.gpus[g].events[timed]);
  }
  for (int32_t d = 0; d < self.count; d++)
    for (int32_t s = 0; s < ACCELERATOR_STREAMS; s++)
      if (self.devices[d].streams[s] != NULL) (void)cudaStreamDestroy(self.devices[d].streams[s]);
  alloc_free(self.devices);
  self.devices = NULL;
  self.count = self.gpu_count = 0;
  (void)cudaGetLastError();
}

static int describe(int32_t number, accelerator_info *out) {
  const gpu *g = gpu_of(number);
  *out = (accelerator_info){.gpu = g->number, .shared = g->shared, .memory = g->memory};
  memcpy(out->name, g->name, sizeof out->name);
  memcpy(out->uuid, g->uuid, sizeof out->uuid);
  return SHARDRT_OK;
}

static int32_t link_between(int32_t number, int32_t other) {
  const int32_t from = self.devices[number].gpu, to = self.devices[other].gpu;
  if (from == to) return ACCELERATOR_SAME;
  if (!self.gpus[from].reaches[to]) return ACCELERATOR_HOST_LINK;
  return cuda_peer_link(self.gpus[from].number, self.gpus[to].number);
}

static bool reaches(int32_t number, int32_t other) {
  return self.gpus[self.devices[number].gpu].reaches[self.devices[other].gpu];
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* What holds the GPU's memory, as a message: this device's, this process's, and what is left is everybody else's. */
static int is_out_of_memory(int32_t number, int32_t holder, size_t bytes) {
  static const char *const holders[ACCELERATOR_HOLDERS] = {"arrays", "batches", "scratch memory"};
  const double gib = 1 << 30;
  const gpu *g = gpu_of(number);
  size_t available = 0, total = g->memory, held[ACCELERATOR_HOLDERS] = {0}, own = 0, mine = 0;
  if (cudaMemGetInfo(&available, &total) != cudaSuccess) (void)cudaGetLastError();
  for (int32_t d = 0; d < self.count; d++)
    for (int32_t h = 0; self.devices[d].gpu == self.devices[number].gpu && h < ACCELERATOR_HOLDERS; h++) {
      const size_t here = atomic_load(&self.devices[d].held[h]);
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

/* Waits until all that was freed on the GPU by this process is free, and in one piece. */
static void gather_free(int32_t number) {
  const gpu *g = gpu_of(number);
  for (int32_t d = 0; d < self.count; d++)
    for (int32_t s = 0; gpu_of(d) == g && s < ACCELERATOR_STREAMS; s++)
      (void)cudaStreamSynchronize(self.devices[d].streams[s]);
  if (g->pool != NULL) (void)cudaMemPoolTrimTo(g->pool, 0);
  (void)cudaGetLastError();
}

static int allocate(int32_t number, int32_t stream, int32_t holder, size_t bytes, void **out) {
  static const char what[] = "memory is allocated";
  static const char *const calls[] = {"cudaMalloc", "cudaMallocAsync"};
  int code = cuda_use(what, number);
  if (code < 0) return code;
  const size_t room = bytes > 0 ? bytes : 1; /* so that it has an address */
  cudaError_t problem = try_allocate(number, stream, room, out);
  if (problem == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    gather_free(number);
    problem = try_allocate(number, stream, room, out);
  }
  if (problem == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return is_out_of_memory(number, holder, bytes);
  }
  code = cuda_check(problem, calls[gpu_of(number)->pool != NULL], what, number);
  if (code == SHARDRT_OK) atomic_fetch_add(&self.devices[number].held[holder], bytes);
  return code;
}

/* Where nothing works anymore, neither does this, and nobody wants to hear of it. */
static void free_memory(int32_t number, int32_t stream, int32_t holder, void *data, size_t bytes) {
  if (data == NULL || number >= self.count) return; /* closed: CUDA has taken it back */
  come_back(number);
  atomic_fetch_sub(&self.devices[number].held[holder], bytes);
  if (gpu_of(number)->pool != NULL)
    (void)cudaFreeAsync(data, cuda_stream(number, stream));
  else if (cudaStreamSynchronize(cuda_stream(number, stream)) == cudaSuccess)
    (void)cudaFree(data);
  (void)cudaGetLastError();
}

int cuda_scratch(const char *what, int32_t number, size_t bytes, void **out) {
  int code = allocate(number, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, bytes, out);
  return code < 0 ? error_prefix(code, "%s", what) : code;
}

void cuda_scratch_free(int32_t number, void *data, size_t bytes) {
  free_memory(number, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, data, bytes);
}

static int allocate_pinned(size_t bytes, void **out) {
  int code = cuda_use("pinned memory is allocated", 0); /* in this process's context, not GPU 0's */
  return code < 0 ? code : pinned_allocate(bytes, out);
}

static void free_pinned(void *data, size_t bytes) {
  if (self.count > 0) come_back(0);
  pinned_free(data, bytes);
}

/* ---- order ------------------------------------------------------------------------------------------------------ */

/* An event of the GPU, a used one where there is one. */
static int take_event(int32_t number, unsigned flags, accelerator_event **out) {
  static const char what[] = "an event is recorded";
  accelerator_event **used = &gpu_of(number)->events[flags != cudaEventDisableTiming];
  pthread_mutex_lock(&self.lock);
  accelerator_event *e = *used;
  if (e != NULL) *used = e->next;
  pthread_mutex_unlock(&self.lock);
  if (e == NULL) {
    e = alloc_array(1, sizeof *e);
    if (e == NULL) return ALLOC_FAILED;
    int code = cuda_check(cudaEventCreateWithFlags(&e->event, flags), "cudaEventCreateWithFlags", what, number);
    if (code < 0) {
      alloc_free(e);
      return code;
    }
  }
  e->gpu = self.devices[number].gpu;
  e->device = number;
  e->timed = flags != cudaEventDisableTiming;
  *out = e;
  return SHARDRT_OK;
}

static void event_free(accelerator_event *e) {
  if (e == NULL) return;
  if (self.count == 0) { /* closed: CUDA has taken it back */
    alloc_free(e);
    return;
  }
  accelerator_event **used = &self.gpus[e->gpu].events[e->timed];
  pthread_mutex_lock(&self.lock);
  e->next = *used;
  *used = e;
  pthread_mutex_unlock(&self.lock);
}

static int record_with(int32_t number, int32_t stream, unsigned flags, accelerator_event **out) {
  static const char what[] = "an event is recorded";
  int code = cuda_use(what, number);
  if (code < 0) return code;
  accelerator_event *e;
  code = take_event(number, flags, &e);
  if (code < 0) return code;
  code = cuda_check(cudaEventRecord(e->event, cuda_stream(number, stream)), "cudaEventRecord", what, number);
  if (code < 0)
    event_free(e);
  else
    *out = e;
  return code;
}

static int record(int32_t number, int32_t stream, accelerator_event **out) {
  return record_with(number, stream, cudaEventDisableTiming, out);
}

static int mark(int32_t number, int32_t stream, accelerator_event **out) {
  return record_with(number, stream, 0, out);
}

static int elapsed(accelerator_event *from, accelerator_event *to, double *seconds) {
  static const char what[] = "time is taken";
  float milliseconds = 0;
  int code = cuda_use(what, to->device);
  if (code < 0) return code;
  code =
      cuda_check(cudaEventElapsedTime(&milliseconds, from->event, to->event), "cudaEventElapsedTime", what, to->device);
  *seconds = milliseconds / 1e3;
  return code;
}

static int wait_for(int32_t number, int32_t stream, accelerator_event *event) {
  static const char what[] = "a stream waits for another one";
  int code = cuda_use(what, number);
  if (code < 0) return code;
  return cuda_check(cudaStreamWaitEvent(cuda_stream(number, stream), event->event, 0), "cudaStreamWaitEvent", what,
                    number);
}

static int reached(accelerator_event *event, bool *out) {
  static const char what[] = "what was put on it runs";
  int code = cuda_use(what, event->device);
  *out = false;
  if (code < 0) return code;
  const cudaError_t problem = cudaEventQuery(event->event);
  *out = problem == cudaSuccess;
  if (problem != cudaErrorNotReady) return cuda_check(problem, "cudaEventQuery", what, event->device);
  (void)cudaGetLastError();
  return SHARDRT_OK;
}

static int finish(accelerator_event *event) {
  static const char what[] = "what was put on it is waited for";
  int code = cuda_use(what, event->device);
  return code < 0 ? code : cuda_check(cudaEventSynchronize(event->event), "cudaEventSynchronize", what, event->device);
}

static int after(int32_t number, int32_t other) {
  if (number == other) return SHARDRT_OK;
  accelerator_event *event;
  int code = record(other, ACCELERATOR_MAIN, &event);
  if (code < 0) return code;
  code = wait_for(number, ACCELERATOR_MAIN, event);
  event_free(event); /* whoever waits keeps to what was recorded */
  return code;
}

/* ---- transfers -------------------------------------------------------------------------------------------------- */

static int transfer(const char *what, int32_t number, int32_t stream, void *to, const void *from, size_t bytes,
                    enum cudaMemcpyKind kind) {
  if (bytes == 0) return SHARDRT_OK;
  int code = cuda_use(what, number);
  if (code < 0) return code;
  note(what, number);
  return cuda_check(cudaMemcpyAsync(to, from, bytes, kind, cuda_stream(number, stream)), "cudaMemcpyAsync", what,
                    number);
}

/* CUDA's "API synchronization behavior": from pageable memory that must first be staged the call returns when it has
 * been; where the GPU reads it by itself (HMM, Grace), the copy may be asynchronous, and is waited for. */
static int upload(int32_t number, int32_t stream, void *to, const void *from, size_t bytes) {
  static const char what[] = "upload";
  int code = transfer(what, number, stream, to, from, bytes, cudaMemcpyHostToDevice);
  if (code < 0 || bytes == 0 || !gpu_of(number)->reads_pageable) return code;
  struct cudaPointerAttributes memory;
  code = cuda_check(cudaPointerGetAttributes(&memory, from), "cudaPointerGetAttributes", what, number);
  if (code < 0 || memory.type != cudaMemoryTypeUnregistered) return code;
  return cuda_check(cudaStreamSynchronize(cuda_stream(number, stream)), "cudaStreamSynchronize", what, number);
}

static bool is_pinned(const void *data) {
  struct cudaPointerAttributes memory;
  const cudaError_t problem = cudaPointerGetAttributes(&memory, data);
  if (problem == cudaSuccess) return memory.type == cudaMemoryTypeHost;
  (void)cudaGetLastError();
  return true; /* not known: then it is waited for */
}

static int download(int32_t number, int32_t stream, void *to, const void *from, size_t bytes) {
  return transfer("download", number, stream, to, from, bytes, cudaMemcpyDeviceToHost);
}

static int copy(int32_t number, void *to, int32_t other, const void *from, size_t bytes) {
  static const char what[] = "copy between devices";
  const gpu *here = gpu_of(number), *there = gpu_of(other);
  if (here == there) return transfer("copy", number, ACCELERATOR_MAIN, to, from, bytes, cudaMemcpyDeviceToDevice);
  if (bytes == 0) return SHARDRT_OK;
  int code = cuda_use(what, number);
  if (code < 0) return code;
  note(what, number);
  return cuda_check(
      cudaMemcpyPeerAsync(to, here->number, from, there->number, bytes, cuda_stream(number, ACCELERATOR_MAIN)),
      "cudaMemcpyPeerAsync", what, number);
}

static int zero(int32_t number, void *to, size_t bytes) {
  static const char what[] = "zeros";
  if (bytes == 0) return SHARDRT_OK;
  int code = cuda_use(what, number);
  if (code < 0) return code;
  note(what, number);
  return cuda_check(cudaMemsetAsync(to, 0, bytes, cuda_stream(number, ACCELERATOR_MAIN)), "cudaMemsetAsync", what,
                    number);
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static const accelerator cuda = {
    .version = ACCELERATOR_VERSION,
    .name = "cuda",
    .count = count,
    .open = open_all,
    .close = close_all,
    .describe = describe,
    .link = link_between,
    .topology = cuda_topology,
    .allocate = allocate,
    .free = free_memory,
    .allocate_pinned = allocate_pinned,
    .free_pinned = free_pinned,
    .record = record,
    .wait = wait_for,
    .reached = reached,
    .finish = finish,
    .mark = mark,
    .elapsed = elapsed,
    .event_free = event_free,
    .after = after,
    .upload = upload,
    .is_pinned = is_pinned,
    .download = download,
    .copy = copy,
    .reaches = reaches,
    .place = cuda_place,
    .zero = zero,
    .fingerprint = cuda_fingerprint,
    .elementwise = cuda_elementwise,
    .fold = cuda_fold,
    .product = cuda_product,
    .check_indices = cuda_check_indices,
    .take = cuda_take,
    .take_add = cuda_take_add,
    .count_along = cuda_count_along,
    .random = cuda_random,
    .links = &nccl_links,
};

accelerator_plugin shardrt_accelerator;
const accelerator *shardrt_accelerator(void) {
  return &cuda;
}

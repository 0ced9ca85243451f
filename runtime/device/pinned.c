// build: plug-in
/* pinned.c - pieces of pinned memory, in sizes of which there are four between a power of two and the next: a piece
 * fits all that rounds up to its size, and at most a fifth of it is unused. */
#include "device/pinned.h"

#include <assert.h>
#include <pthread.h>

#include "base/error.h"
#include "device/cuda.h"

enum { SMALLEST = 12 /* 2^12 bytes */, STEPS = 4, SIZES = (48 - SMALLEST) * STEPS };
#define KEPT ((size_t)1 << 30) /* at most so many bytes wait for reuse */

/* In the memory of a piece that waits. */
struct waiting {
  struct waiting *next;
};

static struct {
  pthread_mutex_t lock;
  size_t bytes; /* that wait */
  struct waiting *first[SIZES];
} waiting_pinned = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t bytes_of(int size) {
  return (size_t)(STEPS + size % STEPS) << (SMALLEST - 2 + size / STEPS);
}

/* The least size that holds so many; SIZES: there is none. */
static int size_for(size_t bytes) {
  int size = 0;
  while (size < SIZES && bytes_of(size) < bytes) size++;
  return size;
}

static void *take(int size) {
  assert(size >= 0 && size < SIZES);
  pthread_mutex_lock(&waiting_pinned.lock);
  struct waiting *found = waiting_pinned.first[size];
  if (found != NULL) {
    waiting_pinned.first[size] = found->next;
    waiting_pinned.bytes -= bytes_of(size);
  }
  pthread_mutex_unlock(&waiting_pinned.lock);
  return found;
}

int pinned_allocate(size_t bytes, void **out) {
  const int size = size_for(bytes);
  if (size == SIZES) return error_set(SHARDRT_ENOMEM, "out of memory: %zu bytes", bytes);
  *out = take(size);
  if (*out != NULL) return SHARDRT_OK;
  cudaError_t problem = cudaHostAlloc(out, bytes_of(size), cudaHostAllocPortable);
  if (problem == cudaErrorMemoryAllocation) { /* of what waits, something may be of use */
    (void)cudaGetLastError();
    pinned_close();
    problem = cudaHostAlloc(out, bytes_of(size), cudaHostAllocPortable);
  }
  if (problem == cudaSuccess) return SHARDRT_OK;
  (void)cudaGetLastError();
  return error_set(problem == cudaErrorMemoryAllocation ? SHARDRT_ENOMEM : SHARDRT_EDEVICE,
                   "cudaHostAlloc failed for %zu bytes of the host's memory: %s (%s)", bytes,
                   cudaGetErrorString(problem), cudaGetErrorName(problem));
}

void pinned_free(void *data, size_t bytes) {
  if (data == NULL) return;
  const int size = size_for(bytes);
  assert(size < SIZES); /* as when it was allocated */
  pthread_mutex_lock(&waiting_pinned.lock);
  const bool keep = waiting_pinned.bytes + bytes_of(size) <= KEPT;
  if (keep) {
    struct waiting *found = data;
    found->next = waiting_pinned.first[size];
    waiting_pinned.first[size] = found;
    waiting_pinned.bytes += bytes_of(size);
  }
  pthread_mutex_unlock(&waiting_pinned.lock);
  if (keep) return;
  (void)cudaFreeHost(data);
  (void)cudaGetLastError();
}

void pinned_close(void) {
  for (int size = 0; size < SIZES; size++)
    for (void *data = take(size); data != NULL; data = take(size)) (void)cudaFreeHost(data);
  (void)cudaGetLastError();
}

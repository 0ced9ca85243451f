// build: plug-in
/* failure.c - what is said when a GPU fails. What CUDA reports may be about something that was put on the device long
 * before, and after most errors of that kind nothing works anymore; so each device keeps the names of what was put on
 * it last. */
#include <pthread.h>
#include <stdio.h>

#include "base/error.h"
#include "device/gpu.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what devices keep */

void gpu_note(const char *what, int32_t number) {
  struct gpu_device *d = gpu_device_at(number);
  pthread_mutex_lock(&lock);
  snprintf(d->last[d->noted++ % GPU_LAST], GPU_NOTE, "%s", what);
  pthread_mutex_unlock(&lock);
}

/* "matmul, add and before it sin": the latest first. */
static void list_last(int32_t number, char *text, size_t room) {
  const struct gpu_device *d = gpu_device_at(number);
  size_t used = 0;
  text[0] = '\0';
  pthread_mutex_lock(&lock);
  for (uint32_t i = 1; i <= GPU_LAST && i <= d->noted && used < room; i++)
    used += (size_t)snprintf(text + used, room - used, "%s%s", i == 1 ? "" : ", before that ",
                             d->last[(d->noted - i) % GPU_LAST]);
  pthread_mutex_unlock(&lock);
}

int gpu_failed(cudaError_t problem, const char *call, const char *what) {
  (void)cudaGetLastError();
  return error_set(problem == cudaErrorMemoryAllocation ? SHARDRT_ENOMEM : SHARDRT_EDEVICE, "%s: %s failed: %s (%s)",
                   what, call, cudaGetErrorString(problem), cudaGetErrorName(problem));
}

int cuda_failed(int code, const char *call, const char *words, const char *what, int32_t number) {
  const struct gpu *g = gpu_of(number);
  char last[GPU_LAST * (GPU_NOTE + 16)];
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
  gpu_note(what, number);
  return cuda_check(cudaGetLastError(), "a kernel's launch", what, number);
}

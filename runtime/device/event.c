// build: plug-in
/* event.c - what streams have come to, and who waits for it. */
#include "device/event.h"

#include <pthread.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/gpu.h"

struct accelerator_event {
  cudaEvent_t event;
  int32_t gpu; /* this process's, from 0 */
  int32_t device;
  bool timed;
  struct accelerator_event *next; /* unused ones of a GPU */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct accelerator_event *unused[GPU_MOST][2]; /* to be used again; those in [1] tell the time; under `lock` */

/* An event of the GPU, a used one where there is one. */
static int take_event(int32_t number, unsigned flags, struct accelerator_event **out) {
  static const char what[] = "an event is recorded";
  struct accelerator_event **used = &unused[gpu_of(number)->own][flags != cudaEventDisableTiming];
  pthread_mutex_lock(&lock);
  struct accelerator_event *e = *used;
  if (e != NULL) *used = e->next;
  pthread_mutex_unlock(&lock);
  if (e == NULL) {
    e = alloc_array(1, sizeof *e);
    if (e == NULL) return ALLOC_FAILED;
    int code = cuda_check(cudaEventCreateWithFlags(&e->event, flags), "cudaEventCreateWithFlags", what, number);
    if (code < 0) {
      alloc_free(e);
      return code;
    }
  }
  e->gpu = gpu_of(number)->own;
  e->device = number;
  e->timed = flags != cudaEventDisableTiming;
  *out = e;
  return SHARDRT_OK;
}

void event_free(struct accelerator_event *e) {
  if (e == NULL) return;
  if (gpu_devices() == 0) { /* closed: CUDA has taken it back */
    alloc_free(e);
    return;
  }
  struct accelerator_event **used = &unused[e->gpu][e->timed];
  pthread_mutex_lock(&lock);
  e->next = *used;
  *used = e;
  pthread_mutex_unlock(&lock);
}

static int record_on(int32_t number, cudaStream_t stream, unsigned flags, struct accelerator_event **out) {
  static const char what[] = "an event is recorded";
  int code = cuda_use(what, number);
  if (code < 0) return code;
  struct accelerator_event *e;
  code = take_event(number, flags, &e);
  if (code < 0) return code;
  code = cuda_check(cudaEventRecord(e->event, stream), "cudaEventRecord", what, number);
  if (code < 0)
    event_free(e);
  else
    *out = e;
  return code;
}

int event_record(int32_t number, int32_t stream, struct accelerator_event **out) {
  return record_on(number, cuda_stream(number, stream), cudaEventDisableTiming, out);
}

int event_mark(int32_t number, int32_t stream, struct accelerator_event **out) {
  return record_on(number, cuda_stream(number, stream), 0, out);
}

int event_elapsed(struct accelerator_event *from, struct accelerator_event *to, double *seconds) {
  static const char what[] = "time is taken";
  float milliseconds = 0;
  int code = cuda_use(what, to->device);
  if (code < 0) return code;
  code =
      cuda_check(cudaEventElapsedTime(&milliseconds, from->event, to->event), "cudaEventElapsedTime", what, to->device);
  *seconds = milliseconds / 1e3;
  return code;
}

int event_wait(int32_t number, int32_t stream, struct accelerator_event *event) {
  static const char what[] = "a stream waits for another one";
  int code = cuda_use(what, number);
  if (code < 0) return code;
  return cuda_check(cudaStreamWaitEvent(cuda_stream(number, stream), event->event, 0), "cudaStreamWaitEvent", what,
                    number);
}

int event_reached(struct accelerator_event *event, bool *out) {
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

int event_finish(struct accelerator_event *event) {
  static const char what[] = "what was put on it is waited for";
  int code = cuda_use(what, event->device);
  return code < 0 ? code : cuda_check(cudaEventSynchronize(event->event), "cudaEventSynchronize", what, event->device);
}

int event_after(int32_t number, int32_t other) {
  if (number == other) return SHARDRT_OK;
  struct accelerator_event *event;
  int code = event_record(other, ACCELERATOR_MAIN, &event);
  if (code < 0) return code;
  code = event_wait(number, ACCELERATOR_MAIN, event);
  event_free(event); /* whoever waits keeps to what was recorded */
  return code;
}

static cudaStream_t program_stream(void *stream) {
  return stream == NULL ? cudaStreamLegacy : (cudaStream_t)stream;
}

int event_lend(int32_t number, void *stream) {
  struct accelerator_event *event;
  int code = event_record(number, ACCELERATOR_MAIN, &event);
  if (code < 0) return code;
  code = cuda_check(cudaStreamWaitEvent(program_stream(stream), event->event, 0), "cudaStreamWaitEvent",
                    "a program's stream waits for an array", number);
  event_free(event);
  return code;
}

/* A thread's default stream is another one on another thread. */
void event_take_back(int32_t number, void *stream) {
  struct accelerator_event *event;
  int code = SHARDRT_EDEVICE;
  if (program_stream(stream) != cudaStreamPerThread)
    code = record_on(number, program_stream(stream), cudaEventDisableTiming, &event);
  if (code == SHARDRT_OK) {
    code = event_wait(number, ACCELERATOR_MAIN, event);
    event_free(event);
  }
  if (code == SHARDRT_OK) return;
  gpu_come_back(number);
  (void)cudaDeviceSynchronize();
  (void)cudaGetLastError();
}

void event_close(void) {
  for (int32_t g = 0; g < GPU_MOST; g++)
    for (int32_t timed = 0; timed < 2; timed++)
      for (struct accelerator_event *e = unused[g][timed]; e != NULL; e = unused[g][timed]) {
        unused[g][timed] = e->next;
        (void)cudaEventDestroy(e->event);
        alloc_free(e);
      }
}

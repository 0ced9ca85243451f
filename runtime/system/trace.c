#include "system/trace.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* The ring of one thread at a time, which alone writes to it: event i stands at i % TRACE_RING, and can be seen when
 * `count` is past it. */
struct track {
  char name[32];
  bool is_taken; /* by a thread; guarded by the lock */
  _Atomic int64_t count;
  struct trace_event *events; /* TRACE_RING of them */
};

/* Tracks and names are added under the lock, and stay until the process ends, as threads may use them until then. */
static struct {
  pthread_mutex_t lock;
  struct track *tracks[TRACE_TRACKS];
  _Atomic int32_t ntracks;
  char names[TRACE_NAMES][TRACE_NAME];
  uint16_t nnames;
  uint16_t nloaders;
  bool has_started; /* once in a process */
  _Atomic int64_t lost;
  int64_t left; /* when the main thread left the last loader; its own */
} recorder = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct track *mine;

atomic_bool trace_is_on;

static bool is_on(void) {
  return atomic_load_explicit(&trace_is_on, memory_order_relaxed);
}

/* NULL: out of memory, or of tracks. The lock is held. */
static struct track *take_track(const char *name) {
  const int32_t count = atomic_load(&recorder.ntracks);
  for (int32_t i = 0; i < count; i++)
    if (!recorder.tracks[i]->is_taken && strcmp(recorder.tracks[i]->name, name) == 0) return recorder.tracks[i];
  if (count == TRACE_TRACKS) return NULL;
  struct track *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return NULL;
  made->events = alloc_array(TRACE_RING, sizeof *made->events);
  if (made->events == NULL) {
    alloc_free(made);
    return NULL;
  }
  snprintf(made->name, sizeof made->name, "%s", name);
  recorder.tracks[count] = made;
  atomic_store(&recorder.ntracks, count + 1);
  return made;
}

static void record_thread(const char *name) {
  pthread_mutex_lock(&recorder.lock);
  mine = take_track(name);
  if (mine != NULL) mine->is_taken = true;
  pthread_mutex_unlock(&recorder.lock);
}

void trace_thread(const char *name) {
  if (is_on() && mine == NULL) record_thread(name);
}

void trace_thread_end(void) {
  if (mine == NULL) return;
  pthread_mutex_lock(&recorder.lock);
  mine->is_taken = false;
  pthread_mutex_unlock(&recorder.lock);
  mine = NULL;
}

bool trace_has_started(void) {
  return recorder.has_started;
}

int trace_open(void) {
  record_thread("main");
  return mine != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

int64_t trace_start(void) {
  recorder.has_started = true;
  recorder.left = clock_now();
  atomic_store(&trace_is_on, true);
  return recorder.left;
}

void trace_stop(void) {
  if (is_on()) trace_enter();
  atomic_store(&trace_is_on, false);
}

uint16_t trace_name(const char *text) {
  if (!is_on()) return 0;
  pthread_mutex_lock(&recorder.lock);
  uint16_t i = 0;
  while (i < recorder.nnames && strncmp(recorder.names[i], text, TRACE_NAME - 1) != 0) i++;
  if (i == recorder.nnames && i < TRACE_NAMES) snprintf(recorder.names[recorder.nnames++], TRACE_NAME, "%s", text);
  pthread_mutex_unlock(&recorder.lock);
  return i < TRACE_NAMES ? (uint16_t)(i + 1) : 0;
}

uint16_t trace_loader(void) {
  return is_on() && recorder.nloaders < UINT16_MAX ? ++recorder.nloaders : 0;
}

void trace_add(struct trace_event event) {
  if (mine == NULL) {
    atomic_fetch_add_explicit(&recorder.lost, 1, memory_order_relaxed);
    return;
  }
  const int64_t count = atomic_load_explicit(&mine->count, memory_order_relaxed);
  mine->events[count % TRACE_RING] = event;
  atomic_store_explicit(&mine->count, count + 1, memory_order_release);
}

int64_t trace_enter(void) {
  if (!is_on()) return 0;
  const int64_t left = recorder.left;
  recorder.left = 0; /* a loader that is asked within another is not left by the recipe */
  trace_end(left, (struct trace_event){.kind = TRACE_RECIPE});
  return clock_now();
}

void trace_leave(void) {
  if (is_on()) recorder.left = clock_now();
}

/* ---- what was recorded ------------------------------------------------------------------------------------------ */

int32_t trace_tracks(void) {
  return atomic_load(&recorder.ntracks);
}

/* The oldest of a full ring may be overwritten just now. */
static int64_t first_kept(int64_t count) {
  return count < TRACE_RING ? 0 : count - TRACE_RING + 1;
}

struct trace_track trace_track(int32_t i) {
  assert(i >= 0 && i < trace_tracks());
  const struct track *track = recorder.tracks[i];
  const int64_t count = atomic_load_explicit(&track->count, memory_order_acquire);
  return (struct trace_track){.name = track->name, .count = count, .dropped = first_kept(count)};
}

static int compare_events(const void *a, const void *b) {
  const struct trace_event *x = a, *y = b;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  if (x->duration != y->duration) return x->duration > y->duration ? -1 : 1;
  return (x->kind > y->kind) - (x->kind < y->kind);
}

int64_t trace_events(int32_t i, struct trace_event *out) {
  const struct track *track = recorder.tracks[i];
  const int64_t count = atomic_load_explicit(&track->count, memory_order_acquire);
  int64_t n = 0;
  for (int64_t event = first_kept(count); event < count; event++) out[n++] = track->events[event % TRACE_RING];
  qsort(out, (size_t)n, sizeof *out, compare_events);
  return n;
}

const char *trace_name_text(uint16_t name) {
  assert(name <= recorder.nnames);
  return name == 0 ? "" : recorder.names[name - 1];
}

int64_t trace_lost(void) {
  return atomic_load(&recorder.lost);
}

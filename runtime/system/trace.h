/* trace.h - where time goes, event by event (--trace). Each thread writes its events into a ring of its own: nothing is
 * locked or allocated for an event, and of a thread with more than TRACE_RING of them the earliest are forgotten. Where
 * nothing is recorded, an event costs one test of a flag. */
#ifndef SHARDRT_SYSTEM_TRACE_H
#define SHARDRT_SYSTEM_TRACE_H

#include <stdatomic.h>

#include "shardrt.h"
#include "system/clock.h"

enum {
  TRACE_RING = 1 << 15, /* events of one thread; 1.25 MiB */
  TRACE_TRACKS = 256,   /* threads at a time; what others do is only counted */
  TRACE_NAMES = 256,
  TRACE_NAME = 64 /* bytes of one, the NUL among them; a longer one is cut short */
};

/* Spans nest: of two that begin and end together, the first here is the outer one. */
enum trace_kind {
  TRACE_RECIPE, /* the main thread outside of loaders */
  TRACE_STEP,   /* a loader is asked for a batch; amount: its rows */
  TRACE_WAIT,   /* for the workers */
  TRACE_MOVE,   /* arrays on the move between processes and shards; amount: bytes received */
  TRACE_MEET,   /* for the other processes */
  TRACE_TASK,   /* some rows of a batch are made; amount: rows */
  TRACE_READ,   /* of it, in the source; amount: bytes taken from the storage */
  TRACE_DECODE,
  TRACE_TRANSFORM,
  TRACE_SCATTER, /* from rows that were read whole to where they belong */
  TRACE_CHECK,   /* fingerprints of replicas are taken */
  TRACE_UPLOAD,  /* a batch's copies to devices with memory of their own are put on their way; amount: bytes */
  TRACE_READY,   /* no span: so many batches (amount) of a loader are made and not yet asked for */
  TRACE_KINDS
};

struct trace_event {
  int64_t start;    /* nanoseconds, by clock_now */
  int64_t duration; /* nanoseconds */
  int64_t step;
  int64_t amount;
  uint16_t kind;
  uint16_t name;   /* of a field; 0: none */
  uint16_t loader; /* from 1 on; 0: none, and then `step` means nothing */
};

extern atomic_bool trace_is_on; /* only the functions below change it */

/* Whether trace_start was called: it is once in a process. */
bool trace_has_started(void);
/* On the main thread, before: takes the memory for that thread. */
int trace_open(void);
/* Begins to record, on the main thread and on those that are started later; returns when. */
int64_t trace_start(void);
/* Ends it. Threads that record at this moment may do so once more. */
void trace_stop(void);

/* Around what a thread does: it is called `name`, and continues the ring of an ended thread of that name. */
void trace_thread(const char *name);
void trace_thread_end(void);

/* A number for a text, or for a loader, for events; 0 where nothing is recorded, or there are too many. */
uint16_t trace_name(const char *text);
uint16_t trace_loader(void);

/* Writes an event; not where nothing is recorded. */
void trace_add(struct trace_event event);

/* When a span begins: 0 where nothing is recorded. */
static inline int64_t trace_begin(void) {
  return atomic_load_explicit(&trace_is_on, memory_order_relaxed) ? clock_now() : 0;
}

/* A span, by two times of clock_now; `what` is all but these. */
static inline void trace_span(int64_t start, int64_t end, struct trace_event what) {
  if (!atomic_load_explicit(&trace_is_on, memory_order_relaxed)) return;
  what.start = start;
  what.duration = end - start;
  trace_add(what);
}

/* One that ends now, and began at a trace_begin. */
static inline void trace_end(int64_t start, struct trace_event what) {
  if (start != 0) trace_span(start, clock_now(), what);
}

/* The main thread enters, and leaves, a loader: what is between is the recipe's. trace_enter begins a span, too. */
int64_t trace_enter(void);
void trace_leave(void);

/* ---- what was recorded, for who writes it down ------------------------------------------------------------------ */

struct trace_track {
  const char *name; /* of the thread */
  int64_t count;    /* of its events */
  int64_t dropped;  /* of these, forgotten */
};

int32_t trace_tracks(void);
struct trace_track trace_track(int32_t track);
/* Copies a track's events, in the order of their starts, outer ones first; `out` has room for TRACE_RING. Returns how
 * many there are. Other threads may still be at their last one. */
int64_t trace_events(int32_t track, struct trace_event *out);
const char *trace_name_text(uint16_t name); /* "" for 0 */
int64_t trace_lost(void);                   /* events of threads beyond TRACE_TRACKS */

#endif

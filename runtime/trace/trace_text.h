/* trace_text.h - what a process recorded, as text: events of the trace-event format
 * (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), piece by piece. */
#ifndef SHARDRT_TRACE_TRACE_TEXT_H
#define SHARDRT_TRACE_TRACE_TEXT_H

#include "system/trace.h"

struct trace_text {
  int32_t process;
  int64_t origin;             /* what counts as time 0, in nanoseconds by clock_now */
  struct trace_event *events; /* room for TRACE_RING */
  int32_t track;              /* the next one; those before it have been given */
  int64_t at, count;          /* of the events of the one before it */
  bool has_begun;
};

/* Writes as many whole events as fit, each after ",\n"; returns the bytes, 0: there are no more. `capacity` is 4 KiB at
 * least. */
size_t trace_text_give(struct trace_text *self, char *bytes, size_t capacity);

#endif

#include "trace/trace_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "base/utf8.h"

enum { EVENT_AT_MOST = 2048 }; /* bytes of one as text, or of what stands before the first */

/* How events are called, of which category they are, and what their amounts are; by enum trace_kind. */
static const struct {
  const char *name, *category, *amount;
} kinds[TRACE_KINDS] = {
    [TRACE_RECIPE] = {"recipe", "recipe", NULL},
    [TRACE_STEP] = {"next batch", "loader", "rows"},
    [TRACE_WAIT] = {"wait", "loader", NULL},
    [TRACE_MOVE] = {"move", "job", "bytes"},
    [TRACE_MEET] = {"meet", "job", NULL},
    [TRACE_TASK] = {"task", "worker", "rows"},
    [TRACE_READ] = {"read", "worker", "bytes"},
    [TRACE_DECODE] = {"decode", "worker", NULL},
    [TRACE_TRANSFORM] = {"transform", "worker", NULL},
    [TRACE_SCATTER] = {"scatter", "worker", "rows"},
    [TRACE_CHECK] = {"check", "worker", "bytes"},
    [TRACE_UPLOAD] = {"upload", "worker", "bytes"},
    [TRACE_READY] = {"batches ready", "loader", NULL},
};

/* A JSON text (RFC 8259); what is no UTF-8 becomes question marks. */
static void add_json(struct text *text, const char *value) {
  text_add(text, "\"");
  const uint8_t *at = (const uint8_t *)value;
  for (size_t left = strlen(value); left > 0;) {
    const size_t length = utf8_length(at, left);
    if (length == 0)
      text_add(text, "?");
    else if (*at == '"' || *at == '\\')
      text_add(text, "\\%c", *at);
    else if (*at < ' ')
      text_add(text, "\\u%04x", *at);
    else
      text_add(text, "%.*s", (int)length, (const char *)at);
    at += length == 0 ? 1 : length;
    left -= length == 0 ? 1 : length;
  }
  text_add(text, "\"");
}

/* Microseconds, to the nanosecond. */
static void add_time(struct text *text, const char *key, int64_t nanoseconds) {
  const char *sign = nanoseconds < 0 ? "-" : "";
  const int64_t size = nanoseconds < 0 ? -nanoseconds : nanoseconds;
  text_add(text, ",\"%s\":%s%" PRId64 ".%03" PRId64, key, sign, size / 1000, size % 1000);
}

static void add_head(const struct trace_text *self, struct text *text, const char *name, const char *phase,
                     int32_t thread) {
  text_add(text, ",\n{\"name\":\"%s\",\"ph\":\"%s\",\"pid\":%" PRId32 ",\"tid\":%" PRId32, name, phase, self->process,
           thread);
}

static void add_process(const struct trace_text *self, struct text *text) {
  char host[256] = "", name[300];
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  snprintf(name, sizeof name, "process %" PRId32 "%s%s", self->process, host[0] != '\0' ? " on " : "", host);
  add_head(self, text, "process_name", "M", 0);
  text_add(text, ",\"args\":{\"name\":");
  add_json(text, name);
  text_add(text, "}}");
  add_head(self, text, "process_sort_index", "M", 0);
  text_add(text, ",\"args\":{\"sort_index\":%" PRId32 "}}", self->process);
  if (trace_lost() == 0) return;
  add_head(self, text, "events were dropped: there were too many threads", "i", 1);
  add_time(text, "ts", 0);
  text_add(text, ",\"s\":\"p\",\"args\":{\"dropped\":%" PRId64 "}}", trace_lost());
}

/* What is to be known of a thread, whose events have been taken. Threads count from 1, as some viewers take 0 for a
 * processor that rests. */
static void add_track(const struct trace_text *self, struct text *text) {
  const struct trace_track track = trace_track(self->track - 1);
  add_head(self, text, "thread_name", "M", self->track);
  text_add(text, ",\"args\":{\"name\":");
  add_json(text, track.name);
  text_add(text, "}}");
  add_head(self, text, "thread_sort_index", "M", self->track);
  text_add(text, ",\"args\":{\"sort_index\":%" PRId32 "}}", self->track);
  if (track.dropped == 0 || self->count == 0) return;
  add_head(self, text, "earlier events were dropped", "i", self->track);
  add_time(text, "ts", self->events[0].start - self->origin);
  text_add(text, ",\"s\":\"t\",\"args\":{\"dropped\":%" PRId64 "}}", track.dropped);
}

static void add_arguments(struct text *text, const struct trace_event *event) {
  const char *between = "";
  text_add(text, ",\"args\":{");
  if (event->loader != 0) {
    text_add(text, "\"loader\":%d,\"step\":%" PRId64, event->loader, event->step);
    between = ",";
  }
  if (event->name != 0) {
    text_add(text, "%s\"field\":", between);
    add_json(text, trace_name_text(event->name));
    between = ",";
  }
  if (kinds[event->kind].amount != NULL)
    text_add(text, "%s\"%s\":%" PRId64, between, kinds[event->kind].amount, event->amount);
  text_add(text, "}}");
}

static void add_event(const struct trace_text *self, struct text *text, const struct trace_event *event) {
  const bool counts = event->kind == TRACE_READY;
  add_head(self, text, kinds[event->kind].name, counts ? "C" : "X", self->track);
  text_add(text, ",\"cat\":\"%s\"", kinds[event->kind].category);
  add_time(text, "ts", event->start - self->origin);
  if (counts) {
    text_add(text, ",\"args\":{\"loader %d\":%" PRId64 "}}", event->loader, event->amount);
  } else {
    add_time(text, "dur", event->duration);
    add_arguments(text, event);
  }
}

size_t trace_text_give(struct trace_text *self, char *bytes, size_t capacity) {
  struct text text = {.bytes = bytes, .capacity = capacity};
  if (!self->has_begun) add_process(self, &text);
  self->has_begun = true;
  while (text.length + EVENT_AT_MOST <= capacity) {
    const size_t before = text.length;
    if (self->at < self->count) {
      add_event(self, &text, &self->events[self->at++]);
    } else if (self->track < trace_tracks()) {
      self->count = trace_events(self->track++, self->events);
      self->at = 0;
      add_track(self, &text);
    } else {
      break;
    }
    assert(text.length - before < EVENT_AT_MOST);
    (void)before;
  }
  return text.length;
}

#include "comm/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/number_text.h"
#include "base/text.h"

enum { GROUPS = 16 }; /* of processes in the same place, at most; the rest are counted */

/* What is known of one process. */
struct sighting {
  bool is_waiting;
  const char *where; /* "": not known */
  const char *what;  /* what it called there; of those that wait, NULL */
  double seconds;    /* it has been there for; or since it was seen there */
};

/* One that waits is not missing, also where it waits in something that came before. */
static bool is_silent(const struct collective *m, int32_t p) {
  return p != m->index && m->notes.peers[p].waiting == 0;
}

static struct sighting sight_process(const struct collective *m, int32_t p, double now) {
  const struct notes_peer *peer = &m->notes.peers[p];
  if (p == m->index) return (struct sighting){true, collective_place(m), NULL, now - m->came};
  if (!is_silent(m, p)) return (struct sighting){true, peer->where, NULL, now - peer->since};
  const struct collective_slot *said = collective_said(m, p);
  return (struct sighting){false, said->where, said->what, now - m->seen};
}

static bool is_same_place(const struct sighting *a, const struct sighting *b) {
  return a->is_waiting == b->is_waiting && strncmp(a->where, b->where, COMM_WHERE - 1) == 0 &&
         (a->is_waiting || strcmp(a->what, b->what) == 0);
}

/* "\n  processes 0, 2: waiting at recipe.lua:12 for up to 4.2 s", "\n  process 1: last seen at recipe.lua:9, in
 * barrier, 4.3 s ago". `since`: a call of the program's in which that was, and which has ended here; "": none. */
static void add_sighting(struct text *text, const char *names, const struct sighting *s, bool several,
                         const char *since) {
  text_add(text, "\n  %s: ", names);
  if (s->is_waiting) {
    text_add(text, "waiting at %.*s for %s%.1f s", COMM_WHERE - 1, s->where, several ? "up to " : "", s->seconds);
  } else if (s->what[0] == '\0') {
    text_add(text, "not heard of yet");
  } else {
    text_add(text, "last seen %s%s", s->where[0] == '\0' ? "" : "at ", s->where);
    text_add(text, "%sin %s, %.1f s ago", s->where[0] == '\0' ? "" : ", ", s->what, s->seconds);
    if (since[0] != '\0') text_add(text, "; by now it may be in its program, after %s", since);
  }
}

/* `told` and `group` have room for all processes; `told` is clear. */
static void add_places(struct text *text, const struct collective *m, bool *told, bool *group) {
  const double now = shardrt_clock();
  int32_t groups = 0, rest = 0;
  for (int32_t first = 0; first < m->count; first++) {
    if (told[first]) continue;
    if (groups++ >= GROUPS) {
      rest++;
      continue;
    }
    struct sighting all = sight_process(m, first, now);
    int32_t count = 0;
    for (int32_t p = 0; p < m->count; p++) {
      struct sighting one = sight_process(m, p, now);
      group[p] = is_same_place(&all, &one);
      if (!group[p]) continue;
      told[p] = true;
      count++;
      if (one.seconds > all.seconds) all.seconds = one.seconds;
    }
    char names[256];
    number_text(names, sizeof names, "process", "processes", group, m->count);
    add_sighting(text, names, &all, count > 1, m->since);
  }
  if (rest > 0) text_add(text, "\n  and %" PRId32 " processes elsewhere", rest);
}

/* Leaves in `silent` those of the processes `awaited` that did not say they were waiting, too; all that are awaited if
 * every one of them did. Returns whether any is silent. */
static bool find_silent(const struct collective *m, const bool *awaited, bool *silent) {
  bool any = false;
  for (int32_t p = 0; p < m->count; p++) {
    silent[p] = awaited[p] && is_silent(m, p);
    any = any || silent[p];
  }
  for (int32_t p = 0; p < m->count && !any; p++) silent[p] = awaited[p];
  return any;
}

/* Leaves in `early` those of the processes `awaited`, which all wait, that do so in something before. Returns whether
 * there are any. */
static bool find_early(const struct collective *m, const bool *awaited, bool *early) {
  bool any = false;
  for (int32_t p = 0; p < m->count; p++) {
    early[p] = awaited[p] && m->notes.peers[p].waiting < m->sequence;
    any = any || early[p];
  }
  return any;
}

/* "process 1 did not come to barrier within 3 seconds". */
static void add_missing(struct text *text, const struct collective *m, const struct collective_work *work,
                        const char *what, bool *awaited, bool *silent) {
  const char *longer = error_words("--timeout", "timeout");
  for (int32_t p = 0; p < m->count && work->awaits == NULL; p++) awaited[p] = p != m->index;
  if (work->awaits != NULL) work->awaits(work->context, awaited);
  if (!m->transport->has_notes && m->count > 1) {
    text_add(text,
             "%s did not end within %g seconds: a process did not come to it (stuck, cut off, or in need of a longer "
             "%s); this transport cannot tell which",
             what, m->timeout, longer);
    return;
  }
  bool any = find_silent(m, awaited, silent);
  char names[512] = "";
  number_text(names, sizeof names, "process", "processes", silent, m->count);
  if (any)
    text_add(text, "%s did not %s %s within %g seconds (stuck, cut off, or in need of a longer %s)", names,
             work->awaits == NULL ? "come to" : "go on with", what, m->timeout, longer);
  else if (work->awaits == NULL && find_early(m, awaited, silent)) {
    number_text(names, sizeof names, "process", "processes", silent, m->count);
    text_add(text, "%s did not come to %s within %g seconds, but wait in something before it", names, what, m->timeout);
  } else if (work->awaits == NULL || names[0] == '\0')
    text_add(text, "%s did not end within %g seconds, though every process came to it", what, m->timeout);
  else
    text_add(text, "%s did not end within %g seconds: nothing came from, or got to, %s", what, m->timeout, names);
}

int report_timeout(const struct collective *m, const struct collective_work *work, const char *what) {
  bool *processes = alloc_zeros((size_t)m->count, 3 * sizeof *processes);
  if (processes == NULL) return ALLOC_FAILED;
  char bytes[4096] = "";
  struct text text = {.bytes = bytes, .capacity = sizeof bytes};
  add_missing(&text, m, work, what, processes, processes + m->count);
  memset(processes, 0, (size_t)m->count * sizeof *processes);
  add_places(&text, m, processes, processes + 2 * (size_t)m->count);
  alloc_free(processes);
  return error_set(SHARDRT_ETIMEOUT, "%s", bytes);
}

/* ---- processes that call different things -------------------------------------------------------------------------
 */

static bool steps_differ(const struct collective *m) {
  for (int32_t p = 1; p < m->count; p++)
    if (m->last[p].steps.hash != m->last[0].steps.hash) return true;
  return false;
}

/* " after 3 steps (the last: step 2 of the loader)". */
static void describe_steps(const struct collective_steps *steps, char *out, size_t size) {
  if (steps->count == 0)
    snprintf(out, size, " after no step of a loader");
  else
    snprintf(out, size, " after %" PRIu64 " step%s (the last: %s)", steps->count, steps->count == 1 ? "" : "s",
             steps->last);
}

/* Adds one group of processes that say the same to the message. */
static size_t describe_group(const struct collective *m, int32_t first, const bool *group, char *out, size_t size) {
  const struct collective_slot *slot = &m->last[first];
  char names[256], bytes[64] = "", steps[COLLECTIVE_STEP + 64] = "";
  number_text(names, sizeof names, "process", "processes", group, m->count);
  for (int32_t p = 0; p < m->count; p++)
    if (m->last[p].call == slot->call && m->last[p].bytes != slot->bytes)
      snprintf(bytes, sizeof bytes, " with %" PRIu64 " bytes", slot->bytes);
  if (steps_differ(m)) describe_steps(&slot->steps, steps, sizeof steps);
  int length = snprintf(out, size, "%s%s: %s%s%s%s%s", first == 0 ? "" : "; ", names, slot->what,
                        slot->where[0] != '\0' ? " at " : "", slot->where, bytes, steps);
  return length < 0 ? 0 : (size_t)length;
}

/* Whether what is shown of all is the same, as they differ in what is not. */
static bool look_alike(const struct collective *m) {
  for (int32_t p = 1; p < m->count; p++) {
    const struct collective_slot *a = &m->last[0], *b = &m->last[p];
    if (strcmp(a->what, b->what) != 0 || a->bytes != b->bytes || strcmp(a->where, b->where) != 0) return false;
    if (a->steps.count != b->steps.count || strcmp(a->steps.last, b->steps.last) != 0) return false;
  }
  return true;
}

int report_mismatch(const struct collective *m) {
  bool *group = alloc_zeros((size_t)m->count, 2 * sizeof *group);
  if (group == NULL) return ALLOC_FAILED;
  bool *told = group + m->count;
  char text[3072];
  size_t used = 0;
  for (int32_t first = 0; first < m->count && used < sizeof text; first++) {
    if (told[first]) continue;
    for (int32_t p = 0; p < m->count; p++) {
      group[p] = collective_slot_equal(&m->last[first], &m->last[p]);
      told[p] = told[p] || group[p];
    }
    used += describe_group(m, first, group, text + used, sizeof text - used);
  }
  alloc_free(group);
  return error_set(SHARDRT_EMISMATCH,
                   "the processes do different things (every process must make the same calls in the same order): %s%s",
                   text,
                   look_alike(m) ? "; they differ in numbers, operands or layouts of this or of a step before" : "");
}

int report_left(const struct collective *m, const char *what) {
  return comm_report_left(what, &m->notes.left);
}

int report_abandoned(const char *what) {
  return error_set(SHARDRT_ECOMM, "%.*s: the job was abandoned", (int)strcspn(what, "\n"), what);
}

#include "comm/collective.h"

#include <assert.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/number_text.h"
#include "comm/report.h"
#include "shardrt.h"
#include "system/time_slice.h"
#include "system/trace.h"

#define SPIN_SECONDS     50e-6
#define BYTES_PER_SECOND 1e9 /* what moves at least this fast is waited for without sleeping */
#define ANNOUNCE_SECONDS 1.0 /* after this long the others are told who waits, or moves; late ones answer at once */
#define GRACE_SECONDS    0.3 /* after the deadline, for those answers */
#define LONGEST_STEP     0.5 /* of the clock between two looks at it: this process was stopped, not waiting */
_Static_assert(sizeof((struct comm_note *)0)->why == sizeof((struct collective_slot *)0)->what &&
                   sizeof((struct comm_note *)0)->where == sizeof((struct collective_slot *)0)->where,
               "a slot has room for the last word");
enum { PASSED_ON = 2 * sizeof(struct collective_slot) };  /* bytes of a message that all processes get */
enum { SHORTEST_SLEEP = 50000, LONGEST_SLEEP = 1000000 }; /* nanoseconds */
/* Bytes of a round of a large gathering: of all processes, as fits into caches, or of each, where these are many. */
enum { ROUND = 1 << 22, LEAST_OF_EACH = 1 << 12 };

int collective_open(struct collective *m, const struct comm_transport *transport, struct comm_endpoint *endpoint,
                    int32_t index, int32_t count, double timeout) {
  assert(count >= 1 && index >= 0 && index < count && timeout > 0);
  struct notes inbox = {0};
  int code = notes_open(&inbox, transport, endpoint, index, count);
  if (code < 0) return code;
  struct collective_slot *room = alloc_zeros(2 + 2 * (size_t)count, sizeof *room);
  if (room == NULL) {
    notes_close(&inbox);
    return ALLOC_FAILED;
  }
  *m = (struct collective){.transport = transport,
                           .endpoint = endpoint,
                           .index = index,
                           .count = count,
                           .timeout = timeout,
                           .notes = inbox,
                           .room = room,
                           .in_use = room,
                           .mine = room,
                           .words = (char *)(room + 1),
                           .last = room + 2,
                           .next = room + 2 + count};
  return SHARDRT_OK;
}

void collective_close(struct collective *m) {
  notes_close(&m->notes);
  alloc_free(m->rounds);
  alloc_free(m->room);
  *m = (struct collective){0};
}

void collective_break(struct collective *m) {
  m->is_abandoned = true;
  m->broken = true;
}

/* The last word of this process. Without notes it takes part in one more gathering, which is left under way: the others
 * come to it with whatever they do next. */
static void say_why(struct collective *m, const char *why) {
  const int shown = (int)strcspn(why, "\n");
  if (m->transport->has_notes) {
    struct comm_note note = {.kind = COMM_LEFT, .number = m->completed, .process = m->index};
    snprintf(note.where, sizeof note.where, "%s", m->where);
    snprintf(note.why, sizeof note.why, "%.*s", shown, why);
    m->transport->send_last_note(m->endpoint, m->notes.has_left ? &m->notes.left : &note);
  } else if (m->completed == m->meetings) {
    *m->mine = (struct collective_slot){.code = SHARDRT_ECOMM, .has_left = 1};
    snprintf(m->mine->where, sizeof m->mine->where, "%s", m->where);
    snprintf(m->mine->what, sizeof m->mine->what, "%.*s", shown, why);
    m->broken = true; /* it does not end */
    m->transport->gather(m->endpoint, m->mine, sizeof *m->mine, m->next, sizeof *m->next);
  }
}

void collective_abandon(struct collective *m, const char *why) {
  assert(m->waits == 0);
  if (m->count > 1 && why != NULL) say_why(m, why);
  void *const kept = m->broken ? m->in_use : NULL; /* what is under way still uses it */
  m->transport->abandon(m->endpoint, kept);
  if (kept == m->rounds) m->rounds = NULL;
  if (kept == m->room) m->room = NULL;
  collective_close(m);
}

/* One wait: how long it has taken, how much of that without news of others, how much is spent spinning, and how long
 * the next rest is. */
struct patience {
  double looked, waited, quiet, spin;
  long sleep; /* nanoseconds */
};

static struct patience patience_begin(double spin) {
  return (struct patience){.looked = shardrt_clock(), .spin = spin, .sleep = SHORTEST_SLEEP};
}

static void patience_rest(struct patience *p) {
  if (p->waited < p->spin) {
    sched_yield();
  } else {
    nanosleep(&(struct timespec){.tv_nsec = p->sleep}, NULL);
    p->sleep += p->sleep / 2;
    if (p->sleep > LONGEST_SLEEP) p->sleep = LONGEST_SLEEP;
  }
  double now = shardrt_clock();
  double step = now - p->looked;
  if (step > LONGEST_STEP) step = LONGEST_STEP;
  p->waited += step;
  p->quiet += step;
  p->looked = now;
}

void collective_at(struct collective *m, const char *where) {
  const size_t length = where == NULL ? 0 : strlen(where);
  /* Of a path that is too long, the end says more. */
  const char *end = length < sizeof m->where ? where : where + length - (sizeof m->where - 1);
  snprintf(m->where, sizeof m->where, "%s", length == 0 ? "" : end);
}

void collective_after(struct collective *m, const char *call) {
  char where[COLLECTIVE_WHERE];
  snprintf(where, sizeof where, "the program, after %s", call);
  collective_at(m, where);
  if (m->since[0] == '\0') snprintf(m->since, sizeof m->since, "%s", call);
}

const char *collective_place(const struct collective *m) {
  return m->mine->where[0] != '\0' ? m->mine->where : m->mine->what;
}

/* Tells the others that this process waits, and where; or, by 0, that it goes on. */
static void announce_wait(const struct collective *m, uint64_t sequence) {
  struct comm_note note = {.kind = COMM_WAITING, .number = sequence, .seconds = shardrt_clock() - m->came};
  snprintf(note.where, sizeof note.where, "%.*s", COMM_WHERE - 1, collective_place(m));
  notes_send(&m->notes, &note);
}

/* Tells the others that this process moves data, so that they wait on, and hears what they said meanwhile. */
static void announce_move(struct collective *m) {
  notes_send(&m->notes, &(struct comm_note){.kind = COMM_MOVING, .number = m->sequence});
  notes_receive(&m->notes);
}

static int refuse_abandoned(const char *what) {
  return error_set(SHARDRT_ECOMM, "%.*s: the job was abandoned", (int)strcspn(what, "\n"), what);
}

/* Of the first process that left. The job is broken. */
static int report_left(const struct collective *m, const char *what) {
  const struct comm_note *left = &m->notes.left;
  return error_set(SHARDRT_ECOMM, "%.*s: process %d left the job (abandoned it)%s%s%s%s", (int)strcspn(what, "\n"),
                   what, left->process, left->where[0] == '\0' ? "" : ", in ", left->where,
                   left->why[0] == '\0' ? "" : ", because of: ", left->why);
}

/* Rests where the slice that runs here is over. Time away is not spent waiting. */
static void give_way(struct patience *p) {
  if (!time_slice_due()) return;
  time_slice_rest();
  p->looked = shardrt_clock();
}

static int work_until(struct collective *m, const struct collective_work *work, const char *what, size_t bytes) {
  m->sequence++;
  notes_receive(&m->notes);
  double patient = m->timeout / 4 < ANNOUNCE_SECONDS ? m->timeout / 4 : ANNOUNCE_SECONDS;
  bool announced = false, has_moved = false; /* one that moves waits only when that has ended for a while */
  const double spin = SPIN_SECONDS + (double)bytes / BYTES_PER_SECOND;
  struct patience p = patience_begin(spin);
  double told = p.looked;
  uint64_t moves = m->notes.moves;
  for (;; give_way(&p)) {
    if (m->is_abandoned) return refuse_abandoned(what);
    if (m->notes.has_left && m->notes.left.number < m->meetings) {
      m->broken = true;
      return report_left(m, what);
    }
    bool done = false, moved = false;
    int code = work->step(work->context, &done, &moved);
    if (code < 0 || done) {
      m->broken = code < 0;
      if (announced && done) announce_wait(m, 0);
      return code;
    }
    if (moved) {
      p = patience_begin(spin);
      has_moved = true;
      if (!announced && p.looked - told < patient) continue;
      announce_move(m);
      announced = false;
      told = p.looked;
      continue;
    }
    if (p.waited >= p.spin) notes_receive(&m->notes);
    if (m->notes.moves != moves) p.quiet = 0;
    moves = m->notes.moves;
    if (!announced && (p.waited >= patient || (!has_moved && m->notes.waiting >= m->sequence))) {
      announce_wait(m, m->sequence);
      announced = true;
    }
    if (p.quiet >= m->timeout + GRACE_SECONDS) {
      m->broken = true;
      return report_timeout(m, work, what);
    }
    patience_rest(&p);
  }
}

int collective_until(struct collective *m, const struct collective_work *work, const char *what, size_t bytes) {
  assert(m->is_abandoned || !m->broken);
  m->waits++;
  const int code = work_until(m, work, what, bytes);
  m->waits--;
  m->completed = code < 0 ? m->meetings - 1 : m->meetings;
  return code;
}

static int test_gathering(void *context, bool *done, bool *moved) {
  (void)moved;
  const struct collective *m = context;
  return m->transport->test(m->endpoint, done);
}

int collective_wait(struct collective *m, int started, const char *what, size_t bytes) {
  if (started < 0) {
    m->broken = true;
    m->completed = m->meetings - 1;
    return started;
  }
  return collective_until(m, &(struct collective_work){.step = test_gathering, .context = m}, what, bytes);
}

static bool slot_equal(const struct collective_slot *a, const struct collective_slot *b) {
  return a->call == b->call && a->bytes == b->bytes && a->steps.hash == b->steps.hash;
}

void collective_shorten(char *what) {
  what[strcspn(what, "\n")] = '\0';
}

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

static int report_mismatch(const struct collective *m) {
  bool *group = alloc_zeros((size_t)m->count, 2 * sizeof *group);
  if (group == NULL) return ALLOC_FAILED;
  bool *told = group + m->count;
  char text[3072];
  size_t used = 0;
  for (int32_t first = 0; first < m->count && used < sizeof text; first++) {
    if (told[first]) continue;
    for (int32_t p = 0; p < m->count; p++) {
      group[p] = slot_equal(&m->last[first], &m->last[p]);
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

/* What each process gives in a round of a large gathering. */
static size_t round_bytes(const struct collective *m, size_t bytes) {
  size_t most = ROUND / (size_t)m->count;
  if (most < LEAST_OF_EACH) most = LEAST_OF_EACH;
  return bytes < most ? bytes : most;
}

static int reserve_rounds(struct collective *m, size_t bytes) {
  const size_t each = round_bytes(m, bytes);
  if (each <= m->rounds_each) return SHARDRT_OK;
  alloc_free(m->rounds);
  m->rounds_each = 0;
  m->rounds = alloc_array((size_t)m->count + 1, each);
  if (m->rounds == NULL) return ALLOC_FAILED;
  m->rounds_each = each;
  return SHARDRT_OK;
}

/* Where the bytes did not fit into the slots. The transport is given memory of ours: a gathering that fails has no end,
 * and what the caller gave is the caller's again. */
static int gather_large(struct collective *m, const char *what, const char *mine, size_t bytes, char *all) {
  assert(bytes > COLLECTIVE_INLINE && m->rounds_each >= round_bytes(m, bytes));
  const size_t most = round_bytes(m, bytes);
  m->in_use = m->rounds;
  for (size_t at = 0; at < bytes; at += most) {
    const size_t piece = bytes - at < most ? bytes - at : most;
    char *said = m->rounds + piece;
    memcpy(m->rounds, mine + at, piece);
    int code = collective_wait(m, m->transport->gather(m->endpoint, m->rounds, piece, said, piece), what,
                               piece * (size_t)m->count);
    if (code < 0) return code;
    for (size_t p = 0; p < (size_t)m->count; p++) memcpy(all + p * bytes + at, said + p * piece, piece);
  }
  m->in_use = m->room;
  return SHARDRT_OK;
}

/* In pieces, so that no count of the transport's can overflow. */
static int gather_direct(struct collective *m, const char *what, const char *mine, size_t bytes, char *all) {
  for (size_t at = 0; at < bytes; at += COMM_PIECE) {
    const size_t piece = bytes - at < COMM_PIECE ? bytes - at : COMM_PIECE;
    int code = collective_wait(m, m->transport->gather(m->endpoint, mine + at, piece, all + at, bytes), what,
                               piece * (size_t)m->count);
    if (code < 0) return code;
  }
  return SHARDRT_OK;
}

void collective_step(struct collective *m, const char *what) {
  m->steps.count++;
  m->steps.hash = hash_text(m->steps.hash, what);
  snprintf(m->steps.last, sizeof m->steps.last, "%.*s", (int)strcspn(what, "\n"), what);
}

/* Whoever failed has said what it could; the others must call the same. Returns whether they do. */
static bool check_slots(const struct collective *m, bool *any_failed) {
  int32_t first = 0;
  while (first < m->count && m->last[first].code < 0) first++;
  *any_failed = first > 0;
  bool alike = true;
  for (int32_t p = first + 1; p < m->count; p++) {
    *any_failed = *any_failed || m->last[p].code < 0;
    alike = alike && (m->last[p].code < 0 || slot_equal(&m->last[first], &m->last[p]));
  }
  return alike;
}

/* Gives every process the message of the first that failed; `message` is this one's, "" where it did not. It needs no
 * memory, which may be what is missing. */
static int pass_on_message(struct collective *m, const char message[PASSED_ON]) {
  const size_t slot = sizeof(struct collective_slot);
  char first_said[PASSED_ON];
  int32_t first = 0;
  while (m->last[first].code >= 0) first++;
  assert(first < m->count); /* one failed: check_slots has seen it */
  bool alike = true;
  for (size_t at = 0; at < PASSED_ON; at += slot) {
    memcpy(m->words, message + at, slot);
    int code = collective_wait(m, m->transport->gather(m->endpoint, m->words, slot, m->next, slot), "a message",
                               slot * (size_t)m->count);
    if (code < 0) return code;
    const char *said = (const char *)m->next; /* the places of slots serve for text */
    memcpy(first_said + at, said + (size_t)first * slot, slot);
    for (int32_t p = 0; p < m->count; p++)
      alike = alike && m->last[p].code < 0 && memcmp(said + (size_t)p * slot, first_said + at, slot) == 0;
  }
  first_said[PASSED_ON - 1] = '\0';
  const int code = error_set(m->last[first].code, "%s", first_said);
  return alike ? code : error_prefix(code, "process %d", (int)first);
}

/* Whether one says in its slot that it left, as nobody comes to what follows. */
static bool has_lost_one(struct collective *m) {
  int32_t p = 0;
  while (p < m->count && !m->last[p].has_left) p++;
  if (p == m->count) return false;
  m->notes.left = (struct comm_note){.kind = COMM_LEFT, .number = m->meetings - 1, .process = p};
  memcpy(m->notes.left.where, m->last[p].where, sizeof m->notes.left.where);
  memcpy(m->notes.left.why, m->last[p].what, sizeof m->notes.left.why);
  m->notes.has_left = m->broken = true;
  return true;
}

int collective_gather(struct collective *m, const char *what, const void *mine, size_t bytes, void *all) {
  return collective_join(m, what, SHARDRT_OK, mine, bytes, all);
}

static int join(struct collective *m, const char *what, int own, const void *mine, size_t bytes, void *all,
                bool is_direct) {
  const int shown = (int)strcspn(what, "\n");
  if (own < 0 && (m->broken || m->count == 1)) return own;
  if (m->is_abandoned) return refuse_abandoned(what);
  if (m->broken && m->notes.has_left) return report_left(m, what);
  if (m->broken) return error_set(SHARDRT_ECOMM, "%.*s: the processes lost each other before", shown, what);
  const bool small = bytes <= COLLECTIVE_INLINE;
  if (own >= 0 && !small && !is_direct) own = reserve_rounds(m, bytes);
  if (own < 0 && m->count == 1) return own;
  char message[PASSED_ON] = "";
  if (own < 0) snprintf(message, sizeof message, "%s", shardrt_error_message());
  m->came = shardrt_clock();
  m->meetings++;
  *m->mine = (struct collective_slot){
      .call = hash_text(0, what), .bytes = bytes, .steps = m->steps, .code = own < 0 ? own : 0};
  snprintf(m->mine->what, sizeof m->mine->what, "%.*s", shown, what);
  snprintf(m->mine->where, sizeof m->mine->where, "%s", m->where);
  assert(bytes == 0 || own < 0 || (mine != NULL && all != NULL));
  if (small && bytes > 0 && own >= 0) memcpy(m->mine->payload, mine, bytes);
  size_t slot = sizeof(struct collective_slot);
  const int64_t start = trace_begin();
  int code = collective_wait(m, m->transport->gather(m->endpoint, m->mine, slot, m->next, slot), m->mine->what,
                             slot * (size_t)m->count);
  if (code < 0) return code;
  trace_end(start, (struct trace_event){.kind = TRACE_MEET});
  assert(m->next != m->last);
  struct collective_slot *said = m->next;
  m->next = m->last;
  m->last = said;
  m->seen = shardrt_clock();
  m->since[0] = '\0';
  if (has_lost_one(m)) return report_left(m, what);
  bool any_failed;
  if (!check_slots(m, &any_failed)) return report_mismatch(m);
  if (any_failed) return pass_on_message(m, message);
  if (!small) return (is_direct ? gather_direct : gather_large)(m, m->mine->what, mine, bytes, all);
  for (int32_t p = 0; p < m->count && bytes > 0; p++) memcpy((char *)all + (size_t)p * bytes, said[p].payload, bytes);
  return SHARDRT_OK;
}

int collective_join(struct collective *m, const char *what, int own, const void *mine, size_t bytes, void *all) {
  return join(m, what, own, mine, bytes, all, false);
}

int collective_gather_direct(struct collective *m, const char *what, const void *mine, size_t bytes, void *all) {
  return join(m, what, SHARDRT_OK, mine, bytes, all, true);
}

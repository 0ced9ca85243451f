#include "comm/wait.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "comm/collective.h"
#include "comm/report.h"
#include "shardrt.h"
#include "system/time_slice.h"

#define SPIN_SECONDS     50e-6
#define BYTES_PER_SECOND 1e9 /* what moves at least this fast is waited for without sleeping */
#define ANNOUNCE_SECONDS 1.0 /* after this long the others are told who waits, or moves; late ones answer at once */
#define GRACE_SECONDS    0.3 /* after the deadline, for those answers */
#define LONGEST_STEP     0.5 /* of the clock between two looks at it: this process was stopped, not waiting */
enum { SHORTEST_SLEEP = 50000, LONGEST_SLEEP = 1000000 }; /* nanoseconds */

struct patience patience_begin(double spin) {
  return (struct patience){.looked = shardrt_clock(), .spin = spin, .sleep = SHORTEST_SLEEP};
}

void patience_rest(struct patience *p) {
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

void patience_give_way(struct patience *p) {
  if (!time_slice_due()) return;
  time_slice_rest();
  p->looked = shardrt_clock();
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

static int work_until(struct collective *m, const struct collective_work *work, const char *what, size_t bytes) {
  m->sequence++;
  notes_receive(&m->notes);
  double patient = m->timeout / 4 < ANNOUNCE_SECONDS ? m->timeout / 4 : ANNOUNCE_SECONDS;
  bool announced = false, has_moved = false; /* one that moves waits only when that has ended for a while */
  const double spin = SPIN_SECONDS + (double)bytes / BYTES_PER_SECOND;
  struct patience p = patience_begin(spin);
  double told = p.looked;
  uint64_t moves = m->notes.moves;
  for (;; patience_give_way(&p)) {
    if (time_slice_is_cancelled()) {
      m->broken = true;
      return report_abandoned(what);
    }
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
  assert(time_slice_is_cancelled() || !m->broken);
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

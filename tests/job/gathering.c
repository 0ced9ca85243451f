/* gathering.c - what tests/job/gathering_spec.lua runs: large gatherings over a transport that looks at the memory
 * which it is given. Ends with 0 and "fine", or says what is not so. */
#include "comm/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "shardrt.h"

#define CHECK(fact)                                                                                                    \
  do {                                                                                                                 \
    if (!(fact)) {                                                                                                     \
      fprintf(stderr, "line %d: not so: %s; the last message: %s\n", __LINE__, #fact, shardrt_error_message());        \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

enum { PROCESSES = 3, OWN = 1 };

/* This process's part in a job in which all others say what it does, with other bytes. */
struct comm_endpoint {
  const char *mine; /* of the gathering under way; NULL: none is, */
  char *all;
  size_t bytes, stride;
  int64_t started, most;        /* gatherings; after `most` of them none ends */
  const char *refused, *beyond; /* memory of the caller's, which must not be given here */
  void *left;                   /* what abandoning handed over */
};

static bool is_refused(const struct comm_endpoint *e, const char *from, size_t bytes) {
  return from < e->beyond && e->refused < from + bytes;
}

static int fake_gather(struct comm_endpoint *e, const void *mine, size_t bytes, void *all, size_t stride) {
  CHECK(e->mine == NULL && bytes <= COMM_PIECE && stride >= bytes);
  CHECK(!is_refused(e, mine, bytes) && !is_refused(e, all, PROCESSES * stride));
  e->mine = mine;
  e->all = all;
  e->bytes = bytes;
  e->stride = stride;
  e->started++;
  return SHARDRT_OK;
}

/* As the others do, late: into the memory that the gathering was given. */
static void write_all(struct comm_endpoint *e) {
  for (size_t p = 0; p < PROCESSES; p++) {
    char *to = e->all + p * e->stride;
    memmove(to, e->mine, e->bytes);
    if (e->bytes != sizeof(struct collective_slot) && p != OWN)
      for (size_t i = 0; i < e->bytes; i++) to[i] = (char)(to[i] + (char)p);
  }
}

static int fake_test(struct comm_endpoint *e, bool *done) {
  if (e->started > e->most) return SHARDRT_OK;
  write_all(e);
  e->mine = NULL;
  *done = true;
  return SHARDRT_OK;
}

static void fake_send_note(struct comm_endpoint *e, int32_t to, const struct comm_note *note) {
  (void)e, (void)to, (void)note;
}

static void fake_send_last_note(struct comm_endpoint *e, const struct comm_note *note) {
  (void)e, (void)note;
}

static bool fake_receive_note(struct comm_endpoint *e, int32_t *from, struct comm_note *note) {
  (void)e, (void)from, (void)note;
  return false;
}

static void fake_abandon(struct comm_endpoint *e, void *room) {
  e->left = room;
}

static const struct comm_transport fake = {.name = "fake",
                                           .has_notes = true,
                                           .gather = fake_gather,
                                           .test = fake_test,
                                           .send_note = fake_send_note,
                                           .send_last_note = fake_send_last_note,
                                           .receive_note = fake_receive_note,
                                           .abandon = fake_abandon};

static void fill(char *mine, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) mine[i] = (char)(i * 7 + i / 1000);
}

/* Gathers in memory of the caller's, which is gone right after; *rounds: how many gatherings of the transport it took.
 */
static int gather_once(struct collective *m, struct comm_endpoint *e, size_t bytes, int64_t *rounds) {
  char *memory = malloc((PROCESSES + 1) * bytes);
  char *mine = memory, *all = memory + bytes;
  e->refused = memory;
  e->beyond = memory + (PROCESSES + 1) * bytes;
  const int64_t before = e->started;
  fill(mine, bytes);
  const int code = collective_gather(m, "a large gathering", mine, bytes, all);
  *rounds = e->started - before;
  for (size_t p = 0; p < PROCESSES && code == SHARDRT_OK; p++)
    for (size_t i = 0; i < bytes; i++)
      if (all[p * bytes + i] != (char)(mine[i] + (p == OWN ? 0 : (char)p))) {
        fprintf(stderr, "byte %zu of process %zu is wrong\n", i, p);
        exit(1);
      }
  free(memory);
  e->refused = e->beyond = NULL;
  return code;
}

static void check_values(void) {
  struct comm_endpoint e = {.most = INT64_MAX};
  struct collective m;
  int64_t rounds;
  CHECK(collective_open(&m, &fake, &e, OWN, PROCESSES, 5) == SHARDRT_OK);
  static const struct {
    size_t bytes;
    int64_t rounds; /* and one before, in which processes say what they call */
  } cases[] = {{241, 1}, {4096, 1}, {1 << 20, 1}, {(3 << 20) + 1, 3}, {(5 << 20) + 12345, 4}, {300, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    CHECK(gather_once(&m, &e, cases[i].bytes, &rounds) == SHARDRT_OK);
    CHECK(rounds == 1 + cases[i].rounds);
  }
  collective_abandon(&m, "");
  CHECK(e.left == NULL);
}

/* One that never ends, in its `which`-th gathering of the transport: the caller's memory is its own, and what MPI may
 * still write to is kept, whole. */
static void check_lost(int64_t which) {
  struct comm_endpoint e = {.most = which - 1};
  struct collective m;
  int64_t rounds;
  CHECK(collective_open(&m, &fake, &e, OWN, PROCESSES, 0.2) == SHARDRT_OK);
  CHECK(gather_once(&m, &e, 3 << 20, &rounds) == SHARDRT_ETIMEOUT);
  CHECK(rounds == which);
  collective_abandon(&m, "");
  CHECK(e.left != NULL);
  write_all(&e); /* asan sees it where that memory is gone */
  alloc_free(e.left);
}

/* Without copies: the transport is given the caller's memory, whole. */
static void check_direct(void) {
  enum { BYTES = 5 << 20 };
  struct comm_endpoint e = {.most = INT64_MAX};
  struct collective m;
  CHECK(collective_open(&m, &fake, &e, OWN, PROCESSES, 5) == SHARDRT_OK);
  char *memory = malloc((size_t)(PROCESSES + 1) * BYTES), *all = memory + BYTES;
  fill(memory, BYTES);
  CHECK(collective_gather_direct(&m, "a direct gathering", memory, BYTES, all) == SHARDRT_OK);
  CHECK(e.started == 2 && e.all == all && e.stride == BYTES);
  CHECK(memcmp(all + (size_t)OWN * BYTES, memory, BYTES) == 0 && all[2 * BYTES] == (char)(memory[0] + 2));
  free(memory);
  collective_abandon(&m, "");
}

static void check_memory(void) {
  struct comm_endpoint e = {.most = INT64_MAX};
  struct collective m;
  int64_t rounds;
  CHECK(collective_open(&m, &fake, &e, OWN, PROCESSES, 5) == SHARDRT_OK);
  shardrt_alloc_fail_at(1);
  const int code = gather_once(&m, &e, 100000, &rounds);
  shardrt_alloc_fail_at(0);
  CHECK(code == SHARDRT_ENOMEM && rounds > 0); /* the others hear of it */
  CHECK(gather_once(&m, &e, 100000, &rounds) == SHARDRT_OK);
  collective_abandon(&m, "");
}

int main(void) {
  check_values();
  for (int64_t which = 1; which <= 4; which++) check_lost(which);
  check_memory();
  check_direct();
  printf("fine\n");
  return 0;
}

/* gathering.c - what tests/job/gathering_spec.lua runs: meetings and gatherings over a transport that looks at the
 * memory which it is given, and counts bytes. Ends with 0 and "fine", or says what is not so. */
#include "comm/collective.h"

#include <stddef.h>
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
  uint64_t *folded;             /* the numbers of a fold under way, which is a gathering, too */
  int64_t received;             /* bytes, of all that were started */
  uint64_t number;              /* what the last process gives for its number, where it is not 0 */
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
  e->received += (int64_t)(PROCESSES * bytes);
  return SHARDRT_OK;
}

/* What the last process gives where it is to differ. */
static void change_number(const struct comm_endpoint *e, struct collective_token *token) {
  if (e->number == 0) return;
  token->number = e->number;
  token->not_number = ~e->number;
}

static int fake_fold(struct comm_endpoint *e, const uint64_t *mine, int32_t count, uint64_t *all) {
  CHECK(e->mine == NULL && count > 0 && count <= COMM_FOLD);
  struct collective_token last = {0};
  memcpy(all, mine, (size_t)count * sizeof *mine);
  if (count == COLLECTIVE_FOLDED) {
    memcpy(&last, mine, COLLECTIVE_FOLDED * sizeof *mine);
    change_number(e, &last);
    memcpy(all, &last, COLLECTIVE_FOLDED * sizeof *mine);
  }
  for (int32_t i = 0; i < count; i++) all[i] &= mine[i];
  e->folded = all;
  e->started++;
  e->received += (int64_t)sizeof *mine * count;
  return SHARDRT_OK;
}

/* As the others do, late: into the memory that the gathering was given. */
static void write_all(struct comm_endpoint *e) {
  for (size_t p = 0; p < PROCESSES; p++) {
    char *to = e->all + p * e->stride;
    memmove(to, e->mine, e->bytes);
    const bool is_token = e->bytes == sizeof(struct collective_token);
    if (p == PROCESSES - 1 && is_token) change_number(e, (struct collective_token *)to);
    if (p == PROCESSES - 1 && e->bytes == sizeof(struct collective_slot) && e->number != 0)
      ((struct collective_slot *)to)->number = e->number;
    if (e->bytes == sizeof(struct collective_slot) || p == OWN) continue;
    for (size_t i = is_token ? offsetof(struct collective_token, payload) : 0; i < e->bytes; i++)
      to[i] = (char)(to[i] + (char)p);
  }
}

static int fake_test(struct comm_endpoint *e, bool *done) {
  if (e->started > e->most) return SHARDRT_OK;
  if (e->folded == NULL) write_all(e);
  e->mine = NULL;
  e->folded = NULL;
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
                                           .fold = fake_fold,
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

/* The number that the last process has in a gathering, where this one has `mine`. */
static uint64_t last_of(uint64_t mine) {
  unsigned char bytes[sizeof mine];
  memcpy(bytes, &mine, sizeof mine);
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(bytes[i] + PROCESSES - 1);
  memcpy(&mine, bytes, sizeof mine);
  return mine;
}

/* A meeting's bytes: near, 64 from each; far, 32 in all, and what is gathered beside in a gathering of its own. Only
 * where something differs does each process say more. */
static void check_meeting(bool is_far) {
  struct comm_endpoint e = {.most = INT64_MAX};
  struct collective m;
  int64_t rounds;
  bool others[PROCESSES] = {false}, differs = false;
  CHECK(collective_open(&m, &fake, &e, OWN, PROCESSES, 5) == SHARDRT_OK);
  if (is_far) m.near = PROCESSES - 1;
  const int64_t bytes = is_far ? 32 : (int64_t)(PROCESSES * sizeof(struct collective_token));
  CHECK(bytes <= 64 * PROCESSES && collective_join(&m, "barrier", SHARDRT_OK, NULL, 0, NULL) == SHARDRT_OK);
  CHECK(e.started == 1 && e.received == bytes);
  for (size_t small = 1; small <= COLLECTIVE_INLINE; small += 31) {
    CHECK(gather_once(&m, &e, small, &rounds) == SHARDRT_OK);
    CHECK(rounds == (is_far ? 2 : 1));
  }
  e.received = 0;
  CHECK(collective_compare(&m, "the same", SHARDRT_OK, 7, others, &differs) == SHARDRT_OK);
  CHECK(!differs && e.received == bytes && strcmp(collective_said(&m, 2)->what, "the same") == 0);
  e.number = 8;
  CHECK(collective_compare(&m, "another", SHARDRT_OK, 7, others, &differs) == SHARDRT_OK);
  CHECK(differs && !others[0] && !others[1] && others[2] && collective_said(&m, 2)->number == 8);
  e.number = 0;
  uint64_t numbers[2 * COMM_FOLD + 7];
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) numbers[i] = i << 8 | 0xff;
  rounds = e.started;
  CHECK(collective_fold(&m, "folding", SHARDRT_OK, numbers, sizeof numbers / sizeof *numbers) == SHARDRT_OK);
  CHECK(e.started - rounds == 4);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const uint64_t mine = i << 8 | 0xff;
    CHECK(numbers[i] == (is_far ? mine : mine & last_of(mine)));
  }
  error_set(SHARDRT_EIO, "no such file");
  CHECK(collective_join(&m, "reading", SHARDRT_EIO, NULL, 0, NULL) == SHARDRT_EIO);
  CHECK(collective_join(&m, "barrier", SHARDRT_OK, NULL, 0, NULL) == SHARDRT_OK); /* still usable */
  CHECK(strcmp(collective_said(&m, 0)->what, "barrier") == 0);
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
  check_meeting(false);
  check_meeting(true);
  for (int64_t which = 1; which <= 4; which++) check_lost(which);
  check_memory();
  check_direct();
  printf("fine\n");
  return 0;
}

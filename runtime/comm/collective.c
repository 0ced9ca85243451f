#include "comm/collective.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "comm/report.h"
#include "shardrt.h"
#include "system/time_slice.h"
#include "system/trace.h"

enum { PASSED_ON = 3 * sizeof(struct collective_slot) }; /* bytes of a message that all processes get */
/* Bytes of a round of a large gathering: of all processes, as fits into caches, or of each, where these are many. */
enum { ROUND = 1 << 22, LEAST_OF_EACH = 1 << 12 };

int collective_open(struct collective *m, const struct comm_transport *transport, struct comm_endpoint *endpoint,
                    int32_t index, int32_t count, double timeout) {
  assert(count >= 1 && index >= 0 && index < count && timeout > 0);
  struct notes inbox = {0};
  int code = notes_open(&inbox, transport, endpoint, index, count);
  if (code < 0) return code;
  const size_t slots = 2 + 2 * (size_t)count, tokens = 2 + (size_t)count;
  const size_t token_bytes =
      sizeof(struct collective_token) + (transport->has_notes ? 0 : sizeof(struct collective_farewell));
  struct collective_slot *room = alloc_zeros(1, slots * sizeof *room + tokens * token_bytes);
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
                           .near = COLLECTIVE_NEAR,
                           .room = room,
                           .in_use = room,
                           .mine = room,
                           .words = (char *)(room + 1),
                           .last = room + 2,
                           .next = room + 2 + count,
                           .tokens = (char *)(room + slots),
                           .token_bytes = token_bytes,
                           .is_alike = true};
  return SHARDRT_OK;
}

void collective_close(struct collective *m) {
  notes_close(&m->notes);
  alloc_free(m->rounds);
  alloc_free(m->room);
  *m = (struct collective){0};
}

/* 0: this process's, 1: that of all together, 2 + p: process p's. */
static struct collective_token *token_at(const struct collective *m, int32_t i) {
  return (struct collective_token *)(void *)(m->tokens + (size_t)i * m->token_bytes);
}

/* What comes along with it, where the transport has no notes. */
static struct collective_farewell *farewell_at(const struct collective *m, int32_t i) {
  return (struct collective_farewell *)(void *)(token_at(m, i) + 1);
}

/* The last word of this process. Without notes it goes along in one more meeting, which is left under way: the others
 * come to that with whatever they do next. */
static void say_why(struct collective *m, const char *why) {
  const int shown = (int)strcspn(why, "\n");
  if (m->transport->has_notes) {
    struct comm_note note = {.kind = COMM_LEFT, .number = m->completed, .process = m->index};
    snprintf(note.where, sizeof note.where, "%s", m->where);
    snprintf(note.why, sizeof note.why, "%.*s", shown, why);
    m->transport->send_last_note(m->endpoint,
                                 m->notes.has_left && m->notes.left.number <= m->completed ? &m->notes.left : &note);
  } else if (m->completed == m->meetings && !m->notes.has_left) {
    struct collective_farewell *farewell = farewell_at(m, 0);
    *token_at(m, 0) = (struct collective_token){0};
    farewell->has_left = 1;
    snprintf(farewell->where, sizeof farewell->where, "%s", m->where);
    snprintf(farewell->why, sizeof farewell->why, "%.*s", shown, why);
    m->broken = true; /* it does not end */
    m->transport->gather(m->endpoint, m->tokens, m->token_bytes, token_at(m, 2), m->token_bytes);
  }
}

void collective_farewell(struct collective *m, const char *why) {
  if (m->count == 1 || m->has_said) return;
  say_why(m, why);
  m->has_said = true;
}

void collective_say_why(struct collective *m, const char *why) {
  if (m->transport->has_notes) collective_farewell(m, why);
}

void collective_abandon(struct collective *m, const char *why) {
  assert(m->waits == 0);
  if (why != NULL) collective_farewell(m, why);
  void *const kept = m->broken ? m->in_use : NULL; /* what is under way still uses it */
  m->transport->abandon(m->endpoint, kept);
  if (kept == m->rounds) m->rounds = NULL;
  if (kept == m->room) m->room = NULL;
  collective_close(m);
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

const struct collective_slot *collective_said(const struct collective *m, int32_t process) {
  return m->is_alike ? &m->met : &m->last[process];
}

bool collective_is_over(const struct collective *m) {
  bool is_alike = !m->broken;
  for (int32_t p = 0; p < m->count; p++) is_alike = is_alike && collective_said(m, p)->call == m->mine->call;
  return is_alike;
}

bool collective_slot_equal(const struct collective_slot *a, const struct collective_slot *b) {
  return a->call == b->call && a->bytes == b->bytes && a->steps.hash == b->steps.hash;
}

void collective_shorten(char *what) {
  what[strcspn(what, "\n")] = '\0';
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
    alike = alike && (m->last[p].code < 0 || collective_slot_equal(&m->last[first], &m->last[p]));
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

int collective_gather(struct collective *m, const char *what, const void *mine, size_t bytes, void *all) {
  return collective_join(m, what, SHARDRT_OK, mine, bytes, all);
}

/* ---- the meeting ------------------------------------------------------------------------------------------------- */

static void fill_slot(struct collective *m, const char *what, int own, uint64_t number, size_t bytes) {
  *m->mine = (struct collective_slot){
      .call = hash_text(0, what), .bytes = bytes, .number = number, .steps = m->steps, .code = own < 0 ? own : 0};
  snprintf(m->mine->what, sizeof m->mine->what, "%.*s", (int)strcspn(what, "\n"), what);
  snprintf(m->mine->where, sizeof m->mine->where, "%s", m->where);
}

static struct collective_token token_of(const struct collective_slot *slot) {
  if (slot->code < 0) return (struct collective_token){0};
  const uint64_t said[] = {slot->call, slot->bytes, slot->steps.hash};
  const uint64_t call = hash_text(hash_bytes(0, said, sizeof said), slot->where);
  return (struct collective_token){
      .call = call, .not_call = ~call, .number = slot->number, .not_number = ~slot->number};
}

static void token_add(struct collective_token *all, const struct collective_token *other) {
  all->call &= other->call;
  all->not_call &= other->not_call;
  all->number &= other->number;
  all->not_number &= other->not_number;
}

static bool token_is_alike(const struct collective_token *all) {
  return all->call == ~all->not_call && all->number == ~all->not_number;
}

static bool is_near(const struct collective *m) {
  return m->count <= m->near || m->transport->fold == NULL;
}

/* Leaves in tokens[1] what all gave together. */
static int fold_tokens(struct collective *m) {
  struct collective_token *mine = token_at(m, 0), *all = token_at(m, 1), *each = token_at(m, 2);
  const size_t bytes = m->token_bytes;
  if (!is_near(m))
    return collective_wait(m, m->transport->fold(m->endpoint, &mine->call, COLLECTIVE_FOLDED, &all->call),
                           m->mine->what, bytes);
  const int code = collective_wait(m, m->transport->gather(m->endpoint, mine, bytes, each, bytes), m->mine->what,
                                   bytes * (size_t)m->count);
  *all = *each;
  for (int32_t p = 1; p < m->count && code == SHARDRT_OK; p++) token_add(all, token_at(m, 2 + p));
  return code;
}

/* What each says in words, where the hashes differ. */
static int gather_slots(struct collective *m) {
  const size_t bytes = sizeof *m->mine;
  const int code = collective_wait(m, m->transport->gather(m->endpoint, m->mine, bytes, m->next, bytes), m->mine->what,
                                   bytes * (size_t)m->count);
  if (code < 0) return code;
  assert(m->next != m->last);
  struct collective_slot *said = m->next;
  m->next = m->last;
  m->last = said;
  return SHARDRT_OK;
}

/* Whether one says with its token that it left, as it does not come to what follows. */
static bool has_lost_one(struct collective *m) {
  if (m->transport->has_notes) return false;
  int32_t p = 0;
  while (p < m->count && farewell_at(m, 2 + p)->has_left == 0) p++;
  if (p == m->count) return false;
  const struct collective_farewell *said = farewell_at(m, 2 + p);
  struct comm_note *left = &m->notes.left;
  *left = (struct comm_note){.kind = COMM_LEFT, .number = m->meetings - 1, .process = p};
  snprintf(left->where, sizeof left->where, "%.*s", (int)sizeof said->where - 1, said->where);
  snprintf(left->why, sizeof left->why, "%.*s", (int)sizeof said->why - 1, said->why);
  m->notes.has_left = m->broken = true;
  return true;
}

/* Where nobody failed and all call the same, though they may be in different places, or give different numbers, they
 * go on. */
static int settle_difference(struct collective *m, const char message[PASSED_ON]) {
  if (has_lost_one(m)) return report_left(m, m->mine->what);
  int code = gather_slots(m);
  if (code < 0) return code;
  m->seen = shardrt_clock();
  m->since[0] = '\0';
  m->is_alike = false;
  bool any_failed;
  if (!check_slots(m, &any_failed)) return report_mismatch(m);
  return any_failed ? pass_on_message(m, message) : SHARDRT_OK;
}

/* `bytes` that fit come along in the tokens of processes that are near; `mine` NULL: they go in another way. */
static int meet(struct collective *m, const char *what, int own, uint64_t number, const void *mine, size_t bytes) {
  char message[PASSED_ON] = "";
  if (own < 0) snprintf(message, sizeof message, "%s", shardrt_error_message());
  m->came = shardrt_clock();
  m->meetings++;
  fill_slot(m, what, own, number, bytes);
  *token_at(m, 0) = token_of(m->mine);
  if (own >= 0 && mine != NULL && bytes <= COLLECTIVE_INLINE) memcpy(token_at(m, 0)->payload, mine, bytes);
  const int64_t start = trace_begin();
  int code = fold_tokens(m);
  if (code == SHARDRT_OK) trace_end(start, (struct trace_event){.kind = TRACE_MEET});
  if (code < 0) return code;
  if (!token_is_alike(token_at(m, 1))) return settle_difference(m, message);
  m->seen = shardrt_clock();
  m->since[0] = '\0';
  m->met = *m->mine;
  m->is_alike = true;
  return SHARDRT_OK;
}

/* What is small has come along where all are near; else it goes by way of memory for slots. */
static int gather_small(struct collective *m, const void *mine, size_t bytes, void *all) {
  const char *said = (const char *)token_at(m, 2)->payload;
  size_t stride = m->token_bytes;
  if (!is_near(m)) {
    memcpy(m->words, mine, bytes);
    const int code = collective_wait(m, m->transport->gather(m->endpoint, m->words, bytes, m->next, bytes),
                                     m->mine->what, bytes * (size_t)m->count);
    if (code < 0) return code;
    said = (const char *)m->next;
    stride = bytes;
  }
  for (size_t p = 0; p < (size_t)m->count; p++) memcpy((char *)all + p * bytes, said + p * stride, bytes);
  return SHARDRT_OK;
}

/* Whether this process can meet the others; `own` is what it failed with before. */
static int check_usable(struct collective *m, const char *what, int own) {
  if (own < 0 && (m->broken || m->count == 1)) return own;
  if (time_slice_is_cancelled()) {
    m->broken = true;
    return report_abandoned(what);
  }
  if (m->broken && m->notes.has_left) return report_left(m, what);
  if (m->broken)
    return error_set(SHARDRT_ECOMM, "%.*s: the processes lost each other before", (int)strcspn(what, "\n"), what);
  return SHARDRT_OK;
}

static int join(struct collective *m, const char *what, int own, const void *mine, size_t bytes, void *all,
                bool is_direct) {
  int code = check_usable(m, what, own);
  if (code < 0) return code;
  const bool small = bytes <= COLLECTIVE_INLINE;
  if (own >= 0 && !small && !is_direct) own = reserve_rounds(m, bytes);
  if (own < 0 && m->count == 1) return own;
  assert(bytes == 0 || own < 0 || (mine != NULL && all != NULL));
  code = meet(m, what, own, 0, mine, bytes);
  if (code < 0 || bytes == 0) return code;
  if (small) return gather_small(m, mine, bytes, all);
  return (is_direct ? gather_direct : gather_large)(m, m->mine->what, mine, bytes, all);
}

int collective_join(struct collective *m, const char *what, int own, const void *mine, size_t bytes, void *all) {
  return join(m, what, own, mine, bytes, all, false);
}

/* By way of memory for slots; at most COMM_FOLD numbers. */
static int fold_round(struct collective *m, uint64_t *numbers, size_t count) {
  _Static_assert(COMM_FOLD * sizeof *numbers <= sizeof(struct collective_slot), "there is room");
  const size_t bytes = count * sizeof *numbers;
  uint64_t *mine = (uint64_t *)(void *)m->words, *all = (uint64_t *)(void *)m->next;
  memcpy(mine, numbers, bytes);
  const int started = is_near(m) ? m->transport->gather(m->endpoint, mine, bytes, all, bytes)
                                 : m->transport->fold(m->endpoint, mine, (int32_t)count, all);
  const size_t rows = is_near(m) ? (size_t)m->count : 1;
  const int code = collective_wait(m, started, m->mine->what, bytes * rows);
  for (size_t i = 0; i < count * rows && code == SHARDRT_OK; i++) numbers[i % count] &= all[i];
  return code;
}

int collective_fold(struct collective *m, const char *what, int own, uint64_t *numbers, size_t count) {
  int code = check_usable(m, what, own);
  if (code == SHARDRT_OK) code = meet(m, what, own, 0, NULL, count * sizeof *numbers);
  for (size_t at = 0; at < count && code == SHARDRT_OK; at += COMM_FOLD)
    code = fold_round(m, numbers + at, count - at < COMM_FOLD ? count - at : COMM_FOLD);
  return code;
}

int collective_compare(struct collective *m, const char *what, int own, uint64_t number, bool *others, bool *differs) {
  int code = check_usable(m, what, own);
  if (code == SHARDRT_OK) code = meet(m, what, own, number, NULL, 0);
  if (code < 0) return code;
  for (int32_t p = 0; p < m->count; p++) {
    others[p] = collective_said(m, p)->number != collective_said(m, 0)->number;
    *differs = *differs || others[p];
  }
  return SHARDRT_OK;
}

int collective_gather_direct(struct collective *m, const char *what, const void *mine, size_t bytes, void *all) {
  return join(m, what, SHARDRT_OK, mine, bytes, all, true);
}

#include "tokenizer/bpe.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"

enum {
  KNOWN = 16384,    /* pieces that a thread remembers; a power of two, */
  KNOWN_FIRST = 64, /* as this is, of which it begins with room: for one text it would cost more to clear it all */
  KNOWN_GROWS = 4,
  KNOWN_BYTES = 30, /* those that are not longer, and no more tokens: then one fills a line of the cache */
  KNOWN_TOKENS = 8,
  TOKEN_MOST = INT32_MAX / 2, /* bytes of a piece */
};

/* A piece of the text and what it became. */
struct bpe_known {
  uint8_t length; /* 0: nothing */
  uint8_t count;
  uint8_t bytes[KNOWN_BYTES];
  int32_t ids[KNOWN_TOKENS];
};

/* A token of a piece, and what it becomes with the next one. */
struct bpe_part {
  int32_t id;
  int32_t before, next; /* -1: none */
  uint32_t rank;        /* 0: it does not become anything, or is no more */
  int32_t joined;
};

struct bpe_heap_entry {
  uint32_t rank;
  int32_t part;
};

/* ---- the vocabulary --------------------------------------------------------------------------------------------- */

int bpe_add(struct bpe *self, const uint8_t *bytes, size_t count, int32_t id) {
  struct bpe_token *tokens = alloc_one_more(self->tokens, self->ntokens, &self->tokens_room, 1024, sizeof *tokens);
  if (tokens == NULL) return ALLOC_FAILED;
  self->tokens = tokens;
  if (self->text_bytes + count > self->text_room) {
    const size_t larger = 2 * (self->text_room + count) + 4096;
    uint8_t *made = alloc_array(larger, 1);
    if (made == NULL) return ALLOC_FAILED;
    if (self->text_bytes > 0) memcpy(made, self->text, self->text_bytes);
    alloc_free(self->text);
    self->text = made;
    self->text_room = larger;
  }
  memcpy(self->text + self->text_bytes, bytes, count);
  self->tokens[self->ntokens++] = (struct bpe_token){.at = self->text_bytes, .bytes = (uint32_t)count, .id = id};
  self->text_bytes += count;
  return SHARDRT_OK;
}

/* Where the token of these bytes stands in the table, or would. */
static int64_t place_of(const struct bpe *self, const uint8_t *bytes, size_t count) {
  const int64_t mask = self->nplaces - 1;
  int64_t at = (int64_t)(hash_bytes(0, bytes, count) & (uint64_t)mask);
  for (; self->places[at] != 0; at = (at + 1) & mask) {
    const struct bpe_token *token = &self->tokens[self->places[at] - 1];
    if (token->bytes == count && memcmp(self->text + token->at, bytes, count) == 0) break;
  }
  return at;
}

int bpe_index(struct bpe *self) {
  self->nplaces = 1024;
  while (self->nplaces < 2 * self->ntokens) self->nplaces *= 2;
  self->places = alloc_zeros((size_t)self->nplaces, sizeof *self->places);
  if (self->places == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < self->ntokens; i++) {
    const struct bpe_token *token = &self->tokens[i];
    const int64_t at = place_of(self, self->text + token->at, token->bytes);
    if (self->places[at] != 0)
      return error_set(SHARDRT_EFORMAT, "the tokens %d and %d are the same bytes",
                       (int)self->tokens[self->places[at] - 1].id, (int)token->id);
    self->places[at] = i + 1;
  }
  for (int32_t b = 0; b < 256; b++) self->bytes[b] = bpe_find(self, &(const uint8_t){(uint8_t)b}, 1);
  return SHARDRT_OK;
}

int32_t bpe_find(const struct bpe *self, const uint8_t *bytes, size_t count) {
  const int64_t place = self->places[place_of(self, bytes, count)];
  return place > 0 ? self->tokens[place - 1].id : -1;
}

static uint64_t hash_pair(int32_t left, int32_t right) {
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  key *= 0x9e3779b97f4a7c15u; /* Fibonacci hashing: the upper bits are those of all of the key */
  return key ^ key >> 32;
}

static struct bpe_pair *pair_place(struct bpe_pair *pairs, int64_t room, int32_t left, int32_t right) {
  uint64_t at = hash_pair(left, right) & (uint64_t)(room - 1);
  while (pairs[at].rank != 0 && (pairs[at].left != left || pairs[at].right != right))
    at = (at + 1) & (uint64_t)(room - 1);
  return &pairs[at];
}

int bpe_join(struct bpe *self, int32_t left, int32_t right, uint32_t rank, int32_t id) {
  if (2 * self->npairs >= self->pairs_room) {
    const int64_t larger = self->pairs_room > 0 ? 2 * self->pairs_room : 4096;
    struct bpe_pair *made = alloc_zeros((size_t)larger, sizeof *made);
    if (made == NULL) return ALLOC_FAILED;
    for (int64_t i = 0; i < self->pairs_room; i++)
      if (self->pairs[i].rank != 0)
        *pair_place(made, larger, self->pairs[i].left, self->pairs[i].right) = self->pairs[i];
    alloc_free(self->pairs);
    self->pairs = made;
    self->pairs_room = larger;
  }
  struct bpe_pair *place = pair_place(self->pairs, self->pairs_room, left, right);
  if (place->rank == 0) self->npairs++;
  *place = (struct bpe_pair){.left = left, .right = right, .rank = rank + 1, .id = id};
  return SHARDRT_OK;
}

int bpe_join_all(struct bpe *self) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < self->ntokens && code == SHARDRT_OK; i++) {
    const struct bpe_token token = self->tokens[i];
    for (uint32_t n = 1; n < token.bytes && code == SHARDRT_OK; n++) {
      const int32_t left = bpe_find(self, self->text + token.at, n);
      const int32_t right = left < 0 ? -1 : bpe_find(self, self->text + token.at + n, token.bytes - n);
      if (right >= 0) code = bpe_join(self, left, right, (uint32_t)token.id, token.id);
    }
  }
  return code;
}

void bpe_clear(struct bpe *self) {
  alloc_free(self->pairs);
  alloc_free(self->places);
  alloc_free(self->tokens);
  alloc_free(self->text);
}

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

/* A heap of the pairs of a piece. What is no more true of a part is left in it, and found out when it comes up. */
struct bpe_piece {
  const struct bpe *bpe;
  struct bpe_part *parts;
  struct bpe_heap_entry *heap;
  int32_t nheap;
};

static bool comes_before(struct bpe_heap_entry a, struct bpe_heap_entry b) {
  return a.rank != b.rank ? a.rank < b.rank : a.part < b.part;
}

static void heap_add(struct bpe_piece *p, struct bpe_heap_entry entry) {
  int32_t at = p->nheap++;
  for (; at > 0 && comes_before(entry, p->heap[(at - 1) / 2]); at = (at - 1) / 2) p->heap[at] = p->heap[(at - 1) / 2];
  p->heap[at] = entry;
}

static struct bpe_heap_entry heap_take(struct bpe_piece *p) {
  const struct bpe_heap_entry first = p->heap[0], last = p->heap[--p->nheap];
  int32_t at = 0;
  for (int32_t child = 1; child < p->nheap; at = child, child = 2 * at + 1) {
    if (child + 1 < p->nheap && comes_before(p->heap[child + 1], p->heap[child])) child++;
    if (!comes_before(p->heap[child], last)) break;
    p->heap[at] = p->heap[child];
  }
  p->heap[at] = last;
  return first;
}

/* What a part becomes with the next one now. */
static void look_at_pair(struct bpe_piece *p, int32_t at) {
  struct bpe_part *part = &p->parts[at];
  part->rank = 0;
  if (part->next < 0 || p->bpe->pairs_room == 0) return;
  const struct bpe_pair *pair = pair_place(p->bpe->pairs, p->bpe->pairs_room, part->id, p->parts[part->next].id);
  if (pair->rank == 0) return;
  part->rank = pair->rank;
  part->joined = pair->id;
  heap_add(p, (struct bpe_heap_entry){.rank = pair->rank, .part = at});
}

/* Of each byte two entries come in, at most: its own, and one when the pair behind it is joined, and one before. */
enum { HEAP_GROWS = 3 };

static void join_parts(struct bpe_piece *p) {
  while (p->nheap > 0) {
    const struct bpe_heap_entry first = heap_take(p);
    struct bpe_part *part = &p->parts[first.part];
    if (part->rank != first.rank) continue;
    struct bpe_part *gone = &p->parts[part->next];
    part->id = part->joined;
    part->next = gone->next;
    gone->rank = 0;
    if (part->next >= 0) p->parts[part->next].before = first.part;
    look_at_pair(p, first.part);
    if (part->before >= 0) look_at_pair(p, part->before);
  }
}

static int make_work(struct bpe_work *work, size_t count) {
  if (count <= work->room) return SHARDRT_OK;
  const size_t larger = 2 * count < 1024 ? 1024 : 2 * count;
  alloc_free(work->parts);
  alloc_free(work->heap);
  work->room = 0;
  work->heap = NULL;
  work->parts = alloc_array(larger, sizeof *work->parts);
  if (work->parts == NULL) return ALLOC_FAILED;
  work->heap = alloc_array(HEAP_GROWS * larger, sizeof *work->heap);
  if (work->heap == NULL) return ALLOC_FAILED;
  work->room = larger;
  return SHARDRT_OK;
}

static int encode_piece(const struct bpe *self, struct bpe_work *work, const uint8_t *piece, size_t count, int32_t *out,
                        size_t *made) {
  if (count > TOKEN_MOST) return error_set(SHARDRT_EOVERFLOW, "a piece of %zu bytes", count);
  int code = make_work(work, count);
  if (code < 0) return code;
  struct bpe_piece p = {.bpe = self, .parts = work->parts, .heap = work->heap};
  int32_t n = 0;
  for (size_t i = 0; i < count; i++) {
    if (self->bytes[piece[i]] < 0) continue;
    p.parts[n] = (struct bpe_part){.id = self->bytes[piece[i]], .before = n - 1, .next = n + 1};
    n++;
  }
  *made = 0;
  if (n == 0) return SHARDRT_OK;
  p.parts[n - 1].next = -1;
  for (int32_t i = 0; i < n; i++) look_at_pair(&p, i);
  join_parts(&p);
  for (int32_t i = 0; i >= 0; i = p.parts[i].next) out[(*made)++] = p.parts[i].id;
  return SHARDRT_OK;
}

/* Where a piece is remembered, or may be. */
static struct bpe_known *known_place(struct bpe_known *known, int64_t places, const uint8_t *piece, size_t count) {
  return &known[hash_bytes(0, piece, count) & (uint64_t)(places - 1)];
}

/* Makes the table, or a larger one of what it has. */
static int grow_known(struct bpe_work *work) {
  const int64_t places = work->nknown > 0 ? KNOWN_GROWS * work->nknown : KNOWN_FIRST;
  struct bpe_known *made = alloc_zeros((size_t)places, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < work->nknown; i++) {
    const struct bpe_known *known = &work->known[i];
    if (known->length > 0) *known_place(made, places, known->bytes, known->length) = *known;
  }
  alloc_free(work->known);
  work->known = made;
  work->nknown = places;
  work->noted = 0;
  return SHARDRT_OK;
}

int bpe_encode(const struct bpe *self, struct bpe_work *work, const uint8_t *piece, size_t count, int32_t *out,
               size_t *made) {
  struct bpe_known *known = NULL;
  if (count <= KNOWN_BYTES) {
    const int grown = work->noted == work->nknown && work->nknown < KNOWN ? grow_known(work) : SHARDRT_OK;
    if (grown < 0) return grown;
    known = known_place(work->known, work->nknown, piece, count);
    if (known->length == count && memcmp(known->bytes, piece, count) == 0) {
      memcpy(out, known->ids, known->count * sizeof *out);
      *made = known->count;
      return SHARDRT_OK;
    }
  }
  const int32_t token = self->whole ? bpe_find(self, piece, count) : -1;
  int code = SHARDRT_OK;
  if (token >= 0) {
    out[0] = token;
    *made = 1;
  } else {
    code = encode_piece(self, work, piece, count, out, made);
  }
  if (code < 0 || known == NULL || *made > KNOWN_TOKENS) return code;
  work->noted++;
  known->length = (uint8_t)count;
  known->count = (uint8_t)*made;
  memcpy(known->bytes, piece, count);
  memcpy(known->ids, out, *made * sizeof *out);
  return SHARDRT_OK;
}

void bpe_work_clear(struct bpe_work *self) {
  alloc_free(self->known);
  alloc_free(self->heap);
  alloc_free(self->parts);
}

#include "dataset/view/fit.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/compare.h"

enum { BITS = 64, SHIFT = 6 };

/* Words of level `level`. */
static int64_t level_words(const struct fit *self, int32_t level) {
  int64_t words = self->capacity + 1;
  for (int32_t l = 0; l <= level; l++) words = (words + BITS - 1) / BITS;
  return words;
}

int fit_set(struct fit *self, int32_t capacity, int32_t most) {
  assert(capacity >= 1 && most >= 0);
  *self = (struct fit){.capacity = capacity, .most = most};
  for (int32_t l = 0; l < FIT_LEVELS; l++) {
    self->rooms[l] = alloc_zeros((size_t)level_words(self, l), sizeof(uint64_t));
    if (self->rooms[l] == NULL) return ALLOC_FAILED;
  }
  const size_t n = (size_t)most;
  self->heads = alloc_array((size_t)capacity + 1, sizeof *self->heads);
  self->next = alloc_array(n, sizeof *self->next);
  self->sorted = alloc_array(n, sizeof *self->sorted);
  self->left = alloc_array(n, sizeof *self->left);
  self->renamed = alloc_array(n, sizeof *self->renamed);
  if (self->heads == NULL || self->next == NULL || self->sorted == NULL || self->left == NULL || self->renamed == NULL)
    return ALLOC_FAILED;
  for (int32_t room = 0; room <= capacity; room++) self->heads[room] = -1;
  return SHARDRT_OK;
}

void fit_clear(struct fit *self) {
  alloc_free(self->renamed);
  alloc_free(self->left);
  alloc_free(self->sorted);
  alloc_free(self->next);
  alloc_free(self->heads);
  for (int32_t l = 0; l < FIT_LEVELS; l++) alloc_free(self->rooms[l]);
}

/* Puts a row among those with its room. */
static void put_row(struct fit *self, int32_t row) {
  const int32_t room = self->left[row];
  assert(room >= 0 && room <= self->capacity);
  self->next[row] = self->heads[room];
  self->heads[room] = row;
  for (int32_t l = 0, at = room; l < FIT_LEVELS; l++, at >>= SHIFT)
    self->rooms[l][at >> SHIFT] |= UINT64_C(1) << at % BITS;
}

/* Takes a row that has this room, which one has. */
static int32_t take_row(struct fit *self, int32_t room) {
  const int32_t row = self->heads[room];
  assert(row >= 0 && self->left[row] == room);
  self->heads[room] = self->next[row];
  if (self->heads[room] >= 0) return row;
  for (int32_t l = 0, at = room; l < FIT_LEVELS; l++, at >>= SHIFT) {
    uint64_t *word = &self->rooms[l][at >> SHIFT];
    *word &= ~(UINT64_C(1) << at % BITS);
    if (*word != 0) break;
  }
  return row;
}

/* The least room that some row has and is at least `wanted`; -1: there is none. */
static int32_t find_room(const struct fit *self, int32_t wanted) {
  int64_t at = wanted; /* on the way up: look from bit `at` of the level on */
  for (int32_t l = 0; l < FIT_LEVELS; l++) {
    if (at >> SHIFT >= level_words(self, l)) return -1;
    const uint64_t word = self->rooms[l][at >> SHIFT] & ~UINT64_C(0) << at % BITS;
    if (word == 0) {
      at = (at >> SHIFT) + 1;
      continue;
    }
    at = (at >> SHIFT) * BITS + __builtin_ctzll(word);
    while (l-- > 0) at = at * BITS + __builtin_ctzll(self->rooms[l][at]);
    return (int32_t)at;
  }
  return -1;
}

/* Ascending: the longest first, of equal ones the first. */
static void sort_lengths(struct fit *self, const int32_t *lengths, int32_t n) {
  assert(n <= self->most);
  for (int32_t i = 0; i < n; i++) self->sorted[i] = (int64_t)(self->capacity - lengths[i]) << 32 | i;
  qsort(self->sorted, (size_t)n, sizeof *self->sorted, compare_int64);
}

int32_t fit_rows(struct fit *self, const int32_t *lengths, int32_t n, int32_t *rows) {
  int32_t count = 0;
  sort_lengths(self, lengths, n);
  for (int32_t k = 0; k < n; k++) {
    const int32_t i = (int32_t)(self->sorted[k] & INT32_MAX);
    const int32_t room = find_room(self, lengths[i]);
    const int32_t row = room >= 0 ? take_row(self, room) : count++;
    self->left[row] = (room >= 0 ? room : self->capacity) - lengths[i];
    rows[i] = row;
    put_row(self, row);
  }
  for (int32_t row = 0; row < count; row++) self->renamed[row] = -1;
  int32_t used = 0;
  for (int32_t i = 0; i < n; i++) {
    if (self->renamed[rows[i]] < 0) self->renamed[rows[i]] = used++;
    rows[i] = self->renamed[rows[i]];
  }
  for (int32_t row = 0; row < count; row++) /* every row is in exactly one list */
    while (self->heads[self->left[row]] >= 0) take_row(self, self->left[row]);
  assert(find_room(self, 0) < 0); /* no room is marked between calls */
  return count;
}

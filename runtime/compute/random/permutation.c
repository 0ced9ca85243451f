/* permutation.c - whole numbers in random order, as JAX's (jax/_src/random/core.py, _shuffle): sorted by random words
 * of 32 bits, stable, and again until equal words are unlikely to have mattered. It is sorted on the host, also where
 * devices have memory of their own: an order is made once an epoch, and each device gets a copy of it. */
#include <assert.h>
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "compute/random/key.h"
#include "compute/work.h"
#include "platform/accelerator.h"

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, PASSES = 3 };

/* Above, the random word; below, the number that it is drawn for. */
static const int VALUE_BITS = 32;

static int32_t round_count(int64_t n) {
  return n < 2 ? 0 : (int32_t)ceil(3.0 * log((double)n) / log((double)UINT32_MAX));
}

/* Puts a new random word above each number. */
static void draw_words(const shardrt_key *key, uint64_t *entries, int64_t n) {
  int64_t at[KEY_TILE];
  uint32_t bits[KEY_TILE];
  for (int64_t first = 0; first < n; first += KEY_TILE) {
    const int64_t count = n - first < KEY_TILE ? n - first : KEY_TILE;
    for (int64_t i = 0; i < count; i++) at[i] = first + i;
    key_bits(key, n, 32, at, (size_t)count, bits);
    for (int64_t i = 0; i < count; i++) assert((uint32_t)entries[first + i] < (uint64_t)n);
    for (int64_t i = 0; i < count; i++)
      entries[first + i] = (uint64_t)bits[i] << VALUE_BITS | (uint32_t)entries[first + i];
  }
}

/* One pass of a radix sort, by digit `pass` of the words. Equal digits keep their order. */
static void sort_pass(const uint64_t *from, uint64_t *to, int64_t n, int32_t pass) {
  const int shift = VALUE_BITS + pass * DIGIT_BITS;
  int64_t next[DIGITS] = {0}, sum = 0;
  for (int64_t i = 0; i < n; i++) next[from[i] >> shift & (DIGITS - 1)]++;
  for (int32_t d = 0; d < DIGITS; d++) {
    const int64_t count = next[d];
    next[d] = sum;
    sum += count;
  }
  for (int64_t i = 0; i < n; i++) to[next[from[i] >> shift & (DIGITS - 1)]++] = from[i];
}

/* Shuffles; `spare` is as large. Returns which of the two holds the result. */
static const uint64_t *shuffle(shardrt_key key, uint64_t *entries, uint64_t *spare, int64_t n) {
  for (int32_t round = round_count(n); round > 0; round--) {
    shardrt_key both[2] = {key, key};
    shardrt_key_split(&key, 2, both);
    key = both[0];
    draw_words(&both[1], entries, n);
    for (int32_t pass = 0; pass < PASSES; pass++) {
      sort_pass(entries, spare, n, pass);
      uint64_t *sorted = spare;
      spare = entries;
      entries = sorted;
    }
  }
  return entries;
}

static int check_permutation(const shardrt_key *key, const shardrt_array *out) {
  const int64_t n = shardrt_array_ndim(out) == 1 ? shardrt_array_shape(out)[0] : -1;
  if (n < 0 || n > INT32_MAX || shardrt_array_dtype(out) != SHARDRT_INT32 ||
      !shardrt_sharding_is_fully_replicated(shardrt_array_sharding(out)))
    return error_set(SHARDRT_EINVAL, "a permutation is of one dimension, int32, of fewer than 2^31 numbers, and whole "
                                     "on every device");
  return key_check(key, n, 32);
}

/* Writes the numbers below n in the order that the key gives. */
static int write_order(const shardrt_key *key, int64_t n, int32_t *values) {
  uint64_t *entries = alloc_array((size_t)n, sizeof *entries), *spare = NULL;
  if (entries == NULL) return ALLOC_FAILED;
  spare = alloc_array((size_t)n, sizeof *spare);
  if (spare == NULL) {
    alloc_free(entries);
    return ALLOC_FAILED;
  }
  for (int64_t i = 0; i < n; i++) entries[i] = (uint64_t)i;
  const uint64_t *shuffled = shuffle(*key, entries, spare, n);
  for (int64_t i = 0; i < n; i++) values[i] = (int32_t)(uint32_t)shuffled[i];
  alloc_free(spare);
  alloc_free(entries);
  return SHARDRT_OK;
}

static int write_to_devices(const shardrt_key *key, int64_t n, shardrt_array *out) {
  shardrt_buffer *buffer;
  int code = shardrt_buffer_new(shardrt_array_shard_bytes(out), &buffer);
  if (code < 0) return code;
  code = write_order(key, n, shardrt_buffer_data(buffer));
  const int64_t count = shardrt_array_shard_count(out);
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) code = shardrt_array_set_buffer(out, i, buffer);
  shardrt_buffer_free(buffer);
  return code;
}

int shardrt_key_permutation(const shardrt_key *key, shardrt_array *out) {
  int code = check_permutation(key, out);
  if (code < 0 || shardrt_array_shard_count(out) == 0) return code;
  const int64_t n = shardrt_array_shape(out)[0];
  if (accelerator_get() != NULL) return write_to_devices(key, n, out);
  code = work_outputs(out);
  return code < 0 ? code : write_order(key, n, shardrt_buffer_data(shardrt_array_buffer(out, 0)));
}

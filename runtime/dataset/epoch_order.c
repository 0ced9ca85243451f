#include "dataset/epoch_order.h"

#include <assert.h>

#include "base/error.h"
#include "base/hash.h"
#include "dataset/source.h"

/* Below this many bits a round's function takes few values, so more rounds are needed before the permutations are
 * equally likely; their cost does not matter there. */
enum { SMALL_BITS = 14, SMALL_ROUNDS = EPOCH_ORDER_MAX_ROUNDS, LARGE_ROUNDS = 6 };

/* SplitMix64's finaliser, variant 13 of Stafford's:
 * https://zimbry.blogspot.com/2011/09/better-bit-mixing-improving-on.html
 */
static uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static int32_t bits_of(uint64_t count) {
  return count < 2 ? 0 : 64 - __builtin_clzll(count - 1);
}

void epoch_order_set(struct epoch_order *self, uint64_t seed, int64_t epoch, int64_t count, bool shuffle) {
  const uint64_t golden = 0x9e3779b97f4a7c15u; /* 2^64 / the golden ratio: SplitMix64's step */
  int32_t bits = bits_of((uint64_t)count);
  *self = (struct epoch_order){.seed = seed, .epoch = epoch, .count = count, .shuffle = shuffle, .low_bits = bits / 2};
  self->low_mask = (UINT64_C(1) << (bits / 2)) - 1;
  self->high_mask = (UINT64_C(1) << (bits - bits / 2)) - 1;
  if (!shuffle || count < 2) return; /* no rounds: everything stays where it is */
  self->rounds = bits < SMALL_BITS ? SMALL_ROUNDS : LARGE_ROUNDS;
  assert(self->rounds <= EPOCH_ORDER_MAX_ROUNDS && self->rounds % 2 == 0); /* a round is for one half */
  uint64_t state = mix_bits(mix_bits(mix_bits(seed + golden) ^ (uint64_t)epoch) + golden * (uint64_t)count);
  for (int32_t r = 0; r < self->rounds; r++) self->keys[r] = mix_bits(state += golden);
}

/* 32 bits from one half and a round's key. */
static inline uint64_t scramble_half(uint64_t half, uint64_t key) {
  uint64_t x = (half ^ key) * 0xd6e8feb86659fd93u;
  x = (x ^ (x >> 32)) * (key | 1);
  return x >> 32;
}

/* The sample at `position`; needs 0 <= position < count. */
static int64_t epoch_order_at(const struct epoch_order *self, int64_t position) {
  assert(position >= 0 && position < self->count);
  const int32_t low_bits = self->low_bits;
  uint64_t x = (uint64_t)position;
  do {
    uint64_t low = x & self->low_mask;
    uint64_t high = x >> low_bits;
    for (int32_t r = 0; r < self->rounds; r += 2) {
      high ^= scramble_half(low, self->keys[r]) & self->high_mask;
      low ^= scramble_half(high, self->keys[r + 1]) & self->low_mask;
    }
    x = high << low_bits | low;
  } while (x >= (uint64_t)self->count);
  return (int64_t)x;
}

int64_t epoch_order_sample(const struct epoch_order *self, const shardrt_source *source, int64_t position,
                           int64_t *epoch) {
  if (source->mix == NULL) {
    *epoch = self->epoch;
    return epoch_order_at(self, position);
  }
  const struct source_turn turn = source_turn(source, self->epoch * self->count + position);
  assert(turn.count > 0 && turn.before >= 0);
  *epoch = turn.before / turn.count;
  struct epoch_order part;
  epoch_order_set(&part, hash_number(self->seed, turn.first), *epoch, turn.count, self->shuffle);
  return turn.first + epoch_order_at(&part, turn.before % turn.count);
}

int64_t shardrt_order_index(uint64_t seed, int64_t epoch, int64_t count, int64_t position) {
  if (epoch < 0 || position < 0 || position >= count)
    return error_set(SHARDRT_EINVAL, "position %lld of epoch %lld in an order of %lld samples: there is none",
                     (long long)position, (long long)epoch, (long long)count);
  struct epoch_order order;
  epoch_order_set(&order, seed, epoch, count, true);
  return epoch_order_at(&order, position);
}

#include "dataset/order/epoch_order.h"

#include <assert.h>

#include "base/error.h"
#include "base/hash.h"
#include "dataset/order/block_order.h"
#include "dataset/source.h"

/* Below this many bits a round's function takes few values, so more rounds are needed before the permutations are
 * equally likely; their cost does not matter there. */
enum { SMALL_BITS = 14, SMALL_ROUNDS = FEISTEL_MOST_ROUNDS, LARGE_ROUNDS = 6 };

void epoch_order_set(struct epoch_order *self, uint64_t seed, int64_t epoch, int64_t count, bool shuffle) {
  *self = (struct epoch_order){.seed = seed, .epoch = epoch, .count = count, .shuffle = shuffle};
  if (!shuffle || count < 2) return; /* no rounds: everything stays where it is */
  self->rounds = feistel_bits(count) < SMALL_BITS ? SMALL_ROUNDS : LARGE_ROUNDS;
  feistel_draw(seed, epoch, (uint64_t)count, self->rounds, self->keys.key);
}

int64_t epoch_order_at(const struct epoch_order *self, int64_t position) {
  const struct feistel_run run = {.count = self->count, .rounds = self->rounds};
  return feistel_at(&run, &self->keys, position);
}

void epoch_order_many(const struct epoch_order *self, int64_t first, int64_t n, int64_t *samples) {
  const struct feistel_run run = {.count = self->count, .n = n, .rounds = self->rounds};
  for (int64_t i = 0; i < n; i++) samples[i] = first + i;
  if (self->rounds > 0) feistel_many(&run, 1, &self->keys, samples);
}

/* The sample whose turn it is in a mix. */
static int64_t sample_of_turn(const struct epoch_order *self, const struct source_turn *turn, int64_t epoch) {
  struct epoch_order part;
  epoch_order_set(&part, hash_number(self->seed, turn->first), epoch, turn->count, self->shuffle);
  return turn->first + epoch_order_at(&part, turn->before % turn->count);
}

int epoch_order_samples(const struct epoch_order *self, const shardrt_source *source, int64_t first, int64_t n,
                        int64_t *samples, int64_t *epochs) {
  if (self->blocks != NULL) return block_orders_samples(self->blocks, self->epoch, first, n, samples, epochs);
  if (source->mix == NULL) epoch_order_many(self, first, n, samples);
  for (int64_t i = 0; source->mix == NULL && i < n; i++) epochs[i] = self->epoch;
  for (int64_t i = 0; source->mix != NULL && i < n; i++) {
    const struct source_turn turn = source_turn(source, self->epoch * self->count + first + i);
    assert(turn.count > 0 && turn.before >= 0);
    epochs[i] = turn.before / turn.count;
    samples[i] = sample_of_turn(self, &turn, epochs[i]);
  }
  return SHARDRT_OK;
}

int64_t shardrt_order_index(uint64_t seed, int64_t epoch, int64_t count, int64_t position) {
  if (epoch < 0 || position < 0 || position >= count)
    return error_set(SHARDRT_EINVAL, "position %lld of epoch %lld in an order of %lld samples: there is none",
                     (long long)position, (long long)epoch, (long long)count);
  struct epoch_order order;
  epoch_order_set(&order, seed, epoch, count, true);
  return epoch_order_at(&order, position);
}

#include "dataset/megatron/random_state.h"

enum { MIDDLE = 397 }; /* how far the word lies ahead that each one is mixed with */

void random_state_seed(struct random_state *self, uint32_t seed) {
  for (uint32_t i = 0; i < RANDOM_STATE_WORDS; i++) {
    self->key[i] = seed;
    seed = 1812433253u * (seed ^ seed >> 30) + i + 1;
  }
  self->used = RANDOM_STATE_WORDS;
}

/* Every word anew. */
static void turn_key(struct random_state *self) {
  uint32_t *key = self->key;
  for (int32_t i = 0; i < RANDOM_STATE_WORDS; i++) {
    const uint32_t y = (key[i] & 0x80000000u) | (key[(i + 1) % RANDOM_STATE_WORDS] & 0x7fffffffu);
    key[i] = key[(i + MIDDLE) % RANDOM_STATE_WORDS] ^ y >> 1 ^ ((y & 1) != 0 ? 0x9908b0dfu : 0);
  }
  self->used = 0;
}

static uint32_t next_32(struct random_state *self) {
  if (self->used == RANDOM_STATE_WORDS) turn_key(self);
  uint32_t y = self->key[self->used++];
  y ^= y >> 11;
  y ^= y << 7 & 0x9d2c5680u;
  y ^= y << 15 & 0xefc60000u;
  return y ^ y >> 18;
}

static uint64_t next_64(struct random_state *self) {
  const uint64_t high = next_32(self);
  return high << 32 | next_32(self);
}

/* One of 0 … most: draws, masked, until one is in range. */
static uint64_t draw_up_to(struct random_state *self, uint64_t most) {
  if (most == 0) return 0;
  const uint64_t mask = UINT64_MAX >> __builtin_clzll(most);
  uint64_t value;
  do value = (most <= UINT32_MAX ? next_32(self) : next_64(self)) & mask;
  while (value > most);
  return value;
}

void random_state_shuffle_32(struct random_state *self, uint32_t *elements, int64_t count) {
  for (int64_t i = count - 1; i > 0; i--) {
    const uint64_t j = draw_up_to(self, (uint64_t)i);
    const uint32_t kept = elements[j];
    elements[j] = elements[i];
    elements[i] = kept;
  }
}

void random_state_shuffle_64(struct random_state *self, int64_t *elements, int64_t count) {
  for (int64_t i = count - 1; i > 0; i--) {
    const uint64_t j = draw_up_to(self, (uint64_t)i);
    const int64_t kept = elements[j];
    elements[j] = elements[i];
    elements[i] = kept;
  }
}

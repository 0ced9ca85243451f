#include "transform/draw.h"

#include <assert.h>

enum { LANES = 4, PLACE_SHIFT = 24, ROUNDS = 10 };

/* 2^64 by the golden ratio, odd: its multiples lie far apart. */
static const uint64_t EPOCH_STEP = UINT64_C(0x9E3779B97F4A7C15);

/* Philox4x32-10, as Random123 has it: section 4.3 of the paper, with the constants of its table 3 and Weyl's keys. */
static void philox(const uint32_t counter[LANES], uint32_t key_0, uint32_t key_1, uint32_t *out) {
  uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
  for (int round = 0; round < ROUNDS; round++) {
    const uint64_t a = (uint64_t)0xD2511F53 * x0, b = (uint64_t)0xCD9E8D57 * x2;
    x0 = (uint32_t)(b >> 32) ^ x1 ^ key_0;
    x1 = (uint32_t)b;
    x2 = (uint32_t)(a >> 32) ^ x3 ^ key_1;
    x3 = (uint32_t)a;
    key_0 += 0x9E3779B9;
    key_1 += 0xBB67AE85;
  }
  out[0] = x0;
  out[1] = x1;
  out[2] = x2;
  out[3] = x3;
}

void draw_block(const struct draw *self, uint32_t block, uint32_t *bits) {
  assert(block < 1u << 22 && self->place >= 0 && self->place < 1 << (32 - PLACE_SHIFT));
  const uint64_t number = (uint64_t)self->number;
  const uint64_t seed = self->seed + ((uint64_t)self->epoch >> 32) * EPOCH_STEP;
  const uint32_t counter[LANES] = {(uint32_t)number, (uint32_t)(number >> 32), (uint32_t)self->epoch,
                                   (uint32_t)self->place << PLACE_SHIFT | block};
  philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32), bits);
}

uint32_t draw_bits(const struct draw *self, uint32_t i) {
  uint32_t bits[LANES];
  draw_block(self, i / LANES, bits);
  return bits[i % LANES];
}

double draw_uniform(const struct draw *self, uint32_t i) {
  return (draw_bits(self, i) >> 8) * 0x1p-24;
}

int64_t draw_below(const struct draw *self, uint32_t i, int64_t count) {
  assert(count >= 1);
  return (int64_t)((unsigned __int128)draw_bits(self, i) * (uint64_t)count >> 32);
}

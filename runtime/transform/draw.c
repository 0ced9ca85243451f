#include "transform/draw.h"

#include <assert.h>
#include <string.h>

#include <Random123/philox.h>

enum { LANES = 4, PLACE_SHIFT = 24 };

/* 2^64 by the golden ratio, odd: its multiples lie far apart. */
static const uint64_t EPOCH_STEP = UINT64_C(0x9E3779B97F4A7C15);

void draw_block(const struct draw *self, uint32_t block, uint32_t *bits) {
  assert(block < 1u << 22 && self->place >= 0 && self->place < 1 << (32 - PLACE_SHIFT));
  const uint64_t number = (uint64_t)self->number;
  const uint64_t seed = self->seed + ((uint64_t)self->epoch >> 32) * EPOCH_STEP;
  const philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
  const philox4x32_ctr_t counter = {{(uint32_t)number, (uint32_t)(number >> 32), (uint32_t)self->epoch,
                                     (uint32_t)self->place << PLACE_SHIFT | block}};
  const philox4x32_ctr_t drawn = philox4x32(counter, key);
  memcpy(bits, drawn.v, sizeof drawn.v);
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

/* draw.h - the random numbers of one sample in one place of a chain.
 *
 * They come from a counter-based generator, Philox4x32-10 of Random123 (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", 2011), keyed by nothing but (seed, epoch, sample number, place in the chain): the same
 * on every thread, process and topology, and after a restart. Transforms that stand at the same place in the chains of
 * two fields draw the same numbers for a sample, so that an image and its mask are cropped alike.
 *
 * The generator's key is the seed; its counter is the sample's number (64 bits), the epoch (32), the place (8) and the
 * block of four draws (24). An epoch's bits above those 32 change the key: to the seed their number is added,
 * 2^64 / the golden ratio times. */
#ifndef SHARDRT_TRANSFORM_DRAW_H
#define SHARDRT_TRANSFORM_DRAW_H

#include <stdint.h>

struct draw {
  uint64_t seed;
  int64_t epoch;
  int64_t number; /* of the sample, in the files */
  int32_t place;  /* in the chain, from 0; of a map of a map it goes on behind the other's chains */
};
enum { DRAW_PLACES = 256 };

/* What draw_bits gives for 4 * block and the three after it; needs 0 <= block < 2^22. */
void draw_block(const struct draw *self, uint32_t block, uint32_t *bits);
/* The i-th 32 random bits; needs 0 <= i < 2^24. */
uint32_t draw_bits(const struct draw *self, uint32_t i);
/* The i-th number, evenly in [0, 1); 24 bits of it. Shares its bits with draw_bits of the same i. */
double draw_uniform(const struct draw *self, uint32_t i);
/* The i-th whole number, evenly in [0, count); needs count >= 1. Shares its bits with draw_bits of i. */
int64_t draw_below(const struct draw *self, uint32_t i, int64_t count);

#endif

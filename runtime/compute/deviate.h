/* deviate.h - numbers of a wanted distribution from n random words of 32 bits; JAX's formulas
 * (jax/_src/random/core.py). The same on every processor. */
#ifndef SHARDRT_COMPUTE_DEVIATE_H
#define SHARDRT_COMPUTE_DEVIATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number f of 23 bits in [0, 1), and then the larger of low and f * span + low, rounded once: JAX's to the bit. */
void deviate_uniform(const uint32_t *bits, size_t n, float low, float span, float *out);

/* Normals of mean 0 and deviation 1: sqrt(2) * erfinv(u), u even in (-1, 1). Within 3 ulp of JAX's. */
void deviate_normal(const uint32_t *bits, size_t n, float *out);

/* Whether the uniform number in [0, 1) is below `probability`. */
void deviate_bernoulli(const uint32_t *bits, size_t n, float probability, bool *out);

/* Whole numbers from `low` on, below low + span (wrapping), of 64 random bits each; a span of 0 is 2^32. */
void deviate_randint(const uint32_t *high, const uint32_t *bits, size_t n, int32_t low, uint32_t span, int32_t *out);

#endif

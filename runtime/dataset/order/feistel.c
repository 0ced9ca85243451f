// build: -O3
#include "dataset/order/feistel.h"

#include <assert.h>
#include <string.h>

#include "base/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { PIECE = 64 }; /* positions at once, where there are no vectors */

static const uint64_t scramble_factor = 0xd6e8feb86659fd93u;

/* How a count's bits are halved: low_bits and, above them, as many or one more. */
struct halves {
  int32_t low_bits;
  uint64_t low_mask, high_mask; /* of either half, moved down to bit 0 */
  uint64_t high_count;          /* of the upper halves' values that numbers below the count have */
};

static struct halves halves_of(int64_t count) {
  const int32_t bits = feistel_bits(count);
  return (struct halves){.low_bits = bits / 2,
                         .low_mask = (UINT64_C(1) << (bits / 2)) - 1,
                         .high_mask = (UINT64_C(1) << (bits - bits / 2)) - 1,
                         .high_count = (((uint64_t)count - 1) >> (bits / 2)) + 1};
}

/* A product of 64 bits, or of the lower 32 bits of both. */
static inline uint64_t multiply(uint64_t a, uint64_t b, bool brief) {
  return brief ? (uint64_t)(uint32_t)a * (uint32_t)b : a * b;
}

/* A product of one half and a round's key: whose bits around the middle are the best. */
static inline uint64_t scramble(uint64_t half, uint64_t key, bool brief) {
  const uint64_t x = multiply(half ^ key, scramble_factor, brief);
  return multiply(x ^ (x >> 32), key | 1, brief);
}

/* The upper half, changed by a product. Where brief, the values that it has are a circle, and the product's lower 32
 * bits say how far it goes round. */
static inline uint64_t change_high(const struct halves *halves, uint64_t high, uint64_t product, bool brief) {
  if (!brief) return high ^ ((product >> 32) & halves->high_mask);
  high += (uint32_t)product * halves->high_count >> 32;
  return high < halves->high_count ? high : high - halves->high_count;
}

/* Once through a run's network: perhaps not below the count. */
static inline uint64_t pass(const struct halves *halves, const struct feistel_run *run, const struct feistel_keys *keys,
                            uint64_t x) {
  const uint64_t tweak = run->tweak;
  uint64_t low = x & halves->low_mask, high = x >> halves->low_bits;
  for (int32_t r = 0; r < run->rounds; r += 2) {
    high = change_high(halves, high, scramble(low, keys->key[r] ^ tweak, keys->brief), keys->brief);
    low ^= (scramble(high, keys->key[r + 1] ^ tweak, keys->brief) >> 32) & halves->low_mask;
  }
  return high << halves->low_bits | low;
}

int64_t feistel_at(const struct feistel_run *run, const struct feistel_keys *keys, int64_t position) {
  assert(position >= 0 && position < run->count && run->rounds % 2 == 0 && run->rounds <= FEISTEL_MOST_ROUNDS);
  assert(!keys->brief || run->count >> 62 == 0);
  const struct halves halves = halves_of(run->count);
  uint64_t x = (uint64_t)position;
  do x = pass(&halves, run, keys, x);
  while (x >= (uint64_t)run->count);
  return (int64_t)x;
}

/* ---- any processor ----------------------------------------------------------------------------------------------- */

static void run_plain(const struct feistel_run *run, const struct feistel_keys *keys, int64_t *positions) {
  const struct halves halves = halves_of(run->count);
  for (int64_t first = 0; first < run->n; first += PIECE) {
    int64_t *at = positions + first;
    uint8_t left[PIECE]; /* those that are not below the count yet */
    int32_t nleft = (int32_t)(run->n - first < PIECE ? run->n - first : PIECE);
    for (int32_t i = 0; i < nleft; i++) left[i] = (uint8_t)i;
    while (nleft > 0) {
      int32_t over = 0;
      for (int32_t i = 0; i < nleft; i++) {
        const uint8_t own = left[i];
        at[own] = (int64_t)pass(&halves, run, keys, (uint64_t)at[own]);
        left[over] = own;
        over += at[own] >= run->count;
      }
      nleft = over;
    }
  }
}

static void many_plain(const struct feistel_run *runs, int64_t nruns, const struct feistel_keys *keys,
                       int64_t *positions) {
  for (int64_t i = 0; i < nruns; positions += runs[i++].n) run_plain(&runs[i], keys, positions);
}

/* ---- AVX-512 ----------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)

enum {
  LANES = 8,                  /* of a vector */
  VECTORS = 4,                /* at once, so that no multiplication waits for the one before it */
  TOGETHER = VECTORS * LANES, /* positions at once, */
  FEW = 20,                   /* which fewer of one run are not worth */
  WAITING = 2 * TOGETHER      /* positions that there is room for, of several runs */
};

typedef uint64_t vector __attribute__((vector_size(64)));

/* Positions of runs of so many rounds that are not below their count yet: a stack. */
struct feistel_stack {
  int32_t rounds;
  int64_t n;
  uint64_t at[WAITING + LANES], place[WAITING + LANES], count[WAITING + LANES], tweak[WAITING + LANES];
};

SIMD_AVX512 SIMD_INLINE vector all_lanes(uint64_t x) {
  return (vector)_mm512_set1_epi64((long long)x);
}

/* Brief ones are an instruction, the others three. */
SIMD_AVX512 SIMD_INLINE vector multiply_lanes(vector a, vector b, bool brief) {
  return brief ? (vector)_mm512_mul_epu32((__m512i)a, (__m512i)b) : a * b;
}

/* The upper 32 bits as the lower ones; where brief, the upper ones stay: nobody reads them, and a shift waits for the
 * unit that multiplies. */
SIMD_AVX512 SIMD_INLINE vector upper_bits(vector x, bool brief) {
  return brief ? (vector)_mm512_shuffle_epi32((__m512i)x, _MM_PERM_DDBB) : x >> 32;
}

SIMD_AVX512 SIMD_INLINE vector scramble_lanes(vector half, vector key, bool brief) {
  const vector x = multiply_lanes(half ^ key, all_lanes(scramble_factor), brief);
  return multiply_lanes(x ^ upper_bits(x, brief), key | 1, brief);
}

/* `highs` is the upper half's mask; where brief, how many values it has. */
SIMD_AVX512 SIMD_INLINE vector change_lanes(vector high, vector product, vector highs, bool brief) {
  if (!brief) return high ^ ((product >> 32) & highs);
  high += multiply_lanes(product, highs, true) >> 32;
  return (vector)_mm512_min_epu64((__m512i)high, (__m512i)(high - highs)); /* what is below 0 is large */
}

/* Once through the network; `brief` is the keys', and a constant. */
SIMD_AVX512 SIMD_INLINE void pass_rounds(const struct feistel_keys *keys, int32_t rounds, bool brief,
                                         const vector *count, const vector *tweak, vector *x) {
  vector low[VECTORS], high[VECTORS], shift[VECTORS], low_mask[VECTORS], highs[VECTORS];
  for (int32_t v = 0; v < VECTORS; v++) {
    const vector bits = 64 - (vector)_mm512_lzcnt_epi64((__m512i)(count[v] - 1));
    shift[v] = bits >> 1;
    low_mask[v] = (all_lanes(1) << shift[v]) - 1;
    highs[v] = brief ? ((count[v] - 1) >> shift[v]) + 1 : (all_lanes(1) << (bits - shift[v])) - 1;
    low[v] = x[v] & low_mask[v];
    high[v] = x[v] >> shift[v];
  }
  for (int32_t r = 0; r < rounds; r += 2) {
    for (int32_t v = 0; v < VECTORS; v++)
      high[v] = change_lanes(high[v], scramble_lanes(low[v], keys->key[r] ^ tweak[v], brief), highs[v], brief);
    for (int32_t v = 0; v < VECTORS; v++)
      low[v] ^= upper_bits(scramble_lanes(high[v], keys->key[r + 1] ^ tweak[v], brief), brief) & low_mask[v];
  }
  for (int32_t v = 0; v < VECTORS; v++) x[v] = high[v] << shift[v] | low[v];
}

SIMD_AVX512 SIMD_INLINE void pass_lanes(const struct feistel_keys *keys, int32_t rounds, const vector *count,
                                        const vector *tweak, vector *x) {
  if (keys->brief)
    pass_rounds(keys, rounds, true, count, tweak, x);
  else
    pass_rounds(keys, rounds, false, count, tweak, x);
}

/* Puts the lanes of a mask on the stack, which has n: how many it has then. */
SIMD_AVX512 SIMD_INLINE int64_t push(struct feistel_stack *w, int64_t n, __mmask8 mask, vector x, vector place,
                                     vector count, vector tweak) {
  _mm512_storeu_si512(w->at + n, _mm512_maskz_compress_epi64(mask, (__m512i)x));
  _mm512_storeu_si512(w->place + n, _mm512_maskz_compress_epi64(mask, (__m512i)place));
  _mm512_storeu_si512(w->count + n, _mm512_maskz_compress_epi64(mask, (__m512i)count));
  _mm512_storeu_si512(w->tweak + n, _mm512_maskz_compress_epi64(mask, (__m512i)tweak));
  return n + __builtin_popcount(mask);
}

/* As many lanes as are left. */
SIMD_AVX512 SIMD_INLINE __mmask8 first_lanes(int64_t left) {
  return left >= LANES ? 0xff : left > 0 ? (__mmask8)((1 << left) - 1) : 0;
}

/* Takes the uppermost from the stack, as many as go at once, and puts back what is still not below its count. */
SIMD_AVX512 static void walk_lanes(struct feistel_stack *w, const struct feistel_keys *keys, int64_t *positions) {
  const int64_t taken = w->n < TOGETHER ? w->n : TOGETHER;
  int64_t n = w->n - taken;
  vector x[VECTORS], place[VECTORS], count[VECTORS], tweak[VECTORS];
  __mmask8 there[VECTORS];
  for (int32_t v = 0; v < VECTORS; v++) {
    const int64_t at = n + (int64_t)v * LANES;
    there[v] = first_lanes(w->n - at);
    x[v] = (vector)_mm512_maskz_loadu_epi64(there[v], w->at + at);
    place[v] = (vector)_mm512_maskz_loadu_epi64(there[v], w->place + at);
    count[v] = (vector)_mm512_maskz_loadu_epi64(there[v], w->count + at);
    tweak[v] = (vector)_mm512_maskz_loadu_epi64(there[v], w->tweak + at);
  }
  pass_lanes(keys, w->rounds, count, tweak, x);
  for (int32_t v = 0; v < VECTORS; v++) {
    const __mmask8 over = _mm512_mask_cmpge_epu64_mask(there[v], (__m512i)x[v], (__m512i)count[v]);
    _mm512_mask_i64scatter_epi64(positions, there[v] & (__mmask8)~over, (__m512i)place[v], (__m512i)x[v], 8);
    if (over != 0) n = push(w, n, over, x[v], place[v], count[v], tweak[v]);
  }
  w->n = n;
}

/* Of a run, from `start` on: few that are left in the end wait with those of other runs. */
SIMD_AVX512 static void run_lanes(const struct feistel_run *run, int64_t start, const struct feistel_keys *keys,
                                  int64_t *positions, struct feistel_stack *w) {
  const vector lane = {0, 1, 2, 3, 4, 5, 6, 7};
  const vector count = all_lanes((uint64_t)run->count), tweak = all_lanes(run->tweak);
  const vector counts[VECTORS] = {count, count, count, count}, tweaks[VECTORS] = {tweak, tweak, tweak, tweak};
  const int64_t stop = start + run->n;
  int64_t at = start;
  for (; stop - at >= FEW; at += TOGETHER) {
    vector x[VECTORS];
    int64_t n = w->n;
    for (int32_t v = 0; v < VECTORS; v++) {
      const int64_t from = at + (int64_t)v * LANES;
      x[v] = (vector)_mm512_maskz_loadu_epi64(first_lanes(stop - from), positions + from);
    }
    pass_lanes(keys, w->rounds, counts, tweaks, x);
    for (int32_t v = 0; v < VECTORS; v++) {
      const int64_t from = at + (int64_t)v * LANES;
      const __mmask8 there = first_lanes(stop - from);
      _mm512_mask_storeu_epi64(positions + from, there, (__m512i)x[v]);
      const __mmask8 over = _mm512_mask_cmpge_epu64_mask(there, (__m512i)x[v], (__m512i)count);
      if (over != 0) n = push(w, n, over, x[v], lane + (uint64_t)from, count, tweak);
    }
    w->n = n;
    while (w->n >= TOGETHER) walk_lanes(w, keys, positions);
  }
  for (; at < stop; at += LANES) {
    const __mmask8 there = first_lanes(stop - at);
    w->n = push(w, w->n, there, (vector)_mm512_maskz_loadu_epi64(there, positions + at), lane + (uint64_t)at, count,
                tweak);
  }
  while (w->n >= TOGETHER) walk_lanes(w, keys, positions);
}

SIMD_AVX512 static void many_avx512(const struct feistel_run *runs, int64_t nruns, const struct feistel_keys *keys,
                                    int64_t *positions) {
  struct feistel_stack waiting;
  waiting.n = 0;
  int64_t start = 0; /* of the run */
  for (int64_t i = 0; i < nruns; start += runs[i++].n) {
    while (waiting.n > 0 && waiting.rounds != runs[i].rounds) walk_lanes(&waiting, keys, positions);
    waiting.rounds = runs[i].rounds;
    run_lanes(&runs[i], start, keys, positions, &waiting);
  }
  while (waiting.n > 0) walk_lanes(&waiting, keys, positions);
}

#endif

void feistel_many(const struct feistel_run *runs, int64_t nruns, const struct feistel_keys *keys, int64_t *positions) {
#if defined(__x86_64__)
  if (simd_has_avx512()) {
    many_avx512(runs, nruns, keys, positions);
    return;
  }
#endif
  many_plain(runs, nruns, keys, positions);
}

/* scaling.h - elements on their way to others of the same number: converted, and times factors and plus offsets that
 * come again and again. */
#ifndef SHARDRT_TRANSFORM_KIND_SCALING_H
#define SHARDRT_TRANSFORM_KIND_SCALING_H

#include "dataset/value.h"
#include "storage/local/reader.h"

/* How elements share factors: `channels` of them from the first on, each for `trailing` elements in a row, and all of
 * that again and again. */
struct scaling_pattern {
  int64_t first;
  int64_t channels;
  size_t trailing;
};

struct scaling {
  int32_t from;
  int32_t to;
  int32_t lane; /* SHARDRT_FLOAT32 or _FLOAT64; -1: elements are only converted */
  size_t from_size;
  size_t to_size;
  size_t table; /* lanes of factors and offsets; 1: all elements have these */
  char *factors;
  char *offsets;
  size_t run; /* elements in a row that have one of the table's; 0: each has its own */
};

/* From one dtype to another. */
struct scaling scaling_convert(int32_t from, int32_t to);
/* x * (factors[c] / limit) + offsets[c]. In float32 where all numbers of both dtypes are float32's, else in float64.
 * `count` elements are to be scaled. Memory comes from the reader's arena. */
int scaling_set(struct scaling *self, struct reader *reader, int32_t from, int32_t to, const double *factors,
                const double *offsets, double limit, const struct scaling_pattern *pattern, size_t count);

/* Makes packed samples of `count` elements each, the pattern's first one first, at `to`. Those at `from` that lie one
 * behind the other go as one. */
void scaling_run(const struct scaling *self, const void *const *from, void *to, int64_t n, size_t count);

#endif

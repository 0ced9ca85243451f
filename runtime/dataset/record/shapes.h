/* shapes.h - what shapes the arrays in a column of records have, noted as the index is made, behind the column's name:
 * "npy/9:2:-1:3,-1" is dtype 9, two dimensions, no record of another kind, sizes of which the second differs. */
#ifndef SHARDRT_DATASET_RECORD_SHAPES_H
#define SHARDRT_DATASET_RECORD_SHAPES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shardrt.h"

enum { SHAPES_TEXT = 32 * (SHARDRT_MAX_NDIM + 3) };

struct shapes {
  int32_t dtype; /* of the first array; */
  int32_t ndim;
  int64_t shape[SHARDRT_MAX_NDIM]; /* -1: not the same in all */
  int64_t odd;                     /* the first record of another dtype, or number of dimensions; -1: there is none */
  bool is_seen;                    /* there was an array */
};

static inline void shapes_see(struct shapes *self, int64_t record, int32_t dtype, int32_t ndim, const int64_t *shape) {
  if (!self->is_seen) {
    *self = (struct shapes){.dtype = dtype, .ndim = ndim, .odd = -1, .is_seen = true};
    for (int32_t d = 0; d < ndim; d++) self->shape[d] = shape[d];
    return;
  }
  if (dtype != self->dtype || ndim != self->ndim) {
    if (self->odd < 0) self->odd = record;
    return;
  }
  for (int32_t d = 0; d < ndim; d++)
    if (self->shape[d] != shape[d]) self->shape[d] = -1;
}

/* The text behind a column's name; "" where there was no array. */
static inline void shapes_text(const struct shapes *self, char out[SHAPES_TEXT]) {
  int at = 0;
  out[0] = '\0';
  if (!self->is_seen) return;
  at = snprintf(out, SHAPES_TEXT, "%d:%d:%lld:", (int)self->dtype, (int)self->ndim, (long long)self->odd);
  for (int32_t d = 0; d < self->ndim; d++)
    at += snprintf(out + at, SHAPES_TEXT - (size_t)at, "%lld,", (long long)self->shape[d]);
}

/* Reads what stands behind the last slash of a column's name: not seen, where that is no such text. */
static inline struct shapes shapes_read(const char *column) {
  struct shapes found = {.is_seen = true};
  const char *at = strrchr(column, '/');
  char *end = NULL;
  if (at == NULL) return (struct shapes){0};
  const long long dtype = strtoll(at + 1, &end, 10), ndim = *end == ':' ? strtoll(end + 1, &end, 10) : -1;
  const long long odd = *end == ':' ? strtoll(end + 1, &end, 10) : -2;
  if (dtype < 0 || dtype > INT32_MAX || shardrt_dtype_size((int32_t)dtype) == 0 || ndim < 0 ||
      ndim > SHARDRT_MAX_NDIM || odd < -1 || *end != ':')
    return (struct shapes){0};
  found.dtype = (int32_t)dtype;
  found.ndim = (int32_t)ndim;
  found.odd = odd;
  for (int32_t d = 0; d < found.ndim; d++) {
    found.shape[d] = strtoll(end + 1, &end, 10);
    if (found.shape[d] < -1 || *end != ',') return (struct shapes){0};
  }
  return found;
}

/* Whether an array of these shapes may be asked for as `asked` of `ndim` dimensions, in every record. */
static inline bool shapes_fit(const struct shapes *self, int32_t ndim, const int64_t *asked) {
  bool fits = self->odd < 0 && ndim == self->ndim;
  for (int32_t d = 0; d < ndim && fits; d++) fits = asked[d] < 0 || asked[d] == self->shape[d];
  return fits;
}

#endif

/* row_cache.h - rows that are made once, though several threads each cut a part out of them: the parts of a sequence
 * that go to different devices. */
#ifndef SHARDRT_DATASET_VIEW_ROW_CACHE_H
#define SHARDRT_DATASET_VIEW_ROW_CACHE_H

#include "dataset/source.h"

struct row_cache;

struct row_key {
  int64_t row, epoch;
  uint64_t seed;
  int32_t field;
};

/* Makes one whole row of a field, packed, at `dst`. */
typedef int row_cache_fill(const void *context, int64_t row, int32_t field, struct reader *reader, void *dst);

/* Rows of the first `nfields` of these fields, which live as long. */
int row_cache_new(row_cache_fill *fill, const void *context, const shardrt_field *fields, int32_t nfields,
                  struct row_cache **out);
void row_cache_free(struct row_cache *self);

/* The row, which stays until it is given back: one that was made already, or is now, by this thread or another one that
 * this one waits for. NULL: it could not be made, it took too long, or too many are in use. */
const void *row_cache_take(struct row_cache *self, const struct row_key *key, struct reader *reader);
void row_cache_give(struct row_cache *self, const void *row);

#endif

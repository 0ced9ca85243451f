/* gather.h - the hot path: boxes out of many samples that lie one after the other. */
#ifndef SHARDRT_DATASET_GATHER_H
#define SHARDRT_DATASET_GATHER_H

#include "shardrt.h"
#include "storage/local/extents.h"
#include "storage/stored.h"

/* How to copy one box of a sample: in runs of run_bytes each, the innermost loop over run_count runs that are
 * run_step bytes apart, the outer ones over nouter counts and steps, the slowest first. */
struct gather_plan {
  size_t sample_bytes; /* from one sample to the next */
  size_t box_bytes;    /* of the packed box */
  size_t offset;       /* of the box's first byte in its sample */
  size_t run_bytes;    /* as long as the shapes allow */
  int64_t run_count;
  size_t run_step;
  int32_t nouter;
  int64_t counts[SHARDRT_MAX_NDIM];
  size_t steps[SHARDRT_MAX_NDIM];
};

/* `inner` lies in the field's shape, and count * sample bytes fit in size_t. */
struct gather_plan gather_plan_make(const shardrt_field *field, const shardrt_box *inner, size_t element_bytes);

/* Packs the boxes of n samples of `data` into dst; past the caches, if they are large and in one piece. */
void gather_run(const struct gather_plan *plan, const uint8_t *data, const int64_t *samples, int64_t n,
                bool past_caches, void *dst);

/* The same of samples that lie in a file from byte `first` on, which may be on a server. What stored_read fails with.
 */
int gather_read(const struct gather_plan *plan, const struct stored *file, size_t first, const int64_t *samples,
                int64_t n, struct reader *reader, void *dst);

/* Whether what those boxes hold in a mapped file, from byte `first` on, is what it was: as guard_check. */
int gather_check(const struct gather_plan *plan, struct guard *guard, const char *title, size_t first,
                 const int64_t *samples, int64_t n);

/* Where those boxes are in the file whose bytes from `first` on are `data`: added to `out`. ENOMEM. */
int gather_extents(const struct gather_plan *plan, const struct mapping *file, size_t first, const int64_t *samples,
                   int64_t n, struct extents *out);

/* Turns the bytes of n elements around, in place. */
void gather_swap(void *data, size_t n, size_t element_bytes);

/* Whether n bytes are bools, 0 or 1, all of them. */
bool gather_are_bools(const void *data, size_t n);

/* Makes bools of n bytes, in place: any byte but 0 is true, as it is to numpy. A file may hold others than 1. */
void gather_bools(void *data, size_t n);

#endif

/* box_runs.h - the hot path: one box out of each of many samples that lie one after the other, as runs of bytes: in
 * memory they are copied, in files read, checked, or noted to be read ahead. */
#ifndef SHARDRT_DATASET_BOX_RUNS_H
#define SHARDRT_DATASET_BOX_RUNS_H

#include "shardrt.h"
#include "storage/local/extents.h"
#include "storage/stored.h"

/* Where one box of a sample lies: runs of run_bytes each, the innermost loop over run_count of them that are run_step
 * bytes apart, the outer ones over nouter counts and steps, the slowest first. */
struct box_runs {
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
struct box_runs box_runs_of(const shardrt_field *field, const shardrt_box *inner, size_t element_bytes);

/* Packs the boxes of n samples of `data` into dst; past the caches, if they are large and in one piece. */
void box_runs_copy(const struct box_runs *runs, const uint8_t *data, const int64_t *samples, int64_t n,
                   bool past_caches, void *dst);

/* The same of samples that lie in a file from byte `first` on, which may be on a server. What stored_read fails with.
 */
int box_runs_read(const struct box_runs *runs, const struct stored *file, size_t first, const int64_t *samples,
                  int64_t n, struct reader *reader, void *dst);

/* Whether what those boxes hold in a mapped file, from byte `first` on, is what it was: as guard_check. */
int box_runs_check(const struct box_runs *runs, struct guard *guard, const char *title, size_t first,
                   const int64_t *samples, int64_t n);

/* Where those boxes are in the file whose bytes from `first` on are `data`: added to `out`. ENOMEM. */
int box_runs_extents(const struct box_runs *runs, const struct mapping *file, size_t first, const int64_t *samples,
                     int64_t n, struct extents *out);

#endif

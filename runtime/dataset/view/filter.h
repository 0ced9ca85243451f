/* filter.h - a view of those samples of a source that count, whatever says so. */
#ifndef SHARDRT_DATASET_VIEW_FILTER_H
#define SHARDRT_DATASET_VIEW_FILTER_H

#include "dataset/view/view.h"

enum { FILTER_WORD = 64 /* samples that are looked at together: a bit each */ };

/* Sets bit i of *word where sample first + i of `looked` counts, for each of `count` samples, FILTER_WORD at most. */
typedef int filter_look(const shardrt_source *looked, const void *context, struct reader *reader, int64_t first,
                        int64_t count, uint64_t *word);

/* Why a sample does not count. */
struct filter_reason {
  int64_t sample; /* of the base */
  char text[504];
};

/* Bit i % 64 of words[i / 64] tells whether sample i of the base counts; before[b] is how many of the blocks before b
 * do, and before[nblocks] is count. Under planning there are neither: all count, and how many the base has costs
 * nothing. */
struct filter {
  struct view view;
  uint64_t *words; /* NULL: all samples count */
  int64_t *before;
  int64_t nblocks;
  uint64_t hash;                 /* of the words */
  int32_t kind;                  /* what this is in shardrt_source_data */
  int64_t pruned;                /* samples of the base that were not looked at, as statistics rule them out */
  struct filter_reason *reasons; /* owned; NULL: nobody asked */
  int64_t nreasons;
};

/* Makes the filter of `source` that `look` on `looked`, as many samples, comes to, all processes together; `what` is
 * for messages. What fails in one process fails in all. */
int filter_make(shardrt_job *job, const char *what, int32_t kind, filter_look *look, const void *context,
                shardrt_source *source, const shardrt_source *looked, struct filter **out);

/* The source that the filter is of. */
static inline shardrt_source *filter_base(const struct filter *self) {
  return self->view.head.bases[0];
}

/* Of a source that is a filter; NULL: it is none. */
const struct filter *filter_of(const shardrt_source *source);

#endif

/* concat.h - sources with equal fields, one after the other, as one. What a concatenation and a mix have in common. */
#ifndef SHARDRT_DATASET_VIEW_CONCAT_H
#define SHARDRT_DATASET_VIEW_CONCAT_H

#include "dataset/view/view.h"

/* Samples firsts[p] … firsts[p + 1] are those of base p. A base's samples keep their numbers, with the room that the
 * bases before it take added, so that no two samples of the whole have one number. The field that it computes is the
 * number of the base, int32. */
struct concat_source {
  struct view view;
  int64_t *firsts;       /* nbases + 1 */
  int64_t *first_blocks; /* the same of blocks */
};

/* Makes one of a kind, whose struct has `bytes` bytes and begins with a concat_source, of its parts, each of which gets
 * a count more. `what` begins the messages; `label` (NULL: none) names a field that tells which part a sample is of.
 * EINVAL: no parts, fields that differ, a mix where `mixes` is false; EOVERFLOW. */
int concat_make(const struct source_format *format, size_t bytes, const char *what, int32_t nparts,
                shardrt_source *const *parts, const char *label, bool mixes, struct concat_source **out);

/* A kind's functions, beside VIEW_FUNCTIONS. */
int64_t concat_translate(const shardrt_source *source, const int64_t *samples, int64_t n, int32_t *base,
                         int64_t *translated);
void concat_compute(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n, void *dst);
uint64_t concat_fingerprint(const shardrt_source *source);
uint64_t concat_transform_hash(const shardrt_source *source);
int64_t concat_block_count(const shardrt_source *source);
struct sample_range concat_block(const shardrt_source *source, int64_t block);
void concat_close(shardrt_source *source);

/* Fills a new source of a format, whose samples are one file's; after a failure the caller frees it. */
typedef int concat_open(shardrt_source *source, const char *path, int32_t nfields, const shardrt_field *fields,
                        const shardrt_source_options *options);
/* What a format's `open_files` does, given how it opens one file, and how many bytes at the end of it that looks at
 * first (0: it begins at the beginning): one file's samples come after the other's. A source of one file has `bytes`
 * bytes, the format's own struct. */
enum { CONCAT_TAIL = 1 << 16 };
int concat_files(const struct source_format *format, size_t bytes, concat_open *open, size_t tail, int32_t npaths,
                 const char *const *paths, int32_t nfields, const shardrt_field *fields,
                 const shardrt_source_options *options, shardrt_source **out);

#endif

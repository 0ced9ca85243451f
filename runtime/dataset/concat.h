/* concat.h - sources with equal fields, one after the other, as one. What a concatenation and a mix have in common. */
#ifndef SHARDRT_DATASET_CONCAT_H
#define SHARDRT_DATASET_CONCAT_H

#include "dataset/source.h"

/* Samples firsts[p] … firsts[p + 1] are those of part p. A part's samples keep their numbers, with the room that the
 * parts before it take added, so that no two samples of the whole have one number. */
typedef struct concat_source {
  shardrt_source head;
  int32_t nparts;
  shardrt_source **parts; /* counts; the first one's fields name those of the whole */
  int64_t *firsts;        /* nparts + 1 */
  int64_t *numbers;       /* what is added to the numbers of each part's samples */
  int32_t *fields;        /* field f of the whole is field fields[p * nshared + f] of part p */
  int32_t nshared;        /* fields that the parts have; one more may be the number of the part, int32 */
} concat_source;

/* Fills a zeroed source, which was made by source_new, from its parts, each of which gets a count more. `what` begins
 * the messages; `label` (NULL: none) names a field that tells which part a sample is of. EINVAL: no parts, fields that
 * differ, a mix where `mixes` is false; EOVERFLOW. What it leaves after a failure is given back by concat_close. */
int concat_fill(concat_source *self, const char *what, int32_t nparts, shardrt_source *const *parts, const char *label,
                bool mixes);

/* A format's functions. */
int concat_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                  const shardrt_box *inner, struct reader *reader, void *dst);
int concat_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                   const shardrt_box *inner, struct extents *out);
int concat_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader, struct value *out,
                 bool *handled);
const void *concat_find(const shardrt_source *source, int32_t field, int64_t sample, size_t first, size_t bytes);
uint64_t concat_fingerprint(const shardrt_source *source);
void concat_selection_hash(const shardrt_source *source, uint64_t *hashes);
uint64_t concat_transform_hash(const shardrt_source *source);
int concat_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code);
int64_t concat_number(const shardrt_source *source, int64_t sample);
size_t concat_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner);
int32_t concat_parts(const shardrt_source *source, shardrt_source *const **parts);
int32_t concat_file_count(const shardrt_source *source);
const char *concat_file_name(const shardrt_source *source, int32_t file);
uint64_t concat_file_fingerprint(const shardrt_source *source, int32_t file);
void concat_close(shardrt_source *source);

/* The samples of one or more files, one file's after the other's, given how a format opens one: its open_files. */
typedef int concat_open(const char *path, int32_t nfields, const shardrt_field *fields,
                        const shardrt_source_options *options, shardrt_source **out);
int concat_files(concat_open *open, int32_t npaths, const char *const *paths, int32_t nfields,
                 const shardrt_field *fields, const shardrt_source_options *options, shardrt_source **out);

#endif

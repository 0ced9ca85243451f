/* records.h - sources whose samples lie in one or more files of records, each with an index: what the formats tfrecord,
 * tar, csv and their like have in common. A format says how a file is scanned and what a record means. */
#ifndef SHARDRT_DATASET_RECORD_RECORDS_H
#define SHARDRT_DATASET_RECORD_RECORDS_H

#include "dataset/index_file.h"
#include "dataset/source.h"

struct record_file {
  struct stored stored;
  struct index_file index;
  int64_t first;       /* the number of its first sample among those of all files, */
  int64_t first_block; /* and of its first run of samples; see records_settle */
};

/* A format's own struct begins with this one. */
struct records {
  shardrt_source base;
  int32_t nfiles;
  struct record_file *files;
  bool verify;
  bool skips; /* damage that is found when an index is made is noted, and no failure */
};

/* Opens all files, unpacked where they are compressed, and their indexes, and counts the samples; the fields are the
 * format's to make. `bytes` is the size of the format's own struct, which is zeroed but for the head. What the scan
 * fails with. */
int records_open(const struct source_format *format, size_t bytes, int32_t npaths, const char *const *paths,
                 const shardrt_source_options *options, const char *kind, index_scan *scan, const void *context,
                 struct records **out);

/* Numbers the samples of a file that was opened behind those of the files before it, and its runs. */
void records_settle(struct records *self, struct record_file *file);

/* The file of a sample, and its row in it. */
const struct record_file *records_find(const struct records *self, int64_t sample, int64_t *row);

/* The bytes of one part of a sample, found to be what they were. `column` counts in its file's index. */
int records_get(const struct records *self, int64_t sample, int32_t column, struct reader *reader, const uint8_t **out,
                size_t *bytes);

/* The same, of the first sample whose part is not damaged, where one is: what tells of fields. There is a sample. */
int records_first(const struct records *self, int32_t column, struct reader *reader, int64_t *sample,
                  const uint8_t **out, size_t *bytes);

/* Where one part of each of n samples lies: what a format's `extents` adds. ENOMEM. */
int records_extents(const struct records *self, int32_t column, const int64_t *samples, int64_t n, struct extents *out);

/* Prefixes the message of a failure with the file, the record and its offset. */
int records_error_context(const struct records *self, int64_t sample, int32_t column, int code);

/* The shape of a sample of `elements` elements in all: the field's, where one size of -1 is what the others leave.
 * EFORMAT: they are not of that shape. */
int records_shape(const shardrt_field *field, int64_t elements, int64_t *shape);
/* Gives a value elements that lie in memory: where they are, or, where they are not aligned, a copy in the arena. */
int records_place(struct value *out, const uint8_t *data, struct reader *reader);
/* The value whose elements these bytes are, as in records_shape and records_place. EFORMAT: they are not of the field's
 * shape and dtype. */
int records_elements(const shardrt_field *field, const uint8_t *data, size_t bytes, struct reader *reader,
                     struct value *out);

/* Blocks are runs of samples of one file. */
int64_t records_block_count(const shardrt_source *source);
struct sample_range records_block(const shardrt_source *source, int64_t block);
#define RECORDS_BLOCKS                                                                                                 \
  .block_count = records_block_count, .block = records_block, .blocks_kept = source_runs_kept, .keeps_together = true

/* A format's functions; its own `close` ends with records_close. */
int records_source_error_context(const shardrt_source *source, int32_t field, int64_t sample,
                                 int code); /* of one column */
/* Files and fields; each field's name is freed. */
void records_close(shardrt_source *source);

#endif

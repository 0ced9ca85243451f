/* records.h - sources whose samples lie in one or more files of records, each with an index: what the formats tfrecord,
 * tar, csv and their like have in common. A format says how a file is scanned and what a record means. */
#ifndef SHARDRT_DATASET_RECORD_RECORDS_H
#define SHARDRT_DATASET_RECORD_RECORDS_H

#include "dataset/index_file.h"
#include "dataset/record/shapes.h"
#include "dataset/source.h"

/* A file that is open. */
struct opened_file {
  struct stored stored;
  struct index_file index;
  int32_t *places; /* the format's own, freed with it; see tar.c */
};

/* What is known of a file, open or not. */
struct record_file {
  char *path, *title; /* owned; the title is for messages */
  size_t bytes;
  int64_t changed; /* as of struct stored */
  int64_t rows;
  uint32_t crc;                         /* of its index: another one when it is another file */
  bool unseen;                          /* nobody has opened it: its bytes and rows are what another file tells */
  int64_t first;                        /* the number of its first sample among those of all files, */
  int64_t first_block;                  /* and of its first run of samples */
  _Atomic(struct opened_file *) opened; /* NULL: another process opened it; records_opened opens it here. Owned */
};

struct records;

/* How a format opens its files. What it points to lives as long as the source. */
struct record_opener {
  const char *kind; /* as in index_file_open, */
  index_scan *scan; /* and these two */
  const void *context;
  /* Opens file i; *out is zeroed, and closed after a failure. NULL: records_open_file does. Any thread. */
  int (*open)(const struct records *self, int32_t i, struct reader *reader, struct opened_file *out);
  /* NULL, or looks at file i when the source is opened, in one of the processes: a failure is the source's. File 0 is
   * open by then. Any thread. */
  int (*check)(const struct records *self, int32_t i, const struct opened_file *file);
  /* NULL, or notes which shapes file i has of arrays, in `narrays` items that are zeroed: for array_fields.h,
   * in every process. Any thread. */
  void (*see)(const struct records *self, int32_t i, const struct opened_file *file, struct shapes *out);
};

/* A format's own struct begins with this one. */
struct records {
  shardrt_source base;
  int32_t nfiles;
  struct record_file *files;
  bool verify;
  bool skips;                     /* damage that is found when an index is made is noted, and no failure */
  shardrt_source_options options; /* their cache is the source's own; nothing else that they point to is kept */
  struct record_opener opener;
  int32_t narrays;     /* what the opener's `see` tells of; set before records_go_on */
  struct shapes *seen; /* of array a in file i: seen[i * narrays + a] */
};

/* Opens all files and their indexes, and counts the samples; the fields are the format's to make. Of many files each
 * process of the options' job opens a share and tells the others. `self` is new, by source_new. What `open` and `check`
 * fail with. */
int records_open(struct records *self, int32_t npaths, const char *const *paths, const shardrt_source_options *options,
                 const struct record_opener *opener);
/* The same in two steps: the first opens file 0 only. `code` is what came of the first, and of what stands between. */
int records_begin(struct records *self, int32_t npaths, const char *const *paths, const shardrt_source_options *options,
                  const struct record_opener *opener);
int records_go_on(struct records *self, int code);

/* For a format that first reads in another file which files there are, and could not: `code` says so. The others, who
 * may be opening these together, hear of it. Returns `code`, or what the others failed with. */
int records_refuse(struct records *self, const shardrt_source_options *options, int code);

/* What another file tells of one, as index.json does of a shard. */
struct record_file_known {
  size_t bytes; /* as struct stored has them, once it is open */
  int64_t rows;
  uint64_t fingerprint;
};
/* As records_open, of files on a server of which all this is known: none is opened before it is first read. */
int records_open_known(struct records *self, int32_t npaths, const char *const *paths,
                       const shardrt_source_options *options, const struct record_opener *opener,
                       const struct record_file_known *known);

/* Opens a file, unpacked where it is compressed, and its index, which the scan makes if need be. */
int records_open_file(const struct records *self, int32_t i, struct reader *reader, struct opened_file *out);

/* For records_opened. */
int records_open_late(const struct records *self, const struct record_file *file, struct reader *reader,
                      const struct opened_file **out);
/* The file, which is opened if it is not yet. The reader's connections are used; NULL: some of its own. EIO: it cannot
 * be, or is not the file that it was when the source was opened. Any thread. */
static inline int records_opened(const struct records *self, const struct record_file *file, struct reader *reader,
                                 const struct opened_file **out) {
  *out = atomic_load_explicit(&file->opened, memory_order_acquire);
  return *out != NULL ? SHARDRT_OK : records_open_late(self, file, reader, out);
}
/* File 0, which is open. */
static inline const struct opened_file *records_first_file(const struct records *self) {
  return atomic_load_explicit(&self->files[0].opened, memory_order_acquire);
}

/* The file of a sample, and its row in it. */
const struct record_file *records_find(const struct records *self, int64_t sample, int64_t *row);

/* What the index has of one part of a sample, for who has read of its file; NULL: that is not open. */
const struct index_entry *records_entry(const struct records *self, int64_t sample, int32_t column);

/* The bytes of one part of a sample, found to be what they were. `column` counts in its file's index. */
int records_get(const struct records *self, int64_t sample, int32_t column, struct reader *reader, const uint8_t **out,
                size_t *bytes);

/* The same, of the first sample whose part is not damaged, where one is: what tells of fields. There is a sample. */
int records_first(const struct records *self, int32_t column, struct reader *reader, int64_t *sample,
                  const uint8_t **out, size_t *bytes);

/* Where one part of each of n samples lies: what a format's `extents` adds; of files that cannot be opened nothing.
 * ENOMEM. */
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

/* blocks.h - arrays that lie in one piece each in a file without checksums of its own, as those of .safetensors and
 * .npz files do: the file's index has the CRC-32C of each block of every array, as many rows as make 2 KiB, so that a
 * small row costs little to check; one row; or, of larger rows, 64 KiB, so that a part of one can be read without the
 * rest. A block is checked whenever something in it is read. */
#ifndef SHARDRT_DATASET_ARRAY_BLOCKS_H
#define SHARDRT_DATASET_ARRAY_BLOCKS_H

#include "dataset/index_file.h"
#include "dataset/source.h"

struct blocks {
  struct stored file;
  struct index_file index; /* of one column; empty unless `verify` */
  bool verify;
};

/* An array in it. */
struct blocks_part {
  const char *name; /* for messages */
  size_t offset;    /* in the file */
  size_t block;     /* bytes of one */
  int64_t first;    /* row of its first block in the index */
};

/* The head of a source of such arrays, one file each. */
struct blocks_source {
  shardrt_source base;
  struct blocks blocks;
  struct blocks_part *parts; /* of each field; owned */
};

/* Makes room for as many fields. EFORMAT: they are too many. */
int blocks_make_room(struct blocks_source *self, int64_t count);
/* Adds a field for an array, whose first dimension counts the samples; its part and its name are still to be set.
 * EINVAL: it has no dimension, or another number of samples than the fields before it; EOVERFLOW. */
int blocks_add_field(struct blocks_source *self, const char *array, int32_t dtype, int32_t ndim, const int64_t *shape);
/* EINVAL: the array is not of the dtype and shape that were asked for. */
int blocks_check_asked(const struct blocks_source *self, const shardrt_field *asked, int32_t dtype, int32_t ndim,
                       const int64_t *shape);

/* The bytes of a block of an array of `rows` rows, and how many blocks there are. */
size_t blocks_size(int64_t rows, size_t bytes);
int64_t blocks_count(size_t bytes, size_t block);

/* For an index_scan: a row for each block of `bytes` bytes from `offset` on. */
int blocks_add(const struct stored *file, size_t offset, size_t bytes, size_t block, struct reader *arena,
               struct index_writer *writer);

/* A format's gather, value and extents, for a field that is this array; its first dimension counts the samples. */
int blocks_gather(const struct blocks *self, const struct blocks_part *part, const shardrt_field *field,
                  const int64_t *samples, int64_t n, const shardrt_box *inner, struct reader *reader, void *dst);
int blocks_value(const struct blocks *self, const struct blocks_part *part, const shardrt_field *field, int64_t sample,
                 struct reader *reader, struct value *out, bool *handled);
int blocks_extents(const struct blocks *self, const struct blocks_part *part, const shardrt_field *field,
                   const int64_t *samples, int64_t n, const shardrt_box *inner, struct extents *out);

#endif

/* arrow.h - an open Arrow file or stream: its columns as fields. */
#ifndef SHARDRT_DATASET_ARROW_ARROW_H
#define SHARDRT_DATASET_ARROW_ARROW_H

#include "dataset/arrow/contents.h"
#include "dataset/column/fields.h"

/* A dictionary batch that a field's values may be of. */
struct arrow_use {
  int64_t before; /* which record batch is the first one that it counts for */
  int64_t number; /* among the file's */
};

struct arrow_field {
  struct column column; /* what values become */
  int32_t leaf;
  bool has_list;
  bool is_bytes;            /* of any number */
  struct arrow_leaf values; /* of its dictionary, if it has one */
  int64_t nuses;
  struct arrow_use *uses;
  size_t bytes; /* in the file */
};

struct arrow {
  shardrt_source base;
  struct stored file;
  uint64_t owner; /* in the cache of pages */
  struct arrow_contents contents;
  struct arrow_field *fields;
  int32_t *leaves; /* of each field */
  bool is_packed;  /* some record batch is compressed: then those are the source's blocks */
  int32_t widest;  /* the field with most bytes */
  int64_t nblocks;
  int64_t *block_firsts; /* the rows that they begin at */
  char **nulls;          /* of fields, in text; owned */
};

/* Makes the fields that are asked for, or all; the message is the end of a sentence about the file. */
int arrow_fields_make(struct arrow *self, int32_t nasked, const shardrt_field *asked,
                      const shardrt_source_options *options);

/* Which record batch a row is in, and a field's part of one. */
int64_t arrow_batch_of(const struct arrow *self, int64_t row);
static inline const struct arrow_part *arrow_part_of(const struct arrow *self, int64_t batch, int32_t field) {
  return &self->contents.parts[batch * self->base.nfields + field];
}

/* As those of a source_format. */
int arrow_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                 const shardrt_box *inner, struct reader *reader, void *dst);
int arrow_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader, struct value *out,
                bool *handled);
int arrow_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                  const shardrt_box *inner, struct extents *out);

#endif

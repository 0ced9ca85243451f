/* arrow.h - an open Arrow file or stream: its columns as fields. */
#ifndef SHARDRT_DATASET_ARROW_ARROW_H
#define SHARDRT_DATASET_ARROW_ARROW_H

#include "dataset/arrow/contents.h"
#include "dataset/source.h"

/* A dictionary batch that a field's values may be of. */
struct arrow_use {
  int64_t before; /* which record batch is the first one that it counts for */
  int64_t number; /* among the file's */
};

struct arrow_field {
  struct parquet_column column; /* what values become */
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

#endif

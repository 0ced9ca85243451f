/* leaf.h - a column of a table, as Parquet says what it is; Arrow's columns are said in the same words. */
#ifndef SHARDRT_DATASET_COLUMN_LEAF_H
#define SHARDRT_DATASET_COLUMN_LEAF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a value is stored. The numbers are those of the files. */
enum parquet_type {
  PARQUET_BOOLEAN,
  PARQUET_INT32,
  PARQUET_INT64,
  PARQUET_INT96,
  PARQUET_FLOAT,
  PARQUET_DOUBLE,
  PARQUET_BYTE_ARRAY,
  PARQUET_FIXED /* bytes of a length */
};

/* What is more than its type. */
enum parquet_logical { PARQUET_NONE, PARQUET_TEXT, PARQUET_DECIMAL, PARQUET_INTEGER, PARQUET_FLOAT16 };

struct column_leaf {
  char *name;
  enum parquet_type type;
  int32_t length;     /* of PARQUET_FIXED */
  int32_t definition; /* the level of a value that is there, … */
  int32_t repetition; /* … and how many lists it is in */
  int32_t repeated;   /* the definition level from which on the (innermost) list has an element */
  enum parquet_logical logical;
  int32_t scale; /* of a decimal */
  int32_t bits;  /* of a whole number */
  bool is_unsigned;
  bool is_ordered; /* the format says which of two values is less */
};

/* The columns of a file, each of which is a part of something that is `stride` bytes large. */
struct column_leaves {
  const struct column_leaf *first;
  size_t stride;
  int32_t count;
};

static inline const struct column_leaf *column_leaves_at(const struct column_leaves *self, int32_t number) {
  return (const struct column_leaf *)(const void *)((const char *)self->first + (size_t)number * self->stride);
}

#endif

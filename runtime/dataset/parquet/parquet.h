/* parquet.h - an open Parquet file: its columns as fields. */
#ifndef SHARDRT_DATASET_PARQUET_PARQUET_H
#define SHARDRT_DATASET_PARQUET_PARQUET_H

#include "dataset/column/fields.h"
#include "dataset/column/page.h"
#include "dataset/parquet/units.h"
#include "dataset/source.h"

struct parquet_field {
  struct column column;
  int32_t leaf;
  struct parquet_units units;
  int64_t number; /* of its first unit, in the cache of pages */
};

struct parquet {
  shardrt_source base;
  struct stored file;
  struct index_file index; /* the side-car of pages; empty where the file has offset indexes */
  bool verify;
  bool leaves_nulls_out; /* rows that have a null without a value are never read */
  uint64_t owner;        /* in the cache of pages */
  struct parquet_footer footer;
  struct parquet_field *fields;
  int32_t widest;        /* the field with most bytes, whose units are the source's blocks; */
  int64_t nblocks;       /* planning, without an offset index: row groups are */
  int64_t *block_firsts; /* the rows that they begin at */
  char **nulls;          /* of fields, in text; owned */
};

/* The page that a row is in, decoded, and the row's place in it; it stays until this reader asks for another page of
 * the field. `*first` is its first row. EFORMAT: it is damaged; the message names file, column and page. */
int parquet_page_get(const struct parquet *self, int32_t field, int64_t row, struct reader *reader,
                     const struct column_page **out, int64_t *first);
/* The same, if this reader has it still: until it asks for another page. Else NULL. */
const struct column_page *parquet_page_held(const struct parquet *self, int32_t field, int64_t row,
                                            struct reader *reader, int64_t *first);

/* As source_prune. */
int parquet_prune(const shardrt_source *source, int32_t field, const struct condition *condition, struct pruned *out);

/* Which of a field's units a row is in. */
int64_t parquet_unit_of(const struct parquet_field *field, int64_t row);

#endif

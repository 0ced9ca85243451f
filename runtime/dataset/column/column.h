/* column.h - how a column's values become a field's elements. */
#ifndef SHARDRT_DATASET_COLUMN_COLUMN_H
#define SHARDRT_DATASET_COLUMN_COLUMN_H

#include "dataset/column/leaf.h"
#include "shardrt.h"

/* What is done to a value. */
enum column_kind {
  COLUMN_SAME,    /* nothing: an element, or the bytes of some, lie in the file as they are */
  COLUMN_BYTES,   /* nothing: bytes, of any number */
  COLUMN_BIT,     /* one becomes a byte */
  COLUMN_WHOLE,   /* a whole number, of `from`, gets another dtype that it fits in */
  COLUMN_REAL,    /* a float gets a wider dtype */
  COLUMN_DECIMAL, /* becomes the float64 nearest to it; refused where its digits are too many for that */
  COLUMN_INT96    /* an old timestamp becomes nanoseconds since 1970 */
};

/* What becomes of nulls. */
enum column_nulls {
  COLUMN_NULL_ERROR, /* a row that has one cannot be read */
  COLUMN_NULL_VALUE, /* a value takes its place, an empty list that of a list */
  COLUMN_NULL_TELL   /* all that is read is whether a row has none */
};

struct column {
  const struct column_leaf *leaf; /* borrowed */
  enum column_kind kind;
  int32_t from;   /* dtype, of COLUMN_WHOLE and COLUMN_REAL */
  int32_t dtype;  /* of the elements; */
  size_t stored;  /* bytes of a value in the file, unless COLUMN_BYTES or COLUMN_BIT; */
  size_t element; /* of what one becomes */
  enum column_nulls nulls;
  uint8_t null[8];       /* the value that takes a null's place, or */
  const char *null_text; /* of bytes: that; borrowed */
};

/* Which column a field is: number of the leaf. EINVAL: there is none; the message says which there are. */
int column_find(const struct column_leaves *leaves, const char *name, int32_t *leaf);
/* Works out a column and its field (but for the name), as they are asked for (NULL: as the file has them). `null`:
 * NULL, or what takes the place of nulls, in text. `tells`: the field says of each row whether it has no null. EINVAL:
 * it cannot be read so; the message is the end of a sentence about the file. */
int column_make(const struct column_leaf *leaf, const shardrt_field *asked, const char *null, bool tells,
                struct column *out, shardrt_field *field);
/* Converts n values of a kind that is not COLUMN_SAME, COLUMN_BYTES or COLUMN_BIT; decimals may be bytes of any number,
 * then `lengths` are theirs. EFORMAT: one does not fit. */
int column_convert(const struct column *self, const uint8_t *values, int64_t n, void *out);
int column_decimal(const struct column *self, const uint8_t *bytes, size_t length, double *out);

#endif

/* thrift.h - what Thrift's compact protocol wrote, as the metadata of Parquet files is:
 * https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
 *
 * A cursor over bytes in memory. Whatever is malformed or cut off sets `failed`, after which everything reads as zero
 * and every structure and list is over; so a parser looks once, in the end. */
#ifndef SHARDRT_DATASET_PARQUET_METADATA_THRIFT_H
#define SHARDRT_DATASET_PARQUET_METADATA_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum thrift_type {
  THRIFT_TRUE = 1,
  THRIFT_FALSE,
  THRIFT_I8,
  THRIFT_I16,
  THRIFT_I32,
  THRIFT_I64,
  THRIFT_DOUBLE,
  THRIFT_BINARY,
  THRIFT_LIST,
  THRIFT_SET,
  THRIFT_MAP,
  THRIFT_STRUCT
};

struct thrift {
  const uint8_t *at, *end;
  bool failed;
};

/* A field of a structure, whose value is to be read or skipped before the next. */
struct thrift_field {
  int32_t id;   /* 0 before the first */
  int32_t type; /* of thrift_type */
};

/* Goes to the structure's next field; false: it has no more. */
bool thrift_next(struct thrift *self, struct thrift_field *field);
void thrift_skip(struct thrift *self, int32_t type);
/* The value of a field, which must be of that kind. */
int64_t thrift_whole(struct thrift *self, const struct thrift_field *field);
bool thrift_bool(struct thrift *self, const struct thrift_field *field);
const uint8_t *thrift_bytes(struct thrift *self, const struct thrift_field *field, size_t *bytes);
/* How many elements follow, which are of `type` (a list of booleans: THRIFT_TRUE). */
int64_t thrift_list(struct thrift *self, const struct thrift_field *field, int32_t type);
/* One element of such a list of whole numbers, of texts or of booleans. */
int64_t thrift_whole_element(struct thrift *self);
const uint8_t *thrift_bytes_element(struct thrift *self, size_t *bytes);
bool thrift_bool_element(struct thrift *self);

#endif

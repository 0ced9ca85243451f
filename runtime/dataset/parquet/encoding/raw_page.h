/* raw_page.h - a page as it lies in the file: read, compared with its checksum, decompressed, and cut into levels and
 * values. */
#ifndef SHARDRT_DATASET_PARQUET_ENCODING_RAW_PAGE_H
#define SHARDRT_DATASET_PARQUET_ENCODING_RAW_PAGE_H

#include "dataset/column/page.h"
#include "dataset/parquet/metadata/footer.h"
#include "dataset/parquet/metadata/page_header.h"

enum parquet_encoding {
  ENCODING_PLAIN = 0,
  ENCODING_PLAIN_DICTIONARY = 2,
  ENCODING_RLE = 3,
  ENCODING_BIT_PACKED = 4,
  ENCODING_DELTA_BINARY_PACKED = 5,
  ENCODING_DELTA_LENGTH_BYTE_ARRAY = 6,
  ENCODING_DELTA_BYTE_ARRAY = 7,
  ENCODING_RLE_DICTIONARY = 8,
  ENCODING_BYTE_STREAM_SPLIT = 9
};

/* Where a page lies, and what it is known by. */
struct raw_place {
  const struct stored *file;
  const struct column_leaf *leaf;
  const struct parquet_chunk *chunk;
  size_t offset, bytes; /* the page's, or that of some pages, or all that may be its */
  bool verify;          /* its own checksum is looked at */
};

struct raw_page {
  struct page_header header;
  const uint8_t *repetition, *definition, *values;
  size_t repetition_bytes, definition_bytes, values_bytes;
  bool stays;  /* the values lie where they do as long as `keeper`, or the source */
  void *piece; /* of `keeper`, that they lie in; or NULL */
};

/* Whether the values of a page are wanted where they lie: then they stay. */
typedef bool raw_page_keeps(const void *context, int32_t encoding);

/* Reads the page that begins there. Memory is the keeper's where `keeps` (NULL: never) says so, else the arena's.
 * EFORMAT: it is damaged; the message is the end of a sentence about the page. EINVAL: its codec or encoding is none
 * that this shardrt reads. ENOMEM. */
int raw_page_read(const struct raw_place *place, raw_page_keeps *keeps, const void *context, struct column_page *keeper,
                  struct reader *reader, struct raw_page *out);

/* The levels of a data page, in the arena: NULL where all values are there, or none is in a list. */
int raw_page_levels(const struct raw_place *place, const struct raw_page *self, struct reader *reader,
                    const uint8_t **definition, const uint8_t **repetition);

/* Puts in front of the message of a failure which file, column and page it is about; returns the code. */
int raw_page_error(const struct raw_place *place, int code);

#endif

/* page_header.h - what stands before each page of a column. */
#ifndef SHARDRT_DATASET_PARQUET_METADATA_PAGE_HEADER_H
#define SHARDRT_DATASET_PARQUET_METADATA_PAGE_HEADER_H

#include "storage/stored.h"

enum page_kind { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_2 };

struct page_header {
  int32_t kind;
  size_t head;     /* its own bytes */
  size_t bytes;    /* of the page behind it */
  size_t unpacked; /* of that without compression */
  bool has_crc;
  uint32_t crc; /* CRC-32 of these bytes */
  int64_t values;
  int32_t encoding, definition_encoding, repetition_encoding;
  int64_t rows;                              /* of PAGE_DATA_2 */
  size_t definition_bytes, repetition_bytes; /* the same */
  bool is_compressed;
};

/* Reads the header of a page that lies in `bytes` bytes from `offset` on. EFORMAT: it is malformed, or the page is
 * longer; the message is the end of a sentence about the page. */
int page_header_read(const struct stored *file, size_t offset, size_t bytes, struct reader *arena,
                     struct page_header *out);

#endif

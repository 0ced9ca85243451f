/* delta.h - whole numbers by what each differs from the one before it, in blocks of few bits.
 * https://parquet.apache.org/docs/file-format/data-pages/encodings/ (DELTA_BINARY_PACKED) */
#ifndef SHARDRT_DATASET_PARQUET_ENCODING_DELTA_H
#define SHARDRT_DATASET_PARQUET_ENCODING_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many values there are; -1: malformed. */
int64_t delta_count(const uint8_t *data, size_t bytes);
/* Writes the first n, as numbers of 4 or 8 bytes that wrap around, and says how many bytes all of them took. False:
 * malformed, cut off, or fewer than n. */
bool delta_decode(const uint8_t *data, size_t bytes, int64_t n, int32_t width, void *out, size_t *taken);

#endif

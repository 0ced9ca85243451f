/* hybrid.h - whole numbers of few bits, packed side by side or as runs of one value: levels, and places in a
 * dictionary. https://parquet.apache.org/docs/file-format/data-pages/encodings/ (RLE/bit-packing hybrid) */
#ifndef SHARDRT_DATASET_PARQUET_ENCODING_HYBRID_H
#define SHARDRT_DATASET_PARQUET_ENCODING_HYBRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HYBRID_PIECE = 512 /* values that are unpacked at once */ };

struct hybrid {
  const uint8_t *at, *end;
  int32_t width; /* bits of a value, up to 32 */
};

/* Some values that follow one another. */
struct hybrid_run {
  int64_t count;
  const uint32_t *values; /* NULL: all are */
  uint32_t value;
};

/* A walk's next values, at most `wanted`, and no more than HYBRID_PIECE of those that are packed. */
struct hybrid_walk {
  struct hybrid in;
  int64_t left; /* values of the run at hand */
  bool packed;
  uint32_t value; /* of those that are not packed */
  uint32_t room[HYBRID_PIECE];
};
void hybrid_begin(const uint8_t *data, size_t bytes, int32_t width, struct hybrid_walk *out);
/* False: what was written is malformed or cut off. */
bool hybrid_next(struct hybrid_walk *walk, int64_t wanted, struct hybrid_run *out);

/* Unpacks n values of `width` bits, 0 to 64, lowest bit first, which lie in (n * width + 7) / 8 bytes. */
void bits_unpack(const uint8_t *data, int32_t width, int64_t n, uint32_t *out);
void bits_unpack_wide(const uint8_t *data, int32_t width, int64_t n, uint64_t *out);

/* Levels of at most `most`, as bytes. *same: all are `most`, and out was left alone. False: malformed. */
bool hybrid_levels(const uint8_t *data, size_t bytes, int32_t most, int64_t n, uint8_t *out, bool *same);

/* Bits that a level of at most `most` takes. */
static inline int32_t hybrid_width(int32_t most) {
  int32_t width = 0;
  while (most >> width != 0) width++;
  return width;
}

#endif

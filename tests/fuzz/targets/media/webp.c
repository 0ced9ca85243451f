/* webp.c - a WebP image, as the header of the file, of the stream or of the moving picture tells its size. */
#include <string.h>

#include "../../fuzz.h"

static uint32_t read_bits(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* 0 x 0 where it is none of the three. */
static void find_size(const uint8_t *data, size_t size, uint64_t *height, uint64_t *width) {
  enum { HEAD = 30, FIRST = 12, SIDE = 0x3fff, CANVAS = 0xffffff };
  *height = *width = 0;
  if (size < HEAD) return;
  if (memcmp(data + FIRST, "VP8X", 4) == 0) {
    *width = (read_bits(data + 24) & CANVAS) + 1;
    *height = (read_bits(data + 26) >> 8) + 1;
  } else if (memcmp(data + FIRST, "VP8L", 4) == 0) {
    *width = (read_bits(data + 21) & SIDE) + 1;
    *height = (read_bits(data + 21) >> 14 & SIDE) + 1;
  } else if (memcmp(data + FIRST, "VP8 ", 4) == 0) {
    *width = read_bits(data + 26) & SIDE;
    *height = read_bits(data + 26) >> 16 & SIDE;
  }
}

void fuzz_webp(const uint8_t *data, size_t size) {
  uint64_t height, width;
  find_size(data, size, &height, &width);
  fuzz_image(data, size, height, width);
}

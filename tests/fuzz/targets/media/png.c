/* png.c - a PNG image: the input as it is, and with the checksums of all its chunks put right. */
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "../../fuzz.h"

enum { SIGNATURE = 8, HEAD = 8, TAIL = 4, WIDTH_AT = 16, HEIGHT_AT = 20, IHDR_END = 24 };

static uint32_t read_big(const uint8_t *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void repair(uint8_t *data, size_t size) {
  size_t at = SIGNATURE;
  while (size >= at + HEAD + TAIL && read_big(data + at) <= size - at - HEAD - TAIL) {
    const size_t length = read_big(data + at), end = at + HEAD + length;
    const uint32_t crc = (uint32_t)crc32(0, data + at + TAIL, (uInt)(length + TAIL));
    for (size_t i = 0; i < TAIL; i++) data[end + i] = (uint8_t)(crc >> (24 - 8 * i));
    at = end + TAIL;
  }
}

void fuzz_png(const uint8_t *data, size_t size) {
  uint8_t *copy = fuzz_copy(data, size);
  repair(copy, size);
  const uint64_t width = size >= IHDR_END ? read_big(data + WIDTH_AT) : 0;
  const uint64_t height = size >= IHDR_END ? read_big(data + HEIGHT_AT) : 0;
  fuzz_image(data, size, height, width);
  if (memcmp(copy, data, size) != 0) fuzz_image(copy, size, height, width);
  free(copy);
}

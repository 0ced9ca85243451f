/* jpeg.c - a JPEG image. */
#include "../../fuzz.h"

static uint32_t read_16(const uint8_t *at) {
  return (uint32_t)at[0] << 8 | at[1];
}

/* Goes from marker to marker up to the one that tells of the size; 0 x 0 where there is none. */
static void find_size(const uint8_t *data, size_t size, uint64_t *height, uint64_t *width) {
  enum { SEGMENT = 9, FIRST_SOF = 0xc0, LAST_SOF = 0xc3 };
  *height = *width = 0;
  for (size_t at = 2; at + SEGMENT <= size;) {
    if (data[at] != 0xff) {
      at++;
    } else if (data[at + 1] >= FIRST_SOF && data[at + 1] <= LAST_SOF) {
      *height = read_16(data + at + 5);
      *width = read_16(data + at + 7);
      return;
    } else {
      at += data[at + 1] == 0xff ? 1 : 2 + read_16(data + at + 2);
    }
  }
}

void fuzz_jpeg(const uint8_t *data, size_t size) {
  uint64_t height, width;
  find_size(data, size, &height, &width);
  fuzz_image(data, size, height, width);
}

/* jpeg.c - a JPEG image. */
#include "fuzz.h"

void fuzz_jpeg(const uint8_t *data, size_t size) {
  fuzz_image(data, size);
}

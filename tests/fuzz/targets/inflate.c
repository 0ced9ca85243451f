/* inflate.c - zlib's and gzip's data that is decoded in one piece; the first byte says into how much room. */
#include "codec/inflate.h"

#include <stdlib.h>

#include "../fuzz.h"

void fuzz_inflate(const uint8_t *data, size_t size) {
  if (size == 0) return;
  struct reader reader = {0};
  const size_t room = (size_t)data[0] * 64;
  uint8_t *dst = malloc(room + 1);
  size_t bytes = 0;
  if (dst == NULL) fuzz_fault("out of memory");
  for (int32_t i = 0; i < 2; i++) { /* the thread's decoder is used again */
    int code = inflate_into(data + 1, size - 1, dst, room, &reader, &bytes);
    fuzz_check(code);
    if (code == SHARDRT_OK && bytes > room) fuzz_fault("more bytes than there is room for");
  }
  free(dst);
  reader_clear(&reader);
}

/* host.c - the platform whose device memory is the process's own. */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "device/device.h"

/* A row of a constant size compiles to one move, where a call of memcpy for every element would cost far more. */
#define COPY_ROWS(bytes)                                                                                               \
  for (size_t row = 0; row < rows; row++) memcpy(to + row * dst_pitch, from + row * src_pitch, bytes)

static void host_copy(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t row_bytes, size_t rows) {
  uint8_t *to = dst;
  const uint8_t *from = src;
  switch (row_bytes) {
  case 1:
    COPY_ROWS(1);
    break;
  case 2:
    COPY_ROWS(2);
    break;
  case 4:
    COPY_ROWS(4);
    break;
  case 8:
    COPY_ROWS(8);
    break;
  case 16:
    COPY_ROWS(16);
    break;
  default:
    COPY_ROWS(row_bytes);
    break;
  }
}

const device_platform device_host = {
    .name = "host",
    .allocate = alloc_aligned,
    .free = alloc_free,
    .copy = host_copy,
};

/* host.c - the platform whose device memory is the process's own. */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "platform/device.h"
#include "system/cache_stream.h"
#include "system/huge_pages.h"

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

static void host_stream(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t row_bytes, size_t rows) {
  if (row_bytes < CACHE_STREAM_LEAST) {
    host_copy(dst, dst_pitch, src, src_pitch, row_bytes, rows);
    return;
  }
  for (size_t row = 0; row < rows; row++)
    cache_stream((uint8_t *)dst + row * dst_pitch, (const uint8_t *)src + row * src_pitch, row_bytes);
  cache_stream_end(); /* whoever is told that this is done sees it */
}

const struct device_platform device_host = {
    .name = "host",
    .allocate = huge_alloc, /* the faults of fresh memory cost more than the copy that fills it */
    .free = alloc_free,
    .copy = host_copy,
    .stream = host_stream,
};

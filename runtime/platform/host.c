/* host.c - the platform whose device memory is the process's own. */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "platform/device.h"
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

#ifdef __SSE2__
#include <emmintrin.h>
enum { LINE = 64 };

/* Stores that do not first fetch the line which they fill: a third less traffic. `to` begins a line. */
static void stream_lines(uint8_t *to, const uint8_t *from, size_t lines) {
  for (size_t i = 0; i < lines; i++, to += LINE, from += LINE) {
    __m128i a = _mm_loadu_si128((const __m128i *)from), b = _mm_loadu_si128((const __m128i *)(from + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(from + 32)), d = _mm_loadu_si128((const __m128i *)(from + 48));
    _mm_stream_si128((__m128i *)to, a);
    _mm_stream_si128((__m128i *)(to + 16), b);
    _mm_stream_si128((__m128i *)(to + 32), c);
    _mm_stream_si128((__m128i *)(to + 48), d);
  }
}

static void host_stream(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t row_bytes, size_t rows) {
  if (row_bytes < 4 * LINE) {
    host_copy(dst, dst_pitch, src, src_pitch, row_bytes, rows);
    return;
  }
  for (size_t row = 0; row < rows; row++) {
    uint8_t *to = (uint8_t *)dst + row * dst_pitch;
    const uint8_t *from = (const uint8_t *)src + row * src_pitch;
    size_t head = -(uintptr_t)to % LINE, lines = (row_bytes - head) / LINE, done = head + lines * LINE;
    memcpy(to, from, head);
    stream_lines(to + head, from + head, lines);
    memcpy(to + done, from + done, row_bytes - done);
  }
  _mm_sfence(); /* whoever is told that this is done sees it */
}
#else
#define host_stream host_copy
#endif

const struct device_platform device_host = {
    .name = "host",
    .allocate = huge_alloc, /* the faults of fresh memory cost more than the copy that fills it */
    .free = alloc_free,
    .copy = host_copy,
    .stream = host_stream,
};

#include "dataset/elements.h"

#include <assert.h>
#include <string.h>

#include "memory/strides.h"

void elements_swap(void *data, size_t n, size_t element_bytes) {
  uint8_t *bytes = data;
  if (element_bytes == 2) {
    for (size_t i = 0; i < n; i++, bytes += 2) {
      uint16_t value;
      memcpy(&value, bytes, 2);
      value = __builtin_bswap16(value);
      memcpy(bytes, &value, 2);
    }
  } else if (element_bytes == 4) {
    for (size_t i = 0; i < n; i++, bytes += 4) {
      uint32_t value;
      memcpy(&value, bytes, 4);
      value = __builtin_bswap32(value);
      memcpy(bytes, &value, 4);
    }
  } else if (element_bytes == 8) {
    for (size_t i = 0; i < n; i++, bytes += 8) {
      uint64_t value;
      memcpy(&value, bytes, 8);
      value = __builtin_bswap64(value);
      memcpy(bytes, &value, 8);
    }
  }
}

bool elements_are_bools(const void *data, size_t n) {
  const uint8_t *bytes = data;
  const uint64_t others = ~(uint64_t)0x0101010101010101;
  uint64_t word = 0;
  size_t i = 0;
  for (; i + sizeof word <= n; i += sizeof word) {
    memcpy(&word, bytes + i, sizeof word);
    if ((word & others) != 0) return false;
  }
  for (; i < n; i++)
    if (bytes[i] > 1) return false;
  return true;
}

void elements_make_bools(void *data, size_t n) {
  uint8_t *bytes = data;
  if (elements_are_bools(data, n)) return;
  for (size_t i = 0; i < n; i++) bytes[i] = bytes[i] != 0;
}

struct elements elements_of_npy(const struct npy_header *header, const void *data) {
  return (struct elements){.dtype = header->dtype,
                           .ndim = header->ndim,
                           .shape = header->shape,
                           .data = data,
                           .fortran = header->fortran,
                           .big_endian = header->big_endian};
}

/* The box out of an array in Fortran's order: its last index, the fastest in C's, is the innermost loop. */
static void turn_box(const struct elements *all, const int64_t *start, const int64_t *extent, void *to) {
  const size_t size = shardrt_dtype_size(all->dtype);
  struct strides loops = {0};
  size_t steps[SHARDRT_MAX_NDIM] = {0}, step = 1, first = 0;
  for (int32_t d = 0; d < all->ndim; d++) {
    steps[d] = step;
    first += (size_t)start[d] * step;
    step *= (size_t)all->shape[d];
  }
  for (int32_t d = all->ndim - 1; d >= 0; d--) strides_add(&loops, (size_t)extent[d], steps[d]);
  strides_copy(&loops, size, (const char *)all->data + first * size, to);
}

void elements_box(const struct elements *all, const int64_t *start, const int64_t *extent, void *to) {
  static const int64_t zero[SHARDRT_MAX_NDIM] = {0};
  const size_t size = shardrt_dtype_size(all->dtype);
  size_t count = 1;
  if (start == NULL) start = zero;
  if (extent == NULL) extent = all->shape;
  for (int32_t d = 0; d < all->ndim; d++) count *= (size_t)extent[d];
  if (count == 0) return;
  if (all->fortran) {
    turn_box(all, start, extent, to);
  } else {
    int code = shardrt_box_copy(all->ndim, size, extent, to, extent, zero, all->data, all->shape, start);
    assert(code == SHARDRT_OK);
    (void)code;
  }
  if (all->big_endian) elements_swap(to, count, size);
  if (all->dtype == SHARDRT_BOOL) elements_make_bools(to, count);
}

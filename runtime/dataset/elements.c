#include "dataset/elements.h"

#include <stdint.h>
#include <string.h>

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

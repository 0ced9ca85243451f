/* tar.c - an archive of samples: the input as it is, and with the checksums of all headers put right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../fuzz.h"

enum { BLOCK = 512, SIZE_AT = 124, SIZE_DIGITS = 11, SUM_AT = 148, SUM_BYTES = 8 };

static void put_sum(uint8_t *header) {
  char digits[SUM_BYTES + 1];
  uint32_t sum = 0;
  memset(header + SUM_AT, ' ', SUM_BYTES);
  for (int32_t i = 0; i < BLOCK; i++) sum += header[i];
  snprintf(digits, sizeof digits, "%06o", sum);
  memcpy(header + SUM_AT, digits, SUM_BYTES - 1);
}

static size_t read_size(const uint8_t *header) {
  char digits[SIZE_DIGITS + 1] = {0};
  memcpy(digits, header + SIZE_AT, SIZE_DIGITS);
  return strtoul(digits, NULL, 8);
}

static void repair(uint8_t *data, size_t size) {
  static const uint8_t zeros[BLOCK];
  for (size_t at = 0; size >= BLOCK && at <= size - BLOCK;) {
    uint8_t *header = data + at;
    const size_t blocks = read_size(header) / BLOCK + (read_size(header) % BLOCK != 0);
    if (memcmp(header, zeros, BLOCK) != 0) put_sum(header);
    if (blocks > size / BLOCK) return;
    at += (1 + blocks) * BLOCK;
  }
}

void fuzz_tar(const uint8_t *data, size_t size) {
  uint8_t *copy = fuzz_copy(data, size);
  repair(copy, size);
  fuzz_open_files("tar", fuzz_write("as-it-is.tar", data, size), NULL);
  fuzz_open_files("tar", fuzz_write("repaired.tar", copy, size), NULL);
  free(copy);
}

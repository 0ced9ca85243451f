/* npz.c - numpy's archives of arrays: the input as it is, and with the CRC-32 of all members put right. */
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "../../fuzz.h"

enum { LOCAL = 30, ENTRY = 46, END = 22, DEFLATED = 8, RAW = -15, CONTENTS_AT_MOST = 1 << 16 };

/* Little-endian numbers of a zip archive: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT */
static uint32_t read_16(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static uint32_t read_32(const uint8_t *at) {
  return read_16(at) | read_16(at + 2) << 16;
}

/* Of what `bytes` bytes hold, once they are no longer compressed. */
static uint32_t sum_of(const uint8_t *data, size_t bytes, uint32_t method) {
  static uint8_t contents[CONTENTS_AT_MOST];
  z_stream stream = {
      .next_in = (Bytef *)data, .avail_in = (uInt)bytes, .next_out = contents, .avail_out = CONTENTS_AT_MOST};
  if (method != DEFLATED) return (uint32_t)crc32(0, data, (uInt)bytes);
  if (inflateInit2(&stream, RAW) != Z_OK) fuzz_fault("out of memory");
  inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  return (uint32_t)crc32(0, contents, (uInt)stream.total_out);
}

/* One entry of the directory, and the header that stands before its member. */
static void repair_entry(uint8_t *data, size_t size, uint8_t *entry) {
  const size_t local = read_32(entry + 42), bytes = read_32(entry + 20);
  if (local > size || size - local < LOCAL) return;
  const size_t start = local + LOCAL + read_16(data + local + 26) + read_16(data + local + 28);
  if (start > size || bytes > size - start) return;
  const uint32_t sum = sum_of(data + start, bytes, read_16(entry + 10));
  for (size_t i = 0; i < sizeof sum; i++) entry[16 + i] = data[local + 14 + i] = (uint8_t)(sum >> 8 * i);
}

static void repair(uint8_t *data, size_t size) {
  if (size < END || memcmp(data + size - END, "PK\5\6", 4) != 0) return;
  size_t at = read_32(data + size - END + 16);
  while (at < size && size - at >= ENTRY && memcmp(data + at, "PK\1\2", 4) == 0) {
    uint8_t *entry = data + at;
    at += ENTRY + read_16(entry + 28) + read_16(entry + 30) + read_16(entry + 32);
    repair_entry(data, size, entry);
  }
}

void fuzz_npz(const uint8_t *data, size_t size) {
  uint8_t *copy = fuzz_copy(data, size);
  repair(copy, size);
  fuzz_open_both("npz", fuzz_write("as-it-is.npz", data, size));
  if (memcmp(copy, data, size) != 0) fuzz_open_both("npz", fuzz_write("repaired.npz", copy, size));
  free(copy);
}

/* array_record.c - an ArrayRecord file. Its last 64 KiB, mostly zeros, hold little, so the input is: what stands before
 * them, and what they begin with; zeros are put behind either. It is read as it is, and with all hashes put right. */
#include <stdlib.h>
#include <string.h>

#include <highwayhash/c_bindings.h>

#include "../../fuzz.h"
#include "codec/riegeli.h"

enum { BLOCK = RIEGELI_BLOCK, BLOCK_HEADER = 24, CHUNK_HEADER = 40, MOST_BLOCKS = 4 };

static uint64_t hash(const uint8_t *data, size_t bytes) {
  static const HHKey key = {0x2f696c6567656952, 0x0a7364726f636572, 0x2f696c6567656952, 0x0a7364726f636572};
  return HighwayHash64(key, (const char *)data, bytes);
}

static void put(uint8_t *at, uint64_t value) {
  memcpy(at, &value, sizeof value);
}

/* Behind `bytes` bytes of a chunk, with the headers of blocks that interrupt them. */
static size_t behind(size_t at, size_t bytes) {
  while (bytes > 0) {
    if (at % BLOCK == 0) at += BLOCK_HEADER;
    const size_t room = BLOCK - at % BLOCK, piece = bytes < room ? bytes : room;
    at += piece;
    bytes -= piece;
  }
  return at;
}

/* The hash of a chunk's data, whose pieces are put together for it. */
static uint64_t data_hash(const uint8_t *data, size_t at, size_t bytes) {
  uint8_t *copy = malloc(bytes + 1), *to = copy;
  if (copy == NULL) fuzz_fault("out of memory");
  for (size_t left = bytes; left > 0;) {
    if (at % BLOCK == 0) at += BLOCK_HEADER;
    const size_t room = BLOCK - at % BLOCK, piece = left < room ? left : room;
    memcpy(to, data + at, piece);
    to += piece;
    at += piece;
    left -= piece;
  }
  const uint64_t found = hash(copy, bytes);
  free(copy);
  return found;
}

/* Headers of blocks that interrupt the chunk of begin … end. */
static void put_blocks(uint8_t *data, size_t begin, size_t end) {
  for (size_t at = (begin + BLOCK - 1) / BLOCK * BLOCK; at < end; at += BLOCK) {
    put(data + at + 8, at - begin);
    put(data + at + 16, end - at);
    put(data + at, hash(data + at + 8, BLOCK_HEADER - 8));
  }
}

static void repair(uint8_t *data, size_t size) {
  size_t begin = 0;
  while (begin < size) {
    const size_t header = begin % BLOCK == 0 ? begin + BLOCK_HEADER : begin;
    uint64_t bytes;
    if (size - header < CHUNK_HEADER || BLOCK - header % BLOCK < CHUNK_HEADER) return;
    memcpy(&bytes, data + header + 8, sizeof bytes);
    const size_t end = bytes < size ? behind(header + CHUNK_HEADER, bytes) : size + 1;
    if (end <= size) put(data + header + 16, data_hash(data, header + CHUNK_HEADER, bytes));
    put(data + header, hash(data + header + 8, CHUNK_HEADER - 8));
    put_blocks(data, begin, end <= size ? end : header);
    if (end > size && size - begin <= BLOCK) return;
    begin = end <= size ? end : size - BLOCK; /* the postscript is found without what stands before it */
  }
}

void fuzz_array_record(const uint8_t *data, size_t size) {
  enum { PARTS = 2 };
  struct fuzz_part parts[PARTS] = {{NULL, 0}};
  fuzz_split(data, size, parts, PARTS);
  const size_t blocks = (parts[0].size + BLOCK - 1) / BLOCK;
  if (blocks > MOST_BLOCKS || parts[1].size > BLOCK) return;
  const size_t bytes = (blocks + 1) * BLOCK;
  uint8_t *file = calloc(bytes, 1);
  if (file == NULL) fuzz_fault("out of memory");
  memcpy(file, parts[0].data, parts[0].size);
  memcpy(file + blocks * BLOCK, parts[1].data, parts[1].size);
  fuzz_open_files("array_record", fuzz_write("as-it-is.array_record", file, bytes), NULL);
  repair(file, bytes);
  fuzz_open_files("array_record", fuzz_write("repaired.array_record", file, bytes), NULL);
  free(file);
}

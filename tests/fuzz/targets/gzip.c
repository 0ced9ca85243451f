/* gzip.c - a gzipped IDX file: the input as it is, and, so that the checksum is right, the input compressed. */
#include <stdlib.h>

#include <zlib.h>

#include "../fuzz.h"

void fuzz_gzip(const uint8_t *data, size_t size) {
  enum { GZIP = 15 + 16, ROOM = 64 };
  z_stream stream = {.next_in = (Bytef *)data, .avail_in = (uInt)size};
  fuzz_open("idx", fuzz_write("x.gz", data, size), NULL);
  if (deflateInit2(&stream, 1, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) != Z_OK) fuzz_fault("out of memory");
  const size_t room = deflateBound(&stream, (uLong)size) + ROOM;
  uint8_t *packed = malloc(room);
  if (packed == NULL) fuzz_fault("out of memory");
  stream.next_out = packed;
  stream.avail_out = (uInt)room;
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) fuzz_fault("what was to be compressed was not");
  fuzz_open("idx", fuzz_write("y.gz", packed, room - stream.avail_out), NULL);
  deflateEnd(&stream);
  free(packed);
}

/* arrow.c - a table: the input as it is, as the end of a file whose footer it tells of, and as a stream, whose messages
 * are as long as the input has room for. */
#include <stdlib.h>
#include <string.h>

#include "../../fuzz.h"

enum { MAGIC = 6, LENGTH = 4, HEAD = 8 };

/* The mutated bytes mostly lose the frame: what begins and ends the file is put right. */
static void repair_file(uint8_t *data, size_t size) {
  if (size < HEAD + LENGTH + MAGIC) return;
  memcpy(data, "ARROW1\0\0", HEAD);
  memcpy(data + size - MAGIC, "ARROW1", MAGIC);
  uint32_t footer;
  memcpy(&footer, data + size - MAGIC - LENGTH, LENGTH);
  footer %= (uint32_t)(size - HEAD - LENGTH - MAGIC + 1);
  memcpy(data + size - MAGIC - LENGTH, &footer, LENGTH);
}

/* It begins with a message, and ends with a stream's end. */
static void repair_stream(uint8_t *data, size_t size) {
  if (size < 4 * HEAD) return;
  uint32_t length;
  memset(data, 0xff, LENGTH);
  memcpy(&length, data + LENGTH, LENGTH);
  length %= (uint32_t)(size - 2 * HEAD);
  memcpy(data + LENGTH, &length, LENGTH);
  memset(data + size - HEAD, 0xff, LENGTH);
  memset(data + size - LENGTH, 0, LENGTH);
}

void fuzz_arrow(const uint8_t *data, size_t size) {
  uint8_t *copy = fuzz_copy(data, size);
  const shardrt_source_options tells = {.tells_nulls = 1};
  fuzz_open_both("arrow", fuzz_write("as-it-is.arrow", data, size));
  repair_file(copy, size);
  const char *file = fuzz_write("file.arrow", copy, size);
  fuzz_open_both("arrow", file);
  fuzz_open_files("arrow", file, &tells);
  if (size > 0) memcpy(copy, data, size);
  repair_stream(copy, size);
  const char *stream = fuzz_write("stream.arrow", copy, size);
  fuzz_open_both("arrow", stream);
  fuzz_open_files("arrow", stream, &tells);
  free(copy);
}

/* parquet.c - a table: the input as it is, and as the end of a file whose footer it tells of. */
#include <stdlib.h>
#include <string.h>

#include "../fuzz.h"

/* The mutated bytes mostly lose the frame: what begins and ends the file is put right. */
static void repair(uint8_t *data, size_t size) {
  enum { MAGIC = 4, LENGTH = 4 };
  if (size < 3 * MAGIC) return;
  memcpy(data, "PAR1", MAGIC);
  memcpy(data + size - MAGIC, "PAR1", MAGIC);
  uint32_t footer;
  memcpy(&footer, data + size - MAGIC - LENGTH, LENGTH);
  footer %= (uint32_t)(size - 2 * MAGIC - LENGTH + 1);
  memcpy(data + size - MAGIC - LENGTH, &footer, LENGTH);
}

void fuzz_parquet(const uint8_t *data, size_t size) {
  uint8_t *copy = fuzz_copy(data, size);
  const shardrt_source_options tells = {.tells_nulls = 1};
  repair(copy, size);
  fuzz_open_both("parquet", fuzz_write("as-it-is.parquet", data, size));
  const char *repaired = fuzz_write("repaired.parquet", copy, size);
  fuzz_open_both("parquet", repaired);
  fuzz_open_files("parquet", repaired, &tells);
  free(copy);
}

/* csv.c - a table in text: with a header, and with none and semicolons. */
#include "../../fuzz.h"

void fuzz_csv(const uint8_t *data, size_t size) {
  const shardrt_source_options other = {.delimiter = ';', .no_header = 1};
  const char *path = fuzz_write("x.csv", data, size);
  fuzz_open_files("csv", path, NULL);
  fuzz_open_files("csv", path, &other);
}

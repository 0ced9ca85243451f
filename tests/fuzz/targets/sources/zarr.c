/* zarr.c - an array's folder: its metadata, then a chunk, which stands for all of them. */
#include <stdio.h>
#include <string.h>

#include "../../fuzz.h"

void fuzz_zarr(const uint8_t *data, size_t size) {
  static const char *const chunks[] = {"c/0/0/0", "c/1/0/0", "0", "0.0", "0.0.0", "1.0.0"};
  enum { PARTS = 2, PATH = 128 };
  struct fuzz_part parts[PARTS] = {{NULL, 0}};
  char name[PATH];
  const int32_t n = fuzz_split(data, size, parts, PARTS);
  const bool third = memmem(parts[0].data, parts[0].size, "node_type", strlen("node_type")) != NULL;
  fuzz_write(third ? "zarr/zarr.json" : "zarr/.zarray", parts[0].data, parts[0].size);
  for (size_t i = 0; n > 1 && i < sizeof chunks / sizeof *chunks; i++) {
    if ((chunks[i][0] == 'c') != third) continue;
    snprintf(name, sizeof name, "zarr/%s", chunks[i]);
    fuzz_write(name, parts[1].data, parts[1].size);
  }
  snprintf(name, sizeof name, "%s/zarr", fuzz_folder());
  fuzz_open("zarr", name, NULL);
}

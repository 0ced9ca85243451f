/* mds.c - a folder of MDS: index.json, then the first shard as it is, then compressed. */
#include <stdio.h>

#include "../../fuzz.h"

void fuzz_mds(const uint8_t *data, size_t size) {
  static const char *const names[] = {"mds/index.json", "mds/shard.00000.mds", "mds/shard.00000.mds.zstd"};
  enum { FILES = sizeof names / sizeof *names, PATH = 128 };
  struct fuzz_part parts[FILES] = {{NULL, 0}};
  char folder[PATH];
  fuzz_split(data, size, parts, FILES);
  for (int32_t i = 0; i < FILES; i++)
    if (i == 0 || parts[i].size > 0) fuzz_write(names[i], parts[i].data, parts[i].size);
  snprintf(folder, sizeof folder, "%s/mds", fuzz_folder());
  fuzz_open_both("mds", folder);
}

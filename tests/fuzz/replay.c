/* replay.c - gives files to a target, one after the other, without libFuzzer: `SHARDRT_FUZZ=npy replay FILE…`. Says
 * before each which it is, so that the last one said is the one that it died of. */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

static void replay(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) fuzz_fault("an input cannot be read");
  const long size = ftell(file);
  uint8_t *data = malloc((size_t)size > 0 ? (size_t)size : 1);
  rewind(file);
  if (size < 0 || data == NULL || fread(data, 1, (size_t)size, file) != (size_t)size)
    fuzz_fault("an input cannot be read");
  fclose(file);
  LLVMFuzzerTestOneInput(data, (size_t)size);
  free(data);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    printf("%s\n", argv[i]);
    fflush(stdout);
    replay(argv[i]);
  }
  printf("%d inputs\n", argc - 1);
  return 0;
}

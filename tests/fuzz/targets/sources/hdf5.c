/* hdf5.c - a file with a dataset "data". */
#include <stdio.h>

#include "../../fuzz.h"

void fuzz_hdf5(const uint8_t *data, size_t size) {
  enum { PATH = 128 };
  char name[PATH];
  snprintf(name, sizeof name, "%s:/data", fuzz_write("x.h5", data, size));
  fuzz_open("hdf5", name, NULL);
}

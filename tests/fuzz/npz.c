/* npz.c - numpy's archives of arrays. */
#include "fuzz.h"

void fuzz_npz(const uint8_t *data, size_t size) {
  fuzz_open_both("npz", fuzz_write("x.npz", data, size));
}

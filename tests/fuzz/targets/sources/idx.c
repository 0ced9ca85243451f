/* idx.c - an IDX file. */
#include "../../fuzz.h"

void fuzz_idx(const uint8_t *data, size_t size) {
  fuzz_open("idx", fuzz_write("x.idx", data, size), NULL);
}

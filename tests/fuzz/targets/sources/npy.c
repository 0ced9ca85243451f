/* npy.c - a .npy file, as a source and as an array. */
#include "../../fuzz.h"

void fuzz_npy(const uint8_t *data, size_t size) {
  const char *path = fuzz_write("x.npy", data, size);
  int32_t dtype, ndim;
  int64_t shape[SHARDRT_MAX_NDIM];
  shardrt_buffer *buffer = NULL;
  fuzz_open("npy", path, NULL);
  fuzz_check(shardrt_npy_load(path, &dtype, &ndim, shape, &buffer));
  shardrt_buffer_free(buffer);
}

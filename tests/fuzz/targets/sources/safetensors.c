/* safetensors.c - a file of arrays, as a source and as weights. */
#include "../../fuzz.h"

void fuzz_safetensors(const uint8_t *data, size_t size) {
  const char *path = fuzz_write("x.safetensors", data, size);
  shardrt_safetensors *file = NULL;
  fuzz_open_both("safetensors", path);
  int code = shardrt_safetensors_open(path, &file);
  fuzz_check(code);
  if (code < 0) return;
  for (int64_t i = 0; i < shardrt_safetensors_count(file); i++) {
    shardrt_buffer *buffer = NULL;
    fuzz_check(shardrt_safetensors_load(file, i, &buffer));
    shardrt_buffer_free(buffer);
  }
  shardrt_safetensors_free(file);
}

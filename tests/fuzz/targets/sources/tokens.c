/* tokens.c - a flat file of tokens, bare or with llm.c's header. */
#include "../../fuzz.h"

void fuzz_tokens(const uint8_t *data, size_t size) {
  static const shardrt_token_options options[] = {
      {.window = 8, .stride = 8, .dtype = -1},
      {.window = 8, .stride = 8, .dtype = SHARDRT_UINT16},
      {.window = 5, .stride = 3, .dtype = SHARDRT_UINT32},
      {.window = 2, .stride = 1, .dtype = SHARDRT_INT64, .files = {.no_header = 1}}};
  const char *path = fuzz_write("x.bin", data, size);
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    shardrt_source *source = NULL;
    fuzz_opened(shardrt_source_tokens(path, &options[i], &source), &source);
  }
}

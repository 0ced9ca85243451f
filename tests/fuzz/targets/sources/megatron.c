/* megatron.c - an index of Megatron's and its tokens, in both views, and as half of a blend. */
#include <stdio.h>

#include "../../fuzz.h"

void fuzz_megatron(const uint8_t *data, size_t size) {
  static const shardrt_megatron_options options[] = {
      {.view = SHARDRT_MEGATRON_DOCUMENTS, .to = 1},
      {.view = SHARDRT_MEGATRON_GPT, .window = 4, .to = 1},
      {.view = SHARDRT_MEGATRON_GPT, .window = 3, .samples = 50, .seed = 7, .from = 0.25, .to = 0.9}};
  static const double weights[] = {1, 2};
  struct fuzz_part parts[2];
  char prefix[4096];
  fuzz_split(data, size, parts, 2);
  fuzz_write("x.idx", parts[0].data, parts[0].size);
  fuzz_write("x.bin", parts[1].data, parts[1].size);
  snprintf(prefix, sizeof prefix, "%s/x", fuzz_folder());
  const char *const prefixes[] = {prefix, prefix};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    shardrt_source *source = NULL;
    fuzz_opened(shardrt_source_megatron(1, prefixes, NULL, &options[i], &source), &source);
    source = NULL;
    const double *of = options[i].samples > 0 ? weights : NULL;
    fuzz_opened(shardrt_source_megatron(2, prefixes, of, &options[i], &source), &source);
  }
}

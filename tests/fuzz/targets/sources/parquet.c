/* parquet.c - a table: the input as it is, and as the end of a file whose footer it tells of. */
#include <stdlib.h>
#include <string.h>

#include "../../fuzz.h"
#include "dataset/view/pruned.h"
#include "memory/condition.h"

/* The mutated bytes mostly lose the frame: what begins and ends the file is put right. */
static void repair(uint8_t *data, size_t size) {
  enum { MAGIC = 4, LENGTH = 4 };
  if (size < 3 * MAGIC) return;
  memcpy(data, "PAR1", MAGIC);
  memcpy(data + size - MAGIC, "PAR1", MAGIC);
  uint32_t footer;
  memcpy(&footer, data + size - MAGIC - LENGTH, LENGTH);
  footer %= (uint32_t)(size - 2 * MAGIC - LENGTH + 1);
  memcpy(data + size - MAGIC - LENGTH, &footer, LENGTH);
}

/* What statistics say of conditions: ranges within the file, which ascend. */
static void prune(const char *path) {
  const struct condition conditions[] = {
      {.count = 1, .parts = {{CONDITION_AT_LEAST, {.kind = CONDITION_INT64, .is.int64 = 10}}}},
      {.count = 1, .parts = {{CONDITION_LESS, condition_text("m", 1)}}}};
  const shardrt_source_options options = {.cache = fuzz_folder(), .leaves_nulls_out = 1};
  shardrt_source *source = NULL;
  int code = shardrt_source_files("parquet", 1, &path, 0, NULL, &options, &source);
  fuzz_check(code);
  for (int32_t f = 0; code == SHARDRT_OK && f < 2 * source->nfields; f++) {
    struct pruned pruned = {0};
    int64_t end = 0;
    fuzz_check(source_prune(source, f / 2, &conditions[f % 2], &pruned));
    for (int64_t i = 0; i < pruned.count; i++) {
      if (pruned.ranges[i].first < end || pruned.ranges[i].count < 1) abort();
      end = pruned.ranges[i].first + pruned.ranges[i].count;
    }
    if (end > source->count) abort();
    pruned_clear(&pruned);
  }
  if (code == SHARDRT_OK) shardrt_source_free(source);
}

void fuzz_parquet(const uint8_t *data, size_t size) {
  uint8_t *copy = fuzz_copy(data, size);
  const shardrt_source_options tells = {.tells_nulls = 1};
  repair(copy, size);
  fuzz_open_both("parquet", fuzz_write("as-it-is.parquet", data, size));
  const char *repaired = fuzz_write("repaired.parquet", copy, size);
  fuzz_open_both("parquet", repaired);
  fuzz_open_files("parquet", repaired, &tells);
  prune(repaired);
  free(copy);
}

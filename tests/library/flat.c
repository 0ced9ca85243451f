/* flat.c - takes ten thousand batches, looks at where their shards lie, and prints what memory the process has after a
 * thousand and after all of them, in bytes: "1000 RESIDENT ANONYMOUS".
 *
 *     flat recipe.lua [batch | handle | tensor]     what it forgets to give back, once for each batch
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt.h>

#include "memory/dlpack.h"

enum { FIRST = 1000, ALL = 10000 };

#define CHECK(fact)                                                                                                    \
  do {                                                                                                                 \
    if (!(fact)) {                                                                                                     \
      fprintf(stderr, "line %d: not so: %s; the last message: %s\n", __LINE__, #fact, shardrt_error_message());        \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static long long kilobytes(const char *text, const char *name) {
  const char *at = strstr(text, name);
  CHECK(at != NULL);
  return atoll(at + strlen(name));
}

static void print_memory(int count) {
  char text[4096] = "";
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  CHECK(file != NULL && fread(text, 1, sizeof text - 1, file) > 0);
  fclose(file);
  printf("%d %lld %lld\n", count, kilobytes(text, "\nRss:") * 1024, kilobytes(text, "\nAnonymous:") * 1024);
}

/* No shard is a copy: a tensor lies where the batch's own memory does, and so do replicas. */
static void look(const shardrt_array *array, bool is_whole, bool keeps_tensor) {
  const void *first = shardrt_buffer_data(shardrt_array_buffer(array, 0));
  for (int64_t i = 0; i < shardrt_array_shard_count(array); i++) {
    const void *data = shardrt_buffer_data(shardrt_array_buffer(array, i));
    CHECK((uintptr_t)data % 64 == 0 && (data == first) == (is_whole || i == 0));
    struct DLManagedTensorVersioned *tensor;
    CHECK(shardrt_array_dlpack(array, i, NULL, &tensor) == 0);
    CHECK((const char *)tensor->dl_tensor.data + tensor->dl_tensor.byte_offset == data);
    if (!keeps_tensor) tensor->deleter(tensor);
  }
}

int main(int argc, char **argv) {
  const char *forgets = argc > 2 ? argv[2] : "";
  shardrt_options options;
  shardrt_recipe *recipe, *again;
  shardrt_batch *batch;
  shardrt_options_init(&options);
  options.devices = 2;
  CHECK(shardrt_join(&options) == 0 && shardrt_open(argv[1], 0, NULL, &recipe) == 0);
  for (int count = 1; count <= ALL; count++) {
    CHECK(shardrt_next(recipe, count % 2 == 0 ? -1 : 3600, &batch) == 1);
    look(shardrt_batch_array(batch, 0), true, false);
    look(shardrt_batch_array(batch, 1), false, strcmp(forgets, "tensor") == 0);
    shardrt_batch_retain(batch);
    shardrt_batch_free(batch);
    if (strcmp(forgets, "batch") != 0) shardrt_batch_free(batch);
    CHECK(shardrt_recipe_loader(recipe, "", &again) == 0);
    if (strcmp(forgets, "handle") != 0) shardrt_close(again);
    if (count == FIRST || count == ALL) print_memory(count);
  }
  shardrt_close(recipe);
  CHECK(shardrt_leave() == 0);
  return 0;
}

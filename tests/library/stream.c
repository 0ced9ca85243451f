/* stream.c - prints what a program is given of a recipe's batches, a line for each shard; tests/library/stream_spec.lua
 * compares them with what the same recipe's own loop prints.
 *
 *     stream devices recipe.lua [loader] [-- arguments of the recipe]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt.h>

static int must(int code) {
  if (code >= 0) return code;
  fprintf(stderr, "%s: %s\n", shardrt_error_name(code), shardrt_error_message());
  shardrt_abandon();
  exit(3);
}

static void print_batch(int64_t step, const shardrt_batch *batch) {
  for (int f = 0; f < shardrt_batch_fields(batch); f++) {
    const shardrt_array *array = shardrt_batch_array(batch, f);
    for (int64_t i = 0; i < shardrt_array_shard_count(array); i++) {
      const shardrt_buffer *buffer = shardrt_array_buffer(array, i);
      printf("%" PRId64 " %s %d %016" PRIx64 "\n", step, shardrt_batch_name(batch, f),
             shardrt_array_shard(array, i)->device,
             shardrt_fingerprint(shardrt_buffer_data(buffer), shardrt_buffer_bytes(buffer)));
    }
  }
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const char *loader = argc > 3 && strcmp(argv[3], "--") != 0 ? argv[3] : NULL;
  int first = 3;
  while (first < argc && strcmp(argv[first], "--") != 0) first++;
  first = first < argc ? first + 1 : argc;
  shardrt_options options;
  shardrt_options_init(&options);
  options.devices = atoi(argv[1]);
  options.timeout = 60;
  must(shardrt_join(&options));
  shardrt_recipe *recipe, *from;
  must(shardrt_open(argv[2], argc - first, (const char *const *)argv + first, &recipe));
  from = recipe;
  if (loader != NULL) must(shardrt_recipe_loader(recipe, loader, &from));
  shardrt_batch *batch;
  for (int64_t step = 0; must(shardrt_next(from, -1, &batch)) == 1; step++) {
    print_batch(step, batch);
    shardrt_batch_free(batch);
  }
  if (from != recipe) shardrt_close(from);
  shardrt_close(recipe);
  must(shardrt_leave());
  return 0;
}

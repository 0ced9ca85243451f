/* stream.c - prints what a program is given of a recipe's batches, a line for each shard; tests/library/stream_spec.lua
 * compares them with what the same recipe's own loop prints.
 *
 *     stream devices recipe.lua [loader…] [-- arguments of the recipe]
 *
 * Of several loaders each line begins with its loader's name.
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

static void print_batch(const char *prefix, int64_t step, const shardrt_batch *batch) {
  for (int f = 0; f < shardrt_batch_fields(batch); f++) {
    const shardrt_array *array = shardrt_batch_array(batch, f);
    for (int64_t i = 0; i < shardrt_array_shard_count(array); i++) {
      const shardrt_buffer *buffer = shardrt_array_buffer(array, i);
      printf("%s%" PRId64 " %s %d %016" PRIx64 "\n", prefix, step, shardrt_batch_name(batch, f),
             shardrt_array_shard(array, i)->device,
             shardrt_fingerprint(shardrt_buffer_data(buffer), shardrt_buffer_bytes(buffer)));
    }
  }
}

static void print_batches(const char *prefix, shardrt_recipe *from) {
  shardrt_batch *batch;
  for (int64_t step = 0; must(shardrt_next(from, -1, &batch)) == 1; step++) {
    print_batch(prefix, step, batch);
    shardrt_batch_free(batch);
  }
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* whole lines: others are printed by other processes */
  int dashes = 3;
  while (dashes < argc && strcmp(argv[dashes], "--") != 0) dashes++;
  const int first = dashes < argc ? dashes + 1 : argc;
  shardrt_options options;
  shardrt_options_init(&options);
  options.devices = atoi(argv[1]);
  options.timeout = 60;
  must(shardrt_join(&options));
  shardrt_recipe *recipe, *from;
  must(shardrt_open(argv[2], argc - first, (const char *const *)argv + first, &recipe));
  if (dashes == 3) print_batches("", recipe);
  for (int i = 3; i < dashes; i++) {
    char prefix[64] = "";
    if (dashes > 4) snprintf(prefix, sizeof prefix, "%s ", argv[i]);
    must(shardrt_recipe_loader(recipe, argv[i], &from));
    print_batches(prefix, from);
    shardrt_close(from);
  }
  shardrt_close(recipe);
  must(shardrt_leave());
  return 0;
}

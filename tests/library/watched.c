/* watched.c - takes batches of the loaders "direct", "lua" and "moved" that a recipe returns, all of the first, some of
 * the second in short slices, all of the third; prints what it took and what shardrt_stats says, for a spec that
 * compares the job's report and metrics with that.
 *
 *     watched recipe.lua [REPORT METRICS]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <shardrt.h>

static int must(int code) {
  if (code >= 0 || code == SHARDRT_EAGAIN) return code;
  fprintf(stderr, "%s\n", shardrt_error_message());
  shardrt_abandon();
  exit(1);
}

static void take(shardrt_recipe *recipe, const char *name, int64_t most, double seconds) {
  shardrt_recipe *loader;
  shardrt_batch *batch;
  int64_t taken = 0, rows = 0;
  int code = 1;
  must(shardrt_recipe_loader(recipe, name, &loader));
  while (taken < most && (code = must(shardrt_next(loader, seconds, &batch))) != 0) {
    if (code == SHARDRT_EAGAIN) continue;
    taken++;
    rows += shardrt_array_shape(shardrt_batch_find(batch, "x"))[0];
    shardrt_batch_free(batch);
  }
  char *stats;
  must(shardrt_stats(loader, &stats));
  const int process = shardrt_job_info_get(shardrt_joined())->process_index;
  printf("took %s %d %" PRId64 " %" PRId64 "\nstats %s %d %s\n", name, process, taken, rows, name, process, stats);
  fflush(stdout);
  shardrt_text_free(stats);
  shardrt_close(loader);
}

int main(int argc, char **argv) {
  shardrt_options options;
  shardrt_recipe *recipe;
  shardrt_options_init(&options);
  options.devices = 2;
  options.platform = "host";
  if (argc > 3) {
    options.report = argv[2];
    options.metrics = argv[3];
  }
  must(shardrt_join(&options));
  must(shardrt_open(argv[1], 0, NULL, &recipe));
  take(recipe, "direct", INT64_MAX, -1);
  take(recipe, "lua", 3, 1e-4);
  take(recipe, "moved", INT64_MAX, -1);
  shardrt_close(recipe);
  must(shardrt_leave());
  return 0;
}

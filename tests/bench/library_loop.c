/* library_loop.c - library_loop.lua as a program of C: DEVICES RECIPE FOLDER WHAT SECONDS. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt.h>

enum { BATCH = 256, BYTES = 3072, ROWS = 65536 };

static unsigned char seen[ROWS];
static unsigned char own[2][BATCH * BYTES];

static int must(int code) {
  if (code >= 0) return code;
  fprintf(stderr, "%s\n", shardrt_error_message());
  exit(1);
}

static const unsigned char *shard_of(const shardrt_array *array, int64_t i, size_t *bytes) {
  const shardrt_buffer *buffer = shardrt_array_buffer(array, i);
  *bytes = shardrt_buffer_bytes(buffer);
  return shardrt_buffer_data(buffer);
}

static void check(const shardrt_batch *batch) {
  const shardrt_array *images = shardrt_batch_array(batch, 0), *labels = shardrt_batch_array(batch, 1);
  for (int64_t i = 0; i < shardrt_array_shard_count(images); i++) {
    size_t bytes, rows;
    const unsigned char *image = shard_of(images, i, &bytes), *label = shard_of(labels, i, &rows);
    for (size_t row = 0; row < rows; row++) {
      uint32_t number;
      memcpy(&number, image + row * BYTES, sizeof number);
      if (bytes != rows * BYTES || number >= ROWS || seen[number] != 0 || label[row] != number % 251) {
        fprintf(stderr, "each row once\n");
        exit(1);
      }
      seen[number] = 1;
    }
  }
}

static void use(const shardrt_batch *batch, bool copies) {
  for (int f = 0; f < shardrt_batch_fields(batch); f++) {
    const shardrt_array *array = shardrt_batch_array(batch, f);
    unsigned char *to = own[f];
    for (int64_t i = 0; i < shardrt_array_shard_count(array); i++) {
      size_t bytes;
      const unsigned char *data = shard_of(array, i, &bytes);
      if (data == NULL) exit(1);
      if (!copies) continue;
      memcpy(to, data, bytes);
      to += bytes;
    }
  }
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  const bool copies = strcmp(argv[4], "copy") == 0;
  const double seconds = strtod(argv[5], NULL);
  shardrt_options options;
  shardrt_options_init(&options);
  options.devices = (int32_t)strtol(argv[1], NULL, 10);
  shardrt_recipe *recipe;
  shardrt_batch *batch;
  must(shardrt_join(&options));
  must(shardrt_open(argv[2], 1, (const char *const *)argv + 3, &recipe));
  const int64_t steps = shardrt_steps(recipe);
  double start = 0, passed = 0;
  int64_t step = 0;
  while (passed < seconds && must(shardrt_next(recipe, -1, &batch)) == 1) {
    if (step < steps)
      check(batch);
    else
      use(batch, copies);
    shardrt_batch_free(batch);
    if (++step == 2 * steps) start = shardrt_clock();
    if (step > 2 * steps && step % steps == 0) passed = shardrt_clock() - start;
  }
  printf("%.0f\n", (double)(step - 2 * steps) * BATCH / passed);
  shardrt_close(recipe);
  return must(shardrt_leave());
}

/* train.c - softmax regression in C: shardrt brings the batches, the program computes and adds up with its own MPI.
 *
 *     cc -O2 -o softmax train.c $(pkg-config --cflags --libs shardrt) $(pkg-config --cflags --libs ompi-c) -lm
 *     mpirun -n 2 ./softmax data.lua
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>
#include <shardrt.h>

enum { PIXELS = 28 * 28, CLASSES = 10, WEIGHTS = (PIXELS + 1) * CLASSES };

static float weights[WEIGHTS], gradient[WEIGHTS];
static const float RATE = 0.1F;

/* After an error nobody is waited for: the others hear of it when they wait for this process. */
static int must(int code) {
  if (code >= 0) return code;
  fprintf(stderr, "train: %s\n", shardrt_error_message());
  shardrt_abandon();
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

/* Adds one row's gradient, and returns its loss. */
static double learn(const float *image, int label) {
  float scores[CLASSES], highest = -INFINITY, sum = 0;
  for (int c = 0; c < CLASSES; c++) {
    const float *w = weights + (size_t)c * (PIXELS + 1);
    scores[c] = w[PIXELS];
    for (int i = 0; i < PIXELS; i++) scores[c] += w[i] * image[i];
    highest = fmaxf(highest, scores[c]);
  }
  for (int c = 0; c < CLASSES; c++) sum += expf(scores[c] - highest);
  for (int c = 0; c < CLASSES; c++) {
    const float off = expf(scores[c] - highest) / sum - (c == label ? 1.0F : 0.0F);
    float *g = gradient + (size_t)c * (PIXELS + 1);
    g[PIXELS] += off;
    for (int i = 0; i < PIXELS; i++) g[i] += off * image[i];
  }
  return (double)(logf(sum) + highest - scores[label]);
}

/* The rows that this process's devices hold: fields come in the order of their names. */
static double step(const shardrt_batch *batch) {
  const shardrt_array *images = shardrt_batch_array(batch, 0), *labels = shardrt_batch_array(batch, 1);
  const int64_t rows = shardrt_array_shape(images)[0];
  double loss = 0;
  for (int i = 0; i < WEIGHTS; i++) gradient[i] = 0;
  for (int64_t s = 0; s < shardrt_array_shard_count(images); s++) {
    const float *image = shardrt_buffer_data(shardrt_array_buffer(images, s));
    const uint8_t *label = shardrt_buffer_data(shardrt_array_buffer(labels, s));
    const int64_t own = (int64_t)(shardrt_array_shard_bytes(labels));
    for (int64_t r = 0; r < own; r++) loss += learn(image + r * PIXELS, label[r]);
  }
  MPI_Allreduce(MPI_IN_PLACE, gradient, WEIGHTS, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < WEIGHTS; i++) weights[i] -= RATE / (float)rows * gradient[i];
  return loss / (double)rows;
}

int main(int argc, char **argv) {
  int level, rank, code;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc < 2) {
    fprintf(stderr, "usage: train data.lua [arguments of the recipe]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  shardrt_options options;
  shardrt_options_init(&options);
  options.devices = 2; /* of each process */
  shardrt_recipe *recipe;
  shardrt_batch *batch;
  must(shardrt_join(&options));
  must(shardrt_open(argv[1], argc - 2, (const char *const *)argv + 2, &recipe));
  const int64_t steps = shardrt_steps(recipe);
  double sum = 0;
  int64_t done = 0;
  while ((code = must(shardrt_next(recipe, -1, &batch))) == 1) {
    const double loss = step(batch);
    shardrt_batch_free(batch);
    if (++done > steps - 20) sum += loss;
    if (rank == 0 && done % 50 == 0) printf("step %d of %d: loss %.4f\n", (int)done, (int)steps, loss);
  }
  shardrt_close(recipe);
  must(shardrt_leave());
  if (rank == 0) printf("mean loss of the last 20 steps: %.4f\n", sum / 20);
  MPI_Finalize();
  return 0;
}

/* gather.c - the baseline of the loader: a plain C loop that gathers rows of a mapped file into batch buffers.
 *
 *   gather WHAT FILE OFFSET RECORD_BYTES IDS BATCH BUFFERS THREADS SECONDS
 *
 * IDS is a file of int64 row numbers, one epoch in its order. Every thread takes its share of each batch's rows into
 * BUFFERS batch buffers in turn, and does WHAT with each row on the way:
 *   copy       nothing
 *   normalize  uint8 pixels of 3 channels become float32, times one factor and plus one offset for each channel
 *   invert     uint8 becomes float32: 255 - x, times 1/255
 *   window     uint16 tokens become int32, first all but the last, then all but the first
 * Runs one epoch to warm up, then whole epochs for about SECONDS; prints the bytes/s that are taken from the file. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *rows;
static const int64_t *ids;
static size_t record_bytes, out_bytes;
static int64_t steps, batch;
static int buffer_count, thread_count;
static char **buffers;

typedef void row_loop(void *restrict out, const void *restrict in);
static row_loop *each;

static void copy(void *restrict out, const void *restrict in) {
  memcpy(out, in, record_bytes);
}

/* The channels' numbers over and over: what lets the compiler make the best of the loop. */
enum { PATTERN = 48 };
static float factors[PATTERN], offsets[PATTERN];

static void normalize(void *restrict out, const void *restrict in) {
  float *to = out;
  const uint8_t *from = in;
  size_t i = 0;
  for (; i + PATTERN <= record_bytes; i += PATTERN)
    for (size_t k = 0; k < PATTERN; k++) to[i + k] = (float)from[i + k] * factors[k] + offsets[k];
  for (size_t k = 0; i + k < record_bytes; k++) to[i + k] = (float)from[i + k] * factors[k] + offsets[k];
}

static void invert(void *restrict out, const void *restrict in) {
  float *to = out;
  const uint8_t *from = in;
  for (size_t i = 0; i < record_bytes; i++) to[i] = (float)(255 - from[i]) * (1.0f / 255);
}

static void window(void *restrict out, const void *restrict in) {
  const size_t count = record_bytes / sizeof(uint16_t) - 1;
  int32_t *inputs = out, *targets = inputs + count;
  const uint16_t *tokens = in;
  for (size_t i = 0; i < count; i++) {
    inputs[i] = tokens[i];
    targets[i] = tokens[i + 1];
  }
}

/* What each row becomes, and how many bytes that takes. */
static int choose(const char *what) {
  for (int k = 0; k < PATTERN; k++) {
    factors[k] = 1 / (0.2f + 0.1f * (float)(k % 3)) / 255;
    offsets[k] = -0.5f - 0.1f * (float)(k % 3);
  }
  if (strcmp(what, "copy") == 0) {
    each = copy;
    out_bytes = record_bytes;
  } else if (strcmp(what, "normalize") == 0 || strcmp(what, "invert") == 0) {
    each = what[0] == 'n' ? normalize : invert;
    out_bytes = sizeof(float) * record_bytes;
  } else if (strcmp(what, "window") == 0) {
    each = window;
    out_bytes = 2 * sizeof(int32_t) * (record_bytes / sizeof(uint16_t) - 1);
  }
  return each != NULL;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *map(const char *path, size_t *bytes) {
  int fd = open(path, O_RDONLY);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) {
    perror(path);
    exit(1);
  }
  *bytes = (size_t)info.st_size;
  void *memory = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    perror(path);
    exit(1);
  }
  close(fd);
  return memory;
}

static void *epoch(void *argument) {
  int64_t thread = (int64_t)(intptr_t)argument;
  int64_t first = batch * thread / thread_count, last = batch * (thread + 1) / thread_count;
  for (int64_t step = 0; step < steps; step++) {
    char *buffer = buffers[step % buffer_count];
    const int64_t *order = ids + step * batch;
    for (int64_t row = first; row < last; row++)
      each(buffer + (size_t)row * out_bytes, rows + (size_t)order[row] * record_bytes);
  }
  return NULL;
}

static void run_epoch(void) {
  pthread_t threads[64];
  for (int t = 1; t < thread_count; t++) pthread_create(&threads[t], NULL, epoch, (void *)(intptr_t)t);
  epoch((void *)0);
  for (int t = 1; t < thread_count; t++) pthread_join(threads[t], NULL);
}

int main(int argc, char **argv) {
  if (argc != 10) return 2;
  size_t file_bytes, id_bytes;
  rows = map(argv[2], &file_bytes) + strtoull(argv[3], NULL, 10);
  record_bytes = strtoull(argv[4], NULL, 10);
  ids = (const int64_t *)map(argv[5], &id_bytes);
  batch = strtoll(argv[6], NULL, 10);
  buffer_count = atoi(argv[7]);
  thread_count = atoi(argv[8]);
  double seconds = strtod(argv[9], NULL);
  if (!choose(argv[1])) return 2;
  steps = (int64_t)(id_bytes / sizeof *ids) / batch;
  if (thread_count < 1 || thread_count > 64 || steps < 1) return 2;
  buffers = calloc((size_t)buffer_count, sizeof *buffers);
  for (int i = 0; i < buffer_count; i++)
    if (posix_memalign((void **)&buffers[i], 64, (size_t)batch * out_bytes) != 0) return 1;
  run_epoch();
  int64_t epochs = 0;
  double start = now(), end = start;
  while (end - start < seconds) {
    run_epoch();
    epochs++;
    end = now();
  }
  printf("%.0f\n", (double)(epochs * steps * batch) * (double)record_bytes / (end - start));
  return 0;
}

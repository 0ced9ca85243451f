/* gather.c - the baseline of the loader: a plain C loop that gathers rows of a mapped file into batch buffers.
 *
 *   gather FILE OFFSET RECORD_BYTES IDS BATCH BUFFERS THREADS SECONDS
 *
 * IDS is a file of int64 row numbers, one epoch in its order. Every thread copies its share of each batch's rows, into
 * BUFFERS batch buffers in turn. Runs one epoch to warm up, then whole epochs for about SECONDS; prints bytes/s. */
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
static size_t record_bytes;
static int64_t steps, batch;
static int buffer_count, thread_count;
static char **buffers;

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
      memcpy(buffer + (size_t)row * record_bytes, rows + (size_t)order[row] * record_bytes, record_bytes);
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
  if (argc != 9) return 2;
  size_t file_bytes, id_bytes;
  rows = map(argv[1], &file_bytes) + strtoull(argv[2], NULL, 10);
  record_bytes = strtoull(argv[3], NULL, 10);
  ids = (const int64_t *)map(argv[4], &id_bytes);
  batch = strtoll(argv[5], NULL, 10);
  buffer_count = atoi(argv[6]);
  thread_count = atoi(argv[7]);
  double seconds = strtod(argv[8], NULL);
  steps = (int64_t)(id_bytes / sizeof *ids) / batch;
  if (thread_count < 1 || thread_count > 64 || steps < 1) return 2;
  buffers = calloc((size_t)buffer_count, sizeof *buffers);
  for (int i = 0; i < buffer_count; i++)
    if (posix_memalign((void **)&buffers[i], 64, (size_t)batch * record_bytes) != 0) return 1;
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

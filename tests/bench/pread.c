/* pread.c - the baseline of reading from the storage: the rows of a file that is not in the page cache, by plain pread
 * from a number of threads, which is how many reads are in flight.
 *
 *   pread FILE OFFSET RECORD_BYTES IDS COUNT THREADS
 *
 * IDS is a file of int64 row numbers; the first COUNT of them are read. Prints bytes/s. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int file;
static off_t offset;
static size_t record_bytes;
static int64_t *ids;
static int64_t count;
static _Atomic int64_t next;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *read_rows(void *argument) {
  (void)argument;
  char *row = malloc(record_bytes);
  if (row == NULL) abort();
  for (int64_t i; (i = atomic_fetch_add(&next, 1)) < count;)
    if (pread(file, row, record_bytes, offset + (off_t)ids[i] * (off_t)record_bytes) != (ssize_t)record_bytes) abort();
  free(row);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 7) return 2;
  file = open(argv[1], O_RDONLY);
  offset = strtoll(argv[2], NULL, 10);
  record_bytes = strtoull(argv[3], NULL, 10);
  count = strtoll(argv[5], NULL, 10);
  const int threads = atoi(argv[6]);
  ids = malloc((size_t)count * sizeof *ids);
  const int order = open(argv[4], O_RDONLY);
  const ssize_t wanted = (ssize_t)((size_t)count * sizeof *ids);
  if (file < 0 || ids == NULL || threads < 1 || threads > 64 || read(order, ids, (size_t)wanted) != wanted) return 1;
  if (fsync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) return 1;
  pthread_t all[64];
  const double start = now();
  for (int t = 0; t < threads; t++) pthread_create(&all[t], NULL, read_rows, NULL);
  for (int t = 0; t < threads; t++) pthread_join(all[t], NULL);
  printf("%.0f\n", (double)count * (double)record_bytes / (now() - start));
  return 0;
}

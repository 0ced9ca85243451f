/* copy.c - the baseline of moves inside one process: memcpy of so many bytes with so many threads, each its own part,
 * into memory that was touched before. Prints the bytes per second of the best of several rounds. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char *from, *to;
static size_t bytes;
static int threads, rounds;
static pthread_barrier_t gate;

static void *work(void *argument) {
  size_t i = (size_t)argument, begin = bytes / (size_t)threads * i, end = bytes / (size_t)threads * (i + 1);
  for (int r = 0; r < rounds; r++) {
    pthread_barrier_wait(&gate);
    memcpy(to + begin, from + begin, end - begin);
    pthread_barrier_wait(&gate);
  }
  return NULL;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  bytes = strtoull(argv[1], NULL, 10);
  threads = atoi(argv[2]);
  rounds = atoi(argv[3]);
  if (posix_memalign((void **)&from, 64, bytes) != 0 || posix_memalign((void **)&to, 64, bytes) != 0) return 1;
  memset(from, 1, bytes);
  memset(to, 2, bytes);
  pthread_barrier_init(&gate, NULL, (unsigned)threads + 1);
  pthread_t *made = calloc((size_t)threads, sizeof *made);
  for (size_t i = 0; i < (size_t)threads; i++) pthread_create(&made[i], NULL, work, (void *)i);
  double best = 0;
  for (int r = 0; r < rounds; r++) {
    pthread_barrier_wait(&gate);
    double start = now();
    pthread_barrier_wait(&gate);
    double rate = (double)bytes / (now() - start);
    if (rate > best) best = rate;
  }
  for (int i = 0; i < threads; i++) pthread_join(made[i], NULL);
  printf("%.0f\n", best);
  return 0;
}

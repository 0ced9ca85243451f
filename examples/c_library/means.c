/* means.c - a C library that a recipe loads (means.lua). A thread of its own takes the mean of what it is given, some
 * time after the recipe has let go of the batch.
 *
 *   cc -O2 -shared -fPIC -pthread -Iruntime -o libmeans.so examples/c_library/means.c
 *
 * The functions of shardrt that it calls are those of the program that loads it. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "shardrt.h"

enum { WAITING = 8 }; /* at most: a loader fills other memory while this is held */

struct piece {
  shardrt_buffer *buffer; /* with a count of ours */
  const uint8_t *data;
  size_t bytes;
};

typedef struct means {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct piece pieces[WAITING]; /* a ring */
  int64_t given, taken;
  int64_t most;
  int ending;
  double list[];
} means;

means *means_new(int64_t most);
int means_give(means *m, shardrt_buffer *buffer, const uint8_t *data, size_t bytes);
const double *means_wait(means *m, int64_t *count);
void means_free(means *m);

static double mean(const uint8_t *data, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes; i++) sum += data[i];
  return bytes == 0 ? 0 : (double)sum / (double)bytes;
}

static void *run(void *context) {
  means *m = context;
  pthread_mutex_lock(&m->lock);
  for (;;) {
    while (m->taken == m->given && !m->ending) pthread_cond_wait(&m->changed, &m->lock);
    if (m->taken == m->given) break;
    struct piece piece = m->pieces[m->taken % WAITING];
    pthread_mutex_unlock(&m->lock);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* as if there were more to do */
    double value = mean(piece.data, piece.bytes);
    shardrt_buffer_free(piece.buffer); /* on whatever thread */
    pthread_mutex_lock(&m->lock);
    m->list[m->taken++] = value;
    pthread_cond_broadcast(&m->changed);
  }
  pthread_mutex_unlock(&m->lock);
  return NULL;
}

/* Room for the means of so many pieces; NULL: there is no memory. */
means *means_new(int64_t most) {
  means *m = calloc(1, sizeof *m + (size_t)most * sizeof *m->list);
  if (m == NULL) return NULL;
  m->most = most;
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->changed, NULL);
  if (pthread_create(&m->thread, NULL, run, m) == 0) return m;
  free(m);
  return NULL;
}

/* Takes a count of the buffer, and waits only where too much is held already. -1: there is no room for its mean. */
int means_give(means *m, shardrt_buffer *buffer, const uint8_t *data, size_t bytes) {
  pthread_mutex_lock(&m->lock);
  while (m->given - m->taken == WAITING) pthread_cond_wait(&m->changed, &m->lock);
  int has_room = m->given < m->most;
  if (has_room) {
    m->pieces[m->given % WAITING] = (struct piece){shardrt_buffer_retain(buffer), data, bytes};
    m->given++;
    pthread_cond_broadcast(&m->changed);
  }
  pthread_mutex_unlock(&m->lock);
  return has_room ? 0 : -1;
}

/* The means of all that was given, when they are there. They live as long as m. */
const double *means_wait(means *m, int64_t *count) {
  pthread_mutex_lock(&m->lock);
  while (m->taken < m->given) pthread_cond_wait(&m->changed, &m->lock);
  *count = m->taken;
  pthread_mutex_unlock(&m->lock);
  return m->list;
}

/* Ends the thread, which sees to what it has before. */
void means_free(means *m) {
  if (m == NULL) return;
  pthread_mutex_lock(&m->lock);
  m->ending = 1;
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
  pthread_join(m->thread, NULL);
  pthread_cond_destroy(&m->changed);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

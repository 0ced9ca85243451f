#include "storage/local/ring.h"

#ifndef SHARDRT_WITHOUT_LIBURING

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"

/* TOGETHER reads are begun by one system call, and waited for where all are in flight. A read of LARGE bytes or more is
 * done by one of the kernel's threads, so that several cores share the copying: with 128 KB half as much again,
 * measured; for a few KB the threads cost more than they give. */
enum { TOGETHER = 8, LARGE = 32 * 1024, KERNEL_THREADS = 32 };

/* How long a read is waited for that the kernel does not tell of when asked. */
enum { LOOKS = 5000, PAUSE = 1000 * 1000 /* nanoseconds */ };

/* Invariant: held + flying <= depth. */
struct ring {
  struct io_uring uring;
  unsigned depth;
  unsigned held;    /* in the submission queue, not given to the kernel */
  unsigned flying;  /* given to the kernel, not ended */
  bool broken;      /* the kernel took no more */
  size_t begun;     /* bytes of the reads that it took, since they were last asked for */
  unsigned bytes[]; /* of each that is held, in their order */
};

int ring_new(unsigned depth, struct ring **out) {
  struct ring *made = alloc_zeros(1, sizeof *made + depth * sizeof *made->bytes);
  if (made == NULL) return ALLOC_FAILED;
  made->depth = depth;
  const int problem = io_uring_queue_init(depth, &made->uring, 0);
  if (problem < 0) {
    alloc_free(made);
    return error_set(SHARDRT_EIO, "io_uring cannot be used here: %s", strerror(-problem));
  }
  unsigned most[2] = {KERNEL_THREADS, 0};
  (void)io_uring_register_iowq_max_workers(&made->uring, most); /* before Linux 5.15 it stays at 4 for each core */
  *out = made;
  return SHARDRT_OK;
}

static void count_ended(struct ring *self) {
  const unsigned ended = io_uring_cq_ready(&self->uring);
  io_uring_cq_advance(&self->uring, ended);
  assert(ended <= self->flying);
  self->flying -= ended;
}

static void count_taken(struct ring *self, unsigned taken) {
  assert(taken <= self->held);
  for (unsigned i = 0; i < taken; i++) self->begun += self->bytes[i];
  self->held -= taken;
  self->flying += taken;
  memmove(self->bytes, self->bytes + taken, self->held * sizeof *self->bytes);
}

/* Gives the kernel what was held back, and waits until `least` reads have ended (fewer where there are fewer). */
static void turn_ring(struct ring *self, unsigned least) {
  if (self->broken) return;
  const int taken = io_uring_submit_and_wait(&self->uring, least);
  if (taken < 0)
    self->broken = taken != -EINTR && taken != -EAGAIN && taken != -EBUSY;
  else
    count_taken(self, (unsigned)taken);
  count_ended(self);
}

void ring_read(struct ring *self, int file, size_t offset, size_t bytes, void *scratch) {
  while (self->held + self->flying == self->depth && !self->broken) turn_ring(self, TOGETHER);
  struct io_uring_sqe *entry = self->broken ? NULL : io_uring_get_sqe(&self->uring);
  if (entry == NULL) return;
  io_uring_prep_read(entry, file, scratch, (unsigned)bytes, offset);
  if (bytes >= LARGE) entry->flags |= IOSQE_ASYNC;
  assert(self->held + self->flying < self->depth);
  self->bytes[self->held++] = (unsigned)bytes;
  if (self->held == TOGETHER) turn_ring(self, 0);
}

size_t ring_flush(struct ring *self) {
  if (self->held > 0) turn_ring(self, 0);
  const size_t begun = self->begun;
  self->begun = 0;
  return begun;
}

bool ring_free(struct ring *self) {
  if (self == NULL) return true;
  while (self->held + self->flying > 0 && !self->broken) turn_ring(self, self->held + self->flying);
  for (int look = 0; look < LOOKS && self->flying > 0; look++) {
    nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
    count_ended(self);
  }
  const bool ended = self->flying == 0;
  io_uring_queue_exit(&self->uring);
  alloc_free(self);
  return ended;
}

#else

#include "base/libraries.h"

int ring_new(unsigned depth, struct ring **out) {
  (void)depth, (void)out;
  return libraries_missing("io_uring (liburing)");
}

/* There is none to call these with. */
void ring_read(struct ring *self, int file, size_t offset, size_t bytes, void *scratch) {
  (void)self, (void)file, (void)offset, (void)bytes, (void)scratch;
}

size_t ring_flush(struct ring *self) {
  (void)self;
  return 0;
}

bool ring_free(struct ring *self) {
  (void)self;
  return true;
}

#endif

#include "source/ring.h"

#include <errno.h>
#include <liburing.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* TOGETHER reads are begun by one system call, and waited for where all are in flight. A read of LARGE bytes or more is
 * done by one of the kernel's threads, so that several cores share the copying: with 128 KB half as much again,
 * measured; for a few KB the threads cost more than they give. */
enum { TOGETHER = 8, LARGE = 32 * 1024, KERNEL_THREADS = 32 };

/* Invariant: held + flying <= depth. */
struct ring {
  struct io_uring uring;
  unsigned depth;
  unsigned held;   /* in the submission queue, not given to the kernel */
  unsigned flying; /* given to the kernel, not ended */
  bool broken;     /* the kernel took no more */
};

int ring_new(unsigned depth, struct ring **out) {
  struct ring *made = alloc_zeros(1, sizeof *made);
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

/* Gives the kernel what was held back, and waits until `least` reads have ended (fewer where there are fewer). */
static void turn(struct ring *self, unsigned least) {
  if (self->broken) return;
  const int taken = io_uring_submit_and_wait(&self->uring, least);
  if (taken < 0) {
    self->broken = taken != -EINTR && taken != -EAGAIN && taken != -EBUSY;
  } else {
    self->held -= (unsigned)taken;
    self->flying += (unsigned)taken;
  }
  const unsigned ended = io_uring_cq_ready(&self->uring);
  io_uring_cq_advance(&self->uring, ended);
  self->flying -= ended;
}

void ring_read(struct ring *self, int file, size_t offset, size_t bytes, void *scratch) {
  while (self->held + self->flying == self->depth && !self->broken) turn(self, TOGETHER);
  struct io_uring_sqe *entry = self->broken ? NULL : io_uring_get_sqe(&self->uring);
  if (entry == NULL) return;
  io_uring_prep_read(entry, file, scratch, (unsigned)bytes, offset);
  if (bytes >= LARGE) entry->flags |= IOSQE_ASYNC;
  if (++self->held == TOGETHER) turn(self, 0);
}

void ring_flush(struct ring *self) {
  if (self->held > 0) turn(self, 0);
}

void ring_free(struct ring *self) {
  if (self == NULL) return;
  while (self->held + self->flying > 0 && !self->broken) turn(self, self->held + self->flying);
  io_uring_queue_exit(&self->uring);
  alloc_free(self);
}

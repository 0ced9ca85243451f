/* ring.h - reads whose bytes nobody wants, many in flight at once: io_uring, by liburing. All calls from one thread. */
#ifndef SHARDRT_STORAGE_LOCAL_RING_H
#define SHARDRT_STORAGE_LOCAL_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring;

/* EIO: the kernel has no io_uring, or does not allow it (as in many containers). EINVAL: this
 * shardrt was built without liburing. */
int ring_new(unsigned depth, struct ring **out);
/* Begins a read of at most `bytes` bytes into `scratch`, which any number of reads may share; waits for others to end
 * where `depth` are in flight. What fails is forgotten. */
void ring_read(struct ring *self, int file, size_t offset, size_t bytes, void *scratch);
/* Lets those begin that were held back to begin together. Returns how many bytes the reads are of that the kernel has
 * taken since the last call: none anymore once it refused one. */
size_t ring_flush(struct ring *self);
/* Waits for all that is in flight; where the kernel cannot be asked anymore, not forever. False: some reads may still
 * be in flight, so that what they write to must stay. */
bool ring_free(struct ring *self);

#endif

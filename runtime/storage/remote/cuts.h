/* cuts.h - where in a file on a server runs begin that are read at different times (dataset/order/block_order.h): what
 * is downloaded for one of them does not go beyond it. */
#ifndef SHARDRT_STORAGE_REMOTE_CUTS_H
#define SHARDRT_STORAGE_REMOTE_CUTS_H

#include <stddef.h>
#include <stdint.h>

/* No two are closer than this: shorter runs are downloaded together. */
enum { CUTS_APART = 64 * 1024 };

struct file_cuts {
  int64_t count;
  size_t offsets[]; /* ascending */
};

/* Of offsets in ascending order; owned, to be freed by alloc_free. ENOMEM. */
int cuts_new(const size_t *offsets, int64_t n, struct file_cuts **out);
/* Takes in *first and *stop, between which `from` and `to` lie, as far as cuts lie between the two pairs. NULL is
 * allowed: there are none. */
void cuts_confine(const struct file_cuts *self, size_t from, size_t to, size_t *first, size_t *stop);

#endif

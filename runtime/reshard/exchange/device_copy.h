/* device_copy.h - boxes of elements brought from one place to another in the memory of this process's devices
 * (platform/accelerator.h). Everything is put on MAIN, of the device that it goes to unless said otherwise; nothing
 * waits for the host. */
#ifndef SHARDRT_RESHARD_EXCHANGE_DEVICE_COPY_H
#define SHARDRT_RESHARD_EXCHANGE_DEVICE_COPY_H

#include "layout/sharding.h"

/* Where a box lies: in a block, or packed. */
struct device_view {
  int32_t device;
  char *data;    /* of the block, or of the packed box */
  int64_t first; /* elements before the box's first */
  int64_t stride[SHARDRT_MAX_NDIM];
  bool is_run; /* its elements follow each other, row-major */
};

/* In a block that is `whole`, or one of a grid's; and as what is packed itself. */
struct device_view device_view_in_box(const shardrt_box *whole, const shardrt_box *box, int32_t device, void *data);
struct device_view device_view_in_block(const struct block_grid *grid, int64_t number, const shardrt_box *box,
                                        int32_t device, void *data);
struct device_view device_view_packed(const shardrt_box *box, int32_t device, void *data);

enum { DEVICE_COPY_STAGING = 32 << 20 /* bytes, where nobody says how many */ };

/* Copies the box's elements, of `element` bytes each; `what` does it, for messages. Where the device does not reach the
 * other one's memory, and it is no run there, through memory of `staging` bytes at most (but one element) on both,
 * piece by piece, which are in order by themselves. In all other cases the caller makes the order. */
int device_copy_box(const char *what, size_t element, const shardrt_box *box, const struct device_view *to,
                    const struct device_view *from, size_t staging);

/* Which devices take from which: [to * devices + from]. */
struct device_pairs {
  int32_t devices;
  bool *takes;
};

int device_pairs_new(struct device_pairs *pairs, int32_t devices);
void device_pairs_free(struct device_pairs *pairs);
void device_pairs_clear(struct device_pairs *pairs);
/* What is put on those that take runs after all that those have from which is taken; and the other way round. */
int device_pairs_before(const struct device_pairs *pairs);
int device_pairs_after(const struct device_pairs *pairs);

#endif

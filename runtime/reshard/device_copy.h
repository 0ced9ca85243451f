/* device_copy.h - boxes of elements brought from one place to another in the memory of this process's devices
 * (platform/accelerator.h). Everything is put on MAIN, of the device that it goes to unless said otherwise; nothing
 * waits for the host. */
#ifndef SHARDRT_RESHARD_DEVICE_COPY_H
#define SHARDRT_RESHARD_DEVICE_COPY_H

#include "layout/sharding.h"

/* Where a box lies: in a block, or packed. */
typedef struct haul_place {
  int32_t device;
  char *data;    /* of the block, or of the packed box */
  int64_t first; /* elements before the box's first */
  int64_t stride[SHARDRT_MAX_NDIM];
  bool is_run; /* its elements follow each other, row-major */
} haul_place;

haul_place haul_in_block(const struct block_grid *grid, int64_t number, const shardrt_box *box, int32_t device,
                         void *data);
haul_place haul_packed(const shardrt_box *box, int32_t device, void *data);

/* Copies the box's elements, of `element` bytes each. Where the device does not reach the other one's memory, and it is
 * no run there, through memory of `staging` bytes at most (but one element) on both, piece by piece, which are in
 * order by themselves. In all other cases the caller makes the order. */
int haul_box(size_t element, const shardrt_box *box, const haul_place *to, const haul_place *from, size_t staging);

/* Which devices take from which: [to * devices + from]. */
typedef struct haul_pairs {
  int32_t devices;
  bool *takes;
} haul_pairs;

int haul_pairs_new(haul_pairs *pairs, int32_t devices);
void haul_pairs_free(haul_pairs *pairs);
void haul_pairs_clear(haul_pairs *pairs);
/* What is put on those that take runs after all that those have from which is taken; and the other way round. */
int haul_before(const haul_pairs *pairs);
int haul_after(const haul_pairs *pairs);

#endif

/* mask.h - which rows of a padded batch are real: bool, cut over the devices as the sharding for masks says. */
#ifndef SHARDRT_LOADER_PLAN_MASK_H
#define SHARDRT_LOADER_PLAN_MASK_H

#include "shardrt.h"

/* Zeros: none. */
struct mask {
  shardrt_array *full; /* of a batch without padding; NULL: none */
  bool is_filled;      /* it has its data, which the first such batch brings, and all of them share */
};

/* Of `options`: shardings[nfields], batch_size, process, devices_per_process. */
int mask_set(struct mask *self, const shardrt_loader_options *options, int32_t nfields);
void mask_clear(struct mask *self);

/* The mask of a batch of which the first `rows` are real. */
int mask_make(struct mask *self, int64_t rows, shardrt_array **out);

#endif

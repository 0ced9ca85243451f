/* product.h - products of matrices on devices that have memory of their own. */
#ifndef SHARDRT_COMPUTE_MATMUL_PRODUCT_H
#define SHARDRT_COMPUTE_MATMUL_PRODUCT_H

#include "compute/unique_blocks.h"
#include "platform/accelerator.h"

/* Every device's shard of `out`, one of `blocks`, from its shards of a and b; those with one box and different operands
 * get the sum of these products over this process's devices. `product` is that of one shard, not empty. EINVAL: more
 * parts of one sum than 128. ENOMEM, EDEVICE. */
int product_on_devices(const struct accelerator *platform, const struct accelerator_product *product,
                       const struct unique_blocks *blocks, const shardrt_array *a, const shardrt_array *b,
                       shardrt_array *out);

#endif

/* device_order.h - in which order meshes take the job's devices where these are not linked equally well. */
#ifndef SHARDRT_COMM_DEVICE_ORDER_H
#define SHARDRT_COMM_DEVICE_ORDER_H

#include "comm/collective.h"

/* The ids of all devices, `devices` of each process: the processes of a host side by side, hosts by their first
 * process; a process's devices side by side; and among processes of a host, and devices of a process, those that are
 * linked best. NULL: that is 0, 1, 2, … All processes call it together, on a platform of GPUs; to be freed with
 * alloc_free. */
int device_order_settle(struct collective *m, int32_t devices, int32_t **ids);

/* What a link of a class (ACCELERATOR_…) is worth: one is better than several of the class below. */
int64_t device_order_worth(int32_t link);

#endif

/* reshard_device.h - an array laid out anew where every device has memory of its own (platform/accelerator.h).
 *
 * What holds: a new shard is in its device's memory. What is the same on the same device is shared; what another device
 * of this process holds is copied from the nearest one, in the devices' own time, without waiting; an element from
 * another process comes once, to one device, and is copied from there to others that need it. */
#ifndef SHARDRT_RESHARD_RESHARD_DEVICE_H
#define SHARDRT_RESHARD_RESHARD_DEVICE_H

#include "reshard/reshard_call.h"

/* Both after reshard_prepare. Errors as shardrt_reshard; those of a device name the array. */

/* The new array, which is the caller's. */
int reshard_device_new(struct reshard *r, shardrt_array **out);
/* The same, but it fills the buffers that `made` has, and new ones where it has none yet. Elements that x does not give
 * stay as they are. */
int reshard_device_into(struct reshard *r, shardrt_array *made);
/* Waits for what is on the devices, so that this process comes to a gathering only when it can send and receive:
 * whoever waits for a device that hangs is told of this process. */
int reshard_finish_devices(const struct reshard *r);

#endif

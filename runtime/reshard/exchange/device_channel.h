/* device_channel.h - channels between one device of this process and one of another.
 *
 * Both ends find the same channels in the same order by themselves: from the route's moves between the two processes,
 * which have one order on both sides, and from what each process's devices hold. The k-th move between two processes
 * goes from the k-th of the devices that hold its old block to the k-th of those that need the new one, counted around:
 * so replicas share the work, and links in parallel are used in parallel. */
#ifndef SHARDRT_RESHARD_EXCHANGE_DEVICE_CHANNEL_H
#define SHARDRT_RESHARD_EXCHANGE_DEVICE_CHANNEL_H

#include "reshard/exchange/block_table.h"
#include "reshard/exchange/channel.h"

/* What all channels have in common. */
struct device_channel_args {
  struct message_rules rules;
  const struct block_table *old, *new;
};

/* Rules for messages of `piece` elements, `direct` where they need no packing. */
struct message_rules device_channel_rules(const shardrt_route *route, size_t element, int64_t piece, int64_t direct);

/* For channels_free. */
int device_channels_new(struct channels *c, const shardrt_route *route, bool outgoing, const shardrt_sharding *from,
                        const shardrt_sharding *to, int32_t devices_per_process);

/* Where in its block a message stands in one run; NULL: it does not. */
char *device_channel_run(const struct device_channel_args *args, const struct channel *c, const struct message *m);
/* Puts on the device's MAIN the copying between blocks and `packed`, of the message's bytes in the device's memory: out
 * of the blocks where the channel is outgoing, else into them. */
int device_channel_pack(const struct device_channel_args *args, const struct channel *c, const struct message *m,
                        char *packed);

#endif

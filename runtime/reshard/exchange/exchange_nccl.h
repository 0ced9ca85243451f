/* exchange_nccl.h - messages between devices of different processes over the links between their GPUs, in rounds.
 *
 * In round i every channel has its i-th message on the way, and each process puts its messages of a round on the way as
 * one group. So a group has what the groups of the same round elsewhere wait for, and waits for no later one: rounds
 * cannot end in a circle. A process without messages in a round leaves it out. */
#ifndef SHARDRT_RESHARD_EXCHANGE_EXCHANGE_NCCL_H
#define SHARDRT_RESHARD_EXCHANGE_EXCHANGE_NCCL_H

#include "reshard/exchange/device_channel.h"
#include "reshard/exchange/peer_path.h"

/* Exchanges all that the channels have, and waits, with the collective's limit, until it has come. Every process must
 * have said in a gathering that it does the same. A failure is final: the links are given up. `what` is for messages.
 */
int exchange_nccl_run(const struct device_channel_args *args, struct channels *out, struct channels *in,
                      struct peer_path *peers, struct collective *m, const char *what);

#endif

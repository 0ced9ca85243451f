/* exchange_staged.h - messages between devices of different processes through the host: downloaded, sent by the job's
 * transport, uploaded. A few are under way at a time, in the order of the channels, which is that of the route and
 * cannot end in a circle (layout/route.h). */
#ifndef SHARDRT_RESHARD_EXCHANGE_EXCHANGE_STAGED_H
#define SHARDRT_RESHARD_EXCHANGE_EXCHANGE_STAGED_H

#include "reshard/exchange/device_channel.h"
#include "reshard/exchange/peer_path.h"

/* Elements of a message, for so many bytes of staging in each direction, but one at least. */
int64_t exchange_staged_piece(size_t staging, size_t element);

/* Exchanges all that the channels have, and waits, with the collective's limit, until it has been put on the devices.
 * The rules' `piece` is exchange_staged_piece's, as is `direct`. Every process must have said in a gathering that it
 * does the same. A failure is final. `what` is for messages. */
int exchange_staged_run(const struct device_channel_args *args, struct channels *out, struct channels *in,
                        struct peer_path *peers, struct collective *m, const char *what);

#endif

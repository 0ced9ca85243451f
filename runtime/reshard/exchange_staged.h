/* exchange_staged.h - messages between devices of different processes through the host: downloaded, sent by the job's
 * transport, uploaded. A few are under way at a time, in the order of the lanes, which is that of the route and cannot
 * end in a circle (layout/route.h). */
#ifndef SHARDRT_RESHARD_EXCHANGE_STAGED_H
#define SHARDRT_RESHARD_EXCHANGE_STAGED_H

#include "comm/peer_transport.h"
#include "reshard/channel.h"

enum { FERRY_WINDOW = 16 /* messages in each direction at most */ };

/* Elements of a message, for so many bytes of staging in each direction, but one at least. */
int64_t ferry_piece(size_t staging, size_t element);

/* Exchanges all that the lanes have, and waits, with the meet's limit, until it has been put on the devices. The
 * cargo's piece is ferry_piece's, its `direct` the same. Every process must have said at a meet that it does the same.
 * A failure is final. `what` is for messages. */
int ferry_run(const cargo *load, lanes *out, lanes *in, crossing *way, meet *m, const char *what);

#endif

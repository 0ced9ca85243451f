/* exchange_lines.h - what lines of GPUs (layout/lines.h) do together over the links between them: gather, broadcast,
 * add up. Each line has a communicator of its own, which is kept; data goes from array to array, through no memory
 * between. */
#ifndef SHARDRT_RESHARD_EXCHANGE_EXCHANGE_LINES_H
#define SHARDRT_RESHARD_EXCHANGE_EXCHANGE_LINES_H

#include "platform/accelerator.h"
#include "reshard/exchange/peer_path.h"

enum { LINES_FROM = 256 << 10 }; /* bytes of a block: from there on it is worth it, by the rule */

/* Whether data may go so at all, before anything is known of it: the way is settled and over links, each device is a
 * GPU of its own, and nobody asked for messages. */
bool exchange_lines_may(const struct peer_path *peers);
/* The same of sums. */
bool exchange_lines_may_add(const struct peer_path *peers, int32_t dtype);
/* The rule, in one place, and arithmetic that has the same outcome in every process. Lines are between processes, and
 * no process would take part twice with the same data. SHARDRT_LINKS=collectives asks for nothing more. Else it is to
 * be of LINES_FROM bytes; to need fewer bytes than messages (shardrt_lines); to give the same bits, which sums of
 * floats do not, as NCCL may add up in another order from one call to the next (NVIDIA/nccl#1497); and to need no
 * communicator that is not there: the line is all GPUs of the job in their order. */
bool exchange_lines_wanted(const struct peer_path *peers, const shardrt_lines *lines, const shardrt_mesh *mesh,
                           int32_t dtype);

/* What a device does in its line. `from` has its old block, `to` has room for its new one; of a broadcast only the root
 * needs `from`. */
struct accelerator_line_work exchange_lines_work(const shardrt_lines *lines, int32_t device, int32_t dtype,
                                                 const void *from, void *to);
/* Does it, for all devices that this process has in the mesh, and waits, with the collective's limit, until they are
 * done. Every process of the job must have said in a gathering that it does the same. A failure is final: the links are
 * given up. `what` is for messages. */
int exchange_lines_run(const shardrt_lines *lines, shardrt_mesh *mesh, int64_t count,
                       const struct accelerator_line_work *works, struct peer_path *peers, struct collective *m,
                       const char *what);

#endif

/* peer_path.h - how data gets from the devices of one process to those of another: over links between their GPUs,
 * or through the host. Settled once, by all processes together, when something is first to go. */
#ifndef SHARDRT_RESHARD_EXCHANGE_PEER_PATH_H
#define SHARDRT_RESHARD_EXCHANGE_PEER_PATH_H

#include "comm/collective.h"
#include "platform/accelerator.h"

enum peer_path_kind { PEERS_UNSETTLED, PEERS_LINKED, PEERS_BY_HOST };

/* Lines of GPUs that are kept: those along axes of a mesh. */
struct peer_lines {
  shardrt_mesh *mesh; /* counted; NULL: none */
  int64_t weights[SHARDRT_LINES_AXES];
  uint64_t used; /* when they were last asked for */
};

struct peer_path {
  enum peer_path_kind kind;
  enum accelerator_links_wish wish; /* links: what all processes say; LINKS_MESSAGES where they differ */
  bool is_apart;                    /* links: each device is a GPU of its own */
  struct peer_lines lines[ACCELERATOR_LINE_SETS];
  uint64_t asked;             /* for lines */
  int32_t processes, devices; /* of the job, and of each process */
  int32_t *ranks;             /* links: [process * devices + device] of its GPU among those of the job */
  char *pinned;               /* what data goes through in the host's memory, as it was last asked for */
  size_t pinned_bytes;
  bool is_open, is_broken; /* the links are open; something that went over them failed */
  char notice[320];        /* for the user, in process 0: why it goes through the host; "": nothing */
  bool is_told;            /* the user knows */
};

/* Settles it, where it is not: every process calls it alike. The processes' GPUs are compared; where two processes
 * share one, where links cannot be opened or are another job's, or SHARDRT_LINKS is "off" in any, it is the host.
 * ECOMM, EDEVICE: the links could not be joined, or were broken before. */
int peer_path_settle(struct peer_path *c, struct collective *m, int32_t devices);
/* Which set of lines (accelerator_links.divide) has those of a mesh whose axes have these weights (shardrt_lines).
 * *is_new: they are to be made, in the place of those that nobody asked for the longest time. Every process calls it
 * alike. */
int32_t peer_path_lines(struct peer_path *c, shardrt_mesh *mesh, const int64_t *weights, bool *is_new);
/* Ends what is under way on the links, which are of no use from then on. */
void peer_path_break(struct peer_path *c);
/* Memory that devices copy to and from, the same as last time if as much is wanted. It belongs to the peer transport.
 */
int peer_path_pinned(struct peer_path *c, size_t bytes, char **out);
/* Messages under way use it for good: the next to ask gets another. */
void peer_path_lose_pinned(struct peer_path *c);
/* What the user should know, once; NULL: nothing. It belongs to the peer transport. */
const char *peer_path_notice(struct peer_path *c);
void peer_path_close(struct peer_path *c);

#endif

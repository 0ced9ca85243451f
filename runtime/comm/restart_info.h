/* restart_info.h - what a job tells `shardrt run --restarts`, which started it, of its checkpoints: a few bytes of
 * memory that the two share, without a name that could be left behind. */
#ifndef SHARDRT_COMM_RESTART_INFO_H
#define SHARDRT_COMM_RESTART_INFO_H

#include <stdint.h>

struct restart_info {
  int64_t count; /* checkpoints saved */
  int64_t step;  /* that the newest stands at, or the one that the job goes on from; -1: there is none */
};

/* The launcher's side: makes the memory and names it in the environment, for the processes that are started then on
 * this machine. Returns a file descriptor; -1: there is none to be had, and nothing will be heard. */
int restart_info_open(void);
/* What was told so far. */
struct restart_info restart_info_read(int fd);

#endif

/* cores.h - how many threads of this process can run at the same time. */
#ifndef SHARDRT_BASE_CORES_H
#define SHARDRT_BASE_CORES_H

#include <stdint.h>

/* The cores that this process may use, shared with the other processes that the launcher started on this host; at least
 * 1. */
int32_t cores_share(void);

#endif

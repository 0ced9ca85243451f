/* clock.h - the machine's monotonic clock, in whole nanoseconds; shardrt_clock tells the same in seconds. */
#ifndef SHARDRT_SYSTEM_CLOCK_H
#define SHARDRT_SYSTEM_CLOCK_H

#include <stdint.h>

int64_t clock_now(void);

#endif

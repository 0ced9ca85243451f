/* stop_watch.h - when the processes of a job ask each other whether one was asked for an orderly end.
 *
 * To agree is a gathering. So they ask about once a second, at steps that follow from how long the slowest one took for
 * the last ones: each process knows them without being told. */
#ifndef SHARDRT_COMM_STOP_WATCH_H
#define SHARDRT_COMM_STOP_WATCH_H

#include "shardrt.h"

struct shardrt_stop_watch {
  int64_t steps; /* from one question to the next */
  int64_t since; /* steps since the last one, */
  int64_t clock; /* and when that was */
};

struct shardrt_stop_watch stop_watch_begin(void);

#endif

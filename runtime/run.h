/* run.h - `shardrt run`: the job under mpirun, once or until it has come to its end. */
#ifndef SHARDRT_RUN_H
#define SHARDRT_RUN_H

#include <stdbool.h>

#include "shardrt.h"

struct run {
  const char *self;        /* how this program was called */
  shardrt_options options; /* for each process */
  int processes;
  int restarts;      /* how often a job that died is started again; 0: never */
  int fewest;        /* processes that it may go on with */
  int stop;          /* a signal that asks for an orderly end beside SIGTERM and SIGUSR1; 0: none */
  const char *trace; /* the file of --trace; NULL: none; so, too, --report's and --metrics' */
  const char *report;
  const char *metrics;
  int progress; /* 1: --progress; -1: --no-progress; 0: neither */
  const char *recipe;
  bool is_program; /* it starts by itself, not in shardrt: of what is above, only processes, restarts, report and
                      metrics are for it */
  int argc;        /* the recipe's arguments */
  char **argv;
};

/* Waits for the job, starts it again from its last checkpoint where there are restarts, and returns the exit status of
 * the last run. SIGTERM and SIGUSR1 ask the job for an orderly end. -1, with errno: mpirun cannot be started. */
int run_job(const struct run *r);

#endif

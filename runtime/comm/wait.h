/* wait.h - how a process waits for others: politely, for so long, and in slices.
 *
 * Whoever waits spins for a moment, then sleeps longer and longer. Waiting for work ends after the job's timeout, in
 * which no process moved data. A process that moves says so, which restarts the others' clocks. A wait rests when the
 * slice that it runs in is over (system/time_slice.h); the time until it goes on is not counted. Where the slice was
 * cancelled, whatever waits, or would, fails: ECOMM "the job was abandoned". */
#ifndef SHARDRT_COMM_WAIT_H
#define SHARDRT_COMM_WAIT_H

#include <stdbool.h>
#include <stddef.h>

struct collective;

/* One wait: how long it has taken, how much of that without news of others, how much is spent spinning, and how long
 * the next rest is. */
struct patience {
  double looked, waited, quiet, spin;
  long sleep; /* nanoseconds */
};

/* Without sleeping for so many seconds. */
struct patience patience_begin(double spin);
void patience_rest(struct patience *p);
/* Rests where the slice that runs here is over. Time away is not spent waiting. */
void patience_give_way(struct patience *p);

/* Something that all processes do at the same time and each ends by itself. */
struct collective_work {
  /* Does what can be done now; never waits. *done: nothing is left; *moved: something went on. Returns a code. */
  int (*step)(void *context, bool *done, bool *moved);
  /* Marks the processes without which it does not go on. */
  void (*awaits)(const void *context, bool *processes);
  void *context;
};

/* Works until it is done. The time that counts against the timeout is that in which nothing went on, here or, by what
 * they say, in other processes: every move comes to an end, so that nobody waits forever. `bytes` is how much one step
 * of it moves at most, `what` is for the message. After a failure nothing that is under way can be ended, and memory
 * that it uses must never be given back. */
int collective_until(struct collective *m, const struct collective_work *work, const char *what, size_t bytes);

/* Passes on the code that starting a gathering gave, or waits until that gathering is done; `bytes` is how much moves
 * through this process, `what` is for the message. */
int collective_wait(struct collective *m, int started, const char *what, size_t bytes);

#endif

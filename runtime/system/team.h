/* team.h - threads that help the one that gives them work.
 *
 * There are two kinds of work: single tasks, which are begun in the order in which they were given, and one range of
 * many equal tasks, of which any free thread takes the next when no single one waits. All of a team's functions are
 * called by its owner's thread, which helps, too; a team of no threads is its owner alone.
 *
 * A team serves one call: its owner stays until the work has ended, and a task reports nothing. A loader's threads
 * (loader/worker_pool.h) work on while their owner does something else, in the order of the batches, fewer or more of
 * them, and tell which task failed. A call must not wait behind batches that nobody has asked for: so these are two. */
#ifndef SHARDRT_SYSTEM_TEAM_H
#define SHARDRT_SYSTEM_TEAM_H

#include <stdbool.h>
#include <stdint.h>

struct team;

typedef void team_run(void *context, int64_t number);

/* A single task; its memory is the giver's, and left alone until `run` has been called. How the giver learns that it
 * has ended is between the giver and `run`. */
struct team_task {
  struct team_task *next;
  team_run *run;
  void *context;
  int64_t number;
};

/* Starts `threads` threads. */
int team_new(int32_t threads, struct team **out);
/* Ends the threads; no work may be left. */
void team_free(struct team *team);
int32_t team_threads(const struct team *team);

void team_give(struct team *team, struct team_task *task);
/* The tasks 0 … count - 1 of a range; the range before it must have ended. */
void team_spread(struct team *team, team_run *run, void *context, int64_t count);
/* How many tasks of the range have not ended. When it is 0, all that they wrote can be seen. */
int64_t team_left(struct team *team);
/* Runs one task here; false where none waits. */
bool team_help(struct team *team);
/* Takes from the range what was not begun, and waits for what was. Single tasks that wait are forgotten. */
void team_stop(struct team *team);

#endif

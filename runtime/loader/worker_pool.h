/* worker_pool.h - threads that run numbered tasks in rounds.
 *
 * A round is a fixed number of tasks, run in the order of their numbers and of the rounds, each once, on whatever
 * worker is free: a worker takes the next one by one atomic operation, and sleeps where there is none. Rounds are
 * offered, waited for and cancelled by one thread, the owner's, which runs tasks, too, as long as it waits.
 *
 * The rounds are batches that a loader has made ahead of need. Work that a call waits for at once, computing or moving
 * an array, is a team's (system/team.h), whose threads no batch keeps busy. */
#ifndef SHARDRT_LOADER_WORKER_POOL_H
#define SHARDRT_LOADER_WORKER_POOL_H

#include "shardrt.h"

struct worker_pool;

/* Runs one task; `context` is worker_pool_new's, `worker` counts from 0, and as many as there are is the owner. Returns
 * a code, with the message set. */
typedef int worker_pool_run(void *context, int64_t round, int64_t task, int32_t worker);

/* Starts `workers` threads for rounds of `tasks` tasks each, of which at most `depth` are offered and not yet waited
 * for. With 0 tasks no thread is made, and every round is complete. */
int worker_pool_new(int32_t workers, int64_t tasks, int32_t depth, worker_pool_run *run, void *context,
                    struct worker_pool **out);
/* Cancels what is left and joins the threads. */
void worker_pool_free(struct worker_pool *self);
/* Lets the workers go on with one more round; returns its number, from 0. */
int64_t worker_pool_offer(struct worker_pool *self);
/* Waits for a round, and helps with what is to be done meanwhile, of later ones, too; rests where the slice that runs
 * here (system/time_slice.h) is over, and begins no task then, unless there are no workers. A task may rest, too: the
 * others go on with theirs. Where tasks of it failed: the code and message of the one with the lowest number. ECOMM:
 * the slice was cancelled; the round may go on. */
int worker_pool_wait(struct worker_pool *self, int64_t round);
/* Whether all rounds that were offered have ended. */
bool worker_pool_is_done(struct worker_pool *self);
/* How many of the rounds offered, from `round` on, have ended. */
int64_t worker_pool_ended(struct worker_pool *self, int64_t round);
/* From now on only the first `workers` take tasks: at least 1, at most all, as at first. */
void worker_pool_set_active(struct worker_pool *self, int32_t workers);
/* No task is begun any more; returns when those that were begun have ended. All rounds offered are then done with. */
void worker_pool_cancel(struct worker_pool *self);

#endif

/* worker_pool.h - threads that run numbered tasks in rounds.
 *
 * A round is a fixed number of tasks, run in the order of their numbers and of the rounds, each once, on whatever
 * worker is free: a worker takes the next one by one atomic operation, and sleeps where there is none. Rounds are
 * offered, waited for and cancelled by one thread, the owner's, which runs tasks, too, as long as it waits. */
#ifndef SHARDRT_LOADER_WORKER_POOL_H
#define SHARDRT_LOADER_WORKER_POOL_H

#include "shardrt.h"

struct crew;

/* Runs one task; `context` is crew_new's, `worker` counts from 0, and as many as there are is the owner. Returns a
 * code, with the message set. */
typedef int crew_run(void *context, int64_t round, int64_t task, int32_t worker);

/* Starts `workers` threads for rounds of `tasks` tasks each, of which at most `depth` are offered and not yet waited
 * for. With 0 tasks no thread is made, and every round is complete. */
int crew_new(int32_t workers, int64_t tasks, int32_t depth, crew_run *run, void *context, struct crew **out);
/* Cancels what is left and joins the threads. */
void crew_free(struct crew *self);
/* Lets the workers go on with one more round; returns its number, from 0. */
int64_t crew_offer(struct crew *self);
/* Waits for a round, and helps with what is to be done meanwhile, of later ones, too. Where tasks of it failed: the
 * code and message of the one with the lowest number. */
int crew_wait(struct crew *self, int64_t round);
/* Whether all rounds that were offered have ended. */
bool crew_is_done(struct crew *self);
/* How many of the rounds offered, from `round` on, have ended. */
int64_t crew_ended(struct crew *self, int64_t round);
/* From now on only the first `workers` take tasks: at least 1, at most all, as at first. */
void crew_set_active(struct crew *self, int32_t workers);
/* No task is begun any more; returns when those that were begun have ended. All rounds offered are then done with. */
void crew_cancel(struct crew *self);

#endif

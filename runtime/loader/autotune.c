#include "loader/autotune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "system/machine.h"

enum {
  MOST_WORKERS = 1024,
  AHEAD_BYTES = 4 << 20, /* that are made ahead, if that is more than LEAST_AHEAD batches */
  LEAST_AHEAD = 2,
  MOST_AHEAD = 32,
  MOST_BYTES = 256 << 20, /* that more than LEAST_AHEAD batches take, */
  MEMORY_PART = 16,       /* and so many times these is at most the process's memory */
  LOOK = 32,              /* steps at least are looked at together; twice as many after each look */
  FIRST_STEPS = 512       /* in which more memory is taken, and none after them */
};

/* A recipe that waits more than WAITS of its time needs something, one that waits less than RESTS may have too much. */
static const double WAITS = 0.05, RESTS = 0.01;
static const double FULL = 0.1; /* of the steps */
static const double LOOK_SECONDS = 0.02;
static const double SLEEPS = 0.5; /* of the time */
static const double HELPS = 0.8;  /* times the waiting before is what is left of it where more batches ahead help */
static const double SPARE = 1.5;  /* times what the workers were busy is what is kept of them */

/* For how long this thread has run, or could have and stood in a queue for a core: the second number in its schedstat,
 * as the first is late. */
static double awake_seconds(void) {
  struct timespec ran;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
  FILE *file = fopen("/proc/thread-self/schedstat", "re");
  char line[128] = "", *rest = line;
  if (file != NULL && fgets(line, sizeof line, file) != NULL) strtod(line, &rest);
  if (file != NULL) fclose(file);
  return (double)ran.tv_sec + 1e-9 * ((double)ran.tv_nsec + strtod(rest, NULL));
}

static int32_t clamp(double value, int32_t least, int32_t most) {
  return value < least ? least : value > most ? most : (int32_t)value;
}

/* Tasks are taken together as far as that makes a read of the whole size, and something is left for every core. */
static int64_t choose_group(const struct plan *plan, int32_t cores) {
  if (plan->ntasks == 0 || plan->pipeline == SHARDRT_GLOBAL) return 1; /* there tasks are whole reads */
  const double bytes = (double)plan->batch_bytes / (double)plan->ntasks;
  return clamp(fmin((double)plan->read_size / bytes, (double)plan->ntasks / cores), 1, INT32_MAX);
}

/* A worker for each core, but for one, where the recipe runs, and while it waits helps. As many batches ahead as take
 * some megabytes: two that take next to no time would not last for a step that takes a little more. */
void autotune_set(struct autotune *self, const shardrt_loader_options *options, const struct plan *plan) {
  const double bytes = plan->batch_bytes > 0 ? (double)plan->batch_bytes : 1;
  const double memory = fmin((double)machine_memory() / MEMORY_PART, MOST_BYTES);
  const int32_t cores = clamp((double)machine_cores(), 1, MOST_WORKERS);
  *self =
      (struct autotune){.now = {.workers_fixed = options->num_workers != 0, .prefetch_fixed = options->prefetch != 0}};
  self->group = choose_group(plan, cores);
  shardrt_pace *now = &self->now;
  now->most_workers = now->workers_fixed ? options->num_workers : cores;
  now->workers = now->workers_fixed || cores == 1 ? now->most_workers : cores - 1;
  now->most_prefetch = now->prefetch_fixed ? options->prefetch : clamp(memory / bytes, LEAST_AHEAD, MOST_AHEAD);
  now->prefetch = now->prefetch_fixed ? options->prefetch : clamp(AHEAD_BYTES / bytes, LEAST_AHEAD, now->most_prefetch);
  self->awake = awake_seconds();
  snprintf(self->why, sizeof self->why, "%s; %s",
           now->workers_fixed ? "num_workers as asked for" : "a worker for each core but the recipe's own",
           now->prefetch_fixed ? "prefetch as asked for" : "some megabytes ahead, and at least 2 batches");
}

/* At times there was no batch to make, at others none ready: those ahead do not bridge the uneven steps. Where there
 * always is one to make, the workers are too slow, and more batches ahead would only take more memory, as they do where
 * they were tried and did not help. */
static bool change_prefetch(shardrt_pace *pace, double waited, double full) {
  if (pace->prefetch_fixed) return false;
  if (pace->prefetch_before != 0 && waited > HELPS * pace->waited_before) {
    pace->prefetch = pace->prefetch_before;
    pace->prefetch_fixed = true;
    return true;
  }
  if (full < FULL || pace->prefetch >= pace->most_prefetch) return false;
  pace->prefetch_before = pace->prefetch;
  pace->waited_before = waited;
  pace->prefetch = pace->prefetch > pace->most_prefetch / 2 ? pace->most_prefetch : 2 * pace->prefetch;
  return true;
}

/* More of what is missing, less of what is not used, and otherwise nothing: so it settles. */
bool shardrt_pace_look(shardrt_pace *pace, double waited, double busy, double full, double slept) {
  if (waited > WAITS) {
    /* The recipe's core has nothing to do while that sleeps, so there may be a worker on it, too. */
    const int32_t cores = pace->most_workers, wanted = slept > SLEEPS || cores == 1 ? cores : cores - 1;
    if (pace->workers_fixed || pace->workers >= wanted) return change_prefetch(pace, waited, full);
    pace->workers = wanted;
    pace->workers_fixed = wanted == cores;
    return true;
  }
  pace->prefetch_before = 0; /* it is well as it is */
  const int32_t enough = clamp(ceil(SPARE * busy * pace->workers), 1, pace->most_workers);
  if (pace->workers_fixed || waited > RESTS || enough >= pace->workers) return false;
  pace->workers = enough;
  return true;
}

/* What the steps that are looked at mean, as parts of their time. The recipe's thread either waits, which is to help
 * and perhaps then to sleep until others have ended, or runs the recipe, or sleeps in it. */
static bool look_at_steps(struct autotune *self, double helped) {
  const shardrt_pace before = self->now;
  const double awake = awake_seconds(), all = self->seconds > 0 ? self->seconds : 1;
  const double recipe = fmax(awake - self->awake - (helped - self->helped), 0);
  const double waited = self->waited / all, busy = fmin(self->busy / all / before.workers, 1);
  const double full = self->all_steps > FIRST_STEPS ? 0 : (double)self->full / (double)self->steps;
  const double slept = fmax(1 - waited - recipe / all, 0);
  self->awake = awake;
  self->helped = helped;
  /* The first batches are waited for whatever there is: the first look is none. */
  if (self->looks == 0 || !shardrt_pace_look(&self->now, waited, busy, full, slept)) return false;
  snprintf(
      self->why, sizeof self->why,
      "in %lld steps the recipe waited %.0f%% of its time and slept %.0f%%, and %d worker%s worked %.0f%%: workers "
      "from %d to %d, prefetch from %d to %d",
      (long long)self->steps, 100 * waited, 100 * slept, (int)before.workers, before.workers == 1 ? "" : "s",
      100 * busy, (int)before.workers, (int)self->now.workers, (int)before.prefetch, (int)self->now.prefetch);
  return true;
}

bool autotune_step(struct autotune *self, double seconds, double waited, double busy, double helped, bool full) {
  self->steps++;
  self->all_steps++;
  self->full += full;
  self->seconds += seconds;
  self->waited += waited;
  self->busy += busy;
  const int64_t enough = (int64_t)LOOK << (self->looks < 32 ? self->looks : 32);
  if (self->steps < enough || self->seconds < LOOK_SECONDS) return false;
  const bool changed = look_at_steps(self, helped);
  self->looks++;
  self->steps = self->full = 0;
  self->seconds = self->waited = self->busy = 0;
  return changed;
}

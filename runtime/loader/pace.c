#include "loader/pace.h"

#include <math.h>
#include <stdio.h>

#include "base/machine.h"

enum {
  MOST_WORKERS = 1024,
  AHEAD_BYTES = 4 << 20, /* that are made ahead, if that is more than LEAST_AHEAD batches */
  LEAST_AHEAD = 2,
  MOST_AHEAD = 32,
  MOST_BYTES = 256 << 20, /* that more than LEAST_AHEAD batches take, */
  MEMORY_PART = 16,       /* and so many times these is at most the process's memory */
  LOOK = 32,              /* steps that are looked at together, */
  FIRST_LOOKS = 16        /* so many times; each look after these takes twice as many as the last */
};

/* A recipe that waits more than WAITS of its time needs something, one that waits less than RESTS may have too much. */
static const double WAITS = 0.05, RESTS = 0.01;
static const double FULL = 0.1;  /* of the steps */
static const double HELPS = 0.8; /* times the waiting before is what is left of it where more batches ahead help */
static const double SPARE = 1.5; /* times what the workers were busy is what is kept of them */

static int32_t clamp(double value, int32_t least, int32_t most) {
  return value < least ? least : value > most ? most : (int32_t)value;
}

/* One worker for each core; of one batch's tasks more would find nothing to do. As many batches ahead as take some
 * megabytes: where a batch takes no time, being woken for each would cost more. */
void pace_set(struct pace *self, const shardrt_loader_options *options, const struct plan *plan) {
  const double bytes = plan->batch_bytes > 0 ? (double)plan->batch_bytes : 1;
  const double memory = fmin((double)machine_memory() / MEMORY_PART, MOST_BYTES);
  const int32_t cores = machine_cores();
  *self = (struct pace){.now = {.workers_fixed = options->num_workers != 0, .prefetch_fixed = options->prefetch != 0}};
  shardrt_pace *now = &self->now;
  now->most_workers =
      now->workers_fixed ? options->num_workers : clamp((double)cores, 1, clamp((double)plan->ntasks, 1, MOST_WORKERS));
  now->workers = now->most_workers;
  now->most_prefetch = now->prefetch_fixed ? options->prefetch : clamp(memory / bytes, LEAST_AHEAD, MOST_AHEAD);
  now->prefetch = now->prefetch_fixed ? options->prefetch : clamp(AHEAD_BYTES / bytes, LEAST_AHEAD, now->most_prefetch);
  snprintf(self->why, sizeof self->why, "%s; %s", now->workers_fixed ? "num_workers as asked for" : "a worker a core",
           now->prefetch_fixed ? "prefetch as asked for" : "some megabytes ahead, and at least 2 batches");
}

/* At times there was no batch to make, at others none ready: those ahead do not bridge the uneven steps. Where there
 * always is one to make, the workers are too slow, and more batches ahead would only take more memory, as they do where
 * they were tried and did not help. */
static bool look_ahead(shardrt_pace *pace, double waited, double full) {
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
bool shardrt_pace_look(shardrt_pace *pace, double waited, double busy, double full) {
  if (waited > WAITS) {
    if (pace->workers_fixed || pace->workers == pace->most_workers) return look_ahead(pace, waited, full);
    pace->workers = pace->most_workers;
    pace->workers_fixed = true; /* fewer were tried, and too few */
    return true;
  }
  pace->prefetch_before = 0; /* it is well as it is */
  const int32_t enough = clamp(ceil(SPARE * busy * pace->workers), 1, pace->most_workers);
  if (pace->workers_fixed || waited > RESTS || enough >= pace->workers) return false;
  pace->workers = enough;
  return true;
}

static int64_t steps_of_look(const struct pace *self) {
  const int64_t later = self->looks - FIRST_LOOKS;
  return (int64_t)LOOK << (later < 0 ? 0 : later < 32 ? later : 32);
}

bool pace_step(struct pace *self, double seconds, double waited, double busy, bool full) {
  self->steps++;
  self->full += full;
  self->seconds += seconds;
  self->waited += waited;
  self->busy += busy;
  if (self->steps < steps_of_look(self)) return false;
  const shardrt_pace before = self->now;
  const double waits = self->seconds > 0 ? self->waited / self->seconds : 0;
  const double works = self->seconds > 0 ? self->busy / self->seconds / before.workers : 0;
  /* The first batches are waited for whatever there is: the first look is none. After the first looks no more memory
   * is taken. */
  if (self->looks > FIRST_LOOKS) self->now.prefetch_fixed = true;
  const bool changed =
      self->looks > 0 && shardrt_pace_look(&self->now, waits, works, (double)self->full / (double)self->steps);
  if (changed)
    snprintf(
        self->why, sizeof self->why,
        "in %lld steps the recipe waited %.0f%% of its time, and %d worker%s worked %.0f%%: workers from %d to %d, "
        "prefetch from %d to %d",
        (long long)self->steps, 100 * waits, (int)before.workers, before.workers == 1 ? "" : "s", 100 * works,
        (int)before.workers, (int)self->now.workers, (int)before.prefetch, (int)self->now.prefetch);
  self->looks++;
  self->steps = self->full = 0;
  self->seconds = self->waited = self->busy = 0;
  return changed;
}

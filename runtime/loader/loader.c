#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/order/block_order.h"
#include "dataset/source.h"
#include "loader/autotune.h"
#include "loader/batch.h"
#include "loader/batch_reshard.h"
#include "loader/budget.h"
#include "loader/lookahead.h"
#include "loader/plan/cursor.h"
#include "loader/plan/mask.h"
#include "loader/plan/options.h"
#include "loader/worker_pool.h"
#include "memory/array.h"
#include "memory/buffer_pool.h"
#include "system/numeric_state.h"
#include "system/time_slice.h"
#include "system/trace.h"

enum {
  CHECKED_FIRST = 10, /* `sample` checks a loader's first steps, */
  CHECKED_EVERY = 100 /* then one in so many */
};

/* Rounds of the pool are batches: round r is made in batches[r % nbatches]. Invariants: rounds handed … offered are in
 * the making or made, at most `prefetch` of them, and exactly their batches are open; rounds landed … handed were
 * handed out or dropped, but devices have not come to use them, or still copy them from their batches' blocks (where
 * devices are the host's, there are none), and together these are at most nbatches; `place` is where round `handed`
 * stands in the epochs, `ahead` where round `offered` will. All of this is the owner's; the workers see batches. */
struct shardrt_loader {
  shardrt_job *job;              /* borrowed; NULL: none */
  struct plan *plan;             /* how batches are read */
  struct batch_reshard *reshard; /* and how they get from there to the caller */
  struct cursor_rules rules;
  uint64_t seed;
  bool shuffle;
  struct block_orders *blocks; /* NULL: the order is not one over blocks */
  struct autotune autotune;    /* how many workers there are, and batches ahead */
  int64_t first_step;          /* the number of the first batch */
  struct budget budget;
  struct mask mask;            /* none unless padding */
  struct upload_plan *uploads; /* NULL: devices are the host's */
  struct buffer_pool *pool;
  struct batch *batches; /* nbatches of them */
  int32_t nbatches;
  struct batch_scratch *scratch; /* one for each worker, and one for the owner, who helps them */
  uint64_t *fingerprints;        /* room for those of a field's shards */
  int32_t narrays;               /* of a batch: the fields and perhaps the mask */
  shardrt_array **arrays;        /* room for them while they are made */
  struct worker_pool *workers;
  atomic_bool dropping;        /* what is in the making: tasks give up */
  struct lookahead *lookahead; /* reads ahead of the workers; NULL: nobody does */
  int64_t offered;
  int64_t handed;
  int64_t landed;
  struct cursor place;
  struct cursor ahead;
  double started;  /* when the first batch was asked for; 0: not yet */
  double last_end; /* when the last was handed out */
  struct batch_reshard_stats moved;
  struct upload_stats uploaded;
  shardrt_loader_stats stats;
};

/* ---- making one ------------------------------------------------------------------------------------------------- */

static int make_batches(shardrt_loader *self) {
  self->nbatches = self->autotune.now.most_prefetch + budget_landing(self->uploads, self->autotune.now.most_prefetch);
  self->batches = alloc_zeros((size_t)self->nbatches, sizeof *self->batches);
  if (self->batches == NULL) return ALLOC_FAILED;
  self->scratch = alloc_zeros((size_t)self->autotune.now.most_workers + 1, sizeof *self->scratch);
  if (self->scratch == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < self->nbatches && code == SHARDRT_OK; i++)
    code = batch_set(&self->batches[i], self->plan, self->uploads);
  for (int32_t i = 0; i <= self->autotune.now.most_workers && code == SHARDRT_OK; i++)
    code = batch_scratch_set(&self->scratch[i], self->plan, &self->dropping);
  if (code != SHARDRT_OK) return code;
  int64_t shards = 0;
  for (int32_t f = 0; f < self->plan->nfields; f++) {
    int64_t own = shardrt_array_shard_count(self->plan->fields[f].like);
    if (own > shards) shards = own;
  }
  self->fingerprints = alloc_array((size_t)shards, sizeof *self->fingerprints);
  if (self->fingerprints == NULL) return ALLOC_FAILED;
  self->narrays = self->plan->nfields + (self->mask.full != NULL);
  self->arrays = alloc_zeros((size_t)self->narrays, sizeof(shardrt_array *));
  return self->arrays != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static struct batch *batch_at(const shardrt_loader *self, int64_t round) {
  return &self->batches[round % self->nbatches];
}

/* The invariants of the rounds and their batches. */
static inline bool rounds_are_sound(const shardrt_loader *self) {
  if (self->landed < 0 || self->landed > self->handed || self->handed > self->offered) return false;
  if (self->offered - self->handed > self->autotune.now.most_prefetch || self->offered - self->landed > self->nbatches)
    return false;
  for (int64_t r = self->handed; r < self->offered && self->plan->nblocks > 0; r++)
    if (batch_at(self, r)->buffers[0] == NULL) return false;
  return true;
}

/* A task of the pool is some of the plan's. */
static int run_tasks(void *context, int64_t round, int64_t group, int32_t worker) {
  shardrt_loader *self = context;
  const int64_t first = group * self->autotune.group, left = self->plan->ntasks - first;
  return batch_run(batch_at(self, round), self->plan, first, left < self->autotune.group ? left : self->autotune.group,
                   &self->scratch[worker]);
}

static void name_for_trace(struct plan *plan) {
  plan->trace_loader = trace_loader();
  for (int32_t f = 0; f < plan->nfields; f++) plan->fields[f].trace_name = trace_name(plan->fields[f].field->name);
}

static int set_budget(shardrt_loader *self) {
  return budget_set(&self->budget, self->plan, self->reshard, self->uploads, self->autotune.now.prefetch);
}

static int set_loader(shardrt_loader *self, const shardrt_loader_options *o) {
  int code = plan_new(o, &self->plan);
  if (code == SHARDRT_OK) name_for_trace(self->plan);
  if (code == SHARDRT_OK) code = batch_reshard_new(o, self->plan, &self->reshard);
  if (code != SHARDRT_OK) return code;
  autotune_set(&self->autotune, o, self->plan);
  if (o->remainder == SHARDRT_PAD) code = mask_set(&self->mask, o, self->plan->nfields);
  if (code == SHARDRT_OK) code = upload_plan_new(self->plan, &self->uploads);
  if (code == SHARDRT_OK) code = set_budget(self);
  if (code == SHARDRT_OK)
    code = (self->uploads != NULL ? buffer_pool_new_pinned : buffer_pool_new)(self->budget.pool, &self->pool);
  if (code == SHARDRT_OK) code = make_batches(self);
  if (code == SHARDRT_OK)
    code = worker_pool_new(self->autotune.now.most_workers,
                           (self->plan->ntasks + self->autotune.group - 1) / self->autotune.group,
                           self->autotune.now.most_prefetch, run_tasks, self, &self->workers);
  if (code == SHARDRT_OK && self->plan->ntasks > 0) worker_pool_set_active(self->workers, self->autotune.now.workers);
  if (code == SHARDRT_OK && o->shuffle == SHARDRT_BY_BLOCKS)
    code = block_orders_new(self->plan->source, self->seed, o->window, o->lanes > 0 ? o->lanes : o->batch_size,
                            &self->blocks);
  if (code == SHARDRT_OK)
    code = lookahead_new(self->plan, &self->rules, self->seed, self->shuffle, self->blocks, &self->lookahead);
  return code;
}

int shardrt_loader_new(const shardrt_loader_options *o, shardrt_loader **out) {
  NUMERIC_STATE_OF_C;
  int code = options_check(o);
  if (code != SHARDRT_OK) return code;
  struct cursor_rules rules = {.count = shardrt_source_count(o->source),
                               .batch_size = o->batch_size,
                               .epochs = o->epochs,
                               .remainder = o->remainder};
  code = cursor_check(&rules);
  if (code != SHARDRT_OK) return code;
  shardrt_loader *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->job = o->job;
  made->rules = rules;
  made->seed = o->seed;
  made->shuffle = o->shuffle != SHARDRT_IN_ORDER;
  made->first_step = o->first_step;
  code = cursor_seek(&made->place, &rules, 0, 0);
  made->ahead = made->place;
  if (code == SHARDRT_OK) code = set_loader(made, o);
  if (code == SHARDRT_OK) made->stats.batch_bytes = made->reshard->batch_bytes;
  if (code != SHARDRT_OK) {
    shardrt_loader_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

void shardrt_loader_free(shardrt_loader *self) {
  if (self == NULL) return;
  atomic_store(&self->dropping, true);
  lookahead_free(self->lookahead); /* first these two: their threads use all the rest */
  worker_pool_free(self->workers);
  alloc_free((void *)self->arrays);
  alloc_free(self->fingerprints);
  for (int32_t i = 0; self->scratch != NULL && i <= self->autotune.now.most_workers; i++)
    batch_scratch_clear(&self->scratch[i]);
  alloc_free(self->scratch);
  for (int32_t i = 0; self->batches != NULL && i < self->nbatches; i++) batch_clear(&self->batches[i], self->plan);
  alloc_free(self->batches);
  buffer_pool_free(self->pool);
  upload_plan_free(self->uploads);
  block_orders_free(self->blocks);
  mask_clear(&self->mask);
  batch_reshard_free(self->reshard);
  plan_free(self->plan);
  alloc_free(self);
}

/* ---- batches ---------------------------------------------------------------------------------------------------- */

static bool is_checked(const shardrt_loader *self, int64_t step) {
  const int32_t check = self->job != NULL ? shardrt_job_info_get(self->job)->check : SHARDRT_CHECK_OFF;
  if (check != SHARDRT_CHECK_SAMPLE) return check == SHARDRT_CHECK_ALL;
  return step < CHECKED_FIRST || step % CHECKED_EVERY == 0;
}

/* What `batches` of them take before they are handed out. */
static size_t bytes_ahead(const shardrt_loader *self, int64_t batches) {
  return (size_t)batches * (self->uploads != NULL ? self->uploads->batch_bytes : self->plan->batch_bytes);
}

size_t shardrt_loader_outstanding(const shardrt_loader *self) {
  if (self->uploads != NULL) return upload_counted(self->uploads);
  return buffer_pool_outstanding(self->pool) - bytes_ahead(self, self->offered - self->handed);
}

/* Finds what has landed; where not so few are left as `most`, waits for the eldest. */
static int land_batches(shardrt_loader *self, int64_t most) {
  while (self->landed < self->handed) {
    const bool wait = self->offered - self->landed > most;
    bool landed;
    int code = batch_land(batch_at(self, self->landed), self->plan, wait, &self->uploaded, &landed);
    self->landed += landed;
    if (code != SHARDRT_OK) return error_prefix(code, "the copies of the loader's batches to the devices");
    if (!landed) break;
  }
  return SHARDRT_OK;
}

/* Of the batch at `place`. */
static int64_t step_number(const shardrt_loader *self) {
  return self->first_step + self->stats.steps;
}

/* Sets the workers on the batch at `ahead`. */
static int offer_batch(shardrt_loader *self) {
  int code = land_batches(self, self->autotune.now.prefetch + self->budget.landing - 1);
  if (code != SHARDRT_OK) return code;
  assert(self->offered - self->landed < self->nbatches); /* the batch is free */
  struct batch *next = batch_at(self, self->offered);
  epoch_order_set(&next->order, self->seed, self->ahead.epoch, self->rules.count, self->shuffle);
  next->order.blocks = self->blocks;
  next->first = self->ahead.row;
  next->rows = cursor_rows(&self->ahead, &self->rules);
  next->past_caches = self->budget.past_caches;
  next->step = step_number(self) + self->offered - self->handed;
  next->fingerprinted = is_checked(self, next->step);
  code = batch_open(next, self->plan, self->pool);
  if (code != SHARDRT_OK) return code;
  worker_pool_offer(self->workers);
  self->offered++;
  cursor_advance(&self->ahead, &self->rules);
  const struct lookahead_view view = {
      .first = self->handed, .place = self->place, .end = self->offered, .end_place = self->ahead};
  lookahead_tell(self->lookahead, &view);
  return SHARDRT_OK;
}

/* Whether there is a batch at `ahead`, and it may be made. */
static bool may_offer(const shardrt_loader *self) {
  return self->offered - self->handed < self->autotune.now.prefetch && cursor_rows(&self->ahead, &self->rules) > 0;
}

/* And without waiting. */
static bool within_budget(const shardrt_loader *self) {
  const size_t bytes = shardrt_loader_outstanding(self) + bytes_ahead(self, self->offered - self->handed + 1);
  return bytes <= self->budget.bytes &&
         self->offered - self->landed < self->autotune.now.prefetch + self->budget.landing;
}

/* Drops what is in the making, so that the next batch is the one at `place`. */
static void drop_ahead(shardrt_loader *self) {
  atomic_store(&self->dropping, true);
  worker_pool_cancel(self->workers);
  atomic_store(&self->dropping, false);
  for (; self->handed < self->offered; self->handed++) batch_close(batch_at(self, self->handed), self->plan);
  (void)land_batches(self, INT64_MAX); /* what fails here fails when its place is needed */
  self->ahead = self->place;
  lookahead_forget(self->lookahead);
  assert(rounds_are_sound(self) && self->handed == self->offered);
}

/* Compares the replicas of all fields across the job. Whether there are any is the same in every process. */
static int check_batch_replicas(shardrt_loader *self, struct batch *made, const char *step) {
  if (!made->fingerprinted) return SHARDRT_OK;
  int code = SHARDRT_OK;
  int64_t compared = 0;
  for (int32_t f = 0; f < self->plan->nfields && code == SHARDRT_OK; f++) {
    const struct batch_reshard_field *field = &self->reshard->fields[f];
    if (!field->has_replicas) continue;
    char name[256]; /* a longer one is cut short */
    snprintf(name, sizeof name, "%s, field \"%s\"", step, field->name);
    if (field->moves) { /* what was read has other blocks */
      code = shardrt_check_array(self->job, name, self->arrays[f]);
      self->stats.bytes_fingerprinted += (int64_t)field->bytes;
    } else {
      code = batch_fingerprints(made, self->plan, f, self->fingerprints);
      if (code == SHARDRT_OK) code = shardrt_check_replicas(self->job, name, self->arrays[f], self->fingerprints);
    }
    compared++;
  }
  if (code == SHARDRT_OK && compared > 0) self->stats.steps_checked++;
  return code;
}

/* A step that is not compared is still known to the job, which finds at the next occasion who took another. It is told
 * once, when what may fail here alone is done. */
static int meet_others(shardrt_loader *self, struct batch *made) {
  char step[64], told[128];
  snprintf(step, sizeof step, "step %lld of the loader", (long long)step_number(self));
  snprintf(told, sizeof told, "%s, from row %lld of epoch %lld", step, (long long)self->place.row,
           (long long)self->place.epoch);
  shardrt_job_step(self->job, told);
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < self->plan->nfields && code == SHARDRT_OK; f++)
    code = batch_reshard_array(self->reshard, f, step, self->uploads == NULL ? self->pool : NULL, &self->arrays[f],
                               &self->moved);
  return code == SHARDRT_OK ? check_batch_replicas(self, made, step) : code;
}

/* The arrays of a batch whose tasks have run, checked, in self->arrays. */
static int make_arrays(shardrt_loader *self, struct batch *made) {
  int32_t n = 0;
  int code = batch_hand_over(made, self->plan);
  while (n < self->narrays && code == SHARDRT_OK) {
    code = n < self->plan->nfields ? batch_array(made, self->plan, n, &self->arrays[n])
                                   : mask_make(&self->mask, made->rows, &self->arrays[n]);
    if (code == SHARDRT_OK) n++;
  }
  if (code == SHARDRT_OK) code = meet_others(self, made);
  if (code == SHARDRT_OK) return code;
  while (n > 0) shardrt_array_free(self->arrays[--n]);
  return code;
}

/* After a batch that the workers were busy with for so many nanoseconds, and the caller waited for; `full`: it found
 * all made that may be ahead. */
static void retune(shardrt_loader *self, double waited, int64_t busy, bool full) {
  const double now = shardrt_clock(), since = self->last_end != 0 ? self->last_end : self->started;
  self->last_end = now;
  const double helped = 1e-9 * (double)self->scratch[self->autotune.now.most_workers].busy;
  if (!autotune_step(&self->autotune, now - since, waited, 1e-9 * (double)busy, helped, full)) return;
  worker_pool_set_active(self->workers, self->autotune.now.workers);
  if (set_budget(self) == SHARDRT_OK)
    buffer_pool_limit(self->pool, self->budget.pool); /* as it is less than the memory */
}

/* An event of the step at `place`. */
static struct trace_event trace_what(const shardrt_loader *self, enum trace_kind kind, int64_t amount) {
  return (struct trace_event){
      .kind = (uint16_t)kind, .loader = self->plan->trace_loader, .step = step_number(self), .amount = amount};
}

/* Waits for the next batch and makes its arrays. */
static int take_batch(shardrt_loader *self, bool full) {
  struct batch *made = batch_at(self, self->handed);
  const int64_t start = clock_now(), away = time_slice_away();
  int code = worker_pool_wait(self->workers, self->handed);
  const int64_t end = clock_now();
  const double waited =
      1e-9 * (double)(end - start - (time_slice_away() - away)); /* between slices the caller worked */
  trace_span(start, end, trace_what(self, TRACE_WAIT, 0));
  self->stats.wait_seconds += waited;
  if (code == SHARDRT_OK) code = make_arrays(self, made);
  if (code != SHARDRT_OK) return code;
  batch_add_figures(made, &self->stats);
  for (int32_t f = 0; self->uploads != NULL && f < self->plan->nfields; f++)
    upload_count(self->uploads, self->arrays[f]);
  retune(self, waited, atomic_load(&made->busy), full);
  self->stats.samples += made->rows;
  self->stats.steps++;
  batch_close(made, self->plan); /* the arrays hold the buffers now */
  self->handed++;
  cursor_advance(&self->place, &self->rules);
  return SHARDRT_OK;
}

static int next_batch(shardrt_loader *self, shardrt_array **arrays) {
  assert(rounds_are_sound(self));
  if (self->started == 0) self->started = shardrt_clock();
  int code = land_batches(self, INT64_MAX);
  const bool full = self->offered - self->handed == self->autotune.now.prefetch && worker_pool_is_done(self->workers);
  while (code == SHARDRT_OK && may_offer(self)) code = offer_batch(self);
  const bool any = self->handed < self->offered;
  if (code == SHARDRT_OK && any) code = take_batch(self, full);
  if (code != SHARDRT_OK) {
    drop_ahead(self);
    return code;
  }
  if (any) memcpy(arrays, self->arrays, (size_t)self->narrays * sizeof *arrays);
  /* What the caller does with this batch is time to make others in, as far as the budget goes (the next call goes to
   * `prefetch` of them whatever they take). What fails here fails there again, and is reported there. */
  (void)land_batches(self, INT64_MAX);
  while (may_offer(self) && within_budget(self) && offer_batch(self) == SHARDRT_OK) {
  }
  self->stats.seconds = shardrt_clock() - self->started;
  return any;
}

int shardrt_loader_next(shardrt_loader *self, shardrt_array **arrays) {
  NUMERIC_STATE_OF_C;
  const int64_t start = trace_enter();
  if (start == 0) return next_batch(self, arrays);
  trace_span(start, start, trace_what(self, TRACE_READY, worker_pool_ended(self->workers, self->handed)));
  struct trace_event step = trace_what(self, TRACE_STEP, cursor_rows(&self->place, &self->rules));
  int code = next_batch(self, arrays);
  trace_end(start, step);
  trace_leave();
  return code;
}

/* ---- what there is to know -------------------------------------------------------------------------------------- */

int64_t shardrt_loader_steps_per_epoch(const shardrt_loader *self) {
  return cursor_steps(&self->rules);
}

void shardrt_loader_stats_get(const shardrt_loader *self, shardrt_loader_stats *out) {
  *out = self->stats;
  out->bytes_moved = self->moved.bytes;
  out->move_seconds = self->moved.seconds;
  out->bytes_uploaded = self->uploaded.bytes;
  out->upload_seconds = self->uploaded.seconds;
  out->upload_wait_seconds = self->uploaded.waited;
  out->budget_bytes = self->budget.bytes;
  out->slack_bytes = self->budget.slack;
  out->pinned_bytes = self->uploads != NULL ? self->budget.pool : 0;
  out->num_workers = self->autotune.now.workers;
  out->prefetch = self->autotune.now.prefetch;
  out->read_size = self->plan->read_size;
  out->why = self->autotune.why;
  lookahead_stats(self->lookahead, &out->bytes_ahead, &out->ahead);
  out->bytes_from_network += lookahead_downloaded(self->lookahead);
  out->blocks = source_block_count(self->plan->source);
}

void shardrt_loader_tell(const shardrt_loader *self, int64_t *epoch, int64_t *row) {
  *epoch = self->place.epoch;
  *row = self->place.row;
}

int shardrt_loader_seek(shardrt_loader *self, int64_t epoch, int64_t row) {
  if (self->rules.count > 0 && epoch >= INT64_MAX / self->rules.count)
    return error_set(SHARDRT_EINVAL, "epoch %lld: 64 bits do not count the samples before it", (long long)epoch);
  int code = cursor_seek(&self->place, &self->rules, epoch, row);
  if (code == SHARDRT_OK) drop_ahead(self);
  return code;
}

int shardrt_loader_set_lanes(shardrt_loader *self, int64_t lanes) {
  if (lanes < 1) return error_set(SHARDRT_EINVAL, "%lld lanes: it is a number from 1 on", (long long)lanes);
  if (self->blocks == NULL) return SHARDRT_OK;
  drop_ahead(self);
  block_orders_set_lanes(self->blocks, lanes);
  return SHARDRT_OK;
}

/* cost.c - what a batch costs a process: bytes of its plans, before anything is read. */
#include "base/alloc.h"
#include "base/error.h"
#include "dataset/block_order.h"
#include "loader/batch_reshard.h"
#include "loader/plan/options.h"

/* Every row of a batch takes the same from the storage. */
static int64_t bytes_read(const struct plan *plan) {
  int64_t bytes = 0;
  if (plan->pipeline == SHARDRT_GLOBAL) {
    for (int32_t f = 0; f < plan->nfields; f++) {
      shardrt_box whole = source_whole(plan->fields[f].field);
      bytes += plan->batch_size * (int64_t)source_bytes(plan->source, f, &whole);
    }
    return bytes;
  }
  for (int64_t b = 0; b < plan->nblocks; b++) bytes += plan->blocks[b].rows * (int64_t)plan->blocks[b].storage_bytes;
  return bytes;
}

int shardrt_loader_cost_of(const shardrt_loader_options *options, shardrt_loader_cost *out) {
  struct plan *plan;
  struct batch_reshard *reshard = NULL;
  int code = plan_new(options, &plan);
  if (code != SHARDRT_OK) return code;
  shardrt_loader_cost cost = {.bytes_read = bytes_read(plan)};
  code = batch_reshard_new(options, plan, &reshard);
  if (code == SHARDRT_OK) code = batch_reshard_cost(reshard, plan, &cost.bytes_received, &cost.bytes_sent);
  batch_reshard_free(reshard);
  plan_free(plan);
  if (code == SHARDRT_OK) *out = cost;
  return code;
}

/* ---- what an order costs ----------------------------------------------------------------------------------------- */

/* Rows of a batch that follow one another, which the process reads. */
struct row_run {
  int64_t from, to;
};

/* The runs of the plan's rows, joined, in ascending order; returns how many. */
static int64_t list_runs(const struct plan *plan, struct row_run *runs) {
  if (plan->pipeline == SHARDRT_GLOBAL) {
    runs[0] = (struct row_run){.to = plan->batch_size};
    return plan->nfields > 0;
  }
  int64_t n = 0;
  for (int64_t at = 0; at < plan->batch_size;) { /* the first row from `at` on that some block has, and how far on */
    struct row_run next = {.from = plan->batch_size, .to = plan->batch_size};
    for (int64_t b = 0; b < plan->nblocks; b++) {
      const int64_t from = plan->blocks[b].first_row, to = from + plan->blocks[b].rows;
      if (to <= at || to == from || (from > at ? from : at) > next.from) continue;
      if ((from > at ? from : at) < next.from) next = (struct row_run){.from = from > at ? from : at, .to = to};
      if (to > next.to) next.to = to;
    }
    if (next.from >= plan->batch_size) break;
    if (n > 0 && runs[n - 1].to == next.from)
      runs[n - 1].to = next.to;
    else
      runs[n++] = next;
    at = next.to;
  }
  return n;
}

/* Whether a range of samples, in the source's order, has one that stands in these rows of a batch. */
static bool reaches(struct sample_range range, const struct row_run *run, int64_t batch_size) {
  const int64_t lane = range.first % batch_size;
  if (range.count == 0 || run->from == run->to) return false;
  const int64_t distance = lane >= run->from && lane < run->to ? 0 : (run->from - lane + batch_size) % batch_size;
  return distance < range.count;
}

static int count_touched(const struct plan *plan, const shardrt_loader_options *o, const struct row_run *runs,
                         int64_t nruns, int64_t *touched) {
  const shardrt_source *source = plan->source;
  const int64_t blocks = source_block_count(source);
  int64_t rows = 0;
  for (int64_t r = 0; r < nruns; r++) rows += runs[r].to - runs[r].from;
  if (o->shuffle == SHARDRT_SHUFFLED || source_stands_alone(source)) {
    *touched = source->count / o->batch_size * rows;
    return SHARDRT_OK;
  }
  if (o->shuffle == SHARDRT_BY_BLOCKS) {
    struct block_orders *orders;
    int code = block_orders_new(source, o->seed, o->window, o->batch_size, &orders);
    for (int64_t r = 0; r < nruns && code == SHARDRT_OK; r++) {
      int64_t of_run = 0;
      code = block_orders_touched(orders, runs[r].from, runs[r].to, &of_run);
      *touched += of_run;
    }
    if (code == SHARDRT_OK) block_orders_free(orders);
    return code;
  }
  for (int64_t b = 0; b < blocks; b++) {
    bool reached = false;
    for (int64_t r = 0; r < nruns && !reached; r++) reached = reaches(source_block(source, b), &runs[r], o->batch_size);
    *touched += reached;
  }
  return SHARDRT_OK;
}

static int find_order_cost(const struct plan *plan, const shardrt_loader_options *o, shardrt_order_cost *out) {
  const shardrt_source *source = plan->source;
  const int64_t blocks = source_block_count(source), kept = source_blocks_kept(source);
  struct row_run *runs = alloc_array((size_t)plan->nblocks + 1, sizeof *runs);
  if (runs == NULL) return ALLOC_FAILED;
  int code = count_touched(plan, o, runs, list_runs(plan, runs), &out->blocks);
  alloc_free(runs);
  if (o->shuffle == SHARDRT_SHUFFLED && kept > 0 && out->blocks > blocks) /* what is kept need not be decoded again */
    out->blocks = kept >= blocks ? blocks : blocks + (out->blocks - blocks) / blocks * (blocks - kept);
  const size_t each = blocks > 0 ? source_stored_bytes(source) / (size_t)blocks : 0;
  out->bytes = out->blocks * (int64_t)each;
  out->downloaded = source_is_remote(source);
  out->decoded = kept >= 0;
  out->kept = kept >= 0 ? kept : 0;
  return code;
}

int shardrt_loader_order_cost(const shardrt_loader_options *options, shardrt_order_cost *out) {
  *out = (shardrt_order_cost){0};
  if (options->source->mix != NULL)
    return error_set(SHARDRT_EINVAL, "this is a mix: each of its parts has an order of its own");
  struct plan *plan;
  int code = options_check(options);
  if (code == SHARDRT_OK) code = plan_new(options, &plan);
  if (code != SHARDRT_OK) return code;
  code = find_order_cost(plan, options, out);
  plan_free(plan);
  return code;
}

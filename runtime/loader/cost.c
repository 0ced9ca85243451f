/* cost.c - what a batch costs a process: bytes of its plans, before anything is read. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/order/block_order.h"
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

static int compare_runs(const void *a, const void *b) {
  const int64_t x = ((const struct row_run *)a)->from, y = ((const struct row_run *)b)->from;
  return (x > y) - (x < y);
}

/* The runs of the plan's rows, joined, in ascending order; returns how many. There is room for one more than blocks. */
static int64_t list_runs(const struct plan *plan, struct row_run *runs) {
  if (plan->pipeline == SHARDRT_GLOBAL) {
    runs[0] = (struct row_run){.to = plan->batch_size};
    return plan->nfields > 0;
  }
  for (int64_t b = 0; b < plan->nblocks; b++) {
    const struct plan_block *block = &plan->blocks[b];
    runs[b] = (struct row_run){.from = block->first_row, .to = block->first_row + block->rows};
  }
  qsort(runs, (size_t)plan->nblocks, sizeof *runs, compare_runs);
  int64_t n = 0;
  for (int64_t b = 0; b < plan->nblocks; b++) {
    if (n == 0 || runs[b].from > runs[n - 1].to)
      runs[n++] = runs[b];
    else if (runs[b].to > runs[n - 1].to)
      runs[n - 1].to = runs[b].to;
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
    struct block_orders *orders = NULL;
    int code = block_orders_new(source, o->seed, o->window, o->batch_size, &orders);
    for (int64_t r = 0; r < nruns && code == SHARDRT_OK; r++) {
      int64_t of_run = 0;
      code = block_orders_touched(orders, runs[r].from, runs[r].to, &of_run);
      *touched += of_run;
    }
    block_orders_free(orders);
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
  const int64_t blocks = source_block_count(source), kept = out->kept;
  struct row_run *runs = alloc_array((size_t)plan->nblocks + 1, sizeof *runs);
  if (runs == NULL) return ALLOC_FAILED;
  int code = count_touched(plan, o, runs, list_runs(plan, runs), &out->blocks);
  alloc_free(runs);
  if (o->shuffle == SHARDRT_SHUFFLED && kept > 0 && out->blocks > blocks) /* what is kept need not be decoded again */
    out->blocks = kept >= blocks ? blocks : blocks + (out->blocks - blocks) / blocks * (blocks - kept);
  const size_t each = blocks > 0 ? source_stored_bytes(source) / (size_t)blocks : 0;
  out->bytes = out->blocks * (int64_t)each;
  return code;
}

int shardrt_loader_order_cost(const shardrt_loader_options *options, shardrt_order_cost *out) {
  const int64_t kept = source_blocks_kept(options->source);
  *out = (shardrt_order_cost){
      .kept = kept > 0 ? kept : 0, .decoded = kept >= 0, .downloaded = source_is_remote(options->source)};
  if (!out->decoded && !out->downloaded) return SHARDRT_OK;
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

#include "loader/plan/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "comm/job.h"
#include "dataset/source.h"
#include "layout/sharding.h"
#include "system/machine.h"

/* A task is large enough to be worth taking, small enough to share a batch evenly and to stay in a core's cache, with
 * what it reads. The row numbers of a task are kept by its worker, so their number is bounded too. */
enum { CACHE_PART = 4, LEAST_READ = 64 << 10, MOST_READ = 1 << 20, TASK_ROWS = 4096 };

static size_t choose_read_size(void) {
  const size_t size = machine_cache() / CACHE_PART;
  return size < LEAST_READ ? LEAST_READ : size > MOST_READ ? MOST_READ : size;
}

/* Alike for all tasks, as far as whole rows go. */
static int64_t rows_of_task(const struct plan *self, size_t row_bytes, int64_t all) {
  const size_t fit = row_bytes == 0 ? TASK_ROWS : self->read_size / row_bytes;
  const int64_t most = fit < 1 ? 1 : fit > TASK_ROWS ? TASK_ROWS : (int64_t)fit;
  const int64_t tasks = all == 0 ? 1 : (all - 1) / most + 1;
  return (all + tasks - 1) / tasks;
}

/* The batch's array of one field, still without data: knows shape and shards. */
static int make_like(const struct plan *self, const shardrt_loader_options *options, struct plan_field *field) {
  const int64_t f = field - self->fields;
  shardrt_sharding *sharding = options->load_shardings != NULL ? options->load_shardings[f] : options->shardings[f];
  const shardrt_field *sample = field->field;
  int code = source_refuse_ragged(sample);
  if (code != SHARDRT_OK) return code;
  if (sample->ndim >= SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL,
                     "field \"%s\": its samples have %d dimensions; with the batch's own an array has %d at most",
                     sample->name, (int)sample->ndim, SHARDRT_MAX_NDIM);
  int64_t shape[SHARDRT_MAX_NDIM] = {self->batch_size};
  memcpy(shape + 1, sample->shape, (size_t)sample->ndim * sizeof *shape);
  code = shardrt_array_new(sharding, sample->dtype, sample->ndim + 1, shape, self->process, self->devices_per_process,
                           &field->like);
  if (code != SHARDRT_OK)
    return error_prefix(code, "field \"%s\" of the loader's batches%s", sample->name,
                        options->load_shardings != NULL ? ", as they are read" : "");
  struct block_grid grid;
  code = sharding_grid(sharding, sample->ndim + 1, shape, &grid);
  if (code != SHARDRT_OK) return code;
  field->has_replicas = grid.blocks < shardrt_mesh_size(shardrt_sharding_mesh(sharding));
  return SHARDRT_OK;
}

/* Which block each shard is: with per_device one for each, otherwise one for each distinct box. */
static int map_shards(const struct plan *self, struct plan_field *field) {
  int64_t shards = shardrt_array_shard_count(field->like);
  field->shard_blocks = alloc_array((size_t)shards, sizeof *field->shard_blocks);
  if (field->shard_blocks == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < shards; i++) {
    int32_t block = self->pipeline == SHARDRT_PER_DEVICE ? (int32_t)i : shardrt_array_shard(field->like, i)->block;
    field->shard_blocks[i] = block;
    if (block >= field->nblocks) field->nblocks = block + 1;
  }
  return SHARDRT_OK;
}

static void set_block(const struct plan *self, int32_t f, const shardrt_shard *shard, struct plan_block *block) {
  const struct plan_field *field = &self->fields[f];
  block->first_row = shard->box.start[0];
  block->rows = shard->box.stop[0] - shard->box.start[0];
  assert(shard->box.stop[0] <= self->batch_size);
  block->inner = (shardrt_box){.ndim = field->field->ndim};
  size_t elements = 1; /* no overflow: shardrt_array_new has seen the whole size */
  for (int32_t d = 0; d < block->inner.ndim; d++) {
    block->inner.start[d] = shard->box.start[d + 1];
    block->inner.stop[d] = shard->box.stop[d + 1];
    elements *= (size_t)(block->inner.stop[d] - block->inner.start[d]);
  }
  block->row_bytes = elements * shardrt_dtype_size(field->field->dtype);
  block->storage_bytes = source_bytes(self->source, f, &block->inner);
  block->bytes = (size_t)block->rows * block->row_bytes;
}

static int list_plan_blocks(struct plan *self) {
  for (int32_t f = 0; f < self->nfields; f++) {
    self->fields[f].first_block = self->nblocks;
    self->nblocks += self->fields[f].nblocks;
  }
  self->blocks = alloc_zeros((size_t)self->nblocks, sizeof *self->blocks);
  if (self->blocks == NULL) return ALLOC_FAILED;
  for (int32_t f = 0; f < self->nfields; f++) {
    const struct plan_field *field = &self->fields[f];
    for (int64_t i = 0; i < shardrt_array_shard_count(field->like); i++)
      set_block(self, f, shardrt_array_shard(field->like, i),
                &self->blocks[field->first_block + field->shard_blocks[i]]);
  }
  for (int64_t b = 0; b < self->nblocks; b++)
    if (!size_add(self->batch_bytes, self->blocks[b].bytes, &self->batch_bytes))
      return error_set(SHARDRT_EOVERFLOW, "the bytes of one batch do not fit in 64 bits");
  return SHARDRT_OK;
}

/* How the rows of a field are cut into tasks, and how many these are. The global pipeline reads the whole batch in
 * every process, whatever it keeps of it. */
static void cut_field(struct plan *self, struct plan_field *field) {
  const bool global = self->pipeline == SHARDRT_GLOBAL;
  const struct plan_block *block = field->nblocks > 0 ? &self->blocks[field->first_block] : NULL;
  shardrt_box whole = source_whole(field->field);
  size_t row_bytes = global ? source_box_bytes(field->field, &whole) : block != NULL ? block->row_bytes : 0;
  int64_t rows = global ? self->batch_size : block != NULL ? block->rows : 0;
  if (row_bytes == 0) rows = 0;
  field->task_rows = rows_of_task(self, row_bytes, rows);
  field->tasks = rows == 0 ? 0 : (rows - 1) / field->task_rows + 1;
  field->all_tasks = global ? field->tasks : field->tasks * field->nblocks; /* each has a row of a byte at least */
  if (field->task_rows > self->task_rows) self->task_rows = field->task_rows;
  if (global && (size_t)field->task_rows * row_bytes > self->staging_bytes)
    self->staging_bytes = (size_t)field->task_rows * row_bytes;
}

/* Task i of a field; of its blocks one after the other. */
static struct plan_task task_of(const struct plan *self, int32_t f, int64_t i) {
  const struct plan_field *field = &self->fields[f];
  struct plan_task task = {.field = f, .block = -1, .first = i % field->tasks * field->task_rows};
  int64_t left = self->batch_size - task.first;
  if (self->pipeline != SHARDRT_GLOBAL) {
    task.block = field->first_block + i / field->tasks;
    left = self->blocks[task.block].rows - task.first;
    task.first += self->blocks[task.block].first_row;
  }
  task.count = left < field->task_rows ? left : field->task_rows;
  assert(task.count >= 1);
  return task;
}

/* Rows before fields before blocks: who reads the same rows once more finds them in the cache. */
static int compare_tasks(const void *a, const void *b) {
  const struct plan_task *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  if (x->field != y->field) return x->field < y->field ? -1 : 1;
  return x->block < y->block ? -1 : x->block > y->block;
}

/* Refuses what no memory here could hold, before any of it is asked for. A plan of a job that is not run asks for the
 * list alone. */
static int check_memory(const struct plan *self, const shardrt_job *job, double tasks) {
  const double list = tasks * sizeof *self->tasks, memory = (double)machine_all_memory();
  const double batch = job_is_planned(job) ? 0 : (double)self->batch_bytes;
  if (list + batch <= memory) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL,
                   "batch_size = %lld: this process's part of one batch takes %.1f GB, and the list of the tasks that "
                   "read it %.1f GB; this machine has %.1f GB of memory",
                   (long long)self->batch_size, (double)self->batch_bytes / 1e9, list / 1e9, memory / 1e9);
}

static int list_tasks(struct plan *self, const shardrt_job *job) {
  double tasks = 0;
  for (int32_t f = 0; f < self->nfields; f++) {
    cut_field(self, &self->fields[f]);
    tasks += (double)self->fields[f].all_tasks;
  }
  int code = check_memory(self, job, tasks);
  if (code != SHARDRT_OK) return code;
  self->ntasks = (int64_t)tasks;
  self->tasks = alloc_array((size_t)self->ntasks, sizeof *self->tasks);
  if (self->tasks == NULL) return ALLOC_FAILED;
  int64_t number = 0;
  for (int32_t f = 0; f < self->nfields; f++)
    for (int64_t i = 0; i < self->fields[f].all_tasks; i++) self->tasks[number++] = task_of(self, f, i);
  assert(number == self->ntasks);
  qsort(self->tasks, (size_t)self->ntasks, sizeof *self->tasks, compare_tasks);
  return SHARDRT_OK;
}

static int set_plan(struct plan *self, const shardrt_loader_options *options) {
  self->nfields = shardrt_source_field_count(self->source);
  self->fields = alloc_zeros((size_t)self->nfields, sizeof *self->fields);
  if (self->fields == NULL) return ALLOC_FAILED;
  for (int32_t f = 0; f < self->nfields; f++) {
    self->fields[f].field = shardrt_source_field(self->source, f);
    int code = make_like(self, options, &self->fields[f]);
    if (code == SHARDRT_OK) code = map_shards(self, &self->fields[f]);
    if (code != SHARDRT_OK) return code;
  }
  int code = list_plan_blocks(self);
  return code == SHARDRT_OK ? list_tasks(self, options->job) : code;
}

int plan_new(const shardrt_loader_options *options, struct plan **out) {
  struct plan *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->source = source_retain(options->source);
  made->batch_size = options->batch_size;
  made->process = options->process;
  made->devices_per_process = options->devices_per_process;
  made->pipeline = options->pipeline;
  made->read_size = options->read_size != 0 ? (size_t)options->read_size : choose_read_size();
  int code = set_plan(made, options);
  if (code != SHARDRT_OK) {
    plan_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

void plan_free(struct plan *self) {
  if (self == NULL) return;
  for (int32_t f = 0; self->fields != NULL && f < self->nfields; f++) {
    shardrt_array_free(self->fields[f].like);
    alloc_free(self->fields[f].shard_blocks);
  }
  alloc_free(self->tasks);
  alloc_free(self->blocks);
  alloc_free(self->fields);
  shardrt_source_free(self->source);
  alloc_free(self);
}

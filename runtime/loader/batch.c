#include "loader/batch.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/source.h"
#include "memory/array.h"
#include "memory/buffer_pool.h"
#include "storage/block_cache.h"
#include "system/time_slice.h"
#include "system/trace.h"

int batch_scratch_set(struct batch_scratch *self, const struct plan *plan, const atomic_bool *given_up) {
  self->reader.given_up = given_up;
  self->samples = alloc_array((size_t)plan->task_rows, sizeof *self->samples);
  if (self->samples == NULL) return ALLOC_FAILED;
  self->epochs = alloc_array((size_t)plan->task_rows, sizeof *self->epochs);
  if (self->epochs == NULL) return ALLOC_FAILED;
  self->staging = alloc_aligned(64, plan->staging_bytes);
  return self->staging != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

void batch_scratch_clear(struct batch_scratch *self) {
  reader_clear(&self->reader);
  alloc_free(self->staging);
  alloc_free(self->epochs);
  alloc_free(self->samples);
}

int batch_set(struct batch *self, const struct plan *plan, const struct upload_plan *uploads) {
  size_t n = (size_t)plan->nblocks;
  self->buffers = alloc_zeros(n, sizeof *self->buffers);
  if (self->buffers == NULL) return ALLOC_FAILED;
  self->fingerprints = alloc_zeros(n, sizeof *self->fingerprints);
  if (self->fingerprints == NULL) return ALLOC_FAILED;
  self->left = alloc_zeros(n, sizeof *self->left);
  return self->left != NULL ? upload_set(&self->upload, uploads) : ALLOC_FAILED;
}

static void free_blocks(struct batch *self, const struct plan *plan) {
  for (int64_t b = 0; b < plan->nblocks; b++) {
    shardrt_buffer_free(self->buffers[b]);
    self->buffers[b] = NULL;
  }
}

void batch_clear(struct batch *self, const struct plan *plan) {
  if (self->buffers != NULL) batch_close(self, plan);
  /* Where a device fails it may still read the blocks: they are given up. */
  if (self->buffers != NULL && upload_end(&self->upload)) free_blocks(self, plan);
  upload_clear(&self->upload);
  alloc_free((void *)self->left);
  alloc_free(self->fingerprints);
  alloc_free(self->buffers);
}

int batch_open(struct batch *self, const struct plan *plan, struct buffer_pool *pool) {
  for (int32_t f = 0; f < plan->nfields; f++) {
    const struct plan_field *field = &plan->fields[f];
    for (int64_t b = field->first_block; b < field->first_block + field->nblocks; b++) {
      assert(self->buffers[b] == NULL); /* it was closed, and has landed */
      atomic_store(&self->left[b], field->tasks);
      int code = buffer_pool_take(pool, plan->blocks[b].bytes, &self->buffers[b]);
      if (code == SHARDRT_OK && plan->blocks[b].bytes == 0) self->fingerprints[b] = shardrt_fingerprint("", 0);
      if (code == SHARDRT_OK) continue;
      batch_close(self, plan);
      return error_prefix(code, "field \"%s\" of the loader's next batch", field->field->name);
    }
  }
  atomic_store(&self->all_left, plan->ntasks);
  atomic_store(&self->bytes_read, 0);
  atomic_store(&self->bytes_from_network, 0);
  atomic_store(&self->blocks_decoded, 0);
  atomic_store(&self->bytes_fingerprinted, 0);
  atomic_store(&self->busy, 0);
  atomic_store(&self->decoding, 0);
  atomic_store(&self->transforming, 0);
  atomic_store(&self->scattering, 0);
  atomic_store(&self->checking, 0);
  return SHARDRT_OK;
}

void batch_close(struct batch *self, const struct plan *plan) {
  upload_drop(&self->upload);
  if (!upload_is_under_way(&self->upload)) free_blocks(self, plan);
}

int batch_land(struct batch *self, const struct plan *plan, bool wait, struct upload_stats *stats, bool *landed) {
  int code = upload_land(&self->upload, wait, stats, landed);
  if (*landed) free_blocks(self, plan);
  return code;
}

/* Where row `row` of the global batch lies in a block's buffer. */
static char *row_of(const struct batch *self, const struct plan *plan, int64_t b, int64_t row) {
  const struct plan_block *block = &plan->blocks[b];
  assert(row >= block->first_row && row < block->first_row + block->rows);
  return (char *)shardrt_buffer_data(self->buffers[b]) + (size_t)(row - block->first_row) * block->row_bytes;
}

/* One of a task's parts, by two times of clock_now. */
static void trace_part(const struct batch *self, const struct plan *plan, enum trace_kind kind, int64_t start,
                       int64_t end, int64_t amount) {
  trace_span(
      start, end,
      (struct trace_event){.kind = (uint16_t)kind, .loader = plan->trace_loader, .step = self->step, .amount = amount});
}

static int gather_rows(const struct batch *self, const struct plan *plan, int32_t field, int64_t n,
                       const shardrt_box *inner, struct batch_scratch *scratch, void *rows) {
  const int64_t start = trace_begin(), before = scratch->reader.bytes_read;
  int code = source_gather(plan->source, field, scratch->samples, n, inner, &scratch->reader, rows);
  if (start != 0) trace_part(self, plan, TRACE_READ, start, clock_now(), scratch->reader.bytes_read - before);
  return code;
}

/* Reads the task's first n rows straight to their final place. */
static int read_block(struct batch *self, const struct plan *plan, const struct plan_task *task, int64_t n,
                      struct batch_scratch *scratch) {
  const struct plan_block *block = &plan->blocks[task->block];
  char *rows = row_of(self, plan, task->block, task->first);
  memset(rows + (size_t)n * block->row_bytes, 0, (size_t)(task->count - n) * block->row_bytes);
  if (n == 0) return SHARDRT_OK;
  return gather_rows(self, plan, task->field, n, &block->inner, scratch, rows);
}

/* Copies what one block holds of the task's rows, which stand whole in `staging`. */
static int copy_block(const struct batch *self, const struct plan *plan, const struct plan_task *task, int64_t b,
                      const char *staging) {
  const struct plan_block *block = &plan->blocks[b];
  const shardrt_field *field = plan->fields[task->field].field;
  int64_t first = task->first > block->first_row ? task->first : block->first_row;
  int64_t task_end = task->first + task->count, block_end = block->first_row + block->rows;
  int64_t rows = (task_end < block_end ? task_end : block_end) - first;
  if (rows <= 0 || block->bytes == 0) return SHARDRT_OK;
  int64_t extent[SHARDRT_MAX_NDIM] = {rows}, to_shape[SHARDRT_MAX_NDIM] = {block->rows};
  int64_t to_start[SHARDRT_MAX_NDIM] = {first - block->first_row};
  int64_t from_shape[SHARDRT_MAX_NDIM] = {task->count}, from_start[SHARDRT_MAX_NDIM] = {first - task->first};
  for (int32_t d = 0; d < field->ndim; d++) {
    extent[d + 1] = to_shape[d + 1] = block->inner.stop[d] - block->inner.start[d];
    from_shape[d + 1] = field->shape[d];
    from_start[d + 1] = block->inner.start[d];
  }
  return shardrt_box_copy(field->ndim + 1, shardrt_dtype_size(field->dtype), extent,
                          shardrt_buffer_data(self->buffers[b]), to_shape, to_start, staging, from_shape, from_start);
}

/* Reads the task's rows whole, then copies what the field's blocks hold of them. */
static int read_whole(struct batch *self, const struct plan *plan, const struct plan_task *task, int64_t n,
                      struct batch_scratch *scratch) {
  const struct plan_field *field = &plan->fields[task->field];
  shardrt_box whole = source_whole(field->field);
  size_t row_bytes = source_box_bytes(field->field, &whole);
  assert((size_t)task->count * row_bytes <= plan->staging_bytes);
  memset(scratch->staging + (size_t)n * row_bytes, 0, (size_t)(task->count - n) * row_bytes);
  int code = SHARDRT_OK;
  if (n > 0) code = gather_rows(self, plan, task->field, n, &whole, scratch, scratch->staging);
  const int64_t start = clock_now();
  for (int64_t i = 0; i < field->nblocks && code == SHARDRT_OK; i++)
    code = copy_block(self, plan, task, field->first_block + i, scratch->staging);
  const int64_t end = clock_now();
  scratch->scattering += end - start;
  trace_part(self, plan, TRACE_SCATTER, start, end, task->count);
  return code;
}

/* After a task: whoever runs a block's last one takes its fingerprint, while much of it is in the cache. (Devices with
 * memory of their own take those of what arrives there.) */
static void finish_block(struct batch *self, const struct plan *plan, const struct plan_field *field, int64_t b,
                         struct batch_scratch *scratch) {
  const bool compared = self->fingerprinted && field->has_replicas && self->upload.plan == NULL;
  if (!compared || atomic_fetch_sub(&self->left[b], 1) != 1) return;
  const int64_t start = clock_now(), bytes = (int64_t)plan->blocks[b].bytes;
  atomic_fetch_add(&self->bytes_fingerprinted, bytes);
  self->fingerprints[b] = shardrt_fingerprint(shardrt_buffer_data(self->buffers[b]), plan->blocks[b].bytes);
  const int64_t end = clock_now();
  scratch->checking += end - start;
  trace_part(self, plan, TRACE_CHECK, start, end, bytes);
}

static void add_figure(_Atomic int64_t *sum, int64_t figure) {
  if (figure != 0) atomic_fetch_add(sum, figure);
}

/* The figures of some tasks, which were collected from 0 on. */
static void start_figures(struct batch_scratch *scratch) {
  scratch->scattering = scratch->checking = scratch->rows = 0;
  scratch->reader.bytes_read = scratch->reader.bytes_from_network = scratch->reader.blocks_decoded = 0;
  memset(scratch->reader.nanoseconds, 0, sizeof scratch->reader.nanoseconds);
}

static void add_figures(struct batch *self, struct batch_scratch *scratch, int64_t nanoseconds) {
  const struct reader *reader = &scratch->reader;
  scratch->busy += nanoseconds;
  add_figure(&self->busy, nanoseconds);
  add_figure(&self->bytes_read, reader->bytes_read);
  add_figure(&self->bytes_from_network, reader->bytes_from_network);
  add_figure(&self->blocks_decoded, reader->blocks_decoded);
  add_figure(&self->decoding, reader->nanoseconds[READER_DECODE]);
  add_figure(&self->transforming, reader->nanoseconds[READER_TRANSFORM]);
  add_figure(&self->scattering, scratch->scattering);
  add_figure(&self->checking, scratch->checking);
}

/* The task's first n samples, and what the reader has to know of them. */
static int start_reading(const struct batch *self, const struct plan *plan, const struct plan_task *task, int64_t n,
                         struct batch_scratch *scratch) {
  struct reader *reader = &scratch->reader;
  reader->seed = self->order.seed;
  reader->epoch = self->order.epoch;
  reader->epochs = plan->source->mix != NULL ? scratch->epochs : NULL; /* the parts of a mix have epochs of their own */
  return epoch_order_samples(&self->order, plan->source, self->first + task->first, n, scratch->samples,
                             scratch->epochs);
}

/* The message with the field's name, which those of transforms have already. */
static int name_field(const shardrt_field *field, int code) {
  const char *name = strstr(shardrt_error_message(), "field \"");
  const size_t length = strlen(field->name);
  name = name == NULL ? NULL : name + strlen("field \"");
  if (name != NULL && strncmp(name, field->name, length) == 0 && name[length] == '"') return code;
  return error_prefix(code, "field \"%s\"", field->name);
}

static int run_batch_task(struct batch *self, const struct plan *plan, int64_t number, struct batch_scratch *scratch) {
  const struct plan_task task = plan->tasks[number];
  const struct plan_field *field = &plan->fields[task.field];
  int64_t n = self->rows - task.first; /* real rows of this task */
  n = n < 0 ? 0 : n > task.count ? task.count : n;
  assert(n <= plan->task_rows); /* what a worker has room for */
  int code = start_reading(self, plan, &task, n, scratch);
  if (code < 0) return code;
  scratch->reader.past_caches = self->past_caches && task.block >= 0 && !(self->fingerprinted && field->has_replicas);
  code = task.block >= 0 ? read_block(self, plan, &task, n, scratch) : read_whole(self, plan, &task, n, scratch);
  if (task.block >= 0) {
    finish_block(self, plan, field, task.block, scratch);
  } else {
    for (int64_t i = 0; i < field->nblocks; i++) finish_block(self, plan, field, field->first_block + i, scratch);
  }
  scratch->rows += n;
  return code == SHARDRT_OK ? code : name_field(field->field, code);
}

/* What these tasks were called: by their field, where it is one. */
static uint16_t trace_name_of(const struct plan *plan, int64_t first, int64_t count) {
  const int32_t field = plan->tasks[first].field;
  for (int64_t i = 1; i < count; i++)
    if (plan->tasks[first + i].field != field) return 0;
  return plan->fields[field].trace_name;
}

static int upload_batch(struct batch *self, const struct plan *plan) {
  const int64_t start = trace_begin();
  int code = upload_start(&self->upload, self->buffers, self->fingerprinted);
  if (code == SHARDRT_OK && self->upload.is_fingerprinted)
    atomic_fetch_add(&self->bytes_fingerprinted, (int64_t)self->upload.plan->compared_bytes);
  if (start != 0) trace_part(self, plan, TRACE_UPLOAD, start, clock_now(), (int64_t)self->upload.plan->batch_bytes);
  return code;
}

/* After tasks that did not fail: whoever runs the batch's last ones sends it on its way. Where there is no room on a
 * device there may be when the batch is asked for, and then it is tried again. */
static int upload_last(struct batch *self, const struct plan *plan, int64_t count) {
  if (self->upload.plan == NULL || atomic_fetch_sub(&self->all_left, count) != count) return SHARDRT_OK;
  int code = upload_batch(self, plan);
  return code == SHARDRT_ENOMEM ? SHARDRT_OK : code;
}

int batch_run(struct batch *self, const struct plan *plan, int64_t first, int64_t count,
              struct batch_scratch *scratch) {
  assert(first >= 0 && count >= 1 && first + count <= plan->ntasks);
  const int64_t start = clock_now(), away = time_slice_away();
  start_figures(scratch);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) {
    if (i > 0) code = reader_pause(&scratch->reader);
    if (code == SHARDRT_OK) code = run_batch_task(self, plan, first + i, scratch);
  }
  block_cache_rest(&scratch->reader);
  const int64_t end = clock_now();
  add_figures(self, scratch, end - start - (time_slice_away() - away));
  if (trace_begin() != 0)
    trace_span(start, end,
               (struct trace_event){.kind = TRACE_TASK,
                                    .name = trace_name_of(plan, first, count),
                                    .loader = plan->trace_loader,
                                    .step = self->step,
                                    .amount = scratch->rows});
  return code == SHARDRT_OK ? upload_last(self, plan, count) : code;
}

int batch_hand_over(struct batch *self, const struct plan *plan) {
  if (self->upload.plan == NULL) return SHARDRT_OK;
  int code = self->upload.is_started ? SHARDRT_OK : upload_batch(self, plan);
  return code == SHARDRT_OK ? upload_hand_over(&self->upload) : code;
}

/* What a field's i-th shard holds. */
static shardrt_buffer *buffer_of(const struct batch *self, const struct plan *plan, int32_t f, int64_t i) {
  const struct upload_plan *uploads = self->upload.plan;
  if (uploads != NULL) return self->upload.buffers[uploads->first_shard[f] + i];
  return self->buffers[plan->fields[f].first_block + plan->fields[f].shard_blocks[i]];
}

int batch_array(const struct batch *self, const struct plan *plan, int32_t f, shardrt_array **out) {
  shardrt_array *made;
  int code = shardrt_array_like(plan->fields[f].like, &made);
  if (code != SHARDRT_OK) return code;
  for (int64_t i = 0; i < shardrt_array_shard_count(made) && code == SHARDRT_OK; i++)
    code = shardrt_array_set_buffer(made, i, buffer_of(self, plan, f, i));
  if (code != SHARDRT_OK) {
    shardrt_array_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

int batch_fingerprints(struct batch *self, const struct plan *plan, int32_t f, uint64_t *out) {
  const struct plan_field *field = &plan->fields[f];
  if (self->upload.plan != NULL) return upload_fingerprints(&self->upload, f, out);
  for (int64_t i = 0; i < shardrt_array_shard_count(field->like); i++)
    out[i] = self->fingerprints[field->first_block + field->shard_blocks[i]];
  return SHARDRT_OK;
}

void batch_add_figures(struct batch *self, shardrt_loader_stats *stats) {
  const int64_t decoding = atomic_load(&self->decoding), transforming = atomic_load(&self->transforming);
  const int64_t scattering = atomic_load(&self->scattering), checking = atomic_load(&self->checking);
  const int64_t reading = atomic_load(&self->busy) - decoding - transforming - scattering - checking;
  stats->bytes_read += atomic_load(&self->bytes_read);
  stats->bytes_from_network += atomic_load(&self->bytes_from_network);
  stats->blocks_decoded += atomic_load(&self->blocks_decoded);
  stats->bytes_fingerprinted += atomic_load(&self->bytes_fingerprinted);
  stats->read_seconds += 1e-9 * (double)reading;
  stats->decode_seconds += 1e-9 * (double)decoding;
  stats->transform_seconds += 1e-9 * (double)transforming;
  stats->scatter_seconds += 1e-9 * (double)scattering;
  stats->check_seconds += 1e-9 * (double)checking;
}

#include "reshard/reshard.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"
#include "memory/array.h"
#include "memory/array_text.h"
#include "memory/buffer.h"
#include "platform/accelerator.h"
#include "reshard/reshard_device.h"
#include "system/machine.h"
#include "system/trace.h"

enum {
  STAGING = 64 << 20, /* bytes, where the caller does not say */
  ALONE = 2 << 20,    /* bytes up to which waking threads costs more than it saves */
  SHARDING_TEXT = 300 /* of a sharding, in the name of a call; its fingerprint is there in full */
};

/* ---- what is asked for ------------------------------------------------------------------------------------------ */

static int check_devices(const reshard *r, const shardrt_job *job) {
  const shardrt_mesh *mesh = shardrt_sharding_mesh(r->to);
  const int64_t count = (int64_t)job->process_count * job->devices_per_process;
  const int64_t last = mesh_rank_device(mesh, shardrt_mesh_size(mesh) - 1);
  if (last < count) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s has device %" PRId64 ", but the job has %" PRId64 " devices, 0 to %" PRId64,
                   shardrt_sharding_text(r->to), last, count, count - 1);
}

int reshard_plan(reshard *r) {
  const shardrt_job *job = r->job = shardrt_job_get();
  if (job == NULL) return error_set(SHARDRT_EINVAL, "shardrt_init was not called");
  if (job->planning) return error_set(SHARDRT_EDATA, "there is no data under `shardrt plan`");
  for (int64_t i = 0; i < shardrt_array_shard_count(r->x); i++)
    if (shardrt_array_buffer(r->x, i) == NULL)
      return error_set(SHARDRT_EDATA, "the array's data was given up or never given");
  int code = check_devices(r, job);
  if (code < 0) return code;
  shardrt_shift none;
  shift_none(shardrt_array_ndim(r->x), shardrt_array_shape(r->x), &none);
  return mover_route(job_mover(), shardrt_array_sharding(r->x), r->to, r->shift == NULL ? &none : r->shift,
                     job->process_index, job->devices_per_process, &r->route);
}

/* Where the caller does not say: on devices that have memory of their own, so much for each. */
static size_t usual_staging(const reshard *r) {
  return accelerator_get() == NULL ? STAGING : (size_t)STAGING * (size_t)r->job->devices_per_process;
}

size_t reshard_staging(const reshard *r) {
  return r->options.staging_bytes != 0 ? r->options.staging_bytes : usual_staging(r);
}

void reshard_name(const reshard *r, struct text *text) {
  const shardrt_sharding *from = shardrt_array_sharding(r->x);
  text_add(text, "%s of %s ", r->call, shardrt_dtype_name(shardrt_array_dtype(r->x)));
  text_add_shape(text, shardrt_array_ndim(r->x), shardrt_array_shape(r->x));
  if (r->within) text_add(text, "\n"); /* what follows are layouts that no recipe named */
  text_add(text, ", ");
  array_add_number(r->x, text);
  text_add(text, ", on %.*s to %.*s", SHARDING_TEXT, shardrt_sharding_text(from), SHARDING_TEXT,
           shardrt_sharding_text(r->to));
  if (reshard_staging(r) != usual_staging(r)) text_add(text, " with %zu bytes of staging", reshard_staging(r));
  text_add(text, "\n%08" PRIx32 " %08" PRIx32, (uint32_t)shardrt_sharding_fingerprint(from),
           (uint32_t)shardrt_sharding_fingerprint(r->to));
  if (r->shift == NULL) return;
  text_add(text, " into ");
  text_add_shape(text, r->shift->ndim, r->shift->new_shape);
  text_add(text, " from ");
  text_add_shape(text, r->shift->ndim, r->shift->by);
}

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

static int compare_blocks(const void *a, const void *b) {
  const traffic_block *x = a, *y = b;
  return (x->number > y->number) - (x->number < y->number);
}

/* The distinct blocks that this process holds of an array, which may have no buffers yet. What devices hold of it is
 * nowhere yet (borrow_blocks). */
static int side_new(traffic_side *side, const shardrt_array *array, const struct block_grid *grid) {
  const int64_t shards = shardrt_array_shard_count(array);
  *side = (traffic_side){.blocks = alloc_array((size_t)shards, sizeof *side->blocks)};
  if (side->blocks == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < shards; i++) {
    const shardrt_shard *shard = shardrt_array_shard(array, i);
    if (shard->block != side->count) continue; /* they are numbered by first appearance */
    const shardrt_buffer *buffer = shardrt_array_buffer(array, i);
    side->blocks[side->count++] = (traffic_block){
        .number = sharding_block(shardrt_array_sharding(array), grid, shard->position, NULL),
        .local = shard->block,
        .data = buffer == NULL ? NULL : shardrt_buffer_data(buffer),
    };
  }
  qsort(side->blocks, (size_t)side->count, sizeof *side->blocks, compare_blocks);
  return SHARDRT_OK;
}

/* The buffer of one block, by its number in the grid. */
static shardrt_buffer *block_buffer(const shardrt_array *array, const struct block_grid *grid, int64_t number) {
  for (int64_t i = 0; i < shardrt_array_shard_count(array); i++)
    if (sharding_block(shardrt_array_sharding(array), grid, shardrt_array_shard(array, i)->position, NULL) == number)
      return shardrt_array_buffer(array, i);
  return NULL;
}

/* Brings what devices hold of an array's blocks to the host: all are on their way before the first is waited for. */
static int borrow_blocks(traffic_side *side, const shardrt_array *array, const struct block_grid *grid,
                         int64_t *borrowed) {
  int code = SHARDRT_OK;
  for (int64_t b = 0; b < side->count && code == SHARDRT_OK; b++) {
    code = buffer_borrow(block_buffer(array, grid, side->blocks[b].number));
    if (code == SHARDRT_OK) ++*borrowed;
  }
  for (int64_t b = 0; b < side->count && code == SHARDRT_OK; b++) {
    void *data = NULL;
    code = buffer_borrowed(block_buffer(array, grid, side->blocks[b].number), &data);
    side->blocks[b].data = data;
  }
  return code;
}

static void return_blocks(const traffic_side *side, const shardrt_array *array, const struct block_grid *grid,
                          int64_t borrowed) {
  for (int64_t b = 0; b < borrowed; b++) buffer_return(block_buffer(array, grid, side->blocks[b].number));
}

/* For each new block, by its local number, the old buffer that holds just the same, with a count; returns how many
 * of those wanted have none. */
static int64_t share_blocks(const reshard *r, const traffic_side *wanted, shardrt_buffer **buffers) {
  const shardrt_route *route = r->route;
  const struct route_moves *copies = &route->copies;
  int64_t missing = wanted->count;
  for (int64_t i = 0; i < copies->count; i++) {
    const shardrt_move *move = &copies->items[i];
    shardrt_box old_box = block_grid_box(&route->from, move->from), new_box = block_grid_box(&route->to, move->to);
    if (!box_equal(&old_box, &new_box)) continue;
    for (int64_t b = 0; b < wanted->count; b++)
      if (wanted->blocks[b].number == move->to)
        buffers[wanted->blocks[b].local] = shardrt_buffer_retain(block_buffer(r->x, &route->from, move->from));
    missing--;
  }
  return missing;
}

/* Fresh buffers for new blocks, all or nothing. */
static int take_blocks(const reshard *r, size_t bytes, int64_t count, shardrt_buffer **out) {
  const bool messages = r->route->sends.count + r->route->receives.count > 0;
  if (r->pool == NULL) return mover_blocks(job_mover(), bytes, count, messages ? 0 : reshard_staging(r), out);
  int code = SHARDRT_OK;
  int64_t made = 0;
  while (code == SHARDRT_OK && made < count) {
    code = buffer_pool_take(r->pool, bytes, &out[made]);
    if (code == SHARDRT_OK) made++;
  }
  if (code == SHARDRT_OK) return code;
  while (made > 0) shardrt_buffer_free(out[--made]);
  return code;
}

/* Gives the new array its buffers, shared and fresh ones, and their places to `wanted`. */
static int make_blocks(const reshard *r, shardrt_array *made, traffic_side *wanted) {
  shardrt_buffer **fresh = alloc_zeros((size_t)wanted->count, 2 * sizeof(shardrt_buffer *));
  if (fresh == NULL) return ALLOC_FAILED;
  shardrt_buffer **buffers = fresh + wanted->count;
  int64_t missing = share_blocks(r, wanted, buffers);
  int code = take_blocks(r, shardrt_array_shard_bytes(made), missing, fresh);
  for (int64_t b = 0; b < wanted->count && code == SHARDRT_OK; b++)
    if (buffers[b] == NULL) buffers[b] = fresh[--missing];
  for (int64_t i = 0; i < shardrt_array_shard_count(made) && code == SHARDRT_OK; i++)
    code = shardrt_array_set_buffer(made, i, buffers[shardrt_array_shard(made, i)->block]);
  for (int64_t b = 0; b < wanted->count && code == SHARDRT_OK; b++)
    wanted->blocks[b].data = shardrt_buffer_data(buffers[wanted->blocks[b].local]);
  for (int64_t b = 0; b < wanted->count; b++) shardrt_buffer_free(buffers[b]);
  alloc_free((void *)fresh);
  return code;
}

/* One count more for every buffer, which nobody will give back. */
static void keep_blocks(const shardrt_array *array) {
  for (int64_t i = 0; i < shardrt_array_shard_count(array); i++)
    if (shardrt_array_buffer(array, i) != NULL) shardrt_buffer_retain(shardrt_array_buffer(array, i));
}

/* ---- moving ----------------------------------------------------------------------------------------------------- */

typedef struct donation {
  shardrt_array *x;
  const traffic_side *old;
} donation;

static void give_up(void *context, int64_t index) {
  const donation *d = context;
  array_drop(d->x, d->old->blocks[index].local);
}

static int find_team(const reshard *r, struct team **out) {
  mover *m = job_mover();
  const int64_t elements = r->route->copies.elements + r->route->receives.elements + r->route->sends.elements;
  int32_t threads = m->team != NULL ? team_threads(m->team) : 0;
  if (r->options.num_threads > 0)
    threads = r->options.num_threads - 1;
  else if ((size_t)elements * shardrt_dtype_size(shardrt_array_dtype(r->x)) > ALONE)
    threads = machine_cores() - 1;
  return mover_team(m, threads, out);
}

static int64_t received_bytes(const reshard *r) {
  return r->route->receives.elements * (int64_t)shardrt_dtype_size(shardrt_array_dtype(r->x));
}

/* What is wrong with the operands is wrong in every process. */
int reshard_fail(const reshard *r, int code) {
  if (code != SHARDRT_ENOMEM && code != SHARDRT_EDEVICE) return code;
  return job_join(r->call, code, NULL, 0, NULL);
}

int reshard_run(reshard *r, const traffic_side *wanted) {
  char what[1024];
  struct text text = {.bytes = what, .capacity = sizeof what};
  reshard_name(r, &text);
  meet *m = job_meet();
  traffic_side old;
  int64_t borrowed = 0;
  int code = side_new(&old, r->x, &r->route->from);
  if (code < 0) return reshard_fail(r, code);
  const bool on_devices = accelerator_get() != NULL;
  if (on_devices) code = borrow_blocks(&old, r->x, &r->route->from, &borrowed);
  donation given = {.x = r->x, .old = &old};
  traffic_task task = {.route = r->route,
                       .element = shardrt_dtype_size(shardrt_array_dtype(r->x)),
                       .old = old,
                       .new = *wanted,
                       .staging = reshard_staging(r),
                       .mover = job_mover(),
                       .transport = m->transport,
                       .used_up = r->options.donate ? give_up : NULL,
                       .context = &given};
  traffic *t = NULL;
  if (code == SHARDRT_OK) code = find_team(r, &task.team);
  if (code == SHARDRT_OK) code = traffic_new(&task, &t);
  code = code < 0 ? reshard_fail(r, code) : meet_gather(m, what, job_where(), NULL, 0, NULL);
  meet_shorten(what);
  if (code == SHARDRT_OK) {
    const int64_t start = clock_now();
    code = traffic_run(t, m, what);
    const int64_t end = clock_now();
    r->seconds = 1e-9 * (double)(end - start);
    trace_span(start, end, (struct trace_event){.kind = TRACE_MOVE, .amount = received_bytes(r)});
    r->stuck = code < 0;
    if (r->stuck) keep_blocks(r->x);
  }
  traffic_free(t);
  if (on_devices && !r->stuck) return_blocks(&old, r->x, &r->route->from, borrowed);
  alloc_free(old.blocks);
  return code;
}

/* Where the devices have memory of their own. */
static int reshard_on_devices(reshard *r, shardrt_array **out) {
  shardrt_array *made = NULL;
  int code = shardrt_array_new(r->to, shardrt_array_dtype(r->x), shardrt_array_ndim(r->x), shardrt_array_shape(r->x),
                               r->job->process_index, r->job->devices_per_process, &made);
  code = code < 0 ? reshard_fail(r, code) : freight_run(r, made);
  if (code < 0)
    shardrt_array_free(made);
  else
    *out = made;
  return code;
}

int reshard_array(reshard *r, shardrt_array **out) {
  int code = r->code < 0 ? r->code : reshard_plan(r);
  if (r->route == NULL) return reshard_fail(r, code);
  if (accelerator_get() != NULL) return reshard_on_devices(r, out);
  shardrt_array *made = NULL;
  traffic_side wanted = {0};
  code = shardrt_array_new(r->to, shardrt_array_dtype(r->x), shardrt_array_ndim(r->x), shardrt_array_shape(r->x),
                           r->job->process_index, r->job->devices_per_process, &made);
  if (code == SHARDRT_OK) code = side_new(&wanted, made, &r->route->to);
  if (code == SHARDRT_OK) code = make_blocks(r, made, &wanted);
  code = code < 0 ? reshard_fail(r, code) : reshard_run(r, &wanted);
  if (r->stuck) keep_blocks(made);
  if (r->pool == NULL)
    mover_settle(job_mover(), (size_t)wanted.count * (made == NULL ? 0 : shardrt_array_shard_bytes(made)));
  alloc_free(wanted.blocks);
  if (code < 0) {
    shardrt_array_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

int reshard_into(reshard *r, shardrt_array *out) {
  int code = reshard_plan(r);
  if (code < 0) return reshard_fail(r, code);
  if (accelerator_get() != NULL) return freight_run(r, out);
  traffic_side wanted = {0};
  code = side_new(&wanted, out, &r->route->to);
  code = code < 0 ? reshard_fail(r, code) : reshard_run(r, &wanted);
  if (r->stuck) keep_blocks(out);
  alloc_free(wanted.blocks);
  return code;
}

int shardrt_reshard(shardrt_array *x, shardrt_sharding *to, const shardrt_reshard_options *options,
                    shardrt_array **out) {
  reshard r = {.call = "reshard", .x = x, .to = to};
  if (options != NULL) r.options = *options;
  return reshard_array(&r, out);
}

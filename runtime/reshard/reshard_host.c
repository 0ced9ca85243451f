#include "reshard/reshard_host.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "comm/job.h"
#include "memory/array.h"
#include "memory/buffer.h"
#include "memory/buffer_pool.h"
#include "platform/accelerator.h"
#include "system/machine.h"
#include "system/trace.h"

enum {
  ALONE = 2 << 20, /* bytes up to which waking threads costs more than it saves */
  SMALL = 16 << 20 /* bytes of new blocks up to which it does not matter what else waits for reuse */
};

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

/* The buffer that an entry of an array's table was made of. */
static shardrt_buffer *block_buffer(const shardrt_array *array, const struct block_table *blocks, int64_t index) {
  return shardrt_array_buffer(array, blocks->items[index].shard);
}

/* Brings what devices hold of an array's blocks to the host: all are on their way before the first is waited for. */
static int borrow_blocks(struct block_table *blocks, const shardrt_array *array, int64_t *borrowed) {
  int code = SHARDRT_OK;
  for (int64_t b = 0; b < blocks->count && code == SHARDRT_OK; b++) {
    code = buffer_borrow(block_buffer(array, blocks, b));
    if (code == SHARDRT_OK) ++*borrowed;
  }
  for (int64_t b = 0; b < blocks->count && code == SHARDRT_OK; b++) {
    void *data = NULL;
    code = buffer_borrowed(block_buffer(array, blocks, b), &data);
    blocks->items[b].data = data;
  }
  return code;
}

static void return_blocks(const struct block_table *blocks, const shardrt_array *array, int64_t borrowed) {
  for (int64_t b = 0; b < borrowed; b++) buffer_return(block_buffer(array, blocks, b));
}

/* For each new block, by its local number, the old buffer that holds just the same, with a count; returns how many
 * of those wanted have none. */
static int64_t share_blocks(const struct reshard *r, const struct block_table *old, const struct block_table *wanted,
                            shardrt_buffer **buffers) {
  const shardrt_route *route = r->route;
  const struct route_moves *copies = &route->copies;
  int64_t missing = wanted->count;
  for (int64_t i = 0; i < copies->count; i++) {
    const shardrt_move *move = &copies->items[i];
    shardrt_box old_box = block_grid_box(&route->from, move->from), new_box = block_grid_box(&route->to, move->to);
    if (!box_equal(&old_box, &new_box)) continue;
    const int32_t local = wanted->items[block_table_index(wanted, move->to)].local;
    buffers[local] = shardrt_buffer_retain(block_buffer(r->x, old, block_table_index(old, move->from)));
    missing--;
  }
  return missing;
}

/* Whether memory waits for the next move like this one only, and no other does: else new blocks come from where those
 * of all arrays do. */
static bool is_large(const struct reshard *r, size_t bytes, int64_t count) {
  const size_t all = bytes * (size_t)count;
  return r->pool == NULL && (all > SMALL || all > reshard_staging(r));
}

/* Fresh buffers for `count` of a large move's new blocks, or of another one's; all or nothing. */
static int allocate_blocks(const struct reshard *r, size_t bytes, int64_t count, bool large, shardrt_buffer **out) {
  const bool messages = r->route->sends.count + r->route->receives.count > 0;
  const size_t spare = messages ? 0 : reshard_staging(r);
  if (large) return move_cache_blocks(r->cache, bytes, count, spare, out);
  if (r->pool == NULL) move_cache_trim(r->cache, spare);
  struct buffer_pool *pool = r->pool;
  int code = pool == NULL ? buffer_pool_of_arrays(&pool) : SHARDRT_OK;
  int64_t made = 0;
  while (code == SHARDRT_OK && made < count) {
    code = buffer_pool_take(pool, bytes, &out[made]);
    if (code == SHARDRT_OK) made++;
  }
  if (code == SHARDRT_OK) return code;
  while (made > 0) shardrt_buffer_free(out[--made]);
  return code;
}

/* Gives the new array its buffers, shared and fresh ones, and their places to `wanted`. */
static int make_blocks(const struct reshard *r, shardrt_array *made, struct block_table *wanted) {
  shardrt_buffer **fresh = alloc_zeros((size_t)wanted->count, 2 * sizeof(shardrt_buffer *));
  if (fresh == NULL) return ALLOC_FAILED;
  shardrt_buffer **buffers = fresh + wanted->count;
  struct block_table old;
  int64_t missing = 0;
  int code = block_table_blocks(&old, r->x, &r->route->from);
  if (code == SHARDRT_OK) missing = share_blocks(r, &old, wanted, buffers);
  block_table_free(&old);
  const size_t bytes = shardrt_array_shard_bytes(made);
  if (code == SHARDRT_OK) code = allocate_blocks(r, bytes, missing, is_large(r, bytes, wanted->count), fresh);
  for (int64_t b = 0; b < wanted->count && code == SHARDRT_OK; b++)
    if (buffers[b] == NULL) buffers[b] = fresh[--missing];
  for (int64_t i = 0; i < shardrt_array_shard_count(made) && code == SHARDRT_OK; i++)
    code = shardrt_array_set_buffer(made, i, buffers[shardrt_array_shard(made, i)->block]);
  if (code == SHARDRT_OK) block_table_refresh(wanted, made);
  for (int64_t b = 0; b < wanted->count; b++) shardrt_buffer_free(buffers[b]);
  alloc_free((void *)fresh);
  return code;
}

/* What MPI may still read and write, until the process ends. */
struct kept_block {
  shardrt_buffer *buffer;
  struct kept_block *next;
};
static _Atomic(struct kept_block *) kept_blocks;

/* One count more for every buffer, which nobody will give back. */
static void keep_blocks(const shardrt_array *array) {
  for (int64_t i = 0; i < shardrt_array_shard_count(array); i++) {
    if (shardrt_array_buffer(array, i) == NULL) continue;
    shardrt_buffer *buffer = shardrt_buffer_retain(shardrt_array_buffer(array, i));
    struct kept_block *kept = alloc_zeros(1, sizeof *kept);
    if (kept == NULL) continue; /* it is kept all the same, and only harder to find */
    kept->buffer = buffer;
    kept->next = atomic_load(&kept_blocks);
    while (!atomic_compare_exchange_weak(&kept_blocks, &kept->next, kept)) continue;
  }
}

/* ---- moving ----------------------------------------------------------------------------------------------------- */

struct donation {
  shardrt_array *x;
  const struct block_table *old;
  struct buffer_pool *pool; /* which the memory of `x` may have come from */
};

static void drop_block(void *context, int64_t index) {
  const struct donation *d = context;
  const size_t bytes = shardrt_array_shard_bytes(d->x);
  array_drop(d->x, d->old->items[index].local);
  buffer_pool_shed(d->pool, bytes); /* where the block would wait for the next of its size */
}

static int find_team(const struct reshard *r, struct team **out) {
  struct move_cache *m = r->cache;
  const int64_t elements = r->route->copies.elements + r->route->receives.elements + r->route->sends.elements;
  int32_t threads = m->team != NULL ? team_threads(m->team) : 0;
  if (r->options.num_threads > 0)
    threads = r->options.num_threads - 1;
  else if ((size_t)elements * shardrt_dtype_size(shardrt_array_dtype(r->x)) > ALONE)
    threads = machine_cores() - 1;
  return move_cache_team(m, threads, out);
}

static int64_t received_bytes(const struct reshard *r) {
  return r->route->receives.elements * (int64_t)shardrt_dtype_size(shardrt_array_dtype(r->x));
}

int reshard_host_run(struct reshard *r, const struct block_table *wanted) {
  char what[1024];
  struct text text = {.bytes = what, .capacity = sizeof what};
  reshard_name(r, &text);
  struct collective *m = job_collective(r->job);
  struct block_table old;
  int64_t borrowed = 0;
  int code = block_table_blocks(&old, r->x, &r->route->from);
  if (code < 0) return reshard_fail(r, code);
  const bool on_devices = accelerator_get() != NULL;
  if (on_devices) code = borrow_blocks(&old, r->x, &borrowed);
  struct donation given = {.x = r->x, .old = &old};
  if (code == SHARDRT_OK) code = buffer_pool_of_arrays(&given.pool);
  struct exchange_host_task task = {.route = r->route,
                                    .element = shardrt_dtype_size(shardrt_array_dtype(r->x)),
                                    .old = old,
                                    .new = *wanted,
                                    .staging = reshard_staging(r),
                                    .kept = &r->cache->staging,
                                    .transport = m->transport,
                                    .endpoint = m->endpoint,
                                    .used_up = r->options.donate ? drop_block : NULL,
                                    .context = &given};
  struct exchange_host *t = NULL;
  if (code == SHARDRT_OK) code = find_team(r, &task.team);
  if (code == SHARDRT_OK) code = exchange_host_new(&task, &t);
  code = code < 0 ? reshard_fail(r, code) : collective_gather(m, what, NULL, 0, NULL);
  collective_shorten(what);
  if (code == SHARDRT_OK) {
    const int64_t start = clock_now();
    code = exchange_host_run(t, m, what);
    const int64_t end = clock_now();
    r->seconds = 1e-9 * (double)(end - start);
    trace_span(start, end, (struct trace_event){.kind = TRACE_MOVE, .amount = received_bytes(r)});
    r->stuck = code < 0;
    if (r->stuck) keep_blocks(r->x);
  }
  exchange_host_free(t);
  if (on_devices && !r->stuck) return_blocks(&old, r->x, borrowed);
  block_table_free(&old);
  return code;
}

int reshard_host_new(struct reshard *r, shardrt_array **out) {
  shardrt_array *made = NULL;
  struct block_table wanted = {0};
  int code = reshard_new_array(r, &made);
  if (code == SHARDRT_OK) code = block_table_blocks(&wanted, made, &r->route->to);
  if (code == SHARDRT_OK) code = make_blocks(r, made, &wanted);
  code = code < 0 ? reshard_fail(r, code) : reshard_host_run(r, &wanted);
  if (r->stuck) keep_blocks(made);
  const size_t bytes = made == NULL ? 0 : shardrt_array_shard_bytes(made);
  if (is_large(r, bytes, wanted.count)) move_cache_settle(r->cache, (size_t)wanted.count * bytes);
  block_table_free(&wanted);
  if (code < 0)
    shardrt_array_free(made);
  else
    *out = made;
  return code;
}

int reshard_host_into(struct reshard *r, shardrt_array *out) {
  struct block_table wanted = {0};
  int code = block_table_blocks(&wanted, out, &r->route->to);
  code = code < 0 ? reshard_fail(r, code) : reshard_host_run(r, &wanted);
  if (r->stuck) keep_blocks(out);
  block_table_free(&wanted);
  return code;
}

#include "reshard/reshard_device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"
#include "memory/array.h"
#include "memory/array_text.h"
#include "memory/buffer.h"
#include "platform/accelerator.h"
#include "reshard/exchange/device_copy.h"
#include "reshard/exchange/exchange_host.h"
#include "reshard/exchange/exchange_lines.h"
#include "reshard/exchange/exchange_nccl.h"
#include "reshard/exchange/exchange_staged.h"
#include "system/trace.h"

enum { DIRECT = 128 << 20 /* bytes of a message that needs no memory on either side, at most */ };

/* A part of a new shard that comes from another shard of this process. */
struct local_copy {
  const shardrt_box *box;
  const struct block_entry *to, *from;
  const struct block_grid *source; /* of `from` */
};

struct local_copies {
  int64_t count;
  struct local_copy *items; /* those of one new shard in a row */
};

struct device_move {
  struct reshard *r;
  shardrt_array *made;
  const struct accelerator *a;
  size_t element; /* bytes */
  size_t staging; /* bytes in each direction */
  struct block_table old, new;
  struct local_copies copies; /* from old shards */
  struct local_copies spread; /* from a new shard that was received to the others with that block */
  struct channels out, in;
  struct device_pairs pairs;
  int64_t *uses; /* [shards of x] of each block, by its local number: what is yet to be taken from it */
};

/* ---- what comes from where -------------------------------------------------------------------------------------- */

/* Of those that hold a block the one that is linked best, which for equal ones depends on the device that asks. */
static const struct block_entry *nearest_holder(const struct device_move *f, int64_t number, int32_t device) {
  int64_t count;
  const struct block_entry *holders = block_table_find(&f->old, number, &count), *best = NULL;
  int32_t best_link = -1;
  for (int64_t i = 0; i < count; i++) {
    const struct block_entry *one = &holders[(i + device) % count];
    const int32_t link = one->device == device ? INT32_MAX : f->a->link(device, one->device);
    if (link <= best_link) continue;
    best = one;
    best_link = link;
  }
  return best;
}

static bool is_whole_block(const struct device_move *f, const shardrt_move *move) {
  shardrt_box old = block_grid_box(&f->r->route->from, move->from), new = block_grid_box(&f->r->route->to, move->to);
  return box_equal(&old, &new);
}

/* Shares what stays where it is, and lists the copies of the rest. */
static int find_copy_parts(struct device_move *f) {
  const struct route_moves *moves = &f->r->route->copies;
  int64_t most = 0, count;
  for (int64_t i = 0; i < moves->count; i++) {
    block_table_find(&f->new, moves->items[i].to, &count);
    most += count;
  }
  f->copies.items = alloc_array((size_t)most, sizeof *f->copies.items);
  if (f->copies.items == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < moves->count && code == SHARDRT_OK; i++) {
    const shardrt_move *move = &moves->items[i];
    const struct block_entry *to = block_table_find(&f->new, move->to, &count);
    for (int64_t k = 0; k < count && code == SHARDRT_OK; k++) {
      const struct block_entry *from = nearest_holder(f, move->from, to[k].device);
      if (from->device == to[k].device && is_whole_block(f, move) && to[k].data == NULL)
        code = shardrt_array_set_buffer(f->made, to[k].shard, shardrt_array_buffer(f->r->x, from->shard));
      else
        f->copies.items[f->copies.count++] =
            (struct local_copy){.box = &move->box, .to = &to[k], .from = from, .source = &f->r->route->from};
    }
  }
  return code;
}

static int find_spread_parts(struct device_move *f) {
  int64_t most = 0, count;
  for (int64_t i = 0; i < f->in.count; i++) {
    for (int64_t k = 0; k < f->in.items[i].count; k++) {
      block_table_find(&f->new, f->in.items[i].moves[k]->to, &count);
      most += count - 1;
    }
  }
  f->spread.items = alloc_array((size_t)most, sizeof *f->spread.items);
  if (f->spread.items == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < f->in.count; i++) {
    const struct channel *l = &f->in.items[i];
    for (int64_t k = 0; k < l->count; k++) {
      const struct block_entry *to = block_table_find(&f->new, l->moves[k]->to, &count);
      const struct block_entry *from = block_table_on_device(&f->new, l->moves[k]->to, l->device);
      for (int64_t j = 0; j < count; j++)
        if (&to[j] != from)
          f->spread.items[f->spread.count++] =
              (struct local_copy){.box = &l->moves[k]->box, .to = &to[j], .from = from, .source = &f->r->route->to};
    }
  }
  return SHARDRT_OK;
}

/* How often each old block is needed; one more where it is sent, until everything has been. */
static int count_buffer_uses(struct device_move *f) {
  f->uses = alloc_zeros((size_t)f->old.count, sizeof *f->uses);
  if (f->uses == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < f->copies.count; i++) f->uses[f->copies.items[i].from->local]++;
  const struct route_moves *sends = &f->r->route->sends;
  for (int64_t i = 0; i < sends->count; i++)
    f->uses[f->old.items[block_table_index(&f->old, sends->items[i].from)].local]++;
  return SHARDRT_OK;
}

static int compare_parts(const void *a, const void *b) {
  const struct local_copy *x = a, *y = b;
  if (x->to->shard != y->to->shard) return x->to->shard < y->to->shard ? -1 : 1;
  return (x->box > y->box) - (x->box < y->box);
}

static int device_move_new(struct device_move *f) {
  const shardrt_sharding *from = shardrt_array_sharding(f->r->x);
  int code = block_table_shards(&f->old, f->r->x, &f->r->route->from);
  if (code == SHARDRT_OK) code = block_table_shards(&f->new, f->made, &f->r->route->to);
  if (code == SHARDRT_OK) code = device_pairs_new(&f->pairs, f->r->info->devices_per_process);
  if (code == SHARDRT_OK)
    code = device_channels_new(&f->out, f->r->route, true, from, f->r->to, f->r->info->devices_per_process);
  if (code == SHARDRT_OK)
    code = device_channels_new(&f->in, f->r->route, false, from, f->r->to, f->r->info->devices_per_process);
  if (code == SHARDRT_OK) code = find_copy_parts(f);
  if (code == SHARDRT_OK) code = find_spread_parts(f);
  if (code == SHARDRT_OK) code = count_buffer_uses(f);
  if (code == SHARDRT_OK && f->copies.count > 1)
    qsort(f->copies.items, (size_t)f->copies.count, sizeof *f->copies.items, compare_parts);
  return code;
}

static void device_move_free(struct device_move *f) {
  alloc_free(f->uses);
  alloc_free(f->spread.items);
  alloc_free(f->copies.items);
  channels_free(&f->in);
  channels_free(&f->out);
  device_pairs_free(&f->pairs);
  block_table_free(&f->new);
  block_table_free(&f->old);
}

/* ---- in this process -------------------------------------------------------------------------------------------- */

static int take_buffer(const struct device_move *f, int64_t shard) {
  if (shardrt_array_buffer(f->made, shard) != NULL) return SHARDRT_OK; /* it is shared */
  shardrt_buffer *buffer;
  int code = buffer_on_device(array_local_device(f->made, shard), ACCELERATOR_MAIN, ACCELERATOR_ARRAYS,
                              shardrt_array_shard_bytes(f->made), &buffer);
  if (code < 0) return code;
  code = shardrt_array_set_buffer(f->made, shard, buffer);
  shardrt_buffer_free(buffer);
  return code;
}

/* Copies parts, which wait for what is on the devices that they come from, and these for them. */
static int copy_device_parts(struct device_move *f, const struct local_copy *items, int64_t count) {
  struct device_pairs *pairs = &f->pairs;
  device_pairs_clear(pairs);
  for (int64_t i = 0; i < count; i++)
    pairs->takes[(size_t)items[i].to->device * (size_t)pairs->devices + (size_t)items[i].from->device] = true;
  int code = device_pairs_before(pairs);
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) {
    const struct local_copy *p = &items[i];
    const struct device_view to =
        device_view_in_block(&f->r->route->to, p->to->number, p->box, p->to->device, p->to->data);
    const struct device_view from =
        device_view_in_block(p->source, p->from->number, p->box, p->from->device, p->from->data);
    code = device_copy_box("reshard", f->element, p->box, &to, &from, f->staging);
  }
  const int after = device_pairs_after(pairs); /* also where one could not be put on the way: others were */
  return code < 0 ? code : after;
}

static void drop_unused(struct device_move *f) {
  for (int64_t i = 0; i < f->old.count; i++)
    if (f->uses[f->old.items[i].local] == 0) array_drop(f->r->x, f->old.items[i].local);
}

/* One new shard after the other, and each old block goes as soon as nobody needs it: its memory is used again for the
 * next shard on that device, as both are in its order. */
static int copy_and_drop(struct device_move *f) {
  const struct local_copies *all = &f->copies;
  int64_t first = 0;
  int code = SHARDRT_OK;
  drop_unused(f);
  for (int64_t shard = 0; shard < f->new.count &&code == SHARDRT_OK; shard++) {
    code = take_buffer(f, shard);
    if (code < 0) break;
    block_table_refresh(&f->new, f->made);
    int64_t end = first;
    while (end < all->count && all->items[end].to->shard == shard) end++;
    code = copy_device_parts(f, all->items + first, end - first);
    for (; first < end; first++) {
      int64_t *uses = &f->uses[all->items[first].from->local];
      assert(*uses > 0);
      --*uses;
    }
    drop_unused(f);
  }
  return code;
}

static int copy_all_parts(struct device_move *f) {
  return copy_device_parts(f, f->copies.items, f->copies.count);
}

static int take_buffers(struct device_move *f) {
  int code = SHARDRT_OK;
  for (int64_t shard = 0; shard < f->new.count &&code == SHARDRT_OK; shard++) code = take_buffer(f, shard);
  block_table_refresh(&f->new, f->made);
  return code;
}

/* ---- between processes ------------------------------------------------------------------------------------------ */

int reshard_finish_devices(const struct reshard *r) {
  const struct accelerator *a = accelerator_get();
  int code = SHARDRT_OK;
  for (int32_t d = 0; d < r->info->devices_per_process && code == SHARDRT_OK; d++) {
    struct accelerator_event *now = NULL;
    code = a->streams->record(d, ACCELERATOR_MAIN, &now);
    if (code == SHARDRT_OK) code = a->streams->finish(now);
    if (now != NULL) a->streams->event_free(now);
  }
  return code;
}

/* All processes say what they call, or that they failed before, and hear how many channels any of them has at most. */
static int gather_call(const struct device_move *f, struct collective *m, const char *what, int code,
                       int64_t *channels_at_most) {
  const int64_t mine = f->out.count > f->in.count ? f->out.count : f->in.count;
  int64_t *all = alloc_array((size_t)m->count, sizeof *all);
  if (code == SHARDRT_OK && all == NULL) code = ALLOC_FAILED;
  code = code < 0 ? reshard_fail(f->r, code) : collective_gather(m, what, &mine, sizeof mine, all);
  *channels_at_most = 0;
  for (int32_t p = 0; p < m->count && code == SHARDRT_OK && all != NULL; p++)
    if (all[p] > *channels_at_most) *channels_at_most = all[p];
  alloc_free(all);
  return code;
}

static int exchange_messages(struct device_move *f, struct collective *m, const char *what, int64_t channels_at_most) {
  struct peer_path *peers = &f->r->cache->peers;
  const bool by_host = peers->kind == PEERS_BY_HOST;
  int64_t piece =
      by_host ? exchange_staged_piece(f->staging, f->element) : (int64_t)(f->staging / f->element) / channels_at_most;
  if (piece < 1) piece = 1;
  const int64_t direct = by_host ? piece : (int64_t)(DIRECT / f->element);
  const struct device_channel_args args = {
      .rules = device_channel_rules(f->r->route, f->element, piece, direct), .old = &f->old, .new = &f->new};
  return by_host ? exchange_staged_run(&args, &f->out, &f->in, peers, m, what)
                 : exchange_nccl_run(&args, &f->out, &f->in, peers, m, what);
}

/* How the array goes in lines, where it is to; else their kind is none. */
static int find_lines(const struct device_move *f, shardrt_lines *lines) {
  const struct peer_path *peers = &f->r->cache->peers;
  const shardrt_array *x = f->r->x;
  lines->kind = SHARDRT_LINES_NONE;
  if (f->r->shift != NULL || !exchange_lines_may(peers)) return SHARDRT_OK;
  int code = shardrt_lines_find(shardrt_array_sharding(x), f->r->to, false, shardrt_array_ndim(x),
                                shardrt_array_shape(x), peers->devices, shardrt_job_hosts(f->r->job), lines);
  if (!exchange_lines_wanted(peers, lines, shardrt_sharding_mesh(f->r->to), shardrt_array_dtype(x)))
    lines->kind = SHARDRT_LINES_NONE;
  return code;
}

/* Every device has its new block from its line, and what it had stays as it is. */
static int move_in_lines(struct device_move *f, const shardrt_lines *lines, struct collective *m, const char *what) {
  const int64_t count = f->new.count;
  struct accelerator_line_work *works = alloc_array((size_t)count, sizeof *works);
  int code = works == NULL ? ALLOC_FAILED : take_buffers(f);
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) {
    const int32_t device = array_local_device(f->made, i);
    const void *from = NULL;
    for (int64_t k = 0; k < f->old.count; k++)
      if (f->old.items[k].device == device) from = f->old.items[k].data;
    works[i] = exchange_lines_work(lines, device, shardrt_array_dtype(f->r->x), from,
                                   shardrt_buffer_data(shardrt_array_buffer(f->made, i)));
  }
  shardrt_mesh *mesh = shardrt_sharding_mesh(f->r->to);
  if (code == SHARDRT_OK) code = exchange_lines_run(lines, mesh, count, works, &f->r->cache->peers, m, what);
  alloc_free(works);
  return code;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static int move_in_messages(struct device_move *f, struct collective *m, const char *what, int64_t channels_at_most) {
  int code = f->r->options.donate != 0 ? copy_and_drop(f) : copy_all_parts(f);
  if (code == SHARDRT_OK && channels_at_most > 0) code = exchange_messages(f, m, what, channels_at_most);
  if (code == SHARDRT_OK) code = copy_device_parts(f, f->spread.items, f->spread.count);
  return code;
}

/* `what` is shortened to what is shown of it. */
static int move_device_parts(struct device_move *f, char *what) {
  struct collective *m = job_collective(f->r->job);
  int64_t channels_at_most = 0;
  const bool drops = f->r->options.donate != 0;
  int code = f->out.count + f->in.count > 0 ? reshard_finish_devices(f->r) : SHARDRT_OK;
  if (code == SHARDRT_OK && !drops) code = take_buffers(f);
  code = gather_call(f, m, what, code, &channels_at_most);
  collective_shorten(what);
  if (code == SHARDRT_OK && channels_at_most > 0)
    code = peer_path_settle(&f->r->cache->peers, m, f->r->info->devices_per_process);
  shardrt_lines lines = {.kind = SHARDRT_LINES_NONE};
  if (code == SHARDRT_OK && channels_at_most > 0) code = find_lines(f, &lines);
  if (code < 0) return code;
  const int64_t start = clock_now();
  code = lines.kind == SHARDRT_LINES_NONE ? move_in_messages(f, m, what, channels_at_most)
                                          : move_in_lines(f, &lines, m, what);
  const int64_t end = clock_now();
  f->r->seconds = 1e-9 * (double)(end - start);
  const int64_t received = f->r->route->receives.elements * (int64_t)f->element;
  trace_span(start, end, (struct trace_event){.kind = TRACE_MOVE, .amount = received});
  return code;
}

/* What a device or its memory fails at is said with the array. */
static int name_array(const struct reshard *r, int code) {
  if (code != SHARDRT_ENOMEM && code != SHARDRT_EDEVICE) return code;
  char bytes[1024];
  struct text text = {.bytes = bytes, .capacity = sizeof bytes};
  array_add_text(r->x, &text);
  return error_prefix(code, "%s, to %.300s", bytes, shardrt_sharding_text(r->to));
}

static void drop_all(shardrt_array *x) {
  for (int64_t i = 0; i < shardrt_array_shard_count(x); i++) array_drop(x, shardrt_array_shard(x, i)->block);
}

int reshard_device_into(struct reshard *r, shardrt_array *made) {
  char what[1024];
  struct text text = {.bytes = what, .capacity = sizeof what};
  reshard_name(r, &text);
  struct device_move f = {.r = r,
                          .made = made,
                          .a = accelerator_get(),
                          .element = shardrt_dtype_size(shardrt_array_dtype(r->x)),
                          .staging = reshard_staging(r) / 2};
  int code = exchange_check_staging(reshard_staging(r), f.element);
  if (code == SHARDRT_OK) code = device_move_new(&f);
  code = code < 0 ? reshard_fail(r, code) : move_device_parts(&f, what);
  if (r->options.donate != 0) drop_all(r->x);
  device_move_free(&f);
  return name_array(r, code);
}

int reshard_device_new(struct reshard *r, shardrt_array **out) {
  shardrt_array *made = NULL;
  int code = reshard_new_array(r, &made);
  code = code < 0 ? reshard_fail(r, code) : reshard_device_into(r, made);
  if (code < 0)
    shardrt_array_free(made);
  else
    *out = made;
  return code;
}

/* ---- from one device that has all ------------------------------------------------------------------------------- */

/* The shard's part of what `whole` holds on its one device. */
static int fill_shard_from(shardrt_array *array, int64_t i, const shardrt_array *whole, const struct block_grid *all) {
  const shardrt_box *box = &shardrt_array_shard(array, i)->box;
  shardrt_buffer *source = shardrt_array_buffer(whole, 0), *made;
  const int32_t device = array_local_device(array, i), other = shardrt_buffer_device(source);
  const size_t bytes = shardrt_array_shard_bytes(array);
  if (device == other && bytes == shardrt_buffer_bytes(source)) return shardrt_array_set_buffer(array, i, source);
  int code = buffer_on_device(device, ACCELERATOR_MAIN, ACCELERATOR_ARRAYS, bytes, &made);
  if (code < 0) return code;
  const struct device_view to = device_view_packed(box, device, shardrt_buffer_data(made));
  const struct device_view from = device_view_in_block(all, 0, box, other, shardrt_buffer_data(source));
  code = accelerator_get()->streams->after(device, other);
  if (code == SHARDRT_OK)
    code = device_copy_box("reshard", shardrt_dtype_size(shardrt_array_dtype(array)), box, &to, &from,
                           DEVICE_COPY_STAGING);
  const int after =
      accelerator_get()->streams->after(other, device); /* also where it failed: some of it may be under way */
  if (code == SHARDRT_OK) code = after;
  if (code == SHARDRT_OK) code = shardrt_array_set_buffer(array, i, made);
  shardrt_buffer_free(made);
  return code;
}

int shardrt_array_fill_from(shardrt_array *array, const shardrt_array *whole) {
  if (shardrt_array_shard_count(whole) != 1 || shardrt_array_buffer(whole, 0) == NULL)
    return error_set(SHARDRT_EDATA, "the array's data was given up or never given");
  if (accelerator_get() == NULL)
    return shardrt_array_fill_global(array, shardrt_buffer_data(shardrt_array_buffer(whole, 0)));
  struct block_grid all = {.ndim = shardrt_array_ndim(whole), .parts = {1, 1, 1, 1, 1, 1, 1, 1}, .blocks = 1};
  memcpy(all.shard_shape, shardrt_array_shape(whole), (size_t)all.ndim * sizeof *all.shard_shape);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < shardrt_array_shard_count(array) && code == SHARDRT_OK; i++)
    code = fill_shard_from(array, i, whole, &all);
  return code;
}

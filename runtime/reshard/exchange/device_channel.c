#include "reshard/exchange/device_channel.h"

#include <assert.h>

#include "base/alloc.h"
#include "layout/block_holders.h"
#include "reshard/exchange/device_copy.h"

enum { DIRECT_FROM = 256 << 10 }; /* bytes of a run that goes by itself, without being packed */

struct message_rules device_channel_rules(const shardrt_route *route, size_t element, int64_t piece, int64_t direct) {
  return (struct message_rules){.from = &route->from,
                                .to = &route->to,
                                .element = element,
                                .piece = piece,
                                .joined = piece,
                                .direct_from = (int64_t)((DIRECT_FROM + element - 1) / element),
                                .direct = direct};
}

/* ---- which devices ---------------------------------------------------------------------------------------------- */

/* The k-th, counted around, of the process's devices that hold a block, as one does: from 0 in the process. */
static int32_t device_of(const struct block_holders *s, const struct local_blocks *h, int64_t block, int64_t k) {
  int64_t first = 0, count = 1;
  while (first < h->count && h->items[first].block != block) first++;
  while (first + count < h->count && h->items[first + count].block == block) count++;
  const int64_t replica = h->items[first + k % count].replica;
  const int64_t position = sharding_position(s->sharding, &s->grid, block, replica);
  return shardrt_mesh_device(s->sharding->mesh, position) % s->devices_per_process;
}

/* The two ends of the moves of one direction. */
struct ends {
  struct block_holders from, to;
  struct local_blocks mine, others;
  bool outgoing;
};

static void shape_of(const struct block_grid *grid, int64_t *shape) {
  for (int32_t d = 0; d < grid->ndim; d++) shape[d] = grid->shard_shape[d] * grid->parts[d];
}

static int ends_new(struct ends *e, const shardrt_route *route, bool outgoing, const shardrt_sharding *from,
                    const shardrt_sharding *to, int32_t devices_per_process) {
  *e = (struct ends){.outgoing = outgoing};
  int64_t shape[SHARDRT_MAX_NDIM];
  shape_of(&route->from, shape);
  int code = block_holders_set(&e->from, from, route->from.ndim, shape, devices_per_process);
  shape_of(&route->to, shape);
  if (code == SHARDRT_OK) code = block_holders_set(&e->to, to, route->to.ndim, shape, devices_per_process);
  if (code == SHARDRT_OK) code = local_blocks_set(&e->mine, outgoing ? &e->from : &e->to, route->process);
  return code;
}

static void ends_free(struct ends *e) {
  local_blocks_clear(&e->mine);
  local_blocks_clear(&e->others);
}

/* The channel of the k-th move between the two processes, without its moves. */
static struct channel channel_of(const struct ends *e, const shardrt_move *move, int64_t k) {
  const struct local_blocks *old = e->outgoing ? &e->mine : &e->others, *new = e->outgoing ? &e->others : &e->mine;
  const int32_t from = device_of(&e->from, old, move->from, k), to = device_of(&e->to, new, move->to, k);
  return (struct channel){.outgoing = e->outgoing,
                          .device = e->outgoing ? from : to,
                          .process = move->process,
                          .peer = e->outgoing ? to : from};
}

static bool is_same_channel(const struct channel *a, const struct channel *b) {
  return a->process == b->process && a->device == b->device && a->peer == b->peer;
}

/* Finds the channels, counts their moves, and notes in `which` whose each move is. */
static int find_channels(struct channels *l, struct ends *e, const struct route_moves *moves, int64_t *which) {
  int64_t first = 0, k = 0; /* the first channel with this process, and the move's number with it */
  for (int64_t i = 0; i < moves->count; i++, k++) {
    const shardrt_move *move = &moves->items[i];
    if (i == 0 || move->process != moves->items[i - 1].process) {
      int code = local_blocks_set(&e->others, e->outgoing ? &e->to : &e->from, move->process);
      if (code < 0) return code;
      first = l->count;
      k = 0;
    }
    const struct channel one = channel_of(e, move, k);
    int64_t at = first;
    while (at < l->count && !is_same_channel(&l->items[at], &one)) at++;
    if (at == l->count) l->items[l->count++] = one;
    l->items[at].count++;
    which[i] = at;
  }
  return SHARDRT_OK;
}

static void deal_moves(struct channels *l, const struct route_moves *moves, const int64_t *which) {
  int64_t before = 0;
  for (int64_t i = 0; i < l->count; i++) {
    l->items[i].moves = l->moves + before;
    before += l->items[i].count;
    l->items[i].count = 0;
  }
  for (int64_t i = 0; i < moves->count; i++) {
    struct channel *its = &l->items[which[i]];
    l->moves[(its->moves - (const shardrt_move *const *)l->moves) + its->count++] = &moves->items[i];
  }
}

int device_channels_new(struct channels *l, const shardrt_route *route, bool outgoing, const shardrt_sharding *from,
                        const shardrt_sharding *to, int32_t devices_per_process) {
  *l = (struct channels){0};
  const struct route_moves *moves = outgoing ? &route->sends : &route->receives;
  if (moves->count == 0) return SHARDRT_OK;
  struct ends e;
  int code = ends_new(&e, route, outgoing, from, to, devices_per_process);
  int64_t *which = alloc_array((size_t)moves->count, sizeof *which);
  l->items = alloc_array((size_t)moves->count, sizeof *l->items);
  l->moves = alloc_array((size_t)moves->count, sizeof *l->moves);
  if (which == NULL || l->items == NULL || l->moves == NULL) code = ALLOC_FAILED;
  if (code == SHARDRT_OK) code = find_channels(l, &e, moves, which);
  if (code == SHARDRT_OK) deal_moves(l, moves, which);
  alloc_free(which);
  ends_free(&e);
  if (code == SHARDRT_OK) return code;
  channels_free(l);
  return code;
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

static struct device_view view_in_block(const struct device_channel_args *args, const struct channel *c,
                                        const shardrt_move *move, const shardrt_box *box) {
  const int64_t number = c->outgoing ? move->from : move->to;
  const struct block_entry *at = block_table_on_device(c->outgoing ? args->old : args->new, number, c->device);
  assert(at != NULL && at->data != NULL);
  return device_view_in_block(c->outgoing ? args->rules.from : args->rules.to, number, box, c->device, at->data);
}

char *device_channel_run(const struct device_channel_args *args, const struct channel *c, const struct message *m) {
  if (m->count != 1) return NULL;
  const struct device_view view = view_in_block(args, c, m->moves[0], &m->box);
  return view.is_run ? view.data + (size_t)view.first * args->rules.element : NULL;
}

int device_channel_pack(const struct device_channel_args *args, const struct channel *c, const struct message *m,
                        char *packed) {
  const size_t element = args->rules.element;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < m->count && code == SHARDRT_OK; i++) {
    const shardrt_box *box = message_box(m, i);
    const struct device_view block = view_in_block(args, c, m->moves[i], box);
    const struct device_view here = device_view_packed(box, c->device, packed);
    code = c->outgoing ? device_copy_box("reshard", element, box, &here, &block, 0)
                       : device_copy_box("reshard", element, box, &block, &here, 0);
    packed += (size_t)box_elements(box) * element;
  }
  return code;
}

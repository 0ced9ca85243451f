#include "layout/route.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"

/* Up to this many devices that hold or need parts of one block, senders are chosen by weighing all of them; beyond, by
 * arithmetic on replica numbers, which costs a process only its own moves. */
enum { WEIGH_LIMIT = 4096 };

/* ---- one side of the way: a sharding, its grid, and the devices of one process in it ---------------------------- */

typedef struct side {
  const shardrt_sharding *sharding;
  struct grid grid;
  int64_t replicas; /* devices that hold each block */
  int32_t devices_per_process;
} side;

/* What one process holds of a side: one item for each of its devices, ascending by block, then by replica number. */
typedef struct held {
  int64_t block;
  int64_t replica;
} held;

typedef struct holding {
  int64_t count;
  held *items;
  int64_t *positions;
} holding;

static int side_set(side *s, const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape,
                    int32_t devices_per_process) {
  int code = sharding_grid(sharding, ndim, shape, &s->grid);
  if (code != SHARDRT_OK) return code;
  s->sharding = sharding;
  s->replicas = sharding->mesh->size / s->grid.blocks;
  s->devices_per_process = devices_per_process;
  return SHARDRT_OK;
}

/* The process that owns the device with a replica number of a block. */
static int32_t side_process(const side *s, int64_t block, int64_t replica) {
  int64_t position = sharding_position(s->sharding, &s->grid, block, replica);
  return shardrt_mesh_device(s->sharding->mesh, position) / s->devices_per_process;
}

static int compare_held(const void *a, const void *b) {
  const held *x = a, *y = b;
  if (x->block != y->block) return x->block < y->block ? -1 : 1;
  return (x->replica > y->replica) - (x->replica < y->replica);
}

/* `h` keeps its memory from call to call, for holding_clear. */
static int holding_set(holding *h, const side *s, int32_t process) {
  int64_t begin, end;
  int code = mesh_owned(s->sharding->mesh, process, s->devices_per_process, &begin, &end);
  if (code != SHARDRT_OK) return code;
  if (h->items == NULL) {
    int64_t most = s->devices_per_process;
    if (most > s->sharding->mesh->size) most = s->sharding->mesh->size;
    h->items = alloc_array((size_t)most, sizeof *h->items);
    h->positions = alloc_array((size_t)most, sizeof *h->positions);
    if (h->items == NULL || h->positions == NULL) return ALLOC_FAILED;
  }
  h->count = end - begin;
  mesh_rank_positions(s->sharding->mesh, begin, end, h->positions);
  for (int64_t i = 0; i < h->count; i++)
    h->items[i].block = sharding_block(s->sharding, &s->grid, h->positions[i], &h->items[i].replica);
  qsort(h->items, (size_t)h->count, sizeof *h->items, compare_held);
  return SHARDRT_OK;
}

static void holding_clear(holding *h) {
  alloc_free(h->items);
  alloc_free(h->positions);
}

/* The first item with that block or a higher one. */
static int64_t holding_find(const holding *h, int64_t block) {
  int64_t low = 0, high = h->count;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (h->items[middle].block < block)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool holding_has(const holding *h, int64_t block) {
  int64_t i = holding_find(h, block);
  return i < h->count && h->items[i].block == block;
}

static bool holding_is_first(const holding *h, int64_t i) {
  return i == 0 || h->items[i - 1].block != h->items[i].block;
}

/* Which of a process's devices with a block stands for the process: not always the first one, so that the numbers that
 * stand for processes are spread over all residues. */
static int64_t holding_replica(const holding *h, int64_t block, int32_t process) {
  int64_t first = holding_find(h, block), last = holding_find(h, block + 1);
  return h->items[first + process % (last - first)].replica;
}

/* ---- the blocks of a grid that a box meets ----------------------------------------------------------------------- */

typedef struct overlap {
  const struct grid *grid;
  int64_t first[SHARDRT_MAX_NDIM]; /* part along each dimension */
  int64_t parts[SHARDRT_MAX_NDIM];
  int64_t count;
} overlap;

static overlap overlap_of(const struct grid *grid, const shardrt_box *box) {
  overlap o = {.grid = grid, .count = 1};
  for (int32_t d = 0; d < grid->ndim; d++) {
    o.first[d] = box->start[d] / grid->shard_shape[d];
    o.parts[d] = (box->stop[d] - 1) / grid->shard_shape[d] - o.first[d] + 1;
    o.count *= o.parts[d];
  }
  return o;
}

/* The i-th of them, row-major. */
static int64_t overlap_block(const overlap *o, int64_t i) {
  int64_t block = 0, stride = 1;
  for (int32_t d = o->grid->ndim - 1; d >= 0; d--) {
    block += (o->first[d] + i % o->parts[d]) * stride;
    i /= o->parts[d];
    stride *= o->grid->parts[d];
  }
  return block;
}

/* Which of them a block is. */
static int64_t overlap_index(const overlap *o, int64_t block) {
  int64_t index = 0, stride = 1;
  for (int32_t d = o->grid->ndim - 1; d >= 0; d--) {
    index += (block % o->grid->parts[d] - o->first[d]) * stride;
    block /= o->grid->parts[d];
    stride *= o->parts[d];
  }
  return index;
}

/* ---- the moves --------------------------------------------------------------------------------------------------- */

typedef struct planner {
  side from, to;
  int32_t process;
  holding old, new; /* of `process` */
  holding peer_old, peer_new;
  shardrt_route *route;
} planner;

static int moves_add(planner *p, route_moves *moves, int64_t from, int64_t to, int32_t peer) {
  if (moves->count == moves->capacity) {
    int64_t capacity = moves->capacity == 0 ? 16 : 2 * moves->capacity;
    shardrt_move *items = alloc_array((size_t)capacity, sizeof *items);
    if (items == NULL) return ALLOC_FAILED;
    for (int64_t i = 0; i < moves->count; i++) items[i] = moves->items[i];
    alloc_free(moves->items);
    moves->items = items;
    moves->capacity = capacity;
  }
  shardrt_move *move = &moves->items[moves->count];
  shardrt_box old = grid_box(&p->from.grid, from), new = grid_box(&p->to.grid, to);
  *move = (shardrt_move){.from = from, .to = to, .process = peer};
  if (!box_intersect(&old, &new, &move->box)) return SHARDRT_OK; /* of an array without elements */
  moves->count++;
  moves->elements += box_elements(&move->box);
  return SHARDRT_OK;
}

static int compare_processes(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

/* The processes that hold a block, ascending, each once. */
static int64_t distinct_processes(const side *s, int64_t block, int32_t *out) {
  for (int64_t r = 0; r < s->replicas; r++) out[r] = side_process(s, block, r);
  qsort(out, (size_t)s->replicas, sizeof *out, compare_processes);
  int64_t count = 0;
  for (int64_t r = 0; r < s->replicas; r++)
    if (count == 0 || out[r] != out[count - 1]) out[count++] = out[r];
  return count;
}

/* Every part of old block `from` goes to the holder that has the least to send so far. Adds the moves in which this
 * process takes part, as the sender or as the receiver of new block `wanted` (-1: of none). */
static int weigh(planner *p, int64_t from, const overlap *news, int64_t wanted) {
  const int64_t most = p->from.replicas + p->to.replicas;
  int32_t *holders = alloc_array((size_t)most, sizeof *holders);
  int64_t *load = alloc_zeros((size_t)p->from.replicas, sizeof *load);
  int code = holders != NULL && load != NULL ? SHARDRT_OK : ALLOC_FAILED;
  if (code == SHARDRT_OK) {
    int32_t *receivers = holders + p->from.replicas;
    int64_t holder_count = distinct_processes(&p->from, from, holders);
    shardrt_box old = grid_box(&p->from.grid, from);
    for (int64_t i = 0; code == SHARDRT_OK && i < news->count; i++) {
      int64_t to = overlap_block(news, i), receiver_count = distinct_processes(&p->to, to, receivers);
      shardrt_box new = grid_box(&p->to.grid, to), shared;
      int64_t elements = box_intersect(&old, &new, &shared) ? box_elements(&shared) : 0;
      for (int64_t r = 0; code == SHARDRT_OK && r < receiver_count; r++) {
        if (bsearch(&receivers[r], holders, (size_t)holder_count, sizeof *holders, compare_processes)) continue;
        int64_t best = from % holder_count; /* where the load is even, blocks begin with different holders */
        for (int64_t h = 0; h < holder_count; h++)
          if (load[h] < load[best]) best = h;
        load[best] += elements;
        if (holders[best] == p->process) code = moves_add(p, &p->route->sends, from, to, receivers[r]);
        if (receivers[r] == p->process && to == wanted)
          code = moves_add(p, &p->route->receives, from, to, holders[best]);
      }
    }
  }
  alloc_free(load);
  alloc_free(holders);
  return code;
}

static bool is_weighed(const planner *p, const overlap *news) {
  return news->count <= WEIGH_LIMIT && p->from.replicas + news->count * p->to.replicas <= WEIGH_LIMIT;
}

/* By arithmetic: the receivers of an old block are numbered by (new block, replica), and number j is served by replica
 * j mod replicas of the old block. */
static int32_t sender_of(planner *p, int64_t from, const overlap *news, int64_t to, const holding *receiver,
                         int32_t process) {
  int64_t number = overlap_index(news, to) * p->to.replicas + holding_replica(receiver, to, process);
  return side_process(&p->from, from, number % p->from.replicas);
}

/* The other way round: whom the device with replica number `replica` of an old block serves. */
static int add_served(planner *p, int64_t from, const overlap *news, int64_t replica) {
  for (int64_t j = replica; j < news->count * p->to.replicas; j += p->from.replicas) {
    int64_t to = overlap_block(news, j / p->to.replicas), wanted = j % p->to.replicas;
    int32_t receiver = side_process(&p->to, to, wanted);
    int code = holding_set(&p->peer_old, &p->from, receiver);
    if (code == SHARDRT_OK) code = holding_set(&p->peer_new, &p->to, receiver);
    if (code != SHARDRT_OK) return code;
    if (holding_has(&p->peer_old, from) || holding_replica(&p->peer_new, to, receiver) != wanted) continue;
    code = moves_add(p, &p->route->sends, from, to, receiver);
    if (code != SHARDRT_OK) return code;
  }
  return SHARDRT_OK;
}

static int add_sends(planner *p) {
  for (int64_t i = 0; i < p->old.count; i++) {
    int64_t from = p->old.items[i].block;
    shardrt_box box = grid_box(&p->from.grid, from);
    overlap news = overlap_of(&p->to.grid, &box);
    int code = SHARDRT_OK;
    if (!is_weighed(p, &news))
      code = add_served(p, from, &news, p->old.items[i].replica);
    else if (holding_is_first(&p->old, i))
      code = weigh(p, from, &news, -1);
    if (code != SHARDRT_OK) return code;
  }
  return SHARDRT_OK;
}

static int add_arrivals(planner *p) {
  for (int64_t i = 0; i < p->new.count; i++) {
    if (!holding_is_first(&p->new, i)) continue;
    int64_t to = p->new.items[i].block;
    shardrt_box box = grid_box(&p->to.grid, to);
    overlap olds = overlap_of(&p->from.grid, &box);
    for (int64_t k = 0; k < olds.count; k++) {
      int64_t from = overlap_block(&olds, k);
      shardrt_box old = grid_box(&p->from.grid, from);
      overlap news = overlap_of(&p->to.grid, &old);
      int code;
      if (holding_has(&p->old, from))
        code = moves_add(p, &p->route->copies, from, to, p->process);
      else if (is_weighed(p, &news))
        code = weigh(p, from, &news, to);
      else
        code = moves_add(p, &p->route->receives, from, to, sender_of(p, from, &news, to, &p->new, p->process));
      if (code != SHARDRT_OK) return code;
    }
  }
  return SHARDRT_OK;
}

static int compare_blocks(const shardrt_move *x, const shardrt_move *y) {
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return (x->to > y->to) - (x->to < y->to);
}

/* Distances count around 2^32, so that they need no number of processes. */
static int compare_sends(const void *a, const void *b, void *process) {
  const shardrt_move *x = a, *y = b;
  uint32_t me = *(const uint32_t *)process, up_x = (uint32_t)x->process - me, up_y = (uint32_t)y->process - me;
  return up_x != up_y ? (up_x < up_y ? -1 : 1) : compare_blocks(x, y);
}

static int compare_receives(const void *a, const void *b, void *process) {
  const shardrt_move *x = a, *y = b;
  uint32_t me = *(const uint32_t *)process, down_x = me - (uint32_t)x->process, down_y = me - (uint32_t)y->process;
  return down_x != down_y ? (down_x < down_y ? -1 : 1) : compare_blocks(x, y);
}

static void moves_sort(route_moves *moves, int (*compare)(const void *, const void *, void *), int32_t process) {
  if (moves->count > 1) qsort_r(moves->items, (size_t)moves->count, sizeof *moves->items, compare, &process);
}

int shardrt_route_new(const shardrt_sharding *from, const shardrt_sharding *to, int32_t ndim, const int64_t *shape,
                      int32_t process, int32_t devices_per_process, shardrt_route **out) {
  planner p = {.process = process};
  int code = side_set(&p.from, from, ndim, shape, devices_per_process);
  if (code == SHARDRT_OK) code = side_set(&p.to, to, ndim, shape, devices_per_process);
  if (code != SHARDRT_OK) return code;
  p.route = alloc_zeros(1, sizeof *p.route);
  if (p.route == NULL) return ALLOC_FAILED;
  p.route->process = process;
  p.route->from = p.from.grid;
  p.route->to = p.to.grid;
  shardrt_box whole = box_whole(ndim, shape);
  code = holding_set(&p.old, &p.from, process);
  if (code == SHARDRT_OK) code = holding_set(&p.new, &p.to, process);
  if (!box_is_empty(&whole)) { /* an array without elements has nothing to move */
    if (code == SHARDRT_OK) code = add_sends(&p);
    if (code == SHARDRT_OK) code = add_arrivals(&p);
  }
  holding_clear(&p.old);
  holding_clear(&p.new);
  holding_clear(&p.peer_old);
  holding_clear(&p.peer_new);
  if (code != SHARDRT_OK) {
    shardrt_route_free(p.route);
    return code;
  }
  moves_sort(&p.route->copies, compare_receives, process);
  moves_sort(&p.route->receives, compare_receives, process);
  moves_sort(&p.route->sends, compare_sends, process);
  *out = p.route;
  return SHARDRT_OK;
}

void shardrt_route_free(shardrt_route *route) {
  if (route == NULL) return;
  alloc_free(route->copies.items);
  alloc_free(route->receives.items);
  alloc_free(route->sends.items);
  alloc_free(route);
}

void shardrt_route_elements(const shardrt_route *route, int64_t *received, int64_t *sent, int64_t *copied) {
  *received = route->receives.elements;
  *sent = route->sends.elements;
  *copied = route->copies.elements;
}

const shardrt_move *shardrt_route_moves(const shardrt_route *route, int32_t kind, int64_t *count) {
  const route_moves *moves = kind == SHARDRT_COPIES     ? &route->copies
                             : kind == SHARDRT_RECEIVES ? &route->receives
                                                        : &route->sends;
  *count = moves->count;
  return moves->items;
}

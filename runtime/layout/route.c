#include "layout/route.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compare.h"
#include "layout/block_holders.h"
#include "layout/relay.h"

/* Up to this many devices that hold or need parts of one block, senders are chosen by weighing all of them; beyond, by
 * arithmetic on replica numbers, which costs a process only its own moves. What one process alone holds comes from it,
 * whatever the number of devices. */
enum { WEIGH_LIMIT = 512 };

enum { PIECES = 8 }; /* of a part, at most */

/* ---- the blocks of a grid that a box meets ----------------------------------------------------------------------- */

struct overlap {
  const struct block_grid *grid;
  int64_t first[SHARDRT_MAX_NDIM]; /* part along each dimension */
  int64_t parts[SHARDRT_MAX_NDIM];
  int64_t count;
};

static shardrt_box whole_of(const struct block_grid *grid) {
  shardrt_box box = {.ndim = grid->ndim};
  for (int32_t d = 0; d < grid->ndim; d++) {
    box.start[d] = grid->origin[d];
    box.stop[d] = grid->origin[d] + grid->parts[d] * grid->shard_shape[d];
  }
  return box;
}

static struct overlap overlap_of(const struct block_grid *grid, const shardrt_box *box) {
  struct overlap o = {.grid = grid, .parts = {1, 1, 1, 1, 1, 1, 1, 1}, .count = 0};
  shardrt_box whole = whole_of(grid), inside;
  if (!box_intersect(box, &whole, &inside)) return o;
  o.count = 1;
  for (int32_t d = 0; d < grid->ndim; d++) {
    o.first[d] = (inside.start[d] - grid->origin[d]) / grid->shard_shape[d];
    o.parts[d] = (inside.stop[d] - 1 - grid->origin[d]) / grid->shard_shape[d] - o.first[d] + 1;
    o.count *= o.parts[d];
  }
  return o;
}

/* The i-th of them, row-major. */
static int64_t overlap_block(const struct overlap *o, int64_t i) {
  assert(i >= 0 && i < o->count);
  int64_t block = 0, stride = 1;
  for (int32_t d = o->grid->ndim - 1; d >= 0; d--) {
    block += (o->first[d] + i % o->parts[d]) * stride;
    i /= o->parts[d];
    stride *= o->grid->parts[d];
  }
  return block;
}

/* Which of them a block is. */
static int64_t overlap_index(const struct overlap *o, int64_t block) {
  assert(block >= 0 && block < o->grid->blocks);
  int64_t index = 0, stride = 1;
  for (int32_t d = o->grid->ndim - 1; d >= 0; d--) {
    index += (block % o->grid->parts[d] - o->first[d]) * stride;
    block /= o->grid->parts[d];
    stride *= o->parts[d];
  }
  return index;
}

/* ---- the moves --------------------------------------------------------------------------------------------------- */

struct planner {
  struct block_holders from, to;
  int32_t process;
  struct local_blocks old, new; /* of `process` */
  struct local_blocks peer_old, peer_new;
  const int32_t *hosts;           /* NULL: all processes are on one */
  struct relay_audience audience; /* of new block `audience_to`, */
  int64_t audience_to;            /* -1: of none yet */
  int64_t audience_count;         /* processes */
  shardrt_route *route;
};

static int moves_add(struct route_moves *moves, shardrt_move move, int32_t process) {
  shardrt_move *items = alloc_one_more(moves->items, moves->count, &moves->capacity, 16, sizeof *items);
  if (items == NULL) return ALLOC_FAILED;
  moves->items = items;
  move.process = process;
  moves->items[moves->count++] = move;
  moves->elements += box_elements(&move.box);
  return SHARDRT_OK;
}

/* All that old block `from` and new block `to` share. */
static int add_whole(struct planner *p, struct route_moves *moves, int64_t from, int64_t to, int32_t process) {
  shardrt_box old = block_grid_box(&p->from.grid, from), new = block_grid_box(&p->to.grid, to);
  shardrt_move move = {.from = from, .to = to};
  return box_intersect(&old, &new, &move.box) ? moves_add(moves, move, process) : SHARDRT_OK;
}

/* ---- what one process alone holds, over several hosts ------------------------------------------------------------ */

/* Those who hold new block `to`. */
static int find_audience(struct planner *p, int64_t to) {
  struct relay_audience *a = &p->audience;
  const size_t replicas = (size_t)p->to.replicas;
  if (a->processes == NULL) a->processes = alloc_array(replicas, sizeof *a->processes);
  if (a->begins == NULL) a->begins = alloc_array(replicas + 1, sizeof *a->begins);
  if (a->processes == NULL || a->begins == NULL) return ALLOC_FAILED;
  if (p->audience_to == to) return SHARDRT_OK;
  p->audience_to = to;
  p->audience_count = block_holders_processes(&p->to, to, a->processes);
  *a = relay_audience_of(p->hosts, a->processes, p->audience_count, a->begins);
  return SHARDRT_OK;
}

/* This process's part in bringing what old block `from`, which process `root` alone holds, has of new block `to` to all
 * that need it. Where this process is another, it needs it, too. */
static int add_relayed(struct planner *p, int64_t from, int64_t to, int32_t root) {
  const shardrt_box old = block_grid_box(&p->from.grid, from), new = block_grid_box(&p->to.grid, to);
  shardrt_move move = {.from = from, .to = to};
  if (!box_intersect(&old, &new, &move.box)) return SHARDRT_OK;
  const bool is_root = root == p->process;
  int code = is_root || box_elements(&move.box) >= RELAYED_FROM ? find_audience(p, to) : SHARDRT_OK;
  if (code < 0) return code;
  if (box_elements(&move.box) >= RELAYED_FROM) {
    const struct relay relay = relay_of(&p->audience, root, from, overlap_of(&p->from.grid, &new).count);
    if (relay_saves(&relay)) {
      struct relay_step step;
      for (int64_t i = 0; code == SHARDRT_OK && relay_step(&relay, p->process, i, &step); i++) {
        move.round = step.round;
        move.is_relayed = !step.is_receive && !is_root;
        code = moves_add(step.is_receive ? &p->route->receives : &p->route->sends, move, step.peer);
      }
      return code;
    }
  }
  if (!is_root) return moves_add(&p->route->receives, move, root);
  for (int64_t i = 0; code == SHARDRT_OK && i < p->audience_count; i++)
    if (p->audience.processes[i] != root) code = moves_add(&p->route->sends, move, p->audience.processes[i]);
  return code;
}

static int add_only_holders_sends(struct planner *p, int64_t from, const struct overlap *news) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; code == SHARDRT_OK && i < news->count; i++)
    code = add_relayed(p, from, overlap_block(news, i), p->process);
  return code;
}

/* ---- the choice of senders --------------------------------------------------------------------------------------- */

/* The choice of who sends what of one old block. */
struct spread {
  int64_t from;
  const struct overlap *news;
  int64_t holder_count;
  int32_t *holders, *receivers; /* processes, ascending */
  int64_t *load;                /* [holders] elements given to each so far */
  int64_t first;                /* whom of them the block begins with, where the load is even */
};

static bool spread_has(const struct spread *s, int32_t process) {
  return bsearch(&process, s->holders, (size_t)s->holder_count, sizeof process, compare_int32) != NULL;
}

/* Into how many each part of the block is cut, so that the load of its holders can be even to an eighth: with as many
 * receivers as holders, into 1; with fewer, the holders share. */
static int64_t spread_pieces(struct planner *p, const struct spread *s) {
  int64_t parts = 0, pieces = 1;
  for (int64_t i = 0; i < s->news->count; i++) {
    int64_t count = block_holders_processes(&p->to, overlap_block(s->news, i), s->receivers);
    for (int64_t r = 0; r < count; r++) parts += !spread_has(s, s->receivers[r]);
  }
  const int64_t holders = s->holder_count, most = holders < PIECES ? holders : PIECES;
  while (pieces < most && (parts * pieces + holders - 1) / holders * holders * 8 > parts * pieces * 9) pieces++;
  return pieces;
}

/* The holder with the least load, of those the next one from `first` on. */
static int64_t spread_next(const struct spread *s) {
  int64_t best = s->first;
  for (int64_t i = 1; i < s->holder_count; i++) {
    int64_t h = (s->first + i) % s->holder_count;
    if (s->load[h] < s->load[best]) best = h;
  }
  return best;
}

/* Adds what goes to the receivers of new block `to`. */
static int spread_block(struct planner *p, struct spread *s, int64_t to, int64_t pieces) {
  shardrt_box old = block_grid_box(&p->from.grid, s->from), new = block_grid_box(&p->to.grid, to), part;
  if (!box_intersect(&old, &new, &part)) return SHARDRT_OK;
  int64_t count = block_holders_processes(&p->to, to, s->receivers), cut = box_part_count(&part, pieces);
  int code = SHARDRT_OK;
  for (int64_t r = 0; r < count; r++) {
    if (spread_has(s, s->receivers[r])) continue;
    for (int64_t i = 0; i < cut && code == SHARDRT_OK; i++) {
      shardrt_move move = {.from = s->from, .to = to, .box = box_part(&part, pieces, i)};
      int64_t h = spread_next(s);
      s->load[h] += box_elements(&move.box);
      if (s->holders[h] == p->process) code = moves_add(&p->route->sends, move, s->receivers[r]);
      if (code == SHARDRT_OK && s->receivers[r] == p->process)
        code = moves_add(&p->route->receives, move, s->holders[h]);
    }
  }
  return code;
}

/* Every part of old block `from`, or piece of one, goes to the holder that has the least to send of it so far. Adds the
 * moves in which this process takes part, as a sender or as the receiver of any of its new blocks. */
static int weigh(struct planner *p, int64_t from, const struct overlap *news) {
  const size_t replicas = (size_t)p->from.replicas;
  struct spread s = {.from = from, .news = news};
  s.holders = alloc_array(replicas, sizeof *s.holders);
  s.receivers = alloc_array((size_t)p->to.replicas, sizeof *s.receivers);
  s.load = alloc_zeros(replicas, sizeof *s.load);
  int code = s.holders != NULL && s.receivers != NULL && s.load != NULL ? SHARDRT_OK : ALLOC_FAILED;
  if (code == SHARDRT_OK) {
    s.holder_count = block_holders_processes(&p->from, from, s.holders);
    assert(s.holder_count >= 1 && s.holder_count <= p->from.replicas);
    code = local_blocks_set(&p->peer_old, &p->from, s.holders[0]);
  }
  if (code == SHARDRT_OK) {
    /* Blocks that have the same holders begin with one after the other. */
    s.first = local_blocks_rank(&p->peer_old, from) % s.holder_count;
    int64_t pieces = spread_pieces(p, &s);
    for (int64_t i = 0; code == SHARDRT_OK && i < news->count; i++)
      code = spread_block(p, &s, overlap_block(news, i), pieces);
  }
  alloc_free(s.load);
  alloc_free(s.receivers);
  alloc_free(s.holders);
  return code;
}

static bool is_weighed(const struct planner *p, const struct overlap *news) {
  return news->count <= WEIGH_LIMIT && p->from.replicas + news->count * p->to.replicas <= WEIGH_LIMIT;
}

/* By arithmetic: the receivers of an old block are numbered by (new block, replica); what stands for a process is the
 * number of one of its devices. The replicas of the old block, counted from the block's own number on, serve them in
 * turn. Where there are more replicas than numbers, number j has those from its share on, j * replicas / numbers, for
 * itself, and takes the first of them for the lowest j, the last one for the highest: so the senders are spread over
 * the processes both where a process has replicas in a row and where processes have them in turns. */
static int64_t server_of(int64_t number, int64_t numbers, int64_t replicas) {
  assert(number >= 0 && number < numbers && replicas >= 1);
  if (numbers >= replicas) return number % replicas;
  return number * replicas / numbers + number * (replicas / numbers) / numbers;
}

/* The lowest number that a replica serves, or `numbers` where it serves none. */
static int64_t first_served(int64_t replica, int64_t numbers, int64_t replicas) {
  assert(replica >= 0 && replica < replicas);
  if (numbers >= replicas) return replica;
  int64_t number = ((replica + 1) * numbers - 1) / replicas; /* in whose share it is */
  return server_of(number, numbers, replicas) == replica ? number : numbers;
}

static int64_t receiver_number(const struct planner *p, const struct overlap *news, int64_t to,
                               const struct local_blocks *receiver) {
  int64_t first = overlap_index(news, to) * p->to.replicas;
  return first + local_blocks_replica(receiver, to, first, news->count * p->to.replicas);
}

static int32_t sender_of(const struct planner *p, int64_t from, const struct overlap *news, int64_t to) {
  const int64_t numbers = news->count * p->to.replicas, number = receiver_number(p, news, to, &p->new);
  return block_holders_process(&p->from, from,
                               (server_of(number, numbers, p->from.replicas) + from) % p->from.replicas);
}

/* The other way round: whom the device with replica number `replica` of an old block serves. */
static int add_served(struct planner *p, int64_t from, const struct overlap *news, int64_t replica) {
  const int64_t replicas = p->from.replicas, numbers = news->count * p->to.replicas;
  const int64_t turn = ((replica - from) % replicas + replicas) % replicas;
  for (int64_t j = first_served(turn, numbers, replicas); j < numbers; j += replicas) {
    int64_t to = overlap_block(news, j / p->to.replicas);
    int32_t receiver = block_holders_process(&p->to, to, j % p->to.replicas);
    int code = local_blocks_set(&p->peer_old, &p->from, receiver);
    if (code == SHARDRT_OK) code = local_blocks_set(&p->peer_new, &p->to, receiver);
    if (code != SHARDRT_OK) return code;
    if (local_blocks_has(&p->peer_old, from) || receiver_number(p, news, to, &p->peer_new) != j) continue;
    code = add_whole(p, &p->route->sends, from, to, receiver);
    if (code != SHARDRT_OK) return code;
  }
  return SHARDRT_OK;
}

static int add_sends(struct planner *p) {
  for (int64_t i = 0; i < p->old.count; i++) {
    int64_t from = p->old.items[i].block;
    shardrt_box box = block_grid_box(&p->from.grid, from);
    struct overlap news = overlap_of(&p->to.grid, &box);
    if (news.count == 0) continue;
    int code = SHARDRT_OK;
    if (p->hosts != NULL && block_holders_only_process(&p->from, from) == p->process)
      code = local_blocks_is_first(&p->old, i) ? add_only_holders_sends(p, from, &news) : SHARDRT_OK;
    else if (!is_weighed(p, &news))
      code = add_served(p, from, &news, p->old.items[i].replica);
    else if (local_blocks_is_first(&p->old, i))
      code = weigh(p, from, &news);
    if (code != SHARDRT_OK) return code;
  }
  return SHARDRT_OK;
}

/* Whether no new block of this process before item i meets old block `from`. */
static bool is_met_first(const struct planner *p, int64_t i, int64_t from) {
  shardrt_box old = block_grid_box(&p->from.grid, from), shared;
  for (int64_t k = 0; k < i; k++) {
    shardrt_box new = block_grid_box(&p->to.grid, p->new.items[k].block);
    if (box_intersect(&old, &new, &shared)) return false;
  }
  return true;
}

/* The part of old block `from` in the new block of item i. */
static int add_arrival(struct planner *p, int64_t i, int64_t from) {
  const int64_t to = p->new.items[i].block;
  if (local_blocks_has(&p->old, from)) return add_whole(p, &p->route->copies, from, to, p->process);
  const int32_t holder = block_holders_only_process(&p->from, from);
  if (holder >= 0 && p->hosts != NULL) return add_relayed(p, from, to, holder);
  if (holder >= 0) return add_whole(p, &p->route->receives, from, to, holder);
  shardrt_box old = block_grid_box(&p->from.grid, from);
  struct overlap news = overlap_of(&p->to.grid, &old);
  if (news.count == 0) return SHARDRT_OK; /* it meets item i's block at least */
  if (!is_weighed(p, &news)) return add_whole(p, &p->route->receives, from, to, sender_of(p, from, &news, to));
  /* Weighing finds the parts of all new blocks. */
  return is_met_first(p, i, from) ? weigh(p, from, &news) : SHARDRT_OK;
}

static int add_arrivals(struct planner *p) {
  for (int64_t i = 0; i < p->new.count; i++) {
    if (!local_blocks_is_first(&p->new, i)) continue;
    shardrt_box box = block_grid_box(&p->to.grid, p->new.items[i].block);
    struct overlap olds = overlap_of(&p->from.grid, &box);
    for (int64_t k = 0; k < olds.count; k++) {
      int code = add_arrival(p, i, overlap_block(&olds, k));
      if (code != SHARDRT_OK) return code;
    }
  }
  return SHARDRT_OK;
}

void shift_none(int32_t ndim, const int64_t *shape, shardrt_shift *out) {
  *out = (shardrt_shift){.ndim = ndim};
  memcpy(out->old_shape, shape, (size_t)ndim * sizeof *shape);
  memcpy(out->new_shape, shape, (size_t)ndim * sizeof *shape);
}

static int compare_moves(const shardrt_move *x, const shardrt_move *y) {
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  if (x->to != y->to) return x->to < y->to ? -1 : 1;
  for (int32_t d = 0; d < x->box.ndim; d++)
    if (x->box.start[d] != y->box.start[d]) return x->box.start[d] < y->box.start[d] ? -1 : 1;
  return 0;
}

/* Distances count around 2^32, so that they need no number of processes. */
static int compare_sends(const void *a, const void *b, void *process) {
  const shardrt_move *x = a, *y = b;
  if (x->round != y->round) return x->round < y->round ? -1 : 1;
  uint32_t me = *(const uint32_t *)process, up_x = (uint32_t)x->process - me, up_y = (uint32_t)y->process - me;
  return up_x != up_y ? (up_x < up_y ? -1 : 1) : compare_moves(x, y);
}

static int compare_receives(const void *a, const void *b, void *process) {
  const shardrt_move *x = a, *y = b;
  if (x->round != y->round) return x->round < y->round ? -1 : 1;
  uint32_t me = *(const uint32_t *)process, down_x = me - (uint32_t)x->process, down_y = me - (uint32_t)y->process;
  return down_x != down_y ? (down_x < down_y ? -1 : 1) : compare_moves(x, y);
}

static void moves_sort(struct route_moves *moves, int (*compare)(const void *, const void *, void *), int32_t process) {
  if (moves->count > 1) qsort_r(moves->items, (size_t)moves->count, sizeof *moves->items, compare, &process);
}

int shardrt_route_over_hosts(const shardrt_sharding *from, const shardrt_sharding *to, const shardrt_shift *shift,
                             int32_t process, int32_t devices_per_process, const int32_t *hosts, shardrt_route **out) {
  struct planner p = {.process = process, .hosts = hosts, .audience_to = -1};
  int code = block_holders_set(&p.from, from, shift->ndim, shift->old_shape, devices_per_process);
  if (code == SHARDRT_OK) code = block_holders_set(&p.to, to, shift->ndim, shift->new_shape, devices_per_process);
  if (code != SHARDRT_OK) return code;
  memcpy(p.from.grid.origin, shift->by, (size_t)shift->ndim * sizeof *shift->by);
  p.route = alloc_zeros(1, sizeof *p.route);
  if (p.route == NULL) return ALLOC_FAILED;
  p.route->process = process;
  p.route->from = p.from.grid;
  p.route->to = p.to.grid;
  shardrt_box old = whole_of(&p.from.grid), new = whole_of(&p.to.grid), shared;
  code = local_blocks_set(&p.old, &p.from, process);
  if (code == SHARDRT_OK) code = local_blocks_set(&p.new, &p.to, process);
  if (box_intersect(&old, &new, &shared)) { /* an array without elements has nothing to move */
    if (code == SHARDRT_OK) code = add_sends(&p);
    if (code == SHARDRT_OK) code = add_arrivals(&p);
  }
  local_blocks_clear(&p.old);
  local_blocks_clear(&p.new);
  local_blocks_clear(&p.peer_old);
  local_blocks_clear(&p.peer_new);
  alloc_free(p.audience.begins);
  alloc_free(p.audience.processes);
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

int shardrt_route_shifted(const shardrt_sharding *from, const shardrt_sharding *to, const shardrt_shift *shift,
                          int32_t process, int32_t devices_per_process, shardrt_route **out) {
  return shardrt_route_over_hosts(from, to, shift, process, devices_per_process, NULL, out);
}

int shardrt_route_new(const shardrt_sharding *from, const shardrt_sharding *to, int32_t ndim, const int64_t *shape,
                      int32_t process, int32_t devices_per_process, shardrt_route **out) {
  shardrt_shift none;
  shift_none(ndim, shape, &none);
  return shardrt_route_shifted(from, to, &none, process, devices_per_process, out);
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
  const struct route_moves *moves = kind == SHARDRT_COPIES     ? &route->copies
                                    : kind == SHARDRT_RECEIVES ? &route->receives
                                                               : &route->sends;
  *count = moves->count;
  return moves->items;
}

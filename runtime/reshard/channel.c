#include "reshard/channel.h"

#include "base/alloc.h"
#include "layout/box.h"
#include "layout/placement.h"
#include "reshard/device_copy.h"

enum { DIRECT_FROM = 256 << 10 }; /* bytes of a run that goes by itself, without being packed */

/* ---- which devices ---------------------------------------------------------------------------------------------- */

/* The k-th, counted around, of the process's devices that hold a block, as one does: from 0 in the process. */
static int32_t device_of(const struct placement *s, const struct local_blocks *h, int64_t block, int64_t k) {
  int64_t first = 0, count = 1;
  while (first < h->count && h->items[first].block != block) first++;
  while (first + count < h->count && h->items[first + count].block == block) count++;
  const int64_t replica = h->items[first + k % count].replica;
  const int64_t position = sharding_position(s->sharding, &s->grid, block, replica);
  return shardrt_mesh_device(s->sharding->mesh, position) % s->devices_per_process;
}

/* The two ends of the moves of one direction. */
typedef struct ends {
  struct placement from, to;
  struct local_blocks mine, others;
  bool outgoing;
} ends;

static void shape_of(const struct block_grid *grid, int64_t *shape) {
  for (int32_t d = 0; d < grid->ndim; d++) shape[d] = grid->shard_shape[d] * grid->parts[d];
}

static int ends_new(ends *e, const shardrt_route *route, bool outgoing, const shardrt_sharding *from,
                    const shardrt_sharding *to, int32_t devices_per_process) {
  *e = (ends){.outgoing = outgoing};
  int64_t shape[SHARDRT_MAX_NDIM];
  shape_of(&route->from, shape);
  int code = placement_set(&e->from, from, route->from.ndim, shape, devices_per_process);
  shape_of(&route->to, shape);
  if (code == SHARDRT_OK) code = placement_set(&e->to, to, route->to.ndim, shape, devices_per_process);
  if (code == SHARDRT_OK) code = local_blocks_set(&e->mine, outgoing ? &e->from : &e->to, route->process);
  return code;
}

static void ends_free(ends *e) {
  local_blocks_clear(&e->mine);
  local_blocks_clear(&e->others);
}

/* The lane of the k-th move between the two processes, without its moves. */
static lane lane_of(const ends *e, const shardrt_move *move, int64_t k) {
  const struct local_blocks *old = e->outgoing ? &e->mine : &e->others, *new = e->outgoing ? &e->others : &e->mine;
  const int32_t from = device_of(&e->from, old, move->from, k), to = device_of(&e->to, new, move->to, k);
  return (lane){.outgoing = e->outgoing,
                .device = e->outgoing ? from : to,
                .process = move->process,
                .peer = e->outgoing ? to : from};
}

static bool is_same_lane(const lane *a, const lane *b) {
  return a->process == b->process && a->device == b->device && a->peer == b->peer;
}

/* Finds the lanes, counts their moves, and notes in `which` whose each move is. */
static int find_lanes(lanes *l, ends *e, const struct route_moves *moves, int64_t *which) {
  int64_t first = 0, k = 0; /* the first lane with this process, and the move's number with it */
  for (int64_t i = 0; i < moves->count; i++, k++) {
    const shardrt_move *move = &moves->items[i];
    if (i == 0 || move->process != moves->items[i - 1].process) {
      int code = local_blocks_set(&e->others, e->outgoing ? &e->to : &e->from, move->process);
      if (code < 0) return code;
      first = l->count;
      k = 0;
    }
    const lane one = lane_of(e, move, k);
    int64_t at = first;
    while (at < l->count && !is_same_lane(&l->items[at], &one)) at++;
    if (at == l->count) l->items[l->count++] = one;
    l->items[at].count++;
    which[i] = at;
  }
  return SHARDRT_OK;
}

static void deal_moves(lanes *l, const struct route_moves *moves, const int64_t *which) {
  int64_t before = 0;
  for (int64_t i = 0; i < l->count; i++) {
    l->items[i].moves = l->moves + before;
    before += l->items[i].count;
    l->items[i].count = 0;
  }
  for (int64_t i = 0; i < moves->count; i++) {
    lane *its = &l->items[which[i]];
    l->moves[(its->moves - (const shardrt_move *const *)l->moves) + its->count++] = &moves->items[i];
  }
}

int lanes_new(lanes *l, const shardrt_route *route, bool outgoing, const shardrt_sharding *from,
              const shardrt_sharding *to, int32_t devices_per_process) {
  *l = (lanes){0};
  const struct route_moves *moves = outgoing ? &route->sends : &route->receives;
  if (moves->count == 0) return SHARDRT_OK;
  ends e;
  int code = ends_new(&e, route, outgoing, from, to, devices_per_process);
  int64_t *which = alloc_array((size_t)moves->count, sizeof *which);
  l->items = alloc_array((size_t)moves->count, sizeof *l->items);
  l->moves = alloc_array((size_t)moves->count, sizeof *l->moves);
  if (which == NULL || l->items == NULL || l->moves == NULL) code = ALLOC_FAILED;
  if (code == SHARDRT_OK) code = find_lanes(l, &e, moves, which);
  if (code == SHARDRT_OK) deal_moves(l, moves, which);
  alloc_free(which);
  ends_free(&e);
  if (code == SHARDRT_OK) return code;
  lanes_free(l);
  *l = (lanes){0};
  return code;
}

void lanes_free(lanes *l) {
  alloc_free((void *)l->moves);
  alloc_free(l->items);
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

/* Asks nothing but the grids and the box, so that both ends agree. The devices are not looked at. */
static bool is_direct(const cargo *c, const shardrt_move *move, int64_t elements) {
  return (size_t)elements * c->element >= DIRECT_FROM &&
         haul_in_block(c->from, move->from, &move->box, 0, NULL).is_run &&
         haul_in_block(c->to, move->to, &move->box, 0, NULL).is_run;
}

bool lane_has_more(const lane *l) {
  return l->next < l->count;
}

bool lane_next(const cargo *c, lane *l, lane_message *out) {
  if (!lane_has_more(l)) return false;
  const shardrt_move *first = l->moves[l->next];
  *out = (lane_message){.moves = l->moves + l->next, .count = 1, .box = first->box};
  int64_t elements = box_elements(&first->box);
  const bool direct = is_direct(c, first, elements);
  const int64_t limit = direct ? c->direct : c->piece;
  if (elements > limit) {
    out->box = box_piece(&first->box, limit, l->piece++);
    elements = box_elements(&out->box);
    if (l->piece == box_piece_count(&first->box, limit)) {
      l->next++;
      l->piece = 0;
    }
  } else {
    l->next++;
    while (!direct && l->next < l->count) {
      const shardrt_move *other = l->moves[l->next];
      const int64_t more = box_elements(&other->box);
      if (elements + more > c->piece || is_direct(c, other, more)) break;
      elements += more;
      out->count++;
      l->next++;
    }
  }
  out->bytes = (size_t)elements * c->element;
  return true;
}

static haul_place place_in_block(const cargo *c, const lane *l, const shardrt_move *move, const shardrt_box *box) {
  const int64_t number = l->outgoing ? move->from : move->to;
  const berth *at = berths_on(l->outgoing ? c->old : c->new, number, l->device);
  return haul_in_block(l->outgoing ? c->from : c->to, number, box, l->device, at->data);
}

char *lane_run(const cargo *c, const lane *l, const lane_message *m) {
  if (m->count != 1) return NULL;
  const haul_place place = place_in_block(c, l, m->moves[0], &m->box);
  return place.is_run ? place.data + (size_t)place.first * c->element : NULL;
}

int lane_stow(const cargo *c, const lane *l, const lane_message *m, char *packed) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < m->count && code == SHARDRT_OK; i++) {
    const shardrt_box *box = m->count == 1 ? &m->box : &m->moves[i]->box;
    const haul_place block = place_in_block(c, l, m->moves[i], box), here = haul_packed(box, l->device, packed);
    code = l->outgoing ? haul_box(c->element, box, &here, &block, 0) : haul_box(c->element, box, &block, &here, 0);
    packed += (size_t)box_elements(box) * c->element;
  }
  return code;
}

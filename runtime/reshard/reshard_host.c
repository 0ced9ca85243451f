#include "reshard/reshard_host.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "memory/copy.h"

enum {
  WINDOW = 16,        /* messages in each direction at most */
  PIECE = 256 << 10,  /* bytes of a message through staging, at most */
  COPIED = 512 << 10, /* bytes of a copy, at most */
  CACHES = 32 << 20,  /* bytes that may still be in a cache when all is copied */
  SMALL = 32 << 10,   /* bytes of a move that goes with others in one message, at most */
  TAGS = 1 << 15      /* what MPI grants at least */
};

/* A run of whole moves between two processes, or a part of one. */
typedef struct message {
  const shardrt_move *moves;
  int64_t count;
  shardrt_box box; /* of a single move: what of it */
  size_t bytes;
  int32_t tag;
} message;

/* Where in its list the next message begins. */
typedef struct cursor {
  const struct route_moves *list;
  int64_t next;
  int64_t piece;  /* of that move */
  int32_t number; /* of messages with the same process */
} cursor;

typedef enum slot_state { SLOT_FREE, SLOT_PACKING, SLOT_UNDER_WAY, SLOT_UNPACKING } slot_state;

typedef struct slot {
  traffic *traffic;
  slot_state state;
  bool outgoing;
  char *staging;
  char *place; /* in a block, where the message needs no staging; else NULL */
  message message;
  struct team_task task;
  _Atomic bool ended; /* the task */
} slot;

/* Slots 0 … window - 1 send, as many after them receive. */
struct traffic {
  traffic_task task;
  const struct block_grid *from, *to;
  int32_t window;
  int64_t piece;  /* elements of a message through staging at most */
  int64_t direct; /* of one that needs none on either side */
  int64_t small;  /* of a move that goes with others */
  int64_t copied; /* of a copy */
  bool large;     /* all copies together are more than the caches hold */
  cursor out, in;
  slot *slots;
  char *staging;
  int64_t *copies_before; /* [copies + 1] pieces of all copies before each */
  _Atomic int64_t *uses;  /* [old blocks] pieces yet to be taken from each, where used_up is wanted */
  int64_t busy;           /* slots that are not free */
};

/* ---- boxes in blocks -------------------------------------------------------------------------------------------- */

static int compare_blocks(const void *a, const void *b) {
  const traffic_block *x = a, *y = b;
  return (x->number > y->number) - (x->number < y->number);
}

static int64_t block_index(const traffic_side *side, int64_t number) {
  const traffic_block wanted = {.number = number};
  const traffic_block *found = bsearch(&wanted, side->blocks, (size_t)side->count, sizeof wanted, compare_blocks);
  return found - side->blocks;
}

static char *block_data(const traffic_side *side, int64_t number) {
  return side->blocks[block_index(side, number)].data;
}

/* The box as its block sees it. */
static shardrt_box box_in_block(const struct block_grid *grid, int64_t number, const shardrt_box *box) {
  shardrt_box block = block_grid_box(grid, number), inner = *box;
  for (int32_t d = 0; d < box->ndim; d++) {
    inner.start[d] -= block.start[d];
    inner.stop[d] -= block.start[d];
  }
  return inner;
}

static bool is_run(const struct block_grid *grid, int64_t number, const shardrt_box *box) {
  shardrt_box inner = box_in_block(grid, number, box);
  return box_is_run(&inner, grid->shard_shape);
}

static size_t offset_in_block(const struct block_grid *grid, int64_t number, const shardrt_box *box, size_t element) {
  shardrt_box inner = box_in_block(grid, number, box);
  int64_t offset = 0;
  for (int32_t d = 0; d < inner.ndim; d++) offset = offset * grid->shard_shape[d] + inner.start[d];
  return (size_t)offset * element;
}

static void extent_of(const shardrt_box *box, int64_t *extent) {
  for (int32_t d = 0; d < box->ndim; d++) extent[d] = box->stop[d] - box->start[d];
}

static const int64_t origin[SHARDRT_MAX_NDIM];

/* Boxes lie in their blocks, so that these copies cannot fail. */
static void pack(const traffic *t, const shardrt_move *move, const shardrt_box *box, char *staging) {
  int64_t extent[SHARDRT_MAX_NDIM];
  extent_of(box, extent);
  shardrt_box inner = box_in_block(t->from, move->from, box);
  (void)shardrt_box_copy(box->ndim, t->task.element, extent, staging, extent, origin,
                         block_data(&t->task.old, move->from), t->from->shard_shape, inner.start);
}

static void unpack(const traffic *t, const shardrt_move *move, const shardrt_box *box, const char *staging) {
  int64_t extent[SHARDRT_MAX_NDIM];
  extent_of(box, extent);
  shardrt_box inner = box_in_block(t->to, move->to, box);
  (void)shardrt_box_copy(box->ndim, t->task.element, extent, block_data(&t->task.new, move->to), t->to->shard_shape,
                         inner.start, staging, extent, origin);
}

/* `count` pieces less are to be taken from an old block. */
static void use(traffic *t, int64_t from, int64_t count) {
  if (t->uses == NULL) return;
  int64_t index = block_index(&t->task.old, from);
  if (atomic_fetch_sub(&t->uses[index], count) == count) t->task.used_up(t->task.context, index);
}

/* ---- copies in this process ------------------------------------------------------------------------------------- */

static void copy_piece(void *context, int64_t number) {
  traffic *t = context;
  const struct route_moves *copies = &t->task.route->copies;
  int64_t low = 0, high = copies->count; /* the copy with copies_before[low] <= number < copies_before[low + 1] */
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (t->copies_before[middle] <= number)
      low = middle;
    else
      high = middle;
  }
  const shardrt_move *move = &copies->items[low];
  shardrt_box box = box_piece(&move->box, t->copied, number - t->copies_before[low]);
  shardrt_box old = box_in_block(t->from, move->from, &box), new = box_in_block(t->to, move->to, &box);
  int64_t extent[SHARDRT_MAX_NDIM];
  extent_of(&box, extent);
  (void)(t->large ? copy_past_caches : shardrt_box_copy)(
      box.ndim, t->task.element, extent, block_data(&t->task.new, move->to), t->to->shard_shape, new.start,
      block_data(&t->task.old, move->from), t->from->shard_shape, old.start);
  use(t, move->from, 1);
}

static void count_copies(traffic *t) {
  const struct route_moves *copies = &t->task.route->copies;
  t->copies_before[0] = 0;
  for (int64_t i = 0; i < copies->count; i++) {
    const shardrt_move *move = &copies->items[i];
    bool shared = block_data(&t->task.old, move->from) == block_data(&t->task.new, move->to);
    t->copies_before[i + 1] = t->copies_before[i] + (shared ? 0 : box_piece_count(&move->box, t->copied));
  }
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

/* The next message of a list; false after the last. Both ends come to the same one: all that is asked here is the
 * move's and the grids'. */
static bool cursor_next(const traffic *t, cursor *c, message *out) {
  if (c->next == c->list->count) return false;
  const shardrt_move *first = &c->list->items[c->next];
  *out = (message){.moves = first, .count = 1, .tag = c->number++ % TAGS};
  int64_t elements = box_elements(&first->box);
  if (elements <= t->small) {
    out->box = first->box;
    for (c->next++; c->next < c->list->count; c->next++, out->count++) {
      const shardrt_move *other = &c->list->items[c->next];
      int64_t more = box_elements(&other->box);
      if (other->process != first->process || more > t->small || elements + more > t->piece) break;
      elements += more;
    }
  } else {
    bool direct = is_run(t->from, first->from, &first->box) && is_run(t->to, first->to, &first->box);
    int64_t limit = direct ? t->direct : t->piece;
    out->box = box_piece(&first->box, limit, c->piece++);
    elements = box_elements(&out->box);
    if (c->piece == box_piece_count(&first->box, limit)) {
      c->next++;
      c->piece = 0;
    }
  }
  if (c->next < c->list->count && c->list->items[c->next].process != first->process) c->number = 0;
  out->bytes = (size_t)elements * t->task.element;
  return true;
}

/* Where in its block a message stands in one run; NULL: it does not. */
static char *message_place(const traffic *t, const message *m, bool outgoing) {
  if (m->count != 1) return NULL;
  const struct block_grid *grid = outgoing ? t->from : t->to;
  const int64_t number = outgoing ? m->moves->from : m->moves->to;
  if (!is_run(grid, number, &m->box)) return NULL;
  return block_data(outgoing ? &t->task.old : &t->task.new, number) +
         offset_in_block(grid, number, &m->box, t->task.element);
}

/* Between staging and blocks, on any thread. */
static void carry(void *context, int64_t number) {
  (void)number;
  slot *s = context;
  const traffic *t = s->traffic;
  const message *m = &s->message;
  char *staging = s->staging;
  for (int64_t i = 0; i < m->count; i++) {
    const shardrt_box *box = m->count == 1 ? &m->box : &m->moves[i].box;
    if (s->outgoing)
      pack(t, &m->moves[i], box, staging);
    else
      unpack(t, &m->moves[i], box, staging);
    staging += (size_t)box_elements(box) * t->task.element;
  }
  atomic_store_explicit(&s->ended, true, memory_order_release);
}

static void slot_carry(slot *s, slot_state state) {
  s->state = state;
  atomic_store_explicit(&s->ended, false, memory_order_relaxed);
  s->task = (struct team_task){.run = carry, .context = s};
  if (s->message.bytes <= SMALL)
    carry(s, 0); /* sooner done than given to somebody else */
  else
    team_give(s->traffic->task.team, &s->task);
}

static int slot_post(slot *s) {
  const traffic *t = s->traffic;
  const message *m = &s->message;
  const int32_t place = (int32_t)(s - t->slots), other = m->moves->process;
  char *data = s->place != NULL ? s->place : s->staging;
  s->state = SLOT_UNDER_WAY;
  return s->outgoing ? t->task.transport->put(place, other, m->tag, data, m->bytes)
                     : t->task.transport->take(place, other, m->tag, data, m->bytes);
}

static void slot_release(slot *s) {
  for (int64_t i = 0; s->outgoing && i < s->message.count; i++) use(s->traffic, s->message.moves[i].from, 1);
  s->state = SLOT_FREE;
  s->traffic->busy--;
}

/* Begins messages while there are free slots. */
static int slots_fill(traffic *t, bool outgoing, bool *moved) {
  int code = SHARDRT_OK;
  slot *s = &t->slots[outgoing ? 0 : t->window];
  for (const slot *end = s + t->window; s < end && code == SHARDRT_OK; s++) {
    if (s->state != SLOT_FREE) continue;
    if (!cursor_next(t, outgoing ? &t->out : &t->in, &s->message)) break;
    s->place = message_place(t, &s->message, outgoing);
    t->busy++;
    *moved = true;
    if (outgoing && s->place == NULL)
      slot_carry(s, SLOT_PACKING);
    else
      code = slot_post(s);
  }
  return code;
}

/* Sees to the slots whose task has ended. */
static int slots_go_on(traffic *t, bool *moved) {
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < 2 * t->window && code == SHARDRT_OK; i++) {
    slot *s = &t->slots[i];
    if (s->state != SLOT_PACKING && s->state != SLOT_UNPACKING) continue;
    if (!atomic_load_explicit(&s->ended, memory_order_acquire)) continue;
    *moved = true;
    if (s->state == SLOT_PACKING)
      code = slot_post(s);
    else
      slot_release(s);
  }
  return code;
}

/* Sees to the slots whose message has ended. */
static int slots_end(traffic *t, bool *moved) {
  int32_t places[COMM_PLACES], count = 0;
  int code = t->task.transport->ended(places, &count);
  for (int32_t i = 0; i < count && code == SHARDRT_OK; i++) {
    slot *s = &t->slots[places[i]];
    *moved = true;
    if (s->outgoing || s->place != NULL)
      slot_release(s);
    else
      slot_carry(s, SLOT_UNPACKING);
  }
  return code;
}

static int traffic_step(void *context, bool *done, bool *moved) {
  traffic *t = context;
  int code = t->busy > 0 ? slots_end(t, moved) : SHARDRT_OK;
  if (code == SHARDRT_OK && t->busy > 0) code = slots_go_on(t, moved);
  if (code == SHARDRT_OK) code = slots_fill(t, false, moved);
  if (code == SHARDRT_OK) code = slots_fill(t, true, moved);
  if (code < 0) return code;
  if (!*moved) *moved = team_help(t->task.team);
  *done = !*moved && t->busy == 0 && team_left(t->task.team) == 0;
  return SHARDRT_OK;
}

static void traffic_awaits(const void *context, bool *processes) {
  const traffic *t = context;
  for (int32_t i = 0; i < 2 * t->window; i++)
    if (t->slots[i].state == SLOT_UNDER_WAY) processes[t->slots[i].message.moves->process] = true;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

/* How often each old block is needed. */
static void count_uses(traffic *t) {
  const struct route_moves *copies = &t->task.route->copies;
  for (int64_t i = 0; i < t->task.old.count; i++) atomic_init(&t->uses[i], 1); /* until traffic_run */
  for (int64_t i = 0; i < copies->count; i++)
    t->uses[block_index(&t->task.old, copies->items[i].from)] += t->copies_before[i + 1] - t->copies_before[i];
  cursor all = t->out;
  message m;
  while (cursor_next(t, &all, &m))
    for (int64_t i = 0; i < m.count; i++) t->uses[block_index(&t->task.old, m.moves[i].from)]++;
}

int traffic_check_staging(size_t staging, size_t element) {
  if (staging / 2 >= element) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL,
                   "%zu bytes of staging: it takes two elements at least, one to send and one to receive, of %zu bytes",
                   staging, element);
}

/* As many slots as there can be messages through staging of one element or more. */
static int set_sizes(traffic *t) {
  const size_t element = t->task.element, room = t->task.staging / 2 / element; /* elements in each direction */
  int code = traffic_check_staging(t->task.staging, element);
  if (code < 0) return code;
  t->window = room < WINDOW ? (int32_t)room : WINDOW;
  size_t piece = room / (size_t)t->window;
  if (piece > PIECE / element) piece = PIECE / element;
  t->piece = (int64_t)piece;
  t->small = (t->piece < SMALL / (int64_t)element ? t->piece : SMALL / (int64_t)element) / 2;
  t->direct = COMM_PIECE / (int64_t)element;
  t->copied = COPIED / (int64_t)element;
  return SHARDRT_OK;
}

static int take_memory(traffic *t) {
  const shardrt_route *route = t->task.route;
  const size_t slots = 2 * (size_t)t->window, piece = (size_t)t->piece * t->task.element;
  const bool messages = route->sends.count + route->receives.count > 0;
  t->slots = alloc_zeros(slots, sizeof *t->slots);
  t->copies_before = alloc_array((size_t)route->copies.count + 1, sizeof *t->copies_before);
  if (t->slots == NULL || t->copies_before == NULL) return ALLOC_FAILED;
  if (messages) {
    int code = mover_staging(t->task.mover, slots * piece, &t->staging);
    if (code < 0) return code;
  }
  for (size_t i = 0; i < slots; i++)
    t->slots[i] =
        (slot){.traffic = t, .outgoing = i < (size_t)t->window, .staging = messages ? t->staging + i * piece : NULL};
  if (t->task.used_up == NULL) return SHARDRT_OK;
  t->uses = alloc_array((size_t)t->task.old.count, sizeof *t->uses);
  return t->uses == NULL ? ALLOC_FAILED : SHARDRT_OK;
}

int traffic_new(const traffic_task *task, traffic **out) {
  traffic *t = alloc_zeros(1, sizeof *t);
  if (t == NULL) return ALLOC_FAILED;
  t->task = *task;
  t->from = &task->route->from;
  t->to = &task->route->to;
  t->out.list = &task->route->sends;
  t->in.list = &task->route->receives;
  int code = set_sizes(t);
  if (code == SHARDRT_OK) code = take_memory(t);
  if (code < 0) {
    traffic_free(t);
    return code;
  }
  count_copies(t);
  t->large = (size_t)task->route->copies.elements * task->element > CACHES;
  if (t->uses != NULL) count_uses(t);
  *out = t;
  return SHARDRT_OK;
}

void traffic_free(traffic *t) {
  if (t == NULL) return;
  alloc_free(t->uses);
  alloc_free(t->copies_before);
  if (t->busy > 0) { /* MPI may still read and write the rest */
    mover_lose_staging(t->task.mover);
    return;
  }
  alloc_free(t->slots);
  alloc_free(t);
}

int traffic_run(traffic *t, meet *m, const char *what) {
  team_spread(t->task.team, copy_piece, t, t->copies_before[t->task.route->copies.count]);
  for (int64_t i = 0; t->uses != NULL && i < t->task.old.count; i++) use(t, t->task.old.blocks[i].number, 1);
  size_t bytes = (size_t)(t->piece > t->copied ? t->piece : t->copied) * t->task.element;
  int code = meet_until(m, &(meet_work){.step = traffic_step, .awaits = traffic_awaits, .context = t}, what, bytes);
  if (code < 0) team_stop(t->task.team);
  return code;
}

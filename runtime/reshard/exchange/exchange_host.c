#include "reshard/exchange/exchange_host.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/search.h"
#include "memory/copy.h"
#include "reshard/exchange/exchange.h"
#include "reshard/exchange/exchange_transport.h"

enum {
  PIECE = 256 << 10,  /* bytes of a message through staging, at most */
  COPIED = 512 << 10, /* bytes of a copy, at most */
  CACHES = 32 << 20,  /* bytes that may still be in a cache when all is copied */
  SMALL = 32 << 10    /* bytes of a move that goes with others in one message, at most; of what is packed at once */
};

/* Packing or unpacking a slot's message, which the team does. */
struct message_packing {
  struct exchange_host *owner;
  int32_t slot;
  struct team_task task;
  _Atomic bool ended;
};

struct exchange_host {
  struct transport_window window; /* first: exchange_transport.h */
  struct exchange_host_task task;
  struct exchange exchange;
  struct message_rules rules;
  struct channels in, out;
  int64_t copied;         /* elements of a copy at most */
  bool large;             /* all copies together are more than the caches hold */
  int64_t *copies_before; /* [copies + 1] pieces of all copies before each */
  _Atomic int64_t *uses;  /* [old blocks] pieces yet to be taken from each, where used_up is wanted */
  struct message_packing packings[2 * EXCHANGE_WINDOW];
};

/* ---- boxes in blocks -------------------------------------------------------------------------------------------- */

static char *block_data(const struct block_table *blocks, int64_t number) {
  return blocks->items[block_table_index(blocks, number)].data;
}

/* A box in a block of this process. */
struct host_view {
  char *data;           /* of the block */
  const int64_t *shape; /* of the block */
  shardrt_box box;      /* as the block sees it */
};

static struct host_view view_block(const struct block_table *blocks, const struct block_grid *grid, int64_t number,
                                   const shardrt_box *box) {
  const shardrt_box block = block_grid_box(grid, number);
  return (struct host_view){
      .data = block_data(blocks, number), .shape = grid->shard_shape, .box = box_within(box, &block)};
}

static struct host_view view_old(const struct exchange_host *h, const shardrt_move *move, const shardrt_box *box) {
  return view_block(&h->task.old, h->rules.from, move->from, box);
}

static struct host_view view_new(const struct exchange_host *h, const shardrt_move *move, const shardrt_box *box) {
  return view_block(&h->task.new, h->rules.to, move->to, box);
}

/* In the block that a message takes a move's box from, or brings it to. */
static struct host_view view_end(const struct exchange_host *h, const struct channel *c, const shardrt_move *move,
                                 const shardrt_box *box) {
  return c->outgoing && !move->is_relayed ? view_old(h, move, box) : view_new(h, move, box);
}

/* Packed: it is all that there is. */
static struct host_view view_packed(const shardrt_box *box, char *data, int64_t shape[SHARDRT_MAX_NDIM]) {
  box_shape(box, shape);
  return (struct host_view){.data = data, .shape = shape, .box = box_whole(box->ndim, shape)};
}

typedef int copy_box(int32_t ndim, size_t element, const int64_t *extent, void *to, const int64_t *to_shape,
                     const int64_t *to_start, const void *from, const int64_t *from_shape, const int64_t *from_start);

/* Boxes lie in their blocks, so that it cannot fail. */
static void copy_view(size_t element, copy_box *copy, const struct host_view *to, const struct host_view *from) {
  int64_t shape[SHARDRT_MAX_NDIM];
  box_shape(&to->box, shape);
  (void)copy(to->box.ndim, element, shape, to->data, to->shape, to->box.start, from->data, from->shape,
             from->box.start);
}

/* `count` pieces less are to be taken from an old block. */
static void use_block(struct exchange_host *h, int64_t from, int64_t count) {
  if (h->uses == NULL) return;
  int64_t index = block_table_index(&h->task.old, from), before = atomic_fetch_sub(&h->uses[index], count);
  assert(before >= count);
  if (before == count) h->task.used_up(h->task.context, index);
}

/* The same of a piece that has been sent. */
static void use_source(struct exchange_host *h, const shardrt_move *move) {
  if (!move->is_relayed) use_block(h, move->from, 1);
}

/* ---- copies in this process ------------------------------------------------------------------------------------- */

static void copy_piece(void *context, int64_t number) {
  struct exchange_host *h = context;
  const struct route_moves *copies = &h->task.route->copies;
  const int64_t copy = search_part(h->copies_before, sizeof *h->copies_before, copies->count, number);
  const shardrt_move *move = &copies->items[copy];
  assert(h->copies_before[copy] <= number && number < h->copies_before[copy + 1]);
  const shardrt_box box = box_piece(&move->box, h->copied, number - h->copies_before[copy]);
  const struct host_view to = view_new(h, move, &box), from = view_old(h, move, &box);
  copy_view(h->task.element, h->large ? copy_past_caches : shardrt_box_copy, &to, &from);
  use_block(h, move->from, 1);
}

static void count_copies(struct exchange_host *h) {
  const struct route_moves *copies = &h->task.route->copies;
  h->copies_before[0] = 0;
  for (int64_t i = 0; i < copies->count; i++) {
    const shardrt_move *move = &copies->items[i];
    const bool shared = block_data(&h->task.old, move->from) == block_data(&h->task.new, move->to);
    h->copies_before[i + 1] = h->copies_before[i] + (shared ? 0 : box_piece_count(&move->box, h->copied));
  }
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

/* Where in its block a message stands in one run; NULL: it does not. */
static char *message_run(const struct exchange_host *h, const struct transport_slot *s) {
  const struct message *m = &s->message;
  if (m->count != 1) return NULL;
  const struct host_view view = view_end(h, s->channel, m->moves[0], &m->box);
  if (!box_is_run(&view.box, view.shape)) return NULL;
  return view.data + (size_t)box_offset(&view.box, view.shape) * h->task.element;
}

/* Between staging and blocks, on any thread. */
static void pack_message(void *context, int64_t number) {
  (void)number;
  struct message_packing *p = context;
  const struct exchange_host *h = p->owner;
  const struct transport_slot *s = &h->window.slots[p->slot];
  char *staging = s->staging;
  for (int64_t i = 0; i < s->message.count; i++) {
    const shardrt_move *move = s->message.moves[i];
    const shardrt_box *box = message_box(&s->message, i);
    int64_t shape[SHARDRT_MAX_NDIM];
    const struct host_view packed = view_packed(box, staging, shape);
    const struct host_view block = view_end(h, s->channel, move, box);
    if (s->channel->outgoing)
      copy_view(h->task.element, shardrt_box_copy, &packed, &block);
    else
      copy_view(h->task.element, shardrt_box_copy, &block, &packed);
    staging += (size_t)box_elements(box) * h->task.element;
  }
  atomic_store_explicit(&p->ended, true, memory_order_release);
}

/* Has it packed or unpacked; true: that has been done. */
static bool begin_packing(struct exchange_host *h, int32_t slot) {
  struct message_packing *p = &h->packings[slot];
  atomic_store_explicit(&p->ended, false, memory_order_relaxed);
  p->task = (struct team_task){.run = pack_message, .context = p};
  const bool at_once = h->window.slots[slot].message.bytes <= SMALL; /* sooner done than given to somebody else */
  if (at_once)
    pack_message(p, 0);
  else
    team_give(h->task.team, &p->task);
  return at_once;
}

static int exchange_host_load(void *context, int32_t slot, bool *ended) {
  struct exchange_host *h = context;
  struct transport_slot *s = &h->window.slots[slot];
  char *run = message_run(h, s);
  s->data = run != NULL ? run : s->staging;
  *ended = run != NULL || !s->channel->outgoing || begin_packing(h, slot);
  return SHARDRT_OK;
}

static int exchange_host_store(void *context, int32_t slot, bool *ended) {
  struct exchange_host *h = context;
  const struct transport_slot *s = &h->window.slots[slot];
  for (int64_t i = 0; s->channel->outgoing && i < s->message.count; i++) use_source(h, s->message.moves[i]);
  *ended = s->channel->outgoing || s->data != s->staging || begin_packing(h, slot);
  return SHARDRT_OK;
}

static int exchange_host_ended(void *context, int32_t slot, bool *ended) {
  *ended = atomic_load_explicit(&((struct exchange_host *)context)->packings[slot].ended, memory_order_acquire);
  return SHARDRT_OK;
}

/* With the copies, which the team makes meanwhile. */
static bool exchange_host_help(void *context, bool *moved) {
  struct team *team = ((struct exchange_host *)context)->task.team;
  *moved = team_help(team);
  return *moved || team_left(team) > 0;
}

static const struct exchange_backend host_backend = {
    .take = transport_take,
    .load = exchange_host_load,
    .post = transport_post,
    .poll = transport_poll,
    .store = exchange_host_store,
    .ended = exchange_host_ended,
    .awaits = transport_awaits,
    .help = exchange_host_help,
};

/* ---- the whole -------------------------------------------------------------------------------------------------- */

/* How often each old block is needed. */
static void count_block_uses(struct exchange_host *h) {
  const struct route_moves *copies = &h->task.route->copies;
  for (int64_t i = 0; i < h->task.old.count; i++) atomic_init(&h->uses[i], 1); /* until exchange_host_run */
  for (int64_t i = 0; i < copies->count; i++)
    h->uses[block_table_index(&h->task.old, copies->items[i].from)] += h->copies_before[i + 1] - h->copies_before[i];
  for (int64_t i = 0; i < h->out.count; i++) {
    struct channel all = h->out.items[i];
    struct message m;
    while (channel_next(&h->rules, &all, &m))
      for (int64_t k = 0; k < m.count; k++)
        if (!m.moves[k]->is_relayed) h->uses[block_table_index(&h->task.old, m.moves[k]->from)]++;
  }
}

int exchange_check_staging(size_t staging, size_t element) {
  if (staging / 2 >= element) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL,
                   "%zu bytes of staging: it takes two elements at least, one to send and one to receive, of %zu bytes",
                   staging, element);
}

void host_staging_free(struct host_staging *kept) {
  alloc_free(kept->data);
  *kept = (struct host_staging){0};
}

static int take_staging(struct host_staging *kept, size_t bytes) {
  if (kept->data != NULL && kept->bytes == bytes) return SHARDRT_OK;
  host_staging_free(kept);
  kept->data = alloc_array(bytes, 1);
  if (kept->data == NULL) return ALLOC_FAILED;
  kept->bytes = bytes;
  return SHARDRT_OK;
}

/* As many slots as there can be messages through staging of one element or more. */
static int set_sizes(struct exchange_host *h) {
  const size_t element = h->task.element, room = h->task.staging / 2 / element; /* elements in each direction */
  int code = exchange_check_staging(h->task.staging, element);
  if (code < 0) return code;
  h->window.size = room < EXCHANGE_WINDOW ? (int32_t)room : EXCHANGE_WINDOW;
  size_t piece = room / (size_t)h->window.size;
  if (piece > PIECE / element) piece = PIECE / element;
  const int64_t most = (int64_t)piece < SMALL / (int64_t)element ? (int64_t)piece : SMALL / (int64_t)element;
  h->rules = (struct message_rules){.from = &h->task.route->from,
                                    .to = &h->task.route->to,
                                    .element = element,
                                    .piece = (int64_t)piece,
                                    .joined = most / 2,
                                    .direct_from = most / 2 + 1,
                                    .direct = COMM_PIECE / (int64_t)element};
  h->copied = COPIED / (int64_t)element;
  return SHARDRT_OK;
}

static int exchange_take_memory(struct exchange_host *h) {
  const shardrt_route *route = h->task.route;
  const int32_t slots = 2 * h->window.size;
  const size_t piece = (size_t)h->rules.piece * h->task.element;
  h->copies_before = alloc_array((size_t)route->copies.count + 1, sizeof *h->copies_before);
  int code = h->copies_before == NULL ? ALLOC_FAILED : channels_by_process(&h->in, &route->receives, false);
  if (code == SHARDRT_OK) code = channels_by_process(&h->out, &route->sends, true);
  const bool messages = h->in.count + h->out.count > 0;
  if (code == SHARDRT_OK && messages) code = take_staging(h->task.kept, (size_t)slots * piece);
  if (code == SHARDRT_OK && h->task.used_up != NULL) {
    h->uses = alloc_array((size_t)h->task.old.count, sizeof *h->uses);
    if (h->uses == NULL) code = ALLOC_FAILED;
  }
  for (int32_t i = 0; code == SHARDRT_OK && messages && i < slots; i++) {
    h->window.slots[i].staging = h->task.kept->data + (size_t)i * piece;
    h->packings[i] = (struct message_packing){.owner = h, .slot = i};
  }
  return code;
}

int exchange_host_new(const struct exchange_host_task *task, struct exchange_host **out) {
  struct exchange_host *h = alloc_zeros(1, sizeof *h);
  if (h == NULL) return ALLOC_FAILED;
  h->task = *task;
  int code = set_sizes(h);
  if (code == SHARDRT_OK) code = exchange_take_memory(h);
  if (code < 0) {
    exchange_host_free(h);
    return code;
  }
  h->window.transport = task->transport;
  h->window.endpoint = task->endpoint;
  h->window.rules = &h->rules;
  h->window.in.channels = &h->in;
  h->window.out.channels = &h->out;
  h->window.exchange = &h->exchange;
  h->exchange = (struct exchange){.backend = &host_backend, .context = h, .groups = 2, .size = h->window.size};
  count_copies(h);
  h->large = (size_t)task->route->copies.elements * task->element > CACHES;
  if (h->uses != NULL) count_block_uses(h);
  *out = h;
  return SHARDRT_OK;
}

void exchange_host_free(struct exchange_host *h) {
  if (h == NULL) return;
  channels_free(&h->in);
  channels_free(&h->out);
  alloc_free(h->uses);
  alloc_free(h->copies_before);
  if (h->exchange.busy > 0) *h->task.kept = (struct host_staging){0}; /* the transport may still read and write it */
  alloc_free(h);
}

int exchange_host_run(struct exchange_host *h, struct collective *m, const char *what) {
  team_spread(h->task.team, copy_piece, h, h->copies_before[h->task.route->copies.count]);
  for (int64_t i = 0; h->uses != NULL && i < h->task.old.count; i++) use_block(h, h->task.old.items[i].number, 1);
  size_t bytes = (size_t)(h->rules.piece > h->copied ? h->rules.piece : h->copied) * h->task.element;
  int code = exchange_run(&h->exchange, m, what, bytes);
  if (code < 0) team_stop(h->task.team);
  return code;
}

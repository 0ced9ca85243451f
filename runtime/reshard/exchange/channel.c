#include "reshard/exchange/channel.h"

#include <assert.h>

#include "base/alloc.h"
#include "layout/box.h"

enum { TAGS = 1 << 15 /* what MPI grants at least */ };

static bool is_first_of_channel(const struct route_moves *moves, int64_t i) {
  const shardrt_move *move = &moves->items[i];
  return i == 0 || move->process != move[-1].process || move->round != move[-1].round;
}

int channels_by_process(struct channels *c, const struct route_moves *moves, bool outgoing) {
  *c = (struct channels){0};
  if (moves->count == 0) return SHARDRT_OK;
  int64_t count = 0;
  for (int64_t i = 0; i < moves->count; i++) count += is_first_of_channel(moves, i);
  c->items = alloc_array((size_t)count, sizeof *c->items);
  c->moves = alloc_array((size_t)moves->count, sizeof *c->moves);
  if (c->items == NULL || c->moves == NULL) {
    channels_free(c);
    return ALLOC_FAILED;
  }
  for (int64_t i = 0; i < moves->count; i++) {
    const shardrt_move *move = c->moves[i] = &moves->items[i];
    if (is_first_of_channel(moves, i))
      c->items[c->count++] =
          (struct channel){.outgoing = outgoing, .process = move->process, .round = move->round, .moves = c->moves + i};
    c->items[c->count - 1].count++;
  }
  assert(c->count == count);
  return SHARDRT_OK;
}

void channels_free(struct channels *c) {
  alloc_free((void *)c->moves);
  alloc_free(c->items);
  *c = (struct channels){0};
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

static bool is_run_in_block(const struct block_grid *grid, int64_t number, const shardrt_box *box) {
  const shardrt_box block = block_grid_box(grid, number), inner = box_within(box, &block);
  return box_is_run(&inner, grid->shard_shape);
}

/* Asks nothing but the grids and the box, so that both ends agree. */
static bool is_direct_move(const struct message_rules *rules, const shardrt_move *move, int64_t elements) {
  return elements >= rules->direct_from && is_run_in_block(rules->from, move->from, &move->box) &&
         is_run_in_block(rules->to, move->to, &move->box);
}

/* Whether a move may share its message with others. */
static bool is_joined_move(const struct message_rules *rules, const shardrt_move *move, int64_t elements) {
  return elements <= rules->joined && !is_direct_move(rules, move, elements);
}

bool channel_has_more(const struct channel *c) {
  return c->next < c->count;
}

/* As many moves as may go together, beginning with one that may; returns their elements. */
static int64_t join_moves(const struct message_rules *rules, struct channel *c, struct message *out) {
  int64_t elements = box_elements(&out->box);
  for (c->next++; c->next < c->count; c->next++, out->count++) {
    const int64_t more = box_elements(&c->moves[c->next]->box);
    if (elements + more > rules->piece || !is_joined_move(rules, c->moves[c->next], more)) break;
    elements += more;
  }
  return elements;
}

/* The next piece of a move; returns its elements. */
static int64_t cut_move(const struct message_rules *rules, struct channel *c, struct message *out) {
  const shardrt_box *whole = &c->moves[c->next]->box;
  const bool direct = is_direct_move(rules, c->moves[c->next], box_elements(whole));
  const int64_t limit = direct ? rules->direct : rules->piece;
  out->box = box_piece(whole, limit, c->piece++);
  if (c->piece == box_piece_count(whole, limit)) {
    c->next++;
    c->piece = 0;
  }
  return box_elements(&out->box);
}

bool channel_next(const struct message_rules *rules, struct channel *c, struct message *out) {
  assert(rules->joined <= rules->piece);
  if (!channel_has_more(c)) return false;
  const shardrt_move *first = c->moves[c->next];
  *out = (struct message){.moves = c->moves + c->next, .count = 1, .box = first->box};
  const bool joined = is_joined_move(rules, first, box_elements(&first->box));
  const int64_t elements = joined ? join_moves(rules, c, out) : cut_move(rules, c, out);
  out->bytes = (size_t)elements * rules->element;
  assert(elements <= rules->piece || elements <= rules->direct);
  return true;
}

const shardrt_box *message_box(const struct message *m, int64_t i) {
  assert(i < m->count);
  return m->count == 1 ? &m->box : &m->moves[i]->box;
}

int32_t channel_cursor_round(const struct channel_cursor *cursor) {
  const struct channels *all = cursor->channels;
  for (int64_t i = cursor->next; i < all->count; i++)
    if (channel_has_more(&all->items[i])) return all->items[i].round;
  return -1;
}

bool channel_cursor_next(struct channel_cursor *cursor, const struct message_rules *rules, const struct channel **its,
                         struct message *out, int32_t *tag) {
  const struct channels *all = cursor->channels;
  while (cursor->next < all->count) {
    struct channel *c = &all->items[cursor->next];
    if (channel_next(rules, c, out)) {
      *its = c;
      *tag = cursor->number++ % TAGS;
      return true;
    }
    cursor->next++;
    if (cursor->next < all->count && (c[1].process != c->process || c[1].round != c->round)) cursor->number = 0;
  }
  return false;
}

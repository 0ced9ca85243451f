#include "reshard/exchange/exchange_transport.h"

#include <assert.h>

_Static_assert((int)EXCHANGE_SLOTS >= 2 * (int)EXCHANGE_WINDOW, "a window's slots are slots of an exchange");
_Static_assert((int)COMM_REQUESTS <= (int)EXCHANGE_SLOTS, "all requests that end at once are listed as slots");
_Static_assert((int)COMM_REQUESTS >= 2 * (int)EXCHANGE_WINDOW, "each slot has a request of its own");

/* Whether the next message of a direction may go now: one of a later round waits until all before has come and gone. */
static bool transport_round_begins(struct transport_window *w, const struct channel_cursor *cursor) {
  const int32_t next = channel_cursor_round(cursor);
  if (next <= w->round) return next >= 0;
  const int32_t other = channel_cursor_round(cursor == &w->in ? &w->out : &w->in);
  if (w->exchange->busy > 0 || (other >= 0 && other < next)) return false;
  w->round = next;
  return true;
}

bool transport_take(void *window, int32_t slot) {
  struct transport_window *w = window;
  struct transport_slot *s = &w->slots[slot];
  if (!transport_round_begins(w, slot < w->size ? &w->in : &w->out)) return false;
  return channel_cursor_next(slot < w->size ? &w->in : &w->out, w->rules, &s->channel, &s->message, &s->tag);
}

int transport_post(void *window, int32_t slot) {
  const struct transport_window *w = window;
  const struct transport_slot *s = &w->slots[slot];
  const size_t bytes = s->message.bytes;
  assert(s->data != NULL && bytes <= COMM_PIECE && s->channel->outgoing == (slot >= w->size));
  return s->channel->outgoing ? w->transport->isend(w->endpoint, slot, s->channel->process, s->tag, s->data, bytes)
                              : w->transport->irecv(w->endpoint, slot, s->channel->process, s->tag, s->data, bytes);
}

int transport_poll(void *window, int32_t *slots, int32_t *count, bool *moved) {
  (void)moved;
  const struct transport_window *w = window;
  return w->transport->testsome(w->endpoint, slots, count);
}

void transport_awaits(const void *window, int32_t slot, bool *processes) {
  processes[((const struct transport_window *)window)->slots[slot].channel->process] = true;
}

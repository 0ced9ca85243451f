#include "reshard/exchange/exchange_staged.h"

#include <assert.h>

#include "base/alloc.h"
#include "platform/accelerator.h"
#include "reshard/exchange/exchange.h"
#include "reshard/exchange/exchange_transport.h"

enum { PIECE = 4 << 20 /* bytes of a message, at most */ };

struct exchange_staged {
  struct transport_window window; /* first: exchange_transport.h */
  struct exchange exchange;
  const struct device_channel_args *args;
  const struct accelerator *a;
  struct accelerator_event *events[2 * EXCHANGE_WINDOW]; /* of the slots whose bytes are downloaded or uploaded */
};

int64_t exchange_staged_piece(size_t staging, size_t element) {
  size_t bytes = staging / EXCHANGE_WINDOW;
  if (bytes > PIECE) bytes = PIECE;
  return bytes < element ? 1 : (int64_t)(bytes / element);
}

/* Copies the message's bytes from the blocks to the pinned memory, or the other way round, and has an event tell when
 * that has been done. What is packed for it on the device is given back in its order. */
static int copy_message(struct exchange_staged *x, int32_t slot) {
  const struct transport_slot *s = &x->window.slots[slot];
  const struct accelerator *a = x->a;
  const int32_t device = s->channel->device;
  const size_t bytes = s->message.bytes;
  const bool outgoing = s->channel->outgoing;
  assert(x->events[slot] == NULL && bytes <= (size_t)x->args->rules.piece * x->args->rules.element);
  char *at = device_channel_run(x->args, s->channel, &s->message);
  void *packed = NULL;
  int code = SHARDRT_OK;
  if (at == NULL) {
    code = a->memory->allocate(device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, bytes, &packed);
    if (code < 0) return code;
    at = packed;
  }
  if (outgoing && packed != NULL) code = device_channel_pack(x->args, s->channel, &s->message, at);
  if (code == SHARDRT_OK)
    code = outgoing ? a->copies->download(device, ACCELERATOR_MAIN, s->staging, at, bytes)
                    : a->copies->upload(device, ACCELERATOR_MAIN, at, s->staging, bytes);
  if (code == SHARDRT_OK && !outgoing && packed != NULL)
    code = device_channel_pack(x->args, s->channel, &s->message, at);
  if (packed != NULL) a->memory->free(device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, packed, bytes);
  return code == SHARDRT_OK ? a->streams->record(device, ACCELERATOR_MAIN, &x->events[slot]) : code;
}

static int exchange_staged_load(void *context, int32_t slot, bool *ended) {
  struct exchange_staged *x = context;
  struct transport_slot *s = &x->window.slots[slot];
  s->data = s->staging;
  *ended = !s->channel->outgoing;
  return s->channel->outgoing ? copy_message(x, slot) : SHARDRT_OK;
}

static int exchange_staged_store(void *context, int32_t slot, bool *ended) {
  struct exchange_staged *x = context;
  *ended = x->window.slots[slot].channel->outgoing;
  return *ended ? SHARDRT_OK : copy_message(x, slot);
}

static int exchange_staged_ended(void *context, int32_t slot, bool *ended) {
  struct exchange_staged *x = context;
  int code = x->a->streams->reached(x->events[slot], ended);
  if (code < 0 || !*ended) return code;
  x->a->streams->event_free(x->events[slot]);
  x->events[slot] = NULL;
  return SHARDRT_OK;
}

static const struct exchange_backend staged_backend = {
    .take = transport_take,
    .load = exchange_staged_load,
    .post = transport_post,
    .poll = transport_poll,
    .store = exchange_staged_store,
    .ended = exchange_staged_ended,
    .awaits = transport_awaits,
};

int exchange_staged_run(const struct device_channel_args *args, struct channels *out, struct channels *in,
                        struct peer_path *peers, struct collective *m, const char *what) {
  const int32_t slots = 2 * EXCHANGE_WINDOW;
  const size_t piece = (size_t)args->rules.piece * args->rules.element;
  struct exchange_staged *x = alloc_zeros(1, sizeof *x);
  if (x == NULL) return ALLOC_FAILED;
  x->args = args;
  x->a = accelerator_get();
  x->window.transport = m->transport;
  x->window.endpoint = m->endpoint;
  x->window.rules = &args->rules;
  x->window.in.channels = in;
  x->window.out.channels = out;
  x->window.size = EXCHANGE_WINDOW;
  x->window.exchange = &x->exchange;
  x->exchange = (struct exchange){.backend = &staged_backend, .context = x, .groups = 2, .size = EXCHANGE_WINDOW};
  int code = SHARDRT_OK;
  char *pinned = NULL;
  if (out->count + in->count > 0) code = peer_path_pinned(peers, (size_t)slots * piece, &pinned);
  for (int32_t i = 0; pinned != NULL && i < slots; i++) x->window.slots[i].staging = pinned + (size_t)i * piece;
  if (code == SHARDRT_OK) {
    code = exchange_run(&x->exchange, m, what, piece);
    if (code < 0) peer_path_lose_pinned(peers); /* messages and copies under way may still use it */
  }
  for (int32_t i = 0; i < slots; i++)
    if (x->events[i] != NULL) x->a->streams->event_free(x->events[i]);
  alloc_free(x);
  return code;
}

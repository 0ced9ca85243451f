#include "reshard/exchange/exchange_nccl.h"

#include <assert.h>

#include "base/alloc.h"
#include "base/error.h"
#include "platform/accelerator.h"
#include "reshard/exchange/exchange.h"

enum { ROUNDS = 4 /* under way at a time, each in a slot of its own */ };

/* A channel of this process with the message that is under way last. */
struct nccl_channel {
  struct channel *channel;
  int64_t rounds; /* in which it has had a message: it has one in each, to its last */
  struct message message;
  char *run;    /* where the message stands in its block; NULL: it does not, and goes through */
  char *packed; /* memory of the device, taken when it is first needed; NULL */
  size_t room;  /* bytes of it */
};

/* What is put on a device in one round runs after what was put there before, so that a channel's memory serves all its
 * rounds. */
struct exchange_nccl {
  struct exchange exchange;
  const struct device_channel_args *args;
  const struct peer_path *peers;
  const struct accelerator *a;
  int64_t count;
  struct nccl_channel *channels; /* outgoing ones first */
  struct accelerator_message *messages;
  int64_t message_count;  /* of the round that was loaded last */
  int64_t launched;       /* rounds */
  int32_t starting;       /* the slot of the last one while it is not on the way yet; else -1 */
  int64_t rounds[ROUNDS]; /* by slot: its round; -1: it has none */
  struct accelerator_event *
      *events; /* [ROUNDS][devices] by slot: those that have come to its end; NULL where there is none */
};

static struct accelerator_event **events_of(const struct exchange_nccl *x, int32_t slot) {
  return x->events + (size_t)slot * (size_t)x->peers->devices;
}

static bool is_in_round(const struct exchange_nccl *x, int64_t i, int32_t slot) {
  return x->channels[i].rounds > x->rounds[slot];
}

static int allocate_packed(const struct exchange_nccl *x, struct nccl_channel *c) {
  if (c->packed != NULL) return SHARDRT_OK;
  const struct message_rules *rules = &x->args->rules;
  int64_t elements = 0;
  for (int64_t i = 0; i < c->channel->count && elements < rules->piece; i++)
    elements += box_elements(&c->channel->moves[i]->box);
  if (elements > rules->piece) elements = rules->piece;
  c->room = (size_t)elements * rules->element;
  void *made;
  int code = x->a->memory->allocate(c->channel->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, c->room, &made);
  if (code == SHARDRT_OK) c->packed = made;
  return code;
}

/* The channel's next message, where it has one, with memory for it. */
static int load_channel(const struct exchange_nccl *x, struct nccl_channel *c, bool *any) {
  *any = channel_next(&x->args->rules, c->channel, &c->message);
  if (!*any) return SHARDRT_OK;
  c->rounds++;
  c->run = device_channel_run(x->args, c->channel, &c->message);
  if (c->run != NULL) return SHARDRT_OK;
  int code = allocate_packed(x, c);
  assert(code < 0 || c->message.bytes <= c->room);
  if (code < 0 || !c->channel->outgoing) return code;
  return device_channel_pack(x->args, c->channel, &c->message, c->packed);
}

/* The next round, when the one before is on the way. */
static bool exchange_nccl_take(void *context, int32_t slot) {
  struct exchange_nccl *x = context;
  bool any = false;
  for (int64_t i = 0; i < x->count && x->starting < 0 && !any; i++) any = channel_has_more(x->channels[i].channel);
  if (any) x->rounds[slot] = x->launched++;
  return any;
}

static int exchange_nccl_load(void *context, int32_t slot, bool *ended) {
  (void)slot;
  struct exchange_nccl *x = context;
  int code = SHARDRT_OK;
  x->message_count = 0;
  for (int64_t i = 0; i < x->count && code == SHARDRT_OK; i++) {
    struct nccl_channel *c = &x->channels[i];
    bool any;
    code = load_channel(x, c, &any);
    if (code < 0 || !any) continue;
    assert(c->rounds == x->launched);
    x->messages[x->message_count++] = (struct accelerator_message){
        .device = c->channel->device,
        .rank = x->peers->ranks[(size_t)c->channel->process * (size_t)x->peers->devices + (size_t)c->channel->peer],
        .outgoing = c->channel->outgoing,
        .data = c->run != NULL ? c->run : c->packed,
        .bytes = c->message.bytes};
  }
  *ended = true;
  return code;
}

static int exchange_nccl_post(void *context, int32_t slot) {
  struct exchange_nccl *x = context;
  x->starting = slot;
  return x->a->links->exchange(x->message_count, x->messages);
}

/* The round that was posted last is on the way: what comes is put where it belongs, and events tell when. */
static int follow_round(struct exchange_nccl *x) {
  struct accelerator_event **events = events_of(x, x->starting);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < x->count && code == SHARDRT_OK; i++) {
    const struct nccl_channel *c = &x->channels[i];
    if (!is_in_round(x, i, x->starting) || c->channel->outgoing || c->run != NULL) continue;
    code = device_channel_pack(x->args, c->channel, &c->message, c->packed);
  }
  for (int64_t i = 0; i < x->count && code == SHARDRT_OK; i++) {
    const int32_t device = x->channels[i].channel->device;
    if (is_in_round(x, i, x->starting) && events[device] == NULL)
      code = x->a->streams->record(device, ACCELERATOR_MAIN, &events[device]);
  }
  x->starting = -1;
  return code;
}

/* Whether the devices have come to the end of a slot's round. */
static int end_round(struct exchange_nccl *x, int32_t slot, bool *ended) {
  struct accelerator_event **events = events_of(x, slot);
  *ended = true;
  for (int32_t d = 0; d < x->peers->devices && *ended; d++) {
    if (events[d] == NULL) continue;
    int code = x->a->streams->reached(events[d], ended);
    if (code < 0) return code;
    if (!*ended) continue;
    x->a->streams->event_free(events[d]);
    events[d] = NULL;
  }
  if (*ended) x->rounds[slot] = -1;
  return SHARDRT_OK;
}

static int exchange_nccl_poll(void *context, int32_t *slots, int32_t *count, bool *moved) {
  struct exchange_nccl *x = context;
  bool put;
  int code = x->a->links->state(&put); /* which also tells of what fails later */
  if (code == SHARDRT_OK && x->starting >= 0 && put) {
    *moved = true;
    code = follow_round(x);
  }
  for (int32_t slot = 0; slot < ROUNDS && code == SHARDRT_OK; slot++) {
    if (x->rounds[slot] < 0 || slot == x->starting) continue;
    bool ended;
    code = end_round(x, slot, &ended);
    if (code == SHARDRT_OK && ended) slots[(*count)++] = slot;
  }
  return code;
}

/* What came is in its place already. */
static int exchange_nccl_store(void *context, int32_t slot, bool *ended) {
  (void)context, (void)slot;
  *ended = true;
  return SHARDRT_OK;
}

static void exchange_nccl_awaits(const void *context, int32_t slot, bool *processes) {
  const struct exchange_nccl *x = context;
  for (int64_t i = 0; i < x->count; i++)
    if (is_in_round(x, i, slot)) processes[x->channels[i].channel->process] = true;
}

static const struct exchange_backend nccl_backend = {
    .take = exchange_nccl_take,
    .load = exchange_nccl_load,
    .post = exchange_nccl_post,
    .poll = exchange_nccl_poll,
    .store = exchange_nccl_store,
    .awaits = exchange_nccl_awaits,
};

static int exchange_nccl_new(struct exchange_nccl *x, struct channels *out, struct channels *in) {
  x->count = out->count + in->count;
  x->starting = -1;
  for (int32_t slot = 0; slot < ROUNDS; slot++) x->rounds[slot] = -1;
  x->exchange = (struct exchange){.backend = &nccl_backend, .context = x, .groups = 1, .size = ROUNDS};
  x->channels = alloc_zeros((size_t)x->count, sizeof *x->channels);
  x->messages = alloc_array((size_t)x->count, sizeof *x->messages);
  x->events = alloc_zeros((size_t)x->peers->devices, ROUNDS * sizeof(struct accelerator_event *));
  if (x->channels == NULL || x->messages == NULL || x->events == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < out->count; i++) x->channels[i].channel = &out->items[i];
  for (int64_t i = 0; i < in->count; i++) x->channels[out->count + i].channel = &in->items[i];
  return SHARDRT_OK;
}

static void exchange_nccl_free(struct exchange_nccl *x) {
  for (int64_t i = 0; x->channels != NULL && i < x->count; i++) {
    const struct nccl_channel *c = &x->channels[i];
    if (c->packed != NULL)
      x->a->memory->free(c->channel->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, c->packed, c->room);
  }
  for (int64_t i = 0; x->events != NULL && i < (int64_t)ROUNDS * x->peers->devices; i++)
    if (x->events[i] != NULL) x->a->streams->event_free(x->events[i]);
  alloc_free((void *)x->events);
  alloc_free(x->messages);
  alloc_free(x->channels);
}

int exchange_nccl_run(const struct device_channel_args *args, struct channels *out, struct channels *in,
                      struct peer_path *peers, struct collective *m, const char *what) {
  struct exchange_nccl x = {.args = args, .peers = peers, .a = accelerator_get()};
  int code = exchange_nccl_new(&x, out, in);
  const size_t bytes = (size_t)args->rules.piece * args->rules.element; /* of a step */
  if (code == SHARDRT_OK) {
    code = exchange_run(&x.exchange, m, what, bytes);
    if (code == SHARDRT_ECOMM) code = error_prefix(code, "%s", what);
    if (code < 0) peer_path_break(peers);
  }
  exchange_nccl_free(&x);
  return code;
}

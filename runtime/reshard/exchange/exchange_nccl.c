#include "reshard/exchange/exchange_nccl.h"

#include "base/alloc.h"
#include "base/error.h"
#include "platform/accelerator.h"

enum { ROUNDS = 4 /* under way at a time */ };

/* A channel of this process with the message that is under way last. */
typedef struct nccl_channel {
  channel *channel;
  int64_t rounds; /* in which it has had a message */
  channel_message message;
  char *run;    /* where the message stands in its block; NULL: it does not, and goes through */
  char *packed; /* memory of the device, taken when it is first needed; NULL */
  size_t room;  /* bytes of it */
} nccl_channel;

/* What is put on a device in one round runs after what was put there before, so that a channel's memory serves all its
 * rounds. */
typedef struct exchange_nccl {
  const channel_args *args;
  peer_transport *peers;
  const accelerator *a;
  int64_t count;
  nccl_channel *channels; /* outgoing ones first */
  accelerator_message *messages;
  int64_t launched, ended;    /* rounds */
  bool is_starting;           /* the last one launched is not on the way yet */
  accelerator_event **events; /* [ROUNDS][devices] that have come to the end of a round; NULL where there is none */
} exchange_nccl;

static accelerator_event **events_of(const exchange_nccl *c, int64_t round) {
  return c->events + (size_t)(round % ROUNDS) * (size_t)c->peers->devices;
}

static int nccl_channel_memory(const exchange_nccl *c, nccl_channel *k) {
  if (k->packed != NULL) return SHARDRT_OK;
  int64_t elements = 0;
  for (int64_t i = 0; i < k->channel->count && elements < c->args->piece; i++)
    elements += box_elements(&k->channel->moves[i]->box);
  if (elements > c->args->piece) elements = c->args->piece;
  k->room = (size_t)elements * c->args->element;
  void *made;
  int code = c->a->allocate(k->channel->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, k->room, &made);
  if (code == SHARDRT_OK) k->packed = made;
  return code;
}

/* The channel's next message, where it has one, with memory for it. */
static int nccl_channel_load(const exchange_nccl *c, nccl_channel *k, bool *any) {
  *any = channel_next(c->args, k->channel, &k->message);
  if (!*any) return SHARDRT_OK;
  k->rounds++;
  k->run = channel_run(c->args, k->channel, &k->message);
  if (k->run != NULL) return SHARDRT_OK;
  int code = nccl_channel_memory(c, k);
  return code == SHARDRT_OK && k->channel->outgoing ? channel_pack(c->args, k->channel, &k->message, k->packed) : code;
}

static bool has_more(const exchange_nccl *c) {
  for (int64_t i = 0; i < c->count; i++)
    if (channel_has_more(c->channels[i].channel)) return true;
  return false;
}

static int launch(exchange_nccl *c) {
  int64_t count = 0;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < c->count && code == SHARDRT_OK; i++) {
    nccl_channel *k = &c->channels[i];
    bool any;
    code = nccl_channel_load(c, k, &any);
    if (code < 0 || !any) continue;
    c->messages[count++] = (accelerator_message){
        .device = k->channel->device,
        .rank = c->peers->ranks[(size_t)k->channel->process * (size_t)c->peers->devices + (size_t)k->channel->peer],
        .outgoing = k->channel->outgoing,
        .data = k->run != NULL ? k->run : k->packed,
        .bytes = k->message.bytes};
  }
  if (code == SHARDRT_OK) code = c->a->links->exchange(count, c->messages);
  c->launched++;
  c->is_starting = true;
  return code;
}

/* The round that was launched last is on the way: what comes is put where it belongs, and events tell when. */
static int land(exchange_nccl *c) {
  accelerator_event **events = events_of(c, c->launched - 1);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < c->count && code == SHARDRT_OK; i++) {
    const nccl_channel *k = &c->channels[i];
    if (k->rounds < c->launched || k->channel->outgoing || k->run != NULL) continue;
    code = channel_pack(c->args, k->channel, &k->message, k->packed);
  }
  for (int64_t i = 0; i < c->count && code == SHARDRT_OK; i++) {
    const int32_t device = c->channels[i].channel->device;
    if (c->channels[i].rounds < c->launched || events[device] != NULL) continue;
    code = c->a->record(device, ACCELERATOR_MAIN, &events[device]);
  }
  c->is_starting = false;
  return code;
}

/* Whether the round that waits longest has ended. */
static int end_round(exchange_nccl *c, bool *ended) {
  accelerator_event **events = events_of(c, c->ended);
  *ended = true;
  for (int32_t d = 0; d < c->peers->devices && *ended; d++) {
    if (events[d] == NULL) continue;
    int code = c->a->reached(events[d], ended);
    if (code < 0) return code;
    if (!*ended) continue;
    c->a->event_free(events[d]);
    events[d] = NULL;
  }
  if (*ended) c->ended++;
  return SHARDRT_OK;
}

static int exchange_nccl_step(void *context, bool *done, bool *moved) {
  exchange_nccl *c = context;
  bool put;
  int code = c->a->links->state(&put); /* which also tells of what fails later */
  if (code == SHARDRT_OK && c->is_starting && put) {
    code = land(c);
    *moved = true;
  }
  if (code == SHARDRT_OK && c->ended < c->launched - c->is_starting) {
    bool ended;
    code = end_round(c, &ended);
    *moved = *moved || ended;
  }
  if (code == SHARDRT_OK && !c->is_starting && c->launched - c->ended < ROUNDS && has_more(c)) {
    code = launch(c);
    *moved = true;
  }
  *done = !c->is_starting && c->ended == c->launched && !has_more(c);
  return code;
}

/* Those that a round under way is with. */
static void exchange_nccl_awaits(const void *context, bool *processes) {
  const exchange_nccl *c = context;
  for (int64_t i = 0; i < c->count; i++)
    if (c->channels[i].rounds > c->ended) processes[c->channels[i].channel->process] = true;
}

static int exchange_nccl_new(exchange_nccl *c, channels *out, channels *in) {
  c->count = out->count + in->count;
  c->channels = alloc_zeros((size_t)c->count, sizeof *c->channels);
  c->messages = alloc_array((size_t)c->count, sizeof *c->messages);
  c->events = alloc_zeros((size_t)c->peers->devices, ROUNDS * sizeof(accelerator_event *));
  if (c->channels == NULL || c->messages == NULL || c->events == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < out->count; i++) c->channels[i].channel = &out->items[i];
  for (int64_t i = 0; i < in->count; i++) c->channels[out->count + i].channel = &in->items[i];
  return SHARDRT_OK;
}

static void exchange_nccl_free(exchange_nccl *c) {
  for (int64_t i = 0; c->channels != NULL && i < c->count; i++) {
    const nccl_channel *k = &c->channels[i];
    if (k->packed != NULL) c->a->free(k->channel->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, k->packed, k->room);
  }
  for (int64_t i = 0; c->events != NULL && i < (int64_t)ROUNDS * c->peers->devices; i++)
    if (c->events[i] != NULL) c->a->event_free(c->events[i]);
  alloc_free((void *)c->events);
  alloc_free(c->messages);
  alloc_free(c->channels);
}

int exchange_nccl_run(const channel_args *args, channels *out, channels *in, peer_transport *peers, collective *m,
                      const char *what) {
  exchange_nccl c = {.args = args, .peers = peers, .a = accelerator_get()};
  int code = exchange_nccl_new(&c, out, in);
  const size_t bytes = (size_t)args->piece * args->element; /* of a step */
  if (code == SHARDRT_OK) {
    const collective_work work = {.step = exchange_nccl_step, .awaits = exchange_nccl_awaits, .context = &c};
    code = collective_until(m, &work, what, bytes);
    if (code == SHARDRT_ECOMM) code = error_prefix(code, "%s", what);
    if (code < 0) peer_transport_break(peers);
  }
  exchange_nccl_free(&c);
  return code;
}

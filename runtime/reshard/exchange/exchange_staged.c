#include "reshard/exchange/exchange_staged.h"

#include "base/alloc.h"
#include "platform/accelerator.h"

enum {
  PIECE = 4 << 20, /* bytes of a message, at most */
  TAGS = 1 << 15   /* what MPI grants at least */
};

/* FREE: it has no message. LEAVING: its bytes are downloaded. CROSSING: the transport has them. COMING: they are
 * uploaded. */
typedef enum staged_state { STAGED_FREE, STAGED_DOWNLOADING, STAGED_UNDER_WAY, STAGED_UPLOADING } staged_state;

typedef struct staged_slot {
  staged_state state;
  const channel *channel;
  channel_message message;
  int32_t tag;
  char *pinned;
  accelerator_event *event;
} staged_slot;

/* Where in the channels of a direction the next message is, and its number among those with the same process. */
typedef struct staged_cursor {
  channels *channels;
  int64_t next;
  int32_t number;
} staged_cursor;

typedef struct exchange_staged {
  const channel_args *args;
  const accelerator *a;
  const comm_transport *transport;
  staged_cursor out, in;
  staged_slot *slots; /* EXCHANGE_WINDOW that send, as many that receive */
  int32_t busy;
} exchange_staged;

int64_t exchange_staged_piece(size_t staging, size_t element) {
  size_t bytes = staging / EXCHANGE_WINDOW;
  if (bytes > PIECE) bytes = PIECE;
  return bytes < element ? 1 : (int64_t)(bytes / element);
}

/* Both ends number the messages between them alike, so that one may overtake another. */
static bool staged_cursor_next(staged_cursor *q, const channel_args *c, staged_slot *b) {
  while (q->next < q->channels->count) {
    channel *l = &q->channels->items[q->next];
    if (channel_next(c, l, &b->message)) {
      b->channel = l;
      b->tag = q->number++ % TAGS;
      return true;
    }
    q->next++;
    if (q->next < q->channels->count && q->channels->items[q->next].process != l->process) q->number = 0;
  }
  return false;
}

static bool staged_cursor_has_more(const staged_cursor *q) {
  for (int64_t i = q->next; i < q->channels->count; i++)
    if (channel_has_more(&q->channels->items[i])) return true;
  return false;
}

/* ---- between the devices and the host --------------------------------------------------------------------------- */

/* Copies the message's bytes from the blocks to the pinned memory, or the other way round, and has an event tell when
 * that has been done. What is packed for it on the device is given back in its order. */
static int staged_load(const exchange_staged *f, staged_slot *b) {
  const accelerator *a = f->a;
  const int32_t device = b->channel->device;
  const size_t bytes = b->message.bytes;
  const bool outgoing = b->channel->outgoing;
  char *at = channel_run(f->args, b->channel, &b->message);
  void *packed = NULL;
  int code = SHARDRT_OK;
  if (at == NULL) {
    code = a->allocate(device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, bytes, &packed);
    if (code < 0) return code;
    at = packed;
  }
  if (outgoing && packed != NULL) code = channel_pack(f->args, b->channel, &b->message, at);
  if (code == SHARDRT_OK)
    code = outgoing ? a->download(device, ACCELERATOR_MAIN, b->pinned, at, bytes)
                    : a->upload(device, ACCELERATOR_MAIN, at, b->pinned, bytes);
  if (code == SHARDRT_OK && !outgoing && packed != NULL) code = channel_pack(f->args, b->channel, &b->message, at);
  if (packed != NULL) a->free(device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, packed, bytes);
  if (code == SHARDRT_OK) code = a->record(device, ACCELERATOR_MAIN, &b->event);
  b->state = outgoing ? STAGED_DOWNLOADING : STAGED_UPLOADING;
  return code;
}

static int staged_post(const exchange_staged *f, staged_slot *b) {
  const int32_t request = (int32_t)(b - f->slots), other = b->channel->process;
  b->state = STAGED_UNDER_WAY;
  return b->channel->outgoing ? f->transport->isend(request, other, b->tag, b->pinned, b->message.bytes)
                              : f->transport->irecv(request, other, b->tag, b->pinned, b->message.bytes);
}

static void staged_release(exchange_staged *f, staged_slot *b) {
  b->state = STAGED_FREE;
  f->busy--;
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static int begin(exchange_staged *f, bool outgoing, bool *moved) {
  int code = SHARDRT_OK;
  staged_slot *b = &f->slots[outgoing ? 0 : EXCHANGE_WINDOW];
  for (const staged_slot *end = b + EXCHANGE_WINDOW; b < end && code == SHARDRT_OK; b++) {
    if (b->state != STAGED_FREE) continue;
    if (!staged_cursor_next(outgoing ? &f->out : &f->in, f->args, b)) break;
    f->busy++;
    *moved = true;
    code = outgoing ? staged_load(f, b) : staged_post(f, b);
  }
  return code;
}

/* Sees to those whose copy on the device has ended. */
static int go_on(exchange_staged *f, bool *moved) {
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < 2 * EXCHANGE_WINDOW && code == SHARDRT_OK; i++) {
    staged_slot *b = &f->slots[i];
    if (b->state != STAGED_DOWNLOADING && b->state != STAGED_UPLOADING) continue;
    bool reached = false;
    code = f->a->reached(b->event, &reached);
    if (code < 0 || !reached) continue;
    f->a->event_free(b->event);
    b->event = NULL;
    *moved = true;
    if (b->state == STAGED_DOWNLOADING)
      code = staged_post(f, b);
    else
      staged_release(f, b);
  }
  return code;
}

/* Sees to those whose message has ended. */
static int arrive(exchange_staged *f, bool *moved) {
  int32_t requests[COMM_REQUESTS], count = 0;
  int code = f->transport->testsome(requests, &count);
  for (int32_t i = 0; i < count && code == SHARDRT_OK; i++) {
    staged_slot *b = &f->slots[requests[i]];
    *moved = true;
    if (b->channel->outgoing)
      staged_release(f, b);
    else
      code = staged_load(f, b);
  }
  return code;
}

static int exchange_staged_step(void *context, bool *done, bool *moved) {
  exchange_staged *f = context;
  int code = f->busy > 0 ? arrive(f, moved) : SHARDRT_OK;
  if (code == SHARDRT_OK && f->busy > 0) code = go_on(f, moved);
  if (code == SHARDRT_OK) code = begin(f, false, moved);
  if (code == SHARDRT_OK) code = begin(f, true, moved);
  *done = f->busy == 0 && !staged_cursor_has_more(&f->out) && !staged_cursor_has_more(&f->in);
  return code;
}

static void exchange_staged_awaits(const void *context, bool *processes) {
  const exchange_staged *f = context;
  for (int32_t i = 0; i < 2 * EXCHANGE_WINDOW; i++)
    if (f->slots[i].state == STAGED_UNDER_WAY) processes[f->slots[i].channel->process] = true;
}

int exchange_staged_run(const channel_args *args, channels *out, channels *in, peer_transport *peers, collective *m,
                        const char *what) {
  const size_t piece = (size_t)args->piece * args->element;
  exchange_staged f = {.args = args,
                       .a = accelerator_get(),
                       .transport = m->transport,
                       .out = {.channels = out},
                       .in = {.channels = in},
                       .slots = alloc_zeros(2 * (size_t)EXCHANGE_WINDOW, sizeof(staged_slot))};
  if (f.slots == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  if (out->count + in->count > 0) {
    char *pinned = NULL;
    code = peer_transport_pinned(peers, 2 * (size_t)EXCHANGE_WINDOW * piece, &pinned);
    for (int32_t i = 0; i < 2 * EXCHANGE_WINDOW && code == SHARDRT_OK; i++)
      f.slots[i].pinned = pinned + (size_t)i * piece;
  }
  if (code == SHARDRT_OK) {
    code = collective_until(
        m, &(collective_work){.step = exchange_staged_step, .awaits = exchange_staged_awaits, .context = &f}, what,
        piece);
    if (code < 0) peer_transport_lose_pinned(peers); /* messages and copies under way may still use it */
  }
  for (int32_t i = 0; i < 2 * EXCHANGE_WINDOW; i++)
    if (f.slots[i].event != NULL) f.a->event_free(f.slots[i].event);
  alloc_free(f.slots);
  return code;
}

#include "reshard/exchange_staged.h"

#include <assert.h>

#include "base/alloc.h"
#include "platform/accelerator.h"

enum {
  PIECE = 4 << 20, /* bytes of a message, at most */
  TAGS = 1 << 15   /* what MPI grants at least */
};

/* FREE: it has no message. LEAVING: its bytes are downloaded. CROSSING: the transport has them. COMING: they are
 * uploaded. */
typedef enum boat_state { BOAT_FREE, BOAT_LEAVING, BOAT_CROSSING, BOAT_COMING } boat_state;

typedef struct boat {
  boat_state state;
  const lane *lane;
  lane_message message;
  int32_t tag;
  char *pinned;
  accelerator_event *event;
} boat;

/* Where in the lanes of a direction the next message is, and its number among those with the same process. */
typedef struct quay {
  lanes *lanes;
  int64_t next;
  int32_t number;
} quay;

typedef struct ferry {
  const cargo *cargo;
  const accelerator *a;
  const comm_transport *transport;
  quay out, in;
  boat *boats; /* FERRY_WINDOW that send, as many that receive */
  int32_t busy;
} ferry;

int64_t ferry_piece(size_t staging, size_t element) {
  size_t bytes = staging / FERRY_WINDOW;
  if (bytes > PIECE) bytes = PIECE;
  return bytes < element ? 1 : (int64_t)(bytes / element);
}

/* Both ends number the messages between them alike, so that one may overtake another. */
static bool quay_next(quay *q, const cargo *c, boat *b) {
  while (q->next < q->lanes->count) {
    lane *l = &q->lanes->items[q->next];
    if (lane_next(c, l, &b->message)) {
      b->lane = l;
      b->tag = q->number++ % TAGS;
      return true;
    }
    q->next++;
    if (q->next < q->lanes->count && q->lanes->items[q->next].process != l->process) q->number = 0;
  }
  return false;
}

static bool quay_has_more(const quay *q) {
  for (int64_t i = q->next; i < q->lanes->count; i++)
    if (lane_has_more(&q->lanes->items[i])) return true;
  return false;
}

/* ---- between the devices and the host --------------------------------------------------------------------------- */

/* Copies the message's bytes from the blocks to the pinned memory, or the other way round, and has an event tell when
 * that has been done. What is packed for it on the device is given back in its order. */
static int boat_load(const ferry *f, boat *b) {
  const accelerator *a = f->a;
  const int32_t device = b->lane->device;
  const size_t bytes = b->message.bytes;
  const bool outgoing = b->lane->outgoing;
  char *at = lane_run(f->cargo, b->lane, &b->message);
  void *packed = NULL;
  int code = SHARDRT_OK;
  if (at == NULL) {
    code = a->allocate(device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, bytes, &packed);
    if (code < 0) return code;
    at = packed;
  }
  if (outgoing && packed != NULL) code = lane_stow(f->cargo, b->lane, &b->message, at);
  if (code == SHARDRT_OK)
    code = outgoing ? a->download(device, ACCELERATOR_MAIN, b->pinned, at, bytes)
                    : a->upload(device, ACCELERATOR_MAIN, at, b->pinned, bytes);
  if (code == SHARDRT_OK && !outgoing && packed != NULL) code = lane_stow(f->cargo, b->lane, &b->message, at);
  if (packed != NULL) a->free(device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, packed, bytes);
  if (code == SHARDRT_OK) code = a->record(device, ACCELERATOR_MAIN, &b->event);
  b->state = outgoing ? BOAT_LEAVING : BOAT_COMING;
  return code;
}

static int boat_cross(const ferry *f, boat *b) {
  assert(b->state == BOAT_FREE || b->state == BOAT_LEAVING);
  assert(b->message.bytes <= (size_t)f->cargo->piece * f->cargo->element);
  const int32_t place = (int32_t)(b - f->boats), other = b->lane->process;
  b->state = BOAT_CROSSING;
  return b->lane->outgoing ? f->transport->put(place, other, b->tag, b->pinned, b->message.bytes)
                           : f->transport->take(place, other, b->tag, b->pinned, b->message.bytes);
}

static void boat_release(ferry *f, boat *b) {
  assert(b->state != BOAT_FREE && f->busy > 0);
  b->state = BOAT_FREE;
  f->busy--;
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static int begin(ferry *f, bool outgoing, bool *moved) {
  int code = SHARDRT_OK;
  boat *b = &f->boats[outgoing ? 0 : FERRY_WINDOW];
  for (const boat *end = b + FERRY_WINDOW; b < end && code == SHARDRT_OK; b++) {
    if (b->state != BOAT_FREE) continue;
    if (!quay_next(outgoing ? &f->out : &f->in, f->cargo, b)) break;
    f->busy++;
    *moved = true;
    code = outgoing ? boat_load(f, b) : boat_cross(f, b);
  }
  return code;
}

/* Sees to those whose copy on the device has ended. */
static int go_on(ferry *f, bool *moved) {
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < 2 * FERRY_WINDOW && code == SHARDRT_OK; i++) {
    boat *b = &f->boats[i];
    if (b->state != BOAT_LEAVING && b->state != BOAT_COMING) continue;
    bool reached = false;
    code = f->a->reached(b->event, &reached);
    if (code < 0 || !reached) continue;
    f->a->event_free(b->event);
    b->event = NULL;
    *moved = true;
    if (b->state == BOAT_LEAVING)
      code = boat_cross(f, b);
    else
      boat_release(f, b);
  }
  return code;
}

/* Sees to those whose message has ended. */
static int arrive(ferry *f, bool *moved) {
  int32_t places[COMM_PLACES], count = 0;
  int code = f->transport->ended(places, &count);
  for (int32_t i = 0; i < count && code == SHARDRT_OK; i++) {
    boat *b = &f->boats[places[i]];
    assert(b->state == BOAT_CROSSING);
    *moved = true;
    if (b->lane->outgoing)
      boat_release(f, b);
    else
      code = boat_load(f, b);
  }
  return code;
}

static int ferry_step(void *context, bool *done, bool *moved) {
  ferry *f = context;
  int code = f->busy > 0 ? arrive(f, moved) : SHARDRT_OK;
  if (code == SHARDRT_OK && f->busy > 0) code = go_on(f, moved);
  if (code == SHARDRT_OK) code = begin(f, false, moved);
  if (code == SHARDRT_OK) code = begin(f, true, moved);
  *done = f->busy == 0 && !quay_has_more(&f->out) && !quay_has_more(&f->in);
  return code;
}

static void ferry_awaits(const void *context, bool *processes) {
  const ferry *f = context;
  for (int32_t i = 0; i < 2 * FERRY_WINDOW; i++)
    if (f->boats[i].state == BOAT_CROSSING) processes[f->boats[i].lane->process] = true;
}

int ferry_run(const cargo *load, lanes *out, lanes *in, crossing *way, meet *m, const char *what) {
  const size_t piece = (size_t)load->piece * load->element;
  ferry f = {.cargo = load,
             .a = accelerator_get(),
             .transport = m->transport,
             .out = {.lanes = out},
             .in = {.lanes = in},
             .boats = alloc_zeros(2 * (size_t)FERRY_WINDOW, sizeof(boat))};
  if (f.boats == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  if (out->count + in->count > 0) {
    char *pinned = NULL;
    code = crossing_pinned(way, 2 * (size_t)FERRY_WINDOW * piece, &pinned);
    for (int32_t i = 0; i < 2 * FERRY_WINDOW && code == SHARDRT_OK; i++) f.boats[i].pinned = pinned + (size_t)i * piece;
  }
  if (code == SHARDRT_OK) {
    code = meet_until(m, &(meet_work){.step = ferry_step, .awaits = ferry_awaits, .context = &f}, what, piece);
    if (code < 0) crossing_lose_pinned(way); /* messages and copies under way may still use it */
  }
  for (int32_t i = 0; i < 2 * FERRY_WINDOW; i++)
    if (f.boats[i].event != NULL) f.a->event_free(f.boats[i].event);
  alloc_free(f.boats);
  return code;
}

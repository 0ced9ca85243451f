#include "reshard/exchange_nccl.h"

#include "base/alloc.h"
#include "base/error.h"
#include "platform/accelerator.h"

enum { ROUNDS = 4 /* under way at a time */ };

/* A lane of this process with the message that is under way last. */
typedef struct car {
  lane *lane;
  int64_t rounds; /* in which it has had a message */
  lane_message message;
  char *run;    /* where the message stands in its block; NULL: it does not, and goes through */
  char *packed; /* memory of the device, taken when it is first needed; NULL */
  size_t room;  /* bytes of it */
} car;

/* What is put on a device in one round runs after what was put there before, so that a lane's memory serves all its
 * rounds. */
typedef struct convoy {
  const cargo *cargo;
  crossing *way;
  const accelerator *a;
  int64_t count;
  car *cars; /* outgoing ones first */
  accelerator_message *messages;
  int64_t launched, ended;    /* rounds */
  bool is_starting;           /* the last one launched is not on the way yet */
  accelerator_event **events; /* [ROUNDS][devices] that have come to the end of a round; NULL where there is none */
} convoy;

static accelerator_event **events_of(const convoy *c, int64_t round) {
  return c->events + (size_t)(round % ROUNDS) * (size_t)c->way->devices;
}

static int car_room(const convoy *c, car *k) {
  if (k->packed != NULL) return SHARDRT_OK;
  int64_t elements = 0;
  for (int64_t i = 0; i < k->lane->count && elements < c->cargo->piece; i++)
    elements += box_elements(&k->lane->moves[i]->box);
  if (elements > c->cargo->piece) elements = c->cargo->piece;
  k->room = (size_t)elements * c->cargo->element;
  void *made;
  int code = c->a->allocate(k->lane->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, k->room, &made);
  if (code == SHARDRT_OK) k->packed = made;
  return code;
}

/* The lane's next message, where it has one, with memory for it. */
static int car_load(const convoy *c, car *k, bool *any) {
  *any = lane_next(c->cargo, k->lane, &k->message);
  if (!*any) return SHARDRT_OK;
  k->rounds++;
  k->run = lane_run(c->cargo, k->lane, &k->message);
  if (k->run != NULL) return SHARDRT_OK;
  int code = car_room(c, k);
  return code == SHARDRT_OK && k->lane->outgoing ? lane_stow(c->cargo, k->lane, &k->message, k->packed) : code;
}

static bool has_more(const convoy *c) {
  for (int64_t i = 0; i < c->count; i++)
    if (lane_has_more(c->cars[i].lane)) return true;
  return false;
}

static int launch(convoy *c) {
  int64_t count = 0;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < c->count && code == SHARDRT_OK; i++) {
    car *k = &c->cars[i];
    bool any;
    code = car_load(c, k, &any);
    if (code < 0 || !any) continue;
    c->messages[count++] = (accelerator_message){
        .device = k->lane->device,
        .rank = c->way->ranks[(size_t)k->lane->process * (size_t)c->way->devices + (size_t)k->lane->peer],
        .outgoing = k->lane->outgoing,
        .data = k->run != NULL ? k->run : k->packed,
        .bytes = k->message.bytes};
  }
  if (code == SHARDRT_OK) code = c->a->links->exchange(count, c->messages);
  c->launched++;
  c->is_starting = true;
  return code;
}

/* The round that was launched last is on the way: what comes is put where it belongs, and events tell when. */
static int land(convoy *c) {
  accelerator_event **events = events_of(c, c->launched - 1);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < c->count && code == SHARDRT_OK; i++) {
    const car *k = &c->cars[i];
    if (k->rounds < c->launched || k->lane->outgoing || k->run != NULL) continue;
    code = lane_stow(c->cargo, k->lane, &k->message, k->packed);
  }
  for (int64_t i = 0; i < c->count && code == SHARDRT_OK; i++) {
    const int32_t device = c->cars[i].lane->device;
    if (c->cars[i].rounds < c->launched || events[device] != NULL) continue;
    code = c->a->record(device, ACCELERATOR_MAIN, &events[device]);
  }
  c->is_starting = false;
  return code;
}

/* Whether the round that waits longest has ended. */
static int end_round(convoy *c, bool *ended) {
  accelerator_event **events = events_of(c, c->ended);
  *ended = true;
  for (int32_t d = 0; d < c->way->devices && *ended; d++) {
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

static int convoy_step(void *context, bool *done, bool *moved) {
  convoy *c = context;
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
static void convoy_awaits(const void *context, bool *processes) {
  const convoy *c = context;
  for (int64_t i = 0; i < c->count; i++)
    if (c->cars[i].rounds > c->ended) processes[c->cars[i].lane->process] = true;
}

static int convoy_new(convoy *c, lanes *out, lanes *in) {
  c->count = out->count + in->count;
  c->cars = alloc_zeros((size_t)c->count, sizeof *c->cars);
  c->messages = alloc_array((size_t)c->count, sizeof *c->messages);
  c->events = alloc_zeros((size_t)c->way->devices, ROUNDS * sizeof(accelerator_event *));
  if (c->cars == NULL || c->messages == NULL || c->events == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < out->count; i++) c->cars[i].lane = &out->items[i];
  for (int64_t i = 0; i < in->count; i++) c->cars[out->count + i].lane = &in->items[i];
  return SHARDRT_OK;
}

static void convoy_free(convoy *c) {
  for (int64_t i = 0; c->cars != NULL && i < c->count; i++) {
    const car *k = &c->cars[i];
    if (k->packed != NULL) c->a->free(k->lane->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, k->packed, k->room);
  }
  for (int64_t i = 0; c->events != NULL && i < (int64_t)ROUNDS * c->way->devices; i++)
    if (c->events[i] != NULL) c->a->event_free(c->events[i]);
  alloc_free((void *)c->events);
  alloc_free(c->messages);
  alloc_free(c->cars);
}

int convoy_run(const cargo *load, lanes *out, lanes *in, crossing *way, meet *m, const char *what) {
  convoy c = {.cargo = load, .way = way, .a = accelerator_get()};
  int code = convoy_new(&c, out, in);
  const size_t bytes = (size_t)load->piece * load->element; /* of a step */
  if (code == SHARDRT_OK) {
    const meet_work work = {.step = convoy_step, .awaits = convoy_awaits, .context = &c};
    code = meet_until(m, &work, what, bytes);
    if (code == SHARDRT_ECOMM) code = error_prefix(code, "%s", what);
    if (code < 0) crossing_break(way);
  }
  convoy_free(&c);
  return code;
}

#include "comm/gather_to_first.h"

#include <assert.h>

#include "comm/job.h"

/* One message at a time is under way. */
struct gather_state {
  const struct gather_to_first *c;
  const struct comm_transport *transport;
  struct comm_endpoint *endpoint;
  bool under_way;
  int32_t from;  /* process 0: the one that tells now, */
  int32_t count; /* of so many */
};

/* Whether the message that was under way has ended. */
static int gather_end_message(struct gather_state *self, bool *ended) {
  int32_t requests[COMM_REQUESTS], count = 0;
  int code = self->transport->testsome(self->endpoint, requests, &count);
  *ended = count > 0;
  if (count > 0) self->under_way = false;
  return code;
}

static int gather_receive_step(void *context, bool *done, bool *moved) {
  struct gather_state *self = context;
  struct gather_to_first_room *room = self->c->room;
  if (self->under_way) {
    int code = gather_end_message(self, moved);
    if (code < 0 || !*moved) return code;
    if (room->bytes > 0)
      self->c->take(self->c->context, room->piece, room->bytes);
    else
      self->from++;
  }
  *done = self->from == self->count;
  if (*done) return SHARDRT_OK;
  self->under_way = true;
  return self->transport->irecv(self->endpoint, 0, self->from, 0, room, sizeof *room);
}

static int gather_send_step(void *context, bool *done, bool *moved) {
  struct gather_state *self = context;
  struct gather_to_first_room *room = self->c->room;
  if (self->under_way) {
    int code = gather_end_message(self, moved);
    if (code < 0 || !*moved) return code;
    *done = room->bytes == 0;
    if (*done) return SHARDRT_OK;
  }
  room->bytes = self->c->give(self->c->context, room->piece);
  assert(room->bytes <= GATHER_TO_FIRST_PIECE);
  self->under_way = true;
  return self->transport->isend(self->endpoint, 0, 0, 0, room, sizeof *room);
}

static void gather_awaits(const void *context, bool *processes) {
  processes[((const struct gather_state *)context)->from] = true; /* 0 in those that send */
}

int gather_to_first_run(shardrt_job *job, const struct gather_to_first *c, const char *what) {
  struct collective *m = job_collective(job);
  struct gather_state self = {.c = c, .transport = m->transport, .endpoint = m->endpoint, .count = m->count};
  const bool receives = m->index == 0;
  if (receives) {
    while ((c->room->bytes = c->give(c->context, c->room->piece)) > 0)
      c->take(c->context, c->room->piece, c->room->bytes);
    self.from = 1;
  }
  const struct collective_work work = {
      .step = receives ? gather_receive_step : gather_send_step, .awaits = gather_awaits, .context = &self};
  return collective_until(m, &work, what, sizeof *c->room);
}

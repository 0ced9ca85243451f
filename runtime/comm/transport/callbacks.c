/* callbacks.c - the job whose processes gather by two functions of the program that shardrt is part of. There are no
 * messages and no notes. The functions are called on the program's own stack, and given memory of this file's only: a
 * gathering that is abandoned may be at work on it for as long as the program lives. */
#include "platform/comm.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "system/time_slice.h"

struct comm_endpoint {
  shardrt_transport given;
  int32_t count;
  size_t bytes, stride; /* of the gathering under way */
  char *room;           /* for what this process gives, and behind it for what all do; NULL: nothing is under way */
  char *all;
  struct comm_endpoint *next; /* in `kept` */
};

/* What was abandoned with a gathering under way: nobody can say when the program's functions leave its memory alone. */
static struct comm_endpoint *kept;

static int callbacks_open(const shardrt_options *o, struct comm_place *place, struct comm_endpoint **out,
                          bool *is_open) {
  struct comm_endpoint *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->given = *o->callbacks;
  made->count = o->size;
  *place = (struct comm_place){.index = o->rank, .count = o->size};
  *out = made;
  *is_open = true;
  return SHARDRT_OK;
}

struct start_call {
  struct comm_endpoint *endpoint;
  int code;
};

static void call_start(void *argument) {
  struct start_call *c = argument;
  const struct comm_endpoint *endpoint = c->endpoint;
  c->code = endpoint->given.allgather_start(endpoint->given.context, endpoint->room, endpoint->bytes,
                                            endpoint->room + endpoint->bytes);
}

static int callbacks_gather(struct comm_endpoint *endpoint, const void *mine, size_t bytes, void *all, size_t stride) {
  assert(endpoint->room == NULL && bytes > 0 && bytes <= COMM_PIECE && stride >= bytes);
  char *room = alloc_array((size_t)endpoint->count + 1, bytes);
  if (room == NULL) return ALLOC_FAILED;
  memcpy(room, mine, bytes);
  endpoint->room = room;
  endpoint->all = all;
  endpoint->bytes = bytes;
  endpoint->stride = stride;
  struct start_call call = {.endpoint = endpoint};
  time_slice_call(call_start, &call);
  if (call.code >= 0) return SHARDRT_OK;
  return error_set(SHARDRT_ECOMM, "gathering: the program's allgather_start returned %d", call.code);
}

struct test_call {
  struct comm_endpoint *endpoint;
  bool done;
  int code;
};

static void call_test(void *argument) {
  struct test_call *c = argument;
  c->code = c->endpoint->given.allgather_test(c->endpoint->given.context, &c->done);
}

static int callbacks_test(struct comm_endpoint *endpoint, bool *done) {
  struct test_call call = {.endpoint = endpoint};
  time_slice_call(call_test, &call);
  if (call.code < 0) return error_set(SHARDRT_ECOMM, "gathering: the program's allgather_test returned %d", call.code);
  *done = call.done;
  if (!call.done) return SHARDRT_OK;
  for (int32_t p = 0; p < endpoint->count; p++)
    memcpy(endpoint->all + (size_t)p * endpoint->stride, endpoint->room + ((size_t)p + 1) * endpoint->bytes,
           endpoint->bytes);
  alloc_free(endpoint->room);
  endpoint->room = NULL;
  return SHARDRT_OK;
}

static int refuse_message(const char *what, int32_t process) {
  return error_set(SHARDRT_ECOMM,
                   "a message %s process %d: the program's transport only gathers (SHARDRT_TRANSPORT_CALLBACKS); what "
                   "moves between processes needs MPI (SHARDRT_TRANSPORT_MPI), and a pipeline that moves nothing "
                   "(\"per_process\") needs neither",
                   what, process);
}

static int callbacks_isend(struct comm_endpoint *endpoint, int32_t request, int32_t to, int32_t tag, const void *data,
                           size_t bytes) {
  (void)endpoint, (void)request, (void)tag, (void)data, (void)bytes;
  return refuse_message("to", to);
}

static int callbacks_irecv(struct comm_endpoint *endpoint, int32_t request, int32_t from, int32_t tag, void *data,
                           size_t bytes) {
  (void)endpoint, (void)request, (void)tag, (void)data, (void)bytes;
  return refuse_message("from", from);
}

static int callbacks_testsome(struct comm_endpoint *endpoint, int32_t *requests, int32_t *count) {
  (void)endpoint, (void)requests;
  *count = 0;
  return SHARDRT_OK;
}

static void callbacks_send_note(struct comm_endpoint *endpoint, int32_t to, const struct comm_note *note) {
  (void)endpoint, (void)to, (void)note;
}

static bool callbacks_receive_note(struct comm_endpoint *endpoint, int32_t *from, struct comm_note *note) {
  (void)endpoint, (void)from, (void)note;
  return false;
}

/* The others are the program's to end. */
static __attribute__((noreturn)) void callbacks_kill(struct comm_endpoint *endpoint, int status) {
  (void)endpoint;
  comm_alone.kill(NULL, status);
  __builtin_unreachable();
}

static int callbacks_close(struct comm_endpoint *endpoint) {
  assert(endpoint->room == NULL);
  alloc_free(endpoint);
  return SHARDRT_OK;
}

static void callbacks_abandon(struct comm_endpoint *endpoint, void *room) {
  alloc_free(room);
  if (endpoint->room == NULL) {
    alloc_free(endpoint);
    return;
  }
  endpoint->next = kept;
  kept = endpoint;
}

const struct comm_transport comm_callbacks = {
    .name = "callbacks",
    .open = callbacks_open,
    .gather = callbacks_gather,
    .test = callbacks_test,
    .isend = callbacks_isend,
    .irecv = callbacks_irecv,
    .testsome = callbacks_testsome,
    .send_note = callbacks_send_note,
    .receive_note = callbacks_receive_note,
    .kill = callbacks_kill,
    .close = callbacks_close,
    .abandon = callbacks_abandon,
};

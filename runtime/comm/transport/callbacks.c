/* callbacks.c - the job whose processes gather by two functions of the program that shardrt is part of. There are no
 * messages and no notes. The functions are called on the program's own stack, and given memory of this file's only: a
 * gathering that is abandoned may be at work on it for as long as the program lives. */
#include "platform/comm.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "system/slice.h"

struct comm_link {
  shardrt_transport given;
  int32_t count;
  size_t bytes, stride; /* of the gathering under way */
  char *room;           /* for what this process gives, and behind it for what all do; NULL: nothing is under way */
  char *all;
  struct comm_link *next; /* in `kept` */
};

/* What was abandoned with a gathering under way: nobody can say when the program's functions leave its memory alone. */
static comm_link *kept;

static bool callbacks_is_reachable(void) {
  return true;
}

static int callbacks_open(const shardrt_options *o, comm_place *place, comm_link **out) {
  comm_link *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->given = *o->callbacks;
  made->count = o->size;
  *place = (comm_place){.index = o->rank, .count = o->size};
  *out = made;
  return SHARDRT_OK;
}

typedef struct start_call {
  comm_link *link;
  int code;
} start_call;

static void call_start(void *argument) {
  start_call *c = argument;
  const comm_link *link = c->link;
  c->code = link->given.allgather_start(link->given.context, link->room, link->bytes, link->room + link->bytes);
}

static int callbacks_gather(comm_link *link, const void *mine, size_t bytes, void *all, size_t stride) {
  assert(link->room == NULL && bytes > 0 && bytes <= COMM_PIECE && stride >= bytes);
  char *room = alloc_array((size_t)link->count + 1, bytes);
  if (room == NULL) return ALLOC_FAILED;
  memcpy(room, mine, bytes);
  link->room = room;
  link->all = all;
  link->bytes = bytes;
  link->stride = stride;
  start_call call = {.link = link};
  slice_call(call_start, &call);
  if (call.code >= 0) return SHARDRT_OK;
  return error_set(SHARDRT_ECOMM, "gathering: the program's allgather_start returned %d", call.code);
}

typedef struct test_call {
  comm_link *link;
  bool done;
  int code;
} test_call;

static void call_test(void *argument) {
  test_call *c = argument;
  c->code = c->link->given.allgather_test(c->link->given.context, &c->done);
}

static int callbacks_test(comm_link *link, bool *done) {
  test_call call = {.link = link};
  slice_call(call_test, &call);
  if (call.code < 0) return error_set(SHARDRT_ECOMM, "gathering: the program's allgather_test returned %d", call.code);
  *done = call.done;
  if (!call.done) return SHARDRT_OK;
  for (int32_t p = 0; p < link->count; p++)
    memcpy(link->all + (size_t)p * link->stride, link->room + ((size_t)p + 1) * link->bytes, link->bytes);
  alloc_free(link->room);
  link->room = NULL;
  return SHARDRT_OK;
}

static int refuse_message(const char *what, int32_t process) {
  return error_set(SHARDRT_ECOMM,
                   "a message %s process %d: the program's transport only gathers (SHARDRT_TRANSPORT_CALLBACKS); what "
                   "moves between processes needs MPI (SHARDRT_TRANSPORT_MPI), and a pipeline that moves nothing "
                   "(\"per_process\") needs neither",
                   what, process);
}

static int callbacks_isend(comm_link *link, int32_t request, int32_t to, int32_t tag, const void *data, size_t bytes) {
  (void)link, (void)request, (void)tag, (void)data, (void)bytes;
  return refuse_message("to", to);
}

static int callbacks_irecv(comm_link *link, int32_t request, int32_t from, int32_t tag, void *data, size_t bytes) {
  (void)link, (void)request, (void)tag, (void)data, (void)bytes;
  return refuse_message("from", from);
}

static int callbacks_testsome(comm_link *link, int32_t *requests, int32_t *count) {
  (void)link, (void)requests;
  *count = 0;
  return SHARDRT_OK;
}

static void callbacks_send_note(comm_link *link, int32_t to, const comm_note *note) {
  (void)link, (void)to, (void)note;
}

static bool callbacks_receive_note(comm_link *link, int32_t *from, comm_note *note) {
  (void)link, (void)from, (void)note;
  return false;
}

/* The others are the program's to end. */
static __attribute__((noreturn)) void callbacks_kill(comm_link *link, int status) {
  (void)link;
  comm_solo.kill(NULL, status);
  __builtin_unreachable();
}

static int callbacks_close(comm_link *link) {
  assert(link->room == NULL);
  alloc_free(link);
  return SHARDRT_OK;
}

static void callbacks_abandon(comm_link *link, void *room) {
  alloc_free(room);
  if (link->room == NULL) {
    alloc_free(link);
    return;
  }
  link->next = kept;
  kept = link;
}

const comm_transport comm_callbacks = {
    .name = "callbacks",
    .is_reachable = callbacks_is_reachable,
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

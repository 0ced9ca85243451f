/* alone.c - the job of one process. */
#include "platform/comm.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

static int alone_open(const shardrt_options *options, struct comm_place *place, struct comm_endpoint **endpoint,
                      bool *is_open) {
  (void)options;
  *is_open = true;
  *endpoint = NULL; /* there is nothing to know */
  *place = (struct comm_place){.index = 0, .count = 1, .here = 1};
  return SHARDRT_OK;
}

static int alone_gather(struct comm_endpoint *endpoint, const void *mine, size_t bytes, void *all, size_t stride) {
  (void)endpoint, (void)stride;
  if (bytes > 0) memcpy(all, mine, bytes);
  return SHARDRT_OK;
}

static int alone_test(struct comm_endpoint *endpoint, bool *done) {
  (void)endpoint;
  *done = true;
  return SHARDRT_OK;
}

static int alone_isend(struct comm_endpoint *endpoint, int32_t request, int32_t to, int32_t tag, const void *data,
                       size_t bytes) {
  (void)endpoint, (void)request, (void)tag, (void)data, (void)bytes;
  return error_set(SHARDRT_ECOMM, "a message to process %d, but this process is alone", to);
}

static int alone_irecv(struct comm_endpoint *endpoint, int32_t request, int32_t from, int32_t tag, void *data,
                       size_t bytes) {
  (void)endpoint, (void)request, (void)tag, (void)data, (void)bytes;
  return error_set(SHARDRT_ECOMM, "a message from process %d, but this process is alone", from);
}

static int alone_testsome(struct comm_endpoint *endpoint, int32_t *requests, int32_t *count) {
  (void)endpoint, (void)requests;
  *count = 0;
  return SHARDRT_OK;
}

static void alone_send_note(struct comm_endpoint *endpoint, int32_t to, const struct comm_note *note) {
  (void)endpoint, (void)to, (void)note;
}

static void alone_send_last_note(struct comm_endpoint *endpoint, const struct comm_note *note) {
  (void)endpoint, (void)note;
}

static bool alone_receive_note(struct comm_endpoint *endpoint, int32_t *from, struct comm_note *note) {
  (void)endpoint, (void)from, (void)note;
  return false;
}

static __attribute__((noreturn)) void alone_kill(struct comm_endpoint *endpoint, int status) {
  (void)endpoint;
  _exit(status); /* threads of a loader may be at work on what exit() would take down */
}

static int alone_close(struct comm_endpoint *endpoint) {
  (void)endpoint;
  return SHARDRT_OK;
}

static void alone_abandon(struct comm_endpoint *endpoint, void *room) {
  (void)endpoint;
  alloc_free(room);
}

const struct comm_transport comm_alone = {
    .name = "alone",
    .has_notes = true,
    .open = alone_open,
    .gather = alone_gather,
    .test = alone_test,
    .isend = alone_isend,
    .irecv = alone_irecv,
    .testsome = alone_testsome,
    .send_note = alone_send_note,
    .send_last_note = alone_send_last_note,
    .receive_note = alone_receive_note,
    .kill = alone_kill,
    .close = alone_close,
    .abandon = alone_abandon,
};

/* solo.c - the job of one process. */
#include "platform/comm.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

static bool solo_is_reachable(void) {
  return true;
}

static int solo_open(const shardrt_options *options, comm_place *place, comm_link **link) {
  (void)options;
  *link = NULL; /* there is nothing to know */
  *place = (comm_place){.index = 0, .count = 1, .here = 1};
  return SHARDRT_OK;
}

static int solo_gather(comm_link *link, const void *mine, size_t bytes, void *all, size_t stride) {
  (void)link, (void)stride;
  if (bytes > 0) memcpy(all, mine, bytes);
  return SHARDRT_OK;
}

static int solo_test(comm_link *link, bool *done) {
  (void)link;
  *done = true;
  return SHARDRT_OK;
}

static int solo_isend(comm_link *link, int32_t request, int32_t to, int32_t tag, const void *data, size_t bytes) {
  (void)link, (void)request, (void)tag, (void)data, (void)bytes;
  return error_set(SHARDRT_ECOMM, "a message to process %d, but this process is alone", to);
}

static int solo_irecv(comm_link *link, int32_t request, int32_t from, int32_t tag, void *data, size_t bytes) {
  (void)link, (void)request, (void)tag, (void)data, (void)bytes;
  return error_set(SHARDRT_ECOMM, "a message from process %d, but this process is alone", from);
}

static int solo_testsome(comm_link *link, int32_t *requests, int32_t *count) {
  (void)link, (void)requests;
  *count = 0;
  return SHARDRT_OK;
}

static void solo_send_note(comm_link *link, int32_t to, const comm_note *note) {
  (void)link, (void)to, (void)note;
}

static bool solo_receive_note(comm_link *link, int32_t *from, comm_note *note) {
  (void)link, (void)from, (void)note;
  return false;
}

static __attribute__((noreturn)) void solo_kill(comm_link *link, int status) {
  (void)link;
  _exit(status); /* threads of a loader may be at work on what exit() would take down */
}

static int solo_close(comm_link *link) {
  (void)link;
  return SHARDRT_OK;
}

static void solo_abandon(comm_link *link, void *room) {
  (void)link;
  alloc_free(room);
}

const comm_transport comm_solo = {
    .name = "solo",
    .has_notes = true,
    .is_reachable = solo_is_reachable,
    .open = solo_open,
    .gather = solo_gather,
    .test = solo_test,
    .isend = solo_isend,
    .irecv = solo_irecv,
    .testsome = solo_testsome,
    .send_note = solo_send_note,
    .receive_note = solo_receive_note,
    .kill = solo_kill,
    .close = solo_close,
    .abandon = solo_abandon,
};

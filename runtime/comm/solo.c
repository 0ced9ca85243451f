/* solo.c - the job of one process. */
#include "comm/comm.h"

#include <string.h>
#include <unistd.h>

#include "shardrt.h"

static int solo_open(int32_t *process_index, int32_t *process_count) {
  *process_index = 0;
  *process_count = 1;
  return SHARDRT_OK;
}

static int solo_gather(const void *mine, size_t bytes, void *all, size_t stride) {
  (void)stride;
  if (bytes > 0) memcpy(all, mine, bytes);
  return SHARDRT_OK;
}

static int solo_gather_uneven(const void *mine, const int32_t *counts, void *all) {
  return solo_gather(mine, (size_t)counts[0], all, (size_t)counts[0]);
}

static int solo_test(bool *done) {
  *done = true;
  return SHARDRT_OK;
}

static void solo_send(int32_t to, const comm_note *note) {
  (void)to;
  (void)note;
}

static bool solo_receive(int32_t *from, comm_note *note) {
  (void)from;
  (void)note;
  return false;
}

static _Noreturn void solo_kill(int status) {
  _exit(status); /* threads of a loader may be at work on what exit() would take down */
}

static int solo_close(void) {
  return SHARDRT_OK;
}

const comm_transport comm_solo = {
    .name = "solo",
    .open = solo_open,
    .gather = solo_gather,
    .gather_uneven = solo_gather_uneven,
    .test = solo_test,
    .send = solo_send,
    .receive = solo_receive,
    .kill = solo_kill,
    .close = solo_close,
};

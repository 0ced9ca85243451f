/* job.c - the one job that this process belongs to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/abort_job.h"
#include "comm/collective.h"
#include "comm/device_order.h"
#include "comm/job.h"
#include "comm/transport/alone.h"
#include "comm/transport/launcher.h"
#include "platform/accelerator.h"
#include "platform/comm.h"
#include "shardrt.h"
#include "system/machine.h"

static struct {
  shardrt_job job;
  bool joined;           /* shardrt_init succeeded */
  collective collective; /* its transport is NULL outside of a job */
  job_part moves;
  int32_t *order;         /* in which meshes take the devices; NULL: 0, 1, 2, … */
  void (*at_abort)(void); /* NULL: nothing */
} self;

/* What must be the same in every process for it to be one job. */
typedef struct terms {
  int32_t devices_per_process;
  int32_t check;
  char platform[16];
} terms;

static int agree_on_terms(void) {
  static const char *const checks[] = {"off", "sample", "all"};
  terms mine = {.devices_per_process = self.job.devices_per_process, .check = self.job.check};
  memcpy(mine.platform, self.job.platform, sizeof mine.platform);
  terms *all = alloc_zeros((size_t)self.job.process_count, sizeof *all);
  if (all == NULL) return ALLOC_FAILED;
  int code = collective_gather(&self.collective, "the start of the job", &mine, sizeof mine, all);
  for (int32_t p = 1; code == SHARDRT_OK && p < self.job.process_count; p++) {
    if (strcmp(all[p].platform, all[0].platform) != 0)
      code = error_set(SHARDRT_EMISMATCH,
                       "process 0 has devices of platform %s, process %d of %s; it must be the same in all: --platform "
                       "host asks for the host's everywhere",
                       all[0].platform, p, all[p].platform);
    else if (all[p].devices_per_process != all[0].devices_per_process)
      code = error_set(SHARDRT_EMISMATCH,
                       "process 0 has %d devices, process %d has %d; every process must be started with the same "
                       "--devices",
                       all[0].devices_per_process, p, all[p].devices_per_process);
    else if (all[p].check != all[0].check)
      code = error_set(SHARDRT_EMISMATCH,
                       "process 0 runs with --check %s, process %d with --check %s; it must be the same in all",
                       checks[all[0].check], p, checks[all[p].check]);
  }
  alloc_free(all);
  return code;
}

/* Which of the job's processes that may use the same GPUs this one is, in order of their indices. */
static int find_neighbours(uint64_t which, accelerator_wanted *wanted) {
  const int32_t count = self.collective.count, own = self.collective.index;
  uint64_t *all = alloc_array((size_t)count, sizeof *all);
  if (all == NULL) return ALLOC_FAILED;
  int code = collective_gather(&self.collective, "which processes have the same GPUs", &which, sizeof which, all);
  wanted->local_rank = wanted->local_size = 0;
  for (int32_t p = 0; code == SHARDRT_OK && p < count; p++) {
    if (all[p] != which) continue;
    if (p < own) wanted->local_rank++;
    wanted->local_size++;
  }
  alloc_free(all);
  return code;
}

/* The devices of this process. A planned job has none: the host stands for them. */
static int open_platform(void) {
  accelerator_wanted wanted = {
      .devices = self.job.devices_per_process, .process = self.job.process_index, .local_size = 1};
  int code = SHARDRT_OK;
  if (self.job.planning) {
    if (self.job.devices_per_process == 0) self.job.devices_per_process = 1;
  } else {
    uint64_t which;
    code = accelerator_find(self.job.platform, &which);
    if (code == SHARDRT_OK && self.collective.count > 1) code = find_neighbours(which, &wanted);
    if (code == SHARDRT_OK) code = accelerator_open(&wanted, &self.job.devices_per_process);
  }
  if (code == SHARDRT_OK) snprintf(self.job.platform, sizeof self.job.platform, "%s", accelerator_name());
  return code;
}

static int check_wanted(const shardrt_job *wanted) {
  if (self.collective.transport != NULL)
    return error_set(SHARDRT_EINVAL, "shardrt_init: this process has joined already");
  if (wanted->devices_per_process < 0)
    return error_set(SHARDRT_EINVAL, "a process needs at least 1 device, not %d", wanted->devices_per_process);
  if (memchr(wanted->platform, '\0', sizeof wanted->platform) == NULL)
    return error_set(SHARDRT_EINVAL, "the platform's name does not end");
  if (wanted->check < SHARDRT_CHECK_OFF || wanted->check > SHARDRT_CHECK_ALL)
    return error_set(SHARDRT_EINVAL, "%d is no SHARDRT_CHECK_ value", wanted->check);
  if (!(wanted->timeout > 0))
    return error_set(SHARDRT_EINVAL, "the timeout must be greater than 0 seconds, not %g", wanted->timeout);
  if (wanted->planning &&
      (wanted->process_count < 1 || wanted->process_index < 0 || wanted->process_index >= wanted->process_count))
    return error_set(SHARDRT_EINVAL, "cannot plan as process %d of %d", wanted->process_index, wanted->process_count);
  return SHARDRT_OK;
}

int shardrt_init(const shardrt_job *wanted) {
  bool is_off; /* asked again where links are made; a wrong word is to be said at once */
  int code = check_wanted(wanted);
  if (code == SHARDRT_OK) code = accelerator_links_wish(&is_off);
  if (code < 0) return code;
  /* Under planning the other processes do not exist, so this one is alone, whatever index it plays. */
  const bool is_launched = !wanted->planning && alone_has_launcher() && comm_mpi.is_reachable();
  const comm_transport *transport = is_launched ? &comm_mpi : &comm_solo;
  alone_finding looked;
  alone_look(&looked);
  comm_place place;
  code = transport->open(&place);
  if (code == SHARDRT_OK && !wanted->planning && place.count == 1) code = alone_check(&looked);
  if (code < 0) return code;
  const int32_t index = place.index, count = place.count;
  if (is_launched) {
    machine_share(place.here, launcher_pid());
    if (place.is_bound_by_default) machine_widen();
  }
  self.job = *wanted;
  if (!wanted->planning) {
    self.job.process_index = index;
    self.job.process_count = count;
  }
  code = collective_open(&self.collective, transport, index, count, wanted->timeout);
  if (code < 0) return code;
  code = open_platform();
  if (code == SHARDRT_OK && count > 1) code = agree_on_terms();
  if (code == SHARDRT_OK && accelerator_get() != NULL)
    code = device_order_settle(&self.collective, self.job.devices_per_process, &self.order);
  self.joined = code == SHARDRT_OK;
  return code;
}

const shardrt_job *shardrt_job_get(void) {
  return self.joined ? &self.job : NULL;
}

const int32_t *shardrt_job_order(void) {
  return self.joined ? self.order : NULL;
}

int shardrt_finalize(void) {
  if (!self.joined) return error_set(SHARDRT_EINVAL, "shardrt_finalize: this process is in no job");
  collective_at(&self.collective, NULL);
  int code = collective_gather(&self.collective, "the end of the recipe", NULL, 0, NULL);
  if (code < 0) return code;
  const comm_transport *transport = self.collective.transport;
  self.joined = false;
  if (self.moves.close != NULL) self.moves.close(self.moves.data);
  self.moves = (job_part){0};
  collective_close(&self.collective);
  alloc_free(self.order);
  self.order = NULL;
  accelerator_close();
  return transport->close();
}

void shardrt_abort(int status, const char *message) {
  if (self.collective.transport != NULL) abort_job(&self.collective.heartbeat, status, message, self.at_abort);
  /* Alone, in no job, or in one that could not be joined. */
  fflush(NULL);
  if (message[0] != '\0') fprintf(stderr, "shardrt: %s\n", message);
  exit(status);
}

void shardrt_job_line(void) {
  abort_job_erase("\r\33[K");
}

void job_at_abort(void (*act)(void)) {
  self.at_abort = act;
}

void shardrt_job_at(const char *where) {
  collective_at(&self.collective, where);
}

void shardrt_job_step(const char *what) {
  if (self.joined) collective_step(&self.collective, what);
}

int job_join(const char *what, int own, const void *mine, size_t bytes, void *all) {
  if (!self.joined) return own < 0 ? own : error_set(SHARDRT_EINVAL, "%s: shardrt_init was not called", what);
  if (!self.job.planning) return collective_join(&self.collective, what, own, mine, bytes, all);
  if (own < 0) return own;
  for (int32_t p = 0; p < self.job.process_count && bytes > 0; p++)
    memcpy((char *)all + (size_t)p * bytes, mine, bytes);
  return SHARDRT_OK;
}

int shardrt_allgather(const char *what, const void *mine, size_t bytes, void *all) {
  return job_join(what, SHARDRT_OK, mine, bytes, all);
}

collective *job_collective(void) {
  return self.joined ? &self.collective : NULL;
}

job_part *job_moves(void) {
  return self.joined ? &self.moves : NULL;
}

const char *shardrt_job_notice(void) {
  if (!self.joined) return NULL;
  const char *notice = accelerator_notice();
  if (notice == NULL && self.moves.notice != NULL) notice = self.moves.notice(self.moves.data);
  return notice;
}

int shardrt_barrier(const char *what) {
  return shardrt_allgather(what, NULL, 0, NULL);
}

/* job.c - what a process knows of a job that it belongs to. */
#include "comm/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/abort_job.h"
#include "comm/device_order.h"
#include "comm/report.h"
#include "comm/transport/launcher.h"
#include "comm/transport/lone_process.h"
#include "comm/transport/mpi_choice.h"
#include "comm/wait.h"
#include "platform/accelerator.h"
#include "platform/comm.h"
#include "system/machine.h"
#include "system/time_slice.h"

#define JOIN_SPIN 0.005 /* seconds: those that a launcher started together join in many short turns */

struct shardrt_job {
  shardrt_job_info info;
  bool has_joined;    /* else opening it failed, and its processes can only be told so */
  char why[COMM_WHY]; /* the beginning of the message that the last call failed with; "": it did not */
  bool is_lost;       /* `why` stays, whatever comes */
  bool is_over;       /* all processes failed alike, and nobody waits for this one */
  bool has_devices;   /* the process's platform is open for it */
  bool are_ours;      /* the other processes end with this one, where it aborts the job */
  struct collective collective;
  struct job_part moves;
  int32_t *order; /* in which meshes take the devices; NULL: 0, 1, 2, … */
  int32_t *hosts; /* as shardrt_job_hosts gives them */
  int watched;    /* JOB_REPORT, JOB_METRICS */
  char notice[sizeof((struct accelerator_finding *)0)->notice]; /* of the platform; "": nothing, or it was told */
  bool is_told;
  struct last_say last; /* what shardrt_job_abort does beside its message */
};

void shardrt_options_init(shardrt_options *options) {
  *options = (shardrt_options){.check = SHARDRT_CHECK_SAMPLE, .timeout = 300, .size = 1};
}

/* What must be the same in every process for it to be one job. */
struct job_settings {
  int32_t devices_per_process;
  int8_t check;
  int8_t tells_stop;
  int16_t watched; /* which may differ, as may the host: JOB_REPORT, JOB_METRICS */
  char platform[16];
  uint64_t host;
};
_Static_assert(sizeof(struct job_settings) <= COLLECTIVE_INLINE, "few processes give it as they meet");

struct process_host {
  uint64_t host;
  int32_t process;
};

static int compare_hosts(const void *a, const void *b) {
  const struct process_host *x = a, *y = b;
  if (x->host != y->host) return x->host < y->host ? -1 : 1;
  return (x->process > y->process) - (x->process < y->process);
}

static int find_hosts(shardrt_job *job, const struct job_settings *all) {
  const int32_t count = job->info.process_count;
  int32_t p = 1;
  while (p < count && all[p].host == all[0].host) p++;
  if (p == count || accelerator_get() != NULL) return SHARDRT_OK;
  struct process_host *sorted = alloc_array((size_t)count, sizeof *sorted);
  job->hosts = alloc_array((size_t)count, sizeof *job->hosts);
  if (sorted == NULL || job->hosts == NULL) {
    alloc_free(sorted);
    return ALLOC_FAILED;
  }
  for (p = 0; p < count; p++) sorted[p] = (struct process_host){.host = all[p].host, .process = p};
  qsort(sorted, (size_t)count, sizeof *sorted, compare_hosts);
  for (int32_t i = 0, first = 0; i < count; i++) {
    if (sorted[i].host != sorted[first].host) first = i;
    job->hosts[sorted[i].process] = sorted[first].process;
  }
  alloc_free(sorted);
  return SHARDRT_OK;
}

static int watched_by(const shardrt_options *o) {
  const bool reports = o->report != NULL && o->report[0] != '\0',
             measures = o->metrics != NULL && o->metrics[0] != '\0';
  return (reports ? JOB_REPORT : 0) | (measures ? JOB_METRICS : 0);
}

/* Process 0 writes the report; metrics are each process's own. */
static int watched_of_all(const struct job_settings *all, int32_t count) {
  int watched = all[0].watched & JOB_REPORT;
  for (int32_t p = 0; p < count; p++) watched |= all[p].watched & JOB_METRICS;
  return watched;
}

static int agree_on_settings(shardrt_job *job, bool tells_stop) {
  static const char *const checks[] = {"off", "sample", "all"};
  struct job_settings mine = {.devices_per_process = job->info.devices_per_process,
                              .check = (int8_t)job->info.check,
                              .tells_stop = tells_stop,
                              .watched = (int16_t)job->watched,
                              .host = machine_host()};
  memcpy(mine.platform, job->info.platform, sizeof mine.platform);
  struct job_settings *all = alloc_zeros((size_t)job->info.process_count, sizeof *all);
  if (all == NULL) return ALLOC_FAILED;
  int code = collective_gather(&job->collective, "the start of the job", &mine, sizeof mine, all);
  for (int32_t p = 1; code == SHARDRT_OK && p < job->info.process_count; p++) {
    if (strcmp(all[p].platform, all[0].platform) != 0)
      code = error_set(SHARDRT_EMISMATCH,
                       "process 0 has devices of platform %s, process %d of %s; it must be the same in all: %s host "
                       "asks for the host's everywhere",
                       all[0].platform, p, all[p].platform, error_words("--platform", "platform"));
    else if (all[p].devices_per_process != all[0].devices_per_process)
      code = error_set(SHARDRT_EMISMATCH,
                       "process 0 has %d devices, process %d has %d; every process must be started with the same %s",
                       all[0].devices_per_process, p, all[p].devices_per_process, error_words("--devices", "devices"));
    else if (all[p].check != all[0].check)
      code = error_set(SHARDRT_EMISMATCH, "process 0 runs with %s %s, process %d with %s; it must be the same in all",
                       error_words("--check", "check"), checks[all[0].check], p, checks[all[p].check]);
    else if (all[p].tells_stop != all[0].tells_stop)
      code =
          error_set(SHARDRT_EMISMATCH,
                    "process %d wants to be told of an orderly end (tells_stop, stop_signals), process %d does not; it "
                    "must be the same in all",
                    all[0].tells_stop ? 0 : p, all[0].tells_stop ? p : 0);
  }
  if (code == SHARDRT_OK) code = find_hosts(job, all);
  if (code == SHARDRT_OK) job->watched = watched_of_all(all, job->info.process_count);
  alloc_free(all);
  return code;
}

/* Which of the job's processes that may use the same GPUs this one is, in order of their indices. */
static int find_neighbours(struct collective *m, uint64_t which, struct accelerator_wanted *wanted) {
  uint64_t *all = alloc_array((size_t)m->count, sizeof *all);
  if (all == NULL) return ALLOC_FAILED;
  int code = collective_gather(m, "which processes have the same GPUs", &which, sizeof which, all);
  wanted->local_rank = wanted->local_size = 0;
  for (int32_t p = 0; code == SHARDRT_OK && p < m->count; p++) {
    if (all[p] != which) continue;
    if (p < m->index) wanted->local_rank++;
    wanted->local_size++;
  }
  alloc_free(all);
  return code;
}

/* The devices of this process. A planned job has none: the host stands for them. */
static int open_platform(shardrt_job *job, const char *name) {
  shardrt_job_info *info = &job->info;
  const char *opened = "host";
  if (info->planning) {
    if (info->devices_per_process == 0) info->devices_per_process = 1;
  } else {
    struct accelerator_wanted wanted = {
        .devices = info->devices_per_process, .process = info->process_index, .local_size = 1};
    struct accelerator_finding finding;
    int code = accelerator_find(name, &finding);
    if (code == SHARDRT_OK && job->collective.count > 1)
      code = find_neighbours(&job->collective, finding.which, &wanted);
    if (code == SHARDRT_OK) code = accelerator_open(finding.found, &wanted, &info->devices_per_process);
    if (code < 0) return code;
    job->has_devices = true;
    memcpy(job->notice, finding.notice, sizeof job->notice);
    opened = accelerator_name();
  }
  snprintf(info->platform, sizeof info->platform, "%s", opened);
  return SHARDRT_OK;
}

static int check_options(const shardrt_options *o) {
  if (o->devices < 0) return error_set(SHARDRT_EINVAL, "a process needs at least 1 device, not %d", o->devices);
  if (o->check < SHARDRT_CHECK_OFF || o->check > SHARDRT_CHECK_ALL)
    return error_set(SHARDRT_EINVAL, "%d is no SHARDRT_CHECK_ value", o->check);
  if (o->transport < SHARDRT_TRANSPORT_AUTO || o->transport > SHARDRT_TRANSPORT_CALLBACKS)
    return error_set(SHARDRT_EINVAL, "%d is no SHARDRT_TRANSPORT_ value", o->transport);
  const shardrt_transport *given = o->callbacks;
  const bool has_callbacks = o->transport == SHARDRT_TRANSPORT_CALLBACKS && !o->planning;
  if (has_callbacks && (given == NULL || given->allgather_start == NULL || given->allgather_test == NULL))
    return error_set(SHARDRT_EINVAL, "SHARDRT_TRANSPORT_CALLBACKS needs callbacks: allgather_start and allgather_test");
  if (!(o->timeout > 0))
    return error_set(SHARDRT_EINVAL, "the timeout must be greater than 0 seconds, not %g", o->timeout);
  if ((o->planning || has_callbacks) && (o->size < 1 || o->rank < 0 || o->rank >= o->size))
    return error_set(SHARDRT_EINVAL, "cannot %s process %d of %d", o->planning ? "plan as" : "be", o->rank, o->size);
  enum accelerator_links_wish wish; /* asked again where links are made; a wrong word is to be said at once */
  return accelerator_links_wish(&wish);
}

/* A process alone does not even load MPI. */
static int choose_transport(const shardrt_options *o, struct lone_process_finding *looked,
                            const struct comm_transport **out) {
  *out = o->transport == SHARDRT_TRANSPORT_CALLBACKS && !o->planning ? &comm_callbacks : &comm_alone;
  if (o->planning || o->transport == SHARDRT_TRANSPORT_ALONE || *out == &comm_callbacks) return SHARDRT_OK;
  const bool is_asked = o->transport == SHARDRT_TRANSPORT_MPI || o->mpi_comm != NULL;
  const bool is_sought = is_asked || lone_process_has_launcher() || mpi_choice_has_begun();
  return is_sought ? mpi_choice(o, looked, out) : SHARDRT_OK;
}

/* How many processes are on this host, where the transport does not know. */
static int count_here(struct collective *m, int32_t *here) {
  const uint64_t host = machine_host();
  uint64_t *all = alloc_array((size_t)m->count, sizeof *all);
  if (all == NULL) return ALLOC_FAILED;
  int code = collective_gather(m, "which processes share a host", &host, sizeof host, all);
  for (int32_t p = 0; code == SHARDRT_OK && p < m->count; p++) *here += all[p] == host;
  alloc_free(all);
  return code;
}

/* Waits until all processes of the job have come. */
static int open_transport(const struct comm_transport *transport, const shardrt_options *o, struct comm_place *place,
                          struct comm_endpoint **endpoint) {
  struct patience p = patience_begin(JOIN_SPIN);
  for (;; patience_give_way(&p)) {
    if (time_slice_is_cancelled()) return report_abandoned("joining the job");
    bool is_open = false;
    const int code = transport->open(o, place, endpoint, &is_open);
    if (code < 0 || is_open) return code;
    if (p.quiet >= o->timeout) return transport->report_absent(o);
    patience_rest(&p);
  }
}

/* Finds the other processes. Under planning they do not exist, so this one is alone, whatever index it plays. */
static int find_others(shardrt_job *job, const shardrt_options *o) {
  const bool is_asked = !o->planning && o->transport == SHARDRT_TRANSPORT_AUTO && o->mpi_comm == NULL;
  struct lone_process_finding looked;
  lone_process_look(&looked);
  const struct comm_transport *transport;
  struct comm_place place = {.count = 0};
  struct comm_endpoint *endpoint = NULL;
  int code = choose_transport(o, &looked, &transport);
  if (code == SHARDRT_OK) code = open_transport(transport, o, &place, &endpoint);
  if (code < 0) return code;
  job->are_ours = place.are_ours;
  if (is_asked && place.count == 1) code = lone_process_check(&looked);
  if (code == SHARDRT_OK)
    code = collective_open(&job->collective, transport, endpoint, place.index, place.count, o->timeout);
  if (code < 0) {
    transport->abandon(endpoint, NULL);
    return code;
  }
  if (place.here == 0) code = count_here(&job->collective, &place.here);
  if (code < 0) {
    collective_abandon(&job->collective, shardrt_error_message());
    return code;
  }
  if (transport != &comm_alone) machine_share(place.here, launcher_pid());
  if (place.is_bound_by_default) machine_widen();
  job->info.process_index = o->planning ? o->rank : place.index;
  job->info.process_count = o->planning ? o->size : place.count;
  return code;
}

/* A call that takes the job has ended. Once the job is broken all of them fail: the first says why. One that was
 * cancelled says nothing: the job is being abandoned. */
static int note_end(shardrt_job *job, int code) {
  if (time_slice_is_cancelled()) return code;
  if (!job->is_lost) snprintf(job->why, sizeof job->why, "%s", code < 0 ? shardrt_error_message() : "");
  job->is_lost = job->collective.broken;
  return code;
}

int shardrt_job_open(const shardrt_options *options, shardrt_job **out) {
  *out = NULL;
  int code = check_options(options);
  if (code == SHARDRT_OK) code = machine_check_threads();
  if (code < 0) return code;
  shardrt_job *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->last.erase = "";
  made->info = (shardrt_job_info){.devices_per_process = options->devices,
                                  .check = options->check,
                                  .planning = options->planning != 0,
                                  .timeout = options->timeout};
  code = find_others(made, options);
  if (code < 0) {
    alloc_free(made);
    return code;
  }
  made->watched = watched_by(options);
  code = open_platform(made, options->platform);
  if (code == SHARDRT_OK && made->collective.count > 1) code = agree_on_settings(made, options->tells_stop != 0);
  made->is_over = code == SHARDRT_EMISMATCH;
  if (code == SHARDRT_OK && made->has_devices && accelerator_get() != NULL)
    code = device_order_settle(&made->collective, made->info.devices_per_process, &made->order);
  made->has_joined = code == SHARDRT_OK;
  note_end(made, code);
  *out = made;
  return code;
}

static void close_moves(shardrt_job *job, bool is_abandoned) {
  if (job->moves.close != NULL) job->moves.close(job->moves.data, is_abandoned);
  job->moves.close = NULL;
}

/* Gives back all but what the processes have together. */
static void job_clear(shardrt_job *job, bool is_abandoned) {
  close_moves(job, is_abandoned);
  alloc_free(job->order);
  alloc_free(job->hosts);
  if (job->has_devices) accelerator_close();
  alloc_free(job);
}

int shardrt_job_close(shardrt_job *job) {
  collective_at(&job->collective, NULL);
  int code = job_join(job, error_words("the end of the recipe", "the end of the job"), SHARDRT_OK, NULL, 0, NULL);
  job->is_over = code < 0 && collective_is_over(&job->collective);
  if (code < 0) return code;
  const struct comm_transport *transport = job->collective.transport;
  struct comm_endpoint *endpoint = job->collective.endpoint;
  collective_close(&job->collective); /* from here on the job has no transport */
  close_moves(job, false);
  code = transport->close(endpoint);
  if (code == SHARDRT_OK) job_clear(job, false);
  return code;
}

void job_abandon_because(shardrt_job *job, const char *why) {
  if (job == NULL) return;
  char message[4096]; /* the caller's; what follows may set others */
  snprintf(message, sizeof message, "%s", shardrt_error_message());
  if (job->collective.transport != NULL) {
    if (why == NULL) why = job->why;
    collective_abandon(&job->collective, job->is_over ? NULL : why);
  }
  job_clear(job, true);
  error_set(SHARDRT_OK, "%s", message);
}

void job_say_why(shardrt_job *job, const char *why) {
  if (job->collective.transport != NULL && !job->is_over)
    collective_say_why(&job->collective, why != NULL ? why : job->why);
}

void shardrt_job_abandon(shardrt_job *job) {
  job_abandon_because(job, NULL);
}

void job_after(shardrt_job *job, const char *call, int code) {
  note_end(job, code);
  if (!time_slice_is_cancelled()) collective_after(&job->collective, call);
}

void shardrt_job_abort(shardrt_job *job, int status, const char *message) {
  if (job != NULL && job->collective.transport != NULL) {
    struct collective *m = &job->collective;
    struct last_say say = job->last;
    say.message = message;
    abort_job_say(&m->notes, &say);
    if (!job->are_ours) collective_farewell(m, message);
    m->transport->kill(m->endpoint, status);
  }
  /* In no job, or in one that has no transport any more. */
  fflush(NULL);
  if (message[0] != '\0') fprintf(stderr, "shardrt: %s\n", message);
  exit(status);
}

const shardrt_job_info *shardrt_job_info_get(const shardrt_job *job) {
  return &job->info;
}

const int32_t *shardrt_job_order(const shardrt_job *job) {
  return job->order;
}

const int32_t *shardrt_job_hosts(const shardrt_job *job) {
  return job == NULL ? NULL : job->hosts;
}

void shardrt_job_line(shardrt_job *job) {
  job->last.erase = "\r\33[K";
}

void job_at_abort(shardrt_job *job, void (*act)(void *context), void *context) {
  job->last.before_end = act;
  job->last.context = context;
}

void shardrt_job_at(shardrt_job *job, const char *where) {
  collective_at(&job->collective, where);
}

void shardrt_job_step(shardrt_job *job, const char *what) {
  if (job != NULL) collective_step(&job->collective, what);
}

/* Whether processes can meet in it; `own` is what this one failed with before. */
static int check_joined(const shardrt_job *job, const char *what, int own) {
  if (own < 0 && (job == NULL || job_is_planned(job))) return own;
  if (job == NULL) return error_set(SHARDRT_EINVAL, "%s: there is no job", what);
  return job->has_joined ? SHARDRT_OK : error_set(SHARDRT_EINVAL, "%s: the job could not be joined", what);
}

int job_join(shardrt_job *job, const char *what, int own, const void *mine, size_t bytes, void *all) {
  const int code = check_joined(job, what, own);
  if (code < 0) return code;
  if (!job->info.planning) return note_end(job, collective_join(&job->collective, what, own, mine, bytes, all));
  for (int32_t p = 0; p < job->info.process_count && bytes > 0; p++)
    memcpy((char *)all + (size_t)p * bytes, mine, bytes);
  return SHARDRT_OK;
}

int job_fold(shardrt_job *job, const char *what, int own, uint64_t *numbers, size_t count) {
  const int code = check_joined(job, what, own);
  if (code < 0 || job->info.planning) return code;
  return note_end(job, collective_fold(&job->collective, what, own, numbers, count));
}

int job_compare(shardrt_job *job, const char *what, int own, uint64_t number, bool *others, bool *differs) {
  const int code = check_joined(job, what, own);
  if (code < 0 || job->info.planning) return code;
  return note_end(job, collective_compare(&job->collective, what, own, number, others, differs));
}

int job_watched(const shardrt_job *job) {
  return job->watched;
}

bool job_is_planned(const shardrt_job *job) {
  return job != NULL && job->info.planning;
}

bool job_is_alone(const shardrt_job *job) {
  return job == NULL || job->info.planning || job->info.process_count == 1;
}

int shardrt_allgather(shardrt_job *job, const char *what, const void *mine, size_t bytes, void *all) {
  return job_join(job, what, SHARDRT_OK, mine, bytes, all);
}

int shardrt_barrier(shardrt_job *job, const char *what) {
  return job_join(job, what, SHARDRT_OK, NULL, 0, NULL);
}

struct collective *job_collective(shardrt_job *job) {
  return &job->collective;
}

struct job_part *job_moves(shardrt_job *job) {
  return &job->moves;
}

const char *shardrt_job_notice(shardrt_job *job) {
  if (job->is_told || job->notice[0] == '\0')
    return job->moves.notice == NULL ? NULL : job->moves.notice(job->moves.data);
  job->is_told = true;
  return job->notice;
}

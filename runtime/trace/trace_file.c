/* trace_file.c - the file of --trace: made when the job ends, whole or not at all. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "comm/gather_to_first.h"
#include "comm/job.h"
#include "storage/write/newfile.h"
#include "trace/trace_text.h"

/* What the end needs is taken at the start. */
struct shardrt_trace {
  shardrt_job *job;
  const shardrt_job_info *info;
  char *path;
  struct gather_to_first_room *room;
  struct trace_text text;
  struct newfile file; /* process 0's */
  int code;            /* of what was written to it so far */
  char message[512];
};

static int prepare_trace(shardrt_trace *self, const char *path) {
  self->room = alloc_zeros(1, sizeof *self->room);
  if (self->room == NULL) return ALLOC_FAILED;
  self->text.events = alloc_array(TRACE_RING, sizeof *self->text.events);
  if (self->text.events == NULL) return ALLOC_FAILED;
  self->path = alloc_text("%s", path);
  return self->path != NULL ? trace_open() : ALLOC_FAILED;
}

static void trace_free(shardrt_trace *self) {
  alloc_free(self->path);
  alloc_free(self->text.events);
  alloc_free(self->room);
  alloc_free(self);
}

/* Keeps the first failure for put_tail. */
static bool note_failure(shardrt_trace *self, int code) {
  if (code < 0 && self->code == SHARDRT_OK) {
    self->code = code;
    snprintf(self->message, sizeof self->message, "%s", shardrt_error_message());
  }
  return self->code == SHARDRT_OK;
}

static bool put_text(shardrt_trace *self, const char *text, size_t bytes) {
  return self->code == SHARDRT_OK && note_failure(self, newfile_write(&self->file, text, bytes));
}

/* Opens the file; `ended` is how the job did. */
static void put_head(shardrt_trace *self, const char *path, const char *ended) {
  const shardrt_job_info *info = self->info;
  char head[512];
  int length = snprintf(head, sizeof head,
                        "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"shardrt\":\"%s\",\"processes\":%" PRId32
                        ",\"devices per process\":%" PRId32 ",\"ended\":\"%s\"},\n\"traceEvents\":[\n"
                        "{\"name\":\"start\",\"ph\":\"i\",\"ts\":0,\"s\":\"g\",\"pid\":%" PRId32 ",\"tid\":1}",
                        shardrt_version(), info->process_count, info->devices_per_process, ended, info->process_index);
  self->file = (struct newfile){.fd = -1};
  if (note_failure(self, newfile_open(path, &self->file))) put_text(self, head, (size_t)length);
}

/* Closes it, whole or not at all; passes on what failed first. */
static int put_tail(shardrt_trace *self) {
  static const char tail[] = "\n]}\n";
  if (put_text(self, tail, sizeof tail - 1)) return newfile_commit(&self->file);
  newfile_drop(&self->file);
  return error_set(self->code, "%s", self->message);
}

/* ---- a job that fails ------------------------------------------------------------------------------------------- */

/* "trace.2.json" of "trace.json"; the caller's. */
static char *path_of(const char *path, int32_t process) {
  const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
  const char *name = slash != NULL ? slash + 1 : path;
  const char *end = dot != NULL && dot > name ? dot : path + strlen(path);
  return alloc_text("%.*s.%" PRId32 "%s", (int)(end - path), path, process, end);
}

/* Nobody comes to write together any more: this process writes what it has. */
static void write_alone(void *context) {
  shardrt_trace *self = context;
  const shardrt_job_info *info = self->info;
  trace_stop();
  char *path = info->process_count > 1 ? path_of(self->path, info->process_index) : alloc_text("%s", self->path);
  if (path == NULL) return;
  put_head(self, path, "by an error");
  size_t bytes = 0;
  do {
    bytes = trace_text_give(&self->text, self->room->piece, sizeof self->room->piece);
  } while (bytes > 0 && put_text(self, self->room->piece, bytes));
  put_tail(self);
  alloc_free(path);
}

/* ---- the job ---------------------------------------------------------------------------------------------------- */

int shardrt_trace_start(shardrt_job *job, const char *path, shardrt_trace **out) {
  if (job == NULL) return error_set(SHARDRT_EINVAL, "shardrt_trace_start: there is no job");
  if (trace_has_started())
    return error_set(SHARDRT_EINVAL, "shardrt_trace_start: a trace was recorded in this process");
  shardrt_trace *self = alloc_zeros(1, sizeof *self);
  const shardrt_job_info *info = shardrt_job_info_get(job);
  int code = self == NULL ? ALLOC_FAILED : SHARDRT_OK;
  if (code == SHARDRT_OK && info->process_index == 0) code = shardrt_file_check(path); /* it writes for all */
  if (code == SHARDRT_OK) code = prepare_trace(self, path);
  code = shardrt_check_outcome(job, "the start of the trace", code);
  if (code == SHARDRT_OK) code = shardrt_barrier(job, "the start of the trace");
  if (code < 0 || self == NULL) {
    trace_thread_end();
    if (self != NULL) trace_free(self);
    return code;
  }
  self->job = job;
  self->info = info;
  self->text.process = info->process_index;
  self->text.origin = trace_start();
  job_at_abort(job, write_alone, self);
  *out = self;
  return SHARDRT_OK;
}

static size_t give_piece(void *context, char *piece) {
  shardrt_trace *self = context;
  return trace_text_give(&self->text, piece, GATHER_TO_FIRST_PIECE);
}

static void take_piece(void *context, const char *piece, size_t bytes) {
  put_text(context, piece, bytes);
}

/* What makes a clock: processes with the same one can compare times. */
struct clock_id {
  uint64_t boot;
  int64_t origin;
};

static uint64_t boot_of_host(void) {
  char id[64] = "";
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (file == NULL) return 0;
  const bool known = fgets(id, sizeof id, file) != NULL;
  fclose(file);
  return known ? hash_text(0, id) : 0;
}

/* Processes of one host count from the first of their origins, which are those of other hosts, too, but for what the
 * barrier took to let go. */
static int agree_on_origin(shardrt_trace *self) {
  const int32_t processes = self->info->process_count;
  struct clock_id id = {.boot = boot_of_host(), .origin = self->text.origin};
  struct clock_id *all = alloc_zeros((size_t)processes, sizeof *all);
  const int code =
      job_join(self->job, "the end of the trace", all == NULL ? ALLOC_FAILED : SHARDRT_OK, &id, sizeof id, all);
  for (int32_t p = 0; code == SHARDRT_OK && all != NULL && id.boot != 0 && p < processes; p++)
    if (all[p].boot == id.boot && all[p].origin < self->text.origin) self->text.origin = all[p].origin;
  alloc_free(all);
  return code;
}

/* Every process is at the end. */
static int write_together(shardrt_trace *self) {
  const bool writes = self->info->process_index == 0;
  if (writes) put_head(self, self->path, "in order");
  const struct gather_to_first c = {.give = give_piece, .take = take_piece, .context = self, .room = self->room};
  int code = gather_to_first_run(self->job, &c, "the end of the trace");
  if (code < 0) { /* the room is lost */
    if (writes) newfile_drop(&self->file);
    self->room = NULL;
    return code;
  }
  if (writes) code = put_tail(self);
  return shardrt_check_outcome(self->job, "the end of the trace", code);
}

int shardrt_trace_finish(shardrt_trace *self) {
  if (self == NULL) return SHARDRT_OK;
  trace_stop();
  int code = agree_on_origin(self);
  if (code < 0) return code; /* the job ends by an error then, at which this is written */
  job_at_abort(self->job, NULL, NULL);
  code = write_together(self);
  trace_free(self);
  return code;
}

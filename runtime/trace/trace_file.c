/* trace_file.c - the file of --trace: made when the job ends, whole or not at all. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "comm/collect.h"
#include "comm/job.h"
#include "storage/write/newfile.h"
#include "trace/trace_text.h"

/* What the end needs is taken at the start. */
static struct {
  char *path; /* NULL: nothing is recorded, or it is written already */
  collect_room *room;
  struct trace_text text;
  struct newfile file; /* process 0's */
  int code;            /* of what was written to it so far */
  char message[512];
} self;

/* Process 0 writes for all. */
static int check_path(const char *path) {
  struct stat info;
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
    return error_set(SHARDRT_EIO, "%s: cannot be written: it is a folder", path);
  struct newfile file;
  int code = newfile_open(path, &file);
  if (code == SHARDRT_OK) newfile_drop(&file);
  return code;
}

static int prepare_trace(const char *path) {
  self.room = alloc_zeros(1, sizeof *self.room);
  if (self.room == NULL) return ALLOC_FAILED;
  self.text.events = alloc_array(TRACE_RING, sizeof *self.text.events);
  if (self.text.events == NULL) return ALLOC_FAILED;
  self.path = alloc_text("%s", path);
  return self.path != NULL ? trace_open() : ALLOC_FAILED;
}

static void forget(void) {
  alloc_free(self.path);
  alloc_free(self.text.events);
  alloc_free(self.room);
  self.path = NULL;
  self.text.events = NULL;
  self.room = NULL;
}

/* Keeps the first failure for put_tail. */
static bool note_failure(int code) {
  if (code < 0 && self.code == SHARDRT_OK) {
    self.code = code;
    snprintf(self.message, sizeof self.message, "%s", shardrt_error_message());
  }
  return self.code == SHARDRT_OK;
}

static bool put_text(const char *text, size_t bytes) {
  return self.code == SHARDRT_OK && note_failure(newfile_write(&self.file, text, bytes));
}

/* Opens the file; `ended` is how the job did. */
static void put_head(const char *path, const char *ended) {
  const shardrt_job *job = shardrt_job_get();
  char head[512];
  int length = snprintf(head, sizeof head,
                        "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"shardrt\":\"%s\",\"processes\":%" PRId32
                        ",\"devices per process\":%" PRId32 ",\"ended\":\"%s\"},\n\"traceEvents\":[\n"
                        "{\"name\":\"start\",\"ph\":\"i\",\"ts\":0,\"s\":\"g\",\"pid\":%" PRId32 ",\"tid\":1}",
                        shardrt_version(), job->process_count, job->devices_per_process, ended, job->process_index);
  self.file = (struct newfile){.fd = -1};
  if (note_failure(newfile_open(path, &self.file))) put_text(head, (size_t)length);
}

/* Closes it, whole or not at all; passes on what failed first. */
static int put_tail(void) {
  static const char tail[] = "\n]}\n";
  if (put_text(tail, sizeof tail - 1)) return newfile_commit(&self.file);
  newfile_drop(&self.file);
  return error_set(self.code, "%s", self.message);
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
static void write_alone(void) {
  if (self.path == NULL) return;
  const shardrt_job *job = shardrt_job_get();
  trace_stop();
  char *path = job->process_count > 1 ? path_of(self.path, job->process_index) : alloc_text("%s", self.path);
  self.path = NULL;
  if (path == NULL) return;
  put_head(path, "by an error");
  size_t bytes = 0;
  do {
    bytes = trace_text_give(&self.text, self.room->piece, sizeof self.room->piece);
  } while (bytes > 0 && put_text(self.room->piece, bytes));
  put_tail();
  alloc_free(path);
}

/* ---- the job ---------------------------------------------------------------------------------------------------- */

int shardrt_trace_start(const char *path) {
  const shardrt_job *job = shardrt_job_get();
  if (job == NULL) return error_set(SHARDRT_EINVAL, "shardrt_trace_start: shardrt_init was not called");
  if (self.path != NULL) return error_set(SHARDRT_EINVAL, "shardrt_trace_start: a trace is being recorded already");
  int code = job->process_index == 0 ? check_path(path) : SHARDRT_OK;
  if (code == SHARDRT_OK) code = prepare_trace(path);
  code = shardrt_check_outcome("the start of the trace", code);
  if (code == SHARDRT_OK) code = shardrt_barrier("the start of the trace");
  if (code < 0) {
    trace_thread_end();
    forget();
    return code;
  }
  self.text.process = job->process_index;
  self.text.origin = trace_start();
  job_at_abort(write_alone);
  return SHARDRT_OK;
}

static size_t give_piece(void *context, char *piece) {
  (void)context;
  return trace_text_give(&self.text, piece, COLLECT_PIECE);
}

static void take_piece(void *context, const char *piece, size_t bytes) {
  (void)context;
  put_text(piece, bytes);
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
static int agree_on_origin(void) {
  const shardrt_job *job = shardrt_job_get();
  struct clock_id id = {.boot = boot_of_host(), .origin = self.text.origin};
  struct clock_id *all = alloc_zeros((size_t)job->process_count, sizeof *all);
  const int code = job_join("the end of the trace", all == NULL ? ALLOC_FAILED : SHARDRT_OK, &id, sizeof id, all);
  for (int32_t p = 0; code == SHARDRT_OK && all != NULL && id.boot != 0 && p < job->process_count; p++)
    if (all[p].boot == id.boot && all[p].origin < self.text.origin) self.text.origin = all[p].origin;
  alloc_free(all);
  return code;
}

int shardrt_trace_finish(void) {
  if (self.path == NULL) return SHARDRT_OK;
  trace_stop();
  int code = agree_on_origin();
  if (code < 0) return code; /* the job ends by an error then */
  const bool writes = shardrt_job_get()->process_index == 0;
  if (writes) put_head(self.path, "in order");
  const collect c = {.give = give_piece, .take = take_piece, .room = self.room};
  code = collect_run(&c, "the end of the trace");
  if (code < 0) { /* the room is lost */
    if (writes) newfile_drop(&self.file);
    self.path = NULL;
    return code;
  }
  if (writes) code = put_tail();
  forget();
  return shardrt_check_outcome("the end of the trace", code);
}

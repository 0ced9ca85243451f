#include "library/job_watch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"

enum { MOST_RECIPES = 16 };      /* that are watched, of those that a job opens one after another */
static const double period = 10; /* seconds from one writing of metrics to the next, at least */

static struct {
  struct library told; /* has no state where nothing is watched */
  bool writes_metrics; /* this process does */
  double due;          /* when they are to be written again */
  int opened;          /* recipes */
} watched;

/* ---- the job ---------------------------------------------------------------------------------------------------- */

static const char *named(const char *given, const char *variable) {
  return given != NULL ? given : getenv(variable); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
}

void job_watch_options(shardrt_options *options) {
  options->report = named(options->report, "SHARDRT_REPORT");
  options->metrics = named(options->metrics, "SHARDRT_METRICS");
}

/* The program may change its folder. *out is the caller's; NULL where there is no path. */
static int make_absolute(const char *path, char **out) {
  char folder[PATH_MAX] = "";
  *out = NULL;
  if (path == NULL || path[0] == '\0') return SHARDRT_OK;
  const bool is_relative = path[0] != '/' && getcwd(folder, sizeof folder) != NULL;
  *out = alloc_text("%s%s%s", folder, is_relative ? "/" : "", path);
  return *out == NULL ? ALLOC_FAILED : SHARDRT_OK;
}

/* All processes meet in the call. One that has failed meanwhile abandons the job, of which the others hear there. */
static int start(const char *function, const char *path) {
  char *absolute;
  int code = make_absolute(path, &absolute);
  const struct library_arguments given = {.text = absolute};
  if (code == SHARDRT_OK) code = library_call(&watched.told, function, &given, NULL);
  alloc_free(absolute);
  return code;
}

int job_watch_begin(shardrt_job *job, const shardrt_options *options) {
  const int wanted = job_watched(job);
  watched.opened = 0;
  watched.writes_metrics = options->metrics != NULL && options->metrics[0] != '\0';
  watched.due = shardrt_clock() + period;
  if (wanted == 0) return SHARDRT_OK;
  const struct library_arguments joined = {.pointer = job};
  int code = library_new("shardrt.program.job_watch", NULL, 0, NULL, &watched.told);
  if (code == SHARDRT_OK) code = library_call(&watched.told, "job", &joined, NULL);
  if (code == SHARDRT_OK && (wanted & JOB_REPORT)) code = start("report", options->report);
  if (code == SHARDRT_OK && (wanted & JOB_METRICS)) code = start("metrics", options->metrics);
  if (code < 0) job_watch_end();
  return code;
}

void job_watch_end(void) {
  library_free(&watched.told);
}

/* ---- its recipes ------------------------------------------------------------------------------------------------ */

int job_watch_open(const char *recipe) {
  if (watched.told.L == NULL) return 0;
  const bool is_kept = watched.opened < MOST_RECIPES;
  const struct library_arguments given = {.text = is_kept ? recipe : NULL};
  if (library_call(&watched.told, is_kept ? "open" : "leave_out", &given, NULL) < 0 || !is_kept) return 0;
  return ++watched.opened;
}

/* What fails here, as where no memory is left, is missing on the page. */
static void tell(int number, const struct library *recipe, bool for_page) {
  const struct library_arguments asked = {.number = for_page, .has_number = true};
  struct library_answer answer = {0};
  if (library_call(recipe, "watched", &asked, &answer) < 0) return;
  const struct library_arguments given = {.number = number, .has_number = true, .text = answer.text};
  library_call(&watched.told, "keep", &given, NULL);
  alloc_free(answer.text);
}

void job_watch_step(int number, const struct library *recipe, int loader, bool is_direct) {
  if (number == 0 || watched.told.L == NULL) return;
  const struct library_arguments given = {.number = loader, .has_number = true};
  if (is_direct) library_call(recipe, "step", &given, NULL);
  if (!watched.writes_metrics || shardrt_clock() < watched.due) return;
  watched.due = shardrt_clock() + period;
  tell(number, recipe, false);
  library_call(&watched.told, "write", NULL, NULL);
}

void job_watch_close(int number, const struct library *recipe) {
  if (number != 0 && watched.told.L != NULL && recipe->functions != 0) tell(number, recipe, true);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

void job_watch_fail(const char *message) {
  if (watched.told.L == NULL) return;
  const struct library_arguments given = {.text = message};
  library_call(&watched.told, "fail", &given, NULL);
}

int job_watch_finish(bool is_stopped) {
  if (watched.told.L == NULL) return SHARDRT_OK;
  const struct library_arguments given = {.number = is_stopped, .has_number = true};
  const int code = library_call(&watched.told, "finish", &given, NULL);
  if (code == SHARDRT_OK) return code;
  char message[4096]; /* what follows may set others */
  snprintf(message, sizeof message, "%s", shardrt_error_message());
  job_watch_fail(message);
  return error_set(code, "%s", message);
}

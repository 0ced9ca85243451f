#include "recipe/membership.h"

#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/job.h"
#include "recipe/sigbus.h"
#include "system/numeric_state.h"

static struct {
  shardrt_job *job; /* NULL: none */
  pthread_t thread; /* that joined it */
  pid_t process;    /* the same, which a fork is not */
  bool has_sigbus;  /* SIGBUS is handled */
  struct membership_guest *guests;
} membership;

static bool is_forked(void) {
  return membership.job != NULL && membership.process != getpid();
}

static int refuse_fork(const char *caller) {
  return error_set(SHARDRT_EINVAL,
                   "%s: this process was forked from the one that joined the job; num_workers=0: shardrt has its own "
                   "threads",
                   caller);
}

int membership_check(const char *caller) {
  if (membership.job == NULL)
    return error_set(SHARDRT_EINVAL, "%s: this process is in no job; shardrt_join comes first", caller);
  if (is_forked()) return refuse_fork(caller);
  if (!pthread_equal(membership.thread, pthread_self()))
    return error_set(SHARDRT_EINVAL, "%s: another thread joined the job; the one that did makes all its calls", caller);
  return SHARDRT_OK;
}

void membership_add(struct membership_guest *guest) {
  guest->next = membership.guests;
  membership.guests = guest;
}

void membership_remove(struct membership_guest *guest) {
  struct membership_guest **place = &membership.guests;
  while (*place != NULL && *place != guest) place = &(*place)->next;
  if (*place != NULL) *place = (*place)->next;
}

int shardrt_join(const shardrt_options *options) {
  NUMERIC_STATE_OF_C;
  if (is_forked()) return refuse_fork("shardrt_join");
  if (membership.job != NULL)
    return error_set(SHARDRT_EINVAL, "shardrt_join: this process is in a job; shardrt_leave comes first");
  if (options->planning)
    return error_set(SHARDRT_EINVAL, "shardrt_join: a job that is joined runs; `shardrt plan recipe.lua` plans one");
  shardrt_job *job = NULL;
  const int code = shardrt_job_open(options, &job);
  if (code < 0) {
    shardrt_job_abandon(job);
    return code;
  }
  membership.job = job;
  membership.thread = pthread_self();
  membership.process = getpid();
  if (options->handle_sigbus && !membership.has_sigbus) sigbus_watch(shardrt_job_info_get(job));
  membership.has_sigbus = membership.has_sigbus || options->handle_sigbus;
  return SHARDRT_OK;
}

static void say_farewell(void) {
  while (membership.guests != NULL) {
    struct membership_guest *guest = membership.guests;
    membership.guests = guest->next;
    guest->leave(guest);
  }
}

int shardrt_leave(void) {
  NUMERIC_STATE_OF_C;
  if (membership.job == NULL) return SHARDRT_OK;
  int code = membership_check("shardrt_leave");
  if (code < 0) return code;
  say_farewell();
  shardrt_job *job = membership.job;
  membership.job = NULL;
  code = shardrt_job_close(job);
  if (code < 0) shardrt_job_abandon(job);
  return code;
}

void shardrt_abandon(void) {
  NUMERIC_STATE_OF_C;
  if (membership_check("shardrt_abandon") < 0) return;
  shardrt_job *job = membership.job;
  job_break(job); /* what rests ends at once */
  say_farewell();
  membership.job = NULL;
  shardrt_job_abandon(job);
}

shardrt_job *shardrt_joined(void) {
  return membership.job;
}

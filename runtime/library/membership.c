#include "library/membership.h"

#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"
#include "library/sigbus.h"
#include "system/numeric_state.h"

struct left_folder {
  char *path;
  struct left_folder *next;
};

/* Any thread may ask whether it is the one; all else is that one's. */
static struct {
  _Atomic(shardrt_job *) job; /* NULL: none */
  _Atomic pthread_t thread;   /* that joined it */
  _Atomic pid_t process;      /* the same, which a fork is not */
  atomic_flag is_joining;     /* some thread is */
  bool has_sigbus;            /* SIGBUS is handled */
  struct membership_guest *guests;
  struct left_folder *folders;
} membership = {.is_joining = ATOMIC_FLAG_INIT};

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

bool membership_is_here(void) {
  return membership.job != NULL && !is_forked() && pthread_equal(membership.thread, pthread_self());
}

void membership_add(struct membership_guest *guest) {
  guest->next = membership.guests;
  membership.guests = guest;
}

bool membership_remove(struct membership_guest *guest) {
  struct membership_guest **place = &membership.guests;
  while (*place != NULL && *place != guest) place = &(*place)->next;
  if (*place == NULL) return false;
  *place = (*place)->next;
  return true;
}

/* ---- folders ---------------------------------------------------------------------------------------------------- */

void membership_remove_later(char *path) {
  if (path == NULL) return;
  struct left_folder *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) { /* then it stays */
    alloc_free(path);
    return;
  }
  *made = (struct left_folder){.path = path, .next = membership.folders};
  membership.folders = made;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)status, (void)type, (void)place;
  remove(path); /* what cannot be removed stays */
  return 0;
}

static void remove_folders(void) {
  while (membership.folders != NULL) {
    struct left_folder *folder = membership.folders;
    membership.folders = folder->next;
    nftw(folder->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    alloc_free(folder->path);
    alloc_free(folder);
  }
}

/* ---- in and out ------------------------------------------------------------------------------------------------- */

static int join(const shardrt_options *options) {
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
  membership.has_sigbus = options->handle_sigbus != 0;
  if (membership.has_sigbus) sigbus_watch(shardrt_job_info_get(job));
  membership.thread = pthread_self();
  membership.process = getpid();
  membership.job = job; /* the last, as other threads look at it first */
  return SHARDRT_OK;
}

int shardrt_join(const shardrt_options *options) {
  NUMERIC_STATE_OF_C;
  if (is_forked()) return refuse_fork("shardrt_join");
  if (atomic_flag_test_and_set(&membership.is_joining))
    return error_set(SHARDRT_EINVAL, "shardrt_join: another thread is joining a job");
  const int code = join(options);
  atomic_flag_clear(&membership.is_joining);
  return code;
}

static void say_farewell(void) {
  while (membership.guests != NULL) {
    struct membership_guest *guest = membership.guests;
    membership.guests = guest->next;
    guest->leave(guest);
  }
}

/* What is left to do when the others need no more of this process. */
static void clear(void) {
  remove_folders();
  if (membership.has_sigbus) sigbus_unwatch();
  membership.job = NULL; /* from here on another thread may join */
}

int shardrt_leave(void) {
  NUMERIC_STATE_OF_C;
  if (membership.job == NULL) return SHARDRT_OK;
  int code = membership_check("shardrt_leave");
  if (code < 0) return code;
  say_farewell();
  shardrt_job *job = membership.job;
  code = shardrt_job_close(job);
  if (code < 0)
    shardrt_job_abandon(job);
  else
    code = shardrt_verify_finish();
  clear();
  return code;
}

void shardrt_abandon_because(const char *why) {
  NUMERIC_STATE_OF_C;
  if (membership_check("shardrt_abandon") < 0) return;
  shardrt_job *job = membership.job;
  job_break(job); /* what rests ends at once */
  say_farewell();
  job_abandon_because(job, why);
  clear();
}

void shardrt_abandon(void) {
  shardrt_abandon_because(NULL);
}

shardrt_job *shardrt_joined(void) {
  return membership.job;
}

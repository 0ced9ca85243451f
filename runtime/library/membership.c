#include "library/membership.h"

#include <assert.h>
#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"
#include "library/job_watch.h"
#include "library/orderly_end.h"
#include "library/sigbus.h"
#include "system/numeric_state.h"
#include "system/time_slice.h"

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
  shardrt_options options;    /* while the job is being joined; the slice's length also afterwards */
  struct {
    struct time_slice *slice;
    const char *_Atomic caller; /* NULL: no call rests */
    int (*call)(void *context);
    void *context;
    int code;
    const char *why; /* the program abandons the job, while the call is cancelled; NULL: it has not said */
  } sliced;
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

/* ---- calls in slices --------------------------------------------------------------------------------------------- */

const char *membership_resting(void) {
  return membership.sliced.caller;
}

static void run_sliced(void *context) {
  (void)context;
  membership.sliced.code = membership.sliced.call(membership.sliced.context);
}

/* Goes on for so many seconds with the call that rests. */
static int go_on(double seconds) {
  if (!time_slice_go(membership.sliced.slice, seconds))
    return error_set(SHARDRT_EAGAIN, "%s has not ended yet; it is called again", membership.sliced.caller);
  time_slice_free(membership.sliced.slice);
  membership.sliced.caller = NULL;
  return membership.sliced.code;
}

int membership_call(const char *caller, int (*call)(void *context), void *context) {
  const double seconds = membership.options.slice;
  if (!(seconds > 0)) return call(context);
  if (membership.sliced.caller == NULL) {
    const int code = time_slice_new(run_sliced, NULL, &membership.sliced.slice);
    if (code < 0 && strcmp(caller, "shardrt_leave") == 0) return call(context); /* whatever happens, it leaves */
    if (code < 0) return code;
    membership.sliced.caller = caller;
    membership.sliced.call = call;
    membership.sliced.context = context;
  }
  assert(strcmp(membership.sliced.caller, caller) == 0);
  return go_on(seconds);
}

/* A call that this thread may go on with. */
static bool is_resting_here(void) {
  return membership.sliced.caller != NULL && pthread_equal(membership.thread, pthread_self()) && !is_forked();
}

/* It gives up what it waits for, and abandons the job where it joins or leaves one. */
static void cancel_resting(const char *why) {
  const bool joins = strcmp(membership.sliced.caller, "shardrt_join") == 0;
  membership.sliced.why = why;
  time_slice_cancel(membership.sliced.slice);
  (void)go_on(INFINITY);
  membership.sliced.why = NULL;
  if (joins) atomic_flag_clear(&membership.is_joining);
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

static int join(void *context) {
  const shardrt_options *options = context;
  if (options->planning)
    return error_set(SHARDRT_EINVAL, "shardrt_join: a job that is joined runs; `shardrt plan recipe.lua` plans one");
  shardrt_job *job = NULL;
  int code = shardrt_job_open(options, &job);
  if (code == SHARDRT_OK) code = job_watch_begin(job, options);
  if (code < 0) {
    job_abandon_because(job, membership.sliced.why);
    return code;
  }
  membership.has_sigbus = options->handle_sigbus != 0;
  if (membership.has_sigbus) sigbus_watch(shardrt_job_info_get(job));
  orderly_end_begin(options->tells_stop != 0);
  membership.process = getpid();
  membership.job = job; /* the last, as other threads look at it first */
  return SHARDRT_OK;
}

int shardrt_join(const shardrt_options *options) {
  NUMERIC_STATE_OF_C;
  if (is_forked()) return refuse_fork("shardrt_join");
  const bool is_new = !atomic_flag_test_and_set(&membership.is_joining);
  if (!is_new && !is_resting_here()) return error_set(SHARDRT_EINVAL, "shardrt_join: another thread is joining a job");
  int code = SHARDRT_OK;
  if (membership.job != NULL)
    code = error_set(SHARDRT_EINVAL, "shardrt_join: this process is in a job; shardrt_leave comes first");
  if (code == SHARDRT_OK && is_new) {
    membership.options = *options;
    job_watch_options(&membership.options);
    membership.thread = pthread_self();
  }
  if (code == SHARDRT_OK) code = membership_call("shardrt_join", join, &membership.options);
  if (code != SHARDRT_EAGAIN) atomic_flag_clear(&membership.is_joining);
  return code;
}

static void say_farewell(bool is_abandoned) {
  while (membership.guests != NULL) {
    struct membership_guest *guest = membership.guests;
    membership.guests = guest->next;
    guest->leave(guest, is_abandoned);
  }
}

/* What is left to do when the others need no more of this process. */
static void clear(void) {
  job_watch_end();
  remove_folders();
  if (membership.has_sigbus) sigbus_unwatch();
  orderly_end_finish();
  membership.job = NULL; /* from here on another thread may join */
}

static int leave(void *context) {
  (void)context;
  say_farewell(false);
  shardrt_job *job = membership.job;
  const int told = job_watch_finish(orderly_end_was_told());
  char message[4096]; /* of that; what follows may set others */
  snprintf(message, sizeof message, "%s", shardrt_error_message());
  int code = shardrt_job_close(job);
  if (code < 0)
    job_abandon_because(job, membership.sliced.why);
  else
    code = shardrt_verify_finish();
  clear();
  return told < 0 ? error_set(told, "%s", message) : code;
}

int shardrt_leave(void) {
  NUMERIC_STATE_OF_C;
  if (membership.job == NULL) return SHARDRT_OK;
  int code = membership_check("shardrt_leave");
  if (code < 0) return code;
  if (is_resting_here() && strcmp(membership.sliced.caller, "shardrt_leave") != 0) (void)go_on(INFINITY);
  return membership_call("shardrt_leave", leave, NULL);
}

void shardrt_abandon_because(const char *why) {
  NUMERIC_STATE_OF_C;
  char message[4096]; /* the caller's; what follows may set others */
  snprintf(message, sizeof message, "%s", shardrt_error_message());
  if (membership_is_here()) job_say_why(membership.job, why); /* its loaders may take long to end */
  if (is_resting_here()) cancel_resting(why);
  if (membership_check("shardrt_abandon") == SHARDRT_OK) {
    shardrt_job *job = membership.job;
    say_farewell(true); /* what rests ends at once */
    job_watch_fail(why != NULL ? why : message[0] != '\0' ? message : "the program abandoned the job");
    job_abandon_because(job, why);
    clear();
  }
  error_set(SHARDRT_OK, "%s", message);
}

void shardrt_abandon(void) {
  shardrt_abandon_because(NULL);
}

shardrt_job *shardrt_joined(void) {
  return membership.job;
}

/* membership.h - the one job that this process is in, for programs of their own. */
#ifndef SHARDRT_LIBRARY_MEMBERSHIP_H
#define SHARDRT_LIBRARY_MEMBERSHIP_H

#include "shardrt.h"

/* Whether `caller` ("shardrt_next") may be called here and now: a job is joined, by this thread of this process. */
int membership_check(const char *caller);

/* The same, without a message. */
bool membership_is_here(void);

/* Makes a call of `caller` that may wait for other processes: in slices, where the job was joined so (options.slice).
 * EAGAIN: it rests, and `caller` goes on with it when it comes here again. */
int membership_call(const char *caller, int (*call)(void *context), void *context);
/* Whose call rests; NULL: none does. */
const char *membership_resting(void);

/* Who is to hear that the job is being left, before it is: closes what belongs to it. */
struct membership_guest {
  void (*leave)(struct membership_guest *guest, bool is_abandoned);
  struct membership_guest *next;
};
/* On the thread that joined. */
void membership_add(struct membership_guest *guest);
bool membership_remove(struct membership_guest *guest); /* false: it was not added, or has left */

/* Removes the folder, with all that is in it, once the job is left; takes the path, of alloc's. NULL is allowed. */
void membership_remove_later(char *path);

#endif

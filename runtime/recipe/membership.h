/* membership.h - the one job that this process is in, for programs of their own. */
#ifndef SHARDRT_RECIPE_MEMBERSHIP_H
#define SHARDRT_RECIPE_MEMBERSHIP_H

#include "shardrt.h"

/* Whether `caller` ("shardrt_next") may be called here and now: a job is joined, by this thread of this process. */
int membership_check(const char *caller);

/* Who is to hear that the job is being left, before it is: closes what belongs to it. */
struct membership_guest {
  void (*leave)(struct membership_guest *guest);
  struct membership_guest *next;
};
void membership_add(struct membership_guest *guest);
void membership_remove(struct membership_guest *guest); /* one that was not added or has left is allowed */

#endif

/* slice.h - a call that is made in slices: it runs on a stack of its own, and where it waits longer than its caller has
 * time, the caller goes on with something else and comes back later.
 *
 * Everything happens on one thread, the one that calls slice_go. What waits asks slice_due between two looks, and calls
 * slice_rest where it says so. Where no slice runs, this is one test of a variable. */
#ifndef SHARDRT_SYSTEM_SLICE_H
#define SHARDRT_SYSTEM_SLICE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct slice;

/* Makes a stack for calls of `run`, as large as a thread's; only what is touched of it takes memory. It is used again
 * from call to call. ENOMEM. */
int slice_new(void (*run)(void *context), void *context, struct slice **out);
/* Between two calls only, never where one rests. NULL is allowed. */
void slice_free(struct slice *slice);
/* Begins a call of `run`, or goes on with the one that rests, and returns when it has ended (true), or when it rests
 * after `seconds` (false; 0 or less: at the first wait). Always on the thread that began the call. A slice may go on
 * with another slice.
 *
 * The call has the floating-point state (rounding, what is masked) of slice_new; the caller's stays as it is. A call
 * that goes on finds its own errno and its own error message again. Masks of signals belong to the thread. */
bool slice_go(struct slice *slice, double seconds);

/* Whether the time of the slice that runs here is over; false where none runs. */
bool slice_due(void);
/* When it is, by CLOCK_MONOTONIC. NULL: no slice runs here. Borrowed, until the next slice_rest. */
const struct timespec *slice_deadline(void);
/* Gives the thread back to the caller of slice_go, until that comes again; no lock may be held. */
void slice_rest(void);
/* How many nanoseconds the slice that runs here has rested, in all its calls; 0 where none runs. */
int64_t slice_away(void);
/* Calls a function of the user's program on the caller's stack, not the slice's: some languages look at the stack that
 * they run on. Directly, where no slice runs. */
void slice_call(void (*function)(void *argument), void *argument);

#endif

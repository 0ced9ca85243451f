/* time_slice.h - a call that is made in slices: it runs on a stack of its own, and where it waits longer than its
 * caller has time, the caller goes on with something else and comes back later.
 *
 * Everything happens on one thread, the one that calls time_slice_go. What waits asks time_slice_due between two looks,
 * and calls time_slice_rest where it says so. Where no slice runs, this is one test of a variable. */
#ifndef SHARDRT_SYSTEM_TIME_SLICE_H
#define SHARDRT_SYSTEM_TIME_SLICE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct time_slice;

/* Makes a stack for calls of `run`, as large as a thread's; only what is touched of it takes memory. It is used again
 * from call to call. ENOMEM. */
int time_slice_new(void (*run)(void *context), void *context, struct time_slice **out);
/* Between two calls only, never where one rests. NULL is allowed. */
void time_slice_free(struct time_slice *slice);
/* Begins a call of `run`, or goes on with the one that rests, and returns when it has ended (true), or when it rests
 * after `seconds` (false; 0 or less: at the first wait). Always on the thread that began the call. A slice may go on
 * with another slice.
 *
 * The call has the floating-point state (rounding, what is masked) of time_slice_new; the caller's stays as it is. A
 * call that goes on finds its own errno and its own error message again. Masks of signals belong to the thread. */
bool time_slice_go(struct time_slice *slice, double seconds);

/* Asks the call that rests to end, when it is gone on with, without what it waits for: time_slice_pause fails there. */
void time_slice_cancel(struct time_slice *slice);

/* Rests where the time of the slice that runs here is over, and returns 0; also where none runs. ECOMM: the call was
 * cancelled, and gives up. For what computes long, too. */
int time_slice_pause(void);
/* Whether it was. */
bool time_slice_is_cancelled(void);
/* Whether the time of the slice that runs here is over; false where none runs. */
bool time_slice_due(void);
/* When it is, by CLOCK_MONOTONIC. NULL: no slice runs here. Borrowed, until the next time_slice_rest. */
const struct timespec *time_slice_deadline(void);
/* Gives the thread back to the caller of time_slice_go, until that comes again; no lock may be held. */
void time_slice_rest(void);
/* How many nanoseconds the slice that runs here has rested, in all its calls; 0 where none runs. */
int64_t time_slice_away(void);
/* Calls a function of the user's program on the caller's stack, not the slice's: some languages look at the stack that
 * they run on. Directly, where no slice runs. */
void time_slice_call(void (*function)(void *argument), void *argument);

#endif

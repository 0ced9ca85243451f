/* numeric_state.h - how a thread computes, reads and prints numbers: rounding, denormals, traps, flags, the decimal
 * point. A program sets these as it likes (fesetround, FTZ, feenableexcept, setlocale); shardrt neither depends on that
 * nor changes it: its threads, and calls of the program's, have C's defaults while they run. */
#ifndef SHARDRT_SYSTEM_NUMERIC_STATE_H
#define SHARDRT_SYSTEM_NUMERIC_STATE_H

#include <fenv.h>
#include <locale.h>
#include <stdint.h>

struct numeric_state {
#if defined(__x86_64__)
  uint32_t sse;                     /* control and status, MXCSR */
  uint16_t x87_control, x87_status; /* glibc reads and prints numbers as x87's rounding says */
#else
  fenv_t floating;
#endif
  locale_t locale;
};

/* This thread has C's defaults from here on, for good where it is one of shardrt's; returns what it had. */
struct numeric_state numeric_state_enter(void);
void numeric_state_leave(const struct numeric_state *before);

/* The first line of a function that a program calls: to the function's end. */
#define NUMERIC_STATE_OF_C                                                                                             \
  const struct numeric_state numeric_before __attribute__((cleanup(numeric_state_leave))) = numeric_state_enter()

#endif

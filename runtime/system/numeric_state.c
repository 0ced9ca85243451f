#include "system/numeric_state.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t locale_of_c; /* 0, where there is no memory: then the locale stays as it is */

static void make_locale(void) {
  locale_of_c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

#if defined(__x86_64__)
/* By instructions, as fegetenv and fesetenv take ten times as long, which would be felt where batches are small. */
enum { SSE_DEFAULT = 0x1f80, X87_DEFAULT = 0x37f, X87_FLAGS = 0x3f };

static uint16_t x87_flags(void) {
  uint16_t status;
  __asm__ volatile("fnstsw %0" : "=m"(status));
  return status & X87_FLAGS;
}

static void enter_floating(struct numeric_state *before) {
  const uint32_t sse = SSE_DEFAULT;
  const uint16_t x87 = X87_DEFAULT;
  __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(before->sse), "=m"(before->x87_control));
  before->x87_status = x87_flags();
  __asm__ volatile("ldmxcsr %0" : : "m"(sse));
  if (before->x87_control != x87) __asm__ volatile("fldcw %0" : : "m"(x87));
}

static void leave_floating(const struct numeric_state *before) {
  if (x87_flags() != before->x87_status) {
    fenv_t now;
    __asm__ volatile("fnstenv %0" : "=m"(now));
    now.__status_word = (uint16_t)((now.__status_word & ~X87_FLAGS) | before->x87_status);
    __asm__ volatile("fldenv %0" : : "m"(now));
  }
  if (before->x87_control != X87_DEFAULT) __asm__ volatile("fldcw %0" : : "m"(before->x87_control));
  __asm__ volatile("ldmxcsr %0" : : "m"(before->sse));
}
#else
static void enter_floating(struct numeric_state *before) {
  fegetenv(&before->floating);
  fesetenv(FE_DFL_ENV);
}

static void leave_floating(const struct numeric_state *before) {
  fesetenv(&before->floating);
}
#endif

struct numeric_state numeric_state_enter(void) {
  struct numeric_state before = {0};
  pthread_once(&once, make_locale);
  enter_floating(&before);
  before.locale = uselocale(locale_of_c);
  return before;
}

void numeric_state_leave(const struct numeric_state *before) {
  uselocale(before->locale);
  leave_floating(before);
}

#include "system/numeric_state.h"

struct numeric_state numeric_state_enter(void) {
  struct numeric_state before = {0};
  fegetenv(&before.floating);
  fesetenv(FE_DFL_ENV);
  before.locale = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0)); /* glibc keeps one of these, for all */
  return before;
}

void numeric_state_leave(const struct numeric_state *before) {
  uselocale(before->locale);
  fesetenv(&before->floating);
}

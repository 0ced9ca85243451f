#include "base/number_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char more[] = ", …";

size_t number_text_range(char *out, size_t size, const char *one, const char *many, const bool *chosen, int64_t first,
                         int64_t end) {
  assert(first <= end && size > sizeof more);
  int64_t count = 0;
  for (int64_t i = first; i < end; i++) count += chosen[i];
  size_t used = (size_t)snprintf(out, size, "%s", count == 1 ? one : many);
  const char *before = " ";
  for (int64_t i = first; i < end; i++) {
    if (!chosen[i]) continue;
    int64_t last = i;
    while (last + 1 < end && chosen[last + 1]) last++;
    char text[64];
    if (last - i >= 2) {
      snprintf(text, sizeof text, "%s%" PRId64 "-%" PRId64, before, i, last);
      i = last;
    } else {
      snprintf(text, sizeof text, "%s%" PRId64, before, i);
    }
    size_t length = strlen(text);
    if (used + length + sizeof more > size) {
      if (used + sizeof more <= size) memcpy(out + used, more, sizeof more);
      return strlen(out);
    }
    memcpy(out + used, text, length + 1);
    used += length;
    before = ", ";
  }
  return used;
}

size_t number_text(char *out, size_t size, const char *one, const char *many, const bool *chosen, int64_t n) {
  return number_text_range(out, size, one, many, chosen, 0, n);
}

#include "base/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void text_add(struct text *text, const char *format, ...) {
  size_t room = text->length < text->capacity ? text->capacity - text->length : 0;
  assert(text->capacity == 0 || text->bytes != NULL);
  va_list args;
  va_start(args, format);
  int added = vsnprintf(room != 0 ? text->bytes + text->length : NULL, room, format, args);
  va_end(args);
  if (added > 0) text->length += (size_t)added;
}

void text_add_quoted(struct text *text, const char *name) {
  text_add(text, "\"");
  for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\')
      text_add(text, "\\%c", *c);
    else if (*c < ' ' || *c == 127)
      text_add(text, "\\%03u", *c);
    else
      text_add(text, "%c", *c);
  }
  text_add(text, "\"");
}

void text_add_shape(struct text *text, int32_t ndim, const int64_t *shape) {
  text_add(text, "{");
  for (int32_t d = 0; d < ndim; d++) text_add(text, "%s%" PRId64, d != 0 ? ", " : "", shape[d]);
  text_add(text, "}");
}

/* text.h - text put together piece by piece in memory of the caller's. What does not fit is counted and not written,
 * so the same code first measures (no memory) and then writes, or fills a fixed buffer as far as it goes. */
#ifndef SHARDRT_BASE_TEXT_H
#define SHARDRT_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Invariant: where capacity > 0, bytes ends in a NUL. */
struct text {
  char *bytes;
  size_t capacity;
  size_t length; /* of the whole text, also where less of it was written; without the NUL */
};

void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A name as Lua would read it: in double quotes, what is special escaped. */
void text_add_quoted(struct text *text, const char *name);
/* "{64, 128}". */
void text_add_shape(struct text *text, int32_t ndim, const int64_t *shape);

#endif

/* flatbuffer.h - reading FlatBuffers of files, in which any offset may be wrong: https://flatbuffers.dev/internals
 *
 * What lies outside the buffer, or cannot be, sets `failed`; everything that is read from then on is 0 or absent. So a
 * reader looks at it once, in the end. */
#ifndef SHARDRT_DATASET_ARROW_FLATBUFFER_H
#define SHARDRT_DATASET_ARROW_FLATBUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flatbuffer {
  const uint8_t *data;
  size_t bytes;
  bool failed;
};

/* at = 0: it is absent. */
struct flat_table {
  struct flatbuffer *in;
  size_t at, bytes;
  size_t vtable;
  int32_t slots;
};

/* Elements that follow one another; each lies in the buffer as a whole. */
struct flat_vector {
  struct flatbuffer *in;
  size_t at;
  int64_t count;
};

struct flat_table flat_root(struct flatbuffer *in);
/* The whole number in a slot of 1, 2, 4 or 8 bytes; `otherwise` where it is absent. */
int64_t flat_whole(const struct flat_table *table, int32_t slot, size_t bytes, int64_t otherwise);
struct flat_table flat_child(const struct flat_table *table, int32_t slot);
/* `each`: bytes of an element. */
struct flat_vector flat_list(const struct flat_table *table, int32_t slot, size_t each);
/* Element i of a list of tables; of whole numbers, `offset` bytes into elements of `each`. 0 <= i < count. */
struct flat_table flat_list_table(const struct flat_vector *list, int64_t i);
int64_t flat_list_whole(const struct flat_vector *list, int64_t i, size_t each, size_t offset, size_t bytes);
/* A text without its NUL, which lies in the buffer; NULL: it is absent. */
const char *flat_text(const struct flat_table *table, int32_t slot, size_t *length);

#endif

/* fields.h - the columns of a file as the fields of a source: which are asked for, their rows one by one, and what is
 * said of a row that cannot be read. */
#ifndef SHARDRT_DATASET_COLUMN_FIELDS_H
#define SHARDRT_DATASET_COLUMN_FIELDS_H

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/column/column.h"
#include "dataset/record/records.h"

/* Makes a source's field `field` of a leaf, as it is asked for (NULL: as the file has it); `null` and `tells` are those
 * of column_make, and `null` stays. The message is the end of a sentence about the file. */
typedef int column_take(shardrt_source *source, int32_t field, int32_t leaf, const shardrt_field *asked,
                        const char *null, bool tells);
/* Gives a source the fields that are asked for, or all leaves (nasked = 0), whose names the fields have then. *nulls
 * are texts that its columns borrow. */
int column_fields_make(shardrt_source *source, const struct column_leaves *leaves, int32_t nasked,
                       const shardrt_field *asked, const shardrt_source_options *options, column_take *take,
                       char ***nulls);
/* How many that makes. */
static inline size_t column_fields_count(const struct column_leaves *leaves, int32_t nasked) {
  return (size_t)(nasked > 0 ? nasked : leaves->count);
}
void column_fields_free(shardrt_source *source, char **nulls);

/* That a row has a null, and what would work. */
int column_refuse_null(const shardrt_source *source, const char *title, int32_t field, int64_t row);
/* Puts file, column and row in front of a message. */
int column_row_error(const shardrt_source *source, const char *title, int32_t field, int64_t row, int code);

/* The value of a row whose bytes these are. EFORMAT: they are not of the field's shape. */
static inline int column_value(const shardrt_source *source, const char *title, int32_t field, int64_t row,
                               const uint8_t *data, size_t bytes, struct reader *reader, struct value *out) {
  int code = records_elements(&source->fields[field], data, bytes, reader, out);
  return code == SHARDRT_EFORMAT ? error_prefix(code, "%s: row %lld", title, (long long)row) : code;
}
/* A copy in the arena, of what may be gone before the value is. */
static inline int column_copy(const uint8_t *from, size_t bytes, struct reader *reader, const uint8_t **out) {
  uint8_t *room = reader_room(reader, bytes);
  if (room == NULL) return ALLOC_FAILED;
  if (bytes > 0) memcpy(room, from, bytes);
  *out = room;
  return SHARDRT_OK;
}

/* Bytes of a column for each row. */
size_t column_row_bytes(size_t bytes, int64_t rows);
/* How many blocks of all fields the cache has room for, if they become so many bytes. */
int64_t column_blocks_kept(size_t bytes, int64_t nblocks);
/* The rows of a block that begins where the list says; the list ends with the file's end. */
static inline struct sample_range column_block(const int64_t *firsts, int64_t block) {
  return (struct sample_range){.first = firsts[block], .count = firsts[block + 1] - firsts[block]};
}

#endif

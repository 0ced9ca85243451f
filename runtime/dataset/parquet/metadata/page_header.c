#include "dataset/parquet/metadata/page_header.h"

#include "base/error.h"
#include "dataset/parquet/metadata/thrift.h"

enum { FIRST_TRY = 256, GROWS = 8, ENCODING_RLE = 3 };

static size_t header_size(struct thrift *t, const struct thrift_field *field) {
  const int64_t value = thrift_whole(t, field);
  if (value < 0 || value > INT32_MAX) t->failed = true;
  return t->failed ? 0 : (size_t)value;
}

/* Of data, or (without levels) of a dictionary. */
static void read_page(struct thrift *t, bool has_levels, struct page_header *out) {
  struct thrift_field field = {0};
  while (thrift_next(t, &field)) {
    if (field.id == 1)
      out->values = (int64_t)header_size(t, &field);
    else if (field.id == 2)
      out->encoding = (int32_t)thrift_whole(t, &field);
    else if (field.id == 3 && has_levels)
      out->definition_encoding = (int32_t)thrift_whole(t, &field);
    else if (field.id == 4 && has_levels)
      out->repetition_encoding = (int32_t)thrift_whole(t, &field);
    else
      thrift_skip(t, field.type);
  }
}

static void read_data_page_2(struct thrift *t, struct page_header *out) {
  struct thrift_field field = {0};
  out->is_compressed = true;
  while (thrift_next(t, &field)) {
    switch (field.id) {
    case 1:
      out->values = (int64_t)header_size(t, &field);
      break;
    case 3:
      out->rows = (int64_t)header_size(t, &field);
      break;
    case 4:
      out->encoding = (int32_t)thrift_whole(t, &field);
      break;
    case 5:
      out->definition_bytes = header_size(t, &field);
      break;
    case 6:
      out->repetition_bytes = header_size(t, &field);
      break;
    case 7:
      out->is_compressed = thrift_bool(t, &field);
      break;
    default:
      thrift_skip(t, field.type);
    }
  }
}

static void parse_header(struct thrift *t, struct page_header *out) {
  struct thrift_field field = {0};
  bool told = false; /* by the structure of its kind */
  *out = (struct page_header){
      .kind = -1, .is_compressed = true, .definition_encoding = ENCODING_RLE, .repetition_encoding = ENCODING_RLE};
  while (thrift_next(t, &field)) {
    const bool is_struct = field.type == THRIFT_STRUCT;
    if (field.id == 1) {
      out->kind = (int32_t)thrift_whole(t, &field);
    } else if (field.id == 2) {
      out->unpacked = header_size(t, &field);
    } else if (field.id == 3) {
      out->bytes = header_size(t, &field);
    } else if (field.id == 4) {
      out->crc = (uint32_t)thrift_whole(t, &field);
      out->has_crc = true;
    } else if (field.id == 5 && is_struct) {
      read_page(t, true, out);
      told = told || out->kind == PAGE_DATA;
    } else if (field.id == 7 && is_struct) {
      read_page(t, false, out);
      told = told || out->kind == PAGE_DICTIONARY;
    } else if (field.id == 8 && is_struct) {
      read_data_page_2(t, out);
      told = told || out->kind == PAGE_DATA_2;
    } else {
      thrift_skip(t, field.type);
    }
  }
  if (!told && out->kind != PAGE_INDEX) t->failed = true;
}

int page_header_read(const struct stored *file, size_t offset, size_t bytes, struct reader *arena,
                     struct page_header *out) {
  size_t piece = FIRST_TRY;
  for (;;) {
    const uint8_t *data;
    if (piece > bytes) piece = bytes;
    const struct reader_mark mark = reader_mark(arena);
    const int64_t read = arena->bytes_read;
    int code = stored_get(file, offset, piece, arena, &data);
    arena->bytes_read = read; /* the page is read with it */
    if (code != SHARDRT_OK) return code;
    struct thrift t = {.at = data, .end = data + piece};
    parse_header(&t, out);
    out->head = (size_t)(t.at - data);
    reader_release(arena, mark);
    if (!t.failed) break;
    if (piece == bytes) return error_set(SHARDRT_EFORMAT, "its header is malformed or cut off");
    piece *= GROWS;
  }
  if (out->bytes > bytes - out->head)
    return error_set(SHARDRT_EFORMAT, "its header tells of %zu bytes, and %zu are left", out->bytes, bytes - out->head);
  return SHARDRT_OK;
}

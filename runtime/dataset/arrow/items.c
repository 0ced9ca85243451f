// build: -O3
#include "dataset/arrow/items.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/little_endian.h"

enum { MOST_ITEMS = 1 << 30, VIEW_BYTES = 16, VIEW_INLINE = 12, SOME = 256 };
static const int64_t most_place = INT64_C(1) << 38; /* so that no place in a buffer overflows */

static int malformed(const struct arrow_piece *piece, const char *what) {
  error_set(SHARDRT_EFORMAT, "%s", what);
  return arrow_piece_error(piece, SHARDRT_EFORMAT);
}

/* ---- which values ----------------------------------------------------------------------------------------------- */

static bool bit_at(const uint8_t *bits, size_t i) {
  return bits[i / 8] >> i % 8 & 1;
}

/* Whether `count` bits from `first` on are all set. */
static bool all_set(const uint8_t *bits, size_t first, int64_t count) {
  int64_t i = 0;
  for (; i < count && (first + (size_t)i) % 8 != 0; i++)
    if (!bit_at(bits, first + (size_t)i)) return false;
  const uint8_t *at = bits + (first + (size_t)i) / 8;
  for (; count - i >= 64; i += 64, at += 8)
    if (little_endian_64(at) != UINT64_MAX) return false;
  for (; i < count; i++)
    if (!bit_at(bits, first + (size_t)i)) return false;
  return true;
}

static int need_valid(const struct arrow_piece *piece, struct reader *reader, struct arrow_items *items) {
  if (items->valid != NULL) return SHARDRT_OK;
  if (items->count > MOST_ITEMS) return malformed(piece, "it has more than 2^30 values in a row");
  items->valid = reader_room(reader, (size_t)items->count);
  if (items->valid == NULL) return ALLOC_FAILED;
  memset(items->valid, 1, (size_t)items->count);
  return SHARDRT_OK;
}

/* Items that a bitmap says are null are so. */
static int merge_bits(const struct arrow_piece *piece, int32_t buffer, struct reader *reader,
                      struct arrow_items *items) {
  const uint8_t *bits;
  if (items->count == 0 || arrow_piece_bytes(piece, buffer) == 0) return SHARDRT_OK;
  const size_t first = (size_t)items->first, start = first / 8;
  int code = arrow_piece_get(piece, buffer, start, (first + (size_t)items->count - 1) / 8 - start + 1, reader, &bits);
  if (code != SHARDRT_OK || all_set(bits, first % 8, items->count)) return code;
  code = need_valid(piece, reader, items);
  if (code != SHARDRT_OK) return code;
  for (int64_t i = 0; i < items->count; i++) items->valid[i] &= bit_at(bits, first % 8 + (size_t)i);
  return SHARDRT_OK;
}

/* Each item becomes `size` of them. */
static int widen_items(const struct arrow_piece *piece, int64_t size, struct reader *reader,
                       struct arrow_items *items) {
  const uint8_t *valid = items->valid;
  const int64_t count = items->count;
  if (__builtin_mul_overflow(items->first, size, &items->first) ||
      __builtin_mul_overflow(items->count, size, &items->count) || items->count > MOST_ITEMS)
    return malformed(piece, "it has more than 2^30 values in a row");
  if (valid == NULL) return SHARDRT_OK;
  items->valid = reader_room(reader, (size_t)items->count);
  if (items->valid == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < count; i++) memset(items->valid + i * size, valid[i], (size_t)size);
  return SHARDRT_OK;
}

static int64_t offset_at(const uint8_t *data, bool is_large) {
  return is_large ? (int64_t)little_endian_64(data) : (int32_t)little_endian_32(data);
}

/* An item becomes those of its list. */
static int enter_list(const struct arrow_piece *piece, const struct arrow_step *step, int32_t buffer,
                      struct reader *reader, struct arrow_items *items) {
  const size_t each = step->is_large ? 8 : 4, at = (size_t)items->first * each;
  const bool view = step->kind == STEP_LIST_VIEW;
  const uint8_t *offsets, *sizes;
  if (items->valid != NULL && !items->valid[0]) {
    *items = (struct arrow_items){.is_missing = true};
    return SHARDRT_OK;
  }
  int code = arrow_piece_get(piece, buffer + 1, at, view ? each : 2 * each, reader, &offsets);
  if (code == SHARDRT_OK && view) code = arrow_piece_get(piece, buffer + 2, at, each, reader, &sizes);
  if (code != SHARDRT_OK) return code;
  const int64_t start = offset_at(offsets, step->is_large);
  int64_t count;
  if (view)
    count = offset_at(sizes, step->is_large);
  else if (__builtin_sub_overflow(offset_at(offsets + each, step->is_large), start, &count))
    count = -1;
  if (start < 0 || count < 0) return malformed(piece, "a list ends before it begins");
  *items = (struct arrow_items){.first = start, .count = count};
  return SHARDRT_OK;
}

static uint64_t index_of(const uint8_t *data, size_t width, bool is_unsigned) {
  switch (width) {
  case 1:
    return is_unsigned ? data[0] : (uint64_t)(int8_t)data[0];
  case 2: {
    const uint16_t value = (uint16_t)(data[0] | data[1] << 8);
    return is_unsigned ? value : (uint64_t)(int16_t)value;
  }
  case 4:
    return is_unsigned ? little_endian_32(data) : (uint64_t)(int32_t)little_endian_32(data);
  default:
    return little_endian_64(data);
  }
}

/* The number of the buffer that values begin with. */
static int32_t values_buffer(const struct arrow_leaf *leaf) {
  int32_t buffer = 0;
  for (int32_t s = 0; s < leaf->nsteps; s++) buffer += arrow_step_buffers(&leaf->steps[s]);
  return buffer;
}

static int beyond_dictionary(const struct arrow_piece *piece, uint64_t place, const struct column_page *dictionary) {
  error_set(SHARDRT_EFORMAT, "it names value %lld of a dictionary of %lld", (long long)place,
            (long long)dictionary->rows);
  return arrow_piece_error(piece, SHARDRT_EFORMAT);
}

/* Places in the dictionary that its values are null at are null, too. */
static int merge_dictionary(const struct arrow_piece *piece, const struct column_page *dictionary,
                            struct reader *reader, struct arrow_items *items) {
  const struct arrow_leaf *leaf = piece->leaf;
  const uint8_t *data;
  if (dictionary == NULL || dictionary->valid == NULL || items->count == 0) return SHARDRT_OK;
  int code = arrow_piece_get(piece, values_buffer(leaf) + 1, (size_t)items->first * leaf->index_width,
                             (size_t)items->count * leaf->index_width, reader, &data);
  if (code == SHARDRT_OK) code = need_valid(piece, reader, items);
  for (int64_t i = 0; i < items->count && code == SHARDRT_OK; i++) {
    if (!items->valid[i]) continue;
    const uint64_t place = index_of(data + (size_t)i * leaf->index_width, leaf->index_width, leaf->index_is_unsigned);
    if (place >= (uint64_t)dictionary->rows) return beyond_dictionary(piece, place, dictionary);
    items->valid[i] = dictionary->valid[place] == PAGE_VALID;
  }
  return code;
}

int arrow_items_of(const struct arrow_piece *piece, const struct column_page *dictionary, int64_t first, int64_t count,
                   struct reader *reader, struct arrow_items *out) {
  const struct arrow_leaf *leaf = piece->leaf;
  int32_t buffer = 0;
  int code = SHARDRT_OK;
  *out = (struct arrow_items){.first = first, .count = count};
  for (int32_t s = 0; s < leaf->nsteps && code == SHARDRT_OK && !out->is_missing; s++) {
    const struct arrow_step *step = &leaf->steps[s];
    if (out->first > most_place) return malformed(piece, "it has more than 2^38 values");
    code = merge_bits(piece, buffer, reader, out);
    if (code == SHARDRT_OK && step->kind == STEP_FIXED) code = widen_items(piece, step->size, reader, out);
    if (code == SHARDRT_OK && (step->kind == STEP_LIST || step->kind == STEP_LIST_VIEW))
      code = enter_list(piece, step, buffer, reader, out);
    buffer += arrow_step_buffers(step);
  }
  if (code != SHARDRT_OK || out->count == 0) return code;
  int64_t end;
  if (__builtin_add_overflow(out->first, out->count, &end) || end > piece->items)
    return malformed(piece, "it has fewer values than its rows should have");
  if (out->count > MOST_ITEMS || end > most_place) return malformed(piece, "it has more than 2^30 values in a row");
  if (leaf->layout == LAYOUT_NONE && !leaf->is_dictionary) {
    code = need_valid(piece, reader, out);
    if (code == SHARDRT_OK) memset(out->valid, 0, (size_t)out->count);
    return code;
  }
  code = merge_bits(piece, buffer, reader, out);
  return code == SHARDRT_OK ? merge_dictionary(piece, dictionary, reader, out) : code;
}

/* ---- elements --------------------------------------------------------------------------------------------------- */

/* What takes the place of those that are null. */
static void put_nulls(const struct column *column, const struct arrow_items *items, uint8_t *dst) {
  const size_t each = column->element;
  for (int64_t i = 0; items->valid != NULL && i < items->count; i++) {
    if (items->valid[i]) continue;
    if (each <= sizeof column->null)
      memcpy(dst + (size_t)i * each, column->null, each);
    else
      memset(dst + (size_t)i * each, 0, each);
  }
}

static int copy_places(const struct arrow_piece *piece, const struct column *column,
                       const struct column_page *dictionary, const struct arrow_items *items, const uint8_t *data,
                       uint8_t *dst) {
  const size_t width = piece->leaf->index_width, each = column->element;
  assert(dictionary != NULL);
  for (int64_t i = 0; i < items->count; i++) {
    if (items->valid != NULL && !items->valid[i]) continue;
    const uint64_t place = index_of(data + (size_t)i * width, width, piece->leaf->index_is_unsigned);
    if (place >= (uint64_t)dictionary->rows) return beyond_dictionary(piece, place, dictionary);
    memcpy(dst + (size_t)i * each, dictionary->data + place * each, each);
  }
  return SHARDRT_OK;
}

/* What is converted, as Parquet has it: whole numbers of 32 or 64 bits, decimals with the highest byte first. */
static void take_stored(const struct arrow_leaf *leaf, const struct column *column, const uint8_t *from, uint8_t *to) {
  const size_t width = leaf->width, stored = column->stored;
  if (column->kind == COLUMN_DECIMAL) {
    for (size_t b = 0; b < width; b++) to[b] = from[width - 1 - b];
    return;
  }
  memcpy(to, from, width);
  if (column->kind == COLUMN_WHOLE && width < stored)
    memset(to + width, !leaf->as.is_unsigned && from[width - 1] >= 0x80 ? 0xff : 0, stored - width);
}

static int copy_converted(const struct arrow_piece *piece, const struct column *column, const struct arrow_items *items,
                          const uint8_t *data, uint8_t *dst) {
  const size_t width = piece->leaf->width, stored = column->stored;
  uint8_t some[SOME * 32]; /* of a decimal, most */
  for (int64_t done = 0; done < items->count; done += SOME) {
    const int64_t n = items->count - done < SOME ? items->count - done : SOME;
    for (int64_t i = 0; i < n; i++) {
      uint8_t *to = some + (size_t)i * stored;
      if (items->valid == NULL || items->valid[done + i])
        take_stored(piece->leaf, column, data + (size_t)(done + i) * width, to);
      else
        memset(to, 0, stored); /* it may hold anything */
    }
    int code = column_convert(column, some, n, dst + (size_t)done * column->element);
    if (code != SHARDRT_OK) return arrow_piece_error(piece, code);
  }
  return SHARDRT_OK;
}

int arrow_items_find(const struct arrow_piece *piece, const struct column *column, const struct arrow_items *items,
                     struct reader *reader, const uint8_t **out) {
  const struct arrow_leaf *leaf = piece->leaf;
  *out = NULL;
  if (leaf->is_dictionary || leaf->layout != LAYOUT_FIXED || column->kind != COLUMN_SAME || items->valid != NULL ||
      items->count == 0)
    return SHARDRT_OK;
  return arrow_piece_get(piece, values_buffer(leaf) + 1, (size_t)items->first * leaf->width,
                         (size_t)items->count * leaf->width, reader, out);
}

int arrow_items_copy(const struct arrow_piece *piece, const struct column *column, const struct column_page *dictionary,
                     const struct arrow_items *items, struct reader *reader, void *dst) {
  const struct arrow_leaf *leaf = piece->leaf;
  const int32_t buffer = values_buffer(leaf) + 1;
  const size_t first = (size_t)items->first, count = (size_t)items->count;
  const uint8_t *data;
  int code = SHARDRT_OK;
  if (count == 0) return SHARDRT_OK;
  if (leaf->is_dictionary) {
    code = arrow_piece_get(piece, buffer, first * leaf->index_width, count * leaf->index_width, reader, &data);
    if (code == SHARDRT_OK) code = copy_places(piece, column, dictionary, items, data, dst);
  } else if (leaf->layout == LAYOUT_BITS) {
    code = arrow_piece_get(piece, buffer, first / 8, (first + count - 1) / 8 - first / 8 + 1, reader, &data);
    for (size_t i = 0; i < count && code == SHARDRT_OK; i++) ((uint8_t *)dst)[i] = bit_at(data, first % 8 + i);
  } else if (leaf->layout == LAYOUT_FIXED) {
    code = arrow_piece_get(piece, buffer, first * leaf->width, count * leaf->width, reader, &data);
    if (code == SHARDRT_OK && column->kind == COLUMN_SAME) memcpy(dst, data, count * leaf->width);
    if (code == SHARDRT_OK && column->kind != COLUMN_SAME) code = copy_converted(piece, column, items, data, dst);
  }
  if (code == SHARDRT_OK) put_nulls(column, items, dst);
  return code;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static int view_bytes(const struct arrow_piece *piece, int32_t buffer, int64_t item, struct reader *reader,
                      const uint8_t **out, size_t *bytes) {
  const uint8_t *view;
  int code = arrow_piece_get(piece, buffer + 1, (size_t)item * VIEW_BYTES, VIEW_BYTES, reader, &view);
  if (code != SHARDRT_OK) return code;
  const int32_t length = (int32_t)little_endian_32(view), number = (int32_t)little_endian_32(view + 8);
  const int32_t start = (int32_t)little_endian_32(view + 12);
  *bytes = (size_t)length;
  *out = view + 4;
  if (length < 0) return malformed(piece, "a value has fewer bytes than none");
  if (length <= VIEW_INLINE) return SHARDRT_OK;
  if (number < 0 || number >= piece->nbuffers - buffer - 2 || start < 0)
    return malformed(piece, "a value lies in a buffer that is not there");
  return arrow_piece_get(piece, buffer + 2 + number, (size_t)start, (size_t)length, reader, out);
}

int arrow_item_bytes(const struct arrow_piece *piece, const struct column_page *dictionary, int64_t item,
                     struct reader *reader, const uint8_t **out, size_t *bytes) {
  const struct arrow_leaf *leaf = piece->leaf;
  const int32_t buffer = values_buffer(leaf);
  const uint8_t *data;
  if (leaf->is_dictionary) {
    assert(dictionary != NULL);
    int code = arrow_piece_get(piece, buffer + 1, (size_t)item * leaf->index_width, leaf->index_width, reader, &data);
    if (code != SHARDRT_OK) return code;
    const uint64_t place = index_of(data, leaf->index_width, leaf->index_is_unsigned);
    if (place >= (uint64_t)dictionary->rows) return beyond_dictionary(piece, place, dictionary);
    *out = dictionary->data + dictionary->spans[place].start;
    *bytes = dictionary->spans[place].length;
    return SHARDRT_OK;
  }
  if (leaf->layout == LAYOUT_VIEWS) return view_bytes(piece, buffer, item, reader, out, bytes);
  const bool is_large = leaf->layout == LAYOUT_LARGE;
  const size_t each = is_large ? 8 : 4;
  int code = arrow_piece_get(piece, buffer + 1, (size_t)item * each, 2 * each, reader, &data);
  if (code != SHARDRT_OK) return code;
  const int64_t start = offset_at(data, is_large), end = offset_at(data + each, is_large);
  if (start < 0 || end < start) return malformed(piece, "a value ends before it begins");
  *bytes = (size_t)(end - start);
  return arrow_piece_get(piece, buffer + 2, (size_t)start, *bytes, reader, out);
}

/* ---- dictionaries ----------------------------------------------------------------------------------------------- */

/* What is decoded so far. */
struct dictionary {
  const struct column *column;
  struct column_page *page;
  int64_t rows;
  uint8_t *valid, *data;
  struct page_span *spans;
  size_t bytes; /* that spans lie in */
};

/* Values' bytes: where each will lie and, where there is room for them, they themselves. */
static int add_spans(const struct arrow_piece *piece, const struct arrow_items *items, struct reader *reader,
                     struct dictionary *out) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < items->count && code == SHARDRT_OK; i++) {
    const struct reader_mark mark = reader_mark(reader);
    const uint8_t *data;
    size_t bytes = 0;
    if (items->valid == NULL || items->valid[i])
      code = arrow_item_bytes(piece, NULL, items->first + i, reader, &data, &bytes);
    if (code == SHARDRT_OK && bytes > ARROW_PIECE_BYTES - out->bytes)
      code = malformed(piece, "its dictionary has more than 2^30 bytes");
    if (code == SHARDRT_OK && out->data != NULL && bytes > 0) memcpy(out->data + out->bytes, data, bytes);
    if (code == SHARDRT_OK) {
      out->spans[out->rows + i] = (struct page_span){.start = (uint32_t)out->bytes, .length = (uint32_t)bytes};
      out->bytes += bytes;
    }
    reader_release(reader, mark);
  }
  return code;
}

static int add_values(const struct arrow_piece *piece, struct reader *reader, struct dictionary *out) {
  const struct column *column = out->column;
  const struct reader_mark mark = reader_mark(reader);
  struct arrow_items items;
  int code = arrow_items_of(piece, NULL, 0, piece->items, reader, &items);
  for (int64_t i = 0; i < items.count && code == SHARDRT_OK; i++) {
    const bool there = items.valid == NULL || items.valid[i];
    out->valid[out->rows + i] = there ? PAGE_VALID : PAGE_NULL;
    if (!there) out->page->valid = out->valid;
  }
  if (code == SHARDRT_OK && out->spans != NULL) code = add_spans(piece, &items, reader, out);
  if (code == SHARDRT_OK && out->spans == NULL && column->nulls != COLUMN_NULL_TELL)
    code = arrow_items_copy(piece, column, NULL, &items, reader, out->data + (size_t)out->rows * column->element);
  out->rows += piece->items;
  reader_release(reader, mark);
  return code;
}

static int decode_all(const struct arrow_piece *pieces, int32_t count, struct reader *reader, struct dictionary *out) {
  int code = SHARDRT_OK;
  out->rows = 0;
  out->bytes = 0;
  for (int32_t p = 0; p < count && code == SHARDRT_OK; p++) {
    struct arrow_piece piece = pieces[p];
    struct column_page *unpacked = NULL;
    if (piece.codec != ARROW_NOT_PACKED) code = arrow_piece_unpack(&piece, reader, &unpacked);
    piece.unpacked = unpacked;
    if (code == SHARDRT_OK) code = add_values(&piece, reader, out);
    page_free(unpacked);
  }
  return code;
}

static int decode_into(const struct arrow_piece *pieces, int32_t count, struct reader *reader, struct dictionary *out) {
  const struct column *column = out->column;
  const bool spans = column->kind == COLUMN_BYTES && column->nulls != COLUMN_NULL_TELL;
  int64_t rows = 0;
  for (int32_t p = 0; p < count; p++)
    if (pieces[p].items > MOST_ITEMS || (rows += pieces[p].items) > MOST_ITEMS)
      return malformed(&pieces[p], "its dictionary has more than 2^30 values");
  const size_t each = spans ? sizeof *out->spans : column->element;
  if (each * (size_t)rows > ARROW_PIECE_BYTES) return malformed(pieces, "its dictionary has more than 2^30 bytes");
  out->valid = page_room(out->page, (size_t)rows);
  void *room = page_room(out->page, each * (size_t)rows);
  if (out->valid == NULL || room == NULL) return ALLOC_FAILED;
  if (spans)
    out->spans = room;
  else
    out->data = room;
  int code = decode_all(pieces, count, reader, out);
  if (code == SHARDRT_OK && spans) { /* now their bytes are counted */
    out->data = page_room(out->page, out->bytes);
    if (out->data == NULL) return ALLOC_FAILED;
    code = decode_all(pieces, count, reader, out);
  }
  out->page->rows = rows;
  out->page->spans = out->spans;
  out->page->data = out->data;
  return code;
}

int arrow_dictionary_decode(const struct arrow_piece *pieces, int32_t count, const struct column *column,
                            struct reader *reader, struct column_page **out) {
  struct dictionary made = {.column = column, .page = page_new()};
  if (made.page == NULL) return ALLOC_FAILED;
  int code = decode_into(pieces, count, reader, &made);
  if (code < 0) {
    page_free(made.page);
    return code;
  }
  *out = made.page;
  return SHARDRT_OK;
}

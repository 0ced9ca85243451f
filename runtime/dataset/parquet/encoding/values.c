// build: -O3
#include "dataset/parquet/encoding/values.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "base/size.h"
#include "dataset/parquet/encoding/delta.h"
#include "dataset/parquet/encoding/hybrid.h"

enum { LENGTH = 4 };

/* What values are decoded for. */
struct decoding {
  const struct column *column;
  const uint8_t *data;
  size_t bytes;
  int64_t n;
  const struct column_page *dictionary;
  bool passing, base_passing; /* what may be gone with the arena: elements and spans; what spans lie in */
  struct column_page *page;
  struct reader *reader;
};

static int cut_off(const struct decoding *d) {
  error_set(SHARDRT_EFORMAT, "its %lld values are malformed or cut off", (long long)d->n);
  return SHARDRT_EFORMAT;
}

/* Room for n of some bytes: of the page's, or where they are not kept, of the arena. */
static int values_room(const struct decoding *d, bool passing, int64_t n, size_t each, void *out) {
  size_t bytes;
  if (!size_multiply((size_t)n, each, &bytes) || bytes > VALUES_AT_MOST) {
    error_set(SHARDRT_EFORMAT, "its values have more than %d bytes, which is what can be read", VALUES_AT_MOST);
    return SHARDRT_EFORMAT;
  }
  void *room = passing ? reader_room(d->reader, bytes) : page_room(d->page, bytes);
  if (room == NULL) return ALLOC_FAILED;
  *(void **)out = room;
  return SHARDRT_OK;
}

bool values_keep(const void *context, int32_t encoding) {
  const struct column *column = context;
  if (column->nulls == COLUMN_NULL_TELL) return false;
  if (column->kind == COLUMN_BYTES) return encoding == ENCODING_PLAIN || encoding == ENCODING_DELTA_LENGTH_BYTE_ARRAY;
  return column->kind == COLUMN_SAME && encoding == ENCODING_PLAIN;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static int plain_bytes(const struct decoding *d, struct values *out) {
  struct page_span *spans = NULL;
  int code = values_room(d, d->passing, d->n, sizeof *spans, &spans);
  if (code != SHARDRT_OK) return code;
  const uint8_t *at = d->data, *end = at + d->bytes;
  for (int64_t i = 0; i < d->n; i++) {
    if (end - at < LENGTH) return cut_off(d);
    const uint32_t length = little_endian_32(at);
    at += LENGTH;
    if (length > (size_t)(end - at)) return cut_off(d);
    spans[i] = (struct page_span){.start = (uint32_t)(at - d->data), .length = length};
    at += length;
  }
  *out = (struct values){.data = d->data, .spans = spans};
  return SHARDRT_OK;
}

/* Reads n lengths, each from 0 on, that begin `*at` bytes behind the start of the data. */
static int delta_lengths(const struct decoding *d, size_t *at, const int32_t **out) {
  int32_t *room = NULL;
  size_t taken;
  int code = values_room(d, true, d->n, sizeof *room, &room);
  if (code != SHARDRT_OK) return code;
  if (!delta_decode(d->data + *at, d->bytes - *at, d->n, sizeof *room, room, &taken)) return cut_off(d);
  int32_t all = 0;
  for (int64_t i = 0; i < d->n; i++) all |= room[i];
  if (all < 0) return cut_off(d);
  *at += taken;
  *out = room;
  return SHARDRT_OK;
}

static int delta_length_bytes(const struct decoding *d, struct values *out) {
  struct page_span *spans = NULL;
  const int32_t *lengths = NULL;
  size_t at = 0;
  int code = values_room(d, d->passing, d->n, sizeof *spans, &spans);
  if (code == SHARDRT_OK) code = delta_lengths(d, &at, &lengths);
  if (code != SHARDRT_OK) return code;
  for (int64_t i = 0; i < d->n; i++) {
    if ((size_t)lengths[i] > d->bytes - at) return cut_off(d);
    spans[i] = (struct page_span){.start = (uint32_t)at, .length = (uint32_t)lengths[i]};
    at += (size_t)lengths[i];
  }
  *out = (struct values){.data = d->data, .spans = spans};
  return SHARDRT_OK;
}

/* Each value begins as the one before it. */
static int delta_bytes(const struct decoding *d, struct values *out) {
  const int32_t *prefixes = NULL, *suffixes = NULL;
  size_t at = 0, all = 0;
  int code = delta_lengths(d, &at, &prefixes);
  if (code == SHARDRT_OK) code = delta_lengths(d, &at, &suffixes);
  if (code != SHARDRT_OK) return code;
  for (int64_t i = 0; i < d->n && all <= VALUES_AT_MOST; i++) all += (size_t)prefixes[i] + (size_t)suffixes[i];
  struct page_span *spans = NULL;
  uint8_t *room = NULL;
  code = values_room(d, d->passing, d->n, sizeof *spans, &spans);
  if (code == SHARDRT_OK) code = values_room(d, d->base_passing, (int64_t)all, 1, &room);
  if (code != SHARDRT_OK) return code;
  size_t done = 0;
  struct page_span last = {0};
  for (int64_t i = 0; i < d->n; i++) {
    const size_t prefix = (size_t)prefixes[i], suffix = (size_t)suffixes[i];
    if (prefix > last.length || suffix > d->bytes - at) return cut_off(d);
    memcpy(room + done, room + last.start, prefix);
    memcpy(room + done + prefix, d->data + at, suffix);
    spans[i] = last = (struct page_span){.start = (uint32_t)done, .length = (uint32_t)(prefix + suffix)};
    done += prefix + suffix;
    at += suffix;
  }
  *out = (struct values){.data = room, .spans = spans};
  return SHARDRT_OK;
}

/* ---- values as the file has them --------------------------------------------------------------------------------- */

static int plain_stored(const struct decoding *d, const uint8_t **out) {
  size_t bytes;
  if (!size_multiply((size_t)d->n, d->column->stored, &bytes) || bytes > d->bytes) return cut_off(d);
  *out = d->data;
  return SHARDRT_OK;
}

static int delta_stored(const struct decoding *d, bool passing, const uint8_t **out) {
  uint8_t *room = NULL;
  size_t taken;
  int code = values_room(d, passing, d->n, d->column->stored, &room);
  if (code != SHARDRT_OK) return code;
  if (!delta_decode(d->data, d->bytes, d->n, (int32_t)d->column->stored, room, &taken)) return cut_off(d);
  *out = room;
  return SHARDRT_OK;
}

/* Byte b of value i stands in place i of stream b. */
static int split_stored(const struct decoding *d, bool passing, const uint8_t **out) {
  const size_t width = d->column->stored, n = (size_t)d->n;
  uint8_t *room = NULL;
  int code = values_room(d, passing, d->n, width, &room);
  if (code != SHARDRT_OK) return code;
  if (n * width > d->bytes) return cut_off(d);
  const uint8_t *data = d->data;
  if (width == sizeof(uint32_t)) {
    uint32_t *to = (uint32_t *)(void *)room;
    const uint8_t *a = data, *b = a + n, *c = b + n, *e = c + n;
    for (size_t i = 0; i < n; i++)
      to[i] = (uint32_t)a[i] | (uint32_t)b[i] << 8 | (uint32_t)c[i] << 16 | (uint32_t)e[i] << 24;
  } else {
    enum { PIECE = 512 }; /* values at once, so that those of all streams are in the nearest cache */
    for (size_t from = 0; from < n; from += PIECE)
      for (size_t b = 0; b < width; b++)
        for (size_t i = from; i < n && i < from + PIECE; i++) room[i * width + b] = data[b * n + i];
  }
  *out = room;
  return SHARDRT_OK;
}

/* Strings of equal length, each beginning as the one before it. */
static int delta_fixed(const struct decoding *d, bool passing, const uint8_t **out) {
  struct values found;
  struct decoding passed = *d;
  passed.passing = passed.base_passing = true;
  int code = delta_bytes(&passed, &found);
  uint8_t *room = NULL;
  const size_t width = d->column->stored;
  if (code == SHARDRT_OK) code = values_room(d, passing, d->n, width, &room);
  if (code != SHARDRT_OK) return code;
  for (int64_t i = 0; i < d->n; i++) {
    if (found.spans[i].length != width) return cut_off(d);
    memcpy(room + (size_t)i * width, found.data + found.spans[i].start, width);
  }
  *out = room;
  return SHARDRT_OK;
}

/* ---- values by their place in a dictionary ------------------------------------------------------------------------
 */

static int beyond_dictionary(const struct decoding *d, uint32_t place) {
  return error_set(SHARDRT_EFORMAT, "it names value %lld of a dictionary of %lld", (long long)place,
                   (long long)d->dictionary->rows);
}

static uint32_t highest_of(const struct hybrid_run *run) {
  uint32_t highest = run->value;
  for (int64_t i = 0; run->values != NULL && i < run->count; i++)
    if (run->values[i] > highest || i == 0) highest = run->values[i];
  return highest;
}

#define GATHER(bits)                                                                                                   \
  static void gather_##bits(const struct hybrid_run *run, const void *from, void *to) {                                \
    const uint##bits##_t *in = from;                                                                                   \
    uint##bits##_t *out = to;                                                                                          \
    if (run->values == NULL) {                                                                                         \
      for (int64_t i = 0; i < run->count; i++) out[i] = in[run->value];                                                \
      return;                                                                                                          \
    }                                                                                                                  \
    for (int64_t i = 0; i < run->count; i++) out[i] = in[run->values[i]];                                              \
  }
GATHER(8)
GATHER(16)
GATHER(32)
GATHER(64)

static void gather_any(const struct hybrid_run *run, const uint8_t *from, size_t each, uint8_t *to) {
  for (int64_t i = 0; i < run->count; i++)
    memcpy(to + (size_t)i * each, from + (run->values != NULL ? run->values[i] : run->value) * each, each);
}

static void gather(const struct hybrid_run *run, const uint8_t *from, size_t each, uint8_t *to) {
  switch (each) {
  case 1:
    gather_8(run, from, to);
    break;
  case 2:
    gather_16(run, from, to);
    break;
  case 4:
    gather_32(run, from, to);
    break;
  case 8:
    gather_64(run, from, to);
    break;
  default:
    gather_any(run, from, each, to);
  }
}

static int dictionary_values(const struct decoding *d, struct values *out) {
  const bool spans = d->column->kind == COLUMN_BYTES;
  const size_t each = spans ? sizeof(struct page_span) : d->column->element;
  uint8_t *room = NULL;
  if (d->dictionary == NULL) return error_set(SHARDRT_EFORMAT, "it names values of a dictionary, and there is none");
  int code = values_room(d, d->passing, d->n, each, &room);
  if (code != SHARDRT_OK) return code;
  const uint8_t *from = spans ? (const uint8_t *)d->dictionary->spans : d->dictionary->data;
  if (d->n > 0 && (d->bytes == 0 || d->data[0] > 32)) return cut_off(d);
  struct hybrid_walk walk;
  struct hybrid_run run;
  if (d->n > 0) hybrid_begin(d->data + 1, d->bytes - 1, d->data[0], &walk);
  for (int64_t done = 0; done < d->n; done += run.count) {
    if (!hybrid_next(&walk, d->n - done, &run)) return cut_off(d);
    const uint32_t highest = highest_of(&run);
    if ((int64_t)highest >= d->dictionary->rows) return beyond_dictionary(d, highest);
    gather(&run, from, each, room + (size_t)done * each);
  }
  if (spans)
    *out = (struct values){.data = d->dictionary->data, .spans = (const struct page_span *)(const void *)room};
  else
    *out = (struct values){.data = room};
  return SHARDRT_OK;
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static int plain_bits(const struct decoding *d, struct values *out) {
  uint8_t *room = NULL;
  int code = values_room(d, d->passing, d->n, 1, &room);
  if (code != SHARDRT_OK) return code;
  if ((size_t)d->n > d->bytes * 8) return cut_off(d);
  for (int64_t i = 0; i < d->n; i++) room[i] = d->data[i / 8] >> i % 8 & 1;
  out->data = room;
  return SHARDRT_OK;
}

static int run_bits(const struct decoding *d, struct values *out) {
  uint8_t *room = NULL;
  bool same = true;
  int code = values_room(d, d->passing, d->n, 1, &room);
  if (code != SHARDRT_OK) return code;
  if (d->bytes < LENGTH || little_endian_32(d->data) > d->bytes - LENGTH) return cut_off(d);
  if (!hybrid_levels(d->data + LENGTH, little_endian_32(d->data), 1, d->n, room, &same)) return cut_off(d);
  if (same) memset(room, 1, (size_t)d->n);
  out->data = room;
  return SHARDRT_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static int refuse_encoding(const struct decoding *d, int32_t encoding) {
  static const char *const names[] = {"PLAIN",
                                      "1",
                                      "PLAIN_DICTIONARY",
                                      "RLE",
                                      "BIT_PACKED",
                                      "DELTA_BINARY_PACKED",
                                      "DELTA_LENGTH_BYTE_ARRAY",
                                      "DELTA_BYTE_ARRAY",
                                      "RLE_DICTIONARY",
                                      "BYTE_STREAM_SPLIT"};
  if (encoding >= 0 && encoding <= ENCODING_BYTE_STREAM_SPLIT)
    error_set(SHARDRT_EINVAL, "its values are encoded as %s, which shardrt does not read in a column of %s",
              names[encoding], d->column->kind == COLUMN_BYTES ? "bytes" : "this type");
  else
    error_set(SHARDRT_EINVAL, "its values are in encoding %d, which shardrt does not know", (int)encoding);
  return SHARDRT_EINVAL;
}

static int bytes_decode(const struct decoding *d, int32_t encoding, struct values *out) {
  switch (encoding) {
  case ENCODING_PLAIN:
    return plain_bytes(d, out);
  case ENCODING_DELTA_LENGTH_BYTE_ARRAY:
    return delta_length_bytes(d, out);
  case ENCODING_DELTA_BYTE_ARRAY:
    return delta_bytes(d, out);
  default:
    return refuse_encoding(d, encoding);
  }
}

/* Decimals that are bytes of any number. */
static int decimals_of_bytes(const struct decoding *d, int32_t encoding, struct values *out) {
  struct values found;
  struct decoding passed = *d;
  double *room = NULL;
  passed.passing = passed.base_passing = true;
  int code = bytes_decode(&passed, encoding, &found);
  if (code == SHARDRT_OK) code = values_room(d, d->passing, d->n, sizeof *room, &room);
  for (int64_t i = 0; i < d->n && code == SHARDRT_OK; i++)
    code = column_decimal(d->column, found.data + found.spans[i].start, found.spans[i].length, &room[i]);
  if (code == SHARDRT_OK) out->data = (const uint8_t *)room;
  return code;
}

static int stored_values(const struct decoding *d, int32_t encoding, bool passing, const uint8_t **out) {
  const enum parquet_type type = d->column->leaf->type;
  const bool whole = type == PARQUET_INT32 || type == PARQUET_INT64;
  if (encoding == ENCODING_PLAIN) return plain_stored(d, out);
  if (encoding == ENCODING_DELTA_BINARY_PACKED && whole) return delta_stored(d, passing, out);
  if (encoding == ENCODING_BYTE_STREAM_SPLIT && type != PARQUET_INT96) return split_stored(d, passing, out);
  if (encoding == ENCODING_DELTA_BYTE_ARRAY && type == PARQUET_FIXED) return delta_fixed(d, passing, out);
  return refuse_encoding(d, encoding);
}

int values_decode(const struct column *column, const struct raw_page *raw, int64_t n,
                  const struct column_page *dictionary, bool passing, struct column_page *page, struct reader *reader,
                  struct values *out) {
  const struct decoding d = {.column = column,
                             .data = raw->values,
                             .bytes = raw->values_bytes,
                             .n = n,
                             .dictionary = dictionary,
                             .passing = passing,
                             .page = page,
                             .reader = reader};
  const int32_t encoding = raw->header.encoding;
  *out = (struct values){0};
  if (encoding == ENCODING_PLAIN_DICTIONARY || encoding == ENCODING_RLE_DICTIONARY) return dictionary_values(&d, out);
  if (column->kind == COLUMN_BYTES) return bytes_decode(&d, encoding, out);
  if (column->kind == COLUMN_BIT && encoding == ENCODING_PLAIN) return plain_bits(&d, out);
  if (column->kind == COLUMN_BIT && encoding == ENCODING_RLE) return run_bits(&d, out);
  if (column->kind == COLUMN_BIT) return refuse_encoding(&d, encoding);
  if (column->leaf->type == PARQUET_BYTE_ARRAY) return decimals_of_bytes(&d, encoding, out);
  const bool converts = column->kind != COLUMN_SAME;
  int code = stored_values(&d, encoding, passing || converts, &out->data);
  if (code != SHARDRT_OK) return code;
  void *room = NULL;
  if (converts) {
    code = values_room(&d, passing, n, column->element, &room);
    if (code == SHARDRT_OK) code = column_convert(column, out->data, n, room);
    if (code == SHARDRT_OK) out->data = room;
  }
  return code;
}

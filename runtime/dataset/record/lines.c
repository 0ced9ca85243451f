#include "dataset/record/lines.h"

#include <ctype.h>
#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "codec/cells.h"
#include "dataset/magic.h"

enum {
  FIRST = 1 << 16,   /* bytes that are looked at together at first, */
  PIECE = 1 << 20,   /* and then; more where a line is longer */
  NUMBER_MOST = 400, /* bytes of a number in text */
};

/* A walk through a file, piece by piece; a line that does not end in a piece begins the next one. */
struct lines_walk {
  const struct stored *file;
  struct reader *arena;
  struct reader_mark mark; /* the arena without the piece */
  char delimiter;          /* between cells; 0: none */
  size_t at;               /* the next line, */
  uint32_t number;         /* and its number from 1 on; 0: it does not fit */
  const uint8_t *data;
  size_t first, have; /* the piece at hand: where it begins in the file, and how long it is */
};

/* One line, and of cells how many it has. */
struct line {
  size_t offset, bytes;
  const uint8_t *data;
  uint32_t number; /* from 1 on; 0: it does not fit */
  int64_t cells;
};

/* The line at `data`, of bytes that end with the file where they are the last. */
static struct cells_line find_end(const struct lines_walk *w, const uint8_t *data, size_t bytes, bool last) {
  if (w->delimiter != '\0') return cells_line(data, bytes, last, w->delimiter);
  const uint8_t *end = memchr(data, '\n', bytes);
  struct cells_line line = {.bytes = end != NULL ? (size_t)(end - data) : bytes, .end = end != NULL};
  if ((end != NULL || last) && line.bytes > 0 && data[line.bytes - 1] == '\r') {
    line.bytes--;
    line.end++;
  }
  return line;
}

/* Has the piece at hand begin with the next line; longer than it was where that did not do. */
static int next_piece(struct lines_walk *w) {
  const size_t left = w->file->bytes - w->at;
  const size_t wanted = w->have == 0 ? FIRST : w->first == w->at ? 2 * w->have : PIECE;
  reader_release(w->arena, w->mark);
  w->first = w->at;
  w->have = left < wanted ? left : wanted;
  return stored_get(w->file, w->at, w->have, w->arena, &w->data);
}

/* The next line, which stays where it is until the one behind it is asked for: 1, or 0 at the end. */
static int next_line(struct lines_walk *w, struct line *out) {
  for (;;) {
    if (w->at == w->file->bytes) return 0;
    const size_t within = w->at - w->first, have = w->have - within;
    const bool last = w->first + w->have == w->file->bytes;
    const struct cells_line line = find_end(w, w->data + within, have, last);
    if (line.end == 0 && !last) {
      int code = next_piece(w);
      if (code != SHARDRT_OK) return code;
      continue;
    }
    if (line.open)
      return error_set(SHARDRT_EFORMAT, "%s: the line at byte %zu: its quotes do not end", w->file->title, w->at);
    *out = (struct line){
        .offset = w->at, .bytes = line.bytes, .data = w->data + within, .number = w->number, .cells = line.cells};
    const bool counts = w->number != 0 && w->number < INDEX_NOTES - 1 - line.breaks;
    w->number = counts ? w->number + 1 + line.breaks : 0;
    w->at += line.bytes + line.end;
    return 1;
  }
}

/* Begins at a file's first line, behind a byte order mark. */
static int walk_from(const struct stored *file, struct reader *arena, char delimiter, struct lines_walk *out) {
  static const uint8_t mark[] = {0xef, 0xbb, 0xbf};
  *out = (struct lines_walk){
      .file = file, .arena = arena, .mark = reader_mark(arena), .delimiter = delimiter, .number = 1};
  int code = next_piece(out);
  if (code != SHARDRT_OK) return code;
  const struct magic *magic = magic_find(out->data, out->have, file->bytes);
  if (magic != NULL)
    return error_set(SHARDRT_EFORMAT, "%s: is no text: it begins as %s: %s", file->title, magic->what, magic->advice);
  const uint8_t wide = out->have >= 2 ? out->data[0] ^ out->data[1] : 0; /* a byte order mark of two bytes: FE and FF */
  if (wide == 1 && (out->data[0] == 0xfe || out->data[0] == 0xff))
    return error_set(SHARDRT_EFORMAT,
                     "%s: is text in UTF-16; shardrt reads UTF-8: `iconv -f UTF-16 -t UTF-8` makes it so", file->title);
  if (out->have >= sizeof mark && memcmp(out->data, mark, sizeof mark) == 0) out->at = sizeof mark;
  return SHARDRT_OK;
}

/* Another number of cells than the first line has. */
static int bad_cells(const struct lines_walk *w, const struct line *line, int64_t row, int64_t cells) {
  char missing[64] = "";
  if (line->cells < cells)
    snprintf(missing, sizeof missing, "it has no column %lld (from 0 on): ", (long long)line->cells);
  int code =
      error_set(SHARDRT_EFORMAT,
                "%s: record %lld at byte %zu, line %u: %sit has %lld cell%s, and the first line %lld; a cell that "
                "holds the delimiter stands in double quotes",
                w->file->title, (long long)row, line->offset, line->number, missing, (long long)line->cells,
                line->cells == 1 ? "" : "s", (long long)cells);
  return index_tell_option(code);
}

/* Adds a line, which is sample `row`, of a file whose first line has `cells` of them. */
static int add_line(const struct lines_walk *w, const struct line *line, int64_t row, int64_t cells,
                    struct index_writer *writer) {
  struct index_entry entry = index_entry_of(line->offset, line->data, line->bytes);
  entry.note = line->number;
  if (line->cells != cells) {
    if (!index_writer_skips(writer)) return bad_cells(w, line, row, cells);
    entry.note = INDEX_DAMAGED;
  }
  return index_writer_add(writer, &entry);
}

/* Names the column, with the first line's checksum where that is none of the samples. */
static int name_column(const struct stored *file, struct reader *arena, const struct lines_rules *r,
                       struct index_writer *writer) {
  char text[sizeof "line 01234567"] = "line";
  const char *const name = text;
  const uint8_t *first;
  size_t bytes;
  if (r->header && lines_first(file, arena, r->delimiter, &first, &bytes) == 1)
    snprintf(text, sizeof text, "line %08x", (unsigned)crc32c(0, first, bytes));
  return index_writer_columns(writer, 1, &name);
}

int lines_check(const struct index_file *index, const struct stored *file, const uint8_t *first, size_t bytes) {
  const char *sum = strchr(index->names[0], ' ');
  const uint32_t crc = crc32c(0, first, bytes);
  if (sum == NULL || strtoul(sum, NULL, 16) == crc) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT,
                   "%s: the first line (%zu bytes) is damaged: its CRC-32C is %08x, and was%s when its index was made",
                   file->title, bytes, (unsigned)crc, sum);
}

int lines_scan(const struct stored *file, struct reader *arena, struct index_writer *writer, const void *rules) {
  const struct lines_rules *r = rules;
  struct lines_walk w;
  int code = walk_from(file, arena, r->delimiter, &w);
  if (code == SHARDRT_OK) code = name_column(file, arena, r, writer);
  bool first = true;
  int64_t cells = 0, row = 0;
  while (code == SHARDRT_OK) {
    struct line line = {0};
    code = next_line(&w, &line);
    if (code < 0) return index_writer_lose_rest(writer, file, w.at, code);
    if (code == 0) break;
    code = SHARDRT_OK;
    if (line.bytes == 0) continue;
    if (first) cells = line.cells;
    if (!first || !r->header) code = add_line(&w, &line, row++, cells, writer);
    first = false;
  }
  return code;
}

int lines_first(const struct stored *file, struct reader *arena, char delimiter, const uint8_t **out, size_t *bytes) {
  struct lines_walk w;
  struct line line = {0};
  int code = walk_from(file, arena, delimiter, &w);
  if (code == SHARDRT_OK) code = 1;
  while (code == 1 && line.bytes == 0) code = next_line(&w, &line);
  *out = line.data;
  *bytes = line.bytes;
  return code;
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

/* As a C text without space around it; false: too long, or empty. */
static bool copy_number(const uint8_t *text, size_t bytes, char room[NUMBER_MOST]) {
  while (bytes > 0 && isspace(text[0])) text++, bytes--;
  while (bytes > 0 && isspace(text[bytes - 1])) bytes--;
  if (bytes == 0 || bytes >= NUMBER_MOST) return false;
  memcpy(room, text, bytes);
  room[bytes] = '\0';
  return strlen(room) == bytes && strpbrk(room, "xXpP(") == NULL; /* C also reads 0x1p3 and nan(…) */
}

bool lines_real(const uint8_t *text, size_t bytes, double *out) {
  char room[NUMBER_MOST], *end;
  if (!copy_number(text, bytes, room)) return false;
  *out = strtod(room, &end);
  return *end == '\0';
}

bool lines_whole(const uint8_t *text, size_t bytes, int64_t *out) {
  char room[NUMBER_MOST], *end;
  if (!copy_number(text, bytes, room)) return false;
  errno = 0;
  *out = strtoll(room, &end, 10);
  return *end == '\0' && errno == 0;
}

/* A whole number within a dtype's range. */
static bool put_whole(const uint8_t *text, size_t bytes, int64_t least, int64_t most, size_t size, void *out) {
  int64_t value;
  if (!lines_whole(text, bytes, &value) || value < least || value > most) return false;
  memcpy(out, &value, size); /* little-endian: the low bytes come first */
  return true;
}

static bool put_unsigned(const uint8_t *text, size_t bytes, void *out) {
  char room[NUMBER_MOST], *end;
  if (!copy_number(text, bytes, room) || room[0] == '-') return false;
  errno = 0;
  const uint64_t value = strtoull(room, &end, 10);
  memcpy(out, &value, sizeof value);
  return *end == '\0' && errno == 0;
}

/* A number as a double from which a shorter float is rounded as from the number itself: of the two doubles around it
 * the one whose last bit is 1, which no shorter float's half-way point has (Boldo and Melquiond, "When double rounding
 * is odd", 2005). */
static double read_odd(const char *text) {
  const int rounding = fegetround();
  fesetround(FE_DOWNWARD);
  const double below = strtod(text, NULL);
  fesetround(FE_UPWARD);
  const double above = strtod(text, NULL);
  fesetround(rounding);
  uint64_t bits;
  memcpy(&bits, &below, sizeof bits);
  return (bits & 1) != 0 ? below : above;
}

static bool put_real(const uint8_t *text, size_t bytes, int32_t dtype, void *out) {
  char room[NUMBER_MOST], *end;
  if (!copy_number(text, bytes, room)) return false;
  const bool infinite = isinf(strtod(room, &end)) != 0 && strpbrk(room, "nN") != NULL; /* it says so itself */
  if (*end != '\0') return false;
  if (dtype == SHARDRT_FLOAT64) {
    const double value = strtod(room, NULL);
    memcpy(out, &value, sizeof value);
    return infinite || !isinf(value);
  }
  if (dtype == SHARDRT_FLOAT32) {
    const float value = strtof(room, NULL);
    memcpy(out, &value, sizeof value);
    return infinite || !isinf(value);
  }
  const double odd = read_odd(room);
  const uint16_t half = dtype == SHARDRT_FLOAT16 ? shardrt_float16_from_double(odd) : shardrt_bfloat16_from_double(odd);
  const uint16_t exponent = dtype == SHARDRT_FLOAT16 ? 0x7c00 : 0x7f80;
  memcpy(out, &half, sizeof half);
  return infinite || (half & 0x7fff) != exponent;
}

static bool put_bool(const uint8_t *text, size_t bytes, uint8_t *out) {
  *out = bytes > 0 && (text[0] == 't' || text[0] == 'T' || text[0] == '1');
  static const char *const words[] = {"true", "false", "True", "False", "1", "0"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i]) == bytes && memcmp(words[i], text, bytes) == 0) return true;
  return false;
}

bool lines_element(const uint8_t *text, size_t bytes, int32_t dtype, void *out) {
  switch (dtype) {
  case SHARDRT_BOOL:
    return put_bool(text, bytes, out);
  case SHARDRT_INT8:
    return put_whole(text, bytes, INT8_MIN, INT8_MAX, 1, out);
  case SHARDRT_INT16:
    return put_whole(text, bytes, INT16_MIN, INT16_MAX, 2, out);
  case SHARDRT_INT32:
    return put_whole(text, bytes, INT32_MIN, INT32_MAX, 4, out);
  case SHARDRT_INT64:
    return put_whole(text, bytes, INT64_MIN, INT64_MAX, 8, out);
  case SHARDRT_UINT8:
    return put_whole(text, bytes, 0, UINT8_MAX, 1, out);
  case SHARDRT_UINT16:
    return put_whole(text, bytes, 0, UINT16_MAX, 2, out);
  case SHARDRT_UINT32:
    return put_whole(text, bytes, 0, UINT32_MAX, 4, out);
  case SHARDRT_UINT64:
    return put_unsigned(text, bytes, out);
  default:
    return put_real(text, bytes, dtype, out);
  }
}

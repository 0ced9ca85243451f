#include "codec/cells.h"

#include <string.h>

/* Where a walk stands: before a cell's first character, in one without quotes, between quotes, behind a quote that ends
 * them, or is the first of two. */
enum cell_place { BEFORE, PLAIN, QUOTED, BEHIND };

static enum cell_place place_after(enum cell_place place, uint8_t c, char delimiter) {
  if (place == QUOTED) return c == '"' ? BEHIND : QUOTED;
  if (c == '"' && place != PLAIN) return QUOTED;
  return c == (uint8_t)delimiter ? BEFORE : PLAIN;
}

struct cells_line cells_line(const uint8_t *data, size_t bytes, bool last, char delimiter) {
  struct cells_line line = {.cells = 1};
  enum cell_place place = BEFORE;
  size_t i = 0;
  for (; i < bytes; i++) {
    const uint8_t c = data[i];
    const bool ends = c == '\n' || c == '\r';
    if (ends && place != QUOTED) break;
    if (ends && (c == '\r' || i == 0 || data[i - 1] != '\r')) line.breaks++;
    place = place_after(place, c, delimiter);
    line.cells += place == BEFORE;
  }
  line.bytes = i;
  line.open = i == bytes && place == QUOTED;
  if (i == bytes || (data[i] == '\r' && i + 1 == bytes && !last)) return line;
  line.end = data[i] == '\r' && i + 1 < bytes && data[i + 1] == '\n' ? 2 : 1;
  return line;
}

bool cell_next(const uint8_t *line, size_t bytes, char delimiter, size_t *at, struct cell *out) {
  if (*at > bytes) return false;
  const size_t start = *at;
  size_t i = start;
  if (i < bytes && line[i] == '"') {
    int64_t quotes = 0;
    size_t end = i; /* of what stands between the first two quotes */
    for (enum cell_place place = BEFORE; i < bytes; i++) {
      place = place_after(place, line[i], delimiter);
      if (place == BEFORE) break;
      if (line[i] == '"' && ++quotes == 2) end = i;
    }
    const bool simple = quotes == 2 && end + 1 == i;
    *out = simple ? (struct cell){.text = line + start + 1, .bytes = end - start - 1}
                  : (struct cell){.text = line + start, .bytes = i - start, .mixed = true};
  } else {
    const uint8_t *end = memchr(line + i, delimiter, bytes - i);
    i = end != NULL ? (size_t)(end - line) : bytes;
    *out = (struct cell){.text = line + start, .bytes = i - start};
  }
  *at = i + 1;
  return true;
}

void cell_unquote(struct cell *cell, uint8_t *room) {
  if (!cell->mixed) return;
  size_t length = 0, i = 1;
  for (; i < cell->bytes; i++) {
    if (cell->text[i] == '"' && (++i == cell->bytes || cell->text[i] != '"')) break;
    room[length++] = cell->text[i];
  }
  for (; i < cell->bytes; i++) room[length++] = cell->text[i];
  *cell = (struct cell){.text = room, .bytes = length};
}

/* cells.h - the lines and cells of a csv file, as Python's csv module reads them: RFC 4180, and of what that leaves
 * open, the same. A line ends at "\n", "\r" or "\r\n". A cell that begins with a double quote goes on to the next one
 * that no other follows, and may hold anything; what follows up to the delimiter belongs to it as it stands. A quote
 * within any other cell is a character like others. */
#ifndef SHARDRT_CODEC_CELLS_H
#define SHARDRT_CODEC_CELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a walk along a line came by. */
struct cells_line {
  size_t bytes; /* of the line, without its end */
  size_t end;   /* of its end: 0 to 2 bytes */
  bool open;    /* where no end was found: within quotes */
  int64_t cells;
  uint32_t breaks; /* ends of lines within quotes */
};

/* The line that begins at `data`. `last`: the bytes are all that there is; else end is also 0 where the end itself may
 * go on behind them. */
struct cells_line cells_line(const uint8_t *data, size_t bytes, bool last, char delimiter);

/* One cell: its text where it stands, or (mixed) with quotes in it that are to be taken out. */
struct cell {
  const uint8_t *text;
  size_t bytes;
  bool mixed;
};

/* The cell at *at of a line, which goes past it; false: there is none. */
bool cell_next(const uint8_t *line, size_t bytes, char delimiter, size_t *at, struct cell *out);

/* Makes a mixed cell's text the plain one, in `room` of at least its bytes; one that is not mixed stays where it is. */
void cell_unquote(struct cell *cell, uint8_t *room);

#endif

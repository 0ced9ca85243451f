/* lines.h - text files of which every line is a sample, and what csv and jsonl have in common. */
#ifndef SHARDRT_DATASET_RECORD_LINES_H
#define SHARDRT_DATASET_RECORD_LINES_H

#include "dataset/index_file.h"

/* How the lines of a file are told apart. */
struct lines_rules {
  char delimiter; /* lines are those of cells (cells.h), all of which have as many as the first; 0: of any text */
  bool header;    /* the first line names the fields, and is no sample */
};

/* An index_scan, whose context is the rules: a column "line" (behind a header "line 3f01c2aa", by the CRC-32C of that),
 * without the end of line ("\n", or "\r\n"; of cells also
 * "\r"). Empty lines are left out, and so is a byte order mark. An entry's note is the line's number in the file, from
 * 1 on (0: it has more than 32 bits). EFORMAT: quotes that do not end; another number of cells than in the first line;
 * a file of another format. */
int lines_scan(const struct stored *file, struct reader *arena, struct index_writer *writer, const void *rules);

/* That the first line is what it was when the index was made. EFORMAT. */
int lines_check(const struct index_file *index, const struct stored *file, const uint8_t *first, size_t bytes);

/* The first line of a file that is not empty, wherever it is: 1; 0: there is none. `delimiter` as in the rules. */
int lines_first(const struct stored *file, struct reader *arena, char delimiter, const uint8_t **out, size_t *bytes);

/* A number in text, all of it, as JSON, C and Python write decimal ones; also "nan", "inf". False: it is none, or (a
 * whole one) does not fit in 64 bits. */
bool lines_real(const uint8_t *text, size_t bytes, double *out);
bool lines_whole(const uint8_t *text, size_t bytes, int64_t *out);

/* Writes a number that was read as text to an element of a dtype, rounded to the nearest, once. False: it is no such
 * number, or too large for the dtype. */
bool lines_element(const uint8_t *text, size_t bytes, int32_t dtype, void *out);

#endif

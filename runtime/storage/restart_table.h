/* restart_table.h - where a compressed file can be taken up again, in an index file of its own beside it: what
 * restart.c reads it by.
 *
 * The file, in the machine's byte order: the window of each place that wants one (what came out last before it, up to
 * 32 KiB), compressed by zlib; the places (struct restart_point), of which each begins a span, in the order of what the
 * file holds; the footer (struct restart_footer), which ends the file. */
#ifndef SHARDRT_STORAGE_RESTART_TABLE_H
#define SHARDRT_STORAGE_RESTART_TABLE_H

#include "storage/stored.h"
#include "storage/unpack_stream.h"
#include "storage/write/newfile.h"

enum {
  RESTART_SPAN = 1 << 19,      /* bytes of a span, where the file can be taken up so soon */
  RESTART_SPAN_MOST = 1 << 26, /* longer ones are not decoded for the sake of a few bytes */
};

#define RESTART_SUFFIX ".restart.shardrt-index" /* of its name, behind that of the compressed file */

struct restart_point {
  uint64_t at;           /* the byte of the compressed file that decoding goes on with, */
  uint64_t first;        /* and the one of what it holds */
  uint64_t window;       /* where that lies in this file, */
  uint32_t window_bytes; /* compressed; 0: there is none */
  uint32_t bits;         /* of the byte before `at`; */
  uint32_t within;       /* 1: within a member of gzip, or a stream of zlib */
  uint32_t crc;          /* CRC-32C of what the span holds */
};

struct restart_footer {
  uint64_t file_bytes, file_changed; /* of the compressed file */
  uint64_t bytes;                    /* that it holds */
  uint64_t points;                   /* at least 1 */
  uint64_t longest;                  /* bytes of the longest span */
  uint64_t fingerprint;              /* as mapping_fingerprint, of what it holds */
  uint32_t kind;                     /* enum unpack_kind */
  uint32_t crc; /* of the points, then of the footer with 0 here; windows have zlib's own, and spans theirs */
  char magic[8];
};

/* Checks what is mapped against the compressed file, whose length and time it is known by; false: it is no such table.
 */
bool restart_table_read(const struct mapping *table, const struct stored *packed, enum unpack_kind kind,
                        struct restart_footer *out);
/* The points of a table that was read. */
static inline const struct restart_point *restart_table_points(const struct mapping *table,
                                                               const struct restart_footer *footer) {
  return (const struct restart_point *)(const void *)(table->data + table->bytes - sizeof *footer) - footer->points;
}

/* Writes a table while the file is gone through; all zeros but `out` is one that begins. */
struct restart_writer {
  struct newfile *out;
  struct restart_point *points;
  size_t count, capacity;
  uint64_t written; /* bytes of windows */
  uint64_t bytes;   /* that came out */
  uint64_t longest;
  uint32_t crc;  /* of the span at hand */
  uint8_t *head; /* the first STORAGE_HEAD bytes, */
  uint8_t *room; /* and a window, compressed */
  struct unpack_place place;
};

int restart_writer_begin(struct restart_writer *self);
/* Bytes that came out. */
void restart_writer_take(struct restart_writer *self, const uint8_t *data, size_t bytes);
/* After a run of the stream, which goes by blocks: `at` is the next byte of the compressed file. ENOMEM; EIO. */
int restart_writer_look(struct restart_writer *self, struct unpack_stream *stream, size_t at);
int restart_writer_end(struct restart_writer *self, const struct stored *packed, enum unpack_kind kind);
void restart_writer_clear(struct restart_writer *self);

#endif

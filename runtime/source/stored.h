/* stored.h - a file that samples are read from, wherever it lies. */
#ifndef SHARDRT_SOURCE_STORED_H
#define SHARDRT_SOURCE_STORED_H

#include "source/mapping.h"
#include "source/reader.h"

struct stored {
  char *path;  /* as it was given; owned */
  char *title; /* for messages: "the file a.tfrecord"; owned */
  size_t bytes;
  int64_t changed; /* another number when the file is another one */
  mapping map;
};

/* EIO, naming the path and the reason, where it cannot be read. */
int stored_open(const char *path, struct stored *out);
/* Any that is zeroed or was opened, or failed to; zeroes it. */
void stored_close(struct stored *self);

/* `bytes` bytes from `offset` on: in memory where the file lies there, else in the reader's arena. EFORMAT: beyond the
 * end; the message names file and offset. */
int stored_get(const struct stored *self, size_t offset, size_t bytes, struct reader *reader, const uint8_t **out);

/* Of its length and first SOURCE_BLOCK bytes. */
uint64_t stored_fingerprint(const struct stored *self);

#endif

/* remote_file.h - what remote.c, which reads files on servers, and remote_open.c, which opens them, both know of one.
 */
#ifndef SHARDRT_STORAGE_REMOTE_REMOTE_FILE_H
#define SHARDRT_STORAGE_REMOTE_REMOTE_FILE_H

#include <stdatomic.h>

#include "storage/remote/cuts.h"
#include "storage/remote/fetch.h"
#include "storage/remote/rangecache.h"
#include "storage/remote/remote.h"

enum { REMOTE_HEAD = 64 }; /* enough to tell the format by */

struct remote {
  char *url, *shown;
  struct rangecache cache;
  struct fetch_version version;
  struct rangecache_key key;
  bool whole; /* the server does not give parts */
  int64_t blocks;
  uint64_t fingerprint;
  _Atomic(struct file_cuts *) cuts; /* NULL: none; set once */
  uint8_t head[REMOTE_HEAD];        /* its first bytes, which are not in the cache where little else was asked for: */
  size_t head_bytes;                /* so many */
};

/* The connections of a reader, which lives longer than what they are used for; NULL and the message set. */
struct fetch *remote_fetch(struct reader *reader);

#endif

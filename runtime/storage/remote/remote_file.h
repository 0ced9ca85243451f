/* remote_file.h - what remote.c, which reads files on servers, and remote_open.c, which opens them, both know of one.
 */
#ifndef SHARDRT_STORAGE_REMOTE_REMOTE_FILE_H
#define SHARDRT_STORAGE_REMOTE_REMOTE_FILE_H

#include "storage/remote/fetch.h"
#include "storage/remote/rangecache.h"
#include "storage/remote/remote.h"

struct remote {
  char *url, *shown;
  struct rangecache cache;
  struct fetch_version version;
  struct rangecache_key key;
  bool whole; /* the server does not give parts */
  int64_t blocks;
  uint64_t fingerprint;
};

/* The connections of a reader, which lives longer than what they are used for; NULL and the message set. */
struct fetch *remote_fetch(struct reader *reader);

#endif

/* cache.h - files that are worked out of other files once, and kept: contents of compressed ones, indexes. */
#ifndef SHARDRT_STORAGE_WRITE_CACHE_H
#define SHARDRT_STORAGE_WRITE_CACHE_H

#include "storage/local/mapping.h"
#include "storage/write/newfile.h"

/* What is wanted. */
struct cache_request {
  const char *path; /* of the file that it is made from, */
  const struct mapping *file;
  const char *folder; /* as in shardrt_source_options */
  const char *suffix; /* NULL: it lies in the cache folder. Else beside the file, under its name with this behind it,
                         or, where that folder cannot be written or it is a URL, in the cache folder */
  size_t work_bytes;  /* how much there is to do: for how long to wait for another process that does it */
  bool (*fits)(const struct mapping *cached, const void *context); /* whether a file that is there is what is wanted */
  int (*make)(struct newfile *out, const void *context);           /* writes it */
  const void *context;
};

/* Maps the file that is wanted, which is made if it is not there. Any number of processes may do so at once, and may be
 * killed at any time: one of them makes it while the others wait (not forever: should it be stopped, they do it for
 * themselves), and all map the same file; a file is whole from the moment that it has its name. In the cache folder it
 * is known by the path, length and time of the file that it is made from and, without a suffix, its ends, or by a
 * remote file's key; beside it, only `fits` can tell. Where it is in neither place, one in the folder
 * $SHARDRT_SITE_CACHE serves: a cache folder that somebody filled for many users, and that is only read. What `make`
 * fails with; EIO: the folder cannot be written. */
int cache_get(const struct cache_request *request, struct mapping *out);

/* Maps the file that is wanted, if it is there; leaves *out closed else. ENOMEM; EIO. */
int cache_find(const struct cache_request *request, struct mapping *out);

/* Puts a file in the place of the one that is wanted, written by `write`, which is given what lies there and is what is
 * wanted (closed: nothing). One process after the other does so, where the file system has locks; where not,
 * what the last one wrote holds. `fits` and its readers tell a part of the file from all of it, as after a loss of
 * power. Nothing is written where the file that it is made from is another one by now. What `write` fails with; EIO. */
enum { CACHE_AS_IT_IS = 1 }; /* of `write`: what lies there stays */
typedef int cache_write(struct newfile *out, const struct mapping *there, const void *context);
int cache_update(const struct cache_request *request, cache_write *write, const void *context);

/* Removes what lies in either place. EIO. */
int cache_remove(const struct cache_request *request);

#endif

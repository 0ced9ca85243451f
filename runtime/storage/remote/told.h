/* told.h - what a process found out about files on servers, told to the others of its job: so that each file is asked
 * for once by them all, where they share a cache. */
#ifndef SHARDRT_STORAGE_REMOTE_TOLD_H
#define SHARDRT_STORAGE_REMOTE_TOLD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct told_file {
  uint64_t url; /* the hash of its address, */
  uint64_t key; /* remote_key, 0: nothing is known */
  uint64_t fingerprint;
};

struct shardrt_told {
  bool ends;               /* the format begins at the end of a file: little is asked for of its beginning */
  int64_t count;           /* of files of which something was told, */
  struct told_file *files; /* in ascending order of the addresses' hashes */
};

static inline int told_compare(const void *a, const void *b) {
  const uint64_t x = ((const struct told_file *)a)->url, y = ((const struct told_file *)b)->url;
  return (x > y) - (x < y);
}

/* NULL: nothing was told of it; `told` may be NULL, too. */
static inline const struct told_file *told_find(const struct shardrt_told *told, uint64_t url) {
  const struct told_file wanted = {.url = url};
  if (told == NULL || told->count == 0) return NULL;
  return bsearch(&wanted, told->files, (size_t)told->count, sizeof wanted, told_compare);
}

#endif

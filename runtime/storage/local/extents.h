/* extents.h - which bytes of their files a number of boxes are: gathered in any order, then sorted and merged. */
#ifndef SHARDRT_STORAGE_LOCAL_EXTENTS_H
#define SHARDRT_STORAGE_LOCAL_EXTENTS_H

#include "storage/local/mapping.h"

/* Bytes offset … offset + bytes of a file; bytes > 0. */
struct extent {
  const struct mapping *file; /* borrowed */
  size_t offset;
  size_t bytes;
};

struct extents {
  struct extent *list;
  int64_t count;
  int64_t capacity;
};

/* To read so many bytes more costs no more than to read twice: what a solid-state disk gives in the time of one read
 * that it begins (here 1 GB/s and 60,000 reads/s). Extents that are no further apart become one. */
enum { EXTENTS_GAP = 16 * 1024 };

/* An empty list, to be cleared in the end. */
int extents_set(int64_t capacity, struct extents *out);
void extents_clear(struct extents *self);
/* What is close behind the last one makes it longer; nothing is allocated until the capacity is used up. What lies
 * outside the file is left out: who reads it says what is wrong. ENOMEM. */
int extents_add(struct extents *self, const struct mapping *file, size_t offset, size_t bytes);
/* Puts them in the order of files and offsets, none closer to the one before than EXTENTS_GAP. */
void extents_merge(struct extents *self);

#endif

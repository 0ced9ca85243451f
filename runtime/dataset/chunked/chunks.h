/* chunks.h - pieces of arrays that were read or decoded lately, kept for all threads within a limit, so that the many
 * samples of one piece do not decode it again each. */
#ifndef SHARDRT_DATASET_CHUNKED_CHUNKS_H
#define SHARDRT_DATASET_CHUNKED_CHUNKS_H

#include "storage/stored.h"

/* One piece. */
struct chunk {
  const uint8_t *data; /* its elements, in the file's byte order; NULL: there are none, each is the fill value */
  uint8_t *memory;     /* for decoders to write them to, if they asked for it; used again for other chunks */
  struct stored file;  /* what they lie in, where they are not decoded and the file is this chunk's own */
};

enum { CHUNKS_BYTES = 256 * 1024 * 1024 }; /* decoded ones that are kept for one array, or one if that is larger */

struct chunks;

/* Reads chunk `number` into a chunk whose data is NULL and whose file is closed. */
typedef int chunk_load(const void *context, int64_t number, struct reader *reader, struct chunk *out);

/* Room for `bytes` bytes in the chunk, which are all chunks' size; NULL when out of memory. */
uint8_t *chunk_room(struct chunk *self, size_t bytes);

/* For `count` chunks of `bytes` bytes each, decoded, or, where `in_place`, lying in files. NULL when out of memory. */
struct chunks *chunks_new(int64_t count, size_t bytes, bool in_place);
int64_t chunks_kept(const struct chunks *self); /* how many, at most */
void chunks_free(struct chunks *self);          /* NULL is allowed; no chunk is held */

/* Holds a chunk, which is loaded if it is not kept; threads that want the same one wait for the first. What the load
 * fails with. Where all of a place's chunks are held, it is loaded into the reader's arena instead. */
int chunks_hold(struct chunks *self, int64_t number, chunk_load *load, const void *context, struct reader *reader,
                struct chunk **out);
/* Whether one that is held is kept where it is after its reader's arena was given back. */
bool chunks_keeps(struct chunks *self, int64_t number, const struct chunk *chunk);
void chunks_release(struct chunks *self, int64_t number, struct chunk *chunk);

#endif

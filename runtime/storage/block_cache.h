/* block_cache.h - blocks of files that were decoded lately (pages of Parquet, spans of compressed files), kept for all
 * threads and all sources of the process within one limit, so that the many rows of a block do not decode it again
 * each. What a thread had in a hand of its own it mostly takes no lock for. */
#ifndef SHARDRT_STORAGE_BLOCK_CACHE_H
#define SHARDRT_STORAGE_BLOCK_CACHE_H

#include <stdatomic.h>

#include "storage/local/reader.h"

enum { BLOCK_CACHE_BYTES = 256 * 1024 * 1024 };

/* The head of a block: counted, and never changed after it is made. */
struct block {
  _Atomic int32_t holders;
  size_t bytes;                      /* that it takes in memory */
  void (*drop)(struct block *block); /* frees it */
};

/* One count more; less. NULL is allowed in the latter. */
const struct block *block_retain(const struct block *self);
void block_free(const struct block *self);

/* A number of its own for each source. */
uint64_t block_cache_owner(void);

/* Decodes block `number` of a source; the caller owns the count. */
typedef int block_load(const void *source, int64_t number, struct reader *reader, struct block **out);

/* The block, decoded if it is not kept; threads that want the same one wait for the first. It stays until this reader
 * asks for another one in the same `hand`, any number, in which one block at a time is. What the load fails with. */
int block_cache_get(uint64_t owner, int64_t number, uint32_t hand, block_load *load, const void *source,
                    struct reader *reader, const struct block **out);
/* The block, if this reader has it in that hand still, until it asks for another one; else NULL. */
const struct block *block_cache_held(uint64_t owner, int64_t number, uint32_t hand, struct reader *reader);
/* This reader looks at no block any more until it asks for one: meanwhile what it has in hand goes with what the cache
 * lets go. A reader for which this is never said gives that back when it asks for the next one. */
void block_cache_rest(struct reader *reader);
/* Drops all blocks of a source that nobody reads any more. */
void block_cache_forget(uint64_t owner);

#endif

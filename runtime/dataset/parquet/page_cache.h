/* page_cache.h - pages that were decoded lately, kept for all threads and all sources of the process within one limit,
 * so that the many rows of a page do not decode it again each. What a thread had last of a column it has in hand, and
 * takes no lock for. */
#ifndef SHARDRT_DATASET_PARQUET_PAGE_CACHE_H
#define SHARDRT_DATASET_PARQUET_PAGE_CACHE_H

#include "dataset/parquet/encoding/page.h"
#include "storage/local/reader.h"

enum { PAGE_CACHE_BYTES = 256 * 1024 * 1024 };

/* A number of its own for each source. */
uint64_t page_cache_owner(void);

/* Decodes page `number` of a source; the caller owns the count. */
typedef int page_load(const void *source, int64_t number, struct reader *reader, struct parquet_page **out);

/* The page, decoded if it is not kept; threads that want the same one wait for the first. It stays until this reader
 * asks for another one in the same `hand`, any number, in which one page at a time is. What the load fails with. */
int page_cache_get(uint64_t owner, int64_t number, uint32_t hand, page_load *load, const void *source,
                   struct reader *reader, const struct parquet_page **out);
/* Drops all pages of a source that nobody reads any more. */
void page_cache_forget(uint64_t owner);

#endif

/* page.h - a page of a column, decoded: counted, and never changed after it is made. */
#ifndef SHARDRT_DATASET_COLUMN_PAGE_H
#define SHARDRT_DATASET_COLUMN_PAGE_H

#include "storage/block_cache.h"

/* Where in a page's base a value of bytes lies. */
struct page_span {
  uint32_t start, length;
};

enum { PAGE_NULL /* it has one, which is an error */, PAGE_VALID, PAGE_REPLACED /* by the text that nulls get */ };

struct page_piece {
  void *room;
  size_t bytes;
};

struct column_page {
  struct block block; /* first: what the cache of decoded blocks counts and keeps */
  int32_t npieces;
  struct page_piece pieces[8];
  const struct column_page *dictionary; /* whose memory the base is; counted; or NULL */
  int64_t rows;
  /* Elements one after the other, packed: one for each row, or those of lists, of which row i has those from lists[i]
   * to lists[i + 1]; or, of values of bytes, what the spans lie in. May lie in the mapped file. */
  const uint8_t *data;
  const uint32_t *lists;
  const struct page_span *spans; /* of each row */
  const uint8_t *valid;          /* of each row: PAGE_VALID, …; NULL: all are valid */
};

/* An empty one with one holder; NULL when out of memory. */
struct column_page *page_new(void);
/* Memory that lives as long as the page, or until it is dropped; NULL when out of memory. */
void *page_room(struct column_page *self, size_t bytes);
void page_drop(struct column_page *self, const void *room);
/* One count more; less. NULL is allowed in the latter. */
const struct column_page *page_retain(const struct column_page *self);
void page_free(const struct column_page *self);
/* As block_cache_get, of blocks that are pages. */
int page_kept(uint64_t owner, int64_t number, uint32_t hand, block_load *load, const void *source,
              struct reader *reader, const struct column_page **out);

#endif

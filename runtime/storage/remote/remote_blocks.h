/* remote_blocks.h - the blocks of a file on a server that the cache has (rangecache.h), requests for those that it does
 * not have, claims on them, and what came of the requests. Bytes `first` … `stop` are the file's, everywhere. */
#ifndef SHARDRT_STORAGE_REMOTE_REMOTE_BLOCKS_H
#define SHARDRT_STORAGE_REMOTE_REMOTE_BLOCKS_H

#include "storage/remote/remote_file.h"

enum {
  REMOTE_REQUEST_BLOCKS = 4, /* of one request at most */
  /* Who wants so many bytes at once gets these; who wants fewer, whole blocks. */
  REMOTE_EXACT = REMOTE_REQUEST_BLOCKS * RANGECACHE_BLOCK
};

/* The whole blocks that have some bytes, from the first one's begin to the last one's end. */
static inline size_t remote_blocks_begin(size_t first) {
  return first / RANGECACHE_BLOCK * RANGECACHE_BLOCK;
}

static inline size_t remote_blocks_end(size_t stop) {
  return (stop + RANGECACHE_BLOCK - 1) / RANGECACHE_BLOCK * RANGECACHE_BLOCK;
}

/* How long a block is: the last one may be shorter. */
size_t remote_block_bytes(const struct remote *self, int64_t number);
/* What of these bytes lies in a block. */
struct rangecache_span remote_block_span(const struct remote *self, int64_t number, size_t first, size_t stop);

/* A claim (rangecache_claims) on the whole blocks that have these bytes: of a block the cache keeps bytes that follow
 * each other, so two who bring different ones would bring what lies between twice, or one in place of the other's. */
bool remote_claim(const struct remote *self, int claims, size_t first, size_t stop);

struct remote_requests {
  struct fetch_request *list;
  int64_t n, most;
};

/* Adds requests for what the cache does not have of these bytes, and for what lies between that and what it has of a
 * block, as long as there is room. Their blocks are claimed: nobody else is bringing anything of them. */
void remote_ask(const struct remote *self, size_t first, size_t stop, struct remote_requests *out);

/* Puts bytes of the file from `at` on into the cache. What rangecache_put fails with. */
int remote_put(const struct remote *self, size_t at, const uint8_t *data, size_t bytes);
/* Puts there what came of one of those requests. EIO: it is not what was asked for. */
int remote_take(const struct fetch_request *request);

#endif

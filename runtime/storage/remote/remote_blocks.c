#include "storage/remote/remote_blocks.h"

#include "base/error.h"

enum { BLOCK = RANGECACHE_BLOCK };

size_t remote_block_bytes(const struct remote *self, int64_t number) {
  const size_t first = (size_t)number * BLOCK, all = (size_t)self->version.bytes;
  return all - first < BLOCK ? all - first : BLOCK;
}

struct rangecache_span remote_block_span(const struct remote *self, int64_t number, size_t first, size_t stop) {
  const size_t base = (size_t)number * BLOCK, end = base + remote_block_bytes(self, number);
  return (struct rangecache_span){first > base ? first - base : 0, (stop < end ? stop : end) - base};
}

static struct rangecache_span what_is_there(const struct remote *self, int64_t number) {
  return rangecache_has(&self->cache, &self->key, number, remote_block_bytes(self, number));
}

bool remote_has_bytes(const struct remote *self, size_t first, size_t stop) {
  for (int64_t number = (int64_t)(first / BLOCK); (size_t)number * BLOCK < stop; number++)
    if (!rangecache_covers(what_is_there(self, number), remote_block_span(self, number, first, stop))) return false;
  return true;
}

bool remote_claim(const struct remote *self, int claims, size_t first, size_t stop) {
  return rangecache_claim(claims, &self->key, remote_blocks_begin(first), remote_blocks_end(stop));
}

/* For bytes of a block more. */
static void add_request(const struct remote *self, int64_t number, struct rangecache_span span,
                        struct remote_requests *out) {
  const size_t base = (size_t)number * BLOCK;
  if (out->n > 0) {
    struct fetch_request *last = &out->list[out->n - 1];
    if (last->offset + last->bytes == base + span.first &&
        number - (int64_t)(last->offset / BLOCK) < REMOTE_REQUEST_BLOCKS) {
      last->bytes += span.stop - span.first;
      return;
    }
  }
  if (out->n == out->most) return;
  out->list[out->n++] = (struct fetch_request){.url = self->url,
                                               .shown = self->shown,
                                               .offset = base + span.first,
                                               .bytes = span.stop - span.first,
                                               .version = &self->version,
                                               .context = (void *)self};
}

void remote_ask(const struct remote *self, size_t first, size_t stop, struct remote_requests *out) {
  for (int64_t number = (int64_t)(first / BLOCK); (size_t)number * BLOCK < stop; number++) {
    const struct rangecache_span there = what_is_there(self, number);
    const struct rangecache_span wanted = remote_block_span(self, number, first, stop);
    if (there.stop == 0) {
      add_request(self, number, wanted, out);
      continue;
    }
    if (wanted.first < there.first) add_request(self, number, (struct rangecache_span){wanted.first, there.first}, out);
    if (wanted.stop > there.stop) add_request(self, number, (struct rangecache_span){there.stop, wanted.stop}, out);
  }
}

int remote_put(const struct remote *self, size_t at, const uint8_t *data, size_t bytes) {
  const size_t stop = at + bytes;
  int code = SHARDRT_OK;
  while (at < stop && code == SHARDRT_OK) {
    const int64_t number = (int64_t)(at / BLOCK);
    const struct rangecache_span span = remote_block_span(self, number, at, stop);
    code = rangecache_put(&self->cache, &self->key, number, remote_block_bytes(self, number), span, data);
    data += span.stop - span.first;
    at += span.stop - span.first;
  }
  return code;
}

int remote_take(const struct fetch_request *request) {
  const struct remote *self = request->context;
  if (request->kind != FETCH_PART) return error_set(SHARDRT_EIO, "%s: no part of it was sent", self->shown);
  return remote_put(self, request->offset, request->data, request->got);
}
